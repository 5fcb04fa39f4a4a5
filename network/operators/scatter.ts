/**
 * @file Gathers and scatters by several indices (GatherND, ScatterND), and TopK.
 *
 *     GatherND     flat[b,m] = ids[b,m,0]*4 + ids[b,m,1],   y[b,m,r] = x[b,wrap(flat[b,m]),r]
 *     ScatterND    y[p,r] = select(from[p] < 0, x[p,r], updates[wrap(from[p]),r])         `from` is known before the run
 *     TopK         rank[r,i] += select(x[r,j] > x[r,i], 1, 0),   place[r,k] += select(rank[r,i] == k, i, 0),   y = x[r,wrap(place[r,k])]
 */

import { product } from "../../abstraction/collections.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import type { Lowering } from "../lowering.ts";
import { bracketed, heldAs, type Value } from "../value.ts";
import { elementwise } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

/** Elements of `x` replaced by rows of `updates`. @param from for each row of x the row that replaces it, or -1 */
function replaced(node: Lowering, x: Value, updates: Value, from: ArrayLike<number>): Value {
  const rows = from.length;
  const width = node.elements(x.shape) / rows;
  const count = node.elements(updates.shape) / width;
  const places = node.constantFrom("s32", from, [rows], `${x.name}.from`);
  const y = node.equation(
    "y[p,r] = select(from[p] < 0, x[p,r], u[wrap(from[p]),r])",
    { from: places, x: node.reshaped(x, [rows, width]), u: node.reshaped(updates, [count, width]) },
    { type: x.type },
  );
  return node.reshaped(y, x.shape);
}

/** An index counted from either end. */
function placeIn(node: Lowering, index: number, size: number): number {
  const place = index < 0 ? index + size : index;
  if (!(place >= 0 && place < size)) node.refuse(`the index ${index} lies outside ${size} elements`);
  return place;
}

function scatterInputs(node: Lowering): { x: Value; indices: Value; known: ArrayLike<number>; updates: Value } {
  if (node.opset >= 16) node.text("reduction", "none", ["none"]);
  const x = node.input(0);
  const indices = node.input(1);
  const updates = node.input(2);
  if (x.type !== updates.type) node.refuse(`${updates.name} has another type than ${x.name}`);
  if (indices.type !== "s32" && indices.type !== "s64") node.refuse(`indices of ${indices.type} are not supported`);
  return { x, indices, known: node.required(1, "the list of indices"), updates };
}

function scatterElements(node: Lowering): Value {
  const { x, indices, known, updates } = scatterInputs(node);
  const { shape } = indices;
  const axis = node.axisGiven(x, 0);
  if (
    shape.length !== x.shape.length ||
    shape.join() !== updates.shape.join() ||
    shape.some((n, d) => d !== axis && n > (x.shape[d] ?? 1))
  )
    node.refuse(`updates of ${bracketed(updates.shape)} at ${bracketed(shape)} of ${bracketed(x.shape)}`);
  const from = node.numbers("s32", node.elements(x.shape)).fill(-1);
  for (let u = 0; u < known.length; u++) {
    let row = 0;
    for (const [d, size] of x.shape.entries()) {
      const own = Math.floor(u / product(shape.slice(d + 1))) % (shape[d] ?? 1);
      row = row * size + (d === axis ? placeIn(node, known[u] ?? 0, size) : own);
    }
    from[row] = u;
  }
  return replaced(node, x, updates, from);
}

export const SCATTERS: OperatorTable = {
  /** https://onnx.ai/onnx/operators/onnx__GatherND.html. An index outside its dimension, which ONNX forbids, reads the nearest element. */
  GatherND(node: Lowering) {
    const x = node.input(0);
    const picked = node.input(1);
    const shared = node.int("batch_dims", 0);
    const depth = picked.shape.at(-1) ?? 0;
    const places = picked.shape.slice(0, -1);
    if (picked.type !== "s32" && picked.type !== "s64")
      node.refuse(`indices of ${picked.type} are not supported; s32 and s64 are`);
    const isWrong = shared < 0 || shared > places.length || depth < 1 || shared + depth > x.shape.length;
    if (isWrong || x.shape.slice(0, shared).join() !== places.slice(0, shared).join())
      node.refuse(`indices of ${bracketed(picked.shape)} for ${bracketed(x.shape)} with batch_dims ${shared}`);
    const batch = x.shape.slice(0, shared);
    const within = x.shape.slice(shared, shared + depth);
    const rest = x.shape.slice(shared + depth);
    const rows = [product(batch), product(places.slice(shared))] as const;
    const terms = within.map((size, d) => {
      const id = `ids[b,m,${d}]`;
      return `max(min(select(${id} < 0, ${id} + ${size}, ${id}), ${size - 1}), 0) * ${product(within.slice(d + 1))}`;
    });
    const ids = node.reshaped(picked, [...rows, depth]);
    const flat = node.equation(`y[b,m] = s32(${terms.join(" + ")})`, { ids }, { type: "s32" });
    const elements = node.reshaped(x, [rows[0], product(within), product(rest)]);
    const y = node.equation("y[b,m,r] = x[b,wrap(flat[b,m]),r]", { flat, x: elements }, { type: x.type });
    return node.reshaped(y, [...places, ...rest]);
  },
  // The name before opset 11.
  Scatter: scatterElements,
  ScatterElements: scatterElements,
  ScatterND(node: Lowering) {
    const { x, indices, known, updates } = scatterInputs(node);
    const depth = indices.shape.at(-1) ?? 0;
    const within = x.shape.slice(0, depth);
    const rest = x.shape.slice(depth);
    const places = indices.shape.slice(0, -1);
    if (depth < 1 || depth > x.shape.length || updates.shape.join() !== [...places, ...rest].join())
      node.refuse(`updates of ${bracketed(updates.shape)} at ${bracketed(indices.shape)} of ${bracketed(x.shape)}`);
    const from = node.numbers("s32", product(within)).fill(-1);
    for (let u = 0; u < product(places); u++) {
      const row = within.reduce((sum, size, d) => sum * size + placeIn(node, known[u * depth + d] ?? 0, size), 0);
      from[row] = u;
    }
    return replaced(node, x, updates, from);
  },
  /** The k largest, in order: an element's rank is the number of those before it. Of equal ones the first comes first. */
  TopK(node: Lowering) {
    const x = node.input(0);
    if (x.type === "bool") node.refuse("bool is not supported");
    const axis = node.axisGiven(x, -1);
    const size = x.shape[axis] ?? 1;
    const k = node.numbersSince(10, "k", 1, "the number of elements")?.[0] ?? 0;
    // In order is also a legal answer where no order is asked for.
    if (node.opset >= 11) node.int("sorted", 1);
    if (!Number.isSafeInteger(k) || k < 1 || k > size) node.refuse(`${k} of ${size} elements`);
    const isLargest = node.opset < 11 || node.flag("largest", true);
    const shape = [product(x.shape.slice(0, axis)), size, product(x.shape.slice(axis + 1))] as const;
    const rows = node.reshaped(x, shape);
    const own = "x[a,i,b]";
    const other = "x[a,j,b]";
    const earlier = "select(j < i, 1, 0)";
    const ofNumbers = `select(${other} ${isLargest ? ">" : "<"} ${own}, 1, select(${other} == ${own}, ${earlier}, 0))`;
    // A NaN, which equals nothing, not even itself, counts as larger than every number.
    const isNumber = `${own} == ${own}`;
    const isOtherNumber = `${other} == ${other}`;
    const isBefore = isInteger(heldAs(x.type))
      ? ofNumbers
      : `select(${isOtherNumber}, select(${isNumber}, ${ofNumbers}, ${isLargest ? 0 : 1}), select(${isNumber}, ${isLargest ? 1 : 0}, ${earlier}))`;
    const rank = node.equation(`y[a,i,b] += ${isBefore}`, { x: rows }, { type: "s32" });
    const numbered = node.filled("s32", [size], (i) => i, "places");
    const place = node.equation(
      "y[a,k,b] += select(rank[a,i,b] == k, places[i], 0)",
      { rank, places: numbered },
      { extents: { k } },
    );
    const y = node.equation("y[a,k,b] = x[a,wrap(place[a,k,b]),b]", { place, x: rows }, { type: x.type });
    const result = x.shape.with(axis, k);
    const wide = elementwise(node, "f64(place)", { place }, "s64");
    return [node.reshaped(y, result), node.reshaped(wide, result)];
  },
};
