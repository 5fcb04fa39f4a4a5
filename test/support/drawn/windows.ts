/**
 * @file Random windows on lanes: any window over a line, an image or a grid, by the named dataflows, in blocks on a
 * CPU's vectors and in blocks or sweeps on a GPU's warps.
 */

import {
  LANE_DATAFLOWS,
  LINE_USES,
  type WarpWindowSchedule,
  type WindowBlock,
  type WindowSchedule,
} from "../../../abstraction/candidate.ts";
import { type Computation, computationKey, defineComputation } from "../../../abstraction/computation.ts";
import { UsageError } from "../../../abstraction/error.ts";
import type { LoopNest } from "../../../abstraction/loop-nest.ts";
import { pick, type Random, randomInteger } from "../../../abstraction/random.ts";
import { generateLanes, type LaneLanguage } from "../../../codegen/lanes.ts";
import { warpWindowProblem, windowProblem } from "../../../mapper/schedule/lanes.ts";
import { lowerWarpWindow, lowerWindow } from "../../../mapper/space-time/lower-window.ts";
import { type LaneRefusal, rollable, type TapSum, tapsOf } from "../../../mapper/space-time/taps.ts";
import { ADVERSE_ORDERS, type ThreadOrder } from "../../../runtime/emulated-kernel.ts";
import { type Drawn, type DrawnKernel, type DrawnKind, type Refused, smallInputs } from "./drawn.ts";

/** A window of any position and size, sometimes dilated or sparse. */
export function randomWindow(random: Random, columns = randomInteger(random, 1, 50), inHalves = false): Computation {
  const rank = pick(random, [1, 2, 2, 3]);
  const names = ["i", "j", "k"].slice(-rank);
  const taps = ["r", "s", "t"].slice(-rank);
  const sizes = names.map((_, d) => (d === rank - 1 ? columns : randomInteger(random, 1, 8)));
  const sides = names.map(() => randomInteger(random, 1, 4));
  const dilation = pick(random, [1, 1, 2, 3]);
  const index = names.map((name, d) => {
    const step = d === rank - 1 && dilation > 1 ? `${dilation}*` : "";
    const before = randomInteger(random, -2, 4);
    return `${name}+${step}${taps[d]}${before < 0 ? "+" : "-"}${Math.abs(before)}`;
  });
  const where = pick(random, ["", "", ` where ${taps[0]} == 0 or ${taps.at(-1)} == 1`, ` where ${taps[0]} != 1`]);
  const shape = sizes.map((size, d) => size + (d === rank - 1 ? pick(random, [0, 0, 4]) : randomInteger(random, 0, 2)));
  const dtype = inHalves ? "f16" : pick(random, ["f32", "f32", "f64"] as const);
  return defineComputation({
    name: "window",
    equation: `out[${names}] += in[${index}] * w[${taps}]${where}`,
    extents: Object.fromEntries([
      ...names.map((name, d) => [name, sizes[d] ?? 1] as const),
      ...taps.map((name, d) => [name, sides[d] ?? 1] as const),
    ]),
    tensors: { in: { dtype, shape }, w: { dtype, constant: true } },
  });
}

const anyBlock = (computation: Computation, random: Random): WindowBlock => ({
  dataflow: pick(random, LANE_DATAFLOWS),
  lanes: pick(random, [8, 16, 32]),
  rows: randomInteger(random, 1, 5),
  vectors: randomInteger(random, 1, 3),
  rolled: rollable(computation).filter(() => random() < 0.3),
});

function onVectors(computation: Computation, random: Random): WindowSchedule {
  const columns: Partial<WindowSchedule> =
    random() < 0.4 ? { dataflow: "FBS-load", rolled: [], lines: pick(random, LINE_USES) } : {};
  const deep: Partial<WindowSchedule> =
    computation.equation.target.index.length === 3 && random() < 0.5
      ? { dataflow: "FBS-load", planes: pick(random, [2, 2, 3]) }
      : {};
  return {
    ...anyBlock(computation, random),
    streaming: false,
    strip: 0,
    threads: 1,
    weights: pick(random, ["registers", "memory"]),
    prefetchBytes: pick(random, [0, 256, 8192]),
    ...columns,
    ...deep,
  };
}

function onWarps(random: Random, lanes: readonly number[]): WarpWindowSchedule {
  const plain = { rolled: [], lanes: pick(random, lanes) };
  const rows = randomInteger(random, 1, 4);
  if (random() < 0.3) return { ...plain, dataflow: pick(random, LANE_DATAFLOWS), rows, vectors: pick(random, [1, 2]) };
  const each = pick(random, [undefined, 1, 2, 4]);
  const sweep = pick(random, [undefined, randomInteger(random, 1, 7)]);
  return {
    ...plain,
    dataflow: "FBS-load",
    rows,
    vectors: 1,
    each,
    sweep,
    ...(sweep !== undefined && { ahead: randomInteger(random, 1, 4) }),
    ...(sweep !== undefined && random() < 0.4 && { prefetchSteps: randomInteger(random, 1, 4) }),
    ...(random() < 0.3 && { warps: pick(random, [1, 2, 8]) }),
  };
}

const refused = (because: string): Refused => ({ status: "refused", because });

interface Way<S> {
  readonly problem: (sum: TapSum, schedule: S) => LaneRefusal | undefined;
  readonly lower: (computation: Computation, schedule: S) => LoopNest;
}
const VECTORS: Way<WindowSchedule> = { problem: windowProblem, lower: lowerWindow };
const WARPS: Way<WarpWindowSchedule> = { problem: warpWindowProblem, lower: lowerWarpWindow };

function problemOf<S extends WindowBlock>(computation: Computation, schedule: S, way: Way<S>): string | undefined {
  const verdict = tapsOf(computation, schedule.rolled);
  return verdict.ok ? way.problem(verdict.sum, schedule)?.because : verdict.refusal.because;
}

function drawNest<S extends WindowBlock>(
  random: Random,
  computation: Computation,
  schedule: S,
  way: Way<S>,
): readonly Drawn[] {
  const because = problemOf(computation, schedule, way);
  if (because !== undefined) return [refused(because)];
  const said = `${computationKey(computation)} by ${JSON.stringify(schedule)}`;
  const inputs = smallInputs(computation, randomInteger(random, 1, 1e9));
  return [{ status: "nest", said, computation, inputs, nest: () => way.lower(computation, schedule) }];
}

/** A number of columns, often a multiple of 4, so that several neighbours at once divide it. */
const someColumns = (random: Random): number => (random() < 0.7 ? 4 : 1) * randomInteger(random, 1, 12);

export const drawWindow = (random: Random): readonly Drawn[] => {
  const computation = randomWindow(random);
  return random() < 0.5
    ? drawNest(random, computation, onVectors(computation, random), VECTORS)
    : drawNest(random, computation, anyBlock(computation, random), WARPS);
};
export const drawSweep = (random: Random): readonly Drawn[] =>
  drawNest(random, randomWindow(random, someColumns(random)), onWarps(random, [2, 4, 8]), WARPS);

const BOTH_WAYS: readonly ThreadOrder[] = [
  { threads: "forward", copies: "early" },
  { threads: "reversed", copies: "early" },
];

/** A window as a compiled kernel of a language. */
export function drawWindowKernel(random: Random, language: LaneLanguage): readonly (DrawnKernel | Refused)[] {
  const inHalves = language === "cuda" && random() < 0.4;
  const computation = randomWindow(
    random,
    randomInteger(random, 1, 24) * pick(random, inHalves ? [4, 8] : [1, 4]),
    inHalves,
  );
  const plain = onWarps(random, language === "cuda" ? [32] : [16, 32]);
  const pairs = { dataflow: "FBS-load", vectors: 1, each: pick(random, [2, 4, 8]) } as const;
  const schedule: WarpWindowSchedule = inHalves && random() < 0.9 ? { ...plain, ...pairs } : plain;
  const because = problemOf(computation, schedule, WARPS);
  if (because !== undefined) return [refused(because)];
  const said = `${language} ${computationKey(computation)} by ${JSON.stringify(schedule)}`;
  try {
    const kernel = generateLanes(language, computation, lowerWarpWindow(computation, schedule), { lines: [] });
    const inputs = smallInputs(computation, randomInteger(random, 1, 1e9));
    return [
      { status: "kernel", said, computation, inputs, kernel, orders: language === "cuda" ? ADVERSE_ORDERS : BOTH_WAYS },
    ];
  } catch (error) {
    if (error instanceof UsageError) return [refused(error.message)];
    throw error;
  }
}

export const WINDOWS: DrawnKind = { name: "windows on vectors", share: 80, draw: drawWindow };
export const SWEEPS: DrawnKind = { name: "windows on warps", share: 80, draw: drawSweep };
export const WARP_KERNELS: DrawnKind = {
  name: "windows as CUDA, six orders of threads",
  share: 15,
  draw: (r) => drawWindowKernel(r, "cuda"),
};
export const SUBGROUP_KERNELS: DrawnKind = {
  name: "windows as CM, SYCL and OpenCL C, two orders",
  share: 15,
  draw: (r) => drawWindowKernel(r, pick(r, ["cm", "sycl", "opencl"])),
};
