/**
 * @file Pooling: the maximum or the mean of each window.
 *
 *     MaxPool        y[n,c,p,q] max= x[n,c,p*2+r-1,q*2+s-1]                       minus infinity beyond the border
 *     AveragePool    sum[n,c,p,q] += x[n,c,p*2+r-1,q*2+s-1],  y = sum / count[p,q]
 */

import { product } from "../../abstraction/collections.ts";
import type { Lowering } from "../lowering.ts";
import { bracketed, isWide, type Value } from "../value.ts";
import { lettersOf, positionsOf, type Slide, slid, type Window, windowOf } from "./convolution.ts";
import { elementwise, wideInput } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

interface Pool {
  readonly x: Value;
  readonly window: Window;
  readonly positions: readonly number[];
}

function poolOf(node: Lowering): Pool {
  const x = node.input(0);
  const kernel = node.ints("kernel_shape") ?? node.refuse("kernel_shape is missing");
  const ceil = node.flag("ceil_mode");
  const window = windowOf(node, x.shape.slice(2), kernel, ceil);
  // Otherwise a window could lie entirely in the padding.
  if (window.some(({ width, dilation, begin, end }) => Math.max(begin, end) > (width - 1) * dilation))
    node.refuse("its padding is as wide as its window");
  const pool = { x, window, positions: positionsOf(node, window, ceil) };
  checkTouches(node, pool);
  return pool;
}

/** A dilation wider than the input can step over it. @throws UsageError for a window that touches no input */
function checkTouches(node: Lowering, { window, positions }: Pool): void {
  for (const [d, slide] of window.entries()) {
    if (slide.dilation <= slide.size) continue;
    for (let p = 0; p < (positions[d] ?? 1); p++)
      if (countAt(slide, p, false) === 0)
        node.refuse(`a window at position ${p} of spatial dimension ${d} lies in the padding alone`);
  }
}

function pooled(node: Lowering, { x, window, positions }: Pool, op: "+=" | "max="): Value {
  const { outputs, at, extents } = slid(window);
  const inputs = lettersOf("input", window.length);
  return node.equation(
    `y[n,c,${outputs.join(",")}] ${op} x[n,c,${at.join(",")}]`,
    { x },
    {
      shape: [...x.shape.slice(0, 2), ...positions],
      extents,
      dims: { y: ["n", "c", ...outputs], x: ["n", "c", ...inputs] },
    },
  );
}

/** The index of each maximum in the whole input; of equal ones the first by rows. @param byColumns counts by columns */
function placesOf(node: Lowering, { x, window }: Pool, most: Value, byColumns: boolean): Value {
  if (!isWide(x.type)) node.refuse(`places of ${x.type} are not supported; of f32 and f64 they are`);
  const spatial = x.shape.slice(2);
  const all = product(spatial);
  const places = node.filled("s32", spatial, (i) => i, `${x.name}.places`);
  const { outputs, at, extents } = slid(window);
  const read = `x[n,c,${at.join(",")}]`;
  const target = `n,c,${outputs.join(",")}`;
  const chosen = `select(${read} == most[${target}], places${bracketed(at)}, ${all})`;
  // The maximum of a window with a NaN is NaN; its index is that of the first NaN, which differs from itself.
  const found = node.equation(
    `y[${target}] min= select(${read} == ${read}, ${chosen}, places${bracketed(at)})`,
    { x, most, places },
    { type: "s32", extents },
  );
  const images = [...x.shape.slice(0, 2), ...spatial.map(() => 1)];
  const start = node.filled("s64", images, (i) => i * all, `${x.name}.starts`);
  const numbered = (i: string): string => (byColumns ? columnwise(i, spatial) : i);
  return elementwise(node, `${numbered("f64(found)")} + start`, { found, start }, "s64");
}

/**
 * Converts an index with the last spatial axis innermost to one with the first innermost.
 *
 *     [h,w]      row = floor(i / w),  (row + (i - row * w) * h)
 */
function columnwise(i: string, spatial: readonly number[]): string {
  const terms = spatial.map((size, d) => {
    const behind = product(spatial.slice(d + 1));
    const until = (by: number): string => (by === 1 ? i : `floor(${i} / ${by})`);
    const coordinate = d === 0 ? until(behind) : `(${until(behind)} - ${until(behind * size)} * ${size})`;
    return `${coordinate} * ${product(spatial.slice(0, d))}`;
  });
  return `(${terms.join(" + ")})`;
}

/** Elements that a window at a position covers along a dimension. */
function countAt({ size, width, stride, dilation, begin, end }: Slide, p: number, withPadding: boolean): number {
  const [least, most] = withPadding ? [-begin, size + end] : [0, size];
  // Elements p*stride - begin + r*dilation in [least, most).
  const start = p * stride - begin;
  const first = Math.max(0, Math.ceil((least - start) / dilation));
  const behind = Math.min(width, Math.ceil((most - start) / dilation));
  return Math.max(0, behind - first);
}

function globalPool(op: "+=" | "max=") {
  return (node: Lowering): Value => {
    const x = wideInput(node);
    const kernel = x.shape.slice(2);
    if (kernel.length < 1 || kernel.length > 3)
      node.refuse(`${kernel.length} spatial dimensions are not supported; 1 to 3 are`);
    const window = kernel.map((size): Slide => ({ size, width: size, stride: 1, dilation: 1, begin: 0, end: 0 }));
    const all = pooled(node, { x, window, positions: kernel.map(() => 1) }, op);
    return op === "max=" ? all : elementwise(node, `all / ${product(kernel)}`, { all });
  };
}

export const POOLING: OperatorTable = {
  AveragePool(node: Lowering) {
    const pool = poolOf(node);
    wideInput(node);
    const sum = pooled(node, pool, "+=");
    const withPadding = node.flag("count_include_pad");
    const counts = pool.window.map((slide, d) =>
      Array.from({ length: pool.positions[d] ?? 1 }, (_, p) => countAt(slide, p, withPadding)),
    );
    const all = product(counts.map((list) => list[0] ?? 1));
    if (counts.every((list) => list.every((count) => count === list[0])))
      return elementwise(node, `sum / ${all}`, { sum });
    const shape = counts.map((list) => list.length);
    const count = node.filled(pool.x.type, shape, (place) => {
      let rest = place;
      return product(
        counts.toReversed().map((list) => {
          const digit = rest % list.length;
          rest = Math.floor(rest / list.length);
          return list[digit] ?? 1;
        }),
      );
    });
    return elementwise(node, "sum / count", { sum, count });
  },
  GlobalAveragePool: globalPool("+="),
  GlobalMaxPool: globalPool("max="),
  MaxPool(node: Lowering) {
    const pool = poolOf(node);
    const byColumns = node.flag("storage_order");
    const most = pooled(node, pool, "max=");
    if (!node.node.outputs[1]) return [most];
    return [most, placesOf(node, pool, most, byColumns)];
  },
};
