/**
 * @file Any word names a tensor or an axis: keywords of every language, words of the generators themselves, macros of their headers.
 *
 * Every word goes through mappings, lanes in three languages, and packages; all of it is compiled, and some of it run.
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import type { WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { accessesIn, printExpr } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { isReserved, RESERVED } from "../../abstraction/keywords.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { parseRecurrence } from "../../abstraction/recurrence.ts";
import { generateLanes, type LaneLanguage } from "../../codegen/lanes.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { plainSchedule, randomSchedule } from "../../mapper/schedule/mapped.ts";
import { lowerDesign } from "../../mapper/space-time/lower.ts";
import { lowerWarpWindow, lowerWindow } from "../../mapper/space-time/lower-window.ts";
import { packageFiles } from "../../package/index.ts";
import { runChild } from "../../runtime/child.ts";
import { type EmulatedJob, emulatedProgram, runEmulated } from "../../runtime/emulated-kernel.ts";
import { emulationFolder } from "../../runtime/emulation.ts";
import { valuesSource } from "../../runtime/reference/drawn-source.ts";
import { generate } from "../../session/kinds/mapping-kind.ts";
import { provePackage } from "../../session/package/emit.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { mappingOf } from "../../session/recorded.ts";
import { nativeTarget } from "../../targets/index.ts";
import { compilerHere } from "../support/here.ts";
import { compileOnce, keptProgram } from "../support/kept-compiler.ts";
import { plainCandidate } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";
import { convolution1d, FORMS as FORMS_OF_DESIGNS } from "../support/space-time.ts";
import { mappingsOnto, rowNamed, smallIntegers } from "../support/subjects.ts";
import { windowSchedule } from "../support/window.ts";

const folder = scratchFolder("automap names ");
compileOnce(inFull([], ["-O1"]));

/** A mapping is judged without it. */
const NO_SCHEDULE = { order: [], block: {}, placement: {}, threads: 1 };

const FORMS = [0, 1, 2, 3] as const;

// ---- the words ------------------------------------------------------------------------------------------------------------------

/** OpenCL C 3.0, section 6.1.9; CUDA's and CM's own types and functions, which stand in no kernel of ours. */
const OTHER_LANGUAGES = `
  kernel global local constant private generic read_only write_only read_write uniform pipe image2d_t sampler_t event_t half quad
  float4 int4 dim3 cudaStream_t cudaError_t cudaSuccess min max umin mul24 clock saturate j0 j1 y0 y1 jn yn index rindex time gamma
  lgamma signgam exp log pow div remainder printf malloc free memset memmove strlen sin cos tan
  SurfaceIndex CmThreadGroupSpace cm_sum cm_rnde select merge read write format iselect replicate genx thread group`;

/** Names as users give them. */
const USUAL =
  "a0 a1 b0 c0 part parts workspace tensors phase new class float this NULL memcpy in out x w i_j i_j_outer lane X Z t";

const wordsIn = (text: string): string[] =>
  text.replace(/\/\*[\s\S]*?\*\/|\/\/.*|"(?:[^"\\\n]|\\.)*"/g, " ").match(/[A-Za-z_]\w*/g) ?? [];

/** Neutral names, so that what is collected are the generators' own words. */
const neutral = (count: number, prefix: string): string[] => Array.from({ length: count }, (_, i) => `${prefix}${i}zz`);

/** Words that every kind of text of ours uses, read off the texts. */
function ownWords(): string[] {
  const tensors = neutral(28, "tensor");
  const axes = neutral(8, "axis");
  const texts = [
    ...FORMS.map((form) => mapped(tensors, axes, form).source),
    ...(["c++", "cuda", "cm"] as const).map((language) => laneJob(language, tensors, axes).kernel.source),
    ...packageOf("neutral", tensors, axes, mapped(tensors, axes, 0)).values(),
    valuesSource(sumOf(tensors, axes)).source,
  ];
  return texts.flatMap(wordsIn).filter((word) => !word.includes("zz"));
}

/** The notation's own: it has no tensors and axes of these names. */
const isWord = (word: string): boolean => !["where", "and", "or", "select"].includes(word) && !(word in {});

const WORDS = [
  ...new Set(
    [
      ...wordsIn(USUAL),
      ...(["c++", "cuda", "cm", "python", "typescript"] as const).flatMap((language) => [...RESERVED[language]]),
      ...wordsIn(OTHER_LANGUAGES),
      ...ownWords(),
    ].filter(isWord),
  ),
];

// ---- what is made of them -------------------------------------------------------------------------------------------------------

/** So many words from a place on, each once. */
function some(from: number, count: number): string[] {
  return Array.from({ length: count }, (_, i) => WORDS[(from + i) % WORDS.length] ?? "");
}

/** A product of two tensors over all axes, to whose elements all the other tensors are added. */
function sumOf(tensors: readonly string[], axes: readonly string[]): Computation {
  const [out = "", held = "", a = "", b = "", ...added] = tensors;
  const [n = "", i = "", k = "", m = "", ...outer] = axes;
  const kept = [...outer, m, n, i].join(",");
  const dtypes = Object.fromEntries([a, b, ...added].map((name) => [name, "f32"] as const));
  return defineComputation({
    equation: `${held}[${kept}] += ${a}[${[...outer, m, k].join(",")}] * ${b}[${k},${n},${i}]`,
    epilogue: `${out}[${kept}] = ${[`${held}[${kept}]`, ...added.map((t) => `${t}[${n}]`)].join(" + ")}`,
    extents: Object.fromEntries(axes.map((name, at) => [name, at < 3 ? 4 : 2])),
    tensors: { ...dtypes, [b]: { dtype: "f32", constant: true } },
  });
}

/** A loop alone or two loops fused, on plain C++ or AVX-512, under the plainest schedule or another: four forms. */
function mapped(tensors: readonly string[], axes: readonly string[], form: number): Kernel {
  const computation = sumOf(tensors, axes);
  const { target, value } = computation.equation;
  const [c = "", a = "", b = ""] = [target, ...accessesIn(value)].map((access) => printExpr(access));
  const [n = "", i = ""] = axes;
  const candidate = {
    kind: "mapping" as const,
    intrinsic: form % 2 === 0 ? "portable.mla.f32.broadcast" : "avx512.fma.f32.broadcast",
    matching: { n: form < 2 ? [n] : [n, i] },
    operands: { a, b, c },
  };
  const mapping = mappingOf(computation, { ...candidate, schedule: NO_SCHEDULE });
  const random = seededRandom(tensors.join().length);
  const schedule = form % 3 === 0 ? plainSchedule(mapping, 1) : randomSchedule(mapping, random);
  return generate({ ...candidate, schedule }, mapping);
}
/** A nest of lanes that adds many tensors, in loops of many names, by way of registers of a tensor's name and others. */
function laneNest(tensors: readonly string[], axes: readonly string[]): { computation: Computation; nest: LoopNest } {
  const [out = "", file = "", constant = "", ...added] = tensors;
  const [lane = "", ...outer] = axes;
  const computation = defineComputation({
    equation: `${out}[${lane}] = ${[constant, ...added].map((t) => `${t}[${lane}]`).join(" + ")}`,
    extents: { [lane]: 16 },
    tensors: {
      ...Object.fromEntries(added.map((t) => [t, "f32" as const])),
      [constant]: { dtype: "f32", constant: true },
    },
  });
  const scalar = (text: string): Statement => ({ kind: "scalar", equation: parseEquation(text) });
  const onLanes = (...texts: readonly string[]): Statement => loop(lane, 16, texts.map(scalar), "lanes");
  const register = (index: string): string => `${file}[0,${index}]`;
  const sums = added.map((t) => `${register(lane)} = ${register(lane)} + ${t}[${lane}]`);
  const body = outer.reduceRight<readonly Statement[]>(
    (inner, name, i) => [loop(name, i === 0 ? 2 : 1, inner, i === 0 ? "parallel" : "serial")],
    [
      onLanes(
        `${register(lane)} = ${constant}[3]`,
        ...sums,
        `${register(lane)} = select(${lane} < 1, ${register(lane)}, ${register(`${lane}-1`)}) + ${constant}[${outer[0]}]`,
        `${out}[${lane}] = ${register(lane)} where ${lane} >= ${outer.at(-1)}`,
      ),
    ],
  );
  const vectors = [{ name: file, dtype: "f32", lanes: 16, count: 2 }] as const;
  return { computation, nest: { scratch: [], registers: [], vectors, prepare: [], body } };
}

function laneJob(language: LaneLanguage, tensors: readonly string[], axes: readonly string[]): EmulatedJob {
  const { computation, nest } = laneNest(tensors, axes);
  return { kernel: generateLanes(language, computation, nest, { lines: [] }), inputs: smallIntegers(computation) };
}

/** A package; what its tuned kernel computes matters to none of its other files. */
function packageOf(
  name: string,
  tensors: readonly string[],
  axes: readonly string[],
  tuned: Kernel,
): ReadonlyMap<string, string> {
  return packageFiles({ name, computation: sumOf(tensors, axes), threads: 2, provenance: [], tuned });
}

// ---- how it is held against compilers -------------------------------------------------------------------------------------------

/** What a compiler says of a text that it only reads. */
async function complaints(text: string, flags: readonly string[]): Promise<string> {
  const file = join(folder, "text.cpp");
  writeFileSync(file, text);
  const run = await runChild([keptProgram("g++"), "-fsyntax-only", "-w", ...flags, file], { timeLimitMs: 900_000 });
  return run.status === "ok" ? "" : run.stderr.slice(0, 3000) || run.status;
}

/** Texts as one: each in a namespace, what they include ahead of all. */
function together(texts: readonly string[], headers: readonly string[]): string {
  const spaces = texts.map((text, i) => `namespace space_${i} {\n${text.replace(/^#include .*$/gm, "")}\n}`);
  return [...headers.map((h) => `#include <${h}>`), ...spaces].join("\n");
}

/** Every word as a tensor and as an axis, 24 of each at a time. */
const SETS = Array.from({ length: Math.ceil(WORDS.length / 24) }, (_, i) => ({
  tensors: some(24 * i, 24),
  axes: some(24 * i + 12, 24),
}));
const AVX512 = ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"];

describe(`each of ${WORDS.length} words names tensors and axes`, () => {
  it("among them those once found broken, keywords, and words of every generator", () => {
    const found = wordsIn(`
      a0 part new float NULL memcpy i_j kernel yield warp_index plan THREADS
      threadIdx SurfaceIndex automap_run phase_0 Magnitude saturate load_lanes`);
    expect(WORDS).toEqual(expect.arrayContaining(found));
    expect(WORDS.length).toBeGreaterThan(500);
  });

  it("in kernels of mappings", async () => {
    const forms = (i: number): readonly number[] => inFull<readonly number[]>(FORMS, [i % FORMS.length]);
    const kernels = SETS.flatMap(({ tensors, axes }, i) => forms(i).map((form) => mapped(tensors, axes, form)));
    const program = emulatedProgram(
      kernels.map((kernel) => ({ kernel })),
      "c++",
    );
    expect(await complaints(program, ["-std=c++17", `-I${emulationFolder()}`, ...AVX512])).toBe("");
  });

  it.each(["c++", "cuda", "cm"] as const)("in kernels on lanes in %s", async (language) => {
    const kernels = SETS.map(({ tensors, axes }) => laneJob(language, tensors, axes).kernel);
    const program = emulatedProgram(
      kernels.map((kernel) => ({ kernel })),
      language,
    );
    const flags = language === "c++" ? AVX512 : [];
    expect(await complaints(program, ["-std=c++17", `-I${emulationFolder()}`, ...flags])).toBe("");
  });

  it("in packages: library, portable code, test, header and types", async () => {
    const { kernel } = laneJob("c++", neutral(24, "tensor"), neutral(8, "axis"));
    const packages = SETS.map(({ tensors, axes }, i) => ({
      i,
      files: packageOf(`package_${i}`, tensors, axes, kernel),
    }));
    const each = (suffix: string): string[] => packages.map(({ i, files }) => files.get(`package_${i}${suffix}`) ?? "");
    const headers =
      "stdint.h stdlib.h string.h math.h stdio.h unistd.h pthread.h sys/mman.h sys/syscall.h cpuid.h".split(" ");
    const library = "atomic condition_variable mutex new system_error thread".split(" ");
    const heads = each(".h");
    const withHeads = (texts: readonly string[]): string[] => texts.map((text, i) => `${heads[i]}\n${text}`);
    const plain = ["-std=c++17"];
    expect(await complaints(together(withHeads(each(".cpp")), [...headers, ...library]), plain)).toBe("");
    expect(await complaints(together(withHeads(each("_test.cpp")), headers), plain)).toBe("");
    expect(await complaints(together(each("_portable.cpp"), headers), plain)).toBe("");
    expect(await complaints(heads.join("\n"), ["-x", "c", "-std=gnu11"])).toBe("");
    expect(await complaints(heads.join("\n"), ["-std=gnu++20"])).toBe("");
    for (const { files } of packages) {
      const types = ts.createSourceFile("index.d.ts", files.get("index.d.ts") ?? "", ts.ScriptTarget.ES2022, true);
      // TypeScript keeps what it could not read beside the tree.
      const { parseDiagnostics } = types as unknown as { readonly parseDiagnostics: readonly ts.Diagnostic[] };
      expect(parseDiagnostics.map((d) => d.messageText)).toEqual([]);
    }
  });

  it("in reference programs", async () => {
    const texts = SETS.map(({ tensors, axes }) => valuesSource(partsOf(sumOf(tensors, axes)).sum).source);
    const headers = "stdint.h stdlib.h string.h math.h stdio.h pthread.h errno.h fcntl.h sys/mman.h unistd.h".split(
      " ",
    );
    expect(await complaints(together(texts, headers), ["-std=c++17"])).toBe("");
  });
});

describe("macros", () => {
  it("of every included header are never used as names, in strict and in GNU mode", async () => {
    const headers =
      "stdint.h string.h immintrin.h stdlib.h sys/syscall.h unistd.h cpuid.h math.h stdio.h sys/mman.h pthread.h atomic thread condition_variable mutex new system_error".split(
        " ",
      );
    for (const mode of ["c++17", "gnu++20"]) {
      const file = join(folder, "headers.cpp");
      writeFileSync(file, headers.map((h) => `#include <${h}>\n`).join(""));
      const flags = [`-std=${mode}`, ...AVX512, "-mamx-tile", "-dM", "-E"];
      const run = await runChild(["g++", ...flags, file], { timeLimitMs: 900_000 });
      // Those with parentheses are calls, which no name is.
      const macros = [...run.stdout.matchAll(/^#define (\w+)(?!\()\b/gm)].flatMap(([, name]) => name ?? []);
      expect(macros.length).toBeGreaterThan(1000);
      const left = macros.filter((name) => !name.startsWith("_") && !isReserved(name, ["c++"]));
      expect(left).toEqual([]);
    }
  });
});

describe("a computation named with reserved words equals its equation", () => {
  it("in a package that proves itself", async () => {
    const computation = defineComputation({
      name: "words",
      equation: "float[class,i_j] += this[class,new] * NULL[new,i_j]",
      epilogue: "plan[class,i_j] = max(float[class,i_j] + in[i_j] + input[i_j], 0)",
      extents: { class: 5, i_j: 16, new: 3 },
      tensors: { this: "f32", NULL: { dtype: "f32", constant: true }, in: "f32", input: "f32" },
    });
    const { candidate, mapping } = plainCandidate(computation, intrinsicsNamed("portable.mla.f32.broadcast")) ?? {};
    if (!candidate || !mapping) throw new Error("nothing maps");
    const subject = { name: "words", computation, threads: 1, provenance: [], tuned: generate(candidate, mapping) };
    const files = packageFiles(subject);
    writePackage(join(folder, "words"), files);
    const { status, said } = await provePackage(
      join(folder, "words"),
      { ...subject, features: [] },
      await compilerHere(),
    );
    expect({ status, said }).toEqual({ status: "right", said: expect.stringContaining("words tuned: right") });
    expect(JSON.parse(files.get("kernel.json") ?? "")).toMatchObject({
      parameters: [{ name: "this_" }, { name: "NULL_" }, { name: "input" }, { name: "input_" }, { name: "plan_" }],
    });
    expect(files.get("words.h")).toContain("int words_run(words_plan* plan, const float* this_, const float* input, ");
    expect(files.get("README.md")).toContain("kernel.run(this_, NULL_, input, input_, plan_);");
    expect(files.get("index.d.ts")).toContain("this_: Float32Array, NULL_: Float32Array, input: Float32Array");
  });

  const avx512 = nativeTarget().isa.includes("avx512f");
  const chosen = inFull(SETS, SETS.slice(0, 4)).map(({ tensors, axes }) => ({ tensors, axes: axes.slice(0, 8) }));

  it("in every language", async () => {
    const cases = chosen.flatMap(({ tensors, axes }) => {
      const computation = sumOf(tensors, axes);
      const lanes = laneNest(tensors, axes);
      const want = [...interpret(computation, smallIntegers(computation))];
      const wantLanes = [...interpretNest(lanes.nest, lanes.computation, smallIntegers(lanes.computation))];
      const languages: readonly LaneLanguage[] = avx512 ? ["c++", "cuda", "cm"] : ["cuda", "cm"];
      return [
        ...FORMS.map((form) => mapped(tensors, axes, form))
          .filter((kernel) => avx512 || kernel.features.length === 0)
          .map((kernel) => ({ job: { kernel, inputs: smallIntegers(computation) }, want })),
        ...languages.map((language) => ({ job: laneJob(language, tensors, axes), want: wantLanes })),
      ];
    });
    const runs = await runEmulated(cases.map((c) => c.job));
    const wrong = cases.flatMap(({ want, job }, i) => {
      const run = runs[i];
      if (run?.status !== "ok") return [`${job.kernel.language}: ${run?.log}`];
      const at = want.findIndex((value, e) => !Number.isNaN(value) && value !== run.output[e]);
      return at < 0
        ? []
        : [`${job.kernel.language}: element ${at} is ${run.output[at]}, not ${want[at]}\n${job.kernel.source}`];
    });
    expect(wrong).toEqual([]);
  });
});

describe("names that lowering makes", () => {
  it("differ from loops: one is named like two fused ones", () => {
    const computation = defineComputation({
      equation: "c[i,j,i_j,i_j_] += a[i,j,i_j,i_j_,k] * b[i,j,i_j,i_j_,k]",
      extents: { i: 3, j: 4, i_j: 2, i_j_: 2, k: 3 },
      tensors: { a: "f32", b: "f32" },
    });
    const on = rowNamed("portable.mla.f32");
    const inputs = smallIntegers(computation);
    const want = [...interpret(computation, inputs)];
    const valid = mappingsOnto(computation, on);
    expect(valid.some((m) => m.matching["n"]?.join("_") === "i_j")).toBe(true);
    for (const mapping of valid) {
      const got = [...interpretNest(lowerSchedule(mapping, plainSchedule(mapping, 1)), computation, inputs)];
      expect([printMatching(mapping.matching), got]).toEqual([printMatching(mapping.matching), want]);
    }
  });

  it("on lanes differ from tensors and loops: vectors, blocks and the lane itself", () => {
    const computation = defineComputation({
      equation: "X[lane_block,lane] += A[lane_block,lane+W_block] * W[W_block]",
      extents: { lane_block: 3, lane: 40, W_block: 3 },
      tensors: { A: "f32", W: { dtype: "f32", constant: true } },
    });
    const inputs = smallIntegers(computation);
    const plain: WindowSchedule = windowSchedule({ rows: 2, vectors: 2 });
    for (const nest of [
      lowerWindow(computation, plain),
      lowerWindow(computation, { ...plain, dataflow: "SBM", vectors: 1 }),
      lowerWarpWindow(computation, plain),
    ]) {
      expect([...interpretNest(nest, computation, inputs)]).toEqual([...interpret(computation, inputs)]);
    }
  });

  it("differ from the variables of a recurrence: the lane and the step", () => {
    const recurrence = parseRecurrence(
      [
        "loops c 16, q 5",
        "lane[c,q] = select(q == 0 or c == 15, x[c+q], lane[c+1,q-1])",
        "t[c,q] = select(q == 0, 0, t[c,q-1]) + lane[c,q] * w[q]",
        "out[c] = t[c,q] where q == 4",
      ].join("\n"),
    );
    const computation = convolution1d(16, 5);
    const inputs = smallIntegers(computation);
    for (const form of FORMS_OF_DESIGNS) {
      const nest = lowerDesign(recurrence, { allocation: [[1, 0]], schedule: [[0, 1]] }, form);
      expect([...interpretNest(nest, computation, inputs)]).toEqual([...interpret(computation, inputs)]);
    }
  });
});
