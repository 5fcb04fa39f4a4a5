/** @file The notation prints as it is written and reads back as it prints. Mistakes, marked at their positions, stand in test/golden/computations/unread.txt. */

import { describe, expect, it } from "vitest";
import { UsageError } from "../../abstraction/error.ts";
import { printEquation, printExpr } from "../../abstraction/expression.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";
import { anyEquation, anyExpr } from "../support/arbitrary.ts";
import { explanationOf } from "../support/message.ts";
import fc from "../support/property.ts";

describe("an equation", () => {
  it.each([
    "out[n,k,p,q] += f32(in[n,c,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * f32(w[k,c,r,s])",
    "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
    "y[i] = y[i-1] + x[i]",
    "out[n,k,h,w] += f32(in[n,c,(h-r+1)/2,w]) * f32(v[c,k,r]) where (h-r+1)%2 == 0",
    "total[] += square(x[i] - mean[])",
    "y[c] max= x[c,i]",
    "y[c] min= abs(x[c,i])",
    "c[i] sat+= s16(a[2*i]) * s16(b[2*i]) + s16(a[2*i+1]) * s16(b[2*i+1])",
    "q[i] = sat_u8(round(x[i] * scale[]) + 128)",
    "y[i] = select(i < 3 and i != 1 or i >= 8, max(x[i], 0), -x[i])",
    "y[i] = -(a[i] + b[i]) * -3 - -c[i]",
    "y[i] = a[i] - (b[i] - c[i]) / (d[i] % e[i])",
    "y[i] = x[-i+7,i/4%2,i%(2*4),-(-i)]",
    "y[i] = x[i] * 0.5 + 1e-7",
    "y[i] += x[j] where i < j and (j < 4 or j > 6)",
  ])("prints as written: %s", (text) => {
    expect(printEquation(parseEquation(text))).toBe(text);
  });

  it("reads without regard to spaces", () => {
    const text = " c [ m , n ]+=s32( a[m,k] )*\ts32(b[k,n])where m<n ";
    expect(printEquation(parseEquation(text))).toBe("c[m,n] += s32(a[m,k]) * s32(b[k,n]) where m < n");
  });

  it("groups operators of one strength to the left", () => {
    expect(parseExpr("a - b - c")).toEqual(parseExpr("(a - b) - c"));
    expect(parseExpr("a / b * c")).toEqual(parseExpr("(a / b) * c"));
    expect(parseExpr("a or b and c")).toEqual(parseExpr("a or (b and c)"));
    expect(parseExpr("-a * b")).toEqual(parseExpr("(-a) * b"));
  });

  it("reads back what it prints, for random equations", () => {
    fc.assert(
      fc.property(anyEquation, (equation) => void expect(parseEquation(printEquation(equation))).toEqual(equation)),
      {
        numRuns: 500,
      },
    );
  });
});

describe("an expression", () => {
  it.each(["value", "index", "formula"] as const)("reads back as it prints in the style of a %s", (style) => {
    fc.assert(
      fc.property(anyExpr, (e) => void expect(parseExpr(printExpr(e, style))).toEqual(e)),
      { numRuns: 500 },
    );
  });

  it("prints a storage formula with its sums spaced and its products tight", () => {
    const text = "64*(k/4) + 4*n + k%4";
    expect(printExpr(parseExpr(text), "formula")).toBe(text);
  });
});

/** What the user reads when a text is not an equation. */
const complaint = (text: string): string => explanationOf(() => parseEquation(text));

describe("a malformed equation is refused with the place marked", () => {
  it("when it is empty", () => {
    expect(complaint("")).toMatchInlineSnapshot(`
      "equation: must start with the tensor it assigns to, as in "c[m,n] += ...", got the end
        
        ^"
    `);
  });

  it("when it has several lines, by showing the line", () => {
    expect(complaint("y[i] =\n  sqaure(\n    x[i])")).toMatchInlineSnapshot(`
      "equation: unknown function "sqaure"
          sqaure(
          ^^^^^^
        did you mean "square"?"
    `);
  });

  it("when it is too long or too deep to have been written by anybody", () => {
    expect(complaint(`y[i] = ${"(".repeat(1000)}`).split("\n", 1)).toMatchInlineSnapshot(`
      [
        "equation: nests deeper than 100 levels",
      ]
    `);
    expect(complaint(`y[i] = ${"-".repeat(1000)}1`).split("\n", 1)).toMatchInlineSnapshot(`
      [
        "equation: nests deeper than 100 levels",
      ]
    `);
    expect(complaint(`y[i] = 1${" + 1".repeat(2000)}`)).toMatchInlineSnapshot(
      `"equation: longer than 4000 characters"`,
    );
    expect(complaint(`y[i] = 1${"+1".repeat(1000)}`).split("\n", 1)).toMatchInlineSnapshot(`
      [
        "equation: has more than 1000 levels of operations",
      ]
    `);
  });
});

describe("any text", () => {
  const word = fc.constantFrom(
    "y",
    "[",
    "]",
    "(",
    ")",
    ",",
    "i",
    "=",
    "+=",
    "max=",
    "sat+=",
    "where",
    "and",
    "or",
    "select",
    "s8",
    "sat_u8",
    "max",
    "<",
    "==",
    "+",
    "-",
    "*",
    "/",
    "%",
    "1",
    "0.5",
    "1e9",
    " ",
    "\n",
    "x[i]",
    "\u00e9",
    ".",
  );
  const text = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.array(word, { maxLength: 12 }).map((words) => words.join("")),
  );

  it("is read, or refused with a position inside it", () => {
    const check = (given: string): void => {
      try {
        expect(parseEquation(printEquation(parseEquation(given)))).toEqual(parseEquation(given));
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
        expect(error.source).toBe(given);
        expect(error.span?.start).toBeGreaterThanOrEqual(0);
        expect(error.span?.start).toBeLessThan(error.span?.end ?? 0);
        // One past the end marks what is missing there.
        expect(error.span?.end).toBeLessThanOrEqual(given.length + 1);
        expect(error.explain()).toContain(error.message);
      }
    };
    fc.assert(fc.property(text, check), { numRuns: 1000 });
    fc.assert(
      fc.property(text, (value) => check(`y[i] = ${value}`)),
      { numRuns: 1000 },
    );
  });

  it("that is long but flat is read", () => {
    const long = `y[i] = 1${" + 1".repeat(990)}`;
    expect(printEquation(parseEquation(long))).toBe(long);
  });
});
