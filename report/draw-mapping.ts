/**
 * @file Draws a mapping in plain text: the loops of each axis, the three matrices, the fused indices, the addresses.
 *
 *     n 1  p 56  q 56 ---> m 16     in (a)   3136 rows, 196 tiles
 *     k 64            ---> n 16     w (b)
 */

import { type BinaryMatrix, printMatrix } from "../abstraction/binary-matrix.ts";
import { type Computation, equationText, pointCount } from "../abstraction/computation.ts";
import { usefulPoints } from "../abstraction/condition.ts";
import { printEquation, printExpr } from "../abstraction/expression.ts";
import { type Intrinsic, printStorage } from "../abstraction/intrinsic.ts";
import {
  type Binding,
  boundLabel,
  boundName,
  type Mapping,
  printMatching,
  type Refusal,
} from "../abstraction/mapping.ts";
import { sizesText } from "../abstraction/text.ts";
import { type AccessMatrices, accessMatrices } from "../mapper/match/access.ts";
import { scaleOf } from "../mapper/match/bind.ts";
import { physicalMapping } from "../mapper/match/physical.ts";
import { REWRITTEN } from "./describe-candidate.ts";
import { counted, indent, percent, table, WIDTH } from "./text.ts";

/** The full description of a mapping, as lines for a terminal: what feeds each axis, the matrices, addresses and waste. */
export function drawMapping(mapping: Mapping): string {
  const { computation, intrinsic, binding, matching } = mapping;
  const physical = physicalMapping(mapping);
  const matrices = accessMatrices(computation, intrinsic, binding, matching);
  const feeds = physical.axes.map((a) => {
    const loops = sizesText(a.loops, "  ") || "(nothing)";
    const padded = a.padded === a.fused ? "" : `  padded ${a.fused} -> ${a.padded}`;
    return [
      loops,
      "--->",
      `${a.axis} ${a.extent}`,
      a.kind === "spatial" ? "kept" : "summed",
      `${counted(a.tiles, "tile")}${padded}`,
    ];
  });
  const outer = sizesText(physical.outer, "  ");
  const scale = scaleOf(computation, intrinsic);
  const useful = usefulPoints(computation);
  const issued = Math.round(pointCount(computation) / (1 - mapping.waste));
  return [
    `mapping ${mapping.id}   ${printMatching(matching)}   waste ${percent(mapping.waste)}`,
    "",
    drawSubjects(computation, intrinsic),
    "",
    "loops feeding axes",
    indent(table(feeds)),
    indent(outer === "" ? "every loop is mapped" : `outer loops: ${outer}`),
    "",
    "operands",
    indent(
      table(
        intrinsic.operands.map((o) => {
          const bound = binding[o.name];
          return [o.name, "=", bound === undefined ? "?" : boundName(bound), o.dtype, printStorage(o)];
        }),
      ),
    ),
    ...(scale ? [indent(`sums are multiplied by ${printExpr(scale)} before they are added to others`)] : []),
    "",
    drawMatrices(matrices, mapping),
    "",
    "virtual mapping (one matrix an operand, base 0)",
    indent(table(physical.axes.map((a) => [a.axis, "=", printExpr(a.index, "formula"), `of ${a.fused}`]))),
    "",
    "physical mapping (the quotients number the tiles)",
    indent(table(physical.axes.map((a) => [a.axis, "=", modulo(printExpr(a.index, "formula"), a.extent), ""]))),
    indent(
      `elements of a tile: ${physical.operands.map((o) => `${o.operand.name} ${o.tile}${o.stride === undefined ? "" : ` (stride ${o.stride})`}`).join("   ")}`,
    ),
    indent(table(physical.operands.map((o) => [`base of ${o.operand.name}`, "=", printExpr(o.base, "formula")]))),
    "",
    `calls ${physical.issues} = ${physical.axes.map((a) => `${a.tiles} ${a.axis}`).join(" * ")}${physical.outer.map((a) => ` * ${a.extent} ${a.name}`).join("")}`,
    `useful multiplies ${useful} of ${issued} issued, waste ${percent(1 - useful / issued)}`,
  ].join("\n");
}

/**
 * Why a match is refused: rule, reason, the matrices with the entry that disagrees, and a counterexample.
 * @param width columns at which its sentences are wrapped
 */
export function drawRefusal(
  refusal: Refusal,
  computation: Computation,
  intrinsic: Intrinsic,
  judged?: { readonly matrices: AccessMatrices; readonly binding: Binding },
  width: number = WIDTH,
): string {
  const lines = [`refused: ${refusal.rule}`, indent(table([[refusal.because]], width - 2))];
  if (refusal.hint !== undefined) lines.push(indent(table([[refusal.hint]], width - 2)));
  lines.push("", drawSubjects(computation, intrinsic));
  if (Object.keys(refusal.matching).length > 0) lines.push("", `matching   ${printMatching(refusal.matching)}`);
  if (refusal.place) lines.push(`row ${refusal.place.row}, column ${refusal.place.column} disagree`);
  if (judged && Object.keys(refusal.matching).length > 0) {
    const { matrices, binding } = judged;
    lines.push(
      "",
      drawSideBySide([
        ["X: software access", labelled(matrices.x, binding)],
        ["X' = Z*Y", labelled(matrices.xPrime, binding)],
        ["Y: matching", matrices.y],
      ]),
    );
  }
  const { witness } = refusal;
  if (witness) {
    const at = Object.entries(witness.point)
      .map(([loop, value]) => `${loop}=${value}`)
      .join(" ");
    const element = `${computation.equation.target.tensor}[${witness.index.join(",")}]`;
    lines.push(
      "",
      "counterexample",
      indent(`${element} would be wrong: at ${at}`),
      indent(
        `the equation reads ${witness.expected} as ${witness.operand};\nthe instruction would be given ${witness.actual}`,
      ),
    );
  }
  return lines.join("\n");
}

/** The equations of both sides, one under the other. */
export function drawSubjects(computation: Computation, intrinsic: Intrinsic): string {
  const { rewriting } = computation;
  const extents = sizesText(computation.axes, "  ");
  const sizes = sizesText(intrinsic.computation.axes, "  ");
  return table([
    [computation.name, equationText(computation)],
    ["", extents],
    ...(rewriting ? [["", `${REWRITTEN[rewriting.kind]}: ${rewriting.places.join("   ")}`]] : []),
    [intrinsic.name, printEquation(intrinsic.computation.equation)],
    ["", sizes],
  ]);
}

function drawMatrices(matrices: AccessMatrices, { binding }: Mapping): string {
  return drawSideBySide([
    ["X: software access", labelled(matrices.x, binding)],
    ["Y: matching", matrices.y],
    ["Z: intrinsic access", labelled(matrices.z, binding)],
  ]);
}

/** Rows named by what the operands stand for, `in (a)`. */
function labelled(matrix: BinaryMatrix, binding: Binding): BinaryMatrix {
  const label = (row: string): string => {
    const bound = binding[row];
    return bound === undefined ? row : `${boundLabel(bound)} (${row})`;
  };
  return { ...matrix, rows: matrix.rows.map(label) };
}

function drawSideBySide(parts: readonly (readonly [string, BinaryMatrix])[]): string {
  const blocks = parts.map(([title, matrix]) => [title, ...printMatrix(matrix).split("\n")]);
  const height = Math.max(...blocks.map((b) => b.length));
  const widths = blocks.map((b) => Math.max(...b.map((l) => l.length)));
  const lines = Array.from({ length: height }, (_, i) =>
    blocks
      .map((b, j) => (b[i] ?? "").padEnd(widths[j] ?? 0))
      .join("     ")
      .trimEnd(),
  );
  return lines.join("\n");
}

function modulo(index: string, extent: number): string {
  if (extent === 1 || index === "0") return "0";
  return /^\w+$/.test(index) ? `${index}%${extent}` : `(${index})%${extent}`;
}
