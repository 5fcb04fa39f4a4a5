/**
 * @file A session on a GPU that answers at once: its proposals, records and replays do not depend on how kernels are
 * measured.
 */

import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openDatabase, queryTrials } from "../../db/index.ts";
import type { CudaRunner } from "../../runtime/run/cuda.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { type TuneComputationOptions, type TuneOutcome, tuneComputation } from "../../session/tune/tune.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { fakeGpuRunner } from "../support/fake-runner.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";
import { operation } from "../support/subjects.ts";

const folder = scratchFolder();

const matmul = operation("matmul m=256 n=256 k=256", "f16");

interface Fake {
  readonly runner: CudaRunner;
  /** How many kernels each call measured. */
  readonly asked: number[];
}

function fakeGpu(): Fake {
  const asked: number[] = [];
  const begun = new Set<string>();
  const runner = fakeGpuRunner({
    onCompile: ({ source }) => begun.add(source),
    onMeasure: (kernels) => {
      asked.push(kernels.length);
      // Kernels are compiled as they are written, not when the last of them is.
      if (asked.length === 1) expect(kernels.every(({ source }) => begun.has(source))).toBe(true);
    },
  });
  return { runner, asked };
}

/** More than one round of any machine. */
const TRIALS = inFull(40, 24);

type Found = Extract<TuneOutcome, { trials: unknown }>;

async function search(database: string, fake: Fake, options: Partial<TuneComputationOptions> = {}): Promise<Found> {
  const outcome = await tuneComputation(
    { computation: matmul },
    {
      machine: nvidiaTarget("h100"),
      runner: fake.runner,
      database,
      seconds: 60,
      trials: TRIALS,
      // Made-up times bring a gain or do not.
      earlyStop: false,
      ...options,
    },
  );
  if (!("trials" in outcome)) throw new Error(outcome.status);
  return outcome;
}

/** Kernels measured together on this machine. */
const round = Math.min(16, Math.max(4, availableParallelism()));

const recordsIn = (database: string): ReturnType<typeof queryTrials> => {
  const db = openDatabase(database, { readonly: true });
  try {
    return queryTrials(db, { sort: "at" });
  } finally {
    db.close();
  }
};

describe("a session on a GPU", () => {
  it("measures as many kernels as its budget has trials, and ends with finals", async () => {
    const fake = fakeGpu();
    const found = await search(join(folder, "whole.db"), fake);
    expect(found.trials).toHaveLength(TRIALS);
    const finals = fake.asked.pop();
    expect(fake.asked.reduce((sum, n) => sum + n, 0)).toBe(TRIALS);
    expect(finals).toBeGreaterThan(0);
    expect(found.best?.kernel.language).toBe("cuda");
    // Instructions of warps and of threads are tried in one search.
    expect(new Set(found.trials.map((t) => t.candidate.kind))).toEqual(new Set(["grid", "threads"]));
  });

  it("searches only the mappings that the caller keeps, and does not record such a search", async () => {
    const isTurned = (matching: Readonly<Record<string, readonly string[]>>): boolean => matching["m"]?.join() === "n";
    const keeps: TuneComputationOptions["keeps"] = ({ matching }) => isTurned(matching);
    const found = await search(":memory:", fakeGpu(), { keeps });
    const matchings = found.trials.map(({ candidate }) => ("matching" in candidate ? candidate.matching : {}));
    expect(matchings).toHaveLength(TRIALS);
    expect(matchings.every(isTurned)).toBe(true);
    const file = join(folder, "some.db");
    await expect(search(file, fakeGpu(), { keeps })).rejects.toThrow("is kept in memory");
    expect(existsSync(file)).toBe(false);
  });

  it("continues where it was stopped, and measures nothing twice", async () => {
    const [stopped, whole] = [join(folder, "stopped.db"), join(folder, "undisturbed.db")];
    const controller = new AbortController();
    const first = await search(stopped, fakeGpu(), {
      signal: controller.signal,
      onEvent: (event) => {
        if (event.kind === "trial" && event.number === 10) controller.abort();
      },
    });
    expect(first.status).toBe("interrupted");
    // Kernels measured together are recorded together.
    const kept = recordsIn(stopped).filter((t) => t.finals === undefined).length;
    expect(kept).toBe(Math.ceil(10 / round) * round);
    const fake = fakeGpu();
    const second = await search(stopped, fake);
    const undisturbed = await search(whole, fakeGpu());
    expect(second.trials.map((t) => t.key)).toEqual(undisturbed.trials.map((t) => t.key));
    fake.asked.pop();
    expect(fake.asked.reduce((sum, n) => sum + n, 0)).toBe(TRIALS - kept);
  });

  it("is replayed from its records, round by round", async () => {
    const db = openDatabase(join(folder, "whole.db"), { readonly: true });
    const run = queryTrials(db, {})[0]?.run;
    const replay = await replayRun(db, String(run));
    db.close();
    expect(replay.divergence).toBeUndefined();
    expect(replay.trials).toHaveLength(TRIALS);
    expect(replay.assumed).toEqual([]);
  });

  it("treats another power limit as another machine", async () => {
    const file = join(folder, "whole.db");
    const fake = fakeGpu();
    const { device } = fake.runner;
    const capped = { ...fake.runner, device: { ...device, limits: "1980 MHz, 350 W" } };
    await search(file, { ...fake, runner: capped }, { trials: 4 });
    fake.asked.pop();
    expect(fake.asked).toEqual([4]);
  });
});
