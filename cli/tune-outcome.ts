/** @file The result of a search, or of a ranking without one. It is printed first and written to files afterwards. */

import { z } from "zod";
import { type Candidate, isMapped } from "../abstraction/candidate.ts";
import { defined, present } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { automapCommand } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import { NOISE_VERDICTS } from "../abstraction/noise.ts";
import { operationsOf } from "../abstraction/time.ts";
import { boundOfForm } from "../abstraction/winograd.ts";
import { databaseWords, MEMORY, shortId } from "../db/index.ts";
import type { CountedLoop } from "../perfmodel/counted-code.ts";
import { candidateRows, placeText, scheduleRows, scheduleText } from "../report/describe-candidate.ts";
import { indent, percent, printTime } from "../report/text.ts";
import { mainLoop } from "../session/judge/counted-code.ts";
import { COUNTED_POOL, offlineCompiler, type Ranked, rankCounted } from "../session/judge/counted-ranking.ts";
import { firstThatCompiles } from "../session/judge/offline.ts";
import type { Unanswered } from "../session/tune/answers-in-time.ts";
import type { TunedKernel } from "../session/tune/finals.ts";
import { type Expected, rankByModelInTime } from "../session/tune/rank.ts";
import type { TuneOutcome } from "../session/tune/tune.ts";
import { isElsewhere, isGpu, isPredictedOnly } from "../targets/index.ts";
import { replay } from "../tuner/replay.ts";
import { TUNE_STATUSES } from "../tuner/search.ts";
import { declareWords } from "./declare.ts";
import { STDOUT, writeKernel } from "./files.ts";
import {
  counts,
  documentOf,
  EXIT,
  type ExitCode,
  integer,
  number,
  type PartsOf,
  partOf,
  print,
  printJson,
  say,
  style,
  text,
  textsByName,
} from "./output.ts";
import { fitted } from "./terminal.ts";
import type { TuneWords } from "./tune.ts";

/** The outcome of a search that was begun. */
export type Found = Extract<TuneOutcome, { best: unknown }>;

const microseconds = number;
const schedule = partOf<Candidate["schedule"]>("docs/schedule.md names its decisions");
const searchParts = {
  status: z.enum(TUNE_STATUSES).describe("why the search ended"),
  best: z
    .strictObject({
      id: text.nullable().describe("of its record; null where it was kept nowhere"),
      microseconds,
      interval: z.tuple([microseconds, microseconds]).describe("95 % within"),
      processors: z.array(integer).nullable(),
      load: number.nullable().describe("share of the processors that other programs took"),
      gops: number.describe("operations a second, in units of 10^9"),
      intrinsic: text,
      mapping: z
        .union([textsByName, z.strictObject({ design: text })])
        .describe("the loops that feed each axis, or the design on lanes"),
      schedule,
      predictedMicroseconds: microseconds.nullable(),
    })
    .nullable()
    .describe("null where no kernel worked"),
  trials: integer,
  failed: counts.describe("how many trials ended in each status but ok"),
  seconds: number,
  enumerationCut: z
    .strictObject({ what: text, done: integer, of: integer })
    .nullable()
    .describe("how far the enumeration of mappings had come when the time cut it short; null where it was done"),
  unanswered: z
    .strictObject({
      needs: number.nullable().describe("seconds that computing them takes here at least, where known"),
      limit: number.describe("seconds that they may take"),
    })
    .nullable()
    .describe("set where the expected results were not computed in time, so that nothing was measured"),
  decided: z.boolean().describe("whether finals decided; false where Ctrl-C left no time for them"),
  noise: z.enum(NOISE_VERDICTS).describe("how reliable the measurements are; noisy: they say little"),
  waitedSeconds: number.describe("of these, waiting for a core that another search used"),
  database: text,
};
const searchSchema = documentOf(searchParts);
/** What became of a layer besides the endings of a search. */
const LAYER_STATUSES = ["nothing-maps", "environment", "failed", "not-begun"] as const;
/** The document of the layers of a file. */
export const layersSchema = documentOf({
  file: text,
  layers: z
    .array(
      z.strictObject({
        layer: integer.describe("its place in the file, from 1"),
        name: text.nullable(),
        workload: text.describe("the computation in words"),
        status: z
          .enum([...TUNE_STATUSES, ...LAYER_STATUSES])
          .describe("why its search ended; not-begun where Ctrl-C came before it"),
        problem: text.nullable().describe("what is missing on this machine, or what failed"),
        search: z.strictObject(searchParts).nullable().describe("null where nothing was searched"),
      }),
    )
    .describe("in the order of the file"),
});
const rankSchema = documentOf({
  measured: z.literal(false),
  target: text,
  candidates: z.array(
    partOf<Candidate & { readonly predictedMicroseconds: number; readonly counted?: CountedPart }>(
      "a candidate, and predictedMicroseconds; counted where a compiler made code of it: instructions, sends and products of its main loop, registers, and estimatedMicroseconds without them",
    ),
  ),
});
/** What was counted in compiled code. */
interface CountedPart extends Omit<CountedLoop, "executions" | "hasOthers"> {
  readonly registers: number;
  readonly estimatedMicroseconds: number;
}
/** The document of kernels for a machine that is not available. */
export const judgedSchema = documentOf({
  measured: z.literal(false),
  target: text,
  emulator: text.describe("what ran the kernels"),
  candidates: z.array(
    z.strictObject({
      id: text.describe("of its record"),
      status: text.describe("emulated: every element was right; else how it ended"),
      intrinsic: text,
      mapping: textsByName.or(z.strictObject({ design: text })),
      schedule,
      predictedMicroseconds: microseconds,
    }),
  ),
  late: z.boolean().describe("whether the time was up before all kernels were judged"),
  database: text,
});
/** The document of a search, of a ranking (--model-only), of kernels for a machine that is not available, or of layers. */
export const tuneSchema = z.union([searchSchema, rankSchema, judgedSchema, layersSchema]);

/** Milliseconds. A timer takes no more. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** The candidates that the model ranks highest, without measurement. */
export async function rank(
  computation: Computation,
  choice: { readonly intrinsics: readonly Intrinsic[]; readonly machine: Target },
  given: TuneWords,
  signal: AbortSignal,
): Promise<ExitCode> {
  const compile = offlineCompiler(choice.machine, choice.intrinsics[0]?.language);
  const late =
    compile && given.time !== undefined ? [AbortSignal.timeout(Math.min(1000 * given.time, LONGEST_TIMER))] : [];
  const found = await rankByModelInTime(computation, {
    ...choice,
    signal,
    ...defined({
      count: compile && COUNTED_POOL,
      seconds: given.time,
      seed: given.seed,
      threads: given.threads,
      kinds: given.kinds,
    }),
  }).catch((error: unknown) => {
    if (signal.aborted) return undefined;
    throw error;
  });
  if (!found) {
    say("nothing was ranked: it was stopped before there was anything to rank");
    return EXIT.interrupted;
  }
  const { ranking: ranked, cut } = found;
  if (cut) {
    const by = signal.aborted ? "Ctrl-C" : "the time";
    say(`not everything was looked at: ${by} cut the ranking short at ${cut.done} of ${cut.of} ${cut.what}`);
  }
  if ("refused" in ranked) return conclude({ status: "nothing-maps", refused: ranked.refused }, given, 0);
  const until = AbortSignal.any([signal, ...late]);
  if (compile && !until.aborted && !given.quiet)
    say("compiling kernels offline, whose instructions are counted: some seconds");
  const counting = compile && (await rankCounted(computation, ranked, choice.machine, { compile, signal: until }));
  const shown = (counting?.ranking ?? ranked).slice(0, SHOWN);
  if (given.json) {
    printJson(rankSchema, {
      measured: false,
      target: choice.machine.name,
      candidates: shown.map((r) => ({
        ...r.candidate,
        predictedMicroseconds: r.prediction.seconds * 1e6,
        ...countedPart(r),
      })),
    });
  } else tellerOf(given)(rankedText(shown, choice.machine));
  for (const { expected, why } of counting?.dropped ?? [])
    say(`dropped: ${scheduleText(expected.candidate)}\n  ${why}`);
  const code = signal.aborted ? EXIT.interrupted : EXIT.ok;
  if (given.to === undefined) return code;
  const { kept, dropped, unchecked } = await firstThatCompiles(computation, shown, choice.machine);
  for (const { expected, why } of dropped) say(`dropped: ${scheduleText(expected.candidate)}\n  ${why}`);
  if (unchecked !== undefined) say(unchecked);
  if (!kept) {
    say("none of the kernels that the model likes best compiles: nothing was written");
    return EXIT.failed;
  }
  const written = writeKernel(given.to, kept.kernel);
  say(`written: ${written}, predicted to take ${printTime(kept.expected.prediction.seconds)}; nothing was measured`);
  return code;
}

/** Where a result for readers goes: to stderr where the kernel goes to stdout. */
export const tellerOf = ({ to }: Partial<TuneWords>): typeof print => (to === STDOUT ? say : print);

/** Candidates that a ranking shows. */
const SHOWN = 10;

/** What is told of a candidate's compiled code. */
function countedPart({ compiled }: Ranked): { readonly counted?: CountedPart } {
  const main = compiled && !("uncounted" in compiled.code) ? mainLoop(compiled.code) : undefined;
  if (!main || !compiled || "uncounted" in compiled.code) return {};
  const { instructions, sends, products } = main;
  const { registers } = compiled.code;
  return {
    counted: { instructions, sends, products, registers, estimatedMicroseconds: compiled.estimated.seconds * 1e6 },
  };
}

/** The same for a reader: `3 products, 26 sends, 88 others` of one step of its main loop. */
function countedText(ranked: Ranked): string {
  const { counted: part } = countedPart(ranked);
  if (!part)
    return ranked.compiled && "uncounted" in ranked.compiled.code ? ranked.compiled.code.uncounted : "estimated";
  const { instructions, sends, products } = part;
  return `${products} products, ${sends} sends, ${instructions - sends - products} others`;
}

function rankedText(ranked: readonly Ranked[], machine: Target): string {
  const isCounted = ranked.some(({ compiled }) => compiled);
  const rows = ranked.map((one) =>
    present([printTime(one.prediction.seconds), isCounted && countedText(one), ...rowOf(one)]),
  );
  const hasRates = isGpu(machine) || isPredictedOnly(machine) || isElsewhere(machine);
  const rates = hasRates ? machine.name : "the reference machine";
  const head = `predicted by the model with the rates of ${rates}, nothing measured`;
  const by = isCounted ? ["instructions of a step are counted in the code that the offline compiler made"] : [];
  return [head, ...by, "", indent(fitted(rows, 2))].join("\n");
}

function rowOf({ candidate }: Expected): string[] {
  return [
    candidate.intrinsic,
    placeText(candidate),
    ...scheduleRows(candidate)
      .slice(0, 2)
      .map(([name, text]) => `${name} ${text}`),
  ];
}

/**
 * Prints the result of a search, then writes the requested files: a full disk loses no result.
 * @param measured number of kernels that this call measured
 * @param show prints what was found
 */
export function conclude(
  outcome: TuneOutcome,
  given: Partial<TuneWords>,
  measured: number,
  show = (found: Found): void => showFound(found, given),
): ExitCode {
  switch (outcome.status) {
    case "nothing-maps": {
      say("nothing maps; the reasons, nearest to fitting first");
      say(
        indent(
          fitted(
            outcome.refused.map((r) => [r.rule, r.because, r.hint === undefined ? "" : `(${r.hint})`]),
            2,
          ),
        ),
      );
      return EXIT.nothingFound;
    }
    case "environment": {
      say(`automap: ${outcome.problem.what}\n  ${outcome.problem.why}\n  ${outcome.problem.remedy}`);
      const kept = measured > 0 ? "what was measured is kept, and the same command goes on from there; " : "";
      say(`  ${kept}--model-only measures nothing and needs none of this`);
      return EXIT.environment;
    }
    default: {
      const { best, unrecorded } = outcome;
      if (!given.quiet) for (const line of surroundings(outcome)) say(line);
      show(outcome);
      if (!best) say(whyNone(outcome, given.strategy));
      if (best && given.to !== undefined) {
        say(`written: ${writeKernel(given.to, best.kernel)}`);
      }
      if (unrecorded) {
        say(`automap: what this search ended with is in no record: ${unrecorded.message}`);
        return EXIT.environment;
      }
      if (outcome.status === "interrupted") {
        say(commandToGoOn());
        return EXIT.interrupted;
      }
      return best ? EXIT.ok : EXIT.failed;
    }
  }
}

function showFound(found: Found, given: Partial<TuneWords>): void {
  if (given.json) printJson(searchSchema, tuneDocument(found));
  else if (found.best) tellerOf(given)(describeBest(found.best, found, given));
}

/** The command that resumes the search where it was stopped. */
export function commandToGoOn(): string {
  return `go on with   ${automapCommand(process.argv.slice(2))}`;
}

/** What to do when no kernel was found. */
function whyNone({ status, failed, trials, database, unanswered }: Found, strategy: string | undefined): string {
  if (unanswered) return whyUnanswered(unanswered);
  if (trials.length === 0 && status === "exhausted" && strategy === replay.name)
    return `no kernel was tried: ${database} holds no trial of this computation to replay; another --strategy searches`;
  if (trials.length === 0)
    return status === "interrupted"
      ? "no kernel was tried: it was stopped before the first was measured"
      : "no kernel was tried: the time was up before the first was measured; give more of it with --time";
  const counts = Object.entries(failed).map(([why, count]) => `${count} ${why}`);
  return `no kernel worked: ${counts.join(", ")}; --verbose shows their logs, or ${automapCommand("db", "failures", databaseWords(database))}`;
}

/** What would have helped a search that nothing could be verified in. */
export function whyUnanswered(unanswered: Unanswered): string {
  const { needs, limit } = unanswered;
  const more = Math.ceil((2 * (needs ?? limit)) / 10) * 10;
  return `no kernel was tried: ${unansweredText(unanswered)}\n  --time ${more} gives them more; smaller sizes take less; --model-only measures nothing`;
}

/** What is not verified is not measured. */
export function unansweredText({ needs, limit }: Unanswered): string {
  const results = "the results to verify it by";
  return needs === undefined
    ? `${results} were not computed in ${limit} s`
    : `${results} take ${Math.ceil(needs)} s at least, and may take ${limit} s`;
}

function describeBest(best: TunedKernel, outcome: Found, given: Partial<TuneWords>): string {
  const { measurement, candidate, mapping } = best;
  const [low, high] = measurement.interval;
  return [
    `${style("bold", printTime(measurement.median))} a call (95 % interval ${printTime(low)} to ${printTime(high)}), ${(operationsOf(outcome.computation) / measurement.median / 1e9).toFixed(0)} G operations/s`,
    "",
    fitted([
      ...candidateRows(candidate),
      ...formRows(best, outcome.computation),
      mapping && ["waste", `${(100 * mapping.waste).toFixed(1)} %   (mapping ${mapping.id})`],
      [
        "in the code",
        best.kernel.promises === undefined
          ? `${best.kernel.language === "c++" ? "plain C++, " : ""}no instruction promised`
          : `${measurement.instructions} x ${best.kernel.promises}`,
      ],
    ]),
    ...(isKept(outcome) ? ["", ...pasteLines(best, outcome.database, given)] : []),
  ].join("\n");
}

/** How a kernel of another form of the equation was judged. */
function formRows({ kernel }: Pick<TunedKernel, "kernel">, computation: Computation): [name: string, text: string][] {
  const bound = kernel.ofForm && boundOfForm(computation);
  if (!bound) return [];
  const { factor, integer } = bound;
  const judged = `${factor.toFixed(0)} times the rounding of the equation's sums, ${integer} where its inputs are small integers`;
  return [["error bound", `${judged}; --kinds exact searches without such forms`]];
}

/** Whether the winner's record can be read afterwards. */
export function isKept({ database, unrecorded }: Found): boolean {
  return unrecorded === undefined && database !== MEMORY;
}

/** Commands to paste for the winner's record. */
function pasteLines({ id }: TunedKernel, database: string, given: Partial<TuneWords>): string[] {
  const db = ["--db", database];
  return [
    `record   ${automapCommand("db", "show", shortId(id), db)}`,
    `use it   ${automapCommand("emit", shortId(id), "--to", "DIR", db, declareWords(given))}`,
  ];
}

/** How reliable the measurements are, and what else was at work on the machine. */
function surroundings({ best, noise, waitedSeconds, enumerationCut: cut, finalsCut }: Found): string[] {
  const ran = best?.measurement.ran;
  const where =
    ran && `${finalsCut ? "measured" : "finals"} on processor${ran.cpus.length > 1 ? "s" : ""} ${ran.cpus.join(", ")}`;
  const final = ran?.load === undefined ? "" : `, of which other programs took ${percent(ran.load)}`;
  return present([
    cut && `not every mapping was looked at: the time cut enumeration short at ${cut.done} of ${cut.of} ${cut.what}`,
    waitedSeconds >= 1 && `waited ${waitedSeconds.toFixed(1)} s for other searches to let go of a core`,
    noise && noise.verdict !== "unknown" && `${noise.verdict}: ${noise.meaning}`,
    finalsCut &&
      best &&
      "no finals: the fastest kernel that is recorded here, of this search or an earlier one, as it was measured then",
    where !== undefined && `${where}${final}`,
  ]);
}

/** A search as data. */
export function tuneDocument(outcome: Found): PartsOf<typeof searchSchema> {
  const { best, trials, failed, seconds, waitedSeconds, database } = outcome;
  return {
    status: outcome.status,
    best: best
      ? {
          id: isKept(outcome) ? best.id : null,
          microseconds: best.measurement.median * 1e6,
          interval: [best.measurement.interval[0] * 1e6, best.measurement.interval[1] * 1e6],
          processors: best.measurement.ran?.cpus ?? null,
          load: best.measurement.ran?.load ?? null,
          gops: operationsOf(outcome.computation) / best.measurement.median / 1e9,
          intrinsic: best.candidate.intrinsic,
          mapping: isMapped(best.candidate) ? best.candidate.matching : { design: placeText(best.candidate) },
          schedule: best.candidate.schedule,
          predictedMicroseconds: best.prediction ? best.prediction.seconds * 1e6 : null,
        }
      : null,
    trials: trials.length,
    failed,
    seconds,
    enumerationCut: outcome.enumerationCut ?? null,
    unanswered: outcome.unanswered
      ? { needs: outcome.unanswered.needs ?? null, limit: outcome.unanswered.limit }
      : null,
    decided: best !== undefined && outcome.finalsCut !== true,
    noise: outcome.noise?.verdict ?? "unknown",
    waitedSeconds,
    database,
  };
}
