/**
 * @file Compiles expressions to functions of loop counters: an index, the address of an element, a value rounded as its type requires.
 *
 *     compileIndex(parse("p*2 + r"))      (env) => env[0] * 2 + env[1]
 *
 * Loop counters are slots of one array. An element outside its tensor has address -1. interpret.ts is built from these functions.
 */

import { type AffineForm, affineForm, type Dimension, pointsIn } from "./affine.ts";
import { type DType, isInteger, roundHalfEven, saturate, wrap, wrapperOf } from "./dtype.ts";
import { internal } from "./error.ts";
import {
  type Access,
  type BinaryOp,
  borderOp,
  type CombineOp,
  compareOp,
  comparesElements,
  type Equation,
  type Expr,
  integerOp,
  printAccess,
} from "./expression.ts";
import { FLOAT_VALUES } from "./float-functions.ts";
import { typeOf } from "./typing.ts";

/** Elements in logical row-major order. */
export type Values = Float64Array;

/** Loop counters by slot. */
export type Environment = Int32Array;

export type Evaluate = (env: Environment) => number;

/** A compiled statement. */
export type Run = (env: Environment) => void;

/** Receives every read and write of an element, by its place. */
export interface Watch {
  /** @param byItself whether the reader is an asynchronous instruction, which sees only published writes */
  read(at: number, byItself?: boolean): void;
  write(at: number): void;
  /** A read outside the tensor, where a machine would read whatever lies there. @throws Error when nothing tests for it */
  outside(access: Access): void;
}

export interface Buffer {
  readonly values: Values;
  readonly shape: readonly number[];
  readonly dtype: DType;
  /** Place in memory of each logical element; left out for row-major order. */
  readonly places?: Int32Array;
  /** For vectors of lanes, indexed `[register, lane]`: the value read beyond the ends of a register, or from a register that was never written. */
  readonly unknown?: number;
  /** For memory that several threads access. */
  readonly watch?: Watch;
  /** Computes elements when they are read, instead of `values`. */
  readonly element?: (place: number) => number;
}

/** Registers of one operand: each holds the logical elements of one tile. */
export interface Registers {
  readonly tiles: readonly Values[];
  /** Row and column of each logical element in a memory tile. */
  readonly rows: Int32Array;
  readonly columns: Int32Array;
  readonly identity: number;
}

/** What names mean while an expression is compiled: axes are slots of the environment, tensors are buffers. */
export class Scope {
  readonly buffers: ReadonlyMap<string, Buffer>;
  readonly identity: number;
  readonly dtypes: Readonly<Record<string, DType>>;
  readonly registers = new Map<string, Registers>();
  private readonly slots: Map<string, number>;

  /** Precomputed address tables, indexed by the loop counter, for accesses that depend on one loop counter. */
  readonly tables: ReadonlyMap<Access, Int32Array> | undefined;

  constructor(
    buffers: ReadonlyMap<string, Buffer>,
    identity: number,
    tables?: ReadonlyMap<Access, Int32Array>,
    slots = new Map<string, number>(),
  ) {
    this.buffers = buffers;
    this.identity = identity;
    this.tables = tables;
    this.slots = slots;
    this.dtypes = Object.fromEntries([...buffers].map(([name, b]) => [name, b.dtype]));
  }

  slot(name: string): number {
    const known = this.slots.get(name);
    if (known !== undefined) return known;
    this.slots.set(name, this.slots.size);
    return this.slots.size - 1;
  }

  /** The same scope with one more buffer. Both share the loop counters. */
  including(name: string, buffer: Buffer): Scope {
    return new Scope(new Map([...this.buffers, [name, buffer]]), this.identity, undefined, this.slots);
  }

  buffer(name: string): Buffer {
    return this.buffers.get(name) ?? internal(`no buffer for "${name}"`);
  }

  registerFile(name: string): Registers {
    return this.registers.get(name) ?? internal(`no registers "${name}"`);
  }

  environment(): Environment {
    return new Int32Array(this.slots.size);
  }
}

/** Flat place of an element, or -1 outside the tensor. */
export function compilePlace(access: Access, scope: Scope): Evaluate {
  const table = scope.tables?.get(access);
  if (table) return (env) => table[env[0] ?? 0] ?? -1;
  const { tensor, index } = access;
  const { shape, places, unknown } = scope.buffer(tensor);
  const row = compileRowMajor(index, shape, scope);
  const [register] = index;
  if (unknown !== undefined && register) {
    const [count = 0] = shape;
    const number = compileIndex(register, scope);
    return (env) => {
      const n = number(env);
      if (index.length !== 2 || n < 0 || n >= count) internal(`${printAccess(access)} is register ${n} of ${count}`);
      return row(env);
    };
  }
  if (places === undefined) return row;
  return (env) => {
    const at = row(env);
    return at < 0 ? -1 : (places[at] ?? -1);
  };
}

function compileRowMajor(index: readonly Expr[], shape: readonly number[], scope: Scope): Evaluate {
  const parts = index.map((e, d) => ({ at: compileIndex(e, scope), extent: shape[d] ?? 0 }));
  const [first, second] = parts;
  if (parts.length === 1 && first) {
    return (env) => {
      const i = first.at(env);
      return i >= 0 && i < first.extent ? i : -1;
    };
  }
  if (parts.length === 2 && first && second) {
    return (env) => {
      const i = first.at(env);
      const j = second.at(env);
      return i >= 0 && i < first.extent && j >= 0 && j < second.extent ? i * second.extent + j : -1;
    };
  }
  return (env) => {
    let flat = 0;
    for (const { at, extent } of parts) {
      const i = at(env);
      if (i < 0 || i >= extent) return -1;
      flat = flat * extent + i;
    }
    return flat;
  };
}

/** Integer arithmetic on loop counters; conditions give 1 or 0. */
export function compileIndex(e: Expr, scope: Scope): Evaluate {
  const affine = affineForm(e);
  if (affine) return compileAffine(affine, scope);
  switch (e.kind) {
    case "number": {
      const { value } = e;
      return () => value;
    }
    case "negate": {
      const value = compileIndex(e.value, scope);
      return (env) => -value(env);
    }
    case "access":
      return compileRead(e, scope);
    case "border": {
      const index = compileIndex(e.index, scope);
      return (env) => borderOp(e, index(env));
    }
    case "binary": {
      const left = compileIndex(e.left, scope);
      const right = compileIndex(e.right, scope);
      if (e.op === "+") return (env) => left(env) + right(env);
      if (e.op === "*") return (env) => left(env) * right(env);
      const { op } = e;
      return (env) => integerOp(op, left(env), right(env));
    }
    case "compare":
    case "logic":
      return compileCondition(e, scope);
    default:
      return internal(`"${e.kind}" cannot stand in an index`);
  }
}

/** The values of an index at every point of a box, last axis fastest. */
export function valuesOver(e: Expr, box: readonly Dimension[]): Float64Array {
  const scope = new Scope(new Map(), 0);
  const digits = box.map(({ name, extent }) => ({ slot: scope.slot(name), extent })).reverse();
  const valueAt = compileIndex(e, scope);
  const env = scope.environment();
  return Float64Array.from({ length: pointsIn(box) }, () => {
    const value = valueAt(env);
    for (const { slot, extent } of digits) {
      const next = (env[slot] ?? 0) + 1;
      env[slot] = next < extent ? next : 0;
      if (next < extent) break;
    }
    return value;
  });
}

/** Compiles an affine index to one function, because indices dominate the interpreter's time. */
function compileAffine({ constant, terms }: AffineForm, scope: Scope): Evaluate {
  const slots = Array.from(terms.keys(), (name) => scope.slot(name));
  const factors = [...terms.values()];
  const [a = 0, b = 0] = slots;
  const [x = 0, y = 0] = factors;
  if (slots.length === 0) return () => constant;
  if (slots.length === 1 && x === 1 && constant === 0) return (env) => env[a] ?? 0;
  if (slots.length === 1) return (env) => constant + x * (env[a] ?? 0);
  if (slots.length === 2) return (env) => constant + x * (env[a] ?? 0) + y * (env[b] ?? 0);
  return (env) => {
    let sum = constant;
    for (let i = 0; i < slots.length; i++) sum += (factors[i] ?? 0) * (env[slots[i] ?? 0] ?? 0);
    return sum;
  };
}

/** The condition of a select or a statement; it may compare elements. */
export function compileCondition(e: Expr, scope: Scope): Evaluate {
  if (e.kind === "logic") {
    const left = compileCondition(e.left, scope);
    const right = compileCondition(e.right, scope);
    if (e.op === "and") return (env) => (left(env) !== 0 && right(env) !== 0 ? 1 : 0);
    return (env) => (left(env) !== 0 || right(env) !== 0 ? 1 : 0);
  }
  if (e.kind !== "compare") return compileIndex(e, scope);
  const side = (part: Expr): Evaluate =>
    comparesElements(e) ? compileValue(part, scope, "f64") : compileIndex(part, scope);
  const left = side(e.left);
  const right = side(e.right);
  const { op } = e;
  return (env) => (compareOp(op, left(env), right(env)) ? 1 : 0);
}

/** Arithmetic on elements, rounded after every operation to the type of that operation. */
export function compileValue(e: Expr, scope: Scope, expected: DType): Evaluate {
  const dtype = typeOf(e, scope.dtypes) ?? expected;
  switch (e.kind) {
    case "number": {
      const value = isInteger(dtype) && !Number.isInteger(e.value) ? e.value : wrap(dtype, e.value);
      return () => value;
    }
    case "axis": {
      const slot = scope.slot(e.name);
      return (env) => env[slot] ?? 0;
    }
    case "access":
      return compileRead(e, scope);
    case "cast": {
      // A literal without a typed neighbour keeps its value, as in C: `sat_s8(200)` is 127.
      const value = compileValue(e.value, scope, "f64");
      const to = e.dtype;
      const cast = wrapperOf(to);
      return e.saturate ? (env) => saturate(to, value(env)) : (env) => cast(value(env));
    }
    case "negate": {
      const value = compileValue(e.value, scope, dtype);
      return (env) => wrap(dtype, -value(env));
    }
    case "binary": {
      const left = compileValue(e.left, scope, dtype);
      const right = compileValue(e.right, scope, dtype);
      return compileArithmetic(e.op, left, right, dtype);
    }
    case "call": {
      const [first, second] = e.args.map((arg) => compileValue(arg, scope, dtype));
      if (!first) internal(`${e.fn} without arguments`);
      switch (e.fn) {
        case "min":
          return (env) => Math.min(first(env), second?.(env) ?? Number.POSITIVE_INFINITY);
        case "max":
          return (env) => Math.max(first(env), second?.(env) ?? Number.NEGATIVE_INFINITY);
        case "abs":
          return (env) => wrap(dtype, Math.abs(first(env)));
        case "round":
          return (env) => roundHalfEven(first(env));
        case "square":
          return compileArithmetic("*", first, first, dtype);
        default: {
          const compute = FLOAT_VALUES[e.fn];
          return (env) => wrap(dtype, compute(first(env), second?.(env) ?? 0));
        }
      }
    }
    case "select": {
      const condition = compileCondition(e.condition, scope);
      const whenTrue = compileValue(e.whenTrue, scope, dtype);
      const whenFalse = compileValue(e.whenFalse, scope, dtype);
      return (env) => (condition(env) !== 0 ? whenTrue(env) : whenFalse(env));
    }
    case "border":
    case "compare":
    case "logic":
      return internal(`"${e.kind}" is not a value`);
    default:
      return e satisfies never;
  }
}

/** The parts of an equation, to be run at each of its points. */
export function compileEquation({ target, op, value, where }: Equation, scope: Scope) {
  const { dtype, values, watch } = scope.buffer(target.tensor);
  return {
    values,
    watch,
    evaluate: compileValue(value, scope, dtype),
    place: compilePlace(target, scope),
    holds: where && compileIndex(where, scope),
    join: joinOf(op, dtype),
    fold: foldOf(op, dtype),
  };
}

/** An element, or the value that stands for it outside its tensor. */
function compileRead(e: Access, scope: Scope): Evaluate {
  const { values, unknown, watch, element } = scope.buffer(e.tensor);
  const place = compilePlace(e, scope);
  const identity = unknown ?? scope.identity;
  if (element)
    return (env) => {
      const at = place(env);
      return at < 0 ? identity : element(at);
    };
  if (watch)
    return (env) => {
      const at = place(env);
      if (at < 0) {
        watch.outside(e);
        return identity;
      }
      watch.read(at);
      return values[at] ?? identity;
    };
  return (env) => {
    const at = place(env);
    return at < 0 ? identity : (values[at] ?? identity);
  };
}

function compileArithmetic(op: BinaryOp, left: Evaluate, right: Evaluate, dtype: DType): Evaluate {
  const integer = isInteger(dtype);
  const round = wrapperOf(dtype);
  switch (op) {
    case "+":
      return (env) => round(left(env) + right(env));
    case "-":
      return (env) => round(left(env) - right(env));
    case "*":
      // A double cannot hold every product of two 32-bit integers; Math.imul keeps the low bits.
      return integer ? (env) => round(Math.imul(left(env), right(env))) : (env) => round(left(env) * right(env));
    case "/":
      return integer ? (env) => round(Math.trunc(left(env) / right(env))) : (env) => round(left(env) / right(env));
    case "%":
      return (env) => round(left(env) % right(env));
    case "^":
      return internal(`"^" stands in storage formulas only`);
    default:
      return op satisfies never;
  }
}

/** Joins one more value to a running fold, before the fold joins the target. */
export function foldOf(op: CombineOp, dtype: DType): (sum: number, value: number) => number {
  const round = wrapperOf(dtype);
  switch (op) {
    case "=":
      return (_, value) => value;
    case "+=":
      return isInteger(dtype) ? (sum, value) => round(sum + value) : (sum, value) => sum + value;
    case "sat+=":
      return (sum, value) => sum + value;
    case "max=":
      return Math.max;
    case "min=":
      return Math.min;
    default:
      return op satisfies never;
  }
}

/** Joins a value to what the target holds. */
export function joinOf(op: CombineOp, dtype: DType): (old: number, value: number) => number {
  const round = wrapperOf(dtype);
  switch (op) {
    case "=":
      return (_, value) => round(value);
    case "+=":
      return (old, value) => round(old + value);
    case "sat+=":
      return (old, value) => saturate(dtype, old + value);
    case "max=":
      return Math.max;
    case "min=":
      return Math.min;
    default:
      return op satisfies never;
  }
}
