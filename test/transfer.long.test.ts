/**
 * @file Schedules that a search takes from records of near computations: tuned on this machine, with a few trials each.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { z } from "zod";
import { candidateKey } from "../abstraction/candidate.ts";
import { type Computation, extentsOf } from "../abstraction/computation.ts";
import { computationOf, openDatabase, runsIn, showTrial } from "../db/index.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { replayRun } from "../session/replay.ts";
import { type TuneOutcome, tuneComputation } from "../session/tune.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-transfer-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const database = join(folder, "near.db");

const product = (k: number, epilogue?: string): Computation =>
  instantiate(operatorNamed("matmul"), {
    parameters: { m: 8, n: 32, k },
    types: parseDataTypes("f32"),
    ...(epilogue !== undefined && { epilogue }),
  });
const tuned = (computation: Computation, transfer?: boolean): Promise<TuneOutcome> =>
  tuneComputation({ computation }, { trials: 6, database, ...(transfer !== undefined && { transfer }) });

function keysOf(outcome: TuneOutcome): readonly string[] {
  if (!("trials" in outcome)) throw new Error(outcome.status);
  return outcome.trials.map(({ key }) => key);
}

it("a search measures the fastest schedules of the nearest recorded computations in turns with the model's, also in a replay", async () => {
  await tuned(product(64));
  await tuned(product(16));
  const again = await tuned(product(16, "res[m,n] = max(out[m,n], 0)"), true);
  const db = openDatabase(database, { readonly: true });
  try {
    const run = runsIn(db).find(({ run: { options } }) => "transferred" in options)?.run;
    const seeds = z
      .array(z.string())
      .parse(run?.options["transferred"])
      .map((id) => showTrial(db, id));
    // At least the fastest of the same sizes.
    expect(seeds.length).toBeGreaterThan(0);
    // Those of the same sizes are the nearest.
    const depth = ({ workload }: (typeof seeds)[number]): number | undefined => extentsOf(computationOf(workload))["k"];
    expect(seeds.map(depth)).toEqual(seeds.map(depth).toSorted((a = 0, b = 0) => a - b));
    expect(seeds.map(depth)[0]).toBe(16);
    // The second of every two, or earlier where the model prefers it too.
    for (const [i, { candidate }] of seeds.slice(0, 3).entries())
      expect(keysOf(again).slice(0, 2 * i + 2)).toContain(candidateKey(candidate));
    expect(await replayRun(db, run?.id ?? "")).toMatchObject({ divergence: undefined, assumed: [] });
  } finally {
    db.close();
  }
});
