/** @file Recurrences derived from equations: their text, and every design of them computes the equation. */

import { describe, expect, it } from "vitest";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { parseRecurrence, printRecurrence } from "../../abstraction/recurrence.ts";
import { arrayPass, derive, recurrenceOf } from "../../mapper/space-time/derive.ts";
import { enumerateDesigns } from "../../mapper/space-time/enumerate.ts";
import { computationOf, problemOfRecurrence } from "../../mapper/space-time/from-recurrence.ts";
import { lowerDesign } from "../../mapper/space-time/lower.ts";
import { refusalOf } from "../../mapper/space-time/validity.ts";
import { instantiate, OPERATORS, operatorNamed } from "../../operators/index.ts";
import { conv1d, conv2d, gemm } from "../support/arrays.ts";
import { convolution1d, FORMS, integerInputs } from "../support/space-time.ts";
import { operation, stated } from "../support/subjects.ts";

describe("derive", () => {
  it("passes operands along their reuse and forms the sum as a chain", () => {
    expect(printRecurrence(derive(conv1d()))).toMatchInlineSnapshot(`
      "recurrence equation
      loops c 16, q 5
      tensors z f32[16], x f32[20], w f32[5]
      variables X f32, W f32, Z f32
      X[c,q] = select(c == 0 or q == 4, x[c+q], X[c-1,q+1])
      W[c,q] = select(c == 0, w[q], W[c-1,q])
      Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]
      z[c] = Z[c,q] where q == 4"
    `);
    expect(printRecurrence(derive(gemm(4)))).toMatchInlineSnapshot(`
      "recurrence equation
      loops i 4, j 4, k 4
      tensors c f32[4,4], a f32[4,4], b f32[4,4]
      variables A f32, B f32, C f32
      A[i,j,k] = select(j == 0, a[i,k], A[i,j-1,k])
      B[i,j,k] = select(i == 0, b[k,j], B[i-1,j,k])
      C[i,j,k] = select(k == 0, 0, C[i,j,k-1]) + A[i,j,k] * B[i,j,k]
      c[i,j] = C[i,j,k] where k == 3"
    `);
  });

  it("continues a sum of two loops from the end of the faster one", () => {
    expect(
      printRecurrence(derive(conv2d(3, 3)))
        .split("\n")
        .slice(-2),
    ).toEqual([
      "Z[c,p,q] = select(q == 0, select(p == 0, 0, Z[c,p-1,q+2]), Z[c,p,q-1]) + X[c,p,q] * W[c,p,q]",
      "z[c] = Z[c,p,q] where q == 2 and p == 2",
    ]);
  });

  it("lets a sum along a diagonal leave where its chain meets the border, on either side", () => {
    const text = printRecurrence(derive(stated("z[i+j] += x[i] * y[j] --i 4 --j 3")));
    expect(text).toContain("Z[i,j] = select(i == 0 or j == 2, 0, Z[i-1,j+1]) + X[i,j] * Y[i,j]");
    expect(text).toContain("z[i+j] = Z[i,j] where i == 3 or j == 0");
  });

  it("leaves outer loops in sequence, tiles long loops, and drops loops of one step", () => {
    const operator = operation("conv2d n=1");
    const pass = arrayPass(operator, { lanes: 16 });
    const { computation, space, problem } = pass;
    expect(problem.loops).toEqual([
      { name: "q", extent: 16 },
      { name: "r", extent: 3 },
      { name: "s", extent: 3 },
    ]);
    expect(space.outside.map((l) => `${l.name} ${l.extent}`)).toEqual(["k 64", "p 56", "c 64", "q_tile 4"]);
    expect(space.dropped).toEqual(["n"]);
    expect(computation.equation.target.index).toHaveLength(1);
    expect(printRecurrence(recurrenceOf(pass))).toMatchInlineSnapshot(`
      "recurrence conv2d
      loops q 16, r 3, s 3
      tensors out f32[16], in f32[3,18], w f32[3,3]
      variables IN f32, W f32, OUT f32
      IN[q,r,s] = select(q == 0 or s == 2, in[r,q+s], IN[q-1,r,s+1])
      W[q,r,s] = select(q == 0, w[r,s], W[q-1,r,s])
      OUT[q,r,s] = select(s == 0, select(r == 0, 0, OUT[q,r-1,s+2]), OUT[q,r,s-1]) + IN[q,r,s] * W[q,r,s]
      out[q] = OUT[q,r,s] where s == 2 and r == 2"
    `);
  });

  it("passes values in a design's direction, and loads those it broadcasts", () => {
    const pass = arrayPass(conv1d());
    const { designs } = enumerateDesigns(pass.problem, { bound: 1, arrayRows: 1 });
    const text = (name: string): string => {
      const design = designs.find((d) => d.name === name);
      return printRecurrence(recurrenceOf(pass, design)).split("\n").slice(-4, -1).join("\n");
    };
    expect(text("SBM")).toMatchInlineSnapshot(`
      "X[c,q] = x[c+q]
      W[c,q] = w[q]
      Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]"
    `);
    expect(text("FSM")).toMatchInlineSnapshot(`
      "X[c,q] = select(c == 0 or q == 4, x[c+q], X[c-1,q+1])
      W[c,q] = select(c == 0, w[q], W[c-1,q])
      Z[c,q] = select(q == 4, 0, Z[c,q+1]) + X[c,q] * W[c,q]"
    `);
    expect(text("FBS")).toMatchInlineSnapshot(`
      "X[c,q] = select(c == 15 or q == 0, x[c+q], X[c+1,q-1])
      W[c,q] = w[q]
      Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]"
    `);
  });

  it("keeps the direction a recurrence of its own has", () => {
    const prefix = stated("y[i,j] = y[i-1,j] + x[i,j] --i 4 --j 4");
    const { problem } = arrayPass(prefix);
    expect(problem.operands.at(-1)).toMatchObject({ name: "y", reuse: [[1, 0]], order: "fixed" });
    expect(refusalOf(problem, { allocation: [[0, 1]], schedule: [[1, 0]] })).toBeUndefined();
    expect(refusalOf(problem, { allocation: [[0, 1]], schedule: [[-1, 0]] })?.rule).toBe("backwards");
    expect(printRecurrence(derive(prefix))).toContain("Y[i,j] = select(i == 0, 0, Y[i-1,j]) + X[i,j]");
  });

  it("refuses a computation without an array, with the reason", () => {
    const one = stated("y[i] = x[i] --i 4");
    expect(() => derive(one)).toThrow("an array needs two loops of more than one step, got i 4");
    expect(() => derive(conv1d(), ["c", "k"])).toThrow('no loop "k"');
    const clamped = stated("c[i] sat+= s32(a[i,k]) --i 4 --k 4 --dtype s8");
    expect(() => derive(clamped)).toThrow("sat+= clamps the whole sum once");
  });

  it("finds an array in every operator of the table but those whose elements decide", () => {
    const deciding = ["grouped-matmul", "counted-matmul"];
    for (const name of deciding)
      expect(() => arrayPass(instantiate(operatorNamed(name)), { lanes: 4 })).toThrow(
        "is chosen by comparing elements, which no array passes on",
      );
    for (const operator of OPERATORS) {
      if (deciding.includes(operator.name)) continue;
      const pass = arrayPass(instantiate(operator), { lanes: 4 });
      expect(recurrenceOf(pass).loops, operator.name).toEqual(pass.problem.loops);
    }
  });
});

describe("a recurrence that would be wrong", () => {
  it("is refused: one of the whole computation instead of one pass, or a design of other loops", () => {
    const whole = operation("conv2d n=1");
    const pass = arrayPass(whole, { lanes: 16 });
    expect(() => recurrenceOf({ ...pass, computation: whole })).toThrow(
      /^internal: the loops of conv2d are .*, those of the pass through the array q 16,r 3,s 3$/,
    );
    const [design] = enumerateDesigns(arrayPass(conv1d()).problem, { bound: 1, arrayRows: 1 }).designs;
    expect(() => recurrenceOf(pass, design)).toThrow("internal: FBS is a design of 2 loops, the array has 3");
  });
});

describe("every design lowered from its own recurrence, and from that of the equation, computes the equation", () => {
  const small = (name: string, lanes: number) => arrayPass(stated(name), { lanes }).computation;

  // The first two in every form, the others in one each. Random designs stand in drawn-lanes.deep.test.ts.
  it.each([
    ["conv1d", convolution1d(16, 5), 1, 2, 56, 4],
    ["conv1d with stride 2", convolution1d(7, 5, 2), 1, 2, 56, 4],
    ["conv2d", conv2d(3, 2, 5), 1, 1, 40, 1],
    ["GEMM on a plane", gemm(3), 2, 1, 40, 1],
    ["a star stencil", small("2d5pt", 4), 1, 1, 20, 1],
    ["a depthwise convolution", small("depthwise-conv2d", 4), 2, 1, 20, 1],
  ] as const)("%s", (_, computation, arrayRows, bound, sample, forms) => {
    const loops = computation.axes.map((a) => a.name);
    const pass = arrayPass(computation, { loops });
    const { designs } = enumerateDesigns(pass.problem, { bound, arrayRows });
    const inputs = integerInputs(computation);
    const expected = [...interpret(computation, inputs)];
    const step = Math.max(1, Math.floor(designs.length / sample));
    const derived = derive(computation, loops);
    for (const [i, design] of designs.entries())
      for (let k = i % step === 0 ? 0 : forms; k < forms; k++)
        for (const recurrence of [derived, ...(k === 0 ? [recurrenceOf(pass, design)] : [])]) {
          const nest = lowerDesign(recurrence, design.spaceTime, FORMS[(i + k) % FORMS.length]);
          expect([...interpretNest(nest, computation, inputs)], `${design.name}\n${printNest(nest)}`).toEqual(expected);
        }
  });
});

describe("a recurrence of the user's own", () => {
  it("that passes values on and sums them is recognised as its equation", () => {
    const pass = arrayPass(conv1d());
    const { computation } = pass;
    for (const design of enumerateDesigns(pass.problem, { bound: 1, arrayRows: 1 }).designs) {
      const text = printRecurrence(recurrenceOf(pass, design));
      const back = computationOf(parseRecurrence(text));
      expect(back?.equation, text).toEqual(computation.equation);
    }
  });

  it("that computes anything else keeps its dependences", () => {
    const recurrence = parseRecurrence(
      [
        "loops i 8, j 6",
        "A[i,j] = select(i == 0 or j == 0, x[i,j], max(A[i-1,j], A[i,j-1]) + x[i,j])",
        "y[i,j] = A[i,j]",
      ].join("\n"),
    );
    expect(computationOf(recurrence)).toBeUndefined();
    const problem = problemOfRecurrence(recurrence);
    expect(problem.operands).toEqual([
      {
        name: "A",
        role: "output",
        reuse: [
          [1, 0],
          [0, 1],
        ],
        order: "fixed",
      },
    ]);
    expect(refusalOf(problem, { allocation: [[1, 0]], schedule: [[1, 1]] })).toBeUndefined();
    expect(refusalOf(problem, { allocation: [[1, 0]], schedule: [[1, -1]] })?.because).toBe(
      "the dependence (0,1) of A runs backwards in time: (1,-1).(0,1) = -1",
    );
    // Wavefronts alone: (1,1), and what is steeper at larger bounds.
    const { designs } = enumerateDesigns(problem, { bound: 1, arrayRows: 1 });
    expect(new Set(designs.map((d) => d.schedule.join()))).toEqual(new Set(["1,1"]));
    expect(designs.map((d) => d.flowClass).sort()).toEqual(["m", "sm", "sm"]);
  });
});
