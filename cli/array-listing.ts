/** @file The output of `automap systolic`: the table of designs, and its JSON document. */

import { z } from "zod";
import { type CommandLine, quotedWords } from "../abstraction/error.ts";
import { KERNEL_LANGUAGES } from "../abstraction/kernel.ts";
import { flowWords } from "../mapper/space-time/classify.ts";
import type { Design } from "../mapper/space-time/design.ts";
import type { DesignSet, ListedDesign } from "../mapper/space-time/enumerate.ts";
import { paretoSet } from "../mapper/space-time/pareto.ts";
import { type LoopSplit, printReuse } from "../mapper/space-time/problem.ts";
import { REFUSALS, refusalOf } from "../mapper/space-time/validity.ts";
import { printMatrix } from "../mapper/space-time/vector.ts";
import { round } from "../perfmodel/design.ts";
import { figure } from "../report/draw-array.ts";
import { counted, indent, percent } from "../report/text.ts";
import type { ArraySubject } from "../session/kinds/array-subject.ts";
import { SHOWN, type Timing } from "../session/systolic.ts";
import { documentOf, integer, number, type PartsOf, partOf, style, type Told, text } from "./output.ts";
import { fitted, fittedSparing, worded, wrapped } from "./terminal.ts";

const rows = z.array(z.array(integer));
const designParts = {
  name: text.describe("its class; .2 for a second of one class"),
  dataflow: text,
  allocation: rows.describe("where points run: a row for each dimension of the array"),
  schedule: z.array(integer).describe("when; several rows of time as one"),
  pes: integer,
  steps: integer,
  outturn: number.describe("results a step"),
  utilisation: number.describe("share of the PEs' steps that compute a point"),
  registers: z.strictObject({ plain: number, coalesced: number }).describe("of all PEs"),
  class: text,
  scheduleRows: rows,
  shape: z.array(integer).describe("extents of the array"),
  flows: z.record(text, text).describe("how each operand moves"),
  shuffleDistance: number,
  boundaryLoads: number,
  cycles: number,
  latencyCycles: number,
  split: partOf<LoopSplit>("the loop that was split, of a polyphase form").optional(),
};
const designSchema = z.strictObject(designParts);
const loop = partOf<ArraySubject["problem"]["loops"][number]>("a loop of the array: name and extent");
const refused = integer.describe("transforms, before any are called equal");
const design = { designs: z.array(designSchema), refused };

export const listingSchema = documentOf({
  designs: z.array(
    designSchema.extend({
      orbit: integer.describe("the same number: equal under the operation's symmetries"),
      pareto: z.boolean().describe("no other beats it in PEs, steps, registers and length of shifts"),
    }),
  ),
  refused,
  polyphase: z.array(designSchema),
  machine: text.optional().describe("whose cycles"),
  operator: text,
  equation: text,
  loops: z.array(loop),
  reuse: z.record(text, rows).describe("directions in which each operand is reused"),
  candidates: integer,
  valid: integer.describe("of full rank"),
  unimodular: integer,
});
/** The document of `--show`, or of a transform given by the user. */
export const shownSchema = documentOf({
  ...design,
  operator: text,
  equation: text,
  loops: z.array(loop),
  recurrence: text,
});
/** The document of `--emit`. */
export const kernelSchema = documentOf({ ...design, language: z.enum(KERNEL_LANGUAGES), source: text });
export const refusedSchema = documentOf({
  designs: z.array(z.never()),
  refused,
  refusals: z.array(
    z.strictObject({
      rule: z.enum(REFUSALS),
      because: text,
      hint: text.optional(),
      vectors: rows.describe("two points that collide, or the dependence that runs backwards"),
    }),
  ),
});

interface ListingOptions {
  readonly bound: number;
  readonly registers?: number | undefined;
  readonly why: boolean;
  readonly all: boolean;
}

/** The table: the mapped computation, the number of designs, and those selected. */
export function describe(
  subject: ArraySubject,
  { problem, count, refused, designs }: DesignSet,
  fitting: readonly Design[],
  listed: readonly Design[],
  rows: readonly Design[],
  timed: Timing,
  { bound, registers, why, all }: ListingOptions,
  command: CommandLine,
): string {
  const classes = new Set(designs.map((d) => d.flowClass)).size;
  const lines = [
    ...head(subject),
    "",
    wrapped(
      `${style("bold", `${designs.length} designs`)} in ${counted(classes, "class", "classes")} of dataflow, of ${count.candidates} transforms with entries up to ${bound} (${count.valid} of full rank, ${count.unimodular} unimodular)`,
    ),
  ];
  if (fitting.length < designs.length)
    lines.push(`${designs.length - fitting.length} refused: more than ${registers} registers`);
  lines.push("", indent(fittedSparing([HEADER, ...rows.map((d) => row(d, timed))], SPARED, 2)));
  const splits = new Map(
    rows.flatMap(({ split: s }) => (s ? [[s.loop + s.factor, { ...s, columns: columnsOf(problem, s) }] as const] : [])),
  );
  for (const { loop, factor, outer, phase, columns } of splits.values())
    lines.push(
      indent(
        style("dim", `polyphase: ${loop} = ${factor}*${outer} + ${phase}; columns of the matrix ${columns.join(", ")}`),
      ),
    );
  if (listed.length < fitting.length)
    lines.push(indent(style("dim", `... ${fitting.length - listed.length} more (--all)`)));
  if (why) {
    const shown = all ? refused : refused.slice(0, SHOWN);
    const reasons = shown.map((t) => [
      printMatrix([...t.allocation, ...t.schedule]),
      refusalOf(problem, t)?.because ?? "singular",
    ]);
    lines.push("", "refused", indent(worded(reasons, 2)));
    if (shown.length < refused.length)
      lines.push(indent(style("dim", `... ${refused.length - shown.length} more (--all)`)));
  } else if (count.valid < count.candidates)
    lines.push("", style("dim", `${count.candidates - count.valid} transforms refused (--why)`));
  lines.push(
    "",
    style("dim", "draw one, step by step:"),
    style("dim", `  ${command} ${quotedWords("--show", rows[0]?.name)}`),
  );
  return lines.join("\n");
}

/** The head of the table: one pass, its loops, and the directions along which operands are reused. */
export function head({ name, equation, loops, problem }: ArraySubject): string[] {
  const rows = [
    [name, equation],
    ["loops", loops],
    ["reuse", printReuse(problem)],
  ];
  return [fitted(rows)];
}

const HEADER = [
  "name",
  "matrix",
  "dataflow",
  "PEs",
  "steps",
  "outturn",
  "utilisation",
  "registers",
  "coalesced",
  "cycles",
];

/** Columns that are left out where there is no room for them, in this order. */
const SPARED = ["coalesced", "registers", "outturn", "steps", "dataflow"];

function columnsOf({ loops }: DesignSet["problem"], { loop, outer, phase }: LoopSplit): string[] {
  return [...loops.map((l) => (l.name === loop ? outer : l.name)), phase];
}

function row(design: Design, { predict }: Timing): string[] {
  const moves = design.flows.map((f) => `${f.name} ${flowWords(f.role, f.code)}`).join(", ");
  return [
    design.name,
    printMatrix([...design.spaceTime.allocation, design.schedule]),
    moves,
    figure(design.pes),
    figure(design.steps),
    figure(design.outturn),
    percent(design.utilisation),
    figure(design.registers.plain),
    figure(design.registers.coalesced),
    round(predict(design).cycles),
  ];
}

export function listingDocument(
  subject: ArraySubject,
  { problem, count, designs: all }: DesignSet,
  designs: readonly ListedDesign[],
  fitting: number,
  forms: readonly Design[],
  timed: Timing,
): PartsOf<typeof listingSchema> {
  const best = new Set(paretoSet(all).map((d) => d.name));
  return {
    designs: designs.map((d) => ({ ...designDocument(d, timed), orbit: d.orbit, pareto: best.has(d.name) })),
    refused: count.candidates - count.valid + (all.length - fitting),
    polyphase: forms.map((d) => designDocument(d, timed)),
    machine: timed.machine.lanes?.name,
    operator: subject.name,
    equation: subject.equation,
    loops: problem.loops,
    reuse: Object.fromEntries(problem.operands.map((o) => [o.name, o.reuse])),
    ...count,
  };
}

export function designDocument(d: Design, { predict }: Timing): Told<z.input<typeof designSchema>> {
  const { cycles, latencyCycles } = predict(d);
  const { name, dataflow, flowClass, spaceTime, schedule, pes, steps, outturn, utilisation, registers } = d;
  return {
    name,
    dataflow,
    allocation: spaceTime.allocation,
    schedule,
    pes,
    steps,
    outturn,
    utilisation,
    registers,
    class: flowClass,
    scheduleRows: spaceTime.schedule,
    shape: d.shape,
    flows: Object.fromEntries(d.flows.map((f) => [f.name, flowWords(f.role, f.code)])),
    shuffleDistance: d.shuffleDistance,
    boundaryLoads: d.boundaryLoads,
    cycles,
    latencyCycles,
    ...(d.split ? { split: d.split } : {}),
  };
}
