/**
 * @file Every equation that the notation accepts is tuned, or refused with a reason before anything is compiled. Equations are drawn from the whole
 * notation; a kernel that fails in any way fails the test, since the space should have refused it.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Computation, defineComputation, equationText } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { chooseSpace, usableIntrinsics } from "../../session/kinds/choose.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { withCalibration } from "../support/fake-runner.ts";
import { compilerHere } from "../support/here.ts";
import { type RandomEquation, randomEquation } from "../support/random-equation.ts";
import { inFull } from "../support/slow.ts";

/** The seed of the first equation, which a failure names. */
const SEED = Number(process.env["AUTOMAP_EQUATIONS"] ?? 1);
const DRAWN = inFull(400, 30);
const TRIALS = 4;

let folder: string;
let database: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "automap-equations-"));
  database = withCalibration(join(folder, "equations.db"), await compilerHere());
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** `tuned`, `refused: REASON`, or what went wrong. */
async function endOf(computation: Computation, kinds?: "mappings" | "lanes"): Promise<string> {
  try {
    const options = { database, trials: TRIALS, finals: false, ...(kinds && { kinds }) };
    const outcome = await tuneComputation({ computation }, options);
    if (outcome.status === "environment") return `wrong: ${outcome.problem.what}: ${outcome.problem.why}`;
    if (outcome.status === "nothing-maps") {
      const [first] = outcome.refused;
      return first ? `refused: ${first.because}` : "wrong: refused without a reason";
    }
    const failed = outcome.trials.flatMap(({ measurement: m, candidate: c }) =>
      m.status === "ok" ? [] : [`${c.kind ?? "mapping"} on ${c.intrinsic} ${m.status}: ${m.log.slice(0, 300)}`],
    );
    if (failed.length > 0) return `wrong: ${failed.join("; ")}`;
    return outcome.trials.length > 0 ? "tuned" : "wrong: no kernel was measured";
  } catch (error) {
    if (error instanceof UsageError) return `wrong: thrown, not refused: ${error.message}`;
    return `wrong: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
  }
}

const f = (equation: string, extents: Record<string, number>, dtype: "f32" | "f64" = "f32", epilogue?: string) =>
  defineComputation({
    name: "case",
    equation,
    extents,
    tensors: Object.fromEntries([..."xy"].filter((t) => equation.includes(`${t}[`)).map((t) => [t, dtype])),
    ...(epilogue !== undefined && { epilogue }),
  });

const FUNCTIONS = ["sqrt", "exp", "tanh", "erf", "log"];
const PAIRS = ["max= x[i,k] + y[k,j]", "min= abs(x[i,k] - y[k,j])", "max= x[i,k] * y[k,j]", "min= x[i,k] - y[k,j]"];
const CASES: readonly Computation[] = [
  f("m[i] += x[i,j]", { i: 33, j: 17 }),
  f("m[i] max= x[i,j]", { i: 33, j: 17 }),
  f("m[i] += x[i+r]", { i: 33, r: 3 }),
  f("m[] += square(x[i])", { i: 100 }),
  ...FUNCTIONS.map((name) => f("m[i] += abs(x[i,j])", { i: 33, j: 5 }, "f32", `r[i] = ${name}(m[i] + 1)`)),
  ...(["f32", "f64"] as const).flatMap((dtype) => PAIRS.map((p) => f(`c[i,j] ${p}`, { i: 9, j: 17, k: 5 }, dtype))),
];

describe("an equation", () => {
  it("of each form that once lost all its kernels is tuned", async () => {
    const ends: string[] = [];
    for (const computation of CASES) ends.push(`${equationText(computation)}: ${await endOf(computation)}`);
    expect(ends.filter((end) => !end.endsWith(": tuned"))).toEqual([]);
  });

  it("drawn from the whole notation is tuned, or refused with a reason before anything is compiled", async () => {
    const counts = { drawn: 0, unaccepted: 0, tuned: 0, refused: 0 };
    const wrong: string[] = [];
    const reasons = new Map<string, number>();
    for (let seed = SEED; seed < SEED + DRAWN; seed++) {
      const drawn: RandomEquation = randomEquation(seededRandom(seed));
      counts.drawn++;
      if (typeof drawn.computation === "string") {
        counts.unaccepted++;
        continue;
      }
      const end = await endOf(drawn.computation);
      if (end === "tuned") counts.tuned++;
      else if (end.startsWith("refused: ")) {
        counts.refused++;
        reasons.set(end, (reasons.get(end) ?? 0) + 1);
      } else wrong.push(`seed ${seed}: ${drawn.text}\n  ${end}`);
    }
    if (inFull(true, false)) console.log(counts, [...reasons]);
    expect(wrong).toEqual([]);
    expect(counts.tuned).toBeGreaterThan(DRAWN / 2);
  });
});

it("drawn for a GPU or for lanes alone has kernels, or a reason why not", () => {
  const h100 = nvidiaTarget("h100");
  const wrong: string[] = [];
  for (let seed = SEED; seed < SEED + DRAWN; seed++) {
    const { text, computation } = randomEquation(seededRandom(seed));
    if (typeof computation === "string") continue;
    for (const options of [
      { machine: h100 },
      { machine: h100, kinds: "lanes" as const },
      { kinds: "lanes" as const },
    ]) {
      try {
        const ranking = rankByModel(computation, { ...options, count: 1 });
        if ("refused" in ranking && ranking.refused.length === 0) wrong.push(`seed ${seed}: ${text}: no reason`);
        const intrinsics = usableIntrinsics(options.machine);
        const found = finished(chooseSpace(computation, intrinsics, { ...options, threads: 1, seed }));
        if ("space" in found) found.space.kernelOf(found.space.random(seededRandom(seed)));
      } catch (error) {
        wrong.push(
          `seed ${seed}: ${text} ${JSON.stringify(options.kinds)}: ${error instanceof Error ? error.stack : error}`,
        );
      }
    }
  }
  expect(wrong).toEqual([]);
});
