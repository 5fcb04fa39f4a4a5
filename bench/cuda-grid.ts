/**
 * @file Tensor Core kernels searched on this machine's GPU, beside cuBLAS in the same process and PyTorch's cuDNN in the same call.
 *
 *     npm run build
 *     node dist/bench/cuda-grid.js --cases gemm-4096,conv-16-64x56-nhwc --seconds 60 --out bench/results/cuda-grid-h100.jsonl
 *     node dist/bench/cuda-grid.js --report bench/results/cuda-grid-h100.jsonl > bench/results/cuda-grid-h100.md
 *
 *     node dist/bench/cuda-grid.js --sanitize 12 --out bench/results/cuda-sanitizer-h100.jsonl
 *
 * Inputs are f16, sums f32, outputs f16. Every kernel is compared with the reference in every element of three sets of inputs before its
 * time counts. The finalists and cuBLAS run in turns, in a random order. PyTorch (benchmark mode, CUDA graphs) runs before and after.
 */

import { execFileSync, spawnSync } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { z } from "zod";
import type { Computation } from "../abstraction/computation.ts";
import { seededRandom } from "../abstraction/random.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";
import { createCudaRunner, type Prebuilt } from "../runtime/run/cuda.ts";
import { sessionSpace } from "../session/space.ts";
import { tuneComputation, usableIntrinsics } from "../session/tune.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";

const { values } = parseArgs({
  options: {
    cases: { type: "string", default: "gemm-4096,conv-16-64x56-nhwc,conv-16-64x56-nchw" },
    seconds: { type: "string", default: "60" },
    seed: { type: "string", default: "1" },
    target: { type: "string", default: "h100" },
    out: { type: "string" },
    report: { type: "string" },
    workdir: { type: "string" },
    /** Random kernels of each small case that run under each tool of compute-sanitizer, instead of a search. */
    sanitize: { type: "string" },
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

/** Small enough for racecheck, large enough for several blocks and a ring that turns. */
const SANITIZED = ["gemm-320", "conv-2-32x14-nhwc", "conv-1-32x14-nchw"];
/** The budget is of seconds. */
const MOST_TRIALS = 1_000_000;
const TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"];

if (values.sanitize !== undefined) await sanitize(Number(values.sanitize));
else if (values.report === undefined) await run();
else console.log(report(readFileSync(values.report, "utf8")));

interface Case {
  readonly name: string;
  readonly computation: Computation;
  readonly gemm?: number;
  /** What PyTorch is given: batch, channels, height, filters, filter, and whether channels lie innermost. */
  readonly conv?: readonly [n: number, c: number, h: number, k: number, r: number, last: boolean];
}

/** `gemm-4096`, `conv-16-64x56-nhwc`: batch, channels, side; 3x3, padding 1. */
function caseNamed(name: string): Case {
  const types = parseDataTypes("f16");
  const gemm = /^gemm-(\d+)$/.exec(name);
  if (gemm) {
    const n = Number(gemm[1]);
    const computation = instantiate(operatorNamed("matmul"), {
      ...{ parameters: { m: n, n, k: n }, types, epilogue: "c[m,n] = f16(out[m,n])" },
    });
    return { name, computation, gemm: n };
  }
  const conv = /^conv-(\d+)-(\d+)x(\d+)-(nhwc|nchw)$/.exec(name);
  if (!conv) throw new Error(`no case "${name}": gemm-SIZE or conv-BATCH-CHANNELSxSIDE-nhwc|nchw`);
  const [n = 1, c = 1, h = 1] = conv.slice(1, 4).map(Number);
  const last = conv[4] === "nhwc";
  const computation = instantiate(operatorNamed("conv2d"), {
    ...{ parameters: { n, c, k: c, h, w: h, r: 3, s: 3, pad: 1 }, types, epilogue: "y[n,k,p,q] = f16(out[n,k,p,q])" },
    ...(last && { layouts: { in: "NHWC", w: "KRSC", y: "NPQK" } }),
  });
  return { name, computation, conv: [n, c, h, c, 3, last] };
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
  const target = nvidiaTarget(values.target);
  const write = (line: unknown): void => {
    const text = JSON.stringify(line);
    if (values.out !== undefined) appendFileSync(values.out, `${text}\n`);
    else console.log(text);
  };
  if (values.out !== undefined) writeFileSync(values.out, "");
  write({ kind: "device", ...runner.device, seconds: Number(values.seconds), seed: Number(values.seed) });
  for (const one of values.cases.split(",").map(caseNamed)) {
    const begun = Date.now();
    const before = one.conv ? torchSeconds(one.conv) : undefined;
    const found = await tuneComputation(one, {
      ...{ machine: target, database: ":memory:", trials: MOST_TRIALS },
      ...{ seconds: Number(values.seconds), seed: Number(values.seed) },
      onEvent: (event) => {
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
            predicted: prediction?.seconds,
            uncorrected: prediction?.uncorrectedSeconds,
            status,
            ...timed,
          });
        }
        if (event.kind === "best")
          console.error(
            `${one.name} ${event.number}: ${seconds(event.trial)} us  ${scheduleText(event.trial.candidate)}`,
          );
      },
    });
    if (!("trials" in found)) {
      console.error(`${one.name}: ${found.status === "environment" ? found.problem.what : "nothing maps"}`);
      continue;
    }
    // The winner and the library in one process, batches in turns.
    const winner = found.best;
    const peers: Record<string, number> = {};
    let best: Final["best"];
    if (winner) {
      const { kernel } = winner;
      const library =
        one.gemm === undefined ? [] : [cublas(workdir, one.gemm, runner.device.nvcc.path, kernel.arguments)];
      const reference = await runner.reference(one.computation, Number(values.seed));
      const [own, ...others] = await runner.measureTogether([kernel, ...library], reference, {
        budgetSeconds: 1,
        batches: [30, 1000],
      });
      if (own?.status === "ok")
        best = {
          ...{ median: own.median, interval: [own.interval[0], own.interval[1]] },
          ...{ instruction: winner.candidate.intrinsic, mapping: placeText(winner.candidate) },
          schedule: scheduleText(winner.candidate),
        };
      const [peer] = others;
      if (peer?.status === "ok") peers["cuBLAS"] = peer.median;
      else if (peer) console.error(`cuBLAS: ${peer.status}: ${peer.log}`);
      if (values.out !== undefined) writeFileSync(`${values.out}.${one.name}.cu`, kernel.source);
    }
    if (one.conv && before !== undefined) peers["PyTorch"] = Math.min(before, torchSeconds(one.conv) ?? before);
    const line: Final = {
      ...{
        kind: "case",
        case: one.name,
        trials: found.trials.length,
        seconds: (Date.now() - begun) / 1000,
        peers,
        failed: found.failed,
      },
      measured: found.trials.filter((t) => t.measurement.status === "ok").length,
      ...(best && { best }),
    };
    write(line);
    console.error(JSON.stringify(line));
  }
  await runner.close();
}

/** Random kernels under each tool: what it finds is counted. */
async function sanitize(count: number): Promise<void> {
  const workdir = values.workdir ?? mkdtempSync(join(tmpdir(), "automap-cuda-grid-"));
  const made = await createCudaRunner({ workdir });
  if (made.status === "environment") throw new Error(`${made.what}: ${made.remedy}`);
  const { runner } = made;
  const random = seededRandom(Number(values.seed));
  const write = (line: unknown): void => {
    console.error(JSON.stringify(line));
    if (values.out !== undefined) appendFileSync(values.out, `${JSON.stringify(line)}\n`);
  };
  if (values.out !== undefined) writeFileSync(values.out, "");
  write({ kind: "device", ...runner.device, seed: Number(values.seed) });
  for (const { name, computation } of SANITIZED.map(caseNamed)) {
    const machine = nvidiaTarget(values.target);
    const chosen = { machine, intrinsics: usableIntrinsics(machine), threads: 1, seed: Number(values.seed) };
    const space = sessionSpace(computation, chosen);
    if (!("kernelOf" in space)) throw new Error(`${name}: nothing maps`);
    const kernels = Array.from({ length: count }, () => space.kernelOf(space.random(random)));
    const compiled = await Promise.all(kernels.map((k) => runner.compile(k)));
    const files = compiled.flatMap((c) => (c.status === "compiled" ? [c.file] : []));
    const [first] = kernels;
    if (!first) continue;
    const reference = await runner.reference(computation, 1);
    const text = runner.requestOf(files, first, reference, { budgetSeconds: 0, batches: [1, 1], batchSeconds: 0 });
    for (const tool of TOOLS) {
      const command = ["--tool", tool, "--error-exitcode", "9", runner.harness];
      const out = spawnSync("compute-sanitizer", command, {
        input: text,
        encoding: "utf8",
        stdio: ["pipe", "pipe", "pipe", "pipe"],
        timeout: 240_000,
      });
      const all = `${out.stdout}${out.stderr}`;
      const answers = String(out.output[3] ?? "");
      const timed = answers.split("\n").filter((line) => line.startsWith("samples ")).length;
      const summary = all
        .split("\n")
        .findLast((line) => line.includes("SUMMARY"))
        ?.replace(/^=+ /, "");
      const findings = all
        .split("\n")
        .filter((line) => /Error|Warning|hazard|Invalid|Uninitialized/i.test(line) && !line.includes("SUMMARY"));
      write({
        kind: "sanitizer",
        case: name,
        tool,
        kernels: files.length,
        timed,
        exit: out.status,
        summary,
        findings: findings.slice(0, 5),
      });
    }
  }
  await runner.close();
}

function seconds({
  measurement,
}: {
  readonly measurement: { readonly status: string; readonly median?: number };
}): string {
  return measurement.median === undefined ? measurement.status : (measurement.median * 1e6).toFixed(2);
}

function cublas(workdir: string, n: number, nvcc: string, arguments_: Prebuilt["arguments"]): Prebuilt {
  const source = fileURLToPath(new URL("./peers/cublas.cu", import.meta.url));
  const file = join(workdir, `cublas-${n}.so`);
  execFileSync(nvcc, [
    "-shared",
    "-Xcompiler",
    "-fPIC",
    `-DM=${n}`,
    `-DN=${n}`,
    `-DK=${n}`,
    "-o",
    file,
    source,
    "-lcublas",
  ]);
  return { file, arguments: arguments_ };
}

/** Seconds of a convolution in PyTorch: the median of graphs of 20 calls. Undefined where there is no PyTorch. */
function torchSeconds([n, c, h, k, r, last]: NonNullable<Case["conv"]>): number | undefined {
  const script = fileURLToPath(new URL("./peers/torch-conv.py", import.meta.url));
  try {
    const out = execFileSync(values.python, [script, ...[n, c, h, k, r, last ? 1 : 0].map(String)], {
      encoding: "utf8",
    });
    return Number(out.trim().split("\n").at(-1));
  } catch (error) {
    console.error(`PyTorch: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
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
  const rows = cases.map(({ case: name, trials, measured, best, peers, failed }) => {
    const [peer] = Object.entries(peers);
    const ratio = best && peer ? (peer[1] / best.median).toFixed(2) : "";
    const wrong = Object.entries(failed)
      .map(([status, count]) => `${count} ${status}`)
      .join(", ");
    const us = (s: number): string => (s * 1e6).toFixed(2);
    return `| ${[name, best ? `${us(best.median)} (${us(best.interval[0])} to ${us(best.interval[1])})` : "none", peer ? `${us(peer[1])} ${peer[0]}` : "", ratio, `${measured} of ${trials}`, wrong || "none", best ? `${best.instruction}, ${best.mapping}; ${best.schedule}` : ""].join(" | ")} |`;
  });
  return [
    "# Tensor Core kernels searched on a GPU",
    "",
    `${device.name}, driver ${device.driver}, nvcc ${device.nvcc.version}. f16 inputs, f32 sums, f16 outputs; ${device.seconds} s a case, seed ${device.seed}. Microseconds of one call in a CUDA graph, inputs in the last cache; medians with 95 % intervals. The ratio is peer / automap: above 1 automap is faster. Every kernel equals the reference in every element of three sets of inputs.`,
    "",
    "    node dist/bench/cuda-grid.js --cases ... --seconds ... --out FILE.jsonl",
    "",
    "| case | automap | peer | ratio | measured | failed | winner |",
    "|---|---|---|---|---|---|---|",
    ...rows,
    "",
  ].join("\n");
}
