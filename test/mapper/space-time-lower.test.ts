/** @file Space-time designs lowered to lane vectors: the nests as they print, and equal to the equation. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { axis, binary, number, substituteAxes } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { parseRecurrence, type Recurrence, type SpaceTime } from "../../abstraction/recurrence.ts";
import { arrayPass } from "../../mapper/space-time/derive.ts";
import { designOf } from "../../mapper/space-time/design.ts";
import { enumerateDesigns } from "../../mapper/space-time/enumerate.ts";
import { type LowerOptions, lowerComputation, lowerDesign } from "../../mapper/space-time/lower.ts";
import { polyphaseForm, splitSpace } from "../../mapper/space-time/polyphase.ts";
import { convolution1d, convolution2d, FORMS, integerInputs } from "../support/space-time.ts";

/** Runs a nest on small integers held as floats: sums are exact, and what nobody may read is NaN. */
function expectEqual(nest: LoopNest, computation: Computation, label: string): void {
  const inputs = integerInputs(computation);
  const wanted = [...interpret(computation, inputs)];
  expect([...interpretNest(nest, computation, inputs)], `${label}\n${printNest(nest)}`).toEqual(wanted);
}

function expectAllForms(
  recurrence: Recurrence,
  spaceTime: SpaceTime,
  computation: Computation,
  label: string,
  more: LowerOptions = {},
): void {
  for (const form of FORMS)
    expectEqual(
      lowerDesign(recurrence, spaceTime, { ...form, ...more }),
      computation,
      `${label} ${JSON.stringify(form)}`,
    );
}

/** What a host that updates lanes in place would run: each statement lane by lane. */
function oneLaneAtATime(nest: LoopNest, order: "ascending" | "descending"): LoopNest {
  const change = (s: Statement): readonly Statement[] => {
    if (s.kind !== "loop") return [s];
    if (s.mode !== "lanes") return [{ ...s, body: s.body.flatMap(change) }];
    const at = order === "ascending" ? axis("i") : binary("-", number(s.extent - 1), axis("i"));
    return s.body.map((inner) => {
      if (inner.kind !== "scalar") throw new Error("lanes run scalar statements");
      const equation = substituteAxes(inner.equation, new Map([[s.axis, at]]));
      return loop("i", s.extent, [{ kind: "scalar", equation }]);
    });
  };
  return { ...nest, body: nest.body.flatMap(change) };
}

const design = (p: readonly number[], s: readonly number[]): SpaceTime => ({ allocation: [p], schedule: [s] });

/** Table 2 of the paper: recurrences as it writes them, with the transforms of T2SP's tests; stride S besides. */
const X_BACK = "X[c,q] = select(q == 0 or c == 15, x[c+q], X[c+1,q-1])";
const X_FORTH = "X[c,q] = select(c == 0 or q == 4, x[c+q], X[c-1,q+1])";
const W_FORTH = "W[c,q] = select(c == 0, w[q], W[c-1,q])";
const Z_UP = "Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]";
const Z_DOWN = "Z[c,q] = select(q == 4, 0, Z[c,q+1]) + X[c,q] * W[c,q]";
const PLAIN_X = "X[c,q] = x[c+q]";
const PLAIN_W = "W[c,q] = w[q]";
const END = "out[c] = Z[c,q] where q == 4";
const BEGIN = "out[c] = Z[c,q] where q == 0";

const TWELVE: readonly { name: string; stride: number; p: number[]; s: number[]; equations: readonly string[] }[] = [
  { name: "SBM", stride: 1, p: [1, 1], s: [0, 1], equations: [X_BACK, PLAIN_W, Z_UP, END] },
  { name: "BSM", stride: 1, p: [0, 1], s: [1, 1], equations: [PLAIN_X, W_FORTH, Z_UP, END] },
  { name: "FSM", stride: 1, p: [0, 1], s: [1, -1], equations: [X_FORTH, W_FORTH, Z_DOWN, BEGIN] },
  { name: "BFS", stride: 1, p: [1, 0], s: [1, 1], equations: [PLAIN_X, W_FORTH, Z_UP, END] },
  { name: "FFS", stride: 1, p: [1, 0], s: [2, 1], equations: [X_FORTH, W_FORTH, Z_UP, END] },
  { name: "FBS", stride: 1, p: [1, 0], s: [0, 1], equations: [X_BACK, PLAIN_W, Z_UP, END] },
  { name: "SBM2", stride: 2, p: [2, 1], s: [0, 1], equations: ["X[c,q] = x[2*c+q]", PLAIN_W, Z_UP, END] },
  { name: "BSM2", stride: 2, p: [0, 1], s: [2, 1], equations: ["X[c,q] = x[2*c+q]", W_FORTH, Z_UP, END] },
  {
    name: "FSM2",
    stride: 2,
    p: [0, 1],
    s: [1, -1],
    equations: ["X[c,q] = select(c == 0 or q >= 3, x[2*c+q], X[c-1,q+2])", W_FORTH, Z_DOWN, BEGIN],
  },
  { name: "BFS2", stride: 2, p: [1, 0], s: [2, 1], equations: ["X[c,q] = x[2*c+q]", W_FORTH, Z_UP, END] },
  {
    name: "FFS2",
    stride: 2,
    p: [1, 0],
    s: [3, 1],
    equations: ["X[c,q] = select(c == 0 or q >= 3, x[2*c+q], X[c-1,q+2])", W_FORTH, Z_UP, END],
  },
  {
    name: "FBS2",
    stride: 2,
    p: [1, 0],
    s: [0, 1],
    equations: ["X[c,q] = select(q < 2 or c == 15, x[2*c+q], X[c+1,q-2])", PLAIN_W, Z_UP, END],
  },
];

const recurrenceOf = (name: string, equations: readonly string[]): Recurrence =>
  parseRecurrence([`recurrence ${name}`, "loops c 16, q 5", ...equations].join("\n"));
const named = (wanted: string): (typeof TWELVE)[number] => {
  const found = TWELVE.find((d) => d.name === wanted);
  if (!found) throw new Error(`no design ${wanted}`);
  return found;
};

describe("the designs of the published table", () => {
  for (const { name, stride, p, s, equations } of TWELVE)
    it(`${name} equals the convolution in every form`, () => {
      expectAllForms(recurrenceOf(name, equations), design(p, s), convolution1d(16, 5, stride), name);
    });

  it("SBM keeps x, broadcasts w and moves sums up one lane a step", () => {
    const { p, s, equations } = named("SBM");
    expect(
      printNest(lowerDesign(recurrenceOf("SBM", equations), design(p, s), { coalesced: true })),
    ).toMatchInlineSnapshot(`
      "vectors X: 1 x f32[20]
      vectors W: 1 x f32[20]
      vectors Z: 1 x f32[20]
      for lanes lane in 0..20
        X[0,lane] = x[lane]
      for unrolled t in 0..5
        for lanes lane in 0..20
          W[0,lane] = w[t]
          Z[0,lane] = select(t == 0, 0, Z[0,lane-1]) + X[0,lane] * W[0,lane]
          out[lane-t] = Z[0,lane] where t == 4 and lane >= t and lane < t+16"
    `);
  });

  it("BSM in the plain form with check-time shifts its time axis, and idle PEs write nothing", () => {
    const { p, s, equations } = named("BSM");
    expect(
      printNest(lowerDesign(recurrenceOf("BSM", equations), design(p, s), { checkTime: true })),
    ).toMatchInlineSnapshot(`
      "vectors X: 1 x f32[5]
      vectors W: 2 x f32[5]
      vectors Z: 2 x f32[5]
      for unrolled t in 0..20
        for lanes lane in 0..5
          W[1,lane] = W[0,lane]
          Z[1,lane] = Z[0,lane]
          X[0,lane] = x[t] where lane <= t and lane > t-16
          W[0,lane] = select(lane == t, w[lane], W[1,lane]) where lane <= t and lane > t-16
          Z[0,lane] = select(lane == 0, 0, Z[1,lane-1]) + X[0,lane] * W[0,lane] where lane <= t and lane > t-16
          out[t-lane] = Z[0,lane] where lane == 4 and lane <= t and lane > t-16"
    `);
  });

  it("FFS rotates its registers with time", () => {
    const { p, s, equations } = named("FFS");
    expect(
      printNest(lowerDesign(recurrenceOf("FFS", equations), design(p, s), { coalesced: true })),
    ).toMatchInlineSnapshot(`
      "vectors X: 1 x f32[16]
      vectors W: 2 x f32[16]
      vectors Z: 1 x f32[16]
      for unrolled t in 0..35
        for lanes lane in 0..16
          X[0,lane] = select(lane == 0 or t-2*lane == 4, x[t-lane], X[0,lane-1])
          W[t%2,lane] = select(lane == 0, w[t-2*lane], W[t%2,lane-1])
          Z[0,lane] = select(t-2*lane == 0, 0, Z[0,lane]) + X[0,lane] * W[t%2,lane]
          out[lane] = Z[0,lane] where t-2*lane == 4"
    `);
  });
});

/** Loops (c, p, q) at a fixed output row, time t = p + KP*q: sums go on from the last row of a column to the first of the next. */
function columns(kp: number, kq: number): Recurrence {
  return parseRecurrence(`recurrence conv2d
    loops c 16, p ${kp}, q ${kq}
    X[c,p,q] = select(c == 15 or q == 0, x[p,c+q], X[c+1,p,q-1])
    W[c,p,q] = w[p,q]
    Z[c,p,q] = select(p == 0, select(q == 0, 0, Z[c,p+${kp - 1},q-1]), Z[c,p-1,q]) + X[c,p,q] * W[c,p,q]
    out[c] = Z[c,p,q] where p == ${kp - 1} and q == ${kq - 1}`);
}

describe("two projections", () => {
  for (const [kp, kq] of [
    [2, 2],
    [5, 5],
    [3, 2],
  ] as const)
    for (const [name, p] of [
      ["SBM", [1, 0, 1]],
      ["FBS", [1, 0, 0]],
    ] as const)
      it(`${name} of a ${kp}x${kq} filter equals the convolution, with its mixed radix split`, () => {
        expectAllForms(columns(kp, kq), design(p, [0, 1, kp]), convolution2d(16, kp, kq), name);
      });

  it("SBM 2x2 prints as this program", () => {
    const nest = lowerDesign(columns(2, 2), design([1, 0, 1], [0, 1, 2]), { coalesced: true });
    expect(printNest(nest)).toMatchInlineSnapshot(`
      "vectors X: 2 x f32[17]
      vectors W: 1 x f32[17]
      vectors Z: 1 x f32[17]
      for unrolled t2 in 0..2
        for lanes lane in 0..17
          X[t2,lane] = x[t2,lane]
      for unrolled t1 in 0..2
        for unrolled t2 in 0..2
          for lanes lane in 0..17
            W[0,lane] = w[t2,t1]
            Z[0,lane] = select(t2 == 0, select(t1 == 0, 0, Z[0,lane-1]), Z[0,lane]) + X[t2,lane] * W[0,lane]
            out[lane-t1] = Z[0,lane] where t2 == 1 and t1 == 1 and lane >= t1 and lane < t1+16"
    `);
  });

  it("take a reverse transform of the user, whose later lines use earlier ones", () => {
    const reverse = [
      { loop: "p", value: parseExpr("t%5") },
      { loop: "q", value: parseExpr("t/5") },
      { loop: "c", value: parseExpr("k-q") },
    ];
    expectAllForms(columns(5, 5), design([1, 0, 1], [0, 1, 5]), convolution2d(16, 5, 5), "given", { reverse });
  });
});

describe("a determinant beyond 1", () => {
  it("leaves places without a point, which write nothing", () => {
    const { p, s, equations } = named("SBM2");
    const nest = lowerDesign(recurrenceOf("SBM2", equations), design(p, s), { coalesced: true });
    expect(printNest(nest)).toContain("(lane+t)%2 == 0");
  });

  it("is removed by splitting a loop: 35 PEs of 5 steps become 18 of 5, without idle steps", () => {
    const { p, s } = named("SBM2");
    const pass = arrayPass(convolution1d(16, 5, 2));
    const form = polyphaseForm(pass, designOf(pass.problem, design(p, s)));
    expect(form?.design).toMatchObject({
      name: "SBM.polyphase",
      spaceTime: {
        allocation: [[1, 1, 0]],
        schedule: [
          [0, 0, 1],
          [0, 1, 0],
        ],
      },
      pes: 18,
      steps: 5,
    });
    expect(form?.design.utilisation).toBeCloseTo(80 / 90, 12);
  });

  it.each([
    { stride: 2, taps: 5 },
    { stride: 3, taps: 7 },
    { stride: 1, taps: 4 },
  ])("is removed from every design with idle PEs, which then equals the equation: %o", ({ stride, taps }) => {
    const convolution = convolution1d(7, taps, stride);
    const pass = arrayPass(convolution);
    const found = enumerateDesigns(pass.problem, { bound: 2, arrayRows: 1 }).designs.flatMap(
      (d) => polyphaseForm(pass, d) ?? [],
    );
    expect(found.length).toBeGreaterThan(2);
    for (const { design: split } of found)
      for (const form of FORMS) {
        if (!split.split) throw new Error("no split");
        const nest = lowerComputation(convolution, splitSpace(pass.space, split.split), split.spaceTime, form);
        expectEqual(nest, convolution, `${split.name} ${JSON.stringify([split.spaceTime, form])}`);
        expect([split.name, stepsOf(nest.body), nest.vectors?.[0]?.lanes]).toEqual([
          split.name,
          split.steps,
          split.pes,
        ]);
      }
  });
});

/** Steps of all loops of time. */
function stepsOf(body: readonly Statement[]): number {
  const loops = body.filter((s) => s.kind === "loop" && s.mode !== "lanes");
  const last = loops.at(-1);
  return last?.kind === "loop" ? last.extent * stepsOf(last.body) : 1;
}

describe("lanes", () => {
  it("updated one by one upwards give a wrong sum where values move up, and downwards the right one", () => {
    const { p, s, equations } = named("SBM");
    const computation = convolution1d(16, 5);
    const nest = lowerDesign(recurrenceOf("SBM", equations), design(p, s), { coalesced: true });
    const inputs = integerInputs(computation);
    const wanted = [...interpret(computation, inputs)];
    const inOrder = (order: "ascending" | "descending"): number[] => [
      ...interpretNest(oneLaneAtATime(nest, order), computation, inputs),
    ];
    expect([...interpretNest(nest, computation, inputs)]).toEqual(wanted);
    expect(inOrder("ascending")).not.toEqual(wanted);
    expect(inOrder("descending")).toEqual(wanted);
  });
});
