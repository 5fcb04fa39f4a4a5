/**
 * @file The gallery of examples/: the languages of each kernel, the reasons against the others, its place under the
 * roofline, and its results.
 */

import { describe, expect, it } from "vitest";
import { KERNEL_LANGUAGES } from "../../abstraction/kernel.ts";
import { GALLERY } from "../../examples/gallery/kernels.ts";
import { printedIn, rooflineText, verdictText } from "../../examples/gallery/show.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { rooflineOn } from "../../perfmodel/roofline.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { hasFeature, nativeTarget, nvidiaTarget } from "../../targets/index.ts";
import { inFull } from "../support/slow.ts";
import { disagreements } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

const CASES = GALLERY.flatMap((one) => KERNEL_LANGUAGES.map((language) => ({ one, name: one.name, language })));

it("prints each kernel in every language that can express it, and says why the others cannot", () => {
  const said = GALLERY.map((one) => {
    const lines = KERNEL_LANGUAGES.map((language) => {
      const printed = printedIn(one, language);
      return "refused" in printed ? `no ${printed.refused}` : `${language}: ${printed.row.name}`;
    });
    return [one.name, ...lines].join("\n  ");
  });
  expect(said.join("\n")).toMatchInlineSnapshot(`
    "conv-1d
      c++: avx512.fma.f32.broadcast
      cuda: thread.fma.f32
      cm: cm.fma.16.f32.broadcast
      opencl: opencl.fma.f32.broadcast
      sycl: sycl.fma.16.f32.broadcast
    conv-2d
      c++: avx512.fma.f32.broadcast
      cuda: thread.fma.f32
      cm: cm.fma.16.f32.broadcast
      opencl: opencl.fma.f32.broadcast
      sycl: sycl.fma.16.f32.broadcast
    constant-mask
      c++: avx512.fma.f32
      cuda: cuda.fma.f32
      cm: cm.fma.16.f32
      opencl: opencl.fma.f32
      sycl: sycl.fma.16.f32
    tiled-halo
      c++: avx512.fma.f32.broadcast
      no cuda: no instruction computes c[n] += a[] * b[n] of c f32, a f32, b f32 with n 16
      cm: cm.fma.16.f32.broadcast
      opencl: opencl.fma.f32.broadcast
      sycl: sycl.fma.16.f32.broadcast
    conv-layer
      c++: avx512.fma.f32.broadcast
      cuda: thread.fma.f32
      cm: cm.fma.16.f32.broadcast
      opencl: opencl.fma.f32.broadcast
      sycl: sycl.fma.16.f32.broadcast
    im2col-gemm
      no c++: no instruction computes c[m,n] += f32(a[m,k]) * f32(b[k,n]) of c f32, a f16, b f16 with m 8, n 16, k 16
      cuda: wmma.m16n16k16.f32.f16
      cm: dpas.8x16.f32.f16
      opencl: opencl.dpas.8x16.f32.f16
      sycl: sycl.joint.8x16x16.f32.f16
    joint-tiling
      no c++: no instruction computes c[m,n] += f32(a[m,k]) * f32(b[k,n]) of c f32, a f16, b f16 with m 8, n 16, k 16
      cuda: mma.m16n8k16.f32.f16
      cm: dpas.8x16.f32.f16
      opencl: opencl.dpas.8x16.f32.f16
      sycl: sycl.joint.8x16x16.f32.f16
    wmma-gemm
      no c++: the schedule deals work to blocks and warps, which only CUDA kernels have
      cuda: wmma.m16n16k16.f32.f16
      no cm: the schedule deals work to blocks and warps, which only CUDA kernels have
      no opencl: the schedule deals work to blocks and warps, which only CUDA kernels have
      no sycl: the schedule deals work to blocks and warps, which only CUDA kernels have
    output-stationary
      c++: avx512.fma.f32
      cuda: cuda.fma.f32
      cm: cm.fma.16.f32
      opencl: opencl.fma.f32
      sycl: sycl.fma.16.f32
    weight-stationary
      c++: avx512.fma.f32
      cuda: cuda.fma.f32
      cm: cm.fma.16.f32
      opencl: opencl.fma.f32
      sycl: sycl.fma.16.f32"
  `);
});

it("places the mask in constant memory in CUDA, and tiles with halos in local memory elsewhere", () => {
  const sourceOf = (name: string, language: (typeof KERNEL_LANGUAGES)[number]): string => {
    const one = GALLERY.find((kernel) => kernel.name === name);
    const printed = one && printedIn(one, language);
    return printed && !("refused" in printed) ? String(printed.kernel.source) : "";
  };
  expect(sourceOf("constant-mask", "cuda")).toContain("__constant__ float w");
  expect(sourceOf("tiled-halo", "cm")).toContain("cm_slm_alloc");
  expect(sourceOf("tiled-halo", "opencl")).toContain("float x_padded[");
  expect(sourceOf("tiled-halo", "sycl")).toContain("sycl::local_accessor<float");
  expect(sourceOf("joint-tiling", "opencl")).toMatch(/local \w+ a_padded\[/);
  expect(sourceOf("joint-tiling", "cuda")).toContain("__shared__");
  expect(sourceOf("wmma-gemm", "cuda")).toContain("wmma::mma_sync");
});

it("keeps a staged tile and results at the edge in one allocation of shared local memory in CM", async () => {
  const one = GALLERY.find((kernel) => kernel.name === "joint-tiling");
  const printed = one && printedIn(one, "cm");
  if (!printed || "refused" in printed || !printed.candidate) throw new Error("no mapping in CM");
  const { candidate } = printed;
  const computation = operation("matmul m=21 n=19 k=37", "f16");
  const kernel = kernelFor(computation, candidate);
  expect(kernel.source.match(/cm_slm_init.*|const uint [ac]_.*/g)).toMatchInlineSnapshot(`
    [
      "cm_slm_init(3584);",
      "const uint a_padded = cm_slm_alloc(3584);",
      "const uint c_results = a_padded + 1536;",
    ]
  `);
  expect(await disagreements([{ computation, candidate, kernel }])).toEqual([]);
});

describe("a roofline", () => {
  const product = (size: number) => operation(`matmul m=${size} n=${size} k=${size}`, "f16");
  const row = intrinsicNamed("wmma.m16n16k16.f32.f16");
  if (!row) throw new Error("no WMMA");

  it("counts a multiply-add as two, and reads each tensor once from the innermost memory that holds all", () => {
    const small = rooflineOn(product(64), row, nvidiaTarget("h100"));
    expect(small.operations).toBe(2 * 64 ** 3);
    expect(small.intensity).toBeCloseTo((2 * 64 ** 3) / (64 * 64 * (2 + 2 + 4)));
    expect([small.memory, small.bound]).toEqual(["l2", "memory"]);
  });

  it("bounds a large product by arithmetic where its operations a byte exceed the ridge", () => {
    const large = rooflineOn(product(8192), row, nvidiaTarget("h100"));
    expect([large.memory, large.bound]).toEqual(["dram", "compute"]);
    expect(large.intensity).toBeGreaterThan(large.ridge);
    expect(large.seconds).toBeCloseTo(large.operations / large.peak, 9);
  });
});

/** One of each kind of schedule; all of them by AUTOMAP_SLOW=1. */
const JUDGED = inFull(
  CASES.map(({ name, language }) => `${name} ${language}`),
  ["conv-1d cuda", "tiled-halo sycl", "im2col-gemm opencl", "wmma-gemm cuda", "weight-stationary cm"],
);

describe.each(CASES.filter(({ name, language }) => JUDGED.includes(`${name} ${language}`)))(
  "$name in $language",
  ({ one, language }) => {
    const printed = printedIn(one, language);
    it.skipIf("refused" in printed)("equals its equation in every element", async () => {
      if ("refused" in printed) return;
      expect(rooflineText(printed)).toMatch(/ us at least/);
      const said = await verdictText(printed);
      // Its C++ is for AVX-512.
      if (language === "c++" && !hasFeature(nativeTarget(), "avx512f")) expect(said).toContain("not run");
      else expect(said).toMatch(/(emulated|measured [\d.]+ us), every element right$/);
    });
  },
);
