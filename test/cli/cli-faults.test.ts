/** @file A full disk: the answer is printed first, then a sentence that names the fault. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openDatabase } from "../../db/index.ts";
import { commandLine } from "../support/command-line.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
openDatabase(join(folder, "empty.db")).close();

describe("a command on a full disk", () => {
  it.each([
    [
      "tune matmul --m 16 --n 16 --k 16 --dtype f32 --intrinsic portable --model-only --quiet --to /dev/full",
      "predicted by the model",
    ],
    ["explain matmul --intrinsic amx.tdpbusd --svg /dev/full", "mapping"],
    ["systolic conv1d --show SBM --svg /dev/full", "SBM"],
    [`check --baseline ${folder}/empty.db --db ${folder}/empty.db --junit /dev/full`, "0 compared"],
  ])("%s still prints its answer", async (line, says) => {
    const { code, out, err } = await commandLine(line);
    expect(out).toContain(says);
    expect({ code, err }).toEqual({
      code: 6,
      err: expect.stringMatching(/ \/dev\/full cannot be written: the disk is full$/m),
    });
    // Nor is anything else said: --quiet leaves out what is said on the way.
    expect(err).toMatch(/^automap: /);
    expect(err).toContain("free some space");
  });
});
