/** @file How many mappings there are: the published counts of AMOS, and the same numbers derived here from scratch. */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { defineComputation } from "../../abstraction/computation.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { rowNamed, stated } from "../support/subjects.ts";

const wmma = rowNamed("wmma.m16n16k16.f32.f16");

/** `npq|crs`: the loops that feed the axes, in the order asked for. */
function sets(list: readonly Mapping[], axes: readonly string[]): string[] {
  return list.map(({ matching }) => axes.map((a) => [...(matching[a] ?? [])].sort().join("")).join("|")).sort();
}

describe("the number of mappings onto a matrix product under the rule of AMOS", () => {
  it.each([
    ["gmv", 1],
    ["gmm", 1],
    ["c1d", 6],
    ["c2d", 35],
    ["c3d", 180],
    ["t2d", 7],
    ["grp", 35],
    ["dil", 35],
    ["dep", 11],
    ["cap", 105],
    ["bcv", 11],
    ["gfc", 1],
    ["men", 1],
    ["var", 1],
    ["scn", 1],
  ])("of %s is %i", (alias, count) => {
    const { valid, sampled } = mappings(stated(`${alias} --dtype f16`), wmma, { rule: "amos" });
    expect({ count: valid.length, sampled }).toEqual({ count, sampled: false });
    expect(new Set(valid.map((m) => m.id)).size).toBe(count);
  });

  it("is 35 for conv2d, and they are these", () => {
    const pairs = {
      n: "c r s cr cs rs crs",
      p: "c s cs",
      q: "c r cr",
      np: "c s cr cs rs crs",
      nq: "c r cr cs rs crs",
      pq: "c cr cs rs crs",
      npq: "c cr cs rs crs",
    };
    const expected = Object.entries(pairs).flatMap(([i, r]) => r.split(" ").map((set) => `${i}|k|${set}`));
    const { valid } = mappings(stated("c2d --dtype f16"), wmma, { rule: "amos" });
    const [m = "", n = "", k = ""] = wmma.computation.axes.map((a) => a.name);
    expect(sets(valid, [m, n, k])).toEqual(expected.sort());
  });

  it("does not depend on stride and dilation, which AMOS's rule ignores", () => {
    const computation = stated("c2d --h 17 --w 19 --stride 3 --dilation 2 --pad 2 --dtype f16");
    expect(mappings(computation, wmma, { rule: "amos" }).valid).toHaveLength(35);
  });

  it.each([
    [0, 18],
    [1, 20],
    [2, 20],
    [3, 20],
    [4, 20],
    [5, 20],
    [6, 20],
    [7, 20],
    [8, 20],
    [9, 8],
    [10, 8],
    [11, 8],
  ])("of layer C%i of ResNet-18 is %i where the extents fill m8n32k16", (layer, count) => {
    const suite = JSON.parse(readFileSync(new URL("../../bench/suites/amos-operators.json", import.meta.url), "utf8"));
    const { params } = suite.configs.find((c: { id: string }) => c.id === `c2d-${layer}`);
    const { valid } = mappings(
      instantiate(operatorNamed("c2d"), { parameters: params, types: parseDataTypes("f16") }),
      rowNamed("wmma.m8n32k16.f32.f16"),
      { rule: "amos", strict: true },
    );
    expect(valid).toHaveLength(count);
  });
});

/**
 * A tensor operator seen from a matrix product, by its numbers of loops: the kept loops of the first operand, the summed loops, and
 * as many windows, each joining the i-th kept to the i-th summed loop.
 */
function windowed(kept: number, summed: number, windows: number): Computation {
  const names = (letter: string, count: number): string[] => Array.from({ length: count }, (_, i) => `${letter}${i}`);
  const [p, r] = [names("p", kept), names("r", summed)];
  const joined = p.slice(0, windows).map((name, i) => `${name}+${r[i]}`);
  const a = [...joined, ...p.slice(windows), ...r.slice(windows)].join(",");
  return defineComputation({
    equation: `out[${[...p, "k"].join(",")}] += f32(a[${a}]) * f32(b[k,${r.join(",")}])`,
    extents: Object.fromEntries([...p, ...r, "k"].map((name) => [name, 2])),
    tensors: { a: "f16", b: "f16" },
  });
}

describe("the number of mappings as a function of kept loops, summed loops and windows", () => {
  it.each([
    [2, 2, 1, 6],
    [3, 3, 2, 35],
    [4, 4, 3, 180],
    [2, 3, 2, 11],
    [3, 2, 2, 11],
    [3, 1, 0, 7],
    [4, 4, 2, 195],
    [5, 5, 4, 837],
  ])("is what the closed form gives: (%i, %i, %i) -> %i", (kept, summed, windows, count) => {
    const computation = windowed(kept, summed, windows);
    const { valid } = mappings(computation, wmma, { rule: "amos" });
    expect(valid).toHaveLength(count);
    expect(bipartiteCount(kept, summed, windows)).toBe(count);
    expect(mappings(computation, wmma, { binding: "fixed" }).valid).toHaveLength((2 ** kept - 1) * (2 ** summed - 1));
  });
});

/** Pairs of non-empty sets without an isolated vertex in the complete bipartite graph less its windows. */
function bipartiteCount(kept: number, summed: number, windows: number): number {
  const members = (set: number, size: number): number[] =>
    Array.from({ length: size }, (_, i) => i).filter((i) => (set >> i) & 1);
  const edge = (i: number, j: number): boolean => i !== j || i >= windows;
  let count = 0;
  for (let left = 1; left < 1 << kept; left++) {
    for (let right = 1; right < 1 << summed; right++) {
      const is = members(left, kept);
      const js = members(right, summed);
      if (is.every((i) => js.some((j) => edge(i, j))) && js.every((j) => is.some((i) => edge(i, j)))) count++;
    }
  }
  return count;
}

/**
 * The rule of AMOS from its description, sharing nothing with the mapper: a match point gives each axis of the instruction one loop,
 * sets the other loops to 0, and asks that each dimension of an operand be one of the axes, each once, or a constant.
 * An index is the set of loops it adds up.
 */
interface Operand {
  readonly dimensions: readonly (readonly string[])[];
  readonly axes: readonly string[];
}

function matchPoints(
  operands: readonly Operand[],
  axes: Readonly<Record<string, "kept" | "summed">>,
  loops: Readonly<Record<"kept" | "summed", readonly string[]>>,
): Record<string, string>[] {
  let points: Record<string, string>[] = [{}];
  for (const [axis, kind] of Object.entries(axes)) {
    points = points.flatMap((point) =>
      loops[kind].filter((l) => !Object.values(point).includes(l)).map((l) => ({ ...point, [axis]: l })),
    );
  }
  return points.filter((point) =>
    operands.every((operand) => {
      const left = operand.dimensions.map((d) =>
        Object.keys(point)
          .filter((axis) => d.includes(point[axis] ?? ""))
          .join("+"),
      );
      return (
        left
          .filter((d) => d !== "")
          .sort()
          .join() === [...operand.axes].sort().join()
      );
    }),
  );
}

/** Every union of match points, by closing the set of single points under union: `npq|k|crs`. */
function unions(points: readonly Record<string, string>[], axes: readonly string[]): string[] {
  const text = (parts: readonly ReadonlySet<string>[]): string => parts.map((s) => [...s].sort().join("")).join("|");
  const single = points.map((point) => axes.map((axis) => new Set([point[axis] ?? ""])));
  const found = new Map(single.map((parts) => [text(parts), parts]));
  for (let before = 0; before !== found.size; ) {
    before = found.size;
    for (const a of [...found.values()]) {
      for (const b of single) {
        const union = a.map((set, i) => new Set([...set, ...(b[i] ?? [])]));
        if (!found.has(text(union))) found.set(text(union), union);
      }
    }
  }
  return [...found.keys()].sort();
}

describe("the counts, derived from match points without the mapper", () => {
  it("are 7 points and 35 unions for conv2d on a matrix product", () => {
    const points = matchPoints(
      [
        { dimensions: [["n"], ["c"], ["p", "r"], ["q", "s"]], axes: ["m", "k"] },
        { dimensions: [["k"], ["c"], ["r"], ["s"]], axes: ["k", "n"] },
      ],
      { m: "kept", n: "kept", k: "summed" },
      { kept: ["n", "k", "p", "q"], summed: ["c", "r", "s"] },
    );
    expect(points).toHaveLength(7);
    const derived = unions(points, ["m", "n", "k"]);
    expect(derived).toHaveLength(35);
    const [m = "", n = "", k = ""] = wmma.computation.axes.map((a) => a.name);
    expect(sets(mappings(stated("c2d --dtype f16"), wmma, { rule: "amos" }).valid, [m, n, k])).toEqual(derived);
  });

  it("are 30 points and 366 disjoint unions of 1689 for conv3d on a 1x1 convolution unit", () => {
    const points = matchPoints(
      [
        { dimensions: [["n"], ["c"], ["o", "t"], ["p", "r"], ["q", "s"]], axes: ["c", "p", "q"] },
        { dimensions: [["k"], ["c"], ["t"], ["r"], ["s"]], axes: ["k", "c"] },
      ],
      { k: "kept", p: "kept", q: "kept", c: "summed" },
      { kept: ["n", "k", "o", "p", "q"], summed: ["c", "t", "r", "s"] },
    );
    expect(points).toHaveLength(30);
    const all = unions(points, ["k", "p", "q", "c"]);
    expect(all).toHaveLength(1689);
    const disjoint = all.filter((text) => {
      const [, p = "", q = ""] = text.split("|");
      return ![...p].some((loop) => q.includes(loop));
    });
    expect(disjoint).toHaveLength(366);
    const { valid } = mappings(stated("c3d"), rowNamed("virtual.conv"), { rule: "amos" });
    expect(sets(valid, ["k", "p", "q", "c"])).toEqual(disjoint);
  });
});

describe("the accelerators on paper", () => {
  it("give conv3d 15 mappings onto axpy, image first", () => {
    const { valid } = mappings(stated("c3d"), rowNamed("virtual.axpy"), { rule: "amos" });
    expect(valid).toHaveLength(15);
  });

  it("give conv2d 32 mappings onto a 1x1 convolution with disjoint sets", () => {
    const { valid } = mappings(stated("c2d"), rowNamed("virtual.conv"), { rule: "amos" });
    expect(valid).toHaveLength(32);
  });
});

describe("mappings under the gather rule", () => {
  it("number 49 for conv2d with operands in order, and contain the 35 of AMOS", () => {
    const gather = mappings(stated("c2d --dtype f16"), wmma, { binding: "fixed" });
    const amos = mappings(stated("c2d --dtype f16"), wmma, { rule: "amos" });
    expect(gather.valid).toHaveLength(49);
    expect(gather.total).toBe(49);
    const ids = new Set(gather.valid.map((m) => m.id));
    expect(amos.valid.filter((m) => !ids.has(m.id))).toEqual([]);
  });

  it("of conv2d are all pairs of non-empty subsets of {n,p,q} and {c,r,s}", () => {
    const subsets = (letters: string): string[] =>
      [...letters].reduce<string[]>((all, letter) => all.concat(all.map((set) => set + letter)), [""]).slice(1);
    const expected = subsets("npq").flatMap((i) => subsets("crs").map((r) => `${i}|k|${r}`));
    const [m = "", n = "", k = ""] = wmma.computation.axes.map((a) => a.name);
    expect(sets(mappings(stated("c2d --dtype f16"), wmma, { binding: "fixed" }).valid, [m, n, k])).toEqual(
      expected.sort(),
    );
  });

  it("number 98 for conv2d with either operand first", () => {
    expect(mappings(stated("c2d --dtype f16"), wmma, { reasons: false }).valid).toHaveLength(98);
  });

  it("contain the mappings under the rule of AMOS for each of eleven operators", () => {
    for (const alias of ["gmv", "c1d", "c3d", "t2d", "dep", "cap", "bcv", "gfc", "men", "var", "scn"]) {
      const ids = new Set(mappings(stated(`${alias} --dtype f16`), wmma, { reasons: false }).valid.map((m) => m.id));
      const amos = mappings(stated(`${alias} --dtype f16`), wmma, { rule: "amos" }).valid;
      expect(amos.filter((m) => !ids.has(m.id)).length, alias).toBe(0);
    }
  });
});
