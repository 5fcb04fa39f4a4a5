/**
 * @file Tiles of shared memory as instructions that read them by themselves are told of them, in CUDA.
 *
 *     matrix_at<128, false>(&a_ring[8192 * (step % 4)], 0, 1024)      rows of 128 bytes, eight of them 1,024 bytes apart
 *     matrix_at<128, false>(&b_window[1856 * r + 64 * s], 0, 1024)    the same from any row on
 */

import { type Extents, evaluateIndex } from "../abstraction/affine.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { compileIndex, Scope } from "../abstraction/evaluate.ts";
import {
  type Access,
  axesIn,
  binary,
  type Expr,
  number,
  printExpr,
  rewrite,
  substitute,
} from "../abstraction/expression.ts";
import type { Intrinsic, Operand } from "../abstraction/intrinsic.ts";
import { dimsOf, type LoopNest, storageOf, type TileAccess } from "../abstraction/loop-nest.ts";
import { type MatrixView, operandView, printView } from "../abstraction/matrix-view.ts";
import { memoisedBy } from "../abstraction/memoised.ts";
import { type Code, code } from "../abstraction/source-text.ts";
import type { CudaExpressions } from "./cuda-expressions.ts";
import { shortIndex } from "./short-index.ts";

/** A tile in shared memory as an instruction that reads it by itself is told of it. @throws Error where it cannot be told */
export function matrixOf(
  c: CudaExpressions,
  nest: LoopNest,
  intrinsic: Intrinsic,
  operand: Operand,
  tile: TileAccess,
  extents: Extents,
): Code {
  const { tensor } = tile.access;
  const scratch = nest.scratch.find((s) => s.name === tensor);
  if (!scratch) throw new Error(`internal: ${intrinsic.name} reads ${tensor}, which is not shared memory`);
  const names = dimsOf(scratch).map((d) => d.name);
  const digits = operand.dims.map((d, i) => ({
    extent: d.extent,
    below: operand.dims.slice(i + 1).reduce((product, { extent }) => product * extent, 1),
  }));
  // Loops only move the start, from one multiple of the pattern to the next: distances are those of their first step.
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
  // The instruction moves pieces itself, by their absolute addresses: the start is told as if none were moved, wherever in the pattern it lies.
  const unmoved = rewrite(storageOf(scratch), (e) => (e.kind === "binary" && e.op === "^" ? e.left : e), "index");
  const place = new Map(names.map((name, i) => [name, first.index[i] ?? number(0)]));
  const start = shortIndex(substitute(unmoved, place, "index"), extents);
  if (!view || evaluateIndex(start, still) * bytesOf(operand.dtype) !== view.start)
    throw new Error(
      `internal: ${operand.name} lies at ${printExpr(start, "formula")}, as ${intrinsic.name} does not read it`,
    );
  return printView(view, code`&${c.tensor(tensor)}[${c.index(c.hoist(start, `${tensor}_at`), extents)}]`);
}

/** Views of the tiles of an instruction, by where their elements lie. */
const known = memoisedBy<Intrinsic, MatrixView | undefined>();

/** Every element of a tile is compared with the view; kernels of a search read the same few tiles over and over. */
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

/** The element of a tile at a place of it. */
export function atPlace(
  { axes, access }: Pick<TileAccess, "axes" | "access">,
  place: readonly Expr[],
  from: readonly number[],
): Access {
  return { ...access, index: access.index.map((e) => placed(e, axes, place, from)) };
}

/** An index of a tile's elements at a place of it. */
export function placed(e: Expr, axes: readonly string[], place: readonly Expr[], from: readonly number[]): Expr {
  const known = new Map(axes.map((a, d) => [a, binary("+", place[d] ?? number(0), number(from[d] ?? 0))]));
  return substitute(e, known, "index");
}
