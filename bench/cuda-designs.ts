/**
 * @file Designs by their transforms on the warps of this machine's GPU: the best schedules of each dataflow, measured together with the best windows
 * where both exist, and what a search over all of them finds. And sweeps whose rows are fetched ahead, beside the same sweeps without.
 *
 *     npm run build
 *     node dist/bench/cuda-designs.js --out designs.jsonl                        a multichannel convolution, a FIR bank, a product, ...
 *     node dist/bench/cuda-designs.js --cases "" --fetched 3d13pt:f64 --out fetched.jsonl
 *     node dist/bench/cuda-designs.js --report designs.jsonl > designs.md
 *     node dist/bench/cuda-designs.js --emulated --small                         without a GPU: right or wrong, and no times
 *
 * Every element of every kernel is compared with the reference. Kernels of a case run in alternating batches.
 */

import { appendFileSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { type Candidate, isDesign, type WarpWindowSchedule } from "../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf, outputOf } from "../abstraction/computation.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import { finished } from "../abstraction/steps.ts";
import { warpWindowProblem } from "../mapper/schedule/lanes.ts";
import { placeArray } from "../mapper/space-time/lane-array.ts";
import { tapsOf } from "../mapper/space-time/taps.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { instantiate, operatorNamed } from "../operators/index.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";
import { type CudaRunner, createCudaRunner } from "../runtime/run/cuda.ts";
import { usableIntrinsics } from "../session/choose.ts";
import { warpMultiplyAddOf } from "../session/design-kinds.ts";
import { kernelFor } from "../session/kernel.ts";
import { tuneComputation } from "../session/tune.ts";
import { warpLanes } from "../session/window-kinds.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { warpWindowSpace } from "../tuner/lane-candidates.ts";
import { warpArraySpace } from "../tuner/warp-array-candidates.ts";
import { COPY, copies } from "./device-copies.ts";
import { laneCase } from "./lane-cases.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    cases: {
      type: "string",
      default:
        "conv1d:f32,conv2d:f32,depthwise:f32,fir:f32,filter 5:f32,filter 9:f32,matmul:f32,matvec:f32,conv1d:f64,conv1d:s32,depthwise:f16",
    },
    /** Stencils whose sweeps are measured with rows fetched ahead. */
    fetched: { type: "string", default: "" },
    /** Length of a search, preparation included. */
    seconds: { type: "string", default: "6" },
    /** No case begins after this many seconds. */
    within: { type: "string", default: "200" },
    target: { type: "string", default: "h100" },
    small: { type: "boolean", default: false },
    emulated: { type: "boolean", default: false },
    out: { type: "string" },
    report: { type: "string" },
  },
});

const small = values.small;
const side = small ? 40 : 8192;

/** Operators and their sizes; small ones to be emulated. */
const OPERATORS: Readonly<Record<string, readonly [operator: string, sizes: Readonly<Record<string, number>>]>> = {
  conv1d: ["conv1d", small ? { n: 1, c: 3, k: 4, l: 90, r: 9 } : { n: 16, c: 32, k: 64, l: 4096, r: 9 }],
  conv2d: [
    "conv2d",
    small
      ? { n: 1, c: 2, k: 4, h: 6, w: 40, r: 3, s: 3, pad: 1 }
      : { n: 4, c: 64, k: 64, h: 112, w: 112, r: 3, s: 3, pad: 1 },
  ],
  depthwise: ["depthwise-conv2d", small ? { n: 1, c: 2, h: 8, w: 40, m: 1 } : { n: 8, c: 64, h: 256, w: 256, m: 1 }],
  fir: ["conv1d", small ? { n: 1, c: 1, k: 4, l: 120, r: 16 } : { n: 1, c: 1, k: 16, l: 2 ** 20, r: 32 }],
  matmul: ["matmul", small ? { m: 5, n: 40, k: 9 } : { m: 2048, n: 2048, k: 2048 }],
  matvec: ["matvec", small ? { m: 40, k: 20 } : { m: 8192, k: 8192 }],
};

function caseOf(name: string, dtype: string): Computation {
  const [operator, parameters] = OPERATORS[name] ?? [];
  if (operator !== undefined)
    return instantiate(operatorNamed(operator), { parameters: parameters ?? {}, types: parseDataTypes(dtype) });
  if (dtype !== "f32" && dtype !== "f64" && dtype !== "f16") throw new UsageError(`${name}: no case of ${dtype}`);
  return laneCase(name, side, small ? 40 : 512, dtype);
}

/** Decisions of GPU lanes that are alike in all candidates, or in the text of the design. */
const NEUTRAL = /^(?:loops kept none|transform|beside)/;

const machine = nvidiaTarget(values.target);
const intrinsics = usableIntrinsics(machine);
/** Copies are of multiples of so many bytes. */
const COPIED = 2 ** 16;
/** Schedules of the best dataflows, of others, and of windows. */
const OF_BEST = 4;
const DATAFLOWS = 6;
const WINDOWS = 5;

interface Tried {
  readonly candidate: Candidate;
  readonly dataflow: string;
  readonly expected: number;
}

/** The best schedules of the most promising dataflow, and the best one of each other. */
function transformsOf(computation: Computation): Tried[] {
  const intrinsic = warpMultiplyAddOf(computation, intrinsics);
  const space = finished(warpArraySpace(computation, machine));
  if (!intrinsic || "rule" in space) return [];
  const best = space.bestOfEach().slice(0, DATAFLOWS);
  const near = space.ranked.filter((r) => r.design.dataflow === best[0]?.design.dataflow).slice(0, OF_BEST);
  return [...new Set([...near, ...best])].map(({ design, schedule, seconds }) => ({
    candidate: { kind: "warp-design", intrinsic: intrinsic.name, schedule },
    dataflow: design.dataflow,
    expected: seconds,
  }));
}

function windowsOf(computation: Computation): Tried[] {
  const multiplyAdd = warpLanes(outputOf(computation).dtype, intrinsics);
  const space = multiplyAdd && !computation.epilogue ? warpWindowSpace(computation, machine) : undefined;
  if (!multiplyAdd || !space || "rule" in space) return [];
  const ranked = [...space.all()]
    .map((schedule) => ({ schedule, seconds: space.expectedSeconds(schedule) }))
    .sort((a, b) => a.seconds - b.seconds);
  const seen = new Map<string, number>();
  return ranked
    .filter(({ schedule: s }) => {
      const count = seen.get(s.dataflow) ?? 0;
      seen.set(s.dataflow, count + 1);
      return s.warps === undefined && count < 2;
    })
    .slice(0, WINDOWS)
    .map(({ schedule, seconds }) => ({
      candidate: { kind: "warp-window", intrinsic: multiplyAdd.name, schedule },
      dataflow: `window ${schedule.dataflow}`,
      expected: seconds,
    }));
}

/** A sweep that searches found, with the rows fetched so many steps ahead, in blocks of so many warps. */
function fetchedOf(computation: Computation, dtype: DType): Tried[] {
  const multiplyAdd = warpLanes(dtype, intrinsics);
  const verdict = tapsOf(computation);
  const space = warpWindowSpace(computation, machine);
  if (!multiplyAdd || !verdict.ok || "rule" in space) return [];
  const wide = dtype === "f64" ? [1, 2] : [2, 4];
  const shapes = wide.flatMap((each) => [2, 4].flatMap((rows) => [16, 32].map((sweep) => ({ each, rows, sweep }))));
  const ways = [
    ...[undefined, 1, 2, 4].map((prefetchSteps) => ({ prefetchSteps, warps: undefined })),
    ...[undefined, 1, 2].map((prefetchSteps) => ({ prefetchSteps, warps: 8 })),
  ];
  return shapes.flatMap(({ each, rows, sweep }) =>
    ways.flatMap(({ prefetchSteps, warps }): Tried[] => {
      const schedule: WarpWindowSchedule = {
        dataflow: "FBS-load",
        lanes: 32,
        rows,
        vectors: 1,
        rolled: [],
        sweep: small ? 8 : sweep,
        ...(each > 1 && { each }),
        ...(prefetchSteps && { prefetchSteps }),
        ...(warps && { warps }),
      };
      if (warpWindowProblem(verdict.sum, schedule)) return [];
      const candidate: Candidate = { kind: "warp-window", intrinsic: multiplyAdd.name, schedule };
      return [{ candidate, dataflow: "window FBS-load", expected: space.expectedSeconds(schedule) }];
    }),
  );
}

const DESIGN = z.object({
  kind: z.literal("design"),
  case: z.string(),
  dtype: z.string(),
  dataflow: z.string(),
  schedule: z.string(),
  expected: z.number(),
  status: z.string(),
  seconds: z.number().optional(),
});
const FOUND = z.object({
  kind: z.literal("search"),
  case: z.string(),
  dtype: z.string(),
  took: z.number(),
  kernels: z.number(),
  transforms: z.number(),
  seconds: z.number().optional(),
  dataflow: z.string().optional(),
  schedule: z.string().optional(),
  failed: z.record(z.string(), z.number()),
  bytes: z.number(),
  best: z.object({ transform: z.number().optional(), window: z.number().optional() }),
});

if (values.report === undefined) await run();
else console.log(report(readFileSync(values.report, "utf8")));

async function run(): Promise<void> {
  const made = await createCudaRunner(values.emulated ? { emulated: true } : {});
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  const workdir = mkdtempSync(join(tmpdir(), "automap-designs-"));
  write({ kind: "device", ...runner.device });
  const begun = Date.now();
  const casesOf = (text: string): string[] => text.split(",").filter((word) => word !== "");
  const stencils = casesOf(values.fetched);
  const copied = new Set<number>();
  for (const text of [...stencils, ...casesOf(values.cases)]) {
    const [name = "", dtype = "f32"] = text.split(":");
    if ((Date.now() - begun) / 1000 > Number(values.within)) {
      write({ kind: "left out", case: name, dtype });
      continue;
    }
    const computation = caseOf(name, dtype);
    const bytes = COPIED * Math.round(bytesMoved(computation) / 2 / COPIED);
    if (!values.emulated && bytes > 0 && !copied.has(bytes)) {
      copied.add(bytes);
      for (const line of await copies(bytes, runner, workdir)) write(line);
    }
    const isFetched = stencils.includes(text);
    const tried = isFetched
      ? fetchedOf(computation, outputOf(computation).dtype)
      : [...transformsOf(computation), ...windowsOf(computation)];
    await measured(name, dtype, computation, tried, runner);
    if (!values.emulated) write(await searched(name, dtype, computation));
  }
  await runner.close();
}

function bytesMoved(computation: Computation): number {
  const moved = [...inputsOf(computation), outputOf(computation)];
  return moved.reduce((sum, t) => sum + elementCount(t) * bytesOf(t.dtype), 0);
}

async function measured(
  name: string,
  dtype: string,
  computation: Computation,
  tried: readonly Tried[],
  runner: CudaRunner,
): Promise<void> {
  const kernels = tried.map(({ candidate }) => kernelFor(computation, candidate, machine));
  const all = await runner.measureTogether(kernels, runner.reference(computation, 1), { budgetSeconds: 0.1 });
  for (const [i, { candidate, dataflow, expected }] of tried.entries()) {
    const m = all[i];
    write({
      kind: "design",
      case: name,
      dtype,
      dataflow,
      schedule: textOf(candidate),
      expected,
      status: m?.status ?? "nothing",
      ...(m?.status === "ok" ? { seconds: m.median } : { log: m?.log.slice(0, 300) }),
    });
  }
}

async function searched(name: string, dtype: string, computation: Computation): Promise<z.infer<typeof FOUND>> {
  const begun = Date.now();
  const seconds = Number(values.seconds);
  const outcome = await tuneComputation(
    { computation },
    {
      machine,
      database: ":memory:",
      seconds,
      within: seconds,
      trials: 1_000_000,
      earlyStop: false,
      kinds: "lanes",
    },
  );
  const line = { kind: "search" as const, case: name, dtype, bytes: bytesMoved(computation) };
  const took = (Date.now() - begun) / 1000;
  if (!("trials" in outcome))
    return { ...line, took, kernels: 0, transforms: 0, failed: { [outcome.status]: 1 }, best: {} };
  const { best, trials, failed } = outcome;
  const least = (transforms: boolean): number | undefined => {
    const times = trials.flatMap(({ candidate, measurement: m }) =>
      isDesign(candidate) === transforms && m.status === "ok" ? [m.median] : [],
    );
    return times.length === 0 ? undefined : Math.min(...times);
  };
  return {
    ...line,
    took,
    kernels: trials.length,
    failed,
    transforms: trials.filter(({ candidate }) => isDesign(candidate)).length,
    ...(best && {
      seconds: best.measurement.median,
      dataflow: dataflowOf(computation, best.candidate),
      schedule: textOf(best.candidate),
    }),
    best: { transform: least(true), window: least(false) },
  };
}

function dataflowOf(computation: Computation, candidate: Candidate): string {
  if (candidate.kind === "warp-window") return `window ${candidate.schedule.dataflow}`;
  if (candidate.kind !== "warp-design") return "mapping";
  const placed = placeArray(computation, candidate.schedule);
  return placed.ok ? placed.array.design.dataflow : "design";
}

function textOf(candidate: Candidate): string {
  const said = scheduleText(candidate).split("; ");
  return [placeText(candidate), ...said.filter((part) => !NEUTRAL.test(part))].join("; ");
}

function write(line: unknown): void {
  const text = JSON.stringify(line);
  console.log(text);
  if (values.out !== undefined) appendFileSync(values.out, `${text}\n`);
}

/** The lines of a run as tables: searches, then designs by case. */
function report(text: string): string {
  const lines = text
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
  const all = <T>(schema: z.ZodType<T>): T[] => lines.flatMap((line) => schema.safeParse(line).data ?? []);
  const us = (s: number | undefined): string => (s === undefined ? "" : (s * 1e6).toFixed(1));
  const copyOf = (bytes: number): number =>
    Math.min(
      ...all(COPY)
        .filter((c) => Math.abs(2 * c.bytes - bytes) < 0.01 * bytes)
        .map((c) => c.seconds),
    );
  const designs = all(DESIGN);
  let right = 0;
  let pairs = 0;
  for (const [i, a] of designs.entries())
    for (const b of designs.slice(i + 1)) {
      if (a.case !== b.case || a.dtype !== b.dtype || a.seconds === undefined || b.seconds === undefined) continue;
      if (a.expected === b.expected) continue;
      pairs++;
      if (a.expected < b.expected === a.seconds < b.seconds) right++;
    }
  return [
    "| case | us | of the copy | found | best transform | best window | kernels, transforms | schedule |",
    "|---|---|---|---|---|---|---|---|",
    ...all(FOUND).map((f) => {
      const copy = f.seconds === undefined ? "" : `${((100 * copyOf(f.bytes)) / f.seconds).toFixed(0)} %`;
      const { transform, window } = f.best;
      return `| ${f.case} ${f.dtype} | ${us(f.seconds)} | ${copy} | ${f.dataflow ?? JSON.stringify(f.failed)} | ${us(transform)} | ${us(window)} | ${f.kernels}, ${f.transforms} | ${f.schedule ?? ""} |`;
    }),
    "",
    "| case | design | expected us | measured us | schedule |",
    "|---|---|---|---|---|",
    ...designs.map(
      (d) =>
        `| ${d.case} ${d.dtype} | ${d.dataflow} | ${us(d.expected)} | ${d.seconds === undefined ? d.status : us(d.seconds)} | ${d.schedule} |`,
    ),
    "",
    `Of ${pairs} pairs of designs of a case, the model ranks ${((100 * right) / Math.max(1, pairs)).toFixed(1)} % as measured.`,
  ].join("\n");
}
