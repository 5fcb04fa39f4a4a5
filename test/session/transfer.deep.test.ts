import { availableParallelism } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { z } from "zod";
import { type Candidate, candidateKey } from "../../abstraction/candidate.ts";
import { type Computation, extentsOf } from "../../abstraction/computation.ts";
import { best, computationOf, openDatabase, queryTrials, runsIn, showTrial } from "../../db/index.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { chooseKernel } from "../../session/network/network.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { type TuneOutcome, tuneComputation } from "../../session/tune/tune.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { keysOf } from "../support/searches.ts";
import { operation } from "../support/subjects.ts";

const folder = scratchFolder();
const database = join(folder, "near.db");

const product = (k: number, epilogue?: string): Computation =>
  operation(`matmul m=8 n=32 k=${k}`, "f32", { ...(epilogue !== undefined && { epilogue }) });
const tuned = (computation: Computation, transfer = false, threads = 1): Promise<TuneOutcome> =>
  tuneComputation({ computation }, { trials: 6, finals: false, database, transfer, threads });

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
    // None where the model alone predicts those trials better, which is so on some machines.
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

it.skipIf(availableParallelism() < 2)(
  "a search for two threads measures the fastest schedules of one thread first, divided among both; a network takes the best of them untried",
  async () => {
    const computation = product(40);
    await tuned(computation);
    const compiler = await compilerHere();
    const db = openDatabase(database);
    try {
      const environment = environmentOf({ compiler });
      const alone = queryTrials(db, { computation, status: "ok" });
      const divided = alone.map(({ candidate }) => candidateKey(onTwo(candidate)));
      const [fastest] = best(db, { computation });
      const task = { computation, steps: [], multiplyAdds: 8 * 32 * 40 };
      const untried = chooseKernel(task, { records: { db, environment }, threads: 2 });
      if (fastest?.measurement.status !== "ok") throw new Error("no kernel works");
      expect(untried).toMatchObject({ kind: "model", expected: fastest.measurement.median / 2 });
      expect(untried.kernel?.kernel.source).toContain("threads 2");

      const keys = keysOf(await tuned(computation, true, 2));
      expect(divided).toContain(keys[0]);
      expect(chooseKernel(task, { records: { db, environment }, threads: 2 }).kind).toBe("record");
      const [run] = runsIn(db).filter(({ run: { options } }) => options["threads"] === 2);
      const { transferred } = z.object({ transferred: z.array(z.string()) }).parse(run?.run.options);
      expect(transferred.length).toBeGreaterThan(0);
      expect(alone.map(({ id }) => id)).toEqual(expect.arrayContaining(transferred));
      // How many are nearly as fast as the fastest, and so carried over, is up to the machine.
      expect(keys.filter((key) => divided.includes(key)).length).toBeGreaterThanOrEqual(transferred.length);
      expect(await replayRun(db, run?.run.id ?? "")).toMatchObject({ divergence: undefined, assumed: [] });
    } finally {
      db.close();
    }
  },
);

function onTwo(candidate: Candidate): Candidate {
  if (candidate.kind !== "mapping") throw new Error(`${candidate.kind}: no mapping onto loops`);
  return { ...candidate, schedule: { ...candidate.schedule, threads: 2 } };
}
