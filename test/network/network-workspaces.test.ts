/** Steps share the workspace of their kernel where they read the weights that it packs, or where it packs none. */

import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { Task } from "../../network/tasks.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { type Choice, type OpenNetwork, openGraph, tunedTasks } from "../../session/network/network.ts";
import { rankOf } from "../../session/tune/rank.ts";
import { onnx } from "../support/networks.ts";
import { expectProved } from "../support/proved-network.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

/** Three products, of which the first and the last read the same matrix. */
const repeated = (): OpenNetwork =>
  openGraph(
    onnx(`
      u = [32,32]{drawn}
      v = [32,32]{drawn}
      Relu(MatMul(Relu(MatMul(Relu(MatMul(x[4,32], u)), v)), u))
    `),
  );

/** The workspace of each step, once the library has computed what the model says. */
async function provedWorkspaces(opened: OpenNetwork, choices: ReadonlyMap<Task, Choice>): Promise<readonly number[]> {
  const parts = await expectProved(mkdtempSync(join(folder, "net-")), opened, choices);
  expect(parts.steps.map(({ kernel }) => kernel)).toEqual([0, 0, 0]);
  return parts.steps.map(({ workspace }) => workspace);
}

/** Kernels that copy the images that they read, and pack their matrix or read it in place. */
function choicesWith(b: "tiled" | "in-place", { program }: OpenNetwork): ReadonlyMap<Task, Choice> {
  return new Map(
    tunedTasks(program).map((task) => {
      const ranking = rankOf(task.computation, { count: 1, kinds: "mappings" }, 20);
      const candidate = "refused" in ranking ? undefined : ranking[0]?.candidate;
      if (candidate?.kind !== "mapping") throw new Error("nothing maps");
      const { within: _, ...schedule } = candidate.schedule;
      const placed = { ...schedule, placement: { a: "padded", b } } as const;
      const kernel = kernelFor(task.computation, { ...candidate, schedule: placed });
      return [task, { kind: "model", kernel: { kernel, provenance: [] }, place: "", expected: 1 }] as const;
    }),
  );
}

it("the steps of a recurrent network pack their matrix once", async () => {
  const opened = repeated();
  expect(await provedWorkspaces(opened, choicesWith("tiled", opened))).toEqual([0, 1, 0]);
});

it("steps whose kernel packs no weights share the copies of their images", async () => {
  const opened = repeated();
  expect(await provedWorkspaces(opened, choicesWith("in-place", opened))).toEqual([0, 0, 0]);
});
