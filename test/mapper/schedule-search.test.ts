/** The decisions about loops in a search: each distinguishes candidates, and unrolling stays within its limit. */
import { expect, test } from "vitest";
import type { MappedCandidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { plainSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { type CandidateSpace, candidateSpace } from "../../tuner/candidates.ts";

const conv = (parameters: Readonly<Record<string, number>>): Computation =>
  instantiate(operatorNamed("conv2d"), {
    parameters: { c: 64, k: 64, h: 14, w: 14, r: 3, s: 3, pad: 1, ...parameters },
    types: parseDataTypes("u8s8"),
  });

function space(computation = conv({})): CandidateSpace {
  const found = finished(candidateSpace(computation, intrinsicsNamed("avx512.vpdpbusd"), () => 1, 1, 1, 48 * 1024));
  if (!("random" in found)) throw new Error(found[0]?.because);
  return found;
}

/** Summed steps that are written out behind one another. */
function unrolled(candidates: CandidateSpace, candidate: MappedCandidate): number {
  const { computation: of } = candidates.mappingOf(candidate);
  const summed = (name: string): boolean =>
    of.axes.some((a) => a.kind === "reduce" && name.split("_").includes(a.name));
  return Object.entries(candidate.schedule.block).reduce((n, [name, size]) => (summed(name) ? n * size : n), 1);
}

test("neither mutation nor crossover unrolls more than 12 summed steps", () => {
  const candidates = space();
  const random = seededRandom(3);
  let last = candidates.random(random);
  const seen = Array.from({ length: 500 }, () => {
    last = candidates.mutate(last, random);
    if (random() < 0.2) last = candidates.crossover(last, candidates.random(random), random);
    return unrolled(candidates, last);
  });
  expect(Math.max(...seen)).toBe(12);
});

test("a schedule with a copy inside a loop is another candidate than one without", () => {
  const candidates = space();
  const random = seededRandom(4);
  let copied = candidates.random(random);
  while (copied.schedule.within === undefined) copied = candidates.random(random);
  const { within: _, ...schedule } = copied.schedule;
  expect(candidates.distance(copied, { ...copied, schedule })).toBe(1);
  expect(candidates.distance(copied, copied)).toBe(0);
});

test("a mutation is another candidate", () => {
  const candidates = space();
  const random = seededRandom(5);
  for (let i = 0; i < 100; i++) {
    const candidate = candidates.random(random);
    expect(candidates.key(candidates.mutate(candidate, random))).not.toBe(candidates.key(candidate));
  }
});

test("the code of a candidate is as long as its block has steps", () => {
  const candidates = space();
  const candidate = candidates.random(seededRandom(6));
  const mapping = candidates.mappingOf(candidate);
  const plain = { ...candidate, schedule: { ...plainSchedule(mapping), block: {} } };
  const [reduced] = mapping.computation.axes.filter(({ kind, name }) => kind === "reduce" && name !== "c");
  const name = reduced?.name ?? "";
  const longer = { ...plain, schedule: { ...plain.schedule, block: { [name]: 3 } } };
  expect([plain, longer].map((c) => candidates.codeSize(c))).toEqual([1, 3]);
});

test("a schedule is carried over to other sizes: unchanged to its own, legal in others, blocks cut to the steps there are", () => {
  const candidates = space();
  const others = [
    { h: 7, w: 7 },
    { k: 128, c: 16, stride: 2 },
    { h: 56, w: 9, r: 1, s: 1, pad: 0 },
  ].map((p) => space(conv(p)));
  const random = seededRandom(6);
  let carriedOver = 0;
  for (let i = 0; i < 60; i++) {
    const candidate = candidates.random(random);
    const mapping = candidates.mappingOf(candidate);
    expect(candidates.carried(candidate, mapping)).toEqual(candidate);
    for (const other of others) {
      const carried = other.carried(candidate, mapping);
      if (carried === undefined) continue;
      carriedOver++;
      expect(scheduleProblem(other.mappingOf(carried), carried.schedule)).toBeUndefined();
      for (const [name, size] of Object.entries(carried.schedule.block))
        expect(size).toBeLessThanOrEqual(candidate.schedule.block[name] ?? 1);
    }
  }
  expect(carriedOver).toBeGreaterThan(120);
  const wide = candidates.all().next().value;
  if (!wide) throw new Error("no candidate");
  const inRows = { ...wide, schedule: { ...wide.schedule, block: { q: 14 } } };
  expect(others[0]?.carried(inRows, candidates.mappingOf(wide))?.schedule.block).toEqual({ q: 7 });
});

test("the best of the schedules that each mapping was judged by are what a search begins with", () => {
  let least = Number.POSITIVE_INFINITY;
  const predict = (): number => {
    const seconds = 1 + Math.sin(asked++) / 2;
    least = Math.min(least, seconds);
    return seconds;
  };
  let asked = 0;
  const found = finished(candidateSpace(conv({}), intrinsicsNamed("avx512.vpdpbusd"), predict, 1, 1));
  if (!("random" in found)) throw new Error(found[0]?.because);
  expect(found.promising.length).toBe(found.ranked.length);
  expect(found.promising[0] && found.mappingOf(found.promising[0])).toBe(found.ranked[0]?.context.mapping);
  expect(found.ranked[0]?.expectedSeconds).toBe(least);
});
