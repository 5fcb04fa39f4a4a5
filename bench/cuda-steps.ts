/**
 * @file Stencils in time on this machine's GPU: several steps a pass, one step a pass, and copies of as many bytes.
 *
 *     npm run build
 *     node dist/bench/cuda-steps.js --out steps.jsonl                          2d5pt, 2d9pt, 3d7pt in f32 and f64
 *     node dist/bench/cuda-steps.js --cases 2d5pt:f64 --steps 100 --each 4     four schedules of each depth
 *     node dist/bench/cuda-steps.js --report steps.jsonl > steps.md            a case a line
 *
 * At each depth the schedules that the model ranks first run in turns in one process. Every element is compared with
 * the reference on three sets of inputs. GCells/s = points x steps / time of a call. `--tune` searches each case too.
 */

import { appendFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import type { WarpStepSchedule } from "../abstraction/candidate.ts";
import { type Computation, elementCount, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import { type CudaRunner, createCudaRunner } from "../runtime/run/cuda.ts";
import { kernelFor } from "../session/kernel.ts";
import { tuneComputation } from "../session/tune.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { evaluateTogether } from "../tuner/evaluate.ts";
import { warpStepSpace } from "../tuner/lane-candidates.ts";
import type { ListedSpace } from "../tuner/listed-space.ts";
import { COPY, copies } from "./device-copies.ts";
import { readOptions, wordOf } from "./options.ts";
import { linesOf, STEP_CASES, STEP_TRIAL, stepCase } from "./step-cases.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "2d5pt:f64,3d7pt:f32,2d5pt:f32,3d7pt:f64,2d9pt:f64,2d9pt:f32" },
    steps: { type: "string", default: "48" },
    side: { type: "string", default: "8192" },
    /** Steps and side of the cubes. */
    "cube-steps": { type: "string", default: "24" },
    cube: { type: "string", default: "512" },
    /** Schedules measured at each depth. */
    each: { type: "string", default: "3" },
    /** No case begins after this many seconds. */
    within: { type: "string", default: "600" },
    /** Seconds of a search of each case afterwards; 0 for none. */
    tune: { type: "string", default: "0" },
    target: { type: "string", default: "h100" },
    out: { type: "string" },
    report: { type: "string" },
  },
});

const DEVICE = z.object({
  kind: z.literal("device"),
  name: z.string(),
  driver: z.string(),
  nvcc: z.looseObject({ version: z.string() }),
});
type Trial = z.infer<typeof STEP_TRIAL>;
const FOUND = z.object({
  kind: z.literal("search"),
  case: z.string(),
  dtype: z.string(),
  took: z.number(),
  trials: z.number(),
  seconds: z.number().optional(),
});

if (values.report === undefined) await run();
else console.log(report(values.report));

async function run(): Promise<void> {
  const cases = values.cases.split(",").map((text) => {
    const [name = "", type = "f32"] = text.split(":");
    const dtype = wordOf("cases", type, ["f32", "f64"]);
    const cube = Number(values.cube);
    const is3d = wordOf("cases", name, Object.keys(STEP_CASES)).startsWith("3d");
    const plane: Record<string, number> = is3d
      ? { i: cube, j: cube, k: cube }
      : { i: Number(values.side), j: Number(values.side) };
    const steps = Number(is3d ? values["cube-steps"] : values.steps);
    return { name, dtype, computation: stepCase(name, steps, plane, dtype) };
  });
  const made = await createCudaRunner();
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  const workdir = mkdtempSync(join(tmpdir(), "automap-steps-"));
  write({ kind: "device", ...runner.device });
  for (const bytes of new Set(cases.map((c) => bytesOfPlane(c.computation))))
    for (const line of await copies(bytes, runner, workdir)) write(line);
  const begun = Date.now();
  const isLate = (): boolean => (Date.now() - begun) / 1000 > Number(values.within);
  for (const { name, dtype, computation } of cases) {
    if (isLate()) write({ kind: "left out", case: name, dtype });
    else await measured(name, dtype, computation, runner);
  }
  await runner.close();
  for (const { name, dtype, computation } of Number(values.tune) > 0 ? cases : [])
    if (!isLate()) write(await searched(name, dtype, computation));
}

function bytesOfPlane(computation: Computation): number {
  const output = outputOf(computation);
  return elementCount(output) * bytesOf(output.dtype);
}

/** At each depth, the schedules that the model expects to be fastest, one of each lane shape. */
function chosen(space: ListedSpace<WarpStepSchedule>): WarpStepSchedule[] {
  const ranked = [...space.all()].sort((a, b) => space.expectedSeconds(a) - space.expectedSeconds(b));
  const shapes = new Set<string>();
  const counts = new Map<number, number>();
  return ranked.filter((s) => {
    const { depth } = s;
    const shape = [s.depth, s.each, s.rows, (s.sweep ?? 1024) > 128].join();
    const count = counts.get(depth) ?? 0;
    if (shapes.has(shape) || count >= Number(values.each)) return false;
    shapes.add(shape);
    counts.set(depth, count + 1);
    return true;
  });
}

async function measured(
  name: string,
  dtype: "f32" | "f64",
  computation: Computation,
  runner: CudaRunner,
): Promise<void> {
  const space = warpStepSpace(computation, nvidiaTarget(values.target));
  if ("because" in space) throw new Error(`${name}: ${space.because}`);
  const schedules = chosen(space);
  const intrinsic = `cuda.fma.${dtype}`;
  const kernels = schedules.map((schedule) => kernelFor(computation, { kind: "warp-steps", intrinsic, schedule }));
  const all = await runner.measureTogether(kernels, runner.reference(computation, 1));
  const cells = elementCount(outputOf(computation)) * (computation.time?.steps ?? 1);
  for (const [i, m] of all.entries()) {
    const schedule = schedules[i];
    if (!schedule) continue;
    write({
      kind: "trial",
      case: name,
      dtype,
      cells,
      bytes: bytesOfPlane(computation),
      schedule,
      expected: space.expectedSeconds(schedule),
      ...(m.status === "ok"
        ? { status: m.status, median: m.median, interval: m.interval }
        : { status: m.status, log: m.log.slice(0, 300) }),
    });
  }
}

async function searched(name: string, dtype: string, computation: Computation): Promise<object> {
  const begun = Date.now();
  const seconds = Number(values.tune);
  const outcome = await tuneComputation(
    { computation },
    {
      machine: nvidiaTarget(values.target),
      database: ":memory:",
      seconds,
      within: seconds,
      trials: 1_000_000,
      earlyStop: false,
      kinds: "lanes",
    },
  );
  const took = (Date.now() - begun) / 1000;
  if (!("trials" in outcome)) return { kind: "search", case: name, dtype, took, trials: 0, status: outcome.status };
  const { best, trials, failed } = outcome;
  const found = best && best.candidate.kind === "warp-steps" ? best.candidate.schedule : undefined;
  return {
    kind: "search",
    case: name,
    dtype,
    took,
    trials: trials.length,
    failed,
    ...(best && { seconds: best.measurement.median, interval: best.measurement.interval }),
    schedule: found,
  };
}

function write(line: unknown): void {
  const text = JSON.stringify(line);
  console.log(text);
  if (values.out !== undefined) appendFileSync(values.out, `${text}\n`);
}

/** `12 steps, 4 columns, sweeps of 128` */
function told({ depth, each, sweep, rows, ahead }: WarpStepSchedule): string {
  return [
    `${depth} steps`,
    `${each ?? 1} columns a lane`,
    ...(rows > 1 ? [`${rows} rows`] : []),
    sweep === undefined ? "one sweep" : `sweeps of ${sweep}`,
    ...(ahead === undefined ? [] : [`${ahead} ahead`]),
  ].join(", ");
}

function groupedBy<T, K>(all: readonly T[], keyOf: (one: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const one of all) groups.set(keyOf(one), [...(groups.get(keyOf(one)) ?? []), one]);
  return groups;
}

/** The lines of a run as tables. */
function report(file: string): string {
  const lines = linesOf(file);
  const all = <T>(schema: z.ZodType<T>): T[] => lines.flatMap((line) => schema.safeParse(line).data ?? []);
  const [device] = all(DEVICE);
  const groups = groupedBy(all(STEP_TRIAL), (t) => `${t.case} ${t.dtype}`);
  const copied = all(COPY);
  const secondsOfCopy = (size: number): number =>
    Math.min(...copied.filter((c) => c.bytes === size).map((c) => c.seconds));
  const found = new Map(all(FOUND).map((f) => [`${f.case} ${f.dtype}`, f]));
  const rate = (t: Trial): number => t.cells / (t.median ?? Number.POSITIVE_INFINITY) / 1e9;
  const rows = [...groups].map(([name, trials]) => {
    const right = trials.filter((t) => t.status === "ok").toSorted((a, b) => rate(b) - rate(a));
    const [best] = right;
    const one = right.find((t) => t.schedule.depth === 1);
    if (!best || !one) return `| ${name} | none was right |`;
    const steps = best.cells / (best.bytes / bytesOf(best.dtype));
    const bound = best.cells / steps / secondsOfCopy(best.bytes) / 1e9;
    const search = found.get(name);
    return `| ${[
      name,
      rate(best).toFixed(0),
      told(best.schedule),
      rate(one).toFixed(0),
      bound.toFixed(0),
      (rate(best) / rate(one)).toFixed(2),
      (rate(best) / bound).toFixed(2),
      (best.cells / best.expected / 1e9).toFixed(0),
      `${trials.length - right.length} of ${trials.length}`,
      search?.seconds ? `${(best.cells / search.seconds / 1e9).toFixed(0)} in ${search.took.toFixed(0)} s` : "",
    ].join(" | ")} |`;
  });
  const depths = [...groups].map(([name, trials]) => {
    const by = groupedBy(
      trials.filter((t) => t.status === "ok"),
      (t) => t.schedule.depth,
    );
    const cells = [...by]
      .sort(([a], [b]) => a - b)
      .map(([depth, own]) => `${depth}: ${Math.max(...own.map(rate)).toFixed(0)}`);
    return `* ${name}: ${cells.join(", ")}`;
  });
  const judged = [...groups.values()].map((trials) =>
    trials.flatMap((t) => (t.median === undefined ? [] : [{ predicted: t.expected, measured: t.median }])),
  );
  const { count, pairwise = 0, recall = 0 } = evaluateTogether(judged);
  const wrong = [...groups.values()].flat().filter((t) => t.status === "wrong").length;
  const speed = copied.map((c) => (2 * c.bytes) / c.seconds / 1e12);
  return [
    "# Stencils in time on a GPU",
    "",
    `${device?.name}, driver ${device?.driver}, nvcc ${device?.nvcc.version}. Planes of ${values.side} x ${values.side} with ${values.steps} steps, cubes of ${values.cube} with ${values["cube-steps"]}. Figures are GCells/s: points times steps over the median time of a call, all kernels of a case in turns in one process; every element is compared on three sets of inputs, and ${wrong} kernels are wrong. "Copy" is what one step a pass reaches at the speed of a device copy of the plane (${Math.max(...speed).toFixed(2)} TB/s at best, read and written).`,
    "",
    "    node dist/bench/cuda-steps.js --out steps.jsonl && node dist/bench/cuda-steps.js --report steps.jsonl",
    "",
    "| case | best | schedule | one step a pass | copy | over one a pass | over the copy | expected | failed | found by a search |",
    "|---|---|---|---|---|---|---|---|---|---|",
    ...rows,
    "",
    "The best of each number of steps a pass:",
    "",
    ...depths,
    "",
    `The model ranks ${(100 * pairwise).toFixed(1)} % of the pairs of ${count} kernels as measured, and finds ${(100 * recall).toFixed(1)} % of the fastest 40 %.`,
  ].join("\n");
}
