/**
 * @file Transcripts of command lines and what they print. In a file, lines are
 *
 *     record trials.db us 61.25; at 9      a record, in the notation of test/support/recorded-text.ts
 *     file @/layers.txt net/head\n         a file; `@/` is the folder of all that the transcript makes
 *     folder @/full                        a folder; and `database @/empty.db` a database without records
 *     world kernel=Linux 7.0               the machine on which `automap db` runs, otherwise that of the records
 *     $ automap db query --db @/trials.db
 *     show @/check.xml                     a file that was written
 *     sql @/trials.db SELECT id FROM best  rows of a database
 *
 * Beneath a command is its standard output, then what it said on the other stream behind `! `, and its exit code where that is not 0.
 */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { expect } from "vitest";
import { Cli } from "../../cli/command.ts";
import { register } from "../../cli/db.ts";
import { reportError } from "../../cli/output.ts";
import { openDatabase, type World } from "../../db/index.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { captured, commandLine, type Ran, shellWords } from "./command-line.ts";
import { machineOf, RecordedText } from "./recorded-text.ts";
import { scratchFolder } from "./scratch.ts";
import type { Play } from "./transcript.ts";

/** `automap db` as it runs on a machine. */
async function runDb(words: readonly string[], world: World): Promise<Ran> {
  const program = new Cli("automap").exitOverride();
  register(program.command("db"), async () => world);
  return captured(async () => {
    try {
      await program.parseAsync(words, { from: "user" });
      return program.code;
    } catch (error) {
      return reportError(error);
    }
  });
}

/** A line that was refused: nothing on standard output, a sentence that fits, no trace. */
export function expectRefused({ out, err }: Ran, line: string): void {
  expect(out, line).toBe("");
  expect(err, line).toMatch(/^automap: \S/);
  expect(err, line).not.toMatch(/^\s+at |internal:|Error:|E[A-Z]{4,}:/m);
}

const linesOf = (text: string): string[] => (text === "" ? [] : text.trimEnd().split("\n"));

/** What a command line printed, as a transcript shows it. */
export function ranLines({ out, err, code }: Ran, records: RecordedText): string[] {
  const said = linesOf(records.told(err)).map((text) => `! ${text}`);
  return [...linesOf(records.told(out)), ...said, ...(code === 0 ? [] : [`exit ${code}`])];
}

/** What a query finds: the names of its columns, and a line a row. */
function rowsOf(file: string, query: string): string[] {
  const db = openDatabase(file, { readonly: true });
  try {
    const statement = db.sqlite.prepare<[], Record<string, unknown>>(query);
    const names = statement.columns().map(({ name }) => name);
    return [names.join(" | "), ...statement.all().map((row) => names.map((name) => `${row[name]}`).join(" | "))];
  } finally {
    db.close();
  }
}

/** Plays the lines of one file. @param folder of all that it makes */
export function beginCommands(folder = scratchFolder(), records = new RecordedText(folder)): Play {
  /** Where there are records; elsewhere `automap db` runs as any command. */
  let world: World | undefined;
  const setWorld = (text: string): void => {
    world = { environment: machineOf(text), intrinsics: INTRINSICS };
  };
  const setUp: Readonly<Record<string, (text: string, path: string) => unknown>> = {
    record: (text) => {
      records.record(text);
      if (!world) setWorld("");
    },
    world: setWorld,
    file: (_, given) => {
      const [path = "", ...words] = given.split(" ");
      writeFileSync(path, words.join(" ").replaceAll("\\n", "\n"));
    },
    folder: (_, path) => mkdirSync(path),
    database: (_, path) => openDatabase(path).close(),
  };
  return async (line) => {
    const [word = "", ...words] = line.split(" ");
    const text = words.join(" ");
    const given = records.meant(text);
    if (word === "show") return linesOf(records.told(readFileSync(given, "utf8")));
    if (word === "sql")
      return rowsOf(words[0] === undefined ? "" : records.meant(words[0]), words.slice(1).join(" ")).map((row) =>
        records.told(row),
      );
    if (word !== "$") {
      setUp[word]?.(text, given);
      return [];
    }
    const [, ...argv] = shellWords(given);
    const ran = await (argv[0] === "db" && world ? runDb(argv, world) : commandLine(argv));
    if (ran.code === 2 || ran.code === 6) expectRefused(ran, line);
    return ranLines(ran, records);
  };
}
