/**
 * @file Nests for warps in a few lines, and every nest that lacks one barrier, wait or commit of another.
 *
 *     const nest = onWarps(2, [copy("s[i] = x[i]", { i: 64 }), barrier("block"), lanes("y[32*w+lane] = s[63-32*w-lane]")], [
 *       shared("s", "f32", { i: 64 }),
 *     ]);
 *     withoutEach(nest)       [{ left: "barrier block", nest: ... }]
 */

import type { DType } from "../../abstraction/dtype.ts";
import {
  type Copy,
  type Group,
  type LoopNest,
  loop,
  printHead,
  type Scratch,
  type Statement,
} from "../../abstraction/loop-nest.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";

type Extents = Readonly<Record<string, number>>;

const dimsOf = (extents: Extents) => Object.entries(extents).map(([name, extent]) => ({ name, extent }));

/** Shared memory, row-major or by a formula over its dimensions. */
export function shared(name: string, dtype: DType, dims: Extents, formula?: string, elements?: number): Scratch {
  const size = Object.values(dims).reduce((product, extent) => product * extent, 1);
  const storage = formula === undefined ? {} : { storage: parseExpr(formula) };
  return { name, dtype, elements: elements ?? size, scope: "shared", dims: dimsOf(dims), ...storage };
}

export function copy(
  equation: string,
  axes: Extents,
  options: Partial<Omit<Copy, "kind" | "when">> & { when?: string } = {},
): Copy {
  const { when, ...rest } = options;
  return {
    kind: "copy",
    axes: dimsOf(axes),
    equation: parseEquation(equation),
    width: 1,
    transfer: "plain",
    group: "block",
    ...rest,
    ...(when === undefined ? {} : { when: parseExpr(when) }),
  };
}

export const lanes = (...equations: readonly string[]): Statement =>
  loop(
    "lane",
    32,
    equations.map((text): Statement => ({ kind: "scalar", equation: parseEquation(text) })),
    "lanes",
  );

export const barrier = (group?: Group): Statement => ({ kind: "barrier", ...(group && { group }) });
export const commit: Statement = { kind: "commit" };
export const wait = (pending: number): Statement => ({ kind: "wait", pending });

/** A nest of blocks `b` of warps `w`. */
export function onWarps(
  warps: number,
  body: readonly Statement[],
  scratch: readonly Scratch[] = [],
  { blocks = 1, registers = [] }: { blocks?: number; registers?: LoopNest["registers"] } = {},
): LoopNest {
  return { scratch, registers, prepare: [], body: [loop("b", blocks, [loop("w", warps, body, "warp")], "block")] };
}

/** Every nest that has one barrier, wait or commit less. */
export function withoutEach(nest: LoopNest): { left: string; nest: LoopNest }[] {
  return shorter(nest.body).map(({ left, statements }) => ({ left, nest: { ...nest, body: statements } }));
}

function shorter(statements: readonly Statement[]): { left: string; statements: Statement[] }[] {
  return statements.flatMap((s, at) => {
    const around = (...inside: readonly Statement[]): Statement[] => [
      ...statements.slice(0, at),
      ...inside,
      ...statements.slice(at + 1),
    ];
    if (s.kind === "barrier" || s.kind === "wait" || s.kind === "commit")
      return [{ left: printHead(s), statements: around() }];
    if (s.kind !== "loop") return [];
    return shorter(s.body).map(({ left, statements: body }) => ({ left, statements: around({ ...s, body }) }));
  });
}
