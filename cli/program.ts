/**
 * @file The command line: reads the words, hands over to one file a command, and turns errors into exit codes.
 *
 *     run(["map", "conv2d", "--intrinsic", "amx"])     prints, and gives 0
 */

import { Command } from "commander";
import { visible } from "../abstraction/text.ts";
import { VERSION } from "../session/version.ts";
import { registerCalibrate } from "./calibrate.ts";
import { registerCheck } from "./check.ts";
import { registerDb } from "./db.ts";
import { registerDoctor } from "./doctor.ts";
import { registerEmit } from "./emit.ts";
import { registerExplain } from "./explain.ts";
import { registerIntrinsic } from "./intrinsic.ts";
import { registerMap } from "./map.ts";
import { registerOperator } from "./operator.ts";
import { EXIT, type ExitCode, reportError } from "./output.ts";
import { registerReplay } from "./replay.ts";
import { registerReport } from "./report.ts";
import { registerSystolic } from "./systolic.ts";
import { registerTune } from "./tune.ts";

/** Help is no wider than the terminal, nor than a README holds. */
const HELP_WIDTH = 100;

/** Runs one command line; the words are those after `automap`. */
export async function run(words: readonly string[]): Promise<ExitCode> {
  let code: ExitCode = EXIT.ok;
  const finish = (result: ExitCode): void => {
    code = result;
  };
  try {
    await programWith(finish).parseAsync(words, { from: "user" });
    return code;
  } catch (error) {
    return reportError(error);
  }
}

function programWith(finish: (code: ExitCode) => void): Command {
  // What is set before the commands are added holds for them too.
  const program = new Command("automap")
    .description("Maps tensor operators onto hardware instructions: finds, proves and explains every mapping.")
    .version(VERSION)
    .exitOverride()
    .configureHelp({ helpWidth: Math.min(HELP_WIDTH, process.stdout.columns ?? HELP_WIDTH) })
    .configureOutput({ outputError: (text, write) => write(visible(sayAsWeDo(text))) })
    .addHelpText(
      "after",
      [
        "",
        "Examples:",
        "  automap map conv2d --intrinsic wmma.m16n16k16.f32.f16",
        "  automap explain conv2d --intrinsic amx.tdpbusd",
        "  automap intrinsic check",
        "",
        "Exit codes: 0 ok, 1 failed, 2 usage, 3 nothing maps, 4 verification failed, 5 regression,",
        "6 environment, 130 interrupted.",
      ].join("\n"),
    );
  registerTune(program, finish);
  registerMap(program, finish);
  registerExplain(program, finish);
  registerEmit(program, finish);
  registerSystolic(program, finish);
  registerIntrinsic(program, finish);
  registerOperator(program, finish);
  registerDoctor(program, finish);
  registerDb(program, finish);
  registerReport(program, finish);
  registerReplay(program, finish);
  registerCheck(program, finish);
  registerCalibrate(program, finish);
  pointToHelp(program, "automap");
  return program;
}

/** commander's own complaints in the form of all the others. */
function sayAsWeDo(text: string): string {
  return text.replace(/^error: /, "automap: ").replace(/\n\(Did you mean (.*)\?\)/, "\n  did you mean $1?");
}

/** After a mistake: where the help of just this command is. */
function pointToHelp(command: Command, words: string): void {
  command.showHelpAfterError(`  see: ${words} --help`);
  for (const sub of command.commands) pointToHelp(sub, `${words} ${sub.name()}`);
}
