/** @file The expected results of kernels within the time of a search: too long, they end it with nothing measured. */

import { join } from "node:path";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { conclude } from "../../cli/tune-outcome.ts";
import { openDatabase, runsIn } from "../../db/index.ts";
import { instantiate, OPERATORS } from "../../operators/index.ts";
import type { Runner } from "../../runtime/measure.ts";
import { secondsOfReference } from "../../runtime/reference/reference-cost.ts";
import { answersIn, deadlineOf, needsLonger } from "../../session/tune/answers-in-time.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { captured } from "../support/command-line.ts";
import { fakeRunner, took, withCalibration } from "../support/fake-runner.ts";
import { compilerHere, runnerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation, stated } from "../support/subjects.ts";

const folder = scratchFolder();
afterEach(() => void vi.restoreAllMocks());
const compiler = await compilerHere();

const small = operation("matmul m=16 n=16 k=16");
/** 592 G products. */
const huge = operation("conv2d c=1024 k=1024 h=250 w=250 r=15 s=15");

/** A search with a reference of the test's own. */
const search = (name: string, computation: Computation, reference: Runner["reference"], within?: number) => {
  const fake = fakeRunner(compiler, { alone: () => took(1e-6), inTurns: (all) => all.map(() => took(1e-6)) });
  const database = withCalibration(join(folder, name), compiler);
  const limit = within === undefined ? {} : { within };
  return tuneComputation({ computation }, { database, runner: { ...fake, reference }, trials: 4, ...limit });
};

/** Limits of at least so many milliseconds are over at once. */
function overAtOnce(least: number): void {
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  vi.spyOn(AbortSignal, "timeout").mockImplementation((ms) => (ms < least ? timeout(ms) : AbortSignal.abort()));
}

describe("the time that expected results may take", () => {
  it("is that of the search, and a minute at least", () => {
    expect([answersIn(5).limit, answersIn(100).limit]).toEqual([60, 100]);
    expect(answersIn(undefined)).toEqual({ limit: Number.POSITIVE_INFINITY, late: undefined });
  });

  it("suffices for the shipped sizes of every operator, and not for a thousand times as much", () => {
    for (const operator of OPERATORS)
      expect(needsLonger(instantiate(operator), { limit: 60 }, { processors: 2 }), operator.name).toBeUndefined();
    expect(needsLonger(huge, { limit: 60 }, { processors: 2 })).toMatchObject({ limit: 60 });
    expect(needsLonger(huge, { limit: Number.POSITIVE_INFINITY })).toBeUndefined();
  });

  it("is estimated by the sums: fewer for integers, and for floats that one bound is drawn for, and by the processors", () => {
    const seconds = (dtype: string, processors: number, c = 4): number =>
      secondsOfReference(operation(`conv2d c=${c} h=8 w=8`, dtype), processors) ?? 0;
    expect(seconds("u8s8", 1)).toBeLessThan(seconds("f32", 1) / 6);
    expect(seconds("f32", 1, 64)).toBeLessThan(16 * seconds("f32", 1, 4));
    expect(seconds("f32", 2)).toBe(seconds("f32", 1) / 2);
    const steps = stated("u[t,i] = 0.5*u[t-1,i-1] + 0.5*u[t-1,i+1] --t 9 --i 50");
    expect(secondsOfReference(steps, 1)).toBeUndefined();
  });
});

describe("a search whose expected results take too long", () => {
  it("ends before it draws them, where that is known", async () => {
    const reference = vi.fn<Runner["reference"]>();
    const outcome = await search("known.db", huge, reference, 5);
    expect(reference).not.toHaveBeenCalled();
    expect(outcome).toMatchObject({ status: "time-spent", trials: [], unanswered: { limit: 60 } });
    if (!("unanswered" in outcome) || !outcome.unanswered?.needs) throw new Error("it does not say what it needs");
    const { code, out, err } = await captured(() => conclude(outcome, {}, 0));
    expect({ code, out }).toEqual({ code: 1, out: "" });
    expect(err).toMatch(/^no kernel was tried: the results to verify it by take \d+ s at least, and may take 60 s\n/);
    expect(err).toMatch(/--time \d+ gives them more/);
  });

  it("stops them, and measures and records nothing", async () => {
    overAtOnce(60_000);
    let given: AbortSignal | undefined;
    const reference: Runner["reference"] = (_computation, _seed, { signal } = {}) => {
      given = signal;
      return new Promise(() => undefined);
    };
    const outcome = await search("late.db", small, reference, 5);
    expect(outcome).toMatchObject({ status: "time-spent", trials: [], best: undefined, unanswered: { limit: 60 } });
    expect(given?.aborted).toBe(true);
    const { code, out, err } = await captured(() =>
      conclude("trials" in outcome ? outcome : { status: "nothing-maps", refused: [] }, { json: true }, 0),
    );
    expect(code).toBe(1);
    expect(JSON.parse(out)).toMatchObject({ best: null, unanswered: { needs: null, limit: 60 } });
    expect(err).toContain("the results to verify it by were not computed in 60 s");
    const db = openDatabase(join(folder, "late.db"));
    expect(runsIn(db)).toEqual([]);
    db.close();
  });

  it("has them all the same without a limit", async () => {
    overAtOnce(0);
    const fake = fakeRunner(compiler, { alone: () => took(1e-6), inTurns: (all) => all.map(() => took(1e-6)) });
    const outcome = await search("unlimited.db", small, fake.reference);
    expect(outcome).not.toHaveProperty("unanswered");
  });
});

describe("a reference", () => {
  it("ends at its signal, while its program runs, and leaves the runner as it was", async () => {
    const runner = await runnerHere({ workdir: join(folder, "runtime") });
    try {
      const stop = new AbortController();
      const begun = vi.spyOn(runner.cores, "working");
      const large = stated("out[p] += s32(in[p+r]) * s32(w[r]) --p 300000 --r 300000 --dtype in=u8,w=s8");
      const drawing = runner.reference(large, 1, { signal: stop.signal });
      drawing.catch(() => undefined);
      await expect.poll(() => begun.mock.calls.length).toBeGreaterThan(0);
      stop.abort();
      await expect(drawing).rejects.toThrow("stopped");
      expect((await runner.reference(small, 1)).sets.length).toBe(3);
    } finally {
      await runner.close();
    }
  });
});

describe("a run under emulation", () => {
  it("ends when its expected results take too long", () => {
    overAtOnce(60_000);
    const deadline = deadlineOf(undefined, 5);
    expect([deadline.signal.aborted, deadline.isLate()]).toEqual([true, true]);
  });

  it("has one kernel, whatever the time, and no more when the time is up", () => {
    vi.spyOn(AbortSignal, "timeout").mockImplementation((ms) =>
      ms === 5000 ? AbortSignal.abort() : new AbortController().signal,
    );
    const deadline = deadlineOf(undefined, 5);
    deadline.next("first kernel");
    expect(deadline.signal.aborted).toBe(false);
    deadline.next("other kernels");
    expect([deadline.signal.aborted, deadline.isLate()]).toEqual([true, true]);
  });

  it("ends at the user's signal at once, which is not late", () => {
    const user = new AbortController();
    const deadline = deadlineOf(user.signal, undefined);
    deadline.next("first kernel");
    user.abort();
    expect([deadline.signal.aborted, deadline.isLate()]).toEqual([true, false]);
  });
});
