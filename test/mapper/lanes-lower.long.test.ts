/**
 * @file Lane kernels against the equation they come from: every dataflow, every stencil, filters 2 to 20, tails of
 * every size; random ones in drawn-lanes.deep.test.ts.
 */

import { describe, expect, it } from "vitest";
import { LANE_DATAFLOWS, type WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { windowProblem as scheduleProblem } from "../../mapper/schedule/lanes.ts";
import { designOf } from "../../mapper/space-time/design.ts";
import { lowerWarpWindow, lowerWindow } from "../../mapper/space-time/lower-window.ts";
import { tapsOf } from "../../mapper/space-time/taps.ts";
import {
  type Placed,
  placeWindow,
  WINDOW_DESIGNS,
  type WindowDesign,
  windowProblem,
} from "../../mapper/space-time/window.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { STENCILS } from "../../operators/stencil.ts";
import { smallIntegers, stated } from "../support/subjects.ts";
import { windowSchedule } from "../support/window.ts";

function make(operator: string, parameters: Readonly<Record<string, number>>, types = "f32"): Computation {
  return instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types) });
}

function agrees(computation: Computation, chosen: WindowSchedule, nest = lowerWindow(computation, chosen)): boolean {
  const inputs = smallIntegers(computation, seededRandom(1));
  const want = interpret(computation, inputs);
  const got = interpretNest(nest, computation, inputs);
  return want.length === got.length && want.every((x, i) => x === got[i]);
}

describe("lowering to lanes", () => {
  it.each(STENCILS.map((s) => [s.name, s] as const))(
    "computes %s by every dataflow",
    (name, { dimensions, radius }) => {
      const side = 2 * radius + 3;
      const shape = dimensions === 2 ? { h: side, w: 40 } : { d: Math.max(4, radius + 2), h: 5, w: 22 };
      const f32 = make(name, shape);
      const f64 = make(name, shape, "f64");
      for (const dataflow of LANE_DATAFLOWS) {
        expect(agrees(f32, windowSchedule({ dataflow, rows: 3, vectors: 2 })), dataflow).toBe(true);
        const alike = windowSchedule({ dataflow, lanes: 32, rows: 2 });
        expect(agrees(f64, alike, lowerWarpWindow(f64, alike)), dataflow).toBe(true);
      }
    },
  );

  it.each(Array.from({ length: 19 }, (_, i) => i + 2))("computes a filter of %i by every dataflow", (r) => {
    const line = stated(`conv1d-single --l 97 --r ${r}`);
    const image = make("conv2d-single", { h: r + 3, w: r + 30, r, s: r });
    for (const dataflow of LANE_DATAFLOWS) {
      expect(agrees(line, windowSchedule({ dataflow, lanes: 32, vectors: 2 })), `line ${dataflow}`).toBe(true);
      expect(agrees(image, windowSchedule({ dataflow, lanes: 32, rows: 3 })), `image ${dataflow}`).toBe(true);
    }
    expect(agrees(image, windowSchedule({ rows: 2, vectors: 2, rolled: ["s"] })), "rolled over s").toBe(true);
    expect(agrees(image, windowSchedule({ weights: "memory", rolled: ["r", "s"] })), "rolled over both").toBe(true);
  });

  it.each(Array.from({ length: 26 }, (_, i) => i + 1))("writes all of a row of %i, and nothing beyond", (w) => {
    const computation = stated(`stencil2d-box --h 6 --w ${w} --radius 1`);
    for (const dataflow of LANE_DATAFLOWS)
      for (const vectors of [1, 2])
        expect(agrees(computation, windowSchedule({ dataflow, lanes: 8, rows: 4, vectors })), dataflow).toBe(true);
  });

  it("sweeps strips of rows through the planes of a 3-D stencil", () => {
    const computation = stated("3d27pt --d 6 --h 14 --w 20");
    const nest = lowerWindow(computation, windowSchedule({ rows: 2, strip: 3 }));
    expect(printNest(nest)).toContain("for j_strip in 0..2\n  for parallel i in 0..4\n    for j_block in 0..3");
    expect(agrees(computation, windowSchedule({ rows: 2, strip: 3 }), nest)).toBe(true);
  });

  it("computes the user's equations: a written-out sum, planes with weights of their own", () => {
    const blur = stated("b[y,x] = 2*a[y,x] - a[y-1,x] + 3*a[y,x+2] --y 7 --x 45 --name blur");
    const planes = stated(
      "out[c,y,x] += in[c,y+r,x+s-1] * w[c,r,s] --c 3 --y 6 --x 35 --r 2 --s 3 --dtype f64 --name planes --shape in=3x7x35",
    );
    for (const dataflow of LANE_DATAFLOWS)
      for (const computation of [blur, planes])
        expect(agrees(computation, windowSchedule({ dataflow, rows: 2, vectors: 2 })), dataflow).toBe(true);
  });

  it("a halo one column too wide would be found", () => {
    const computation = stated("2d5pt --h 5 --w 40");
    for (const dataflow of ["SBM", "FBS-shift"] as const) {
      const chosen = windowSchedule({ dataflow, rows: 3 });
      const nest = lowerWindow(computation, chosen);
      expect(agrees(computation, chosen, nest)).toBe(true);
      const whole = dataflow === "SBM" ? / where lane >= 2$/ : / where lane < 14$/;
      const short = narrowStores(nest, dataflow === "SBM" ? 3 : 13);
      expect(printNest(nest)).toMatch(new RegExp(whole.source, "m"));
      expect(agrees(computation, chosen, short), dataflow).toBe(false);
    }
  });
});

/** The same nest with another number in the condition of its stores. */
function narrowStores(nest: LoopNest, bound: number): LoopNest {
  const change = (s: Statement): Statement => {
    if (s.kind === "loop") return { ...s, body: s.body.map(change) };
    if (s.kind !== "scalar" || s.equation.where?.kind !== "compare") return s;
    return {
      ...s,
      equation: { ...s.equation, where: { ...s.equation.where, right: { kind: "number", value: bound } } },
    };
  };
  return { ...nest, body: nest.body.map(change) };
}

describe("designs of a window", () => {
  const vectors = [-2, -1, 0, 1, 2].flatMap((a) => [-2, -1, 0, 1, 2].map((b) => [a, b] as const));
  const judged = vectors.flatMap((p) =>
    vectors.flatMap((s) =>
      (["held", "loaded"] as const).map((data): [WindowDesign, Placed] => {
        const design: WindowDesign = { spaceTime: { allocation: [p], schedule: [s] }, data };
        return [design, placeWindow(design, 16, 3)];
      }),
    ),
  );

  it("have the same name from the classifier as in records", () => {
    const names = Object.entries(WINDOW_DESIGNS).map(([name, { spaceTime }]) => [
      name,
      designOf(windowProblem(16, 3), spaceTime).name,
    ]);
    expect(names).toEqual([
      ["SBM", "SBM"],
      ["FBS-shift", "FBS"],
      ["FBS-load", "FBS"],
    ]);
  });

  it("are lowered from the transform: each that can be placed equals the equation", () => {
    const computation = stated("conv2d-single --h 5 --w 61 --r 2 --s 3 --pad 1");
    const flows = judged.flatMap(([design, placed]) => {
      if (!placed.ok) return [];
      const { allocation, schedule: time } = design.spaceTime;
      const label = `P (${String(allocation)}) s (${String(time)}) ${design.data}`;
      for (const lower of [lowerWindow, lowerWarpWindow]) {
        const chosen = windowSchedule({ rows: 2, vectors: 2 });
        expect(agrees(computation, chosen, lower(computation, chosen, design)), label).toBe(true);
      }
      return [`${designOf(windowProblem(16, 3), design.spaceTime).name} ${label}: ${placed.placement.outputs} of 16`];
    });
    expect(flows).toMatchInlineSnapshot(`
      [
        "FBM P (1,-2) s (0,-1) held: 10 of 16",
        "FBM P (1,-2) s (0,1) held: 10 of 16",
        "FBM P (1,-1) s (0,-1) held: 12 of 16",
        "FBM P (1,-1) s (0,1) held: 12 of 16",
        "FBS P (1,0) s (0,-1) held: 14 of 16",
        "FBS P (1,0) s (0,-1) loaded: 16 of 16",
        "FBS P (1,0) s (0,1) held: 14 of 16",
        "FBS P (1,0) s (0,1) loaded: 16 of 16",
        "SBM P (1,1) s (0,-1) held: 14 of 16",
        "SBM P (1,1) s (0,1) held: 14 of 16",
        "FBM P (1,2) s (0,-1) held: 12 of 16",
        "FBM P (1,2) s (0,1) held: 12 of 16",
      ]
    `);
  });

  it("are refused with a reason where lanes cannot run them", () => {
    const reasons = judged.flatMap(([, placed]) => (placed.ok ? [] : [placed.refusal.because]));
    const kinds = reasons.filter((r) => !/both run on PE|is zero|dependence|backwards/.test(r));
    expect([...new Set(kinds)].toSorted()).toMatchInlineSnapshot(`
      [
        "data that are loaded for every column serve sums that stay",
        "neighbouring outputs do not lie on neighbouring lanes",
        "w is not broadcast: a step is not one column for all lanes",
      ]
    `);
  });
});

describe("taps", () => {
  const refusalOf = (equation: string, extents: Record<string, number>, dtype: "f32" | "s8" = "f32"): string => {
    const names = [...new Set([...equation.matchAll(/\b([a-z]+)\[/g)].map((m) => m[1] ?? ""))].slice(1);
    const computation = defineComputation({
      equation,
      extents,
      tensors: Object.fromEntries(names.map((n) => [n, dtype])),
    });
    const verdict = tapsOf(computation);
    return verdict.ok ? "" : verdict.refusal.because;
  };

  it("are the neighbours of a star and their weights", () => {
    const verdict = tapsOf(stated("2d5pt --h 8 --w 8"));
    expect(verdict.ok && verdict.sum.taps.map((t) => t.shift.map((s) => s.kind === "number" && s.value))).toEqual([
      [-1, 0],
      [0, -1],
      [0, 0],
      [0, 1],
      [1, 0],
    ]);
  });

  it.each([
    ["o[i] += x[2*i+r] * k[r]", { i: 8, r: 3 }, "step: x[2*i+r] moves 2 places when i moves one"],
    ["o[i] max= x[i+r]", { i: 8, r: 3 }, "form: max= is no sum"],
    ["o[i] = x[i] * x[i-1]", { i: 8 }, "form: x[i] * x[i-1] is not a factor times an element along i"],
    ["o[j,i] += x[i+r,j] * k[r]", { i: 8, j: 8, r: 3 }, "layout: the last dimension of x does not follow i"],
    ["o[i] += x[i+r] * k[r] where i+r < 5", { i: 8, r: 3 }, "condition: it depends on i"],
    ["o[i] += x[i+r] * y[i+r]", { i: 8, r: 3 }, "form: x[i+r] * y[i+r] is not a factor times an element along i"],
  ] as const)("refuse %s", (equation, extents, because) => {
    expect(refusalOf(equation, extents)).toContain(because);
  });

  it("refuse bytes, and name the dataflow left for a wide window", () => {
    expect(refusalOf("o[i] += x[i+r] * k[r]", { i: 8, r: 3 }, "s8")).toContain(
      "type: lanes compute f32, f64, s32, s16, f16",
    );
    const verdict = tapsOf(stated("conv1d-single --l 64 --r 17"));
    expect(verdict.ok && scheduleProblem(verdict.sum, windowSchedule({ dataflow: "SBM" }))?.because).toBe(
      "schedule: a window of 17 columns leaves none of 16 lanes whole; load the data instead (FBS-load)",
    );
  });
});
