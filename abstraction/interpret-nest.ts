/**
 * @file Runs a loop nest exactly as it is written: the oracle of every lowering.
 *
 *     interpretNest(nest, conv2d, { in: [...], w: [...] })      the output, row-major, as numbers
 *
 * Values are rounded as interpret.ts rounds them. On lanes each statement runs as a whole before the next: every lane reads before
 * any writes. Blocks and warps of a GPU run in any order (blocks/), and whatever depends on that order is an error.
 * Memory holds the user's tensors in their layouts, and scratch where its storage formulas put it.
 */

import { type Dimension, pointsIn, rowMajor, shapeOf } from "./affine.ts";
import { clusterOfNest, spreadOverCluster } from "./blocks/cluster.ts";
import type { RegisterShape } from "./blocks/context.ts";
import { describeElement, NestFault } from "./blocks/fault.ts";
import { compilePhases, type NestOrder, teamOfNest, warpsOfNest } from "./blocks/run.ts";
import { Judge, type WatchedBuffer, WatchedMemory } from "./blocks/watched-memory.ts";
import { byName, namesOf } from "./collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  memoryElements,
  outputOf,
  type Tensor,
  targetOf,
} from "./computation.ts";
import { type DType, isInteger, wrap } from "./dtype.ts";
import { internal } from "./error.ts";
import {
  type Buffer,
  compileCondition,
  compileIndex,
  compileValue,
  type Environment,
  type Registers,
  type Run,
  Scope,
  type Values,
  valuesOver,
} from "./evaluate.ts";
import { type Expr, identityOf, printExpr } from "./expression.ts";
import { bufferOf, type Inputs, prepareInPlace } from "./interpret.ts";
import { compileLanes, compileScalar } from "./interpret-lanes.ts";
import { type Intrinsic, operandOf } from "./intrinsic.ts";
import {
  dimsOf,
  isGridMode,
  isRoleMode,
  isShared,
  type LoopNest,
  type MadeElements,
  type MemoryTile,
  type Scratch,
  type Statement,
  storageOf,
  type VectorFile,
} from "./loop-nest.ts";
import { tilePlaces, tileRowElements } from "./memory-tile.ts";
import { printHead } from "./print-nest.ts";

/**
 * The output of a loop nest that was lowered from a computation.
 * @param calls how often the body runs after one `prepare`; a kernel is called repeatedly too
 * @param order in which blocks and warps run; irrelevant to a nest without them
 * @throws NestFault when the threads of a GPU could compute a different result
 */
export function interpretNest(
  written: LoopNest,
  computation: Computation,
  inputs: Inputs,
  calls = 1,
  order: NestOrder = {},
): Values {
  const nest = spreadOverCluster(written);
  const warps = warpsOfNest(nest);
  const stages = (nest.arrivals ?? []).reduce((sum, a) => sum + a.stages, 0);
  const blocks = clusterOfNest(nest);
  // Each block of a cluster may send to the stages of all.
  const judge = warps > 0 ? new Judge(warps, stages * blocks, blocks) : undefined;
  const memory = bindMemory(nest, computation, inputs, order.races === "ignored" ? undefined : judge);
  const target = targetOf(computation);
  const identity = identityOf(computation.equation.op, target.dtype);
  const { output, buffers } = memory;
  const vectors = (nest.vectors ?? []).map((v) => ({ name: v.name, ...vectorsOf(v) }));
  for (const v of vectors) buffers.set(v.name, v);
  const ofCall = nest.scratch
    .filter(({ scope }) => scope === "scratch")
    .map(({ name, dtype }) => ({ values: buffers.get(name)?.values, unknown: unknownOf(dtype) }));
  const { prepare, run } = judge
    ? compileForBlocks(nest, computation, memory, judge, order, vectors)
    : compileForThread(nest, new Scope(buffers, identity));
  prepare();
  const joins = !judge && nest.body.some((s) => joinsOutput(s, outputOf(computation).name));
  for (let call = 0; call < calls; call++) {
    // A nest that assigns its output must write every element; NaN reveals one that it misses.
    output.values.fill(joins ? identity : Number.NaN);
    for (const { values, unknown } of [...vectors, ...ofCall]) values?.fill(unknown);
    run();
  }
  const { places } = output;
  return places === undefined ? output.values : Float64Array.from(places, (at) => output.values[at] ?? Number.NaN);
}

interface Compiled {
  readonly prepare: () => void;
  readonly run: () => void;
}

function compileForThread(nest: LoopNest, scope: Scope): Compiled {
  for (const { name, intrinsic, operand, count } of nest.registers)
    scope.registers.set(name, registersOf(intrinsic, operand, count));
  const prepare = compileStatements(nest.prepare, scope);
  const run = compileStatements(nest.body, scope);
  const env = scope.environment();
  return { prepare: () => prepare(env), run: () => run(env) };
}

function compileForBlocks(
  nest: LoopNest,
  computation: Computation,
  { buffers, names }: NestMemory,
  judge: Judge,
  order: NestOrder,
  vectors: readonly (Buffer & { readonly unknown: number })[],
): Compiled {
  const identity = identityOf(computation.equation.op, targetOf(computation).dtype);
  const local = nest.scratch.find((s) => s.scope === "local");
  if (local)
    throw new NestFault("malformed", [`${local.name} is local, and threads of a GPU have registers: make it shared`]);
  const files = nest.registers.map(({ name, intrinsic, operand, count }, number): RegisterShape => {
    const { tiles: _, ...shape } = registersOf(intrinsic, operand, 0);
    return { name, number, intrinsic, operand: operandOf(intrinsic, operand), count, ...shape };
  });
  const context = {
    scope: new Scope(buffers, identity),
    judge,
    files: byName(files),
    scratch: byName(nest.scratch),
    names,
    inputs: new Set(namesOf(inputsOf(computation))),
    vectors,
    copies: order.copies ?? "early",
    team: teamOfNest(nest),
    arrivals: nest.arrivals ?? [],
  };
  // Statements outside blocks run on one thread, between barriers of the whole call.
  const unwatched = [...buffers].map(([name, { watch: _, ...buffer }]) => [name, buffer] as const);
  const plain = (s: Statement): (() => void) => {
    const { run } = compileForThread({ ...nest, prepare: [], body: [s] }, new Scope(new Map(unwatched), identity));
    return run;
  };
  return {
    prepare: compilePhases(nest.prepare, context, order, plain),
    run: compilePhases(nest.body, context, order, plain),
  };
}

/** Whether a statement adds to the output in memory, which must then hold the identity first. */
function joinsOutput(s: Statement, output: string): boolean {
  if (s.kind === "loop") return s.body.some((inner) => joinsOutput(inner, output));
  if (s.kind === "when") return [...s.body, ...s.otherwise].some((inner) => joinsOutput(inner, output));
  return s.kind === "scalar" && s.equation.target.tensor === output && s.equation.op !== "=";
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
      if (isGridMode(s.mode) || isRoleMode(s.mode))
        throw new NestFault("malformed", [
          isGridMode(s.mode)
            ? `loops at ${s.mode} stand at the top of a nest`
            : `loops at ${s.mode} stand inside loops at block`,
          printHead(s),
        ]);
      const slot = scope.slot(s.axis);
      const body = compileStatements(s.body, scope);
      const from = (s.range?.from ?? []).map((e) => compileIndex(e, scope));
      const to = (s.range?.to ?? []).map((e) => compileIndex(e, scope));
      return (env) => {
        const end = to.reduce((least, last) => Math.min(least, last(env)), s.extent);
        for (let i = from.reduce((most, first) => Math.max(most, first(env)), 0); i < end; i++) {
          env[slot] = i;
          body(env);
        }
      };
    }
    case "when": {
      if (s.counted)
        throw new NestFault("malformed", ["a body that is counted stands outside of a block", printHead(s)]);
      const condition = compileCondition(s.condition, scope);
      const body = compileStatements(s.body, scope);
      const otherwise = compileStatements(s.otherwise, scope);
      return (env) => (condition(env) !== 0 ? body(env) : otherwise(env));
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
      if (s.group)
        throw new NestFault("malformed", ["a barrier of a group stands inside loops at block", printHead(s)]);
      return () => undefined;
    case "fetch":
    case "drain":
    case "accumulate":
    case "copy":
    case "commit":
    case "wait":
    case "settle":
    case "fence":
    case "send":
    case "await":
    case "arrive":
      throw new NestFault("malformed", [`a ${s.kind} stands inside loops at block`, printHead(s)]);
    default:
      return s satisfies never;
  }
}

function compileMove(statement: Extract<Statement, { kind: "load" | "store" }>, scope: Scope): Run {
  const { kind, register, memory, made } = statement;
  const { tiles, rows, columns } = scope.registerFile(register.file);
  const { values } = scope.buffer(memory.buffer);
  const index = compileIndex(register.index, scope);
  const base = compileIndex(memory.base, scope);
  const { stride } = memory;
  const laneOf = (i: number): number => (rows[i] ?? 0) * stride + (columns[i] ?? 0);
  const place = (from: number, lane: number): number => from + (made?.halves ? half(made.halves, lane) >> 1 : lane);
  const make = made && compileMade(made, memory, scope);
  return (env) => {
    const tile = tiles[index(env)];
    const from = base(env);
    if (!tile) internal(`register ${register.file} ${index(env)} does not exist`);
    for (let i = 0; i < tile.length; i++) {
      const lane = laneOf(i);
      const at = place(from, lane);
      if (at < 0 || at >= values.length) internal(`${kind} at ${at} outside ${memory.buffer}`);
      const value = values[at] ?? Number.NaN;
      if (kind === "load") tile[i] = make ? make(env, lane, value) : value;
      else values[at] = tile[i] ?? Number.NaN;
    }
  };
}

/** The number that a lane takes among those in half bytes. */
const half = (halves: readonly number[], lane: number): number =>
  halves[lane] ?? internal(`lane ${lane} takes nothing`);

/** What a load makes of the element of memory that belongs to a lane. */
function compileMade({ lane, element, value, halves }: MadeElements, { buffer }: MemoryTile, scope: Scope) {
  const one: Buffer = { values: new Float64Array(1), shape: [], dtype: scope.buffer(buffer).dtype };
  const evaluate = compileValue(value, scope.including(element, one), "f32");
  const slot = scope.slot(lane);
  return (env: Environment, at: number, held: number): number => {
    env[slot] = at;
    one.values[0] = halves ? (half(halves, at) % 2 === 0 ? held % 16 : held >> 4) : held;
    return evaluate(env);
  };
}

/**
 * An instruction's equation runs on arrays of its own: its operands are brought in, and the target is brought back.
 * @param moved how an operand moves between where it is held and its array
 */
function compileInstruction(
  intrinsic: Intrinsic,
  moved: (operand: string, values: Values) => { readonly bring: Run; readonly keep: Run },
): Run {
  const logical: Record<string, Values> = {};
  const moves = intrinsic.operands.map(({ name }) => {
    const values = new Float64Array(tilePlaces(intrinsic, name).length);
    logical[name] = values;
    return moved(name, values);
  });
  const issue = prepareInPlace(intrinsic.computation, logical);
  const target = moves[0] ?? internal(`${intrinsic.name} has no operands`);
  return (env) => {
    for (const { bring } of moves) bring(env);
    issue();
    target.keep(env);
  };
}

function compileRegisterIssue(
  { intrinsic, registers }: Extract<Statement, { kind: "register-issue" }>,
  scope: Scope,
): Run {
  return compileInstruction(intrinsic, (operand, values) => {
    const register = registers[operand] ?? internal(`${intrinsic.name} is issued without ${operand}`);
    const { tiles } = scope.registerFile(register.file);
    const index = compileIndex(register.index, scope);
    return {
      bring: (env) => values.set(tiles[index(env)] ?? []),
      keep: (env) => tiles[index(env)]?.set(values),
    };
  });
}

/** Unpacks memory tiles into logical operands, and packs the target back. */
function compileIssue({ intrinsic, tiles }: Extract<Statement, { kind: "issue" }>, scope: Scope): Run {
  return compileInstruction(intrinsic, (operand, values) => {
    const tile = tiles[operand] ?? internal(`${intrinsic.name} is issued without ${operand}`);
    const places = tilePlaces(intrinsic, operand);
    const { values: memory } = scope.buffer(tile.buffer);
    const base = compileIndex(tile.base, scope);
    return {
      bring: (env) => {
        const from = base(env);
        for (let i = 0; i < places.length; i++) values[i] = memory[from + (places[i] ?? 0)] ?? Number.NaN;
      },
      keep: (env) => {
        const to = base(env);
        for (let i = 0; i < places.length; i++) memory[to + (places[i] ?? 0)] = values[i] ?? Number.NaN;
      },
    };
  });
}

interface NestMemory {
  readonly buffers: Map<string, Buffer>;
  readonly output: Buffer;
  /** Names of the elements of each buffer, for messages. */
  readonly names: ReadonlyMap<string, WatchedBuffer>;
}

/**
 * Buffers of all tensors and all scratch of a nest.
 * @param judge watches accesses by the threads of a GPU; none are watched when left out
 * @throws NestFault when a storage formula puts two elements in one place, or one outside its buffer
 */
function bindMemory(nest: LoopNest, computation: Computation, inputs: Inputs, judge?: Judge): NestMemory {
  const buffers = new Map<string, Buffer>();
  const names = new Map<string, WatchedBuffer>();
  const name = (buffer: WatchedBuffer): WatchedBuffer => {
    names.set(buffer.name, buffer);
    return buffer;
  };
  const watch = (buffer: WatchedBuffer): Pick<Buffer, "watch"> =>
    judge ? { watch: new WatchedMemory(judge, buffer) } : {};
  const ofTensor = (tensor: Tensor, { values, places }: Buffer): WatchedBuffer =>
    name({ name: tensor.name, dims: tensor.dims, elements: values.length, places, shared: false });

  for (const tensor of inputsOf(computation)) {
    const buffer = storedBuffer(tensor, bufferOf(computation.name, tensor, inputs[tensor.name]).values);
    ofTensor(tensor, buffer);
    buffers.set(tensor.name, buffer);
  }
  const stored = outputOf(computation);
  const unwatched = storedBuffer(stored, new Float64Array(elementCount(stored)));
  const output = { ...unwatched, ...watch(ofTensor(stored, unwatched)) };
  buffers.set(stored.name, output);
  for (const scratch of nest.scratch) {
    const dims = dimsOf(scratch);
    const places = scratchPlaces(scratch);
    const { dtype, elements, outside } = scratch;
    const named = name({ name: scratch.name, dims, elements, places, shared: isShared(scratch), outside });
    const values = new Float64Array(elements);
    buffers.set(scratch.name, { values, shape: shapeOf({ dims }), dtype, ...(places && { places }), ...watch(named) });
  }
  return { buffers, output, names };
}

/** A tensor's elements in storage order, with the place of each logical element. */
function storedBuffer(tensor: Tensor, logical: Values): Buffer {
  const shape = shapeOf(tensor);
  const places = placesOf(tensor.dims, tensor.storage);
  if (!places) return { values: Float64Array.from(logical), shape, dtype: tensor.dtype };
  const values = new Float64Array(memoryElements(tensor));
  for (let i = 0; i < places.length; i++) values[places[i] ?? 0] = logical[i] ?? Number.NaN;
  return { values, shape, dtype: tensor.dtype, places };
}

/** Place in memory of each logical element, in row-major order; undefined when the storage is row-major. */
function placesOf(dims: readonly Dimension[], storage: Expr): Int32Array | undefined {
  return printExpr(storage) === printExpr(rowMajor(dims)) ? undefined : Int32Array.from(valuesOver(storage, dims));
}

function scratchPlaces(scratch: Scratch): Int32Array | undefined {
  const { name, elements } = scratch;
  const dims = dimsOf(scratch);
  const places = placesOf(dims, storageOf(scratch));
  if (!places) {
    const size = pointsIn(dims);
    if (size > elements)
      throw new NestFault("malformed", [`${name} has ${size} elements and memory for ${elements}: give it as much`]);
    return undefined;
  }
  const holder = new Int32Array(elements).fill(-1);
  for (const [element, place] of places.entries()) {
    const described = (at: number): string => describeElement({ name, dims }, at);
    if (place < 0 || place >= elements)
      throw new NestFault("malformed", [
        `${described(element)} lies at place ${place} of ${elements}: the storage formula leaves its buffer`,
      ]);
    const before = holder[place] ?? -1;
    if (before >= 0)
      throw new NestFault("malformed", [
        `${described(before)} and ${described(element)} lie in one place, ${place}: the storage formula must keep them apart`,
      ]);
    holder[place] = element;
  }
  return places;
}

/** Registers that all hold 0. */
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

/** Integers have no NaN: this value, which tests do not use, marks an unknown element. */
const UNKNOWN_INTEGER = 0x5bad_5bad;

function unknownOf(dtype: DType): number {
  return isInteger(dtype) ? wrap(dtype, UNKNOWN_INTEGER) : Number.NaN;
}

function vectorsOf({ dtype, lanes, count }: VectorFile): Buffer & { readonly unknown: number } {
  return { values: new Float64Array(count * lanes), shape: [count, lanes], dtype, unknown: unknownOf(dtype) };
}
