/**
 * @file What one thread sends the copy engine for, in CUDA: a box of a matrix for each span of a ring's rows, and how the host describes it.
 *
 *     expect_bytes(&full[(step + 2) % 4], 49152);
 *     copy_box(&a_ring[8192 * ((step + 2) % 4)], &a_ring_box, 64 * (step + 2), 128 * m_tile, &full[(step + 2) % 4]);
 *
 * A box is as wide as a span of its ring, 128 bytes at most, and swizzled as the ring is.
 */

import { type Extents, evaluateIndex } from "../abstraction/affine.ts";
import { type Computation, tensorOf } from "../abstraction/computation.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import { type Access, accessesIn, axesIn, type Expr, number, substitute } from "../abstraction/expression.ts";
import { type Copy, dimsOf, type LoopNest, storageOf } from "../abstraction/loop-nest.ts";
import { VIEW_SPANS } from "../abstraction/matrix-view.ts";
import { type Code, code, Name } from "../abstraction/source-text.ts";
import type { CudaExpressions } from "./cuda-expressions.ts";
import { shortIndex } from "./short-index.ts";

/** Boxes of a tensor as the host describes them. */
export interface Box {
  readonly name: Name;
  readonly tensor: string;
  readonly dtype: DType;
  /** Elements of the matrix, and from one of its rows to the next. */
  readonly width: number;
  readonly height: number;
  readonly pitch: number;
  /** Elements of a box; its rows are a span of the ring. */
  readonly boxWidth: number;
  readonly boxHeight: number;
}

/** The lines that send one tile off, and the boxes they name. */
export function printBoxes(
  { axes, equation }: Copy,
  arrival: Code,
  { c, computation, nest }: { c: CudaExpressions; computation: Computation; nest: LoopNest },
  extents: Extents,
): { readonly lines: readonly Code[]; readonly box: Box; readonly bytes: number } {
  const { target, value } = equation;
  const [source, ...more] = accessesIn(value);
  const [rows, columns] = axes;
  const ring = nest.scratch.find((s) => s.name === target.tensor);
  if (!source || more.length > 0 || !rows || !columns || axes.length > 2 || !ring)
    throw new Error(`internal: the engine cannot copy into ${target.tensor}`);
  const bytes = bytesOf(ring.dtype);

  // 1. The matrix: its inner dimension has its neighbours side by side.
  const tensor = tensorOf(computation, source.tensor);
  const origin = Object.fromEntries(tensor.dims.map((d) => [d.name, 0]));
  const step = (name: string): number =>
    evaluateIndex(tensor.storage, { ...origin, [name]: 1 }) - evaluateIndex(tensor.storage, origin);
  const inner = tensor.dims.findIndex((d) => d.extent === 1 || step(d.name) === 1);
  const [innerDim, outerDim] = [tensor.dims[inner], tensor.dims[1 - inner]];
  if (!innerDim || !outerDim || tensor.dims.length !== 2)
    throw new Error(`internal: ${source.tensor} is no matrix with rows side by side`);

  // 2. The span of the ring: how far its elements lie side by side but for the swizzle.
  const span = spanIn(ring.storage ? placeIn(nest, target, axes) : undefined, columns.extent, bytes);
  const box: Box = {
    name: new Name("local", `${target.tensor}_box`),
    ...{ tensor: source.tensor, dtype: ring.dtype, width: innerDim.extent, height: outerDim.extent },
    pitch: step(outerDim.name),
    ...{ boxWidth: span, boxHeight: rows.extent },
  };

  // 3. A box for each span.
  const at = (e: Expr, column: number): Expr =>
    substitute(
      e,
      new Map([
        [rows.name, number(0)],
        [columns.name, number(column)],
      ]),
      "index",
    );
  const index = (e: Expr): Code => c.index(shortIndex(e, extents), extents);
  const lines = Array.from({ length: columns.extent / span }, (_, j) => {
    const to: Access = { ...target, index: target.index.map((e) => at(e, j * span)) };
    const [x, y] = [source.index[inner] ?? number(0), source.index[1 - inner] ?? number(0)];
    const place = code`&${c.tensor(target.tensor)}[${c.place(to, extents, "to").at}]`;
    return code`copy_box(${place}, &${box.name}, ${index(at(x, j * span))}, ${index(at(y, 0))}, ${arrival});`;
  });
  return { lines, box, bytes: rows.extent * columns.extent * bytes };
}

/** Place in the ring of an element of the tile, every loop at its first step. */
function placeIn(nest: LoopNest, target: Access, axes: Copy["axes"]): (row: number, column: number) => number {
  const ring = nest.scratch.find((s) => s.name === target.tensor);
  if (!ring) throw new Error(`internal: no ring "${target.tensor}"`);
  const still = Object.fromEntries(target.index.flatMap(axesIn).map((name) => [name, 0]));
  const dims = dimsOf(ring);
  return (row, column) => {
    const point = { ...still, [axes[0]?.name ?? ""]: row, [axes[1]?.name ?? ""]: column };
    const index = target.index.map((e, i) => [dims[i]?.name ?? "", evaluateIndex(e, point)] as const);
    return evaluateIndex(storageOf(ring), Object.fromEntries(index));
  };
}

/** Elements of a span: the widest at which rows of it lie one behind the other. @throws Error where no box lies so */
function spanIn(place: ((row: number, column: number) => number) | undefined, columns: number, bytes: number): number {
  const spans = VIEW_SPANS.map((span) => span / bytes).filter((span) => columns % span === 0);
  const found = spans.find((span) => {
    if (!place) return span === columns;
    for (let row = 0; row < 8; row++)
      for (let column = 0; column < span; column++) {
        const linear = (row * span + column) * bytes;
        const swizzled = linear ^ ((linear >> 3) & (span * bytes - 16));
        if ((place(row, column) - place(0, 0)) * bytes !== swizzled) return false;
      }
    return true;
  });
  if (found === undefined) throw new Error("internal: the ring lies as no box does");
  return found;
}

/** The description of a box, made by the host for every launch. */
export function describedBox({ name, dtype, width, height, pitch, boxWidth, boxHeight }: Box, tensor: Code): Code[] {
  const bytes = bytesOf(dtype);
  const sizes = code`${bytes}, ${width}, ${height}, ${pitch * bytes}, ${boxWidth}, ${boxHeight}`;
  return [
    code`CUtensorMap ${name};`,
    code`error = describe_box(&${name}, ${tensor}, ${sizes});`,
    code`if (error != cudaSuccess) return error;`,
  ];
}
