/**
 * @file Draws a mapping as SVG: loops, the instruction's axes and its operands, with the matching matrix below.
 *
 * The picture is self-contained: no scripts, no external fonts, and colours legible on light and dark backgrounds.
 */

import type { BinaryMatrix } from "../abstraction/binary-matrix.ts";
import { hasName, namesOf } from "../abstraction/collections.ts";
import { equationText } from "../abstraction/computation.ts";
import { printEquation } from "../abstraction/expression.ts";
import { boundName, type Mapping } from "../abstraction/mapping.ts";
import { cut, sizesText } from "../abstraction/text.ts";
import { matchingMatrix } from "../mapper/match/access.ts";
import { physicalMapping } from "../mapper/match/physical.ts";
import { escapeMarkup, scopedStyle } from "./html.ts";
import { percent } from "./text.ts";

const ROW = 44;
const BOX_HEIGHT = 30;
const LOOP_X = 24;
const LOOP_WIDTH = 120;
const AXIS_X = 200;
const AXIS_WIDTH = 200;
const OPERAND_X = 460;
const OPERAND_WIDTH = 236;
const LEAST_WIDTH = 720;
const TOP = 96;
const CELL = 24;
/** Width of a small character, rounded up. */
const CHARACTER = 7.4;

/** The SVG document of one mapping. */
export function drawMappingSvg(mapping: Mapping): string {
  const { computation, intrinsic, binding, matching } = mapping;
  const physical = physicalMapping(mapping);
  const loops = computation.axes;
  const rows = Math.max(loops.length, physical.axes.length, intrinsic.operands.length);
  const spread = (count: number, i: number): number => TOP + ((rows - count) * ROW) / 2 + i * ROW;
  const loopNames = namesOf(loops);
  const axisNames = physical.axes.map((a) => a.axis);
  const loopY = (name: string): number => spread(loops.length, loopNames.indexOf(name));
  const axisY = (name: string): number => spread(axisNames.length, axisNames.indexOf(name));
  const equations = [equationText(computation), printEquation(intrinsic.computation.equation)];
  const width = Math.max(LEAST_WIDTH, ...equations.map((e) => Math.ceil(2 * LOOP_X + CHARACTER * e.length)));
  const middle = BOX_HEIGHT / 2;
  const parts: string[] = [];

  // 1. Arrows first, so that boxes lie over their ends.
  for (const a of physical.axes) {
    for (const l of a.loops)
      parts.push(curve(LOOP_X + LOOP_WIDTH, loopY(l.name) + middle, AXIS_X, axisY(a.axis) + middle, a.kind));
    intrinsic.operands.forEach((o, i) => {
      if (hasName(o.dims, a.axis))
        parts.push(
          curve(
            AXIS_X + AXIS_WIDTH,
            axisY(a.axis) + middle,
            OPERAND_X,
            spread(intrinsic.operands.length, i) + middle,
            a.kind,
          ),
        );
    });
  }

  // 2. Boxes: loops, axes, operands.
  const mapped = new Set(Object.values(matching).flat());
  for (const l of loops)
    parts.push(box(LOOP_X, loopY(l.name), LOOP_WIDTH, `${l.name}  ${l.extent}`, mapped.has(l.name) ? l.kind : "outer"));
  for (const a of physical.axes) {
    const padded = a.padded === a.fused ? "" : `, ${a.fused}→${a.padded}`;
    parts.push(box(AXIS_X, axisY(a.axis), AXIS_WIDTH, `${a.axis}  ${a.extent} × ${a.tiles}${padded}`, a.kind));
  }
  intrinsic.operands.forEach((o, i) => {
    const bound = binding[o.name];
    parts.push(
      box(
        OPERAND_X,
        spread(intrinsic.operands.length, i),
        OPERAND_WIDTH,
        `${o.name} ${o.dtype} = ${bound === undefined ? "?" : boundName(bound)}`,
        "operand",
      ),
    );
  });

  // 3. The matching matrix, and the legend of colours.
  const matrix = matchingMatrix(computation, intrinsic, matching);
  const below = TOP + rows * ROW + 56;
  parts.push(...drawMatrix(matrix, below));

  const height = below + Math.max(matrix.rows.length, LEGEND.length) * CELL + 56;
  const summary = `${physical.issues} calls, waste ${percent(mapping.waste)}; outer loops: ${sizesText(physical.outer) || "none"}`;
  return [
    `<svg class="automap-mapping" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escapeMarkup(`${computation.name} onto ${intrinsic.name}`)}">`,
    `<style>${MAPPING_STYLE}</style>`,
    `<rect class="paper" width="${width}" height="${height}"/>`,
    text(LOOP_X, 30, `${computation.name} onto ${intrinsic.name}`, "title"),
    ...equations.map((e, i) => text(LOOP_X, 52 + 18 * i, e, "small")),
    text(LOOP_X, TOP - 6, "loops", "head"),
    text(AXIS_X, TOP - 6, "instruction: extent × tiles", "head"),
    text(OPERAND_X, TOP - 6, "operands", "head"),
    ...parts,
    text(LOOP_X, height - 20, summary, "small"),
    "</svg>",
    "",
  ].join("\n");
}

const LEGEND = [
  ["spatial", "kept in the result"],
  ["reduce", "summed"],
  ["outer", "outer loop: not mapped"],
] as const;

/** The matching matrix, drawn from `below` on, with the legend of colours beside it. */
function drawMatrix(matrix: BinaryMatrix, below: number): string[] {
  const parts: string[] = [];
  parts.push(text(LOOP_X, below - 34, "matching matrix: which loop feeds which axis", "head"));
  LEGEND.forEach(([kind, meaning], i) => {
    parts.push(`<rect class="${kind}" x="${OPERAND_X}" y="${below + i * CELL}" width="14" height="14" rx="3"/>`);
    parts.push(text(OPERAND_X + 24, below + i * CELL + 12, meaning, "small"));
  });
  matrix.columns.forEach((column, j) => {
    parts.push(text(LOOP_X + 120 + j * CELL + CELL / 2, below - 8, column, "small", "middle"));
  });
  matrix.rows.forEach((row, i) => {
    parts.push(text(LOOP_X + 108, below + i * CELL + 17, row, "small", "end"));
    matrix.columns.forEach((_, j) => {
      const on = matrix.bits[i]?.[j] === 1;
      parts.push(
        `<rect class="${on ? "on" : "off"}" x="${LOOP_X + 120 + j * CELL}" y="${below + i * CELL}" width="${CELL - 2}" height="${CELL - 2}" rx="3"/>`,
      );
    });
  });
  return parts;
}

const scoped = (rules: string): string => scopedStyle("automap-mapping", rules);

export const MAPPING_STYLE = [
  scoped(
    ".paper{fill:#fff}text{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px;fill:#1c2733}" +
      ".title{font-size:16px;font-weight:600}.small{font-size:12px}.head{font-size:11px;fill:#66788a}" +
      ".spatial{fill:#dceafb;stroke:#2c6fbb}.reduce{fill:#fde8d3;stroke:#b8651b}.outer{fill:#f1f3f5;stroke:#9aa7b3}.operand{fill:#e5f4e6;stroke:#3b8a44}" +
      "path{fill:none;stroke-width:1.6}path.spatial{fill:none;stroke:#2c6fbb}path.reduce{fill:none;stroke:#b8651b}" +
      ".on{fill:#2c6fbb}.off{fill:#e4e9ee}",
  ),
  // Print uses the light colours, whatever the reader's choice.
  "@media screen and (prefers-color-scheme:dark){",
  scoped(
    ".paper{fill:#12181f}text{fill:#dbe4ec}.head{fill:#8fa1b3}" +
      ".spatial{fill:#17324f;stroke:#6aa9ee}.reduce{fill:#452c14;stroke:#e79a55}.outer{fill:#1e262e;stroke:#66788a}.operand{fill:#193620;stroke:#74c17e}" +
      "path.spatial{fill:none;stroke:#6aa9ee}path.reduce{fill:none;stroke:#e79a55}.on{fill:#6aa9ee}.off{fill:#27313b}",
  ),
  "}",
].join("");

function curve(x1: number, y1: number, x2: number, y2: number, kind: string): string {
  const bend = (x2 - x1) / 2;
  return `<path class="${kind}" d="M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}"/>`;
}

function box(x: number, y: number, width: number, label: string, kind: string): string {
  const limit = Math.floor((width - 16) / 7.9);
  return `<g><title>${escapeMarkup(label)}</title><rect class="${kind}" x="${x}" y="${y}" width="${width}" height="${BOX_HEIGHT}" rx="5"/>${text(x + 10, y + 20, cut(label, limit))}</g>`;
}

function text(x: number, y: number, content: string, kind = "", anchor = ""): string {
  const attributes = `${kind === "" ? "" : ` class="${kind}"`}${anchor === "" ? "" : ` text-anchor="${anchor}"`}`;
  return `<text x="${x}" y="${y}"${attributes} xml:space="preserve">${escapeMarkup(content)}</text>`;
}
