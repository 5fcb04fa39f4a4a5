/**
 * @file Prints structs that compute the bounds of one element: its sum, the size of its terms, and what an epilogue makes of the interval. A kernel on
 * a device calls them with one thread for each point, and a program on a CPU in a loop.
 *
 *     struct Part_0 { struct Sum { at(m, n) } sum; struct Size { at(m, n) } size; bound(point, low, high, exact) }
 */

import { mapValues } from "../../abstraction/collections.ts";
import { type Axis, type Computation, inputsOf, keptIn, type Tensor, targetOf } from "../../abstraction/computation.ts";
import { type DType, isByteFloat, isInteger } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { type Expr, identityOf } from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import { axisName, type Code, code, list } from "../../abstraction/source-text.ts";
import type { BoundRule } from "./error-bound.ts";
import { join_, literal, printIndex, printValue, readName } from "./reference-expressions.ts";
import {
  dataName,
  declareTensor,
  foldedTerms,
  type Holding,
  placeFunction,
  placeName,
  placeOf,
} from "./reference-source.ts";

/** Sums with what an epilogue makes of them; or what it assigns beside them, which is known exactly. */
export interface Part {
  readonly sum: Computation;
  /** Undefined if sums are exact. */
  readonly rule: BoundRule | undefined;
  readonly epilogue: Computation | undefined;
  /** Whether elements outside the condition belong to another part. */
  readonly isBeside: boolean;
}

/** The type in which an element is stored. */
function storedType(dtype: DType): Code {
  if (isByteFloat(dtype)) return code`Byte<${dtype}>`;
  return dtype === "f16" ? code`Half` : dtype === "bf16" ? code`Brain` : code`${C_TYPES[dtype]}`;
}

/** Elements in memory, as numbers of the given type. */
const stored = (tensor: Tensor, number: "Int" | "double"): Holding => ({
  type: code`Stored<${storedType(tensor.dtype)}, ${number}>`,
  storage: tensor.storage,
});
const numberOf = (dtype: DType): "Int" | "double" => (isInteger(dtype) ? "Int" : "double");

export const argumentsOf = (axes: readonly Axis[]): Code => list(axes.map((a) => axisName(a.name)));
const parametersOf = (axes: readonly Axis[]): Code => list(axes.map((a) => code`Int ${axisName(a.name)}`));
export const pointsOf = (axes: readonly Axis[]): number => axes.reduce((product, a) => product * a.extent, 1);

/** The counters of axes, computed from the number of a point, with the last axis fastest. */
export function counters(axes: readonly Axis[]): Code[] {
  return axes.map((a, i) => {
    const quotient = code`point / Int(${pointsOf(axes.slice(i + 1))})`;
    return code`const Int ${axisName(a.name)} = ${i === 0 ? quotient : code`${quotient} % Int(${a.extent})`};`;
  });
}

/** The numbers of a rule that `bounds.h` needs. */
export function boundText({ operations, epsilon, smallest, exactBelow, integral }: BoundRule): Code {
  return code`Bound{${operations}, ${epsilon}, ${smallest}, ${exactBelow}, ${integral ? "true" : "false"}}`;
}

/** A struct whose `at(i, j)` folds the terms of one element. */
export function sumStruct(sum: Computation): Code {
  const { op, value } = sum.equation;
  const { dtype } = targetOf(sum);
  const hold = (t: Tensor): Code => declareTensor(t, identityOf(op, dtype), stored(t, numberOf(t.dtype)));
  return foldStruct("Sum", sum, value, dtype, inputsOf(sum).map(hold));
}

/** The same for the sizes of its terms. They are computed in doubles. */
function sizeStruct({ sum, rule }: { readonly sum: Computation; readonly rule: BoundRule }): Code {
  const { magnitude } = rule;
  const hold = (t: Tensor): Code => declareTensor({ ...t, dtype: "f64" }, 0, stored(t, "double"));
  return foldStruct("Size", magnitude, magnitude.equation.value, "f64", inputsOf(sum).map(hold));
}

function foldStruct(
  name: "Sum" | "Size",
  { equation, axes, tensors }: Computation,
  value: Expr,
  dtype: DType,
  held: readonly Code[],
): Code {
  const { op } = equation;
  const type = numberOf(dtype);
  const dtypes = mapValues(tensors, ({ dtype }) => dtype);
  return code`struct ${name} {
${held}
  AUTOMAP_FUNCTION ${type} at(${parametersOf(keptIn(axes))}) const {
    ${foldedTerms({ axes, equation }, type, printValue(value, dtypes, dtype), dtype)}
    const ${type} old = ${literal(identityOf(op, dtype), dtype)};
    return any ? ${join_(op, dtype)} : old;
  }
};`;
}

/** A struct whose `at(i, j)` is the interval of an epilogue's result for that of a sum, `sums`, and whose `place(i, j)` is its address. */
export function resultStruct(epilogue: Computation, sum: Tensor, hold: (tensor: Tensor) => Holding): Code {
  const { target, value, where } = epilogue.equation;
  const output = targetOf(epilogue);
  const dtypes = mapValues(epilogue.tensors, ({ dtype }) => dtype);
  const others = inputsOf(epilogue).filter((t) => t.name !== sum.name);
  const axes = parametersOf(epilogue.axes);
  const anywhere = list(sum.dims.map((_, d) => code`Int i${d}`));
  return code`struct Result {
${others.map((t) => declareTensor(t, 0, hold(t)))}
${placeFunction(output)}
  Ends sums;
  AUTOMAP_FUNCTION Ends ${readName(sum.name)}(${anywhere}) const { return sums; }
  AUTOMAP_FUNCTION Ends at(${axes}) const {
    const Ends ends = ${printValue(value, dtypes, output.dtype, sum.name)};
    return {double(${output.dtype}::wrap(ends.low)), double(${output.dtype}::wrap(ends.high))};
  }
  AUTOMAP_FUNCTION Int place(${axes}) const {
    ${where === undefined ? [] : [code`if (!${printIndex(where)}) return -1;`]}
    return ${placeOf(output, target)};
  }
};`;
}

/** A struct whose `bound(point, low, high, exact)` writes the bounds of a point's element. */
export function partStruct(name: Code, { sum, rule, epilogue, isBeside }: Part): Code {
  const target = targetOf(sum);
  const output = epilogue ? targetOf(epilogue) : target;
  const kept = keptIn(sum.axes);
  const element = list(sum.equation.target.index.map((e) => printIndex(e)));
  const { where } = sum.equation;
  if (rule && typeof rule.chain !== "number") internal("several points meet in one element");
  const tolerance = rule
    ? code`${boundText(rule)}.tolerance(${rule.chain as number}, size_of.at(${argumentsOf(kept)}), sum, exact)`
    : code`0`;
  // Its tolerance would be infinite, and intervals of NaN contain every number.
  const odd = isInteger(target.dtype) ? [] : [code`if (${rule ? code`!is_finite` : code`is_nan`}(sum)) return;`];
  const { dtype } = target;
  const result = epilogue
    ? code`Result result = result_of;
    result.sums = Ends{double(${dtype}::wrap(least)), double(${dtype}::wrap(greatest))};
    const Ends ends = result.at(${element});
    least = ends.low, greatest = ends.high;
    const Int place = result.place(${element});`
    : code`const Int place = ${placeName(output.name)}(${element});`;
  return code`struct ${name} {
  static constexpr Int points = ${pointsOf(kept)};
${sumStruct(sum)}
  Sum sum_of;
${rule ? [sizeStruct({ sum, rule }), code`  Size size_of;`] : []}
${epilogue ? [resultStruct(epilogue, target, (t) => stored(t, numberOf(t.dtype))), code`  Result result_of;`] : [placeFunction(output)]}
  AUTOMAP_FUNCTION void bound(Int point, double* low, double* high, int exact) const {
    ${counters(kept)}
    ${isBeside && where !== undefined ? [code`if (!${printIndex(where)}) return;`] : []}
    const ${numberOf(dtype)} sum = sum_of.at(${argumentsOf(kept)});
    ${odd}
    const double off = ${tolerance};
    double least = double(sum) - off, greatest = double(sum) + off;
    ${result}
    if (place < 0) return;
    low[place] = least;
    high[place] = greatest;
  }
};`;
}

/** Statements that give a struct its tensors. @param all tensors, in argument order */
export function bind(struct: Code, wanted: readonly Tensor[], all: readonly Tensor[]): Code[] {
  return wanted.map((t) => {
    const at = all.findIndex((other) => other.name === t.name);
    return code`  ${struct}.${dataName(t.name)}.data = (const ${storedType(t.dtype)}*)tensors[${at}];`;
  });
}
