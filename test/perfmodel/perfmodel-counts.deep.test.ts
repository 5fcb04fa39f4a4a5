/** The model counts without lowering, and its counts equal those of a walk over the lowered nest. */

import { expect, test } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import type { Placement, Schedule } from "../../abstraction/candidate.ts";
import { defineComputation, elementCount, equationText, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Expr } from "../../abstraction/expression.ts";
import { operandOf } from "../../abstraction/intrinsic.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { tilePlaces, tileRowElements } from "../../abstraction/memory-tile.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { nestedLoops, printLoop } from "../../mapper/schedule/cache-tiles.ts";
import { dimensionsOf } from "../../mapper/schedule/dimensions.ts";
import { randomSchedule, scheduleProblem, unschedulable } from "../../mapper/schedule/mapped.ts";
import { placementsOf } from "../../mapper/schedule/place.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { AffineFootprint, term } from "../../perfmodel/footprint.ts";
import { type Counts, createCounts } from "../support/counts.ts";
import { mutateSchedule } from "../support/mapped.ts";
import { randomTriangle } from "../support/random-triangle.ts";
import { inFull } from "../support/slow.ts";
import { mappingsOnto, operation, rowNamed } from "../support/subjects.ts";

const CASES = [
  "conv2d c=5 k=18 h=5 w=7 r=3 s=3 NHWC",
  "conv2d c=4 k=16 h=6 w=5 r=3 s=3 stride=2 pad=2 dilation=3 NCHW",
  "conv2d c=20 k=33 h=3 w=5 r=1 s=1 pad=0 NHWC",
  "conv2d c=8 k=32 h=6 w=6 r=3 s=3 pad=0 NHWC",
  "grouped-conv2d c=12 k=6 h=5 w=4 r=3 s=3 groups=3 pad=1 NHWC",
  "depthwise-conv2d c=17 h=5 w=6 m=1 r=3 s=3 NHWC",
  "depthwise-conv2d c=32 h=5 w=6 m=1 r=2 s=3 stride=2 NHWC",
  "matmul m=5 n=37 k=9",
  "matmul m=6 n=48 k=12",
  "transposed-conv2d c=4 k=3 h=3 w=4 r=3 s=3 stride=2 pad=1",
];
/** So small a cache that everything overflows it: tiles and passes are drawn. */
const NEAR_BYTES = 32;
const NAMES = [
  "avx512.fma.f32.broadcast",
  "avx512.fma.f32",
  "avx512.vpdpbusd",
  "avx512.vpdpbusd.lanes",
  "avx512.vdpbf16ps",
  "avx2.fma.f32.broadcast",
  "amx.tdpbusd",
  "toy.2x2x2",
];

/** Every mapping of the cases, as `conv2d on avx512.vpdpbusd`. */
function* cases(): Generator<{ label: string; valid: readonly Mapping[] }> {
  for (const words of CASES)
    for (const name of NAMES) {
      const intrinsic = rowNamed(name);
      const valid = mappingsOnto(operation(words, intrinsic), intrinsic);
      if (valid.length > 0) yield { label: `${words} on ${name}`, valid };
    }
}

test("every count equals that of a walk over the lowered nest", () => {
  const random = seededRandom(12);
  let walked = 0;
  let crossed = 0;
  let tiled = 0;
  let passes = 0;
  for (const { label, valid } of cases()) {
    for (let i = 0; i < inFull(5, 2); i++) {
      const mapping = pick(random, valid);
      let schedule = randomSchedule(mapping, random, 1, NEAR_BYTES);
      for (let steps = randomInteger(random, 0, 3); steps > 0; steps--)
        schedule = mutateSchedule(mapping, schedule, random, NEAR_BYTES);
      const nested = nestedLoops(schedule.order, dimensionsOf(mapping));
      if (nested.some((l) => l.tile !== undefined)) tiled++;
      if (nested.some((l) => l.pass)) passes++;
      const counted = createCounts(mapping)(schedule);
      const met = walk(lowerSchedule(mapping, schedule), mapping);
      const crossing = placementsOf(mapping).filter(
        (c) => schedule.placement[c.operand] === "in-place" && c.borders.length > 0,
      );
      crossed += crossing.length;
      // At a border the bytes are an upper bound: gaps between the elements that strides meet are not looked for.
      for (const { operand } of crossing)
        if (counted && (counted.distinctBytes[operand] ?? 0) >= (met.distinctBytes[operand] ?? 0))
          met.distinctBytes[operand] = counted.distinctBytes[operand] ?? 0;
      expect(counted, `${label}: ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}`).toEqual(met);
      walked++;
    }
  }
  expect(walked).toBeGreaterThan(inFull(150, 50));
  expect(crossed).toBeGreaterThan(0);
  expect(tiled).toBeGreaterThan(inFull(40, 12));
  expect(passes).toBeGreaterThan(inFull(20, 6));
});

test("work that a condition skips is counted as lowering skips it", () => {
  const random = seededRandom(17);
  const seen = { skipped: 0, masked: 0, edges: 0 };
  for (let i = 0; i < inFull(600, 120); i++) {
    const { computation, intrinsic } = randomTriangle(random);
    const valid = mappingsOnto(computation, intrinsic).filter((m) => unschedulable(m) === undefined);
    if (valid.length === 0) continue;
    const mapping = pick(random, valid);
    let schedule = randomSchedule(mapping, random, 1, NEAR_BYTES);
    for (let steps = randomInteger(random, 0, 3); steps > 0; steps--)
      schedule = mutateSchedule(mapping, schedule, random, NEAR_BYTES);
    const counted = createCounts(mapping)(schedule);
    const nest = lowerSchedule(mapping, schedule);
    const met = walk(nest, mapping);
    if (nest.scratch.some((b) => b.name.endsWith("_edges"))) seen.edges++;
    // Bytes are an upper bound: all steps are taken to be gone through.
    for (const operand of Object.keys(met.distinctBytes)) {
      expect(counted?.distinctBytes[operand] ?? 0).toBeGreaterThanOrEqual(met.distinctBytes[operand] ?? 0);
      met.distinctBytes[operand] = counted?.distinctBytes[operand] ?? 0;
    }
    expect(
      counted,
      `${equationText(computation)} on ${intrinsic.name}: ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}`,
    ).toEqual(met);
    if (met.issues < dimensionsOf(mapping).reduce((product, d) => product * d.steps, 1)) seen.skipped++;
    if (met.scattered > 0 && met.scattered < elementCount(outputOf(computation))) seen.masked++;
  }
  expect(seen.edges).toBeGreaterThan(10);
  expect(seen.skipped).toBeGreaterThan(20);
  expect(seen.masked).toBeGreaterThan(3);
});

test("with an epilogue every element passes through the scratch block", () => {
  const random = seededRandom(13);
  const intrinsic = rowNamed("avx512.vpdpbusd");
  const computation = defineComputation({
    name: "matmul",
    equation: "c[m,n] += s32(a[m,k]) * s32(b[k,n]); res[m,n] = sat_u8(round(f32(c[m,n]) * scale[n]))",
    extents: { m: 7, n: 40, k: 16 },
    tensors: { a: { dtype: "u8" }, b: { dtype: "s8", constant: true }, c: { dtype: "s32" }, scale: { dtype: "f32" } },
  });
  const valid = mappingsOnto(computation, intrinsic);
  for (let i = 0; i < 30; i++) {
    const mapping = pick(random, valid);
    const schedule = randomSchedule(mapping, random, 1, NEAR_BYTES);
    const counted = createCounts(mapping)(schedule);
    expect(counted, JSON.stringify(schedule)).toEqual(walk(lowerSchedule(mapping, schedule), mapping));
    expect(counted?.scattered).toBe(7 * 40);
  }
});

test("a schedule is refused exactly when it cannot be lowered", () => {
  const random = seededRandom(5);
  const seen = { legal: 0, illegal: 0 };
  for (const { label, valid } of cases()) {
    const mapping = pick(random, valid);
    const counts = createCounts(mapping);
    for (let i = 0; i < 40; i++) {
      const schedule = spoiled(mapping, randomSchedule(mapping, random, 1, NEAR_BYTES), random);
      const problem = scheduleProblem(mapping, schedule);
      expect(counts(schedule) === undefined, `${label}: ${problem} ${JSON.stringify(schedule)}`).toBe(
        problem !== undefined,
      );
      seen[problem === undefined ? "legal" : "illegal"]++;
    }
  }
  expect(seen.legal).toBeGreaterThan(100);
  expect(seen.illegal).toBeGreaterThan(100);
});

test("inputs beyond two factors are loaded at each issue and take registers, and weights may be made in a loop", () => {
  const random = seededRandom(19);
  const computation = instantiate(operatorNamed("matmul-4bit-s8"), { parameters: { m: 3, n: 37, k: 128, group: 64 } });
  const valid = mappingsOnto(computation, rowNamed("avx512.vpdpbusd.scaled"));
  let made = 0;
  for (let i = 0; i < 20; i++) {
    const mapping = pick(random, valid);
    const schedule = randomSchedule(mapping, random, 1, NEAR_BYTES);
    const nest = lowerSchedule(mapping, schedule);
    made += nest.scratch.filter((b) => b.name === "b_made").length;
    const met = walk(nest, mapping);
    expect(createCounts(mapping)(schedule), JSON.stringify(schedule)).toEqual(met);
    expect([met.loads["s"], met.loads["t"]]).toEqual([met.issues, met.issues]);
  }
  expect(made).toBeGreaterThan(0);
});

test("a footprint is the number of distinct addresses while terms nest or two overlap", () => {
  const random = seededRandom(3);
  for (let i = 0; i < 2000; i++) {
    const inner = randomInteger(random, 1, 6);
    const [x, y] = [
      [randomInteger(random, 1, 7), randomInteger(random, 1, 9)],
      [randomInteger(random, -7, 9), randomInteger(random, 1, 9)],
    ] as const;
    // A run of `inner` elements inside steps that are longer than it.
    const terms = [
      [1, inner],
      [x[0] * 8, x[1]],
      [y[0] * 8, y[1]],
    ] as const;
    const footprint = new AffineFootprint(
      terms.map(([coefficient, count]) => term(coefficient, undefined, count)),
      1,
    );
    footprint.measure();
    const addresses = new Set<number>();
    for (let a = 0; a < inner; a++)
      for (let b = 0; b < x[1]; b++) for (let c = 0; c < y[1]; c++) addresses.add(a + x[0] * 8 * b + y[0] * 8 * c);
    expect(footprint.distinct, JSON.stringify(terms)).toBe(addresses.size);
  }
});

/** A schedule with something changed that may or may not be allowed. */
function spoiled(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  const dimensions = dimensionsOf(mapping);
  const name = pick(random, dimensions).name;
  const order = [...schedule.order];
  switch (randomInteger(random, 0, 8)) {
    case 8: {
      const tile = printLoop({
        name: pick(random, [...dimensions.map((d) => d.name), "nothing"]),
        tile: randomInteger(random, 0, 9),
      });
      const place = randomInteger(random, 0, order.length);
      return { ...schedule, order: [...order.slice(0, place), tile, ...order.slice(place)] };
    }
    case 0:
      return { ...schedule, order: order.reverse() };
    case 1:
      return { ...schedule, order: order.map(() => name) };
    case 2:
      return { ...schedule, order: order.slice(1) };
    case 3:
      return { ...schedule, block: { ...schedule.block, [name]: randomInteger(random, -1, 40) } };
    case 4:
      return { ...schedule, block: { ...schedule.block, nothing: 2 } };
    case 5:
      return { ...schedule, block: { ...schedule.block, [name]: 1.5 } };
    case 6: {
      const placements: readonly Placement[] = ["in-place", "padded", "windowed", "tiled"];
      const operand = pick(random, Object.keys(schedule.placement));
      return { ...schedule, placement: { ...schedule.placement, [operand]: pick(random, placements) } };
    }
    default:
      return schedule;
  }
}

/** Runs the loops of a nest and counts what stands in them. */
function walk(
  nest: LoopNest,
  { computation, intrinsic, binding }: Mapping,
): Counts & { readonly distinctBytes: Record<string, number> } {
  const inputs = intrinsic.operands.slice(1).map((o) => o.name);
  const none = (): Record<string, number> => Object.fromEntries(inputs.map((name) => [name, 0]));
  const [target] = intrinsic.operands;
  const loads: Record<string, number> = { ...none(), [target?.name ?? ""]: 0 };
  const counts = { issues: 0, stores: 0, scattered: 0, loads, packed: none() };
  const touched = new Map(inputs.map((name) => [name, new Set<number>()]));
  const places = new Map(
    inputs.map((name) => {
      const row = tileRowElements(operandOf(intrinsic, name));
      return [name, Array.from(tilePlaces(intrinsic, name), (p) => [Math.floor(p / row), p % row] as const)];
    }),
  );
  const visit = (statements: readonly Statement[], point: Record<string, number>): void => {
    for (const s of statements) {
      switch (s.kind) {
        case "loop": {
          const ends = (list: readonly Expr[] = []): number[] => list.map((e) => evaluateIndex(e, point));
          const end = Math.min(s.extent, ...ends(s.range?.to));
          for (let i = Math.max(0, ...ends(s.range?.from)); i < end; i++) {
            point[s.axis] = i;
            visit(s.body, point);
          }
          break;
        }
        case "when":
          visit(evaluateIndex(s.condition, point) === 0 ? s.otherwise : s.body, point);
          break;
        case "register-issue":
          counts.issues++;
          break;
        case "store": {
          const made = inputs.find((name) => s.memory.buffer === `${name}_made`);
          if (made === undefined) counts.stores++;
          else counts.packed[made] = (counts.packed[made] ?? 0) + (places.get(made)?.length ?? 0);
          break;
        }
        case "load": {
          const operand = nest.registers.find((r) => r.name === s.register.file)?.operand ?? "";
          if (s.made && nest.scratch.some((b) => b.name === `${operand}_made`)) break;
          counts.loads[operand] = (counts.loads[operand] ?? 0) + 1;
          // What lies across an edge is loaded from a buffer beside: the bytes are those of what is loaded where it lies.
          if (s.memory.buffer === `${operand}_edges`) break;
          const base = evaluateIndex(s.memory.base, point);
          const halves = s.made?.halves;
          for (const [row, column] of places.get(operand) ?? []) {
            const place = row * s.memory.stride + column;
            touched.get(operand)?.add(base + (halves ? Math.floor((halves[place] ?? Number.NaN) / 2) : place));
          }
          break;
        }
        case "scalar": {
          const { target, value } = s.equation;
          const { tensor } = target;
          const isCopy = value.kind === "access" && computation.tensors[value.tensor] !== undefined;
          if (tensor === outputOf(computation).name) counts.scattered += value.kind === "number" ? 0 : 1;
          // Bytes are calculated in a local buffer of their own first; one that holds a copy is zeroed first.
          else if (
            nest.scratch.some((b) => b.name === tensor && b.scope === "local" && !b.name.endsWith("_tiles")) &&
            !isCopy
          )
            break;
          else {
            const operand =
              inputs.find(
                (name) =>
                  [`${packedFrom(name)}_padded`, `${packedFrom(name)}_windowed`].some((b) => tensor.startsWith(b)) ||
                  tensor === `${name}_tiles` ||
                  tensor === `${name}_edges`,
              ) ?? "";
            counts.packed[operand] = (counts.packed[operand] ?? 0) + 1;
          }
          break;
        }
        case "clear":
        case "barrier":
        case "issue":
        case "fetch":
        case "drain":
        case "accumulate":
        case "copy":
        case "commit":
        case "wait":
        case "settle":
        case "fence":
        case "send":
        case "await":
        case "arrive":
          break;
        default:
          s satisfies never;
      }
    }
  };
  const packedFrom = (operand: string): string => {
    const bound = binding[operand];
    return bound?.kind === "access" ? bound.tensor : "?";
  };
  visit(nest.body, {});
  const distinctBytes = Object.fromEntries(
    inputs.map((name) => [name, (touched.get(name)?.size ?? 0) * bytesOf(operandOf(intrinsic, name).dtype)]),
  );
  return { ...counts, distinctBytes };
}
