/**
 * @file The tables of bench/layers/layers.ts from its rows: a table for each way of measuring, a line for each layer.
 *
 * A ratio is a peer's time over automap's, the median of ratios of neighbouring batches; above 1 automap is faster.
 */

import { z } from "zod";
import { geomean, TIME, table, threadsText, timeText } from "../support/frame.ts";

export const LAYER = z.object({
  id: z.string(),
  /** Where it stands, such as `VGG-16, conv3_2`. */
  of: z.string().optional(),
  types: z.string(),
  output: z.string(),
  threads: z.number(),
  layout: z.string(),
  /** The instruction to which both sides were restricted, if any. */
  intrinsic: z.string().optional(),
  isa: z.string().optional(),
  /** oneDNN's version. */
  onednn: z.string().optional(),
  operations: z.number(),
  /** Microseconds: see roofline.ts. */
  roofline: z.object({ compute: z.number(), memory: z.number(), level: z.string() }).optional(),
  trials: z.number(),
  candidate: z.string(),
  automap: TIME,
  peers: z.array(z.object({ name: z.string(), ratio: z.number().optional(), time: TIME })),
});
export type LayerRow = z.infer<typeof LAYER>;

/** @returns Markdown, a section for each combination of types, output, threads, layout and restriction; the last row of a layer counts */
export function layerTables(rows: readonly LayerRow[]): string {
  const sections = new Map<string, LayerRow[]>();
  for (const row of rows) {
    const title = titleOf(row);
    const others = (sections.get(title) ?? []).filter((r) => r.id !== row.id);
    sections.set(title, [...others, row]);
  }
  return [...sections].map(([title, own]) => `## ${title}\n\n${tableOf(own)}\n`).join("\n");
}

function titleOf({ id, types, output, threads, layout, intrinsic, isa, onednn }: LayerRow): string {
  const product = /^gm[mv]-/.test(id);
  return [
    `${id.replace(/-\d+$/, "")} ${types}`,
    ...(output === "sum" ? [] : [`outputs in ${output}`]),
    ...(product ? [] : [layout]),
    ...(intrinsic === undefined ? [] : [`automap held to ${intrinsic}`]),
    ...(isa === undefined ? [] : [`oneDNN held to ${isa}`]),
    threadsText(threads),
    ...(onednn === undefined ? [] : [`oneDNN ${onednn}`]),
  ].join(", ");
}

function tableOf(rows: readonly LayerRow[]): string {
  const ordered = [...rows].sort((a, b) => Number(a.id.split("-")[1]) - Number(b.id.split("-")[1]));
  const names = [...new Set(rows.flatMap((r) => r.peers.map((p) => p.name)))];
  // Winograd computes something else in floats, so its row is shown but automap is not compared with it.
  const fastest = rows.flatMap((r) => {
    const ratios = r.peers.flatMap((p) => (p.name.includes("Winograd") || p.ratio === undefined ? [] : [p.ratio]));
    return ratios.length === 0 ? [] : [Math.min(...ratios)];
  });
  const cellOf = (row: LayerRow, name: string): string => {
    const peer = row.peers.find((p) => p.name === name);
    return peer ? `${timeText(peer.time)}${peer.ratio === undefined ? "" : ` (${peer.ratio.toFixed(2)})`}` : "";
  };
  const means = names.map((name) => {
    const ratios = rows.flatMap((r) => r.peers.flatMap((p) => (p.name === name ? (p.ratio ?? []) : [])));
    return ratios.length === 0 ? "" : `${geomean(ratios).toFixed(2)} (${ratios.length} layers)`;
  });
  const lines = ordered.map((r) => [
    r.of === undefined ? r.id : `${r.id}: ${r.of}`,
    timeText(r.automap),
    rooflineText(r),
    ...names.map((name) => cellOf(r, name)),
    r.candidate,
  ]);
  return [
    ...table(
      ["layer", "automap", "of the roofline", ...names, "automap's kernel"],
      [...lines, ["geomean", "", "", ...means, ""]],
    ),
    "",
    fastest.length === 0
      ? "No peer has such kernels."
      : `Against the fastest of these that computes the same sums: ${geomean(fastest).toFixed(2)}x by geomean of ${fastest.length} layers.`,
  ].join("\n");
}

/** The tighter bound of the roofline, and how close automap comes to it. */
function rooflineText({ roofline, automap }: LayerRow): string {
  if (!roofline || !("median" in automap)) return "";
  const { compute, memory, level } = roofline;
  const share = Math.max(compute, memory) / automap.median / 1e4;
  return `${share.toFixed(0)} % (${compute >= memory ? "issues" : level})`;
}
