/**
 * Kernels for Arm CPUs that are not at hand: ranked by the model, judged under qemu, recorded without a time, packaged.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { best, openDatabase, queryTrials, showTrial } from "../../db/index.ts";
import { packageFiles } from "../../package/index.ts";
import { findArmTools } from "../../runtime/cross.ts";
import { judgeByModel } from "../../session/judge/judge.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { provePackage, subjectOf } from "../../session/package/emit.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { ARM_TARGETS, armTargetNamed } from "../../targets/index.ts";
import { commandLine } from "../support/command-line.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";
import { operation } from "../support/subjects.ts";

const scratch = scratchFolder();

const tools = await findArmTools();
const missing = tools.status === "environment" ? tools.what : "";

function target(name: string) {
  const found = armTargetNamed(name);
  if (!found) throw new Error(`no target ${name}`);
  return found;
}

const conv2d = (dtype: string, words: string) => operation(`conv2d ${words} NHWC`, dtype);

const SMALL = "c=16 k=16 h=8 w=8 r=3 s=3 pad=1";
const ON_N1 = { machine: target("neoverse-n1"), seed: 1 };

/** The twelve convolutions of ResNet-18 with an eighth of their channels. He et al., Deep Residual Learning, table 1. */
const RESNET18 = [
  "c=3 k=8 h=224 w=224 r=7 s=7 stride=2 pad=3",
  "c=8 k=8 h=56 w=56 r=3 s=3 pad=1",
  "c=8 k=8 h=56 w=56 r=1 s=1",
  "c=8 k=16 h=56 w=56 r=3 s=3 stride=2 pad=1",
  "c=8 k=16 h=56 w=56 r=1 s=1 stride=2",
  "c=16 k=16 h=28 w=28 r=3 s=3 pad=1",
  "c=16 k=32 h=28 w=28 r=3 s=3 stride=2 pad=1",
  "c=16 k=32 h=28 w=28 r=1 s=1 stride=2",
  "c=32 k=32 h=14 w=14 r=3 s=3 pad=1",
  "c=32 k=64 h=14 w=14 r=3 s=3 stride=2 pad=1",
  "c=32 k=64 h=14 w=14 r=1 s=1 stride=2",
  "c=64 k=64 h=7 w=7 r=3 s=3 pad=1",
];
/** Types and the core they are for: u8 by s8 by way of SDOT, by SUDOT and matrix products, floats by lane, bf16 on scalable vectors. */
const WAYS = [
  ["u8s8", "neoverse-n1"],
  ["u8s8", "neoverse-v1"],
  ["f32", "apple-m1"],
  ["bf16", "neoverse-v1"],
] as const;

describe("an Arm CPU by its name", () => {
  it.each(ARM_TARGETS.map((t) => t.name))("%s gets kernels as text from the model alone", async (name) => {
    const to = join(scratch, `${name}.cpp`);
    const words = `tune matmul --m 8 --n 16 --k 16 --dtype u8s8 --target ${name} --model-only --to`.split(" ");
    const ran = await commandLine([...words, to]);
    expect(ran).toMatchObject({ code: 0, out: expect.stringContaining(`with the rates of ${name}, nothing measured`) });
    const text = readFileSync(to, "utf8");
    expect(text).toMatch(/#include <arm_(neon|sve)\.h>/);
    expect(text).not.toContain("immintrin");
  });

  it("ranks by its own rates: one instruction of mixed signs beats several", () => {
    const fastest = (name: string): [string, number] => {
      const machine = target(name);
      const intrinsics = usableIntrinsics(machine).filter((i) => /dot|mmla/.test(i.name));
      const ranked = rankByModel(conv2d("u8s8", `${SMALL} c=64 k=64`), { machine, intrinsics });
      if ("refused" in ranked || !ranked[0]) throw new Error("nothing maps");
      return [ranked[0].candidate.intrinsic, ranked[0].prediction.seconds];
    };
    const [[n1, slow], [v1, fast]] = [fastest("neoverse-n1"), fastest("neoverse-v1")];
    expect(n1).toMatch(/^arm\.sdot\.u8s8/);
    expect(v1).toMatch(/usdot|usmmla/);
    expect(fast).toBeLessThan(slow / 2);
  });

  it("asks for a compiler and an emulator where there are none", async () => {
    expect(await findArmTools(scratch)).toMatchObject({
      status: "environment",
      what: "no aarch64-linux-gnu-g++ and no qemu-aarch64 on the PATH",
      remedy: expect.stringContaining("--model-only needs neither"),
    });
  });

  it("is not calibrated here, and has so many cores", async () => {
    expect(await commandLine(["calibrate", "--target", "apple-m1"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("apple-m1 is not this machine"),
    });
    const words = ["tune", "conv2d", "--target", "apple-m1", "--model-only", "--threads", "5"];
    expect(await commandLine(words)).toMatchObject({ code: 2, err: expect.stringContaining("apple-m1 has 4 cores") });
  });
});

describe.skipIf(missing !== "")(`a kernel judged under an emulator ${missing}`, () => {
  it("is recorded as emulated, is never among the best, and is packaged with that remark", async () => {
    const database = join(scratch, "judged.db");
    const outcome = await judgeByModel({ computation: conv2d("u8s8", SMALL) }, { ...ON_N1, count: 2, database });
    if (!("judged" in outcome)) throw new Error(JSON.stringify(outcome));
    expect(outcome.judged.map(({ measurement }) => measurement.status)).toEqual(["emulated", "emulated"]);
    const [first] = outcome.judged;
    if (!first) throw new Error("no kernel");

    const db = openDatabase(database);
    try {
      expect(best(db)).toEqual([]);
      expect(queryTrials(db, { status: "ok" })).toEqual([]);
      const trial = showTrial(db, first.id);
      expect(trial.measurement).toMatchObject({
        status: "emulated",
        log: expect.stringMatching(/under qemu-aarch64 .*not timed$/),
      });
      expect(trial.measurement).not.toHaveProperty("median");
      expect(trial.environment).toMatchObject({ target: "neoverse-n1", cpu: expect.stringContaining("under qemu") });

      const subject = subjectOf(trial);
      expect(subject.provenance.join("\n")).toMatch(/emulated .*\n *not timed, threads 1; the model expects/);
      const folder = join(scratch, "package");
      const files = packageFiles(subject);
      expect(files.get("CMakeLists.txt")).toContain('MATCHES "^(aarch64|arm64|ARM64)$"');
      expect(files.get("conv2d.cpp")).toContain("getauxval(AT_HWCAP) >> 20 & 1");
      writePackage(folder, files);
      if (tools.status !== "found") throw new Error(tools.what);
      const { features } = first.kernel;
      const proof = await provePackage(folder, { name: "conv2d", threads: 1, features }, tools.compiler);
      expect(proof).toMatchObject({ status: "right", said: expect.stringContaining("conv2d tuned: right") });
    } finally {
      db.close();
    }
  });

  const layers = WAYS.flatMap(([dtype, name]) => RESNET18.map((layer) => [dtype, name, layer] as const));
  // In short one of few points.
  const short = layers.filter((_, i) => i === 34);
  it.each(inFull(layers, short))(
    "of a layer of ResNet-18 in %s for %s equals the equation: %s",
    async (dtype, name, layer) => {
      const outcome = await judgeByModel(
        { computation: conv2d(dtype, layer) },
        { machine: target(name), count: 1, database: ":memory:" },
      );
      if (!("judged" in outcome)) throw new Error(JSON.stringify(outcome));
      expect(outcome.judged.map(({ measurement: m }) => (m.status === "emulated" ? "right" : m))).toEqual(["right"]);
    },
  );

  it("is printed as a JSON document by the command line", async () => {
    const words = "tune matmul --m 8 --n 16 --k 16 --dtype s8 --target neoverse-n1 --trials 1".split(" ");
    const ran = await commandLine([...words, "--json", "--db", join(scratch, "words.db")]);
    expect(ran.code).toBe(0);
    expect(JSON.parse(ran.out)).toMatchObject({
      measured: false,
      target: "neoverse-n1",
      emulator: expect.stringMatching(/^qemu-aarch64 \d/),
      candidates: [{ status: "emulated", intrinsic: expect.stringMatching(/^arm\.sdot/) }],
    });
  });
});
