/**
 * @file Shows how a GPU grid divides a product: the output into blocks, a block into warps, a warp into instructions.
 *
 *     m 4096, n 4096     32 x 16 blocks of 128 x 256     2 x 1 warps of 64 x 256     1 x 4 instructions of 64 x 64
 */

import { keptIn, summedIn } from "../abstraction/computation.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { type FusedAxis, physicalMapping } from "../mapper/match/physical.ts";
import { html, type Markup } from "./html.ts";
import { chart, fitted, LINE, n, seriesClass, text, WIDTH } from "./plot.ts";
import type { Drawing } from "./report-data.ts";
import { counted } from "./text.ts";

type GridShape = NonNullable<Extract<Drawing, { kind: "mapping" }>["grid"]>;

const SIDE = 112;
const COLUMN = (WIDTH - 8) / 3;
const TOP = 8;
/** Most lines per side; more would look like a grey area. */
const MOST_LINES = 40;

/** One of the three panels: the area that is divided, its rows and columns, and the number of parts. */
interface Panel {
  readonly size: readonly [rows: number, columns: number];
  readonly cut: readonly [rows: number, columns: number];
  readonly says: readonly string[];
}

/** Undefined for an instruction that does not keep exactly two axes. */
export function gridChart(mapping: Mapping, shape: GridShape, series: number): Markup | undefined {
  const { axes } = physicalMapping(mapping);
  const [rows, columns, ...more] = keptIn(axes);
  if (!rows || !columns || more.length > 0) return undefined;
  const panels = panelsOf(rows, columns, shape, mapping.intrinsic.scope === "warpgroup" ? "warpgroup" : "warp");
  const drawn = panels.map((panel, i) => ({ ...panel, ...placed(panel, 4 + i * COLUMN) }));
  const below = TOP + SIDE + 18;
  const sums = summedIn(axes).map((a) => sumText(a, shape));
  const lines = Math.max(...panels.map((p) => p.says.length));
  return chart(
    `The grid: ${panels.flatMap((p) => p.says).join(", ")}`,
    below + (lines + sums.length) * LINE + 4,
    html`${drawn.map(({ x, width, height, cellWidth, cellHeight, cut, says }, i) => {
      const next = drawn[i + 1];
      return html`<path class="grid" d="${linesOf(cut[0], (k) => `M${n(x)} ${n(TOP + (k * height) / cut[0])}h${n(width)}`)}${linesOf(cut[1], (k) => `M${n(x + (k * width) / cut[1])} ${TOP}v${n(height)}`)}"/>
<rect class="bar ${seriesClass(series)}" x="${n(x)}" y="${TOP}" width="${n(Math.max(1.5, cellWidth))}" height="${n(Math.max(1.5, cellHeight))}"/>
<path class="outline" d="M${n(x)} ${TOP}h${n(width)}v${n(height)}h${n(-width)}z"/>
${next && html`<path class="leader" d="M${n(x + cellWidth)} ${TOP}H${n(next.x)}M${n(x + cellWidth)} ${n(TOP + cellHeight)}L${n(next.x)} ${n(TOP + next.height)}"/>`}
${says.map((line, k) => text(x, below + k * LINE, fitted(line, COLUMN - 6), k === 0 ? { kind: "strong" } : {}))}`;
    })}
${sums.map((line, k) => text(4, below + (lines + k) * LINE + 4, line))}`,
  );
}

function panelsOf(rows: FusedAxis, columns: FusedAxis, { tile, warps }: GridShape, level: string): Panel[] {
  const block = [tile[rows.axis] ?? rows.extent, tile[columns.axis] ?? columns.extent] as const;
  const team = [warps[rows.axis] ?? 1, warps[columns.axis] ?? 1] as const;
  const own = [block[0] / team[0], block[1] / team[1]] as const;
  const blocks = [Math.ceil(rows.fused / block[0]), Math.ceil(columns.fused / block[1])] as const;
  const issues = [Math.max(1, own[0] / rows.extent), Math.max(1, own[1] / columns.extent)] as const;
  const names = `${rows.axis} x ${columns.axis}`;
  return [
    {
      size: [rows.fused, columns.fused],
      cut: blocks,
      says: ["output", `${names} ${rows.fused} x ${columns.fused}`, `${blocks[0]} x ${blocks[1]} blocks`],
    },
    { size: block, cut: team, says: ["block", `${names} ${block.join(" x ")}`, `${team.join(" x ")} ${level}s`] },
    { size: own, cut: issues, says: [level, `${names} ${own.join(" x ")}`, `${issues.join(" x ")} instructions`] },
  ];
}

function sumText({ axis, fused, extent }: FusedAxis, { tile, stage }: GridShape): string {
  const step = tile[axis] ?? extent;
  return `${axis} ${fused}: ${counted(Math.ceil(fused / step), "step")} of ${step}, ${counted(stage, "stage")} in shared memory`;
}

/** True to shape within a square, but never thinner than a sixth of it. */
function placed({ size: [rows, columns], cut }: Panel, x: number) {
  const scale = SIDE / Math.max(rows, columns);
  const width = Math.max(SIDE / 6, columns * scale);
  const height = Math.max(SIDE / 6, rows * scale);
  return { x, width, height, cellWidth: width / cut[1], cellHeight: height / cut[0] };
}

function linesOf(parts: number, line: (at: number) => string): string {
  if (parts > MOST_LINES) return "";
  return Array.from({ length: Math.max(0, Math.ceil(parts) - 1) }, (_, i) => line(i + 1)).join("");
}
