/**
 * @file `automap check`: a gate for CI. It fails when the best kernel of a workload is slower than the baseline's by more than the allowed
 * share.
 *
 *     automap check --baseline old.db --db new.db --max-regression 3%
 *     automap check --baseline old.db --junit check.xml
 */

import { z } from "zod";
import { automapCommand } from "../abstraction/error.ts";
import {
  best,
  type Database,
  databaseWords,
  labelOf,
  operatorsIn,
  queryTrials,
  shortId,
  type TrialRecord,
} from "../db/index.ts";
import { junit } from "../report/junit.ts";
import { counted, indent, printTime } from "../report/text.ts";
import { type Checked, compareBest, type Finding, verdictFails } from "../session/report/check.ts";
import type { Cli } from "./command.ts";
import { readOperator } from "./db/filters.ts";
import { intervalSchema } from "./db/records.ts";
import { checkWritable, writeOutput } from "./files.ts";
import { databaseFile, flag, optionalText, optionalWord } from "./options.ts";
import {
  counts,
  documentOf,
  EXIT,
  type ExitCode,
  integer,
  number,
  type PartsOf,
  print,
  printJson,
  say,
  style,
  text,
  texts,
} from "./output.ts";
import { fitted, wrapped } from "./terminal.ts";
import { withDatabase } from "./with-database.ts";

const options = z.object({
  baseline: z.string({ error: "check needs --baseline: the database to hold the new one against" }).min(1),
  db: databaseFile,
  maxRegression: text.default("3%").transform(readShare),
  op: optionalText,
  requireAll: flag,
  trustImported: flag,
  junit: optionalWord,
  json: flag,
});
type Options = z.infer<typeof options>;

const provenance = z.enum(["here", "imported"]).describe("measured here, or imported");
const sideSchema = z
  .union([
    z.strictObject({ id: text, provenance, status: text }),
    z.strictObject({
      id: text,
      provenance,
      status: z.literal("ok"),
      intrinsic: text,
      microseconds: number,
      interval: intervalSchema,
    }),
  ])
  .nullable()
  .describe("the best record, or the latest failure where nothing worked; null where there is none");
const interval = z.tuple([number, number]);
const checkSchema = documentOf({
  accepted: z.boolean(),
  maxRegression: number.describe("share"),
  compared: integer.describe("workloads that both databases have"),
  findings: z.array(
    z.strictObject({
      verdict: z.enum(["slower", "faster", "same", "failing", "missing", "new"]),
      fails: z.boolean(),
      workload: text,
      operator: text,
      shape: counts,
      dtype: text,
      threads: integer,
      cache: text,
      cpu: text,
      baseline: sideSchema,
      now: sideSchema,
      ratio: number.nullable().describe("time now over that of the baseline"),
      interval: interval.nullable().describe("of the ratio, 95 % within"),
      environmentDiffersIn: texts,
    }),
  ),
});

export function register(command: Cli): void {
  command
    .json(checkSchema)
    .option("--baseline <file>", "the database to compare with")
    .option("--db <file>", "the database to check (default: automap.db in this directory)")
    .option("--max-regression <share>", "the largest slowdown that is accepted (default: 3%)")
    .option("--op <operator>", "only this operator")
    .option("--require-all", "fail also when a workload of the baseline has no result")
    .option("--trust-imported", "judge by imported records of --db too, where nothing was measured here")
    .option("--junit <file>", "write the result as JUnit XML")
    .examples(
      [
        "automap check --baseline main.db --db branch.db --max-regression 3%",
        "automap check --baseline main.db --junit check.xml",
      ],
      "Workloads are matched by computation, threads, cache state and CPU. A slowdown is a regression if the 95 % intervals",
      "show it: the new interval begins above the end of the old one by more than the allowed share.",
      "Records measured here come before imported ones. Times of the baseline may be imported, and say so.",
      "Exit codes: 0 accepted, 5 regression, 3 nothing to compare.",
    )
    .runs(options, check);
}

/** `3%`, `3 %` or `0.03`. */
function readShare(text: string, context: z.RefinementCtx): number {
  const [, number, sign] = /^(\d+(?:\.\d+)?)\s*(%?)$/.exec(text.trim()) ?? [];
  const share = number === undefined ? Number.NaN : Number(number) / (sign === "%" ? 100 : 1);
  if (share >= 0 && (sign === "%" || share < 1)) return share;
  context.addIssue(`--max-regression must be a share such as 3% or 0.03, got "${text}"`);
  return z.NEVER;
}

function check(given: Options): ExitCode {
  if (given.junit !== undefined) checkWritable("--junit", given.junit);
  const checked = withDatabase(given.baseline, (before) =>
    withDatabase(given.db, (after) => {
      const recorded = [...operatorsIn(before), ...operatorsIn(after)];
      const operator = given.op === undefined ? undefined : readOperator(given.op, recorded);
      return compareBest(trialsIn(before, operator), trialsIn(after, operator), given);
    }),
  );
  const failed = (f: Finding): boolean => verdictFails(f, given);
  if (given.json) printJson(checkSchema, checkDocument(checked, given, failed));
  else print(describe(checked, given, failed));
  if (given.junit !== undefined) writeJunit(given.junit, checked, failed);
  if (checked.compared === 0)
    say(
      `automap: no workload of ${given.baseline} was measured in ${given.db} on the same CPU with as many threads: nothing is checked`,
    );
  if (checked.findings.some(failed)) return EXIT.regression;
  return checked.compared === 0 ? EXIT.nothingFound : EXIT.ok;
}

/** The best trial of each workload, and the failures of workloads that have no working kernel. */
function trialsIn(db: Database, operator: string | undefined): TrialRecord[] {
  const filter = operator === undefined ? {} : { operator };
  return [
    ...best(db, filter, { imported: true }),
    ...queryTrials(db, filter).filter((t) => t.measurement.status !== "ok"),
  ];
}

const WORDS: Readonly<Record<Finding["verdict"], string>> = {
  slower: "REGRESSION",
  faster: "faster",
  same: "same",
  failing: "FAILS NOW",
  missing: "missing",
  new: "new",
};

function describe({ findings, compared }: Checked, given: Options, failed: (f: Finding) => boolean): string {
  const head = ["", "workload", "baseline", "now", "change", "environment differs in"];
  const told = findings.map((finding) => {
    const { verdict, before, after, change } = finding;
    const word = WORDS[verdict];
    return [
      failed(finding) ? style("red", word) : verdict === "faster" ? style("green", word) : word,
      workloadText(finding),
      timeText(before),
      timeText(after),
      change === undefined ? "" : `${change.ratio >= 1 ? "+" : ""}${(100 * (change.ratio - 1)).toFixed(1)} %`,
      finding.changed.join(", "),
    ];
  });
  const rows = [head, ...told];
  const isElsewhere = findings.some(({ changed }) => changed.length > 0);
  const count = (verdict: Finding["verdict"]): number => findings.filter((f) => f.verdict === verdict).length;
  const bad = findings.filter(failed).length;
  return [
    fitted(isElsewhere ? rows : rows.map((row) => row.slice(0, -1))),
    "",
    wrapped(
      `${compared} compared: ${count("slower")} slower by more than ${(100 * given.maxRegression).toFixed(1)} %, ${count("failing")} failing now, ${count("faster")} faster, ${count("same")} the same; ${count("missing")} missing, ${count("new")} new`,
    ),
    bad > 0
      ? style("red", `not accepted: ${bad}`)
      : compared > 0
        ? style("green", "accepted")
        : style("red", "not accepted: nothing was compared"),
    ...findings
      .filter(failed)
      .flatMap(({ after }) =>
        after ? [indent(automapCommand("db", "show", shortId(after.id), databaseWords(given.db)))] : [],
      ),
  ].join("\n");
}

/** A text that is unique to each finding. */
function workloadText({ workload, threads, cache, cpu }: Finding): string {
  return `${labelOf(workload)}, ${counted(threads, "thread")}${cache === "warm" ? "" : `, ${cache}`}, ${cpu}`;
}

function timeText(trial: TrialRecord | undefined): string {
  if (!trial) return "-";
  const { measurement, provenance } = trial;
  const origin = provenance === "here" ? "" : ", imported";
  if (measurement.status !== "ok") return `${measurement.status}${origin}`;
  const [low, high] = measurement.interval;
  return `${printTime(measurement.median)} (${printTime(low)} to ${printTime(high)})${origin}`;
}

function checkDocument(
  { findings, compared }: Checked,
  given: Options,
  failed: (f: Finding) => boolean,
): PartsOf<typeof checkSchema> {
  const side = (trial: TrialRecord | undefined): z.infer<typeof sideSchema> => {
    if (!trial) return null;
    const { id, provenance: origin, measurement, candidate } = trial;
    if (measurement.status !== "ok") return { id, provenance: origin, status: measurement.status };
    return {
      id,
      provenance: origin,
      status: "ok",
      intrinsic: candidate.intrinsic,
      microseconds: measurement.median * 1e6,
      interval: [measurement.interval[0] * 1e6, measurement.interval[1] * 1e6],
    };
  };
  return {
    accepted: compared > 0 && !findings.some(failed),
    maxRegression: given.maxRegression,
    compared,
    findings: findings.map((f) => ({
      verdict: f.verdict,
      fails: failed(f),
      workload: labelOf(f.workload),
      operator: f.workload.operator,
      shape: { ...f.workload.extents, ...f.workload.parameters },
      dtype: f.workload.dtype,
      threads: f.threads,
      cache: f.cache,
      cpu: f.cpu,
      baseline: side(f.before),
      now: side(f.after),
      ratio: f.change?.ratio ?? null,
      interval: f.change?.interval ?? null,
      environmentDiffersIn: f.changed,
    })),
  };
}

function writeJunit(file: string, { findings }: Checked, failed: (f: Finding) => boolean): void {
  const cases = findings.map((finding) => {
    const { before, after, verdict, workload } = finding;
    const seconds = after?.measurement.status === "ok" ? after.measurement.median : 0;
    const detail = `${timeText(before)} before, ${timeText(after)} now`;
    return {
      suite: workload.operator,
      name: workloadText(finding),
      seconds,
      outcome: failed(finding)
        ? { kind: "failed" as const, message: `${WORDS[verdict].toLowerCase()}: ${detail}` }
        : verdict === "missing" || verdict === "new"
          ? { kind: "skipped" as const, message: `${verdict}: ${detail}` }
          : { kind: "passed" as const },
    };
  });
  writeOutput("--junit", file, junit("automap check", cases));
}
