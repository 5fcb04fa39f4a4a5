/**
 * @file `automap tune`: searches mappings and schedules on this machine, measures them, records every trial, and reports the fastest.
 *
 *     automap tune conv2d --c 64 --k 64 --h 56 --w 56 --r 3 --s 3 --pad 1 --dtype u8s8
 *     automap tune matmul --m 512 --n 512 --k 512 --dtype f32 --trials 200 --threads 2
 *     automap tune matmul --m 4096 --n 4096 --k 4096 --dtype f16 --target cuda
 *
 * For a machine that is not available it tells the kernels that the model ranks highest, and those that an emulator finds right.
 *
 * `automap tune --layers FILE`: tunes the computations of a file one after another, into one database.
 *
 * All are checked before the first search begins. A layer that fails is told, and the others go on.
 */

import type { Command } from "commander";
import { z } from "zod";
import type { Extents } from "../abstraction/affine.ts";
import { CANDIDATE_KINDS, isMapped } from "../abstraction/candidate.ts";
import { defined, namesOf, present, sortedBy, sumOf } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { automapCommand, EnvironmentError, internal, messageOf, UsageError } from "../abstraction/error.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { KERNEL_LANGUAGES, LANGUAGES } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { operationsOf } from "../abstraction/time.ts";
import { DatabaseError } from "../db/error.ts";
import { checkDatabase, DEFAULT_DATABASE, databaseWords, shortId, WORKLOAD_NAME } from "../db/index.ts";
import type { FleetPlace } from "../fleet/place.ts";
import { describeWorkload, workloadLabel } from "../operators/describe.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";
import { counted, indent, printTime } from "../report/text.ts";
import { checkEmulated } from "../session/judge/emulators.ts";
import { type JudgedKernel, judgeByModel } from "../session/judge/judge.ts";
import { isPlain, tiersOf } from "../session/kinds/choose.ts";
import type { TunedKernel } from "../session/tune/finals.ts";
import { DEFAULT_SECONDS, DEFAULT_TRIALS, type TuneOutcome } from "../session/tune/tune.ts";
import { measuringProblem } from "../session/tune/workplace.ts";
import { isElsewhere } from "../targets/index.ts";
import { STRATEGIES } from "../tuner/strategies.ts";
import type { Cli } from "./command.ts";
import { checkKernelFiles, checkOneOutput, checkWritable, writeKernel, writeOutput } from "./files.ts";
import { checkElsewhere, FLEET_OPTIONS, fleetPlaceOf } from "./fleet-place.ts";
import { heardInterrupts } from "./interrupts.ts";
import { collecting, type Layer, layersFileSchema, readLayers, throwAll } from "./layers-file.ts";
import { flag, optionalText, optionalWord, positiveInteger, readParameters, wholeNumber } from "./options.ts";
import { EXIT, type ExitCode, type PartsOf, print, printJson, reportError, say, style, text } from "./output.ts";
import { addSubjectOptions, readComputation, subjectOptions } from "./subject.ts";
import { readTarget, TARGET_OPTION } from "./target.ts";
import { fitted } from "./terminal.ts";
import {
  commandToGoOn,
  conclude,
  type Found,
  isKept,
  judgedSchema,
  layersSchema,
  rank,
  tellerOf,
  tuneDocument,
  tuneSchema,
  whyUnanswered,
} from "./tune-outcome.ts";
import type { Among } from "./tune-progress.ts";
import {
  budgetOf,
  checkHeld,
  checkThreadsOf,
  chooseIntrinsics,
  readChosen,
  searchFor,
  strategyOf,
} from "./tune-search.ts";

/** Its options, which other commands take too. */
export const tuneOptions = subjectOptions.extend({
  trials: positiveInteger.optional(),
  time: positiveInteger.optional(),
  seed: wholeNumber.optional(),
  threads: positiveInteger.optional(),
  strategy: optionalText,
  target: optionalWord,
  language: z
    .enum(KERNEL_LANGUAGES, {
      error: ({ input }) => `--language must be ${KERNEL_LANGUAGES.join(", ")}, got "${String(input)}"`,
    })
    .optional(),
  kinds: z
    .enum(CANDIDATE_KINDS, {
      error: ({ input }) => `--kinds must be ${CANDIDATE_KINDS.join(", ")}, got "${String(input)}"`,
    })
    .optional(),
  db: optionalWord,
  fleet: optionalWord,
  fleetKey: optionalWord,
  on: optionalWord,
  name: text
    .regex(WORKLOAD_NAME, {
      error: "--name must be letters, digits and . _ - + / :, no more than 80, for example --name resnet18/layer2.0",
    })
    .optional(),
  layers: optionalWord,
  to: optionalWord,
  modelOnly: flag,
  emulate: flag,
  trace: optionalWord,
  quiet: flag,
  verbose: flag,
  json: flag,
});
export type TuneWords = z.infer<typeof tuneOptions>;

export function register(command: Cli): void {
  addSubjectOptions(command, "[operator or equation]")
    .json(tuneSchema)
    .option(...TARGET_OPTION)
    .option(
      "--language <name>",
      `what kernels are written in: ${KERNEL_LANGUAGES.join(", ")} (default what the target's are written in); others are ranked by the model`,
    )
    .option("--trials <n>", `kernels to measure at most (default ${DEFAULT_TRIALS})`)
    .option(
      "--time <seconds>",
      `seconds until the search ends, preparation included; at least one kernel is measured, if what it must answer is known in time, and finals follow (default ${DEFAULT_SECONDS}, or an hour with --trials)`,
    )
    .option("--seed <n>", "seed of the search (default 1)")
    .option("--threads <n>", "threads of a kernel (default 1)")
    .option("--strategy <name>", `${namesOf(STRATEGIES).join(", ")} (default ${STRATEGIES[0]?.name})`)
    .option(
      "--kinds <which>",
      "what to choose from: mappings onto instructions, designs on vector lanes, exact for both, or all: also forms that round otherwise, as Winograd's; instructions for these and mappings (default all)",
    )
    .option("--db <file>", "database of trials (default automap.db)")
    .option(
      "--layers <file>",
      "tune each of the computations that a YAML or JSON file lists, into one database; the other options are the defaults of all",
    )
    .schema("--layers-schema", "print the JSON schema of that file, and do nothing else", layersFileSchema)
    .optionsOf(FLEET_OPTIONS)
    .option(
      "--name <name>",
      "what to call it in tables, reports and `automap db --name`: letters, digits and . _ - + / :",
    )
    .option(
      "--to <file>",
      "write the source of the fastest kernel there; - is standard output, and all else goes to stderr",
    )
    .option("--model-only", "rank candidates by the model and measure nothing: needs no compiler and no device")
    .option(
      "--emulate",
      "for a GPU that is not at hand: run the kernels that the model likes best under emulation, and keep them as emulated, without a time",
    )
    .option("--trace <file>", "write a timeline of the search as a trace for Perfetto or chrome://tracing")
    .option("-q, --quiet", "no progress output: only the result and errors")
    .option("-v, --verbose", "report the outcome of every kernel, with the logs of failures")
    .examples(
      [
        "automap tune conv2d",
        "automap tune conv2d --c 64 --k 64 --h 56 --w 56 --r 3 --s 3 --pad 1 --dtype u8s8 --layout NHWC",
        "automap tune matmul --m 512 --n 512 --k 512 --dtype f32 --trials 200 --to matmul.cpp",
        "automap tune conv2d --fleet redis://queue.lan --fleet-key desk.key",
        "automap tune --layers layers.yaml --time 20 --db resnet18.db",
      ],
      "Ctrl-C ends the search within about a second: finals decide among its fastest kernels where they fit into it. A second Ctrl-C stops at once.",
      "A search that was stopped goes on where it was when the same command is given again.",
    )
    .runs(tuneOptions, runTune);
}

async function runTune(given: TuneWords, command: Command, subject: string | undefined): Promise<ExitCode> {
  if (given.quiet && given.verbose) throw new UsageError("--quiet and --verbose exclude each other");
  if (given.layers !== undefined) {
    checkFleet(given);
    return tuneLayers(given.layers, given, command.args);
  }
  if (subject === undefined) command.error("error: missing required argument 'operator or equation'");
  checkOneOutput(given);
  const remark = given.quiet ? (): void => undefined : say;
  // 1. The computation, the machine and the instructions.
  const parameters = readParameters(command);
  checkFleet(given);
  const place = await fleetPlaceOf(given, remark);
  try {
    return await tuneOn(place, parameters, given, subject);
  } finally {
    await place?.close();
  }
}

const checkFleet = ({ fleet, target, emulate, modelOnly }: TuneWords): void =>
  checkElsewhere(fleet, { target, emulate, "model-only": modelOnly });

async function tuneOn(
  place: FleetPlace | undefined,
  parameters: Record<string, number>,
  given: TuneWords,
  subject: string,
): Promise<ExitCode> {
  const remark = given.quiet ? (): void => undefined : say;
  const machine =
    place?.machine ??
    (await readTarget(given.target, {
      otherwise: "; or rank for one by name with the model alone: --target h100 --model-only",
      ...defined({ threads: given.threads }),
    }));
  const intrinsics = chooseIntrinsics(given.intrinsic, machine, given.language);
  const chosen = readChosen(subject, parameters, given);
  const isJudged = !place && (given.emulate || isElsewhere(machine));
  checkSearched(given, machine, isJudged);
  strategyOf(given);
  if (given.to !== undefined)
    checkKernelFiles(given.to, intrinsics.some(({ language }) => language === "cm") ? "cm" : "c++");
  if (given.trace !== undefined) checkWritable("--trace", given.trace);
  checkThreadsOf(given, machine, place !== undefined);
  if (!given.modelOnly) {
    const unmeasured = isJudged ? undefined : measuringProblem(machine);
    if (unmeasured) throw new EnvironmentError(unmeasured);
    if (!place) checkHeld(chosen.computation, machine, isJudged);
    const notice = checkDatabase(given.db ?? DEFAULT_DATABASE);
    if (notice !== undefined) remark(notice);
  }
  // From its first output on, Ctrl-C ends a search and tells how to resume it.
  const isSearch = !given.modelOnly && !isJudged;
  const interrupts = isSearch ? heardInterrupts("search", () => say(commandToGoOn())) : heardInterrupts("ranking");
  const [offered = intrinsics] = tiersOf(chosen.computation, intrinsics);
  const choice = offered.some(isPlain) ? `${offered.length} rows of plain C++` : counted(offered.length, "instruction");
  const label = workloadLabel(describeWorkload(chosen), given.name);
  const budget = budgetOf(given);
  const limits = `at most ${counted(budget.trials, "kernel")} in at most ${budget.seconds} s, then finals`;
  remark(`${label} on ${machine.name}: ${choice} to choose from${isSearch ? `; ${limits}` : ""}`);
  if (chosen.assumed.length > 0) remark(style("dim", `by default: ${chosen.assumed.join(" ")}`));
  if (!isSearch) {
    const choice = { intrinsics, machine };
    const { signal, end } = interrupts;
    const ranked = given.modelOnly
      ? rank(chosen.computation, choice, given, signal)
      : judge(chosen, choice, given, signal);
    return ranked.finally(end);
  }

  // 2. The search.
  const { outcome, measured, timeline } = await searchFor({ chosen, intrinsics, machine }, given, {
    place,
    signal: interrupts.signal,
  }).finally(interrupts.end);

  // 3. The result.
  if (given.verbose) say(timeText(timeline.seconds()));
  const code = conclude(outcome, given, measured);
  if (given.trace !== undefined) writeOutput("--trace", given.trace, timeline.trace());
  return code;
}

/** @throws UsageError for an option that has no effect because nothing is measured */
function checkSearched(
  { strategy, trace, trials, name, modelOnly, emulate }: TuneWords,
  machine: Target,
  isJudged: boolean,
): void {
  if (modelOnly && emulate)
    throw new UsageError(
      "--model-only and --emulate exclude each other",
      "the first runs nothing, the second runs the kernels that the model likes best",
    );
  if (emulate) checkEmulated(machine);
  if (!modelOnly && !isJudged) return;
  const given = Object.entries({ strategy, trace, ...(modelOnly && { trials, name }) });
  const [lone] = given.find(([, value]) => value !== undefined) ?? [];
  if (lone !== undefined)
    throw new UsageError(
      `--${lone} is for a search that measures, and this one does not`,
      modelOnly
        ? `leave out --${lone}, or --model-only`
        : `kernels for ${machine.name} are run under an emulator: leave --${lone} out`,
    );
}

/** Formats `time: writing 4.8 s, compiling 15.2 s, measuring 3.3 s`. */
function timeText(seconds: Readonly<Record<string, number>>): string {
  return `time: ${Object.entries(seconds)
    .map(([part, spent]) => `${part} ${spent.toFixed(1)} s`)
    .join(", ")}`;
}

// ---- a machine that is not available ---------------------------------------------------------------------------------------------

/** Ranks candidates by the model, runs the best under an emulator, and records each without a time. */
async function judge(
  subject: {
    readonly computation: Computation;
    readonly parameters: Extents;
    readonly fixed: Inputs;
  },
  { intrinsics, machine }: { readonly intrinsics: readonly Intrinsic[]; readonly machine: Target },
  given: TuneWords,
  signal: AbortSignal,
): Promise<ExitCode> {
  const outcome = await judgeByModel(
    { ...subject, name: given.name },
    {
      intrinsics,
      machine,
      signal,
      database: given.db ?? DEFAULT_DATABASE,
      ...defined({
        seconds: given.time,
        count: given.trials,
        seed: given.seed,
        threads: given.threads,
        kinds: given.kinds,
      }),
      onDropped: (why) => say(`dropped: ${why}`),
      onJudged: ({ measurement, prediction }) => {
        if (!given.quiet) say(style("dim", `predicted ${printTime(prediction.seconds)}: ${measurement.status}`));
      },
    },
  );
  if ("refused" in outcome) return conclude({ status: "nothing-maps", refused: outcome.refused }, given, 0);
  if ("problem" in outcome) return conclude({ status: "environment", problem: outcome.problem }, given, 0);
  const { judged, database, emulator, unanswered } = outcome;
  const right = judged.find(({ measurement }) => measurement.status === "emulated");
  if (unanswered) say(whyUnanswered(unanswered));
  const ended = signal.aborted ? "stopped" : outcome.late ? "the time was up" : undefined;
  if (ended) say(`${ended} after ${counted(judged.length, "kernel")}; none of the others was judged`);
  if (given.json)
    printJson(judgedSchema, {
      measured: false,
      target: machine.name,
      emulator,
      database,
      late: outcome.late === true,
      candidates: judged.map(({ id, candidate, prediction, measurement }) => ({
        id,
        status: measurement.status,
        intrinsic: candidate.intrinsic,
        mapping: isMapped(candidate) ? candidate.matching : { design: placeText(candidate) },
        schedule: candidate.schedule,
        predictedMicroseconds: prediction.seconds * 1e6,
      })),
    });
  else if (judged.length > 0) tellerOf(given)(judgedText(judged, machine, emulator));
  if (!right) {
    for (const { id, measurement } of judged)
      if (measurement.status !== "ok") say(`${shortId(id)} ${measurement.status}: ${measurement.log}`);
    if (signal.aborted) return EXIT.interrupted;
    return judged.some(({ measurement }) => measurement.status === "wrong") ? EXIT.wrong : EXIT.failed;
  }
  if (given.to !== undefined) {
    const written = writeKernel(given.to, right.kernel);
    say(
      `written: ${written}, predicted to take ${printTime(right.prediction.seconds)}; right under ${emulator}, not timed`,
    );
  }
  if (!given.quiet) {
    const { language } = right.kernel;
    const [does, to] = language === "c++" ? ["package it", "DIR"] : ["write it", `kernel${LANGUAGES[language].ending}`];
    say(`${does}   ${automapCommand("emit", shortId(right.id), "--to", to, databaseWords(database))}`);
  }
  return signal.aborted ? EXIT.interrupted : EXIT.ok;
}

function judgedText(judged: readonly JudgedKernel[], machine: Target, emulator: string): string {
  const rows = judged.map(({ id, candidate, prediction, measurement }) => [
    printTime(prediction.seconds),
    measurement.status,
    shortId(id),
    candidate.intrinsic,
    placeText(candidate),
    scheduleText(candidate),
  ]);
  return [
    `predicted by the model with the rates of ${machine.name}, run under ${emulator}; nothing was timed`,
    "",
    indent(fitted(rows, 2)),
  ].join("\n");
}

// ---- layers of a file --------------------------------------------------------------------------------------------------------------------

/** Tunes the layers of a file. @param besides words of the command that are no options */
async function tuneLayers(path: string, given: TuneWords, besides: readonly string[]): Promise<ExitCode> {
  checkAlone(given, besides);
  const remark = given.quiet ? (): void => undefined : say;
  const layers = readLayers(path, given);
  const machines = new Machines(given, remark);
  const { signal, end } = heardInterrupts("search", () => say(commandToGoOn()));
  try {
    await checkLayers(layers, machines);
    const notice = checkDatabase(given.db ?? DEFAULT_DATABASE);
    if (notice !== undefined) remark(notice);
    const results = await tuneAll(layers, { machines, signal, remark });
    const inOrder = sortedBy(results, (a) => a.layer.place);
    if (given.json) printJson(layersSchema, { file: path, layers: inOrder.map(layerDocument) });
    else print(resultText(inOrder));
    return codeOf(results, remark);
  } finally {
    end();
    await machines.close();
  }
}

/** Options of one search alone. */
const LONE = ["name", "to", "trace", "modelOnly", "emulate"] as const;

/** @throws UsageError for what contradicts a file of layers */
function checkAlone(given: TuneWords, [subject]: readonly string[]): void {
  if (subject !== undefined)
    throw new UsageError(
      `--layers names a file of what to tune, and ${subject} stands beside it`,
      "the file holds operators, equations and their parameters",
    );
  const lone = LONE.find((name) => given[name] !== undefined && given[name] !== false);
  if (lone === undefined) return;
  const option = lone === "modelOnly" ? "model-only" : lone;
  throw new UsageError(
    `--layers and --${option} exclude each other`,
    lone === "name" ? "the file names its layers" : `--${option} is for a search of one computation`,
  );
}

/** The machine that measures: this one, or that of a fleet, whose place stays open from one layer to the next. */
class Machines {
  readonly #given: TuneWords;
  readonly #announce: (text: string) => void;
  #open: { readonly threads: number; readonly place: FleetPlace } | undefined;

  constructor(given: TuneWords, announce: (text: string) => void) {
    this.#given = given;
    this.#announce = announce;
  }

  /** The machine, and the fleet's place where there is one; it is closed by {@link close} alone. */
  async for({ threads = 1 }: TuneWords): Promise<{ readonly machine: Target; readonly place: FleetPlace | undefined }> {
    if (this.#given.fleet === undefined)
      return { machine: await readTarget(this.#given.target, { threads }), place: undefined };
    if (this.#open?.threads !== threads) {
      await this.close();
      const opened = await fleetPlaceOf({ ...this.#given, threads }, this.#announce);
      this.#open = { threads, place: opened ?? internal("a fleet has a place") };
    }
    const { place } = this.#open;
    return { machine: place.machine, place: { ...place, close: () => Promise.resolve() } };
  }

  async close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    await open?.place.close();
  }
}

/** @throws UsageError that names each layer that the machine cannot search for */
async function checkLayers(layers: readonly Layer[], machines: Machines): Promise<void> {
  const [first] = byPriority(layers);
  if (!first) return;
  const { machine, place } = await machines.for(first.given);
  const unmeasured = place ? undefined : measuringProblem(machine);
  if (unmeasured) throw new EnvironmentError(unmeasured);
  if (!place && isElsewhere(machine))
    throw new UsageError(
      `--layers is for searches that measure, and nothing here measures for ${machine.name}`,
      "automap tune judges one computation for it by the model and an emulator",
    );
  const wrong: UsageError[] = [];
  for (const { label, subject, parameters, given } of layers)
    collecting(wrong, label, () => {
      chooseIntrinsics(given.intrinsic, machine, given.language);
      checkThreadsOf(given, machine, place !== undefined);
      strategyOf(given);
      if (!place) checkHeld(readComputation(subject, parameters, given), machine, false);
    });
  throwAll(wrong);
}

/** What became of a layer. */
interface LayerResult {
  readonly layer: Layer;
  /** Its computation in words. */
  readonly workload: string;
  readonly code: ExitCode;
  /** Undefined when it was not begun, or an error ended it. */
  readonly outcome?: TuneOutcome;
  /** The error that ended it. */
  readonly because?: string;
}

/** What all searches share. */
interface Together {
  readonly machines: Machines;
  readonly signal: AbortSignal;
  readonly remark: (text: string) => void;
}

/** Equal ones stay in the order of the file. */
const byPriority = (layers: readonly Layer[]): readonly Layer[] => sortedBy(layers, (a) => -a.priority);

/** The searches, by priority. */
async function tuneAll(layers: readonly Layer[], together: Together): Promise<readonly LayerResult[]> {
  const queue = byPriority(layers);
  const results: LayerResult[] = [];
  for (const [index, layer] of queue.entries()) {
    const secondsBehind = sumOf(queue.slice(index + 1), ({ given }) => budgetOf(given).seconds);
    const among = { place: `layer ${index + 1} of ${queue.length}`, secondsBehind };
    results.push(await tuneOne(layer, among, together));
  }
  return results;
}

async function tuneOne(layer: Layer, among: Among, { machines, signal, remark }: Together): Promise<LayerResult> {
  const { subject, parameters, given } = layer;
  const chosen = readChosen(subject, parameters, given);
  const result = { layer, workload: workloadLabel(describeWorkload(chosen)) };
  if (signal.aborted) return { ...result, code: EXIT.interrupted };
  const heading = [style("bold", among.place), ...present([given.name]), result.workload].join("  ");
  remark(`${heading}, at most ${budgetOf(given).seconds + among.secondsBehind} s left for all`);
  // Without progress, what fails is named where it is told.
  const name = given.quiet ? (): void => say(heading) : (): void => undefined;
  try {
    const { machine, place } = await machines.for(given);
    const intrinsics = chooseIntrinsics(given.intrinsic, machine, given.language);
    const { outcome, measured } = await searchFor({ chosen, intrinsics, machine }, given, { place, signal, among });
    if (!bestOf(outcome)) name();
    const code = conclude(outcome, given, measured, (found) => {
      if (found.best) remark(foundText(found.best, found));
    });
    // A fleet whose workers have gone is looked for anew.
    if (outcome.status === "environment") await machines.close();
    return { ...result, code, outcome };
  } catch (error) {
    // What is wrong with the database is no fault of this layer, and the others would fail like it.
    if (error instanceof DatabaseError) throw error;
    await machines.close();
    name();
    const because = messageOf(error);
    return { ...result, code: reportError(error), because };
  }
}

const bestOf = (outcome: TuneOutcome | undefined): TunedKernel | undefined =>
  outcome && "best" in outcome ? outcome.best : undefined;

/** `81.20 us a call   record 4f0c2e1a` */
function foundText({ id, measurement }: TunedKernel, found: Found): string {
  const record = isKept(found) ? `   record ${shortId(id)}` : "";
  return `${printTime(measurement.median)} a call${record}`;
}

function resultText(results: readonly LayerResult[]): string {
  const table = fitted([["", "layer", "a call", "G operations/s", "record"], ...results.map(rowOf)]);
  const [kept] = results.flatMap(({ outcome }) =>
    outcome && "best" in outcome && outcome.best && isKept(outcome) ? [outcome] : [],
  );
  if (!kept) return table;
  const emitted = automapCommand("emit", "RECORD", "--to", "DIR", databaseWords(kept.database));
  return `${table}\n\nuse one   ${emitted}`;
}

function rowOf({ layer, workload, outcome, because }: LayerResult): string[] {
  const { place, given } = layer;
  const head = [String(place), given.name ?? workload];
  if (!outcome) return [...head, because === undefined ? "not begun" : "failed", "", ""];
  if (!("best" in outcome)) return [...head, outcome.status === "nothing-maps" ? "nothing maps" : "failed", "", ""];
  const { best, computation } = outcome;
  if (!best) return [...head, "no kernel", "", ""];
  const { median } = best.measurement;
  const rate = (operationsOf(computation) / median / 1e9).toFixed(0);
  return [...head, printTime(median), rate, isKept(outcome) ? shortId(best.id) : ""];
}

function layerDocument({
  layer,
  workload,
  outcome,
  because,
}: LayerResult): PartsOf<typeof layersSchema>["layers"][number] {
  const ended = because === undefined ? "not-begun" : "failed";
  const missing = outcome?.status === "environment" ? outcome.problem.what : undefined;
  return {
    layer: layer.place,
    name: layer.given.name ?? null,
    workload,
    status: outcome?.status ?? ended,
    problem: because ?? missing ?? null,
    search: outcome && "best" in outcome ? tuneDocument(outcome) : null,
  };
}

/** What the command ends with: what the layers that failed have in common. Says how many these are. */
function codeOf(results: readonly LayerResult[], remark: (text: string) => void): ExitCode {
  const failing = results.filter(({ code }) => code !== EXIT.ok && code !== EXIT.interrupted);
  if (failing.length > 0) say(`${failing.length} of ${counted(results.length, "layer")} failed`);
  const begun = results.filter(({ outcome, because }) => outcome ?? because).length;
  if (results.some(({ code }) => code === EXIT.interrupted)) {
    if (begun < results.length) remark(`${results.length - begun} of ${counted(results.length, "layer")} not begun`);
    // A search that is interrupted has said so.
    if (!results.some(({ outcome }) => outcome?.status === "interrupted")) say(commandToGoOn());
    return EXIT.interrupted;
  }
  const [code = EXIT.ok, ...others] = new Set(failing.map((result) => result.code));
  return others.length > 0 ? EXIT.failed : code;
}
