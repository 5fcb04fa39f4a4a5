/** @file `automap calibrate --target cuda`: measures and prints the rates of this machine's GPU, with those that the model takes from the table. */

import { z } from "zod";
import { volumeOf } from "../abstraction/collections.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import { type Figure, memoryOf, readRate, type Target } from "../abstraction/machine.ts";
import type { Environment } from "../db/index.ts";
import { intrinsicNamed } from "../intrinsics/index.ts";
import type { Measured } from "../perfmodel/calibrate.ts";
import type { GpuCalibration } from "../perfmodel/calibrate-gpu.ts";
import { indent, type Rows } from "../report/text.ts";
import { calibrateGpuHere, type GpuCalibrateOutcome } from "../session/calibrate/calibrate-gpu.ts";
import { documentOf, EXIT, type ExitCode, partOf, print, printJson, say, style, text } from "./output.ts";
import { fitted } from "./terminal.ts";

/** Fields that the documents of all machines share. */
export const calibratedParts = {
  database: text,
  measuredNow: z.boolean().describe("false: it was stored before"),
  environment: partOf<Environment>("as records have it"),
};
export const gpuSchema = documentOf({
  ...calibratedParts,
  calibration: partOf<GpuCalibration>("of a GPU: figures with their spread"),
});

type Calibrated = Extract<GpuCalibrateOutcome, { status: "calibrated" }>;

export async function calibrateGpu(
  target: Target,
  given: { readonly db: string; readonly force: boolean; readonly json: boolean },
): Promise<ExitCode> {
  const outcome = await calibrateGpuHere(target, given.db, { anew: given.force }, say);
  if (outcome.status === "environment") throw new EnvironmentError(outcome.problem);
  const { environment, calibration, measured } = outcome;
  if (given.json) printJson(gpuSchema, { database: given.db, measuredNow: measured, environment, calibration });
  else print(describe(outcome, target, given.db));
  return EXIT.ok;
}

export const section = (title: string, rows: Rows): string => `${style("bold", title)}\n${indent(fitted(rows, 2))}`;

/** The figures that were not measured, and how the others were. @param how which of the sections above, and by what */
export function ending(
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

function describe({ calibration, environment, machine, measured }: Calibrated, target: Target, file: string): string {
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
