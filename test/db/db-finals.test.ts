/**
 * @file Finals in the database: which kernel is best where first times and finals disagree; records without finals keep
 * their ids.
 */

import { beforeEach, describe, expect, it } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import {
  beginRun,
  best,
  type Database,
  exportLines,
  importLines,
  recordTrial,
  showTrial,
  trialsOf,
  verifyDatabase,
} from "../../db/index.ts";
import { CONV, candidate, eachWorkshop, MACHINE, measured, newTrial, trial, VNNI, WARM } from "../support/database.ts";
import { windowSchedule } from "../support/window.ts";

const AMX = "amx.tdpbusd";
const names = [VNNI?.name ?? "", AMX];

const DESIGN: Candidate = {
  kind: "window",
  intrinsic: names[0] ?? "",
  schedule: windowSchedule(),
};

const shop = eachWorkshop();
let db: Database;
beforeEach(() => {
  db = shop.open("automap.db");
});

let started = 1;
/** A search that was offered these instructions. */
function search(offered: readonly string[] = names, kinds = "all"): string {
  const options = { offered, kinds };
  return beginRun(db, { workload: CONV, environment: MACHINE, seed: 1, options, budget: {}, started: started++ });
}

/** Microseconds of a candidate, by itself or in finals. */
function took(
  microseconds: number,
  {
    at,
    run,
    block,
    intrinsic = names[0],
    comparison,
    place,
  }: {
    at: number;
    run?: string;
    block: number;
    intrinsic?: string | undefined;
    comparison?: string;
    place?: number;
  },
): string {
  const tried = candidate(block, intrinsic);
  return recordTrial(db, {
    workload: CONV,
    environment: MACHINE,
    trial: trial(measured(microseconds), at, tried),
    conditions: WARM,
    ...(run === undefined ? {} : { run }),
    ...(comparison === undefined ? {} : { finals: { comparison, place } }),
  });
}

describe("finals", () => {
  it("of a search for designs on lanes do not replace the best mapping", () => {
    const mapping = took(10, { at: 5, run: search(), block: 1 });
    recordTrial(db, {
      workload: CONV,
      environment: MACHINE,
      run: search(names, "lanes"),
      trial: trial(measured(20), 9, DESIGN),
      conditions: WARM,
      finals: { comparison: "a", place: 1 },
    });
    expect(best(db).map((t) => t.id)).toEqual([mapping]);
    expect(db.sqlite.prepare("SELECT id FROM best").pluck().all()).toEqual([mapping]);
  });

  it("of two searches at the same instant are decided by one of the two", () => {
    const ids = ["a", "b"].map((comparison, i) =>
      took(10 + i, { at: 9, run: search(), block: i + 1, comparison, place: 1 }),
    );
    expect(best(db)).toHaveLength(1);
    expect(ids).toContain(best(db)[0]?.id);
  });

  it("are not read when a search resumes", () => {
    const run = search();
    const first = took(10, { at: 1, run, block: 1 });
    took(10.6, { at: 9, run, block: 1, comparison: "a", place: 1 });
    expect(trialsOf(db, CONV, MACHINE).map((t) => t.id)).toEqual([first]);
  });

  it("are exported and merged, and pruning keeps the winner", () => {
    const run = search();
    took(10, { at: 1, run, block: 1 });
    const winner = took(10.6, { at: 9, run, block: 1, comparison: "a", place: 1 });
    const other = shop.open("other.db");
    const report = importLines(other, exportLines(db));
    expect(report).toMatchObject({ rejected: [], added: { trials: 2 } });
    expect(best(other, {}, { imported: true }).map((t) => t.id)).toEqual([winner]);
    expect(verifyDatabase(other).problems).toEqual([]);
  });
});

describe("a record without finals", () => {
  it("keeps the share of its processors that other programs took, where known", () => {
    const id = recordTrial(db, newTrial(60, { conditions: { threads: 1, cache: "warm", affinity: [1], load: 0.25 } }));
    expect(showTrial(db, id).conditions).toEqual({ threads: 1, cache: "warm", affinity: [1], load: 0.25 });
  });
});
