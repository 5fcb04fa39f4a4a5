/** Loops over tiles: caches blocked, sums in several passes; whatever the order, the program computes the equation. */

import { expect, test } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import type { Schedule } from "../../abstraction/candidate.ts";
import { defineComputation, pointCount } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { nestedLoops, parseLoop, printLoop } from "../../mapper/schedule/cache-tiles.ts";
import { dimensionsOf } from "../../mapper/schedule/dimensions.ts";
import { plainSchedule, randomSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { crossSchedules, mutateSchedule } from "../support/mapped.ts";
import { inFull } from "../support/slow.ts";
import { mappingNamed, mappingsOnto, operation, rowNamed, smallIntegers } from "../support/subjects.ts";

/** So small a cache that everything overflows it. */
const NEAR_BYTES = 32;

const CASES = [
  "conv2d c=9 k=40 h=7 w=9 r=3 s=3 NHWC",
  "conv2d c=8 k=33 h=6 w=5 r=3 s=3 stride=2 pad=2 NCHW",
  "grouped-conv2d c=12 k=12 h=5 w=4 r=3 s=3 groups=3 NHWC",
  "depthwise-conv2d c=34 h=5 w=6 m=1 r=3 s=3 NHWC",
  "transposed-conv2d c=6 k=4 h=3 w=4 r=3 s=3 stride=2 pad=1",
  "matmul m=7 n=69 k=21",
  "matmul m=8 n=64 k=24",
  "matvec m=40 k=19",
];
const INTRINSICS = [
  "avx512.fma.f32.broadcast",
  "avx512.fma.f32",
  "avx512.vpdpbusd",
  "avx512.vdpbf16ps",
  "amx.tdpbusd",
  "toy.2x2x2",
];

function mappingsOf(words: string, name: string): readonly Mapping[] {
  const intrinsic = rowNamed(name);
  return mappingsOnto(operation(words, intrinsic), intrinsic);
}

/** A schedule with at least one loop over tiles, where one can be drawn. */
function tiledSchedule(mapping: Mapping, random: Random, threads = 1): Schedule | undefined {
  for (let tries = 0; tries < 40; tries++) {
    let schedule = randomSchedule(mapping, random, threads, NEAR_BYTES);
    if (random() < 0.3) schedule = mutateSchedule(mapping, schedule, random, NEAR_BYTES);
    if (random() < 0.2)
      schedule = crossSchedules(mapping, schedule, randomSchedule(mapping, random, threads, NEAR_BYTES), random);
    if (schedule.order.some((l) => parseLoop(l)?.tile !== undefined)) return schedule;
  }
  return undefined;
}

const passesOf = (mapping: Mapping, schedule: Schedule): number =>
  nestedLoops(schedule.order, dimensionsOf(mapping)).filter((l) => l.pass).length;

test("every order of loops over tiles computes the equation, twice in a row", () => {
  const random = seededRandom(17);
  const ran = { tiled: 0, passes: 0 };
  for (const [turn, one] of CASES.entries())
    for (const [column, name] of INTRINSICS.entries()) {
      // In short every instruction meets some of the cases.
      if ((turn + column) % inFull(1, 2) > 0) continue;
      const valid = mappingsOf(one, name);
      const [any] = valid;
      if (!any) continue;
      const inputs = smallIntegers(any.computation, random);
      const expected = interpret(any.computation, inputs);
      for (let i = pointCount(any.intrinsic.computation) > 1000 ? 1 : inFull(12, 2); i > 0; i--) {
        const mapping = pick(random, valid);
        const schedule = tiledSchedule(mapping, random);
        if (!schedule) continue;
        expectEqual(mapping, schedule, inputs, expected);
        ran.tiled++;
        if (passesOf(mapping, schedule) > 0) ran.passes++;
      }
    }
  expect(ran.tiled).toBeGreaterThan(inFull(300, 25));
  expect(ran.passes).toBeGreaterThan(inFull(100, 10));
});

test("an epilogue is applied by the last pass only", () => {
  const random = seededRandom(23);
  const computation = defineComputation({
    name: "matmul",
    equation: "c[m,n] += s32(a[m,k]) * s32(b[k,n]); res[m,n] = sat_u8(round(f32(c[m,n]) * scale[n]))",
    extents: { m: 7, n: 40, k: 16 },
    tensors: { a: { dtype: "u8" }, b: { dtype: "s8", constant: true }, c: { dtype: "s32" }, scale: { dtype: "f32" } },
  });
  const intrinsic = rowNamed("avx512.vpdpbusd");
  const valid = mappingsOnto(computation, intrinsic);
  const inputs = smallIntegers(computation, random);
  const expected = interpret(computation, inputs);
  let passes = 0;
  for (let i = 0; i < 40; i++) {
    const mapping = pick(random, valid);
    const schedule = tiledSchedule(mapping, random);
    if (!schedule || passesOf(mapping, schedule) === 0) continue;
    expectEqual(mapping, schedule, inputs, expected);
    passes++;
  }
  expect(passes).toBeGreaterThan(8);
});

test("each thread reaches the same partial sums in every pass", () => {
  const random = seededRandom(29);
  let shared = 0;
  for (const one of CASES)
    for (let i = 0; i < 8; i++) {
      const mapping = pick(random, mappingsOf(one, "avx512.fma.f32.broadcast"));
      const schedule = tiledSchedule(mapping, random, 2);
      if (!schedule || passesOf(mapping, schedule) === 0) continue;
      const touched = partialSums(lowerSchedule(mapping, schedule), mapping, 2);
      const said = `${printMatching(mapping.matching)} ${JSON.stringify(schedule)}`;
      expect([...touched.values()].filter((t) => t.size > 1).length, said).toBe(0);
      if (new Set([...touched.values()].flatMap((t) => [...t])).size > 1) shared++;
    }
  expect(shared).toBeGreaterThan(5);
});

const MATMUL = "matmul m=8 n=64 k=24";

test("GotoBLAS's order keeps sums in the output between passes", () => {
  const [mapping] = mappingsOf(MATMUL, "avx512.fma.f32.broadcast");
  if (!mapping) throw new Error("no mapping");
  const schedule: Schedule = {
    ...plainSchedule(mapping),
    order: ["n/2", "k/10", "m", "n", "k"],
    block: { m: 4 },
    placement: { a: "in-place", b: "tiled" },
  };
  const nest = lowerSchedule(mapping, schedule);
  const inputs = smallIntegers(mapping.computation, seededRandom(1));
  expectEqual(mapping, schedule, inputs, interpret(mapping.computation, inputs));
  expect(printNest(nest)).toMatchInlineSnapshot(`
    "scratch b_tiles: f32[1920]
    registers c_register: 4 x avx512.fma.f32.broadcast.c
    registers b_register: 1 x avx512.fma.f32.broadcast.b
    registers a_register: 1 x avx512.fma.f32.broadcast.a
    for parallel n_step in 0..4
      for k_step in 0..24
        for n_inner in 0..16
          b_tiles[n_step/2*960+n_step%2*160+k_step/10*320+k_step%10*16+n_inner] = b[k_step,n_step*16+n_inner]
    barrier
    for parallel n_tile in 0..2
      for k_tile in 0..2
        for m_outer in 0..2
          for n_outer in 0..2
            when k_tile == 0
              for unrolled m_block in 0..4
                c_register{m_block} <- identity
            otherwise
              for unrolled m_block in 0..4
                c_register{m_block} <- out[(m_outer*4 + m_block)*64 + (n_tile*2 + n_outer)*16 .. by 16]
            for k_outer in 0..10
              b_register{0} <- b_tiles[n_tile*960 + n_outer*160 + k_tile*320 + k_outer*16 .. by 16]
              for unrolled m_block in 0..4
                a_register{0} <- a[(m_outer*4 + m_block)*24 + (k_tile*10 + k_outer) .. by 1]
                c_register{m_block} <- avx512.fma.f32.broadcast(a_register{0}, b_register{0})
            for unrolled m_block in 0..4
              out[(m_outer*4 + m_block)*64 + (n_tile*2 + n_outer)*16 .. by 16] <- c_register{m_block}
      for m_outer in 0..2
        for n_outer in 0..2
          for unrolled m_block in 0..4
            c_register{m_block} <- out[(m_outer*4 + m_block)*64 + (n_tile*2 + n_outer)*16 .. by 16]
          for k_outer in 0..4
            b_register{0} <- b_tiles[n_tile*960 + n_outer*160 + 640 + k_outer*16 .. by 16]
            for unrolled m_block in 0..4
              a_register{0} <- a[(m_outer*4 + m_block)*24 + (20 + k_outer) .. by 1]
              c_register{m_block} <- avx512.fma.f32.broadcast(a_register{0}, b_register{0})
          for unrolled m_block in 0..4
            out[(m_outer*4 + m_block)*64 + (n_tile*2 + n_outer)*16 .. by 16] <- c_register{m_block}"
  `);
});

test("passes over two nested sums begin once and end once", () => {
  const fma = rowNamed("avx512.fma.f32.broadcast");
  const mapping = mappingNamed(operation("conv2d c=5 k=32 h=5 w=6 r=3 s=3 NHWC", fma), fma, "n <- k");
  const order = ["c/2", "k/1", "s/1", "n", "q", "p", "k", "r", "s", "c"];
  const schedule: Schedule = { order, block: { p: 2 }, placement: { a: "padded", b: "tiled" }, threads: 1 };
  const inputs = smallIntegers(mapping.computation, seededRandom(1));
  expect(passesOf(mapping, schedule)).toBe(2);
  expectEqual(mapping, schedule, inputs, interpret(mapping.computation, inputs));
});

test("a schedule is refused with the loop that is out of place", () => {
  const [mapping] = mappingsOf(MATMUL, "avx512.fma.f32.broadcast");
  if (!mapping) throw new Error("no mapping");
  const said = (
    [
      [["m", "n", "k", "k/4"], {}],
      [["k/4", "k/2", "m", "n", "k"], {}],
      [["k/24", "m", "n", "k"], {}],
      [["k/12", "m", "n", "k"], { k: 2 }],
      [["q/4", "m", "n", "k"], {}],
      [["k/0", "m", "n", "k"], {}],
      [["m", "k", "n"], {}],
      [["m", "n", "k/4"], {}],
      [["k/4", "m", "k/2", "n", "k"], {}],
      [["k/4", "m", "n", "k"], {}],
      [["m/2", "n/2", "m", "k/4", "n", "k"], {}],
    ] as const
  ).map(([order, block]) => scheduleProblem(mapping, { ...plainSchedule(mapping), order, block }) ?? "fine");
  expect(said).toMatchInlineSnapshot(`
    [
      "tiles of k must stand before k, once",
      "tiles of k must stand before k, once",
      "k has 24 blocks: k/24 is no loop",
      "k has 12 blocks: k/12 is no loop",
      "q/4 names no dimension: they are m, n, k",
      "k/0 names no dimension: they are m, n, k",
      "kept dimensions must stand before summed ones",
      "order must name each of m, n, k once",
      "tiles of k must stand before k, once",
      "fine",
      "fine",
    ]
  `);
});

test("a loop reads back as it prints", () => {
  for (const text of ["k", "k/1", "p_q/64"]) {
    const read = parseLoop(text);
    expect(read && printLoop(read)).toBe(text);
  }
  for (const text of ["", "/4", "k/", "k/0", "k/4/2", "k/-1", "k/1.5"]) expect(parseLoop(text)).toBeUndefined();
});

function expectEqual(
  mapping: Mapping,
  schedule: Schedule,
  inputs: Readonly<Record<string, Float64Array>>,
  expected: ArrayLike<number>,
): void {
  const nest = lowerSchedule(mapping, schedule);
  const got = interpretNest(nest, mapping.computation, inputs, 2);
  const wrong = got.findIndex((x, at) => x !== expected[at]);
  if (wrong < 0) return;
  const said = `${mapping.intrinsic.name}: ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}`;
  throw new Error(`${said}: element ${wrong} is ${got[wrong]}, not ${expected[wrong]}\n${printNest(nest)}`);
}

/** Which of some threads load and store each place of the output or of partial sums. */
function partialSums(nest: LoopNest, { intrinsic }: Mapping, threads: number): Map<string, Set<number>> {
  const touched = new Map<string, Set<number>>();
  const visit = (statements: readonly Statement[], point: Record<string, number>, part: number): void => {
    for (const s of statements) {
      if (s.kind === "loop") {
        const [from, to] =
          s.mode === "parallel"
            ? [Math.floor((s.extent * part) / threads), Math.floor((s.extent * (part + 1)) / threads)]
            : [0, s.extent];
        for (let i = from; i < to; i++) visit(s.body, { ...point, [s.axis]: i }, part);
      } else if (s.kind === "when") {
        visit(evaluateIndex(s.condition, point) === 0 ? s.otherwise : s.body, point, part);
      } else if (s.kind === "load" || s.kind === "store") {
        const file = nest.registers.find((r) => r.name === s.register.file);
        const local = nest.scratch.some((b) => b.name === s.memory.buffer && b.scope === "local");
        if (file?.operand !== intrinsic.operands[0]?.name || local) continue;
        const place = `${s.memory.buffer} ${evaluateIndex(s.memory.base, point)}`;
        touched.set(place, (touched.get(place) ?? new Set()).add(part));
      }
    }
  };
  for (let part = 0; part < threads; part++) visit(nest.body, {}, part);
  return touched;
}
