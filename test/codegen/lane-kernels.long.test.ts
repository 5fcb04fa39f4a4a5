/**
 * @file What records of lane kernels rest on: the keys of the candidates, the nest and the text of each, and the time expected of it.
 *
 * A key that changes loses the records made under it. A nest or a text that changes is another kernel than the one that was measured:
 * a commit that changes a digest says which kernels change, and why.
 */

import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import { LANE_DATAFLOWS, type WindowSchedule } from "../../abstraction/candidate.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { generateLanes, type LaneLanguage } from "../../codegen/lanes.ts";
import { lowerWarpWindow, lowerWindow } from "../../mapper/space-time/lower-window.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { targetOf } from "../../targets/index.ts";
import { windowSpace } from "../../tuner/lane-candidates.ts";
import { stated } from "../support/subjects.ts";

const target = modelTarget(targetOf({ name: "a test", isa: [], levels: [], source: "none" }));

const SUBJECTS = [
  "conv1d-single --l 1000 --r 7",
  "conv2d-single --h 100 --w 150 --r 3 --s 5 --pad 1",
  "2d9pt --h 90 --w 200 --dtype f64",
  "3d7pt --d 20 --h 66 --w 70",
];

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

function digestsOf(line: string): Readonly<Record<string, string | number>> {
  const computation = stated(line);
  const space = windowSpace(computation, { threads: 2, target });
  if ("because" in space) throw new Error(space.because);
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

it("lane kernels keep their known keys, nests, sources and predicted times", async () => {
  const told = SUBJECTS.flatMap((line) => [
    line,
    ...Object.entries(digestsOf(line)).map(([of, is]) => `  ${of} ${is}`),
  ]);
  await expect(`${told.join("\n")}\n`).toMatchFileSnapshot("../golden/lane-kernels.txt");
});
