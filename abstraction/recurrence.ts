/**
 * @file Systems of uniform recurrence equations: every variable at a point reads variables at a constant distance, or a tensor.
 *
 *     recurrence conv1d
 *     loops c 16, q 5
 *     tensors x f32[20], w f32[5], out f32[16]       optional: types default to f32, sizes to what the indices reach
 *     X[c,q] = select(q == 0 or c == 15, x[c+q], X[c+1,q-1])
 *     Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * w[q]
 *     out[c] = Z[c,q] where q == 4                   assigned and never read: a result
 *
 * A `#` begins a comment. What {@link printRecurrence} prints reads back to an equal system.
 */

import { affineForm, extentsBy, offendingPart, shapeOf, sizesText } from "./affine.ts";
import { namesOf, unique } from "./collections.ts";
import { completeTensor, type Tensor } from "./computation.ts";
import { DTYPES, type DType, isDType } from "./dtype.ts";
import { type Span, suggestion, type UsageDetails, UsageError } from "./error.ts";
import {
  type Access,
  accessesOf,
  type Equation,
  type Expr,
  printAccess,
  printEquation,
  tensorsOf,
  walk,
} from "./expression.ts";
import { parseEquation, spanOf } from "./parse.ts";
import { typeOf } from "./typing.ts";

export interface SourceLoop {
  readonly name: string;
  readonly extent: number;
}

/** A system of uniform recurrence equations over a box of points. */
export interface Recurrence {
  readonly name: string;
  /** Source loops, outermost first: the coordinates of a point. */
  readonly loops: readonly SourceLoop[];
  /**
   * The value of each variable at a point, in order of evaluation. The target is indexed by all loops in order. A variable read at distance d is `V[z
   * - d]`; every other access reads a tensor.
   */
  readonly definitions: readonly Equation[];
  /** The results, and the points where they leave the array: `out[c] = Z[c,q] where q == 4`. */
  readonly results: readonly Equation[];
  /** Types of the variables. */
  readonly variables: Readonly<Record<string, DType>>;
  /** Input and output tensors. */
  readonly tensors: Readonly<Record<string, Tensor>>;
}

/**
 * Where and when each point runs: on PE `allocation * z` at step `schedule * z`.
 *
 *     SBM of a 1-D convolution, loops (c, q):   allocation [[1, 1]]   schedule [[0, 1]]
 */
export interface SpaceTime {
  /** P: one row for each dimension of the array, a column for each source loop. */
  readonly allocation: readonly (readonly number[])[];
  /** s: rows of time, the first slowest (compared lexicographically); most designs have one. */
  readonly schedule: readonly (readonly number[])[];
}

// ---- reading, checking and printing ----------------------------------------------------------------------------------------------

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** A line of a text and the position of its first character. */
export interface Line {
  readonly text: string;
  readonly start: number;
}

/** The lines of a text, without comments and blank lines. */
export function linesOf(source: string): Line[] {
  let start = 0;
  return source.split("\n").flatMap((whole) => {
    const line = { text: whole.replace(/#.*$/, "").trimEnd(), start };
    start += whole.length + 1;
    return line.text.trim() === "" ? [] : [line];
  });
}

/** An error on a line, with the place marked in the whole text. */
export function lineError(source: string, { text, start }: Line, message: string, details: UsageDetails): UsageError {
  const span = details.span ?? { start: text.length - text.trimStart().length, end: text.length };
  const number = source.slice(0, start).split("\n").length;
  return new UsageError(`line ${number}: ${message}`, {
    source,
    span: { start: start + span.start, end: start + span.end },
    hint: details.hint,
  });
}

/**
 * Reads a system of recurrence equations.
 * @throws UsageError with the place marked: a malformed line, a dependence that is not uniform, a loop or type that is missing
 */
export function parseRecurrence(source: string): Recurrence {
  let name = "recurrence";
  let loops: SourceLoop[] = [];
  const declared = new Map<string, Declaration>();
  const equations: { readonly equation: Equation; readonly line: Line }[] = [];
  for (const line of linesOf(source)) {
    const [, word = "", rest = ""] = /^\s*([A-Za-z_]\w*)\s*(.*)$/.exec(line.text) ?? [];
    const fail = (message: string, hint?: string): never => {
      throw lineError(source, line, message, { hint });
    };
    if (word === "recurrence" && NAME.test(rest.replace(/-/g, "_"))) name = rest;
    else if (word === "loops" && !rest.startsWith("[")) loops = parseLoops(rest, fail);
    else if ((word === "tensors" || word === "variables") && !rest.startsWith("["))
      parseDeclarations(rest, declared, fail);
    else equations.push({ equation: located(source, line, () => parseEquation(line.text)), line });
  }
  const lineOf = new Map(equations.map(({ equation, line }) => [equation, line]));
  return completeRecurrence(
    name,
    loops,
    equations.map((e) => e.equation),
    declared,
    (equation, message, span, hint) => {
      const line = equation && lineOf.get(equation);
      throw line ? lineError(source, line, message, { span, hint }) : new UsageError(message, { source, span, hint });
    },
  );
}

/** Checks a system that was built in code, and completes its types and shapes. @throws UsageError */
export function defineRecurrence(spec: {
  readonly name?: string;
  readonly loops: readonly SourceLoop[];
  readonly equations: readonly (string | Equation)[];
  readonly dtypes?: Readonly<Record<string, DType>>;
}): Recurrence {
  const name = spec.name ?? "recurrence";
  const declared = new Map(Object.entries(spec.dtypes ?? {}).map(([tensor, dtype]) => [tensor, { dtype }]));
  const equations = spec.equations.map((e) => (typeof e === "string" ? parseEquation(e) : e));
  return completeRecurrence(name, [...spec.loops], equations, declared, (equation, message, span, hint) => {
    throw new UsageError(`${name}: ${message}`, {
      source: equation && printEquation(equation),
      span: equation && spanOf(equation.target) && span,
      hint,
    });
  });
}

/** The text of a system; {@link parseRecurrence} reads it back. */
export function printRecurrence({ name, loops, definitions, results, variables, tensors }: Recurrence): string {
  const lines = [`recurrence ${name}`, `loops ${sizesText(loops)}`];
  const shapes = Object.values(tensors).map((t) => `${t.name} ${t.dtype}[${shapeOf(t).join(",")}]`);
  if (shapes.length > 0) lines.push(`tensors ${shapes.join(", ")}`);
  lines.push(
    `variables ${Object.entries(variables)
      .map(([variable, dtype]) => `${variable} ${dtype}`)
      .join(", ")}`,
  );
  return [...lines, ...[...definitions, ...results].map(printEquation)].join("\n");
}

/** The distance of a read of a variable: `X[c+1,q-1]` in loops (c,q) is at (-1, 1). Undefined when it is not constant. */
export function distanceOf(read: Access, loops: readonly SourceLoop[]): number[] | undefined {
  if (read.index.length !== loops.length) return undefined;
  const distance: number[] = [];
  for (const [d, { name }] of loops.entries()) {
    const form = read.index[d] && affineForm(read.index[d]);
    if (form?.terms.size !== 1 || form.terms.get(name) !== 1) return undefined;
    distance.push(0 - form.constant);
  }
  return distance;
}

interface Declaration {
  readonly dtype: DType;
  readonly shape?: readonly number[];
}

type Fail = (equation: Equation | undefined, message: string, span?: Span, hint?: string) => never;

function completeRecurrence(
  name: string,
  loops: readonly SourceLoop[],
  equations: readonly Equation[],
  declared: ReadonlyMap<string, Declaration>,
  fail: Fail,
): Recurrence {
  if (loops.length === 0) fail(undefined, "no loops: begin with a line such as `loops c 16, q 5`");
  if (equations.length === 0) fail(undefined, "no equations: write what every variable holds at a point");
  const names = namesOf(loops);
  for (const { name: loop, extent } of loops)
    if (!Number.isSafeInteger(extent) || extent < 1)
      fail(undefined, `the extent of loop ${loop} must be a positive integer, got ${extent}`);
  const extents = extentsBy(loops);

  // 1. A name that is assigned and read is a variable; one that is assigned and never read is a result.
  const read = new Set(
    equations.flatMap((e) =>
      accessesOf(e)
        .slice(1)
        .map((a) => a.tensor),
    ),
  );
  const definitions = equations.filter((e) => read.has(e.target.tensor));
  const results = equations.filter((e) => !read.has(e.target.tensor));
  const assigned = new Map<string, number>();
  for (const [place, e] of definitions.entries()) {
    const { tensor, index } = e.target;
    if (assigned.has(tensor)) fail(e, `${tensor} is defined twice`, spanIn(e.target));
    assigned.set(tensor, place);
    if (!index.every((i, d) => i.kind === "axis" && i.name === names[d]) || index.length !== names.length)
      fail(
        e,
        `${printAccess(e.target)} must name every loop in order: ${tensor}[${names.join(",")}]`,
        spanIn(e.target),
      );
    if (e.op !== "=") fail(e, `a variable is defined with "=", got "${e.op}"`);
    if (e.where !== undefined) fail(e, `${tensor} is defined at every point; write select(condition, a, b) for where`);
  }
  if (results.length === 0)
    fail(undefined, "nothing leaves the array: add a result such as `out[c] = Z[c,q] where q == 4`");

  // 2. Indices use loops; variables are read at constant distances, and at distance 0 only after their definition.
  checkReads(loops, equations, definitions, assigned, fail);
  for (const e of results) {
    if (e.op !== "=") fail(e, `a result is assigned with "=", got "${e.op}"`);
    for (const access of accessesOf(e).slice(1))
      if (!assigned.has(access.tensor))
        fail(e, `a result reads variables, and ${access.tensor} is none`, spanIn(access));
  }

  // 3. Types follow from the values, and sizes from the indices.
  for (const tensor of declared.keys()) {
    const known = unique(equations.flatMap(tensorsOf));
    if (!known.includes(tensor))
      fail(undefined, `no tensor or variable "${tensor}"`, undefined, suggestion(tensor, known));
  }
  const outside = unique([...results, ...definitions].flatMap(tensorsOf)).filter((t) => !assigned.has(t));
  const outputs = new Set(results.map((e) => e.target.tensor));
  const dtypes = typesOf(
    outside.filter((t) => !outputs.has(t)),
    [...definitions, ...results],
    declared,
    fail,
  );
  const tensors = Object.fromEntries(
    outside.map((tensor): [string, Tensor] => {
      const accesses = equations.flatMap(accessesOf).filter((a) => a.tensor === tensor);
      return [tensor, completeTensor(name, tensor, dtypes[tensor] ?? "f32", declared.get(tensor), accesses, extents)];
    }),
  );
  const variables = Object.fromEntries(definitions.map((e) => [e.target.tensor, dtypes[e.target.tensor] ?? "f32"]));
  return { name, loops, definitions, results, variables, tensors };
}

const spanIn = (node: Expr): Span | undefined => spanOf(node)?.span;

/** Checks that indices use loops and that variables are read at constant distances, at distance 0 only after their definition. */
function checkReads(
  loops: readonly SourceLoop[],
  equations: readonly Equation[],
  definitions: readonly Equation[],
  assigned: ReadonlyMap<string, number>,
  fail: Fail,
): void {
  const names = namesOf(loops);
  for (const e of equations) {
    for (const node of [e.target, e.value, ...(e.where ? [e.where] : [])].flatMap((part) => [...walk(part)]))
      if (node.kind === "axis" && !names.includes(node.name))
        fail(e, `no loop "${node.name}"`, spanIn(node), `the loops are ${names.join(", ")}`);
    for (const access of accessesOf(e)) {
      for (const index of access.index) {
        const offending = offendingPart(index);
        if (offending)
          fail(e, `index of ${printAccess(access)} is not affine: ${offending.because}`, spanIn(offending.part));
      }
    }
    const here = definitions.includes(e) ? (assigned.get(e.target.tensor) ?? 0) : definitions.length;
    for (const access of accessesOf(e).slice(1)) {
      const place = assigned.get(access.tensor);
      if (place === undefined) continue;
      const distance = distanceOf(access, loops);
      if (distance === undefined)
        fail(
          e,
          `the dependence on ${printAccess(access)} is not uniform: every loop in order, each plus a constant`,
          spanIn(access),
        );
      else if (distance.every((d) => d === 0) && place >= here)
        fail(e, `${printAccess(access)} is read before it is defined at the same point`, spanIn(access));
    }
  }
}

/** Types: inputs as declared, else f32; assigned names by their values. */
function typesOf(
  inputs: readonly string[],
  equations: readonly Equation[],
  declared: ReadonlyMap<string, Declaration>,
  fail: Fail,
): Record<string, DType> {
  const dtypes: Record<string, DType> = {};
  for (const tensor of inputs) dtypes[tensor] = declared.get(tensor)?.dtype ?? "f32";
  for (const [tensor, { dtype }] of declared) dtypes[tensor] = dtype;
  for (const e of equations) {
    const { tensor } = e.target;
    try {
      const follows = typeOf(e.value, dtypes);
      dtypes[tensor] ??= follows ?? "f32";
      if (follows !== undefined && follows !== dtypes[tensor])
        fail(e, `${tensor} is ${dtypes[tensor]} but the value is ${follows}`);
    } catch (error) {
      if (error instanceof UsageError && error.source !== undefined && spanOf(e.target))
        fail(e, error.message, error.span);
      throw error;
    }
  }
  return dtypes;
}

function parseLoops(text: string, fail: (message: string, hint?: string) => never): SourceLoop[] {
  const loops = text.split(",").map((part) => {
    const [name = "", extent = "", ...more] = part.trim().split(/\s+/);
    if (!NAME.test(name) || !/^\d+$/.test(extent) || more.length > 0)
      fail(`a loop is a name and an extent, got "${part.trim()}"`, "for example: loops c 16, q 5");
    return { name, extent: Number(extent) };
  });
  const twice = loops.find((l, i) => loops.findIndex((other) => other.name === l.name) !== i);
  if (twice) fail(`two loops are called ${twice.name}`);
  return loops;
}

function parseDeclarations(
  text: string,
  declared: Map<string, Declaration>,
  fail: (message: string, hint?: string) => never,
): void {
  for (const part of text.split(/,(?![^[]*\])/)) {
    const [whole, name = "", dtype = "", sizes] = /^\s*(\w+)\s+(\w+)\s*(?:\[([\d\s,]*)\])?\s*$/.exec(part) ?? [];
    if (whole === undefined || !NAME.test(name))
      fail(`a tensor is a name, a type and a shape, got "${part.trim()}"`, "for example: tensors x f32[20], w f32[5]");
    if (!isDType(dtype)) fail(`unknown data type "${dtype}" of ${name}`, suggestion(dtype, DTYPES));
    else {
      const shape = sizes === undefined || sizes.trim() === "" ? undefined : sizes.split(",").map(Number);
      if (shape?.some((extent) => !Number.isSafeInteger(extent) || extent < 1))
        fail(`the shape of ${name} must hold positive integers, got [${sizes}]`);
      declared.set(name, shape ? { dtype, shape } : { dtype });
    }
  }
}

/** Runs a parser on one line; an error marks the place in the whole text. */
function located<T>(source: string, line: Line, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw lineError(source, line, error.message, error);
  }
}
