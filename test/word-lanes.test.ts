import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { seededRandom } from "../abstraction/random.ts";
import { drawWords } from "../bench/drawn/words.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import { generateArray } from "../session/array-space.ts";
import { generateDesign } from "../session/lane-space.ts";
import { isArray } from "../abstraction/candidate.ts";

describe("x", () => {
  let runner: Runner;
  beforeAll(async () => {
    const made = await createRunner({ threads: 1, budgetSeconds: 0.002, batches: [1, 2] });
    if (made.status !== "ready") throw new Error(made.what);
    runner = made.runner;
  });
  afterAll(() => runner.close());
  it.each([16, 32] as const)("s16 %d", { timeout: 600_000 }, async (lanes) => {
    const random = seededRandom(5);
    const refused: string[] = [];
    const bad: string[] = [];
    let n = 0;
    while (n < 24) {
      const d = drawWords(random, "s16", lanes);
      if ("because" in d) { refused.push(d.because); continue; }
      n++;
      const { computation, candidate } = d;
      const kernel = isArray(candidate) ? generateArray(computation, candidate) : generateDesign(computation, candidate);
      const [r] = await runner.compareKernels([kernel], await runner.reference(computation, 1));
      if (r?.status !== "ok") bad.push(JSON.stringify(candidate) + computation.name + JSON.stringify(r).slice(0, 1500));
    }
    console.log(n, refused);
    expect(bad).toEqual([]);
  });
});
