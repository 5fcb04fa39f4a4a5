/**
 * @file What tests are about, by name: an operator as on the command line, an instruction, a mapping as it is printed.
 *
 *     operation("conv2d n=1 c=64 k=64 h=8 w=8 NHWC", "u8s8")
 *     stated("c[i,j] += a[i,k] * b[k,j] --i 4 --j 8 --k 2 --dtype f16")          words as on the command line
 *     mappingNamed(computation, rowNamed("avx512.vpdpbusd"), "n <- k; k <- c")
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import { rangeOf } from "../../abstraction/dtype.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { readComputation, type SubjectOptions, typesTakenBy } from "../../cli/subject.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { type InstantiateOptions, instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import { generate } from "../../session/kinds/mapping-kind.ts";

/** `n=1 c=64 n=2` as n 2, c 64: of two values the last holds. */
export const parametersIn = (words: string): Record<string, number> =>
  Object.fromEntries(
    words.split(" ").flatMap((word) => {
      const [name = "", value] = word.split("=");
      return value === undefined ? [] : [[name, Number(value)]];
    }),
  );

/**
 * @param words an operator, parameters that differ from its defaults, and a layout where it is not row-major
 * @param types `f16`, `u8s8`, `f16->f16`, or an instruction for those that it takes
 */
export function operation(
  words: string,
  types: string | Intrinsic = "f32",
  more: Omit<InstantiateOptions, "parameters" | "types"> = {},
): Computation {
  const [name = "", ...others] = words.split(" ");
  const layout = others.find((word) => /^[A-Z]+\w*$/.test(word));
  return instantiate(operatorNamed(name), {
    parameters: parametersIn(words),
    types: typeof types === "string" ? parseDataTypes(types) : typesTakenBy(types),
    ...(layout !== undefined && { layouts: layout }),
    ...more,
  });
}

const OPTIONS = new Set(["dtype", "sum", "layout", "shape", "epilogue", "constant", "name"]);

/** @param line an operator or an equation, extents and parameters, options of the command line with constant inputs after one another, and a name */
export function stated(line: string): Computation {
  const [subject = "", ...words] = line.trim().split(/\s+--/);
  const given = words.map((word) => [word.slice(0, word.indexOf(" ")), word.slice(word.indexOf(" ") + 1)] as const);
  const parameters = given
    .filter(([name]) => !OPTIONS.has(name))
    .map(([name, value]) => [name, Number(value)] as const);
  const options: Record<string, string> = Object.fromEntries(given);
  const { dtype, sum, layout, shape, epilogue, constant, name } = options;
  const told: SubjectOptions = { dtype, sum, layout, shape, epilogue, constant: constant?.split(" ") };
  const computation = readComputation(subject, Object.fromEntries(parameters), told);
  return name === undefined ? computation : { ...computation, name };
}

/** The row of an instruction. */
export function rowNamed(name: string): Intrinsic {
  const found = intrinsicNamed(name);
  if (!found) throw new Error(`no row ${name}`);
  return found;
}

/** Small integers: every sum is exact in f32, in whatever order. @param most so large, and none below 0 where the type has none */
export function smallIntegers(
  computation: Computation,
  random: Random = seededRandom(3),
  most = 3,
): Record<string, Float64Array> {
  return Object.fromEntries(
    inputsOf(computation).map((t) => {
      const least = rangeOf(t.dtype)[0] === 0 ? 0 : -most;
      return [t.name, Float64Array.from({ length: elementCount(t) }, () => randomInteger(random, least, most))];
    }),
  );
}

/** Inputs as their tensors lie in memory, zeros where nothing lies. */
export const inMemory = (computation: Computation, inputs: Inputs): Inputs =>
  Object.fromEntries(inputsOf(computation).map((t) => [t.name, toMemory(t, inputs[t.name] ?? [])]));

/** Every mapping that is valid, as operands are bound in the order of the equation. */
export const mappingsOnto = (computation: Computation, intrinsic: Intrinsic): readonly Mapping[] =>
  mappings(computation, intrinsic, { reasons: false }).valid;

/** @param matching as it is printed, `m <- n,p; n <- k; k <- c` */
export function mappingNamed(computation: Computation, intrinsic: Intrinsic, matching: string): Mapping {
  const valid = mappingsOnto(computation, intrinsic);
  const names = valid.map((m) => printMatching(m.matching).trim().replaceAll(/ {2,}/g, "; "));
  const found = valid[names.indexOf(matching)];
  if (!found) throw new Error(`no ${matching} among ${names.join(", ")}`);
  return found;
}

/** An operator in the types of an instruction, mapped onto it. */
export function mapped(words: string, instruction: string, matching: string): Mapping {
  const row = rowNamed(instruction);
  return mappingNamed(operation(words, row), row, matching);
}

/** The kernel of a mapping under a schedule. */
export const mappedKernel = (mapping: Mapping, schedule: Schedule): Kernel => {
  const { intrinsic, matching } = mapping;
  return generate({ kind: "mapping", intrinsic: intrinsic.name, matching, operands: {}, schedule }, mapping);
};
