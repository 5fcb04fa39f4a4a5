/**
 * @file What a right kernel must answer: inputs from a seed, the expected output, and how far each element may be off.
 *
 *     const reference = await referenceFor(conv2d, 1, { compiler, workdir });
 *     reference.sets[1]      { name: "random", inputs: { in: bytes, w: bytes }, expected, tolerance }
 *
 * Sets of inputs:
 *
 * - `exact` (float results only): small integers, whose sums are exact in any order. A term that is lost shows here; in a long
 *   sum of fractions it would drown in the tolerance
 * - `random`: integers of the whole range, fractions between -1 and 1
 * - `extreme`: the ends of the integer types, which make saturating instructions saturate; floats of very unequal size
 *
 * Integer results are exact. A float may be off by
 *
 *     (terms + operations + 1) * (eps * sum of |terms| + smallest normal number)
 *
 * with eps of the coarsest type the value is computed in: an upper bound for any order of summation and with or without fused
 * multiply-adds (Higham, Accuracy and Stability, section 4.2), and for units that flush subnormal numbers. NaN never passes.
 *
 * An epilogue is exact, operation by operation: of integer sums it makes exact outputs, of float sums whatever it makes of the
 * sums within their tolerance (interval.ts).
 */

import { affineForm, evaluateIndex } from "../abstraction/affine.ts";
import {
  type Computation,
  elementCount,
  extentsOf,
  inputsOf,
  memoryElements,
  outputOf,
  pointCount,
  type Tensor,
  targetOf,
} from "../abstraction/computation.ts";
import { type DType, epsilonOf, isInteger, rangeOf, wrap } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import type { Values } from "../abstraction/evaluate.ts";
import { type Access, accessesIn, axesIn, type Expr, number, walk } from "../abstraction/expression.ts";
import { type Inputs, interpret } from "../abstraction/interpret.ts";
import { pick, type Random, randomInteger, seededRandom } from "../abstraction/random.ts";
import { typeOf } from "../abstraction/typing.ts";
import { encodeElements } from "./bytes.ts";
import { intervalsOf } from "./interval.ts";
import { interpretCompiled, type ProgramOptions } from "./reference-program.ts";

export interface ReferenceSet {
  readonly name: "exact" | "random" | "extreme";
  /** Bytes of each input as it lies in memory, by tensor. */
  readonly inputs: Readonly<Record<string, Uint8Array>>;
  /** In the output's memory order. */
  readonly expected: Float64Array;
  /** Largest |got - expected| that passes, element by element. */
  readonly tolerance: Float64Array;
}

export interface Reference {
  readonly computation: Computation;
  readonly sets: readonly ReferenceSet[];
  /** 0 where the output's memory holds no element (holes of a blocked layout); undefined when it has no holes. */
  readonly checked: Uint8Array | undefined;
}

export interface ReferenceOptions extends ProgramOptions {
  /** Values the operator itself fixes (1/n, a triangle of ones), row-major; every set has these. */
  readonly fixed?: Inputs;
}

/** Up to so many points the interpreter is as fast as compiling a program (about half a second; Xeon, 2026-11-21). */
const INTERPRETED_POINTS = 2e6;

/** The reference of a computation: the same seed, the same bytes. */
export async function referenceFor(
  computation: Computation,
  seed: number,
  options: ReferenceOptions,
): Promise<Reference> {
  const output = outputOf(computation);
  const names: ReferenceSet["name"][] = isInteger(targetOf(computation).dtype)
    ? ["random", "extreme"]
    : ["exact", "random", "extreme"];
  const evaluate = (what: Computation, inputs: Inputs): Promise<Values> | Values =>
    pointCount(what) <= INTERPRETED_POINTS ? interpret(what, inputs) : interpretCompiled(what, inputs, options);
  const bound = await boundOf(partsOf(computation).sum, evaluate);
  const sets: ReferenceSet[] = [];
  for (const name of names) {
    const { inputs, expected, tolerance } = await drawSet(
      computation,
      name,
      seed,
      options.fixed ?? {},
      bound,
      evaluate,
    );
    const random = seededRandom(seed);
    sets.push({
      name,
      inputs: Object.fromEntries(
        inputsOf(computation).map((tensor) => {
          // Holes hold numbers of the type: a kernel that takes them for data is caught.
          const [min, max] = isInteger(tensor.dtype) ? rangeOf(tensor.dtype) : [-3, 3];
          const hole = (): number => wrap(tensor.dtype, randomInteger(random, min, max));
          return [tensor.name, encodeElements(tensor.dtype, toMemory(tensor, inputs[tensor.name] ?? [], hole))];
        }),
      ),
      expected: toMemory(output, expected, () => 0),
      tolerance: toMemory(output, tolerance, () => 0),
    });
  }
  if (memoryElements(output) === elementCount(output)) return { computation, sets, checked: undefined };
  const everywhere = toMemory(output, new Float64Array(elementCount(output)).fill(1), () => 0);
  return { computation, sets, checked: Uint8Array.from(everywhere) };
}

/** Logical row-major values as they lie in memory: the very same array where they lie so already. */
export function toMemory(tensor: Tensor, values: ArrayLike<number>, hole: () => number): Float64Array {
  const elements = memoryElements(tensor);
  const places = placesOf(tensor);
  if (places === undefined && values instanceof Float64Array && values.length === elements) return values;
  const memory = new Float64Array(elements);
  if (elements > elementCount(tensor)) for (let i = 0; i < elements; i++) memory[i] = hole();
  for (let i = 0; i < values.length; i++) memory[places ? (places[i] ?? 0) : i] = values[i] ?? 0;
  return memory;
}

/** The logical values of what lies in memory. */
export function fromMemory(tensor: Tensor, memory: ArrayLike<number>): Float64Array {
  const places = placesOf(tensor);
  return Float64Array.from({ length: elementCount(tensor) }, (_, i) => memory[places ? (places[i] ?? 0) : i] ?? 0);
}

/** Memory element of every logical element in row-major order; undefined when they are the same. */
function placesOf(tensor: Tensor): Int32Array | undefined {
  if (liesRowMajor(tensor)) return undefined;
  const { dims, storage } = tensor;
  const places = new Int32Array(dims.reduce((product, d) => product * d.extent, 1));
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

/** Seen from the formula, without going through the elements. */
function liesRowMajor({ dims, storage }: Tensor): boolean {
  const affine = affineForm(storage);
  if (affine === undefined || affine.constant !== 0) return false;
  let step = 1;
  for (const { name, extent } of [...dims].reverse()) {
    if (extent > 1 && affine.terms.get(name) !== step) return false;
    step *= extent;
  }
  return true;
}

// ------------------------------------------------------------------------------------------------- one set

type Evaluate = (computation: Computation, inputs: Inputs) => Promise<Values> | Values;

interface DrawnSet {
  readonly inputs: Readonly<Record<string, Float64Array>>;
  readonly expected: Values;
  readonly tolerance: Float64Array;
}

async function drawSet(
  computation: Computation,
  name: ReferenceSet["name"],
  seed: number,
  fixed: Inputs,
  bound: Bound | undefined,
  evaluate: Evaluate,
): Promise<DrawnSet> {
  const { sum, epilogue } = partsOf(computation);
  // Products of large values may leave the type: the values are drawn smaller until every sum fits.
  for (let large = largestInput(sum); ; large = Math.sqrt(large)) {
    const smaller = name === "extreme" && large > 2;
    const inputs = drawInputs(sum, name, large, seed, fixed);
    // Side by side: large ones are programs of their own.
    const [expected, sizes] = await Promise.all([
      evaluate(sum, inputs),
      bound && evaluate(bound.magnitude, absoluteInputs(inputs)),
    ]);
    const tolerance = new Float64Array(expected.length);
    if (bound && sizes) {
      // What the operator fixes may be fractions, of which a sum may come to a whole number by chance.
      const whole = bound.integral && Object.values(inputs).every((values) => values.every(Number.isInteger));
      if (smaller && sizes.some((size) => !(size < bound.roof))) continue;
      for (let i = 0; i < sizes.length; i++) {
        const size = sizes[i] ?? 0;
        if (name === "exact" && whole && size <= bound.exactBelow && Number.isInteger(expected[i])) continue;
        tolerance[i] = ((bound.terms[i] ?? 1) + bound.operations + 1) * (bound.epsilon * size + bound.smallest);
      }
    }
    if (!epilogue) return { inputs, expected, tolerance };
    const drawn = drawEpilogueInputs(epilogue, targetOf(sum).name, expected, name, seed, { ...fixed, ...inputs });
    const all = { ...inputs, ...drawn };
    const finished = await finish(epilogue, all, targetOf(sum).name, { expected, tolerance }, evaluate);
    if (smaller && bound && !finished.tolerance.every(Number.isFinite)) continue;
    return { inputs: all, ...finished };
  }
}

/** What an epilogue makes of sums, and of all they may be. */
async function finish(
  epilogue: Computation,
  inputs: Readonly<Record<string, Float64Array>>,
  sum: string,
  { expected, tolerance }: Pick<DrawnSet, "expected" | "tolerance">,
  evaluate: Evaluate,
): Promise<Pick<DrawnSet, "expected" | "tolerance">> {
  const output = await evaluate(epilogue, { ...inputs, [sum]: expected });
  if (tolerance.every((x) => x === 0)) return { expected: output, tolerance: new Float64Array(output.length) };
  const { low, high } = intervalsOf(epilogue, inputs, sum, {
    low: expected.map((x, i) => x - (tolerance[i] ?? 0)),
    high: expected.map((x, i) => x + (tolerance[i] ?? 0)),
  });
  const reach = output.map((x, i) => {
    const [least = x, most = x] = [low[i], high[i]];
    return Number.isFinite(x) ? Math.max(x - least, most - x) : Number.POSITIVE_INFINITY;
  });
  return { expected: output, tolerance: reach };
}

/** Factors and terms of such a size that the sums reach the whole range of the output, both ends and what lies between. */
function drawEpilogueInputs(
  epilogue: Computation,
  sum: string,
  sums: Values,
  name: ReferenceSet["name"],
  seed: number,
  known: Inputs,
): Record<string, Float64Array> {
  const random = seededRandom(seed * 3 + { exact: 0, random: 1, extreme: 2 }[name] + 1000);
  const spread = Math.sqrt(sums.reduce((total, x) => total + (x / sums.length) * x, 0)) || 1;
  const output = outputOf(epilogue).dtype;
  const aim = isInteger(output) ? (rangeOf(output)[1] - rangeOf(output)[0]) / 2 : spread;
  const [factors, divisors] = [tensorsBeside("*", epilogue), tensorsBeside("/", epilogue)];
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
  return Object.fromEntries(
    inputsOf(epilogue)
      .filter((t) => t.name !== sum)
      .map((t) => {
        const given = known[t.name];
        if (given) return [t.name, Float64Array.from(given)];
        return [t.name, Float64Array.from({ length: elementCount(t) }, () => value(t))];
      }),
  );
}

/** Tensors that a value multiplies, or divides by. */
export function tensorsBeside(op: "*" | "/", { equation }: Computation): Set<string> {
  return new Set(
    [...valueNodes(equation.value)]
      .filter((e) => e.kind === "binary" && e.op === op)
      .flatMap((e) => (e.kind === "binary" ? (op === "/" ? [e.right] : [e.left, e.right]) : []))
      .flatMap((side) => accessesIn(side).map((a) => a.tensor)),
  );
}

function drawInputs(
  computation: Computation,
  name: ReferenceSet["name"],
  large: number,
  seed: number,
  fixed: Inputs,
): Record<string, Float64Array> {
  const random = seededRandom(seed * 3 + { exact: 0, random: 1, extreme: 2 }[name]);
  const divides = [...walk(computation.equation.value)].some(
    (e) => e.kind === "binary" && (e.op === "/" || e.op === "%"),
  );
  return Object.fromEntries(
    inputsOf(computation).map((tensor) => {
      const given = fixed[tensor.name];
      if (given) return [tensor.name, Float64Array.from(given)];
      const draw = DRAW[name][isInteger(tensor.dtype) ? "integer" : "float"];
      const values = new Float64Array(elementCount(tensor));
      for (let i = 0; i < values.length; i++) {
        const value = wrap(tensor.dtype, draw(random, tensor.dtype, large));
        // Quotients of nothing are not numbers.
        values[i] = divides && Math.abs(value) < 0.5 ? 1 : value;
      }
      return [tensor.name, values];
    }),
  );
}

type Draw = (random: Random, dtype: DType, large: number) => number;

const DRAW: Readonly<Record<ReferenceSet["name"], { readonly integer: Draw; readonly float: Draw }>> = {
  exact: {
    integer: (random, dtype) => Math.max(rangeOf(dtype)[0], smallInteger(random, dtype)),
    float: smallInteger,
  },
  random: {
    integer: (random, dtype) => randomInteger(random, ...rangeOf(dtype)),
    float: (random) => 2 * random() - 1,
  },
  extreme: {
    integer: (random, dtype) => {
      const [min, max] = rangeOf(dtype);
      // Most are the largest or the smallest: neighbours that both are saturate a sum of two products.
      return pick(random, [max, max, max, max, min, min, min, max - 1, min + 1, 1]);
    },
    float: (random, dtype, large) => {
      const size = pick(random, [large, large, 1, 2 ** -6, 0]);
      return (random() < 0.5 ? -1 : 1) * Math.min(size * (0.5 + random() / 2), rangeOf(dtype)[1]);
    },
  },
};

/** Sums in f16 are exact to 2048 only, in bf16 to 256. */
function smallInteger(random: Random, dtype: DType): number {
  const most = epsilonOf(dtype) > 2 ** -12 ? 1 : 3;
  return randomInteger(random, -most, most);
}

function absoluteInputs(inputs: Readonly<Record<string, Float64Array>>): Record<string, Float64Array> {
  return Object.fromEntries(
    Object.entries(inputs).map(([name, values]) => {
      const sizes = new Float64Array(values.length);
      for (let i = 0; i < values.length; i++) sizes[i] = Math.abs(values[i] ?? 0);
      return [name, sizes];
    }),
  );
}

// ------------------------------------------------------------------------------------------------- the bound

interface Bound extends BoundRule {
  /** Terms of each sum. */
  readonly terms: ArrayLike<number>;
}

/** How far a float result may be off: `(terms + operations + 1) * (epsilon * magnitude + smallest)`. */
export interface BoundRule {
  /** The sum of |terms|, computed in f64 from the absolute values of the inputs. */
  readonly magnitude: Computation;
  /** Terms of every sum; or, where several points meet in one element, the computation that counts them. */
  readonly chain: number | Computation;
  /** Operations that make one term. */
  readonly operations: number;
  readonly epsilon: number;
  readonly smallest: number;
  /** Largest sum that cannot overflow on the way. */
  readonly roof: number;
  /** Integers below are exact. */
  readonly exactBelow: number;
  /** Integers in, integers out: no division, no fraction written in the equation. */
  readonly integral: boolean;
}

async function boundOf(computation: Computation, evaluate: Evaluate): Promise<Bound | undefined> {
  const rule = boundRule(computation);
  if (!rule) return undefined;
  const { chain } = rule;
  const terms =
    typeof chain === "number"
      ? new Float64Array(elementCount(targetOf(computation))).fill(chain)
      : await evaluate(chain, zeroInputs(computation));
  return { ...rule, terms };
}

/** Undefined when the result is exact: integers, and floats that are only moved or compared. */
export function boundRule(computation: Computation): BoundRule | undefined {
  const { equation } = computation;
  const target = targetOf(computation);
  if (isInteger(target.dtype)) return undefined;
  const dtypes = Object.fromEntries(Object.values(computation.tensors).map((t) => [t.name, t.dtype]));
  const arithmetic = [...valueNodes(equation.value)].filter(
    (e) => e.kind === "binary" || (e.kind === "call" && e.fn === "square") || (e.kind === "call" && e.fn === "round"),
  );
  const sums = equation.op === "+=" || equation.op === "sat+=";
  if (!sums && arithmetic.length === 0) return undefined;
  const casts = [...valueNodes(equation.value)].filter((e) => e.kind === "cast");
  const types = [target.dtype, ...[...arithmetic, ...casts].map((e) => typeOf(e, dtypes) ?? target.dtype)].filter(
    (t) => !isInteger(t),
  );
  const epsilon = Math.max(...types.map(epsilonOf));
  const magnitude = inDoubles(computation, magnitudeOf(equation.value));
  const plain = equation.target.index.every((e) => e.kind === "axis");
  return {
    magnitude,
    chain: plain ? chainLength(computation) : inDoubles(computation, number(1)),
    operations: arithmetic.length,
    epsilon,
    smallest: types.includes("f16") ? 2 ** -24 : 2 ** -126,
    roof: Math.min(...types.map((t) => rangeOf(t)[1])) / 4,
    exactBelow: 2 / epsilon,
    integral: [...valueNodes(equation.value)].every((e) =>
      e.kind === "number" ? Number.isInteger(e.value) : !(e.kind === "binary" && e.op === "/"),
    ),
  };
}

/** Terms of a sum; of a recurrence, the steps that a result may have come through. */
function chainLength(computation: Computation): number {
  const { equation, axes } = computation;
  const extents = extentsOf(computation);
  const reduced = axes.filter((a) => a.kind === "reduce").reduce((product, a) => product * a.extent, 1);
  const steps = new Set(
    accessesIn(equation.value)
      .filter((a) => a.tensor === equation.target.tensor)
      .flatMap((a) => movedAxes(a, equation.target)),
  );
  return [...steps].reduce((product, axis) => product * (extents[axis] ?? 1), reduced);
}

/** Axes of the dimensions in which two accesses differ. */
function movedAxes(a: Access, b: Access): string[] {
  return a.index.flatMap((e, d) => {
    const other = b.index[d];
    return other && JSON.stringify(e) !== JSON.stringify(other) ? axesIn(other) : [];
  });
}

/** The computation with another value, everything in f64; the terms of a maximum or minimum are added up too. */
function inDoubles(computation: Computation, value: Expr): Computation {
  const { equation, tensors } = computation;
  return {
    ...computation,
    name: `${computation.name} (bound)`,
    equation: { ...equation, op: equation.op === "=" ? "=" : "+=", value },
    tensors: Object.fromEntries(Object.entries(tensors).map(([name, t]) => [name, { ...t, dtype: "f64" }])),
  };
}

function zeroInputs(computation: Computation): Record<string, Float64Array> {
  return Object.fromEntries(inputsOf(computation).map((t) => [t.name, new Float64Array(elementCount(t))]));
}

/**
 * An upper bound of the size of a value and of everything on the way to it; inputs are given by their absolute values.
 *
 *     square(in[c,l] - mean[c])      ->      square(in[c,l] + mean[c])
 */
function magnitudeOf(e: Expr): Expr {
  switch (e.kind) {
    case "number":
      return { ...e, value: Math.abs(e.value) };
    case "axis":
    case "access":
      return e;
    case "cast":
      return { ...e, dtype: "f64", saturate: false, value: magnitudeOf(e.value) };
    case "negate":
      return magnitudeOf(e.value);
    case "binary":
      if (e.op === "/") return { ...e, left: magnitudeOf(e.left) };
      if (e.op === "%") return magnitudeOf(e.left);
      return { ...e, op: e.op === "-" ? "+" : e.op, left: magnitudeOf(e.left), right: magnitudeOf(e.right) };
    case "call": {
      const [first, second] = e.args.map(magnitudeOf);
      if (!first) throw new Error(`internal: ${e.fn} without arguments`);
      if (e.fn === "min" || e.fn === "max") return second ? { kind: "call", fn: "max", args: [first, second] } : first;
      if (e.fn === "abs") return first;
      // A value next to a half may round either way.
      if (e.fn === "round") return { kind: "binary", op: "+", left: first, right: number(1) };
      return { ...e, args: [first] };
    }
    case "select":
      return { ...e, whenTrue: magnitudeOf(e.whenTrue), whenFalse: magnitudeOf(e.whenFalse) };
    case "compare":
    case "logic":
      throw new Error("internal: a condition is not a value");
    default:
      return e satisfies never;
  }
}

/** Nodes that compute elements: not those of indices and conditions. */
function* valueNodes(e: Expr): Generator<Expr> {
  yield e;
  switch (e.kind) {
    case "cast":
    case "negate":
      yield* valueNodes(e.value);
      break;
    case "binary":
      yield* valueNodes(e.left);
      yield* valueNodes(e.right);
      break;
    case "call":
      for (const arg of e.args) yield* valueNodes(arg);
      break;
    case "select":
      yield* valueNodes(e.whenTrue);
      yield* valueNodes(e.whenFalse);
      break;
    case "number":
    case "axis":
    case "access":
    case "compare":
    case "logic":
      break;
    default:
      e satisfies never;
  }
}

/** Inputs of the extreme set: so large that a sum of products of as many factors as the value has stays within its type. */
export function largestInput(computation: Computation): number {
  const { equation } = computation;
  const roof = rangeOf(targetOf(computation).dtype)[1];
  const reduced = pointCount(computation) / elementCount(targetOf(computation));
  return (roof / (8 * Math.max(1, reduced))) ** (1 / Math.max(1, degreeOf(equation.value)));
}

/** Factors of the longest product. */
function degreeOf(e: Expr): number {
  switch (e.kind) {
    case "access":
      return 1;
    case "binary": {
      const [left, right] = [degreeOf(e.left), degreeOf(e.right)];
      return e.op === "*" ? left + right : Math.max(left, right);
    }
    case "call": {
      const degree = Math.max(...e.args.map(degreeOf));
      return e.fn === "square" ? 2 * degree : degree;
    }
    case "cast":
    case "negate":
      return degreeOf(e.value);
    case "select":
      return Math.max(degreeOf(e.whenTrue), degreeOf(e.whenFalse));
    default:
      return 0;
  }
}
