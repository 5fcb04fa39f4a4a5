/**
 * @file Lanes as the threads of a warp, in CUDA: each thread computes its own lane, whose registers are variables.
 *
 *     Z[0,lane] += x[28*b+lane] * w[q]        Z0 = fmaf(x[28 * b + lane], w[q], Z0);
 *     out[b] = Z[0,lane] where lane == 31     if (lane == 31) out[b] = Z0;
 *     out[b] += Z[0,lane]                     const float out_sum = sum_of_lanes<float>(Z0);  if (lane == 0) out[b] = out[b] + out_sum;
 */

import type { Extents } from "../abstraction/affine.ts";
import type { DType } from "../abstraction/dtype.ts";
import { type Equation, identityOf } from "../abstraction/equation.ts";
import { type Access, accessesIn, axesIn, type Expr, walk } from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { type Code, code, NOTHING } from "../abstraction/source-text.ts";
import { allOf } from "./c-expressions.ts";
import { type FoldName, foldOf, type LaneContext, LanePrinter, type Part } from "./lane-printer.ts";
import { guarded, joinedValue, type LaneAccess, registerName } from "./lane-statement.ts";
import type { Loop, Of } from "./walk.ts";
import type { WarpExpressions } from "./warp-expressions.ts";

export class WarpLanes extends LanePrinter {
  protected override readonly c: WarpExpressions;
  /** The number of threads that run together. */
  protected readonly threads: number = WARP;
  /** The number of this thread among them. */
  protected readonly thread: Code = code`threadIdx.x % ${WARP}`;

  constructor(c: WarpExpressions, nest: LoopNest) {
    super(c, nest);
    this.c = c;
  }

  /** Lines that write to memory, with synchronisation if other lanes read it. */
  protected synchronised(_tensor: string, lines: Code[]): Code[] {
    return lines;
  }

  /** The fold of all lanes' values, available on every lane. */
  protected foldOfLanes(fold: FoldName, dtype: DType, own: Code): Code {
    return code`@${fold}_of_lanes<${C_TYPES[dtype]}>(${own})`;
  }

  /** A thread's number among the lanes. */
  protected threadOf(axis: string): Code {
    return axis === "" ? this.thread : code`${this.c.axis(axis)}`;
  }

  override scalar(statement: Of<"scalar">, extents: Extents): Code[] {
    const lines = super.scalar(statement, extents);
    this.c.begin(undefined);
    return lines;
  }

  override lanes(loop: Loop, extents: Extents): Code[] {
    const lines = super.lanes(loop, extents);
    this.c.begin(undefined);
    return lines;
  }

  /** Each thread tests all conditions. */
  protected override parted(conditions: readonly Expr[]): [alike: readonly Expr[], each: readonly Expr[]] {
    return [[], conditions];
  }

  protected width(): number {
    return this.threads;
  }

  protected stored(part: Part): Code {
    const { equation, mask, context } = part;
    const { target, value } = equation;
    const { axis: lane, dtype, extents, before } = context;
    this.c.begin({ lane });
    const every = mask.length === 0 && this.c.ownRegister(target) !== undefined && this.inUse(part).length === 0;
    const selects = [...walk(value)].some((e) => e.kind === "select");
    this.c.begin(every && !selects ? { lane } : { lane, before });
    const joined = joinedValue(equation);
    const sum = equation.op === "+=" ? this.c.multiplyAdd(joined, dtype, extents) : undefined;
    return sum ?? this.c.value(joined, dtype, extents);
  }

  protected write(part: Part, value: Code): Code[] {
    const { equation, mask, context } = part;
    const { target } = equation;
    const register = this.c.ownRegister(target);
    const { at, guards } = register
      ? { at: NOTHING, guards: this.c.tests(mask, context.extents) }
      : this.c.placeWhere(target, mask, context.extents);
    const to = register ? code`${register}` : code`${this.c.tensor(target.tensor)}[${at}]`;
    const lines = guarded([...this.inUse(part), ...guards], [code`${to} = ${value};`]);
    return this.synchronised(target.tensor, lines);
  }

  /** Threads beyond the last lane may compute unused values, but must not access memory. */
  private inUse({ equation: { target, value }, context }: Part): Code[] {
    const { axis: lane, extents } = context;
    const touches = (a: Access): boolean => !this.c.registerOf(a) && a.index.some((e) => axesIn(e).includes(lane));
    return [target, ...accessesIn(value)].some(touches) ? this.beyond(lane, extents[lane]) : [];
  }

  /** The condition that excludes threads beyond the last lane, if a warp has more threads than there are lanes. */
  protected beyond(lane: string, lanes = this.threads): Code[] {
    return lanes < this.threads ? [code`${this.threadOf(lane)} < ${lanes}`] : [];
  }

  /** Each thread tests whether its lane is the selected one. */
  protected override unpinned(equation: Equation, where: readonly Expr[], context: LaneContext): Code[] {
    const part = { equation, mask: where, context };
    const value = this.stored(part);
    const lines = this.write(part, value);
    return guarded([], [...context.before, ...lines], context.before.length > 0);
  }

  protected reduced({ equation: { op, value }, mask, context }: Part): Code {
    const { axis: lane, dtype, extents, before } = context;
    this.c.begin({ lane, before });
    const tests = [...this.beyond(lane, extents[lane]), ...this.c.tests(mask, extents)];
    const own = this.c.value(value, dtype, extents);
    const start = this.c.literal(identityOf(op, dtype), dtype);
    const taken = tests.length === 0 ? own : code`${allOf(tests)} ? ${own} : ${start}`;
    return this.foldOfLanes(foldOf(op), dtype, taken);
  }

  protected override assign(equation: Equation, context: LaneContext, lane: Expr, given?: Code): Code[] {
    const { target } = equation;
    const by = this.c.registerOf(target)?.lane ?? lane;
    this.c.begin({ lane: context.axis, by, before: context.before });
    return this.synchronised(target.tensor, super.assign(equation, context, by, given));
  }

  protected override writes(by: Expr, context: LaneContext): Code[] {
    return [code`${this.threadOf(context.axis)} == ${this.c.index(by, context.extents)}`];
  }

  protected insert({ file, register, lane }: LaneAccess, scalar: Code, context: LaneContext): Code[] {
    return guarded(this.writes(lane, context), [code`${registerName(file.name, register)} = ${scalar};`]);
  }
}
