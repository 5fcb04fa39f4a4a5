/**
 * @file Packages of kernels in CUDA: they prove themselves on the emulated device, find what is wrong, and nvcc and
 * CMake build them.
 */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { type EmitSubject, packageFiles } from "../../package/index.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import { proveCudaPackage } from "../../session/package/emit.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { capabilityFor } from "../../targets/gpu.ts";
import {
  depthwise,
  engineMatmul,
  filter,
  groupedMatmul,
  proveEmulated,
  splitConvolution,
} from "../support/cuda-packages.ts";
import { NVCC } from "../support/grid-kernels.ts";
import { keptProgram } from "../support/kept-compiler.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";

const root = scratchFolder("automap cuda package ");
const IN_FULL = inFull(true, false);

type Change = (file: string, text: string) => string;

function written(folder: string, subject: EmitSubject, change: Change = (_, text) => text): string {
  const at = join(root, folder);
  writePackage(at, new Map([...packageFiles(subject)].map(([file, text]) => [file, change(file, text)] as const)));
  return at;
}

const KINDS: readonly (readonly [string, () => EmitSubject])[] = [
  ["two launches through a workspace", splitConvolution],
  ["lanes of warps with prepared weights", filter],
  ["an index that is read", groupedMatmul],
];
const MORE_KINDS: typeof KINDS = [
  ["boxes and clusters", engineMatmul],
  ["threads", depthwise],
];

describe("a package in CUDA", () => {
  it.each([...KINDS, ...inFull(MORE_KINDS, [])])(
    "proves itself on the emulated device: %s",
    async (what, subjectOf) => {
      const subject = subjectOf();
      const ran = await proveEmulated(written(what, subject), subject.name);
      const right = /: right on exact, random and extreme data, called and in a graph/;
      expect([ran.status, ran.stdout, ran.stderr]).toEqual(["ok", expect.stringMatching(right), ""]);
    },
  );

  it("fails its own test with the element that is wrong", async () => {
    const wrong = "((uint16_t*)tensors[0])[37] ^= 0x400; return cudaSuccess;\n}\n";
    const at = written("wrong", splitConvolution(), (file, text) =>
      file === "conv2d_tuned.cu" ? text.replace(/return cudaSuccess;\n\}\n$/, wrong) : text,
    );
    const ran = await proveEmulated(at, "conv2d");
    expect([ran.status, ran.status === "failed" && ran.exitCode]).toEqual(["failed", 4]);
    expect(ran.stdout).toMatch(
      /^conv2d: called, exact data: 1 of 256 elements differ: element 37 of y is \S+, the equation gives \S+$/m,
    );
  });

  it("has the functions, the workspace and the packing that its kernel needs, and no others", () => {
    const [split, prepared] = [splitConvolution(), filter()].map((subject) => packageFiles(subject));
    const header = split?.get("conv2d.h") ?? "";
    expect(header).toContain(
      "int conv2d_run(const uint16_t* input, const uint16_t* w, uint16_t* y, void* workspace, size_t workspace_bytes, cudaStream_t stream);",
    );
    expect(header).not.toContain("prepare(");
    expect(split?.get("conv2d.cu")).toMatch(/conv2d_workspace_bytes\(void\) \{ return [1-9]\d+; \}/);
    expect(split?.get("conv2d.cu")).toContain("capability >= 80 ?");
    expect(packageFiles(engineMatmul()).get("matmul.cu")).toContain("capability == 90 ?");
    expect(prepared?.get("conv2d_single.h")).toContain("int conv2d_single_prepare(const float* w, void* workspace,");
    expect(prepared?.get("conv2d_single.cu")).toContain("conv2d_single_workspace_bytes(void) { return 0; }");
    expect(prepared?.get("conv2d_single_torch.cpp")).toContain("conv2d_single_prepare((const float*)");
  });

  it("registers an operator of PyTorch with the shapes and strides of the layout", () => {
    const files = packageFiles(splitConvolution());
    const text = files.get("conv2d_torch.cpp") ?? "";
    expect(text).toContain('library.def("conv2d(Tensor input, Tensor w) -> Tensor"');
    expect(text).toContain('{"input", at::kHalf, {1, 64, 4, 4}, {1024, 1, 256, 64}, 1024}');
    expect(files.get("torch_ext.py")).toContain('["w","float16",[16,64,3,3],[576,1,192,64]]');
    expect(files.get("torch_example.py")).toContain(
      "F.conv2d(x, w, stride=(1, 1,), padding=(1, 1,), dilation=1, groups=1)",
    );
  });

  it("gives no tensor a name that is a word of C, C++ or Python", () => {
    const computation = defineComputation({
      equation: "lambda[i] += int[i,k] * is[k]",
      extents: { i: 4, k: 8 },
      tensors: { int: "f32", is: "f32" },
    });
    const files = packageFiles({ ...splitConvolution(), name: "words", computation });
    expect(files.get("words_torch.cpp")).toContain('"words(Tensor int_, Tensor is_) -> Tensor"');
    expect(files.get("words.h")).toContain("words_run(const float* int_, const float* is_, float* lambda_, ");
  });

  it("is built for the GPUs that have all that its kernel uses", () => {
    expect(capabilityFor(["mma", "cp_async"])).toEqual({ least: 80, only: false });
    expect(capabilityFor(["wgmma", "tma"])).toEqual({ least: 90, only: true });
    expect(capabilityFor([])).toEqual({ least: 61, only: false });
    expect(() => capabilityFor(["nothing"])).toThrow("internal: no GPU has all of nothing");
  });

  const python = findProgram("python3");
  it.skipIf(python === undefined)(`is Python${python ? "" : " (skipped: no python3)"}`, async () => {
    const at = written("python", engineMatmul());
    const check = "import ast, sys\nfor f in sys.argv[1:]: ast.parse(open(f).read())";
    const files = ["torch_ext.py", "torch_example.py"].map((file) => join(at, file));
    expect(await runChild([python ?? "", "-c", check, ...files], { timeLimitMs: 900_000 })).toMatchObject({
      status: "ok",
    });
  });
});

describe(`a package that nvcc builds${NVCC === undefined ? " (skipped: no nvcc on the PATH)" : ""}`, () => {
  /** Where there is no GPU the test of a package says that it was not tried. */
  const ENDINGS = [0, 6];

  it.skipIf(NVCC === undefined)("by the steps of --prove, for sm_90a", async () => {
    const subject = engineMatmul();
    const proof = await proveCudaPackage(written("nvcc", subject), subject, keptProgram(NVCC ?? ""));
    expect(["right", "not tried"], proof.said).toContain(proof.status);
    expect(proof.said).toMatch(/^.*matmul: (right on|not tried: there is no GPU here)/m);
  });

  it.skipIf(NVCC === undefined || !IN_FULL)("by its script, for sm_80", async () => {
    const at = written("script", splitConvolution());
    const built = await runChild(["env", "ARCH=80", "sh", join(at, "build.sh")], { timeLimitMs: 900_000 });
    expect([built.status, built.stderr]).toEqual(["ok", ""]);
    const ran = await runChild([join(at, "build", "conv2d_test")], { timeLimitMs: 900_000 });
    expect(ENDINGS).toContain(ran.status === "failed" ? ran.exitCode : 0);
    expect(existsSync(join(at, "build", "libconv2d.so"))).toBe(true);
  });

  const cmake = findProgram("cmake");
  it.skipIf(NVCC === undefined || cmake === undefined || !IN_FULL)(
    `by CMake${cmake ? "" : " (skipped: no cmake)"}`,
    async () => {
      const at = written("cmake", filter());
      const build = join(at, "made");
      for (const command of [
        ["cmake", "-S", at, "-B", build],
        ["cmake", "--build", build],
        ["cmake", "--install", build, "--prefix", join(at, "installed")],
      ])
        expect(await runChild(command, { timeLimitMs: 900_000 })).toMatchObject({ status: "ok" });
      expect(existsSync(join(at, "installed", "include", "conv2d_single.h"))).toBe(true);
      const config = join(at, "installed", "lib", "cmake", "conv2d_single", "conv2d_single-config.cmake");
      expect(readFileSync(config, "utf8")).toContain("find_dependency(CUDAToolkit)");
    },
  );
});
