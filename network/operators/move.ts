/**
 * @file Operators that only move elements.
 *
 *     Transpose    y[i1,i0] = x[i0,i1]
 *     Slice        y[i0] = x[i0*2+1]
 *     Concat       y[i0] = select(i0 < 4, x0[i0], x1[i0-4])
 */

import { product, sumOf } from "../../abstraction/collections.ts";
import { internal } from "../../abstraction/error.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, type Value } from "../value.ts";
import { broadcastShape, numberText } from "./broadcast.ts";
import { gatheredWhenRun } from "./compare.ts";
import { sizesOf } from "./shape.ts";
import type { OperatorTable } from "./table.ts";

/** An output whose element at `i0, i1 ...` is the input's element at `index`. */
export function moved(node: Lowering, x: Value, shape: readonly number[], index: readonly string[]): Value {
  return node.equation(`y${bracketed(axesOfRank(shape.length))} = x${bracketed(index)}`, { x }, { shape });
}

/** `i0*2+1`, or `7-i0` for a step backwards. */
function steppedIndex(axis: string, start: number, step: number): string {
  const times = Math.abs(step) === 1 ? axis : `${axis}*${Math.abs(step)}`;
  if (step < 0) return `${start}-${times}`;
  return start === 0 ? times : `${times}+${start}`;
}

export function sliced(
  node: Lowering,
  x: Value,
  parts: readonly { axis: number; start: number; step: number; count: number }[],
): Value {
  const index = axesOfRank(x.shape.length);
  const shape = [...x.shape];
  for (const { axis, start, step, count } of parts) {
    index[axis] = steppedIndex(`i${axis}`, start, step);
    shape[axis] = count;
  }
  return moved(node, x, shape, index);
}

/** Inputs joined by one equation; longer lists take several. */
const JOINED_AT_ONCE = 8;

export function joined(node: Lowering, values: readonly Value[], axis: number): Value {
  const [first, ...others] = values;
  if (!first) internal("nothing to join");
  if (others.length === 0) return first;
  if (values.length > JOINED_AT_ONCE) {
    const groups = Array.from({ length: Math.ceil(values.length / JOINED_AT_ONCE) }, (_, i) =>
      joined(node, values.slice(i * JOINED_AT_ONCE, (i + 1) * JOINED_AT_ONCE), axis),
    );
    return joined(node, groups, axis);
  }
  const axes = axesOfRank(first.shape.length);
  const own = `i${axis}`;
  let total = 0;
  const parts = values.map((value, i) => {
    const start = total;
    total += value.shape[axis] ?? 0;
    return {
      text: `x${i}${bracketed(start > 0 ? axes.with(axis, `${own}-${start}`) : axes)}`,
      end: total,
    };
  });
  const last = parts.at(-1)?.text ?? "";
  const text = parts
    .slice(0, -1)
    .reduceRight((rest, part) => `select(${own} < ${part.end}, ${part.text}, ${rest})`, last);
  const shape = first.shape.with(axis, total);
  const reads = Object.fromEntries(values.map((value, i) => [`x${i}`, value]));
  return node.equation(`y${bracketed(axes)} = ${text}`, reads, { shape });
}

/** Values of one shape under a new first dimension. */
export const stacked = (node: Lowering, values: readonly Value[]): Value =>
  joined(
    node,
    values.map((value) => node.reshaped(value, [1, ...value.shape])),
    0,
  );

/** An image of channels, and the side of the blocks of its pixels. */
function inBlocks(node: Lowering) {
  const x = node.input(0);
  const [n = 1, c = 1, h = 1, w = 1] = x.shape;
  const block = node.int("blocksize", 0);
  return { x, n, c, h, w, block, isImage: x.shape.length === 4 && block >= 1 };
}

const BORDERS: Readonly<Record<string, string>> = { edge: "clamp", reflect: "reflect", wrap: "wrap" };

export const MOVES: OperatorTable = {
  Concat(node: Lowering) {
    const values = node.inputs();
    const [first] = values;
    const axis = node.axis(node.int("axis", 0), first?.shape.length ?? 0);
    const fits = ({ type, shape }: Value): boolean =>
      type === first?.type &&
      shape.length === first.shape.length &&
      shape.every((size, d) => d === axis || size === first.shape[d]);
    const other = values.find((value) => !fits(value));
    if (other) node.refuse(`${other.name} has another type or shape than ${first?.name}`);
    const filled = values.filter((value) => value.shape[axis] !== 0);
    // All inputs are empty, and so is the result.
    return joined(node, filled.length === 0 ? values.slice(0, 1) : filled, axis);
  },
  /** Moves blocks of channels to blocks of pixels, or back. */
  DepthToSpace(node: Lowering) {
    const { x, n, c, h, w, block, isImage } = inBlocks(node);
    if (!isImage || c % (block * block) !== 0)
      node.refuse(`${c} channels do not fall into blocks of ${block} by ${block}`);
    const channels = c / (block * block);
    const place = `(i2%${block})*${block}+i3%${block}`;
    const channel =
      node.text("mode", "DCR", ["DCR", "CRD"]) === "DCR" ? `(${place})*${channels}+i1` : `i1*${block * block}+${place}`;
    return moved(node, x, [n, channels, h * block, w * block], ["i0", channel, `i2/${block}`, `i3/${block}`]);
  },
  Expand(node: Lowering) {
    const x = node.input(0);
    const given = node.required(1, "the shape");
    const shape = broadcastShape(node, [x.shape, sizesOf(node, given)]);
    const offset = shape.length - x.shape.length;
    return moved(
      node,
      x,
      shape,
      x.shape.map((size, d) => (size === 1 ? "0" : `i${d + offset}`)),
    );
  },
  /** A gather with known indices: from a known tensor, or at evenly spaced places. Others are chosen at run time. */
  Gather(node: Lowering) {
    const x = node.input(0);
    const picked = node.input(1);
    const axis = node.axisGiven(x, 0);
    const size = x.shape[axis] ?? 1;
    if (!picked.constant) return gatheredWhenRun(node, x, picked, axis);
    const given = picked.constant;
    const indices = Array.from(given, (i) => (i < 0 ? i + size : i));
    if (indices.some((i) => i < 0 || i >= size)) node.refuse(`an index lies outside ${size} elements`);
    const outer = x.shape.slice(0, axis);
    const inner = x.shape.slice(axis + 1);
    const shape = [...outer, ...picked.shape, ...inner];
    if (x.constant) {
      const { constant } = x;
      const run = product(inner);
      const count = indices.length;
      return node.filled(x.type, shape, (to) => {
        const row = Math.floor(to / run);
        const from = Math.floor(row / count) * size + (indices[row % count] ?? 0);
        return constant[from * run + (to % run)] ?? 0;
      });
    }
    const [start = 0, second = start + 1] = indices;
    const step = second - start;
    if (step === 0 || indices.some((i, place) => i !== start + place * step)) {
      const places = node.constantFrom("s32", indices, picked.shape);
      return gatheredWhenRun(node, x, places, axis);
    }
    return node.reshaped(sliced(node, x, [{ axis, start, step, count: indices.length }]), shape);
  },
  Pad(node: Lowering) {
    const x = node.input(0);
    const mode = node.text("mode", "constant", ["constant", ...Object.keys(BORDERS)]);
    const given = node.numbersSince(11, "pads", 1, "the padding");
    const filling = node.numbersSince(11, "value", 2, "the value of the padding")?.[0] ?? 0;
    const rank = x.shape.length;
    const told = node.opset >= 18 ? node.known(3, "the axes") : undefined;
    const axes = node.axes(told ?? x.shape.map((_, d) => d), rank);
    if (given?.length !== 2 * axes.length) return node.refuse(`the padding needs ${2 * axes.length} numbers`);
    const sides = x.shape.map((size, d) => {
      const at = axes.indexOf(d);
      const [begin = 0, end = 0] = at < 0 ? [] : [given[at], given[axes.length + at]];
      const place = begin === 0 ? `i${d}` : begin > 0 ? `i${d}-${begin}` : `i${d}+${-begin}`;
      return { size, begin, end, place, isPadded: begin > 0 || end > 0 };
    });
    const border = BORDERS[mode];
    if (mode === "reflect" && sides.some(({ size, begin, end }) => Math.max(begin, end) >= size))
      node.refuse("its padding mirrors more than the input has");
    const shape = sizesOf(
      node,
      sides.map(({ size, begin, end }) => begin + size + end),
    );
    const places = sides.map(({ place, isPadded }) => (border && isPadded ? `${border}(${place})` : place));
    const inside = sides.flatMap(({ size, place, isPadded }) =>
      isPadded ? [`${place} >= 0 and ${place} < ${size}`] : [],
    );
    if (border || filling === 0 || inside.length === 0) return moved(node, x, shape, places);
    if (!Number.isFinite(filling)) node.refuse(`padding by ${filling} is not supported`);
    return node.equation(
      `y${bracketed(axesOfRank(rank))} = select(${inside.join(" and ")}, x${bracketed(places)}, ${numberText(filling)})`,
      { x },
      { shape },
    );
  },
  /** https://onnx.ai/onnx/operators/onnx__Slice.html: ends are clamped; stepping back, -1 precedes the first element. */
  Slice(node: Lowering) {
    const x = node.input(0);
    const rank = x.shape.length;
    const starts = node.numbersSince(10, "starts", 1, "the starts");
    const ends = node.numbersSince(10, "ends", 2, "the ends");
    if (!starts || !ends) return node.refuse("starts and ends are missing");
    const axes = node.axes(node.numbersSince(10, "axes", 3, "the axes") ?? Array.from(starts, (_, d) => d), rank);
    const steps = (node.opset >= 10 ? node.known(4, "the steps") : undefined) ?? Array.from(starts, () => 1);
    if (starts.length !== ends.length || axes.length !== starts.length || steps.length !== starts.length)
      node.refuse("starts, ends, axes and steps are lists of different lengths");
    return sliced(
      node,
      x,
      axes.map((axis, i) => {
        const [size = 1, step = 1] = [x.shape[axis], steps[i]];
        if (step === 0) node.refuse("a step of 0 does not end");
        const place = (given: number, least: number, most: number): number =>
          Math.min(Math.max(given < 0 ? given + size : given, least), most);
        const [start, end] =
          step > 0
            ? [place(starts[i] ?? 0, 0, size), place(ends[i] ?? 0, 0, size)]
            : [place(starts[i] ?? 0, 0, size - 1), place(ends[i] ?? 0, -1, size - 1)];
        return { axis, start, step, count: Math.max(0, Math.ceil((end - start) / step)) };
      }),
    );
  },
  SpaceToDepth(node: Lowering) {
    const { x, n, c, h, w, block, isImage } = inBlocks(node);
    if (!isImage || h % block !== 0 || w % block !== 0)
      node.refuse(`${h} by ${w} pixels do not fall into blocks of ${block}`);
    const index = ["i0", `i1%${c}`, `i2*${block}+i1/${c * block}`, `i3*${block}+i1/${c}%${block}`];
    return moved(node, x, [n, c * block * block, h / block, w / block], index);
  },
  Split(node: Lowering) {
    const x = node.input(0);
    const axis = node.axisGiven(x, 0);
    const size = x.shape[axis] ?? 1;
    const parts = node.node.outputs.length;
    const given = node.numbersSince(13, "split", 1, "the list of parts");
    const told = node.int("num_outputs", parts);
    if (told !== parts) node.refuse(`num_outputs is ${told}, and it has ${parts} outputs`);
    // Since opset 18 the last part may be smaller than the others.
    const equal = Math.ceil(size / parts);
    if (!given && size % parts !== 0 && node.opset < 18)
      node.refuse(`${size} elements do not fall into ${parts} equal parts`);
    const counts = given
      ? sizesOf(node, given)
      : Array.from({ length: parts }, (_, i) => Math.min(equal, size - i * equal));
    if (counts.length !== parts || sumOf(counts) !== size)
      node.refuse(`parts of ${bracketed(counts)} do not make up ${size} elements in ${parts} outputs`);
    let start = 0;
    return counts.map((count) => {
      const part = sliced(node, x, [{ axis, start, step: 1, count }]);
      start += count;
      return part;
    });
  },
  Tile(node: Lowering) {
    const x = node.input(0);
    const given = node.known(1, "the list of repeats");
    if (given?.length !== x.shape.length) return node.refuse(`repeats must hold ${x.shape.length} numbers`);
    const shape = x.shape.map((size, d) => size * (given[d] ?? 1));
    return moved(
      node,
      x,
      sizesOf(node, shape),
      x.shape.map((size, d) => `i${d}%${size}`),
    );
  },
  Transpose(node: Lowering) {
    const x = node.input(0);
    const rank = x.shape.length;
    const order = node.ints("perm") ?? x.shape.map((_, d) => rank - 1 - d);
    if (order.length !== rank || new Set(node.axes(order, rank)).size !== rank)
      node.refuse(`perm ${bracketed(order)} is no order of ${rank} dimensions`);
    const index = x.shape.map((_, d) => `i${order.indexOf(d)}`);
    return moved(
      node,
      x,
      order.map((d) => x.shape[d] ?? 1),
      index,
    );
  },
};
