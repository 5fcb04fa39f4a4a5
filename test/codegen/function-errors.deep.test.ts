/**
 * @file Float functions in plain arithmetic: their errors over floats of every size, their special values, and that g++ makes vectors of them.
 *
 * The long form goes through all 2^32 floats.
 */

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { spell } from "../../abstraction/source-text.ts";
import { FLOAT_ERRORS, FLOAT_HELPERS } from "../../codegen/float-functions.ts";
import { nativeTarget } from "../../targets/index.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";

const folder = scratchFolder();

const CODE = ["-O3", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv"];
const FUSED = nativeTarget().isa.includes("fma");
const HELPERS = Object.values(FLOAT_HELPERS)
  .map((text) => spell(text, "c++"))
  .join("\n");

/** Compiles a program around the functions. @returns its path, and what g++ says of vectors */
function compiled(
  name: string,
  text: string,
  flags: readonly string[] = [],
): { readonly file: string; readonly log: string } {
  const source = join(folder, `${name}.cpp`);
  const file = join(folder, name);
  writeFileSync(source, `#include <cstdint>\n#include <cstring>\n${HELPERS}\n${text}`);
  const log = join(folder, `${name}.log`);
  execFileSync("g++", [...CODE, ...flags, "-pthread", `-fopt-info-vec-optimized=${log}`, "-o", file, source]);
  return { file, log };
}

/** Prints the largest error, in units in the last place, and where. */
const SWEEP = String.raw`
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>
template <class F, class R> static double units(F got, R exact, int digits, int least) {
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) == std::isnan(got) ? 0 : INFINITY;
  const F near = (F)exact;
  if (std::isinf(near) || std::isinf(got)) return near == got ? 0 : INFINITY;
  if (near == 0 && got == 0) return std::signbit(exact) == std::signbit(got) ? 0 : INFINITY;
  const R unit = near == 0 ? 0 : std::ldexp((R)1, std::ilogb(near) - digits);
  return (double)(std::fabs((R)got - exact) / std::max(unit, std::ldexp((R)1, least)));
}
/* A well mixed word for each number: splitmix64. */
static uint64_t mixed(uint64_t i) {
  i += 0x9e3779b97f4a7c15u; i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u; i = (i ^ i >> 27) * 0x94d049bb133111ebu; return i ^ i >> 31;
}
template <class T, class U> static T of(U bits) { T x; memcpy(&x, &bits, sizeof x); return x; }
template <class Judge> static void sweep(uint64_t count, Judge judge) {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<double> worst(threads);
  std::vector<uint64_t> at(threads);
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; t++)
    running.emplace_back([&, t] {
      for (uint64_t i = t; i < count; i += threads) if (const double u = judge(i); u > worst[t]) worst[t] = u, at[t] = i;
    });
  for (auto& one : running) one.join();
  const size_t most = std::max_element(worst.begin(), worst.end()) - worst.begin();
  printf("%.4f at %llu\n", worst[most], (unsigned long long)at[most]);
}
static const double NUMBERS[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, 0.625, 4.0, 88.72, 88.73, -87.5, -103.9, -104.1, 709.78, 709.79, -745.1, -745.2, 
  1e-45, -1e-45, 1e-38, 3e38, -3e38, 4.9e-324, 2.2250738585072014e-308, 1.7e308, 16777216.0, 16777217.0, 8388607.0, -8388607.0, 0.99999994, 1.00000012};
`;

/** Every float, or one of so many; and numbers that are special to some function. */
const ofFloats = (fn: string): string => String.raw`int main() {
  auto judge = [](float x) { return units<float, double>(${fn}_float(x), std::${fn}((double)x), 23, -149); };
  sweep((1ull << 32) / STRIDE, [&](uint64_t i) { return judge(of<float>((uint32_t)(i * STRIDE))); });
  double worst = 0;
  for (double x : NUMBERS) worst = std::max(worst, judge((float)x));
  printf("%.4f\n", worst);
}`;

/** Doubles of all sizes, and where the function is neither 0 nor infinite. */
const ofDoubles = (fn: string, from: number, to: number): string => String.raw`int main() {
  auto judge = [](double x) { return units<double, long double>(${fn}_double(x), std::${fn}((long double)x), 52, -1074); };
  sweep(COUNT, [&](uint64_t i) {
    return judge(i % 2 ? of<double>(mixed(i)) : ${from} + (mixed(i) >> 11) * 0x1p-53 * (${to} - ${from}));
  });
  double worst = 0;
  for (double x : NUMBERS) worst = std::max(worst, judge(x));
  printf("%.4f\n", worst);
}`;

/** Pairs of all sizes, and those whose power is neither 0 nor infinite. */
const ofPairs = String.raw`int main() {
  auto judge = [](float x, float y) { return units<float, long double>(pow_float(x, y), powl(x, y), 23, -149); };
  sweep(COUNT, [&](uint64_t i) {
    const uint64_t bits = mixed(i), more = mixed(~i);
    const float x = of<float>((uint32_t)bits), y = of<float>((uint32_t)(bits >> 32));
    if (i % 4 == 0) return judge(x, y);
    if (i % 4 == 1) return judge(x, (float)((int)(more % 61) - 30));
    const float near = of<float>((uint32_t)bits & 0x807fffffu | (121 + (uint32_t)(more % 12)) << 23);
    return judge(near, std::fmod(y, 40.0f));
  });
  double worst = 0;
  for (double x : NUMBERS) for (double y : NUMBERS) worst = std::max(worst, judge((float)x, (float)y));
  printf("%.4f\n", worst);
}`;

const PROGRAMS: readonly (readonly [what: string, text: string, bound: number])[] = [
  ...(["exp", "log", "tanh", "erf"] as const).map(
    (fn) => [`${fn} of floats`, ofFloats(fn), FLOAT_ERRORS.f32[fn]] as const,
  ),
  ["pow of floats", ofPairs, FLOAT_ERRORS.f32.pow],
  ["exp of doubles", ofDoubles("exp", -750, 715), FLOAT_ERRORS.f64.exp],
  ["log of doubles", ofDoubles("log", 0, 4), FLOAT_ERRORS.f64.log],
];

describe("float functions computed by arithmetic", () => {
  it.each(
    [[], ...(FUSED ? [["-mfma"]] : [])].flatMap((flags) =>
      PROGRAMS.map(
        ([what, text, bound]) => [what, flags.join("") || "each product rounded", flags, text, bound] as const,
      ),
    ),
  )("are as right as they say: %s, %s", (what, _, flags, text, bound) => {
    const sized = `${SWEEP}${text}`
      .replaceAll("STRIDE", String(inFull(1, 9973)))
      .replaceAll("COUNT", String(inFull(2e8, 2e5)));
    const { file } = compiled(`${what.replaceAll(" ", "_")}${flags.join("")}`, sized, flags);
    const [swept = "", special = ""] = execFileSync(file, { encoding: "utf8" }).split("\n");
    expect(Number(special), `${what}: special numbers`).toBeLessThan(bound);
    expect(Number(swept.split(" ")[0]), `${what}: ${swept}`).toBeLessThan(bound);
  });

  it.each([
    ...Object.keys(FLOAT_ERRORS.f32).map((fn) => [`${fn}_float`, "float", fn === "pow" ? ", x[i + n]" : ""] as const),
    ...Object.keys(FLOAT_ERRORS.f64).map((fn) => [`${fn}_double`, "double", ""] as const),
  ])("become vectors: %s", (fn, type, more) => {
    const loop = `void f(${type}* y, const ${type}* x, long n) { for (long i = 0; i < n; i++) y[i] = ${fn}(x[i]${more}); }`;
    const { log } = compiled(`vector_${fn}`, `${loop}\nint main() {}`, FUSED ? ["-mavx2", "-mfma"] : []);
    expect(readFileSync(log, "utf8")).toContain("loop vectorized");
  });
});
