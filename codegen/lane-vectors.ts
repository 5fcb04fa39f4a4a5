/**
 * @file Statements on lanes as operations on whole vectors: the part that AVX-512 and CM share.
 *
 *     for lanes lane in 0..16
 *       Z[0,lane] = Z[0,lane-1] + x[16*b+lane] * w[q]      ->    Z0 = fma(load(x + 16 * b), splat(w[q]), shift(Z0, -1))
 *
 * Every lane reads before any writes; values are of vector-expressions.ts.
 */

import type { Extents } from "../abstraction/affine.ts";
import type { DType } from "../abstraction/dtype.ts";
import { type Equation, printEquation } from "../abstraction/equation.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  axis,
  binary,
  compare,
  type Expr,
  number,
  printAccess,
  substitute,
} from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { bare, type Code, code, NOTHING, tensorName } from "../abstraction/source-text.ts";
import { always, conjunction, guarded, joinedValue, joinScalars, pinnedLane, split } from "./lane-statement.ts";
import { type LaneAccess, type LaneContext, type LanePlace, VectorExpressions } from "./vector-expressions.ts";
import type { LanguagePrinter, Loop, Of } from "./walk.ts";

export abstract class LaneVectors extends VectorExpressions implements LanguagePrinter {
  // ---- what a language says -----------------------------------------------------------------------------------------------------

  abstract openLoop(loop: Loop): Code;
  protected abstract store(place: LanePlace, mask: readonly Expr[], value: Code, context: LaneContext): Code;
  /** The fold of the lanes that meet a condition. */
  protected abstract reduced(op: Equation["op"], value: Code, mask: readonly Expr[], context: LaneContext): Code;
  /** Writes one lane of a register. */
  protected abstract insert(at: LaneAccess, scalar: Code, context: LaneContext): Code;

  /** Writes one element of memory. */
  protected assignElement(tensor: string, at: Code, scalar: Code, _: DType): Code {
    return code`${this.c.tensor(tensor)}[${at}] = ${scalar};`;
  }

  /** Brings an element into the cache; nothing where a language leaves that to the hardware. */
  protected prefetched(_at: Access, _extents: Extents): Code[] {
    return [];
  }

  /** A value as {@link store} takes it. */
  protected stored(e: Expr, context: LaneContext): Code {
    return this.vector(e, context);
  }

  // ---- leaves of the walk ---------------------------------------------------------------------------------------------------------

  /** A statement outside a loop of lanes. */
  scalar({ equation }: Of<"scalar">, extents: Extents): Code[] {
    const { target, value, where } = equation;
    const dtype = this.dtypeOf(target.tensor);
    const context: LaneContext = { axis: "", extents, dtype, before: [] };
    const lines = this.assignScalar(equation, this.c.value(value, dtype, extents), context);
    return guarded(where === undefined ? [] : [this.c.condition(where, extents)], [...context.before, ...lines]);
  }

  lanes(loop: Loop, extents: Extents): Code[] {
    return loop.body.flatMap((s): Code[] => {
      if (s.kind !== "scalar") throw new Error(`internal: lanes of ${loop.axis} run a ${s.kind}`);
      const lines = this.statement(s.equation, loop, extents);
      return s.prefetch ? [...lines, ...this.prefetched(s.prefetch, extents)] : lines;
    });
  }

  /** One statement on all lanes: every lane reads before any writes. */
  private statement(equation: Equation, { axis: lane, extent }: Loop, extents: Extents): Code[] {
    const { target } = equation;
    const dtype = this.dtypeOf(target.tensor);
    const width = this.width(dtype, extent);
    // 1. What holds on all lanes alike is tested once.
    const [alike, varying] = split(conjunction(equation.where), lane);
    const conditions = alike.map((e) => this.c.condition(e, extents));
    const parts = Array.from({ length: Math.ceil(extent / width) }, (_, part) => {
      const from = part * width;
      const used = Math.min(width, extent - from);
      const within = { ...extents, [lane]: used };
      const context: LaneContext = { axis: lane, extents: within, dtype, before: [], known: alike };
      return { equation: from === 0 ? equation : movedLanes(equation, lane, from), context };
    });
    if (!target.index.some((e) => axesIn(e).includes(lane)))
      return guarded(conditions, this.fold(equation, varying, parts));

    // 2. A value a part, then the writes.
    const values = parts.map((part) => this.stored(joinedValue(part.equation), part.context));
    const lines = parts.flatMap(({ context }) => context.before);
    const hazard = parts.length > 1 && accessesIn(equation.value).some((a) => a.tensor === target.tensor);
    const names = hazard ? values.map((_, i) => code`part_${i}`) : values;
    if (hazard) lines.push(...values.map((v, i) => code`const auto part_${i} = ${v};`));
    for (const [i, { equation: own, context }] of parts.entries()) {
      const mask = split(conjunction(own.where), lane)[1];
      lines.push(...this.write(own, mask, names[i] ?? NOTHING, { ...context, before: lines }));
    }
    return guarded(conditions, lines, lines.length > parts.length);
  }

  private write({ target }: Equation, mask: readonly Expr[], value: Code, context: LaneContext): Code[] {
    const register = this.registerOf(target);
    if (register === undefined) return [this.store(this.placeOf(target, context), mask, value, context)];
    const by = this.shiftOf(register.lane, context);
    const place = by === undefined ? undefined : this.partAt(register, by);
    if (place === undefined || place.shift !== 0)
      throw new Error(`internal: lanes write ${printAccess(target)}; they write their own lane of a register`);
    const merged = mask.length === 0 ? value : this.blend(mask, value, code`${place.name}`, context);
    return [code`${place.name} = ${bare(merged)};`];
  }

  /** A target without the lane axis: one value from all lanes, or with `=` from the one that meets the condition. */
  private fold(
    equation: Equation,
    where: readonly Expr[],
    parts: readonly { readonly equation: Equation; readonly context: LaneContext }[],
  ): Code[] {
    const [first] = parts;
    if (!first) throw new Error("internal: a loop of no lanes");
    const { op, target } = equation;
    const { dtype, axis: lane } = first.context;
    const context = { ...first.context, before: parts.flatMap((p) => p.context.before) };
    if (op === "=") {
      const pinned = where.map((e) => pinnedLane(e, lane)).find((e) => e !== undefined);
      if (pinned === undefined)
        throw new Error(`internal: ${printEquation(equation)} assigns from several lanes; where lane == n says which`);
      const alone = (e: Expr): Expr => substitute(e, new Map([[lane, pinned]]));
      const total = first.context.extents[lane] ?? 0;
      const inside = [compare(">=", pinned, number(0)), compare("<", pinned, number(total))];
      const tests = [...where.map(alone), ...(pinned.kind === "number" ? [] : inside)].filter(
        (e) => !always(e, context.extents),
      );
      const one = { ...equation, value: alone(equation.value) };
      const lines = this.assignScalar(one, this.c.value(one.value, dtype, context.extents), context);
      return guarded(
        tests.map((e) => this.c.condition(e, context.extents)),
        [...context.before, ...lines],
      );
    }
    const sums = parts.map((part) => {
      const mask = split(conjunction(part.equation.where), lane)[1];
      const own = { ...part.context, before: context.before };
      return this.reduced(op, this.vector(part.equation.value, own), mask, own);
    });
    const [start = NOTHING, ...others] = sums;
    const all = others.reduce((whole, sum) => joinScalars(op, whole, sum, dtype), start);
    const sum = tensorName(target.tensor).with("_sum");
    const lines = this.assignScalar(equation, code`${sum}`, context);
    return guarded([], [...context.before, code`const ${C_TYPES[dtype]} ${sum} = ${all};`, ...lines], true);
  }

  /** `target op scalar`, of memory or of one lane of a register. */
  private assignScalar({ target, op }: Equation, scalar: Code, context: LaneContext): Code[] {
    const { dtype, extents } = context;
    const held = this.c.value(target, dtype, extents);
    const joined = joinScalars(op, held, scalar, dtype);
    const register = this.registerOf(target);
    if (register) return [this.insert(register, joined, context)];
    const { at, guards } = this.c.place(target, extents);
    return guarded(guards, [this.assignElement(target.tensor, at, joined, dtype)]);
  }
}

/** The statement with its lanes counted from `from`. */
function movedLanes(equation: Equation, lane: string, from: number): Equation {
  const moved = new Map([[lane, binary("+", axis(lane), number(from))]]);
  const change = (e: Expr): Expr => substitute(e, moved, "index");
  const { target, op, value, where } = equation;
  const result = {
    target: { ...target, index: target.index.map(change) },
    op,
    value: substitute(value, moved, "value"),
  };
  return where === undefined ? result : { ...result, where: change(where) };
}
