/**
 * @file The reference of a kernel: inputs from a seed, the expected output, and the error bound of each element.
 *
 *     const reference = await referenceFor(conv2d, 1, { compiler, workdir });
 *     reference.sets[1]      { name: "random", inputs: { in: bytes, w: bytes }, expected, tolerance }
 *
 * Sets of inputs:
 *
 * - `exact` (float results only): small integers, whose sums are exact in any order. A term that is lost shows here; in
 * a long
 *   sum of fractions it would drown in the tolerance
 * - `random`: integers of the whole range, fractions between -1 and 1
 * - `extreme`: the ends of the integer types, which make saturating instructions saturate; floats of very unequal size
 *
 * Integer results are exact, unless a function of floats makes them. A float may be off by
 *
 *     (terms + operations + 1) * (eps * sum of |terms| + smallest normal number)
 *
 * with eps of the coarsest type the value is computed in: an upper bound for any order of summation and with or without
 * fused multiply-adds (Higham, Accuracy and Stability, section 4.2), and for units that flush subnormal numbers. Where
 * the answer is infinite or NaN, nothing else passes; NaN passes nowhere else.
 *
 * An epilogue is exact, operation by operation, but for functions of floats: of integer sums it makes exact outputs
 * without these, of float sums whatever it makes of the sums within their tolerance (interval.ts).
 */

import { affineForm, evaluateIndex } from "../../abstraction/affine.ts";
import { mapValues, sumOf } from "../../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  liesRowMajor,
  memoryElements,
  outputOf,
  pointCount,
  type Tensor,
  targetOf,
} from "../../abstraction/computation.ts";
import { isInteger, rangeOf, wrap } from "../../abstraction/dtype.ts";
import { partsOf, together } from "../../abstraction/epilogue.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { boundOfForm } from "../../abstraction/winograd.ts";
import { encodeElements } from "../bytes.ts";
import type { SetFiles } from "../harness/run.ts";
import { callsLibrary } from "../size.ts";
import { drawElements, drawInputs, type SetName } from "./draw-inputs.ts";
import { type Bound, boundOf, type Evaluate, toleranceOf } from "./error-bound.ts";
import { endsByDirection, intervalsOf } from "./interval.ts";
import { largestInput } from "./largest-input.ts";
import { interpretCompiled, type ProgramOptions } from "./reference-program.ts";
import { tensorsBeside } from "./value-facts.ts";

export interface ReferenceSet {
  readonly name: SetName;
  /** The tensor that the answers are of, where a program stores others besides its output. */
  readonly of?: Tensor;
  /** Bytes of each input in memory order, by tensor. */
  readonly inputs: Readonly<Record<string, Uint8Array>>;
  /** In the memory order of the output, or of the tensor that they are of. */
  readonly expected: Float64Array;
  /** The largest |got - expected| accepted, element by element. */
  readonly tolerance: Float64Array;
  /** The same for kernels of another form; left out where the computation has none. */
  readonly looser?: Float64Array;
  /** The files that already contain it. */
  readonly files?: SetFiles;
}

export interface Reference {
  readonly computation: Computation;
  readonly sets: readonly ReferenceSet[];
  /**
   * For time steps: sets of inputs that could not distinguish wrong results from right ones, with the reason. By
   * default none.
   */
  readonly leftOut?: readonly { readonly name: ReferenceSet["name"]; readonly because: string }[];
  /** 0 where the output's memory holds no element (holes of a blocked layout); undefined if there are no holes. */
  readonly checked: Uint8Array | undefined;
}

export interface ReferenceOptions extends ProgramOptions {
  /** Values that the operator fixes (1/n, a triangle of ones), row-major, the same in every set. */
  readonly fixed?: Inputs;
  /** The sets that are wanted, of those that there are for the type; by default all. */
  readonly sets?: readonly SetName[];
}

/**
 * The number of points up to which the interpreter is as fast as compiling a program (about half a second; Xeon,
 * 2026-11-21).
 */
const INTERPRETED_POINTS = 2e6;

/** Evaluates with the interpreter, or, for many points, with a compiled program. */
export const evaluatorWith =
  (options: ProgramOptions): Evaluate =>
  (what, inputs) =>
    pointCount(what) <= INTERPRETED_POINTS ? interpret(what, inputs) : interpretCompiled(what, inputs, options);

/** The reference of a computation. The same seed gives the same bytes. */
export async function referenceFor(
  computation: Computation,
  seed: number,
  options: ReferenceOptions,
): Promise<Reference> {
  const output = outputOf(computation);
  const names: ReferenceSet["name"][] = isInteger(targetOf(computation).dtype)
    ? ["random", "extreme"]
    : ["exact", "random", "extreme"];
  const wanted = names.filter((name) => options.sets?.includes(name) ?? true);
  if (wanted.length === 0) internal("no set of inputs is left to check with");
  const { time } = computation;
  const evaluate = evaluatorWith(options);
  const bound = await boundOf(partsOf(computation).sum, evaluate);
  const sets: ReferenceSet[] = [];
  const leftOut: { name: ReferenceSet["name"]; because: string }[] = [];
  for (const name of wanted) {
    if (time && name === "exact" && bound?.integral === false) {
      leftOut.push({ name, because: whyLeftOut(time.steps, "fractions") });
      continue;
    }
    const { inputs, expected, tolerance, looser } = await drawSet(computation, name, seed, options, bound, evaluate);
    // The tolerance of a sum is a small share of the result, but time steps may amplify rounding errors beyond it.
    if (time && !tells(expected, tolerance)) {
      leftOut.push({ name, because: whyLeftOut(time.steps, "rounding") });
      continue;
    }
    const random = seededRandom(seed);
    sets.push({
      name,
      inputs: Object.fromEntries(
        inputsOf(computation).map((tensor) => {
          // Holes are filled with values of the type, so that a kernel which reads them as data is caught.
          const [min, max] = isInteger(tensor.dtype) ? rangeOf(tensor.dtype) : [-3, 3];
          const hole = (): number => wrap(tensor.dtype, randomInteger(random, min, max));
          return [tensor.name, encodeElements(tensor.dtype, toMemory(tensor, inputs[tensor.name] ?? [], hole))];
        }),
      ),
      expected: toMemory(output, expected),
      tolerance: toMemory(output, tolerance),
      ...(looser && { looser: toMemory(output, looser) }),
    });
  }
  if (time && sets.length === 0) throw unverifiable(computation.name, time.steps);
  return { computation, sets, checked: checkedIn(output), ...(leftOut.length > 0 && { leftOut }) };
}

/** 0 where the memory of a tensor holds no element; undefined if there are no holes. */
export function checkedIn(output: Tensor): Uint8Array | undefined {
  if (memoryElements(output) === elementCount(output)) return undefined;
  return Uint8Array.from(toMemory(output, new Float64Array(elementCount(output)).fill(1)));
}

/** The reason why a set is left out for time steps: they make fractions of integers, or rounding would hide wrong results. */
export function whyLeftOut(steps: number, cause: "fractions" | "rounding"): string {
  return cause === "fractions"
    ? "steps by fractions make no whole numbers of whole numbers"
    : `rounding of ${steps} steps may differ by as much as the answers do`;
}

/** The error if no inputs can distinguish wrong results of time steps from right ones. */
export function unverifiable(name: string, steps: number): UsageError {
  return new UsageError(
    `${name}: kernels of ${steps} steps cannot be verified: rounding may differ by as much as the answers do`,
    "take fewer steps, or coefficients whose sizes add up to 1 at most",
  );
}

/**
 * Whether wrong results would show, as {@link tellsApart} says of the largest tolerance of any element.
 */
export function tells(expected: Values, tolerance: Float64Array): boolean {
  let least = Number.POSITIVE_INFINITY;
  let most = Number.NEGATIVE_INFINITY;
  let widest = 0;
  for (let i = 0; i < expected.length; i++) {
    const [value = 0, slack = 0] = [expected[i], tolerance[i]];
    if (!Number.isFinite(value)) return false;
    [least, most] = [Math.min(least, value), Math.max(most, value)];
    if (!(slack <= widest)) widest = slack;
  }
  return tellsApart(least, most, expected.length, widest);
}

/**
 * Whether results in a range would reveal wrong ones under a single tolerance, which must be less than half of their
 * spread, or, for a single result, less than half of it.
 */
export function tellsApart(least: number, most: number, answers: number, within: number): boolean {
  const spread = answers === 1 ? Math.abs(most) : most - least;
  return within === 0 || 2 * within < spread;
}

/** Row-major values in memory order, with zeros in between unless `hole` makes others. Returns the same array if the order is the same. */
export function toMemory(tensor: Tensor, values: ArrayLike<number>, hole = (): number => 0): Float64Array {
  const elements = memoryElements(tensor);
  const places = placesOf(tensor);
  if (places === undefined && values instanceof Float64Array && values.length === elements) return values;
  const memory = new Float64Array(elements);
  if (elements > elementCount(tensor)) for (let i = 0; i < elements; i++) memory[i] = hole();
  for (let i = 0; i < values.length; i++) memory[places ? (places[i] ?? 0) : i] = values[i] ?? 0;
  return memory;
}

/** Row-major values from memory. */
export function fromMemory(tensor: Tensor, memory: ArrayLike<number>): Float64Array {
  const places = placesOf(tensor);
  return Float64Array.from({ length: elementCount(tensor) }, (_, i) => memory[places ? (places[i] ?? 0) : i] ?? 0);
}

/** The memory index of every logical element in row-major order; undefined if they are equal. */
function placesOf(tensor: Tensor): Int32Array | undefined {
  if (liesRowMajor(tensor)) return undefined;
  const { dims, storage } = tensor;
  const places = new Int32Array(elementCount(tensor));
  const affine = affineForm(storage);
  const point: Record<string, number> = {};
  let next = 0;
  let same = true;
  const descend = (depth: number, sum: number): void => {
    const dim = dims[depth];
    if (!dim) {
      const place = affine ? sum : evaluateIndex(storage, point);
      if (place !== next) same = false;
      places[next++] = place;
      return;
    }
    const step = affine?.terms.get(dim.name) ?? 0;
    for (let i = 0; i < dim.extent; i++) {
      if (!affine) point[dim.name] = i;
      descend(depth + 1, sum + i * step);
    }
  };
  descend(0, affine?.constant ?? 0);
  return same ? undefined : places;
}

// ------------------------------------------------------------------------------------------------- one set

interface DrawnSet {
  readonly inputs: Readonly<Record<string, Float64Array>>;
  readonly expected: Values;
  readonly tolerance: Float64Array;
  readonly looser?: Float64Array;
}

async function drawSet(
  computation: Computation,
  name: ReferenceSet["name"],
  seed: number,
  options: ReferenceOptions,
  bound: Bound | undefined,
  evaluate: Evaluate,
): Promise<DrawnSet> {
  const { sum, epilogue, beside } = partsOf(computation);
  const { fixed = {}, signal } = options;
  const form = boundOfForm(computation);
  // Large products may overflow the type, so smaller values are drawn until every sum fits.
  for (let large = largestInput(sum); ; large = Math.sqrt(large)) {
    const smaller = name === "extreme" && large > 2;
    const inputs = await drawInputs(sum, name, { large, seed, fixed, scale: bound?.growth?.scale, signal });
    // In parallel, since large ones run as separate programs.
    const [expected, sizes] = await Promise.all([
      evaluate(sum, inputs),
      bound &&
        (sizesByGrowth(sum, bound, inputs, name, fixed) ?? evaluate(bound.magnitude, inputsOfSizes(bound, inputs))),
    ]);
    const tolerance = new Float64Array(expected.length);
    if (bound && sizes) {
      // Values that the operator fixes may be fractions, whose sum may be an integer by chance.
      const isWhole = name === "exact" && Object.values(inputs).every((values) => values.every(Number.isInteger));
      if (smaller && sizes.some((size) => !(size * (form?.growth ?? 1) < bound.roof))) continue;
      for (let i = 0; i < sizes.length; i++)
        tolerance[i] = toleranceOf(bound, bound.terms[i] ?? 1, sizes[i] ?? 0, expected[i] ?? 0, isWhole);
    }
    const looser =
      form &&
      tolerance.map((off, i) =>
        Number.isFinite(expected[i]) ? Math.max(form.factor * off, name === "exact" ? form.integer : 0) : 0,
      );
    if (!epilogue) return { inputs, expected, tolerance, ...(looser && { looser }) };
    const all = { ...inputs };
    for (const part of [epilogue, ...beside])
      Object.assign(
        all,
        await drawEpilogueInputs(part, targetOf(sum).name, expected, name, seed, { ...fixed, ...all }, signal),
      );
    const finishedWithin = (off: Float64Array) =>
      finish({ epilogue, beside }, all, targetOf(sum).name, { expected, tolerance: off }, options);
    const finished = await finishedWithin(tolerance);
    if (smaller && bound && ![finished.expected, finished.tolerance].every((all) => all.every(Number.isFinite)))
      continue;
    return { inputs: all, ...finished, ...(looser && { looser: (await finishedWithin(looser)).tolerance }) };
  }
}

/** The epilogue's results for sums, and for all values within their tolerance. */
export async function finish(
  { epilogue, beside }: { readonly epilogue: Computation; readonly beside: readonly Computation[] },
  inputs: Readonly<Record<string, Float64Array>>,
  sum: string,
  { expected, tolerance }: Pick<DrawnSet, "expected" | "tolerance">,
  options: ProgramOptions,
): Promise<Pick<DrawnSet, "expected" | "tolerance">> {
  const evaluate = evaluatorWith(options);
  const finished = await evaluate(epilogue, { ...inputs, [sum]: expected });
  const output = together(finished, await Promise.all(beside.map((other) => evaluate(other, inputs))));
  if (tolerance.every((x) => x === 0) && !callsLibrary(epilogue.equation.value))
    return { expected: output, tolerance: new Float64Array(output.length) };
  const ends = {
    low: expected.map((x, i) => x - (tolerance[i] ?? 0)),
    high: expected.map((x, i) => x + (tolerance[i] ?? 0)),
  };
  const { low, high } =
    (beside.length === 0 ? await endsByDirection(epilogue, inputs, sum, ends, evaluate) : undefined) ??
    (await intervalsOf(epilogue, inputs, sum, ends, options));
  const reach = output.map((x, i) => {
    const least = low[i] ?? Number.NaN;
    const most = high[i] ?? Number.NaN;
    // The others have no interval: they are not stored by this epilogue.
    return Number.isFinite(x) && !Number.isNaN(least) && !Number.isNaN(most) ? Math.max(x - least, most - x) : 0;
  });
  return { expected: output, tolerance: reach };
}

/**
 * Draws factors and terms of such a size that results cover the whole range of the output, both ends and the values
 * between.
 * @throws the reason of the signal
 */
async function drawEpilogueInputs(
  epilogue: Computation,
  sum: string,
  sums: Values,
  name: ReferenceSet["name"],
  seed: number,
  known: Inputs,
  signal: AbortSignal | undefined,
): Promise<Record<string, Float64Array>> {
  const random = seededRandom(seed * 3 + { exact: 0, random: 1, extreme: 2 }[name] + 1000);
  const spread = Math.sqrt(sumOf(sums, (x) => (x / sums.length) * x)) || 1;
  const output = outputOf(epilogue).dtype;
  const aim = isInteger(output) ? (rangeOf(output)[1] - rangeOf(output)[0]) / 2 : spread;
  const factors = tensorsBeside("*", epilogue);
  const divisors = tensorsBeside("/", epilogue);
  const ratio = isInteger(output) ? aim / spread : 1;
  const value = (tensor: Tensor): number => {
    const [min, max] = rangeOf(tensor.dtype);
    if (name === "extreme" && isInteger(tensor.dtype) && random() < 0.25) return random() < 0.5 ? min : max;
    const sign = random() < 0.125 ? -1 : 1;
    const factor = sign * (0.25 + 1.5 * random());
    const drawn = divisors.has(tensor.name)
      ? factor / ratio
      : factors.has(tensor.name)
        ? factor * ratio
        : (2 * random() - 1) * aim;
    return wrap(tensor.dtype, Math.min(max, Math.max(min, isInteger(tensor.dtype) ? Math.round(drawn) || 1 : drawn)));
  };
  const drawn: Record<string, Float64Array> = {};
  for (const t of inputsOf(epilogue)) {
    if (t.name === sum) continue;
    const given = known[t.name];
    drawn[t.name] = given ? Float64Array.from(given) : await drawElements(elementCount(t), signal, () => value(t));
  }
  return drawn;
}

/** The sizes of results that follow from the largest element of the first plane. */
function sizesByGrowth(
  { time }: Computation,
  { growth }: Bound,
  inputs: Readonly<Record<string, Float64Array>>,
  name: ReferenceSet["name"],
  fixed: Inputs,
): Values | undefined {
  const first = time && inputs[time.first];
  if (!growth || !first || Object.keys(fixed).some((tensor) => tensor !== time.first)) return undefined;
  let largest = 0;
  for (const value of first) largest = Math.max(largest, Math.abs(value));
  const { factor, offset } = name === "exact" ? growth.whole : growth.drawn;
  return new Float64Array(first.length).fill(factor * largest + offset);
}

/** The inputs from which the sizes of a bound are computed. */
export function inputsOfSizes(
  { absolute }: Bound,
  inputs: Readonly<Record<string, Float64Array>>,
): Readonly<Record<string, Float64Array>> {
  if (!absolute) return inputs;
  return mapValues(inputs, (values) => values.map(Math.abs));
}
