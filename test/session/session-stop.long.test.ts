/** @file A search that is stopped, or out of time, waits for no compiler and for no reference. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { candidateKey } from "../../abstraction/candidate.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { conclude } from "../../cli/tune-outcome.ts";
import { best, openDatabase, runsIn, showTrial } from "../../db/index.ts";
import { runChild } from "../../runtime/child.ts";
import type { Compiled } from "../../runtime/compiler.ts";
import type { Runner } from "../../runtime/measure.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { random } from "../../tuner/random.ts";
import { captured } from "../support/command-line.ts";
import { fakeRunner, took, withCalibration } from "../support/fake-runner.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { stated } from "../support/subjects.ts";

const folder = scratchFolder();
const compiler = await compilerHere();

const matmul = stated("c[i,j] += a[i,k] * b[k,j] --i 16 --j 16 --k 16");
const DONE: Compiled = { status: "compiled", file: "/nowhere/kernel.so", seconds: 0, cached: true };
const never = <T>(): Promise<T> => new Promise(() => undefined);

/** A machine whose compiler is given; signals that it was handed, in order. */
function machine(compile: (nth: number) => Promise<Compiled>): {
  runner: Runner;
  signals: (AbortSignal | undefined)[];
} {
  const signals: (AbortSignal | undefined)[] = [];
  const fake = fakeRunner(compiler, { alone: () => took(1e-6), inTurns: (all) => all.map(() => took(1e-6)) });
  return {
    signals,
    runner: { ...fake, compile: (_: Kernel, signal) => compile(signals.push(signal)) },
  };
}

/** A machine whose user stops the search when its finals begin. */
const stoppedInFinals = (controller: AbortController): Runner => ({
  ...machine(() => Promise.resolve(DONE)).runner,
  compareKernels: () => {
    controller.abort();
    return never();
  },
});

const search = (name: string, runner: Runner, more: { seconds?: number; signal?: AbortSignal }) =>
  tuneComputation(
    { computation: matmul },
    { database: withCalibration(join(folder, name), compiler), runner, trials: 40, seconds: 60, ...more },
  );

describe("a search", () => {
  it("that is stopped while its kernels compile ends at once, as do the compilations", async () => {
    const controller = new AbortController();
    const { runner, signals } = machine((nth) => {
      if (nth === 2) setTimeout(() => controller.abort(), 20);
      return never();
    });
    expect(await search("compiling.db", runner, { signal: controller.signal })).toMatchObject({
      status: "interrupted",
      trials: [],
    });
    expect(signals.length).toBeGreaterThan(1);
    expect(signals.every((signal) => signal?.aborted)).toBe(true);
  });

  it("that is out of time measures its one compiled kernel, and compiles no more", async () => {
    const { runner, signals } = machine((nth) => (nth === 1 ? Promise.resolve(DONE) : never()));
    const outcome = await search("late.db", runner, { seconds: 1 });
    expect(outcome).toMatchObject({ status: "time-spent", best: { measurement: { median: 1e-6 } } });
    expect("trials" in outcome && outcome.trials.length).toBe(1);
    expect(signals.every((signal) => signal?.aborted)).toBe(true);
  });

  it.each(["the user", "the time"])("that is ended by %s waits for no kernel that hangs", async (who) => {
    const controller = new AbortController();
    const { runner } = machine(() => Promise.resolve(DONE));
    const race: Runner["race"] = async function* (_kernels, _reference, { signal } = {}) {
      yield took(1e-6);
      if (who === "the user") controller.abort();
      await new Promise((resolve) => signal?.addEventListener("abort", resolve));
    };
    const seconds = who === "the time" ? 1 : 60;
    expect(
      await search(`hanging-${seconds}.db`, { ...runner, race }, { signal: controller.signal, seconds }),
    ).toMatchObject({
      status: who === "the user" ? "interrupted" : "time-spent",
      best: { measurement: { median: 1e-6 } },
    });
  });

  it("that is stopped in its finals gives them a second, then answers with its fastest trial", async () => {
    const controller = new AbortController();
    const database = withCalibration(join(folder, "finals.db"), compiler);
    const outcome = await tuneComputation(
      { computation: matmul },
      { database, runner: stoppedInFinals(controller), trials: 8, signal: controller.signal },
    );
    if (!("best" in outcome) || !outcome.best) throw new Error("no winner");
    expect(outcome).toMatchObject({ status: "interrupted", finalsCut: true, best: { measurement: { median: 1e-6 } } });
    const db = openDatabase(database, { readonly: true });
    const record = showTrial(db, outcome.best.id);
    db.close();
    expect(candidateKey(record.candidate)).toBe(candidateKey(outcome.best.candidate));
    expect(record.finals).toBeUndefined();
    const { code, out, err } = await captured(() => conclude(outcome, {}, 8));
    expect(code).toBe(130);
    expect(err).toContain("no finals: the fastest kernel that is recorded here, of this search or an earlier one");
    expect(out).toContain("1 us a call");
  });

  it.each([
    ["an earlier search", 0.5e-6],
    ["itself", 2e-6],
  ])("whose finals are cut ends with the kernel that db best names: one of %s", async (_, earlier) => {
    const database = withCalibration(join(folder, `cut-${earlier}.db`), compiler);
    const before = fakeRunner(compiler, {
      alone: () => took(earlier),
      inTurns: (all) => all.map(() => took(earlier)),
    });
    await tuneComputation({ computation: matmul }, { database, runner: before, strategy: random, trials: 8 });
    const controller = new AbortController();
    const outcome = await tuneComputation(
      { computation: matmul },
      {
        database,
        runner: stoppedInFinals(controller),
        strategy: random,
        trials: 1,
        seed: 99,
        signal: controller.signal,
      },
    );
    if (!("best" in outcome) || !outcome.best) throw new Error("no winner");
    expect(outcome.trials.map(({ measurement }) => measurement)).toMatchObject([{ median: 1e-6 }]);
    expect(outcome).toMatchObject({ finalsCut: true, best: { measurement: { median: Math.min(earlier, 1e-6) } } });
    const db = openDatabase(database, { readonly: true });
    expect(best(db, { computation: matmul }).map(({ id }) => id)).toEqual([outcome.best.id]);
    db.close();
  });

  it("names the inputs that its kernels are not checked by, and records them", async () => {
    const { runner } = machine(() => Promise.resolve(DONE));
    const leftOut = [{ name: "exact" as const, because: "steps by fractions make no whole numbers of whole numbers" }];
    const reference: Runner["reference"] = async (...asked) => ({ ...(await runner.reference(...asked)), leftOut });
    const database = withCalibration(join(folder, "unchecked.db"), compiler);
    const said: string[] = [];
    const onNotice = (text: string): void => void said.push(text);
    await tuneComputation({ computation: matmul }, { database, runner: { ...runner, reference }, trials: 8, onNotice });
    expect(said.join("\n")).toMatch(/kernels are checked by .*random.* inputs, not by exact ones: steps by fractions/);
    const db = openDatabase(database, { readonly: true });
    const [listed] = runsIn(db);
    db.close();
    expect(listed?.run.options).toMatchObject({ unchecked: leftOut });
  });

  it("records what preparing left of its time, and the network that it is for", async () => {
    const { runner } = machine(() => Promise.resolve(DONE));
    const database = withCalibration(join(folder, "left.db"), compiler);
    const subject = { computation: matmul, network: { name: "resnet18", steps: 3, seconds: 500 } };
    await tuneComputation(subject, { database, runner, trials: 8, seconds: 40, within: 30 });
    const db = openDatabase(database, { readonly: true });
    const [listed] = runsIn(db);
    db.close();
    const budget = z
      .looseObject({ left: z.number().positive().max(30), network: z.looseObject({ seconds: z.number() }) })
      .parse(listed?.run.budget);
    expect(budget).toMatchObject({ trials: 8, seconds: 40, network: { name: "resnet18", steps: 3 } });
    expect(500 - budget.network.seconds).toBeCloseTo(30 - budget.left, 0);
  });

  it("that is stopped while inputs are drawn ends at once", async () => {
    const controller = new AbortController();
    const { runner } = machine(() => Promise.resolve(DONE));
    const reference = (): Promise<never> => {
      controller.abort();
      return never();
    };
    expect(await search("drawing.db", { ...runner, reference }, { signal: controller.signal })).toMatchObject({
      status: "interrupted",
      trials: [],
    });
  });
});

describe("a child", () => {
  it("is killed with all its processes, and none begins after the signal", async () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 50);
    // Longer than a test may take.
    const sleeping = await runChild(["sh", "-c", "sleep 1000 & sleep 1000"], {
      timeLimitMs: 1_000_000,
      signal: controller.signal,
    });
    expect(sleeping.status).toBe("stopped");
    expect(await runChild(["true"], { timeLimitMs: 1000, signal: controller.signal })).toMatchObject({
      status: "stopped",
    });
  });
});
