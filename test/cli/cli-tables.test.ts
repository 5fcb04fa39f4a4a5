/** @file `automap intrinsic` and `automap operator`: the tables. */

import { describe, expect, it } from "vitest";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { OPERATORS } from "../../operators/index.ts";
import { printed, widest } from "../support/cli.ts";

describe("automap intrinsic and operator", () => {
  it("lists every instruction, or those of a name", async () => {
    const lines = (await printed("intrinsic list")).split("\n");
    for (const { name } of INTRINSICS) expect(lines.some((l) => l.startsWith(`${name} `))).toBe(true);
    expect(lines).toContainEqual(expect.stringMatching(/^amx\.tdpbusd +16x16x64 +s32 u8 s8 +c\[m,n\] \+= /));
    const { intrinsics } = JSON.parse(await printed("intrinsic list vnni --json")) as { intrinsics: object[] };
    expect(intrinsics[0]).toMatchObject({ family: "vnni", isa: "avx_vnni", extents: { n: 8, k: 4 } });
  });

  it("shows every declaration with its manual and without paths of this repository", async () => {
    const text = await printed("intrinsic show all");
    expect(text.match(/^ {2}source {2}\S/gm)).toHaveLength(INTRINSICS.length);
    expect(text).not.toMatch(/facts\/|\.md\b/);
  });

  it("lists every operator in 100 columns", async () => {
    const text = await printed("operator list");
    for (const { name } of OPERATORS) expect(text).toMatch(new RegExp(`^${name} `, "m"));
    expect(widest(text)).toBeLessThanOrEqual(100);
    const { operators } = JSON.parse(await printed("operator list --json")) as { operators: { equation: string }[] };
    expect(operators).toHaveLength(OPERATORS.length);
  });
});
