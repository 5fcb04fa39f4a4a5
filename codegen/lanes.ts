/**
 * @file Prints a nest of lanes as a program: AVX-512 or AVX2 on this CPU, a warp's shuffles in CUDA, vectors in C for
 * Metal, sub-group shuffles in SYCL and OpenCL C.
 *
 *     generateLanes("c++", computation, nest, { lines: ["design SBM"] })               language, what, how, lines for its reader; a Kernel
 *
 * The kernel's interface is abstraction/kernel.ts. Lanes compute in f32, f64 and s32, those of x86 also in s16 and f16,
 * and those of CUDA in pairs of f16.
 */

import { namesOf, present } from "../abstraction/collections.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import {
  access,
  accessesOf,
  axis,
  compare,
  type Equation,
  identityOf,
  number,
  plus,
  times,
} from "../abstraction/expression.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { dealOf, type LoopNest, loop, type Statement, scalar } from "../abstraction/loop-nest.ts";
import { printNest } from "../abstraction/print-nest.ts";
import type { SourceText } from "../abstraction/source-text.ts";
import { compilerFeatures } from "../targets/features.ts";
import { DOT_FEATURE } from "../targets/x86-dots.ts";
import { CExpressions } from "./c-expressions.ts";
import { cmSource } from "./cm/lanes-cm.ts";
import { argumentsOf, type SourceNotes } from "./cpp/cpp-frame.ts";
import { LaneExpressions, type X86Options, x86Source } from "./cpp/lanes-x86.ts";
import { NarrowLanes } from "./cpp/narrow-lanes-avx512.ts";
import { HALVES_512, WordLanes, type WordType, wordVectors } from "./cpp/word-lanes.ts";
import { AVX512 } from "./cpp/x86-vectors.ts";
import { cudaSource } from "./cuda/cuda.ts";
import { multiplies } from "./lane-printer.ts";
import { openClLanes, syclLanes } from "./subgroup/lanes-subgroup.ts";

export type LaneLanguage = Kernel["language"];

export interface LaneOptions extends X86Options {
  /** The multiply-add of the lanes, by its mnemonic: promised where the nest holds a product for it. */
  readonly multiplyAdd?: string | undefined;
}

/**
 * The kernel of a lowered nest of lanes.
 * @param notes lines for the head of the source: the design, the schedule, the command that regenerates it
 * @throws UsageError if the language cannot run this many lanes
 */
export function generateLanes(
  language: LaneLanguage,
  computation: Computation,
  nest: LoopNest,
  notes: SourceNotes,
  options: LaneOptions = {},
): Kernel {
  const words = wordTypeOf(nest);
  const held = nest.vectors?.filter((v) => v.dtype !== "f32" && v.dtype !== "f64" && v.dtype !== "s32");
  const isHeld = (dtype: DType): boolean =>
    dtype === words && (language === "c++" || (language === "cuda" && dtype === "f16"));
  const strange = held?.find((v) => !isHeld(v.dtype));
  if (strange)
    throw new UsageError(
      `${computation.name}: lanes of ${language === "c++" ? "x86 compute in f32, f64, s32, s16 and f16" : `${language} compute in f32, f64${language === "cuda" ? ", s32 and f16" : " and s32"}`}; ${strange.name} is ${strange.dtype}`,
      "for example --dtype f32",
    );
  const lanes = language === "cuda" ? dealOf(nest).lanes : undefined;
  const whole = { ...nest, body: [...clearing(computation, nest, lanes), ...nest.body] };
  const comments = printNest(nest).split("\n");
  const c = new CExpressions(computation, whole);
  const promises = multiplies(whole.body, c.dtypes) ? options.multiplyAdd : undefined;
  const common = { language, promises, arguments: argumentsOf(computation) };
  switch (language) {
    case "c++":
      return {
        ...common,
        source: x86Of(c, { ...whole, body: dealtOnce(whole.body) }, notes, comments, options),
        features: compilerFeatures(
          present([
            words === "f16" && HALVES_512.feature,
            options.vectors?.feature ?? "avx512f",
            options.dots && DOT_FEATURE,
          ]),
        ),
      };
    case "cuda":
      return { ...common, ...cudaSource(computation, whole, notes, comments), features: [] };
    case "cm":
      return { ...common, ...cmSource(computation, whole, notes, comments), features: [] };
    case "opencl":
      return { ...common, ...openClLanes({ computation, nest: whole, notes, comments }), features: [] };
    case "sycl":
      return { ...common, ...syclLanes({ computation, nest: whole, notes, comments }), features: [] };
    default:
      return language satisfies never;
  }
}

/** The 16-bit type in which all vectors of a nest compute; undefined for wider ones. */
function wordTypeOf({ vectors = [] }: LoopNest): WordType | undefined {
  const [first] = vectors;
  const { dtype } = first ?? {};
  if (dtype !== "s16" && dtype !== "f16") return undefined;
  return vectors.every((v) => v.dtype === dtype) ? dtype : undefined;
}

/**
 * Lanes hold 16-bit elements in 16 bits where they compute in them. Otherwise elements of less than 32 bits are held in
 * 32-bit lanes, for which only AVX-512 is supported here.
 */
function x86Of(
  c: CExpressions,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
  options: X86Options,
): SourceText {
  const words = wordTypeOf(nest);
  if (words !== undefined) {
    const vectors = wordVectors(words, options.vectors ?? AVX512, c.computation.name);
    const writer = new WordLanes(
      new LaneExpressions(c.computation, nest, vectors),
      options.streaming ?? false,
      vectors,
    );
    return x86Source(c, nest, notes, comments, { ...options, vectors }, writer);
  }
  const narrow = nest.body.some((s) => readsNarrow(s, c));
  if (narrow && options.vectors?.feature === "avx2")
    throw new UsageError(`${c.computation.name}: lanes of AVX2 hold f32, f64 and s32, and nothing narrower`);
  return narrow
    ? x86Source(c, nest, notes, comments, options, new NarrowLanes(c, options.dots))
    : x86Source(c, nest, notes, comments, options);
}

/** Whether lanes read or write elements of less than 32 bits. */
function readsNarrow(s: Statement, c: CExpressions, onLanes = false): boolean {
  if (s.kind === "loop") return s.body.some((inner) => readsNarrow(inner, c, onLanes || s.mode === "lanes"));
  if (s.kind === "when") return [...s.body, ...s.otherwise].some((inner) => readsNarrow(inner, c, onLanes));
  return (
    onLanes &&
    s.kind === "scalar" &&
    accessesOf(s.equation).some((a) => bytesOf(c.dtypes[a.tensor] ?? "f32") < bytesOf("f32"))
  );
}

/** Of nested parallel loops, only the outermost is divided among threads. */
function dealtOnce(body: readonly Statement[], inside = false): Statement[] {
  return body.map((s) => {
    if (s.kind !== "loop") return s;
    const parallel = s.mode === "parallel";
    return { ...s, mode: parallel && inside ? "serial" : s.mode, body: dealtOnce(s.body, inside || parallel) };
  });
}

/** Initialises an output that lanes add to. @param lanes lanes that write neighbours, where one lane would write them one by one */
function clearing(computation: Computation, nest: LoopNest, lanes: number | undefined): Statement[] {
  const output = outputOf(computation);
  const adds = (s: Statement): boolean =>
    s.kind === "loop"
      ? s.body.some(adds)
      : s.kind === "scalar" && s.equation.op !== "=" && s.equation.target.tensor === output.name;
  if (!nest.body.some(adds)) return [];
  const last = output.dims.at(-1);
  const value = number(identityOf(computation.equation.op, output.dtype));
  const taken = new Set([...namesOf(output.dims), ...Object.keys(computation.tensors)]);
  const fresh = (wish: string): string => (taken.has(wish) ? fresh(`${wish}_`) : wish);
  if (lanes !== undefined && last !== undefined) {
    const [block, lane] = [fresh(`${last.name}_block`), fresh("lane")];
    const at = plus(times(axis(block), lanes), axis(lane));
    const index = output.dims.map((d) => (d === last ? at : axis(d.name)));
    const equation: Equation = {
      target: access(output.name, index),
      op: "=",
      value,
      where: compare("<", at, last.extent),
    };
    const line = loop(lane, lanes, [scalar(equation)], "lanes");
    const tiles = loop(block, Math.ceil(last.extent / lanes), [line], "parallel");
    const outer = output.dims.slice(0, -1);
    const all = outer.reduceRight<Statement>((body, d) => loop(d.name, d.extent, [body], "parallel"), tiles);
    return [all, { kind: "barrier" }];
  }
  const clear: Equation = {
    target: access(
      output.name,
      output.dims.map((d) => axis(d.name)),
    ),
    op: "=",
    value,
  };
  const inner = output.dims.reduceRight<readonly Statement[]>(
    (body, { name, extent }, i) => [loop(name, extent, body, i === 0 ? "parallel" : "serial")],
    [scalar(clear)],
  );
  return [...inner, { kind: "barrier" }];
}
