/**
 * Designs on lanes by their transforms: those that do not fit say why; kernels of every dataflow are compiled and checked in every element. Random
 * ones stand in drawn-lanes.deep.test.ts.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type DesignCandidate, type DesignSchedule, isDesign } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { arrayDesigns, placeArray } from "../../mapper/space-time/lane-array.ts";
import { latticePointIn } from "../../mapper/space-time/lattice.ts";
import { inverseOf } from "../../mapper/space-time/reverse.ts";
import { tooLongToWrite } from "../../mapper/space-time/written-length.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { registersOf } from "../../session/kinds/window-kinds.ts";
import { declaredAs } from "../../session/package/declared.ts";
import { nativeTarget } from "../../targets/index.ts";
import { type VectorRegisters, ZMM } from "../../targets/x86.ts";
import { type ArraySpaceOfDesigns, arraySpaceOf, bestOfEach } from "../../tuner/array-candidates.ts";
import { lowerArray } from "../support/arrays.ts";
import { EPILOGUE } from "../support/drawn/arrays.ts";
import { processorWatch } from "../support/processor-time.ts";
import { inFull } from "../support/slow.ts";
import { stated } from "../support/subjects.ts";

const target = modelTarget(nativeTarget());
const make = (operator: string, parameters: Readonly<Record<string, number>>, types = "f32"): Computation =>
  instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types) });

function spaceOf(computation: Computation, vectors: VectorRegisters = ZMM): ArraySpaceOfDesigns<DesignSchedule> {
  const space = finished(arraySpaceOf(computation, { threads: 1, target, vectors, hasDots: vectors === ZMM }));
  if ("rule" in space) throw new Error(space.because);
  return space;
}

describe("designs on lanes by their transforms", () => {
  it("include every dataflow of a filter, the named ones too", () => {
    const space = spaceOf(stated("conv1d-single --l 400 --r 5"));
    const found = bestOfEach(space).map((b) => b.design.dataflow);
    expect(found).toEqual(expect.arrayContaining(["SBM", "BSM", "FSM", "BFS", "FFS", "FBS", "FSA", "FBM"]));
    expect(["FBS", "SBM", "FBM"]).toEqual(expect.arrayContaining(found.slice(0, 2)));
  });

  it("that do not fit are refused with the reason", () => {
    const computation = stated("conv1d-single --l 64 --r 17");
    const designs = finished(arrayDesigns(computation, 16));
    if ("rule" in designs) throw new Error(designs.because);
    expect(designs.refused.find((r) => r.name === "BSM")?.because).toBe(
      "design: the array has 17 PEs, and a vector 16 lanes; take smaller tiles",
    );
    const [fbs] = designs.fitting;
    const changed = (changes: object): string | undefined => {
      const verdict = placeArray(computation, {
        ...(fbs?.plan ?? spaceOf(computation).random(seededRandom(1))),
        ...changes,
      });
      return verdict.ok ? undefined : verdict.refusal.because;
    };
    expect(changed({ beside: { r: 2 } })).toBe("form: steps of r are summed, so they cannot run side by side");
    expect(changed({ beside: { z: 2 } })).toBe("form: z is no loop of more than one step");
    expect(changed({ tile: { p: 0 } })).toBe("form: p 0 is no number of steps");
  });

  it("are refused where a program of them would have no end", () => {
    const image = stated("conv2d --n 1 --c 2 --k 512 --h 40 --w 40 --r 3 --s 3");
    const [design] = spaceOf(image).ranked;
    if (!design) throw new Error("no design");
    const wide = placeArray(image, { ...design.schedule, beside: { k: 512, p: 38 } });
    expect(wide.ok ? "" : wide.refusal.because).toMatch(
      /^length: passes side by side would take \d+ unrolled multiply/,
    );
    const candidate = (changes: Partial<DesignSchedule>): DesignCandidate => ({
      kind: "design",
      intrinsic: "avx512.fma.f32",
      schedule: { ...design.schedule, ...changes },
    });
    expect(() => kernelFor(image, candidate({ lanes: 1024 }))).toThrow(
      "conv2d: 1024 lanes, but a register of AVX-512 has 16",
    );
    const half = stated("conv2d --n 1 --c 2 --k 512 --h 40 --w 40 --r 3 --s 3 --dtype f16");
    expect(() => kernelFor(half, candidate({ streaming: true }))).toThrow("nothing is stored around the caches");
    const filter = stated("conv1d-single --l 4000 --r 8");
    const transform = { loops: ["p", "r"], allocation: [2, 1], schedule: [[16, 7]] };
    const turning = placeArray(filter, { transform, lanes: 16, tile: { p: 4 }, beside: {}, inputs: "passed" });
    expect(turning.ok ? "" : turning.refusal.because).toBe(
      "length: register numbers repeat after 1008 steps, and at most 256 are unrolled",
    );
  });

  it("are refused, and not searched, where a program would be megabytes, and nothing is printed to see that", () => {
    // Points meet every third lane, and results leave at twelve steps: 20 MB, which took 27 seconds to print.
    const stencil = stated("3d7pt --d 32 --h 48 --w 64");
    const space = spaceOf(stencil);
    const long = space.ranked.find(({ design: { plan } }) => {
      const { allocation, schedule, loops } = plan.transform;
      return loops.length > 2 && Math.abs(inverseOf([allocation, ...schedule])?.denominator ?? 1) === 3;
    });
    if (!long) throw new Error("no such design");
    const candidate: DesignCandidate = { kind: "design", intrinsic: "avx512.fma.f32", schedule: long.schedule };
    const seconds = processorWatch();
    expect(() => kernelFor(stencil, candidate)).toThrow(/it would be written as \d+ terms, more than 200000/);
    expect(seconds()).toBeLessThan(9);
    const random = seededRandom(3);
    const drawn = Array.from({ length: 12 }, () => space.random(random));
    for (const schedule of [...space.bestOfEach().map((b) => b.schedule), ...drawn])
      expect(tooLongToWrite(lowerArray(stencil, schedule))).toBeUndefined();
  });

  it("are refused with more than eight loops, and sums of more vectors than a call has arguments are found", () => {
    const names = [..."abcdefghi"];
    const long = defineComputation({
      name: "long",
      equation: `y[i] += x[i,${names}]`,
      extents: Object.fromEntries([["i", 20], ...names.map((n) => [n, 2] as const)]),
      tensors: { x: "f32" },
    });
    const row = [1, ...names.map(() => 0)];
    const transform = { loops: ["i", ...names], allocation: row, schedule: [row] };
    const placed = placeArray(long, { transform, lanes: 16, tile: { i: 16 }, beside: {}, inputs: "loaded" });
    expect(placed.ok ? "" : placed.refusal.because).toBe("form: a transform of 10 loops, more than 8");
    const unit = Array.from({ length: 12 }, (_, i) => Array.from({ length: 12 }, (_, j) => (i === j ? 1 : 0)));
    expect(
      latticePointIn(
        unit,
        unit.map(() => 2),
      ),
    ).toBeDefined();
  });

  it("refuses a transform under which points meet, and recurrences that fix their order", () => {
    const filter = stated("conv1d-single --l 40 --r 3");
    const transform = { loops: ["p", "r"], allocation: [1, 1], schedule: [[2, 2]] };
    const plan = { transform, lanes: 16, tile: { p: 8 }, beside: {}, inputs: "loaded" } as const;
    const verdict = placeArray(filter, plan);
    expect(verdict.ok ? "" : verdict.refusal.because).toMatch(/^design: points .* both run on PE/);
  });
});

describe("the search space of designs on lanes", () => {
  const spaceOn = (computation: Computation, kinds: "lanes" | "all", machine = nativeTarget()) =>
    finished(sessionSpace(computation, { intrinsics: usableIntrinsics(machine), machine, threads: 1, seed: 1, kinds }));

  it("has 8 lanes of f32 and 4 of f64 on a machine with AVX2 only, and no narrow types", () => {
    const machine = { ...nativeTarget(), isa: ["avx2", "fma"] };
    for (const [types, lanes] of [["f32", 8] as const, ["f64", 4] as const]) {
      const space = spaceOn(make("conv1d-single", { l: 400, r: 5 }, types), "lanes", machine);
      if (isRefusals(space)) throw new Error(space.map((r) => r.because).join());
      const all = [...space.all()].flatMap((c) => (isDesign(c) || c.kind === "window" ? [c] : []));
      expect([all.some(isDesign), all.some((c) => !isDesign(c))]).toEqual([true, true]);
      expect(new Set(all.map((c) => `${c.intrinsic} ${c.schedule.lanes}`))).toEqual(
        new Set([`avx2.fma.${types} ${lanes}`]),
      );
    }
    expect(spaceOn(stated("conv1d-single --l 400 --r 5 --dtype bf16"), "lanes", machine)).toMatchObject([
      { rule: "lanes" },
    ]);
  });

  const avx512 = nativeTarget().isa.includes("avx512f");

  it.skipIf(!avx512)("begins with the best of each dataflow, and holds all of them", () => {
    const space = spaceOn(stated("conv1d-single --l 400 --r 5"), "lanes");
    if (isRefusals(space)) throw new Error("refused");
    const transforms = (space.representatives ?? []).map((c) =>
      isDesign(c) ? JSON.stringify(c.schedule.transform) : "",
    );
    expect(new Set(transforms).size).toBeGreaterThanOrEqual(12);
    const all = [...space.all()].filter(isDesign);
    expect(new Set(all.map((c) => JSON.stringify(c.schedule.transform))).size).toBe(56);
  });

  it.skipIf(!avx512)("has transforms where no window of stride 1 exists", () => {
    const space = spaceOn(stated("conv1d-single --l 129 --r 3 --stride 2"), "all");
    expect(!isRefusals(space) && isDesign(space.promising?.at(-1) ?? space.random(seededRandom(1)))).toBe(true);
  });
});

const { features } = readProcessor();
/** Instructions whose kernels cannot run here. */
const cannotRun = (name: string): boolean => !features.includes(name.startsWith("avx2") ? "fma" : "avx512dq");

describe.skipIf(!features.includes("fma"))(
  "kernels of designs on lanes (skipped without AVX2; those of AVX-512 where it is not there)",
  () => {
    const runners: Runner[] = [];
    beforeAll(async () => {
      for (const threads of [1, 2])
        try {
          const created = await createRunner({ threads, budgetSeconds: 0.002, batches: [1, 2] });
          if (created.status === "ready") runners.push(created.runner);
        } catch (error) {
          if (!(error instanceof UsageError)) throw error;
        }
    });
    afterAll(async () => {
      for (const runner of runners) await runner.close();
    });

    const CASES: readonly (readonly [string, Computation, string, number])[] = [
      ["a filter of doubles", stated("conv1d-single --l 205 --r 3 --dtype f64"), "avx512.fma.f64", inFull(12, 1)],
      [
        "a padded image by every dataflow",
        stated("conv2d-single --h 13 --w 75 --r 3 --s 3 --pad 1"),
        "avx512.fma.f32",
        inFull(20, 3),
      ],
      [
        "channels, stride 2",
        stated("conv2d --n 1 --c 3 --k 5 --h 11 --w 41 --r 3 --s 3 --pad 1 --stride 2"),
        "avx512.fma.f32",
        inFull(12, 1),
      ],
      [
        "bytes with sums of 32 bits",
        stated("conv2d --n 1 --c 3 --k 4 --h 7 --w 35 --r 3 --s 3 --pad 1 --dtype u8s8"),
        "avx512.vpmulld",
        inFull(12, 1),
      ],
      [
        "bytes, five taps by dot products of four, beside borders",
        stated("conv2d-single --h 9 --w 75 --r 2 --s 5 --pad 2 --dtype u8s8"),
        "avx512.vpmulld",
        inFull(12, 2),
      ],
      [
        "words by dot products of two",
        stated("conv1d-single --l 205 --r 7 --dtype s16"),
        "avx512.vpmulld",
        inFull(12, 2),
      ],
      [
        "bf16 with sums of f32",
        stated("depthwise-conv2d --n 1 --c 3 --h 9 --w 37 --m 1 --dtype bf16"),
        "avx512.fma.f32",
        inFull(12, 1),
      ],
      ["f16", stated("conv2d-single --h 9 --w 40 --r 3 --s 3 --dtype f16"), "avx512.fma.f32", inFull(12, 1)],
      ["an epilogue", EPILOGUE, "avx512.vpmulld", inFull(12, 1)],
      // Its products count under a condition, and are multiply-adds all the same.
      ["a star", stated("2d5pt --h 9 --w 70"), "avx512.fma.f32", inFull(12, 2)],
      ["a filter by every dataflow, AVX2", stated("conv1d-single --l 203 --r 5"), "avx2.fma.f32", inFull(20, 6)],
      [
        "channels of doubles, stride 2, AVX2",
        stated("conv2d --n 1 --c 3 --k 5 --h 11 --w 41 --r 3 --s 3 --pad 1 --stride 2 --dtype f64"),
        "avx2.fma.f64",
        inFull(12, 2),
      ],
      ["integers, AVX2", stated("conv1d --n 1 --c 2 --k 3 --l 77 --r 3 --dtype s32"), "avx2.vpmulld", inFull(12, 2)],
    ];
    it.skipIf(cannotRun("avx512.fma.f32"))(
      "are right where results leave at a lane computed by a division, or at none",
      async () => {
        const computation = stated("conv2d-single --h 6 --w 41 --r 3 --s 3 --pad 1");
        const [runner] = runners;
        if (!runner) throw new Error("no runner");
        const reference = await runner.reference(computation, 1);
        const rest = { lanes: 16, beside: {}, inputs: "loaded", streaming: false, threads: 1 } as const;
        const loops = ["q", "r", "s"];
        const rows = [
          [0, 1, -1],
          [1, 0, 0],
        ];
        const schedules: DesignSchedule[] = [
          { ...rest, transform: { loops, allocation: [1, 1, 1], schedule: rows }, tile: { q: 12 } },
          { ...rest, transform: { loops, allocation: [1, 0, 1], schedule: rows }, tile: { q: 12 }, inputs: "passed" },
        ];
        for (const schedule of schedules) {
          const kernel = kernelFor(computation, { kind: "design", intrinsic: "avx512.fma.f32", schedule });
          // g++ takes ten seconds for the two.
          if (inFull(true, false)) expect((await runner.measure(kernel, reference)).status).toBe("ok");
          else expect(kernel.source.length).toBeGreaterThan(0);
        }
      },
    );

    it.each(CASES.filter(([, , name]) => !cannotRun(name)))("compute %s", async (_, computation, intrinsic, count) => {
      expect(runners.length).toBeGreaterThan(0);
      for (const runner of runners.slice(0, inFull(2, 1))) {
        const reference = await runner.reference(computation, 1);
        for (const { schedule } of spaceOf(computation, registersOf(declaredAs(intrinsic)))
          .bestOfEach()
          .slice(0, count)) {
          const candidate: DesignCandidate = { kind: "design", intrinsic, schedule };
          const measured = await runner.measure(kernelFor(computation, candidate), reference);
          expect(measured.status, "log" in measured ? `${JSON.stringify(schedule)} ${measured.log}` : "").toBe("ok");
        }
      }
    });
  },
);
