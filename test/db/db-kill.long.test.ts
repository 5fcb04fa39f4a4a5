/**
 * @file A search killed at random instants: its database holds all that was committed, and the search taken up again ends as the one that was
 * never killed. Whether a record is written whole is the subject of db-crash and db-torn.
 */

import { writeFileSync } from "node:fs";
import { setTimeout as later } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { genetic } from "../../tuner/genetic.ts";
import { newTrial, workloadNamed, workshop } from "../support/database.ts";
import { fakeTune, grid, mostlyWorks, nearlyRight } from "../support/fake-space.ts";
import { compileProgram, startProgram } from "../support/program.ts";
import { inFull } from "../support/slow.ts";

const KILLS = inFull(500, 4);
const TRIALS = 250;
const shop = workshop();

/** A whole search on a machine that is a formula: node search.js FILE SEED. Says each trial once it is committed, and how it ended. */
const SEARCH = `
  import { readFileSync, writeSync } from "node:fs";
  import { beginRun, endRun, openDatabase, recordTrial, trialsOf } from "./db/index.js";
  import { genetic } from "./tuner/genetic.js";
  import { fakeTune, grid, mostlyWorks, nearlyRight } from "./test/support/fake-space.js";
  const [path, seed] = process.argv.slice(2);
  const { workload, environment, conditions, trial } = JSON.parse(readFileSync(new URL("given.json", import.meta.url), "utf8"));

  // A point is a register block; blocks are positive.
  const toCandidate = ({ m, n, k, unroll, packed }) =>
    ({ ...trial.candidate, schedule: { ...trial.candidate.schedule, block: { m: m + 1, n: n + 1, k: k + 1, unroll: unroll + 1, packed: packed + 1 } } });
  const keyOf = ({ schedule: { block: b } }) =>
    grid.key({ m: b.m - 1, n: b.n - 1, k: b.k - 1, unroll: b.unroll - 1, packed: b.packed - 1 });

  const db = openDatabase(path);
  const known = new Map(trialsOf(db, workload, environment).map((t) => [keyOf(t.candidate), t]));
  const run = beginRun(db, { workload, environment, seed: Number(seed), options: {}, budget: {}, started: Date.now() });
  const store = {
    known: (key) => known.get(key),
    recorded: () => [],
    record: ({ key, candidate, prediction, measurement, at }) => {
      recordTrial(db, { workload, environment, conditions, run, trial: { candidate: toCandidate(candidate), prediction, measurement, at } });
      writeSync(1, key + "\\n");
    },
  };
  const { result } = await fakeTune({
    space: grid, predict: nearlyRight, answer: mostlyWorks, seed: Number(seed), strategy: genetic, earlyStop: false,
    budget: { trials: ${TRIALS} }, store,
  });
  endRun(db, run, { status: "done", ended: Date.now() });
  db.close();
  writeSync(1, JSON.stringify(result) + "\\n");
`;

beforeAll(() => {
  compileProgram(shop.path(""), ["db/index.ts", "tuner/genetic.ts", "test/support/fake-space.ts"]);
  writeFileSync(shop.path("search.js"), SEARCH);
  const { intrinsic: _, ...given } = newTrial(60, { workload: workloadNamed("matmul", { m: 8, n: 8, k: 8 }) });
  writeFileSync(shop.path("given.json"), JSON.stringify(given));
});
afterAll(() => shop.remove());

/** A result without its clock, which starts anew with each process. */
function timeless(result: unknown): unknown {
  return JSON.parse(JSON.stringify(result, (key, value: unknown) => (key === "at" ? undefined : value)));
}

it(`a search killed ${KILLS} times loses nothing, and ends as if it had never been`, async () => {
  const random = seededRandom(11);
  const deaths = { opening: 0, searching: 0 };
  let kills = 0;
  let finished = 0;
  for (let seed = 1; kills < KILLS || finished === 0; seed++) {
    const path = shop.path(`search-${seed}.db`);
    const committed = new Set<string>();
    // The last search of all is left to end.
    for (let done = false; !done; ) {
      const search = startProgram(shop.path("search.js"), path, String(seed));
      if (kills < KILLS) {
        if (kills % 6 === 0) await later(randomInteger(random, 50, 350));
        else {
          await Promise.race([search.begun, later(100_000)]);
          await later(randomInteger(random, 0, 120));
        }
        search.child.kill("SIGKILL");
      }
      expect((await search.ended).errors).toBe("");
      const lines = search.lines();
      // It may have been killed after its last word.
      const last = lines.at(-1)?.startsWith("{") ? lines.pop() : undefined;
      done = last !== undefined;
      if (search.child.signalCode !== null) {
        kills++;
        deaths[lines.length === 0 ? "opening" : "searching"]++;
      }
      for (const key of lines) {
        // Nothing is measured twice.
        expect(committed.has(key)).toBe(false);
        committed.add(key);
      }

      const db = openDatabase(path);
      const held = new Set(
        queryTrials(db).map(({ candidate }) => {
          if (candidate.kind !== "mapping") throw new Error("only mappings of a CPU were tried");
          const { schedule } = candidate;
          const { m = 0, n = 0, k = 0, unroll = 0, packed = 0 } = schedule.block;
          return grid.key({ m: m - 1, n: n - 1, k: k - 1, unroll: unroll - 1, packed: packed - 1 });
        }),
      );
      db.close();
      expect([...committed].filter((key) => !held.has(key))).toEqual([]);
      // A row committed just before its message is known too.
      for (const key of held) committed.add(key);

      if (last !== undefined) {
        finished++;
        const { result } = await fakeTune({
          space: grid,
          predict: nearlyRight,
          answer: mostlyWorks,
          seed,
          strategy: genetic,
          earlyStop: false,
          budget: { trials: TRIALS },
        });
        expect(timeless(JSON.parse(last))).toEqual(timeless(result));
        expect(held.size).toBe(TRIALS);
      }
    }
  }
  expect(deaths.searching).toBeGreaterThan(KILLS / 2);
});
