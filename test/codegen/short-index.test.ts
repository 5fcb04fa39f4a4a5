/** @file Shortened indices: their text, and the same value at every point. */

import { describe, expect, it } from "vitest";
import { boundsOf, type Extents, evaluateIndex } from "../../abstraction/affine.ts";
import { axis, binary, type Expr, number, printExpr } from "../../abstraction/expression.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { distance, divisorOf, shortIndex } from "../../codegen/short-index.ts";
import fc from "../support/property.ts";

const EXTENTS: Extents = { lane: 32, warp: 4, i: 4, part: 4, m: 3136, thread: 128, step: 9, one: 1 };
const short = (text: string): string => printExpr(shortIndex(parseExpr(text), EXTENTS), "index");

describe("an index", () => {
  it.each([
    ["(64*warp + 16*i + lane%16) % 8", "lane%8"],
    ["(16*part + 8*(lane/16)) / 8", "2*part+lane/16"],
    ["(16*part + 8*(lane/16)) % 8", "0"],
    ["8*(lane/8%2) + lane%8", "lane%16"],
    ["(64*warp + 16*i + lane%16)/4%2", "lane/4%2"],
    ["lane/8%2 + 2*(lane/16)", "lane/8"],
    ["lane/4%2 + 2*(lane/8%2) + 4*(lane/16)", "lane/4"],
    ["((m/56)*56 + m%56)*64 + 3", "64*m+3"],
    ["(m/56)/56", "0"],
    ["(m/7)/8", "m/56"],
    ["(thread + 128) / 8", "thread/8+16"],
    ["(thread + 3*128) % 8 * 8", "8*(thread%8)"],
    ["(2*warp + lane%2) / 4", "warp/2"],
    ["(2*warp + lane%2) % 4", "2*(warp%2)+lane%2"],
    ["(step + 2) % 3", "(step+2)%3"],
    ["(step + 5) % 3", "(step+2)%3"],
    ["step - 1 - (2*step - step)", "-1"],
    ["(2*part + lane/16) ^ (lane%8)", "2*part+lane/16^lane%8"],
    ["3*one + lane", "lane"],
    ["(step - 1) / 4", "(step+3)/4-1"],
    ["(m + 64)/56 * 56 + (m + 64) % 56", "m+64"],
    ["(m + 112)/3136*3136 + (m + 112)/56%56*56 + (m + 112)%56", "m+112"],
    ["(8*warp + lane/16 + 2) ^ (lane % 8)", "8*warp+(lane/16+2^lane%8)"],
    ["(8*warp) ^ (lane % 8)", "8*warp+lane%8"],
  ])("%s is %s", (long, wanted) => {
    expect(short(long)).toBe(wanted);
  });

  /** Sums, products with constants, quotients and remainders of three small axes. */
  const anyIndex: fc.Arbitrary<Expr> = fc.letrec<{ e: Expr }>((tie) => ({
    e: fc.oneof(
      { maxDepth: 5, depthSize: "medium" },
      fc.integer({ min: -9, max: 40 }).map(number),
      fc.constantFrom("a", "b", "c").map(axis),
      fc.tuple(fc.constantFrom("+" as const, "-" as const), tie("e"), tie("e")).map(([op, l, r]) => binary(op, l, r)),
      fc.tuple(fc.integer({ min: -3, max: 16 }), tie("e")).map(([n, e]) => binary("*", number(n), e)),
      fc
        .tuple(fc.constantFrom("/" as const, "%" as const), tie("e"), fc.constantFrom(2, 3, 4, 6, 8, 16))
        .map(([op, e, n]) => binary(op, e, number(n))),
      fc.tuple(tie("e"), tie("e")).map(([l, r]) => binary("^", binary("%", l, number(8)), binary("%", r, number(8)))),
    ),
  })).e;
  const within: Extents = { a: 6, b: 8, c: 5 };

  it("shortened has the same value at every point, within its bounds", () => {
    fc.assert(
      fc.property(anyIndex, fc.nat(5), fc.nat(7), fc.nat(4), (e, a, b, c) => {
        const less = shortIndex(e, within);
        const value = evaluateIndex(e, { a, b, c }) + 0;
        expect(evaluateIndex(less, { a, b, c }) + 0).toBe(value);
        const [least, most] = boundsOf(less, within);
        expect(value).toBeGreaterThanOrEqual(least);
        expect(value).toBeLessThanOrEqual(most);
        expect(printExpr(shortIndex(less, within))).toBe(printExpr(less));
      }),
      { numRuns: 3000 },
    );
  });

  it("has its certain divisor, and its certain distance from another", () => {
    const at = (text: string): Expr => parseExpr(text);
    expect(divisorOf(at("4096*warp + 8*((lane/16) ^ (lane%8))"), EXTENTS)).toBe(8);
    expect(divisorOf(at("64*m + 2*(lane%4)"), EXTENTS)).toBe(2);
    expect(divisorOf(at("m - m"), EXTENTS)).toBe(0);
    expect(distance(at("8*(m/8) + (8*i)%8"), at("8*(m/8) + (8*i+1)%8"), EXTENTS)).toBe(1);
    expect(distance(at("(2*lane)%32"), at("(2*lane+1)%32"), EXTENTS)).toBe(1);
    expect(distance(at("lane%7"), at("(lane+1)%7"), EXTENTS)).toBeUndefined();
  });
});
