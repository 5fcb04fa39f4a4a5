/**
 * @file The schema holds for the SQLite of the system too, often years older than the one built in: people open `automap.db` with the
 * `sqlite3` command.
 */

import { execFileSync } from "node:child_process";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openDatabase, verifyDatabase } from "../../db/index.ts";
import { workshop } from "../support/database.ts";
import { recordEveryFact } from "../support/every-fact.ts";

/** Why it cannot be asked; undefined where it can. STRICT tables came with SQLite 3.37. */
function missing(): string | undefined {
  try {
    const version = execFileSync("sqlite3", ["--version"], { encoding: "utf8" });
    const [, major = 0, minor = 0] = /^(\d+)\.(\d+)/.exec(version)?.map(Number) ?? [];
    return major > 3 || minor >= 37 ? undefined : `the system's sqlite3 is ${version.trim()}, older than STRICT tables`;
  } catch {
    return "the system has no sqlite3 command";
  }
}
const reason = missing();

let shop: ReturnType<typeof workshop>;
beforeEach(() => {
  shop = workshop();
});
afterEach(() => shop.remove());

/** What the command prints. @throws the command's complaint */
function sqlite3(path: string, ...statements: readonly string[]): string {
  return execFileSync("sqlite3", ["-bail", path, ...statements], { encoding: "utf8", stdio: "pipe" }).trim();
}

function filled(): string {
  const path = shop.path("automap.db");
  const db = openDatabase(path);
  recordEveryFact(db);
  db.close();
  return path;
}

const CHECKS = ["PRAGMA integrity_check", "PRAGMA foreign_key_check"];

describe.skipIf(reason !== undefined)(
  `with the system's SQLite${reason === undefined ? "" : ` (skipped: ${reason})`}`,
  () => {
    it("a new file is intact, and its views answer", () => {
      const path = filled();
      expect(sqlite3(path, ...CHECKS)).toBe("ok");
      expect(sqlite3(path, "SELECT operator, status, affinity FROM records ORDER BY at, median").split("\n")).toEqual([
        "conv2d|ok|",
        "conv2d|ok|",
        "conv2d|crashed|",
        "conv2d|ok|[0]",
        "matmul|ok|",
      ]);
      expect(sqlite3(path, "SELECT round(median * 1e6) FROM best ORDER BY 1")).toBe("60.0\n61.0\n62.0");
    });

    it("rows of every table are accepted, with and without optional fields", () => {
      const path = filled();
      // Every row again under another id: what may be NULL is NULL in some row and has a value in another.
      for (const table of ["environments", "workloads", "runs", "trials", "calibrations"]) {
        const columns = sqlite3(
          path,
          `SELECT group_concat(name) FROM pragma_table_info('${table}') WHERE name <> 'id'`,
        );
        sqlite3(path, `INSERT INTO ${table} (id, ${columns}) SELECT 'again ' || id, ${columns} FROM ${table}`);
      }
      expect(sqlite3(path, ...CHECKS)).toBe("ok");
      expect(sqlite3(path, "SELECT count(*) FROM trials")).toBe("10");
      const db = openDatabase(path);
      // The ids were made up, and that is all that is wrong.
      const { problems } = verifyDatabase(db);
      db.close();
      expect(problems).toHaveLength(14);
      expect(problems.every(({ why }) => why.includes("its facts make the id"))).toBe(true);
    });

    it.each(["samples", "levels", "affinity", "candidate"])("text that is no JSON is refused in %s", (column) => {
      const path = filled();
      const columns = sqlite3(path, "SELECT group_concat(name) FROM pragma_table_info('trials')").split(",");
      const values = columns.map((name) => (name === "id" ? "'another'" : name === column ? "'{not json'" : name));
      expect(() =>
        sqlite3(path, `INSERT INTO trials SELECT ${values} FROM trials WHERE levels IS NOT NULL AND affinity IS NULL`),
      ).toThrow(/CHECK constraint failed/);
    });

    it("facts can be neither changed nor deleted", () => {
      const path = filled();
      expect(() => sqlite3(path, "DELETE FROM trials")).toThrow(/only automap db prune deletes them/);
      expect(() => sqlite3(path, "UPDATE trials SET median = 1e-9")).toThrow(/trials are facts/);
    });
  },
);
