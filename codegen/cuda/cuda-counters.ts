/**
 * @file Incremental loop counters in place of divisions: the stage of a ring, how often it was filled, the tap of a filter.
 *
 *     for (int step = 0; step < 18; step++) {             for (int step = 0, step_in_6 = 5; step < 18; step++) {
 *       ... ring[8192 * ((step + 5) % 6)] ...        ->      ... ring[8192 * step_in_6] ...
 *     }                                                     step_in_6 = step_in_6 == 5 ? 0 : step_in_6 + 1;
 *                                                         }
 *
 * Remainders of powers of two are single instructions and stay.
 */

import { affineForm } from "../../abstraction/affine.ts";
import { binary, type Expr, number, over, printExpr, substitute } from "../../abstraction/expression.ts";
import { block, type Code, code, Name } from "../../abstraction/source-text.ts";

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
    const around = this.loops.slice(0, at).map((l) => l.axis);
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
