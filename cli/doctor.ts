/** @file `automap doctor`: what this machine supports, what is missing, and how to install it. */

import { z } from "zod";
import { examineMachine } from "../runtime/doctor.ts";
import { examineGpu } from "../runtime/doctor-gpu.ts";
import { examineCalibration } from "../session/calibrate/calibrate.ts";
import { examineGpuCalibration } from "../session/calibrate/calibrate-gpu.ts";
import { examineNatives } from "../session/natives.ts";
import type { Cli } from "./command.ts";
import { databaseFile, flag } from "./options.ts";
import { documentOf, EXIT, type ExitCode, print, printJson, style, text } from "./output.ts";
import { worded } from "./terminal.ts";

const options = z.object({ db: databaseFile, json: flag });

const doctorSchema = documentOf({
  findings: z.array(
    z.strictObject({
      subject: text,
      status: z.enum(["ok", "doubtful", "missing"]).describe("doubtful: measuring works, and the numbers say less"),
      detail: text,
      why: text.describe("why it matters"),
      remedy: text.optional().describe("what to install or change"),
    }),
  ),
});

export function register(command: Cli): void {
  command
    .json(doctorSchema)
    .option("--db <file>", "database whose calibration is examined (default: automap.db in this directory)")
    .examples(["automap doctor", "automap doctor --json --db networks.db"])
    .runs(options, examine);
}

async function examine({ db, json }: z.infer<typeof options>): Promise<ExitCode> {
  const findings = [
    ...(await examineMachine()),
    ...(await examineNatives()),
    ...(await examineGpu()),
    ...(await examineCalibration(db)),
    ...(await examineGpuCalibration(db)),
  ];
  if (json) printJson(doctorSchema, { findings });
  else {
    const rows = findings.flatMap((f) => [
      [f.subject, f.status === "ok" ? style("green", "ok") : f.status, f.detail],
      ...(f.remedy === undefined ? [] : [["", "", `${f.why}: ${f.remedy}`]]),
    ]);
    print(worded(rows));
  }
  return findings.some((f) => f.status === "missing") ? EXIT.environment : EXIT.ok;
}
