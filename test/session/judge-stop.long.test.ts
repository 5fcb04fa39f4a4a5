/**
 * @file Kernels judged under emulation, until Ctrl-C: finished verdicts are kept, printed and written; wrong requests
 * are refused.
 */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it, vi } from "vitest";
import { readTarget } from "../../cli/target.ts";
import { openDatabase, queryTrials, runsIn } from "../../db/index.ts";
import { PORTABLE } from "../../intrinsics/portable.ts";
import { findArmTools } from "../../runtime/cross.ts";
import { emulatorFor } from "../../session/judge/emulators.ts";
import { judgeByModel } from "../../session/judge/judge.ts";
import { judgeKernel } from "../../session/judge/judge-kernel.ts";
import { writtenKernel } from "../../session/judge/offline.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { generate } from "../../session/kinds/mapping-kind.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { armTargetNamed } from "../../targets/index.ts";
import { commandLine } from "../support/command-line.ts";
import { plainCandidate } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const scratch = scratchFolder();
afterEach(() => void vi.unstubAllEnvs());

const tools = await findArmTools();
const missing = tools.status === "environment" ? tools.what : "";
const DG2 = "tune matmul --m 9 --n 18 --k 20 --dtype u8s8 --target dg2 --language cm --emulate --trials 2".split(" ");

/** A compiler that never ends from the second kernel on; a file says that it has begun with it. @param kernels that it compiles before */
function endlessCompiler(name: string, kernels: 0 | 1): { readonly command: string; readonly begun: string } {
  const [command, first, begun] = ["", ".first", ".begun"].map((end) => join(scratch, `${name}${end}`)) as [
    string,
    string,
    string,
  ];
  if (kernels === 0) writeFileSync(first, "");
  const script = `#!/bin/sh
case "$*" in
--version | *c++-header*) exec g++ "$@" ;;
esac
if [ -e '${first}' ]; then
  touch '${begun}'
  exec sleep 1000000
fi
touch '${first}'
exec g++ "$@"
`;
  writeFileSync(command, script, { mode: 0o755 });
  return { command, begun };
}

/** A command line that hears Ctrl-C, the handler of which is called and not the process's own, once a file is there. */
async function interrupted(words: readonly string[], begun: string) {
  const before = process.listeners("SIGINT");
  const ran = commandLine(words);
  await expect.poll(() => existsSync(begun)).toBe(true);
  for (const hear of process.listeners("SIGINT")) if (!before.includes(hear)) hear("SIGINT");
  return ran;
}

describe("Ctrl-C while a kernel is emulated", () => {
  it("ends it, and keeps, prints and writes the verdicts before it", async () => {
    const { command, begun } = endlessCompiler("second", 1);
    vi.stubEnv("CXX", command);
    const database = join(scratch, "second.db");
    const to = join(scratch, "second.cm");
    const ran = await interrupted([...DG2, "--db", database, "--to", to], begun);
    expect(ran, ran.err).toMatchObject({ code: 130, out: expect.stringContaining("emulated") });
    expect(ran.err).toContain("stopped after 1 kernel; none of the others was judged");
    const db = openDatabase(database);
    try {
      const trials = queryTrials(db);
      expect(trials.map(({ measurement }) => measurement.status)).toEqual(["emulated"]);
      expect(readFileSync(to, "utf8")).toContain(trials[0]?.candidate.intrinsic);
      expect(runsIn(db).map(({ run }) => run.status)).toEqual(["interrupted"]);
    } finally {
      db.close();
    }
  });

  it("ends with 130 also when nothing was judged before", async () => {
    const { command, begun } = endlessCompiler("none", 0);
    vi.stubEnv("CXX", command);
    const database = join(scratch, "none.db");
    const ran = await interrupted([...DG2, "--db", database], begun);
    expect(ran, ran.err).toMatchObject({ code: 130, out: "" });
    expect(ran.err).toContain("stopped after 0 kernels");
    const db = openDatabase(database);
    try {
      expect(runsIn(db).map(({ run, trials }) => [run.status, trials])).toEqual([["interrupted", 0]]);
    } finally {
      db.close();
    }
  });

  it("is heard by a kernel in C++ that is measured here", async () => {
    const { command, begun } = endlessCompiler("measured", 0);
    vi.stubEnv("CXX", command);
    const computation = operation("matmul m=9 n=18 k=20", "u8s8");
    const plain = plainCandidate(computation, PORTABLE);
    if (!plain) throw new Error("nothing maps");
    const stop = new AbortController();
    const judging = judgeKernel(computation, generate(plain.candidate, plain.mapping), { signal: stop.signal });
    judging.catch(() => undefined);
    await expect.poll(() => existsSync(begun)).toBe(true);
    stop.abort();
    await expect(judging).rejects.toThrow("stopped");
  });

  it.skipIf(missing !== "")(`is heard by qemu ${missing}`, async () => {
    const machine = armTargetNamed("neoverse-n1");
    if (!machine) throw new Error("no neoverse-n1");
    const computation = operation("matmul m=8 n=16 k=16", "s8");
    const ranked = rankByModel(computation, { machine, count: 1 });
    if ("refused" in ranked || !ranked[0]) throw new Error("nothing maps");
    const kernel = writtenKernel(computation, ranked[0], machine);
    if (typeof kernel === "string") throw new Error(kernel);
    const stop = new AbortController();
    const emulator = await emulatorFor(machine, "c++", { threads: 1, signal: stop.signal });
    if (emulator.status === "environment") throw new Error(emulator.what);
    try {
      const reference = await emulator.reference(computation, {});
      stop.abort();
      await expect(emulator.judge(kernel, reference)).rejects.toThrow("stopped");
    } finally {
      await emulator.close();
    }
  });
});

describe("the time of kernels under emulation", () => {
  it("ends them once one is judged, and is told", async () => {
    const { command } = endlessCompiler("late", 1);
    vi.stubEnv("CXX", command);
    const ran = await commandLine([...DG2, "--time", "1", "--db", join(scratch, "late.db")]);
    expect(ran, ran.err).toMatchObject({ code: 0, out: expect.stringContaining("emulated") });
    expect(ran.err).toContain("the time was up after 1 kernel; none of the others was judged");
  });
});

describe("kernels to judge", () => {
  it("are refused when they are of two languages", async () => {
    const machine = await readTarget("dg2");
    const intrinsics = [...usableIntrinsics(machine, "cm"), ...usableIntrinsics(machine, "opencl")];
    const computation = operation("matmul m=9 n=18 k=20", "u8s8");
    await expect(judgeByModel({ computation }, { machine, intrinsics, database: ":memory:" })).rejects.toThrow(
      "instructions of cm and opencl: kernels are judged in one language at a time",
    );
  });
});
