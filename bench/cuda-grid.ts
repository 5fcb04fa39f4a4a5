/**
 * @file Tensor Core kernels searched on this machine's GPU, beside cuBLAS in the same process and PyTorch's cuDNN.
 *
 *     npm run build
 *     node dist/bench/cuda-grid.js --cases gemm-4096,conv-16-64x56-nhwc --seconds 60 --out cuda-grid-h100.jsonl
 *     node dist/bench/cuda-grid.js --report cuda-grid-h100.jsonl                             the table
 *     node dist/bench/cuda-grid.js --cases resnet18-1-nhwc --seconds 15 --out FILE.jsonl     twelve layers of a network
 *
 * Inputs are f16, sums f32, outputs f16. Every kernel must match the reference in every element on three sets of inputs
 * before its time counts. The finalists and cuBLAS run in random turns. PyTorch (benchmark mode, CUDA graphs) runs
 * before and after all cases, in both layouts.
 */

import { execFileSync } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import type { Candidate } from "../abstraction/candidate.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";
import { type CudaRunner, createCudaRunner } from "../runtime/run/cuda.ts";
import type { TunedKernel } from "../session/finals.ts";
import { tuneComputation } from "../session/tune.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import type { TuneEvent } from "../tuner/search.ts";
import { type Case, casesNamed, type Layer } from "./cuda-cases.ts";
import { cublas } from "./cuda-library.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "gemm-4096,conv-16-64x56-nhwc,conv-16-64x56-nchw" },
    seconds: { type: "string", default: "60" },
    seed: { type: "string", default: "1" },
    target: { type: "string", default: "h100" },
    out: { type: "string" },
    report: { type: "string" },
    workdir: { type: "string" },
    python: { type: "string", default: "python3" },
  },
});

const final = z.object({
  kind: z.literal("case"),
  case: z.string(),
  trials: z.number(),
  measured: z.number(),
  seconds: z.number(),
  best: z
    .object({
      median: z.number(),
      interval: z.tuple([z.number(), z.number()]),
      instruction: z.string(),
      mapping: z.string(),
      schedule: z.string(),
    })
    .optional(),
  peers: z.record(z.string(), z.number()),
  failed: z.record(z.string(), z.number()),
});
type Final = z.infer<typeof final>;
/** Peers measured for all cases together. */
const beside = z.object({ kind: z.literal("peers"), case: z.string(), peers: z.record(z.string(), z.number()) });
const OTHER_LAYOUT = "PyTorch, other layout";

/** No limit in practice: the budget is in seconds. */
const MOST_TRIALS = 1_000_000;

if (values.report === undefined) await run();
else console.log(report(readFileSync(values.report, "utf8")));

/** Appends a line to the results file. */
type Write = (line: unknown) => void;

/** Where kernels run, and the library beside them. */
interface Place {
  readonly runner: CudaRunner;
  readonly workdir: string;
}

async function run(): Promise<void> {
  const workdir = values.workdir ?? mkdtempSync(join(tmpdir(), "automap-cuda-grid-"));
  const made = await createCudaRunner({ workdir });
  if (made.status === "environment") {
    console.error(`${made.what}\n${made.why}\n${made.remedy}`);
    process.exitCode = 6;
    return;
  }
  const { runner } = made;
  const write: Write = (line) => {
    const text = JSON.stringify(line);
    if (values.out !== undefined) appendFileSync(values.out, `${text}\n`);
    else console.log(text);
  };
  if (values.out !== undefined) writeFileSync(values.out, "");
  write({ kind: "device", ...runner.device, seconds: Number(values.seconds), seed: Number(values.seed) });
  const all = values.cases.split(",").flatMap(casesNamed);
  const layers = all.flatMap((one) => one.conv ?? []);
  const before = torchSeconds(layers);
  for (const one of all) await searchCase(one, { runner, workdir }, write);
  const after = torchSeconds(layers);
  for (const [i, { name }] of all.filter((one) => one.conv).entries()) {
    const runs = [before[i], after[i]].flatMap((t) => t ?? []);
    if (runs.length === 0) continue;
    const peers = {
      PyTorch: Math.min(...runs.map((t) => t.own)),
      [OTHER_LAYOUT]: Math.min(...runs.map((t) => t.other)),
    };
    write({ kind: "peers", case: name, peers } satisfies z.infer<typeof beside>);
  }
  await runner.close();
}

async function searchCase(one: Case, place: Place, write: Write): Promise<void> {
  const begun = Date.now();
  const found = await tuneComputation(one, {
    machine: nvidiaTarget(values.target),
    database: ":memory:",
    trials: MOST_TRIALS,
    seconds: Number(values.seconds),
    seed: Number(values.seed),
    onEvent: (event) => writeEvent(one, event, write),
  });
  if (!("trials" in found)) {
    console.error(`${one.name}: ${found.status === "environment" ? found.problem.what : "nothing maps"}`);
    return;
  }
  const line: Final = {
    kind: "case",
    case: one.name,
    trials: found.trials.length,
    seconds: (Date.now() - begun) / 1000,
    peers: {},
    failed: found.failed,
    measured: found.trials.filter((t) => t.measurement.status === "ok").length,
    ...(found.best && (await besideLibrary(one, found.best, place))),
  };
  write(line);
  console.error(JSON.stringify(line));
}

function writeEvent(one: Case, event: TuneEvent<Candidate>, write: Write): void {
  if (event.kind === "trial") {
    const { candidate, measurement, prediction } = event.trial;
    const { status } = measurement;
    const timed =
      status === "ok"
        ? { median: measurement.median, interval: measurement.interval }
        : { log: measurement.log.slice(0, 300) };
    write({
      kind: "trial",
      case: one.name,
      candidate,
      status,
      ...timed,
      predicted: prediction?.seconds,
      uncorrected: prediction?.uncorrectedSeconds,
    });
  }
  if (event.kind === "best")
    console.error(`${one.name} ${event.number}: ${seconds(event.trial)} us  ${scheduleText(event.trial.candidate)}`);
}

/** Times the winner and the library in one process, in alternating batches. */
async function besideLibrary(
  one: Case,
  { kernel, candidate }: TunedKernel,
  { runner, workdir }: Place,
): Promise<Pick<Final, "best" | "peers">> {
  const library = one.gemm === undefined ? [] : [cublas(workdir, one.gemm, runner.device.nvcc.path, kernel.arguments)];
  const reference = await runner.reference(one.computation, Number(values.seed));
  const [own, ...others] = await runner.measureTogether([kernel, ...library], reference, {
    budgetSeconds: 1,
    batches: [30, 1000],
  });
  const [peer] = others;
  if (peer && peer.status !== "ok") console.error(`cuBLAS: ${peer.status}: ${peer.log}`);
  if (values.out !== undefined) writeFileSync(`${values.out}.${one.name}.cu`, kernel.source);
  const peers = peer?.status === "ok" ? { cuBLAS: peer.median } : {};
  if (own?.status !== "ok") return { peers };
  return {
    peers,
    best: {
      median: own.median,
      interval: [own.interval[0], own.interval[1]],
      instruction: candidate.intrinsic,
      mapping: placeText(candidate),
      schedule: scheduleText(candidate),
    },
  };
}

function seconds({
  measurement,
}: {
  readonly measurement: { readonly status: string; readonly median?: number };
}): string {
  return measurement.median === undefined ? measurement.status : (measurement.median * 1e6).toFixed(2);
}

/** Seconds of convolutions in PyTorch, in each layout; none without PyTorch. */
function torchSeconds(layers: readonly Layer[]): readonly { readonly own: number; readonly other: number }[] {
  if (layers.length === 0) return [];
  const script = fileURLToPath(new URL("./peers/torch-conv.py", import.meta.url));
  const given = layers.flatMap(({ n, c, h, k, r, stride, dilation, last }) =>
    [last, !last].map((innermost) => [n, c, h, k, r, stride, dilation, innermost ? 1 : 0].join(",")),
  );
  try {
    const out = execFileSync(values.python, [script, ...given], { encoding: "utf8" });
    const times = out.trim().split("\n").map(Number);
    return layers.map((_, i) => ({ own: times[2 * i] ?? Number.NaN, other: times[2 * i + 1] ?? Number.NaN }));
  } catch (error) {
    console.error(`PyTorch: ${error instanceof Error ? error.message : String(error)}`);
    return [];
  }
}

function report(text: string): string {
  const lines = text
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
  const device = z
    .object({
      name: z.string(),
      driver: z.string(),
      nvcc: z.object({ version: z.string() }),
      seconds: z.number(),
      seed: z.number(),
    })
    .parse(lines[0]);
  const cases = lines.flatMap((line) => {
    const parsed = final.safeParse(line);
    return parsed.success ? [parsed.data] : [];
  });
  const besides = lines.flatMap((line) => beside.safeParse(line).data ?? []);
  const rows = cases.map(({ case: name, trials, measured, best, failed, ...own }) => {
    const [peer, other] = Object.entries({ ...own.peers, ...besides.find((b) => b.case === name)?.peers });
    const ratio = best && peer ? (peer[1] / best.median).toFixed(2) : "";
    const otherRatio = best && other ? (other[1] / best.median).toFixed(2) : "";
    const wrong = Object.entries(failed)
      .map(([status, count]) => `${count} ${status}`)
      .join(", ");
    const us = (s: number): string => (s * 1e6).toFixed(2);
    return `| ${[name, best ? `${us(best.median)} (${us(best.interval[0])} to ${us(best.interval[1])})` : "none", peer ? `${us(peer[1])} ${peer[0]}` : "", ratio, otherRatio, `${measured} of ${trials}`, wrong || "none", best ? `${best.instruction}, ${best.mapping}; ${best.schedule}` : ""].join(" | ")} |`;
  });
  return [
    "# Tensor Core kernels searched on a GPU",
    "",
    `${device.name}, driver ${device.driver}, nvcc ${device.nvcc.version}. f16 inputs, f32 sums, f16 outputs; ${device.seconds} s a case, seed ${device.seed}. Microseconds of one call in a CUDA graph, inputs in the last cache; medians with 95 % intervals. The ratio is peer / automap: above 1 automap is faster. Every kernel equals the reference in every element of three sets of inputs.`,
    "",
    "    node dist/bench/cuda-grid.js --cases ... --seconds ... --out FILE.jsonl",
    "",
    "| case | automap | peer | ratio | to its other layout | measured | failed | winner |",
    "|---|---|---|---|---|---|---|---|",
    ...rows,
    "",
  ].join("\n");
}
