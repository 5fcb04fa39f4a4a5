/**
 * @file The runner of an emulated GPU, for all the tests of a file. What it compiles is kept where all tests keep it.
 */

import { afterAll, beforeAll } from "vitest";
import type { CudaRunner } from "../../runtime/run/cuda.ts";
import { emulatedGpu } from "./here.ts";
import { scratchFolder } from "./scratch.ts";

/** @returns a folder for the tests of the file, and the runner once they run */
export function emulatedRunner(): { readonly folder: string; readonly runner: () => CudaRunner } {
  const folder = scratchFolder();
  let runner: CudaRunner | undefined;
  beforeAll(async () => {
    runner = await emulatedGpu();
  });
  afterAll(() => runner?.close());
  return {
    folder,
    runner: () => {
      if (!runner) throw new Error("the runner is made before the first test");
      return runner;
    },
  };
}
