/** @file Requirements of measuring: a compiler, processors, a clean folder; and the findings of the doctor. */

import { mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { findCompiler } from "../../runtime/compiler.ts";
import { examineMachine } from "../../runtime/doctor.ts";
import { createRunner } from "../../runtime/measure.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

describe("the machine", () => {
  it("without a compiler is a problem of the environment, with what to install", async () => {
    expect(await findCompiler({ PATH: "/nowhere" })).toEqual({
      status: "environment",
      what: "no C++ compiler found",
      why: "kernels are compiled, checked and timed on this machine",
      remedy: "install g++ (apt-get install g++), or set CXX",
    });
    expect(await findCompiler({ PATH: process.env.PATH, CXX: "g++-0" })).toMatchObject({
      status: "environment",
      what: "the C++ compiler named by CXX does not work: g++-0 is not on the PATH",
    });
  });

  it("sweeps its folder of leftovers and old files, and keeps files that are not its own", async () => {
    const folder = mkdtempSync(join(tmpdir(), "automap-sweep-"));
    const names = [
      "notes.txt",
      `${"0".repeat(32)}.so`,
      `${"1".repeat(32)}.so`,
      `runner-${process.pid}-a`,
      "runner-999999999-b",
      `${"2".repeat(32)}.999999999.0.cpp`,
    ];
    for (const name of names) writeFileSync(join(folder, name), "");
    for (const name of names.slice(0, 2)) utimesSync(join(folder, name), 0, 0);
    const made = await createRunner({ workdir: folder });
    if (made.status === "environment") throw new Error(made.what);
    await made.runner.close();
    const left = readdirSync(folder).filter((name) => names.includes(name));
    expect(left).toEqual([`${"1".repeat(32)}.so`, "notes.txt", `runner-${process.pid}-a`]);
    rmSync(folder, { recursive: true });
  });

  it("refuses more threads than processors", async () => {
    await expect(createRunner({ threads: 1000 })).rejects.toThrow(/threads 1000: this process may use \d+ processors/);
  });

  it("is examined: each finding says why it matters, and each problem what to do", async () => {
    const findings = await examineMachine({ workdir: folder });
    expect(findings.map(({ subject }) => subject)).toEqual(
      expect.arrayContaining([
        "processor",
        "vector instructions",
        "C++ compiler",
        "disassembler",
        "clock source",
        "noise",
      ]),
    );
    for (const finding of findings) {
      expect(finding.why).not.toBe("");
      if (finding.status !== "ok") expect(finding.remedy).toBeDefined();
    }
    const bare = await examineMachine({ workdir: folder, environment: { PATH: "/nowhere" } });
    const missing = bare.filter(({ status }) => status === "missing").map(({ subject }) => subject);
    expect(missing).toEqual(["C++ compiler", "disassembler"]);
  });
});
