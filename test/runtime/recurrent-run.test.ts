/**
 * @file Results that refer to themselves, compiled and run: the reference equals the interpreter, and lane kernels are
 * right in every element.
 */

import { afterAll, describe, expect, it } from "vitest";
import type { RecurrenceSchedule } from "../../abstraction/candidate.ts";
import { type Computation, computationKey } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { expectInterpreted } from "../support/compiled-reference.ts";
import {
  formsOf,
  lettersAndNumbers,
  randomRecurrent,
  randomScheduleOf,
  scheduleOf,
} from "../support/drawn/recurrent.ts";
import { runnerHere } from "../support/here.ts";
import { inFull } from "../support/slow.ts";
import { stated } from "../support/subjects.ts";

const AVX512 = readProcessor().features.includes("avx512dq");
const runner = await runnerHere({ threads: 1, budgetSeconds: 0.002, batches: [1, 2] });
afterAll(() => runner.close());

const ALIGNED = "h[i,j] = max(0, h[i-1,j-1] + select(a[i] == b[j], 2, -1), h[i-1,j] - g, h[i,j-1] - g)";
const COMMON = "c[i,j] = select(a[i] == b[j], c[i-1,j-1] + 1, max(c[i-1,j], c[i,j-1]))";
const VITERBI = "v[t,j] max= select(t == 0, p[j], v[t-1,i] + a[i,j]) + b[t,j]";

/** What is computed, which of its forms, and lanes. */
const CASES: readonly (readonly [string, Computation, number, number])[] = [
  ["an alignment", stated(`${ALIGNED} --i 45 --j 133 --g 1 --dtype h=s32,a=u8,b=u8`), 0, 16],
  ["an alignment on four registers", stated(`${ALIGNED} --i 130 --j 200 --g 1 --dtype h=s32,a=u8,b=u8`), 0, 64],
  ["an alignment of floats", stated(`${ALIGNED} --i 33 --j 100 --g 0.5 --dtype h=f32,a=u8,b=u8`), 0, 32],
  ["a common subsequence", stated(`${COMMON} --i 40 --j 70 --dtype s32`), 0, 16],
  [
    "a seam, whose rows lag by two",
    stated("s[n,j] = x[n,j] + min(s[n-1,j-1], s[n-1,j], s[n-1,j+1]) --n 40 --j 61 --dtype f64"),
    0,
    8,
  ],
  ["the same seam, row by row", stated("s[n,j] = x[n,j] + min(s[n-1,j-1], s[n-1,j], s[n-1,j+1]) --n 40 --j 61"), 1, 16],
  ["a chain of states", stated(`${VITERBI} --t 9 --j 75 --i 75`), 0, 16],
  ["prefix sums", stated("y[i] = y[i-1] + x[i] --i 1003"), 0, 16],
  ["prefix maxima of rows", stated("y[p,i] = max(y[p,i-1], x[p,i]) --p 3 --i 203 --dtype s32"), 1, 16],
];

describe("the reference of a result that refers to itself", () => {
  it("equals the interpreter", async () => {
    const random = seededRandom(5);
    await expectInterpreted(runner, inFull(60, 3), () => {
      const computation = randomRecurrent(random);
      return [computation, lettersAndNumbers(computation, random)];
    });
  });
});

describe.skipIf(!AVX512)("results that refer to themselves, on AVX-512 (skipped where the processor has none)", () => {
  const expectRight = async (computation: Computation, schedule: RecurrenceSchedule): Promise<void> => {
    const kernel = kernelFor(computation, { kind: "recurrence", intrinsic: "avx512.fma.f32", schedule });
    const measured = await runner.measure(kernel, await runner.reference(computation, 1));
    expect(measured.status, "log" in measured ? `${computationKey(computation)} ${measured.log}` : "").toBe("ok");
  };

  it.each(CASES.filter(([name]) => inFull(true, !name.includes("four registers") && !name.includes("floats"))))(
    "compute %s",
    async (_, computation, form, lanes) => {
      const own = formsOf(computation)[form];
      if (!own) throw new Error("no such form");
      await expectRight(computation, scheduleOf(own, lanes));
    },
  );

  it("equal the interpreter for random computations", async () => {
    const random = seededRandom(6);
    for (let i = 0; i < inFull(60, 1); i++) {
      const computation = randomRecurrent(random, 90);
      const { dtype } = formsOf(computation)[0] ?? { dtype: "f32" };
      await expectRight(computation, randomScheduleOf(computation, random, [dtype === "f64" ? 8 : 16]));
    }
  });
});
