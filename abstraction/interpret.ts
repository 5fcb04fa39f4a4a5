/**
 * @file The oracle: runs equations and loop nests exactly as they are written. Slow, obvious, never the fast path.
 *
 *     interpret(conv2d, { in: [...], w: [...] })      the output, row-major, as numbers
 *     interpretNest(nest, conv2d, { in, w })          the same, by way of the lowered program
 *
 * Integers wrap or saturate as declared. Floats round to nearest even after every operation; the sum over the reduce axes is
 * kept in double precision and rounded once, when it joins the target. An epilogue starts from that rounded element.
 * On lanes each statement runs as a whole before the next: every lane reads before any writes.
 */

import { evaluateIndex, pointsOf } from "./affine.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  memoryElements,
  outputOf,
  type Tensor,
  targetOf,
} from "./computation.ts";
import { isInteger, wrap } from "./dtype.ts";
import { partsOf } from "./epilogue.ts";
import { type Equation, identityOf, printEquation } from "./equation.ts";
import {
  type Buffer,
  compileIndex,
  compilePlace,
  compileValue,
  type Environment,
  foldOf,
  joinOf,
  type Registers,
  Scope,
  type Values,
} from "./evaluate.ts";
import { axesIn, printExpr } from "./expression.ts";
import { type Intrinsic, operandOf, sizesOf, tileOffset, tileRowElements } from "./intrinsic.ts";
import { rowMajor } from "./layout.ts";
import type { LoopNest, Statement, VectorFile } from "./loop-nest.ts";

export type Inputs = Readonly<Record<string, ArrayLike<number>>>;

type Run = (env: Environment) => void;

/**
 * The output of a computation.
 * @param inputs one array per input tensor, row-major, holding values its type can hold
 * @throws Error when an input is missing or has the wrong number of elements
 */
export function interpret(computation: Computation, inputs: Inputs): Values {
  const target = targetOf(computation);
  const { sum, epilogue } = partsOf(computation);
  if (epilogue) return interpret(epilogue, { ...inputs, [target.name]: interpret(sum, inputs) });
  const buffers = bindInputs(computation, inputs);
  const output = new Float64Array(elementCount(target)).fill(identityOf(computation.equation.op, target.dtype));
  buffers.set(target.name, { values: output, shape: shapeOf(target), dtype: target.dtype });
  prepare(computation, buffers)();
  return output;
}

/** Runs an equation on buffers in place: the target keeps what it held, as an accumulating instruction's register does. */
export function interpretInPlace(computation: Computation, values: Readonly<Record<string, Values>>): void {
  prepareInPlace(computation, values)();
}

/** Compiles once what {@link interpretInPlace} does; each call runs it on the same arrays. */
function prepareInPlace(computation: Computation, values: Readonly<Record<string, Values>>): () => void {
  const buffers = new Map<string, Buffer>();
  for (const tensor of Object.values(computation.tensors))
    buffers.set(tensor.name, bufferOf(computation.name, tensor, values[tensor.name]));
  return prepare(computation, buffers);
}

/**
 * The output of a computation, by way of a loop nest that was lowered from it.
 * @param calls how often the body is run after one `prepare`, as a kernel is called again and again
 */
export function interpretNest(nest: LoopNest, computation: Computation, inputs: Inputs, calls = 1): Values {
  const target = targetOf(computation);
  const identity = identityOf(computation.equation.op, target.dtype);
  const buffers = new Map<string, Buffer>();
  for (const tensor of inputsOf(computation)) {
    buffers.set(tensor.name, storedBuffer(tensor, bufferOf(computation.name, tensor, inputs[tensor.name]).values));
  }
  const stored = outputOf(computation);
  const output = storedBuffer(stored, new Float64Array(elementCount(stored)));
  buffers.set(stored.name, output);
  for (const { name, dtype, elements } of nest.scratch) {
    buffers.set(name, { values: new Float64Array(elements), shape: [elements], dtype });
  }
  const vectors = (nest.vectors ?? []).map((v) => ({ name: v.name, ...vectorsOf(v) }));
  for (const v of vectors) buffers.set(v.name, v);
  const scope = new Scope(buffers, identity);
  for (const { name, intrinsic, operand, count } of nest.registers) {
    scope.registers.set(name, registersOf(intrinsic, operand, count));
  }
  const prepare = compileStatements(nest.prepare, scope);
  const run = compileStatements(nest.body, scope);
  const env = scope.environment();
  prepare(env);
  for (let call = 0; call < calls; call++) {
    // An epilogue assigns every element: one it leaves out shows.
    output.values.fill(computation.epilogue ? Number.NaN : identity);
    for (const { values, unknown } of vectors) values.fill(unknown);
    run(env);
  }
  const { places } = output;
  return places === undefined ? output.values : Float64Array.from(places, (at) => output.values[at] ?? Number.NaN);
}

function prepare(computation: Computation, buffers: ReadonlyMap<string, Buffer>): () => void {
  const { equation, axes } = computation;
  const target = targetOf(computation);
  const scope = new Scope(buffers, identityOf(equation.op, target.dtype));
  const spatial = axes.filter((a) => a.kind === "spatial");
  const reduce = axes.filter((a) => a.kind === "reduce");

  // The order of slots is the order of loops: spatial axes outside, reduce axes inside.
  for (const a of [...spatial, ...reduce]) scope.slot(a.name);
  const value = compileValue(equation.value, scope, target.dtype);
  const where = equation.where === undefined ? undefined : compileIndex(equation.where, scope);
  const place = compilePlace(equation.target, scope);
  const join = joinOf(equation.op, target.dtype);
  const fold = foldOf(equation.op, target.dtype);
  const output = scope.buffer(target.name).values;
  const env = scope.environment();

  const overReduce = nestOf(reduce, scope, env);
  const overSpatial = nestOf(spatial, scope, env);
  return () =>
    overSpatial(() => {
      const at = place(env);
      if (at < 0) return;
      let sum = scope.identity;
      let any = false;
      overReduce(() => {
        if (where !== undefined && where(env) === 0) return;
        sum = any ? fold(sum, value(env)) : value(env);
        any = true;
      });
      if (any) output[at] = join(output[at] ?? scope.identity, sum);
    });
}

/** Runs a body at every point of a box, last axis fastest, counters in `env`. */
function nestOf(
  axes: readonly { name: string; extent: number }[],
  scope: Scope,
  env: Environment,
): (body: () => void) => void {
  const levels = axes.map((a) => ({ slot: scope.slot(a.name), extent: a.extent }));
  return (body) => {
    const at = (level: number): void => {
      const here = levels[level];
      if (here) {
        for (let i = 0; i < here.extent; i++) {
          env[here.slot] = i;
          at(level + 1);
        }
      } else body();
    };
    at(0);
  };
}

function compileStatements(statements: readonly Statement[], scope: Scope): Run {
  const runs = statements.map((s) => compileStatement(s, scope));
  const [only] = runs;
  if (runs.length === 1 && only) return only;
  return (env) => {
    for (const run of runs) run(env);
  };
}

function compileStatement(s: Statement, scope: Scope): Run {
  switch (s.kind) {
    case "loop": {
      if (s.mode === "lanes") return compileLanes(s, scope);
      const slot = scope.slot(s.axis);
      const body = compileStatements(s.body, scope);
      return (env) => {
        for (let i = 0; i < s.extent; i++) {
          env[slot] = i;
          body(env);
        }
      };
    }
    case "scalar":
      return compileScalar(s.equation, scope);
    case "issue":
      return compileIssue(s, scope);
    case "load":
    case "store":
      return compileMove(s, scope);
    case "clear": {
      const { tiles, identity } = scope.registerFile(s.register.file);
      const index = compileIndex(s.register.index, scope);
      return (env) => void tiles[index(env)]?.fill(identity);
    }
    case "register-issue":
      return compileRegisterIssue(s, scope);
    case "barrier":
      return () => undefined;
    case "fetch":
    case "drain":
    case "copy":
    case "commit":
    case "wait":
      throw new Error(`internal: a ${s.kind} stands outside the warps of a block`);
    default:
      return s satisfies never;
  }
}

function compileScalar({ target, op, value, where }: Equation, scope: Scope): Run {
  const { dtype, values } = scope.buffer(target.tensor);
  const evaluate = compileValue(value, scope, dtype);
  const place = compilePlace(target, scope);
  const join = joinOf(op, dtype);
  const condition = where === undefined ? undefined : compileIndex(where, scope);
  return (env) => {
    if (condition !== undefined && condition(env) === 0) return;
    const at = place(env);
    if (at >= 0) values[at] = join(values[at] ?? 0, evaluate(env));
  };
}

/**
 * Each statement on every lane before the next begins: all lanes read, then all write. A target without the lane axis takes one value
 * folded from all lanes, rounded once; with `=` at most one lane may meet the condition.
 */
function compileLanes({ axis, extent, body }: Extract<Statement, { kind: "loop" }>, scope: Scope): Run {
  const slot = scope.slot(axis);
  const runs = body.map((s): Run => {
    if (s.kind !== "scalar")
      throw new Error(`internal: lanes of ${axis} run a ${s.kind}; they run scalar statements only`);
    const { target, op, value, where } = s.equation;
    const { dtype, values } = scope.buffer(target.tensor);
    const evaluate = compileValue(value, scope, dtype);
    const place = compilePlace(target, scope);
    const join = joinOf(op, dtype);
    const condition = where === undefined ? undefined : compileIndex(where, scope);
    const reduces = !target.index.some((index) => axesIn(index).includes(axis));
    if (reduces) {
      const fold = foldOf(op, dtype);
      return (env) => {
        let sum = 0;
        let active = 0;
        for (let lane = 0; lane < extent; lane++) {
          env[slot] = lane;
          if (condition !== undefined && condition(env) === 0) continue;
          sum = active === 0 ? evaluate(env) : fold(sum, evaluate(env));
          active++;
        }
        const at = place(env);
        if (active > 1 && op === "=") throw new Error(`internal: ${active} lanes assign ${printEquation(s.equation)}`);
        if (active > 0 && at >= 0) values[at] = join(values[at] ?? 0, sum);
      };
    }
    const places = new Int32Array(extent);
    const results = new Float64Array(extent);
    return (env) => {
      for (let lane = 0; lane < extent; lane++) {
        env[slot] = lane;
        const at = condition !== undefined && condition(env) === 0 ? -1 : place(env);
        places[lane] = at;
        if (at >= 0) results[lane] = join(values[at] ?? 0, evaluate(env));
      }
      let before = -1;
      let ascending = true;
      for (let lane = 0; lane < extent; lane++) {
        const at = places[lane] ?? -1;
        if (at < 0) continue;
        if (at <= before) ascending = false;
        before = at;
        values[at] = results[lane] ?? Number.NaN;
      }
      const written = ascending ? [] : places.filter((at) => at >= 0);
      if (new Set(written).size < written.length)
        throw new Error(`internal: two lanes write one element: ${printEquation(s.equation)}`);
    };
  });
  return (env) => {
    for (const run of runs) run(env);
  };
}

function compileMove({ kind, register, memory }: Extract<Statement, { kind: "load" | "store" }>, scope: Scope): Run {
  const { tiles, rows, columns } = scope.registerFile(register.file);
  const { values } = scope.buffer(memory.buffer);
  const index = compileIndex(register.index, scope);
  const base = compileIndex(memory.base, scope);
  const { stride } = memory;
  const place = (from: number, i: number): number => from + (rows[i] ?? 0) * stride + (columns[i] ?? 0);
  return (env) => {
    const tile = tiles[index(env)];
    const from = base(env);
    if (!tile) throw new Error(`internal: register ${register.file} ${index(env)} does not exist`);
    for (let i = 0; i < tile.length; i++) {
      const at = place(from, i);
      if (at < 0 || at >= values.length) throw new Error(`internal: ${kind} at ${at} outside ${memory.buffer}`);
      if (kind === "load") tile[i] = values[at] ?? Number.NaN;
      else values[at] = tile[i] ?? Number.NaN;
    }
  };
}

function compileRegisterIssue(
  { intrinsic, registers }: Extract<Statement, { kind: "register-issue" }>,
  scope: Scope,
): Run {
  // The instruction's equation runs on arrays of its own; registers are copied in and the target copied back.
  const logical: Record<string, Values> = {};
  const operands = intrinsic.operands.map((operand) => {
    const register = registers[operand.name];
    if (!register) throw new Error(`internal: ${intrinsic.name} is issued without ${operand.name}`);
    const values = new Float64Array(tilePlaces(intrinsic, operand.name).length);
    logical[operand.name] = values;
    const { tiles } = scope.registerFile(register.file);
    return { tiles, index: compileIndex(register.index, scope), values };
  });
  const issue = prepareInPlace(intrinsic.computation, logical);
  const [target] = operands;
  return (env) => {
    for (const { tiles, index, values } of operands) values.set(tiles[index(env)] ?? []);
    issue();
    if (target) target.tiles[target.index(env)]?.set(target.values);
  };
}

function registersOf(intrinsic: Intrinsic, operandName: string, count: number): Registers {
  const operand = operandOf(intrinsic, operandName);
  const places = tilePlaces(intrinsic, operandName);
  const row = tileRowElements(operand);
  return {
    tiles: Array.from({ length: count }, () => new Float64Array(places.length)),
    rows: places.map((at) => Math.floor(at / row)),
    columns: places.map((at) => at % row),
    identity: identityOf(intrinsic.computation.equation.op, operand.dtype),
  };
}

/** Integers have no NaN: a value that tests do not use stands for what is unknown. */
const UNKNOWN_INTEGER = 0x5bad_5bad;

function vectorsOf({ dtype, lanes, count }: VectorFile): Buffer & { readonly unknown: number } {
  const unknown = isInteger(dtype) ? wrap(dtype, UNKNOWN_INTEGER) : Number.NaN;
  return { values: new Float64Array(count * lanes), shape: [count, lanes], dtype, unknown };
}

/** A tensor's elements in storage order, with the way back. */
function storedBuffer(tensor: Tensor, logical: Values): Buffer {
  const shape = shapeOf(tensor);
  if (printExpr(tensor.storage) === printExpr(rowMajor(tensor.dims))) {
    return { values: Float64Array.from(logical), shape, dtype: tensor.dtype };
  }
  const places = storagePlaces(tensor);
  const values = new Float64Array(memoryElements(tensor));
  for (let i = 0; i < places.length; i++) values[places[i] ?? 0] = logical[i] ?? Number.NaN;
  return { values, shape, dtype: tensor.dtype, places };
}

/** Place in memory of each logical element of a tensor, in row-major order. */
export function storagePlaces(tensor: Tensor): Int32Array {
  const places = new Int32Array(elementCount(tensor));
  const extents = Object.fromEntries(tensor.dims.map((d) => [d.name, d.extent]));
  const names = tensor.dims.map((d) => d.name);
  let i = 0;
  for (const point of pointsOf(names, extents)) places[i++] = evaluateIndex(tensor.storage, point);
  return places;
}

/** Unpacks memory tiles into logical operands, runs the instruction's own equation, and packs the target back. */
function compileIssue({ intrinsic, tiles }: Extract<Statement, { kind: "issue" }>, scope: Scope): Run {
  const logical: Record<string, Values> = {};
  const moves = intrinsic.operands.map((operand) => {
    const tile = tiles[operand.name];
    if (!tile) throw new Error(`internal: ${intrinsic.name} is issued without ${operand.name}`);
    const places = tilePlaces(intrinsic, operand.name);
    const values = new Float64Array(places.length);
    logical[operand.name] = values;
    return { memory: scope.buffer(tile.buffer).values, base: compileIndex(tile.base, scope), places, values };
  });
  const [target] = moves;
  if (!target) throw new Error(`internal: ${intrinsic.name} has no operands`);
  const issue = prepareInPlace(intrinsic.computation, logical);
  return (env) => {
    for (const { memory, base, places, values } of moves) {
      const from = base(env);
      for (let i = 0; i < places.length; i++) values[i] = memory[from + (places[i] ?? 0)] ?? Number.NaN;
    }
    issue();
    const to = target.base(env);
    for (let i = 0; i < target.places.length; i++)
      target.memory[to + (target.places[i] ?? 0)] = target.values[i] ?? Number.NaN;
  };
}

const knownPlaces = new WeakMap<Intrinsic, Map<string, Int32Array>>();

/** Place in a memory tile of each logical element, in row-major order; worked out once an instruction. */
export function tilePlaces(intrinsic: Intrinsic, operandName: string): Int32Array {
  const known = knownPlaces.get(intrinsic) ?? new Map<string, Int32Array>();
  knownPlaces.set(intrinsic, known);
  const before = known.get(operandName);
  if (before) return before;
  const operand = operandOf(intrinsic, operandName);
  const offset = tileOffset(operand);
  const names = operand.dims.map((d) => d.name);
  const list: number[] = [];
  for (const point of pointsOf(names, sizesOf(operand))) list.push(evaluateIndex(offset, point));
  const places = Int32Array.from(list);
  known.set(operandName, places);
  return places;
}

function bindInputs(computation: Computation, inputs: Inputs): Map<string, Buffer> {
  const buffers = new Map<string, Buffer>();
  for (const tensor of inputsOf(computation))
    buffers.set(tensor.name, bufferOf(computation.name, tensor, inputs[tensor.name]));
  return buffers;
}

function bufferOf(subject: string, tensor: Tensor, values: ArrayLike<number> | undefined): Buffer {
  const expected = elementCount(tensor);
  if (values === undefined) throw new Error(`${subject}: no values for tensor "${tensor.name}"`);
  if (values.length !== expected)
    throw new Error(`${subject}: ${tensor.name} has ${expected} elements, got ${values.length}`);
  return {
    values: values instanceof Float64Array ? values : Float64Array.from(values),
    shape: shapeOf(tensor),
    dtype: tensor.dtype,
  };
}

function shapeOf(tensor: Tensor): number[] {
  return tensor.dims.map((d) => d.extent);
}
