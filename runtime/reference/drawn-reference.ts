/**
 * @file The reference of a large computation: a program draws the inputs and computes the results with all threads. The
 * elements stay in files that the measuring program maps. 8192 x 8192 elements take seconds in JavaScript, and tenths
 * of a second this way.
 *
 *     await drawnReference(conv2d, 1, { compiler, workdir, folder })      undefined if verify.ts has to draw them
 *
 * Integers are compared bit by bit. For floats one bound applies to all elements of a set: that of error-bound.ts, where `size` is that of a sum of inputs that
 * are all as large as the largest. The files of a set are its inputs and its results, each in the type and the order of
 * its tensor.
 */

import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasName, mapValues, sumOf } from "../../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  liesRowMajor,
  memoryElements,
  outputOf,
  pointCount,
  targetOf,
} from "../../abstraction/computation.ts";
import { isRecurrent } from "../../abstraction/dependence.ts";
import { isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  accessesIn,
  changeParts,
  comparesElements,
  type Expr,
  number,
  readsInIndex,
  walk,
} from "../../abstraction/expression.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { DTypes } from "../../abstraction/typing.ts";
import { valueRange } from "../../abstraction/value-range.ts";
import { boundOfForm } from "../../abstraction/winograd.ts";
import { decodeElements, encodeElements } from "../bytes.ts";
import type { SetFiles } from "../harness/run.ts";
import { drawnIndices, type SetName } from "./draw-inputs.ts";
import { drawnSource, isFinishedByProgram } from "./drawn-source.ts";
import { type BoundRule, boundRule, toleranceOf } from "./error-bound.ts";
import { largestInput } from "./largest-input.ts";
import { compiledReference, type ProgramOptions, runReference } from "./reference-program.ts";
import { sharedAxis } from "./reference-source.ts";
import { sizeAt } from "./step-growth.ts";
import {
  checkedIn,
  type Reference,
  type ReferenceSet,
  tellsApart,
  toMemory,
  unverifiable,
  whyLeftOut,
} from "./verify.ts";

/**
 * The number of input and output elements from which files pay. Fewer elements are drawn in the time that the program
 * takes to compile.
 */
const LARGE_ELEMENTS = 2 ** 22;
/**
 * The number of points from which the program pays, however few the elements: verify.ts evaluates a computation of floats six times, at 4 M points a
 * second, while nothing is enumerated. The program compiles beside that, and once for all computations of a form (Zen 5, 2026-11-30).
 */
const LARGE_POINTS = 2 ** 18;
/** The same for steps in time, whose sets tell less apart with one bound for all elements than with a bound for each. */
const LARGE_STEPS = 2 ** 25;

const SETS = ["exact", "random", "extreme"] as const;
/** Candidates for the largest integer of an exact set. The first for which every sum is exact is taken. */
const WHOLE = [3, 2, 1] as const;
/** The largest fraction of a random set; `draw` of harness/drawn.h. */
const FRACTIONS = 1;
/** An epilogue's factors are below 2 and its terms about as large as sums, so a few of them stay within 16 times a sum. */
const ROOM_OF_EPILOGUE = 16;

interface DrawnOptions extends ProgramOptions {
  /** The folder for the files. The caller deletes them. */
  readonly folder: string;
  /** Values that the operator fixes, row-major, the same in every set. */
  readonly fixed?: Inputs;
  /** The sets that are wanted; by default all. Results that are integers have no exact set. */
  readonly sets?: readonly SetName[];
  /** The number of elements from which the program is used for few points too. */
  readonly least?: number;
}

/** Whether a program draws the inputs of a computation too; if not, verify.ts does. */
export function isDrawnByProgram(computation: Computation, fixed: Inputs = {}): boolean {
  return ruleOfDrawn(computation, LARGE_ELEMENTS, fixedOf(givenTo(computation, 1, fixed))) !== undefined;
}

/** What the program is given: values that the operator fixes, and inputs that only say which elements are meant. */
const givenTo = (computation: Computation, seed: number, fixed: Inputs = {}): Inputs => ({
  ...drawnIndices(computation, seed),
  ...fixed,
});

/** Undefined if a computation is small, or does not consist of products and sums, with an epilogue that never turns. */
export async function drawnReference(
  computation: Computation,
  seed: number,
  given: DrawnOptions,
): Promise<Reference | undefined> {
  const options = { ...given, fixed: givenTo(computation, seed, given.fixed) };
  const fixed = fixedOf(options.fixed);
  const rule = ruleOfDrawn(computation, options.least ?? LARGE_ELEMENTS, fixed);
  if (!rule) return undefined;
  const names = SETS.filter((name) => options.sets?.includes(name) ?? true);
  if (rule === "exact") {
    const wanted = names.filter((name) => name !== "exact").map((name) => ({ name, largest: 0, within: 0, looser: 0 }));
    if (wanted.length === 0) internal("no set of inputs is left to check with");
    return referenceOf(computation, names, await storedSets(computation, seed, wanted, options));
  }
  const { time } = computation;
  const { sum } = partsOf(computation);
  const exact = largestExact(sum, rule, fixed);
  // A single bound for all elements can hide a missing term of a long sum. So without an exact set, verify.ts is used,
  // which bounds each element.
  if (!time && exact === undefined) return undefined;
  const form = boundOfForm(computation);
  const wanted = names.flatMap((name) => {
    if (name === "exact" && time && !rule.integral) return [];
    if (name === "exact" && exact !== undefined)
      return [{ name, largest: exact, within: 0, looser: form?.integer ?? 0 }];
    const largest =
      name === "extreme" ? largestThatFits(computation, rule, fixed) : name === "exact" ? WHOLE[0] : FRACTIONS;
    const size = sizeOfAll(sum, rule, name, sizesOf(sum, name, largest, fixed));
    const within = toleranceOf(rule, rule.chain, size, 0);
    return [{ name, largest, within, looser: (form?.factor ?? 0) * within }];
  });
  return referenceOf(computation, names, await storedSets(computation, seed, wanted, options), rule.integral);
}

/** @param integral whether steps in time make integers of integers */
function referenceOf(
  computation: Computation,
  names: readonly SetName[],
  stored: readonly Stored[] | undefined,
  integral = true,
): Reference | undefined {
  if (!stored) return undefined;
  const { time } = computation;
  const sets = stored.filter(({ tells }) => !time || tells).map(({ set }) => set);
  const reference = { computation, sets, checked: checkedIn(outputOf(computation)) };
  if (!time) return reference;
  if (sets.length === 0) throw unverifiable(computation.name, time.steps);
  const leftOut = names
    .filter((name) => !hasName(sets, name))
    .map((name) => ({
      name,
      because: whyLeftOut(time.steps, name === "exact" && !integral ? "fractions" : "rounding"),
    }));
  return { ...reference, ...(leftOut.length > 0 && { leftOut }) };
}

type Rule = Omit<BoundRule, "chain"> & { readonly chain: number };

/** The error bound of its results, or that they are exact; undefined if the program does not support the computation. */
function ruleOfDrawn(
  computation: Computation,
  least: number,
  fixed: ReadonlyMap<string, Fixed>,
): Rule | "exact" | undefined {
  const { time, program } = computation;
  if (program) return undefined;
  const { sum } = partsOf(computation);
  const { equation } = sum;
  const tensors = Object.values(sum.tensors);
  const elements = sumOf(Object.values(computation.tensors), elementCount);
  if (elements < least && pointCount(computation) < (time ? LARGE_STEPS : LARGE_POINTS)) return undefined;
  if (equation.op !== "+=" && equation.op !== "=") return undefined;
  if (time && !tensors.every(liesRowMajor)) return undefined;
  if (time ? inputsOf(computation).length > 1 || fixed.size > 0 : isRecurrent(equation) || !sharedAxis(sum))
    return undefined;
  if (time && !sharedAxis(time.step)) return undefined;
  const deciding = [
    ...accessesIn(equation.value).flatMap(readsInIndex),
    ...(equation.where === undefined ? [] : accessesIn(equation.where)),
  ];
  if (!deciding.every(({ tensor }) => fixed.has(tensor))) return undefined;
  if ([...walk(equation.value)].some((e) => e.kind === "compare" && comparesElements(e))) return undefined;
  const isExact = !time && tensors.every(({ dtype }) => isInteger(dtype));
  if (!isFinishedByProgram(computation, isExact)) return undefined;
  const types = mapValues(sum.tensors, ({ dtype }) => dtype);
  if (isExact) return isOfIntegers(equation.value, types) ? "exact" : undefined;
  if (!consistsOfProducts(withoutIntegers(sum).equation.value) && !time) return undefined;
  if (time && !tensors.every(({ dtype }) => dtype === "f32" || dtype === "f64")) return undefined;
  const rule = boundRule(sum);
  if (!rule || typeof rule.chain !== "number") return undefined;
  if (time && !rule.growth) return undefined;
  return { ...rule, chain: rule.chain };
}

/**
 * The sum of floats with the largest value of each part that computes with integers, such as the half of a byte, in the part's place.
 *
 *     a[m,k] * (f32(w[n,k/2] / 16) - 8)      ->      a[m,k] * (f32(15) - 8)
 */
function withoutIntegers(sum: Computation): Computation {
  if (isInteger(targetOf(sum).dtype)) return sum;
  const types = mapValues(sum.tensors, ({ dtype }) => dtype);
  const put = (e: Expr): Expr => {
    if (e.kind === "access" || !isOfIntegers(e, types)) return changeParts(e, put);
    const [least, most] = valueRange(e, types) ?? internal("an integer without a range");
    return number(Math.max(-least, most));
  };
  return { ...sum, equation: { ...sum.equation, value: put(sum.equation.value) } };
}

/** Whether a value is computed from elements in integers alone, which are exact. */
function isOfIntegers(e: Expr, types: DTypes): boolean {
  switch (e.kind) {
    case "number":
      return Number.isInteger(e.value);
    case "access":
      return isInteger(types[e.tensor] ?? "f32");
    case "cast":
      return isInteger(e.dtype) && isOfIntegers(e.value, types);
    case "binary": {
      const isQuotient = e.op === "/" || e.op === "%";
      // A kernel may end where a divisor is 0.
      if (isQuotient && (e.right.kind !== "number" || e.right.value === 0)) return false;
      return isOfIntegers(e.left, types) && isOfIntegers(e.right, types);
    }
    case "negate":
      return isOfIntegers(e.value, types);
    case "select":
      return isOfIntegers(e.whenTrue, types) && isOfIntegers(e.whenFalse, types);
    default:
      return false;
  }
}

/** Whether a value consists of sums, differences and products of floats. */
function consistsOfProducts(e: Expr): boolean {
  switch (e.kind) {
    case "number":
    case "access":
      return true;
    case "negate":
      return consistsOfProducts(e.value);
    case "cast":
      return !isInteger(e.dtype) && consistsOfProducts(e.value);
    case "binary":
      return ["*", "+", "-"].includes(e.op) && consistsOfProducts(e.left) && consistsOfProducts(e.right);
    default:
      return false;
  }
}

/** Facts about values that an operator fixes. */
interface Fixed {
  readonly largest: number;
  /** A power of two of which all are multiples; undefined if there is no suitable one. */
  readonly grain: number | undefined;
}

function fixedOf(inputs: Inputs): ReadonlyMap<string, Fixed> {
  const about = (values: ArrayLike<number>): Fixed => {
    const all = Array.from(values);
    return { largest: all.reduce((most, x) => Math.max(most, Math.abs(x)), 0), grain: grainOfNumbers(all) };
  };
  return new Map(Object.entries(inputs).map(([name, values]) => [name, about(values)]));
}

/** The largest magnitude of a tensor's elements. */
type Sizes = (tensor: string) => number;

const sizesOf =
  ({ tensors }: Computation, name: ReferenceSet["name"], drawn: number, fixed: ReadonlyMap<string, Fixed>): Sizes =>
  (tensor) => {
    const { dtype = "f64" } = tensors[tensor] ?? {};
    const [least, most] = rangeOf(dtype);
    // Integers are drawn from their whole range, except in an exact set.
    return (
      fixed.get(tensor)?.largest ??
      (isInteger(dtype) && name !== "exact" ? Math.max(-least, most) : Math.min(drawn, most))
    );
  };

/** The largest integer with which all sums are exact in their type; undefined if there is none. */
function largestExact(computation: Computation, rule: Rule, fixed: ReadonlyMap<string, Fixed>): number | undefined {
  if (computation.time && !rule.integral) return undefined;
  const grain = computation.time ? 1 : grainOf(withoutIntegers(computation).equation.value, fixed);
  if (grain === undefined) return undefined;
  return WHOLE.find(
    (largest) =>
      sizeOfAll(computation, rule, "exact", sizesOf(computation, "exact", largest, fixed)) <= grain * rule.exactBelow,
  );
}

/** Fractions that are not multiples of this are not used in an exact set. */
const FINEST = 2 ** -16;

/** The largest power of two, at most 1, of which all numbers are multiples. */
function grainOfNumbers(numbers: readonly number[]): number | undefined {
  let grain = 1;
  while (grain >= FINEST && !numbers.every((x) => Number.isInteger(x / grain))) grain /= 2;
  return grain < FINEST ? undefined : grain;
}

/** A number of which all values are multiples if inputs are integers; undefined if unknown. */
function grainOf(e: Expr, fixed: ReadonlyMap<string, Fixed>): number | undefined {
  switch (e.kind) {
    case "number":
      return grainOfNumbers([e.value]);
    case "access": {
      const values = fixed.get(e.tensor);
      return values ? values.grain : 1;
    }
    case "negate":
    case "cast":
      return grainOf(e.value, fixed);
    case "binary": {
      const left = grainOf(e.left, fixed);
      const right = grainOf(e.right, fixed);
      if (left === undefined || right === undefined) return undefined;
      return e.op === "*" ? left * right : Math.min(left, right);
    }
    default:
      return undefined;
  }
}

/** The size of the largest sum of inputs within the given sizes. */
function sizeOfAll(computation: Computation, rule: Rule, name: ReferenceSet["name"], sizes: Sizes): number {
  if (rule.growth) {
    const { factor, offset } = name === "exact" ? rule.growth.whole : rule.growth.drawn;
    return factor * sizes(computation.time?.first ?? "") + offset;
  }
  return rule.chain * sizeAt(withoutIntegers(computation).equation.value, sizes);
}

/** The largest inputs for which every sum fits into its type, and what an epilogue makes of it into its own. */
function largestThatFits(computation: Computation, rule: Rule, fixed: ReadonlyMap<string, Fixed>): number {
  const { sum, epilogue } = partsOf(computation);
  const output = outputOf(computation).dtype;
  const roof = epilogue && !isInteger(output) ? Math.min(rule.roof, rangeOf(output)[1] / ROOM_OF_EPILOGUE) : rule.roof;
  const growth = boundOfForm(computation)?.growth ?? 1;
  let large = largestInput(sum);
  while (large > 2 && !(growth * sizeOfAll(sum, rule, "extreme", sizesOf(sum, "extreme", large, fixed)) < roof))
    large = Math.sqrt(large);
  return large;
}

interface Wanted {
  readonly name: ReferenceSet["name"];
  readonly largest: number;
  readonly within: number;
  /** The same for kernels of another form; 0 where the computation has none. */
  readonly looser: number;
}

interface Stored {
  readonly set: ReferenceSet;
  readonly tells: boolean;
}

/** The sets, drawn and computed by one run of the program; undefined if results are too large for their type. */
async function storedSets(
  computation: Computation,
  seed: number,
  wanted: readonly Wanted[],
  options: DrawnOptions,
): Promise<readonly Stored[] | undefined> {
  const { fixed = {} } = options;
  const source = drawnSource(computation, new Set(Object.keys(fixed)));
  const program = await compiledReference(computation, source, options);
  await mkdir(options.folder, { recursive: true });
  const own = await mkdtemp(join(options.folder, "set-"));
  for (const t of inputsOf(computation)) {
    const values = fixed[t.name];
    if (values) await writeFile(join(own, t.name), encodeElements(t.dtype, toMemory(t, values)));
  }
  const output = outputOf(computation);
  const holes = checkedIn(output);
  const checked = holes && join(own, "checked");
  if (checked) await writeFile(checked, holes);
  const sets = wanted.map(({ name, ...given }) => {
    const inputs = inputsOf(computation).map((t, i) => join(own, fixed[t.name] ? t.name : `${name}.input${i}`));
    return { name, ...given, files: { name, inputs, checked, expected: join(own, `${name}.expected`) } };
  });
  const words = sets.flatMap(({ name, largest, within, looser, files }) => {
    const kind = SETS.indexOf(name);
    return [`${kind}`, `${3 * seed + kind}`, `${largest}`, `${within}`, `${looser}`, ...files.inputs, files.expected];
  });
  const doing = "drawing inputs and computing what kernels must answer";
  const printed = await runReference(computation, doing, options, (threads) => [...program, `${threads}`, ...words]);
  const told = printed.trim().split("\n");
  const stored = sets.map(({ name, files }, i) => {
    const [least = 0, most = 0, finite = 0, within = 0, looser = 0] = (told[i] ?? "").split(" ").map(Number);
    const set = new StoredSet(computation, name, within, {
      ...files,
      tolerance: within,
      ...(looser > 0 && { looser }),
    });
    const isWhole = finite === 1 && Number.isFinite(within);
    return { set, isWhole, tells: isWhole && tellsApart(least, most, elementCount(output), within) };
  });
  if (computation.time || stored.every(({ isWhole }) => isWhole)) return stored;
  await rm(own, { recursive: true, force: true });
  return undefined;
}

/** A set in files, whose values are read on demand. */
class StoredSet implements ReferenceSet {
  readonly name: ReferenceSet["name"];
  readonly within: number;
  private readonly computation: Computation;
  private readonly own: SetFiles;

  constructor(computation: Computation, name: ReferenceSet["name"], within: number, files: SetFiles) {
    this.name = name;
    this.within = within;
    this.computation = computation;
    this.own = files;
  }

  // A getter, not an own property: a copy of this set with other values has no files.
  get files(): SetFiles {
    return this.own;
  }

  get inputs(): Readonly<Record<string, Uint8Array>> {
    const files = this.own.inputs;
    return Object.fromEntries(inputsOf(this.computation).map(({ name }, i) => [name, readFileSync(files[i] ?? "")]));
  }

  get expected(): Float64Array {
    return decodeElements(outputOf(this.computation).dtype, readFileSync(this.own.expected));
  }

  get looser(): Float64Array {
    const { looser } = this.own;
    return typeof looser === "number" ? this.tolerance.fill(looser) : this.tolerance;
  }

  get tolerance(): Float64Array {
    return new Float64Array(memoryElements(outputOf(this.computation))).fill(this.within);
  }
}
