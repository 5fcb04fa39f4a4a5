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
    cm: "a78d7a14998fb281",
    cpp: "73dd53a1de6949e2",
    cuda: "7cad0da663e46612",
    keys: "a00519e0f4ac8004",
    lined: "9182b03c17402e2a",
    nests: "7ff40fd0fa9af87f",
    seconds: "c6d40f724cc38059",
  },
  "conv2d-single": {
    candidates: 1240,
    cm: "11dbf435dff7f81b",
    cpp: "a4c784c3f7b3d0a6",
    cuda: "46dfee933d9f9d96",
    keys: "a8b681d389ce8b9a",
    lined: "2b625e06ac35a802",
    nests: "0bafbae82783c6c0",
    seconds: "d37299f5812f8bc5",
  },
  "2d9pt": {
    candidates: 848,
    cm: "ac8f7c44b084e960",
    cpp: "6985dbf56ce44fda",
    cuda: "7a1b4ed0894dbe8d",
    keys: "d180b0f8864303d4",
    lined: "8a2533f596bc2dbe",
    nests: "5bd961aa128aaebb",
    seconds: "fb7e57349cf7cc89",
  },
  "3d7pt": {
    candidates: 1760,
    cm: "16abecc8b8cf5f33",
    cpp: "cd46012d140bb75c",
    cuda: "cb94833bf1fbeea2",
    keys: "b9f75ecc01a04429",
    lined: "0b578fef9621271c",
    nests: "b7fb0d525bed6553",
    seconds: "2c8d535e9f15bbd3",
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
