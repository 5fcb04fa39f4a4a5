/** @file Right and wrong kernels, written by hand, through all of runtime/measure.ts. */

import { describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { createRunner } from "../../runtime/measure.ts";
import { allowedCpus } from "../../runtime/processor.ts";
import { runnerHere } from "../support/here.ts";
import { kernelOf, Measuring, MULTIPLY, QUICK, right } from "../support/measuring.ts";

const at = new Measuring();

describe("a right kernel", () => {
  it("is measured: samples in plausible seconds, with their median inside its interval", async () => {
    const measurement = await at.runner.measure(right, at.reference);
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
    const runner = await runnerHere({ ...QUICK, workdir: at.workdir, threads: 2 });
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
      expect(await runner.measure(phased, at.reference)).toMatchObject({ status: "ok" });
      expect(runner.conditions).toMatchObject({ threads: 2, clock: "CLOCK_MONOTONIC_RAW" });
    } finally {
      await runner.close();
    }
  });

  it("has its parts called equally often, batch after batch", async ({ skip }) => {
    skip(allowedCpus().length < 2, "this machine has one processor");
    const made = await createRunner({ ...QUICK, workdir: at.workdir, threads: 2 });
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
      expect(await made.runner.measure(counting, at.reference, options)).toMatchObject({ status: "ok" });
    } finally {
      await made.runner.close();
    }
  });

  it("takes longer when its data are in no cache", async () => {
    const warm = await at.runner.measure(right, at.reference);
    const flushed = await at.runner.measure(right, at.reference, { cache: "flushed" });
    if (warm.status !== "ok" || flushed.status !== "ok") throw new Error(`${warm.status}, ${flushed.status}`);
    // The fastest of each: what else a machine does makes none faster.
    expect(Math.min(...flushed.samples)).toBeGreaterThan(Math.min(...warm.samples));
  });

  it("passes when blocked layouts leave holes in memory, whatever it writes there", async () => {
    const blocked = defineComputation({
      equation: "out[m] = x[m]",
      extents: { m: 5 },
      tensors: { out: { dtype: "s32", layout: "M4m" }, x: { dtype: "s32", layout: "M4m" } },
    });
    const own = await at.runner.reference(blocked, 1);
    const holes = (own.checked ?? []).slice(5);
    expect([...holes]).toEqual([0, 0, 0]);
    const copy = kernelOf({ run: "for (int i = 0; i < 8; i++) out[i] = i < 5 ? x[i] : 99;" }, blocked);
    expect(await at.runner.measure(copy, own)).toMatchObject({ status: "ok" });
  });

  it("is compiled once, however often it is asked for", async () => {
    const kernel = kernelOf({ run: `${MULTIPLY} /* once */` });
    const [first, second] = await Promise.all([at.runner.compile(kernel), at.runner.compile(kernel)]);
    expect(first).toMatchObject({ status: "compiled", cached: false });
    expect(second).toBe(first);
    expect(await at.runner.compile(kernel)).toMatchObject({ status: "compiled", cached: true });
  });
});

describe("a wrong kernel", () => {
  it("is caught by its last element alone", async () => {
    const found = await at.statusOf({ run: `${MULTIPLY} out[M - 1] += 1;` });
    expect(found.status).toBe("wrong");
    expect(found.log).toMatch(
      /call 1 on random inputs: 1 of 40 elements of out differ; first at memory element 39: got .*largest error 1$/,
    );
  });

  it("is caught when it is wrong on extreme inputs only, as a saturating instruction is", async () => {
    const found = await at.statusOf({
      run: `for (int m = 0; m < M; m++) { int32_t sum = 0;
        for (int k = 0; k < K; k += 2) { int pair = a[m*K + k] * b[k] + a[m*K + k + 1] * b[k + 1]; sum += pair > 64769 ? 64769 : pair; }
        out[m] = sum; }`,
    });
    expect(found.status).toBe("wrong");
    expect(found.log).toContain("on extreme inputs");
  });

  it("is caught when it leaves an element unwritten", async () => {
    expect(await at.statusOf({ run: MULTIPLY.replace("m < M", "m < M - 1") })).toMatchObject({ status: "wrong" });
  });

  it("is caught when only its second call is wrong, because its workspace has changed", async () => {
    const found = await at.statusOf({
      workspace: "4",
      prepare: "*(int*)workspace = 0;",
      run: `${MULTIPLY} out[3] += (*(int*)workspace)++;`,
    });
    expect(found).toMatchObject({ status: "wrong", log: expect.stringContaining("call 2 on random inputs") });
  });

  it("is refused when the instruction it promises is not in its code", async () => {
    const found = await at.runner.measure({ ...right, promises: "vpdpbusd" }, at.reference);
    expect(found).toMatchObject({
      status: "missing-instruction",
      log: expect.stringContaining("does not hold vpdpbusd"),
    });
  });

  it("is measured with the count of the promised instruction when that is there", async () => {
    const promised = { run: `asm volatile("pause; pause"); ${MULTIPLY}`, promises: "pause" };
    expect(await at.runner.measure(kernelOf(promised), at.reference)).toMatchObject({ status: "ok", instructions: 2 });
  });

  it("that does not compile has the compiler's message in its log", async () => {
    expect(await at.statusOf({ run: "int x = nonsense;" })).toMatchObject({
      status: "compile-failed",
      log: expect.stringMatching(/nonsense.* was not declared/),
    });
    expect(await at.statusOf({ run: "extern void nowhere(); nowhere();" })).toMatchObject({
      status: "compile-failed",
      log: expect.stringContaining("undefined reference"),
    });
  });
});

describe("the baseline", () => {
  it("is measured on request", async () => {
    const { median, samples } = await at.runner.baseline();
    expect(samples.length).toBeGreaterThanOrEqual(3);
    expect(median).toBeGreaterThan(1e-5);
  });
});
