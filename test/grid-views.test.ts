/**
 * @file Tiles of convolutions that a copy engine fetches by itself: boxes and walks of pixels, of any rank, step and dilation. The interpreter
 * compares each element of a view with the equation; the emulated engine walks by rules of its own.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { NestFault } from "../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS } from "../abstraction/blocks/run.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf, outputOf } from "../abstraction/computation.ts";
import { number } from "../abstraction/expression.ts";
import { type Inputs, interpret } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import { type Copy, type LoopNest, printNest, type Statement } from "../abstraction/loop-nest.ts";
import { printMatching } from "../abstraction/mapping.ts";
import { randomInteger, seededRandom } from "../abstraction/random.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { gridProblem } from "../mapper/schedule/grid.ts";
import { type GridContext, gridContext, gridLimits } from "../mapper/schedule/grid-context.ts";
import { viewForm } from "../mapper/schedule/views.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { findProgram, runChild } from "../runtime/child.ts";
import { ADVERSE_ORDERS as EMULATED_ORDERS, runEmulated } from "../runtime/emulated-kernel.ts";
import { toMemory } from "../runtime/verify.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { inFull } from "./support/slow.ts";

const LIMITS = gridLimits(nvidiaTarget("h100"));
const [wgmma] = intrinsicsNamed("wgmma.m64n16k16.f32.f16");

const LAST = {
  conv1d: { in: "NLC", w: "KRC", y: "NPK" },
  conv2d: { in: "NHWC", w: "KRSC", y: "NPQK" },
  conv3d: { in: "NDHWC", w: "KTRSC", y: "NOPQK" },
} as const;

function convolution(name: keyof typeof LAST, parameters: Record<string, number>, last = true): Computation {
  const output = { conv1d: "n,k,p", conv2d: "n,k,p,q", conv3d: "n,k,o,p,q" }[name];
  return instantiate(operatorNamed(name), {
    ...{ parameters, types: parseDataTypes("f16"), epilogue: `y[${output}] = f16(out[${output}])` },
    ...(last && { layouts: LAST[name] }),
  });
}

/** Mappings as they print, and their contexts. */
function contextsOf(computation: Computation): ReadonlyMap<string, GridContext> {
  if (!wgmma) throw new Error("no row");
  return new Map(
    mappings(computation, wgmma).valid.flatMap((mapping) => {
      const context = gridContext(mapping, LIMITS);
      return typeof context === "string"
        ? []
        : [[printMatching(mapping.matching).replace(/ {2,}/g, "; "), context] as const];
    }),
  );
}

const SCHEDULE: GridSchedule = {
  ...{ tile: { m: 64, n: 16, k: 32 }, warps: { m: 1, n: 1 }, stage: 3, swizzle: "spans", transfer: "engine" },
  ...{ order: 1, fragments: "across", store: "direct" },
};

function inputsFor(computation: Computation): Inputs {
  const random = seededRandom(3);
  return Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () => randomInteger(random, -3, 3)),
    ]),
  );
}

/** Sizes with borders, tails along every axis, and tiles that cross the ends of rows and images. */
const CASES = [
  ["conv2d", { n: 3, c: 40, k: 24, h: 5, w: 7 }, "m <- n,p,q; n <- k; k <- c"],
  ["conv2d", { n: 1, c: 32, k: 20, h: 9, w: 11, stride: 2 }, "m <- p,q; n <- k; k <- c"],
  ["conv2d", { n: 2, c: 32, k: 16, h: 9, w: 9, dilation: 2, pad: 2 }, "m <- k; n <- n,p,q; k <- c"],
  ["conv2d", { n: 1, c: 16, k: 16, h: 12, w: 10, r: 5, s: 3, pad: 1, stride: 2 }, "m <- q; n <- k; k <- c"],
  ["conv2d", { n: 2, c: 16, k: 16, h: 9, w: 9, r: 1, s: 1, pad: 0, stride: 2 }, "m <- k; n <- p,q; k <- c"],
  ["conv1d", { n: 3, c: 32, k: 16, l: 30, r: 5, pad: 2, stride: 3 }, "m <- n,p; n <- k; k <- c"],
  ["conv3d", { n: 1, c: 16, k: 16, d: 4, h: 5, w: 5, t: 3, r: 3, s: 3 }, "m <- o,p,q; n <- k; k <- c"],
] as const;

const contextNamed = (computation: Computation, mapping: string): GridContext => {
  const found = contextsOf(computation).get(mapping);
  if (!found) throw new Error(`no ${mapping} among ${[...contextsOf(computation).keys()].join("; ")}`);
  return found;
};

describe("an engine that fetches the tiles of a convolution", () => {
  it.each(CASES)("brings what the equation asks for: %s %o, %s", (name, parameters, mapping) => {
    const computation = convolution(name, parameters);
    const context = contextNamed(computation, mapping);
    expect(gridProblem(context, SCHEDULE)).toBeUndefined();
    const nest = lowerGrid(context, SCHEDULE);
    const inputs = inputsFor(computation);
    const expected = interpret(computation, inputs);
    for (const order of ADVERSE_ORDERS.slice(0, inFull(6, 2)))
      expect([...interpretNest(nest, computation, inputs, 1, order)]).toEqual([...expected]);
  });

  it("is right on the emulated device", async () => {
    const jobs = CASES.map(([name, parameters, mapping], i) => {
      const computation = convolution(name, parameters);
      const context = contextNamed(computation, mapping);
      const kernel = generateCuda(computation, context.intrinsic, lowerGrid(context, SCHEDULE), { lines: [] });
      const inputs = inputsFor(computation);
      const order = EMULATED_ORDERS[i % EMULATED_ORDERS.length];
      const memory = inputsOf(computation).map((t) => [t.name, toMemory(t, inputs[t.name] ?? [], () => 0)] as const);
      const expected = toMemory(outputOf(computation), interpret(computation, inputs), () => 0);
      return { expected, job: { kernel, inputs: Object.fromEntries(memory), ...(order && { order }) } };
    });
    const runs = await runEmulated(jobs.map(({ job }) => job));
    for (const [i, run] of runs.entries())
      expect(run.status === "ok" ? [...run.output] : run.log, CASES[i]?.join(" ")).toEqual([
        ...(jobs[i]?.expected ?? []),
      ]);
  }, 120_000);
});

const STRIDED = convolution("conv2d", { n: 1, c: 32, k: 20, h: 9, w: 11, stride: 2 });

describe("a walk of pixels", () => {
  const context = contextNamed(STRIDED, "m <- p,q; n <- k; k <- c");
  const nest = lowerGrid(context, SCHEDULE);
  const inputs = inputsFor(STRIDED);

  it("reads as a program", () => {
    const sends = printNest(nest)
      .split("\n")
      .filter((l) => l.includes("engine"));
    expect(sends.slice(-2).map((l) => l.trim())).toMatchInlineSnapshot(`
      [
        "copy m_in 64, k_in 32, engine, by block, as 64 pixels of w -1..9 by 2, h -1..7 by 2, offset (step + 1)%3, (step + 1)/3   a_ring[(step+1)%3,m_in,k_in] = select(64*m_tile+m_in < 30, in[n_block,k_in,(64*m_tile+m_in)/6*2+(step+1)/3-1,(64*m_tile+m_in)%6*2+(step+1)%3-1], 0)",
        "copy n_in 16, k_in 32, engine, by block, as a box of c 32, s 1, r 1, k 16   b_ring[(step+1)%3,n_in,k_in] = select(16*n_tile+n_in < 20, w[16*n_tile+n_in,k_in,(step+1)/3,(step+1)%3], 0)",
      ]
    `);
  });

  /** The walks of a nest changed. */
  const changed = (change: (view: NonNullable<Copy["view"]>) => NonNullable<Copy["view"]>): LoopNest => {
    const inside = (all: readonly Statement[]): Statement[] =>
      all.map((s) => {
        if (s.kind === "loop") return { ...s, body: inside(s.body) };
        if (s.kind !== "send") return s;
        return { ...s, copies: s.copies.map((c) => (c.view ? { ...c, view: change(c.view) } : c)) };
      });
    return { ...nest, body: inside(nest.body) };
  };
  const faultOf = (wrong: LoopNest): string => {
    try {
      interpretNest(wrong, STRIDED, inputs, 1, ADVERSE_ORDERS[0]);
      return "none";
    } catch (error) {
      if (!(error instanceof NestFault)) throw error;
      return error.message.split("\n")[0] ?? "";
    }
  };

  it("is told apart from one that begins, steps or is offset otherwise", () => {
    const pixels = (change: (rows: Extract<NonNullable<Copy["view"]>["rows"], { kind: "pixels" }>) => object): string =>
      faultOf(
        changed((view) =>
          view.rows.kind === "pixels" ? { ...view, rows: { ...view.rows, ...change(view.rows) } } : view,
        ),
      );
    expect(pixels(() => ({}))).toBe("none");
    const brings = /^the engine brings .* where .* is asked for$/;
    expect(pixels(({ offsets }) => ({ offsets: offsets.toReversed() }))).toMatch(brings);
    expect(pixels(({ walks }) => ({ walks: walks.map((w) => ({ ...w, count: w.count - 1 })) }))).toMatch(brings);
    expect(pixels(({ walks }) => ({ walks: walks.map((w) => ({ ...w, step: 1 })) }))).toMatch(brings);
    expect(faultOf(changed((view) => ({ ...view, at: view.at.map(() => number(0)) })))).toMatch(brings);
  });
});

describe("what an engine cannot be told of", () => {
  const reasonOf = (computation: Computation, mapping: string): string => {
    const context = contextNamed(computation, mapping);
    const reasons = context.inputs.map((i) => viewForm(context, i)).filter((f) => typeof f === "string");
    return reasons.join("; ");
  };
  it("is refused with a sentence", () => {
    expect(reasonOf(STRIDED, "m <- q; n <- k; k <- c,r,s")).toMatchInlineSnapshot(
      `"columns of in are not one loop; columns of w are not one loop"`,
    );
    expect(
      reasonOf(convolution("conv2d", { n: 2, c: 16, k: 16, h: 6, w: 6 }), "m <- n,q; n <- k; k <- c"),
    ).toMatchInlineSnapshot(`"rows do not walk along h in the order it lies in"`);
    expect(
      reasonOf(convolution("conv2d", { n: 1, c: 12, k: 16, h: 6, w: 6 }), "m <- q; n <- k; k <- c"),
    ).toMatchInlineSnapshot(
      `"in has 24 bytes from one w to the next, no multiple of 16; w has 24 bytes from one s to the next, no multiple of 16"`,
    );
    expect(
      reasonOf(convolution("conv2d", { n: 1, c: 16, k: 16, h: 30, w: 30, stride: 9 }), "m <- p,q; n <- k; k <- c"),
    ).toMatchInlineSnapshot(`"an engine does not walk along w in steps of 9"`);
    expect(
      reasonOf(convolution("conv2d", { n: 1, c: 16, k: 16, h: 6, w: 6 }, false), "m <- k; n <- p,q; k <- c"),
    ).toMatchInlineSnapshot(
      `"w has 6 bytes from one r to the next, no multiple of 16; in has 12 bytes from one h to the next, no multiple of 16"`,
    );
  });
});

const nvcc = findProgram("nvcc");
describe(`nvcc${nvcc === undefined ? " (skipped: no nvcc on the PATH)" : ""}`, () => {
  it.skipIf(nvcc === undefined)(
    "takes walks of one, two and three dimensions without a warning or a byte of stack",
    async () => {
      const folder = mkdtempSync(join(tmpdir(), "automap-views-"));
      try {
        const files = CASES.filter((_, i) => i === 0 || i >= 5).map(([name, parameters, mapping]) => {
          const context = contextNamed(convolution(name, parameters), mapping);
          const file = join(folder, `${name}.cu`);
          const nest = lowerGrid(context, SCHEDULE);
          writeFileSync(file, generateCuda(context.mapping.computation, context.intrinsic, nest, { lines: [] }).source);
          return file;
        });
        for (const file of files) {
          const flags = ["-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-Werror"];
          const run = await runChild([nvcc ?? "nvcc", ...flags, "all-warnings", "-c", file, "-o", `${file}.o`], {
            timeLimitMs: 120_000,
          });
          const said = `${run.stdout}${run.stderr}`;
          expect([run.status, ...(said.match(/.*(?:error|warning|C75\d\d).*/g) ?? [])]).toEqual(["ok"]);
          expect(said).toContain("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads");
        }
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
    240_000,
  );
});
