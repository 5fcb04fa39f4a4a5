/**
 * @file Kernels written by hand, and a folder with a runner that measures them: shared by the tests of
 * runtime/measure.ts.
 */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect } from "vitest";
import { type Computation, inputsOf, memoryElements, targetOf } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { privatePath } from "../../runtime/kept.ts";
import { createRunner, type MeasureOptions, type Runner } from "../../runtime/measure.ts";
import type { Reference } from "../../runtime/reference/verify.ts";
import { compileOnce } from "./kept-compiler.ts";
import { sourceOf } from "./source.ts";
import { stated } from "./subjects.ts";

const M = 40;
const K = 12;

export const product = stated(`out[m] += s32(a[m,k]) * s32(b[k]) --m ${M} --k ${K} --dtype a=u8,b=s8 --name matvec`);

export interface KernelText {
  /** Statements of one part of a call. */
  readonly run: string;
  readonly prepare?: string;
  readonly workspace?: string;
  readonly phases?: number;
  readonly features?: readonly string[];
  readonly promises?: string;
}

const C_TYPES: Readonly<Partial<Record<DType, string>>> = { u8: "uint8_t", s8: "int8_t", s32: "int32_t" };

export function kernelOf(text: KernelText, computation: Computation = product): Kernel {
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

export const MULTIPLY =
  "for (int m = part; m < M; m += parts) { int32_t sum = 0; for (int k = 0; k < K; k++) sum += a[m*K + k] * b[k]; out[m] = sum; }";
export const right = kernelOf({ run: MULTIPLY });

export const QUICK: MeasureOptions = {
  budgetSeconds: 0.01,
  batches: [3, 10],
  batchSeconds: 20e-6,
  stepSeconds: 60,
  memoryBytes: 2 ** 27,
};

/** Programs of the cache are run from copies in this process's own folder. */
const OWN = dirname(dirname(privatePath("measuring")));

/** A runner with its folder, made before the tests of a file and closed after them. */
export class Measuring {
  workdir = "";
  private made: { readonly runner: Runner; readonly reference: Reference } | undefined;

  constructor() {
    compileOnce();
    beforeAll(async () => {
      this.workdir = mkdtempSync(join(tmpdir(), "automap-measure-"));
      const made = await createRunner({ ...QUICK, workdir: this.workdir });
      if (made.status === "environment") throw new Error(`${made.what}; ${made.remedy}`);
      this.made = { runner: made.runner, reference: await made.runner.reference(product, 1) };
    });
    afterAll(async () => {
      await this.runner.close();
      expect(this.harnesses()).toEqual([]);
      rmSync(this.workdir, { recursive: true, force: true });
    });
  }

  get runner(): Runner {
    return this.ready.runner;
  }

  /** Of {@link product}. */
  get reference(): Reference {
    return this.ready.reference;
  }

  private get ready(): { readonly runner: Runner; readonly reference: Reference } {
    if (!this.made) throw new Error("no runner before the tests begin");
    return this.made;
  }

  /** Processes that run a program of this test's folder, or sleep as one of its kernels does. */
  readonly harnesses = (): string[] =>
    readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .flatMap((pid) => {
        try {
          const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").join(" ");
          const state = /^State:\s*(\S)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
          const isOurs = command.startsWith(this.workdir) || command.startsWith(OWN);
          return isOurs && state !== "Z" ? [`${pid} ${state} ${command}`] : [];
        } catch {
          return [];
        }
      });

  async statusOf(text: KernelText, options: MeasureOptions = {}): Promise<{ status: string; log: string }> {
    const measurement = await this.runner.measure(kernelOf(text), this.reference, options);
    expect(this.harnesses()).toEqual([]);
    return { status: measurement.status, log: measurement.status === "ok" ? "" : measurement.log };
  }
}
