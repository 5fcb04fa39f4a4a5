/** @file Searches of the command, killed or with a fault under them, lose nothing: a sample of what bench/judges/faults.ts judges. */

import { spawnSync } from "node:child_process";
import { rmSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compileProgram } from "../support/program.ts";
import { sampled } from "../support/sample.ts";
import { inFull } from "../support/slow.ts";

const home = `node_modules/.cache/automap-faults-${process.pid}`;
beforeAll(() => compileProgram(home, ["bench/judges/faults.ts", "cli/main.ts"]));
afterAll(() => rmSync(home, { recursive: true, force: true }));

const FAULTS = ["always fails", "writes nothing", "floods", "is deleted", "is replaced", "an hour", "SIGTERM", "twice"];

it.each([["no fault", inFull(100, 3)] as const, ...sampled(FAULTS, inFull(1, 4)).map((name) => [name, 0] as const)])(
  "%s, and %i kills, leave the database whole, no process, and one sentence",
  (name, kills) => {
    const which = name === "no fault" ? ["--kills-only"] : ["--only", name];
    const words = [`${home}/bench/judges/faults.js`, "--kills", String(kills), ...which];
    const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: "utf8" });
    expect({ status, stdout, stderr: status === 0 ? "" : stderr }).toEqual({
      status: 0,
      stdout: expect.stringMatching(name === "no fault" ? /^right {2}\d+ kills/ : /^(?:right .*\n)+right {2}0 kills/),
      stderr: "",
    });
  },
);
