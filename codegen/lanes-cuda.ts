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
import { type Access, accessesIn, axesIn, type Expr, testsElements } from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { type Code, code, tensorName } from "../abstraction/source-text.ts";
import { LINE_BYTES } from "../targets/nvidia-gpu.ts";
import type { Aligned } from "./cuda-copies.ts";
import { neighbours } from "./cuda-threads.ts";
import { equationsIn, guarded } from "./lane-statement.ts";
import { LaneThreads } from "./lane-threads.ts";
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

/** `X 3`, if the register's number is a constant. */
function registerText({ tensor, index: [register] }: Access): string {
  return `${tensor} ${register?.kind === "number" ? register.value : ""}`;
}

export class CudaLanes extends LaneThreads {
  private readonly aligned: Aligned;
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
   * @param group lanes of an array: those of a warp, or of an equal part of it
   */
  constructor(
    computation: Computation,
    nest: LoopNest,
    constants: ReadonlySet<string>,
    aligned: Aligned,
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
    const { together } = statement;
    if (!together) return super.statement(statement, loop, extents);
    this.c.begin({ lane: loop.axis });
    const within = { ...extents, [loop.axis]: loop.extent };
    const { c, aligned, perRegister } = this;
    const isRead = (held: readonly Access[]): boolean => this.isRead(held);
    const beyond = this.beyond(loop.axis, loop.extent);
    return neighbours(statement, together, { c, aligned, perRegister, isRead }, within, beyond);
  }

  /** Whether some value reads one of these elements. Registers of others are omitted. */
  private isRead(held: readonly Access[]): boolean {
    const registers = held.map(registerText);
    if (registers.some((register) => this.read.has(register))) return true;
    for (const register of registers) this.unread.add(register);
    return false;
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
}
