/**
 * @file The layers on which AMOS is evaluated, and those of networks and products of language models to which nothing is fitted (bench/suites);
 * computations of them in one element type, with their channels first or last.
 *
 *     layersNamed("c2d,dep-0,net")                                               ids, and what ids begin with
 *     suiteComputation({ op: "c2d", params: { n: 16, ... }, layout: "last" })    NHWC, KRSC, NPQK; f16, sums f32
 *     suiteComputation({ op: "gmm", params, layout: "first", dtype: "s8" })      factors s8, the result s32
 */

import { readFileSync } from "node:fs";
import { z } from "zod";
import { canonicalJson } from "../../abstraction/candidate.ts";
import { type Computation, targetOf } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { suggestion, UsageError } from "../../abstraction/error.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";

const SUITE = z.object({
  configs: z.array(
    z.object({ id: z.string(), op: z.string(), of: z.string().optional(), params: z.record(z.string(), z.number()) }),
  ),
});
export type Layer = z.infer<typeof SUITE>["configs"][number];

/** Every layer on which AMOS is evaluated. */
export const suiteLayers = (): readonly Layer[] => layersIn("amos-operators");

function layersIn(suite: string): readonly Layer[] {
  const file = new URL(`../../bench/suites/${suite}.json`, import.meta.url);
  return SUITE.parse(JSON.parse(readFileSync(file, "utf8"))).configs;
}

/** @param words ids and what ids begin with, separated by commas: `c2d,dep-0`. @throws UsageError for one that is neither */
export function layersNamed(words: string): readonly Layer[] {
  const all = [...suiteLayers(), ...layersIn("network-layers"), ...layersIn("language-products")];
  const groupOf = (id: string): string => id.replace(/-\d+$/, "");
  const known = [...new Set(all.flatMap(({ id }) => [groupOf(id), id]))];
  const wanted = words.split(",");
  for (const word of wanted)
    if (!known.includes(word))
      throw new UsageError(`no layer or operator "${word}"`, { hint: suggestion(word, known) });
  return all.filter(({ id }) => wanted.includes(groupOf(id)) || wanted.includes(id));
}

/** Element types of both factors. */
export const suiteType = z.enum(["f16", "bf16", "tf32", "s8", "e4m3"]);
export type SuiteType = z.infer<typeof suiteType>;
/** Types in which results are stored. */
export const STORED: Readonly<Record<SuiteType, DType>> = {
  f16: "f16",
  bf16: "bf16",
  tf32: "f32",
  s8: "s32",
  e4m3: "bf16",
};

export interface Configuration {
  readonly op: string;
  readonly params: Readonly<Record<string, number>>;
  /** Where the channels of images and filters lie. */
  readonly layout: "first" | "last";
  /** Type of both factors; default f16. */
  readonly dtype?: SuiteType | undefined;
}

/** A configuration of the suite; `id` is its layer's, with the batch behind an @ where that is not 1. */
export interface SuiteCase extends Configuration {
  readonly id: string;
  readonly dtype: SuiteType;
}

/** Operators whose `n` is the batch. The others name it differently, or have none. */
const WITH_BATCH = new Set(["c1d", "c2d", "c3d", "t2d", "grp", "dil", "dep", "cap", "men", "var"]);

/**
 * PyTorch's channels-last layouts: the summed channels are innermost in inputs and filters, the output's channels in
 * the output. In a product the summed axis is innermost in both factors.
 */
export const CHANNELS_LAST: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  c1d: { in: "NLC", w: "KRC", result: "NPK" },
  c2d: { in: "NHWC", w: "KRSC", result: "NPQK" },
  c3d: { in: "NDHWC", w: "KTRSC", result: "NOPQK" },
  t2d: { in: "NHWC", w: "KRSC", result: "NPQK" },
  grp: { in: "NHWC", w: "KRSC", result: "NPQK" },
  dil: { in: "NHWC", w: "KRSC", result: "NPQK" },
  dep: { in: "NHWC", w: "RSK", result: "NPQK" },
  cap: { in: "NHWC", w: "KURSC", result: "NPQKU" },
  bcv: { in: "NHWC", w: "NKRSC", result: "NPQK" },
  men: { in: "LC" },
  var: { in: "LC" },
  gmm: { b: "NK" },
  smm: { s: "GM" },
};

export function suiteComputation({ op, params, layout, dtype = "f16" }: Configuration): Computation {
  const types = parseDataTypes(dtype);
  const operator = operatorNamed(op);
  const sum = targetOf(instantiate(operator, { parameters: params, types }));
  const dims = sum.dims.map((d) => d.name).join(",");
  const stored = STORED[dtype];
  const output = stored === types.sum ? sum.name : "result";
  const epilogue = output === "result" ? { epilogue: `result[${dims}] = ${stored}(${sum.name}[${dims}])` } : {};
  const last = Object.entries((layout === "last" && CHANNELS_LAST[op]) || {});
  const layouts = Object.fromEntries(last.map(([name, lies]) => [name === "result" ? output : name, lies]));
  return instantiate(operator, { parameters: params, types, layouts, ...epilogue });
}

/**
 * Configurations of all batches in order; one whose parameters equal an earlier one's is dropped.
 * @param every takes one in this many of each operator's configurations
 */
export function suiteCases(
  layers: readonly Layer[],
  batches: readonly number[],
  layout: Configuration["layout"],
  { every = 1, dtype = "f16" }: { readonly every?: number; readonly dtype?: SuiteType } = {},
): readonly SuiteCase[] {
  const counts = new Map<string, number>();
  const taken = layers.filter(({ op }) => {
    const count = counts.get(op) ?? 0;
    counts.set(op, count + 1);
    return count % every === 0 && (layout === "first" || op in CHANNELS_LAST);
  });
  const all = batches.flatMap((n, i) =>
    taken.flatMap(({ id, op, params }): SuiteCase[] => {
      if (!WITH_BATCH.has(op)) return i === 0 ? [{ id, op, params, layout, dtype }] : [];
      return [{ id: n === 1 ? id : `${id}@${n}`, op, params: { ...params, n }, layout, dtype }];
    }),
  );
  const keyOf = ({ op, params }: SuiteCase): string => canonicalJson([op, params]);
  return all.filter((c, i) => all.findIndex((other) => keyOf(other) === keyOf(c)) === i);
}
