/**
 * @file Parts of a device reference: elements in their memory layout, the sum of one element as a struct, and its
 * address.
 */

import type { Axis, Computation, Tensor } from "../abstraction/computation.ts";
import { inputsOf } from "../abstraction/computation.ts";
import { type DType, isInteger } from "../abstraction/dtype.ts";
import { identityOf } from "../abstraction/equation.ts";
import type { Expr } from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { axisName, type Code, code, join, lines, list, NOTHING } from "../abstraction/source-text.ts";
import { fold, join_, literal, printIndex, printValue } from "./reference-expressions.ts";
import { dataName, declareTensor, placeName } from "./reference-source.ts";

/** Threads in a block of the reference. */
export const THREADS = 256;

/** Elements in memory, read as the numbers that the interpreter sees; with `magnitude`, as absolute values. */
export const ELEMENTS = code`template <class T, class Number> struct Stored {
  const T* data;
  AUTOMAP_FUNCTION Number operator[](Int at) const { return Number(data[at]); }
};
struct Half { uint16_t bits; AUTOMAP_FUNCTION explicit operator double() const {
  const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  const double size = exponent == 31 ? (fraction ? not_a_number : infinity)
      : exponent == 0 ? __builtin_ldexp(double(fraction), -24) : __builtin_ldexp(double(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -size : size;
} };
struct Brain { uint16_t bits; AUTOMAP_FUNCTION explicit operator double() const {
  union { uint32_t word; float value; } both = {(uint32_t)bits << 16};
  return double(both.value);
} };`;

export function storedType(dtype: DType): Code {
  return dtype === "f16" ? code`Half` : dtype === "bf16" ? code`Brain` : code`${C_TYPES[dtype]}`;
}

export function held(tensor: Tensor, magnitude: boolean): { type: Code; storage: Expr } {
  const number = isInteger(tensor.dtype) && !magnitude ? "Int" : "double";
  return { type: code`Stored<${storedType(tensor.dtype)}, ${number}>`, storage: tensor.storage };
}

export const argumentsOf = (axes: readonly Axis[]): Code => list(axes.map((a) => axisName(a.name)));
export const parametersOf = (axes: readonly Axis[]): Code => list(axes.map((a) => code`Int ${axisName(a.name)}`));

/** The counter of an axis, computed from a point's number with the last axis fastest. */
export function digitOf(axes: readonly Axis[], i: number): Code {
  const below = axes.slice(i + 1).reduce((product, a) => product * a.extent, 1);
  const quotient = code`point / Int(${below})`;
  return i === 0 ? quotient : code`${quotient} % Int(${axes[i]?.extent ?? 1})`;
}

/** A struct whose `at(i, j)` folds the terms of one element. */
export function foldStruct(
  name: "Sum" | "Size",
  sum: Computation,
  value: Expr,
  type: "Int" | "double",
  dtype: DType,
  magnitude: boolean,
): Code {
  const { equation, axes } = sum;
  // Sizes of the terms of a maximum are added up too.
  const op = magnitude ? "+=" : equation.op;
  const identity = magnitude ? 0 : identityOf(op, dtype);
  const dtypes = Object.fromEntries(
    Object.values(sum.tensors).map((t) => [t.name, magnitude ? ("f64" as const) : t.dtype]),
  );
  const kept = axes.filter((a) => a.kind === "spatial");
  const reduced = axes.filter((a) => a.kind === "reduce");
  const tensor = (t: Tensor): Code =>
    declareTensor(magnitude ? { ...t, dtype: "f64" } : t, identity, held(t, magnitude));
  return lines([
    code`struct ${name} {`,
    ...inputsOf(sum).map(tensor),
    code`  AUTOMAP_FUNCTION ${type} at(${parametersOf(kept)}) const {`,
    code`    ${type} sum = 0;`,
    code`    bool any = false;`,
    ...reduced.map((a) => {
      const at = axisName(a.name);
      return code`    for (Int ${at} = 0; ${at} < ${a.extent}; ${at}++)`;
    }),
    code`    for (int term = 0; term < 1; term++) {`,
    ...(equation.where === undefined ? [] : [code`      if (!${printIndex(equation.where)}) continue;`]),
    code`      const ${type} v = ${printValue(value, dtypes, dtype)};`,
    code`      sum = any ? ${fold(op, dtype)} : v;`,
    code`      any = true;`,
    code`    }`,
    code`    const ${type} old = ${literal(identity, dtype)};`,
    code`    return any ? ${join_(op, dtype)} : old;`,
    code`  }`,
    code`};`,
  ]);
}

export function placeStruct(output: Tensor): Code {
  const parameters = list(output.dims.map((_, d) => code`Int i${d}`));
  const tests = output.dims.map(({ extent }, d) => code`uint64_t(i${d}) >= ${extent}`);
  const outside = tests.length === 0 ? NOTHING : code`if (${join(tests, code` || `)}) return -1; `;
  const flat = printIndex(output.storage, (axis) => code`i${output.dims.findIndex((d) => d.name === axis)}`);
  return code`struct Place { AUTOMAP_FUNCTION Int ${placeName(output.name)}(${parameters}) const { ${outside}return ${flat}; } };`;
}

export function bind(struct: Code, wanted: readonly Tensor[], all: readonly Tensor[]): Code[] {
  return wanted.map((t) => {
    const at = all.findIndex((other) => other.name === t.name);
    return code`  ${struct}.${dataName(t.name)}.data = (const ${storedType(t.dtype)}*)tensors[${at}];`;
  });
}
