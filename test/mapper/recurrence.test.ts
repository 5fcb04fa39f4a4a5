/** @file Recurrences as text: parsed, printed, and refused with the position of the mistake. */

import { describe, expect, it } from "vitest";
import { parseRecurrence, printRecurrence } from "../../abstraction/recurrence.ts";
import { derive } from "../../mapper/space-time/derive.ts";
import { flowsOf } from "../../mapper/space-time/flow.ts";
import { explanationOf } from "../support/message.ts";
import { convolution1d, convolution2d, product } from "../support/space-time.ts";

const CONVOLUTION = `recurrence conv1d
loops c 16, q 5
# x is passed on to the point one result earlier and one tap later
X[c,q] = select(q == 0 or c == 15, x[c+q], X[c+1,q-1])
W[c,q] = select(c == 0, w[q], W[c-1,q])
Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]
out[c] = Z[c,q] where q == 4`;

/** The explanation of a refused text. */
const refused = (source: string): string => explanationOf(() => parseRecurrence(source));

describe("a recurrence", () => {
  it("reads its variables, and as outputs the tensors that nothing reads back", () => {
    const r = parseRecurrence(CONVOLUTION);
    expect(r.loops).toEqual([
      { name: "c", extent: 16 },
      { name: "q", extent: 5 },
    ]);
    expect(r.variables).toEqual({ X: "f32", W: "f32", Z: "f32" });
    expect(Object.values(r.tensors).map((t) => `${t.name} ${t.dims.map((d) => d.extent).join("x")}`)).toEqual([
      "out 16",
      "x 20",
      "w 5",
    ]);
    expect(r.results).toHaveLength(1);
  });

  it("prints text that reads back", () => {
    const printed = printRecurrence(parseRecurrence(CONVOLUTION));
    expect(printed.split("\n").slice(0, 4)).toEqual([
      "recurrence conv1d",
      "loops c 16, q 5",
      "tensors out f32[16], x f32[20], w f32[5]",
      "variables X f32, W f32, Z f32",
    ]);
    expect(parseRecurrence(printed)).toEqual(parseRecurrence(CONVOLUTION));
    expect(printRecurrence(parseRecurrence(printed))).toBe(printed);
  });

  it("reads back when it is derived from an equation", () => {
    for (const computation of [convolution1d(16, 5, 2), convolution2d(6, 3, 3), product(3, 4, 5)]) {
      const text = printRecurrence(
        derive(
          computation,
          computation.axes.map((a) => a.name),
        ),
      );
      expect(printRecurrence(parseRecurrence(text))).toBe(text);
    }
  });

  it("keeps written types and shapes, and infers the others", () => {
    const r = parseRecurrence(`loops i 4
      tensors x u8[9]
      S[i] = select(i == 0, 0, S[i-1]) + s32(x[i])
      y[i] = S[i]`);
    expect([r.tensors.x?.dims[0]?.extent, r.variables.S, r.tensors.y?.dtype]).toEqual([9, "s32", "s32"]);
  });
});

describe("the meaning of a recurrence", () => {
  it("is a sum over all points when its chains visit each once", () => {
    const { flows, outcomes } = flowsOf(parseRecurrence(CONVOLUTION));
    expect(outcomes.map((o) => o.kind)).toEqual(["sum"]);
    expect(flows.map((f) => `${f.name} ${f.kind}`)).toEqual(["X reuse", "W reuse"]);
  });

  it("is no such sum when a chain skips a point, starts from a value, or emits each prefix", () => {
    const kinds = (text: string): string[] => flowsOf(parseRecurrence(text)).outcomes.map((o) => o.kind);
    expect(kinds(CONVOLUTION.replace("where q == 4", "where q == 3"))).toEqual(["fixed"]);
    expect(kinds(CONVOLUTION.replace("select(q == 0, 0, Z", "select(q == 0, 7, Z"))).toEqual(["fixed"]);
    expect(kinds("loops i 8\nY[i] = select(i == 0, 0, Y[i-1]) + x[i]\ny[i] = Y[i]")).toEqual(["fixed"]);
  });

  it("has no reuse when the loads along a chain differ", () => {
    const { flows } = flowsOf(parseRecurrence(CONVOLUTION.replace("x[c+q], X[c+1,q-1]", "x[c+2*q], X[c+1,q-1]")));
    expect(flows.find((f) => f.name === "X")?.kind).toBe("fixed");
  });
});

describe("a recurrence is refused", () => {
  it.each([
    [
      "a dependence that is not uniform",
      CONVOLUTION.replace("Z[c,q-1]", "Z[c,2*q]"),
      "the dependence on Z[c,2*q] is not uniform",
    ],
    ["loops out of order", CONVOLUTION.replace("Z[c,q-1]", "Z[q-1,c]"), "the dependence on Z[q-1,c] is not uniform"],
    ["an unknown loop", CONVOLUTION.replace("w[q]", "w[r]"), 'no loop "r"'],
    [
      "a target that leaves out a loop",
      CONVOLUTION.replace("W[c,q] =", "W[c] ="),
      "W[c] must name every loop in order: W[c,q]",
    ],
    [
      "a variable read before it is defined",
      CONVOLUTION.replace("Z[c,q-1]", "Z[c,q]"),
      "Z[c,q] is read before it is defined",
    ],
    ["a variable defined twice", `${CONVOLUTION}\nZ[c,q] = 0`, "Z is defined twice"],
    [
      "a condition on a definition",
      CONVOLUTION.replace("W[c-1,q])", "W[c-1,q]) where q > 0"),
      "W is defined at every point",
    ],
    [
      "a result of a tensor",
      CONVOLUTION.replace("out[c] = Z[c,q]", "out[c] = Z[c,q] + x[c]"),
      "a result reads variables, and x is none",
    ],
    ["no result", "loops c 4\nZ[c] = select(c == 0, 0, Z[c-1])", "nothing leaves the array"],
    ["no loops", "Z[c] = 0", "no loops"],
    ["a malformed loop", "loops c sixteen\ny[c] = 1", 'a loop is a name and an extent, got "c sixteen"'],
    ["a loop of no steps", "loops c 0\ny[c] = 1", "the extent of loop c must be a positive integer, got 0"],
    ["an unknown type", "loops c 2\ntensors x f33\nX[c] = x[c]\ny[c] = X[c]", 'unknown data type "f33" of x'],
    [
      "types that disagree",
      "loops c 2\ntensors x s32\nX[c] = x[c] + w[c]\ny[c] = X[c]",
      "operands have types s32 and f32",
    ],
    ["a declaration of nothing", "loops c 2\ntensors z f32\nX[c] = x[c]\ny[c] = X[c]", 'no tensor or variable "z"'],
  ])("for %s", (_, source, message) => {
    expect(refused(source)).toContain(message);
  });

  it("with the position marked in its line", () => {
    expect(refused(CONVOLUTION.replace("w[q]", "w[r]"))).toBe(
      [
        'line 5: no loop "r"',
        "  W[c,q] = select(c == 0, w[r], W[c-1,q])",
        "                            ^",
        "  the loops are c, q",
      ].join("\n"),
    );
  });
});
