/** @file Conditions after `where` on elements of integer inputs: their meaning, what is refused, and what is known of them on a box. */

import { describe, expect, it } from "vitest";
import { defineComputation, equationText } from "../../abstraction/computation.ts";
import {
  conditionOf,
  everywhere,
  type Span,
  somewhere,
  type Truth,
  usefulPoints,
} from "../../abstraction/condition.ts";
import { axis, number, printExpr } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { neededPoints } from "../../perfmodel/roof.ts";
import { stated } from "../support/subjects.ts";

describe("a condition on elements", () => {
  it("leaves out points as the elements say", () => {
    const rows = stated("c[g,m] += a[g,m,k] where m < count[g] and k != skip[g] --g 4 --m 3 --k 2 --dtype s32");
    const a = Array.from({ length: 24 }, (_, i) => i + 1);
    const got = [...interpret(rows, { a, count: [0, 2, 9, -1], skip: [0, 1, -5, 0] })];
    // Of the second group, two rows without their second terms; of the third, all.
    expect(got).toEqual([0, 0, 0, 7, 9, 0, 27, 31, 35, 0, 0, 0]);
    expect(equationText(rows)).toContain("where m < count[g] and k != skip[g]");
  });

  it.each([
    ["c[g,m] += a[g,m,k] where m < count[g+1]", "count[g+1] lies outside count"],
    ["c[g,m] += a[g,m,k] where m < count[clamp(g-1)]", "where indices have no border"],
    ["c[g,m] += a[g,m,k] where a[g,m,k] > 0", "a holds f32; integers up to s32 can be compared there"],
    ["c[g,m] += a[g,m,k] where m < count[g]+1", "compares count[g] + 1; elements of inputs are compared as they are"],
    ["c[g,m] += a[g,m,k]; y[g,m] = c[g,m] where m < count[g]", "it reads a tensor"],
  ])("refuses %s", (equation, because) => {
    const names = { a: "f32", count: { dtype: "s32", shape: [4] } } as const;
    const tensors = Object.fromEntries(Object.entries(names).filter(([name]) => equation.includes(`${name}[`)));
    expect(() => defineComputation({ equation, extents: { g: 4, m: 3, k: 2 }, tensors })).toThrow(because);
  });

  const spans: Record<string, Span> = {
    g: { low: axis("g_block"), span: 1 },
    m: { low: number(64), span: 64 },
    all: { low: number(0), span: 4 },
  };
  const said = (truth: Truth): string | boolean => (typeof truth === "boolean" ? truth : printExpr(truth));
  it.each([
    ["m < count[g]", "65 <= count[g_block]", "128 <= count[g_block]"],
    ["count[g] >= 0", "0 <= count[g_block]", "0 <= count[g_block]"],
    ["count[g] <= m", "count[g_block] <= 127", "count[g_block] <= 64"],
    ["from[g] <= count[g]", "from[g_block] <= count[g_block]", "from[g_block] <= count[g_block]"],
    ["count[all] > 0", true, false],
  ])("is tested for a box: %s", (condition, some, every) => {
    const { where } = parseEquation(`c[g,m] += a[m] where ${condition}`);
    if (!where) throw new Error("no condition");
    const spanOf = (name: string): Span => spans[name] ?? { low: axis(name), span: 1 };
    expect(said(somewhere(conditionOf(where), spanOf))).toBe(some);
    expect(said(everywhere(conditionOf(where), spanOf))).toBe(every);
  });

  it("may hold at every point, or at none", () => {
    const rows = stated("c[g,m] += a[g,m,k] where m < count[g] and m > 0 --g 4 --m 3 --k 2 --dtype s32");
    expect(usefulPoints(rows)).toBe(4 * 2 * 2);
    expect(neededPoints(rows)).toBe(0);
  });
});
