/**
 * @file Requests to the copy engine (TMA) in CUDA, made by one thread: a box or a run of pixels for each span of a
 * ring's rows, and their descriptors on the host.
 *
 *     expect_bytes(&full[(step + 2) % 4], 49152);
 *     copy_box<2>(&a_ring[8192 * ((step + 2) % 4)], &a_ring_box, {64 * (step + 2), 128 * m_tile}, &full[(step + 2) % 4]);
 *     copy_pixels<4>(&in_ring[..], &in_ring_pixels, {64 * c, 2 * q - 1, 2 * p - 1, n}, {s, r}, &full[..]);
 *
 *     share_box<2, 2>(&b_ring[..], &b_ring_box, {64 * step, 128 * n_tile + 64 * member}, &full[..]);      to both blocks of a cluster
 *
 *     store_box<2>(&results_box, {256 * n_tile, 128 * m_tile}, &results[..]);                                          from shared memory to the output
 *
 * All have the width of a span of the ring, at most 128 bytes, and the ring's swizzle.
 *
 * Descriptors, in CUDA, of tiles in shared memory for instructions that read them directly (wgmma).
 *
 *     matrix_at<128, false>(&a_ring[8192 * (step % 4)], 0, 1024)      rows of 128 bytes; groups of eight rows are 1,024 bytes apart
 *     matrix_at<128, false>(&b_window[1856 * r + 64 * s], 0, 1024)    the same, beginning at any row
 */

import { type Extents, evaluateIndex } from "../../abstraction/affine.ts";
import { memoisedBy, namesOf, withName } from "../../abstraction/collections.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { compileIndex, Scope } from "../../abstraction/evaluate.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  type Expr,
  exprsByName,
  number,
  plus,
  printExpr,
  rewrite,
  substitute,
  substituteAccess,
} from "../../abstraction/expression.ts";
import type { Intrinsic, Operand } from "../../abstraction/intrinsic.ts";
import { type Copy, dimsOf, type LoopNest, storageOf, type TileAccess } from "../../abstraction/loop-nest.ts";
import { type MatrixView, operandView, printView, VIEW_SPANS } from "../../abstraction/matrix-view.ts";
import { type Code, code, list, Name, NOTHING } from "../../abstraction/source-text.ts";
import type { TensorView } from "../../abstraction/tensor-view.ts";
import { shortIndex } from "../short-index.ts";
import type { CudaExpressions } from "./cuda-expressions.ts";

/** A tensor map: the tiles of a tensor, as the host describes them to the engine. */
export interface Box {
  readonly name: Name;
  readonly tensor: string;
  readonly dtype: DType;
  readonly view: TensorView;
  /** Columns that one request copies: a span of the ring. */
  readonly span: number;
}

/**
 * The lines that request one tile, the box they use, and the bytes that arrive at the stage.
 * @param arrival undefined where a tile is stored
 * @param counts whether loops may keep counters for the tile's coordinates. Not if a single thread uses them, since all
 * threads would count
 */
export function printBoxes(
  { axes, equation, view, group }: Copy,
  arrival: Code | undefined,
  { c, nest, counts, cluster }: { c: CudaExpressions; nest: LoopNest; counts: boolean; cluster: number },
  extents: Extents,
): { readonly lines: readonly Code[]; readonly box: Box; readonly bytes: number } {
  const { target, value } = equation;
  const [source] = accessesIn(value);
  const columns = axes.at(-1);
  const [shared, outside] = arrival ? [target, source] : [source, target];
  const ring = withName(nest.scratch, shared?.tensor);
  if (!shared || !outside || !view || !columns || !ring) internal(`the engine cannot copy into ${target.tensor}`);
  const bytes = bytesOf(ring.dtype);

  // 1. The span of the ring: the longest contiguous part of a row, apart from the swizzle.
  const span = spanIn(ring.storage ? placeIn(nest, shared, axes) : undefined, columns.extent, bytes);
  const what = view.rows.kind;
  const box: Box = {
    name: new Name("local", `${shared.tensor}_${what}`),
    tensor: outside.tensor,
    dtype: ring.dtype,
    view,
    span,
  };

  // 2. One box or run of pixels for each span.
  const index = (e: Expr): Code => {
    const print = (): Code => c.index(shortIndex(e, extents), extents);
    const printed = counts ? print() : c.counters.without(print);
    // An index that is read is kept inside by a function of long.
    return accessesIn(e).length > 0 ? code`(int)${printed}` : printed;
  };
  const lines = Array.from({ length: columns.extent / span }, (_, j) => {
    const first = new Map(axes.map((a) => [a.name, number(a === columns ? j * span : 0)]));
    const to: Access = substituteAccess(shared, first);
    const place = code`&${c.tensor(shared.tensor)}[${c.place(to, extents, "to").at}]`;
    const at = list(view.at.map((e, d) => index(d === 0 ? plus(e, j * span) : e)));
    if (!arrival) return code`@store_box<${view.dims.length}>(&${box.name}, {${at}}, ${place});`;
    const taps = view.rows.kind === "box" ? NOTHING : code`{${list(view.rows.offsets.map(index))}}, `;
    const request =
      group === "cluster"
        ? code`@share_${what}<${view.dims.length}, ${cluster}>`
        : code`@copy_${what}<${view.dims.length}>`;
    return code`${request}(${place}, &${box.name}, {${at}}, ${taps}${arrival});`;
  });
  // Of a shared tile, a part arrives from each block of the cluster.
  const parts = group === "cluster" ? cluster : 1;
  return { lines, box, bytes: axes.reduce((product, a) => product * a.extent, bytes * parts) };
}

/** The address in the ring of an element of the tile, with every loop at its first step. */
function placeIn(nest: LoopNest, target: Access, axes: Copy["axes"]): (row: number, column: number) => number {
  const ring = withName(nest.scratch, target.tensor) ?? internal(`no ring "${target.tensor}"`);
  const still = Object.fromEntries(target.index.flatMap(axesIn).map((name) => [name, 0]));
  const dims = dimsOf(ring);
  const [columns, ...rows] = axes.toReversed();
  return (row, column) => {
    const point: Record<string, number> = { ...still, [columns?.name ?? ""]: column };
    let rest = row;
    for (const { name, extent } of rows) {
      point[name] = rest % extent;
      rest = Math.floor(rest / extent);
    }
    const index = target.index.map((e, i) => [dims[i]?.name ?? "", evaluateIndex(e, point)] as const);
    return evaluateIndex(storageOf(ring), Object.fromEntries(index));
  };
}

/**
 * Elements of a span: the widest for which the spans of a row follow one another. @throws Error if the ring's layout is
 * not that of boxes
 */
function spanIn(place: ((row: number, column: number) => number) | undefined, columns: number, bytes: number): number {
  const spans = VIEW_SPANS.map((span) => span / bytes).filter((span) => columns % span === 0);
  return (
    spans.find((span) => {
      if (!place) return span === columns;
      for (let row = 0; row < 8; row++)
        for (let column = 0; column < span; column++) {
          const linear = (row * span + column) * bytes;
          const swizzled = linear ^ ((linear >> 3) & (span * bytes - 16));
          if ((place(row, column) - place(0, 0)) * bytes !== swizzled) return false;
        }
      return true;
    }) ?? internal("the ring lies as no box does")
  );
}

/** The descriptor of a box or a run of pixels, built on the host for every launch. */
export function describedBox({ name, dtype, view: { dims, rows }, span }: Box, tensor: Code): Code[] {
  const bytes = bytesOf(dtype);
  const braces = (of: readonly number[]): Code => code`{${list(of.map((n) => code`${n}`))}}`;
  const shape = [braces(dims.map((d) => d.extent)), braces(dims.slice(1).map((d) => d.pitch * bytes))];
  const more =
    rows.kind === "box"
      ? [braces([span, ...rows.extents.slice(1)])]
      : [
          braces(rows.walks.map((w) => w.low)),
          braces(rows.walks.map((w, i) => w.low + w.step * (w.count - 1) - ((dims[i + 1]?.extent ?? 1) - 1))),
          braces(rows.walks.map((w) => w.step)),
          code`${span}, ${rows.count}`,
        ];
  return [
    code`CUtensorMap ${name};`,
    code`error = @describe_${rows.kind}<${dims.length}>(&${name}, ${tensor}, ${list([code`${bytes}`, ...shape, ...more])});`,
    code`if (error != cudaSuccess) return error;`,
  ];
}

// ---- tiles that instructions read ------------------------------------------------------------------------------------------------

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
    withName(nest.scratch, tensor) ?? internal(`${intrinsic.name} reads ${tensor}, which is not shared memory`);
  const names = namesOf(dimsOf(scratch));
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
  const place = exprsByName(names, first.index);
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
