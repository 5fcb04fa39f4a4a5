/**
 * @file The pairwise products of a recommendation model (DLRM's interaction) on this machine's GPU: one searched
 * kernel, the sequence of kernels it replaces, and PyTorch.
 *
 *     npm run build
 *     node dist/bench/layers/interaction-cuda.js --dtypes bf16,f16 --seconds 40 --out interaction-h100
 *     node dist/bench/layers/interaction-cuda.js --report interaction-h100.jsonl
 *
 * One search of `--seconds` finds the fused kernel, one the sequence's product. The sequence (cat, product, index, cat)
 * has the interface of one kernel (bench/peers/interaction.cu): both are checked alike and run in turns. PyTorch has
 * its own process (bench/peers/torch-interaction.py), before the searches and after; the faster run counts.
 */

import { execFile, execFileSync } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { z } from "zod";
import type { Computation } from "../../abstraction/computation.ts";
import { EnvironmentError } from "../../abstraction/error.ts";
import { placeText, scheduleText } from "../../report/describe-candidate.ts";
import { createCudaRunner, type Prebuilt } from "../../runtime/run/cuda.ts";
import { kernelFlagsOf } from "../../runtime/run/cuda-build.ts";
import type { CudaDevice } from "../../runtime/run/cuda-device.ts";
import type { TunedKernel } from "../../session/finals.ts";
import { tuneComputation } from "../../session/tune.ts";
import { localGpu } from "../../session/workplace.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { interaction, products, VECTORS, WIDTH } from "./interaction.ts";

const PAIRS = (VECTORS * (VECTORS - 1)) / 2;
const BYTES = 2;
/** Bits that tell bench/peers/interaction.cu to run a step twice. */
const STEPS = { cat0: 1, product: 2, index: 4, cat1: 8 } as const;
const MOST_TRIALS = 1_000_000;

const torch = z.object({
  torch: z.string(),
  gpu: z.string(),
  eager: z.number(),
  graph: z.number(),
  copy: z.number(),
  off: z.number(),
  steps: z.record(z.string(), z.number()),
});
const found = z.object({
  instruction: z.string(),
  mapping: z.string(),
  schedule: z.string(),
  trials: z.number(),
  seconds: z.number(),
});
const row = z.object({
  dtype: z.string(),
  samples: z.number(),
  device: z.string(),
  driver: z.string(),
  nvcc: z.string(),
  date: z.string(),
  command: z.string(),
  fused: z.number(),
  sequence: z.number(),
  /** Steps of the sequence: the extra time when a step runs twice. */
  steps: z.record(z.string(), z.number()),
  searches: z.object({ fused: found, product: found }),
  torch: torch.optional(),
});
export type InteractionRow = z.infer<typeof row>;
type Half = "bf16" | "f16";

/** The result of a search. */
interface Searched {
  readonly best: TunedKernel;
  readonly says: z.infer<typeof found>;
}

async function searched(computation: Computation, seconds: number, seed: number): Promise<Searched> {
  const machine = await localGpu();
  if (!("levels" in machine)) throw new EnvironmentError(machine);
  const begun = Date.now();
  const outcome = await tuneComputation(
    { computation },
    { machine, database: ":memory:", trials: MOST_TRIALS, within: seconds, seed, earlyStop: false },
  );
  if (!("best" in outcome) || outcome.best === undefined)
    throw new Error(
      `${computation.name}: ${outcome.status}${"failed" in outcome ? JSON.stringify(outcome.failed) : ""}`,
    );
  const { best, trials } = outcome;
  const says = {
    instruction: best.candidate.intrinsic,
    mapping: placeText(best.candidate),
    schedule: scheduleText(best.candidate),
    trials: trials.length,
    seconds: (Date.now() - begun) / 1000,
  };
  console.error(`${computation.name}: ${JSON.stringify(says)}`);
  return { best, says };
}

/** The sequence as a kernel. @param twice steps that run twice */
async function sequence(
  folder: string,
  device: CudaDevice,
  samples: number,
  { kernel }: TunedKernel,
  like: TunedKernel,
  twice = 0,
): Promise<Prebuilt> {
  const product = join(folder, `product-${twice}.cu`);
  writeFileSync(product, kernel.source);
  const file = join(folder, `sequence-${twice}.so`);
  const source = fileURLToPath(new URL("../peers/interaction.cu", import.meta.url));
  await promisify(execFile)(device.nvcc.path, [
    ...kernelFlagsOf(device),
    `-DSAMPLES=${samples}`,
    `-DPRODUCT="${product}"`,
    `-DTWICE=${twice}`,
    "-o",
    file,
    source,
  ]);
  return { file, arguments: like.kernel.arguments };
}

function besidePyTorch(python: string, samples: number, dtype: Half): z.infer<typeof torch> | undefined {
  const script = fileURLToPath(new URL("../peers/torch-interaction.py", import.meta.url));
  try {
    return torch.parse(JSON.parse(execFileSync(python, [script, String(samples), dtype, "40"], { encoding: "utf8" })));
  } catch (error) {
    console.error(`PyTorch: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
}

/** The faster of two runs. */
function faster(
  a: z.infer<typeof torch> | undefined,
  b: z.infer<typeof torch> | undefined,
): z.infer<typeof torch> | undefined {
  if (!a || !b) return a ?? b;
  const steps = Object.fromEntries(Object.entries(a.steps).map(([s, t]) => [s, Math.min(t, b.steps[s] ?? t)]));
  const least = (of: "eager" | "graph" | "copy"): number => Math.min(a[of], b[of]);
  return {
    ...a,
    steps,
    eager: least("eager"),
    graph: least("graph"),
    copy: least("copy"),
    off: Math.max(a.off, b.off),
  };
}

const TIMING = { budgetSeconds: 1.5, batches: [30, 1000] } as const;

async function measured(
  dtype: Half,
  samples: number,
  options: { readonly seconds: number; readonly seed: number; readonly python: string },
): Promise<InteractionRow> {
  const before = besidePyTorch(options.python, samples, dtype);
  const computation = interaction(samples, dtype);
  const fused = await searched(computation, options.seconds, options.seed);
  const product = await searched(products(samples, dtype), options.seconds, options.seed);
  const after = besidePyTorch(options.python, samples, dtype);
  const folder = mkdtempSync(join(tmpdir(), "interaction-"));
  const made = await createCudaRunner({ workdir: folder });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  try {
    const built = (twice?: number): Promise<Prebuilt> =>
      sequence(folder, runner.device, samples, product.best, fused.best, twice);
    const kernels = [fused.best.kernel, ...(await Promise.all([undefined, ...Object.values(STEPS)].map(built)))];
    const all = await runner.measureTogether(kernels, runner.reference(computation, options.seed), TIMING);
    const [own = Number.NaN, other = Number.NaN, ...again] = all.map((m) => {
      if (m.status !== "ok") throw new Error(`${dtype}: ${m.status}: ${m.log}`);
      return m.median;
    });
    const steps = Object.fromEntries(Object.keys(STEPS).map((step, i) => [step, (again[i] ?? Number.NaN) - other]));
    const both = faster(before, after);
    return {
      dtype,
      samples,
      device: runner.device.name,
      driver: runner.device.driver,
      nvcc: runner.device.nvcc.version,
      date: new Date().toISOString().slice(0, 10),
      command: `node dist/bench/layers/interaction-cuda.js --samples ${samples} --dtypes ${dtype} --seconds ${options.seconds} --seed ${options.seed}`,
      fused: own,
      sequence: other,
      steps,
      searches: { fused: fused.says, product: product.says },
      ...(both && { torch: both }),
    };
  } finally {
    await runner.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The page of these rows. */
export function reportOf(rows: readonly InteractionRow[]): string {
  const us = (seconds: number): string => (1e6 * seconds).toFixed(1);
  const [first] = rows;
  const lines = [
    "# DLRM's interaction on a GPU, fused and as a sequence of kernels",
    "",
    `${first?.device ?? "a GPU"}, driver ${first?.driver}, CUDA ${first?.nvcc}, ${first?.date}. ${VECTORS} vectors of ${WIDTH} a sample. Medians in us; each element of our`,
    "kernels was checked, their batches ran in turns. PyTorch ran in a process of its own, ahead of the searches and behind them: the faster of both.",
    "",
    "| | samples | fused | cat, product, index, cat | its time / fused | PyTorch eager | PyTorch, CUDA graph | its time / fused |",
    "|---|---|---|---|---|---|---|---|",
    ...rows.map(({ dtype, samples, fused, sequence: all, torch: peer }) =>
      [
        `| ${dtype} | ${samples} | ${us(fused)} | ${us(all)} | ${(all / fused).toFixed(2)}`,
        peer
          ? `${us(peer.eager)} | ${us(peer.graph)} | ${(Math.min(peer.eager, peer.graph) / fused).toFixed(2)} |`
          : "- | - | - |",
      ].join(" | "),
    ),
    "",
    "Steps:",
    "",
    `| | ${Object.keys(STEPS).join(" | ")} |`,
    "|---|---|---|---|---|",
    ...rows.flatMap(({ dtype, steps, torch: peer }) => {
      const cells = (of: Readonly<Record<string, number>>): string =>
        Object.keys(STEPS)
          .map((s) => us(of[s] ?? Number.NaN))
          .join(" | ");
      return [
        `| ours, ${dtype} | ${cells(steps)} |`,
        ...(peer ? [`| PyTorch ${peer.torch}, ${dtype} | ${cells(peer.steps)} |`] : []),
      ];
    }),
    "",
    ...rows.flatMap(({ dtype, samples, fused, searches, torch: peer, command }) => {
      const bytes = samples * BYTES * (VECTORS * WIDTH + WIDTH + PAIRS);
      const rate = bytes / fused;
      const copy = peer && (2 * samples * BYTES * VECTORS * WIDTH) / peer.copy;
      const share =
        copy === undefined
          ? ""
          : `, ${((100 * rate) / copy).toFixed(0)} % of the ${(copy / 1e12).toFixed(2)} TB/s of a copy of the vectors`;
      return [
        `${dtype}: the fused kernel moves at least ${(bytes / 1e6).toFixed(0)} MB, ${(rate / 1e12).toFixed(2)} TB/s${share}.`,
        ...Object.entries(searches).map(
          ([name, s]) =>
            `${name}: ${s.instruction}, ${s.mapping}, ${s.schedule}; ${s.trials} trials in ${s.seconds.toFixed(0)} s.  `,
        ),
        "",
        `    ${command}`,
        "",
      ];
    }),
  ];
  return lines.join("\n");
}

function rowsIn(path: string): InteractionRow[] {
  const lines = readFileSync(path, "utf8").split("\n");
  return lines.filter((text) => text !== "").map((text) => row.parse(JSON.parse(text)));
}

async function main(): Promise<void> {
  const { values } = readOptions({
    options: {
      samples: { type: "string", default: "32768" },
      dtypes: { type: "string", default: "bf16,f16" },
      seconds: { type: "string", default: "40" },
      seed: { type: "string", default: "1" },
      out: { type: "string", default: "interaction-gpu" },
      report: { type: "string" },
      python: { type: "string", default: "python3" },
    },
  });
  if (values.report !== undefined) return console.log(reportOf(rowsIn(values.report)));
  for (const name of values.dtypes.split(",")) {
    const dtype = wordOf("dtypes", name, ["bf16", "f16"]);
    const options = { seconds: Number(values.seconds), seed: Number(values.seed), python: values.python };
    const measurement = await measured(dtype, Number(values.samples), options);
    appendFileSync(`${values.out}.jsonl`, `${JSON.stringify(measurement)}\n`);
  }
  const text = reportOf(rowsIn(`${values.out}.jsonl`));
  writeFileSync(`${values.out}.md`, text);
  console.log(text);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
