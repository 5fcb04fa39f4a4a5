/** @file Helper functions of generated sources at the ends of their types, compiled and run, against the interpreter. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { rangeOf, wrap } from "../../abstraction/dtype.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import { code, skeleton } from "../../abstraction/source-text.ts";
import { CPP_HELPERS, calledIn } from "../../codegen/cpp/cpp-helpers.ts";
import { openClHelpers } from "../../codegen/subgroup/opencl-helpers.ts";
import { SYCL_HELPERS } from "../../codegen/subgroup/sycl-helpers.ts";
import { decodeElements } from "../../runtime/bytes.ts";
import { compilerHere } from "../support/here.ts";

const INTEGERS = ["s8", "u8", "s32", "u32"] as const;
/** The ends of a type, where a machine stops at the least by -1 and at any number by 0, and numbers between them. */
const PAIRS = INTEGERS.map((dtype) => {
  const [least, most] = rangeOf(dtype);
  const numbers = [...new Set([least, least + 1, wrap(dtype, -1), 0, 1, 2, 7, most])];
  return { dtype, pairs: numbers.flatMap((a) => numbers.map((b) => [a, b] as const)) };
});

/** Halfway between two numbers of 8 and of 24 bits, the neighbours of these in f64, and numbers that f32 does not hold. */
const DOUBLES = [2 ** -8, 3 * 2 ** -8, 2 ** -24]
  .flatMap((half) => [1 + half, 1 + half + 2 ** -45, 1 + half - 2 ** -45])
  .flatMap((x) => [x, -x, x * 2 ** -120, x * 2 ** 100])
  .concat([0, 3.4028235677973366e38, -1e300, 1e-300, Number.POSITIVE_INFINITY, Number.NaN]);

const QUOTIENTS = [code`@quotient<int>(a, b) + @remainder<int>(a, b)`];
const ROUNDED = [code`@to_bf16(@to_odd(x))`];
const PROGRAM = `
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/types.h>
namespace sycl {
  template <class T, class F> T bit_cast(F from) { T to; memcpy(&to, &from, sizeof to); return to; }
  using std::fabs;
}
namespace in_cpp { ${skeleton(calledIn([...QUOTIENTS, ...ROUNDED], CPP_HELPERS))} }
namespace in_opencl {
  uint as_uint(float f) { return sycl::bit_cast<uint>(f); }
  int as_int(float f) { return sycl::bit_cast<int>(f); }
  template <class T> float as_float(T bits) { return sycl::bit_cast<float>(bits); }
  using std::fabs;
  ${skeleton(openClHelpers(ROUNDED, []))}
}
namespace in_sycl { ${skeleton(calledIn(ROUNDED, SYCL_HELPERS))} }
template <class T> void divide(int pairs) {
  double a, b;
  for (; pairs > 0 && scanf("%lf %lf", &a, &b) == 2; pairs--)
    printf("%.0f %.0f\\n", (double)in_cpp::quotient((T)a, (T)b), (double)in_cpp::remainder((T)a, (T)b));
}
int main() {
  ${PAIRS.map(({ dtype, pairs }) => `divide<${C_TYPES[dtype]}>(${pairs.length});`).join("\n  ")}
  for (double x; scanf("%lf", &x) == 1;)
    printf("%d %d %d\\n", in_cpp::to_bf16(in_cpp::to_odd(x)), in_opencl::to_bf16(in_opencl::to_odd(x)),
           in_sycl::to_bf16(in_sycl::to_odd(x)));
}
`;

let rows: readonly (readonly number[])[];
beforeAll(async () => {
  const compiler = await compilerHere();
  const folder = mkdtempSync(join(tmpdir(), "automap-helpers-"));
  try {
    const file = join(folder, "helpers.cpp");
    const binary = join(folder, "helpers");
    writeFileSync(file, PROGRAM);
    const [cxx = "", ...leading] = compiler.command;
    const built = spawnSync(cxx, [...leading, "-std=c++17", "-O1", file, "-o", binary], { encoding: "utf8" });
    if (built.status !== 0) throw new Error(built.stderr);
    const input = [...PAIRS.flatMap(({ pairs }) => pairs.flat()), ...DOUBLES].join("\n");
    const { stdout } = spawnSync(binary, { input, encoding: "utf8" });
    const lines = stdout.trim().split("\n");
    rows = lines.map((line) => line.split(" ").map(Number));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

describe("helper functions of generated sources", () => {
  it.each(PAIRS)("divide $dtype as the interpreter does, by 0 and by -1 too", ({ dtype, pairs }) => {
    const from = PAIRS.slice(0, INTEGERS.indexOf(dtype)).reduce((sum, one) => sum + one.pairs.length, 0);
    const results = (op: string): number[] => {
      const equation = `y[i] = a[i] ${op} b[i]`;
      const tensors = { a: dtype, b: dtype, y: dtype };
      const computation = defineComputation({ equation, extents: { i: pairs.length }, tensors });
      const inputs = { a: Float64Array.from(pairs, ([a]) => a), b: Float64Array.from(pairs, ([, b]) => b) };
      return [...interpret(computation, inputs)].map((x) => x + 0);
    };
    const quotients = results("/");
    const remainders = results("%");
    const expected = pairs.map((_, i) => [quotients[i], remainders[i]]);
    expect(rows.slice(from, from + pairs.length).map((row) => row.map((x) => x + 0))).toEqual(expected);
  });

  it("round 64 bits to 16 once, in each language", () => {
    const rounded = rows.slice(-DOUBLES.length).map((row) => {
      const bits = Uint16Array.from(row);
      return [...decodeElements("bf16", new Uint8Array(bits.buffer))];
    });
    expect(rounded).toEqual(DOUBLES.map((x) => Array.from({ length: 3 }, () => wrap("bf16", x))));
  });
});
