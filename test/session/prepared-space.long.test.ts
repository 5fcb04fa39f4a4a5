/** @file What a search leaves for the next of the same computation on the same runner: its space, its inputs and expected results. */

import { join } from "node:path";
import { expect, it } from "vitest";
import { openDatabase, runsIn } from "../../db/index.ts";
import { Preparations } from "../../session/kinds/prepared-space.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { type TuneComputationOptions, tuneComputation } from "../../session/tune/tune.ts";
import { runnerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { keysOf } from "../support/searches.ts";
import { operation } from "../support/subjects.ts";

const folder = scratchFolder();

const product = (m: number) => operation(`matmul m=${m} n=32 k=16`);

it("the next search of a computation goes on where the last ended, as one that prepares anew, and replays", async () => {
  const runner = await runnerHere({ threads: 1 });
  const shared = Object.create(runner, { close: { value: () => Promise.resolve() } }) as typeof runner; // as tune-network has it
  const kept = new Preparations(1);
  const searched = async (trials: number, m: number, given?: Preparations) => {
    const options: TuneComputationOptions = {
      trials,
      runner: shared,
      finals: false,
      earlyStop: false,
      transfer: true,
      database: join(folder, "kept.db"),
    };
    return keysOf(await tuneComputation({ computation: product(m) }, options, given));
  };
  try {
    const first = await searched(3, 8, kept);
    const { found, bench } = kept.of(product(8)) ?? {};
    expect([found?.chosen.length, bench]).not.toContain(undefined);
    const next = await searched(12, 8, kept);
    expect(kept.of(product(8))?.found).toBe(found);
    expect(kept.of(product(8))?.bench).toBe(bench);
    expect(next.slice(0, 3)).toEqual(first);
    expect(next).toHaveLength(12);
    expect(await searched(12, 8)).toEqual(next);

    // Another computation takes its place, and learns from it.
    await searched(3, 16, kept);
    expect(kept.of(product(8))).toBeUndefined();
    await searched(3, 8, kept);
    expect(kept.of(product(8))?.found).not.toBe(found);
    const db = openDatabase(join(folder, "kept.db"), { readonly: true });
    try {
      for (const { run } of runsIn(db))
        expect(await replayRun(db, run.id)).toMatchObject({ divergence: undefined, assumed: [] });
    } finally {
      db.close();
    }
  } finally {
    await runner.close();
  }
});
