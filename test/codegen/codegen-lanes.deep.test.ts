/**
 * @file Nests of lanes in five languages: golden sources side by side, and every form compiled, run and compared with
 * the interpreter.
 */

import { describe, expect, it } from "vitest";
import { type Computation, defineComputation, inputsOf, memoryElements } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { AVX2 } from "../../codegen/cpp/x86-vectors.ts";
import { generateLanes, type LaneLanguage } from "../../codegen/lanes.ts";
import { lowerSteps } from "../../mapper/space-time/lower-steps.ts";
import { type EmulatedJob, runEmulated } from "../../runtime/emulated-kernel.ts";
import { nativeTarget } from "../../targets/index.ts";
import { STEP_SCHEDULE } from "../support/drawn/steps.ts";
import { LANE_FORMS, laneNest } from "../support/lane-forms.ts";
import { readNest } from "../support/nest-text.ts";
import { inFull } from "../support/slow.ts";
import { sourceOf } from "../support/source.ts";
import { stated } from "../support/subjects.ts";

/** Compilers on a busy machine. */
/** A language, with the vectors of it that are not those of AVX-512. */
type Dialect = LaneLanguage | "c++ of AVX2";
const DIALECTS: readonly Dialect[] = ["c++", "c++ of AVX2", "cuda", "cm", "opencl", "sycl"];

function generated(dialect: Dialect, computation: Computation, nest: LoopNest, lines: readonly string[]): Kernel {
  return dialect === "c++ of AVX2"
    ? generateLanes("c++", computation, nest, { lines }, { vectors: AVX2 })
    : generateLanes(dialect, computation, nest, { lines });
}

const SHAPES: readonly { readonly dtype: DType; readonly lanes: number }[] = [
  { dtype: "f32", lanes: 16 },
  { dtype: "f32", lanes: 5 },
  { dtype: "f32", lanes: 20 },
  { dtype: "f64", lanes: 16 },
  { dtype: "s32", lanes: 16 },
];

/** Small whole numbers, so that sums are exact in every order; of s32 any, so that sums wrap. */
function inputsFor(computation: Computation): Inputs {
  const small = (i: number, n: number): number => ((i * (7 + 2 * n)) % 13) - (n === 0 ? 6 : -1);
  return Object.fromEntries(
    inputsOf(computation).map((t, n) => [
      t.name,
      Array.from({ length: memoryElements(t) }, (_, i) =>
        t.dtype === "s32" ? Math.imul(small(i, n), 0x6b8b4567) : small(i, n),
      ),
    ]),
  );
}

/** Sums stay in lanes' neighbours while they move: a 1-D convolution, 12 outputs of 16 lanes. */
function convolution(shift = -1): { computation: Computation; nest: LoopNest } {
  const computation = stated("out[c] += x[c+q] * w[q] --c 100 --q 5 --name conv1d --constant w");
  const nest = readNest(`
    vectors X: 1 x f32[16]
    vectors Z: 1 x f32[16]
    for parallel block in 0..9
      for lanes lane in 0..16
        X[0,lane] = x[12*block+lane]
        Z[0,lane] = X[0,lane] * w[0]
      for q in 0..4
        for lanes lane in 0..16
          Z[0,lane] = Z[0,lane${shift < 0 ? shift : `+${shift}`}] + X[0,lane] * w[q+1]
      for lanes lane in 0..16
        out[12*block+lane-4] = Z[0,lane] where lane >= 4`);
  return { computation, nest };
}

/** C++ runs on the CPU itself; the others run anywhere. */
const { isa } = nativeTarget();
const NEEDED: Readonly<Partial<Record<Dialect, string>>> = { "c++": "avx512f", "c++ of AVX2": "fma" };
const MISSING = DIALECTS.filter((d) => !isa.includes(NEEDED[d] ?? isa[0] ?? ""));
const RUNNING = DIALECTS.filter((d) => !MISSING.includes(d));
const SKIPPED = MISSING.map((d) => ` (${d} skipped: no ${NEEDED[d]})`).join("");

describe("a convolution on lanes", () => {
  const { computation, nest } = convolution();
  const extension = {
    "c++": "cpp",
    "c++ of AVX2": "avx2.cpp",
    cuda: "cu",
    cm: "cm",
    opencl: "cl",
    sycl: "sycl.cpp",
  } as const;

  it.each(DIALECTS)("equals its golden file in %s", async (dialect) => {
    const { source } = generated(dialect, computation, nest, ["design SBM: lanes hold x, sums move"]);
    await expect(source).toMatchFileSnapshot(`../golden/lanes.conv1d.${extension[dialect]}`);
  });

  it(`equals its equation in every language, and with a wrong shift does not${SKIPPED}`, async () => {
    const inputs = inputsFor(computation);
    const want = [...interpret(computation, inputs)];
    const right = RUNNING.map((dialect) => ({ kernel: generated(dialect, computation, nest, []), inputs }));
    const wrong = RUNNING.map((dialect) => ({
      kernel: generated(dialect, computation, convolution(-2).nest, []),
      inputs,
    }));
    const runs = await runEmulated([...right, ...wrong]);
    const same = runs.map((run) => run.status === "ok" && want.every((value, i) => value === run.output[i]));
    expect(runs.map((run) => (run.status === "ok" ? "ok" : run.log))).toEqual(runs.map(() => "ok"));
    expect(same).toEqual([...RUNNING.map(() => true), ...RUNNING.map(() => false)]);
  });
});

describe(`every form of a statement on lanes${SKIPPED}`, () => {
  it.each(RUNNING)("in %s, compiled and run, equals the interpreter", async (dialect) => {
    const jobs: (EmulatedJob & { readonly label: string; readonly want: readonly number[] })[] = [];
    for (const [turn, form] of LANE_FORMS.entries())
      for (const [i, { dtype, lanes }] of SHAPES.entries()) {
        // Every form in every language, and each shape of it in some language; in full each in each.
        if ((turn + i + DIALECTS.indexOf(dialect)) % inFull(1, 2) > 0) continue;
        if (form.dtypes && !form.dtypes.includes(dtype)) continue;
        if (dialect === "cm" && form.scratch !== undefined) continue;
        const { computation, nest } = laneNest(form, dtype, lanes);
        const inputs = inputsFor(computation);
        const kernel = generated(dialect, computation, nest, [form.name]);
        const want = [...interpretNest(nest, computation, inputs)];
        jobs.push({ kernel, inputs, label: `${form.name} ${dtype} ${lanes}`, want });
      }
    const runs = await runEmulated(jobs);
    const problems = jobs.flatMap(({ label, want }, i) => {
      const run = runs[i];
      if (run?.status !== "ok") return [`${label}: ${run?.log}`];
      const at = want.findIndex((value, e) => !Object.is(value + 0, (run.output[e] ?? 0) + 0));
      return at < 0 ? [] : [`${label}: out[${at}] is ${run.output[at]}, the interpreter gives ${want[at]}`];
    });
    expect(problems).toEqual([]);
    expect(jobs.length).toBeGreaterThan(inFull(100, 50));
  });
});

describe("a kernel that its language cannot run", () => {
  it("is refused with the reason: more lanes than a warp has, or scratch memory in CM", () => {
    const [shift] = LANE_FORMS;
    const exchange = LANE_FORMS.find((form) => form.scratch !== undefined);
    if (!shift || !exchange) throw new Error("no such forms");
    const wide = laneNest(shift, "f32", 48);
    expect(() => generateLanes("cuda", wide.computation, wide.nest, { lines: [] })).toThrow(
      expect.objectContaining({ name: "UsageError", message: "V has 48 lanes: a warp of CUDA has 32" }),
    );
    const memory = laneNest(exchange, "f32", 16);
    expect(() => generateLanes("cm", memory.computation, memory.nest, { lines: [] })).toThrow(
      expect.objectContaining({ name: "UsageError", message: "CM: the program keeps s in memory besides its tensors" }),
    );
  });
});

describe("non-temporal stores", () => {
  it("are used for whole planes, not for the newest rows of a step, even if as large", () => {
    const heat = defineComputation({
      name: "heat",
      equation: "u[t,i,j] = u[t-1,i-1,j] + u[t-1,i+1,j]",
      extents: { t: 8, i: 3, j: 48 },
      tensors: { u: "f32" },
    });
    const nest = lowerSteps(heat, { ...STEP_SCHEDULE, lanes: 16, depth: 2 });
    expect(nest.scratch.map((s) => [s.elements, s.holds])).toEqual([
      [144, "result"],
      [144, undefined],
    ]);
    const { source } = generateLanes("c++", heat, nest, { lines: [] }, { streaming: true });
    const streamed = [...source.matchAll(/stream_lanes\((\w+) /g)].map(([, name]) => name);
    expect(streamed).toContain("u");
    expect(streamed.filter((name) => name?.startsWith("rows_"))).toEqual([]);
  });
});

describe("a program of many kernels", () => {
  it("blames only the one that does not compile and the one that reads beyond its tensor", async () => {
    const { computation, nest } = convolution();
    const kernel = generateLanes("cuda", computation, nest, { lines: [] });
    const inputs = inputsFor(computation);
    const broken = { ...kernel, source: sourceOf(kernel.source.replace("float Z0 = 0;", "float Z0 = nothing;")) };
    const beyond = { ...kernel, source: sourceOf(kernel.source.replace("12 * block + lane < 104", "true")) };
    const runs = await runEmulated([kernel, broken, beyond, kernel].map((k) => ({ kernel: k, inputs })));
    expect(runs.map((run) => run.status)).toEqual(["ok", "compile-failed", "failed", "ok"]);
  });
});
