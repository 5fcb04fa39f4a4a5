/**
 * @file Statements on lanes, as every language prints them: on each lane, on the one lane that a condition selects, or
 * as a fold of all lanes.
 *
 *     Z[0,lane] = Z[0,lane-1] + x[16*b+lane] * w[q]      each lane      every lane reads before any writes
 *     y[b] = Z[0,lane] where lane == t                   one lane       y[b] = Z[0,t]
 *     y[b] += Z[0,lane]                                  a fold         const float y_sum = (sum of the lanes); y[b] = y[b] + y_sum;
 *
 * A value on lanes is a vector (vector-expressions.ts: AVX-512, AVX2 and CM), or a variable of each thread of a warp
 * (warp-lanes.ts: CUDA).
 */

import type { Extents } from "../abstraction/affine.ts";
import { upTo } from "../abstraction/collections.ts";
import { conjunctsOf } from "../abstraction/condition.ts";
import type { DType } from "../abstraction/dtype.ts";
import { type Equation, printEquation, substituteAxes } from "../abstraction/equation.ts";
import { internal, UsageError } from "../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  axis,
  compare,
  type Expr,
  number,
  plus,
  substitute,
} from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { type Code, code, NOTHING, tensorName } from "../abstraction/source-text.ts";
import type { CExpressions } from "./c-expressions.ts";
import { always, guarded, joinScalars, type LaneAccess, never, onlyLane, registerIn, split } from "./lane-statement.ts";
import type { Loop, Of } from "./walk.ts";

/** The context of a statement's text. */
export interface LaneContext {
  /** The lane axis, which counts from 0 within this vector. */
  readonly axis: string;
  /** Extents of the enclosing loops, and of the lane axis: the lanes of this vector that are in use. */
  readonly extents: Extents;
  /** The type of the computation, which determines how many lanes a vector holds. */
  readonly dtype: DType;
  /** Lines that must run before the statement. */
  readonly before: Code[];
  /** Conditions already tested around the statement. */
  readonly known?: readonly Expr[];
}

/** A statement on the lanes of one vector. */
export interface Part {
  readonly equation: Equation;
  /** Conditions that each lane tests. */
  readonly mask: readonly Expr[];
  readonly context: LaneContext;
}

export abstract class LanePrinter {
  readonly c: CExpressions;
  protected readonly nest: LoopNest;

  constructor(c: CExpressions) {
    this.c = c;
    this.nest = c.nest;
  }

  // ---- what a language says -----------------------------------------------------------------------------------------------------

  /** Lanes of one register of this type, for a loop over `lanes` lanes. */
  protected abstract width(dtype: DType, lanes: number): number;
  /** The value that {@link write} stores. */
  protected abstract stored(part: Part): Code;
  protected abstract write(part: Part, value: Code): Code[];
  /** The fold of the lanes for which the conditions hold. */
  protected abstract reduced(part: Part): Code;
  /** Writes one lane of a register. */
  protected abstract insert(at: LaneAccess, scalar: Code, context: LaneContext): Code[];

  /** Writes one element of memory. */
  protected assignElement(tensor: string, at: Code, scalar: Code, _: DType): Code {
    return code`${this.c.tensor(tensor)}[${at}] = ${scalar};`;
  }

  /** Conditions that select the lane which writes to memory, in languages where each lane is a thread. */
  protected writes(_by: Expr, _: LaneContext): Code[] {
    return [];
  }

  /** Conditions that are tested once for all lanes, and those that each lane tests. */
  protected parted(conditions: readonly Expr[], lane: string): [alike: readonly Expr[], each: readonly Expr[]] {
    return split(conditions, lane);
  }

  /** A prefetch of an element; empty in languages that leave this to the hardware. */
  protected prefetched(_at: Access, _isDistant: boolean, _loop: Loop, _extents: Extents): Code[] {
    return [];
  }

  // ---- leaves of the walk ---------------------------------------------------------------------------------------------------------

  openLoop({ axis: counter, extent }: Loop): Code {
    const name = this.c.axis(counter);
    return code`for (${this.c.indexType} ${name} = 0; ${name} < ${extent}; ${name}++) {`;
  }

  /** All lanes run the loops around a loop of lanes alike. */
  openWhen({ condition }: Of<"when">, extents: Extents): Code {
    return code`if (${this.c.condition(condition, extents)}) {`;
  }

  /** A statement outside a loop of lanes. */
  scalar({ equation }: Of<"scalar">, extents: Extents): Code[] {
    const context = { axis: "", extents, dtype: this.dtypeOf(equation.target.tensor), before: [] };
    return this.alone(equation, equation.where ? [equation.where] : [], context);
  }

  lanes(loop: Loop, extents: Extents): Code[] {
    return loop.body.flatMap((s): Code[] => {
      if (s.kind !== "scalar") internal(`lanes of ${loop.axis} run a ${s.kind}`);
      const lines = this.statement(s, loop, extents);
      return s.prefetch ? [...lines, ...this.prefetched(s.prefetch, s.isDistant ?? false, loop, extents)] : lines;
    });
  }

  /** One statement on all lanes. */
  protected statement({ equation, together }: Of<"scalar">, { axis: lane, extent }: Loop, extents: Extents): Code[] {
    if (together)
      throw new UsageError(
        `${this.c.computation.name}: ${printEquation(equation)} moves neighbours at once, which only the threads of CUDA do`,
      );
    const { target, op } = equation;
    const dtype = this.dtypeOf(target.tensor);
    const whole = conjunctsOf(equation.where);
    const [alike, varying] = this.parted(whole, lane);
    if (whole.some((e) => never(e, { ...extents, [lane]: extent }))) return [];
    const conditions = alike.filter((e) => !always(e, extents)).map((e) => this.c.condition(e, extents));
    const each = target.index.some((e) => axesIn(e).includes(lane));
    if (!each && op === "=") {
      const context = { axis: lane, extents: { ...extents, [lane]: extent }, dtype, before: [] };
      return guarded(conditions, this.pinned(equation, varying, context));
    }
    const width = this.width(dtype, extent);
    const parts = upTo(Math.ceil(extent / width)).map((i): Part => {
      const from = i * width;
      const within = { ...extents, [lane]: Math.min(width, extent - from) };
      const context: LaneContext = { axis: lane, extents: within, dtype, before: [], known: alike };
      const own = from === 0 ? equation : substituteAxes(equation, new Map([[lane, plus(axis(lane), from)]]));
      return { equation: own, mask: this.parted(conjunctsOf(own.where), lane)[1], context };
    });
    return each ? this.each(equation, parts, conditions) : guarded(conditions, this.fold(equation, parts));
  }

  /** One value for each part, then the writes, so that every lane reads before any writes. */
  private each({ target, value }: Equation, parts: readonly Part[], conditions: readonly Code[]): Code[] {
    const values = parts.map((part) => this.stored(part));
    const lines = parts.flatMap(({ context }) => context.before);
    const hazard = parts.length > 1 && accessesIn(value).some((a) => a.tensor === target.tensor);
    const names = hazard ? values.map((_, i) => code`part_${i}`) : values;
    if (hazard) lines.push(...values.map((v, i) => code`const auto part_${i} = ${v};`));
    let written = 0;
    for (const [i, part] of parts.entries()) {
      const own = this.write({ ...part, context: { ...part.context, before: lines } }, names[i] ?? NOTHING);
      lines.push(...own);
      written += own.length;
    }
    return guarded(conditions, lines, lines.length > written);
  }

  /** Assigns a target without the lane axis: the value of the lane that a condition selects. */
  private pinned(equation: Equation, where: readonly Expr[], context: LaneContext): Code[] {
    const lane = context.axis;
    const pin = onlyLane(where, lane, context.extents);
    if (pin === "none") return [];
    if (pin === undefined) return this.unpinned(equation, where, context);
    const at = (e: Expr): Expr => substitute(e, new Map([[lane, pin]]));
    const inside = [compare(">=", pin, 0), compare("<", pin, context.extents[lane] ?? 0)];
    const tests = [...where.map(at), ...(pin.kind === "number" ? [] : inside)];
    const needed = tests.filter((e) => !always(e, context.extents));
    return this.alone({ ...equation, value: at(equation.value) }, needed, context, pin);
  }

  /** An assignment from the lane that the conditions select while the kernel runs: one for each lane that they may select. */
  protected unpinned(equation: Equation, where: readonly Expr[], context: LaneContext): Code[] {
    const { axis: lane, extents } = context;
    return upTo(extents[lane] ?? 0)
      .map((l) => number(l))
      .flatMap((by) => {
        const at = (e: Expr): Expr => substitute(e, new Map([[lane, by]]));
        const tests = where.map(at);
        if (tests.some((e) => never(e, extents))) return [];
        const needed = tests.filter((e) => !always(e, extents));
        return this.alone({ ...equation, value: at(equation.value) }, needed, { ...context, before: [] }, by);
      });
  }

  /** A statement on one lane: the first, or the selected one. */
  private alone(equation: Equation, where: readonly Expr[], context: LaneContext, by: Expr = number(0)): Code[] {
    const lines = this.assign(equation, context, by);
    const tests = where.map((e) => this.c.condition(e, context.extents));
    return guarded(tests, [...context.before, ...lines], context.before.length > 0);
  }

  /** Combines all lanes into a target without the lane axis. */
  private fold(equation: Equation, parts: readonly Part[]): Code[] {
    const [first = internal("a loop of no lanes")] = parts;
    const { op, target } = equation;
    const { before, dtype } = first.context;
    const folds = parts.map((part) => this.reduced({ ...part, context: { ...part.context, before } }));
    const [start = NOTHING, ...others] = folds;
    const all = others.reduce((whole, other) => joinScalars(this.c, op, whole, other, dtype), start);
    const folded = tensorName(target.tensor).with(`_${foldOf(op)}`);
    const lines = this.assign(equation, first.context, number(0), code`${folded}`);
    return guarded([], [...before, code`const ${C_TYPES[dtype]} ${folded} = ${all};`, ...lines], true);
  }

  /**
   * `target op scalar`, in memory or in one lane of a register.
   * @param by the lane that writes to memory
   * @param given the text of the scalar, if known
   */
  protected assign({ target, op, value }: Equation, context: LaneContext, by: Expr, given?: Code): Code[] {
    const { dtype, extents } = context;
    const scalar = given ?? this.c.value(value, dtype, extents);
    const joined = joinScalars(this.c, op, this.c.value(target, dtype, extents), scalar, dtype);
    const register = registerIn(this.nest, target);
    if (register) return this.insert(register, joined, context);
    const { at, guards } = this.c.place(target, extents);
    return guarded([...this.writes(by, context), ...guards], [this.assignElement(target.tensor, at, joined, dtype)]);
  }

  protected dtypeOf(name: string): DType {
    return this.c.dtypes[name] ?? internal(`no type of "${name}"`);
  }
}

export type FoldName = "sum" | "most" | "least";

/** The name of a fold. */
export function foldOf(op: Equation["op"]): FoldName {
  return op === "max=" ? "most" : op === "min=" ? "least" : "sum";
}
