/**
 * @file The tables of bench/layers/layers.ts from its lines: a table for each way of measuring, a row for each layer.
 *
 *     node dist/bench/layers/layers-report.js layers.jsonl                      to standard output
 *     node dist/bench/layers/layers-report.js 1.jsonl 2.jsonl > layers.md       several runs; the last line of a layer counts
 *
 * A ratio is a peer's time over automap's, the median of ratios of neighbouring batches; above 1 automap is faster.
 */

import { readFileSync } from "node:fs";
import { argv } from "node:process";
import { pathToFileURL } from "node:url";
import { z } from "zod";

const TIME = z.discriminatedUnion("status", [
  z.object({
    status: z.literal("ok"),
    microseconds: z.number(),
    /** 95 % interval of the median. */
    interval: z.tuple([z.number(), z.number()]),
  }),
  z.object({ status: z.literal("none") }),
  z.object({ status: z.literal("failed"), as: z.string(), log: z.string() }),
]);
const ROW = z.object({
  id: z.string(),
  types: z.string(),
  output: z.string(),
  threads: z.number(),
  layout: z.string(),
  /** The instruction to which both sides were restricted, if any. */
  intrinsic: z.string().optional(),
  isa: z.string().optional(),
  operations: z.number(),
  /** Microseconds: see roofline.ts. */
  roofline: z.object({ compute: z.number(), memory: z.number(), level: z.string() }).optional(),
  trials: z.number(),
  candidate: z.string(),
  automap: TIME,
  peers: z.array(z.object({ name: z.string(), ratio: z.number().optional(), time: TIME })),
});
export type LayerTime = z.infer<typeof TIME>;
export type LayerRow = z.infer<typeof ROW>;

export function geomean(numbers: readonly number[]): number {
  return Math.exp(numbers.reduce((sum, x) => sum + Math.log(x), 0) / numbers.length);
}

export function timeText(time: LayerTime): string {
  switch (time.status) {
    case "none":
      return "none";
    case "failed":
      return time.as;
    case "ok": {
      const half = (100 * (time.interval[1] - time.interval[0])) / 2 / time.microseconds;
      return `${time.microseconds.toFixed(1)} ±${half.toFixed(1)}%`;
    }
    default:
      return time satisfies never;
  }
}

/** @returns Markdown, a section for each combination of types, output, threads, layout and restriction */
export function layerTables(rows: readonly LayerRow[]): string {
  const sections = new Map<string, LayerRow[]>();
  for (const row of rows) {
    const title = titleOf(row);
    const others = (sections.get(title) ?? []).filter((r) => r.id !== row.id);
    sections.set(title, [...others, row]);
  }
  return [...sections].map(([title, own]) => `## ${title}\n\n${tableOf(own)}\n`).join("\n");
}

function titleOf({ id, types, output, threads, layout, intrinsic, isa }: LayerRow): string {
  const product = /^gm[mv]-/.test(id);
  return [
    `${id.replace(/-\d+$/, "")} ${types}`,
    ...(output === "sum" ? [] : [`outputs in ${output}`]),
    ...(product ? [] : [layout]),
    ...(intrinsic === undefined ? [] : [`automap held to ${intrinsic}`]),
    ...(isa === undefined ? [] : [`oneDNN held to ${isa}`]),
    `${threads} thread${threads === 1 ? "" : "s"}`,
  ].join(", ");
}

function tableOf(rows: readonly LayerRow[]): string {
  const ordered = [...rows].sort((a, b) => Number(a.id.split("-")[1]) - Number(b.id.split("-")[1]));
  const names = [...new Set(rows.flatMap((r) => r.peers.map((p) => p.name)))];
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const ratiosOf = (name: string): number[] =>
    rows.flatMap((r) => r.peers.flatMap((p) => (p.name === name && p.ratio !== undefined ? [p.ratio] : [])));
  // Winograd computes something else in floats, so its row is shown but automap is not compared with it.
  const fastest = rows.flatMap((r) => {
    const ratios = r.peers.flatMap((p) => (p.name.includes("Winograd") || p.ratio === undefined ? [] : [p.ratio]));
    return ratios.length === 0 ? [] : [Math.min(...ratios)];
  });
  return [
    line(["layer", "automap", "of the roofline", ...names, "automap's kernel"]),
    `|---|---|---|${names.map(() => "---|").join("")}---|`,
    ...ordered.map((r) =>
      line([
        r.id,
        timeText(r.automap),
        rooflineText(r),
        ...names.map((name) => {
          const peer = r.peers.find((p) => p.name === name);
          if (!peer) return "";
          return `${timeText(peer.time)}${peer.ratio === undefined ? "" : ` (${peer.ratio.toFixed(2)})`}`;
        }),
        r.candidate,
      ]),
    ),
    line([
      "geomean",
      "",
      "",
      ...names.map((name) => {
        const ratios = ratiosOf(name);
        return ratios.length === 0 ? "" : `${geomean(ratios).toFixed(2)} (${ratios.length} layers)`;
      }),
      "",
    ]),
    "",
    fastest.length === 0
      ? "No peer has such kernels."
      : `Against the fastest of these that computes the same sums: ${geomean(fastest).toFixed(2)}x by geomean of ${fastest.length} layers.`,
  ].join("\n");
}

/** The tighter bound of the roofline, and how close automap comes to it. */
function rooflineText({ roofline, automap }: LayerRow): string {
  if (!roofline || automap.status !== "ok") return "";
  const { compute, memory, level } = roofline;
  const share = (100 * Math.max(compute, memory)) / automap.microseconds;
  return `${share.toFixed(0)} % (${compute >= memory ? "issues" : level})`;
}

export function readRows(files: readonly string[]): LayerRow[] {
  return files.flatMap((file) =>
    readFileSync(file, "utf8")
      .split("\n")
      .filter((text) => text !== "")
      .map((text) => ROW.parse(JSON.parse(text))),
  );
}

if (import.meta.url === pathToFileURL(argv[1] ?? "").href) process.stdout.write(layerTables(readRows(argv.slice(2))));
