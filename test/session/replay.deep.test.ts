/** @file A search replayed from its records: bit for bit, or with the first difference named. No hardware. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Candidate, candidateKey } from "../../abstraction/candidate.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import type { Measurement, Prediction } from "../../abstraction/trial.ts";
import { beginRun, type Database, endRun, openDatabase, queryTrials, recordTrial } from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import type { SessionSpace } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { recordOf, targetOf } from "../../targets/index.ts";
import { genetic } from "../../tuner/genetic.ts";
import { random } from "../../tuner/random.ts";
import { search } from "../../tuner/search.ts";
import type { Strategy } from "../../tuner/strategy.ts";
import { commandLine } from "../support/command-line.ts";
import { MACHINE, WARM, workloadNamed, workshop } from "../support/database.ts";

const SMALL = workloadNamed("conv2d", { c: 16, k: 16, h: 8, w: 8 }, "u8s8");
const VNNI = intrinsicsNamed("avx512.vpdpbusd");
const TARGET = targetOf({
  name: "Testium 9000",
  isa: MACHINE.isa,
  levels: [
    { name: "dram", units: 1 },
    { name: "l2", units: 2, bytes: 1 << 20 },
    { name: "l1", units: 1, bytes: 32 << 10 },
    { name: "registers", units: 1 },
  ],
  source: "made up",
});

const shop = workshop();
const FILE = shop.path("runs.db");
let db: Database;
beforeAll(() => {
  db = openDatabase(FILE);
});
afterAll(() => {
  db.close();
  shop.remove();
});

/** Near what the model says, and the same for the same candidate; one in ten crashes. */
function pretend(candidate: Candidate): Measurement {
  const hash = [...candidateKey(candidate)].reduce((h, letter) => Math.imul(h ^ letter.charCodeAt(0), 0x01000193), 7);
  const noise = seededRandom(hash)();
  if (noise < 0.1) return { status: "crashed", log: "pretended" };
  const median = 1e-6 * (1 + noise);
  return { status: "ok", samples: [median], median, interval: [median * 0.99, median * 1.01], instructions: 1 };
}

interface Recorded {
  readonly run: string;
  readonly keys: readonly string[];
}

/** A search as a session makes it, with a pretended machine; `alter` records something else than was predicted. */
async function recordedSearch(
  given: {
    readonly strategy?: Strategy;
    readonly seed?: number;
    readonly trials?: number;
    readonly stopAfter?: number;
    /** Trials that the last round had no time for. */
    readonly untimely?: readonly number[];
    readonly started?: number;
    readonly alter?: (prediction: Prediction | undefined, number: number) => Prediction | undefined;
    readonly into?: Database;
  } = {},
): Promise<Recorded> {
  const {
    strategy = genetic,
    seed = 1,
    trials = 16,
    stopAfter,
    untimely = [],
    started = 1_700_000_000_000,
    alter,
    into = db,
  } = given;
  const space = spaceOf(seed);
  const run = beginRun(into, {
    workload: SMALL,
    environment: MACHINE,
    seed,
    options: { strategy: strategy.name, threads: 1, intrinsics: VNNI.map((i) => i.name), target: recordOf(TARGET) },
    budget: { trials, seconds: 40 },
    started,
  });
  let at = started;
  const controller = new AbortController();
  const result = await search<Candidate>({
    space,
    strategy,
    seed,
    budget: { trials },
    now: () => at,
    predict: space.predict,
    learn: space.learn,
    signal: controller.signal,
    async *measure(batch) {
      for (const candidate of batch) {
        at += 10;
        yield untimely.includes((at - started) / 10) ? undefined : pretend(candidate);
      }
    },
    store: {
      known: () => undefined,
      recorded: () => [],
      record: ({ candidate, prediction, measurement, at: when }) => {
        const number = (when - started) / 10;
        const said = alter ? alter(prediction, number) : prediction;
        const [intrinsic] = VNNI;
        if (!intrinsic) throw new Error("the table has changed");
        const trial = { candidate, prediction: said, measurement, at: when };
        recordTrial(into, { workload: SMALL, environment: MACHINE, run, intrinsic, trial, conditions: WARM });
        if (number === stopAfter) controller.abort();
      },
    },
  });
  endRun(into, run, { status: "done", ended: at });
  return { run, keys: result.trials.map((t) => t.key) };
}

function spaceOf(seed: number): SessionSpace {
  const space = finished(sessionSpace(SMALL.computation, { intrinsics: VNNI, machine: TARGET, threads: 1, seed }));
  if ("length" in space) throw new Error("nothing maps");
  return space;
}

describe("a replay", () => {
  it.each([genetic, random])("repeats the decisions of a $name search, bit for bit", async (strategy) => {
    const recorded = await recordedSearch({ strategy, seed: 7 });
    const replayed = await replayRun(db, recorded.run);
    expect(replayed).toMatchObject({ divergence: undefined, assumed: expect.any(Array), known: 0 });
    expect(replayed.trials.map((t) => t.key)).toEqual(recorded.keys);
    expect(replayed.best).toBeDefined();
  });

  it("ends where the search ran out of time, and says so", async () => {
    const recorded = await recordedSearch({ seed: 3, trials: 100, stopAfter: 11 });
    expect(recorded.keys).toHaveLength(11);
    const replayed = await replayRun(db, recorded.run);
    expect(replayed).toMatchObject({ status: "recorded-end", divergence: undefined });
    expect(replayed.trials.map((t) => t.key)).toEqual(recorded.keys);
  });

  it("ends with a round that there was no time to measure whole", async () => {
    const file = openDatabase(shop.path("cut.db"));
    const recorded = await recordedSearch({ seed: 3, trials: 100, untimely: [10, 12], into: file });
    expect(recorded.keys.length).toBeGreaterThan(10);
    const replayed = await replayRun(file, recorded.run);
    file.close();
    expect(replayed).toMatchObject({ status: "recorded-end", divergence: undefined });
    expect(replayed.trials.map((t) => t.key)).toEqual(recorded.keys);
  });

  it("counts two trials of an older run as one where their schedules are those of one kernel", async () => {
    const file = openDatabase(shop.path("twice.db"));
    const { run, keys } = await recordedSearch({ seed: 8, trials: 12, into: file });
    const [third] = queryTrials(file, {}).filter((t) => candidateKey(t.candidate) === keys[2]);
    const [intrinsic] = VNNI;
    if (!third || !intrinsic || third.candidate.kind !== "mapping") throw new Error("no third trial");
    const { schedule } = third.candidate;
    const block = { ...schedule.block, ...(schedule.block["k"] === undefined ? { k: 1 } : { h: 1 }) };
    const trial = { ...third, candidate: { ...third.candidate, schedule: { ...schedule, block } }, at: third.at + 5 };
    recordTrial(file, { workload: SMALL, environment: MACHINE, run, intrinsic, trial, conditions: WARM });
    expect(queryTrials(file, {})).toHaveLength(13);
    const replayed = await replayRun(file, run);
    file.close();
    expect(replayed.divergence).toBeUndefined();
    expect(replayed.trials.map((t) => t.key)).toEqual(keys);
  });

  it("names the trial whose prediction has changed, even in the last bit", async () => {
    const nudged = (p: Prediction | undefined, number: number): Prediction | undefined =>
      p && number === 5 ? { ...p, seconds: p.seconds * (1 + Number.EPSILON) } : p;
    const { run } = await recordedSearch({ seed: 5, alter: nudged });
    const { divergence } = await replayRun(db, run);
    expect(divergence?.trial).toBe(5);
    expect(divergence?.because).toMatch(/the model said .* then and says .* now/);
  });

  it("names the trial at which the run diverged", async () => {
    // Two searches recorded as one run: the second half of it is another seed's.
    const file = openDatabase(shop.path("mixed.db"));
    const honest = await recordedSearch({ seed: 9, trials: 6, into: file });
    file.sqlite.exec("DROP TRIGGER runs_end_once; DROP TRIGGER trials_unchanged");
    // Without seals both count as imported: an altered run whose seal no longer holds has no trials of its own.
    file.sqlite.prepare("UPDATE runs SET seed = 10, seal = NULL WHERE id = ?").run(honest.run);
    file.sqlite.prepare("UPDATE trials SET seal = NULL WHERE run = ?").run(honest.run);
    const { divergence, status } = await replayRun(file, honest.run);
    file.close();
    expect(status).toBe("interrupted");
    expect(divergence?.because).toContain("which the run never measured");
  });

  it("knows the earlier measurements that the run knew", async () => {
    const file = openDatabase(shop.path("resumed.db"));
    const first = await recordedSearch({ seed: 2, trials: 8, into: file });
    const all = await recordedSearch({ seed: 2, trials: 16, into: openDatabase(":memory:") });
    // The resumed run measured only what the first one had not.
    const run = beginRun(file, {
      workload: SMALL,
      environment: MACHINE,
      seed: 2,
      options: { strategy: "genetic", threads: 1, intrinsics: ["avx512.vpdpbusd"], target: recordOf(TARGET) },
      budget: { trials: 16 },
      started: 1_700_000_100_000,
    });
    const [intrinsic] = VNNI;
    if (!intrinsic) throw new Error("the table has changed");
    const space = spaceOf(2);
    let at = 1_700_000_100_000;
    const known = new Map<string, Measurement>(first.keys.map((key) => [key, pretend(JSON.parse(key) as Candidate)]));
    await search<Candidate>({
      space,
      strategy: genetic,
      seed: 2,
      budget: { trials: 16 },
      now: () => at,
      predict: space.predict,
      learn: space.learn,
      async *measure(batch) {
        for (const c of batch) {
          at += 10;
          yield pretend(c);
        }
      },
      store: {
        known: (key) => {
          const measurement = known.get(key);
          return measurement && { measurement, at: 0 };
        },
        recorded: () => [],
        record: ({ candidate, prediction, measurement, at: when }) => {
          const trial = { candidate, prediction, measurement, at: when };
          recordTrial(file, { workload: SMALL, environment: MACHINE, run, intrinsic, trial, conditions: WARM });
        },
      },
    });
    const replayed = await replayRun(file, run);
    file.close();
    expect(replayed).toMatchObject({ divergence: undefined, known: first.keys.length });
    expect(replayed.trials.map((t) => t.key)).toEqual(all.keys);
  });
});

describe("automap replay", () => {
  it("lists the runs, and reports that one is reproduced", async () => {
    const { run } = await recordedSearch({ seed: 21 });
    const listed = await commandLine(["replay", "--db", FILE]);
    expect(listed.out).toContain(run.slice(0, 12));
    const { out, code } = await commandLine(["replay", run.slice(0, 12), "--db", FILE]);
    expect(code).toBe(0);
    expect(out).toContain("16 trials gone through: 16 of this run, 0 it knew");
    expect(out).toContain("bit for bit");
    const { out: json } = await commandLine(["replay", run, "--db", FILE, "--json"]);
    expect(JSON.parse(json)).toMatchObject({ schemaVersion: 1, identical: true, divergence: null, run: { id: run } });
  });

  it("exits with 1 where it diverges and with 3 where there is no such run", async () => {
    const { run } = await recordedSearch({ seed: 22, alter: (p) => p && { ...p, seconds: p.seconds * 2 } });
    const { out, code } = await commandLine(["replay", run, "--db", FILE]);
    expect(code).toBe(1);
    expect(out).toContain("diverges at trial 1");
    expect(await commandLine(["replay", "00000000", "--db", FILE])).toMatchObject({ code: 3 });
  });
});
