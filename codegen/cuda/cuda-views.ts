/**
 * @file Descriptors, in CUDA, of tiles in shared memory for instructions that read them directly (wgmma).
 *
 *     matrix_at<128, false>(&a_ring[8192 * (step % 4)], 0, 1024)      rows of 128 bytes; groups of eight rows are 1,024 bytes apart
 *     matrix_at<128, false>(&b_window[1856 * r + 64 * s], 0, 1024)    the same, beginning at any row
 */

import { type Extents, evaluateIndex } from "../../abstraction/affine.ts";
import { memoisedBy } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { compileIndex, Scope } from "../../abstraction/evaluate.ts";
import {
  type Access,
  axesIn,
  type Expr,
  number,
  plus,
  printExpr,
  rewrite,
  substitute,
} from "../../abstraction/expression.ts";
import type { Intrinsic, Operand } from "../../abstraction/intrinsic.ts";
import { dimsOf, type LoopNest, storageOf, type TileAccess } from "../../abstraction/loop-nest.ts";
import { type MatrixView, operandView, printView } from "../../abstraction/matrix-view.ts";
import { type Code, code } from "../../abstraction/source-text.ts";
import { shortIndex } from "../short-index.ts";
import type { CudaExpressions } from "./cuda-expressions.ts";

/** The descriptor of a tile in shared memory. @throws Error if the layout cannot be described */
export function matrixOf(
  c: CudaExpressions,
  nest: LoopNest,
  intrinsic: Intrinsic,
  operand: Operand,
  tile: TileAccess,
  extents: Extents,
): Code {
  const { tensor } = tile.access;
  const scratch =
    nest.scratch.find((s) => s.name === tensor) ??
    internal(`${intrinsic.name} reads ${tensor}, which is not shared memory`);
  const names = dimsOf(scratch).map((d) => d.name);
  const digits = operand.dims.map((d, i) => ({
    extent: d.extent,
    below: operand.dims.slice(i + 1).reduce((product, { extent }) => product * extent, 1),
  }));
  // Loops move only the start, by multiples of the swizzle pattern, so distances are those of their first step.
  const still = Object.fromEntries(tile.access.index.flatMap(axesIn).map((name) => [name, 0]));
  const view = knownView(intrinsic, operand, storageOf(scratch), tile, () => {
    const scope = new Scope(new Map(), 0);
    const inTile = tile.axes.map((name, i) => ({ slot: scope.slot(name), ...(digits[i] ?? { extent: 1, below: 1 }) }));
    const index = new Map(names.map((name, i) => [name, tile.access.index[i] ?? number(0)]));
    const place = compileIndex(substitute(storageOf(scratch), index, "index"), scope);
    const point = scope.environment();
    return (element) => {
      for (const { slot, extent, below } of inTile) point[slot] = Math.floor(element / below) % extent;
      return place(point);
    };
  });
  const none = tile.axes.map(() => 0);
  const first = atPlace(tile, none.map(number), none);
  // The instruction applies the swizzle to absolute addresses. So the start is given without the swizzle, wherever in
  // the pattern it is.
  const unmoved = rewrite(storageOf(scratch), (e) => (e.kind === "binary" && e.op === "^" ? e.left : e), "index");
  const place = new Map(names.map((name, i) => [name, first.index[i] ?? number(0)]));
  const start = shortIndex(substitute(unmoved, place, "index"), extents);
  if (!view || evaluateIndex(start, still) * bytesOf(operand.dtype) !== view.start)
    internal(`${operand.name} lies at ${printExpr(start, "formula")}, as ${intrinsic.name} does not read it`);
  return printView(view, code`&${c.tensor(tensor)}[${c.index(c.hoist(start, `${tensor}_at`), extents)}]`);
}

/** Views of an instruction's tiles, by their layout. */
const known = memoisedBy<Intrinsic, MatrixView | undefined>();

/**
 * Cached, since every element of a tile is compared with the view, and the kernels of a search read the same few tiles.
 */
function knownView(
  intrinsic: Intrinsic,
  operand: Operand,
  storage: Expr,
  { axes, access }: TileAccess,
  places: () => (element: number) => number,
): MatrixView | undefined {
  const key = JSON.stringify([operand.name, axes, access.index, storage]);
  return known(intrinsic, key, () => operandView(intrinsic, operand, places()));
}

/** The element at a position in a tile. */
export function atPlace(
  { axes, access }: Pick<TileAccess, "axes" | "access">,
  place: readonly Expr[],
  from: readonly number[],
): Access {
  return { ...access, index: access.index.map((e) => placed(e, axes, place, from)) };
}

/** An index at a position in a tile. */
export function placed(e: Expr, axes: readonly string[], place: readonly Expr[], from: readonly number[]): Expr {
  const known = new Map(axes.map((a, d) => [a, plus(place[d] ?? number(0), from[d] ?? 0)]));
  return substitute(e, known, "index");
}
