/** Inputs loaded in place although windows reach outside: blocks at the border skip elements outside. */
import { expect, test } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import type { Schedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { type Expr, number } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { issuesWritten } from "../../mapper/schedule/block.ts";
import { type Border, borderBlocks, isInside, rangeInside } from "../../mapper/schedule/borders.ts";
import { nestedLoops } from "../../mapper/schedule/cache-tiles.ts";
import { dimensionsUnder } from "../../mapper/schedule/gaps.ts";
import { randomSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { bordersUnder, placementsOf } from "../../mapper/schedule/place.ts";
import { createCounts } from "../support/counts.ts";
import { mutateSchedule } from "../support/mapped.ts";
import { mappingsOnto, operation, rowNamed, smallIntegers } from "../support/subjects.ts";

const CASES = [
  { words: "conv2d c=3 k=16 h=7 w=6 r=3 s=3", on: "avx512.fma.f32.broadcast" },
  { words: "conv2d c=8 k=20 h=4 w=9 r=5 s=2 stride=2 pad=2", on: "avx512.vpdpbusd" },
  { words: "conv2d c=2 k=8 h=6 w=5 r=3 s=3 dilation=3 pad=3", on: "avx2.fma.f32.broadcast" },
  { words: "depthwise-conv2d c=32 h=7 w=7 m=1 r=3 s=3", on: "avx512.fma.f32" },
  { words: "depthwise-conv2d c=16 h=9 w=8 m=1 r=3 s=5 stride=2 pad=2", on: "avx512.fma.f32" },
  { words: "grouped-conv2d c=4 k=32 h=5 w=6 r=3 s=3 groups=2", on: "avx512.fma.f32.broadcast" },
] as const;

/** Windows that leave the input on one side only. */
const oneSided = (read: string, places: number) => ({
  on: "avx512.fma.f32.broadcast",
  computation: defineComputation({
    name: read,
    equation: `y[p,k] += ${read} * w[r,c,k]`,
    extents: { p: 9, k: 16, r: 3, c: 4 },
    tensors: { x: { dtype: "f32", shape: [places, 4] }, w: "f32", y: "f32" },
  }),
});
/** The last leaves it by one element alone. */
const ONE_SIDED = [oneSided("x[p+r,c]", 9), oneSided("x[p+r-2,c]", 9), oneSided("x[p+r,c]", 10)];
/** Taps that run backwards, one and two places apart. */
const BACKWARDS = [oneSided("x[p-r+1,c]", 9), oneSided("x[2*p-2*r+1,c]", 17)];

function* cases(): Generator<{ readonly intrinsic: Intrinsic; readonly computation: Computation }> {
  const named = (on: string): Intrinsic => {
    const intrinsic = rowNamed(on);
    return intrinsic;
  };
  for (const { words, on } of CASES) {
    const intrinsic = named(on);
    yield { intrinsic, computation: operation(`${words} NHWC`, intrinsic) };
  }
  for (const { on, computation } of [...ONE_SIDED, ...BACKWARDS]) yield { intrinsic: named(on), computation };
}

/** Schedules that load the input in place across its border. */
function* crossing(random: Random, draws: number): Generator<{ mapping: Mapping; schedule: Schedule; label: string }> {
  for (const { intrinsic, computation } of cases()) {
    const name = `${computation.name} on ${intrinsic.name}`;
    const open = mappingsOnto(computation, intrinsic).flatMap((mapping) =>
      placementsOf(mapping).flatMap((choice) =>
        choice.borders.length > 0 && choice.open.includes("in-place") ? [{ mapping, operand: choice.operand }] : [],
      ),
    );
    expect(open.length, name).toBeGreaterThan(0);
    for (let i = 0; i < draws; i++) {
      const { mapping, operand } = pick(random, open);
      const drawn = randomSchedule(mapping, random);
      const schedule: Schedule = { ...drawn, placement: { ...drawn.placement, [operand]: "in-place" } };
      if (scheduleProblem(mapping, schedule) !== undefined) continue;
      yield {
        mapping,
        schedule,
        label: `${name}: ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}`,
      };
    }
  }
}

test("every schedule that crosses a border computes the equation, with as many issues as the model counts", () => {
  const random = seededRandom(21);
  let ran = 0;
  for (const { mapping, schedule, label } of crossing(random, 8)) {
    const { computation } = mapping;
    const inputs = smallIntegers(computation, random);
    const nest = lowerSchedule(mapping, schedule);
    const expected = interpret(computation, inputs);
    const wrong = [...interpretNest(nest, computation, inputs, 2)].findIndex((x, i) => x !== expected[i]);
    expect(wrong, `${label}\n${wrong < 0 ? "" : printNest(nest)}`).toBe(-1);
    expect(createCounts(mapping)(schedule)?.issues, label).toBe(issuesIn(nest.body));
    ran++;
  }
  expect(ran).toBeGreaterThan(30);
});

test("rows one by one write no tap of a border apart: the loop over taps runs over those inside", () => {
  const fma = rowNamed("avx512.fma.f32.broadcast");
  const computation = operation("conv2d c=512 k=512 h=14 w=14 r=3 s=3 NHWC");
  const [mapping] = mappingsOnto(computation, fma).filter(({ matching }) => printMatching(matching) === "n <- k");
  if (!mapping) throw new Error("k does not feed n");
  const schedule = (block: Schedule["block"]): Schedule => ({
    order: ["n", "k", "p", "q", "r", "s", "c"],
    block,
    placement: { a: "in-place", b: "tiled" },
    threads: 1,
  });
  const byRows = lowerSchedule(mapping, schedule({ q: 14, k: 2 }));
  expect(printNest(byRows)).toContain("for r_outer in max(0, 1 - p_outer)..min(3, 15 - p_outer)");
  // Taps of a column stay apart, each without what it would read outside: 13, 14 and 13 of 14.
  expect(issuesWritten(mapping, schedule({ q: 14, k: 2 }))).toBe(80);
  expect(issuesIn(byRows.body)).toBe((14 * 3 - 2) ** 2 * 512 * 32);
  expect(printNest(lowerSchedule(mapping, schedule({ q: 7, p: 2, k: 2 })))).not.toContain("max(");
});

test("the count of a border's blocks equals a count over every step", () => {
  const random = seededRandom(4);
  for (let i = 0; i < 300; i++) {
    const border: Border = {
      spatial: "p",
      reduce: "r",
      spatialSteps: randomInteger(random, 1, 12),
      reduceSteps: randomInteger(random, 1, 5),
      perSpatial: randomInteger(random, 1, 3),
      perReduce: randomInteger(random, 1, 3) * pick(random, [1, -1]),
      constant: -randomInteger(random, 0, 4),
      extent: randomInteger(random, 1, 12),
    };
    const block = randomInteger(random, 1, border.spatialSteps);
    const { from, to, leftIsEdge, edges, insideSteps, insideBlocks } = borderBlocks(border, block);
    const steps = Array.from({ length: border.spatialSteps }, (_, p) =>
      Array.from({ length: border.reduceSteps }, (_, r) => isInside(border, p, r)),
    );
    expect(insideSteps).toBe(steps.flat().filter(Boolean).length);
    const blocks = Array.from({ length: Math.ceil(steps.length / block) }, (_, b) =>
      steps.slice(b * block, (b + 1) * block),
    );
    const whole = Math.floor(steps.length / block);
    const isEdge = blocks.map((rows) => !rows.flat().every(Boolean));
    expect(insideBlocks).toBe(
      blocks
        .flatMap((rows) => Array.from({ length: border.reduceSteps }, (_, r) => rows.some((row) => row[r])))
        .filter(Boolean).length,
    );
    expect(isEdge.slice(from, to).some(Boolean)).toBe(false);
    expect(isEdge.slice(0, whole).filter((e) => !e).length).toBe(to - from);
    expect(leftIsEdge).toBe(isEdge[whole] ?? false);
    expect(edges).toBe(isEdge.filter(Boolean).length);
    for (const [p, row] of steps.entries()) {
      const { from, to } = rangeInside(border, number(p));
      const bound = ([e]: readonly Expr[]): number => evaluateIndex(e ?? number(0), {});
      expect(row.map((_, r) => bound(from) <= r && r < bound(to))).toEqual(row);
    }
  }
});

/** Issues a nest runs. */
function issuesIn(statements: ReturnType<typeof lowerSchedule>["body"], point: Record<string, number> = {}): number {
  let sum = 0;
  for (const s of statements) {
    if (s.kind === "register-issue") sum++;
    if (s.kind === "when") sum += issuesIn(evaluateIndex(s.condition, point) === 0 ? s.otherwise : s.body, point);
    if (s.kind !== "loop") continue;
    const at = (e: Expr): number => evaluateIndex(e, point);
    const from = Math.max(0, ...(s.range?.from.map(at) ?? []));
    const to = Math.min(s.extent, ...(s.range?.to.map(at) ?? []));
    for (let i = from; i < to; i++) sum += issuesIn(s.body, { ...point, [s.axis]: i });
  }
  return sum;
}

test("no kernel of a search writes out more than 1024 issues of blocks, remainders, borders and passes", () => {
  const fma = rowNamed("avx512.fma.f32.broadcast");
  const random = seededRandom(1);
  const seen = { borders: 0, passes: 0, left: 0 };
  for (const operator of ["conv1d", "conv2d", "conv3d"]) {
    const computation = operation(operator);
    const valid = mappingsOnto(computation, fma);
    for (let i = 0; i < 60; i++) {
      const mapping = pick(random, valid);
      let schedule = randomSchedule(mapping, random, 1, NEAR_BYTES);
      for (let steps = 0; steps < 6; steps++) schedule = mutateSchedule(mapping, schedule, random, NEAR_BYTES);
      const nest = lowerSchedule(mapping, schedule);
      const label = `${operator}: ${JSON.stringify(schedule)}`;
      expect(issuesWritten(mapping, schedule), label).toBeLessThanOrEqual(1024);
      expect(writtenIn(nest.body), label).toBeLessThanOrEqual(issuesWritten(mapping, schedule));
      const loops = nestedLoops(schedule.order, dimensionsUnder(mapping, schedule));
      if (bordersUnder(mapping, schedule).length > 0) seen.borders++;
      if (loops.some((l) => l.pass)) seen.passes++;
      if (loops.some(({ dimension: d }) => d.steps % (schedule.block[d.name] ?? 1) > 0)) seen.left++;
    }
  }
  expect(Math.min(...Object.values(seen)), JSON.stringify(seen)).toBeGreaterThan(0);
});

/** Level two of a Xeon: what tiles are made for. */
const NEAR_BYTES = 2 ** 21;

/** Issues as they are printed: unrolled loops step by step, both bodies of a test. */
function writtenIn(statements: ReturnType<typeof lowerSchedule>["body"]): number {
  return statements.reduce((sum, s) => {
    if (s.kind === "when") return sum + writtenIn(s.body) + writtenIn(s.otherwise);
    if (s.kind === "loop") return sum + (s.mode === "unrolled" ? s.extent : 1) * writtenIn(s.body);
    return sum + (s.kind === "register-issue" ? 1 : 0);
  }, 0);
}
