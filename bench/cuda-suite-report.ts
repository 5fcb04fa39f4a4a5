/** @file What cuda-suite.ts writes, a line each, and the table that comes of it. */

import { z } from "zod";

const configuration = {
  ...{ id: z.string(), op: z.string(), params: z.record(z.string(), z.number()) },
  /** Where the channels of images and filters lie; lines without are of a time when they lay first. */
  layout: z.enum(["first", "last"]).default("first"),
};
export type Case = Readonly<z.infer<z.ZodObject<typeof configuration>>>;

/** Lines of a file: the device, the library, PyTorch's seconds of a configuration in each form, and automap's. */
export const line = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("device"),
    ...{ name: z.string(), driver: z.string(), nvcc: z.string(), seconds: z.number(), seed: z.number() },
  }),
  z.object({ kind: z.literal("library"), torch: z.string(), cudnn: z.number() }),
  z.object({
    kind: z.literal("peer"),
    ...{ id: z.string(), forms: z.record(z.string(), z.number()), failed: z.record(z.string(), z.string()) },
  }),
  z.object({
    ...{ kind: z.literal("case"), ...configuration, seconds: z.number(), trials: z.number(), measured: z.number() },
    ...{
      failed: z.record(z.string(), z.number()),
      instructions: z.number().optional(),
      because: z.string().optional(),
    },
    best: z
      .object({
        ...{ median: z.number(), interval: z.tuple([z.number(), z.number()]), instruction: z.string() },
        ...{ mapping: z.string(), schedule: z.string(), expected: z.number().optional() },
      })
      .optional(),
  }),
]);
export type Line = z.infer<typeof line>;
type Found = Extract<Line, { kind: "case" }>;

interface Row {
  readonly found: Found;
  readonly batch: string;
  /** Seconds of automap, of PyTorch in the layout stated, of its best form. */
  readonly own: number | undefined;
  readonly same: number | undefined;
  readonly best: readonly [form: string, seconds: number] | undefined;
}

const us = (seconds: number | undefined): string => (seconds === undefined ? "" : (seconds * 1e6).toFixed(2));
const times = (ratio: number | undefined): string => (ratio === undefined ? "" : ratio.toFixed(2));
const over = (peer: number | undefined, own: number | undefined): number | undefined =>
  peer === undefined || own === undefined ? undefined : peer / own;

function geomean(ratios: readonly (number | undefined)[]): number | undefined {
  const known = ratios.filter((r) => r !== undefined);
  return known.length === 0 ? undefined : Math.exp(known.reduce((sum, r) => sum + Math.log(r), 0) / known.length);
}

/** The tables of all lines: geomeans, then every configuration. Of a configuration that was searched twice the faster counts. */
export function report(lines: readonly Line[]): string {
  const of = <K extends Line["kind"]>(kind: K): Extract<Line, { kind: K }>[] =>
    lines.filter((l): l is Extract<Line, { kind: K }> => l.kind === kind);
  const [device, library] = [of("device")[0], of("library")[0]];
  const byId = new Map<string, Found>();
  for (const found of of("case")) {
    const known = byId.get(found.id)?.best?.median;
    const own = found.best?.median;
    if (!byId.has(found.id) || (own !== undefined && (known === undefined || own < known))) byId.set(found.id, found);
  }
  const rows = [...byId.values()].map((found): Row => {
    const forms = Object.entries(of("peer").find((p) => p.id === found.id)?.forms ?? {});
    const best = [...forms].sort(([, a], [, b]) => a - b)[0];
    const batch =
      found.id.split("@")[1] ??
      (found.params["n"] !== undefined && found.op !== "gmm" && found.op !== "scn"
        ? String(found.params["n"])
        : "none");
    return { found, batch, own: found.best?.median, same: forms[0]?.[1], best };
  });
  const ops = [...new Set(rows.map((r) => r.found.op))];
  const groups = [
    ...ops.map((op) => [op, rows.filter((r) => r.found.op === op)] as const),
    ...["1", "16"].map((b) => [`all of batch ${b}`, rows.filter((r) => r.batch === b)] as const),
    ["all", rows] as const,
  ];
  const summary = groups.map(([name, some]) => {
    const [same, best] = [some.map((r) => over(r.same, r.own)), some.map((r) => over(r.best?.[1], r.own))];
    const slow = best.filter((r) => r !== undefined && r < 0.8).length;
    const verified = some.filter((r) => r.own !== undefined).length;
    return `| ${[name, some.length, verified, times(geomean(same)), times(geomean(best)), slow].join(" | ")} |`;
  });
  const table = rows.map(({ found, own, same, best, batch }) => {
    const { id, params, because } = found;
    const what = Object.entries(params)
      .map(([k, v]) => `${k} ${v}`)
      .join(", ");
    const kernel = found.best
      ? `${found.best.instruction}; ${found.best.mapping}${found.best.mapping ? "; " : ""}${found.best.schedule}`
      : (because ?? "");
    const ratios = [times(over(same, own)), times(over(best?.[1], own))];
    return `| ${[id, what, batch, us(own), us(same), us(best?.[1]), best?.[0] ?? "", ...ratios, found.measured, kernel.replaceAll("|", "/").replaceAll("\n", " ")].join(" | ")} |`;
  });
  return [
    "# The operators of AMOS's evaluation on a GPU, beside PyTorch",
    "",
    `${device?.name}, driver ${device?.driver}, nvcc ${device?.nvcc}; PyTorch ${library?.torch}, cuDNN ${library?.cudnn}. f16 inputs and outputs, f32 sums, NCHW; a search of ${device?.seconds} s and the time to enumerate mappings a configuration, seed ${device?.seed}. Microseconds of one call in a CUDA graph, inputs in the last cache where they fit, medians. Ratios are PyTorch / automap: above 1 automap is faster. PyTorch runs on the same GPU in the same call: in the layout stated (the first form of bench/peers/torch-operators.py) and in the best of its forms in any layout. Every kernel equals the reference in every element of three sets of inputs. Configurations of equal parameters are one row, under the first of their names; a batch of 16 is of operators whose configurations say 1.`,
    "",
    "    node dist/bench/cuda-suite.js --batches 1,16 --seconds ... --shard 1/4 --out FILE.jsonl",
    "",
    "| | configurations | verified | over PyTorch, same layout | over its best form | below 0.8 of that |",
    "|---|---|---|---|---|---|",
    ...summary,
    "",
    "| configuration | parameters | batch | automap us | PyTorch us | best form us | best form | ratio | ratio, best form | kernels measured | kernel |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
    ...table,
    "",
  ].join("\n");
}
