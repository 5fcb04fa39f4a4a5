/** @file Kernels that are right, wrong and hostile, each written by hand, through the whole of runtime/measure.ts. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type Computation, defineComputation, inputsOf, memoryElements, targetOf } from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { runChild } from "../runtime/child.ts";
import { compileKernel, findCompiler } from "../runtime/compiler.ts";
import { shareCores } from "../runtime/cores.ts";
import { examineMachine } from "../runtime/doctor.ts";
import {
  createRunner,
  type MeasureOptions,
  type RaceOptions,
  type Runner,
  type RunnerOptions,
} from "../runtime/measure.ts";
import { allowedCpus, coresHere } from "../runtime/processor.ts";
import type { Reference } from "../runtime/verify.ts";
import { compileOnce } from "./support/kept-compiler.ts";
import { sourceOf } from "./support/source.ts";

const M = 40;
const K = 12;

const product = defineComputation({
  name: "matvec",
  equation: "out[m] += s32(a[m,k]) * s32(b[k])",
  extents: { m: M, k: K },
  tensors: { a: "u8", b: "s8" },
});

interface KernelText {
  /** Statements of one part of a call. */
  readonly run: string;
  readonly prepare?: string;
  readonly workspace?: string;
  readonly phases?: number;
  readonly features?: readonly string[];
  readonly promises?: string;
}

const C_TYPES: Readonly<Partial<Record<DType, string>>> = { u8: "uint8_t", s8: "int8_t", s32: "int32_t" };

function kernelOf(text: KernelText, computation: Computation = product): Kernel {
  const output = targetOf(computation);
  return {
    language: "c++",
    source: sourceOf(`#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <signal.h>
#include <unistd.h>
constexpr int M = ${M}, K = ${K};
extern "C" unsigned long automap_workspace_bytes(void) { return ${text.workspace ?? "0"}; }
extern "C" void automap_prepare(void* workspace, const void* const* tensors) { (void)workspace; (void)tensors; ${text.prepare ?? ""} }
extern "C" int automap_phases(void) { return ${text.phases ?? 1}; }
extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  auto* out = (int32_t*)tensors[0];
  ${inputsOf(computation)
    .map(({ name, dtype }, i) => `auto* ${name} = (const ${C_TYPES[dtype]}*)tensors[${i + 1}]; (void)${name};`)
    .join("\n  ")}
  (void)workspace; (void)phase; (void)part; (void)parts; (void)out;
  ${text.run}
}
`),
    features: text.features ?? [],
    promises: text.promises,
    arguments: [output, ...inputsOf(computation)].map((tensor) => ({
      tensor: tensor.name,
      dtype: tensor.dtype,
      elements: memoryElements(tensor),
      role: tensor === output ? "output" : tensor.constant ? "constant" : "input",
    })),
  };
}

const MULTIPLY =
  "for (int m = part; m < M; m += parts) { int32_t sum = 0; for (int k = 0; k < K; k++) sum += a[m*K + k] * b[k]; out[m] = sum; }";
const right = kernelOf({ run: MULTIPLY });

const QUICK: MeasureOptions = {
  budgetSeconds: 0.01,
  batches: [3, 10],
  batchSeconds: 20e-6,
  stepSeconds: 1,
  memoryBytes: 2 ** 27,
};

/** A busy machine may take its time to start a process. */
const PATIENCE = { timeout: 10_000 };

compileOnce();
let workdir = "";
let runner: Runner;
let reference: Reference;

beforeAll(async () => {
  workdir = mkdtempSync(join(tmpdir(), "automap-measure-"));
  const made = await createRunner({ ...QUICK, workdir });
  if (made.status === "environment") throw new Error(`${made.what}; ${made.remedy}`);
  ({ runner } = made);
  reference = await runner.reference(product, 1);
});

afterAll(async () => {
  await runner.close();
  expect(harnesses()).toEqual([]);
  rmSync(workdir, { recursive: true, force: true });
});

/** Processes that run a program of this test's folder, or sleep as one of its kernels does. */
function harnesses(): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").join(" ");
        const state = /^State:\s*(\S)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
        return command.startsWith(workdir) && state !== "Z" ? [`${pid} ${state} ${command}`] : [];
      } catch {
        return [];
      }
    });
}

async function statusOf(text: KernelText, options: MeasureOptions = {}): Promise<{ status: string; log: string }> {
  const measurement = await runner.measure(kernelOf(text), reference, options);
  expect(harnesses()).toEqual([]);
  return { status: measurement.status, log: measurement.status === "ok" ? "" : measurement.log };
}

describe("a right kernel", () => {
  it("is measured: samples, their median inside its interval, all in seconds a person would believe", async () => {
    const measurement = await runner.measure(right, reference);
    expect(measurement).toMatchObject({ status: "ok", instructions: 0 });
    if (measurement.status !== "ok") return;
    const { samples, median, interval } = measurement;
    expect(samples.length).toBeGreaterThanOrEqual(3);
    expect(interval[0]).toBeLessThanOrEqual(median);
    expect(interval[1]).toBeGreaterThanOrEqual(median);
    expect(median).toBeGreaterThan(1e-9);
    expect(median).toBeLessThan(1e-3);
  });

  it("may use a workspace, pack in prepare and run in phases with a barrier between, its parts on two threads", async ({
    skip,
  }) => {
    skip(allowedCpus().length < 2, "this machine has one processor");
    const made = await createRunner({ ...QUICK, workdir, threads: 2 });
    if (made.status === "environment") throw new Error(made.what);
    const phased = kernelOf({
      workspace: "4 * (K + M)",
      prepare:
        "if ((uintptr_t)workspace % 64) abort(); for (int k = 0; k < K; k++) ((int32_t*)workspace)[k] = ((const int8_t*)tensors[2])[k];",
      phases: 2,
      run: `auto* packed = (int32_t*)workspace; auto* sums = packed + K;
        if (phase == 0) for (int m = part; m < M; m += parts) { sums[m] = 0; for (int k = 0; k < K; k++) sums[m] += a[m*K + k] * packed[k]; }
        else for (int m = parts - 1 - part; m < M; m += parts) out[m] = sums[m];`,
    });
    try {
      expect(await made.runner.measure(phased, reference)).toMatchObject({ status: "ok" });
      expect(made.runner.conditions).toMatchObject({ threads: 2, clock: "CLOCK_MONOTONIC_RAW" });
    } finally {
      await made.runner.close();
    }
  });

  it("has its parts called in step, batch after batch", async ({ skip }) => {
    skip(allowedCpus().length < 2, "this machine has one processor");
    const made = await createRunner({ ...QUICK, workdir, threads: 2 });
    if (made.status === "environment") throw new Error(made.what);
    // Between two barriers each part has been called as often as the other; once that fails, every answer is wrong.
    const counting = kernelOf({
      workspace: "4 * 32",
      phases: 2,
      run: `int* calls = (int*)workspace;
        if (phase == 0) __atomic_fetch_add(&calls[part], 1, __ATOMIC_RELAXED);
        else { if (__atomic_load_n(&calls[0], __ATOMIC_RELAXED) != __atomic_load_n(&calls[1], __ATOMIC_RELAXED)) calls[2 + part] = 1;
          ${MULTIPLY} if (calls[2 + part]) out[0] = 0x5bad; }`,
      prepare: "memset(workspace, 0, 4 * 32);",
    });
    try {
      const options = { ...QUICK, batches: [200, 400] as const, budgetSeconds: 0.5 };
      expect(await made.runner.measure(counting, reference, options)).toMatchObject({ status: "ok" });
    } finally {
      await made.runner.close();
    }
  });

  it("takes longer when its data is in no cache", async () => {
    const warm = await runner.measure(right, reference);
    const flushed = await runner.measure(right, reference, { cache: "flushed" });
    if (warm.status !== "ok" || flushed.status !== "ok") throw new Error(`${warm.status}, ${flushed.status}`);
    expect(flushed.median).toBeGreaterThan(warm.median);
  });

  it("passes when blocked layouts leave holes in memory, whatever it writes there", async () => {
    const blocked = defineComputation({
      equation: "out[m] = x[m]",
      extents: { m: 5 },
      tensors: { out: { dtype: "s32", layout: "M4m" }, x: { dtype: "s32", layout: "M4m" } },
    });
    const own = await runner.reference(blocked, 1);
    const holes = (own.checked ?? []).slice(5);
    expect([...holes]).toEqual([0, 0, 0]);
    const copy = kernelOf({ run: "for (int i = 0; i < 8; i++) out[i] = i < 5 ? x[i] : 99;" }, blocked);
    expect(await runner.measure(copy, own)).toMatchObject({ status: "ok" });
  });

  it("is compiled once, however often it is asked for", async () => {
    const kernel = kernelOf({ run: `${MULTIPLY} /* once */` });
    const [first, second] = await Promise.all([runner.compile(kernel), runner.compile(kernel)]);
    expect(first).toMatchObject({ status: "compiled", cached: false });
    expect(second).toBe(first);
    expect(await runner.compile(kernel)).toMatchObject({ status: "compiled", cached: true });
  });
});

describe("a wrong kernel", () => {
  it("is told from a right one by its last element alone", async () => {
    const found = await statusOf({ run: `${MULTIPLY} out[M - 1] += 1;` });
    expect(found.status).toBe("wrong");
    expect(found.log).toMatch(
      /call 1 on random inputs: 1 of 40 elements of out differ; first at memory element 39: got .*largest error 1$/,
    );
  });

  it("is caught when it is wrong on extreme inputs only, as a saturating instruction is", async () => {
    const found = await statusOf({
      run: `for (int m = 0; m < M; m++) { int32_t sum = 0;
        for (int k = 0; k < K; k += 2) { int pair = a[m*K + k] * b[k] + a[m*K + k + 1] * b[k + 1]; sum += pair > 64769 ? 64769 : pair; }
        out[m] = sum; }`,
    });
    expect(found.status).toBe("wrong");
    expect(found.log).toContain("on extreme inputs");
  });

  it("is caught when it leaves an element unwritten", async () => {
    expect(await statusOf({ run: MULTIPLY.replace("m < M", "m < M - 1") })).toMatchObject({ status: "wrong" });
  });

  it("is caught when only its second call is wrong, because the workspace was not left as it was", async () => {
    const found = await statusOf({
      workspace: "4",
      prepare: "*(int*)workspace = 0;",
      run: `${MULTIPLY} out[3] += (*(int*)workspace)++;`,
    });
    expect(found).toMatchObject({ status: "wrong", log: expect.stringContaining("call 2 on random inputs") });
  });

  it("is refused when the instruction it promises is not in its code", async () => {
    const found = await runner.measure({ ...right, promises: "vpdpbusd" }, reference);
    expect(found).toMatchObject({
      status: "missing-instruction",
      log: expect.stringContaining("does not hold vpdpbusd"),
    });
  });

  it("has the count of the promised instruction when it is there", async () => {
    const promised = { run: `asm volatile("pause; pause"); ${MULTIPLY}`, promises: "pause" };
    expect(await runner.measure(kernelOf(promised), reference)).toMatchObject({ status: "ok", instructions: 2 });
  });

  it("that does not compile has the compiler's words in its log", async () => {
    expect(await statusOf({ run: "int x = nonsense;" })).toMatchObject({
      status: "compile-failed",
      log: expect.stringMatching(/nonsense.* was not declared/),
    });
    expect(await statusOf({ run: "extern void nowhere(); nowhere();" })).toMatchObject({
      status: "compile-failed",
      log: expect.stringContaining("undefined reference"),
    });
  });
});

/** Each ends as its own status and says where. */
const HOSTILE: readonly {
  readonly does: string;
  readonly text: KernelText;
  readonly ends: string;
  readonly says: RegExp;
}[] = [
  {
    does: "loops for ever",
    text: { run: "for (volatile int i = 0;;) i = i + 1;" },
    ends: "timed-out",
    says: /call 1 on random inputs: no sign of life for 0.5 s/,
  },
  {
    does: "writes to null",
    text: { run: "*(volatile int*)8 = 1;" },
    ends: "crashed",
    says: /call 1 on random inputs: wrote address 0x8/,
  },
  {
    does: "divides by zero",
    text: { run: "volatile int zero = 0; out[0] = a[0] / zero;" },
    ends: "crashed",
    says: /signal 8/,
  },
  {
    does: "overflows the stack",
    text: {
      run: "struct R { static int down(volatile int n) { volatile char big[4096]; big[0] = n; return down(n + 1) + big[0]; } }; out[0] = R::down(0);",
    },
    ends: "crashed",
    says: /stack overflowed/,
  },
  {
    does: "issues an instruction that is none",
    text: { run: 'asm volatile("ud2");' },
    ends: "illegal-instruction",
    says: /does not know the instruction/,
  },
  {
    does: "writes one element behind the output",
    text: { run: `${MULTIPLY} ((volatile int32_t*)out)[M] = 7;` },
    ends: "out-of-bounds",
    says: /wrote \d+ bytes behind the end of out/,
  },
  {
    does: "writes one element before the output",
    text: { run: `${MULTIPLY} ((volatile int32_t*)out)[-1] = 7;` },
    ends: "out-of-bounds",
    says: /wrote 4 bytes before the start of out/,
  },
  {
    does: "reads a row before its input",
    text: { run: `${MULTIPLY} out[0] += ((volatile const uint8_t*)a)[-5000] & 0;` },
    ends: "out-of-bounds",
    says: /read \d+ bytes before the start of a/,
  },
  {
    does: "writes to an input",
    text: { run: `${MULTIPLY} ((volatile uint8_t*)a)[3] = 1;` },
    ends: "out-of-bounds",
    says: /wrote to a, byte 3, which is an input/,
  },
  {
    does: "writes behind its workspace",
    text: { workspace: "64", run: `${MULTIPLY} ((volatile char*)workspace)[64] = 1;` },
    ends: "out-of-bounds",
    says: /behind the end of the workspace/,
  },
  {
    does: "allocates 10 GB",
    text: {
      run: "auto* p = (volatile char*)malloc(10ul << 30); for (size_t i = 0; i < (10ul << 30); i += 4096) p[i] = 1; free((void*)p);",
    },
    ends: "out-of-memory",
    says: /an allocation of 10737418240 bytes was refused/,
  },
  {
    does: "allocates without end",
    text: {
      run: 'for (;;) { auto* p = new char[1 << 20]; memset(p, 1, 1 << 20); asm volatile("" :: "r"(p) : "memory"); }',
    },
    ends: "out-of-memory",
    says: /an allocation of \d+ bytes was refused/,
  },
  {
    does: "wants 10 GB of workspace",
    text: { workspace: "10ul << 30", run: MULTIPLY },
    ends: "out-of-memory",
    says: /10737418240 bytes for the workspace were refused/,
  },
  {
    does: "floods stdout",
    text: { run: 'for (;;) puts("all work and no play");' },
    ends: "output-flood",
    says: /more than 65536 bytes\nit printed:\nall work/,
  },
  {
    does: "exits as if all were well",
    text: { run: "exit(0);" },
    ends: "crashed",
    says: /it ended the process with exit code 0/,
  },
  {
    does: "aborts with a message",
    text: { run: 'fputs("tile 3 is busy", stderr); abort();' },
    ends: "crashed",
    says: /signal 6[\s\S]*tile 3 is busy/,
  },
  {
    does: "leaves a child behind and crashes",
    text: { run: "if (fork() == 0) { sleep(1000); } *(volatile int*)8 = 1;" },
    ends: "crashed",
    says: /wrote address/,
  },
  {
    does: "leaves a session of its own behind and exits",
    text: { run: "if (fork() == 0) { setsid(); for (;;) pause(); } _exit(7);" },
    ends: "crashed",
    says: /it ended the process with exit code 7/,
  },
  {
    does: "hangs, and so does what it started",
    text: { run: "if (fork() == 0) setsid(); for (;;) pause();" },
    ends: "timed-out",
    says: /call 1 on random inputs: no sign of life for 0.5 s/,
  },
  {
    does: "kills its own process",
    text: { run: "kill(getpid(), SIGKILL);" },
    ends: "crashed",
    says: /call 1 on random inputs: killed by SIGKILL/,
  },
  {
    does: "stops its own process",
    text: { run: "kill(getpid(), SIGSTOP);" },
    ends: "timed-out",
    says: /no sign of life/,
  },
];

/** What a kernel starts outlives its call, and tries to outlive its process. */
const ESCAPES: readonly { readonly does: string; readonly leaves: string }[] = [
  { does: "forks", leaves: "if (fork() == 0) for (;;) pause();" },
  { does: "forks into a session of its own", leaves: "if (fork() == 0) { setsid(); for (;;) pause(); }" },
  {
    does: "becomes a daemon, deaf to signals",
    leaves: `if (fork() == 0) { setsid(); if (fork()) _exit(0);
      for (int s = 1; s < 65; s++) signal(s, SIG_IGN); for (;;) sleep(1000); }`,
  },
  {
    does: "talks on from a session of its own",
    leaves: 'if (fork() == 0) { setsid(); for (;;) { printf("still here\\n"); fflush(stdout); usleep(1000); } }',
  },
  {
    does: "forks a chain, each link in a session of its own",
    leaves: "if (fork() == 0) for (;;) { setsid(); if (fork()) _exit(0); usleep(200); }",
  },
  {
    does: "forks a process that goes on with the harness",
    leaves: "if (fork() == 0) setsid();",
  },
];

describe("a hostile kernel", () => {
  it.each(HOSTILE)("that $does ends as $ends, and the next right one is measured", async ({ text, ends, says }) => {
    const stepSeconds = ends === "timed-out" ? 0.5 : 5;
    const found = await statusOf(text, { stepSeconds, outputBytes: 65536 });
    expect(found).toEqual({ status: ends, log: expect.stringMatching(says) });
    expect(await runner.measure(right, reference)).toMatchObject({ status: "ok" });
  });

  it.each([
    ["behind an input", "a[M * K]", "read 1 bytes behind the end of a"],
    ["before an input", "b[-1]", "read 1 bytes before the start of b"],
  ])("that reads one byte %s is out of bounds, whatever the input's size", async (_, read, says) => {
    // 480 and 12 bytes: neither fills a cache line.
    const reads = {
      run: `${MULTIPLY} { volatile uint8_t byte = ((volatile const uint8_t*)${read.slice(0, 1)})${read.slice(1)}; (void)byte; }`,
    };
    expect(await statusOf(reads)).toMatchObject({ status: "out-of-bounds", log: expect.stringContaining(says) });
  });

  it.each(ESCAPES)("that $does leaves nothing behind, and nobody waits for it", async ({ leaves }) => {
    const begun = performance.now();
    const found = await statusOf({ run: `${MULTIPLY} static bool once; if (!once) { once = true; ${leaves} }` });
    expect(found).toEqual({ status: "ok", log: "" });
    expect(performance.now() - begun).toBeLessThan(8000);
  });

  it("dies with its whole group when automap does", async () => {
    const hang = kernelOf({ run: "" });
    const onLoad = "__attribute__((constructor)) static void hang() { fork(); setsid(); for (;;) pause(); }";
    const kernel = await runner.compile({ ...hang, source: sourceOf(hang.source + onLoad) });
    if (kernel.status !== "compiled") throw new Error(kernel.log);
    const harness = readdirSync(workdir).find((name) => name.endsWith(".out")) ?? "";
    const empty = ["argument s32 0 out", "set random", "expected /dev/null", "tolerance /dev/null"];
    const script = `
      const child = require("node:child_process").spawn(process.argv[1], [], { detached: true, stdio: ["pipe", "pipe", "pipe", "pipe"] });
      child.stdin.end(["parent " + process.pid, ...process.argv.slice(2), "go", ""].join("\\n"));`;
    const request = [...empty, `kernel ${kernel.file}`];
    const parent = spawn(process.execPath, ["-e", script, join(workdir, harness), ...request], { stdio: "inherit" });
    // The watcher, the process that runs the kernel, and what the kernel forked.
    await expect.poll(harnesses, PATIENCE).toHaveLength(3);
    parent.kill("SIGKILL");
    await expect.poll(harnesses, PATIENCE).toEqual([]);
  });

  it("is stopped by closing the runner, and so is what waits behind it", async () => {
    const made = await createRunner({ ...QUICK, workdir, stepSeconds: 60 });
    if (made.status === "environment") throw new Error(made.what);
    const hang = kernelOf({ run: "for (;;) pause();" });
    await made.runner.compile(hang);
    await made.runner.compile(right);
    const hanging = made.runner.measure(hang, reference);
    hanging.catch(() => undefined);
    await expect.poll(harnesses, PATIENCE).toHaveLength(2);
    const outcomes = Promise.allSettled([hanging, made.runner.measure(right, reference)]);
    await made.runner.close();
    for (const outcome of await outcomes)
      expect(outcome).toMatchObject({ reason: { message: "measuring was stopped" } });
    expect(harnesses()).toEqual([]);
  });
});

describe("a race", () => {
  it("that is stopped has no more answers, and a kernel that hangs is not waited for", async () => {
    const made = await createRunner({ ...QUICK, workdir, stepSeconds: 100 });
    if (made.status === "environment") throw new Error(made.what);
    const hang = kernelOf({ run: "for (;;) pause();" });
    const controller = new AbortController();
    const answers: string[] = [];
    for await (const { status } of made.runner.race([right, hang, right], reference, { signal: controller.signal })) {
      answers.push(status);
      // The watcher and the process of the kernels.
      await expect.poll(harnesses, PATIENCE).toHaveLength(2);
      controller.abort();
    }
    expect(answers).toEqual(["ok"]);
    await made.runner.close();
    expect(harnesses()).toEqual([]);
  });
});

describe("finalists", () => {
  it("are timed in turns in one process, each with as many samples", async () => {
    const slow = kernelOf({ run: `for (volatile int again = 0; again < 20; again = again + 1) { ${MULTIPLY} }` });
    const [a, b] = await runner.compareKernels([right, slow], reference);
    if (a?.status !== "ok" || b?.status !== "ok") throw new Error(`${a?.status}, ${b?.status}`);
    expect(a.samples.length).toBe(b.samples.length);
    expect(b.median).toBeGreaterThan(3 * a.median);
  });

  it("are measured although one crashes and one is wrong", async () => {
    const results = await runner.compareKernels(
      [right, kernelOf({ run: "*(volatile int*)8 = 1;" }), kernelOf({ run: "out[0] = 0;" }), right],
      reference,
    );
    expect(results.map(({ status }) => status)).toEqual(["ok", "crashed", "wrong", "ok"]);
  });
});

describe("a race", () => {
  const slow = kernelOf({ run: `for (volatile int again = 0; again < 20; again = again + 1) { ${MULTIPLY} }` });
  const run = async (kernels: readonly Kernel[], options: RaceOptions = {}): Promise<Measurement[]> => {
    const measurements: Measurement[] = [];
    for await (const one of runner.race(kernels, reference, options)) measurements.push(one);
    return measurements;
  };

  it("does not time to the end what is clearly slower than one before it, or than what is known", async () => {
    const enough = { budgetSeconds: 0.5, batches: [5, 1000], batchSeconds: 200e-6 } as const;
    const [a, b, c] = await run([right, slow, right], enough);
    if (a?.status !== "ok" || b?.status !== "ok" || c?.status !== "ok") throw new Error(JSON.stringify([a, b, c]));
    expect([a.lostTo, c.lostTo]).toEqual([undefined, undefined]);
    expect((b.lostTo ?? 0) / a.median).toBeCloseTo(1, 6);
    expect(Math.min(...b.samples)).toBeGreaterThan(1.1 * a.median);
    expect(b.samples.length).toBeGreaterThanOrEqual(5);
    expect(b.samples.length).toBeLessThan(a.samples.length / 2);
    const [alone] = await run([right], { ...enough, goal: a.median / 100 });
    expect(alone?.status === "ok" && (alone.lostTo ?? 0) / a.median).toBeCloseTo(0.01, 6);
  });

  it("measures all others when some fail, whatever these do to those after them", async () => {
    const crashing = kernelOf({ run: "*(volatile int*)8 = 1;" });
    const wrong = kernelOf({ run: "out[0] = 0;" });
    const statuses = (await run([right, crashing, right, wrong, wrong, right])).map(({ status }) => status);
    expect(statuses).toEqual(["ok", "crashed", "ok", "wrong", "wrong", "ok"]);
  });

  it("blames no kernel for what another has left behind", async () => {
    const leaves = kernelOf({ run: `setenv("LEFT", "behind", 1); ${MULTIPLY}` });
    const stumbles = kernelOf({ run: `if (getenv("LEFT")) *(volatile int*)8 = 1; ${MULTIPLY}` });
    const statuses = (await run([leaves, stumbles, right])).map(({ status }) => status);
    expect(statuses).toEqual(["ok", "ok", "ok"]);
  });

  it("ends when no more answers are asked for", async () => {
    const endless = kernelOf({ run: `usleep(20000); ${MULTIPLY}` });
    for await (const one of runner.race([right, endless, right], reference, { batches: [1000, 1000] })) {
      expect(one.status).toBe("ok");
      break;
    }
    await expect.poll(harnesses, PATIENCE).toEqual([]);
  });
});

describe("what goes on besides", () => {
  const CORES = coresHere();
  const realm = `test-measure-${process.pid}/`;
  const busy: ChildProcess[] = [];
  afterEach(() => {
    for (const child of busy.splice(0)) child.kill("SIGKILL");
  });

  async function runnerWith(options: RunnerOptions): Promise<Runner> {
    const made = await createRunner({ ...QUICK, workdir, ...options });
    if (made.status === "environment") throw new Error(made.what);
    return made.runner;
  }

  it("is said of a measurement: its processor, and the share of it that another program took", async () => {
    const [core] = CORES;
    const cpu = core?.cpus[0] ?? 0;
    busy.push(spawn("sh", ["-c", "while :; do :; done"], { stdio: "ignore" }));
    await runChild(["taskset", "-cp", String(cpu), String(busy[0]?.pid)], { timeLimitMs: 5000 });
    const own = await runnerWith({
      cores: shareCores({ cores: CORES.slice(0, 1), realm }),
      budgetSeconds: 0.3,
      batches: [50, 2000],
    });
    try {
      const { ran } = await own.measure(right, reference);
      expect(ran?.cpus).toEqual([cpu]);
      // Half of it, where the two are alone; a busy machine takes more, and a scheduler need not be fair in so short a time.
      expect(ran?.load).toBeGreaterThan(0.1);
    } finally {
      await own.close();
    }
  });

  it("is another search: each has its own core, and where there is one they take turns", async () => {
    const runners = await Promise.all(
      [1, 2].map(() => runnerWith({ cores: shareCores({ cores: CORES.slice(0, 2), realm }), budgetSeconds: 0.2 })),
    );
    try {
      const both = await Promise.all(runners.map((own) => own.measure(right, reference)));
      const cpus = both.map(({ ran }) => ran?.cpus[0]);
      if (CORES.length > 1) expect(new Set(cpus).size).toBe(2);
      const one = CORES.slice(0, 1);
      const [a, b] = await Promise.all([
        runnerWith({ cores: shareCores({ cores: one, realm }), budgetSeconds: 0.8, batches: [5, 100_000] }),
        runnerWith({ cores: shareCores({ cores: one, realm }) }),
      ]);
      const order: string[] = [];
      const first = a.measure(right, reference).then(() => order.push("first"));
      await expect.poll(harnesses, PATIENCE).not.toEqual([]);
      await Promise.all([first, b.measure(right, reference).then(() => order.push("second"))]);
      expect(order).toEqual(["first", "second"]);
      await Promise.all([a.close(), b.close()]);
    } finally {
      await Promise.all(runners.map((own) => own.close()));
    }
  });

  it("is not a compiler: kernels compile on cores that nobody measures on", async ({ skip }) => {
    skip(CORES.length < 2, "this machine has one core");
    const log = join(workdir, "compiled-on");
    const command = join(workdir, "compile");
    writeFileSync(command, `#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status >> ${log}\nexec g++ "$@"\n`, {
      mode: 0o755,
    });
    const compiler = { ...runner.compiler, command: [command] };
    const cores = (): ReturnType<typeof shareCores> => shareCores({ cores: CORES.slice(0, 2), realm });
    const measurer = await runnerWith({ cores: cores(), budgetSeconds: 1.6, batches: [5, 100_000] });
    try {
      const measuring = measurer.measure(right, reference);
      await expect.poll(harnesses, PATIENCE).not.toEqual([]);
      const options = { compiler, workdir, cores: cores() };
      await Promise.all([1, 2].map((i) => compileKernel(kernelOf({ run: `${MULTIPLY} /* beside ${i} */` }), options)));
      const { ran } = await measuring;
      const lines = readFileSync(log, "utf8").trim().split("\n");
      expect(lines.length).toBeGreaterThanOrEqual(2);
      const processors = new Set(lines.map((line) => Number(line.split(":")[1])));
      expect(processors.size).toBe(1);
      expect(processors).not.toContain(ran?.cpus[0]);
    } finally {
      await measurer.close();
    }
  });
});

describe("the machine", () => {
  it("runs the baseline whenever it is asked", async () => {
    const { median, samples } = await runner.baseline();
    expect(samples.length).toBeGreaterThanOrEqual(3);
    expect(median).toBeGreaterThan(1e-5);
  });

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

  it("keeps its folder: what was left or is old goes, what is not ours stays", async () => {
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
    await expect(createRunner({ workdir, threads: 1000 })).rejects.toThrow(
      /threads 1000: this process may use \d+ processors/,
    );
  });

  it("is examined: each finding says why it matters, and each that is not ok what to do", async () => {
    const findings = await examineMachine({ workdir });
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
    const bare = await examineMachine({ workdir, environment: { PATH: "/nowhere" } });
    const missing = bare.filter(({ status }) => status === "missing").map(({ subject }) => subject);
    expect(missing).toEqual(["C++ compiler", "disassembler"]);
  });
});
