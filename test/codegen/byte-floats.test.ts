/** @file Floats of one byte in generated sources and in the harness, against the interpreter, and against CUDA's header where it is installed. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { type ByteFloat, saturate, wrap } from "../../abstraction/dtype.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { shortBits, shortValue } from "../../abstraction/short-floats.ts";
import { code, skeleton } from "../../abstraction/source-text.ts";
import { CPP_HELPERS, calledIn } from "../../codegen/cpp/cpp-helpers.ts";
import { openClHelpers } from "../../codegen/subgroup/opencl-helpers.ts";
import { SYCL_HELPERS } from "../../codegen/subgroup/sycl-helpers.ts";
import { harnessText } from "../../runtime/reference/reference-source.ts";
import { compilerHere } from "../support/here.ts";

const TYPES = ["e4m3", "e5m2"] as const satisfies readonly ByteFloat[];
const CUDA = "/usr/local/cuda/include";
const hasCuda = existsSync(join(CUDA, "cuda_fp8.h"));

/** An f32 and its neighbours. */
function around(x: number): number[] {
  const word = new DataView(new ArrayBuffer(4));
  word.setFloat32(0, x);
  const bits = word.getUint32(0);
  return [bits - 1, bits, bits + 1].map((b) => {
    word.setUint32(0, b >>> 0);
    return word.getFloat32(0);
  });
}

const random = seededRandom(8);
/** Every value, every middle between two, their neighbours in f32, and numbers of all sizes. */
const FLOATS = TYPES.flatMap((dtype) =>
  Array.from({ length: 126 }, (_, bits) => [shortValue(dtype, bits), shortValue(dtype, bits + 1)]),
)
  .flatMap(([low = 0, high = 0]) => [low, (low + high) / 2])
  .concat([464, 480, 61440, 65536, 2 ** -149, 2 ** -126, 3.4e38])
  .concat(Array.from({ length: 500 }, () => (1 + random()) * 2 ** Math.floor(60 * random() - 30)))
  .filter(Number.isFinite)
  .flatMap(around)
  .filter(Number.isFinite)
  .flatMap((x) => [x, -x])
  .concat([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN]);

const CALLED = TYPES.flatMap((t) => [code`@sat_to_${t}(x)`, code`@from_${t}(x)`]);
const ofCuda = (text: string): string => (hasCuda ? text : "0");
const printed = (dtype: ByteFloat): string => `
  for (int i = 0; i < 256; i++) {
    const uint8_t bits = (uint8_t)i;
    printf("%.17g %.17g %.17g %.17g %.17g\\n", in_cpp::from_${dtype}(bits), in_opencl::from_${dtype}(bits), in_sycl::from_${dtype}(bits),
           ${dtype}::decoded(bits), (double)byte_to_float(bits, ${dtype.toUpperCase()}));
  }
  for (float x : floats) {
    const uint8_t saturated = ${dtype}::encoded(${dtype}::saturate(x));
    printf("%d %d %d %d %d %d %d %d %d %d %d\\n", in_cpp::to_${dtype}(x), in_opencl::to_${dtype}(x), in_sycl::to_${dtype}(x),
           ${dtype}::encoded(${dtype}::wrap(x)), saturated, in_cpp::sat_to_${dtype}(x), in_opencl::sat_to_${dtype}(x), in_sycl::sat_to_${dtype}(x), x == x ? float_to_byte(x, ${dtype.toUpperCase()}) : saturated,
           ${ofCuda(`__nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_${dtype.toUpperCase()})`)},
           ${ofCuda(`__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_${dtype.toUpperCase()})`)});
  }`;
const PROGRAM = `
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
#include <sys/types.h>
${hasCuda ? "#include <cuda_fp8.h>" : ""}
${skeleton(harnessText("arithmetic.h"))}
namespace sycl {
  template <class T, class F> T bit_cast(F from) { T to; memcpy(&to, &from, sizeof to); return to; }
}
namespace in_cpp { ${skeleton(calledIn(CALLED, CPP_HELPERS))} }
typedef unsigned char uchar;
namespace in_opencl {
  uint as_uint(float f) { return sycl::bit_cast<uint>(f); }
  template <class T> float as_float(T bits) { return sycl::bit_cast<float>(bits); }
  ${skeleton(openClHelpers(CALLED, []))}
}
namespace in_sycl { ${skeleton(calledIn(CALLED, SYCL_HELPERS))} }
#undef __host__
#undef __device__
#define __host__
#define __device__
${skeleton(harnessText("cuda-elements.h")).split("__device__ static double element(")[0]}
int main() {
  std::vector<float> floats;
  for (uint32_t bits; scanf("%u", &bits) == 1;) floats.push_back(in_cpp::float_of_bits(bits));
${TYPES.map(printed).join("")}
}
`;

let rows: readonly (readonly number[])[];
beforeAll(async () => {
  const compiler = await compilerHere();
  const folder = mkdtempSync(join(tmpdir(), "automap-bytes-"));
  try {
    const file = join(folder, "bytes.cpp");
    const binary = join(folder, "bytes");
    writeFileSync(file, PROGRAM);
    const [cxx = "", ...leading] = compiler.command;
    const built = spawnSync(cxx, [...leading, "-std=c++17", "-O1", "-I", CUDA, file, "-o", binary], {
      encoding: "utf8",
    });
    if (built.status !== 0) throw new Error(built.stderr);
    const input = [...new Uint32Array(Float32Array.from(FLOATS).buffer)].join("\n");
    const { stdout } = spawnSync(binary, { input, encoding: "utf8", maxBuffer: 2 ** 26 });
    const numberOf = (word: string): number =>
      word.endsWith("nan")
        ? Number.NaN
        : word.endsWith("inf")
          ? Number(`${word}inity`.replace("i", "I"))
          : Number(word);
    const lines = stdout.trim().split("\n");
    rows = lines.map((line) => line.split(" ").map(numberOf));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

describe("floats of one byte in generated sources and the harness", () => {
  it.each(TYPES)("%s: all 256 have their values", (dtype) => {
    const first = TYPES.indexOf(dtype) * (256 + FLOATS.length);
    for (let bits = 0; bits < 256; bits++) {
      const value = shortValue(dtype, bits);
      expect(rows[first + bits]).toEqual(Array.from({ length: 5 }, () => value));
    }
  });

  it.each(TYPES)("%s: floats are rounded and clamped as the interpreter and CUDA do it", (dtype) => {
    const first = TYPES.indexOf(dtype) * (256 + FLOATS.length) + 256;
    for (const [i, x] of FLOATS.entries()) {
      const plain = shortBits(dtype, wrap(dtype, x));
      const saturated = shortBits(dtype, saturate(dtype, x));
      const four = [plain, plain, plain, plain];
      const values = [...four, ...Array.from({ length: 5 }, () => saturated), plain, saturated].map((b) =>
        shortValue(dtype, b),
      );
      const known = hasCuda ? 11 : 9;
      const got = (rows[first + i] ?? []).map((b) => shortValue(dtype, b));
      expect([x, ...got.slice(0, known)]).toEqual([x, ...values.slice(0, known)]);
    }
  });
});
