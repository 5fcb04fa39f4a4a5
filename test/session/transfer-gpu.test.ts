/** @file What a search on a GPU tries first: kernels of its own imported records if they are trusted, then those of similar computations. */

import { afterEach, beforeEach, expect, it } from "vitest";
import { type Candidate, candidateKey } from "../../abstraction/candidate.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { openDatabase, recordTrial, type Workload } from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { isRefusals, type SessionSpace } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { transferredOnGpu } from "../../session/tune/transfer.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { MACHINE, measured, newTrial, trial, WARM, workloadNamed, workshop } from "../support/database.ts";

const H100 = nvidiaTarget("h100");
const ENVIRONMENT = { ...MACHINE, target: "h100", cpu: "NVIDIA H100" };
const INTRINSICS = ["mma.m16n8k16.f32.f16", "wmma.m16n16k16.f32.f16"].flatMap((name) => intrinsicsNamed(name));

const product = (m: number, k = 64): Workload => workloadNamed("matmul", { m, n: 64, k }, "f16");
const spaceOf = ({ computation }: Workload, intrinsics: readonly Intrinsic[] = INTRINSICS): SessionSpace => {
  const space = finished(
    sessionSpace(computation, { machine: H100, intrinsics, seed: 1, threads: 1, kinds: "mappings" }),
  );
  if (isRefusals(space)) throw new Error("nothing maps");
  return space;
};

let shop: ReturnType<typeof workshop>;
beforeEach(() => {
  shop = workshop();
});
afterEach(() => shop.remove());

/** Records a kernel of a workload with one key or another. */
function recorded(workload: Workload, candidate: Candidate, microseconds: number, key = "own"): void {
  const db = openDatabase(shop.path("automap.db"), { key: shop.path(key) });
  const intrinsic = INTRINSICS.find(({ name }) => name === candidate.intrinsic);
  recordTrial(db, {
    ...newTrial(microseconds, { workload, environment: ENVIRONMENT }),
    ...(intrinsic && { intrinsic }),
    trial: trial(measured(microseconds), undefined, candidate),
  });
  db.close();
}

function transferred(workload: Workload, trustImported: boolean, space = spaceOf(workload)): string[] {
  const db = openDatabase(shop.path("automap.db"), { key: shop.path("own") });
  const sought = {
    ...workload,
    environment: ENVIRONMENT,
    ...WARM,
    intrinsics: INTRINSICS,
    trustImported,
    similar: true,
  };
  const found = transferredOnGpu(db, sought, space);
  db.close();
  return found.map(({ candidate }) => candidateKey(candidate));
}

it("takes the schedule of a similar product, with its mapping where the space left that out", () => {
  const near = product(256);
  const wmma = INTRINSICS.filter(({ family }) => family === "wmma");
  const candidate = spaceOf(near, wmma).random(seededRandom(1));
  recorded(near, candidate, 3);
  const workload = product(512);
  const space = spaceOf(
    workload,
    INTRINSICS.filter(({ family }) => family !== "wmma"),
  );
  expect(transferred(workload, false, space)).toEqual([candidateKey(candidate)]);
  expect(space.predict(candidate)?.seconds).toBeGreaterThan(0);
  expect(space.intrinsicOf(candidate).family).toBe("wmma");
  expect(space.kernelOf(candidate).source).toContain("512");
});

it("tries a computation's own imported kernels first, the fastest before others, and only if they are trusted", () => {
  const workload = product(512);
  const near = product(256);
  const space = spaceOf(workload);
  const random = seededRandom(2);
  const slow = space.random(random);
  const fast = space.random(random);
  const other = spaceOf(near).random(random);
  recorded(workload, slow, 9, "another");
  recorded(workload, fast, 5, "another");
  recorded(near, other, 2);
  expect(transferred(workload, false)).toEqual([candidateKey(other)]);
  expect(transferred(workload, true)).toEqual([fast, slow, other].map((c) => candidateKey(c)));
});
