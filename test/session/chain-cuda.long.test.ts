/** @file Programs whose equations share their rows on an emulated GPU: found by a search, verified by bounds in files, and read back from a record. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { type CudaRunner, createCudaRunner } from "../../runtime/run/cuda.ts";
import { chooseSpace, usableIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { sessionKindOf } from "../../session/kinds/kinds.ts";
import type { SessionSpace } from "../../session/kinds/session-space.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { CHAIN_GRAPHS, centred, masked, programIn, STORING_GRAPHS } from "../support/chain-graphs.ts";

const H100 = nvidiaTarget("h100");
let runner: CudaRunner;
beforeAll(async () => {
  const made = await createCudaRunner({ emulated: true, budgetSeconds: 0.001, batches: [1, 2] });
  if (made.status !== "ready") throw new Error(made.what);
  ({ runner } = made);
});
afterAll(() => runner.close());

function spaceOf(computation: Computation): SessionSpace {
  const options = { machine: H100, threads: 1, seed: 1, kinds: "all" } as const;
  const chosen = finished(chooseSpace(computation, usableIntrinsics(H100), options));
  if ("refused" in chosen) throw new Error(chosen.refused[0]?.because);
  return chosen.space;
}

describe("a program of rows on a GPU", () => {
  it.each([...CHAIN_GRAPHS, ...STORING_GRAPHS])("is right in the shapes of a search: %s", async (_, graph) => {
    const computation = programIn(graph, true);
    const space = spaceOf(computation);
    const random = seededRandom(1);
    const candidates: Candidate[] = [...(space.representatives ?? []), space.random(random), space.random(random)];
    for (const candidate of candidates) {
      expect(candidate.kind).toBe("warp-chain");
      expect(space.predict(candidate)?.seconds).toBe(
        sessionKindOf(candidate).predict(computation, candidate, { machine: H100 })?.seconds,
      );
      expect(kernelFor(computation, candidate, H100).source).toBe(space.kernelOf(candidate).source);
    }
    const kernels = candidates.map((candidate) => space.kernelOf(candidate));
    const measured = await runner.measureTogether(kernels, runner.reference(computation, 1));
    expect(measured.map(({ status }) => status)).toEqual(candidates.map(() => "ok"));
  });

  it.each([
    ["the value that it stores last", masked, "0.125", "0.25"],
    ["another that it stores", centred, '"value":2', '"value":3'],
  ])("is wrong with another factor of %s", async (_, graph, from, to) => {
    const right = programIn(graph, true);
    const wrong: Computation = JSON.parse(JSON.stringify(right).replaceAll(from, to));
    const space = spaceOf(wrong);
    const kernel = space.kernelOf(space.random(seededRandom(1)));
    expect(await runner.measureTogether([kernel], runner.reference(right, 1))).toMatchObject([{ status: "wrong" }]);
  });
});
