/**
 * @file `automap systolic`: lists every systolic array that computes an operator, an equation or a recurrence on lanes. Its subject is one pass of
 * an operator, an equation, or a file of recurrences.
 *
 *     conv1d                                       single channel, a tile of 16 outputs, filter 5: the case of the published table
 *     "z[c] += x[c+q]*w[q]" --c 16 --q 5
 *     design.ure
 *
 *     automap systolic conv1d
 *     automap systolic matmul --m 3 --n 3 --k 3 --show FFS
 *     automap systolic conv1d --allocation "1,1" --schedule "0,1"
 *
 * Prints the table of designs, or a JSON document.
 */

import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { z } from "zod";
import type { Extents } from "../abstraction/affine.ts";
import { namesOf } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import {
  automapCommand,
  type CommandLine,
  quotedWords,
  reasonOf,
  UsageError,
  unreadable,
} from "../abstraction/error.ts";
import { KERNEL_LANGUAGES } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { printRecurrence, type SpaceTime } from "../abstraction/recurrence.ts";
import { parseSpecification, type Specification } from "../abstraction/specification.ts";
import { flowWords } from "../mapper/space-time/classify.ts";
import type { Design } from "../mapper/space-time/design.ts";
import type { DesignSet, ListedDesign } from "../mapper/space-time/enumerate.ts";
import { paretoSet } from "../mapper/space-time/pareto.ts";
import { type LoopSplit, pointsOfProblem, printReuse } from "../mapper/space-time/problem.ts";
import { REFUSALS, refusalOf, type SpaceTimeRefusal } from "../mapper/space-time/validity.ts";
import { printMatrix } from "../mapper/space-time/vector.ts";
import { OPERATORS } from "../operators/index.ts";
import { explainDesign, round } from "../perfmodel/design.ts";
import { drawArray, figure } from "../report/draw-array.ts";
import { drawArraySvg } from "../report/draw-array-svg.ts";
import { counted, indent, percent } from "../report/text.ts";
import {
  type ArraySubject,
  arrayOfComputation,
  arrayOfSpecification,
  inWrittenOrder,
  viewOf,
} from "../session/kinds/array-subject.ts";
import {
  arrayKernel,
  arraysOf,
  byTime,
  chosenArrays,
  designNamed,
  fits,
  judgeArray,
  MOST_DRAWN,
  noneFits,
  polyphaseOf,
  SHOWN,
  type Timing,
  timingOf,
  tracedArray,
} from "../session/systolic.ts";
import { laneTarget } from "../targets/index.ts";
import type { Cli } from "./command.ts";
import { checkOneOutput, checkWritable, writeKernel, writeOutput } from "./files.ts";
import { flag, optionalText, optionalWord, optionWords, positiveInteger, readParameters } from "./options.ts";
import {
  documentOf,
  EXIT,
  type ExitCode,
  integer,
  number,
  type PartsOf,
  partOf,
  print,
  printJson,
  style,
  type Told,
  text,
} from "./output.ts";
import { readComputation } from "./subject.ts";
import { fitted, fittedSparing, worded, wrapped } from "./terminal.ts";

/** Languages a design can be emitted in, by the words of --emit. */
const EMITTED = ["cm", "cuda", "cpp", "opencl", "sycl"] as const;
const EMITTED_TEXT = EMITTED.join(", ");

const options = z.object({
  lanes: positiveInteger.default(16),
  bound: positiveInteger.default(1),
  array: z.enum(["1", "2"], { error: "--array is 1 (a row of PEs) or 2 (a plane)" }).optional(),
  loops: optionalText,
  dtype: optionalText,
  sum: optionalText,
  top: positiveInteger.optional(),
  all: flag,
  pareto: flag,
  why: flag,
  show: optionalText,
  svg: optionalWord,
  allocation: optionalText,
  schedule: optionalText,
  keepOrder: flag,
  registers: positiveInteger.optional(),
  emit: z.enum(EMITTED, { error: `--emit is ${EMITTED_TEXT}` }).optional(),
  to: optionalWord,
  coalesced: flag,
  checkTime: flag,
  machine: optionalText,
  json: flag,
});
type Options = z.infer<typeof options>;

export function register(command: Cli): void {
  command
    .json(z.union([listingSchema, shownSchema, kernelSchema, refusedSchema]))
    .argument("<operator, equation or file>", "an operator's name, an equation in quotes, or a file")
    .option("--<axis or parameter> <n>", "extent of an axis or value of a parameter, for example --r 3 --stride 2")
    .option("--lanes <n>", "outputs of a tile: loops that are longer are tiled (default: 16)")
    .option("--bound <n>", "largest entry of a transform (default: 1)")
    .option("--array <n>", "dimensions of the array, 1 or 2 (default: 1 for windows, 2 for products)")
    .option("--loops <names>", "loops of the array, as in q,r,s (default: chosen; the others stay outside)")
    .option("--top <n>", "how many to list (default: the best of each dataflow; with --json all)")
    .option("--all", "list every design and every refusal")
    .option("--pareto", "list the Pareto-optimal designs in PEs, steps, registers and shift lengths")
    .option("--show <name>", "draw one design: what every PE holds at every step")
    .option("--svg <file>", "draw it into an SVG file too; without --show the best")
    .option("--allocation <rows>", 'a transform of your own: where points run, "1,1", rows apart by ";"')
    .option("--schedule <rows>", 'and when: "0,1"; of several rows the first is slowest')
    .option("--machine <name>", "machine whose cycles rank designs: avx512 (default), warp or gen9")
    .option("--keep-order", "form sums in the order they are written (default: from either end)")
    .option("--registers <n>", "refuse designs that need more than n coalesced registers")
    .option("--dtype <types>", "element types: f16, bf16, u8s8 ... (default: f32)")
    .option("--sum <type>", "type sums are formed in")
    .option("--emit <language>", `print the kernel: ${EMITTED_TEXT} (cpp: AVX-512); of --show, else of the best`)
    .option("--to <file>", "write the kernel there")
    .option("--coalesced", "emit s.d registers for each variable instead of s.d + 1")
    .option("--check-time", "emit code in which PEs that have no point stay idle")
    .option("--why", "list the refused transforms with the points that collide")
    .allowUnknownOption()
    .allowExcessArguments()
    .examples(
      [
        "automap systolic conv1d",
        "automap systolic conv1d --stride 2 --bound 2 --json",
        'automap systolic "z[c] += x[c+q]*w[q]" --c 16 --q 5 --show SBM --svg sbm.svg',
        "automap systolic matmul --m 3 --n 3 --k 3 --show FFS",
        'automap systolic conv2d --r 5 --s 5 --allocation "1,0,1" --schedule "0,1,5"',
        "automap systolic conv1d --stride 2 --show SBM.polyphase",
        "automap systolic conv1d --show SBM --coalesced --emit cuda --to sbm.cu",
        "automap systolic examples/sbm.ure --emit cm",
      ],
      "Exit code 3 means that the transform is invalid; the sentence names the points or the dependence.",
    )
    .runs(options, runSystolic);
}

function runSystolic(given: Options, commander: Command, word: string): ExitCode {
  checkOneOutput(given);
  const subject = readArraySubject(word, readParameters(commander), given);
  if (given.to !== undefined && given.emit === undefined)
    throw new UsageError("--to names a file for a kernel, so it needs --emit", `--emit ${EMITTED_TEXT}`);
  const command: readonly string[] = ["systolic", ...commander.args, ...keptOptions(given)];
  if (subject.fixed) return runFixed(subject, subject.fixed, word, given, command);
  if (given.allocation !== undefined || given.schedule !== undefined) return runOwn(subject, given, command);
  const rows = given.array === undefined ? undefined : Number(given.array);
  const { set, fitting, timed } = arraysOf(subject, { ...given, rows, machine: machineOf(given) });
  if (fitting.length === 0) {
    const refused = set.count.candidates - set.count.valid + set.designs.length;
    return reportRefusal(noneFits(subject, set, given.registers), given.json, refused);
  }

  if (given.show !== undefined || given.svg !== undefined || given.emit !== undefined) {
    const design = given.show === undefined ? fitting[0] : designNamed(subject, given.show, fitting);
    if (design) return show(subject, design, given, command);
  }
  const listed = chosenArrays(fitting, given);
  const forms = listed.flatMap((d) => polyphaseOf(subject, d) ?? []).filter((d) => fits(d, given.registers));
  if (given.json) {
    const all = given.top === undefined && !given.pareto ? fitting : listed;
    printJson(listingSchema, listingDocument(subject, set, all, fitting.length, forms, timed));
  } else
    print(
      describe(
        subject,
        set,
        fitting,
        listed,
        byTime<Design>([...listed, ...forms], timed),
        timed,
        given,
        automapCommand(command),
      ),
    );
  return EXIT.ok;
}

/** Handles a specification that gives its design: validates it, then draws or emits it. */
function runFixed(
  subject: ArraySubject,
  spaceTime: SpaceTime,
  word: string,
  given: Options,
  command: readonly string[],
): ExitCode {
  const other = (["allocation", "schedule", "loops", "array"] as const).find((option) => given[option] !== undefined);
  if (other !== undefined)
    throw new UsageError(
      `${word} says its own space_time_transform; --${other} has no place beside it`,
      "take the transform out of the file to have its designs listed",
    );
  const judged = judgeArray(subject, spaceTime, given.registers);
  if ("refusal" in judged) return reportRefusal(judged.refusal, given.json, 1);
  const { design } = judged;
  if (given.show !== undefined && given.show.toLowerCase() !== design.name.toLowerCase())
    throw new UsageError(`no design "${given.show}"`, `${word} is ${design.name}`);
  // Problems that appear only in lowering: a reverse transform that does not invert, loops that cannot be tiled.
  subject.program?.(design, {});
  return show(subject, design, given, command);
}

/** The given options that determine the set of designs. */
function keptOptions({ lanes, bound, array, loops, dtype, sum, keepOrder }: Options): string[] {
  const words = optionWords({
    lanes: lanes === options.shape.lanes.parse(undefined) ? undefined : lanes,
    bound: bound === options.shape.bound.parse(undefined) ? undefined : bound,
    array,
    loops,
    dtype,
    sum,
  });
  return keepOrder ? [...words, "--keep-order"] : words;
}

function reportRefusal(refusal: SpaceTimeRefusal, json: boolean, refused: number): ExitCode {
  if (json) printJson(refusedSchema, { designs: [], refused, refusals: [refusal] });
  else
    print(
      [
        `${style("red", "refused")}: ${refusal.rule}`,
        indent(refusal.because),
        ...(refusal.hint ? [indent(refusal.hint)] : []),
      ].join("\n"),
    );
  return EXIT.nothingFound;
}

/** Handles a transform given by the user: validates it, then draws it. */
function runOwn(subject: ArraySubject, given: Options, command: readonly string[]): ExitCode {
  const { problem } = subject;
  if (given.allocation === undefined || given.schedule === undefined)
    throw new UsageError(
      `--${given.allocation === undefined ? "allocation" : "schedule"} is missing`,
      'a transform says where and when: --allocation "1,1" --schedule "0,1"',
    );
  const spaceTime: SpaceTime = {
    allocation: readRows(given.allocation, "--allocation"),
    schedule: readRows(given.schedule, "--schedule"),
  };
  const judged = judgeArray(subject, spaceTime, given.registers);
  if ("design" in judged) return show(subject, judged.design, given, command);
  const { refusal } = judged;
  if (refusal.rule === "shape")
    throw new UsageError(refusal.because, `a row has an entry for each of ${namesOf(problem.loops).join(", ")}`);
  return reportRefusal(refusal, given.json, 1);
}

/** Shows one design: a drawing, or a program. */
function show(subject: ArraySubject, design: Design, given: Options, command: readonly string[]): ExitCode {
  if (given.emit !== undefined) return emit(subject, design, given, command);
  const { problem, recurrence } = viewOf(subject, design);
  const timed = timingOf(subject, machineOf(given));
  const traced = tracedArray(subject, design);
  if (given.svg !== undefined && !traced)
    throw new UsageError(
      `${figure(pointsOfProblem(problem))} points are too many to draw`,
      `at most ${MOST_DRAWN} are followed one by one; --lanes makes shorter tiles`,
    );
  if (given.svg !== undefined) checkWritable("--svg", given.svg);
  if (given.json)
    printJson(shownSchema, {
      designs: [designDocument(design, timed)],
      refused: 0,
      operator: subject.name,
      equation: subject.equation,
      loops: problem.loops,
      recurrence: printRecurrence(recurrence(design)),
    });
  else
    print(
      [
        ...head(subject),
        "",
        drawArray(problem, design, traced),
        "",
        indent(explainDesign(design, timed.predict(design), timed.machine)),
        "",
        indent(printRecurrence(recurrence(design))),
      ].join("\n"),
    );
  if (given.svg !== undefined && traced)
    writeOutput(
      "--svg",
      given.svg,
      drawArraySvg(`${subject.name}: ${design.name}`, `${subject.equation}   loops ${subject.loops}`, design, traced),
    );
  return EXIT.ok;
}

function emit(subject: ArraySubject, design: Design, given: Options, command: readonly string[]): ExitCode {
  const flags = Object.entries({ "--coalesced": given.coalesced, "--check-time": given.checkTime });
  const chosen = subject.fixed
    ? []
    : given.allocation === undefined
      ? ["--show", design.name]
      : ["--allocation", given.allocation, "--schedule", given.schedule ?? ""];
  const language = given.emit === "cpp" || given.emit === undefined ? "c++" : given.emit;
  const words = [...command, ...chosen, ...flags.flatMap(([flag, on]) => (on ? [flag] : []))];
  const kernel = arrayKernel(
    subject,
    design,
    language,
    { coalesced: given.coalesced, checkTime: given.checkTime },
    automapCommand(words, "--emit", given.emit),
  );
  const { source } = kernel;
  if (given.to !== undefined) writeKernel(given.to, kernel);
  if (given.json) {
    const timed = timingOf(subject, machineOf(given));
    printJson(kernelSchema, { designs: [designDocument(design, timed)], refused: 0, language, source });
  } else if (given.to === undefined) print(source.trimEnd());
  return EXIT.ok;
}

/** The machine whose cycles rank designs. */
function machineOf({ machine, emit: language }: Options): Target {
  return laneTarget(
    machine ?? (language === undefined || language === "cpp" ? "avx512" : language === "cuda" ? "warp" : "gen9"),
  );
}

/** Parses `1,0,0;0,1,0` into rows. */
function readRows(text: string, option: string): number[][] {
  return text.split(";").map((part) =>
    part.split(",").map((entry) => {
      const trimmed = entry.trim();
      if (!/^[+-]?\d{1,9}$/.test(trimmed))
        throw new UsageError(
          `${option}: "${trimmed}" is not an integer`,
          `for example ${option} "1,1"; rows are set apart by ";"`,
        );
      return Number(trimmed) + 0;
    }),
  );
}

// ---- the subject

/** Defaults that differ from the operator's own: the filter sizes of the published table. */
const ARRAY_DEFAULTS: Readonly<Record<string, Extents>> = {
  conv1d: { r: 5 },
  "conv1d-single": { r: 5 },
};

/** Those options that say what a subject is. */
type WordOptions = Pick<Options, "lanes"> & Partial<Pick<Options, "loops" | "dtype" | "sum" | "keepOrder">>;

/** @throws UsageError for words that name nothing, and for computations without a uniform recurrence */
export function readArraySubject(subject: string, parameters: Extents, options: WordOptions): ArraySubject {
  const loops = options.loops?.split(",").map((name) => name.trim());
  const found = isFile(subject)
    ? arrayOfSpecification(specificationIn(subject, parameters), loops)
    : arrayOfComputation(computationFor(subject, parameters, options), { loops, lanes: options.lanes });
  return options.keepOrder ? inWrittenOrder(found) : found;
}

/** Operator names contain no dot and no slash; equations contain brackets. */
function isFile(subject: string): boolean {
  return !subject.includes("[") && /[./]/.test(subject);
}

function computationFor(subject: string, parameters: Extents, { dtype, sum }: WordOptions): Computation {
  const operator = OPERATORS.find((o) => o.name === subject.toLowerCase() || o.aliases.includes(subject.toLowerCase()));
  const defaults = operator ? ARRAY_DEFAULTS[operator.name] : undefined;
  return readComputation(subject, { ...defaults, ...parameters }, { dtype, sum });
}

function specificationIn(file: string, parameters: Extents): Specification {
  const [given] = Object.keys(parameters);
  if (given !== undefined)
    throw new UsageError(
      `${file} says how long its loops are; --${given} has no place there`,
      "change the line that begins with loops",
    );
  return parseSpecification(readText(file));
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw unreadable(
      `cannot read ${file}: ${reasonOf(error)}`,
      error,
      "an operator's name, an equation in quotes, or a file of recurrences is wanted",
    );
  }
}

// ---- the output --------------------------------------------------------------------------------------------------------------------------

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

const listingSchema = documentOf({
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
const shownSchema = documentOf({
  ...design,
  operator: text,
  equation: text,
  loops: z.array(loop),
  recurrence: text,
});
/** The document of `--emit`. */
const kernelSchema = documentOf({ ...design, language: z.enum(KERNEL_LANGUAGES), source: text });
const refusedSchema = documentOf({
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
function describe(
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
function head({ name, equation, loops, problem }: ArraySubject): string[] {
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

function listingDocument(
  subject: ArraySubject,
  { problem, count, designs: all }: DesignSet,
  designs: readonly ListedDesign[],
  fitting: number,
  forms: readonly Design[],
  timed: Timing,
): PartsOf<typeof listingSchema> {
  const best = new Set(namesOf(paretoSet(all)));
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

function designDocument(d: Design, { predict }: Timing): Told<z.input<typeof designSchema>> {
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
