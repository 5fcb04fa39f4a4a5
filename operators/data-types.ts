/**
 * @file Element types of an operator as one word: the first tensor's type, the second's, the type of the sum.
 *
 *     f16        f16 times f16, summed in f32
 *     u8s8       u8 times s8, summed in s32
 *     f16->f16   f16 times f16, summed in f16
 */

import { entryOf } from "../abstraction/collections.ts";
import { DTYPES, type DType, isDType, isInteger } from "../abstraction/dtype.ts";
import { suggestion, UsageError } from "../abstraction/error.ts";

/** Types of an operator's inputs, and of its sums. */
export interface OperandTypes {
  /** The first and the second tensor the operator multiplies. */
  readonly inputs: readonly [DType, DType];
  /** The type in which products are formed and summed: the type of the output. */
  readonly sum: DType;
}

/** Single types first, because messages list them. */
const WORDS: readonly string[] = [...DTYPES, ...DTYPES.flatMap((a) => DTYPES.map((b) => `${a}${b}`))];

/** Type names of other systems. */
const FOREIGN: Readonly<Record<string, DType>> = {
  int8: "s8",
  i8: "s8",
  uint8: "u8",
  int16: "s16",
  i16: "s16",
  uint16: "u16",
  int32: "s32",
  i32: "s32",
  int: "s32",
  uint32: "u32",
  fp8: "e4m3",
  float8_e4m3fn: "e4m3",
  float8_e5m2: "e5m2",
  float16: "f16",
  fp16: "f16",
  half: "f16",
  bfloat16: "bf16",
  float32: "f32",
  fp32: "f32",
  float: "f32",
  float64: "f64",
  fp64: "f64",
  double: "f64",
};

/** `did you mean "f32"?` for `float32`, and the nearest of our own names for anything else. */
export function typeSuggestion(word: string, known: readonly string[] = DTYPES): string {
  const own = entryOf(FOREIGN, word);
  return own === undefined ? suggestion(word, known) : `did you mean "${own}"?`;
}

/**
 * Reads `f16`, `u8s8` or `f16->f16`.
 * @param sum the type of the sum; by default s32 for integers, f64 if either input is f64, f32 otherwise
 * @throws UsageError with the nearest valid word
 */
export function parseDataTypes(text: string, sum?: string): OperandTypes {
  const [word = "", written, ...rest] = text.toLowerCase().split("->");
  const pair = DTYPES.flatMap((first) => {
    if (word === first) return [[first, first] as const];
    const second = word.slice(first.length);
    return word.startsWith(first) && isDType(second) ? [[first, second] as const] : [];
  });
  const [inputs] = pair;
  if (!inputs || rest.length > 0) throw new UsageError(`unknown data types "${text}"`, typeSuggestion(word, WORDS));
  const given = sum ?? written;
  if (given === undefined) return { inputs, sum: defaultSum(inputs) };
  if (!isDType(given)) throw new UsageError(`unknown data type "${given}" of the sum`, typeSuggestion(given));
  if (isInteger(given) && !inputs.every(isInteger))
    throw new UsageError(
      `data types ${text}: the integer sum ${given} cannot hold products of floats`,
      `the default is ${defaultSum(inputs)}`,
    );
  return { inputs, sum: given };
}

/** The word that {@link parseDataTypes} reads back; the sum is written when it is not the default. */
export function printDataTypes({ inputs, sum }: OperandTypes): string {
  const [first, second] = inputs;
  const word = first === second ? first : `${first}${second}`;
  return sum === defaultSum(inputs) ? word : `${word}->${sum}`;
}

function defaultSum(inputs: readonly [DType, DType]): DType {
  if (inputs.every(isInteger)) return "s32";
  return inputs.includes("f64") ? "f64" : "f32";
}
