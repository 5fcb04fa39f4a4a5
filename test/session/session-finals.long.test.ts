/**
 * @file The kernel a search announces is the one `db best` names and `emit` takes, when finals reverse the order of
 * first times.
 */

import { mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { type Candidate, canonicalJson } from "../../abstraction/candidate.ts";
import { conclude } from "../../cli/tune-outcome.ts";
import { best, openDatabase, queryTrials, runsIn, showTrial } from "../../db/index.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { decide } from "../../session/tune/finals.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { type TuneComputationOptions, type TuneOutcome, tuneComputation } from "../../session/tune/tune.ts";
import { random } from "../../tuner/random.ts";
import { captured, commandLine } from "../support/command-line.ts";
import { type FakeTimes, fakeRunner, shareOf, took, withCalibration } from "../support/fake-runner.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const folder = scratchFolder();
const compiler = await compilerHere();

const matmul = operation("matmul m=32 n=32 k=32");
const WORDS = "matmul --m 32 --n 32 --k 32 --dtype f32";

/** By itself every kernel ties with every other; in turns what was slower is clearly faster. */
const TURNED: FakeTimes = {
  alone: (kernel) => took((10 + shareOf(kernel)) * 1e-6, 0.2),
  inTurns: (kernels) => kernels.map((kernel) => took((20 - 5 * shareOf(kernel)) * 1e-6, 0.001)),
};

type Found = Extract<TuneOutcome, { best: unknown }>;

async function search(
  database: string,
  options: Partial<TuneComputationOptions> = {},
  times: FakeTimes = TURNED,
): Promise<Found & { best: NonNullable<Found["best"]> }> {
  const runner = fakeRunner(compiler, times);
  const outcome = await tuneComputation(
    { computation: matmul, parameters: { m: 32, n: 32, k: 32 } },
    { strategy: random, trials: 12, seconds: 60, earlyStop: false, ...options, database, runner },
  );
  if (!("best" in outcome) || !outcome.best) throw new Error(outcome.status);
  return { ...outcome, best: outcome.best };
}

const database = (name: string): string => withCalibration(join(folder, name), compiler);

/** The record that the commands name, and the candidate whose kernel the package holds. */
async function takenBy(file: string): Promise<{ best: string; emitted: string; source: string }> {
  const listed = await commandLine(`db best --op matmul --json --db ${file}`);
  const to = mkdtempSync(join(folder, "package-"));
  const emitted = await commandLine(`emit ${WORDS} --force --to ${to} --db ${file} --json`);
  const { trials } = JSON.parse(listed.out) as { trials: { id: string }[] };
  expect(trials).toHaveLength(1);
  const { record } = JSON.parse(emitted.out) as { record: string };
  return { best: trials[0]?.id ?? "", emitted: record, source: readFileSync(join(to, "matmul_tuned.cpp"), "utf8") };
}

describe("the winner of a search", () => {
  it("is the kernel that db best names and emit takes, with the time of the finals", async () => {
    const file = database("once.db");
    const { best: announced, trials } = await search(file);
    const medians = trials.flatMap((t) => (t.measurement.status === "ok" ? [t.measurement.median] : []));
    expect(announced.measurement.median).toBeGreaterThan(Math.max(...medians));
    const own = trials.find((t) => t.key === canonicalJson(announced.candidate));
    expect(own?.measurement).not.toEqual(expect.objectContaining({ median: Math.min(...medians) }));

    const taken = await takenBy(file);
    expect(taken).toMatchObject({ best: announced.id, emitted: announced.id });
    expect(taken.source).toContain(announced.kernel.source.split("automap_run")[1]?.slice(0, 400));
    const db = openDatabase(file, { readonly: true });
    const record = showTrial(db, announced.id);
    expect(record.measurement).toEqual(announced.measurement);
    expect(record.finals?.place).toBe(1);
    const finals = queryTrials(db).filter((t) => t.finals !== undefined);
    expect(finals.map((t) => t.finals?.place).sort()).toEqual(finals.map((_, i) => i + 1));
    db.close();
  });

  it("is taken, too, when the search continues, is repeated, or runs with another seed", async () => {
    const file = database("again.db");
    for (const options of [{ trials: 4 }, { trials: 12 }, { seed: 8, trials: 3 }]) {
      const { best: announced } = await search(file, options);
      expect(await takenBy(file)).toMatchObject({ best: announced.id, emitted: announced.id });
    }
  });

  it("is no worse than that of an earlier search, as the best so far takes part in the finals", async () => {
    const file = database("reigning.db");
    const first = await search(file, { trials: 20 });
    const second = await search(file, { trials: 1, seed: 99 });
    expect(second.trials).toHaveLength(1);
    expect(second.best.measurement.median).toBeLessThanOrEqual(first.best.measurement.median);
    expect(await takenBy(file)).toMatchObject({ best: second.best.id });
  });

  it("keeps its place against trials of a search that was killed before its finals", async () => {
    const file = database("killed.db");
    const alone = TURNED.alone;
    let asked = 0;
    const killed = search(
      file,
      {},
      { ...TURNED, alone: (kernel) => (asked++ < 6 ? alone(kernel) : Promise.reject(new Error("killed"))) },
    );
    await expect(killed).rejects.toThrow("killed");
    const { best: announced } = await search(file);
    expect(await takenBy(file)).toMatchObject({ best: announced.id, emitted: announced.id });
  });

  it("over few instructions does not replace the best of all, and is the best of those", async () => {
    const file = database("few.db");
    const all = await search(file);
    const name = "portable.mla.f32.broadcast";
    const plain = usableIntrinsics().filter((i) => i.name === name);
    const slow: FakeTimes = { alone: () => took(1e-3), inTurns: (kernels) => kernels.map(() => took(1e-3)) };
    const few = await search(file, { intrinsics: plain, trials: 2 }, slow);
    expect(few.best.candidate.intrinsic).toBe(name);
    expect(await takenBy(file)).toMatchObject({ best: all.best.id });
    const db = openDatabase(file, { readonly: true });
    expect(best(db, { computation: matmul, intrinsic: name }).map((t) => t.id)).toEqual([few.best.id]);
    db.close();
  });

  it("has finals even when only one kernel worked, and none when none did", async () => {
    const file = database("one.db");
    const one = await search(file, { trials: 1 });
    expect(await takenBy(file)).toMatchObject({ best: one.best.id });
    const bad = { status: "wrong", log: "all of it" } as const;
    await expect(search(database("none.db"), {}, { ...TURNED, alone: () => bad })).rejects.toThrow("trials-spent");
  });

  it("changes no replay, since finals are no trials of the search", async () => {
    const file = database("replay.db");
    const { trials } = await search(file);
    const db = openDatabase(file, { readonly: true });
    const [run] = queryTrials(db).map((t) => t.run);
    const replay = await replayRun(db, run ?? "");
    db.close();
    expect(replay.divergence).toBeUndefined();
    expect(replay.trials.map((t) => t.key)).toEqual(trials.map((t) => t.key));
  });
});

describe("the end of a search", () => {
  let file: string;
  let outcome: Awaited<ReturnType<typeof search>>;
  beforeAll(async () => {
    file = database("ended.db");
    outcome = await search(file);
  });

  it("prints its result before writing it, so that a full disk loses nothing", async () => {
    const { code, out, err } = await captured(() => {
      expect(() => conclude(outcome, { to: "/dev/full" }, 12)).toThrow(
        "--to /dev/full cannot be written: the disk is full\n  nothing of it was written\n  free some space",
      );
      return 6;
    });
    expect({ code, out }).toEqual({
      code: 6,
      out: expect.stringContaining(`automap emit ${outcome.best.id.slice(0, 12)}`),
    });
    expect(err).not.toContain("written: /dev/full");
  });

  it("prints its result without a record to name when the database is full", async () => {
    const db = openDatabase(file);
    const [first] = runsIn(db);
    if (!first) throw new Error("no run");
    db.sqlite.pragma("wal_checkpoint(TRUNCATE)");
    db.sqlite.pragma(`max_page_count = ${String(db.sqlite.pragma("page_count", { simple: true }))}`);
    const samples = Array.from({ length: 5000 }, () => 1e-6);
    const compare = (kernels: readonly unknown[]) => Promise.resolve(kernels.map(() => ({ ...took(1e-6), samples })));
    const finished = {
      db,
      workload: { computation: matmul, parameters: { m: 32, n: 32, k: 32 } },
      environment: environmentOf({ compiler }),
      run: first.run.id,
      space: { kernelOf: (c: Candidate) => kernelFor(matmul, c), mappingOf: () => undefined },
      threads: 1,
      cache: "warm" as const,
      kinds: "all" as const,
      offered: usableIntrinsics(),
    };
    const decided = await decide(outcome.trials.slice(0, 2), finished, { compare }, { now: Date.now });
    db.close();
    expect(decided.unrecorded?.message).toContain("no space left on the device");
    const { winner: won = outcome.best, unrecorded } = decided;
    expect(won.measurement.samples).toEqual(samples);
    const { code, out, err } = await captured(() =>
      conclude({ ...outcome, best: won, ...(unrecorded ? { unrecorded } : {}) }, {}, 12),
    );
    expect(code).toBe(6);
    expect(out).toContain("a call (95 % interval");
    expect(out).not.toContain("automap db show");
    expect(err).toContain("no space left on the device");
  });

  it("prints the reason of the end when nothing was measured", async () => {
    const none = { ...outcome, best: undefined, trials: [] };
    const said = async (status: "interrupted" | "time-spent"): Promise<string> =>
      (await captured(() => conclude({ ...none, status }, {}, 0))).err;
    expect(await said("interrupted")).toContain("it was stopped before the first was measured");
    expect(await said("interrupted")).toContain("go on with");
    expect(await said("time-spent")).toContain("give more of it with --time");
    const missing = { status: "environment", what: "no GPU", why: "w", remedy: "r" } as const;
    const without = async (measured: number): Promise<string> =>
      (await captured(() => conclude({ status: "environment", problem: missing }, {}, measured))).err;
    expect(await without(0)).not.toContain("kept");
    expect(await without(3)).toContain("what was measured is kept");
  });
});
