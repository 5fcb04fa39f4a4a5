/** Weights of a narrower type than the instruction's stay narrow in packed tiles, and are widened where they are loaded. */

import { describe, expect, it } from "vitest";
import type { Schedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { generateCpp } from "../../codegen/cpp/cpp.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { smallInputs } from "../support/drawn/drawn.ts";
import {
  GROUPED_CASES,
  groupedNest,
  madeMapping,
  SCALED_CASES,
  SCALED_DOTS,
  scaledNest,
} from "../support/grouped-weights.ts";

function product(dtype: DType, equation = "y[m,n] += x[m,k] * f32(w[k,n])"): Computation {
  return defineComputation({
    name: "product",
    equation,
    extents: { m: 3, n: 40, k: 7 },
    tensors: { x: { dtype: "f32" }, w: { dtype, constant: true }, y: { dtype: "f32" } },
  });
}

function mappingOf(computation: Computation, name: string, operand: string): Mapping {
  const [intrinsic] = intrinsicsNamed(name);
  if (!intrinsic) throw new Error(`no ${name}`);
  const found = mappings(computation, intrinsic, { reasons: false }).valid.find(
    ({ binding }) => binding[operand]?.kind === "cast",
  );
  if (!found) throw new Error(`${name} does not take the weights as ${operand}`);
  return found;
}

const SCHEDULE: Schedule = {
  order: ["m", "n", "k"],
  block: { n: 2 },
  placement: { a: "tiled", b: "tiled" },
  threads: 1,
};

/** The type of each buffer of tiles, and the loads of the weights in the code. */
function packed(mapping: Mapping): { readonly types: Readonly<Record<string, string>>; readonly loads: string[] } {
  const nest = lowerSchedule(mapping, SCHEDULE);
  const { source } = generateCpp(mapping.computation, mapping.intrinsic, nest, { lines: [] });
  return {
    types: Object.fromEntries(nest.scratch.map(({ name, dtype }) => [name, dtype])),
    loads: String(source)
      .split("\n")
      .filter((line) => /^\s*b0 = /.test(line))
      .map((line) => line.trim()),
  };
}

describe("weights of s8 in a product of f32", () => {
  it.each(["avx512.fma.f32.broadcast", "avx2.fma.f32.broadcast"])("are packed as bytes for %s", (name) => {
    const { types, loads } = packed(mappingOf(product("s8"), name, "b"));
    expect(types).toMatchObject({ a_tiles: "f32", b_tiles: "s8" });
    expect(loads[0]).toMatch(/_cvtepi8_epi32\(/);
    expect(packed(mappingOf(product("u8"), name, "b")).loads[0]).toMatch(/_cvtepu8_epi32\(/);
  });

  it("are packed as f32 where a load copies one to all lanes", () => {
    const turned = product("s8", "y[m,n] += f32(w[m,k]) * x[k,n]");
    expect(packed(mappingOf(turned, "avx512.fma.f32.broadcast", "a")).types).toMatchObject({ a_tiles: "f32" });
  });

  it("are packed as f32 where no load converts them", () => {
    expect(packed(mappingOf(product("s16"), "avx512.fma.f32.broadcast", "b")).types).toMatchObject({ b_tiles: "f32" });
  });

  it.each(["s8", "u8"] as const)("give what the equation gives in %s", (dtype) => {
    const computation = product(dtype);
    const nest = lowerSchedule(mappingOf(computation, "avx512.fma.f32.broadcast", "b"), SCHEDULE);
    const inputs = smallInputs(computation, 3);
    expect([...interpretNest(nest, computation, inputs)]).toEqual([...interpret(computation, inputs)]);
  });
});

/** Loops inside which weights are made: blocks of columns, and tiles of groups in tiles of columns. */
const MADE_WITHIN = [
  [["n", "m", "g", "j"], "n"],
  [["n/1", "g/2", "m", "n", "g", "j"], "g/2"],
] as const;

describe("weights of groups, each with a scale", () => {
  it.each(GROUPED_CASES)("$what on $row", ({ tiles, bytes, ...one }) => {
    const { computation, nest, inputs } = groupedNest(one);
    const buffer = nest.scratch.find(({ name }) => name === "b_tiles");
    expect(buffer).toMatchObject({ dtype: tiles });
    expect(buffer?.elements).toBeLessThanOrEqual(bytes * 64 * 96);
    const wanted = [...interpret(computation, inputs)];
    for (const [i, value] of interpretNest(nest, computation, inputs).entries())
      expect(value).toBeCloseTo(wanted[i] ?? 0, 1);
  });

  it("are looked up in a table of what a scale makes of sixteen numbers", () => {
    const [halves] = GROUPED_CASES.filter(({ what, row }) => what === "half bytes" && row === "avx512.fma.f32.inner");
    if (!halves) throw new Error("no such case");
    const { mapping, nest } = groupedNest(halves);
    const { source } = generateCpp(mapping.computation, mapping.intrinsic, nest, { lines: [] });
    expect(String(source)).toMatch(/b0 = _mm512_permutexvar_ps\(.*, _mm512_mul_ps\(_mm512_sub_ps\(_mm512_setr_ps\(/);
  });

  it("are packed as f32 where what a load would make of padding is not 0", () => {
    const row = "avx512.fma.f32.inner";
    const { nest } = groupedNest({ weight: "((f32(w[n,g,j]) - 128) * s[n,g])", stored: "u8", row, group: 24 });
    expect(nest.scratch.find(({ name }) => name === "b_tiles")).toMatchObject({ dtype: "f32" });
  });

  it.each(GROUPED_CASES.filter(({ what }) => what.startsWith("half bytes")))(
    "of $what on $row are made once for all rows of a step",
    (one) => {
      for (const [order, loop] of MADE_WITHIN) {
        const { mapping, computation, nest, inputs } = groupedNest(one, { order, within: { b: loop } });
        expect(nest.scratch.find(({ name }) => name === "b_made")).toMatchObject({ dtype: "f32", scope: "local" });
        const { source } = generateCpp(computation, mapping.intrinsic, nest, { lines: [] });
        const loads = String(source)
          .split("\n")
          .filter((line) => /^\s*b0 = /.test(line));
        expect(loads.some((line) => line.includes("b_made"))).toBe(true);
        const wanted = [...interpret(computation, inputs)];
        for (const [i, value] of interpretNest(nest, computation, inputs).entries())
          expect(value).toBeCloseTo(wanted[i] ?? 0, 1);
      }
    },
  );

  it("are not made within a loop that does not move them, nor where they stay as they are packed", () => {
    const [halves] = GROUPED_CASES.filter(
      ({ what, row }) => what === "half bytes" && row === "avx512.fma.f32.broadcast",
    );
    if (!halves) throw new Error("no such case");
    const { mapping } = groupedNest(halves);
    const schedule = { ...SCHEDULE, order: ["m", "n", "g", "j"] };
    const within = (loop: string): string | undefined => scheduleProblem(mapping, { ...schedule, within: { b: loop } });
    expect(within("n")).toBeUndefined();
    expect(within("m")).toBe("what b reads does not change with the loop over m");
    expect(within("g")).toBe("the loop over g is summed over: a copy is made outside of it");
    const bytes = mappingOf(product("s8"), "avx512.fma.f32.broadcast", "b");
    expect(scheduleProblem(bytes, { ...SCHEDULE, within: { b: "n" } })).toBe("b is constant, packed ahead of time");
  });

  it("may be counted by bytes and the halves of each, both of which feed the lanes", () => {
    const computation = instantiate(operatorNamed("matmul-4bit"), { parameters: { m: 2, n: 3, k: 64, group: 32 } });
    const [inner] = intrinsicsNamed("avx512.fma.f32.inner");
    const mapping =
      inner &&
      mappings(computation, inner, { reasons: false }).valid.find(
        ({ matching, binding }) => matching["k"]?.join() === "b,h" && binding["b"]?.kind === "binary",
      );
    if (!mapping) throw new Error("the halves of bytes feed no lanes");
    const nest = lowerSchedule(mapping, { ...SCHEDULE, order: ["m", "n", "g", "b_h"] });
    expect(nest.scratch.find(({ name }) => name === "b_tiles")).toMatchObject({ dtype: "u8", elements: 2 * 64 });
    const w = Float64Array.from({ length: 96 }, (_, i) => (i * 37) % 256);
    const inputs = { ...smallInputs(computation, 3), w };
    expect([...interpretNest(nest, computation, inputs)]).toEqual([...interpret(computation, inputs)]);
  });

  it("may have the index of a group divided out of the index of an element", () => {
    const computation = defineComputation({
      name: "divided",
      equation: "y[m,n] += x[m,k] * (f32(w[n,k]) * s[n,k/32])",
      extents: { m: 1, n: 4, k: 64 },
      tensors: {
        x: { dtype: "f32" },
        w: { dtype: "s8", constant: true },
        s: { dtype: "f32", constant: true },
        y: { dtype: "f32" },
      },
    });
    const mapping = madeMapping(computation, "avx512.fma.f32.inner");
    const nest = lowerSchedule(mapping, SCHEDULE);
    expect(nest.scratch.find(({ name }) => name === "b_tiles")).toMatchObject({ dtype: "s8" });
    const inputs = smallInputs(computation, 3);
    expect([...interpretNest(nest, computation, inputs)]).toEqual([...interpret(computation, inputs)]);
  });
});

describe("sums of integers by group, scaled and added to sums of floats", () => {
  it("are one issue for 32 numbers of a group, and none crosses groups", () => {
    const computation = instantiate(operatorNamed("matmul-4bit-s8"), {
      parameters: { m: 3, n: 40, k: 128, group: 64 },
    });
    const { valid } = mappings(computation, SCALED_DOTS, { reasons: false });
    expect(valid[0] && printMatching(valid[0].matching)).toBe("n <- n   k <- b,h");
    expect(valid.every(({ matching }) => !matching["k"]?.includes("g"))).toBe(true);
  });

  it.each(SCALED_CASES)("of half bytes $what in groups of $group, $read, are made once for all rows", (one) => {
    const order = ["n", "g/1", "m", "b_h", "g"];
    const { computation, nest, inputs } = scaledNest(one, { order, block: { n: 2 }, within: { b: "g/1" } });
    expect(nest.scratch.find(({ name }) => name === "b_made")?.elements).toBe(2 * 16 * one.group);
    expect([...interpretNest(nest, computation, inputs)]).toEqual([...interpret(computation, inputs)]);
  });

  it.each(SCALED_CASES)("of half bytes $what in groups of $group, $read, are what the equation gives", (one) => {
    const { computation, nest, inputs } = scaledNest(one);
    expect([...interpretNest(nest, computation, inputs)]).toEqual([...interpret(computation, inputs)]);
    const tiles = new Map(nest.scratch.map(({ name, elements }) => [name, elements]));
    // Columns are padded to four vectors of 16, in two blocks.
    expect(tiles.get("b_tiles")).toBe((64 * 2 * one.group) / 2);
    expect(tiles.get("b_part0")).toBe(one.zero === "8" ? undefined : 64 * 2);
    const { source } = generateCpp(computation, SCALED_DOTS, nest, { lines: [] });
    expect(String(source)).toMatch(/b0 = \(load_halves\(.*c0 = add_scaled_dots\(c0, a0, b0, s0, t0\);/s);
  });
});
