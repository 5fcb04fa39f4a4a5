/**
 * @file Simplifies index arithmetic. Quotients and remainders of sums are split into a divisible part and the rest.
 *
 *     (64*warp + 16*i + lane%16) % 8          ->    lane % 8
 *     (16*part + 8*(lane/16)) / 8             ->    2*part + lane/16
 *     8*(lane/8%2) + lane%8                   ->    lane % 16                    digits of one number are recombined
 *
 * `/` rounds down and `%` is never negative, so every rule also holds for negative numbers.
 */

import { boundsOf, type Extents, gcd } from "../abstraction/affine.ts";
import { memoised, sortedBy } from "../abstraction/collections.ts";
import { internal } from "../abstraction/error.ts";
import { axesIn, binary, type Expr, isSame, number, printExpr } from "../abstraction/expression.ts";

/** A term of a sum: a constant factor times an axis, a quotient, a remainder or an exclusive or; 1 for the constant. */
export interface Term {
  readonly factor: number;
  readonly of: Expr;
}

/** The same index with fewer operations, where the extents of its axes prove it. */
export function shortIndex(e: Expr, extents: Extents): Expr {
  return sumOf(shortTerms(e, extents));
}

/** Cached by extents, because the indices of a copy share a few digits. */
const known = memoised((_: Extents) => new Map<Expr, readonly Term[]>());

/** An index as a sum of simplified terms without duplicates, the constant last. */
export function shortTerms(e: Expr, extents: Extents): readonly Term[] {
  if (e.kind === "axis") return extents[e.name] === 1 ? [] : [{ factor: 1, of: e }];
  const all = known(extents);
  let terms = all.get(e);
  if (!terms) {
    terms = rejoined(collected(termsIn(e, 1, extents)), extents);
    all.set(e, terms);
  }
  return terms;
}

/** The terms of an index as it is written. */
export function termsOfShort(e: Expr, factor = 1): Term[] {
  if (e.kind === "number") return e.value === 0 ? [] : [{ factor: factor * e.value, of: number(1) }];
  if (e.kind === "negate") return termsOfShort(e.value, -factor);
  if (e.kind !== "binary") return [{ factor, of: e }];
  const { op, left, right } = e;
  if (op === "+" || op === "-")
    return [...termsOfShort(left, factor), ...termsOfShort(right, op === "-" ? -factor : factor)];
  if (op === "*" && left.kind === "number") return termsOfShort(right, factor * left.value);
  if (op === "*" && right.kind === "number") return termsOfShort(left, factor * right.value);
  return [{ factor, of: e }];
}

/** The distance between two addresses, if it is constant. */
export function distance(from: Expr, to: Expr, extents: Extents): number | undefined {
  const apart = shortIndex(binary("-", to, from), extents);
  return apart.kind === "number" ? apart.value : undefined;
}

/** The largest number that certainly divides an index; 0 if the index is 0. */
export function divisorOf(e: Expr, extents: Extents): number {
  return divisorOfTerms(shortTerms(e, extents));
}

function divisorOfTerms(terms: readonly Term[]): number {
  return terms.reduce((all, { factor }) => gcd(all, factor), 0);
}

/** Whether an index is an axis plus multiples of a number. */
export function isRun(e: Expr, name: string, by: number, extents: Extents): boolean {
  const [moving, still] = [[], []] as [Term[], Term[]];
  for (const t of shortTerms(e, extents)) (axesIn(t.of).includes(name) ? moving : still).push(t);
  const [only] = moving;
  return moving.length === 1 && only?.factor === 1 && only.of.kind === "axis" && divisorOfTerms(still) % by === 0;
}

/** The sum of terms as an index. */
export function sumOf(terms: readonly Term[]): Expr {
  // Added terms first, so that no index begins with a minus sign.
  const ordered = [...terms.filter((t) => t.factor > 0), ...terms.filter((t) => t.factor < 0)];
  const part = ({ factor, of }: Term): Expr => binary("*", number(Math.abs(factor)), of);
  const [first, ...others] = ordered;
  if (!first) return number(0);
  const begin: Expr = first.factor < 0 ? negative(part(first)) : part(first);
  return others.reduce((sum, t) => binary(t.factor < 0 ? "-" : "+", sum, part(t)), begin);
}

const negative = (e: Expr): Expr => (e.kind === "number" ? number(-e.value) : { kind: "negate", value: e });

function termsIn(e: Expr, factor: number, extents: Extents): Term[] {
  switch (e.kind) {
    case "number":
      return [{ factor: factor * e.value, of: number(1) }];
    case "axis":
      // A loop of one step has a known counter.
      return extents[e.name] === 1 ? [] : [{ factor, of: e }];
    case "border":
      return [{ factor, of: e }];
    case "negate":
      return termsIn(e.value, -factor, extents);
    case "binary": {
      const { op, left, right } = e;
      switch (op) {
        case "+":
        case "-":
          return [...termsIn(left, factor, extents), ...termsIn(right, op === "-" ? -factor : factor, extents)];
        case "*":
          if (left.kind === "number") return termsIn(right, factor * left.value, extents);
          if (right.kind === "number") return termsIn(left, factor * right.value, extents);
          return [{ factor, of: binary("*", shortIndex(left, extents), shortIndex(right, extents)) }];
        case "/":
        case "%": {
          if (right.kind !== "number") internal(`${printExpr(e)} divides by what is no number`);
          const parts = shortTerms(left, extents);
          const whole = op === "/" ? quotient(parts, right.value, extents) : remainder(parts, right.value, extents);
          return whole.map((t) => ({ factor: t.factor * factor, of: t.of }));
        }
        case "^":
          return exclusiveOr(shortTerms(left, extents), shortTerms(right, extents), extents).map((t) => ({
            factor: t.factor * factor,
            of: t.of,
          }));
        default:
          return op satisfies never;
      }
    }
    default:
      internal(`"${e.kind}" cannot stand in an index`);
  }
}

/** Merges equal terms, drops zeros, and puts the constant last. */
function collected(terms: readonly Term[]): Term[] {
  const sums: Term[] = [];
  for (const { factor, of } of terms) {
    const before = sums.findIndex((t) => isSame(t.of, of));
    if (before < 0) sums.push({ factor, of });
    else sums[before] = { factor: factor + (sums[before]?.factor ?? 0), of };
  }
  const left = sums.filter((t) => t.factor !== 0);
  return [...left.filter((t) => !isConstant(t)), ...left.filter(isConstant)];
}

const isConstant = ({ of }: Term): boolean => of.kind === "number";

/** Terms split by a divisor: multiples of it, and a rest that lies in 0 .. by-1. */
interface Split {
  readonly by: number;
  readonly high: readonly Term[];
  readonly low: readonly Term[];
}

/** The largest divisor of `most` that splits the terms; `most` itself if the undivided terms are small. */
function splitOf(terms: readonly Term[], most: number, extents: Extents): Split | undefined {
  const candidates = new Set([most, ...terms.filter((t) => !isConstant(t)).map((t) => gcd(most, t.factor))]);
  for (const by of sortedBy(candidates, (a) => -a)) {
    if (by <= 1) break;
    const high: Term[] = [];
    const low: Term[] = [];
    for (const t of terms) {
      if (t.factor % by === 0) high.push(t);
      else if (!isConstant(t)) low.push(t);
      else {
        const whole = Math.floor(t.factor / by);
        if (whole !== 0) high.push({ factor: whole * by, of: t.of });
        low.push({ factor: t.factor - whole * by, of: t.of });
      }
    }
    const [least, largest] = boundsOfTerms(low, extents);
    if (least >= 0 && largest < by) return { by, high, low };
  }
  return undefined;
}

/** Bounds of a sum of distinct terms. */
function boundsOfTerms(terms: readonly Term[], extents: Extents): readonly [min: number, max: number] {
  let least = 0;
  let most = 0;
  for (const { factor, of } of terms) {
    const [min, max] = of.kind === "number" ? [of.value, of.value] : boundsOf(of, extents);
    least += factor * (factor < 0 ? max : min);
    most += factor * (factor < 0 ? min : max);
  }
  return [least, most];
}

const divided = (terms: readonly Term[], by: number): Term[] =>
  terms.map(({ factor, of }) => ({ factor: factor / by, of }));

function quotient(terms: readonly Term[], by: number, extents: Extents): Term[] {
  if (by === 1) return [...terms];
  const split = splitOf(terms, by, extents);
  // (h*x + low) / (h*n)  ->  x / n
  if (split)
    return split.by === by ? divided(split.high, by) : quotient(divided(split.high, split.by), by / split.by, extents);
  // The remainder of a constant is taken in 0 .. by-1, so that digits of one number look alike.
  const whole: Term[] = [];
  const rest: Term[] = [];
  for (const { factor, of } of terms) {
    const out = of.kind === "number" ? by * Math.floor(factor / by) : factor % by === 0 ? factor : 0;
    if (out !== 0) whole.push({ factor: out / by, of });
    if (factor !== out) rest.push({ factor: factor - out, of });
  }
  if (whole.length > 0) return collected([...whole, ...quotient(rest, by, extents)]);
  const [only, constant] = terms;
  if (only?.factor === 1 && isDivision(only.of) && (terms.length === 1 || (constant && isConstant(constant)))) {
    const { op, left, right } = only.of;
    // (x / n + m) / by  ->  (x + n*m) / (n*by)
    if (op === "/" && terms.length <= 2) {
      const more = constant ? [{ factor: constant.factor * right.value, of: constant.of }] : [];
      return quotient(collected([...shortTerms(left, extents), ...more]), right.value * by, extents);
    }
    // (x % (n*by)) / by  ->  (x / by) % n
    if (op === "%" && terms.length === 1 && right.value % by === 0) {
      const above = quotient(shortTerms(left, extents), by, extents);
      return remainder(above, right.value / by, extents);
    }
  }
  return [{ factor: 1, of: binary("/", sumOf(terms), number(by)) }];
}

function remainder(terms: readonly Term[], by: number, extents: Extents): Term[] {
  if (by === 1) return [];
  const kept = terms.flatMap(({ factor, of }): Term[] => {
    if (factor % by === 0) return [];
    return [{ factor: of.kind === "number" ? factor - by * Math.floor(factor / by) : factor, of }];
  });
  const split = splitOf(kept, by, extents);
  if (split?.by === by) return [...split.low];
  // (h*x + low) % (h*n)  ->  h*(x % n) + low
  if (split) {
    const above = remainder(divided(split.high, split.by), by / split.by, extents);
    return collected([...above.map((t) => ({ factor: t.factor * split.by, of: t.of })), ...split.low]);
  }
  const [only] = kept;
  if (kept.length === 1 && only?.factor === 1 && isDivision(only.of, "%") && only.of.right.value % by === 0)
    return remainder(shortTerms(only.of.left, extents), by, extents);
  return kept.length === 0 ? [] : [{ factor: 1, of: binary("%", sumOf(kept), number(by)) }];
}

/** (8*x + low) ^ y  ->  8*x + (low ^ y), where low and y are below 8. */
function exclusiveOr(left: readonly Term[], right: readonly Term[], extents: Extents): Term[] {
  const most = (terms: readonly Term[]): number => boundsOfTerms(terms, extents)[1];
  for (const [wide, narrow] of [
    [left, right],
    [right, left],
  ] as const) {
    const by = 2 ** Math.ceil(Math.log2(most(narrow) + 1));
    const high = wide.filter((t) => t.factor % by === 0);
    const low = wide.filter((t) => t.factor % by !== 0);
    const [least, largest] = boundsOfTerms(low, extents);
    if (high.length > 0 && least >= 0 && largest < by)
      return collected([...high, ...exclusiveOr(low, narrow, extents)]);
  }
  const both = binary("^", sumOf(left), sumOf(right));
  return both.kind === "binary" && both.op === "^" ? [{ factor: 1, of: both }] : termsOfShort(both);
}

type Division = Extract<Expr, { kind: "binary" }> & { readonly right: Extract<Expr, { kind: "number" }> };

function isDivision(e: Expr, op?: "/" | "%"): e is Division {
  if (e.kind !== "binary" || e.right.kind !== "number") return false;
  return op === undefined ? e.op === "/" || e.op === "%" : e.op === op;
}

/** `x % n` beside n times `x / n`, or n times `x / n % m`, is x, or `x % (n*m)`. */
function rejoined(terms: readonly Term[], extents: Extents): readonly Term[] {
  for (const low of terms) {
    if (!isDivision(low.of, "%")) continue;
    const { left, right } = low.of;
    const higher = terms.filter((t) => t !== low && t.factor === low.factor * right.value);
    if (higher.length === 0) continue;
    const above = sumOf(quotient(shortTerms(left, extents), right.value, extents));
    for (const high of higher) {
      const more = isDivision(high.of, "%") && isSame(high.of.left, above) ? high.of.right.value : undefined;
      if (!isSame(high.of, above) && more === undefined) continue;
      const whole = more === undefined ? left : binary("%", left, number(right.value * more));
      const others = terms.filter((t) => t !== low && t !== high);
      return rejoined(collected([...termsIn(whole, low.factor, extents), ...others]), extents);
    }
  }
  return terms;
}

/**
 * Recombines the digits of one number, as in fused loops that are contiguous in memory.
 *
 *     ((i / 56) * 56 + i % 56) * 64 + k      ->    i * 64 + k
 *     (i / 58) % 56                          ->    i / 58               if i is below 56*58
 *     (i / 56) * 3136 + i % 56               ->    i                    if i is below 56
 */
export function joinedDigits(index: Expr, extents: Extents): Expr {
  const terms = termsOfShort(index);
  if (!terms.some((t) => isDivision(t.of))) return index;
  const short = terms.flatMap(({ of, factor }) => termsOfShort(shortened(of, extents), factor));
  return withDigitsJoined(short).reduce<Expr>(
    (sum, t) => binary("+", sum, binary("*", t.of, number(t.factor))),
    number(0),
  );
}

/** The same of terms as they are written, each in its place. */
function withDigitsJoined(terms: readonly Term[]): readonly Term[] {
  for (const low of terms) {
    if (!isDivision(low.of, "%")) continue;
    const { left, right } = low.of;
    const isAbove = (e: Expr): boolean => isDivision(e, "/") && e.right.value === right.value && isSame(e.left, left);
    for (const high of terms) {
      if (high.factor !== low.factor * right.value) continue;
      const more = isDivision(high.of, "%") && isAbove(high.of.left) ? high.of.right.value : undefined;
      if (!isAbove(high.of) && more === undefined) continue;
      const whole = more === undefined ? left : binary("%", left, number(right.value * more));
      return withDigitsJoined(
        terms.flatMap((t) => (t === low ? termsOfShort(whole, low.factor) : t === high ? [] : [t])),
      );
    }
  }
  return terms;
}

/** Replaces a quotient or remainder by a constant or by its dividend, where the bounds prove it. */
function shortened(e: Expr, extents: Extents): Expr {
  if (!isDivision(e)) return e;
  const left = shortened(e.left, extents);
  const [min, max] = boundsOf(left, extents);
  const divisor = e.right.value;
  if (min < 0 || max >= divisor) return binary(e.op, left, e.right);
  return e.op === "/" ? number(0) : left;
}
