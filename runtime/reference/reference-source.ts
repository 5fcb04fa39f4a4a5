/**
 * @file Prints structs that compute an equation point by point with the functions of `harness/arithmetic.h`, for
 * programs, packages and references on a GPU.
 *
 *     c[i,j] += f32(a[i,k]) * f32(b[k,j])      ->      for (Int i = 0; i < 64; i++) for (Int j ...) {
 *                                                        ... v = multiply<f32>(f32::wrap(read_a(i, k)), f32::wrap(read_b(k, j)));
 *
 * Indices are logical and nothing is mapped. The terms of an output are added in loop order.
 */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { rowMajor } from "../../abstraction/affine.ts";
import { mapValues } from "../../abstraction/collections.ts";
import {
  type Axis,
  type Computation,
  inputsOf,
  keptIn,
  memoryElements,
  type Tensor,
  targetOf,
} from "../../abstraction/computation.ts";
import { type DType, isInteger } from "../../abstraction/dtype.ts";
import { writesApart } from "../../abstraction/elements.ts";
import { type Access, accessesIn, type Expr, identityOf } from "../../abstraction/expression.ts";
import {
  axisName,
  block,
  type Code,
  code,
  join,
  list,
  Name,
  NOTHING,
  trustedCode,
} from "../../abstraction/source-text.ts";
import type { Time } from "../../abstraction/time.ts";
import { fold, join_, literal, printIndex, printValue, readName } from "./reference-expressions.ts";
import { isReachedOutside } from "./reference-padding.ts";

/** The outermost loop, if its points neither write nor read what others write, so that threads can share it. */
export function sharedAxis(computation: Computation): Axis | undefined {
  const outermost = outermostOf(computation);
  return isApart(computation) && outermost !== undefined && outermost.extent > 1 ? outermost : undefined;
}

/** The outermost loop over outputs with more than one step. */
function outermostOf({ axes }: Computation): Axis | undefined {
  const spatial = keptIn(axes);
  return spatial.find((a) => a.extent > 1) ?? spatial[0];
}

/** Steps of the loop that `compute_part(first, last)` of a {@link referenceStruct} is given a range of. */
export const stepsOfParts = (computation: Computation): number => outermostOf(computation)?.extent ?? 1;

/** Whether no output is written twice or read, so that outputs can be computed in any order. */
export function isApart(computation: Computation): boolean {
  const { target, value } = computation.equation;
  return !accessesIn(value).some((a) => a.tensor === target.tensor) && writesApart(computation);
}

/** How a {@link referenceStruct} holds a tensor. */
export interface Holding {
  /** A type with `operator[]` and `set`. */
  readonly type: Code;
  /** The element's offset in terms of the dimensions. */
  readonly storage: Expr;
}

/** As in `elements.h`: the numbers that the interpreter would see, row-major. */
export function heldAsNumbers(tensor: Tensor): Holding {
  return { type: code`Elements<${elementType(tensor)}>`, storage: rowMajor(tensor.dims) };
}

/**
 * A struct with a member `data_in` for every tensor `in`, whose `compute()` fills the target from the others. It
 * requires `arithmetic.h`.
 * @param computation without epilogue
 * @param lanes outputs summed together along the innermost loop over them; each sum keeps its own order
 */
export function referenceStruct(
  name: Code,
  computation: Computation,
  hold: (tensor: Tensor) => Holding = heldAsNumbers,
  lanes = 1,
): Code {
  const { time } = computation;
  return structOf(name, time?.step ?? computation, hold, lanes, time);
}

function structOf(
  name: Code,
  computation: Computation,
  hold: (tensor: Tensor) => Holding,
  lanes: number,
  time: Time | undefined,
): Code {
  const { equation, axes } = computation;
  const target = targetOf(computation);
  const inputs = inputsOf(computation);
  const identity = identityOf(equation.op, target.dtype);
  const outermost = outermostOf(computation);
  const innermost = keptIn(axes).at(-1);
  const places = list(target.dims.map((_, d) => code`i${d}`));
  const held = dataName(target.name);
  const place = placeName(target.name);
  const spatial = loopsOf(axes, "spatial", outermost);
  const points =
    lanes > 1 && isAssignedOnce(computation)
      ? assigned(computation, spatial)
      : lanes > 1 && innermost
        ? sideBySide(computation, innermost, innermost === outermost, spatial.slice(0, -1), lanes)
        : [...spatial, oneByOne(computation)];
  const declared = [target, ...inputs].map((tensor) =>
    declareTensor(tensor, identity, hold(tensor), lanes === 1 || isReachedOutside(tensor, computation)),
  );
  const part = outermost
    ? code`/* Of the points, those with ${axisName(outermost.name)} from first up to last. */
  void compute_part(Int first, Int last) {`
    : code`void compute_part(Int, Int) {`;
  // A loop even without axes, so that the body may use `continue`.
  return code`struct ${name} {
${declared}
  void clear() {
    ${target.dims.map(({ extent }, d) => code`for (Int i${d} = 0; i${d} < ${extent}; i${d}++)`)}
      ${held}.set(${place}(${places}), ${literal(identity, target.dtype)});
  }
  ${part}
    for (int whole = 0; whole < 1; whole++)
    ${points}
  }
  ${time ? stepping(time, target, outermost?.extent ?? 1) : computing(outermost?.extent ?? 1)}
};`;
}

/**
 * A struct whose `compute_at(m, n)` computes the output at one point of the loops over outputs, by plain loops over what is summed.
 * @param computation without epilogue and not in time
 */
export function pointStruct(name: Code, computation: Computation, hold: (tensor: Tensor) => Holding): Code {
  const target = targetOf(computation);
  const identity = identityOf(computation.equation.op, target.dtype);
  const spatial = keptIn(computation.axes);
  return code`struct ${name} {
${[target, ...inputsOf(computation)].map((tensor) => declareTensor(tensor, identity, hold(tensor)))}
  void compute_at(${list(spatial.map((a) => code`Int ${axisName(a.name)}`))}) {
    for (int whole = 0; whole < 1; whole++)
    ${oneByOne(computation)}
  }
};`;
}

const computing = (extent: number): Code => code`void compute() {
    clear();
    compute_part(0, ${extent});
  }`;

/** @param shared the loop that runs over a part of its range, from `first` up to `last` */
function loopsOf(axes: readonly Axis[], kind: Axis["kind"], shared?: Axis): Code[] {
  return axes
    .filter((a) => a.kind === kind)
    .map((a) => {
      const own = axisName(a.name);
      const [from, to] = a === shared ? (["first", "last"] as const) : ([0, a.extent] as const);
      return code`for (Int ${own} = ${from}; ${own} < ${to}; ${own}++)`;
    });
}

/** Steps that alternate between the output and a second plane; the last one writes the output. */
function stepping({ steps, first }: Time, target: Tensor, extent: number): Code {
  const before = dataName(first);
  const after = dataName(target.name);
  return code`/* As large as the output. */
  decltype(${after}.data) spare = nullptr;
  void compute() {
    if (!spare) spare = static_cast<decltype(spare)>(__builtin_calloc(${memoryElements(target)}, sizeof(*spare)));
    auto* const given = ${before}.data;
    auto* const last = ${after}.data;
    for (Int left = ${steps}; left-- > 0;) {
      ${after}.data = left % 2 == 0 ? last : spare;
      clear();
      compute_part(0, ${extent});
      ${before}.data = ${after}.data;
    }
    ${before}.data = given;
  }`;
}

/** The parts of an output: its address, a term of its sum, and its store. */
function partsOfOutput(computation: Computation): {
  readonly type: Code;
  readonly place: Code;
  readonly value: Code;
  readonly store: Code;
} {
  const { equation } = computation;
  const { name, dtype } = targetOf(computation);
  const dtypes = mapValues(computation.tensors, ({ dtype }) => dtype);
  return {
    type: isInteger(dtype) ? code`Int` : code`double`,
    place: placeOf(targetOf(computation), equation.target),
    value: printValue(equation.value, dtypes, dtype),
    store: code`${dataName(name)}.set(at, ${join_(equation.op, dtype)});`,
  };
}

/** Folds the terms of one output into `sum`, and tells in `any` whether there was one. */
export function foldedTerms(
  { axes, equation: { op, where } }: Pick<Computation, "axes" | "equation">,
  type: Code | "Int" | "double",
  value: Code,
  dtype: DType,
): Code[] {
  return [
    code`${type} sum = 0;`,
    code`bool any = false;`,
    ...loopsOf(axes, "reduce"),
    ...block(code`for (int term = 0; term < 1; term++) {`, [
      ...unmet(where),
      code`const ${type} v = ${value};`,
      code`sum = any ? ${fold(op, dtype)} : v;`,
      code`any = true;`,
    ]),
  ];
}

/** Leaves out a point for which a condition fails. */
const unmet = (where: Expr | undefined): Code[] =>
  where === undefined ? [] : [code`if (!${printIndex(where)}) continue;`];

function oneByOne(computation: Computation): Code {
  const { op } = computation.equation;
  const { name, dtype } = targetOf(computation);
  const { type, place, value, store } = partsOfOutput(computation);
  return code`{
      Int at = ${place};
      if (at < 0) continue;
      ${foldedTerms(computation, type, value, dtype)}
      ${op === "=" ? [] : [code`${type} old = ${dataName(name)}[at];`]}
      if (any) ${store}
    }`;
}

/** Whether each output is a single term, and none is outside. */
function isAssignedOnce(computation: Computation): boolean {
  const { equation, axes } = computation;
  const isPlain = equation.op === "=" && equation.where === undefined && axes.every((a) => a.kind === "spatial");
  return isPlain && axes.length > 0 && !isReachedOutside(targetOf(computation), computation);
}

/** Outputs that are assigned independently. The compiler vectorises the innermost loop. */
function assigned(computation: Computation, spatial: readonly Code[]): Code[] {
  const { place, value } = partsOfOutput(computation);
  const { name, dtype } = targetOf(computation);
  const body = code`{
      _Pragma("GCC ivdep")
      ${spatial.slice(-1)}
        ${dataName(name)}.set(${place}, ${dtype}::wrap(${value}));
    }`;
  return [...spatial.slice(0, -1), body];
}

/**
 * Several outputs at a time. Their sums do not wait for one another, and the compiler vectorises them. A group of
 * columns is computed for all rows before the next, so that shared data stay in cache.
 * @param innermost the loop over outputs that are summed together
 * @param isShared whether threads share it
 * @param others the loops around it
 */
function sideBySide(
  computation: Computation,
  innermost: Axis,
  isShared: boolean,
  others: readonly Code[],
  lanes: number,
): Code[] {
  const { axes, equation } = computation;
  const { op, where } = equation;
  const target = targetOf(computation);
  const { name, dtype } = target;
  const { type, place, value, store } = partsOfOutput(computation);
  const own = axisName(innermost.name);
  const [from, to] = isShared ? (["first", "last"] as const) : ([0, innermost.extent] as const);
  // A sum that starts at 0 equals the sum that starts at its first term, because that is added to the identity, 0, in
  // the end.
  const isSum = op === "+=" || op === "sat+=";
  const folded = fold(op, dtype);
  const body = code`{
      const Int wide = ${to} - group < ${lanes} ? ${to} - group : ${lanes};
      ${op === "+=" ? elementType(target) : type} sums[${lanes}] = {};
      ${isSum ? [] : [code`bool begun[${lanes}] = {};`]}
      ${loopsOf(axes, "reduce")}
      for (Int lane = 0; lane < wide; lane++) {
        const Int ${own} = group + lane;
        ${unmet(where)}
        const ${type} sum = sums[lane], v = ${value};
        sums[lane] = ${isSum ? folded : code`begun[lane] ? ${folded} : v`};
        ${isSum ? [] : [code`begun[lane] = true;`]}
      }
      for (Int lane = 0; lane < wide; lane++) {
        const Int ${own} = group + lane;
        const Int at = ${place};
        if (at < 0) continue;
        const ${type} sum = sums[lane];
        ${op === "=" ? [] : [code`const ${type} old = ${dataName(name)}[at];`]}
        ${isSum ? NOTHING : code`if (begun[lane]) `}${store}
      }
    }`;
  return [code`for (Int group = ${from}; group < ${to}; group += ${lanes})`, ...others, body];
}

/** A header for reference programs. */
export function harnessText(
  name: `${"arithmetic" | "bounds" | "cuda-elements" | "cuda-reference" | "cuda-steps" | "drawn" | "elements" | "intervals"}.h`,
): Code {
  return trustedCode(readFileSync(fileURLToPath(new URL(`../harness/${name}`, import.meta.url)), "utf8"));
}

/** The member of a {@link referenceStruct} that holds a tensor. */
export const dataName = (tensor: string): Name => new Name("tensor", `data_${tensor}`, `data of ${tensor}`);
export const placeName = (tensor: string): Name => new Name("tensor", `place_${tensor}`, `place in ${tensor}`);
/** The place of what an access names, in a tensor of any name. */
export const placeOf = ({ name }: Tensor, { index }: Access): Code =>
  code`${placeName(name)}(${list(index.map((e) => printIndex(e)))})`;
export type NumberType = "Int" | "double" | "int32_t";

/**
 * The narrowest type that holds every value and makes the widest vectors. Products and sums modulo 2^32 need no wider
 * type.
 */
export const elementType = ({ dtype }: Tensor): NumberType =>
  dtype === "u32" ? "Int" : isInteger(dtype) ? "int32_t" : "double";

/** The flat index of an element, -1 outside; untested, an index must be inside. */
export function placeFunction({ name, dims, storage }: Tensor, isTested = true): Code {
  const parameters = list(dims.map((_, d) => code`Int i${d}`));
  const tests = dims.map(({ extent }, d) => code`uint64_t(i${d}) >= ${extent}`);
  const outside = tests.length === 0 || !isTested ? NOTHING : code`if (${join(tests, code` || `)}) return -1; `;
  const flat = printIndex(storage, (axis) => code`i${dims.findIndex((d) => d.name === axis)}`);
  return code`  AUTOMAP_FUNCTION Int ${placeName(name)}(${parameters}) const { ${outside}return ${flat}; }`;
}

/**
 * The tensor's elements, the flat index of an element (-1 outside), and a read that gives the identity outside.
 * @param isTested whether an index may be outside. A test would prevent vectorisation even if it never fails
 */
export function declareTensor(tensor: Tensor, identity: number, { type, storage }: Holding, isTested = true): Code {
  const { name, dims } = tensor;
  const parameters = list(dims.map((_, d) => code`Int i${d}`));
  const given = list(dims.map((_, d) => code`i${d}`));
  // The identity of a float maximum, read outside an integer tensor, is infinite.
  const result = isInteger(tensor.dtype) && Number.isInteger(identity) ? "Int" : "double";
  const outside = isTested ? code`at < 0 ? ${result}(${literal(identity, "f64")}) : ` : NOTHING;
  return code`  ${type} ${dataName(name)};
${placeFunction({ ...tensor, storage }, isTested)}
  AUTOMAP_FUNCTION ${result} ${readName(name)}(${parameters}) const {
    Int at = ${placeName(name)}(${given});
    return ${outside}${result}(${dataName(name)}[at]);
  }`;
}
