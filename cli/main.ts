#!/usr/bin/env node
/**
 * @file The command line: reads the words, hands over to one file a command, and turns errors into exit codes.
 */

import { readFileSync } from "node:fs";
import { Command } from "commander";
import { registerDb } from "./db.ts";
import { registerDoctor } from "./doctor.ts";
import { registerExplain } from "./explain.ts";
import { registerIntrinsic } from "./intrinsic.ts";
import { registerMap } from "./map.ts";
import { registerOperator } from "./operator.ts";
import { type ExitCode, reportError } from "./output.ts";
import { registerTune } from "./tune.ts";

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  version: string;
};

const finish = (code: ExitCode): void => {
  process.exitCode = code;
};

const program = new Command("automap")
  .description("Maps tensor operators onto hardware instructions: finds, proves and explains every mapping.")
  .version(version)
  .showHelpAfterError("(automap --help shows the commands)")
  .exitOverride()
  .addHelpText(
    "after",
    [
      "",
      "Examples:",
      "  automap map conv2d --intrinsic wmma.m16n16k16.f32.f16",
      "  automap explain conv2d --intrinsic amx.tdpbusd",
      "  automap intrinsic check",
      "",
      "Exit codes: 0 ok, 1 failed, 2 usage, 3 nothing maps, 4 verification failed, 6 environment, 130 interrupted.",
    ].join("\n"),
  );
registerTune(program, finish);
registerMap(program, finish);

registerExplain(program, finish);
registerIntrinsic(program, finish);
registerOperator(program, finish);
registerDoctor(program, finish);
registerDb(program, finish);
for (const command of program.commands) command.exitOverride();

// A reader that closes the pipe early, as `head` does, ends the program quietly.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  throw error;
});

try {
  await program.parseAsync();
} catch (error) {
  finish(reportError(error));
}
