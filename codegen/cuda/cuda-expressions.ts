/**
 * @file Prints expressions of a CUDA thread: short indices, shared memory with storage formulas, sums in registers.
 * Loop-invariant values are named above the loops.
 *
 *     a_ring[512*(k_tile%3) + 16*m + 8*((k/8) ^ (m/4%2)) + k%8]      const int a_ring_row = 16 * (lane % 16) + 8 * (lane / 16 ^ lane / 4 % 2);
 *                                                                    a_ring[a_ring_row + 512 * (k_tile % 3)]
 *
 * Incremental loop counters take the place of divisions: the stage of a ring, how often it was filled, the tap of a filter.
 *
 *     for (int step = 0; step < 18; step++) {             for (int step = 0, step_in_6 = 5; step < 18; step++) {
 *       ... ring[8192 * ((step + 5) % 6)] ...        ->      ... ring[8192 * step_in_6] ...
 *     }                                                     step_in_6 = step_in_6 == 5 ? 0 : step_in_6 + 1;
 *                                                         }
 *
 * Remainders of powers of two are single instructions and stay.
 */

import { affineForm, boundsOf, type Extents } from "../../abstraction/affine.ts";
import { hasName } from "../../abstraction/collections.ts";
import { type Computation, inputsOf, type Tensor } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { inside } from "../../abstraction/elements.ts";
import { storesElsewhere } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  axis,
  binary,
  changeParts,
  comparesElements,
  type Expr,
  number,
  over,
  printExpr,
  substitute,
} from "../../abstraction/expression.ts";
import { WARP } from "../../abstraction/intrinsic.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { axisName, block, type Code, code, Name } from "../../abstraction/source-text.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { valueRange } from "../../abstraction/value-range.ts";
import { C_WORDS, type Place } from "../c-expressions.ts";
import { always, never } from "../lane-printer.ts";
import { shortIndex, sumOf, termsOfShort } from "../short-index.ts";
import { type Role, STRENGTH, WarpExpressions } from "../warp-expressions.ts";

/** The prefix of axes that stand for the printer's own variables. Axes of a computation are identifiers. */
const OWN = "$";

/** An axis for a variable of the printer. */
export const ownAxis = (word: string): string => OWN + word;

/** Floats that hold every whole number of five bits and a sign. */
const FLOATS: readonly DType[] = ["f32", "f16", "bf16"];

/** Named values available to a drain or a copy: an element of a register, or of a loaded piece. */
type AtHand = (e: Access) => Code | undefined;

export class CudaExpressions extends WarpExpressions {
  /** Loops over the blocks of a cluster, which give the number of a thread's own block. */
  private readonly ownBlock: ReadonlySet<string>;
  /** Consulted before memory. */
  atHand: AtHand = () => undefined;
  /** Consulted before that: elements of inputs that were loaded ahead. */
  heldBeside: AtHand = () => undefined;
  /** The constants of the kernel being printed. */
  hoisted: Hoisted | undefined;
  /** The counters of the loops being printed. */
  readonly counters = new Counters();
  /** Whether products run asynchronously while threads do other work. */
  private readonly hasFlights: boolean;

  constructor(computation: Computation, nest: LoopNest, elements: Readonly<Record<string, DType>> = {}) {
    super(computation, nest, WARP, C_WORDS, elements);
    this.hasFlights = nest.registers.some((r) => r.intrinsic.asynchronous !== undefined);
    const clusters = (s: Statement): string[] =>
      s.kind !== "loop" ? [] : [...(s.mode === "cluster" ? [s.axis] : []), ...s.body.flatMap(clusters)];
    this.ownBlock = new Set(nest.body.flatMap(clusters));
  }

  /** The name of a loop counter, or of a variable of the printer. */
  override axis(name: string): Name {
    return name.startsWith(OWN) ? new Name("local", name.slice(OWN.length)) : axisName(name);
  }

  /** An address. Scratch follows its storage formula, and no access to it is outside. Tensors have conditions. */
  override placeOf(access: Access, extents: Extents): Place {
    return { at: this.offsetOf(access, extents), guards: this.guardsOf(access, extents) };
  }

  /** The tensor of that name; undefined for scratch. */
  tensorNamed(name: string): Tensor | undefined {
    return this.scratch.has(name) ? undefined : this.computation.tensors[name];
  }

  /**
   * The offset of an element. Digits are combined before they are simplified. Simplified one by one, they may no longer
   * look like digits of one number.
   */
  offsetOf(access: Access, extents: Extents): Expr {
    return shortIndex(this.flatOffset(access, extents), extents);
  }

  override value(e: Expr, dtype: DType, extents: Extents): Code {
    const small = this.halfByteLess(e, extents);
    return small ? this.computed(small, typeOf(e, this.dtypes) ?? dtype) : super.value(e, dtype, extents);
  }

  protected override number(e: Expr, dtype: DType, extents: Extents): Code {
    return this.halfByteLess(e, extents) ?? super.number(e, dtype, extents);
  }

  /**
   * A number of half a byte as a float, less a whole number: its bits stand behind those of 2^23, and nothing is converted. A GPU converts fewer
   * numbers than it adds. Every float holds such a difference. Undefined for other values.
   */
  private halfByteLess(e: Expr, extents: Extents): Code | undefined {
    const isLess = e.kind === "binary" && e.op === "-" && e.right.kind === "number";
    const [cast, less] = isLess && e.right.kind === "number" ? [e.left, e.right.value] : [e, 0];
    if (cast.kind !== "cast" || !FLOATS.includes(cast.dtype) || typeOf(cast.value, this.dtypes) !== "u8")
      return undefined;
    const range = valueRange(cast.value, this.dtypes);
    if (range === undefined || range[1] > 15 || !Number.isInteger(less) || Math.abs(less) > 15) return undefined;
    const bits = code`0x4b000000u | ${this.value(cast.value, "u8", extents)}`;
    return code`(@float_of_bits(${bits}) - ${this.literal(2 ** 23 + less, "f32")})`;
  }

  /** Conditions for an element to be inside its tensor. */
  guardsOf({ tensor, index }: Access, extents: Extents): Expr[] {
    return this.tested(tensor, index, extents).flatMap((t) => inside(t.index, t.extent, extents));
  }

  /**
   * The base of an access. In cluster memory, the first index selects the block: `in_block(parts, m_in / 16)`.
   * @param access as given to {@link place}
   */
  override memory({ tensor, index }: Access, extents: Extents): Code {
    const [block] = index;
    if (this.scratch.get(tensor)?.scope !== "cluster" || !block) return this.tensor(tensor);
    if (block.kind === "axis" && this.ownBlock.has(block.name)) return this.tensor(tensor);
    return code`@in_block(${this.tensor(tensor)}, ${this.index(this.hoist(shortIndex(block, extents), `${tensor}_block`), extents)})`;
  }

  /** The access relative to the memory of one block. */
  private withinBlock(access: Access): Access {
    if (this.scratch.get(access.tensor)?.scope !== "cluster") return access;
    return { ...access, index: [number(0), ...access.index.slice(1)] };
  }

  /** The indices of a tensor that may be outside. */
  private tested(tensor: string, index: readonly Expr[], extents: Extents): Tested[] {
    const scratch = this.scratch.get(tensor);
    if (scratch ? !scratch.outside : storesElsewhere(this.computation, tensor)) return [];
    return this.described(tensor).dims.flatMap(({ name, extent: own }, i): Tested[] => {
      // x/9 < 64 is x < 576.
      let e = index[i] ?? number(0);
      let extent = own;
      for (; e.kind === "binary" && e.op === "/" && e.right.kind === "number"; e = e.left) extent *= e.right.value;
      if (inside(e, extent, extents).length === 0) return [];
      const short = shortIndex(e, extents);
      return inside(short, extent, extents).length === 0 ? [] : [{ name, extent, index: short }];
    });
  }

  /** An address with its loop-invariant parts named: `x_at`, and `x_row` for a dimension `row` that is tested. */
  override place(access: Access, extents: Extents, role: Role = "at"): { at: Code; guards: Code[] } {
    const { tensor, index } = access;
    const isHeld = this.isResult(tensor);
    const at = this.hoist(this.offsetOf(this.withinBlock(access), extents), `${tensor}_${role}`, isHeld);
    const guards = this.tested(tensor, index, extents).flatMap((t) => {
      const named = this.hoist(t.index, `${tensor}_${t.name}`, isHeld);
      return inside(named, t.extent, this.reachOf(extents));
    });
    return { at: this.index(at, extents), guards: guards.map((g) => this.condition(g, extents)) };
  }

  /** An address with all its conditions. No condition appears twice. */
  override placeWhere(
    target: Access,
    where: readonly Expr[],
    extents: Extents,
    role: Role = "to",
  ): { at: Code; guards: Code[] } {
    const { at, guards } = this.place(target, extents, role);
    const more = this.untested(where, extents, this.guardsOf(target, extents));
    return { at, guards: [...more.map((e) => this.condition(e, extents)), ...guards] };
  }

  override tests(conditions: readonly Expr[], extents: Extents): Code[] {
    return this.untested(conditions, extents).map((e) => this.condition(e, extents));
  }

  /** Conditions that need a test, simplified: those that bounds do not prove and that are not among the others. */
  untested(conditions: readonly Expr[], extents: Extents, others: readonly Expr[] = []): Expr[] {
    const seen = new Set(others.map((e) => printExpr(e)));
    return conditions.flatMap((e) => {
      const short = shortCondition(e, extents);
      const text = printExpr(short);
      if (seen.has(text) || always(short, extents)) return [];
      seen.add(text);
      return [short];
    });
  }

  /** A value whose selects are replaced by the side that bounds prove. */
  settled(e: Expr, extents: Extents): Expr {
    const inside = (part: Expr): Expr => this.settled(part, extents);
    if (e.kind !== "select") return changeParts(e, inside);
    const condition = shortCondition(e.condition, extents);
    if (always(condition, extents)) return inside(e.whenTrue);
    return never(condition, extents) ? inside(e.whenFalse) : changeParts(e, inside);
  }

  /** Extents of axes, including the kernel's named constants. */
  private reachOf(extents: Extents): Extents {
    return this.hoisted?.beside(extents) ?? extents;
  }

  /** Whether asynchronous products are stored to a tensor: the output, or the buffer for partial sums. */
  private isResult(tensor: string): boolean {
    const scope = this.scratch.get(tensor)?.scope;
    const isOutside = scope === undefined || scope === "workspace" || scope === "cluster";
    return this.hasFlights && isOutside && !hasName(inputsOf(this.computation), tensor);
  }

  /**
   * Names the loop-invariant part of a short index.
   * @param isHeld whether the compiler must keep the constant in a register rather than recompute it
   */
  hoist(e: Expr, wish: string, isHeld = false): Expr {
    return this.hoisted?.index(e, wish, isHeld) ?? e;
  }

  /** With C's operator precedence. `/` and `%` round down, as in C only for operands that are not negative. */
  override index(e: Expr, extents: Extents): Code {
    if (e.kind === "negate") return code`-${this.operand(e.value, extents, STRENGTH.negate)}`;
    if (e.kind === "axis") return code`${this.axis(e.name)}`;
    if (e.kind !== "binary") return super.index(e, extents);
    const { op, left, right } = e;
    const digit = this.counters.digit(e);
    if (digit) return code`${digit}`;
    if ((op === "/" || op === "%") && boundsOf(left, this.reachOf(extents))[0] < 0)
      return code`@floor_${op === "/" ? "div" : "mod"}(${this.index(left, extents)}, ${this.index(right, extents)})`;
    // In C, ^ binds more weakly than +, and compilers warn without parentheses.
    const strength = op === "^" ? STRENGTH.negate : STRENGTH[op];
    return code`${this.operand(left, extents, strength)} ${op} ${this.operand(right, extents, strength + 1)}`;
  }

  private operand(e: Expr, extents: Extents, floor: number): Code {
    const text = this.index(e, extents);
    if (this.counters.digit(e)) return text;
    const own = e.kind === "binary" ? STRENGTH[e.op] : e.kind === "negate" ? STRENGTH.negate : STRENGTH.atom;
    return own < floor ? code`(${text})` : text;
  }

  protected override element(e: Access, dtype: DType, extents: Extents): Code {
    return this.heldBeside(e) ?? this.atHand(e) ?? super.element(e, dtype, extents);
  }
}

/** An index of a tensor that may be outside. */
interface Tested {
  readonly name: string;
  readonly extent: number;
  readonly index: Expr;
}

function shortCondition(e: Expr, extents: Extents): Expr {
  if (e.kind === "logic")
    return { ...e, left: shortCondition(e.left, extents), right: shortCondition(e.right, extents) };
  if (e.kind !== "compare") internal(`"${e.kind}" is no condition`);
  if (comparesElements(e)) return e;
  return { ...e, left: shortIndex(e.left, extents), right: shortIndex(e.right, extents) };
}

/** Loop-invariant parts of indices, each a constant above the loops. */
export class Hoisted {
  private readonly c: CudaExpressions;
  /** Axes that are invariant in the kernel's loops, and their extents. */
  private readonly fixed: Extents;
  private readonly names = new Map<string, string>();
  /** Extents of the constants. */
  readonly extents: Record<string, number> = {};
  readonly declarations: { readonly name: Name; readonly line: Code }[] = [];
  /** The last result of {@link beside}. */
  private reach: { readonly around: Extents; readonly all: Extents } | undefined;

  constructor(c: CudaExpressions, fixed: Extents) {
    this.c = c;
    this.fixed = fixed;
  }

  /**
   * A short index whose invariant part is replaced by a named constant, unless that part is simple.
   * @param wish the prefix of the name
   */
  index(e: Expr, wish: string, isHeld: boolean): Expr {
    const terms = termsOfShort(e);
    // What is read from memory may be made by the kernel before, which is waited for behind these constants.
    const isFixed = (of: Expr): boolean =>
      of.kind !== "number" && accessesIn(of).length === 0 && axesIn(of).every((a) => this.fixed[a] !== undefined);
    const fixed = terms.filter((t) => isFixed(t.of));
    const simple = fixed.length === 0 || (fixed.length === 1 && fixed[0]?.of.kind === "axis");
    const sum = sumOf(fixed);
    const [least, most] = boundsOf(sum, this.fixed);
    if (simple || least < 0) return sumOf(terms);
    const name = this.name(sum, wish, most, isHeld);
    return sumOf([{ factor: 1, of: axis(name) }, ...terms.filter((t) => !isFixed(t.of))]);
  }

  /** The extents of loops together with those of the constants. */
  beside(around: Extents): Extents {
    if (this.reach?.around !== around) this.reach = { around, all: { ...around, ...this.extents } };
    return this.reach.all;
  }

  private name(sum: Expr, wish: string, most: number, isHeld: boolean): string {
    const text = `${wish} ${printExpr(sum)}`;
    const before = this.names.get(text);
    if (before !== undefined) return before;
    let name = ownAxis(wish);
    for (let n = 1; this.extents[name] !== undefined; n++) name = ownAxis(`${wish}_${n}`);
    this.names.set(text, name);
    this.extents[name] = most + 1;
    this.reach = undefined;
    const value = this.c.index(sum, this.fixed);
    const line = code`const ${this.c.indexType} ${this.c.axis(name)} = ${isHeld ? code`@held(${value})` : value};`;
    this.declarations.push({ name: this.c.axis(name), line });
    return name;
  }
}

/** The digits of one index that are counted: its remainder, and the digits that advance when the remainder wraps. */
interface Counter {
  /** The index at the loop's first step. */
  readonly from: Expr;
  readonly by: number;
  readonly remainder: Name;
  quotient?: Name;
  /** Remainders of the quotient. */
  readonly digits: Map<number, Counter>;
}

interface CountedLoop {
  readonly axis: string;
  readonly counters: Map<string, Counter>;
}

export class Counters {
  /** Axes that count bodies: they stay the same in the loops inside. */
  readonly ofBodies = new Set<string>();
  private readonly loops: CountedLoop[] = [];
  private isPaused = false;

  /**
   * Prints a loop's body, with digits of its indices counted.
   * @param print prints an index before the loop
   * @returns the declarations beside the loop's own counter, and the body with the increments after it
   */
  along(
    axis: string,
    body: () => Code[],
    print: (e: Expr) => Code,
  ): { readonly begun: Code[]; readonly lines: Code[] } {
    const counted: CountedLoop = { axis, counters: new Map() };
    this.loops.push(counted);
    const lines = body();
    this.loops.pop();
    const all = [...counted.counters.values()];
    return { begun: all.flatMap((c) => begun(c, print)), lines: [...lines, ...all.flatMap(onwards)] };
  }

  /** Prints code that a single thread runs. Counting for it would cost all threads. */
  without<T>(print: () => T): T {
    const before = this.isPaused;
    this.isPaused = true;
    try {
      return print();
    } finally {
      this.isPaused = before;
    }
  }

  /** The counter for a remainder or a quotient; undefined if none is kept. */
  digit(e: Expr): Name | undefined {
    if (this.loops.length === 0 || this.isPaused || e.kind !== "binary" || e.right.kind !== "number") return undefined;
    const by = e.right.value;
    if (e.op === "%") return this.counter(e.left, by)?.remainder;
    const counter = e.op === "/" ? this.counter(e.left, by) : undefined;
    if (!counter) return undefined;
    counter.quotient ??= wordOf(counter.remainder, "times");
    return counter.quotient;
  }

  private counter(index: Expr, by: number): Counter | undefined {
    if (index.kind === "binary" && index.op === "/" && index.right.kind === "number") {
      const below = this.counter(index.left, index.right.value);
      return below && digitOf(below, by);
    }
    if (Number.isInteger(Math.log2(by))) return undefined;
    const loop = this.loopOf(index);
    if (!loop) return undefined;
    const key = `${printExpr(index)} by ${by}`;
    let counter = loop.counters.get(key);
    if (!counter) {
      const from = substitute(index, new Map([[loop.axis, number(0)]]), "index");
      const ahead = affineForm(index)?.constant ?? 0;
      const wish = `${loop.axis}${ahead > 0 ? `_${ahead}` : ""}_in_${by}`;
      counter = { from, by, remainder: new Name("local", wish, key), digits: new Map() };
      loop.counters.set(key, counter);
    }
    return counter;
  }

  /**
   * The innermost loop that increments an index by one at each step, if the rest of the index is constant in that loop;
   * undefined if there is none.
   */
  private loopOf(index: Expr): CountedLoop | undefined {
    const form = affineForm(index);
    const at = this.loops.findLastIndex((l) => form?.terms.has(l.axis));
    const loop = this.loops[at];
    if (!form || !loop || form.terms.get(loop.axis) !== 1 || form.constant < 0) return undefined;
    const around = [...this.loops.slice(0, at).map((l) => l.axis), ...this.ofBodies];
    const others = [...form.terms].filter(([name]) => name !== loop.axis);
    return others.every(([name, factor]) => factor >= 0 && around.includes(name)) ? loop : undefined;
  }
}

const wordOf = (name: Name, what: string): Name => new Name("local", `${name.wish}_${what}`, `${name.id} ${what}`);

function digitOf(below: Counter, by: number): Counter {
  const known = below.digits.get(by);
  if (known) return known;
  const from = over(below.from, below.by);
  const counter: Counter = { from, by, remainder: wordOf(below.remainder, `then_${by}`), digits: new Map() };
  below.digits.set(by, counter);
  return counter;
}

function begun({ from, by, remainder, quotient, digits }: Counter, print: (e: Expr) => Code): Code[] {
  const word = (name: Name, op: "%" | "/"): Code => code`${name} = ${print(binary(op, from, by))}`;
  return [
    word(remainder, "%"),
    ...(quotient ? [word(quotient, "/")] : []),
    ...[...digits.values()].flatMap((d) => begun(d, print)),
  ];
}

/** The increments of a step: higher digits advance when the remainder wraps. */
function onwards({ by, remainder, quotient, digits }: Counter): Code[] {
  if (!quotient && digits.size === 0) return [code`${remainder} = ${remainder} == ${by - 1} ? 0 : ${remainder} + 1;`];
  const above = [...(quotient ? [code`${quotient}++;`] : []), ...[...digits.values()].flatMap(onwards)];
  return block(code`if (++${remainder} == ${by}) {`, [code`${remainder} = 0;`, ...above]);
}
