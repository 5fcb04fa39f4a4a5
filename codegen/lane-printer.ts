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
 *
 * The facts about a statement on lanes that every language needs: its conditions, the loops around it, and how it
 * updates its target.
 *
 *     tested([lane >= 4, x + lane - 4 >= 0, x + lane < 100])     [lane >= 4, x + lane < 100]
 *     pinnedLane(lane == t+1)                                     t+1
 */

import { boundsOf, type Extents, evaluateIndex, strideIn } from "../abstraction/affine.ts";
import { type Optional, present, upTo } from "../abstraction/collections.ts";
import { conjunctsOf, settled } from "../abstraction/condition.ts";
import { type DType, isInteger } from "../abstraction/dtype.ts";
import { internal, UsageError } from "../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  axis,
  compare,
  comparesElements,
  type Equation,
  type Expr,
  joinedBy,
  minus,
  number,
  plus,
  printAccess,
  printEquation,
  printExpr,
  substitute,
  substituteAxes,
  testsElements,
  walk,
} from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest, Statement, VectorFile } from "../abstraction/loop-nest.ts";
import { isShort } from "../abstraction/short-floats.ts";
import { axisName, block, type Code, code, Name, NOTHING, tensorName } from "../abstraction/source-text.ts";
import type { DTypes } from "../abstraction/typing.ts";
import { allOf, type CExpressions } from "./c-expressions.ts";
import { extentsIn, type Loop, type Of, stepsOf } from "./walk.ts";

/** Whether a condition holds at every step of the loops, or fails at every one; undefined where its bounds decide neither. */
function decided(e: Expr, extents: Extents): boolean | undefined {
  if (e.kind === "logic") {
    const sides = [decided(e.left, extents), decided(e.right, extents)];
    const decisive = e.op === "or";
    if (sides.includes(decisive)) return decisive;
    return sides.includes(undefined) ? undefined : !decisive;
  }
  if (e.kind !== "compare" || comparesElements(e)) return undefined;
  return settled(e.op, ...boundsOf(minus(e.left, e.right), extents));
}

/** Whether a condition holds at every step of the loops. */
export const always = (e: Expr, extents: Extents): boolean => decided(e, extents) === true;

/** Whether a condition fails at every step of the loops. */
export const never = (e: Expr, extents: Extents): boolean => decided(e, extents) === false;

/** The lanes that satisfy the conditions on the lane alone. */
function lanesLeft(conditions: readonly Expr[], lane: string, extents: Extents): number[] {
  const alone = conditions.filter((e) => axesIn(e).join() === lane && !testsElements(e));
  const lanes = upTo(extents[lane] ?? 0);
  return lanes.filter((l) => alone.every((e) => evaluateIndex(e, { [lane]: l }) !== 0));
}

/**
 * The conditions that need a test: without duplicates, and without those that always hold, given the conditions on the
 * lane alone.
 *
 *     lane >= 4, x + lane - 4 >= 0, x + lane < 100, x + lane < 100    ->    lane >= 4, x + lane < 100
 */
export function tested(conditions: readonly Expr[], lane: string, extents: Extents): Expr[] {
  const isAlone = (e: Expr): boolean => axesIn(e).join() === lane && !testsElements(e);
  const left = lanesLeft(conditions, lane, extents);
  const [first = 0, last = first] = [left[0], left.at(-1)];
  const moved = new Map([[lane, plus(axis(lane), first)]]);
  const within = { ...extents, [lane]: last - first + 1 };
  const seen = new Set<string>();
  return conditions.filter((e) => {
    const text = printExpr(e);
    const idle = isAlone(e) ? left.length === extents[lane] : always(substitute(e, moved, "index"), within);
    if (idle || seen.has(text)) return false;
    seen.add(text);
    return true;
  });
}

/** The parallel loops around everything, outermost first, and their body. Other parallel loops run serially. */
export function dealtLoops(body: readonly Statement[]): {
  readonly dealt: readonly Loop[];
  readonly inner: readonly Statement[];
  readonly extents: Extents;
} {
  const dealt: Loop[] = [];
  let inner = body;
  for (;;) {
    const [only] = inner;
    if (inner.length !== 1 || only?.kind !== "loop" || only.mode !== "parallel") break;
    dealt.push(only);
    inner = only.body;
  }
  return { dealt, inner, extents: extentsIn(dealt) };
}

/**
 * The counter of each loop, computed from a number that counts all their steps: `const int m_tile = blockIdx.x / 16;`.
 */
export function dealtIndices(
  loops: readonly Loop[],
  from: Code,
  type: "int" | "long" = "int",
  nameOf: (axis: string) => Name = axisName,
): { readonly name: Name; readonly line: Code }[] {
  return loops.map(({ axis, extent }, i) => {
    const below = stepsOf(loops.slice(i + 1));
    const whole = below === 1 ? from : code`${from} / ${below}`;
    const name = nameOf(axis);
    return { name, line: code`const ${type} ${name} = ${i === 0 ? whole : code`${whole} % ${extent}`};` };
  });
}

/** All loops over lanes. */
export function laneLoops(body: readonly Statement[]): Loop[] {
  return body.flatMap((s) => (s.kind === "loop" && s.mode === "lanes" ? [s] : laneLoops(insideOf(s))));
}

/** The scalar statements of a nest. */
export function equationsIn(body: readonly Statement[]): Equation[] {
  return body.flatMap((s) => (s.kind === "scalar" ? [s.equation] : equationsIn(insideOf(s))));
}

function insideOf(s: Statement): readonly Statement[] {
  if (s.kind === "when") return [...s.body, ...s.otherwise];
  return s.kind === "loop" ? s.body : [];
}

/** Conditions that are the same on every lane, and the others. */
export function split(conditions: readonly Expr[], lane: string): [uniform: Expr[], varying: Expr[]] {
  const varies = (e: Expr): boolean => axesIn(e).includes(lane);
  return [conditions.filter((e) => !varies(e)), conditions.filter(varies)];
}

/** The lane that `lane == n` selects. */
export function pinnedLane(e: Expr, lane: string): Expr | undefined {
  if (e.kind !== "compare" || e.op !== "==") return undefined;
  if (e.left.kind === "axis" && e.left.name === lane && !axesIn(e.right).includes(lane)) return e.right;
  const factor = strideIn(minus(e.left, e.right), lane);
  if (factor !== 1 && factor !== -1) return undefined;
  const rest = substitute(minus(e.left, e.right), new Map([[lane, number(0)]]), "index");
  return factor === 1 ? minus(0, rest) : rest;
}

/**
 * The only lane that satisfies the conditions, alone or together (`lane/8 == 0`, `lane%8 == 3`); "none" if no lane
 * does.
 */
function onlyLane(conditions: readonly Expr[], lane: string, extents: Extents): Expr | "none" | undefined {
  const named = conditions.map((e) => pinnedLane(e, lane)).find((e) => e !== undefined);
  if (named) return named;
  const [only, ...others] = lanesLeft(conditions, lane, extents);
  if (only === undefined) return "none";
  return others.length > 0 ? undefined : number(only);
}

/** The value combined with the target's previous value, as one expression. */
export function joinedValue({ target, op, value }: Equation): Expr {
  if (op === "sat+=") internal("lanes do not saturate");
  return op === "=" ? value : joinedBy(op, target, value);
}

/** The target's previous value combined with a scalar, as C. */
export function joinScalars(c: CExpressions, op: Equation["op"], held: Code, scalar: Code, dtype: DType): Code {
  switch (op) {
    case "=":
      return scalar;
    case "+=":
      if (isShort(dtype)) return code`@to_${dtype}(@from_${dtype}(${held}) + @from_${dtype}(${scalar}))`;
      return c.words.overflowIsUndefined && dtype === "s32"
        ? code`(int32_t)((uint32_t)(${held}) + (uint32_t)(${scalar}))`
        : code`${held} + ${scalar}`;
    case "max=":
      return c.words.called("most", [C_TYPES[dtype]], [held, scalar]);
    case "min=":
      return c.words.called("least", [C_TYPES[dtype]], [held, scalar]);
    case "sat+=":
      return internal("lanes do not saturate");
    default:
      return op satisfies never;
  }
}

/** A register named as `[register, lane]`. */
export interface LaneAccess {
  readonly file: VectorFile;
  readonly register: number;
  readonly lane: Expr;
}

/** The register that an access names; undefined for memory. */
export function registerIn(nest: LoopNest, { tensor, index }: Access): LaneAccess | undefined {
  const file = nest.vectors?.find((v) => v.name === tensor);
  if (!file) return undefined;
  const [register, lane] = index;
  if (register?.kind !== "number" || lane === undefined || register.value < 0 || register.value >= file.count)
    internal(`register of ${printAccess({ kind: "access", tensor, index })} is not known`);
  return { file, register: register.value, lane };
}

/** `Z0`, or `Z0_1` where a vector takes several registers. */
export function registerName(file: string, register: number, part = 0, parts = 1): Name {
  const word = `${file}${register}`;
  return new Name("register", parts === 1 ? word : `${word}_${part}`, `${file} ${register} ${part}`);
}

/** Lines under a condition, as a block if they declare something. */
export function guarded(conditions: readonly Optional<Code>[], lines: readonly Code[], inBlock = false): Code[] {
  const tests = present(conditions);
  const test = tests.length === 0 ? NOTHING : code`if (${allOf(tests)}) `;
  const [only] = lines;
  if (lines.length === 1 && only !== undefined && !inBlock) return [code`${test}${only}`];
  if (tests.length === 0 && !inBlock) return [...lines];
  return block(code`${test}{`, lines);
}

/** The factors of a product, or of a square. */
export function factorsIn(e: Expr): readonly [Expr, Expr] | undefined {
  if (e.kind === "binary" && e.op === "*") return [e.left, e.right];
  return e.kind === "call" && e.fn === "square" && e.args[0] ? [e.args[0], e.args[0]] : undefined;
}

/**
 * Whether lanes compute some product that takes an instruction of its own: in floats one that something is added to, as the fused multiply-add does;
 * in integers any. A sum of bare elements, and a maximum of sums, have none. A factor that is a constant may become an addition or a shift.
 */
export function multiplies(body: readonly Statement[], dtypes: DTypes): boolean {
  return body.some((s) => {
    if (s.kind === "loop") return multiplies(s.body, dtypes);
    if (s.kind === "when") return multiplies(s.body, dtypes) || multiplies(s.otherwise, dtypes);
    if (s.kind !== "scalar") return false;
    const isWhole = isInteger(dtypes[s.equation.target.tensor] ?? "f32");
    return [...walk(joinedValue(s.equation))].some((e) =>
      isWhole
        ? isProduct(e)
        : e.kind === "binary" &&
          (e.op === "+" || e.op === "-") &&
          [e.left, e.right].some((side) => isProduct(taken(side))),
    );
  });
}

const isProduct = (e: Expr): boolean => factorsIn(e)?.every((factor) => factor.kind !== "number") ?? false;

/** What is added where a condition holds: the condition masks the addition. */
const taken = (e: Expr): Expr => (e.kind === "select" ? e.whenTrue : e);

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
