/**
 * @file Operators on integers with a scale, computed on the integers.
 *
 *     x <- DequantizeLinear(a), w <- DequantizeLinear(b)        sum += s32(a) * s32(b)
 *     y <- Conv(x, w, bias)                               ->    y = f32(sum + c[k]) * scale[k] + bias[k]
 *
 * Moves and window maxima work on the integers and keep their scale. A QuantizeLinear after them then only converts the
 * sum, so that a quantised layer is one step. All other operators compute with the dequantised numbers.
 */

import { mapValues } from "../../abstraction/collections.ts";
import type { Lowering } from "../lowering.ts";
import type { Quantised, Value } from "../value.ts";
import { layerOf } from "./convolution.ts";
import { elementwise } from "./elementwise.ts";
import { along, convolvedIntegers, multipliedIntegers } from "./integer-sums.ts";
import { dequantised, isSameScale, shiftOf } from "./quantised.ts";
import { countOf, from, reduced } from "./reduction.ts";
import type { LowerNode, OperatorTable } from "./table.ts";

/** Both factors of a product as 8-bit integers: the left one with a single scale, the right one known. */
function factorsOf(node: Lowering): readonly [Quantised, Quantised] | undefined {
  const a = node.quantised(node.optional(0));
  const b = node.quantised(node.optional(1));
  const isNarrow = (x: Quantised): boolean => x.stored.type === "u8" || x.stored.type === "s8";
  if (!a || !b || !isNarrow(a) || !isNarrow(b) || a.axis !== undefined || !b.stored.constant) return undefined;
  return [a, b];
}

/** A bias that is s32 in units of both scales; otherwise undefined. */
function wholeBias(node: Lowering, bias: Value | undefined, scale: Value): Value | undefined {
  const shown = node.quantised(bias);
  const own = shown?.scale.constant;
  const known = scale.constant;
  if (shown?.stored.type !== "s32" || !shown.stored.constant || !own || !known) return undefined;
  if (shown.zero && !shown.zero.constant?.every((z) => z === 0)) return undefined;
  const most = Math.max(own.length, known.length);
  for (let i = 0; i < most; i++) {
    const [x = 0, y = 0] = [own[i % own.length], known[i % known.length]];
    // The product of two scales may differ from the stored one by rounding.
    if (!(Math.abs(x - y) <= 4 * 2 ** -24 * Math.abs(y))) return undefined;
  }
  return shown.stored;
}

/** Converts integer sums to floats by the scales of both factors, and adds a bias that is not an integer. */
function scaled(node: Lowering, sum: Value, scale: Value, bias: Value | undefined): Value {
  const numbers = elementwise(node, "f32(sum) * scale", { sum, scale }, "f32");
  return bias ? elementwise(node, "numbers + bias", { numbers, bias }) : numbers;
}

const times = (node: Lowering, a: Value, b: Value): Value => elementwise(node, "a * b", { a, b });

function conv(node: Lowering): Value | undefined {
  const factors = factorsOf(node);
  if (!factors || (factors[1].axis ?? 0) !== 0) return undefined;
  const [x, w] = factors;
  const scale = times(node, x.scale, w.scale);
  const given = node.optional(2);
  const bias = wholeBias(node, given, scale);
  const sum = convolvedIntegers(node, layerOf(node, x.stored, w.stored), { x: x.zero, w: w.zero }, bias);
  const spread = given && !bias ? along(node, given, sum, 1) : undefined;
  return scaled(node, sum, along(node, scale, sum, 1), spread);
}

function matMul(node: Lowering): Value | undefined {
  const factors = factorsOf(node);
  if (!factors) return undefined;
  const [a, b] = factors;
  const columns = b.stored.shape.length - 1;
  if (a.stored.shape.length < 2 || columns < 1 || (b.axis ?? columns) !== columns) return undefined;
  const sum = multipliedIntegers(node, [a.stored, b.stored], { a: a.zero, b: b.zero });
  return scaled(node, sum, times(node, a.scale, b.scale), undefined);
}

/** Gemm with both factors 1, as in fully connected layers. */
function gemm(node: Lowering): Value | undefined {
  const factors = factorsOf(node);
  const isTurned = node.flag("transB");
  if (!factors || node.flag("transA") || node.float("alpha", 1) !== 1 || node.float("beta", 1) !== 1) return undefined;
  const [a, b] = factors;
  const { shape } = b.stored;
  const columns = isTurned ? 0 : 1;
  if (a.stored.shape.length !== 2 || shape.length !== 2 || (b.axis ?? columns) !== columns) return undefined;
  const right = isTurned ? turned(node, b.stored) : b.stored;
  const scale = times(node, a.scale, b.scale);
  const given = node.optional(2);
  if (given && (given.shape.length !== 1 || given.shape[0] !== right.shape[1])) return undefined;
  const bias = wholeBias(node, given, scale);
  const sum = multipliedIntegers(node, [a.stored, right], { a: a.zero, b: b.zero }, bias);
  return scaled(node, sum, scale, bias ? undefined : given);
}

/** The transpose of a known matrix. */
function turned(node: Lowering, x: Value): Value {
  const [rows = 1, columns = 1] = x.shape;
  const elementAt = (place: number): number => x.constant?.[(place % rows) * columns + Math.floor(place / rows)] ?? 0;
  return node.filled(x.type, [columns, rows], elementAt, `${x.name}.turned`);
}

/** The mean of each channel, from sums in s32. */
function globalAverage(node: Lowering): Value | undefined {
  const x = node.quantised(node.optional(0));
  if (!x || x.axis !== undefined || (x.stored.type !== "u8" && x.stored.type !== "s8")) return undefined;
  const { shape } = x.stored;
  if (shape.length < 3 || shape.length > 5) return undefined;
  const axes = from(2, x.stored);
  const count = countOf(x.stored, axes);
  const sum = reduced(node, x.stored, axes, { op: "+=", term: "s32(x)", type: "s32" });
  const { scale } = x;
  const shift = shiftOf(x.zero);
  const moved = shift ? `sum - ${count} * s32(shift)` : "sum";
  return elementwise(node, `f32(${moved}) * scale / ${count}`, { sum, scale, ...(shift && { shift }) }, "f32");
}

/** Moves integers with a single scale. `ordered` requires a scale above 0, where larger integers are larger numbers. */
function moved(lower: LowerNode) {
  return (node: Lowering): readonly (Value | undefined)[] | undefined => {
    const count = node.node.op === "Concat" ? node.node.inputs.length : 1;
    const inputs = Array.from({ length: count }, (_, place) => node.quantised(node.optional(place)));
    const [first] = inputs;
    if (!first || first.axis !== undefined || node.optional(0)?.constant) return undefined;
    if (!inputs.every((x) => x && x.stored.type === first.stored.type && isSameScale(x, first))) return undefined;
    for (const [place, x] of inputs.entries()) if (x) node.replace(place, x.stored);
    const { scale, zero } = first;
    return [lower(node)].flat().map((stored) => stored && dequantised(node, { stored, scale, zero }));
  };
}

const MOVED = ["Concat", "MaxPool", "Slice", "Split", "Transpose"];
const COMPUTED: Readonly<Record<string, (node: Lowering) => Value | undefined>> = {
  Conv: conv,
  Gemm: gemm,
  GlobalAveragePool: globalAverage,
  MatMul: matMul,
};

/** The table of operators, each computed on integers when its inputs are dequantised integers. */
export function overIntegers(table: OperatorTable): OperatorTable {
  return mapValues(table, (lower, name): LowerNode => {
    const first = MOVED.includes(name) ? moved(lower) : COMPUTED[name];
    return first ? (node) => first(node) ?? lower(node) : lower;
  });
}
