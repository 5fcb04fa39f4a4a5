/**
 * @file `automap completion`: shell completion of commands, options, operators, instructions, targets and ids.
 *
 *     eval "$(automap completion bash)"            in ~/.bashrc; likewise zsh, and `automap completion fish | source`
 *     automap completion --of tune conv2d --int     prints --intrinsic
 */

import { existsSync } from "node:fs";
import type { Command } from "commander";
import { z } from "zod";
import { CANDIDATE_KINDS } from "../abstraction/candidate.ts";
import { entryOf, namesOf, unique } from "../abstraction/collections.ts";
import { suggestion, UsageError } from "../abstraction/error.ts";
import { type Database, DEFAULT_DATABASE, namesIn, queryTrials, runsIn, shortId, withDatabase } from "../db/index.ts";
import { INTRINSICS } from "../intrinsics/index.ts";
import { EPILOGUE_NAMES } from "../operators/epilogue.ts";
import { OPERATORS } from "../operators/index.ts";
import { STRATEGIES } from "../tuner/strategies.ts";
import type { Cli } from "./command.ts";
import { optionsOf } from "./options.ts";
import { EXIT, print } from "./output.ts";
import { TARGET_NAMES } from "./target.ts";

/** Completion scripts by shell. Each asks automap itself, and leaves the word to file completion when automap has nothing to offer. */
const SCRIPTS: Readonly<Record<string, string>> = {
  bash: `_automap() {
  local IFS=$'\\n'
  COMPREPLY=($(automap completion --of "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _automap automap`,
  zsh: `_automap() {
  local -a found
  found=("\${(@f)$(automap completion --of "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "\${found[*]}" ]]; then compadd -a found; else _files; fi
}
compdef _automap automap`,
  fish: `function __automap
  automap completion --of (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c automap -a '(__automap)'`,
};

export function register(command: Cli): void {
  command
    .argument("<shell>", Object.keys(SCRIPTS).join(", "))
    .examples([
      'eval "$(automap completion bash)"',
      'eval "$(automap completion zsh)"',
      "automap completion fish | source",
    ])
    .runs(z.object({}), (_given, _command, shell: string) => {
      const script = entryOf(SCRIPTS, shell);
      if (script === undefined)
        throw new UsageError(`no completion for a shell "${shell}"`, suggestion(shell, Object.keys(SCRIPTS)));
      print(script);
      return EXIT.ok;
    });
}

/** Completions of the last word of a line. @param program has the line's command loaded */
export function completionsOf(program: Command, line: readonly string[]): string[] {
  const last = line.at(-1) ?? "";
  const before = line.slice(0, -1);
  let command = program;
  let at = 0;
  for (; at < before.length; at++) {
    const next = command.commands.find((sub) => sub.name() === before[at] || sub.aliases().includes(before[at] ?? ""));
    if (!next) break;
    command = next;
  }
  const rest = before.slice(at);
  const offered = offers(command, rest, last);
  return unique(offered).filter((word) => word.startsWith(last));
}

function offers(command: Command, rest: readonly string[], last: string): readonly string[] {
  if (command.commands.length > 0) return command.commands.map((sub) => sub.name());
  const option = rest.at(-1);
  if (option?.startsWith("--") && takesValue(command, option)) return VALUES[option]?.(databaseOf(rest)) ?? [];
  if (last.startsWith("-")) {
    const operator = OPERATORS.find(({ name, aliases }) => rest[0] === name || aliases.includes(rest[0] ?? ""));
    const names = [...optionsOf(command), ...Object.keys(operator?.parameters ?? {})];
    return names.map((name) => `--${name}`).filter((name) => !rest.includes(name));
  }
  const [argument] = command.registeredArguments;
  if (rest.length > 0 && argument?.name() !== "a") return [];
  return ARGUMENTS[argument?.name() ?? ""]?.(databaseOf(rest)) ?? [];
}

function takesValue(command: Command, word: string): boolean {
  return command.options.some(({ long, required }) => long === word && required);
}

const intrinsics = (): string[] => unique(INTRINSICS.flatMap(({ name, family }) => [family, name]));
const operators = (): string[] => namesOf(OPERATORS);

/** Values by option. */
const VALUES: Readonly<Record<string, (database: string) => readonly string[]>> = {
  "--intrinsic": intrinsics,
  "--op": operators,
  "--target": () => TARGET_NAMES,
  "--strategy": () => namesOf(STRATEGIES),
  "--kinds": () => CANDIDATE_KINDS,
  "--epilogue": () => EPILOGUE_NAMES,
  "--run": (database) => runIds(database),
  "--name": (database) => held(database, namesIn),
};

/** Values by the name of a command's first argument. */
const ARGUMENTS: Readonly<Record<string, (database: string) => readonly string[]>> = {
  "operator or equation": operators,
  operator: operators,
  "name or family": intrinsics,
  "record, operator or equation": (database) => [...operators(), ...recordIds(database)],
  id: (database) => recordIds(database),
  a: (database) => recordIds(database),
  run: (database) => runIds(database),
  shell: () => Object.keys(SCRIPTS),
};

/** Number of ids offered, the latest first. */
const MOST_IDS = 100;

function recordIds(file: string): string[] {
  return held(file, (db) => queryTrials(db, { sort: "at", limit: MOST_IDS }).map(({ id }) => shortId(id)));
}

function runIds(file: string): string[] {
  return held(file, (db) =>
    runsIn(db)
      .slice(-MOST_IDS)
      .map(({ run }) => shortId(run.id)),
  );
}

/** Reads from a database; empty when the database cannot be read. */
function held(file: string, read: (db: Database) => readonly string[]): string[] {
  if (!existsSync(file)) return [];
  try {
    return [...withDatabase(file, read)];
  } catch {
    // Completion has nowhere to show an error about a file.
    return [];
  }
}

function databaseOf(words: readonly string[]): string {
  const at = words.indexOf("--db");
  return (at < 0 ? undefined : words[at + 1]) ?? DEFAULT_DATABASE;
}
