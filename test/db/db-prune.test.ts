/** @file Pruning deletes the trials its filter selects and the records only they referred to. */

import { beforeEach, describe, expect, it } from "vitest";
import { TABLE_NAMES } from "../../db/facts.ts";
import {
  beginRun,
  type Database,
  endRun,
  type NewRun,
  pruneTrials,
  recordCalibration,
  recordTrial,
  verifyDatabase,
} from "../../db/index.ts";
import { environmentRowOf, workloadRowOf } from "../../db/rows.ts";
import { insert } from "../../db/write.ts";
import { CONV, eachWorkshop, MACHINE, measured, newTrial, trial, workloadNamed } from "../support/database.ts";

const shop = eachWorkshop();
let db: Database;
beforeEach(() => {
  db = shop.open("automap.db");
});

/** A search that ended before it measured anything. */
function idleRun(started: number, given: Partial<NewRun> = {}): string {
  const run = beginRun(db, {
    workload: CONV,
    environment: MACHINE,
    seed: 1,
    options: {},
    budget: {},
    started,
    ...given,
  });
  endRun(db, run, { status: "done", ended: started + 1 });
  return run;
}

describe("pruning", () => {
  beforeEach(() => {
    for (let i = 1; i <= 5; i++) recordTrial(db, newTrial(10 * i, { trial: trial(measured(10 * i), i) }));
    const run = idleRun(100);
    recordTrial(db, newTrial(60, { run }));
    recordTrial(db, newTrial(70, { run, trial: trial({ status: "wrong", log: "off by one" }, 5) }));
    recordTrial(
      db,
      newTrial(8, { workload: workloadNamed("matmul", { m: 8 }), environment: { ...MACHINE, driver: "1" } }),
    );
    recordCalibration(db, { environment: MACHINE, data: { l1: [2, null] }, at: 3 });
  });
  /** Every row of every table. */
  const contents = (): unknown[][] =>
    TABLE_NAMES.map((table) => db.sqlite.prepare(`SELECT * FROM ${table} ORDER BY id`).all());
  const runs = (): unknown[] => db.sqlite.prepare("SELECT id FROM runs ORDER BY started").pluck().all();

  it("keeps runs without trials that the filter does not select", () => {
    const [before] = runs();
    const old = idleRun(3);
    const young = idleRun(7);
    const other = idleRun(3.5e12, { workload: workloadNamed("matmul", { m: 9 }) });
    const nothing = { trials: 0, runs: 0, workloads: 0, environments: 0 };
    for (const filter of [
      { until: 3 },
      { operator: "scan", until: 5 },
      { status: "crashed" as const, until: 1 },
      { intrinsic: "amx.tdpbusd" },
      { target: "nowhere" },
    ])
      expect([filter, pruneTrials(db, filter, { reason: "test" })]).toEqual([
        filter,
        { ...nothing, trials: "until" in filter && filter.until === 3 ? 1 : 0 },
      ]);
    expect(runs()).toEqual([old, young, before, other]);
    expect(pruneTrials(db, { operator: "conv2d", until: 5 }, { reason: "test" })).toMatchObject({ runs: 1 });
    expect(runs()).toEqual([young, before, other]);
    expect(pruneTrials(db, { operator: "matmul", extents: { m: { min: 9 } } }, { reason: "test" })).toEqual({
      ...nothing,
      runs: 1,
      workloads: 1,
    });
    expect(runs()).toEqual([young, before]);
    expect(verifyDatabase(db).problems).toEqual([]);
  });

  it("deletes a run with its last trial, and keeps unrelated workloads and environments", () => {
    const run = idleRun(1);
    for (const at of [1, 2]) recordTrial(db, newTrial(99, { run, trial: trial(measured(99), at) }));
    // A world that nothing refers to: it came with an import whose trials were left out.
    insert(db, "workloads", workloadRowOf(workloadNamed("matmul", { m: 3 })));
    insert(db, "environments", environmentRowOf({ ...MACHINE, cpu: "another" }));
    expect(pruneTrials(db, { status: "ok", since: 2, until: 3 }, { reason: "test" })).toEqual({
      trials: 2,
      runs: 0,
      workloads: 0,
      environments: 0,
    });
    expect(pruneTrials(db, { status: "ok", since: 1, until: 2 }, { reason: "test" })).toEqual({
      trials: 1,
      runs: 1,
      workloads: 0,
      environments: 0,
    });
  });

  it("counts without deleting", () => {
    const before = contents();
    expect(pruneTrials(db, { operator: "conv2d" }, { reason: "test", dry: true })).toMatchObject({ trials: 6 });
    expect(contents()).toEqual(before);
  });
});
