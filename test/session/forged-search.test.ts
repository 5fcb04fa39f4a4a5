/** @file A search in a database with forged records: a foreign trial neither skips a candidate nor gives its time. */

import { copyFileSync } from "node:fs";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { beforeAll, describe, expect, it } from "vitest";
import { candidateKey } from "../../abstraction/candidate.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { best, exportLines, importLines, mergeDatabase, openDatabase, queryTrials } from "../../db/index.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { type TuneOutcome, tuneComputation } from "../../session/tune/tune.ts";
import { random } from "../../tuner/random.ts";
import { tamper } from "../support/database.ts";
import { fakeRunner, shareOf, took, withCalibration } from "../support/fake-runner.ts";
import { forgedLines, recordsIn } from "../support/forge.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const folder = scratchFolder();
const at = (name: string): string => join(folder, name);

const TRIALS = 8;
const matmul = operation("matmul m=32 n=32 k=32");

type Found = Extract<TuneOutcome, { best: unknown }>;
interface Searched {
  readonly outcome: Found;
  /** Sources of the kernels that were measured by themselves. */
  readonly measured: ReadonlySet<string>;
}

let compiler: Compiler;
/** A search on a machine where the time of a kernel is its own. */
async function search(database: string): Promise<Searched> {
  const measured = new Set<string>();
  const seconds = (kernel: Kernel): number => (10 + shareOf(kernel)) * 1e-6;
  const runner = fakeRunner(compiler, {
    alone: (kernel) => {
      measured.add(kernel.source);
      return took(seconds(kernel));
    },
    inTurns: (kernels) => kernels.map((kernel) => took(seconds(kernel), 0.001)),
  });
  const outcome = await tuneComputation(
    { computation: matmul },
    { strategy: random, trials: TRIALS, seconds: 60, earlyStop: false, database, runner },
  );
  if (!("best" in outcome) || !outcome.best) throw new Error(outcome.status);
  return { outcome, measured };
}

let lone: Searched;
const LONE = at("lone.db");
beforeAll(async () => {
  compiler = await compilerHere();
  lone = await search(withCalibration(LONE, compiler));
});

/** What the lone search found, with every other kernel failing, the rest twice as fast, and all of it long after now. */
function forged(): string[] {
  const db = openDatabase(LONE, { readonly: true });
  const lines = recordsIn(exportLines(db));
  db.close();
  let number = 0;
  return forgedLines(lines, (line) => {
    if (line.kind !== "trial") return;
    line["at"] = Number(line["at"]) + 1e9;
    if (number++ % 2 === 0)
      Object.assign(line, {
        status: "wrong",
        log: "forged",
        instructions: null,
        comparison: null,
        place: null,
        samples: null,
        median: null,
        low: null,
        high: null,
      });
    else {
      for (const column of ["median", "low", "high"]) line[column] = Number(line[column]) / 2;
      line["samples"] = (line["samples"] as number[]).map((s) => s / 2);
    }
  });
}

/** Holds a search in a forged database against the lone one. */
function expectOwn(file: string, { outcome, measured }: Searched): void {
  expect(measured).toEqual(lone.measured);
  expect(outcome.trials.map(({ key, measurement }) => [key, measurement])).toEqual(
    lone.outcome.trials.map(({ key, measurement }) => [key, measurement]),
  );
  expect(outcome.best && candidateKey(outcome.best.candidate)).toBe(
    lone.outcome.best && candidateKey(lone.outcome.best.candidate),
  );
  expect(outcome.best?.measurement).toEqual(lone.outcome.best?.measurement);
  const db = openDatabase(file, { readonly: true });
  expect(best(db).map(({ id, provenance }) => [id, provenance])).toEqual([[outcome.best?.id, "here"]]);
  db.close();
}

describe("a search in a database with forged trials of its own environment", () => {
  it("measures every candidate itself when those were imported", async () => {
    const file = withCalibration(at("imported.db"), compiler);
    const db = openDatabase(file);
    expect(importLines(db, forged())).toMatchObject({ rejected: [] });
    expect(queryTrials(db).length).toBeGreaterThanOrEqual(TRIALS);
    db.close();
    expectOwn(file, await search(file));
  });

  it("measures every candidate itself when those were merged or are in the file, whatever their seals", async () => {
    const hostile = withCalibration(at("hostile.db"), compiler);
    const db = openDatabase(hostile);
    importLines(db, forged());
    db.close();
    const raw = new Sqlite(hostile);
    tamper(raw, "UPDATE trials SET seal = lower(hex(randomblob(16)))");
    raw.close();

    const merged = withCalibration(at("merged.db"), compiler);
    const into = openDatabase(merged);
    expect(mergeDatabase(into, hostile).added.trials).toBeGreaterThanOrEqual(TRIALS);
    into.close();
    expectOwn(merged, await search(merged));
    copyFileSync(hostile, at("whole.db"));
    expectOwn(at("whole.db"), await search(at("whole.db")));
  });

  it("continues from its own trials", async () => {
    const again = await search(LONE);
    expect(again.measured.size).toBe(0);
    expect(again.outcome.trials).toHaveLength(TRIALS);
  });
});
