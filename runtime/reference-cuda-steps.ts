/**
 * @file Computes the expected plane of a stencil's time steps on a device: one step as reference-cuda.ts computes an
 * equation, launched repeatedly.
 *
 *     find_largest(u_0)    step(u_0, even)    step(even, odd)    step(odd, even)    ...    keep(even, high)    find_spread(high)    bounds(low, high)
 *
 * The two planes of the steps are in the memory that receives the bounds at the end. The tolerance follows from the
 * largest element of the first plane (step-growth.ts). Results may have decayed below it, so that zeros would be
 * accepted. All bounds are then set to ones that nothing satisfies, infinity to -infinity, from which the comparison
 * sees that these inputs reveal nothing (`tells` in harness/cuda-elements.h).
 */

import { type Computation, inputsOf, memoryElements, outputOf, targetOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { apart, axisName, type Code, code, lines, list, NOTHING, type SourceText } from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import type { Time } from "../abstraction/time.ts";
import { boundRule } from "./error-bound.ts";
import { argumentsOf, digitOf, ELEMENTS, foldStruct, placeStruct, THREADS } from "./reference-cuda-parts.ts";
import { printIndex } from "./reference-expressions.ts";
import { dataName, harnessText, placeName } from "./reference-source.ts";

/**
 * The largest error accepted, relative to the largest element of the first plane. Beyond it, wrong results would pass.
 */
const MOST_OFF = 1 / 8;

/** Threads that search for the largest element, each in a part of the plane. */
const MOST_PARTS = 65_536;
/** Threads that search for the smallest and largest result. Their findings are in memory of the program. */
const MOST_SPREAD_PARTS = 4096;

/** The error of a result: `scale * (factor * largest + offset) + smallest`. */
interface Rounding {
  readonly scale: number;
  readonly exact: { readonly factor: number; readonly offset: number };
  readonly drawn: { readonly factor: number; readonly offset: number };
  readonly smallest: number;
  readonly integral: boolean;
  readonly exactBelow: number;
}

/**
 * The reference, with the same interface as for any computation.
 * @throws UsageError if the device cannot check by a rounding bound: coefficients are read from memory, differences
 * multiply one another, or results may be off by as much as they are large
 */
export function cudaStepsSource(computation: Computation, { step, first, steps }: Time): SourceText {
  const other = inputsOf(step).find((t) => t.name !== first);
  if (other)
    throw new UsageError(
      `${computation.name}: it reads ${other.name} beside the plane, and such steps have no reference on a device yet: write coefficients as numbers`,
    );
  const rounding = roundingOf(computation, steps);
  const output = outputOf(computation);
  const { dtype } = targetOf(step);
  const type = code`${C_TYPES[dtype]}`;
  const count = memoryElements(output);
  const data = dataName(first);
  // Two planes of 32-bit elements fit into the memory of one bound.
  const odd = bytesOf(dtype) < 8 ? code`(${type}*)low + ${count}` : code`(${type}*)high`;
  const point = [
    code`  const Int point = (Int)blockIdx.x * ${THREADS} + threadIdx.x;`,
    code`  if (point >= Int(${count})) return;`,
  ];
  const parts = Math.min(count, MOST_PARTS);
  const spreadParts = Math.min(count, MOST_SPREAD_PARTS);
  const launched = (kernel: Code, given: Code, threads = count): Code =>
    code`{ void* arguments[] = {${given}}; if (!error) error = (int)cudaLaunchKernel(${kernel}, dim3(${Math.ceil(threads / THREADS)}), dim3(${Math.min(threads, THREADS)}), arguments, 0, stream); }`;
  const element = list(step.equation.target.index.map((e) => printIndex(e)));
  const text = lines([
    code`#define AUTOMAP_FUNCTION __host__ __device__`,
    apart(harnessText("arithmetic.h")),
    apart(ELEMENTS),
    foldStruct("Sum", step, step.equation.value, "double", dtype, false),
    placeStruct(output),
    ...largestLines(type, count, parts),
    code`__global__ void step(Sum sum_of, ${type}* to) {`,
    ...point,
    ...step.axes.map((a, i) => code`  const Int ${axisName(a.name)} = ${digitOf(step.axes, i)};`),
    code`  const Int place = Place().${placeName(output.name)}(${element});`,
    code`  if (place >= 0) to[place] = (${type})sum_of.at(${argumentsOf(step.axes)});`,
    code`}`,
    code`__global__ void keep(const ${type}* from, double* high) {`,
    ...point,
    code`  high[point] = (double)from[point];`,
    code`}`,
    code`static __device__ double tolerance_of(double value, int exact) {`,
    ...toleranceLines(rounding),
    code`  return tolerance;`,
    code`}`,
    ...spreadLines(count, spreadParts),
    code`__global__ void bounds(double* low, double* high, int exact) {`,
    ...point,
    code`  const double value = high[point], tolerance = tolerance_of(value, exact);`,
    code`  low[point] = tells_apart ? value - tolerance : __builtin_huge_val();`,
    code`  high[point] = tells_apart ? value + tolerance : -__builtin_huge_val();`,
    code`}`,
    NOTHING,
    code`extern "C" int automap_reference(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream) {`,
    code`  Sum sum_of;`,
    code`  const ${type}* from = (const ${type}*)tensors[${Object.keys(computation.tensors).indexOf(first)}];`,
    code`  ${type}* const planes[2] = {(${type}*)low, ${odd}};`,
    code`  int error = 0;`,
    code`  ${launched(code`find_parts`, code`(void*)&from, (void*)&low`, parts)}`,
    code`  ${launched(code`find_largest`, code`(void*)&low`, 1)}`,
    code`  for (int t = 0; t < ${steps}; t++) {`,
    code`    ${type}* to = planes[t % 2];`,
    code`    sum_of.${data}.data = from;`,
    code`    ${launched(code`step`, code`(void*)&sum_of, (void*)&to`)}`,
    code`    from = to;`,
    code`  }`,
    code`  ${launched(code`keep`, code`(void*)&from, (void*)&high`)}`,
    code`  ${launched(code`find_spreads`, code`(void*)&high, (void*)&exact`, spreadParts)}`,
    code`  ${launched(code`find_spread`, NOTHING, 1)}`,
    code`  ${launched(code`bounds`, code`(void*)&low, (void*)&high, (void*)&exact`)}`,
    code`  return error;`,
    code`}`,
    NOTHING,
  ]);
  return spell(text, "cuda");
}

/** Finds the largest element of the first plane: each thread in a part of it, then one thread among their results. */
function largestLines(type: Code, count: number, parts: number): Code[] {
  return [
    code`static __device__ double largest;`,
    code`__global__ void find_parts(const ${type}* plane, double* parts) {`,
    code`  const Int part = (Int)blockIdx.x * ${THREADS} + threadIdx.x;`,
    code`  if (part >= Int(${parts})) return;`,
    code`  double most = 0;`,
    code`  for (Int i = part; i < Int(${count}); i += Int(${parts})) {`,
    code`    const double size = __builtin_fabs((double)plane[i]);`,
    code`    if (size > most) most = size;`,
    code`  }`,
    code`  parts[part] = most;`,
    code`}`,
    code`__global__ void find_largest(const double* parts) {`,
    code`  double most = 0;`,
    code`  for (Int part = 0; part < Int(${parts}); part++) most = parts[part] > most ? parts[part] : most;`,
    code`  largest = most;`,
    code`}`,
  ];
}

/**
 * Whether wrong results would show, as in `tells` of verify.ts: the tolerance must be less than the spread of the
 * results, or, for a single result, less than the result.
 */
function spreadLines(count: number, parts: number): Code[] {
  return [
    code`static __device__ double least_of[${parts}], most_of[${parts}], widest_of[${parts}];`,
    code`static __device__ bool tells_apart;`,
    code`__global__ void find_spreads(const double* values, int exact) {`,
    code`  const Int part = (Int)blockIdx.x * ${THREADS} + threadIdx.x;`,
    code`  if (part >= Int(${parts})) return;`,
    code`  double least = __builtin_huge_val(), most = -__builtin_huge_val(), widest = 0;`,
    code`  for (Int i = part; i < Int(${count}); i += Int(${parts})) {`,
    code`    const double value = values[i];`,
    // NaN marks memory that holds no element.
    code`    if (value != value) continue;`,
    code`    const double slack = tolerance_of(value, exact);`,
    code`    if (value < least) least = value;`,
    code`    if (value > most) most = value;`,
    code`    if (slack > widest) widest = slack;`,
    code`  }`,
    code`  least_of[part] = least, most_of[part] = most, widest_of[part] = widest;`,
    code`}`,
    code`__global__ void find_spread() {`,
    code`  double least = __builtin_huge_val(), most = -__builtin_huge_val(), widest = 0;`,
    code`  for (Int part = 0; part < Int(${parts}); part++) {`,
    code`    if (least_of[part] < least) least = least_of[part];`,
    code`    if (most_of[part] > most) most = most_of[part];`,
    code`    if (widest_of[part] > widest) widest = widest_of[part];`,
    code`  }`,
    code`  const double spread = ${count === 1 ? "__builtin_fabs(most)" : "most - least"};`,
    code`  tells_apart = widest == 0 ? least <= most : 2 * widest < spread;`,
    code`}`,
  ];
}

/** Undefined if results are exact. @throws UsageError if there is no bound, or it is too large */
function roundingOf(computation: Computation, steps: number): Rounding | undefined {
  const rule = boundRule(computation);
  if (!rule) return undefined;
  const { growth, chain } = rule;
  if (!growth || typeof chain !== "number")
    throw new UsageError(
      `${computation.name}: differences of planes multiply one another, so nothing bounds its rounding on a device`,
    );
  const scale = (chain + rule.operations + 1) * rule.epsilon;
  const off = scale * (growth.drawn.factor + growth.drawn.offset);
  if (off > MOST_OFF)
    throw new UsageError(
      `${computation.name}: after ${steps} steps rounding may be ${off.toPrecision(2)} times the first plane, and wrong results would pass: take fewer steps`,
    );
  const smallest = (chain + rule.operations + 1) * rule.smallest;
  const { integral, exactBelow } = rule;
  return { scale, smallest, integral, exactBelow, exact: growth.whole, drawn: growth.drawn };
}

function toleranceLines(rounding: Rounding | undefined): Code[] {
  if (!rounding) return [code`  const double tolerance = 0;`, code`  (void)exact;`];
  const { scale, exact, drawn, smallest, integral, exactBelow } = rounding;
  return [
    code`  const double size = exact ? ${exact.factor} * largest + ${exact.offset} : ${drawn.factor} * largest + ${drawn.offset};`,
    code`  const bool whole = exact && ${integral ? "true" : "false"} && size <= ${exactBelow} && value == __builtin_nearbyint(value);`,
    code`  const double tolerance = whole ? 0 : ${scale} * size + ${smallest};`,
  ];
}
