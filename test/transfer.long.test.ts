/**
 * @file What a search takes from records of similar computations: tuned on this machine, with a few trials each.
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
  tuneComputation({ computation }, { trials: 6, finals: false, database, ...(transfer !== undefined && { transfer }) });

function keysOf(outcome: TuneOutcome): readonly string[] {
  if (!("trials" in outcome)) throw new Error(outcome.status);
  return outcome.trials.map(({ key }) => key);
}

it("a search starts with the model corrected by similar computations and measures their fastest schedules in turns with the model's, also in a replay", async () => {
  await tuned(product(64));
  await tuned(product(16));
  const again = await tuned(product(16, "res[m,n] = max(out[m,n], 0)"), true);
  const db = openDatabase(database, { readonly: true });
  try {
    const run = runsIn(db).find(({ run: { options } }) => "transferred" in options)?.run;
    const { transferred, prior } = z
      .object({ transferred: z.array(z.string()), prior: z.object({ observations: z.number() }) })
      .parse(run?.options);
    expect(prior.observations).toBeGreaterThan(0);
    expect(prior.observations).toBeLessThanOrEqual(12);
    const seeds = transferred.map((id) => showTrial(db, id));
    const depth = ({ workload }: (typeof seeds)[number]): number | undefined => extentsOf(computationOf(workload))["k"];
    const same = [...seeds.entries()].filter(([, seed]) => depth(seed) === 16);
    expect(same.length).toBeGreaterThan(0);
    // The first of every two, or earlier where the model prefers it too. A schedule of the same sizes is carried over unchanged.
    for (const [i, { candidate }] of same) expect(keysOf(again).slice(0, 2 * i + 1)).toContain(candidateKey(candidate));
    expect(await replayRun(db, run?.id ?? "")).toMatchObject({ divergence: undefined, assumed: [] });
  } finally {
    db.close();
  }
});
