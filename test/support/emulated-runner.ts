/** @file The runner of an emulated GPU, for all the tests of a file. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { type CudaRunner, createCudaRunner } from "../../runtime/run/cuda.ts";

/** @returns where its programs lie, and the runner once the tests run */
export function emulatedRunner(): { readonly workdir: string; readonly runner: () => CudaRunner } {
  const workdir = mkdtempSync(join(tmpdir(), "automap-emulated-runner-"));
  let runner: CudaRunner | undefined;
  beforeAll(async () => {
    const made = await createCudaRunner({ workdir, emulated: true });
    if (made.status !== "ready") throw new Error(made.what);
    runner = made.runner;
  });
  afterAll(async () => {
    await runner?.close();
    rmSync(workdir, { recursive: true });
  });
  return {
    workdir,
    runner: () => {
      if (!runner) throw new Error("the runner is made before the first test");
      return runner;
    },
  };
}
