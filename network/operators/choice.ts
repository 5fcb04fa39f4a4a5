/**
 * @file Operators that select elements by position or by index: Trilu, OneHot, GatherElements, ReverseSequence, CumSum.
 *
 *     Trilu             y[i0,i1] = select(i1 - i0 >= 1, x[i0,i1], 0)
 *     OneHot            y[i0,i1] = select(ids[i0] == i1, values[1], values[0])
 *     GatherElements    y[i0,i1] = x[wrap(ids[i0,i1]),i1]
 *     ReverseSequence   y[i0,i1] = x[ids[i0,i1],i1], ids[i0,i1] = select(i0 < lengths[i1], lengths[i1] - 1 - i0, i0)
 *     CumSum            y[i0,i1] += x[i0,v] where v <= i1
 */

import { bitsOf } from "../../abstraction/dtype.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { NUMBERED_TYPES } from "../numbers.ts";
import { bracketed, heldAs, holdsIntegers, type Range, type Value } from "../value.ts";
import { rangeIn } from "../whole.ts";
import { indicesIn, pairOf, placesIn } from "./compare.ts";
import { elementwise, truncated } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

/** Indices as s32 where negative ones select nothing, as before opset 11. */
const uncounted = (node: Lowering, picked: Value, size: number): Value =>
  elementwise(node, `s32(max(min(picked, ${size}), -1))`, { picked }, "s32");

/** Indices as s32, clamped so that those outside the size, and NaN, stay outside. A plain cast would wrap them. */
function whole(node: Lowering, x: Value, size: number): Value {
  if (["u8", "s8", "u16", "s16"].includes(x.type)) return elementwise(node, "s32(x)", { x }, "s32");
  return elementwise(node, `s32(max(min(select(x == x, f64(x), ${size}), ${size}), ${-size - 1}))`, { x }, "s32");
}

/** Remainders of s64, which f64 holds exactly where the numbers have 32 bits. */
function remainderRange(node: Lowering, a: Value, b: Value): Range {
  const [first = [], second = []] = [rangeIn(a), rangeIn(b)];
  const [least = 0, most = 0] = second;
  if (![...first, ...second].every((x) => Math.abs(x) <= 2 ** 31))
    node.refuse("s64 numbers beyond 32 bits are divided");
  const largest = Math.max(-least, most);
  return [-largest, largest];
}

export const CHOICES: OperatorTable = {
  /** Shifts of unsigned integers are products with powers of 2, exact in f64. All bits are shifted out by their number and more. */
  BitShift(node: Lowering) {
    const [x, by] = pairOf(node);
    if (x.type !== "u8" && x.type !== "u16" && x.type !== "u32")
      node.refuse(`${x.type} is not supported; u8, u16, u32 are`);
    const held = heldAs(x.type);
    const bits = bitsOf(held);
    const isLeft = node.text("direction", "", ["LEFT", "RIGHT"]) === "LEFT";
    const shifted = isLeft ? "f64(x) * pow(2, f64(by))" : "floor(f64(x) * pow(0.5, f64(by)))";
    return elementwise(node, `${held}(select(by < ${bits}, ${shifted}, 0))`, { x, by });
  },
  CumSum(node: Lowering) {
    const x = node.input(0);
    if (x.type === "bool") node.refuse("bool is not supported");
    const given = node.required(1, "the axis")[0] ?? Number.NaN;
    const axis = node.axis(given, x.shape.length);
    const [exclusive, reverse] = [node.flag("exclusive"), node.flag("reverse")];
    const axes = axesOfRank(x.shape.length);
    const op = `${reverse ? ">" : "<"}${exclusive ? "" : "="}`;
    const from = bracketed(axes.with(axis, "v"));
    return node.equation(`y${bracketed(axes)} += x${from} where v ${op} ${axes[axis]}`, { x }, { shape: x.shape });
  },
  EyeLike(node: Lowering) {
    const x = node.input(0);
    const number = node.int("dtype");
    const type = number === undefined ? x.type : NUMBERED_TYPES[number];
    if (!type) return node.refuse(`elements of type ${number} are not supported`);
    const [, columns = 1] = x.shape;
    if (x.shape.length !== 2) node.refuse(`${x.name} is no matrix`);
    const above = node.int("k", 0);
    return node.filled(type, x.shape, (place) => (place % columns === Math.floor(place / columns) + above ? 1 : 0));
  },
  GatherElements(node: Lowering) {
    const x = node.input(0);
    const picked = node.input(1);
    const rank = x.shape.length;
    const axis = node.axisGiven(x, 0);
    if (picked.shape.length !== rank || picked.shape.some((n, d) => d !== axis && n > (x.shape[d] ?? 1)))
      node.refuse(`indices of ${bracketed(picked.shape)} for ${bracketed(x.shape)}`);
    const size = x.shape[axis] ?? 1;
    const axes = axesOfRank(rank);
    const from = axes.with(axis, `wrap(ids${bracketed(axes)})`);
    return node.equation(
      `y${bracketed(axes)} = x${bracketed(from)}`,
      { ids: indicesIn(node, picked, size), x },
      {
        shape: picked.shape,
        type: x.type,
      },
    );
  },
  /**
   * The integer remainder has the sign of the divisor, or with `fmod` that of the dividend. In f64 a fractional quotient
   * of 32-bit integers never rounds to a whole number. A divisor of 0, of which ONNX says nothing, gives 0.
   */
  Mod(node: Lowering) {
    const [a, b] = pairOf(node);
    if (a.type === "bool") node.refuse("bool is not supported");
    const truncates = node.flag("fmod");
    const isWhole = holdsIntegers(a.type);
    if (!isWhole && !truncates) node.refuse("floats are supported with fmod=1 only");
    if (!isWhole) return elementwise(node, "a % b", { a, b });
    const exact = "f64(a) / f64(b)";
    const quotient = truncates ? `(${truncated(exact)})` : `floor(${exact})`;
    const range = a.type === "s64" ? remainderRange(node, a, b) : undefined;
    const formula = `${heldAs(a.type)}(select(b == 0, 0, f64(a) - f64(b) * ${quotient}))`;
    return elementwise(node, formula, { a, b }, a.type, range);
  },
  /** https://onnx.ai/onnx/operators/onnx__OneHot.html: an index outside the depth selects nothing. */
  OneHot(node: Lowering) {
    const picked = node.input(0);
    const [depth, values] = [node.known(1, "the depth"), node.input(2)];
    const size = depth?.[0] ?? 0;
    if (depth?.length !== 1 || values.shape.join() !== "2" || !Number.isSafeInteger(size) || size < 1)
      return node.refuse("it takes a depth of 1 at least and two values");
    if (picked.type === "bool") node.refuse("indices of bool are not supported");
    const rank = picked.shape.length + 1;
    const axis = node.axis(node.int("axis", -1), rank);
    const axes = axesOfRank(rank);
    const shape = picked.shape.toSpliced(axis, 0, size);
    const places = picked.type === "s32" || picked.type === "s64" ? picked : whole(node, picked, size);
    const read = `ids${bracketed(axes.toSpliced(axis, 1))}`;
    const ids = node.opset >= 11 ? placesIn(node, places, size) : uncounted(node, places, size);
    return node.equation(
      `y${bracketed(axes)} = select(${read} == ${axes[axis]}, values[1], values[0])`,
      { ids, values },
      { shape, type: values.type },
    );
  },
  /** The first elements of each sequence in reverse, as many as its length says, which lies within the time axis. */
  ReverseSequence(node: Lowering) {
    const x = node.input(0);
    const given = node.input(1);
    const rank = x.shape.length;
    const time = node.int("time_axis", 0);
    const batch = node.int("batch_axis", 1);
    const [steps, sequences] = [x.shape[time], x.shape[batch]];
    if (steps === undefined || sequences === undefined || time === batch || given.shape.join() !== `${sequences}`)
      return node.refuse(
        `${bracketed(given.shape)} lengths of sequences along axis ${batch}, in time along axis ${time}`,
      );
    const lengths = indicesIn(node, given, steps);
    const ids = node.equation(
      "y[t,b] = select(t < lengths[b], lengths[b] - 1 - t, t)",
      { lengths },
      { shape: [steps, sequences] },
    );
    const axes = axesOfRank(rank);
    const from = axes.map((name, d) => (d === time ? `wrap(ids[${axes[time]},${axes[batch]}])` : name));
    return node.equation(`y${bracketed(axes)} = x${bracketed(from)}`, { ids, x }, { type: x.type });
  },
  Trilu(node: Lowering) {
    const x = node.input(0);
    const above = node.known(1, "the diagonal")?.[0] ?? 0;
    const upper = node.flag("upper", true);
    const axes = axesOfRank(x.shape.length);
    const [row, column] = axes.slice(-2);
    if (row === undefined || column === undefined) return node.refuse(`${x.name} is no matrix`);
    // Diagonals outside the matrix all give the same result.
    const most = Math.max(...x.shape);
    const diagonal = Math.max(-most, Math.min(most, above));
    const kept = `${column} - ${row} ${upper ? ">=" : "<="} ${diagonal < 0 ? `(${diagonal})` : diagonal}`;
    const at = bracketed(axes);
    return node.equation(`y${at} = select(${kept}, x${at}, 0)`, { x });
  },
};
