/**
 * @file Faults of the machine: a tool that is missing or broken, no room, no memory. None is ever taken for a fact
 * about a kernel.
 */

import { chmodSync, existsSync, mkdtempSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { type ChildRun, findProgram } from "../../runtime/child.ts";
import { compileKernel } from "../../runtime/compiler.ts";
import { systemError, toolProblem } from "../../runtime/environment.ts";
import { Answers, compileHarness, type HarnessRequest, runHarness } from "../../runtime/harness/run.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { random } from "../../tuner/random.ts";
import { commandLine } from "../support/command-line.ts";
import { type FakeTimes, fakeRunner, took, withCalibration } from "../support/fake-runner.ts";
import { compilerHere, runnerHere } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { plainKernel } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { sourceOf } from "../support/source.ts";
import { operation } from "../support/subjects.ts";

const root = scratchFolder();
afterEach(() => vi.unstubAllEnvs());
const at = (name: string): string => join(root, name);
const compiler = await compilerHere();

const matmul = operation("matmul m=8 n=8 k=8");

/** A PATH on which only these programs are. */
function pathWith(...programs: readonly string[]): string {
  const folder = mkdtempSync(at("bin-"));
  for (const name of programs) {
    const found = findProgram(name);
    if (found === undefined) throw new Error(`${name} is not here`);
    symlinkSync(found, join(folder, name));
  }
  return folder;
}

/** A program made of a line of shell. */
function script(name: string, line: string): string {
  const folder = mkdtempSync(at("script-"));
  writeFileSync(join(folder, name), `#!/bin/sh\n${line}\n`);
  chmodSync(join(folder, name), 0o755);
  return join(folder, name);
}

/** What was thrown, as its three lines. */
async function fault(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    (value) => new Error(`nothing was thrown: ${JSON.stringify(value)}`),
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(EnvironmentError);
  return error instanceof Error ? error.message : "";
}

describe("a search without objdump", () => {
  it("ends with exit code 6 and no trial, and works once objdump is installed", async () => {
    vi.stubEnv("CXX", compiler.path);
    const db = withCalibration(at("objdump.db"), compiler);
    const tune = `tune matmul --m 8 --n 8 --k 8 --dtype f32 --trials 2 --kinds mappings --db ${db}`;
    const path = process.env["PATH"] ?? "";
    vi.stubEnv("PATH", pathWith("g++", "as", "ld", "sh"));
    const without = await commandLine(tune);
    expect(without).toMatchObject({ code: 6, out: "" });
    expect(without.err).toMatch(/neither objdump nor llvm-objdump is on the PATH\n {2}.*\n {2}install binutils/);
    vi.stubEnv("PATH", path);
    const installed = await commandLine(tune);
    expect(installed.code).toBe(0);
    expect(installed.err).toMatch(/^all trials made after \d+\.\d s: 2 kernels tried, 2 of them now, 0 failed$/m);
  });
});

describe("a machine that fails in the middle of a search", () => {
  it("ends it with the measurements kept, from which the same search continues", async () => {
    const database = withCalibration(at("middle.db"), compiler);
    let asked = 0;
    const failing: FakeTimes = {
      alone: () => {
        if (++asked > 3) throw new EnvironmentError({ what: "no room", why: "because", remedy: "make some" });
        return took(asked * 1e-6);
      },
      inTurns: (kernels) => kernels.map(() => took(1e-6)),
    };
    const options = { database, strategy: random, trials: 6, seconds: 60, earlyStop: false };
    const search = (times: FakeTimes): ReturnType<typeof tuneComputation> =>
      tuneComputation({ computation: matmul }, { ...options, runner: fakeRunner(compiler, times) });
    expect(await search(failing)).toMatchObject({ status: "environment", problem: { what: "no room" } });

    const db = openDatabase(database, { readonly: true });
    expect(queryTrials(db).map((t) => t.measurement.status)).toEqual(["ok", "ok", "ok"]);
    expect(db.sqlite.prepare("SELECT status FROM runs").pluck().all()).toEqual(["failed"]);
    db.close();
    const measured = asked;
    const on = await search({ ...failing, alone: () => took(++asked * 1e-6) });
    expect(on).toMatchObject({ status: "trials-spent" });
    expect(asked - measured).toBe(3);
  });
});

describe("a compiler", () => {
  const kernel = (): Kernel => {
    const plain = plainKernel(matmul);
    if (!plain) throw new Error("nothing maps here");
    return plain.kernel;
  };
  const compileWith = (path: string): Promise<unknown> =>
    compileKernel(kernel(), { compiler: { ...compiler, command: [path] }, workdir: mkdtempSync(at("work-")) });

  it.each([
    [
      "without room for its files",
      'ulimit -f 1; exec g++ "$@"',
      /File size limit exceeded|No space left|File too large|signal 25/,
    ],
    ["without memory", 'ulimit -v 45000; exec g++ "$@"', /memory/],
    ["that is killed", "kill -9 $$", /was killed by SIGKILL/],
    [
      "whose part is killed",
      "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
      /Killed signal/,
    ],
    [
      "whose linker found no room",
      "echo 'final link failed: No space left on device' >&2; exit 1",
      /No space left on device/,
    ],
    [
      "without headers",
      "echo 'immintrin.h: No such file or directory' >&2; exit 1",
      /cannot compile a function that does nothing/,
    ],
    ["that does nothing but fail", "exit 3", /exited with 3/],
  ])("%s is a fault of the machine", async (_, line, says) => {
    const message = await fault(compileWith(script("g++", line)));
    expect(message).toMatch(says);
    expect(message.split("\n").length).toBeGreaterThanOrEqual(3);
  });

  it("without its assembler is a fault of the machine", async () => {
    const path = pathWith("g++", "sh");
    vi.stubEnv("PATH", path);
    expect(await fault(compileWith(join(path, "g++")))).toMatch(/\bas\b|assembler/);
  });

  it("that is gone is a fault of the machine", async () => {
    expect(await fault(compileWith(at("nowhere")))).toMatch(/did not start/);
  });

  it("that refuses this kernel alone is no fault of the machine", async () => {
    const wrong = { ...kernel(), source: sourceOf("int x = nonsense;") };
    expect(await compileKernel(wrong, { compiler, workdir: mkdtempSync(at("work-")) })).toMatchObject({
      status: "compile-failed",
      log: expect.stringContaining("nonsense"),
    });
  });
});

describe("a runner", () => {
  compileOnce();
  let runner: Runner;
  beforeAll(async () => {
    runner = await runnerHere({ workdir: at("runner"), budgetSeconds: 0.01, batches: [3, 5] });
  });
  afterAll(() => runner.close());
  const plain = (): Kernel => {
    const found = plainKernel(matmul);
    if (!found) throw new Error("nothing maps here");
    return found.kernel;
  };

  it("is ready before its measuring program, and reports to measurements when that fails to compile", async () => {
    const program = script(
      "g++",
      `case "$*" in *-rdynamic*) while [ ! -e '${at("go")}' ]; do sleep 0.02; done; echo no >> '${at("asked")}'; exit 1 ;; esac; exec g++ "$@"`,
    );
    const own = { ...compiler, command: [program] };
    const runner = await runnerHere({ workdir: at("without"), compiler: own });
    expect(existsSync(at("asked"))).toBe(false);
    writeFileSync(at("go"), "");
    expect(await fault(runner.baseline())).toMatch(/cannot compile the measuring program/);
    expect(existsSync(at("asked"))).toBe(true);
    await runner.close();
  });

  it("whose folder cannot be created is a problem of the environment", async () => {
    writeFileSync(at("file"), "");
    expect(await createRunner({ workdir: join(at("file"), "runtime") })).toMatchObject({
      status: "environment",
      what: expect.stringMatching(/^preparing to measure: .*\/file\/runtime: a part of the path is no directory$/),
      remedy: expect.stringContaining("XDG_CACHE_HOME"),
    });
  });

  it("does not take a failing or outdated objdump for a missing instruction", async () => {
    const reference = await runner.reference(matmul, 1);
    const path = process.env["PATH"] ?? "";
    const objdump = (line: string): void => void vi.stubEnv("PATH", `${join(script("objdump", line), "..")}:${path}`);
    for (const [line, says] of [
      ["echo 'objdump: file truncated' >&2; exit 1", /objdump exited with 1: objdump: file truncated/],
      ["kill -9 $$", /disassembling: .*killed by SIGKILL/],
      ["echo '  401000:\t(bad)'", /does not know all instructions of a kernel/],
    ] as const) {
      objdump(line);
      expect(await fault(runner.measure(plain(), reference))).toMatch(says);
    }
    objdump("echo '  401000:\tnop'");
    expect(await runner.measure(plain(), reference)).toMatchObject({ status: "missing-instruction" });
  });

  it("does not take a damaged library for a crash of its kernel", async () => {
    const kernel = { ...plain(), source: sourceOf(`${plain().source}\n// damaged`) };
    const compiled = await runner.compile(kernel);
    if (compiled.status !== "compiled") throw new Error(compiled.log);
    truncateSync(compiled.file, 100);
    const reference = await runner.reference(matmul, 1);
    expect(await fault(runner.measure({ ...kernel, promises: undefined }, reference))).toMatch(/\.so: .*; delete it/);
  });
});

describe("the measuring program", () => {
  let harness: string;
  beforeAll(async () => {
    const made = await compileHarness({ compiler, workdir: cacheFolder("runtime") });
    if (made.status !== "compiled") throw new Error(made.log);
    harness = made.file;
  });
  const request: HarnessRequest = {
    cpus: [0],
    fileBytes: 0,
    memoryBytes: 2 ** 27,
    cache: "warm",
    batchSeconds: 20e-6,
    budgetSeconds: 0.01,
    batches: [3, 5],
    arguments: [],
    sets: [],
    kernels: [],
  };
  const run = (program: string, more: Partial<HarnessRequest> = {}): ReturnType<typeof runHarness> =>
    runHarness(program, { ...request, ...more }, { stepSeconds: 30, outputBytes: 1000 });

  it("works on a sound machine", async () => {
    expect((await run(harness)).verdicts.get(0)).toMatchObject({ status: "timed" });
  });

  it.each([
    ["has too little address space", (h: string) => `ulimit -v 40000; exec '${h}'`, /ulimit -v/],
    ["may use no processor time", (h: string) => `ulimit -t 1; exec '${h}'`, /ulimit -t/],
    ["cannot be loaded", () => "exec /nowhere/harness", /ended with exit code 127/],
    ["is killed", () => "kill -9 $$", /was killed by SIGKILL/],
  ])("that %s is a fault of the machine", async (_, line, says) => {
    const long = { budgetSeconds: 20, batches: [5, 100_000] as const };
    expect(await fault(run(script("harness", line(harness)), long))).toMatch(says);
  });

  it("that is gone, or has no inputs to read, is a fault of the machine", async () => {
    expect(await fault(run(at("nowhere")))).toMatch(/did not start/);
    const sets = [{ name: "random", expected: at("gone"), tolerance: at("gone"), checked: undefined, inputs: [] }];
    expect(await fault(run(harness, { sets, kernels: ["kernel.so"] }))).toMatch(/gone cannot be opened: No such file/);
  });

  it("killed by the system for want of memory does not blame a kernel, unlike one killed otherwise", () => {
    const killed = (memoryKills: number): [Error | undefined, unknown] => {
      const answers = new Answers();
      answers.hear("at 0 call 1 on random inputs");
      answers.hear("ended signal 9");
      return [answers.conclude(0, null, memoryKills), answers.reply("")];
    };
    expect(killed(1)[0]).toBeInstanceOf(EnvironmentError);
    expect(killed(0)).toEqual([undefined, expect.objectContaining({ killed: true })]);
  });
});

it("inputs that a GPU's harness leaves out are reported by name", () => {
  const left: string[] = [];
  const answers = new Answers({ onLeftOut: (set) => void left.push(set) });
  answers.hear("at 0 reference on exact inputs");
  answers.hear("left-out 0 exact");
  answers.hear("left-out 0 extreme");
  expect(left).toEqual(["exact", "extreme"]);
});

describe("the words of a fault", () => {
  const run = (stderr: string): ChildRun => ({ command: ["g++"], stdout: "", stderr, status: "failed", exitCode: 1 });
  it.each([
    ["collect2: fatal error: ld terminated with signal 9 [Killed]", "end other programs"],
    ["cc1plus: out of memory allocating 65536 bytes", "end other programs"],
    ["terminate called after throwing an instance of 'std::bad_alloc'", "end other programs"],
    ["as: can't create x.o: Disk quota exceeded", "free some space"],
    ["x.s: Read-only file system", "make it writable"],
    ["ld: cannot open output file: Permission denied", "make it writable"],
    ["collect2: fatal error: cannot find 'ld'", "install it again"],
    ["vfork: Resource temporarily unavailable", "ulimit -u"],
  ])("%s", (words, remedy) => {
    expect(toolProblem(run(words), "compiling")?.problem.remedy).toContain(remedy);
  });

  it("are not found in a compiler's error about a kernel", () => {
    expect(toolProblem(run("kernel.cpp:3: error: 'memory' was not declared"), "compiling")).toBeUndefined();
  });

  it("include the system's error codes, and an array that does not fit into memory", () => {
    const coded = (code: string): Error => Object.assign(new Error(code), { code });
    for (const code of ["ENOSPC", "EDQUOT", "EACCES", "EPERM", "EROFS", "EMFILE", "ENOMEM", "EAGAIN", "EIO", "ENOENT"])
      expect(systemError(coded(code), "writing")).toBeInstanceOf(EnvironmentError);
    expect(systemError(new RangeError("Array buffer allocation failed"), "drawing")).toBeInstanceOf(EnvironmentError);
    expect(systemError(new RangeError("Invalid array length"), "drawing")).toBeUndefined();
    expect(systemError(new Error("a bug"), "writing")).toBeUndefined();
  });
});
