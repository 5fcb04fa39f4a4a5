/**
 * @file `automap explain`: draws one mapping, explains why a match is refused with the entry that disagrees and a counterexample, or breaks down
 * a record's time.
 *
 *     automap explain conv2d --intrinsic amx.tdpbusd
 *     automap explain conv2d --intrinsic amx.tdpbusd --matching "m=n,k n=k k=c"
 *
 * `automap explain` for a record: the measurement, the model's view of it level by level, and where the time goes.
 *
 *     automap explain 3f9a1c77d0e2 --db automap.db
 *     automap explain conv2d --dtype u8s8 --layout NHWC --candidate best
 */

import type { Command } from "commander";
import { z } from "zod";
import type { Candidate } from "../abstraction/candidate.ts";
import { defined } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { isRecurrent } from "../abstraction/dependence.ts";
import { automapCommand, NotFoundError, suggestion, UsageError } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Binding, Mapping, Matching, Refusal } from "../abstraction/mapping.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { day } from "../abstraction/text.ts";
import { type Prediction, printClock } from "../abstraction/trial.ts";
import {
  best,
  type Database,
  DEFAULT_DATABASE,
  databaseWords,
  labelOf,
  shortId,
  showTrial,
  type TrialRecord,
} from "../db/index.ts";
import { lowerMapping } from "../mapper/lower/plain.ts";
import { type AccessMatrices, accessMatrices } from "../mapper/match/access.ts";
import { bindOperands } from "../mapper/match/bind.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { physicalMapping } from "../mapper/match/physical.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { validate } from "../mapper/match/validate.ts";
import type { Costs } from "../perfmodel/correct.ts";
import { explainPrediction } from "../perfmodel/explain.ts";
import { candidateRows } from "../report/describe-candidate.ts";
import { drawMapping, drawRefusal } from "../report/draw-mapping.ts";
import { drawMappingSvg } from "../report/draw-svg.ts";
import { indent, printTime } from "../report/text.ts";
import { contradictionText } from "../session/calibrate/contradiction.ts";
import { explainTrial, type TrialExplanation } from "../session/report/explain.ts";
import { type DesignCost, describeDesigns } from "../session/report/explain-designs.ts";
import type { Cli } from "./command.ts";
import { contradictionDocument, contradictionSchema } from "./contradiction.ts";
import { otherTypes } from "./db/records.ts";
import { checkWritable, writeOutput } from "./files.ts";
import {
  addMappingOptions,
  mappingDocument,
  mappingOptions,
  mappingSchema,
  readForm,
  refusalDocument,
  refusalSchema,
} from "./map.ts";
import { flag, optionalText, optionalWord, readParameters } from "./options.ts";
import {
  counts,
  documentOf,
  EXIT,
  type ExitCode,
  integer,
  number,
  partOf,
  print,
  printJson,
  say,
  style,
  text,
  texts,
} from "./output.ts";
import { namesOf, readComputation, readIntrinsics } from "./subject.ts";
import { fitted, sentenceRoom, wrapped } from "./terminal.ts";
import { withDatabase } from "./with-database.ts";

const options = mappingOptions.extend({
  id: optionalText,
  matching: optionalText,
  svg: optionalText,
  nest: flag,
  candidate: optionalText,
  db: optionalWord,
});
type Options = z.infer<typeof options>;

const matrix = z.strictObject({
  rows: texts,
  columns: texts,
  bits: z.array(z.array(integer)),
});
const kind = z.enum(["spatial", "reduce"]);
const mappedSchema = documentOf({
  operator: text,
  verdict: z.literal("maps"),
  mapping: mappingSchema,
  matrices: z
    .strictObject({ x: matrix, y: matrix, z: matrix })
    .describe("accesses of the software, the matching, accesses of the instruction: docs/mapping.md"),
  axes: z.array(
    z.strictObject({
      axis: text,
      index: text.describe("of the loops that feed it, fused"),
      fused: integer,
      extent: integer,
      tiles: integer,
      padded: integer,
    }),
  ),
  outer: z.array(z.strictObject({ name: text, extent: integer, kind })).describe("loops that feed no axis"),
  operands: z.array(
    z.strictObject({
      operand: text,
      base: text.describe("where a tile begins"),
      stride: integer.optional().describe("between rows of a tile; missing where it has none"),
      tileElements: integer,
      elements: integer,
    }),
  ),
  issues: number.describe("of the instruction"),
});
const refusedSchema = documentOf({
  operator: text,
  verdict: z.literal("refused"),
  refusal: refusalSchema.partial({ intrinsic: true }).describe("of every instruction where none is named"),
});

export function register(command: Cli): void {
  addMappingOptions(command)
    .json(z.union([mappedSchema, refusedSchema, recordSchema]))
    .option("--id <id>", "the mapping with this id, or the beginning of one (default: the best)")
    .option("--matching <text>", 'a match of your own: "m=n,p,q n=k k=c,r,s"')
    .option("--svg <file>", "also write a drawing of the mapping as SVG")
    .option("--nest", "print the lowered loop nest")
    .option("--candidate <which>", "break down the time of a recorded kernel: best, or the id of a record")
    .option("--db <file>", "database that holds the record (default: automap.db in this directory)")
    .examples([
      "automap explain conv2d --intrinsic amx.tdpbusd",
      'automap explain conv2d --intrinsic amx.tdpbusd --matching "m=n,k n= k=c"',
      "automap explain conv2d --intrinsic wmma.m16n16k16.f32.f16 --svg mapping.svg",
      "automap explain conv2d --dtype u8s8 --layout NHWC --candidate best --db automap.db",
      "automap explain 3f9a1c77d0e2 --db automap.db",
    ])
    .runs(options, runExplain);
}

/** A match with the matrices it was validated against. */
interface Judged {
  readonly matrices: AccessMatrices;
  readonly binding: Binding;
}

type Explained =
  | { readonly kind: "mapping"; readonly mapping: Mapping }
  | { readonly kind: "refusal"; readonly refusal: Refusal; readonly judged: Judged | undefined };

function runExplain(given: Options, command: Command, subject: string): ExitCode {
  const { candidate, db } = given;
  if (candidate !== undefined) {
    if (candidate !== "best") return explainRecord(candidate, given);
    const computation = readComputation(subject, readParameters(command), given);
    return explainBest(computation, given);
  }
  if (isRecordId(subject)) return explainRecord(subject, given);
  if (db !== undefined)
    throw new UsageError(
      "--db goes with the id of a record, or with --candidate",
      "for example automap explain conv2d --candidate best --db automap.db",
    );
  const lone = given.intrinsic === undefined ? readComputation(subject, readParameters(command), given) : undefined;
  if (lone && isRecurrent(lone.equation)) return explainRecurrence(lone, given);
  if (given.intrinsic === undefined)
    throw new UsageError(
      "explain needs --intrinsic",
      "for example --intrinsic amx.tdpbusd; `automap intrinsic list` shows all",
    );
  const found = readIntrinsics(given.intrinsic);
  const parameters = readParameters(command);
  const computationFor = (intrinsic: Intrinsic): Computation => readForm(subject, parameters, given, intrinsic);
  // Of a family, the first instruction that maps is explained, or the refusal of the first one.
  const tries = found.map((intrinsic) => ({
    intrinsic,
    computation: computationFor(intrinsic),
    explained: explainOn(computationFor(intrinsic), intrinsic, given, found.length > 1),
  }));
  const chosen = tries.find((t) => t.explained?.kind === "mapping") ?? tries.find((t) => t.explained !== undefined);
  if (!chosen?.explained)
    throw new NotFoundError(
      `no mapping of ${subject} has an id beginning with "${given.id}"`,
      "`automap map` lists the ids for the same operator, extents and types",
    );
  const { intrinsic, computation, explained } = chosen;
  if (found.length > 1) say(`${given.intrinsic} has ${found.length} instructions; explaining ${intrinsic.name}`);

  if (explained.kind === "refusal") {
    const { refusal, judged } = explained;
    if (given.json)
      printJson(refusedSchema, {
        operator: computation.name,
        verdict: "refused",
        refusal: refusalDocument(refusal, intrinsic),
      });
    else print(drawRefusal(refusal, computation, intrinsic, judged, sentenceRoom()));
    return EXIT.nothingFound;
  }
  const { mapping } = explained;
  if (given.svg !== undefined) checkWritable("--svg", given.svg);
  if (given.json) printJson(mappedSchema, explainDocument(mapping));
  else
    print(
      [
        drawMapping(mapping),
        ...(given.nest ? ["", "lowered with the trivial schedule", printNest(lowerMapping(mapping))] : []),
      ].join("\n"),
    );
  if (given.svg !== undefined) writeSvg(given.svg, mapping);
  return EXIT.ok;
}

/** Explains why no instruction computes a recurrence, and which command explains its kernels. */
function explainRecurrence({ name, equation }: Computation, { json }: Options): ExitCode {
  const because = `${equation.target.tensor} reads itself: its points depend on one another in order`;
  const hint =
    "tune runs it on vector lanes where one of their designs fits; explain --candidate best says where the time of the fastest goes";
  if (json) {
    const refusal = { rule: "recurrence" as const, because, matching: {}, hint, place: undefined, witness: undefined };
    printJson(refusedSchema, { operator: name, verdict: "refused", refusal });
  } else print(`no instruction computes this: ${because}\n  ${hint}`);
  return EXIT.nothingFound;
}

/** The requested mapping or refusal for one instruction; undefined when the id is not among its mappings. */
function explainOn(
  computation: Computation,
  intrinsic: Intrinsic,
  given: Options,
  family: boolean,
): Explained | undefined {
  const rule = given.rule ?? "gather";
  if (given.matching !== undefined) {
    const { bindings, refusals } = bindOperands(
      computation,
      intrinsic,
      (given.binding ?? (rule === "amos" ? "fixed" : "any")) === "any",
    );
    const [refusal] = refusals;
    if (refusal) return { kind: "refusal", refusal, judged: undefined };
    const matching = readMatching(given.matching);
    const judged = bindings.map((binding) => ({
      binding,
      verdict: validate(defineProblem(computation, intrinsic, binding), matching, { rule, strict: given.strict }),
    }));
    const best = judged.find((j) => j.verdict.ok) ?? judged[0];
    if (!best) return undefined;
    if (best.verdict.ok) return { kind: "mapping", mapping: best.verdict.mapping };
    return {
      kind: "refusal",
      refusal: best.verdict.refusal,
      judged: {
        matrices: accessMatrices(computation, intrinsic, best.binding, best.verdict.refusal.matching),
        binding: best.binding,
      },
    };
  }
  const set = mappings(computation, intrinsic, {
    rule,
    strict: given.strict,
    ...defined({ binding: given.binding }),
  });
  const { id } = given;
  if (id !== undefined) {
    const matches = set.valid.filter((m) => m.id.startsWith(id));
    if (matches.length > 1)
      throw new UsageError(
        `the id "${id}" fits ${matches.length} mappings`,
        suggestion(
          id,
          matches.map((m) => m.id),
        ),
      );
    const [only] = matches;
    if (only) return { kind: "mapping", mapping: only };
    if (family || set.valid.length > 0) return undefined;
  }
  const [best] = set.valid;
  if (best) return { kind: "mapping", mapping: best };
  const [refusal] = set.refused;
  return refusal && { kind: "refusal", refusal, judged: undefined };
}

/** Parses `m=n,p,q n=k k=c,r,s`. An empty list leaves the axis unfed. */
function readMatching(text: string): Matching {
  const parts = text.split(/[\s;]+/).filter((p) => p !== "");
  const entries = parts.map((part): [string, string[]] => {
    const match = /^(\w+)(?:=|<-)([\w,]*|-)$/.exec(part);
    if (!match?.[1])
      throw new UsageError(`--matching: "${part}" is not axis=loop,loop`, {
        source: text,
        span: { start: text.indexOf(part), end: text.indexOf(part) + part.length },
        hint: 'for example --matching "m=n,p,q n=k k=c,r,s"',
      });
    return [match[1], (match[2] ?? "").split(",").filter((l) => l !== "" && l !== "-")];
  });
  return Object.fromEntries(entries);
}

function explainDocument(mapping: Mapping) {
  const { x, y, z } = accessMatrices(mapping.computation, mapping.intrinsic, mapping.binding, mapping.matching);
  const physical = physicalMapping(mapping);
  return {
    operator: mapping.computation.name,
    verdict: "maps" as const,
    mapping: mappingDocument(mapping),
    matrices: { x, y, z },
    axes: physical.axes.map((a) => ({
      axis: a.axis,
      index: printExpr(a.index, "formula"),
      fused: a.fused,
      extent: a.extent,
      tiles: a.tiles,
      padded: a.padded,
    })),
    outer: physical.outer,
    operands: physical.operands.map((o) => ({
      operand: o.operand.name,
      base: printExpr(o.base, "formula"),
      stride: o.stride,
      tileElements: o.tile,
      elements: o.elements,
    })),
    issues: physical.issues,
  };
}

function writeSvg(file: string, mapping: Mapping): void {
  writeOutput("--svg", file, drawMappingSvg(mapping));
  say(`drawn into ${file}`);
}

const recordSchema = documentOf({
  id: text,
  workload: text,
  operator: text,
  shape: counts,
  candidate: partOf<Candidate>("instruction, matching and schedule: docs/schedule.md"),
  provenance: z.enum(["here", "imported"]),
  status: text,
  microseconds: number.nullable(),
  recordedPrediction: partOf<Prediction>("of the model when it was tried").nullable(),
  prediction: partOf<Prediction>("of the model now, level by level").nullable(),
  costs: partOf<Costs>("the parts of that prediction").nullable(),
  calibrationContradicted: contradictionSchema,
  designs: z
    .array(partOf<DesignCost>("of a design on lanes: the best schedule of a dataflow, and what it would have cost"))
    .nullable(),
  because: text.nullable().describe("why the model cannot explain it"),
});

interface Given {
  readonly db?: string | undefined;
  readonly intrinsic?: string | undefined;
  readonly json: boolean;
}

/** Whether a word is a record id: eight hex digits or more, which no operator name is. */
function isRecordId(word: string): boolean {
  return /^[0-9a-f]{8,32}$/.test(word);
}

function explainRecord(id: string, given: Given): ExitCode {
  return withDatabase(given.db ?? DEFAULT_DATABASE, (db) => explain(db, showTrial(db, id), given));
}

/** Explains the fastest record of a computation, on whatever machine it was made. */
function explainBest(computation: Computation, given: Given): ExitCode {
  return withDatabase(given.db ?? DEFAULT_DATABASE, (db) => {
    const names = namesOf(given.intrinsic);
    const [trial] = best(db, { computation, ...(names ? { intrinsic: names } : {}) }, { imported: true });
    if (trial?.provenance === "imported")
      say(`automap: nothing of this ${computation.name} was measured here: record ${shortId(trial.id)} was imported`);
    if (trial) return explain(db, trial, given);
    const others = otherTypes(db, computation);
    throw new NotFoundError(
      `${db.path} holds no kernel of this ${computation.name} that worked`,
      `${others === undefined ? "" : `${others}; `}types, layout and extents must be those it was tuned with; ${automapCommand("db", "best", databaseWords(db.path))} lists what there is`,
    );
  });
}

function explain(db: Database, trial: TrialRecord, { json }: Given): ExitCode {
  const explained = explainTrial(db, trial);
  if (json) printJson(recordSchema, explanationDocument(trial, explained));
  else print(describe(trial, explained, db.path));
  return EXIT.ok;
}

function describe(trial: TrialRecord, explained: TrialExplanation, path: string): string {
  const { id, workload, candidate, measurement, prediction, environment, conditions } = trial;
  const measured =
    measurement.status === "ok"
      ? `${printTime(measurement.median)}, 95 % within ${printTime(measurement.interval[0])} to ${printTime(measurement.interval[1])}`
      : measurement.status;
  return [
    wrapped(`${style("bold", `trial ${shortId(id)}`)}   ${labelOf(workload)}   ${environment.cpu}`),
    "",
    fitted([
      ...candidateRows(candidate),
      [trial.provenance === "here" ? "measured" : "imported", measured],
      conditions.clock && ["clock", printClock(conditions.clock)],
      ["predicted", prediction ? `${printTime(prediction.seconds)} when it was tried` : "not when it was tried"],
    ]),
    "",
    explained.status === "designs"
      ? describeDesigns(explained)
      : explained.status === "unknown"
        ? wrapped(`the model cannot explain it: ${explained.because}`)
        : [
            `the model now, uncorrected, ${ratesText(explained, path)}`,
            indent(explainPrediction(explained.prediction, explained.costs)),
            ...comparison(trial, explained.prediction.seconds),
            ...(explained.contradiction ? [style("red", contradictionText(explained.contradiction, path))] : []),
          ].join("\n"),
    "",
    `record   ${automapCommand("db", "show", shortId(id), databaseWords(path))}`,
  ].join("\n");
}

function ratesText(
  { calibratedAt, ratesOf }: Extract<TrialExplanation, { readonly status: "explained" }>,
  path: string,
): string {
  if (ratesOf !== undefined && calibratedAt === undefined)
    return `with the rates of ${ratesOf} in the table of machines (${automapCommand("calibrate", "--target", "cuda", databaseWords(path))} measures this one's)`;
  return calibratedAt === undefined
    ? `with the rates of the reference machine (${automapCommand("calibrate", databaseWords(path))} measures this one's)`
    : `with the rates calibrated on ${day(calibratedAt)}`;
}

function comparison({ measurement }: TrialRecord, seconds: number): string[] {
  if (measurement.status !== "ok") return [];
  return [`measured is ${(measurement.median / seconds).toFixed(2)} times that`];
}

function explanationDocument(trial: TrialRecord, explained: TrialExplanation) {
  const { id, workload, candidate, measurement, prediction } = trial;
  return {
    id,
    workload: labelOf(workload),
    operator: workload.operator,
    shape: { ...workload.extents, ...workload.parameters },
    candidate,
    provenance: trial.provenance,
    status: measurement.status,
    microseconds: measurement.status === "ok" ? measurement.median * 1e6 : null,
    recordedPrediction: prediction ?? null,
    prediction: explained.status === "explained" ? explained.prediction : null,
    costs: explained.status === "explained" ? explained.costs : null,
    calibrationContradicted: explained.status === "explained" ? contradictionDocument(explained.contradiction) : null,
    designs: explained.status === "designs" ? explained.designs : null,
    because: explained.status === "unknown" ? explained.because : null,
  };
}
