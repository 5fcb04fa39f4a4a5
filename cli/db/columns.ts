/** @file `automap db columns`: the tables and columns of a database file, for readers who query it with SQL. */

import { z } from "zod";
import { suggestion, UsageError } from "../../abstraction/error.ts";
import { COLUMNS, type Column } from "../../db/columns.ts";
import type { Cli } from "../command.ts";
import { optionalFlag } from "../options.ts";
import { documentOf, EXIT, type ExitCode, print, printJson, text } from "../output.ts";
import { printFitted } from "../terminal.ts";

const options = z.strictObject({ json: optionalFlag });
const document = documentOf({
  columns: z.array(
    z.strictObject({
      table: text,
      column: text,
      type: text.describe("TEXT, INTEGER, REAL, or JSON, a text in SQLite"),
      optional: z.boolean().describe("whether it may be NULL"),
      about: text.nullable(),
    }),
  ),
});

export function registerColumns(db: Cli): void {
  db.command("columns")
    .json(document)
    .summary("the columns of each table, for queries with SQLite")
    .argument("[table]", "one of them only")
    .examples(["automap db columns trials"])
    .runs(options, printColumns);
}

function printColumns({ json }: z.infer<typeof options>, _command: Cli, table?: string): ExitCode {
  const tables = Object.entries(COLUMNS).filter(([name]) => table === undefined || name === table);
  if (table !== undefined && tables.length === 0)
    throw new UsageError(`no table "${table}"`, suggestion(table, Object.keys(COLUMNS)));
  const columns = tables.flatMap(([name, of]) =>
    Object.entries<Column>(of).map(([column, { type = "TEXT", optional = false, of: kind, refers, about }]) => ({
      table: name,
      column,
      type,
      optional: optional || kind !== undefined,
      about: about ?? (refers && `an id of ${refers}`) ?? null,
    })),
  );
  if (json) printJson(document, { columns });
  else {
    const rows = columns.map((c) => [c.table, c.column, c.type, c.optional ? "may be NULL" : "", c.about ?? ""]);
    printFitted([["table", "column", "type", "", "what"], ...rows], ["what"]);
    print("\nEvery table has an id too; the views records and best join them.");
  }
  return EXIT.ok;
}
