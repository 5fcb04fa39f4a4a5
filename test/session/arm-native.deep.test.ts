/**
 * The path that an Arm machine takes, part by part: what Linux tells of it, its model and flags, calibration and
 * measuring as AArch64 code under qemu.
 */

import { describe, expect, it } from "vitest";
import type { Kernel } from "../../abstraction/kernel.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { calibratable, calibrate } from "../../perfmodel/calibrate.ts";
import { calibrationSource } from "../../perfmodel/cpu-probes.ts";
import { modelTarget, timingOf } from "../../perfmodel/target.ts";
import { runChild } from "../../runtime/child.ts";
import { compileSource, kernelFlags } from "../../runtime/compiler.ts";
import { findArmTools } from "../../runtime/cross.ts";
import { findFeatures } from "../../runtime/doctor.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { readProcessor, scalableBits } from "../../runtime/processor.ts";
import { nativeIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { compilerFeatures, machineFrom, recordOf, targetOf, widestVector } from "../../targets/index.ts";
import { parseCache, parseCpuInfo } from "../../targets/native.ts";
import { scratchFolder } from "../support/scratch.ts";
import { sourceOf } from "../support/source.ts";
import { operation } from "../support/subjects.ts";

const scratch = scratchFolder();

/** As Linux 6.1 prints it on AWS m6g, two of its processors. */
const GRAVITON2 = `${[0, 1]
  .map(
    (n) => `processor	: ${n}
BogoMIPS	: 243.75
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x3
CPU part	: 0xd0c
CPU revision	: 1
`,
  )
  .join("\n")}`;
/** The line that counts of one with scalable vectors. */
const GRAVITON3 = GRAVITON2.replaceAll("0xd0c", "0xd40").replaceAll("ssbs", "sve i8mm bf16 ssbs");

const CACHES = [
  parseCache("1", "Data", "64K\n", "0"),
  parseCache("1", "Instruction", "64K\n", "0"),
  parseCache("2", "Unified", "1024K\n", "0"),
  parseCache("3", "Unified", "32768K\n", "0-1"),
].filter((cache) => cache !== undefined);
const machine = (cpuinfo: string, sveBytes?: number) => targetOf(machineFrom(parseCpuInfo(cpuinfo, sveBytes), CACHES));
const N1 = machine(GRAVITON2);
const V1 = machine(GRAVITON3, 32);

const conv2d = operation("conv2d c=8 k=16 h=6 w=6 r=3 s=3 pad=1 NHWC");

const ranking = rankByModel(conv2d, { machine: N1, count: 1 });

describe("an Arm machine", () => {
  it("is described by Linux: core, features, caches, flags", () => {
    expect(N1).toMatchObject({ name: "Arm Neoverse N1", isa: ["asimd", "asimdhp", "asimddp"] });
    expect(N1.compilerFlags).toEqual(["-march=armv8.2-a+simd+fp16+dotprod"]);
    expect(V1.isa).toEqual(["asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve128", "sve256"]);
    expect(V1.compilerFlags).toEqual(["-march=armv8.2-a+simd+fp16+dotprod+sve+i8mm+bf16"]);
    expect(N1.memories.map((m) => [m.name, m.bytes?.value])).toEqual([
      ["dram", undefined],
      ["l3", 32 * 2 ** 20],
      ["l2", 2 ** 20],
      ["l1", 64 * 2 ** 10],
    ]);
    expect(kernelFlags({ features: compilerFeatures(["asimddp"]) })).toContain("-march=armv8.2-a+simd+dotprod");
    // The machine is rebuilt from the record of a run.
    expect(targetOf(recordOf(V1))).toEqual(V1);
  });

  it("has its own instructions and none of x86, and its own vectors in calibration", () => {
    const names = nativeIntrinsics(N1).map((row) => row.name);
    expect(names.every((name) => name.startsWith("arm."))).toBe(true);
    expect(names).not.toContain("arm.usdot");
    expect(nativeIntrinsics(V1).map((row) => row.name)).toEqual(
      expect.arrayContaining(["arm.usmmla", "sve256.smmla", "sve128.fmla.f16"]),
    );
    expect([widestVector(N1).name, widestVector(V1).name]).toEqual(["v", "v"]);
    const source = calibrationSource(V1, calibratable(V1, INTRINSICS));
    expect(source).not.toMatch(/immintrin|_mm\d*_|__m\d/);
    expect(source).toContain("svdot_lane_s32");
  });

  it("is modelled by the figures of its core until it is calibrated", () => {
    const model = modelTarget(V1);
    const sdot = INTRINSICS.find((row) => row.name === "arm.sdot");
    if (!sdot) throw new Error("no arm.sdot");
    expect(timingOf(model, sdot)).toMatchObject({ issueCycles: 0.25, source: expect.stringContaining("Neoverse V1") });
    expect(timingOf(modelTarget(N1), sdot)).toMatchObject({ issueCycles: 0.5 });
    expect(ranking).toMatchObject([{ candidate: { intrinsic: expect.stringMatching(/^arm\.fmla\.f32/) } }]);
  });

  it("is listed by doctor with the length of its vectors", () => {
    const processor = readProcessor(GRAVITON3);
    expect(processor.model).toBe("Arm Neoverse V1");
    expect(findFeatures(processor)).toMatchObject({
      status: "ok",
      detail: expect.stringMatching(/^asimd asimdhp asimddp sve i8mm bf16 \(scalable vectors of \d+ bits\)$/),
    });
    expect([scalableBits(processor, 32), scalableBits(readProcessor(GRAVITON2), 32)]).toEqual([256, undefined]);
  });
});

const tools = await findArmTools();
const missing = tools.status === "environment" ? tools.what : "";

describe.skipIf(missing !== "")(`as AArch64 code under qemu ${missing}`, () => {
  if (tools.status !== "found") return;
  const made = (emulator: readonly string[]): Promise<Runner> =>
    createRunner({ emulated: { ...tools, emulator } }).then((answer) => {
      if (answer.status === "environment") throw new Error(answer.what);
      return answer.runner;
    });

  it("calibration times every instruction of the machine and every memory", async () => {
    const small = targetOf({
      name: "small",
      isa: V1.isa,
      levels: [{ name: "l1", units: 1, bytes: 16384 }],
      source: "",
    });
    const rows = calibratable(V1, INTRINSICS).filter((row) => /^(arm|sve256)\.(sdot|fmla\.f32)/.test(row.name));
    const calibration = await calibrate({ ...small, isa: V1.isa }, rows, async (source, features) => {
      const flags = kernelFlags({ features: compilerFeatures(features) }).filter((f) => f !== "-shared");
      const compiled = await compileSource(source, flags, ".out", { compiler: tools.compiler, workdir: scratch });
      if (compiled.status !== "compiled") throw new Error(compiled.log);
      const run = await runChild([...tools.emulator, compiled.file], { timeLimitMs: 900_000 });
      if (run.status !== "ok") throw new Error(run.stderr);
      return run.stdout;
    });
    expect(Object.keys(calibration.intrinsics)).toEqual(rows.map((row) => row.name));
    for (const { issueCycles, latencyCycles, loadCycles, storeCycles } of Object.values(calibration.intrinsics))
      for (const { median } of [issueCycles, latencyCycles, storeCycles, ...Object.values(loadCycles)])
        expect(median).toBeGreaterThan(0);
    expect(Object.keys(calibration.memory)).toEqual(["l1", "dram"]);
  });

  it("the measuring program keeps time, and reports what a kernel does wrong", async () => {
    const runner = await made(tools.emulator);
    try {
      expect((await runner.baseline()).samples.every((seconds) => seconds > 0)).toBe(true);
      if ("refused" in ranking || !ranking[0]) throw new Error("nothing maps");
      const right = kernelFor(conv2d, ranking[0].candidate, N1);
      const reference = await runner.reference(conv2d, 1);
      const changed = (pattern: RegExp, text: string): Kernel => {
        const source = right.source.replace(pattern, text);
        expect(source).not.toBe(right.source);
        return { ...right, source: sourceOf(source) };
      };
      const tried = [
        right,
        changed(/vst1q_f32\(\(float\*\)\(\(out \+/, "vst1q_f32((float*)((out + 576 +"),
        changed(/c0 = decltype\(c0\)\{\};/, "c0 = decltype(c0){} + 1;"),
        changed(/(static void phase_0\([^{]*\{)/, '$1 asm volatile(".inst 0x00000000");'),
      ];
      const answers: string[] = [];
      for (const kernel of tried) {
        const answer = await runner.measure(kernel, reference, { budgetSeconds: 0, batches: [1, 1] });
        answers.push(answer.status === "ok" ? "ok" : `${answer.status}: ${answer.log}`);
      }
      expect(answers).toEqual([
        expect.stringMatching(/^emulated: .* [1-9]\d* of the instruction/),
        expect.stringMatching(/^out-of-bounds: .*(wrote|touched) .* behind the end of out/),
        expect.stringMatching(/^wrong: /),
        expect.stringMatching(/^illegal-instruction: /),
      ]);
    } finally {
      await runner.close();
    }
  });
});
