/** @file Kernels measured against one another and beside other programs: finalists in turns, races, shared cores. */

import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { runChild } from "../../runtime/child.ts";
import { compileKernel } from "../../runtime/compiler.ts";
import { shareCores } from "../../runtime/cores.ts";
import type { RaceOptions, Runner, RunnerOptions } from "../../runtime/measure.ts";
import { coresHere } from "../../runtime/processor.ts";
import { runnerHere } from "../support/here.ts";
import { kernelOf, Measuring, MULTIPLY, QUICK, right } from "../support/measuring.ts";

const at = new Measuring();

/** No call of it takes less, however fast the machine is; no busy machine makes a call of {@link right} as long. */
const SLEEP = 0.02;
const sleeping = kernelOf({ run: `usleep(${SLEEP * 1e6}); ${MULTIPLY}` });

describe("finalists", () => {
  it("are timed in turns in one process, each with as many samples", async () => {
    const [a, b] = await at.runner.compareKernels([right, sleeping], at.reference);
    if (a?.status !== "ok" || b?.status !== "ok") throw new Error(`${a?.status}, ${b?.status}`);
    expect(a.samples.length).toBe(b.samples.length);
    expect(a.median).toBeLessThan(SLEEP);
    expect(b.median).toBeGreaterThanOrEqual(SLEEP);
  });

  it("are measured although one crashes and one is wrong", async () => {
    const results = await at.runner.compareKernels(
      [right, kernelOf({ run: "*(volatile int*)8 = 1;" }), kernelOf({ run: "out[0] = 0;" }), right],
      at.reference,
    );
    expect(results.map(({ status }) => status)).toEqual(["ok", "crashed", "wrong", "ok"]);
  });
});

describe("a race", () => {
  it("that is stopped gives no more answers and does not wait for a kernel that hangs", async () => {
    const runner = await runnerHere({ ...QUICK, workdir: at.workdir, stepSeconds: 100 });
    const hang = kernelOf({ run: "for (;;) pause();" });
    const controller = new AbortController();
    const answers: string[] = [];
    const { signal } = controller;
    for await (const { status } of runner.race([right, hang, right], at.reference, { signal })) {
      answers.push(status);
      // The watcher and the process of the kernels.
      await expect.poll(at.harnesses).toHaveLength(2);
      controller.abort();
    }
    expect(answers).toEqual(["ok"]);
    await runner.close();
    expect(at.harnesses()).toEqual([]);
  });

  it("tells that its kernels have been started, before it gives any answer, once for each process", async () => {
    const told: string[] = [];
    const crashing = kernelOf({ run: "*(volatile int*)8 = 1;" });
    const options = { onStart: () => told.push("started") };
    for await (const { status } of at.runner.race([right, crashing, right], at.reference, options)) told.push(status);
    expect(told.filter((one) => one !== "started")).toEqual(["ok", "crashed", "ok"]);
    expect(told[0]).toBe("started");
    expect(told.filter((one) => one === "started")).toHaveLength(3);
  });

  const run = async (kernels: readonly Kernel[], options: RaceOptions = {}): Promise<Measurement[]> => {
    const measurements: Measurement[] = [];
    for await (const one of at.runner.race(kernels, at.reference, options)) measurements.push(one);
    return measurements;
  };

  const timed = async (kernels: readonly Kernel[], options: RaceOptions): Promise<(Measurement & { status: "ok" })[]> =>
    (await run(kernels, { budgetSeconds: 0.3, batches: [5, 1000], batchSeconds: 200e-6, ...options })).map((one) => {
      if (one.status !== "ok") throw new Error(JSON.stringify(one));
      return one;
    });

  it("takes no more batches once it has enough of them and of time", async () => {
    const [few] = await timed([sleeping], { budgetSeconds: 60, enough: [7, SLEEP] });
    expect(few?.samples).toHaveLength(7);
    const [more] = await timed([sleeping], { budgetSeconds: 60, enough: [2, 10.5 * SLEEP] });
    // A call may take longer than its sleep: ten calls may take less than the limit, eleven never do.
    expect(more?.samples.length).toBeGreaterThanOrEqual(2);
    expect(more?.samples.length).toBeLessThanOrEqual(11);
  });

  it("stops timing a kernel that is clearly slower than an earlier one", async () => {
    const racers = await timed([right, sleeping, right, sleeping], {});
    let least = Number.POSITIVE_INFINITY;
    for (const { samples, median, lostTo } of racers) {
      // A machine that is busy meanwhile may make any of them slow: who has lost is seen in the samples alone.
      expect(lostTo !== undefined).toBe(Math.min(...samples) > 1.1 * least);
      if (lostTo !== undefined) expect(lostTo / least).toBeCloseTo(1, 6);
      least = Math.min(least, median);
    }
    for (const one of [racers[1], racers[3]]) expect(one?.samples.length).toBeLessThanOrEqual(5);
  });

  it("times no kernel again whose calls on every set took several times the goal", async () => {
    const [hopeless] = await timed([sleeping], { goal: SLEEP / 100 });
    expect([hopeless?.lostTo, hopeless?.samples.length]).toEqual([SLEEP / 100, 1]);
    const late = kernelOf({ run: `static int calls; if (calls++ == 0) usleep(${SLEEP * 1e6}); ${MULTIPLY}` });
    const [delayed] = await timed([late], { goal: SLEEP / 100 });
    expect(delayed?.samples.length).toBeGreaterThan(1);
    const wrong = kernelOf({
      run: `static int calls; usleep(${SLEEP * 1e6}); ${MULTIPLY} if (calls++ > 0) *(char*)tensors[0] ^= 1;`,
    });
    const [refused] = await run([wrong], { goal: SLEEP / 100 });
    expect(refused?.status).toBe("wrong");
  });

  it("calls a kernel of long calls no more often than it needs", async () => {
    const log = join(at.workdir, "calls");
    writeFileSync(log, "");
    const counted = kernelOf({
      run: `FILE* log = fopen("${log}", "a"); fputc('.', log); fclose(log); usleep(${SLEEP * 1e6}); ${MULTIPLY}`,
    });
    const [one] = await timed([counted], { batches: [3, 3], fileBytes: 2 ** 20 });
    expect(one?.samples).toHaveLength(3);
    // Twice on the first set, once on each other one; a call before the timed ones, and one after them.
    expect(readFileSync(log, "utf8")).toHaveLength(2 + (at.reference.sets.length - 1) + 1 + 3 + 1);
  });

  it("stops timing a kernel that is clearly slower than a known time", async () => {
    const goal = 0.015;
    const [lost] = await timed([sleeping], { goal });
    // A call that takes so long is a batch by itself, and two of them suffice. On a busy machine a call may take twice as long as it sleeps.
    expect(lost?.lostTo).toBe(goal);
    expect(lost?.samples.length).toBeLessThanOrEqual(2);
    const [kept] = await timed([sleeping], { goal: 1000, batches: [8, 8] });
    expect([kept?.lostTo, kept?.samples.length]).toEqual([undefined, 8]);
  });

  it("measures the other kernels when some fail, whatever those leave behind", async () => {
    const crashing = kernelOf({ run: "*(volatile int*)8 = 1;" });
    const wrong = kernelOf({ run: "out[0] = 0;" });
    const statuses = (await run([right, crashing, right, wrong, wrong, right])).map(({ status }) => status);
    expect(statuses).toEqual(["ok", "crashed", "ok", "wrong", "wrong", "ok"]);
  });

  it("guards a kernel's memory as closely where a larger one had it before", async () => {
    const large = kernelOf({ workspace: "1 << 20", run: MULTIPLY });
    const read = "((volatile char*)workspace)[8192]";
    const reads = kernelOf({ workspace: "64", run: `${MULTIPLY} { volatile char byte = ${read}; (void)byte; }` });
    const statuses = (await run([large, reads, large])).map(({ status }) => status);
    expect(statuses).toEqual(["ok", "out-of-bounds", "ok"]);
  });

  it("blames no kernel for damage that another left behind", async () => {
    const leaves = kernelOf({ run: `setenv("LEFT", "behind", 1); ${MULTIPLY}` });
    const stumbles = kernelOf({ run: `if (getenv("LEFT")) *(volatile int*)8 = 1; ${MULTIPLY}` });
    const statuses = (await run([leaves, stumbles, right])).map(({ status }) => status);
    expect(statuses).toEqual(["ok", "ok", "ok"]);
  });

  it("ends when no more answers are asked for", async () => {
    for await (const one of at.runner.race([right, sleeping, right], at.reference, { batches: [1000, 1000] })) {
      expect(one.status).toBe("ok");
      break;
    }
    await expect.poll(at.harnesses).toEqual([]);
  });
});

describe("other work on the machine", () => {
  const CORES = coresHere();
  const realm = `test-measure-${process.pid}/`;
  const busy: ChildProcess[] = [];
  afterEach(() => {
    for (const child of busy.splice(0)) child.kill("SIGKILL");
  });

  async function runnerWith(options: RunnerOptions): Promise<Runner> {
    return runnerHere({ ...QUICK, workdir: at.workdir, ...options });
  }

  it("is recorded with a measurement: its processor, and the share another program took", async () => {
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
      const { ran } = await own.measure(right, at.reference);
      expect(ran?.cpus).toEqual([cpu]);
      // Half of it, where the two are alone; a busy machine takes more, and a scheduler need not be fair in so short a time.
      expect(ran?.load).toBeGreaterThan(0.1);
    } finally {
      await own.close();
    }
  });

  it("may be another search: each has its own core, and on a single core they take turns", async () => {
    const runners = await Promise.all(
      [1, 2].map(() => runnerWith({ cores: shareCores({ cores: CORES.slice(0, 2), realm }), budgetSeconds: 0.2 })),
    );
    try {
      const both = await Promise.all(runners.map((own) => own.measure(right, at.reference)));
      const cpus = both.map(({ ran }) => ran?.cpus[0]);
      if (CORES.length > 1) expect(new Set(cpus).size).toBe(2);
      const one = CORES.slice(0, 1);
      const [a, b] = await Promise.all([
        runnerWith({ cores: shareCores({ cores: one, realm }), budgetSeconds: 0.8, batches: [5, 100_000] }),
        runnerWith({ cores: shareCores({ cores: one, realm }) }),
      ]);
      const order: string[] = [];
      const first = a.measure(right, at.reference).then(() => order.push("first"));
      await expect.poll(at.harnesses).not.toEqual([]);
      await Promise.all([first, b.measure(right, at.reference).then(() => order.push("second"))]);
      expect(order).toEqual(["first", "second"]);
      await Promise.all([a.close(), b.close()]);
    } finally {
      await Promise.all(runners.map((own) => own.close()));
    }
  });

  it("never includes a compiler on a measuring core", async ({ skip }) => {
    skip(CORES.length < 2, "this machine has one core");
    const log = join(at.workdir, "compiled-on");
    const command = join(at.workdir, "compile");
    writeFileSync(command, `#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status >> ${log}\nexec g++ "$@"\n`, {
      mode: 0o755,
    });
    const compiler = { ...at.runner.compiler, command: [command] };
    const cores = (): ReturnType<typeof shareCores> => shareCores({ cores: CORES.slice(0, 2), realm });
    // Measured for as long as the others compile: a batch takes a while until they have.
    const compiled = join(at.workdir, "both-compiled");
    const waiting = kernelOf({ run: `if (access("${compiled}", F_OK)) usleep(${SLEEP * 1e6}); ${MULTIPLY}` });
    const measurer = await runnerWith({ cores: cores(), budgetSeconds: 120, batches: [5, 10_000] });
    try {
      const measuring = measurer.measure(waiting, at.reference);
      await expect.poll(at.harnesses).not.toEqual([]);
      const options = { compiler, workdir: at.workdir, cores: cores() };
      await Promise.all([1, 2].map((i) => compileKernel(kernelOf({ run: `${MULTIPLY} /* beside ${i} */` }), options)));
      writeFileSync(compiled, "");
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
