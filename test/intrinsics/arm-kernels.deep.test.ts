/**
 * Kernels with Advanced SIMD and SVE: written from the one nest, compiled for AArch64, run under qemu, equal to their
 * equation.
 */

import { describe, expect, it } from "vitest";
import { type Computation, memoryElements } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { ARM } from "../../intrinsics/arm.ts";
import { SVE } from "../../intrinsics/sve.ts";
import { randomSchedule } from "../../mapper/schedule/mapped.ts";
import { findArmTools } from "../../runtime/cross.ts";
import { type EmulatedJob, runEmulated } from "../../runtime/emulated-kernel.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import { SVE_BITS, type SveBits } from "../../targets/arm.ts";
import { inFull } from "../support/slow.ts";
import { inMemory, mappedKernel, mappingsOnto, operation, rowNamed, smallIntegers } from "../support/subjects.ts";

const tools = await findArmTools();
const missing = tools.status === "environment" ? tools.what : "";

/** Extents that no instruction divides; borders, strides, dilation. */
const OPERATORS = [
  "matmul m=7 n=21 k=19",
  "conv2d c=6 k=18 h=7 w=5 r=3 s=3 stride=2 pad=1 NHWC",
  "conv2d c=17 k=9 h=5 w=6 r=3 s=3 dilation=2 pad=2 NCHW",
  "depthwise-conv2d c=19 h=6 w=5 m=1 r=3 s=3 pad=1 NHWC",
];

interface Case {
  readonly label: string;
  readonly job: EmulatedJob;
  readonly expected: Float64Array;
}

/** Small integers, of which every sum is exact in every type. */
function caseOf(computation: Computation, on: Intrinsic, seed: number): Case | undefined {
  const random = seededRandom(seed);
  const valid = mappingsOnto(computation, on);
  const mapping: Mapping | undefined = valid[Math.floor(random() * valid.length)];
  if (!mapping) return undefined;
  const schedule = randomSchedule(mapping, random);
  const kernel = mappedKernel(mapping, schedule);
  const values = smallIntegers(computation, random, 2);
  const output = computation.tensors[computation.equation.target.tensor];
  if (!output) throw new Error("no output");
  const inputs = inMemory(computation, values);
  const label = `${on.name}: ${computation.name} ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}`;
  expect(memoryElements(output)).toBe(kernel.arguments[0]?.elements);
  return { label, job: { kernel, inputs }, expected: toMemory(output, interpret(computation, values)) };
}

/** Every row, in full with every operator: else with one of them that it maps, each in its turn. */
function casesOf(rows: readonly Intrinsic[], seeds: readonly number[]): Case[] {
  return rows.flatMap((on, i) => {
    const turned = OPERATORS.map((_, j) => OPERATORS[(i + j) % OPERATORS.length] ?? OPERATORS[0]);
    const found = turned.flatMap((operator) =>
      operator ? seeds.flatMap((seed) => caseOf(operation(operator, on), on, seed) ?? []) : [],
    );
    return found.slice(0, inFull(found.length, 1));
  });
}

/** What differs, of kernels that one program holds. */
async function wrongOf(cases: readonly Case[], emulator?: readonly string[]): Promise<string[]> {
  const runs = await runEmulated(
    cases.map((c) => c.job),
    emulator ? { emulator } : {},
  );
  return cases.flatMap(({ label, expected }, i) => {
    const run = runs[i];
    if (run?.status !== "ok") return `${label}: ${run?.log}`;
    const at = expected.findIndex((value, e) => value !== run.output[e]);
    return at < 0 ? [] : `${label}: element ${at} is ${run.output[at]} and not ${expected[at]}`;
  });
}

/** qemu with vectors of so many bits. */
function emulatorOf(bits: SveBits): readonly string[] {
  if (tools.status !== "found" || tools.emulator.length === 0) return [];
  return [...tools.emulator.slice(0, -1), `max,sve-default-vector-length=${bits / 8}`];
}

const SEEDS = inFull([1, 2, 3, 4, 5, 6], [1]);

describe.skipIf(missing !== "")(`every kernel for Arm equals its equation ${missing}`, () => {
  it("with each row of Advanced SIMD, tails and borders included", async () => {
    const cases = casesOf(ARM, SEEDS);
    expect(new Set(cases.map((c) => c.label.split(":")[0])).size).toBe(ARM.length);
    expect(await wrongOf(cases)).toEqual([]);
  });

  it.each(SVE_BITS)("with each row of SVE that vectors of %d bits are long enough for", async (bits) => {
    const fitting = SVE.filter((row) => Number(row.isa.slice(3)) <= bits);
    const [shortest] = fitting;
    const own = fitting.filter((row) => row.isa === `sve${bits}`);
    const cases = casesOf(inFull(fitting, shortest && bits > 128 ? [shortest, ...own] : own), SEEDS);
    expect(await wrongOf(cases, emulatorOf(bits))).toEqual([]);
  });

  it("except a row for vectors of 512 bits on vectors of 256", async () => {
    const on = rowNamed("sve512.fmla.f32");
    const cases = casesOf([on], [1]);
    expect((await wrongOf(cases, emulatorOf(256))).length).toBe(cases.length);
  });
});
