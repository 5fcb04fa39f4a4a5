/**
 * @file Computes the expected output of a CUDA kernel on the device, by a plain kernel of the equation with one thread
 * for each element.
 *
 *     cudaReferenceSource(conv2d)      extern "C" int automap_reference(void* const* tensors, double* low, double* high, int exact, cudaStream_t)
 *
 * `low` and `high` are the smallest and largest accepted value for each element of the output's memory. Memory that
 * holds no element is left untouched, and so are elements whose sum is NaN, or infinite after rounding. The tolerance is
 * that of verify.ts, and the arithmetic that of the interpreter (`harness/arithmetic.h`). A test checks that both agree
 * with the interpreter.
 */

import {
  type Axis,
  type Computation,
  inputsOf,
  memoryElements,
  outputOf,
  type Tensor,
  targetOf,
} from "../abstraction/computation.ts";
import { isInteger } from "../abstraction/dtype.ts";
import { writesApart } from "../abstraction/elements.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { UsageError } from "../abstraction/error.ts";
import { accessesIn } from "../abstraction/expression.ts";
import { apart, axisName, type Code, code, lines, list, NOTHING, type SourceText } from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import { type BoundRule, boundRule } from "./error-bound.ts";
import { besideKernel, besideLaunch } from "./reference-cuda-beside.ts";
import {
  argumentsOf,
  bind,
  digitOf,
  ELEMENTS,
  foldStruct,
  held,
  parametersOf,
  placeStruct,
  THREADS,
} from "./reference-cuda-parts.ts";
import { cudaStepsSource } from "./reference-cuda-steps.ts";
import { printIndex, printValue, readName } from "./reference-expressions.ts";
import { INTERVALS, printEnds } from "./reference-intervals.ts";
import { dataName, declareTensor, harnessText, placeName } from "./reference-source.ts";
import { callsLibrary } from "./size.ts";

/** Sets of inputs as `draw` of harness/cuda-elements.h makes them. */
export const INEXACT_SETS = ["random", "extreme"] as const;

/** The sets that a computation is checked on. If float sums are exact in any order, a missing term shows. */
export function setsOf(computation: Computation): readonly ("exact" | (typeof INEXACT_SETS)[number])[] {
  return isInteger(targetOf(computation).dtype) ? INEXACT_SETS : ["exact", ...INEXACT_SETS];
}

/** The reference of a computation. @throws UsageError for a recurrence, and if several points meet in one element */
export function cudaReferenceSource(computation: Computation): SourceText {
  if (computation.time) return cudaStepsSource(computation, computation.time);
  const { sum, epilogue, beside } = partsOf(computation);
  const target = targetOf(sum);
  const output = outputOf(computation);
  if (accessesIn(sum.equation.value).some((a) => a.tensor === target.name))
    throw new UsageError(`${computation.name}: a recurrence has no reference on a device yet`);
  if (!writesApart(sum))
    throw new UsageError(
      `${computation.name}: several points meet in one element of the output: it has no reference on a device yet`,
    );
  const rule = boundRule(sum);
  const tensors = Object.values(computation.tensors);
  const kept = sum.axes.filter((a) => a.kind === "spatial");
  const points = kept.reduce((product, a) => product * a.extent, 1);
  const element = list(sum.equation.target.index.map((e) => printIndex(e)));
  const number = isInteger(target.dtype) ? "Int" : "double";
  const others = epilogue ? inputsOf(epilogue).filter((t) => t.name !== target.name) : [];
  const parameters = [
    code`Sum sum_of`,
    ...(rule ? [code`Size size_of`] : []),
    ...(epilogue ? [code`Result result_of`] : []),
    code`double* low`,
    code`double* high`,
    code`int exact`,
  ];
  const passed = [
    code`(void*)&sum_of`,
    ...(rule ? [code`(void*)&size_of`] : []),
    ...(epilogue ? [code`(void*)&result_of`] : []),
    code`(void*)&low`,
    code`(void*)&high`,
    code`(void*)&exact`,
  ];
  const text = lines([
    code`#define AUTOMAP_FUNCTION __host__ __device__`,
    apart(harnessText("arithmetic.h")),
    apart(ELEMENTS),
    foldStruct("Sum", sum, sum.equation.value, number, target.dtype, false),
    ...(rule ? [foldStruct("Size", sum, rule.magnitude.equation.value, "double", "f64", true)] : []),
    placeStruct(output),
    ...(epilogue ? [INTERVALS, epilogueStruct(epilogue, target)] : []),
    ...beside.map((other, i) => besideKernel(other, output, i)),
    code`__global__ void bounds(${list(parameters)}) {`,
    code`  const Int point = (Int)blockIdx.x * ${THREADS} + threadIdx.x;`,
    code`  if (point >= Int(${points})) return;`,
    ...kept.map((a, i) => code`  const Int ${axisName(a.name)} = ${digitOf(kept, i)};`),
    code`  const ${number} sum = sum_of.at(${argumentsOf(kept)});`,
    // Its tolerance would be infinite, and intervals of NaN contain every number.
    ...(isInteger(target.dtype) ? [] : [code`  if (${rule ? code`!is_finite(sum)` : code`is_nan(sum)`}) return;`]),
    code`  double least = double(sum), greatest = double(sum);`,
    ...(rule ? toleranceLines(rule, kept) : []),
    ...(epilogue ? epilogueLines(target, element) : []),
    epilogue
      ? code`  const Int place = result_of.place(${element});`
      : code`  const Int place = Place().${placeName(output.name)}(${element});`,
    code`  if (place < 0) return;`,
    code`  low[place] = least;`,
    code`  high[place] = greatest;`,
    code`}`,
    NOTHING,
    code`extern "C" int automap_reference(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream) {`,
    code`  Sum sum_of;`,
    ...bind(code`sum_of`, inputsOf(sum), tensors),
    ...(rule ? [code`  Size size_of;`, ...bind(code`size_of`, inputsOf(sum), tensors)] : []),
    ...(epilogue ? [code`  Result result_of = {};`, ...bind(code`result_of`, others, tensors)] : []),
    ...beside.flatMap((other, i) => besideLaunch(other, tensors, i)),
    code`  void* arguments[] = {${list(passed)}};`,
    code`  return (int)cudaLaunchKernel(bounds, dim3(${Math.ceil(points / THREADS)}), dim3(${THREADS}), arguments, 0, stream);`,
    code`}`,
    code`/* ${memoryElements(output)} elements of ${output.dtype} */`,
    NOTHING,
  ]);
  return spell(text, "cuda");
}

function toleranceLines(rule: BoundRule, kept: readonly Axis[]): Code[] {
  if (typeof rule.chain !== "number") throw new Error("internal: several points meet in one element");
  const { chain, operations, epsilon, smallest, integral, exactBelow } = rule;
  const fits = code`${integral ? "true" : "false"} && size <= ${exactBelow} && sum == __builtin_nearbyint(sum)`;
  return [
    code`  const double size = size_of.at(${argumentsOf(kept)});`,
    code`  const bool whole = exact && ${fits};`,
    code`  const double tolerance = whole ? 0 : ${chain + operations + 1} * (${epsilon} * size + ${smallest});`,
    code`  least -= tolerance, greatest += tolerance;`,
  ];
}

/**
 * A struct with the interval of the epilogue's result for that of a sum, `at(i, j)`, and its address, `place(i, j)`. Where the sum is known exactly, so
 * is the result, also one that wraps.
 */
function epilogueStruct(epilogue: Computation, sum: Tensor): Code {
  const { target, value, where } = epilogue.equation;
  const output = targetOf(epilogue);
  const dtypes = Object.fromEntries(Object.values(epilogue.tensors).map((t) => [t.name, t.dtype]));
  const others = inputsOf(epilogue).filter((t) => t.name !== sum.name);
  const axes = parametersOf(epilogue.axes);
  const data = dataName(sum.name);
  const place = list(target.index.map((e) => printIndex(e)));
  const ends = printEnds(value, dtypes, output.dtype, { tensor: sum.name, ends: code`${data}` });
  const type = isInteger(sum.dtype) ? "Int" : "double";
  const unused = list(sum.dims.map((_, d) => code`Int i${d}`));
  const exactly = [
    code`    if (${data}.low == ${data}.high) {`,
    code`      const double result = double(${output.dtype}::wrap(${printValue(value, dtypes, output.dtype)}));`,
    code`      if (!is_nan(result)) return {result, result};`,
    code`    }`,
  ];
  return lines([
    code`struct Result {`,
    ...others.map((t) => declareTensor(t, 0, held(t, false))),
    code`  Ends ${data};`,
    code`  ${type} known;`,
    code`  AUTOMAP_FUNCTION ${type} ${readName(sum.name)}(${unused}) const { return known; }`,
    code`  AUTOMAP_FUNCTION Ends at(${axes}) const {`,
    ...(callsLibrary(value) ? [] : exactly),
    code`    const Ends ends = ${ends};`,
    code`    return {double(${output.dtype}::wrap(ends.low)), double(${output.dtype}::wrap(ends.high))};`,
    code`  }`,
    code`  AUTOMAP_FUNCTION Int place(${axes}) const {`,
    ...(where === undefined ? [] : [code`    if (!${printIndex(where)}) return -1;`]),
    code`    return Place().${placeName(output.name)}(${place});`,
    code`  }`,
    code`};`,
  ]);
}

/** The interval of the epilogue's result for that of a sum. */
function epilogueLines(sum: Tensor, element: Code): Code[] {
  const { dtype } = sum;
  const type = isInteger(dtype) ? "Int" : "double";
  return [
    code`  result_of.known = ${type}(${dtype}::wrap(least));`,
    code`  result_of.${dataName(sum.name)} = {double(${dtype}::wrap(least)), double(${dtype}::wrap(greatest))};`,
    code`  const Ends result = result_of.at(${element});`,
    code`  least = result.low, greatest = result.high;`,
  ];
}
