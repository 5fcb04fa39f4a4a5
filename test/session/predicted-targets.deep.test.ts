/**
 * @file GPUs that are predicted only, beside DG2 and PVC: HD Graphics 620 and Mali-G76. The kernel that the model likes
 * best equals the equation; languages that a machine does not have are refused with a reason.
 */

import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { KernelLanguage } from "../../abstraction/kernel.ts";
import { findOcloc } from "../../runtime/ocloc.ts";
import { firstThatCompiles } from "../../session/judge/offline.ts";
import { languagesFor, usableIntrinsics } from "../../session/kinds/choose.ts";
import { rankOf } from "../../session/tune/rank.ts";
import { measuringProblem } from "../../session/tune/workplace.ts";
import { oclocDevice, PREDICTED_GPUS, predictedGpuNamed } from "../../targets/index.ts";
import { commandLine } from "../support/command-line.ts";
import { disagreements, type Made } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

const CONV = "conv2d n=1 c=6 k=19 h=5 w=7 r=3 s=3 pad=1 stride=1";

const machineNamed = (name: string) => {
  const found = predictedGpuNamed(name);
  if (!found) throw new Error(`no target ${name}`);
  return found;
};

async function best(name: string, types: string, language: KernelLanguage): Promise<Made> {
  const machine = machineNamed(name);
  const computation = operation(CONV, types);
  const ranked = rankOf(computation, { machine, intrinsics: usableIntrinsics(machine, language), count: 3 }, 60);
  if ("refused" in ranked) throw new Error(ranked.refused[0]?.because);
  const { kept, dropped } = await firstThatCompiles(computation, ranked, machine);
  if (!kept) throw new Error(dropped.map(({ why }) => why).join("\n"));
  expect(kept.expected.prediction.seconds).toBeGreaterThan(0);
  return { computation, candidate: kept.expected.candidate, kernel: kept.kernel };
}

const CASES = [
  ["gen9", "f32", "opencl", "opencl.gen9."],
  ["gen9", "u8s8", "opencl", "opencl.gen9.mad.s32.u8s8"],
  ["gen9", "f16", "sycl", "sycl.gen9."],
  ["gen9", "f32", "cm", "cm.fma.f32"],
  ["mali-g76", "f32", "opencl", "mali.lanes.fma"],
  ["mali-g76", "s8", "opencl", "mali.lanes.dot.s32.s8"],
  ["mali-g76", "u8s8", "opencl", "mali.lanes.dot.s32.u8s8"],
  ["dg2", "u8s8", "cm", ""],
] as const;

describe("the kernel that the model likes best", () => {
  it("equals the equation on each machine, in each type and language", async () => {
    const made = await Promise.all(CASES.map(([name, types, language]) => best(name, types, language)));
    const seen = made.map((m) => m.candidate.intrinsic);
    const wanted = CASES.map(([, , , prefix]) => prefix);
    expect(seen.filter((name, i) => !name.startsWith(wanted[i] ?? "?"))).toEqual([]);
    expect(await disagreements(made)).toEqual([]);
  });
});

describe("a command line for a machine that is predicted only", () => {
  it.each([
    ["gen9", "opencl", "mul24"],
    ["gen9", "sycl", "reqd_sub_group_size(16)"],
    ["mali-g76", "opencl", "arm_dot_acc"],
  ])("writes the model's best kernel for %s in %s", async (target, language, word) => {
    const to = join(mkdtempSync(join(tmpdir(), "automap-predicted-")), "kernel");
    const subject = "tune conv2d --c 8 --k 16 --h 6 --w 6 --r 3 --s 3 --pad 1 --dtype u8s8";
    const words = `${subject} --target ${target} --language ${language} --model-only --to`.split(" ");
    const { code, out, err } = await commandLine([...words, to]);
    expect({ code, err }).toMatchObject({ code: 0 });
    expect(out).toContain(`with the rates of ${target}, nothing measured`);
    expect(readFileSync(to, "utf8")).toContain(word);
  });

  it.skipIf(findOcloc() === undefined)(
    "tells what was counted in the code of kernels that were compiled offline",
    async () => {
      const words = "tune matmul --m 64 --n 64 --k 64 --dtype f16 --target dg2 --model-only";
      const { code, out, err } = await commandLine(words);
      expect({ code, err }).toMatchObject({ code: 0 });
      expect(out).toContain("instructions of a step are counted in the code that the offline compiler made");
      expect(out).toMatch(/ us +\d+ products, \d+ sends, \d+ others +opencl\.dpas\.8x8\.f32\.f16/);
      const { candidates } = JSON.parse((await commandLine(`${words} --json --time 30`)).out);
      expect(candidates[0].counted).toEqual({
        instructions: expect.any(Number),
        sends: expect.any(Number),
        products: expect.any(Number),
        registers: 128,
        estimatedMicroseconds: expect.any(Number),
      });
    },
  );

  it("is refused for a language that it does not have, with those that it has", async () => {
    const { code, err } = await commandLine("tune conv2d --target mali-g76 --language sycl --model-only");
    expect(code).toBe(2);
    expect(err).toContain("no instruction that mali-g76 has is reached from sycl");
    expect(err).toContain("kernels for it are written in opencl");
  });
});

describe("a machine that is predicted only", () => {
  it("has the languages that its instructions have", () => {
    expect(PREDICTED_GPUS.map((m) => [m.name, languagesFor(m)])).toEqual([
      ["dg2", ["opencl", "cm", "sycl"]],
      ["pvc", ["opencl", "cm", "sycl"]],
      ["ats", ["opencl", "cm", "sycl"]],
      ["gen9", ["opencl", "cm", "sycl"]],
      ["mali-g76", ["opencl"]],
    ]);
  });

  it("says whether a compiler sees its kernels", () => {
    expect(PREDICTED_GPUS.map((m) => [m.name, oclocDevice(m)])).toEqual([
      ["dg2", "dg2"],
      ["pvc", "pvc"],
      ["ats", undefined],
      ["gen9", "kbl"],
      ["mali-g76", undefined],
    ]);
    const why = PREDICTED_GPUS.map((m) => measuringProblem(m)?.why);
    expect(why.map((text) => text?.endsWith("those in OpenCL C are compiled by ocloc"))).toEqual([
      true,
      true,
      false,
      true,
      false,
    ]);
  });
});
