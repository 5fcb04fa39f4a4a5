/**
 * @file What records of lane kernels rest on: the keys of the candidates, the nest and the text of each, and the time expected of it.
 *
 * A key that changes loses the records made under it. A nest or a text that changes is another kernel than the one that was measured:
 * a commit that changes a digest says which kernels change, and why.
 */

import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { LANE_DATAFLOWS, type WindowSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { generateLanes, type LaneLanguage } from "../codegen/lanes.ts";
import { lowerWarpWindow, lowerWindow } from "../mapper/space-time/lower-window.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { targetOf } from "../targets/index.ts";
import { windowSpace } from "../tuner/lane-candidates.ts";
import type { ListedSpace } from "../tuner/listed-space.ts";

const target = modelTarget(targetOf({ name: "a test", isa: [], levels: [], source: "none" }));

const SUBJECTS = {
  "conv1d-single": [{ l: 1000, r: 7 }, "f32"],
  "conv2d-single": [{ h: 100, w: 150, r: 3, s: 5, pad: 1 }, "f32"],
  "2d9pt": [{ h: 90, w: 200 }, "f64"],
  "3d7pt": [{ d: 20, h: 66, w: 70 }, "f32"],
} as const;
type Subject = keyof typeof SUBJECTS;

const KNOWN: Readonly<Record<Subject, Readonly<Record<string, string | number>>>> = {
  "conv1d-single": {
    candidates: 288,
    cm: "81cca46f30dbc909",
    cpp: "73dd53a1de6949e2",
    cuda: "942d0d1811fb7bd9",
    keys: "a00519e0f4ac8004",
    lined: "9182b03c17402e2a",
    nests: "8bea82ab49ffc999",
    seconds: "c6d40f724cc38059",
  },
  "conv2d-single": {
    candidates: 1240,
    cm: "91f9f3ee8814432f",
    cpp: "a4c784c3f7b3d0a6",
    cuda: "31f2a8bf2de47bcd",
    keys: "a8b681d389ce8b9a",
    lined: "2b625e06ac35a802",
    nests: "fca31d750a546704",
    seconds: "d37299f5812f8bc5",
  },
  "2d9pt": {
    candidates: 848,
    cm: "ca8d5382e47ee366",
    cpp: "6985dbf56ce44fda",
    cuda: "4d68a4928971dcf5",
    keys: "d180b0f8864303d4",
    lined: "8a2533f596bc2dbe",
    nests: "5a32ba831b8edc7c",
    seconds: "55c2152e2434ba90",
  },
  "3d7pt": {
    candidates: 1760,
    cm: "3e390cf59d509549",
    cpp: "cd46012d140bb75c",
    cuda: "e66bb1e73a5b53e8",
    keys: "b9f75ecc01a04429",
    lined: "0b578fef9621271c",
    nests: "3fcf45c9934b99da",
    seconds: "fd2b465c711f6d3a",
  },
};

function spaceOf(subject: Subject): { computation: Computation; space: ListedSpace<WindowSchedule> } {
  const [parameters, types] = SUBJECTS[subject];
  const computation = instantiate(operatorNamed(subject), { parameters, types: parseDataTypes(types) });
  const space = windowSpace(computation, { threads: 2, target });
  if ("because" in space) throw new Error(space.because);
  return { computation, space };
}

/** Every n-th, so that there are about so many. */
function some<T>(items: readonly T[], count: number): T[] {
  const step = Math.max(1, Math.floor(items.length / count));
  return items.filter((_, i) => i % step === 0);
}

function digest(texts: Iterable<string>): string {
  const hash = createHash("sha256");
  for (const text of texts) hash.update(text).update("\n");
  return hash.digest("hex").slice(0, 16);
}

function digestsOf(subject: Subject): Readonly<Record<string, string | number>> {
  const { computation, space } = spaceOf(subject);
  const [all, lined] = [false, true].map((isLined) =>
    [...space.all()].filter((s) => (s.lines !== undefined || s.planes !== undefined) === isLined),
  ) as [WindowSchedule[], WindowSchedule[]]; // two
  const of = (dataflow: WindowSchedule["dataflow"], count: number, fetching = false): WindowSchedule[] =>
    some(
      all.filter((s) => s.dataflow === dataflow && (!fetching || s.prefetchBytes > 0)),
      count,
    );
  const nests = LANE_DATAFLOWS.flatMap((dataflow) => [
    ...of(dataflow, 40).map((s) => lowerWindow(computation, s)),
    ...of(dataflow, 8).map((s) => lowerWarpWindow(computation, s)),
  ]);
  const text = (language: LaneLanguage, lanes?: number): string => {
    const chosen = LANE_DATAFLOWS.flatMap((dataflow) => of(dataflow, 2, true));
    const lowered = (s: WindowSchedule): LoopNest =>
      lanes ? lowerWarpWindow(computation, { ...s, lanes }) : lowerWindow(computation, s);
    return digest(chosen.map((s) => generateLanes(language, computation, lowered(s), { lines: ["a test"] }).source));
  };
  return {
    candidates: all.length,
    keys: digest(all.map((s) => space.key(s))),
    seconds: digest(all.map((s) => space.expectedSeconds(s).toPrecision(9))),
    nests: digest(nests.map(printNest)),
    lined: digest([
      ...lined.map((s) => `${space.key(s)} ${space.expectedSeconds(s).toPrecision(9)}`),
      ...some(lined, 40).map((s) => printNest(lowerWindow(computation, s))),
    ]),
    cpp: text("c++"),
    cuda: text("cuda", 32),
    cm: text("cm", 16),
  };
}

describe("lane kernels", () => {
  it.each(Object.keys(SUBJECTS) as Subject[])(
    "of %s keep their known keys, nests, sources and predicted times",
    (name) => {
      expect(digestsOf(name)).toEqual(KNOWN[name]);
    },
  );
});
