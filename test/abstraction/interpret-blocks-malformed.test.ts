/** @file The interpreter's messages for GPU statements that no hardware could run. */

import { describe, expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { type Computation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import { access, axis, number } from "../../abstraction/expression.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { type LoopNest, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { stated } from "../support/subjects.ts";
import { barrier, commit, copy, lanes, onWarps, shared } from "../support/warp-nest.ts";

/** The first line of what is wrong. */
function first(nest: LoopNest, computation: Computation): string {
  const inputs = Object.fromEntries(inputsOf(computation).map((t) => [t.name, new Float64Array(elementCount(t))]));
  try {
    interpretNest(nest, computation, inputs);
  } catch (error) {
    if (error instanceof NestFault) return error.message.split("\n")[0] ?? "";
    throw error;
  }
  return "nothing wrong";
}

describe("a statement that no hardware could run", () => {
  const [mma] = intrinsicsNamed("mma.m16n8k16.f32.f16");
  const [wmma] = intrinsicsNamed("wmma.m16n16k16.f32.f16");
  if (!mma || !wmma) throw new Error("no such rows");
  const matrix = stated("y[i,j] = x[j,i] --i 32 --j 64 --dtype f16 --shape x=64x64");
  const register = { file: "a", index: number(0) };
  const fileOf = (intrinsic = mma, operand = "a") => ({
    registers: [{ name: "a", intrinsic, operand, count: 1 }],
  });
  const of = (nest: LoopNest, computation = matrix): string => first(nest, computation);
  const tile = shared("s", "f16", { i: 32, j: 64 });

  it("is a copy in pieces whose elements lie apart, partly outside, or off a multiple of their size", () => {
    const copied = (
      equation: string,
      width: number,
      scratch = tile,
      options: Parameters<typeof copy>[2] = {},
    ): string => of(onWarps(1, [copy(equation, { i: 32, j: 64 }, { width, ...options })], [scratch]));
    const stored = (formula: string, elements?: number): Scratch =>
      shared("s", "f16", { i: 32, j: 64 }, formula, elements);
    expect([
      copied("s[i,j] = x[i,j]", 8),
      copied("s[i,j] = x[i,j]", 8, stored("64*i + 8*((j/8) ^ (i%8)) + j%8")),
      copied("s[i,j] = x[i,j] + x[i,0]", 8),
      copied("s[i,j] = x[i,0]", 8, tile, { transfer: "async" }),
      copied("s[i,j] = x[i,j]", 3),
      copied("s[i,j] = x[j,i]", 8),
      copied("s[i,j] = x[i,j]", 4, stored("64*i + 2*((j/2) ^ (i%8)) + j%2")),
      copied("s[i,j] = x[i,j+1]", 2),
      copied("s[i,j] = x[i,j]", 4, stored("66*i + j", 2112)),
      copied("s[i,j] = x[i,j-1]", 4),
      copied("s[i,j] = select(j < 62, x[i,j], 0)", 4),
      copied("s[i,j] = select(j < 60, x[i,j], 0)", 4),
      copied("s[i,j+1] = x[i,j]", 1),
      copied("s[i,j+1] = x[i,j] where j < 63", 1),
      copied("s[i,j] = x[i,j] where j < 62", 4),
    ]).toMatchInlineSnapshot(`
      [
        "nothing wrong",
        "nothing wrong",
        "nothing wrong",
        "x[j 0, i 0] and x[j 0, i 0] are 1 apart in a piece of 8 and 0 apart in memory",
        "a row of 64 elements cannot be dealt in pieces of 3",
        "x[j 0, i 0] and x[j 1, i 0] are 1 apart in a piece of 8 and 64 apart in memory",
        "s[i 1, j 0] and s[i 1, j 2] are 2 apart in a piece of 4 and -2 apart in memory",
        "x[j 0, i 1] lies at element 1: a piece of 2 begins at a multiple of 2",
        "s[i 1, j 0] lies at element 66: a piece of 4 begins at a multiple of 4",
        "3 of the 4 elements of a piece are inside x: all must be, or none",
        "2 of the 4 elements of a piece are inside x: all must be, or none",
        "nothing wrong",
        "the copy leaves s",
        "nothing wrong",
        "2 of the 4 elements of a piece are copied: all must be, or none",
      ]
    `);
  });

  it("uses a storage formula that leaves its buffer, or puts two elements in one place", () => {
    const stored = (formula: string, elements = 2048): string =>
      of(
        onWarps(
          1,
          [copy("s[i,j] = x[i,j]", { i: 32, j: 64 })],
          [shared("s", "f16", { i: 32, j: 64 }, formula, elements)],
        ),
      );
    expect([
      stored("64*i + 8*((j/8) ^ (i%16)) + j%8"),
      stored("64*i + j - 1"),
      stored("32*i + j"),
      of(onWarps(1, [], [{ name: "s", dtype: "f16", elements: 100, scope: "shared", dims: tile.dims ?? [] }])),
    ]).toMatchInlineSnapshot(`
      [
        "s[i 15, j 56] and s[i 16, j 0] lie in one place, 1024: the storage formula must keep them apart",
        "s[i 0, j 0] lies at place -1 of 2048: the storage formula leaves its buffer",
        "s[i 0, j 32] and s[i 1, j 0] lie in one place, 32: the storage formula must keep them apart",
        "s has 2048 elements and memory for 100: give it as much",
      ]
    `);
  });

  it("is a copy whose threads disagree, or that computes", () => {
    const copied = (
      equation: string,
      options: Parameters<typeof copy>[2] = {},
      scratch: readonly Scratch[] = [tile],
    ): string => of(onWarps(2, [copy(equation, { i: 32, j: 64 }, options)], scratch));
    const async = { transfer: "async", width: 1 } as const;
    const largest = stated("y[j] max= x[j,i] --i 32 --j 64 --dtype f16");
    const partial = loop("v", 1, [copy("s[i,j] = x[i,j]", { i: 32, j: 64 })], "warp");
    const two = onWarps(2, []);
    expect([
      copied("s[i,j] = x[i+w,j]"),
      of({ ...two, scratch: [tile], body: [loop("b", 1, [partial, loop("w", 2, [], "warp")], "block")] }),
      copied("s[i,j] = x[i,j]", { when: "j < 5" }),
      copied("s[i,w] = x[i,j]", { axes: [{ name: "w", extent: 2 }] }),
      copied("s[i,j] += x[i,j]"),
      copied("x[i,j] = s[i,j]"),
      copied("s[i,j] = x[i,j] * x[i,j]", async),
      copied("s[i,j] = t[i,j]", async, [tile, { ...tile, name: "t" }]),
      copied("t[i,j] = x[i,j]", async, [{ ...tile, name: "t", scope: "workspace" }]),
      copied("s[i,j] = x[i,j]", async, [{ ...tile, dtype: "f32" }]),
      of(onWarps(1, [copy("s[i,j] = x[i-1,j]", { i: 32, j: 32 }, async)], [tile]), largest),
    ]).toMatchInlineSnapshot(`
      [
        "a copy dealt to the whole block names w, which differs from warp to warp: deal it to a warp",
        "1 of 2 warps run a copy that is dealt to the whole block",
        "the copy's condition names its axis j: threads would disagree",
        "w is an axis of the copy and of a loop around it: give it another name",
        "a copy assigns with "=", not with "+="",
        "x is an input: nothing may write it",
        "an asynchronous copy cannot compute: its value is an element, or a fill of 0",
        "an asynchronous copy reads global memory, and t is shared",
        "an asynchronous copy fills shared memory, and t is none",
        "an asynchronous copy cannot compute: x and s differ in type",
        "what lies outside x is -Infinity, and an asynchronous copy fills with 0",
      ]
    `);
  });

  it("moves a tile that its instruction cannot move", () => {
    const fetched = (
      by: "elements" | "ldmatrix" | "ldmatrix.trans" | "instruction",
      row: string,
      column: string,
      scratch: Scratch,
      intrinsic = mma,
    ): string => {
      const at = access(scratch.name, [parseExpr(row), parseExpr(column)]);
      const fetch: Statement = { kind: "fetch", register, tile: { axes: ["m", "k"], access: at, by } };
      return of(
        onWarps(1, [copy("s[i,j] = x[i,j]", { i: 32, j: 64 }), barrier("block"), fetch], [scratch], fileOf(intrinsic)),
      );
    };
    const s = (formula: string, elements?: number): Scratch => shared("s", "f16", { i: 32, j: 64 }, formula, elements);
    expect([
      fetched("elements", "m", "k", s("66*i + j", 2112)),
      fetched("ldmatrix", "m", "k", s("72*i + j", 2304)),
      fetched("ldmatrix", "m", "k", s("66*i + j", 2112)),
      fetched("ldmatrix", "m", "k", s("i + 32*j")),
      fetched("ldmatrix.trans", "m", "k", s("i + 32*j")),
      fetched("ldmatrix.trans", "m", "k", s("64*i + j")),
      fetched("ldmatrix", "m", "k+1", s("64*i + j")),
      fetched("ldmatrix", "m+17", "k", s("64*i + j")),
      fetched("ldmatrix", "m", "k", { ...tile, scope: "workspace" }),
      fetched("ldmatrix", "m", "k", { ...tile, dtype: "f32" }),
      fetched("instruction", "m", "k", s("72*i + j", 2304), wmma),
      fetched("elements", "m", "k", s("64*i + j"), wmma),
      fetched("instruction", "m", "k", s("68*i + j", 2176), wmma),
      fetched("instruction", "m", "k+8", s("64*i + j"), wmma),
      fetched("instruction", "m", "k", s("64*i + 8*((j/8) ^ (i%8)) + j%8"), wmma),
    ]).toMatchInlineSnapshot(`
      [
        "nothing wrong",
        "nothing wrong",
        "s[i 1, j 0] lies at byte 132: a row of ldmatrix begins at a multiple of 16",
        "s[i 0, j 0] and s[i 0, j 1] belong to one row of 16 bytes and do not lie 1 apart",
        "nothing wrong",
        "s[i 0, j 0] and s[i 1, j 0] belong to one row of 16 bytes and do not lie 1 apart",
        "s[i 0, j 1] lies at byte 2: a row of ldmatrix begins at a multiple of 16",
        "the tile leaves s",
        "ldmatrix reads shared memory, and s is none",
        "s holds f32, and mma.m16n8k16.f32.f16.a is f16",
        "nothing wrong",
        "which lane holds what of wmma.m16n16k16.f32.f16.a is the vendor's secret: move it by its instruction",
        "rows of s lie 136 bytes apart: the instruction wants a multiple of 16",
        "s[i 0, j 8] lies at byte 16: the tile must begin at a multiple of 32",
        "s[i 0, j 0] and s[i 1, j 8] do not lie in rows 72 apart, as the instruction moves them",
      ]
    `);
  });

  it("reads a register that does not exist, holds nothing, or holds something else", () => {
    const at = (index: number) => ({ file: "a", index: number(index) });
    const issue: Statement = { kind: "register-issue", intrinsic: mma, registers: { c: at(0), a: at(0), b: at(0) } };
    const clears = (operand: string, index: number, ...more: readonly Statement[]): string =>
      of(onWarps(1, [{ kind: "clear", register: at(index) }, ...more], [], fileOf(mma, operand)));
    const drained: Statement = {
      kind: "drain",
      register: at(0),
      axes: ["m", "n"],
      element: "sum",
      equation: { target: access("y", [axis("m"), axis("n")]), op: "=", value: access("sum", []) },
    };
    expect([
      clears("a", 1),
      clears("a", 0, issue),
      of(onWarps(1, [drained], [], fileOf(mma, "c"))),
    ]).toMatchInlineSnapshot(`
      [
        "a{1} does not exist: a has 1 registers",
        "a holds mma.m16n8k16.f32.f16.a, not mma.m16n8k16.f32.f16.c",
        "a{0} is read, and nothing has filled it",
      ]
    `);
  });

  it("is one in the wrong place of the nest", () => {
    const scalar: Statement = { kind: "scalar", equation: copy("y[0,0] = x[0,0]", {}).equation };
    const {
      body: [block],
    } = onWarps(1, [lanes("y[lane,0] = x[0,lane]")]);
    if (!block) throw new Error("no block");
    const local: Scratch = { name: "t", dtype: "f16", elements: 1, scope: "local" };
    expect([
      of(onWarps(1, [scalar])),
      of(onWarps(1, [barrier()])),
      of(onWarps(1, [loop("i", 2, [], "parallel")])),
      of(onWarps(1, [block])),
      of(onWarps(1, [loop("v", 1, [loop("i", 2, [loop("u", 1, [], "warp")])], "warp")])),
      of(onWarps(1, [], [local])),
      of({ ...onWarps(1, []), body: [loop("i", 2, [block]), barrier(), block] }),
      of({ ...onWarps(1, []), body: [barrier("block")] }),
      of({ ...onWarps(1, []), body: [commit] }),
    ]).toMatchInlineSnapshot(`
      [
        "a scalar statement of a warp stands in a loop over its lanes",
        "a barrier of the whole call stands at the top of a nest, outside its blocks",
        "a loop at parallel does not stand inside a block",
        "a loop at block does not stand inside a block",
        "loops at warp stand directly inside one another",
        "t is local, and threads of a GPU have registers: make it shared",
        "loops at block stand at the top of a nest",
        "a barrier of a group stands inside loops at block",
        "a commit stands inside loops at block",
      ]
    `);
  });
});
