/**
 * @file Draws a systolic array in plain text: the element of each operand that every PE holds, step by step.
 *
 *     z migrates   PE  0  1  2  3        one panel an operand; a value that moves slants, one that stays is a column,
 *          step 0      0  1  2  3        one that is broadcast is a row
 *               1      .  0  1  2
 */

import { namesOf, present, upTo } from "../abstraction/collections.ts";
import { flowWords } from "../mapper/space-time/classify.ts";
import type { Design } from "../mapper/space-time/design.ts";
import { type ArrayProblem, pointsOfProblem } from "../mapper/space-time/problem.ts";
import type { Trace } from "../mapper/space-time/trace.ts";
import { printVector, type Vector } from "../mapper/space-time/vector.ts";
import { counted, indent, percent, type Rows, table, WIDTH } from "./text.ts";

/** Most steps drawn; the drawing says how many are left out. */
const MOST_STEPS = 64;
const IDLE = ".";
/** Characters left of the first column of a panel. */
const MARGIN = 14;

/** The full description of a design. Without a trace, which may be too long, no steps are drawn. */
export function drawArray(problem: ArrayProblem, design: Design, trace: Trace | undefined): string {
  if (!trace)
    return `${drawDesign(problem, design)}\n\nnot drawn: ${figure(pointsOfProblem(problem))} points are too many to follow one by one`;
  const panels = design.shape.length === 1 ? drawRow(trace, design) : drawPlane(trace, design);
  return [drawDesign(problem, design), "", panels].join("\n");
}

/** The transform as formulas, the movement of operands, and the costs. */
function drawDesign(problem: ArrayProblem, design: Design): string {
  const { allocation, schedule } = design.spaceTime;
  const loops = namesOf(problem.loops);
  const place = allocation.map((row) => formula(row, loops)).join(", ");
  const time =
    schedule.length === 1
      ? formula(design.schedule, loops)
      : `${formula(design.schedule, loops)}   (${schedule.map((row) => formula(row, loops)).join(", then ")})`;
  const moves = design.flows.map((f) => {
    const dependences = f.variables.flatMap((v) => v.dependences);
    const path = dependences.map((d) =>
      d.steps === 0
        ? `${printVector(d.distance)} across PEs within a step`
        : `${printVector(d.distance)} takes ${counted(d.steps, "step")}, ${hop(d.hop)}`,
    );
    return [
      f.name,
      flowWords(f.role, f.code),
      path.join("; ") || (f.letter === "S" ? "loaded once by each PE" : "read where it is used"),
    ];
  });
  const { registers } = design;
  return [
    `${design.name}   PE ${place}   step ${time}`,
    "",
    indent(table(moves)),
    "",
    indent(
      `PEs ${figure(design.pes)}${design.shape.length > 1 ? ` (${design.shape.join(" x ")})` : ""}   steps ${figure(design.steps)}   outturn ${figure(design.outturn)} a step   utilisation ${percent(design.utilisation)}`,
    ),
    indent(
      `registers ${figure(registers.plain)}, coalesced ${figure(registers.coalesced)}   longest shift ${figure(design.shuffleDistance)}   boundary loads ${figure(design.boundaryLoads)}`,
    ),
  ].join("\n");
}

/** `p + 2*r` */
function formula(row: Vector, loops: readonly string[]): string {
  const terms = row.flatMap((c, i) => (c === 0 ? [] : [{ c, name: loops[i] ?? "?" }]));
  return terms
    .map(({ c, name }, i) => {
      const sign = c < 0 ? (i === 0 ? "-" : " - ") : i === 0 ? "" : " + ";
      return `${sign}${Math.abs(c) === 1 ? "" : `${Math.abs(c)}*`}${name}`;
    })
    .join("");
}

function hop(vector: Vector): string {
  if (vector.every((x) => x === 0)) return "stays";
  return vector.length === 1 ? `${counted(vector[0] ?? 0, "PE")} on` : `${printVector(vector)} on`;
}

/** At most three decimals: `3.2`, `0.457`. Three significant digits for small numbers, four above 2^53: `1.845e+19`. */
export function figure(x: number): string {
  if (Number.isSafeInteger(x)) return String(x);
  if (Math.abs(x) > Number.MAX_SAFE_INTEGER) return x.toPrecision(4);
  return String(Number(Math.abs(x) < 0.001 ? x.toPrecision(3) : x.toFixed(3)));
}

/** A row of PEs: a panel per operand, with PEs across and steps down, or transposed when that is narrower. */
function drawRow(trace: Trace, design: Design): string {
  const [pes = 1] = trace.shape;
  return design.flows
    .map((flow, v) => {
      const width = Math.max(widthOf(trace, v), String(Math.max(pes, trace.steps) - 1).length) + 2;
      const fitting = Math.max(1, Math.floor((WIDTH - MARGIN) / width));
      const across = pes <= trace.steps || pes <= fitting;
      const [columns, rows] = across ? [pes, trace.steps] : [trace.steps, pes];
      const [columnName, rowName] = across ? ["PE", "step"] : ["step", "PE"];
      const cell = (row: number, column: number): string =>
        (across ? trace.at([column], row) : trace.at([row], column))?.[v] ?? IDLE;
      const numbers = upTo(Math.min(columns, fitting));
      const shownRows = Math.min(rows, MOST_STEPS);
      const lines = [
        ["", columnName, ...numbers.map(String), ...(numbers.length < columns ? ["..."] : [])],
        ...upTo(shownRows).map((r) => [r === 0 ? rowName : "", String(r), ...numbers.map((c) => cell(r, c))]),
        ...(shownRows < rows ? [["", "..."]] : []),
      ];
      return `${flow.name} ${flowWords(flow.role, flow.code)}\n${indent(right(lines))}`;
    })
    .join("\n\n");
}

/** A plane of PEs: for each step, the operands side by side. */
function drawPlane(trace: Trace, design: Design): string {
  const [rows = 1, columns = 1] = trace.shape;
  const width = widthOf(trace) + 1;
  const fitting = Math.max(1, Math.floor((WIDTH / design.flows.length - 4) / width));
  const shownRows = Math.min(rows, 2 * fitting, 24);
  const shownColumns = Math.min(columns, fitting);
  const shownSteps = Math.min(trace.steps, MOST_STEPS);
  const panelWidth = Math.max(shownColumns * width, ...design.flows.map((f) => heading(f).length)) + 3;
  const blocks = upTo(shownSteps).map((step) => {
    const head = design.flows
      .map((f, v) => (step === 0 ? heading(f) : (trace.operands[v] ?? "")).padEnd(panelWidth))
      .join("");
    const lines = upTo(shownRows).map((r) =>
      design.flows
        .map((_, v) =>
          upTo(shownColumns)
            .map((c) => (trace.at([r, c], step)?.[v] ?? IDLE).padStart(width - 1))
            .join(" ")
            .padEnd(panelWidth),
        )
        .join("")
        .trimEnd(),
    );
    return [`step ${step}`, indent(head.trimEnd()), ...lines.map((l) => indent(l))].join("\n");
  });
  const cut = present([
    (shownRows < rows || shownColumns < columns) &&
      `of ${rows} x ${columns} PEs the first ${shownRows} x ${shownColumns} are drawn`,
    shownSteps < trace.steps && `of ${trace.steps} steps the first ${shownSteps} are drawn`,
  ]);
  return [...blocks, ...cut].join("\n");
}

const heading = (flow: Design["flows"][number]): string => `${flow.name} ${flowWords(flow.role, flow.code)}`;

/** Width of the longest element of an operand, or of all operands. */
export function widthOf(trace: Trace, operand?: number): number {
  let widest = 1;
  const [rows = 1, columns = 1] = trace.shape;
  for (let step = 0; step < trace.steps; step++)
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++)
        for (const [v, label] of (trace.at(trace.shape.length === 1 ? [r] : [r, c], step) ?? []).entries())
          if (operand === undefined || v === operand) widest = Math.max(widest, label.length);
  return widest;
}

/** Right-aligned columns of numbers. */
function right(rows: Rows): string {
  const columns = Math.max(...rows.map((r) => r.length));
  const widths = upTo(columns).map((j) => Math.max(...rows.map((r) => (r[j] ?? "").length)));
  return rows.map((r) => r.map((cell, j) => cell.padStart(widths[j] ?? 0)).join("  ")).join("\n");
}
