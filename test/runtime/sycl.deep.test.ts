/**
 * @file Kernels in SYCL: equal to their equations under emulation, on the lanes of sub-groups and by joint matrices, and taken by a SYCL compiler
 * where one is installed.
 */

import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { findProgram, runChild } from "../../runtime/child.ts";
import { complaint } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { reducedLayers } from "../support/resnet-layers.ts";
import { inFull } from "../support/slow.ts";
import { COMPUTATIONS, DEVICES, disagreements, kernelsOf, rowsOf } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

const DRAWN = inFull(12, 2);

const PLAIN = [operation("matmul m=21 n=19 k=37"), operation("conv2d c=3 h=6 w=19 k=18 r=3 s=3 pad=1")];

describe.each(DEVICES)("sub-groups of %s", (_, isa) => {
  const rows = rowsOf(isa, "sycl");
  const joint = rows.filter((row) => row.family === "joint_matrix");
  const lanes = rows.filter((row) => row.family === "sycl");

  it("equal the equation by joint matrices", async () => {
    expect(await disagreements(COMPUTATIONS.flatMap((c) => kernelsOf(c, joint, DRAWN)))).toEqual([]);
  });

  it("equal the equation in the layers of ResNet-18 by name", async () => {
    const layers = reducedLayers().slice(0, inFull(12, 1));
    expect(await disagreements(layers.flatMap((c) => kernelsOf(c, joint, inFull(2, 1))))).toEqual([]);
  });

  it("equal the equation by multiply-adds of lanes", async () => {
    const all = [...PLAIN, ...COMPUTATIONS.slice(0, inFull(6, 2))];
    expect(await disagreements(all.flatMap((c) => kernelsOf(c, lanes, DRAWN)))).toEqual([]);
  });
});

/** DPC++ knows joint matrices, AdaptiveCpp does not. */
const COMPILERS = [
  { program: "icpx", words: ["-fsycl"], family: "joint_matrix" },
  { program: "acpp", words: [], family: "sycl" },
] as const;
const COMPILER = COMPILERS.find(({ program }) => findProgram(program) !== undefined);

describe("a SYCL compiler", () => {
  it.skipIf(!COMPILER)(`takes kernels${COMPILER ? "" : " (skipped: neither icpx nor acpp is here)"}`, async () => {
    if (!COMPILER) return;
    const folder = mkdtempSync(join(tmpdir(), "automap-sycl-"));
    const rows = rowsOf("xe_hpc", "sycl").filter((row) => row.family === COMPILER.family);
    const [computation] = COMPUTATIONS;
    if (!computation) throw new Error("no computation");
    const [made] = kernelsOf(computation, rows, 1);
    writeFileSync(join(folder, "k.sycl.cpp"), made?.kernel.source ?? "");
    const command = [COMPILER.program, ...COMPILER.words, "-std=c++17", "-c", "k.sycl.cpp", "-o", "k.o"];
    const run = await runChild(command, { timeLimitMs: 900_000, cwd: folder });
    expect(run.status, run.stderr).toBe("ok");
  });
});

describe("a command line that asks for SYCL", () => {
  it("writes the model's best kernel, and says that its time is predicted", async () => {
    const to = join(mkdtempSync(join(tmpdir(), "automap-sycl-")), "k.sycl.cpp");
    const words = "tune matmul --m 64 --n 48 --k 32 --dtype f32 --target dg2 --language sycl --model-only --to".split(
      " ",
    );
    const { code, out, err } = await commandLine([...words, to]);
    expect({ code, err }).toMatchObject({ code: 0 });
    expect(out).toContain("nothing measured");
    expect(err).toContain("not compiled");
    const text = readFileSync(to, "utf8");
    expect(text).toContain("c0 = sycl::fma(a0, b0, c0);");
    expect(text).toContain("#include <sycl/sycl.hpp>");
  });

  it.each([
    ["h100", "sycl", "cuda"],
    ["dg2", "c++", "opencl, cm, sycl"],
    ["pvc", "cuda", "opencl, cm, sycl"],
    ["neoverse-n1", "cm", "c++"],
  ])("on %s is refused in %s, with the languages it has", async (target, language, languages) => {
    const said = await complaint(`tune matmul --dtype f32 --target ${target} --language ${language} --model-only`);
    expect(said).toContain(`no instruction that ${target} has is reached from ${language}`);
    expect(said).toContain(`kernels for it are written in ${languages}`);
  });
});
