/**
 * @file Lanes as threads that run together, in any language: each thread computes its own lane, whose registers are
 * variables. Memory that lanes both write and read is fenced, and a fold exchanges values between partners.
 *
 *     Z[0,lane] += x[28*b+lane] * w[q]        Z0 = fmaf(x[28 * b + lane], w[q], Z0);
 *     out[b] = Z[0,lane] where lane == 31     if (lane == 31) out[b] = Z0;
 *     out[b] += Z[0,lane]                     const float out_sum = sum_of_lanes<float>(Z0);  if (lane == 0) out[b] = out[b] + out_sum;
 */

import type { Extents } from "../abstraction/affine.ts";
import { namesOf } from "../abstraction/collections.ts";
import type { DType } from "../abstraction/dtype.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  type Equation,
  type Expr,
  identityOf,
  walk,
} from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { type Code, code, identifier, NOTHING } from "../abstraction/source-text.ts";
import { allOf } from "./c-expressions.ts";
import type { Helpers } from "./cpp/cpp-helpers.ts";
import {
  equationsIn,
  type FoldName,
  foldOf,
  guarded,
  joinedValue,
  type LaneAccess,
  type LaneContext,
  LanePrinter,
  type Part,
  registerName,
} from "./lane-printer.ts";
import type { LanguagePrinter, Loop, Named, Of } from "./walk.ts";
import type { WarpExpressions } from "./warp-expressions.ts";

/**
 * Combines a value `v` with the partner's, `other`; `signed` is the form for languages in which signed overflow is
 * undefined.
 */
const FOLDS = [
  { name: "sum", step: code`v += other;`, signed: code`v = (int32_t)((uint32_t)v + (uint32_t)other);` },
  { name: "most", step: code`v = other > v || other != other ? other : v;` },
  { name: "least", step: code`v = other < v || other != other ? other : v;` },
] as const;

/** How a language declares a fold of lanes. */
export interface FoldSyntax {
  /** The types for which it has functions of their own; a template is one for all. */
  readonly types: readonly { readonly suffix: string; readonly type: Code; readonly overflows?: boolean }[];
  readonly head: (name: Code, type: Code) => Code;
  /** The value of the partner at `distance`. */
  readonly exchange: Code;
}

/** The fold functions among so many threads. */
export function foldFunctions(threads: number, { types, head, exchange }: FoldSyntax): Helpers {
  const all = FOLDS.flatMap((fold) =>
    types.map(({ suffix, type, overflows }) => {
      const name = `${fold.name}_of_lanes${suffix}`;
      const text = code`${head(identifier(name), type)} {
  for (int distance = ${threads / 2}; distance > 0; distance /= 2) {
    const ${type} other = ${exchange};
    ${overflows && "signed" in fold ? fold.signed : fold.step}
  }
  return v;
}`;
      return [name, text] as const;
    }),
  );
  return Object.fromEntries(all);
}

export abstract class WarpLanes extends LanePrinter implements LanguagePrinter {
  override readonly c: WarpExpressions;
  /** The number of this thread among those that run together. */
  protected readonly thread: Code;
  /** A fence after which lanes see each other's writes; undefined where the nest has barriers for that. */
  protected abstract readonly laneFence: Code | undefined;
  /** Memory that is both read and written. */
  private readonly exchanged: ReadonlySet<string>;

  constructor(c: WarpExpressions) {
    super(c);
    this.c = c;
    this.thread = code`threadIdx.x % ${c.group}`;
    const all = equationsIn([...c.nest.prepare, ...c.nest.body]);
    const read = new Set(all.flatMap(({ value }) => accessesIn(value)).map((a) => a.tensor));
    const vectors = new Set(namesOf(c.nest.vectors ?? []));
    this.exchanged = new Set(
      all.map(({ target }) => target.tensor).filter((name) => read.has(name) && !vectors.has(name)),
    );
  }

  declarations({ registers }: Named): Code[] {
    return (this.nest.vectors ?? []).flatMap(({ name, dtype }) =>
      (registers.get(name) ?? []).flatMap((i) =>
        this.isUnread(name, i) ? [] : [code`${C_TYPES[dtype]} ${registerName(name, i)} = 0;`],
      ),
    );
  }

  /** Whether a register is never read, and so is omitted. */
  protected isUnread(_file: string, _register: number): boolean {
    return false;
  }

  /** Lines that write to memory, with fences if other lanes read it. */
  private synchronised(tensor: string, lines: Code[]): Code[] {
    const { laneFence } = this;
    return laneFence && this.exchanged.has(tensor) ? [laneFence, ...lines, laneFence] : lines;
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
    return this.c.group;
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
  protected beyond(lane: string, lanes = this.c.group): Code[] {
    return lanes < this.c.group ? [code`${this.threadOf(lane)} < ${lanes}`] : [];
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
