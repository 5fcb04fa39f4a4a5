/**
 * @file The configurations of bench/suites as computations of one element type, with their channels first or last.
 *
 *     suiteComputation({ op: "c2d", params: { n: 16, ... }, layout: "last" })    NHWC, KRSC, NPQK; f16, sums f32
 *     suiteComputation({ op: "gmm", params, layout: "first", dtype: "s8" })      factors s8, the result s32
 */

import { z } from "zod";
import { canonicalJson } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { targetOf } from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import type { Case } from "./cuda-suite-report.ts";
import type { Layer } from "./suite.ts";

export interface Configuration {
  readonly op: string;
  readonly params: Readonly<Record<string, number>>;
  /** Where the channels of images and filters lie. */
  readonly layout: "first" | "last";
  /** Type of both factors; default f16. */
  readonly dtype?: SuiteType | undefined;
}

/** Operators whose `n` is the batch. The others name it differently, or have none. */
const WITH_BATCH = new Set(["c1d", "c2d", "c3d", "t2d", "grp", "dil", "dep", "cap", "men", "var"]);

/** Element types of both factors. */
export const suiteType = z.enum(["f16", "bf16", "tf32", "s8"]);
export type SuiteType = z.infer<typeof suiteType>;
/** Types in which results are stored. */
export const STORED: Readonly<Record<SuiteType, DType>> = { f16: "f16", bf16: "bf16", tf32: "f32", s8: "s32" };

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
): readonly Case[] {
  const counts = new Map<string, number>();
  const taken = layers.filter(({ op }) => {
    const count = counts.get(op) ?? 0;
    counts.set(op, count + 1);
    return count % every === 0 && (layout === "first" || op in CHANNELS_LAST);
  });
  const all = batches.flatMap((n, i) =>
    taken.flatMap(({ id, op, params }): Case[] => {
      if (!WITH_BATCH.has(op)) return i === 0 ? [{ id, op, params, layout, dtype }] : [];
      return [{ id: n === 1 ? id : `${id}@${n}`, op, params: { ...params, n }, layout, dtype }];
    }),
  );
  const keyOf = ({ op, params }: Case): string => canonicalJson([op, params]);
  return all.filter((c, i) => all.findIndex((other) => keyOf(other) === keyOf(c)) === i);
}

/** @param shard `2/4` takes every fourth, starting with the second */
export function inShard<T>(all: readonly T[], shard: string): readonly T[] {
  const [which = 1, shards = 1] = shard.split("/").map(Number);
  return all.filter((_, i) => i % shards === which - 1);
}
