/** @file The lines that cuda-suite.ts writes, and the table made from them. */

import { z } from "zod";
import { parseDataTypes } from "../operators/data-types.ts";
import { STORED, suiteType } from "./cuda-suite-cases.ts";

const configuration = {
  id: z.string(),
  op: z.string(),
  params: z.record(z.string(), z.number()),
  /** Where the channels of images and filters lie. Older lines lack it: their channels lie first. */
  layout: z.enum(["first", "last"]).default("first"),
  /** Type of the factors. Older lines lack it: theirs is f16. */
  dtype: suiteType.default("f16"),
};
export type Case = Readonly<z.infer<z.ZodObject<typeof configuration>>>;

/** A line: the device, the library, PyTorch's seconds of a configuration in each form, or automap's. */
export const line = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("device"),
    name: z.string(),
    driver: z.string(),
    nvcc: z.string(),
    seconds: z.number(),
    seed: z.number(),
  }),
  z.object({ kind: z.literal("library"), torch: z.string(), cudnn: z.number() }),
  z.object({
    kind: z.literal("peer"),
    id: z.string(),
    forms: z.record(z.string(), z.number()),
    failed: z.record(z.string(), z.string()),
  }),
  z.object({
    kind: z.literal("case"),
    ...configuration,
    seconds: z.number(),
    trials: z.number(),
    measured: z.number(),
    failed: z.record(z.string(), z.number()),
    instructions: z.number().optional(),
    because: z.string().optional(),
    best: z
      .object({
        median: z.number(),
        interval: z.tuple([z.number(), z.number()]),
        instruction: z.string(),
        mapping: z.string(),
        schedule: z.string(),
        expected: z.number().optional(),
      })
      .optional(),
  }),
]);
export type Line = z.infer<typeof line>;
type Found = Extract<Line, { kind: "case" }>;

/** A configuration in both layouts. */
interface Row {
  readonly found: Found;
  readonly batch: string;
  /** Seconds of automap with channels first and last; operators without channels have only the first. */
  readonly first: number | undefined;
  readonly last: number | undefined;
  /** Seconds of PyTorch: in the layout of `first`, its fastest with channels last, its fastest of all. */
  readonly peer: number | undefined;
  readonly peerLast: number | undefined;
  readonly peerBest: readonly [form: string, seconds: number] | undefined;
}

const us = (seconds: number | undefined): string => (seconds === undefined ? "" : (seconds * 1e6).toFixed(2));
const times = (ratio: number | undefined): string => (ratio === undefined ? "" : ratio.toFixed(2));
const over = (peer: number | undefined, own: number | undefined): number | undefined =>
  peer === undefined || own === undefined ? undefined : peer / own;
const least = (all: readonly (number | undefined)[]): number | undefined => {
  const known = all.filter((x) => x !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
};

function geomean(ratios: readonly (number | undefined)[]): number | undefined {
  const known = ratios.filter((r) => r !== undefined);
  return known.length === 0 ? undefined : Math.exp(known.reduce((sum, r) => sum + Math.log(r), 0) / known.length);
}

const RATIOS = [
  ["channels first, over PyTorch's", (r: Row) => (r.last === undefined ? undefined : over(r.peer, r.first))],
  ["channels last, over PyTorch's", (r: Row) => over(r.peerLast, r.last)],
  ["faster layout, over PyTorch's NCHW", (r: Row) => over(r.peer, least([r.first, r.last]))],
  ["faster layout, over its best form", (r: Row) => over(r.peerBest?.[1], least([r.first, r.last]))],
] as const;

/** Tables of all lines: geomeans, then every configuration. If something was timed twice, the faster time counts. */
export function report(lines: readonly Line[]): string {
  const of = <K extends Line["kind"]>(kind: K): Extract<Line, { kind: K }>[] =>
    lines.filter((l): l is Extract<Line, { kind: K }> => l.kind === kind);
  const [devices, library] = [of("device"), of("library")[0]];
  const rowsOf = (cases: readonly Found[]): Row[] =>
    [...new Set(cases.map((found) => found.id))].map((id) => rowOf(id, cases, of("peer")));
  const rows = rowsOf(of("case"));
  const latest = new Map(of("case").map((found) => [`${found.id} ${found.layout}`, found]));
  const ops = [...new Set(rows.map((r) => r.found.op))];
  const [dtype = "f16", ...others] = new Set(rows.map((r) => r.found.dtype));
  if (others.length > 0) throw new Error(`a report is of one element type, not of ${[dtype, ...others].join(", ")}`);
  const groups = [
    ...ops.map((op) => [op, rows.filter((r) => r.found.op === op)] as const),
    ...["1", "16"].map((b) => [`all of batch ${b}`, rows.filter((r) => r.batch === b)] as const),
    ["all, the latest search of each alone", rowsOf([...latest.values()])] as const,
    ["all", rows] as const,
  ];
  const summary = groups.map(([name, some]) => {
    const slow = some.filter((r) => (RATIOS[3][1](r) ?? 1) < 0.8).length;
    const verified = some.filter((r) => least([r.first, r.last]) !== undefined).length;
    return `| ${[name, some.length, verified, ...RATIOS.map(([, ratio]) => times(geomean(some.map(ratio)))), slow].join(" | ")} |`;
  });
  const table = rows.map((row) => {
    const { found, batch, first, last, peer, peerLast, peerBest } = row;
    const { id, params, because, layout, measured } = found;
    const what = Object.entries(params)
      .map(([k, v]) => `${k} ${v}`)
      .join(", ");
    const kernel = found.best
      ? `${layout === "last" ? "channels last; " : ""}${found.best.instruction}; ${found.best.mapping}${found.best.mapping ? "; " : ""}${found.best.schedule}`
      : (because ?? "");
    const seconds = [first, last, peer, peerLast, peerBest?.[1]].map(us);
    const ratios = RATIOS.slice(2).map(([, ratio]) => times(ratio(row)));
    return `| ${[id, what, batch, ...seconds, peerBest?.[0] ?? "", ...ratios, measured, kernel.replaceAll("|", "/").replaceAll("\n", " ")].join(" | ")} |`;
  });
  const budgets = [...new Set(devices.map((d) => `${d.seconds} s`))].join(" or ");
  const [device] = devices;
  return [
    "# The operators of AMOS's evaluation on a GPU, beside PyTorch",
    "",
    `${device?.name}, driver ${device?.driver}, nvcc ${device?.nvcc}; PyTorch ${library?.torch}, cuDNN ${library?.cudnn}. ${dtype} inputs and ${STORED[dtype]} outputs, sums in ${parseDataTypes(dtype).sum}; a search of ${budgets} and the time to enumerate mappings a configuration and layout, seed ${device?.seed}. Microseconds of one call in a CUDA graph, inputs in the last cache where they fit, medians. Ratios are PyTorch / automap: above 1 automap is faster. PyTorch runs on the same GPU ahead of the searches, in every form of bench/peers/torch-operators.py; of what was timed in two calls, PyTorch or automap, the faster counts. Channels first is NCHW with filters KCRS, channels last NHWC with filters KRSC, for automap and PyTorch alike; of a product, the right factor transposed. Every kernel equals the reference in every element of three sets of inputs. Configurations of equal parameters are one row, under the first of their names; a batch of 16 is of operators whose configurations say 1. The kernel, and how many were measured, are of the faster layout.`,
    "",
    "    node dist/bench/cuda-suite.js --layout first --batches 1,16 --seconds ... --shard 1/8 --out FILE.jsonl",
    "",
    `| | configurations | verified | ${RATIOS.map(([name]) => name).join(" | ")} | below 0.8 of that |`,
    "|---|---|---|---|---|---|---|---|",
    ...summary,
    "",
    "| configuration | parameters | batch | automap, first us | last us | PyTorch, first us | last us | best form us | best form | ratio to NCHW | to the best form | kernels measured | kernel |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ...table,
    "",
  ].join("\n");
}

function rowOf(id: string, cases: readonly Found[], peers: readonly Extract<Line, { kind: "peer" }>[]): Row {
  const all = cases.filter((found) => found.id === id);
  const fastest = (some: readonly Found[]): Found | undefined =>
    some.toSorted(
      (a, b) => (a.best?.median ?? Number.POSITIVE_INFINITY) - (b.best?.median ?? Number.POSITIVE_INFINITY),
    )[0];
  const found = fastest(all);
  if (!found) throw new Error(`internal: ${id} is of no line`);
  const forms = new Map<string, number>();
  for (const peer of peers.filter((p) => p.id === id))
    for (const [form, seconds] of Object.entries(peer.forms))
      forms.set(form, Math.min(seconds, forms.get(form) ?? Number.POSITIVE_INFINITY));
  const batched = found.params["n"] !== undefined && found.op !== "gmm" && found.op !== "scn";
  const medianOf = (layout: Found["layout"]): number | undefined =>
    fastest(all.filter((one) => one.layout === layout))?.best?.median;
  return {
    found,
    batch: id.split("@")[1] ?? (batched ? String(found.params["n"]) : "none"),
    first: medianOf("first"),
    last: medianOf("last"),
    peer: [...forms.values()][0],
    peerLast: least([...forms].flatMap(([form, seconds]) => (/channels last|transposed/.test(form) ? [seconds] : []))),
    peerBest: [...forms].sort(([, a], [, b]) => a - b)[0],
  };
}
