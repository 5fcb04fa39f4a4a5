/** @file What a search of large products on Hopper measures first, before any trial: kernels whose results the copy engine stores are among it. */

import { expect, it } from "vitest";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { GRID_KIND } from "../../session/kinds/gpu-kinds.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { genetic } from "../../tuner/genetic.ts";
import { fillOptions, type Strategy } from "../../tuner/strategy.ts";
import { type SuiteType, suiteComputation } from "../support/suite.ts";

const machine = nvidiaTarget("h200");
const intrinsics = usableIntrinsics(machine);

it.each<[number, SuiteType]>([
  [2048, "f16"],
  [4096, "f16"],
  [8192, "f16"],
  [2048, "bf16"],
  [4096, "bf16"],
  [8192, "bf16"],
])("the first sixteen kernels of a product of %d cubed in %s have bulk stores among them", (size, dtype) => {
  const params = { m: size, n: size, k: size };
  const computation = suiteComputation({ op: "gmm", params, layout: dtype === "f16" ? "first" : "last", dtype });
  const asked = { computation, machine, kinds: "mappings", intrinsics, loops: [], threads: 1, seed: 1 } as const;
  const found = finished(GRID_KIND.spaceOf(asked, []));
  if (isRefusals(found)) throw new Error("nothing maps");
  const { space, model } = found;
  const strategy: Strategy = genetic;
  const rounds = strategy.propose(
    {
      space,
      random: seededRandom(1),
      batch: 16,
      trials: [],
      tried: () => false,
      expected: (candidate) => model.predict(candidate)?.seconds,
      recorded: () => [],
      meanwhile: (work) => work(),
    },
    fillOptions(strategy, {}),
  );
  const [first = []] = rounds;
  expect(first.length).toBe(16);
  expect(first.filter(({ schedule }) => schedule.store === "bulk").length).toBeGreaterThan(0);
});
