/**
 * @file The verdict of an emulation: one deadline for all runs of a kernel, the first run that is not right, sizes that
 * it holds.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Kernel } from "../../abstraction/kernel.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { runEmulated } from "../../runtime/emulated-kernel.ts";
import { emulatedVerdict } from "../../runtime/emulated-verdict.ts";
import { compileForIntel } from "../../runtime/ocloc.ts";
import { type Reference, referenceFor } from "../../runtime/reference/verify.ts";
import { checkEmulatedMemory, memoryEmulating, memoryNeeded } from "../../session/tune/memory.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { sourceOf } from "../support/source.ts";
import { operation } from "../support/subjects.ts";

const scratch = scratchFolder();
afterEach(() => void vi.unstubAllEnvs());

const computation = operation("matmul m=4 n=4 k=4");

async function reference(): Promise<Reference> {
  const compiler = await compilerHere();
  return referenceFor(computation, 1, { compiler, workdir: cacheFolder("runtime") });
}

/** A product of 4 x 4 matrices in C++. @param before what it does ahead of it */
function product(before: string): Kernel {
  const argument = (tensor: string, role: "output" | "input") =>
    ({ tensor, role, dtype: "f32", elements: 16 }) as const;
  return {
    language: "c++",
    features: [],
    promises: undefined,
    arguments: [argument("out", "output"), argument("a", "input"), argument("b", "input")],
    source: sourceOf(`
extern "C" unsigned long automap_workspace_bytes(void) { return 0; }
extern "C" unsigned long automap_scratch_bytes(void) { return 0; }
extern "C" void automap_prepare(void*, const void* const*) {}
extern "C" int automap_phases(void) { return 1; }
extern "C" void automap_run(void*, void* const* tensors, int, int part, int) {
  float* out = (float*)tensors[0];
  const float* a = (const float*)tensors[1];
  const float* b = (const float*)tensors[2];
  ${before}
  if (part != 0) return;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      float sum = 0;
      for (int k = 0; k < 4; k++) sum += a[4 * i + k] * b[4 * k + j];
      out[4 * i + j] = sum;
    }
}
`),
  };
}

/** Whole numbers are the first set; of the second it never comes to an end. */
const ENDLESS = product("for (volatile int i = 0; a[0] != (float)(int)a[0]; i = 0) {}");
const HOUR_MS = 3_600_000;

/** What the clock says when it is asked, in turn; after the last it stands. */
function clock(...says: readonly number[]): { readonly now: () => number; readonly asked: () => number } {
  let asked = 0;
  return { now: () => says[Math.min(asked++, says.length - 1)] ?? 0, asked: () => asked };
}

describe("the deadline of a kernel under emulation", () => {
  it("ends an endless run, and no run begins after it", async () => {
    // Two orders of the first set run within the hour; the second set has half a second left.
    const { now, asked } = clock(0, 0, 0, HOUR_MS - 500);
    const verdict = await emulatedVerdict(ENDLESS, await reference(), { timeLimitMs: HOUR_MS, now });
    expect(verdict).toMatchObject({
      status: "timed-out",
      log: expect.stringMatching(/^2 of 4 runs ended within 3600 s under automap's emulation of c\+\+/),
    });
    expect(asked()).toBe(4);
  });

  it("holds for all runs together: none begins after it", async () => {
    const { now } = clock(0, 0, HOUR_MS);
    expect(await emulatedVerdict(product(""), await reference(), { timeLimitMs: HOUR_MS, now })).toMatchObject({
      status: "timed-out",
      log: expect.stringMatching(/^1 of 4 runs ended/),
    });
  });

  it("does not affect a right kernel", async () => {
    const { now, asked } = clock(0);
    expect(await emulatedVerdict(product(""), await reference(), { timeLimitMs: HOUR_MS, now })).toMatchObject({
      status: "emulated",
    });
    expect(asked()).toBe(5);
  });

  it("is not checked again after a wrong run", async () => {
    const { now, asked } = clock(0);
    const wrong = product("if (part == 1) out[5] += 1;");
    expect(await emulatedVerdict(wrong, await reference(), { timeLimitMs: HOUR_MS, now })).toMatchObject({
      status: "wrong",
      log: expect.stringMatching(/^exact inputs, element 5: /),
    });
    expect(asked()).toBe(2);
  });
});

describe("a kernel that does not compile", () => {
  it("is compiled once, however many jobs it has", async () => {
    const [compiler, calls] = [join(scratch, "compiler"), join(scratch, "calls")];
    writeFileSync(compiler, `#!/bin/sh\necho "$*" >>'${calls}'\nexec g++ "$@"\n`, { mode: 0o755 });
    vi.stubEnv("CXX", compiler);
    const kernel = product("nothing_of_this_name();");
    const inputs = { a: new Float64Array(16), b: new Float64Array(16) };
    const runs = await runEmulated(Array.from({ length: 8 }, () => ({ kernel, inputs })));
    expect(runs.map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => "compile-failed"));
    const compiled = readFileSync(calls, "utf8")
      .split("\n")
      .filter((call) => call.includes("-DAUTOMAP_EMULATION") && !/c\+\+-header|-shared/.test(call));
    expect(compiled).toHaveLength(1);
  });

  it("has no verdict when the compilation for a device is stopped", async () => {
    const stopped = compileForIntel(product(""), "dg2", join(scratch, "no ocloc"), AbortSignal.abort());
    await expect(stopped).rejects.toThrow("compiling was stopped");
  });
});

describe("memory of an emulation", () => {
  it("includes that of the emulating program", () => {
    const available = memoryNeeded(computation);
    expect(memoryEmulating(computation)).toBeGreaterThan(available);
    expect(() => checkEmulatedMemory(computation, available)).toThrow(
      /^inputs and answers of matmul need .* while kernels are emulated; this machine has /,
    );
    expect(() => checkEmulatedMemory(computation, memoryEmulating(computation))).not.toThrow();
  });

  it("includes three copies of the output in its type", () => {
    const needed = (types: string): number => memoryEmulating(operation("matmul m=1000 n=1000 k=1", types));
    expect(needed("f64") - needed("f32")).toBeGreaterThanOrEqual(3 * 4 * 1000 * 1000);
  });

  it("is refused for a tensor too large for a file, and accepted for the largest that fits", () => {
    const columns = (n: number) => operation(`matmul m=1 n=${n} k=1`, "u8s8");
    const plenty = Number.POSITIVE_INFINITY;
    expect(() => checkEmulatedMemory(columns(2 ** 29), plenty)).toThrow(
      "out of matmul has 2147483648 bytes: a tensor under emulation has no more than 2147483647",
    );
    expect(() => checkEmulatedMemory(columns(2 ** 29 - 1), plenty)).not.toThrow();
  });
});
