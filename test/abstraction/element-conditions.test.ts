/** @file Conditions after `where` on elements of integer inputs: what is known of them on a box. Their meaning is in test/golden/computations/elements.txt. */

import { describe, expect, it } from "vitest";
import {
  conditionOf,
  everywhere,
  type Span,
  somewhere,
  type Truth,
  usefulPoints,
} from "../../abstraction/condition.ts";
import { axis, number, printExpr } from "../../abstraction/expression.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { neededPoints } from "../../perfmodel/roof.ts";
import { stated } from "../support/subjects.ts";

describe("a condition on elements", () => {
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
