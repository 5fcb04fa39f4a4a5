/** @file Queries a database from a program: the best trials, the failures, an export that another machine can read. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { best, instantiate, openDatabase, operatorNamed, parseDataTypes, queryTrials, tune } from "automap";
import { exportLines, importLines, verifyDatabase } from "automap/db";

const folder = mkdtempSync(join(tmpdir(), "automap-database-"));
const file = join(folder, "automap.db");

// 1. Something to ask about: four kernels of a matrix product, each a row of the database; and its finals, rows too.
const matmul = instantiate(operatorNamed("matmul"), {
  parameters: { m: 16, n: 16, k: 16 },
  types: parseDataTypes("f32"),
});
await tune(matmul, { trials: 4, seed: 1, database: file });

// 2. Questions. Every record carries its workload, candidate, environment, samples and prediction.
const db = openDatabase(file);
const rows = queryTrials(db, { operator: "matmul", extents: { m: { min: 16, max: 64 } }, status: "ok" });
const measured = rows.filter((trial) => trial.finals === undefined);
console.log(`${measured.length} measured, fastest first`);
for (const { intrinsic, measurement } of measured.slice(0, 3))
  if (measurement.status === "ok") console.log(intrinsic, `${(measurement.median * 1e6).toFixed(3)} us`);
const [chosen] = best(db, { computation: matmul });
console.log(chosen?.finals?.place === 1 ? "best is who won the finals" : "WRONG");

// 3. An export is lines of JSON; reading them twice changes nothing.
const other = openDatabase(":memory:");
const first = importLines(other, exportLines(db));
const again = importLines(other, exportLines(db));
console.log(`imported ${first.added.trials === rows.length ? "all" : "some"}, then ${again.added.trials}`);
console.log(`problems found: ${verifyDatabase(other).problems.length}`);

other.close();
db.close();
rmSync(folder, { recursive: true });
