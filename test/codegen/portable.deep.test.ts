/** Rows of plain C++: they hold on every CPU, map every operator, and stand behind the instructions that a CPU has. */

import { afterAll, describe, expect, it } from "vitest";
import { type Computation, defineComputation, outputOf } from "../../abstraction/computation.ts";
import { DTYPES, isByteFloat } from "../../abstraction/dtype.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { isLoops } from "../../intrinsics/loops.ts";
import { PORTABLE } from "../../intrinsics/portable.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { unschedulable } from "../../mapper/schedule/mapped.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { OPERATORS, operatorNamed } from "../../operators/index.ts";
import { instantiate, typeProblem } from "../../operators/operator.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import { compileKernel } from "../../runtime/compiler.ts";
import { checkIntrinsics } from "../../runtime/conformance.ts";
import { findFeatures } from "../../runtime/doctor.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { tune } from "../../session/api.ts";
import { isPlain, nativeIntrinsics, usableIntrinsics } from "../../session/kinds/choose.ts";
import { generate } from "../../session/kinds/mapping-kind.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { machineFrom, parseCpuInfo, targetOf } from "../../targets/native.ts";
import { compilerHere, runnerHere } from "../support/here.ts";
import { plainCandidate } from "../support/packages.ts";
import { operation, stated } from "../support/subjects.ts";

/** What Linux says of a processor of 2008, which has neither AVX nor FMA. */
const NEHALEM_CPUINFO = `processor	: 0
vendor_id	: GenuineIntel
model name	: Intel(R) Xeon(R) CPU           X5550  @ 2.67GHz
flags		: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx lm pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm
`;
const NEHALEM = targetOf(machineFrom(parseCpuInfo(NEHALEM_CPUINFO), [{ level: 1, bytes: 32 * 1024, sharedBy: 1 }]));
const AVX512 = { ...NEHALEM, isa: ["avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16"] };

const runner = await runnerHere();
afterAll(async () => {
  await runner.close();
});

/** The instructions that the model would choose among on a machine. */
function instructionsFor(computation: Computation, machine: typeof NEHALEM): string[] {
  const ranked = rankByModel(computation, { machine, count: 1000 });
  if ("refused" in ranked) throw new Error(`nothing maps: ${ranked.refused[0]?.because}`);
  return [...new Set(ranked.map((r) => r.candidate.intrinsic))];
}

/** A small product: few ways to map it. */
function product(dtype: string): Computation {
  return operation("matmul m=8 n=16 k=8", dtype);
}

/** The plainest kernel of the first row of plain C++ that maps. */
function plainKernel(computation: Computation): Kernel {
  const plain = plainCandidate(computation, PORTABLE);
  if (!plain) throw new Error("nothing maps");
  return generate(plain.candidate, plain.mapping);
}

/** A small convolution. */
function convolution(dtype: string): Computation {
  const parameters = { c: 8, k: 8, h: 6, w: 6 };
  return instantiate(operatorNamed("conv2d"), { parameters, types: parseDataTypes(dtype) });
}

/** Words of a listing that only a compiler given AVX writes. */
async function avxIn(sharedObject: string): Promise<string[]> {
  const { stdout } = await runChild(["objdump", "-d", "--no-show-raw-insn", sharedObject], { timeLimitMs: 900_000 });
  expect(stdout).toMatch(/\bxmm0\b/);
  return stdout.split("\n").filter((line) => /:\s+v[a-z]|[yz]mm\d/.test(line));
}

describe("rows of plain C++", () => {
  const arm = findProgram("aarch64-linux-gnu-g++") && findProgram("qemu-aarch64");

  it.skipIf(!arm)("agree with their equations as AArch64 code too, under qemu", async () => {
    const results = await checkIntrinsics(PORTABLE, { seed: 11, isa: [], plainOnArm: true });
    expect(results.filter(({ status, how }) => status !== "ok" || how !== "qemu")).toEqual([]);
    expect(results).toHaveLength(PORTABLE.length);
  });

  it("promise no instruction and require no feature", () => {
    const { promises, features } = plainKernel(convolution("f32"));
    expect({ promises, features }).toEqual({ promises: undefined, features: [] });
  });

  it("take every operator of the table in every type it is summed in", () => {
    const unmapped: string[] = [];
    for (const operator of OPERATORS) {
      // Floats of one byte are summed in f32.
      for (const sum of DTYPES.filter((dtype) => !isByteFloat(dtype))) {
        const types = { inputs: [sum, sum], sum } as const;
        if (typeProblem(operator, types) !== undefined) continue;
        const computation = instantiate(operator, { types });
        // The types of some are their own.
        if (outputOf(computation).dtype !== sum) continue;
        const [row] = intrinsicsNamed(`portable.mla.${sum}.broadcast`);
        const { valid } = row ? mappings(computation, row) : { valid: [] };
        if (!valid.some((m) => unschedulable(m) === undefined)) unmapped.push(`${operator.name} ${sum}`);
      }
    }
    expect(unmapped).toEqual([]);
  });

  const EQUATIONS: Readonly<Record<string, Computation>> = {
    "a maximum of bytes": pooling("max=", "u8"),
    "a minimum of f16, with borders": pooling("min=", "f16"),
    "a maximum of f32, with borders": pooling("max=", "f32"),
    "a transposition": define("out[i,j] = x[j,i]", { i: 9, j: 5 }, { x: "f64", out: "f64" }),
    "a dot product": define("out[] += x[i] * y[i]", { i: 37 }, { x: "f64", y: "f64", out: "f64" }),
    distances: define("out[i] += abs(x[i+r] - y[i])", { i: 21, r: 3 }, { x: "s32", y: "s32", out: "s32" }),
    "16-bit integers": convolution("s16"),
    bytes: convolution("u8s8"),
    "bf16 in pairs": convolution("bf16"),
    "floats of one byte": convolution("e5m2"),
    "floats of two formats of one byte": convolution("e4m3e5m2"),
    "sums in f16": convolution("f16->f16"),
    "wrapping sums in u16": convolution("u8->u16"),
  };
  for (const [what, computation] of Object.entries(EQUATIONS)) {
    it(`compute ${what} like the reference`, async () => {
      const measured = await runner.measure(plainKernel(computation), await runner.reference(computation, 1), {
        budgetSeconds: 0.01,
      });
      expect(measured).toMatchObject({ status: "ok", instructions: 0 });
    });
  }
});

function define(
  equation: string,
  extents: Record<string, number>,
  tensors: Record<string, "f64" | "s32">,
): Computation {
  return defineComputation({ name: "equation", equation, extents, tensors });
}

function pooling(op: "max=" | "min=", dtype: "u8" | "f16" | "f32"): Computation {
  const border = dtype === "u8" ? "" : "-1";
  return stated(
    `out[c,p,q] ${op} x[c,p*2+r${border},q*2+s${border}] --c 3 --p 5 --q 6 --r 3 --s 3 --dtype ${dtype} --name pooling`,
  );
}

describe("a CPU with AVX-512", () => {
  it("is given only its own instructions where one maps", () => {
    for (const dtype of ["f32", "u8s8", "bf16"])
      expect(instructionsFor(product(dtype), AVX512).filter((name) => name.startsWith("portable"))).toEqual([]);
  });

  it("is given plain C++ where no instruction maps", () => {
    const withoutDots = { ...AVX512, isa: AVX512.isa.filter((name) => name !== "avx512_vnni") };
    const names = instructionsFor(product("s16"), withoutDots);
    expect(names).toContain("portable.mla.s32.s16.broadcast");
    expect(names.filter((name) => !name.startsWith("portable."))).toEqual([]);
    // Products of two come before sums of what was multiplied while it was packed.
    expect(names.filter((name) => name.startsWith("portable.add"))).toEqual([]);
  });
});

describe("an x86-64 without AVX", () => {
  it("is seen as having plain C++ and nothing else", () => {
    expect(nativeIntrinsics(NEHALEM)).toEqual([]);
    const rows = usableIntrinsics(NEHALEM);
    expect(rows.filter((row) => !isLoops(row))).toEqual(PORTABLE);
    expect(rows.every(isPlain)).toBe(true);
    expect(findFeatures(readProcessor(NEHALEM_CPUINFO))).toMatchObject({ status: "doubtful" });
  });

  it("has no instructions of Arm, which an Arm CPU has before plain C++", () => {
    const names = usableIntrinsics({ ...NEHALEM, isa: ["asimd", "asimddp", "i8mm"] }).map((row) => row.name);
    expect(names.filter((name) => !/^(portable\.|loops)/.test(name)).every((name) => name.startsWith("arm."))).toBe(
      true,
    );
    expect(names).toEqual(expect.arrayContaining(["arm.sdot.lane", "arm.usmmla", "arm.fmla.f64"]));
    expect(names).not.toContain("arm.bfdot");
  });

  it("tunes to a verified kernel without an AVX instruction", async () => {
    const outcome = await tune(product("f32"), { machine: NEHALEM, trials: 2, seconds: 60, database: ":memory:" });
    if (!("best" in outcome) || !outcome.best) throw new Error(`no kernel: ${outcome.status}`);
    const { kernel, candidate } = outcome.best;
    expect(candidate.intrinsic).toMatch(/^portable\./);
    expect(outcome.failed).toEqual({});
    const compiler = await compilerHere();
    const compiled = await compileKernel(kernel, { compiler, workdir: runner.workdir });
    if (compiled.status !== "compiled") throw new Error(compiled.log);
    expect(await avxIn(compiled.file)).toEqual([]);
  });
});
