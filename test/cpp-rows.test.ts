/** Rows of results converted 16 at a time: which loops are, and that the helpers do what converting one by one does. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { printMatching } from "../abstraction/mapping.ts";
import { helpersFor } from "../codegen/cpp-helpers.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { mappings } from "../mapper/enumerate.ts";
import { plainSchedule } from "../mapper/schedule-space.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { runChild } from "../runtime/child.ts";
import { generate } from "../session/kernel.ts";
import { nativeTarget } from "../targets/index.ts";

function sourceOf(name: string, types: string, epilogue: string, { k = 32, layouts = "NHWC" } = {}): string {
  const parameters = { c: 8, k, h: 6, w: 6, r: 1, s: 1, pad: 0 };
  const computation = instantiate(operatorNamed("conv2d"), {
    parameters,
    types: parseDataTypes(types),
    layouts,
    epilogue,
  });
  const [on] = intrinsicsNamed(name);
  const mapping = on && mappings(computation, on).valid.find((m) => printMatching(m.matching).includes("n <- k"));
  if (!on || !mapping) throw new Error(`${name} does not take n <- k`);
  const candidate = { intrinsic: name, matching: mapping.matching, operands: {}, schedule: plainSchedule(mapping) };
  return generate(candidate, mapping).source;
}

describe("a row of results", () => {
  it("that is only rounded is rounded where the tiles lie", () => {
    const source = sourceOf("amx.tdpbf16ps", "bf16", "bf16");
    expect(source).toMatch(/ round_row\(res \+ .*, c_results \+ .*, 16\);/);
    expect(source).not.toContain("c_wide");
  });

  it("that is calculated first is held in f32, then rounded", () => {
    const source = sourceOf("amx.tdpbf16ps", "bf16", "res[n,k,p,q] = bf16(max(out[n,k,p,q] * scale[k], 0))");
    expect(source).toContain("float c_wide[");
    expect(source).toMatch(/ c_wide\[.*\] = .*at_least<float>/);
    expect(source).toMatch(/ round_row\(res \+ .*, c_wide \+ .*, 16\);/);
  });

  it("of bytes is narrowed", () => {
    const source = sourceOf("amx.tdpbusd", "u8s8", "res[n,k,p,q] = sat_u8(round(f32(out[n,k,p,q]) * scale[k]))");
    expect(source).toMatch(/ narrow_row\(res \+ .*, c_wide \+ .*, 16\);/);
  });

  it("that is not whole, or does not lie side by side, is converted element by element", () => {
    for (const odd of [{ k: 20 }, { layouts: "NCHW" }]) {
      const source = sourceOf("amx.tdpbf16ps", "bf16", "bf16", odd);
      expect(source).toMatch(/\] = to_bf16\(/);
    }
    expect(sourceOf("amx.tdpbf16ps", "bf16", "bf16", { layouts: "NCHW" })).not.toContain("round_row");
  });
});

/** Every upper half with lower halves at which rounding turns: zeros, denormals, infinities and NaN among them. */
const PROGRAM = `#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
${helpersFor("round_row(narrow_row<").join("\n")}
int main() {
  const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  long wrong = 0;
  for (uint32_t high = 0; high < 0x10000; high += 16)
    for (uint32_t l : low) {
      float from[16]; int32_t wide[16]; uint16_t to[16]; uint8_t bytes[16];
      for (uint32_t i = 0; i < 16; i++) {
        const uint32_t bits = (high + i) << 16 | l;
        memcpy(&from[i], &bits, 4), memcpy(&wide[i], &bits, 4);
      }
      round_row(to, from, 16), narrow_row(bytes, wide, 16);
      for (int i = 0; i < 16; i++) wrong += to[i] != to_bf16(from[i]) || bytes[i] != (uint8_t)wide[i];
    }
  printf("%ld", wrong);
}
`;

describe("rows converted by vectors are equal to elements converted one by one", () => {
  const avx512 = ["avx512f", "avx512bw", "avx512vl", "avx512dq"];
  const cases = [
    { isa: [], features: [] },
    { isa: ["avx512f"], features: avx512 },
    { isa: ["avx512f", "avx512_bf16"], features: [...avx512, "avx512bf16"] },
  ];
  it.each(cases)("with $isa", async ({ isa, features }) => {
    const missing = isa.filter((i) => !nativeTarget().isa.includes(i));
    if (missing.length > 0) {
      console.log(`skipped: this CPU has no ${missing.join(", ")}`);
      return;
    }
    const folder = await mkdtemp(join(tmpdir(), "automap-rows-"));
    try {
      const program = join(folder, "rows");
      const flags = ["-std=c++17", "-O1", `${program}.cpp`, "-o", program, ...features.map((f) => `-m${f}`)];
      await writeFile(`${program}.cpp`, PROGRAM);
      const compiled = await runChild(["g++", ...flags], { timeLimitMs: 60_000 });
      expect(compiled.stderr).toBe("");
      expect((await runChild([program], { timeLimitMs: 60_000 })).stdout).toBe("0");
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
