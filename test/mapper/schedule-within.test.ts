/**
 * Copies made inside a loop: whatever the loop, the program computes the equation, and a copy holds no more than one of
 * its steps reads.
 */
import { describe, expect, it } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import type { Schedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { accessesIn, type Expr } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { randomSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { placementsOf } from "../../mapper/schedule/place.ts";
import { copiesIn, movedCopy } from "../../mapper/schedule/within.ts";
import { createTerms } from "../../perfmodel/model.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { REFERENCE_CPU } from "../../targets/x86.ts";
import { createCounts } from "../support/counts.ts";
import { inFull } from "../support/slow.ts";
import {
  mapped,
  mappedKernel,
  mappingNamed,
  mappingsOnto,
  operation,
  rowNamed,
  smallIntegers,
  stated,
} from "../support/subjects.ts";

/** The pairwise products of a sample's 27 vectors of 128. */
const interaction = (samples: number): Computation => operation(`interaction b=${samples}`, "bf16");

const CASES = [
  ["conv2d c=3 k=5 h=7 w=8 r=3 s=3 stride=2 pad=1 NHWC", "avx512.vdpbf16ps"],
  ["conv2d c=8 k=20 h=5 w=6 r=3 s=3 NHWC", "avx512.vpdpbusd"],
  ["grouped-conv2d c=4 k=4 h=5 w=18 r=3 s=3 groups=2 NCHW", "avx512.fma.f32.broadcast"],
  ["depthwise-conv2d c=18 h=5 w=4 m=1 r=3 s=3 NHWC", "avx512.fma.f32"],
  ["conv2d c=3 k=4 h=5 w=7 r=3 s=3 stride=2 pad=1 NHWC", "toy.2x2x2"],
] as const;
const DOT = rowNamed("avx512.vdpbf16ps");

/** Its second factor on the lanes. */
function ofSecond(computation: Computation): Mapping {
  const found = mappingsOnto(computation, DOT).find((m) => m.matching.n?.join() === "j");
  if (!found) throw new Error("n <- j does not map");
  return found;
}

interface Drawn {
  readonly mapping: Mapping;
  readonly schedule: Schedule;
}

/** Schedules with a copy inside a loop. */
function drawn([words, on]: readonly [string, string], random: Random, wanted: number): Drawn[] {
  const intrinsic = rowNamed(on);
  const valid = mappingsOnto(operation(words, intrinsic), intrinsic);
  const found: Drawn[] = [];
  for (let tries = 0; found.length < wanted && tries < 40 * wanted; tries++) {
    const mapping = pick(random, valid);
    const plain = randomSchedule(mapping, random);
    const tiled = Object.keys(plain.placement).filter((o) => plain.placement[o] === "tiled");
    const packs = tiled.length > 0 && tries % 2 === 0;
    const schedule = packs
      ? { ...plain, within: { [pick(random, tiled)]: pick(random, plain.order) } }
      : movedCopy(mapping, plain, random);
    if (schedule.within && scheduleProblem(mapping, schedule) === undefined) found.push({ mapping, schedule });
  }
  return found;
}

describe("a copy made inside a loop", () => {
  it("changes no result, twice in a row", () => {
    const random = seededRandom(5);
    const met = { padded: 0, windowed: 0, tiled: 0, tiles: 0 };
    for (const one of CASES)
      for (const { mapping, schedule } of drawn(one, random, inFull(40, 14))) {
        const { computation } = mapping;
        const inputs = smallIntegers(computation, random);
        const expected = interpret(computation, inputs);
        const said = `${printMatching(mapping.matching)} ${JSON.stringify(schedule)}`;
        const nest = lowerSchedule(mapping, schedule);
        expect(interpretNest(nest, computation, inputs, 2), said).toEqual(expected);
        for (const [operand, loop] of Object.entries(schedule.within ?? {})) {
          if (schedule.placement[operand] === "padded") met.padded++;
          if (schedule.placement[operand] === "windowed") met.windowed++;
          if (schedule.placement[operand] === "tiled") met.tiled++;
          if (loop.includes("/")) met.tiles++;
        }
      }
    expect(met.padded).toBeGreaterThan(inFull(40, 10));
    expect(met.windowed).toBeGreaterThan(inFull(12, 3));
    expect(met.tiled).toBeGreaterThan(inFull(60, 20));
    expect(met.tiles).toBeGreaterThan(inFull(12, 3));
  });

  it("is counted by the model as often as it is made", () => {
    const random = seededRandom(6);
    let counted = 0;
    for (const one of CASES)
      for (const { mapping, schedule } of drawn(one, random, inFull(10, 4))) {
        const counts = createCounts(mapping)(schedule);
        if (!counts) continue;
        const before = createCounts(mapping)({ ...schedule, within: undefined });
        for (const operand of Object.keys(schedule.within ?? {}))
          expect(counts.packed[operand]).toBeGreaterThanOrEqual(before?.packed[operand] ?? 0);
        counted++;
      }
    expect(counted).toBeGreaterThan(10);
  });

  it("holds one group at a time, with its border zeroed once and its rows copied as runs", () => {
    const words = "grouped-conv2d c=8 k=8 h=5 w=16 r=3 s=3 groups=4 NCHW";
    const mapping = mapped(words, "avx512.fma.f32.broadcast", "n <- q");
    const schedule: Schedule = {
      order: ["n", "g", "p", "k", "q", "c", "r", "s"],
      block: { k: 2 },
      placement: { a: "in-place", b: "padded" },
      within: { b: "g" },
      threads: 1,
    };
    expect(scheduleProblem(mapping, schedule)).toBeUndefined();
    expect(printNest(lowerSchedule(mapping, schedule)).split("\n").slice(0, 14).join("\n")).toMatchInlineSnapshot(`
      "local in_padded: f32[252]
      registers c_register: 2 x avx512.fma.f32.broadcast.c
      registers b_register: 1 x avx512.fma.f32.broadcast.b
      registers a_register: 1 x avx512.fma.f32.broadcast.a
      for in_padded_zero in 0..252
        in_padded[in_padded_zero] = 0
      for parallel g_outer in 0..4
        for c_copy in 0..2
          for h_copy in 0..5
            for w_copy in 0..16
              in_padded[c_copy*126+(h_copy+1)*18+(w_copy+1)] = in[0,c_copy+g_outer*2,h_copy,w_copy]
        for p_outer in 0..5
          for unrolled k_block in 0..2
            c_register{k_block} <- identity"
    `);
    expect(mappedKernel(mapping, schedule).source).toMatch(/memcpy\(in_padded \+ .*, in \+ .*, 64\);/);
  });

  it("holds the tiles of one sample of the batch, one vector of which is a separate input", () => {
    const mapping = mappingNamed(interaction(4), DOT, "n <- j; k <- k");
    const schedule: Schedule = {
      order: ["b", "i", "j", "k"],
      block: { i: 13 },
      placement: { a: "in-place", b: "tiled" },
      within: { b: "b" },
      threads: 1,
    };
    expect(scheduleProblem(mapping, schedule)).toBeUndefined();
    const lines = printNest(lowerSchedule(mapping, schedule)).split("\n");
    const from = lines.findIndex((line) => line.startsWith("for parallel b_outer"));
    expect([lines[0], ...lines.slice(from, from + 10)].join("\n")).toMatchInlineSnapshot(`
      "local b_tiles: bf16[4096]
      for parallel b_outer in 0..4
        for j_step in 0..2   (ahead d[(b_outer + 1)*128 + j_step*2*32 ..], d[(b_outer + 1)*128 + (j_step*2 + 1)*32 ..])
          for k_step in 0..64
            for k_inner in 0..2
              for n_inner in 0..16
                b_tiles[j_step*2048+k_step*32+(2*n_inner+k_inner)] = select(j_step*16+n_inner < 26, e[b_outer,j_step*16+n_inner-1,k_step*2+k_inner], 0)
        for k_step in 0..64
          for k_inner in 0..2
            b_tiles[k_step*32+k_inner] = d[b_outer,k_step*2+k_inner]
        for i_outer in 0..2"
    `);
    const random = seededRandom(8);
    const small = interaction(3);
    let judged = 0;
    for (const order of [
      ["b", "i", "j", "k"],
      ["i", "b", "j", "k"],
      ["b/2", "i", "b", "j", "k"],
    ])
      for (const loop of order.slice(0, -2)) {
        const tried = { ...schedule, order, block: { i: 9, j: 2 }, within: { b: loop } };
        const found = mappingNamed(small, DOT, "n <- j; k <- k");
        if (scheduleProblem(found, tried) !== undefined) continue;
        const inputs = smallIntegers(small, random);
        const nest = lowerSchedule(found, tried);
        expect(interpretNest(nest, small, inputs, 2), `${order} ${loop}`).toEqual(interpret(small, inputs));
        judged++;
      }
    expect(judged).toBeGreaterThan(2);
  });

  it("prefetches every line that the next step packs while this one is computed", () => {
    const mapping = ofSecond(interaction(4));
    for (const block of [{ i: 13 }, { i: 16, k: 2 }, { i: 4, j: 2 }, { i: 1 }]) {
      const schedule: Schedule = {
        order: ["b", "i", "j", "k"],
        block,
        placement: { a: "in-place", b: "tiled" },
        within: { b: "b" },
        threads: 1,
      };
      const lines = linesAhead(lowerSchedule(mapping, schedule).body, { b_outer: 1 });
      for (const [tensor, elements] of Object.entries({ e: 26 * 128, d: 128 }))
        for (let at = 2 * elements; at < 3 * elements; at += 32)
          expect(lines.has(`${tensor} ${at}`), `${JSON.stringify(block)}: ${tensor} ${at}`).toBe(true);
      expect(lines.size, JSON.stringify(block)).toBeLessThan((2 * (26 + 1) * 128) / 32);
      expect(mappedKernel(mapping, schedule).source).toMatch(
        /__builtin_prefetch\(.* sizeof \*e \* \(\(b_outer \+ 1\) \* 3328/,
      );
    }
  });

  it("is counted beside the products where its lines are fetched ahead, and before them elsewhere", () => {
    const plain: Schedule = {
      order: ["b", "i", "j", "k"],
      block: { i: 13 },
      placement: { a: "in-place", b: "tiled" },
      threads: 1,
    };
    const cyclesOf = (schedule: Schedule, computation = interaction(4096)) => {
      const terms =
        createTerms(ofSecond(computation), modelTarget(REFERENCE_CPU), { cache: "flushed" })(schedule)?.terms ?? [];
      const of = (name: string): number => terms.find((t) => t.name === name)?.seconds ?? Number.NaN;
      return [of("ahead"), of("pack memory")] as const;
    };
    const once = cyclesOf(plain);
    expect(once[0]).toBe(0);
    expect(once[1]).toBeGreaterThan(0);
    const within = cyclesOf({ ...plain, within: { b: "b" } });
    expect(within[0]).toBeGreaterThan(0);
    expect(within[1]).toBe(0);
    // A loop of two steps fetches the lines of short vectors.
    const few = cyclesOf(
      { ...plain, block: { i: 13, k: 4 }, within: { b: "b" } },
      operation("interaction b=4096 k=16", "bf16"),
    );
    expect(few[0]).toBeGreaterThan(0);
    expect(few[1]).toBe(0);
    // A sum without a loop has no steps to fetch lines in.
    const short = cyclesOf({ ...plain, block: { i: 13, k: 64 }, within: { b: "b" } });
    expect(short[0]).toBe(0);
    expect(short[1]).toBeGreaterThan(0);
  });

  it("is refused with the reason where it would change nothing", () => {
    const [one] = drawn(["conv2d c=8 k=40 h=7 w=9 r=3 s=3 NHWC", "avx512.vpdpbusd"], seededRandom(3), 1);
    if (!one) throw new Error("nothing drawn");
    const { mapping, schedule } = one;
    const [{ operand = "a" } = {}] = copiesIn(mapping, schedule);
    const within = (loop: string): Schedule => ({ ...schedule, within: { [operand]: loop } });
    expect(scheduleProblem(mapping, within("x"))).toBe("there is no loop x");
    expect(scheduleProblem(mapping, within("n"))).toBe(`what ${operand} reads does not change with the loop over n`);
    const inPlace = { ...within("p"), placement: { ...schedule.placement, [operand]: "in-place" as const } };
    expect(scheduleProblem(mapping, inPlace)).toMatch(/^a (in-place: .*|is not copied once a call)$/);
  });
});

describe("a copy made once a call", () => {
  it("writes only the inside of the windows at a border", () => {
    const computation = stated(
      "conv2d --c 3 --k 16 --h 8 --w 32 --r 7 --s 7 --stride 2 --pad 3 --dtype bf16 --layout NHWC",
    );
    const windowsOf = (m: Mapping): string | undefined =>
      placementsOf(m).find(
        (c) => c.open.includes("windowed") && accessesIn(bindingOf(m, c.operand))[0]?.tensor === "in",
      )?.operand;
    const mapping = mappingsOnto(computation, DOT).find(
      (m) => windowsOf(m) && m.matching.k?.includes("s") && !m.matching.k.includes("r"),
    );
    if (!mapping) throw new Error("no windows of the image");
    const placement = Object.fromEntries(
      placementsOf(mapping).map((c) => [c.operand, c.operand === windowsOf(mapping) ? "windowed" : "tiled"] as const),
    );
    const order = randomSchedule(mapping, seededRandom(1)).order.filter((l) => !l.includes("/"));
    const schedule: Schedule = { order, block: {}, placement, threads: 1 };
    expect(scheduleProblem(mapping, schedule)).toBeUndefined();
    const copies = printNest(lowerSchedule(mapping, schedule))
      .split("\n")
      .filter((line) => line.includes("in_windowed["));
    // q 2..14, then q 0, 1 and 15 by themselves.
    expect(copies.filter((l) => l.includes("= in["))).toHaveLength(4);
  });
});

/** First elements of the lines that loops fetch ahead, at given steps of the loops around. */
function linesAhead(statements: readonly Statement[], point: Readonly<Record<string, number>>): Set<string> {
  const found = new Set<string>();
  for (const s of statements) {
    if (s.kind === "when") for (const body of [s.body, s.otherwise]) add(linesAhead(body, point));
    if (s.kind !== "loop" || s.mode === "unrolled") continue;
    const steps = point[s.axis];
    for (let i = steps ?? 0; i < (steps === undefined ? s.extent : steps + 1); i++) {
      const at = { ...point, [s.axis]: i };
      for (const { buffer, base } of s.ahead ?? []) found.add(`${buffer} ${evaluateIndex(base, at)}`);
      add(linesAhead(s.body, at));
    }
  }
  return found;

  function add(lines: Set<string>): void {
    for (const line of lines) found.add(line);
  }
}

function bindingOf(mapping: Mapping, operand: string): Expr {
  const bound = mapping.binding[operand];
  if (!bound) throw new Error(`${operand} stands for nothing`);
  return bound;
}
