/** @file The first kernels that a search proposes where several kinds of candidates compute the same: by predictions alone. */

import { expect, test } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import { chooseSpace } from "../../session/kinds/choose.ts";
import { SESSION_KINDS } from "../../session/kinds/kinds.ts";
import type { SessionSpace } from "../../session/kinds/session-space.ts";
import { targetOf } from "../../targets/index.ts";
import { genetic } from "../../tuner/genetic.ts";
import { fillOptions } from "../../tuner/strategy.ts";
import type { TrialOf } from "../../tuner/trials.ts";

const median = (value: number) => ({ median: value, spread: 0 });
const memory = (read: number, write: number) => ({
  footprintBytes: 1,
  readBytesPerCycle: median(read),
  writeBytesPerCycle: median(write),
  copyBytesPerCycle: median(read),
});
const fma = (a: number) => ({
  issueCycles: median(1),
  latencyCycles: median(4),
  loadCycles: { a: median(a), b: median(1) },
  storeCycles: median(2),
});

/** A core of an EPYC of Zen 4, as calibrated on 2026-11-29. */
const ZEN4: Calibration = {
  machine: "Zen 4",
  clockHz: median(3.69e9),
  loadsPerCycle: median(1),
  memory: { l1: memory(60, 32), l2: memory(31, 31), l3: memory(26.6, 27), dram: memory(5.7, 6.2) },
  intrinsics: { "avx512.fma.f32": fma(1), "avx512.fma.f32.broadcast": fma(1) },
  scalar: { gatheredLane: median(1.09), scatteredLane: median(1.52) },
};
const MACHINE = targetOf({
  name: "Zen 4",
  isa: ["avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq"],
  levels: [
    { name: "dram", units: 1 },
    { name: "l3", units: 2, bytes: 32 << 20 },
    { name: "l2", units: 1, bytes: 1 << 20 },
    { name: "l1", units: 1, bytes: 32 << 10 },
    { name: "registers", units: 1 },
  ],
  source: "lscpu",
});

function spaceOf(size: number): SessionSpace {
  const parameters = { c: 128, k: 128, h: size, w: size };
  const computation = instantiate(operatorNamed("conv2d"), { parameters, layouts: "NHWC" });
  const intrinsics = Object.keys(ZEN4.intrinsics).flatMap((name) => intrinsicsNamed(name));
  const found = finished(
    chooseSpace(computation, intrinsics, { machine: MACHINE, calibration: ZEN4, threads: 1, seed: 1 }),
  );
  if ("refused" in found) throw new Error(found.refused[0]?.because);
  return found.space;
}

/** The next proposals after some trials. */
function proposed(space: SessionSpace, trials: readonly TrialOf<Candidate>[] = []): readonly Candidate[] {
  space.learn(trials);
  const search = {
    space,
    random: seededRandom(1),
    batch: 8,
    trials,
    tried: (key: string) => trials.some((trial) => trial.key === key),
    expected: (candidate: Candidate) => space.predict(candidate)?.seconds,
    recorded: () => [],
    meanwhile: () => undefined,
  };
  const [first = []] = genetic.propose(search, fillOptions(genetic, {}) as never);
  return first;
}

test("designs that take five times as long are no first proposals of a wide convolution in NHWC", () => {
  const space = spaceOf(112);
  const first = proposed(space);
  const kinds = new Set(first.slice(0, 7).map(({ kind }) => kind));
  expect([...kinds].filter((kind) => SESSION_KINDS[kind].family === "design")).toEqual([]);
});
