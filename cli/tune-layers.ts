/**
 * @file `automap tune --layers FILE`: tunes the computations of a file one after another, into one database.
 *
 * All are checked before the first search begins. A layer that fails is told, and the others go on.
 */

import { present, sumOf } from "../abstraction/collections.ts";
import { automapCommand, EnvironmentError, internal, UsageError } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import { operationsOf } from "../abstraction/time.ts";
import { DatabaseError } from "../db/error.ts";
import { checkDatabase, DEFAULT_DATABASE, databaseWords, shortId } from "../db/index.ts";
import type { FleetPlace } from "../fleet/place.ts";
import { describeWorkload, workloadLabel } from "../operators/describe.ts";
import { counted, printTime } from "../report/text.ts";
import type { TunedKernel } from "../session/tune/finals.ts";
import type { TuneOutcome } from "../session/tune/tune.ts";
import { measuringProblem } from "../session/tune/workplace.ts";
import { isElsewhere } from "../targets/index.ts";
import { fleetPlaceOf } from "./fleet-place.ts";
import { heardInterrupts } from "./interrupts.ts";
import { collecting, type Layer, readLayers, throwAll } from "./layers-file.ts";
import { EXIT, type ExitCode, type PartsOf, print, printJson, reportError, say, style } from "./output.ts";
import { readComputation } from "./subject.ts";
import { readTarget } from "./target.ts";
import { fitted } from "./terminal.ts";
import type { TuneWords } from "./tune.ts";
import { commandToGoOn, conclude, type Found, isKept, layersSchema, tuneDocument } from "./tune-outcome.ts";
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

/** Tunes the layers of a file. @param besides words of the command that are no options */
export async function tuneLayers(path: string, given: TuneWords, besides: readonly string[]): Promise<ExitCode> {
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
    const inOrder = results.toSorted((a, b) => a.layer.place - b.layer.place);
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
const byPriority = (layers: readonly Layer[]): readonly Layer[] => layers.toSorted((a, b) => b.priority - a.priority);

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
    const because = error instanceof Error ? error.message : String(error);
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
