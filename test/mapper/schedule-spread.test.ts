/** Fused loops over the rows of a padded copy, gaps included: results of the gaps are dropped. */
import { expect, test } from "vitest";
import type { Schedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { number } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import type { mappings } from "../../mapper/match/enumerate.ts";
import { digitsOf } from "../../mapper/schedule/dimensions.ts";
import { dimensionsUnder, spreadable } from "../../mapper/schedule/gaps.ts";
import { randomSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { createModel } from "../../perfmodel/model.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { nativeTarget } from "../../targets/index.ts";
import { createCounts } from "../support/counts.ts";
import { crossSchedules, mutateSchedule } from "../support/mapped.ts";
import { inFull } from "../support/slow.ts";
import { mappingNamed, mappingsOnto, operation, rowNamed, smallIntegers } from "../support/subjects.ts";

const CASES = [
  ["amx.tdpbusd", "conv2d c=64 k=16 h=5 w=5 r=3 s=3 NHWC"],
  ["amx.tdpbf16ps", "conv2d n=2 c=9 k=18 h=4 w=6 r=3 s=2 NHWC"],
  ["wmma.m16n16k16.f32.f16", "conv2d n=2 c=3 k=3 h=5 w=4 r=3 s=3 NHWC"],
  ["amx.tdpbusd", "conv2d c=3 k=3 h=5 w=7 r=3 s=3 stride=2 NHWC"],
] as const;

function* cases(): Generator<{ label: string; computation: Computation; valid: ReturnType<typeof mappings>["valid"] }> {
  for (const [on, words] of CASES) {
    const intrinsic = rowNamed(on);
    const computation = operation(words, intrinsic);
    const valid = mappingsOnto(computation, intrinsic).filter((m) => spreadable(m).size > 0);
    yield { label: on, computation, valid };
  }
}

test("every spread schedule computes the equation, as often as the model counts", () => {
  const random = seededRandom(5);
  let ran = 0;
  for (const { label, computation, valid } of cases()) {
    expect(valid.length, label).toBeGreaterThan(0);
    const inputs = smallIntegers(computation, random);
    const expected = interpret(computation, inputs);
    for (let i = 0; i < inFull(6, 1); i++) {
      const mapping = pick(random, valid);
      const counts = createCounts(mapping);
      const predict = createModel(mapping, modelTarget(nativeTarget()));
      let schedule = randomSchedule(mapping, random);
      for (let tries = 0; tries < 20 && schedule.spread === undefined; tries++)
        schedule = pick(random, [
          () => randomSchedule(mapping, random),
          () => mutateSchedule(mapping, schedule, random),
          () => crossSchedules(mapping, randomSchedule(mapping, random), schedule, random),
        ])();
      const where = `${label}: ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}`;
      expect(scheduleProblem(mapping, schedule), where).toBeUndefined();
      if (schedule.spread === undefined) continue;
      const nest = lowerSchedule(mapping, schedule);
      const wrong = [...interpretNest(nest, computation, inputs, 2)].findIndex((x, at) => x !== expected[at]);
      expect(wrong, wrong < 0 ? "" : `${where}\n${printNest(nest)}`).toBe(-1);
      expect(counts(schedule)?.issues, where).toBe(issuesIn(nest.body));
      expect(predict(schedule)?.seconds, where).toBeGreaterThan(0);
      ran++;
    }
  }
  expect(ran).toBeGreaterThan(inFull(15, 2));
});

test("a 7x7 image takes 4 tiles of 16 rows when spread over rows of 9, and 7 row by row", () => {
  const intrinsic = rowNamed("amx.tdpbusd");
  const computation = operation("conv2d c=64 k=16 h=7 w=7 r=3 s=3 NHWC", intrinsic);
  const mapping = mappingNamed(computation, intrinsic, "m <- p,q; n <- k; k <- c");
  const d = dimensionsUnder(mapping, { spread: ["p_q"] }).find((x) => x.name === "p_q");
  expect(d).toMatchObject({ weights: [9, 1], extent: 61, steps: 4, wholeSteps: 3 });
  expect(d && Object.fromEntries(digitsOf(d, number(9 * 3 + 5)))).toEqual({ p: number(3), q: number(5) });
  const schedule: Schedule = {
    order: ["n", "p_q", "k", "r", "s", "c"],
    block: {},
    placement: { a: "padded", b: "tiled" },
    spread: ["p_q"],
    threads: 1,
  };
  expect(scheduleProblem(mapping, schedule)).toBeUndefined();
  expect(createCounts(mapping)(schedule)?.issues).toBe(4 * 9);
  expect(scheduleProblem(mapping, { ...schedule, placement: { a: "tiled", b: "tiled" } })).toMatch("spread");
  expect(scheduleProblem(mapping, { ...schedule, spread: ["k"] })).toMatch("no rows with gaps");
  expect(createCounts(mapping)({ ...schedule, spread: ["k"] })).toBeUndefined();
});

/** Issues a nest runs. */
function issuesIn(statements: readonly Statement[]): number {
  return statements.reduce((sum, s) => {
    if (s.kind === "loop") return sum + s.extent * issuesIn(s.body);
    return sum + (s.kind === "register-issue" ? 1 : 0);
  }, 0);
}
