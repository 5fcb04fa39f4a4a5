/**
 * @file A search on a GPU that is stopped, or out of time, waits for no nvcc: on a machine whose GPU is emulated and
 * whose nvcc hangs.
 */

import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { createCudaRunner } from "../../runtime/run/cuda.ts";
import { type TuneComputationOptions, type TuneOutcome, tuneComputation } from "../../session/tune/tune.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { fakeCuda } from "../support/fake-cuda.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const folder = scratchFolder();

const computation = operation("matmul m=16 n=16 k=32", "f16");

/** Kernels, which alone are compiled with this flag, hang in nvcc; all, or all but the first. */
const hanging = (butTheFirst: boolean): string =>
  `case " $* " in *" -Xptxas "*) ${butTheFirst ? `mkdir ${folder}/first 2>/dev/null ||` : ""} exec sleep 1000 ;; esac`;

async function search(nvcc: string, options: TuneComputationOptions): Promise<TuneOutcome> {
  const place = mkdtempSync(join(folder, "machine-"));
  return fakeCuda(place, { nvcc }).here(async () => {
    const made = await createCudaRunner({ jobs: 1 });
    if (made.status !== "ready") throw new Error(made.what);
    const intrinsics = intrinsicsNamed("mma").filter((i) => i.name.endsWith(".f32.f16"));
    const machine = nvidiaTarget("h100");
    return tuneComputation(
      { computation },
      { intrinsics, machine, runner: made.runner, database: join(place, "t.db"), trials: 20, ...options },
    );
  });
}

describe("a search on a GPU", () => {
  it("that is stopped while its kernels compile ends, as do the compilations", async () => {
    const controller = new AbortController();
    const phases: string[] = [];
    const outcome = await search(hanging(false), {
      signal: controller.signal,
      onEvent: (event) => {
        if (event.kind !== "phase") return;
        phases.push(event.phase);
        if (event.phase === "compiling") setTimeout(() => controller.abort(), 100);
      },
    });
    expect(outcome).toMatchObject({ status: "interrupted", trials: [] });
    expect([...new Set(phases)]).toEqual(["calibrating", "enumerating", "drawing", "writing", "compiling"]);
  });

  it("that is out of time measures its one compiled kernel, and compiles no more", async () => {
    const outcome = await search(hanging(true), { within: 0.5 });
    expect(outcome).toMatchObject({ status: "time-spent", best: { kernel: { language: "cuda" } } });
    expect("trials" in outcome && outcome.trials.length).toBe(1);
  });
});
