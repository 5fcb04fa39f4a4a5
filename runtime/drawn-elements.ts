/**
 * @file Code that moves elements between files, in which they lie as tensors are stored, and the row-major arrays that a
 * program computes on.
 *
 *     it.data_in.data[it.place_in(e0 + 1, e1 + 1)] = drawn_0[56*e0 + e1];      an input with a border of one element
 */

import { liesRowMajor, memoryElements, type Tensor } from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { rowMajor } from "../abstraction/layout.ts";
import { type Code, code, list, Name, NOTHING } from "../abstraction/source-text.ts";
import { printIndex } from "./reference-expressions.ts";
import { dataName, elementType, type Holding, heldAsNumbers, type NumberType, placeName } from "./reference-source.ts";

/** A variable of the program whose tensors are meant: the sums, or what finishes them. */
export type Struct = "it" | "finish";

/** How files hold tensors, and on which numbers a program computes. */
export interface Form {
  readonly inFile: (tensor: Tensor) => Tensor;
  readonly element: (tensor: Tensor) => (typeof C_TYPES)[DType] | NumberType;
}

/** Elements in their own type and order. */
export const OWN: Form = { inFile: (tensor) => tensor, element: heldType };
/** Doubles, row-major: the numbers of the interpreter, whatever the type. */
export const DOUBLES: Form = { inFile: asDoubles, element: elementType };
/** The same for planes in time: those of f32 are held as f32, in half the memory. */
export const PLANES: Form = { ...DOUBLES, element: (t) => (t.dtype === "f32" ? "float" : elementType(t)) };

function asDoubles(tensor: Tensor): Tensor {
  return { ...tensor, dtype: "f64", storage: rowMajor(tensor.dims) };
}

/** Row-major elements; their values are those of the interpreter. */
export function heldPlain(tensor: Tensor, { element }: Form = OWN): Holding {
  return { ...heldAsNumbers(tensor), type: code`Plain<${element(tensor)}>` };
}

export const isShort = ({ dtype }: Tensor): boolean => dtype === "bf16" || dtype === "f16";
/** Floats of 16 bits are converted when they are copied. */
export function heldType(tensor: Tensor): (typeof C_TYPES)[DType] {
  return isShort(tensor) ? "float" : C_TYPES[tensor.dtype];
}

/**
 * Whether a tensor is computed on a row-major copy, along whose rows the compiler vectorises: its file has another order, such as NHWC, or another
 * type, such as floats of 16 bits.
 */
export function isTurned(tensor: Tensor, { inFile, element }: Form = OWN): boolean {
  const stored = inFile(tensor);
  return element(tensor) !== C_TYPES[stored.dtype] || !liesRowMajor(stored);
}

/** The offset of a copy without a border: 0 along each dimension. */
export const withoutBorder = ({ dims }: Tensor): readonly number[] => dims.map(() => 0);

/** The file of an input, mapped: a new one, or one that exists. */
export function mappedInput(tensor: Tensor, i: number, file: number, isFixed: boolean): Code {
  const type = C_TYPES[tensor.dtype];
  return code`auto* drawn_${i} = ${isFixed ? code`given` : code`mapped`}<${type}>(files[${file}], ${memoryElements(tensor)});`;
}

/** An input made known to what reads it: a copy if it has a border or another order, else the file itself. */
export function placedInput(to: Struct, tensor: Tensor, i: number, low: readonly number[] | undefined): Code[] {
  if (!low) return [code`${to}.${dataName(tensor.name)}.data = drawn_${i};`];
  const value = (stored: Code): Code =>
    isShort(tensor) ? code`decoded(${tensor.dtype}{}, drawn_${i}[${stored}])` : code`drawn_${i}[${stored}]`;
  return overElements(
    to,
    tensor,
    low,
    (inside, stored) => code`${to}.${dataName(tensor.name)}.data[${inside}] = ${value(stored)};`,
  );
}

/**
 * Visits all elements of a tensor with all threads.
 * @param to what holds the copy
 * @param low the offset of the border, 0 or negative
 * @param each is given the place in the copy, and the place as the tensor is stored
 */
export function overElements(
  to: Struct,
  tensor: Tensor,
  low: readonly number[],
  each: (inside: Code, stored: Code) => Code,
): Code[] {
  const { dims } = tensor;
  const names = dims.map((_, d) => new Name("axis", `e${d}`, `element ${d} of ${tensor.name}`));
  const inside = code`${to}.${placeName(tensor.name)}(${list(names.map((name, d) => code`${name} + ${-(low[d] ?? 0)}`))})`;
  const stored = printIndex(tensor.storage, (axis) => names[dims.findIndex(({ name }) => name === axis)] ?? NOTHING);
  const shared = Math.max(
    0,
    dims.findIndex(({ extent }) => extent > 1),
  );
  return [
    code`in_parts(threads, ${dims[shared]?.extent ?? 1}, [=](Int first, Int last) {`,
    ...dims.map(({ extent }, d) => {
      const name = names[d] ?? NOTHING;
      const [from, to] = d === shared ? (["first", "last"] as const) : ([0, extent] as const);
      return code`  for (Int ${name} = ${from}; ${name} < ${to}; ${name}++)`;
    }),
    code`    ${each(inside, stored)}`,
    code`});`,
  ];
}

/** The results in the order in which they are stored: a plane after its last step without its border, or a copy. */
export function copied(to: Struct, output: Tensor, name: string, low: readonly number[]): Code[] {
  return overElements(
    to,
    { ...output, name },
    low,
    (inside, stored) =>
      code`answer[${stored}] = ${isShort(output) ? code`encoded(${output.dtype}{}, ${to}.${dataName(name)}[${inside}])` : code`${to}.${dataName(name)}[${inside}]`};`,
  );
}
