/**
 * @file Schedules drawn at random for the operators of the suite, in both layouts and at batch 1 and 16: what is drawn is lowered and printed. A schedule
 * that has no kernel is refused when it is drawn, with a sentence.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { knownIntrinsics } from "../../intrinsics/index.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { lowerThreads } from "../../mapper/lower/threads.ts";
import { validMappings } from "../../mapper/match/enumerate.ts";
import { formsAmong, phasesTogether } from "../../mapper/match/phases.ts";
import { GRID, printGridSchedule } from "../../mapper/schedule/grid.ts";
import { gridContext, gridLimits } from "../../mapper/schedule/grid-context.ts";
import { drawSchedule } from "../../mapper/schedule/schedules.ts";
import { threadContext } from "../../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../../mapper/schedule/thread/schedule.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { reordered } from "../../tuner/reordered.ts";
import { convolutionF16, expectRightEmulated, type GridSubject } from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";
import { type Configuration, suiteCases, suiteComputation, suiteLayers } from "../support/suite.ts";

const LIMITS = gridLimits(nvidiaTarget("h100"));
const F16 = knownIntrinsics().filter((i) => /^(wgmma|mma|wmma|thread)\..*f32\.f16$/.test(i.name));
/** Configurations of an operator, instructions of each, and schedules of each. */
const [CONFIGURATIONS, INSTRUCTIONS, SCHEDULES] = inFull([4, 5, 5], [1, 1, 2]);

/** What went wrong with schedules that were drawn; nothing where all have a kernel. */
function printedAtRandom(
  configuration: Configuration,
  random: Random,
): { readonly drawn: number; readonly wrong: string[] } {
  const computation = suiteComputation(configuration);
  const wrong: string[] = [];
  let drawn = 0;
  for (let i = 0; i < INSTRUCTIONS; i++) {
    const intrinsic = pick(random, F16);
    const valid = formsAmong(
      computation,
      F16,
    )(intrinsic).flatMap((form) => phasesTogether(finished(validMappings(form, intrinsic))));
    const found = valid.flatMap((m) => [m, ...reordered(m).flatMap((o) => (o.isInMemoryOrder ? [o.mapping()] : []))]);
    for (let s = 0; s < SCHEDULES && found.length > 0; s++) {
      const mapping = pick(random, found);
      const make = (): string | undefined => {
        if (intrinsic.scope === "thread") {
          const context = threadContext(mapping, LIMITS);
          const schedule = typeof context === "string" ? undefined : drawSchedule(THREAD_KIND, context, random);
          if (typeof context === "string" || !schedule) return undefined;
          generateCuda(mapping.computation, intrinsic, lowerThreads(context, schedule), { lines: [] });
          return JSON.stringify(schedule);
        }
        const context = gridContext(mapping, LIMITS);
        const schedule = typeof context === "string" ? undefined : drawSchedule(GRID, context, random);
        if (typeof context === "string" || !schedule) return undefined;
        try {
          generateCuda(mapping.computation, intrinsic, lowerGrid(context, schedule), { lines: [] });
        } catch (error) {
          wrong.push(
            `${JSON.stringify(configuration)} ${intrinsic.name} ${printMatching(mapping.matching)}; ${printGridSchedule(schedule)}: ${String(error)}`,
          );
        }
        return "";
      };
      if (make() !== undefined) drawn++;
    }
  }
  return { drawn, wrong };
}

describe("random schedules", () => {
  const random = seededRandom(Number(process.env["SEED"] ?? 11));
  const layers = suiteLayers();
  const all = (["first", "last"] as const).flatMap((layout) => suiteCases(layers, [1, 16], layout));
  const operators = [...new Set(layers.map((l) => l.op))];

  it.each(operators)("can be printed as a kernel: %s", (op) => {
    const cases = all.filter((c) => c.op === op);
    const results = Array.from({ length: CONFIGURATIONS * 2 }, () => printedAtRandom(pick(random, cases), random));
    expect(results.flatMap((r) => r.wrong)).toEqual([]);
    expect(results.reduce((n, r) => n + r.drawn, 0)).toBeGreaterThan(0);
  });
});

/** Schedules that are drawn for computations and instructions that are drawn. */
function drawnSubjects(
  count: number,
  instructions: readonly Intrinsic[],
  draw: (random: Random) => Computation,
  isWanted: (schedule: GridSchedule) => boolean = () => true,
): readonly GridSubject[] {
  const random = seededRandom(Number(process.env["SEED"] ?? 3));
  const subjects: GridSubject[] = [];
  while (subjects.length < count) {
    const intrinsic = pick(random, instructions);
    const found = finished(validMappings(draw(random), intrinsic)).flatMap((m) => [
      m,
      ...reordered(m).map((o) => o.mapping()),
    ]);
    const mapping = pick(random, found);
    const context = mapping && gridContext(mapping, LIMITS);
    const schedule = context && typeof context !== "string" ? drawSchedule(GRID, context, random) : undefined;
    if (!context || typeof context === "string" || !schedule || !isWanted(schedule)) continue;
    const name = `${intrinsic.name} ${printMatching(mapping.matching)}; ${printGridSchedule(schedule)}`;
    subjects.push({ name, context, schedule });
  }
  return subjects;
}

describe("random schedules for small images in NCHW", () => {
  /** Pixels of which 8, 4, 2 or 1 move at once; a tap, and nine. */
  const SMALL = [
    "conv2d n=2 c=64 k=64 h=8 w=13 r=1 s=1 pad=0",
    "conv2d n=1 c=64 k=32 h=14 w=14 r=1 s=1 pad=0",
    "conv2d n=2 c=32 k=64 h=7 w=7 r=3 s=3 pad=1",
    "conv2d n=1 c=32 k=64 h=6 w=10 r=3 s=3 pad=1 stride=2",
  ];

  it("equal the equation on the emulated device", () => {
    const wanted = F16.filter((i) => /^(wgmma.m64n(16|48|56|104)|mma)/.test(i.name));
    return expectRightEmulated(
      drawnSubjects(inFull(48, 4), wanted, (random) => convolutionF16(pick(random, SMALL), false)),
    );
  });
});

describe("random schedules for few channels", () => {
  /** Strides, dilations, filters of even length, sums that fill no part, channels of which 8, 4, 2 or 1 move at once. */
  const FEW = [
    "conv2d n=2 c=3 k=20 h=11 w=16 r=5 s=5 pad=2 stride=2",
    "conv2d n=1 c=4 k=8 h=8 w=8 r=2 s=4 pad=1",
    "conv2d n=1 c=6 k=16 h=9 w=9 r=3 s=3 pad=2 dilation=2",
    "conv2d n=2 c=8 k=8 h=8 w=8 r=3 s=3 pad=1",
    "conv2d n=1 c=16 k=8 h=6 w=16 r=1 s=3 pad=0",
  ];

  it("stage the input of each tile only once and equal the equation on the emulated device", () =>
    expectRightEmulated(
      drawnSubjects(
        inFull(64, 4),
        F16.filter((i) => i.family === "mma"),
        (random) => convolutionF16(pick(random, FEW), random() < 0.5),
        (schedule) => schedule.gather !== undefined,
      ),
    ));
});
