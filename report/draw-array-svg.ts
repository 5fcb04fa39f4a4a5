/**
 * @file Draws a systolic array as SVG: one panel for each operand, or for a plane of PEs a row of panels for each step. An element keeps its colour,
 * so stationary elements form bars and moving ones form slants.
 */

import { flowWords } from "../mapper/space-time/classify.ts";
import type { Design } from "../mapper/space-time/design.ts";
import type { Trace } from "../mapper/space-time/trace.ts";
import { figure, widthOf } from "./draw-array.ts";
import { escapeMarkup, scopedStyle } from "./html.ts";
import { percent } from "./text.ts";

const CELL = 24;
const GAP = 28;
const LEFT = 24;
const TOP = 96;
/** Width of a panel's heading. */
const PANEL = 250;
const PAGE = 1000;
/** Width of a small character, rounded up. */
const CHARACTER = 6.2;
/** Most steps of a plane that are drawn. */
const MOST_FRAMES = 48;
const MOST_CELLS = 96;

/** The SVG document of one design. */
export function drawArraySvg(
  title: string,
  subtitle: string,
  design: Design,
  trace: Trace,
  summary = costText(design),
): string {
  const parts: string[] = [];
  const hues = design.flows.map(() => new Map<string, number>());
  const cellWidth = Math.max(CELL, Math.ceil(CHARACTER * widthOf(trace)) + 6);
  const cell = (x: number, y: number, v: number, label: string | undefined): void => {
    if (label === undefined) {
      parts.push(`<rect class="idle" x="${x}" y="${y}" width="${cellWidth - 2}" height="${CELL - 2}" rx="3"/>`);
      return;
    }
    const known = hues[v] ?? new Map<string, number>();
    const hue = known.get(label) ?? (known.size * 47) % 360;
    known.set(label, hue);
    parts.push(
      `<rect fill="hsl(${hue} 62% 74%)" x="${x}" y="${y}" width="${cellWidth - 2}" height="${CELL - 2}" rx="3"/>`,
      `<text class="cell" x="${x + cellWidth / 2 - 1}" y="${y + 15}" text-anchor="middle">${escapeMarkup(label)}</text>`,
    );
  };
  let width = 720;
  let height = TOP;

  if (trace.shape.length === 1) {
    const pes = Math.min(trace.shape[0] ?? 1, MOST_CELLS);
    const steps = Math.min(trace.steps, MOST_CELLS);
    // Side by side if they fit the width of a page.
    const panel = Math.max(pes * cellWidth, PANEL) + GAP;
    const beside = panel * design.flows.length <= PAGE;
    design.flows.forEach((flow, v) => {
      const [x, y] = beside ? [LEFT + v * panel, TOP] : [LEFT, height];
      parts.push(text(x, y, `${flow.name} ${flowWords(flow.role, flow.code)}: PEs across, steps down`, "head"));
      for (let step = 0; step < steps; step++)
        for (let pe = 0; pe < pes; pe++) cell(x + pe * cellWidth, y + 12 + step * CELL, v, trace.at([pe], step)?.[v]);
      height = y + 12 + steps * CELL + GAP;
    });
    width = Math.max(width, 2 * LEFT + (beside ? design.flows.length : 1) * panel);
  } else {
    const [rows = 1, columns = 1] = trace.shape.map((extent) => Math.min(extent, MOST_CELLS));
    const panel = Math.max(columns * cellWidth, 150) + GAP;
    for (let step = 0; step < Math.min(trace.steps, MOST_FRAMES); step++) {
      design.flows.forEach((flow, v) => {
        const x = LEFT + v * panel;
        const label = `${v === 0 ? `step ${step}   ` : ""}${flow.name} ${flowWords(flow.role, flow.code)}`;
        parts.push(text(x, height, label, "head"));
        for (let r = 0; r < rows; r++)
          for (let c = 0; c < columns; c++)
            cell(x + c * cellWidth, height + 10 + r * CELL, v, trace.at([r, c], step)?.[v]);
      });
      height += 10 + rows * CELL + GAP;
    }
    width = Math.max(width, 2 * LEFT + design.flows.length * panel);
  }

  width = Math.max(width, ...[title, subtitle, summary].map((line) => Math.ceil(2 * LEFT + 8.4 * line.length)));
  return [
    `<svg class="automap-array" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escapeMarkup(title)}">`,
    `<style>${ARRAY_STYLE}</style>`,
    `<rect class="paper" width="${width}" height="${height}"/>`,
    text(LEFT, 30, title, "title"),
    text(LEFT, 50, subtitle, "small"),
    text(LEFT, 68, summary, "small"),
    ...parts,
    "</svg>",
    "",
  ].join("\n");
}

const scoped = (rules: string): string => scopedStyle("automap-array", rules);

export const ARRAY_STYLE = [
  scoped(
    ".paper{fill:#fff}text{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px;fill:#1c2733}" +
      ".title{font-size:16px;font-weight:600}.small{font-size:12px}.head{font-size:11px;fill:#66788a}" +
      "text.cell{font-size:10px;fill:#10161c}.idle{fill:#eef1f4}",
  ),
  // Print uses the light colours, whatever the reader's choice.
  "@media screen and (prefers-color-scheme:dark){",
  scoped(".paper{fill:#12181f}text{fill:#dbe4ec}.head{fill:#8fa1b3}text.cell{fill:#10161c}.idle{fill:#1e262e}"),
  "}",
].join("");

const costText = (design: Design): string =>
  `${design.pes} PEs, ${design.steps} steps, outturn ${figure(design.outturn)}, utilisation ${percent(design.utilisation)}, registers ${design.registers.plain} (coalesced ${design.registers.coalesced})`;

function text(x: number, y: number, content: string, kind: string): string {
  return `<text x="${x}" y="${y}" class="${kind}" xml:space="preserve">${escapeMarkup(content)}</text>`;
}
