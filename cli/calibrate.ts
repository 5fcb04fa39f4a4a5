/**
 * @file `automap calibrate`: measures the latency model's figures on this machine, or on a worker of a fleet, and prints each with its source.
 *
 *     automap calibrate --db automap.db
 *     automap calibrate --force --json
 *
 * `automap calibrate --target cuda`: measures and prints the rates of this machine's GPU, with those that the model takes from the table.
 */

import { z } from "zod";
import { volumeOf, withName } from "../abstraction/collections.ts";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import { type Figure, memoryOf, readRate, type Target } from "../abstraction/machine.ts";
import { checkDatabase, type Database, type Environment, withDatabase } from "../db/index.ts";
import type { FleetPlace } from "../fleet/place.ts";
import { INTRINSICS, intrinsicNamed } from "../intrinsics/index.ts";
import type { CalibratedIntrinsic, Calibration, Measured } from "../perfmodel/calibrate.ts";
import { calibratedGpu, type GpuCalibration } from "../perfmodel/calibrate-gpu.ts";
import { type MemoryLevel, modelTarget } from "../perfmodel/target.ts";
import { indent, type Rows } from "../report/text.ts";
import { type CalibrateOutcome, calibrateMachine } from "../session/calibrate/calibrate.ts";
import { calibrateGpuHere, type GpuCalibrateOutcome } from "../session/calibrate/calibrate-gpu.ts";
import { contradictionIn, contradictionText } from "../session/calibrate/contradiction.ts";
import { readGpuCalibration } from "../session/calibrate/gpu-rates.ts";
import { readCalibrationData } from "../session/recorded.ts";
import { isElsewhere, isGpu, isPredictedOnly } from "../targets/index.ts";
import type { Cli } from "./command.ts";
import { contradictionDocument, contradictionSchema } from "./contradiction.ts";
import { checkElsewhere, FLEET_OPTIONS, fleetPlaceOf } from "./fleet-place.ts";
import { databaseFile, flag, optionalText, optionalWord } from "./options.ts";
import { documentOf, EXIT, type ExitCode, number, partOf, print, printJson, say, style, text } from "./output.ts";
import { GPU_NAMES, readTarget } from "./target.ts";
import { fitted } from "./terminal.ts";

const options = z.object({
  target: optionalText,
  db: databaseFile,
  force: flag,
  fleet: optionalWord,
  fleetKey: optionalWord,
  on: optionalWord,
  json: flag,
});
type Options = z.infer<typeof options>;

/** Fields that the documents of all machines share. */
const calibratedParts = {
  database: text,
  measuredNow: z.boolean().describe("false: it was stored before"),
  environment: partOf<Environment>("as records have it"),
};

const gpuSchema = documentOf({
  ...calibratedParts,
  calibration: partOf<GpuCalibration>("of a GPU: figures with their spread"),
});

const cpuSchema = documentOf({
  ...calibratedParts,
  contradicted: contradictionSchema,
  calibration: partOf<Calibration>("of a CPU: figures with their spread"),
  figures: z.record(text, z.strictObject({ value: number, source: text })).describe("what the model uses besides"),
  memory: z.array(partOf<MemoryLevel>("a level of caches, or the memory")),
});

type Calibrated = Extract<CalibrateOutcome, { status: "calibrated" }>;

export function register(command: Cli): void {
  command
    .json(z.union([cpuSchema, gpuSchema]))
    .option(
      "--target <machine>",
      `cpu (default), cuda for this machine's GPU, or that GPU by name: ${GPU_NAMES.join(", ")}, sm_89`,
    )
    .option("--db <file>", "the database that stores it for tune (default: automap.db in this directory)")
    .option("--force", "measure again even if the database has a calibration of this machine")
    .optionsOf(FLEET_OPTIONS)
    .examples(
      [
        "automap calibrate",
        "automap calibrate --force --db automap.db",
        "automap calibrate --target cuda",
        'automap calibrate --fleet redis://queue.lan --fleet-key desk.key --on "target is h100"',
      ],
      "Every figure is a median of several samples of a generated program; the spread is the middle half of them.",
    )
    .runs(options, calibrate);
}

async function calibrate(given: Options): Promise<ExitCode> {
  checkElsewhere(given.fleet, { target: given.target });
  const place = await fleetPlaceOf(given, say);
  if (place) return calibrateWorkers(place, given).finally(place.close);
  const target = await readTarget(given.target);
  if (isElsewhere(target))
    throw new UsageError(
      `--target: ${target.name} is not this machine, and an emulator has no rates`,
      "on such a machine, automap calibrate measures it",
    );
  const notice = checkDatabase(given.db);
  if (notice !== undefined) say(notice);
  if (isPredictedOnly(target))
    throw new UsageError(
      `--target: nothing here measures ${target.name}`,
      "its figures and their sources are in targets/",
    );
  if (isGpu(target)) return calibrateGpu(target, given);
  const outcome = await calibrateMachine(given.db, { anew: given.force }, say);
  if (outcome.status === "environment") throw new EnvironmentError(outcome.problem);
  show(outcome, given);
  return EXIT.ok;
}

/** Calibrates the machine of a fleet's workers. */
function calibrateWorkers(place: FleetPlace, given: Options): Promise<ExitCode> {
  const { machine, environment } = place;
  const notice = checkDatabase(given.db);
  if (notice !== undefined) say(notice);
  const calibrated = async (db: Database): Promise<ExitCode> => {
    if (db.notice !== undefined) say(db.notice);
    const facts = { status: "calibrated", environment } as const;
    if (isGpu(machine)) {
      const found = await place.rates(db, readGpuCalibration, given.force);
      showGpu({ ...facts, ...found, machine: calibratedGpu(machine, found.calibration) }, machine, given);
      return EXIT.ok;
    }
    const found = await place.rates(db, readCalibrationData, given.force);
    const target = modelTarget(machine, found.calibration);
    show({ ...facts, ...found, target, contradiction: contradictionIn(db, environment, machine) }, given);
    return EXIT.ok;
  };
  return withDatabase(given.db, calibrated, {});
}

function show(outcome: Calibrated, { db, json }: Options): void {
  if (json) printJson(cpuSchema, calibrationDocument(outcome, db));
  else print(describe(outcome, db));
  if (outcome.contradiction) say(`automap: ${contradictionText(outcome.contradiction, db)}`);
}

function describe(outcome: Calibrated, file: string): string {
  const { calibration, environment, measured } = outcome;
  const clock = calibration.clockHz.median;
  const rate = (m: Measured): string[] => [m.median.toFixed(1), gigabytes(m.median * clock), spread(m)];
  const size = (bytes: number): string =>
    bytes >= 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${(bytes / 1024).toFixed(0)} KiB`;
  const inward = Object.entries(calibration.memory).sort(([, a], [, b]) => a.footprintBytes - b.footprintBytes);
  const memory = inward.flatMap(([name, m]) => [
    [name, size(m.footprintBytes), "read", ...rate(m.readBytesPerCycle)],
    ["", "", "write", ...rate(m.writeBytesPerCycle)],
    ["", "", "copy", ...rate(m.copyBytesPerCycle)],
  ]);
  const instructions = Object.entries(calibration.intrinsics).map(([name, t]) => [
    name,
    cycles(t.issueCycles),
    cycles(t.latencyCycles),
    Object.entries(t.loadCycles)
      .map(([operand, m]) => `${operand} ${cycles(m)}`)
      .join("  "),
    cycles(t.storeCycles),
    peakOf(name, t, clock),
  ]);
  return [
    `${calibration.machine}   clock ${(clock / 1e9).toFixed(2)} GHz (spread ${spread(calibration.clockHz)})   ${measured ? "measured now" : "measured before; --force measures again"}`,
    section("memory, one core", [["level", "data", "", "bytes/cycle", "GB/s", "spread"], ...memory]),
    section("instructions, cycles", [["instruction", "issue", "latency", "load", "store", "peak"], ...instructions]),
    section(
      "scalar loops around them, cycles an element",
      Object.entries(calibration.scalar).map(([name, m]) => [name, cycles(m), spread(m)]),
    ),
    ...ending(otherFigures(outcome), environment, "the first three: a program generated from", file),
  ].join("\n\n");
}

/** Single figures of the model, including the scalar ones. */
function otherFigures({ target }: Calibrated): [string, Figure][] {
  const { clockHz, loadsPerCycle, storesPerCycle, instructionsPerCycle, loopInstructions, window } = target;
  const { blockCycles, barrierCycles, scalar } = target;
  const single = {
    clockHz,
    loadsPerCycle,
    storesPerCycle,
    instructionsPerCycle,
    loopInstructions,
    window,
    blockCycles,
    barrierCycles,
  };
  return [...Object.entries(single), ...Object.entries(scalar)];
}

function calibrationDocument(outcome: Calibrated, database: string) {
  const { calibration, environment, target, measured, contradiction } = outcome;
  return {
    database,
    measuredNow: measured,
    contradicted: contradictionDocument(contradiction),
    environment,
    calibration,
    figures: Object.fromEntries(otherFigures(outcome)),
    memory: target.memory,
  };
}

/** Operations per second of all lanes at the measured issue rate: a multiply and an add count as two. */
function peakOf(name: string, { issueCycles }: CalibratedIntrinsic, clock: number): string {
  const row = withName(INTRINSICS, name);
  if (!row) return "";
  const peak = (2 * volumeOf(row.computation.axes) * clock) / issueCycles.median / 1e9;
  return `${peak >= 1000 ? `${(peak / 1000).toFixed(2)} T` : `${peak.toFixed(0)} G`} operations/s`;
}

function cycles({ median }: Measured): string {
  return median.toFixed(2);
}

function spread({ spread: share }: Measured): string {
  return `${(100 * share).toFixed(1)} %`;
}

function gigabytes(bytesPerSecond: number): string {
  return (bytesPerSecond / 1e9).toFixed(1);
}

// ---- a GPU -----------------------------------------------------------------------------------------------------------------------

type CalibratedGpu = Extract<GpuCalibrateOutcome, { status: "calibrated" }>;

async function calibrateGpu(target: Target, given: Options): Promise<ExitCode> {
  const outcome = await calibrateGpuHere(target, given.db, { anew: given.force }, say);
  if (outcome.status === "environment") throw new EnvironmentError(outcome.problem);
  showGpu(outcome, target, given);
  return EXIT.ok;
}

function showGpu(outcome: CalibratedGpu, target: Target, { db, json }: Options): void {
  const { environment, calibration, measured } = outcome;
  if (json) printJson(gpuSchema, { database: db, measuredNow: measured, environment, calibration });
  else print(describeGpu(outcome, target, db));
}

const section = (title: string, rows: Rows): string => `${style("bold", title)}\n${indent(fitted(rows, 2))}`;

/** The figures that were not measured, and how the others were. @param how which of the sections above, and by what */
function ending(
  figures: readonly (readonly [string, Figure])[],
  { compiler }: Environment,
  how: string,
  file: string,
): string[] {
  const assumed = figures.filter(([, { source }]) => !source.startsWith("calibrated"));
  const rows = assumed.map(([name, { value, source }]) => [name, String(value), source]);
  const source = `source of ${how} the table of instructions, compiled by ${compiler.path} ${compiler.version}; kept in ${file}`;
  return [section("what the model takes from elsewhere", rows), style("dim", source)];
}

function describeGpu(
  { calibration, environment, machine, measured }: CalibratedGpu,
  target: Target,
  file: string,
): string {
  const { l2, dram, shared, clockHz, loadedClockHz, launchSeconds } = calibration;
  const scaled = ({ median, spread }: Measured, unit: number, digits: number): string[] => [
    (median / unit).toFixed(digits),
    `${(100 * spread).toFixed(1)} %`,
  ];
  const known = (figure: Figure | undefined, unit: number, digits: number): string =>
    figure ? (figure.value / unit).toFixed(digits) : "";
  const peak = (name: string, issueCycles: number): string => {
    const row = intrinsicNamed(name);
    if (!row) return "";
    const operations = 2 * volumeOf(row.computation.axes);
    const perSecond = (operations * environment.cores * loadedClockHz.median) / issueCycles;
    return `${(perSecond / 1e12).toFixed(1)} T operations/s`;
  };
  return [
    `${environment.cpu}   ${measured ? "measured now" : "measured before; --force measures again"}`,
    section("the machine", [
      ["", "measured", "spread", `table (${target.name})`],
      ["clock, GHz", ...scaled(clockHz, 1e9, 3), known(target.clockHz, 1e9, 3)],
      ["under load, GHz", ...scaled(loadedClockHz, 1e9, 3), known(target.loadedClockHz, 1e9, 3)],
      ["L2 read, GB/s", ...scaled(l2.readBytesPerSecond, 1e9, 0), known(readRate(target, "l2", "grid"), 1e9, 0)],
      ["L2 write, GB/s", ...scaled(l2.writeBytesPerSecond, 1e9, 0), ""],
      ["L2 latency, cycles", ...scaled(l2.latencyCycles, 1, 0), known(memoryOf(target, "l2").latencyCycles, 1, 0)],
      ["DRAM read, GB/s", ...scaled(dram.readBytesPerSecond, 1e9, 0), ""],
      ["DRAM copy, GB/s", ...scaled(dram.copyBytesPerSecond, 1e9, 0), known(readRate(target, "dram", "grid"), 1e9, 0)],
      [
        "DRAM latency, cycles",
        ...scaled(dram.latencyCycles, 1, 0),
        known(memoryOf(target, "dram").latencyCycles, 1, 0),
      ],
      [
        "shared read, bytes/cycle",
        ...scaled(shared.readBytesPerCycle, 1, 1),
        known(readRate(target, "shared", "block"), 1, 1),
      ],
      [
        "shared latency, cycles",
        ...scaled(shared.latencyCycles, 1, 1),
        known(memoryOf(target, "shared").latencyCycles, 1, 1),
      ],
      ["launch, us", ...scaled(launchSeconds, 1e-6, 2), known(target.fixed["launch"], 1e-6, 2)],
    ]),
    section("instructions, cycles of a multiprocessor", [
      ["instruction", "issue", "spread", "latency", "spread", "all of them, under load"],
      ...Object.entries(calibration.instructions).map(([name, { issueCycles, latencyCycles }]) => [
        name,
        ...scaled(issueCycles, 1, 2),
        ...scaled(latencyCycles, 1, 1),
        peak(name, issueCycles.median),
      ]),
    ]),
    ...ending(Object.entries(machine.fixed), environment, "the first two: probes generated from", file),
  ].join("\n\n");
}
