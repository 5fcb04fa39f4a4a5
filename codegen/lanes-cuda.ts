/**
 * @file Lanes as the threads of a warp: a register is a scalar of each thread, a shift is a shuffle, and a parallel
 * loop is distributed to warps. Arrays of at most 16 lanes are distributed to equal parts of a warp.
 *
 *     Z0 = fmaf(x[28 * b + lane], w[q], __shfl_up_sync(0xffffffffu, Z0, 1));
 *     Z0 = fmaf(x[12 * b + lane], w[q], __shfl_up_sync(0xffffffffu, Z0, 1, 16));
 *
 * Constants that all lanes read at the same address are in constant memory. Emulation: runtime/emulation/cuda.h.
 */

import { type Extents, evaluateIndex, strideIn } from "../abstraction/affine.ts";
import type { Computation } from "../abstraction/computation.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import type { Equation } from "../abstraction/equation.ts";
import { type Access, accessesIn, axesIn, type Expr, printAccess, testsElements } from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import type { Dimension } from "../abstraction/layout.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { type Code, code, tensorName } from "../abstraction/source-text.ts";
import { pieceType, readPiece, writtenPiece } from "./cuda-copies.ts";
import { holdsTogether, stepped, steppedAccess } from "./cuda-pieces.ts";
import { conjunction, equationsIn, guarded } from "./lane-statement.ts";
import { LaneThreads } from "./lane-threads.ts";
import { isRun } from "./short-index.ts";
import type { Loop, Of } from "./walk.ts";
import { WarpExpressions } from "./warp-expressions.ts";

/**
 * Scalar expressions of one thread. A product that is added becomes one instruction, and constants may be in constant
 * memory.
 */
export class ThreadExpressions extends WarpExpressions {
  private readonly constants: ReadonlySet<string>;
  protected override readonly group: number;

  constructor(computation: Computation, nest: LoopNest, constants: ReadonlySet<string>, group: number = WARP) {
    super(computation, nest);
    this.constants = constants;
    this.group = group;
  }

  override tensor(name: string): Code {
    return this.constants.has(name) ? code`constants::${tensorName(name)}` : super.tensor(name);
  }

  override value(e: Expr, dtype: DType, extents: Extents): Code {
    // Steps that are written out make conditions of constants.
    if (e.kind === "select" && axesIn(e.condition).length === 0 && !testsElements(e.condition))
      return this.value(evaluateIndex(e.condition, {}) === 0 ? e.whenFalse : e.whenTrue, dtype, extents);
    return this.multiplyAdd(e, dtype, extents) ?? super.value(e, dtype, extents);
  }
}

/** Bytes of a line of the last cache. */
const LINE_BYTES = 128;

/** `X 3`, if the register's number is a constant. */
function registerText({ tensor, index: [register] }: Access): string {
  return `${tensor} ${register?.kind === "number" ? register.value : ""}`;
}

export class CudaLanes extends LaneThreads {
  private readonly aligned: Map<string, number>;
  /** Registers that some value reads. */
  private readonly read: ReadonlySet<string>;
  /** Registers for elements of a vector load that no value reads. They are omitted. */
  private readonly unread = new Set<string>();
  protected override readonly laneFence = code`__syncwarp();`;
  /** Neighbouring elements that a register holds. */
  protected readonly perRegister: number = 1;
  protected override readonly threads: number;
  protected override readonly thread: Code;

  /**
   * @param aligned receives the alignment in bytes that vector accesses require of tensors
   * @param group lanes of an array: those of a warp, or of an equal part of it
   */
  constructor(
    computation: Computation,
    nest: LoopNest,
    constants: ReadonlySet<string>,
    aligned: Map<string, number>,
    group: number = WARP,
    c = new ThreadExpressions(computation, nest, constants, group),
  ) {
    super(c, nest);
    this.aligned = aligned;
    this.threads = group;
    this.thread = code`threadIdx.x % ${group}`;
    const all = equationsIn([...nest.prepare, ...nest.body]);
    this.read = new Set(all.flatMap(({ value }) => accessesIn(value)).map(registerText));
  }

  protected override isUnread(file: string, register: number): boolean {
    return this.unread.has(`${file} ${register}`);
  }

  protected override statement(statement: Of<"scalar">, loop: Loop, extents: Extents): Code[] {
    const { together, equation } = statement;
    if (!together) return super.statement(statement, loop, extents);
    this.c.begin({ lane: loop.axis });
    return this.neighbours(equation, together, loop, { ...extents, [loop.axis]: loop.extent });
  }

  /** Contiguous elements that a lane loads or stores at once, into or from its own registers. */
  private neighbours(equation: Equation, { name, extent: count }: Dimension, loop: Loop, extents: Extents): Code[] {
    const { target, value, where } = equation;
    const at = (a: Access, i: number): Access => steppedAccess(a, name, i);
    const first = this.c.ownRegister(at(target, 0));
    const memory = first ? value : target;
    if (memory.kind !== "access") throw new Error("internal: what is read at once is an access");
    this.requireTogether(memory, name, count, { ...extents, [name]: count });
    const dtype = this.dtypeOf(memory.tensor);
    this.aligned.set(memory.tensor, Math.max(this.aligned.get(memory.tensor) ?? 1, count * bytesOf(dtype)));
    const type = this.pieceOf(dtype, count);
    const places = Array.from({ length: count / this.perRegister }, (_, i) => i * this.perRegister);
    const place = this.c.placeWhere(at(memory, 0), conjunction(where), extents);
    const guards = [...this.beyond(loop.axis, loop.extent), ...place.guards];
    const element = code`${this.c.tensor(memory.tensor)}[${place.at}]`;
    if (!first) {
      const values = places.map((i) => this.c.value(stepped(value, name, i), dtype, extents));
      return writtenPiece(code`*(${type}*)&${element}`, values, guards);
    }
    const registers = places.map((i) => {
      const held = Array.from({ length: this.perRegister }, (_, n) => registerText(at(target, i + n)));
      if (held.some((to) => this.read.has(to))) return this.c.ownRegister(at(target, i)) ?? first;
      for (const to of held) this.unread.add(to);
      return undefined;
    });
    const loaded = {
      from: code`*(const ${type}*)&${element}`,
      guards,
      outside: this.outsideOf(memory.tensor, dtype),
    };
    return readPiece(memory.tensor, type, loaded, registers);
  }

  /** One lane fetches each line of a row into the last cache. */
  protected override prefetched(access: Access, _isDistant: boolean, loop: Loop, extents: Extents): Code[] {
    const within = { ...extents, [loop.axis]: loop.extent };
    this.c.begin({ lane: loop.axis });
    const dtype = this.dtypeOf(access.tensor);
    const stride = strideIn(this.c.placeOf(access, within).at, loop.axis) ?? 0;
    const perLine = Math.max(1, Math.floor(LINE_BYTES / Math.max(1, Math.abs(stride) * bytesOf(dtype))));
    const { at, guards } = this.c.placeWhere(access, [], within);
    const first = perLine === 1 ? [] : [code`${this.threadOf(loop.axis)} % ${perLine} == 0`];
    return guarded([...first, ...guards], [code`@prefetch_line(&${this.c.tensor(access.tensor)}[${at}]);`]);
  }

  /** The type of `count` elements that move at once. */
  protected pieceOf(dtype: DType, count: number): Code {
    return pieceType(dtype, count);
  }

  /** What a register holds for elements outside of a tensor. */
  protected outsideOf(tensor: string, dtype: DType): Code {
    return this.c.outside(tensor, dtype);
  }

  /** @throws Error unless neighbours are contiguous, aligned, and all inside their tensor or all outside */
  private requireTogether(memory: Access, name: string, count: number, extents: Extents): void {
    const { at, guards } = this.c.placeOf(memory, extents);
    if (isRun(at, name, count, extents) && guards.every((g) => holdsTogether(g, name, count, extents))) return;
    throw new Error(`internal: ${count} elements of ${printAccess(memory)} cannot move at once`);
  }
}
