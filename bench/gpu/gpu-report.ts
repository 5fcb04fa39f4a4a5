/** @file The lines of bench/gpu/gpu-search.ts, and their page: searches beside peers, means of groups, kernels that the model ranked first. */

import { z } from "zod";
import { suiteType } from "../../test/support/suite.ts";
import { evaluateTogether } from "../../tuner/evaluate.ts";
import { geomean, linesOf, percent, table } from "../support/frame.ts";
import { COPY, LIBRARY, NPP, PEER } from "./gpu-peers.ts";

const DEVICE = z.object({
  kind: z.literal("device"),
  name: z.string(),
  driver: z.string(),
  nvcc: z.string(),
  seed: z.number(),
});

export const SEARCH = z.object({
  kind: z.literal("search"),
  case: z.string(),
  group: z.string(),
  /** What was searched, and for how long: `any:5`. */
  search: z.string(),
  took: z.number(),
  /** Of a copy that moves as much. */
  bytes: z.number(),
  cells: z.number(),
  /** Of windows. */
  operations: z.number().optional(),
  filter: z.number().optional(),
  suite: z
    .object({
      id: z.string(),
      op: z.string(),
      params: z.record(z.string(), z.number()),
      layout: z.enum(["first", "last"]),
      dtype: suiteType,
    })
    .optional(),
  trials: z.number(),
  measured: z.number(),
  failed: z.record(z.string(), z.number()),
  because: z.string().optional(),
  /** Seconds of cuBLAS, in turns with the winners. */
  cublas: z.number().optional(),
  best: z
    .object({
      median: z.number(),
      interval: z.tuple([z.number(), z.number()]),
      instruction: z.string(),
      place: z.string(),
      schedule: z.string(),
      group: z.string(),
      expected: z.number().optional(),
    })
    .optional(),
});
export type SearchLine = z.infer<typeof SEARCH>;

export const RANKED = z.object({
  kind: z.literal("ranked"),
  case: z.string(),
  cells: z.number(),
  group: z.string(),
  schedule: z.string(),
  expected: z.number(),
  status: z.string(),
  seconds: z.number().optional(),
});

const us = (seconds: number | undefined): string => (seconds === undefined ? "" : (seconds * 1e6).toFixed(2));
const least = (all: readonly (number | undefined)[]): number | undefined => {
  const known = all.filter((x) => x !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
};
const over = (peer: number | undefined, own: number | undefined): number | undefined =>
  peer === undefined || own === undefined ? undefined : peer / own;
const meanOf = (ratios: readonly (number | undefined)[]): string => {
  const known = ratios.filter((r) => r !== undefined);
  return known.length === 0 ? "" : `${geomean(known).toFixed(2)} (${known.length})`;
};
const ratioText = (ratio: number | undefined): string => ratio?.toFixed(2) ?? "";

/** If something was timed twice, the faster time counts. */
export function report(lines: readonly unknown[]): string {
  const [device] = linesOf(DEVICE, lines);
  const [library] = linesOf(LIBRARY, lines);
  const searches = linesOf(SEARCH, lines);
  const forms = formsOf(lines, searches);
  const torch = library === undefined ? "" : `; PyTorch ${library.torch}, cuDNN ${library.cudnn}`;
  return [
    "# Kernels searched on a GPU",
    "",
    `${device?.name}, driver ${device?.driver}, nvcc ${device?.nvcc}${torch}, seed ${device?.seed}. Microseconds of one call in a CUDA graph, inputs in the last cache where they fit; medians. Ratios are peer / automap: above 1 automap is faster. Every kernel equals the reference in every element of three sets of inputs. "Of the copy" is the time of the faster device copy of as many bytes over the kernel's; of what was timed twice the faster counts.`,
    "",
    "    node dist/bench/gpu/gpu-search.js --cases ... --searches ... --out FILE.jsonl && node dist/bench/gpu/gpu-search.js --report FILE.jsonl",
    "",
    ...meansOf(searches, forms),
    ...layoutsOf(searches, forms),
    ...searchesTable(searches, forms, lines),
    ...rankedTables(lines),
  ].join("\n");
}

/** Seconds of the peers of each case. */
type Forms = ReadonlyMap<string, ReadonlyMap<string, number>>;

function formsOf(lines: readonly unknown[], searches: readonly SearchLine[]): Forms {
  const all = new Map<string, Map<string, number>>();
  const add = (name: string, form: string, seconds: number): void => {
    const own = all.get(name) ?? new Map<string, number>();
    all.set(name, own.set(form, Math.min(seconds, own.get(form) ?? seconds)));
  };
  for (const peer of linesOf(PEER, lines))
    for (const [form, seconds] of Object.entries(peer.forms)) add(peer.case, form, seconds);
  for (const { case: name, cublas } of searches) if (cublas !== undefined) add(name, "cuBLAS, in turns", cublas);
  for (const { case: filter, status, ms } of linesOf(NPP, lines))
    if (status === 0) add(`${filter} f32`, "NPP", ms / 1000);
  return all;
}

const fastestForm = (forms: Forms, name: string): readonly [form: string, seconds: number] | undefined =>
  [...(forms.get(name) ?? [])].sort(([, a], [, b]) => a - b)[0];

function searchesTable(searches: readonly SearchLine[], forms: Forms, lines: readonly unknown[]): string[] {
  if (searches.length === 0) return [];
  const copied = linesOf(COPY, lines);
  const copyOf = (bytes: number): number | undefined =>
    least(copied.filter((c) => Math.abs(c.bytes - bytes) < 0.01 * bytes).map((c) => c.seconds));
  const first = firstSearches(searches);
  const rows = searches.map(({ best, ...line }) => {
    const peer = fastestForm(forms, line.case);
    const to = first.get(line.case);
    const failed = Object.entries(line.failed).map(([status, count]) => `${count} ${status}`);
    const share = over(copyOf(line.bytes), best?.median);
    return [
      line.case,
      line.search,
      best ? `${us(best.median)} (${us(best.interval[0])} to ${us(best.interval[1])})` : "none",
      us(best?.expected),
      peer ? `${us(peer[1])} ${peer[0]}` : "",
      ratioText(over(peer?.[1], best?.median)),
      to === best?.median ? "" : ratioText(over(best?.median, to)),
      share === undefined ? "" : `${percent(share)} %`,
      best && line.operations !== undefined ? (line.cells / best.median / 1e9).toFixed(0) : "",
      best && line.operations !== undefined ? (line.operations / best.median / 1e12).toFixed(1) : "",
      `${line.measured} of ${line.trials}`,
      failed.join(", ") || "none",
      best ? `${best.group}; ${best.instruction}; ${best.place}; ${best.schedule}` : line.because,
    ];
  });
  const head = ["case", "search", "us", "expected", "fastest peer", "ratio", "time / first search's", "of the copy"];
  return [...table([...head, "Gcells/s", "TFLOP/s", "measured", "failed", "kernel"], rows), ""];
}

function firstSearches(searches: readonly SearchLine[]): ReadonlyMap<string, number | undefined> {
  const first = new Map<string, number | undefined>();
  for (const { case: name, best } of searches) if (!first.has(name)) first.set(name, best?.median);
  return first;
}

/** Geometric means of groups, over the fastest peer and over the first search. */
function meansOf(searches: readonly SearchLine[], forms: Forms): string[] {
  const first = firstSearches(searches);
  const names = [...new Set(searches.map((s) => s.search))];
  const groups = [...new Set(searches.map((s) => s.group)), "all"];
  const rows = groups.flatMap((group) =>
    names.map((name) => {
      const own = searches.filter((s) => s.search === name && (group === "all" || s.group === group));
      const peers = own.map((s) => over(fastestForm(forms, s.case)?.[1], s.best?.median));
      const others = name === names[0] ? [] : own.map((s) => over(s.best?.median, first.get(s.case)));
      return [group, name, own.length, own.filter((s) => s.best).length, meanOf(peers), meanOf(others)];
    }),
  );
  const head = ["group", "search", "cases", "verified", "fastest peer's time / ours", "our time / first search's"];
  return searches.length === 0 ? [] : [...table(head, rows), ""];
}

/** A configuration of the suite in both layouts. */
interface Layouts {
  readonly op: string;
  readonly batch: string;
  readonly first: number | undefined;
  readonly last: number | undefined;
  /** Seconds of PyTorch: its first form, its fastest with channels last, its fastest of all. */
  readonly peer: number | undefined;
  readonly peerLast: number | undefined;
  readonly peerBest: number | undefined;
}

const RATIOS: Readonly<Record<string, (l: Layouts) => number | undefined>> = {
  "channels first, over PyTorch's": (l) => (l.last === undefined ? undefined : over(l.peer, l.first)),
  "channels last, over PyTorch's": (l) => over(l.peerLast, l.last),
  "faster layout, over PyTorch's NCHW": (l) => over(l.peer, least([l.first, l.last])),
  "faster layout, over its best form": bestFormRatio,
};
function bestFormRatio(l: Layouts): number | undefined {
  return over(l.peerBest, least([l.first, l.last]));
}

function layoutsOf(searches: readonly SearchLine[], forms: Forms): string[] {
  const ofSuite = searches.flatMap(({ suite, ...line }) => (suite ? [{ ...line, suite }] : []));
  if (new Set(ofSuite.map((s) => s.suite.layout)).size < 2) return [];
  const all = [...new Set(ofSuite.map((s) => s.suite.id))].map((id): Layouts => {
    const own = ofSuite.filter((s) => s.suite.id === id);
    const medianOf = (layout: "first" | "last"): number | undefined =>
      least(own.filter((s) => s.suite.layout === layout).map((s) => s.best?.median));
    const told = own.flatMap((s) => [...(forms.get(s.case) ?? [])]);
    const { op = "", params = {} } = own[0]?.suite ?? {};
    return {
      op,
      batch: op === "gmm" || op === "scn" ? "none" : String(params["n"] ?? "none"),
      first: medianOf("first"),
      last: medianOf("last"),
      peer: least(told.filter(([form]) => form === told[0]?.[0]).map(([, seconds]) => seconds)),
      peerLast: least(told.flatMap(([form, seconds]) => (/channels last|transposed/.test(form) ? [seconds] : []))),
      peerBest: least(told.map(([, seconds]) => seconds)),
    };
  });
  const ops = [...new Set(all.map((l) => l.op))];
  const groups: readonly (readonly [string, readonly Layouts[]])[] = [
    ...ops.map((op) => [op, all.filter((l) => l.op === op)] as const),
    ...["1", "16"].map((batch) => [`all of batch ${batch}`, all.filter((l) => l.batch === batch)] as const),
    ["all", all],
  ];
  const rows = groups.map(([name, some]) => [
    name,
    some.length,
    ...Object.values(RATIOS).map((ratio) => meanOf(some.map(ratio))),
    some.filter((l) => (bestFormRatio(l) ?? 1) < 0.8).length,
  ]);
  return [...table(["", "configurations", ...Object.keys(RATIOS), "below 0.8 of that"], rows), ""];
}

function rankedTables(lines: readonly unknown[]): string[] {
  const ranked = linesOf(RANKED, lines);
  if (ranked.length === 0) return [];
  const cases = [...new Set(ranked.map((r) => r.case))];
  const rows = cases.flatMap((name) => {
    const own = ranked.filter((r) => r.case === name);
    return [...new Set(own.map((r) => r.group))].map((group) => {
      const some = own.filter((r) => r.group === group);
      const timed = some.flatMap(({ seconds, ...r }) => (seconds === undefined ? [] : [{ ...r, seconds }]));
      const [best] = timed.sort((a, b) => a.seconds - b.seconds);
      const failed = some.filter((r) => r.status !== "ok").map((r) => r.status);
      const rate = best ? (best.cells / best.seconds / 1e9).toFixed(0) : "";
      return [name, group, us(best?.seconds), us(best?.expected), rate, some.length, failed.join(", "), best?.schedule];
    });
  });
  const judged = cases.map((name) =>
    ranked.flatMap((r) =>
      r.case === name && r.seconds !== undefined ? [{ predicted: r.expected, measured: r.seconds }] : [],
    ),
  );
  const { count, pairwise, recall } = evaluateTogether(judged);
  return [
    "Kernels that the model ranks first, the fastest of each group:",
    "",
    ...table(["case", "group", "us", "expected", "Gcells/s", "kernels", "failed", "schedule"], rows),
    "",
    `The model ranks ${percent(pairwise)} % of the pairs of ${count} kernels as measured, and finds ${percent(recall)} % of the fastest 40 %.`,
  ];
}
