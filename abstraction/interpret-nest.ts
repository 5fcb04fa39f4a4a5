/**
 * @file Runs a loop nest exactly as it is written: the oracle of every lowering.
 *
 *     interpretNest(nest, conv2d, { in: [...], w: [...] })      the output, row-major, as numbers
 *
 * Values are rounded as interpret.ts rounds them. On lanes each statement runs as a whole before the next: every lane reads before
 * any writes.
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
import { identityOf } from "./equation.ts";
import { type Buffer, compileIndex, type Registers, type Run, Scope, type Values } from "./evaluate.ts";
import { printExpr } from "./expression.ts";
import { bufferOf, type Inputs, prepareInPlace, shapeOf } from "./interpret.ts";
import { compileLanes, compileScalar } from "./interpret-lanes.ts";
import { type Intrinsic, operandOf, tilePlaces, tileRowElements } from "./intrinsic.ts";
import { rowMajor } from "./layout.ts";
import type { LoopNest, Statement, VectorFile } from "./loop-nest.ts";

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
function storagePlaces(tensor: Tensor): Int32Array {
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
