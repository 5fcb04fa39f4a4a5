/**
 * Computations under a divisibility condition, rewritten in phases: the same elements, mapped, lowered and printed for
 * every machine.
 */
import { describe, expect, it } from "vitest";
import {
  type Computation,
  defineComputation,
  equationText,
  extentsOf,
  outputOf,
} from "../../abstraction/computation.ts";
import { usefulPoints } from "../../abstraction/condition.ts";
import { writesAll } from "../../abstraction/elements.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerMapping } from "../../mapper/lower/plain.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { lowerThreads } from "../../mapper/lower/threads.ts";
import { loopForms, rewrittenAs } from "../../mapper/match/phases.ts";
import { gridLimits } from "../../mapper/schedule/grid-context.ts";
import { randomSchedule, unschedulable } from "../../mapper/schedule/mapped.ts";
import { drawSchedule } from "../../mapper/schedule/schedules.ts";
import { threadContext } from "../../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../../mapper/schedule/thread/schedule.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { runEmulated } from "../../runtime/emulated-kernel.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import { mappingOf } from "../../session/recorded.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import {
  convolutionF16,
  exampleOf,
  expectCompiled,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  NVCC,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";
import { inMemory, mappingsOnto, parametersIn, smallIntegers } from "../support/subjects.ts";

const TARGET = nvidiaTarget("h100");

const transposed = (parameters: Record<string, number>, layouts = "NCHW", types = "f32"): Computation =>
  instantiate(operatorNamed("transposed-conv2d"), { parameters, types: parseDataTypes(types), layouts });

const equation = (text: string, extents: Record<string, number>): Computation =>
  defineComputation({ equation: text, extents, tensors: { x: "f32", w: "f32" } });

function phasesOf(computation: Computation): Computation {
  const found = rewrittenAs(computation, "phases");
  if (typeof found === "string") throw new Error(found);
  return found;
}

const printed = (computation: Computation | string): string =>
  typeof computation === "string"
    ? computation
    : [
        equationText(computation),
        Object.entries(extentsOf(computation)).flat().join(" "),
        ...(computation.rewriting?.places ?? []),
      ].join("\n");

describe("a strided computation rewritten in phases", () => {
  it("has dense loops, in which each tap reaches every place of its phase", () => {
    const one = equation("y[p] += x[(p+1-r)/2] * w[r] where (p+1-r)%2 == 0", { p: 8, r: 3 });
    expect(printed(rewrittenAs(one, "phases"))).toMatchInlineSnapshot(`
      "y[p*2+p_phase-1] += x[p+r-1] * w[p_phase+2-r*2] where p_phase+2-r*2 < 3
      p 5 p_phase 2 r 2
      p = p*2+p_phase-1
      r = p_phase+2-r*2"
    `);
    const plain = equation("y[p] += x[p+1-r] * w[r]", { p: 8, r: 3 });
    expect(printed(rewrittenAs(plain, "reversed"))).toMatchInlineSnapshot(`
      "y[p] += x[p+r-1] * w[2-r]
      p 8 r 3
      r = 2-r"
    `);
  });

  it.each([
    ["no stride", "y[p] += x[p+r] * w[r]", { p: 8, r: 3 }, "no condition asks that a constant divides a sum of loops"],
    [
      "steps that share a factor with the stride",
      "y[p] += x[(p-r*2)/4] * w[r] where (p-r*2)%4 == 0",
      { p: 8, r: 3 },
      "p-r*2 divisible by 4: a step of p or r shares a factor with 4, so that some phases have no taps",
    ],
    [
      "no summed loop",
      "y[p] += x[p/2] * w[r] where p%2 == 0",
      { p: 8, r: 3 },
      "p divisible by 2 ties p, and phases are of one kept and one summed loop",
    ],
    [
      "two summed loops",
      "y[p] += x[(p-r-s)/2] * w[r,s] where (p-r-s)%2 == 0",
      { p: 8, r: 3, s: 3 },
      "p-r-s divisible by 2 ties p, r, s, and phases are of one kept and one summed loop",
    ],
    [
      "one loop under two strides",
      "y[p] += x[(p-r)/2] * w[r] where (p-r)%2 == 0 and (p-r)%3 == 0",
      { p: 8, r: 3 },
      "p-r divisible by 3 ties a loop that another condition ties",
    ],
    [
      "a shifted output",
      "y[p+1] += x[(p-r)/2] * w[r] where (p-r)%2 == 0",
      { p: 8, r: 3 },
      "p alone does not run from one end of y to the other, and phases begin and end beyond them",
    ],
  ] as const)("is refused with %s", (_, text, extents, because) => {
    expect(rewrittenAs(equation(text, extents), "phases")).toBe(because);
  });

  it("equals the equation, whatever its stride, kernel, pad and dilation, and writes each element once", () => {
    const strides = [1, 2, 3, 5];
    let compared = 0;
    for (const stride of strides)
      for (const r of [1, 2, 3, 4, 7])
        for (const [pad, dilation] of [
          [0, 1],
          [1, 1],
          [2, 1],
          [3, 1],
          [1, 2],
          [0, 3],
          [2, 3],
        ] as const) {
          if (3 * stride + dilation * (r - 1) + 1 <= 2 * pad || 2 * stride + 2 * dilation + 1 <= 2 * pad) continue;
          const stated = transposed({ n: 1, c: 2, k: 2, h: 4, w: 3, r, s: 3, stride, pad, dilation });
          const form = rewrittenAs(stated, stride === 1 ? "reversed" : "phases");
          const what = `stride ${stride}, kernel ${r}, pad ${pad}, dilation ${dilation}`;
          if (typeof form === "string") {
            expect(form, what).toMatch(stride === 1 ? /no taps go back/ : /shares a factor|ties p/);
            continue;
          }
          const inputs = smallIntegers(stated);
          expect(writesAll(form), what).toBe(true);
          expect([...interpret(form, inputs)], what).toEqual([...interpret(stated, inputs)]);
          compared++;
        }
    expect(compared).toBeGreaterThan(90);
  });

  it("exists for any index divided by one constant", () => {
    for (const [text, extents] of [
      ["y[p] += x[(p+1-r)/2] * w[r] where (p+1-r)%2 == 0", { p: 9, r: 5 }],
      ["y[p] += x[(p*2-r)/3] * w[r] where (p*2-r)%3 == 0", { p: 9, r: 5 }],
      ["y[p] += x[(p+r)/3] * w[r] where (p+r)%3 == 1", { p: 9, r: 4 }],
      ["y[p] += x[(r-p)/4+3] * w[r] where (r-p)%4 == 0", { p: 9, r: 6 }],
      ["y[p,i] += x[(p+i*2-r)/2,i] * w[r] where (p+i*2-r)%2 == 0", { p: 9, r: 4, i: 3 }],
      ["y[p] += x[(p-r)/2] where (p-r)%2 == 0", { p: 9, r: 5 }],
      ["y[p] max= x[(p-r)/2] where (p-r)%2 == 0 and r <= p", { p: 9, r: 5 }],
    ] as const) {
      const tensors: Record<string, "f32"> = text.includes("w[") ? { x: "f32", w: "f32" } : { x: "f32" };
      const stated = defineComputation({ equation: text, extents, tensors });
      const inputs = smallIntegers(stated);
      expect([...interpret(phasesOf(stated), inputs)], text).toEqual([...interpret(stated, inputs)]);
    }
  });

  it("has only useful points where the phases share the taps evenly", () => {
    const stated = transposed({ c: 2, k: 2, h: 8, w: 8, r: 4, s: 4, stride: 2, pad: 0 });
    const { where, ...form } = phasesOf(stated).equation;
    expect(where).toBeUndefined();
    expect(form.op).toBe("+=");
    expect(usefulPoints(phasesOf(stated))).toBe(usefulPoints(stated));
  });
});

describe("a mapping of a computation in phases", () => {
  const SHAPES = [
    { c: 3, k: 5, h: 3, w: 4, r: 3, s: 3, stride: 2, pad: 1 },
    { c: 4, k: 3, h: 3, w: 3, r: 4, s: 2, stride: 2, pad: 0 },
    { n: 2, c: 2, k: 2, h: 2, w: 3, r: 1, s: 5, stride: 3, pad: 0, dilation: 2 },
  ] as const;

  it("equals the equation under the plainest schedule and under random ones", () => {
    const random = seededRandom(5);
    const intrinsics = [...intrinsicsNamed("avx512.fma.f32.broadcast"), ...intrinsicsNamed("avx512.fma.f32")];
    let seen = 0;
    for (const shape of SHAPES)
      for (const layout of ["NCHW", "NHWC"]) {
        const stated = transposed(shape, layout);
        const inputs = smallIntegers(stated);
        const right = [...interpret(stated, inputs)];
        for (const intrinsic of intrinsics)
          for (const mapping of mappingsOnto(phasesOf(stated), intrinsic).slice(0, 6)) {
            expect([...interpretNest(lowerMapping(mapping), stated, inputs)]).toEqual(right);
            if (unschedulable(mapping) !== undefined) continue;
            for (let i = 0; i < inFull(20, 2); i++) {
              const schedule = randomSchedule(mapping, random, 2, 64);
              expect(
                [...interpretNest(lowerSchedule(mapping, schedule), stated, inputs)],
                JSON.stringify(schedule),
              ).toEqual(right);
              seen++;
            }
          }
      }
    expect(seen).toBeGreaterThan(30);
  });

  it("ranks first on a CPU and on a GPU, and is found again from its record", () => {
    const words = "c=32 k=32 h=14 w=14 r=3 s=3 stride=2 pad=1";
    const stated = convolutionF16(`transposed-conv2d ${words}`);
    const [best] = [
      rankByModel(stated, { machine: TARGET, count: 1, intrinsics: intrinsicsNamed("wgmma.m64n32k16.f32.f16") }),
    ].flat();
    if (!best || "refused" in best) throw new Error("nothing maps");
    expect(best.candidate).toMatchObject({ rewriting: "phases" });
    expect(mappingOf(stated, best.candidate).id).toBe(best.mapping?.id);
    expect(() => mappingOf(convolutionF16("conv2d c=32 k=32 h=14 w=14"), best.candidate)).toThrow("has no phases");
    const [onCpu] = [
      rankByModel(transposed(parametersIn(words), "NHWC"), { intrinsics: intrinsicsNamed("avx512.fma.f32.broadcast") }),
    ].flat();
    if (!onCpu || "refused" in onCpu) throw new Error("nothing maps");
    expect(onCpu.candidate).toMatchObject({ rewriting: "phases" });
  });

  it("does not exist for a computation without strides", () => {
    const plain = convolutionF16("conv2d c=8 k=8 h=5 w=5");
    expect(loopForms(plain)).toEqual([plain]);
  });
});

/** Phases inside the instruction and outside, windows and the engine, borders that cut phases off, both layouts, a reversed convolution. */
const GRIDS = (
  [
    [
      "c=64 k=16 h=5 w=5 r=3 s=3 stride=2 pad=1",
      "m <- p,q; n <- p_phase,q_phase,k; k <- c",
      16,
      wgmmaSchedule(64, 64, 64),
    ],
    [
      "c=64 k=16 h=5 w=4 r=4 s=4 stride=2 pad=1",
      "m <- n,p,q; n <- k; k <- c",
      16,
      wgmmaSchedule(64, 16, 64, { transfer: "engine" }),
    ],
    [
      "n=2 c=64 k=32 h=4 w=4 r=3 s=3 stride=2 pad=1",
      "m <- n,p,q; n <- k; k <- c",
      32,
      wgmmaSchedule(64, 32, 64, { transfer: "engine", taps: "shifted", store: "quads" }),
    ],
    [
      "c=64 k=24 h=4 w=4 r=3 s=3 stride=1 pad=1",
      "m <- k; n <- p,q; k <- c",
      16,
      wgmmaSchedule(64, 16, 64, { taps: "shifted" }),
    ],
    [
      "c=64 k=8 h=3 w=4 r=7 s=7 stride=2 pad=3",
      "m <- p,q; n <- k,p_phase,q_phase; k <- c",
      16,
      wgmmaSchedule(64, 32, 64, { transfer: "plain" }),
      false,
    ],
    [
      "c=64 k=16 h=4 w=4 r=1 s=1 stride=2 pad=0",
      "m <- p,q; n <- p_phase,q_phase,k; k <- c",
      16,
      wgmmaSchedule(64, 64, 64, { store: "staged" }),
    ],
    [
      "c=64 k=64 h=3 w=4 r=1 s=1 stride=2 pad=0",
      "m <- k; n <- p,q; k <- c",
      16,
      wgmmaSchedule(64, 16, 64, { transfer: "plain" }),
      false,
    ],
  ] as const
).map(([words, matching, width, schedule, last]) => {
  const stated = convolutionF16(`transposed-conv2d ${words}`, last);
  const form = rewrittenAs(stated, words.includes("stride=1") ? "reversed" : "phases");
  if (typeof form === "string") throw new Error(form);
  return {
    ...gridSubject(`${words} ${matching}`, gridContextOf(form, `wgmma.m64n${width}k16.f32.f16`, matching), schedule),
    stated,
  };
});

describe("a kernel of blocks in phases", () => {
  it.each(GRIDS)("interprets as the equation that was stated: $name", ({ stated, context }) => {
    const { expected } = exampleOf(context.mapping.computation);
    expect([...interpret(stated, smallIntegers(stated))]).toEqual([...expected]);
  });

  itEqualsTheEquation(GRIDS);

  it.skipIf(!NVCC)("compiles", async () => {
    for (const subject of GRIDS.slice(0, inFull(GRIDS.length, 1))) await expectCompiled(subject);
  });
});

describe("a kernel of threads in phases", () => {
  it("equals the equation", async () => {
    const stated = convolutionF16("transposed-conv2d c=3 k=3 h=4 w=4 r=3 s=3 stride=2 pad=1", false);
    const [thread] = intrinsicsNamed("thread.fma.f32.f16");
    const [mapping] = thread ? mappingsOnto(phasesOf(stated), thread) : [];
    if (!mapping) throw new Error("nothing maps");
    const context = threadContext(mapping, gridLimits(TARGET));
    if (typeof context === "string") throw new Error(context);
    const random = seededRandom(2);
    const inputs = smallIntegers(stated);
    const right = interpret(stated, inputs);
    const kernels = Array.from({ length: inFull(20, 3) }, () => {
      const drawn = drawSchedule(THREAD_KIND, context, random);
      if (!drawn) throw new Error("no schedule");
      const nest = lowerThreads(context, drawn);
      expect([...interpretNest(nest, stated, inputs)], JSON.stringify(drawn)).toEqual([...right]);
      return generateCuda(mapping.computation, mapping.intrinsic, nest, { lines: [] });
    });
    const runs = await runEmulated(kernels.map((kernel) => ({ kernel, inputs: inMemory(stated, inputs) })));
    const wanted = [...toMemory(outputOf(stated), right)];
    for (const run of runs) expect(run.status === "ok" ? [...run.output] : run.log).toEqual(wanted);
  });
});
