/** @file Kernels of warps as CUDA: what a launch checks and asks for. The lines of each statement are in test/golden/nests/cuda.txt. */

import { describe, expect, it } from "vitest";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { onWarps, readNest } from "../support/nest-text.ts";
import { rowNamed, stated } from "../support/subjects.ts";

const PRODUCT = "out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i 100 --j 48 --l 64 --dtype f16";

/** A kernel of two warps. */
const source = (body: string, memory: string, computation = stated(PRODUCT)): string =>
  generateCuda(computation, rowNamed("mma.m16n8k16.f32.f16"), onWarps(2, body, memory), { lines: [] }).source;

it.each([1, 2, 4, 8] as const)(
  "a copy in pieces of %i bytes refuses a tensor that lies at another multiple, and no other",
  (width) => {
    const computation = stated("out[i,j] += s32(x[i,l]) * s32(y[l,j]) --i 64 --j 48 --l 64 --dtype s8");
    const body = `copy m 32, k 64 by ${width}, by block   tile[m,k] = x[m,k]`;
    const text = source(body, "shared tile: s8[m 32, k 64]", computation);
    const x = Object.keys(computation.tensors).indexOf("x");
    expect([...text.matchAll(/.*cudaErrorMisalignedAddress.*/g)].map(([line]) => line.trim())).toEqual(
      width === 1 ? [] : [`if ((uintptr_t)tensors[${x}] % ${width} != 0) return cudaErrorMisalignedAddress;`],
    );
  },
);

describe("a kernel", () => {
  it("declares shared memory up to 48 KiB, requests more at its launch, and returns CUDA's error code", () => {
    const large = (m: number): string =>
      source(`copy m ${m}, k 64, by block   tile[m,k] = x[m%100,k]`, `shared tile: f16[m ${m}, k 64]`);
    expect(large(384)).toContain("__shared__ __align__(128) uint16_t tile[24576];");
    expect(large(385)).toContain("uint16_t* const tile = (uint16_t*)(dynamic_shared() + 0);");
    expect(large(385)).toContain(
      "error = cudaFuncSetAttribute(phase_0, cudaFuncAttributeMaxDynamicSharedMemorySize, 49280);\n  if (error != cudaSuccess) return error;",
    );
    expect(large(385)).toContain("cudaLaunchKernel(phase_0, dim3(1), dim3(64), arguments, 49280, stream);");
  });

  it("becomes one kernel a phase, and one more that packs constants ahead of time", () => {
    const nest = readNest(`
      workspace packed: f16[3072]
      prepare
        for at block tile in 0..2
          copy e 1536, by block   packed[1536*tile + e] = y[32*tile + e/48,e%48]
      run
        for at block tile in 0..2
          copy e 48, by block   out[tile,e] = f32(packed[48*tile + e])
        barrier
        for at block tile in 0..2
          copy e 48, by block   out[50 + tile,e] = f32(packed[e])`);
    const text = generateCuda(stated(PRODUCT), rowNamed("mma.m16n8k16.f32.f16"), nest, { lines: [] }).source;
    expect(text.match(/^static __global__ .*$/gm)).toMatchInlineSnapshot(`
      [
        "static __global__ void __launch_bounds__(32) prepare_0(const uint16_t* __restrict__ y, uint16_t* packed) {",
        "static __global__ void __launch_bounds__(32) phase_0(float* __restrict__ out, uint16_t* packed) {",
        "static __global__ void __launch_bounds__(32) phase_1(float* __restrict__ out, uint16_t* packed) {",
      ]
    `);
    expect(text.match(/cudaLaunchKernel\(\w+/g)).toEqual(
      ["prepare_0", "phase_0", "phase_1"].map((k) => `cudaLaunchKernel(${k}`),
    );
  });
});
