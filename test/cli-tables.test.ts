/** @file `automap intrinsic` and `automap operator`: the tables. */

import { describe, expect, it } from "vitest";
import { INTRINSICS } from "../intrinsics/index.ts";
import { OPERATORS } from "../operators/index.ts";
import { printed, widest } from "./support/cli.ts";
import { commandLine } from "./support/command-line.ts";

describe("automap intrinsic and operator", () => {
  it("lists every instruction, or those of a name", async () => {
    const lines = (await printed("intrinsic list")).split("\n");
    for (const { name } of INTRINSICS) expect(lines.some((l) => l.startsWith(`${name} `))).toBe(true);
    expect(lines).toContainEqual(expect.stringMatching(/^amx\.tdpbusd +16x16x64 +s32 u8 s8 +c\[m,n\] \+= /));
    const { intrinsics } = JSON.parse(await printed("intrinsic list vnni --json")) as { intrinsics: object[] };
    expect(intrinsics[0]).toMatchObject({ family: "vnni", isa: "avx_vnni", extents: { n: 8, k: 4 } });
  });

  it("shows one declaration, whole", async () => {
    expect(await printed("intrinsic show amx.tdpbusd")).toMatchInlineSnapshot(`
      "amx.tdpbusd  A 16x16x64 matrix product of u8 by s8.
        c[m,n] += s32(a[m,k]) * s32(b[k,n])     m 16  n 16  k 64
        c  s32  tile[16*m + n]              256 elements
        a  u8   tile[64*m + k]              1024 elements
        b  s8   tile[64*(k/4) + 4*n + k%4]  1024 elements
        emits   _tile_dpbusd({c}, {a}, {b});
        needs   amx_int8 (c++, one thread)
        cost    one issue in 16 cycles, latency 52 cycles
                measured 2026-11-21 on one core of a Xeon with AMX: 7638 G int8 and 3744 G bf16 operations
                a second from registers, 98 % of one issue every 16 cycles; latency from Intel's
                optimisation manual, not measured
        source  Intel SDM vol. 2, TDPBUSD
      "
    `);
  });

  it("shows every declaration with its manual and without paths of this repository", async () => {
    const text = await printed("intrinsic show all");
    expect(text.match(/^ {2}source {2}\S/gm)).toHaveLength(INTRINSICS.length);
    expect(text).not.toMatch(/facts\/|\.md\b/);
  });

  it("proves the declarations that need no compiler", async () => {
    const { code, out, err } = await commandLine("intrinsic check virtual");
    expect({ code, err }).toEqual({ code: 0, err: "checking 4 instructions ...\n" });
    expect(out).toContain("4 agree with their equation, 0 differ, 0 skipped");
    const json = await commandLine("intrinsic check toy.2x2x2 --seed 7 --json");
    expect(JSON.parse(json.out)).toMatchObject({
      schemaVersion: 1,
      results: [{ intrinsic: "toy.2x2x2", status: "ok" }],
    });
  });

  it("lists every operator in 100 columns", async () => {
    const text = await printed("operator list");
    for (const { name } of OPERATORS) expect(text).toMatch(new RegExp(`^${name} `, "m"));
    expect(widest(text)).toBeLessThanOrEqual(100);
    const { operators } = JSON.parse(await printed("operator list --json")) as { operators: { equation: string }[] };
    expect(operators).toHaveLength(OPERATORS.length);
  });

  it("shows one operator: parameters, axes, tensors", async () => {
    expect(await printed("operator show gmm --m 4 --n 5 --k 6")).toMatchInlineSnapshot(`
      "matmul (gmm): matrix times matrix

        out[m,n] += a[m,k] * b[k,n]

      parameters
             default
        --m  1024     rows of the output
        --n  1024     columns of the output
        --k  1024     summed

      axes
        m  4  kept
        n  5  kept
        k  6  summed

      tensors
        out  f32  [m 4, n 5]  element at m*5 + n
        a    f32  [m 4, k 6]  element at m*6 + k
        b    f32  [k 6, n 5]  element at k*5 + n

      120 multiply-adds
      "
    `);
    expect(JSON.parse(await printed("operator show gmm --json"))).toMatchObject({
      operator: "matmul",
      schemaVersion: 1,
    });
  });
});
