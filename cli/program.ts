/**
 * @file The command line: parses the words, runs one command (each has its own file), and turns errors into exit codes.
 *
 *     run(["map", "conv2d", "--intrinsic", "amx"])     prints, and gives 0
 *
 * Only the requested command is loaded: help and completion need none of the rest.
 */

import type { Command } from "commander";
import { suggestion, UsageError } from "../abstraction/error.ts";
import { EXIT_MEANINGS } from "../abstraction/exit-codes.ts";
import { visible } from "../abstraction/text.ts";
import { table } from "../report/text.ts";
import { VERSION } from "../session/version.ts";
import { Cli } from "./command.ts";
import { columnsOf, EXIT, type ExitCode, print, reportError } from "./output.ts";

interface CommandFile {
  readonly name: string;
  readonly summary: string;
  /** Loads the file whose function adds the command's options, help and action. */
  readonly load: () => Promise<{ readonly register: (command: Cli) => void }>;
  /** Set when the command has commands of its own. */
  readonly isGroup?: boolean;
  /** Set when the command reads no instructions and therefore takes no user declarations. */
  readonly needsNone?: boolean;
}

export const COMMANDS: readonly CommandFile[] = [
  {
    name: "tune",
    summary: "search mappings and schedules on this machine, and keep the fastest kernel",
    load: () => import("./tune.ts"),
  },
  {
    name: "tune-network",
    summary: "tune the tasks of a network within one time, most where it saves most",
    load: () => import("./tune-network.ts"),
  },
  {
    name: "network",
    summary: "show a network's tasks and how they are computed; write it as one C library; list operators",
    load: () => import("./network.ts"),
    isGroup: true,
  },
  {
    name: "map",
    summary: "list the mappings of an operator onto an instruction, and why other matches are refused",
    load: () => import("./map.ts"),
  },
  {
    name: "explain",
    summary: "draw a mapping with its matrices, indices, addresses and waste, or show why a match is refused",
    load: () => import("./explain.ts"),
  },
  {
    name: "emit",
    summary: "write a tuned kernel as a package with a C header, a build script, CMake and a test",
    load: () => import("./emit.ts"),
  },
  {
    name: "systolic",
    summary: "list the systolic arrays that compute an operator: where and when each point runs",
    load: () => import("./systolic.ts"),
    needsNone: true,
  },
  {
    name: "intrinsic",
    summary: "list, show and check instructions",
    load: () => import("./intrinsic.ts"),
    isGroup: true,
  },
  {
    name: "operator",
    summary: "list and show operators",
    load: () => import("./operator.ts"),
    isGroup: true,
    needsNone: true,
  },
  {
    name: "doctor",
    summary: "say what this machine can do, what is missing, and what to install",
    load: () => import("./doctor.ts"),
    needsNone: true,
  },
  {
    name: "db",
    summary: "query recorded trials; export, import, merge, verify and prune them",
    load: () => import("./db.ts"),
    isGroup: true,
  },
  {
    name: "report",
    summary: "write an HTML report of a database",
    load: () => import("./report.ts"),
  },
  {
    name: "watch",
    summary: "show searches while they run, as a page in a browser of this machine",
    load: () => import("./watch.ts"),
  },
  {
    name: "replay",
    summary: "repeat the decisions of a search from its records, without hardware",
    load: () => import("./replay.ts"),
  },
  {
    name: "check",
    summary: "fail when the best kernel of a workload is slower than in a baseline database",
    load: () => import("./check.ts"),
  },
  {
    name: "fleet",
    summary: "make a fleet of machines that measure for one another, admit its members, and look after its workers",
    load: () => import("./fleet.ts"),
    isGroup: true,
    needsNone: true,
  },
  {
    name: "completion",
    summary: "print the script by which a shell completes commands, options, names and ids",
    load: () => import("./completion.ts"),
  },
  {
    name: "cache",
    summary: "show or clear what is kept between searches: compiled kernels and the rates of this machine",
    load: () => import("./cache.ts"),
    isGroup: true,
    needsNone: true,
  },
  {
    name: "worker",
    summary: "compile and measure on this machine for the tuners of a fleet",
    load: () => import("./worker.ts"),
    needsNone: true,
  },
  {
    name: "batch",
    summary: "write kernels into a folder that a machine without Node or network measures, and take its results",
    load: () => import("./batch.ts"),
    isGroup: true,
  },
  {
    name: "calibrate",
    summary: "measure this machine's bandwidths and instruction rates for the latency model",
    load: () => import("./calibrate.ts"),
    needsNone: true,
  },
];

/** Maximum width of help, also on wider terminals, and minimum width of the column of descriptions. */
const HELP_WIDTH = 100;
const COLUMN_WIDTH = 20;
const helpWidth = (): number => Math.min(HELP_WIDTH, columnsOf(process.stdout) ?? HELP_WIDTH);

/** Runs one command line. The words are those after `automap`. */
export async function run(words: readonly string[]): Promise<ExitCode> {
  try {
    if (words[0] === "completion" && words[1] === "--of") return await offer(words.slice(2));
    const program = await programFor(words);
    await checkFirst(words, namesOfCommands());
    await program.parseAsync(words, { from: "user" });
    return program.code;
  } catch (error) {
    return reportError(error);
  }
}

/** Prints the completions of the last word of a line, for the shell. Nothing on the line is executed. */
async function offer(line: readonly string[]): Promise<ExitCode> {
  const { completionsOf } = await import("./completion.ts");
  const found = completionsOf(await programFor(line), line);
  if (found.length > 0) print(found.join("\n"));
  return EXIT.ok;
}

async function programFor(words: readonly string[]): Promise<Cli> {
  // Settings made before the commands are added apply to them too.
  const program = new Cli("automap")
    .description(
      "Maps tensor operators onto hardware instructions, proves and explains every mapping, and tunes the kernels on this machine.",
    )
    .version(VERSION)
    .exitOverride()
    .configureHelp({ helpWidth: helpWidth(), minWidthToWrap: COLUMN_WIDTH })
    .configureOutput({
      writeOut: (text) => process.stdout.write(brokenTo(helpWidth(), text)),
      outputError: (text, write) => write(visible(sayAsWeDo(text))),
    })
    .examples(
      [
        "automap tune conv2d --layout NHWC",
        "automap map conv2d --intrinsic wmma.m16n16k16.f32.f16",
        "automap explain conv2d --intrinsic amx.tdpbusd",
        "automap intrinsic check",
      ],
      "automap COMMAND --help tells the options of a command, with examples.",
      "",
      "Exit codes:",
      ...exitCodes(),
    );
  const [asked] = words.filter((word) => !word.startsWith("-") && word !== "help");
  const names = namesOfCommands();
  if (words[0] === "help" && asked !== undefined && !names.includes(asked))
    throw new UsageError(`unknown command "${asked}"`, suggestion(asked, names));
  for (const { name, summary, load, needsNone = false } of COMMANDS) {
    const command = program.command(name).summary(summary);
    if (name !== asked) continue;
    (await load()).register(command);
    if (!needsNone) (await import("./declare.ts")).addDeclarations(command);
  }
  pointToHelp(program, "automap");
  return program;
}

/** The lines of a table of exit codes. */
function exitCodes(): string[] {
  return Object.entries(EXIT_MEANINGS).map(([code, means]) => `  ${code.padStart(3)}  ${means}`);
}

function namesOfCommands(): readonly string[] {
  return COMMANDS.map((command) => command.name);
}

/** @throws UsageError when the command is not the first word, is written in capitals, or belongs to another command */
async function checkFirst([first, ...rest]: readonly string[], names: readonly string[]): Promise<void> {
  if (first === undefined || names.includes(first) || /^(help|completion|-h|--help|-V|--version)$/.test(first)) return;
  const what = `unknown ${first.startsWith("-") ? "option" : "command"} "${first}"`;
  if (/^-*v(ersion)?$/i.test(first)) throw new UsageError(what, "did you mean automap --version?");
  const later = rest.find((word) => names.includes(word));
  if (later !== undefined) throw new UsageError(what, `the command comes first: automap ${later}`);
  const small = first.toLowerCase();
  if (names.includes(small)) throw new UsageError(what, `did you mean ${small}?`);
  const within = (await Promise.all(COMMANDS.filter(({ isGroup }) => isGroup).map(groupOf))).filter((group) =>
    group.commands.some((command) => command.name() === first),
  );
  if (within.length > 0)
    throw new UsageError(what, `did you mean ${within.map((group) => `automap ${group.name()} ${first}`).join(", ")}?`);
}

/** A command that has commands of its own. */
async function groupOf({ name, load }: CommandFile): Promise<Command> {
  const group = new Cli(name);
  (await load()).register(group);
  return group;
}

/** Rewraps the paragraphs of help that are wider than the given width. Examples stay lines to paste. */
function brokenTo(width: number, text: string): string {
  return text.replace(/^[A-Za-z`].*(?:\n[A-Za-z`].*)*$/gm, (paragraph) =>
    paragraph.split("\n").some((line) => line.length > width)
      ? table([[paragraph.replaceAll("\n", " ")]], width)
      : paragraph,
  );
}

/** Rewrites commander's own errors in the style of the others. */
function sayAsWeDo(text: string): string {
  return text
    .replace(/^error: /, "automap: ")
    .replace(/\n\(Did you mean (.*)\?\)/, "\n  did you mean $1?")
    .replace(
      /too many arguments for '(.*)'\. Expected (\d+) arguments? but got (\d+)\./,
      (_, name: string, most: string, given: string) =>
        `too many arguments: ${name} takes ${most === "0" ? "none" : most}, got ${given}`,
    );
}

/** After a usage error, tells how to show the help of that command. */
function pointToHelp(command: Command, words: string): void {
  command.showHelpAfterError(`  see: ${words} --help`);
  for (const sub of command.commands) pointToHelp(sub, `${words} ${sub.name()}`);
}
