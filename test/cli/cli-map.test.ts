/** @file `automap map`: the mappings it lists, the refusals, and its JSON document. */

import { describe, expect, it } from "vitest";
import { z } from "zod";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { printed, widest } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";

const WMMA = "wmma.m16n16k16.f32.f16";

describe("automap map", () => {
  it("surveys every instruction when none is named, in no more than 100 columns", async () => {
    const text = await printed("map conv1d --all --why");
    expect(text).toContain(`conv1d onto ${INTRINSICS.length} instructions: `);
    expect(widest(text)).toBeLessThanOrEqual(100);
  });

  it("says a reason that many instructions share once, and lists them with --all", async () => {
    const words = 'map "y[i] = 0.5*y[i-1] + x[i]" --i 64';
    const { code, out } = await commandLine(words);
    expect(code).toBe(3);
    expect(out).toContain(`\n  avx2.fma.f32 and ${INTRINSICS.length - 1} more  recurrence  y reads itself: `);
    const lines = (await commandLine(`${words} --all`)).out.split("\n");
    expect(lines.filter((line) => line.includes("  recurrence  y reads itself")).length).toBe(INTRINSICS.length);
  });

  it("puts the reason easiest to act on first in a survey", async () => {
    const { code, out } = await commandLine("map matmul --m 4 --dtype f16 --intrinsic all --strict --json");
    expect(code).toBe(0);
    const { refusals } = JSON.parse(out) as { refusals: { rule: string }[] };
    expect(refusals[0]?.rule).toBe("extent");
    expect(refusals.findLastIndex((r) => r.rule === "extent")).toBeLessThan(
      refusals.findIndex((r) => r.rule === "operand-types"),
    );
  });
});

/** The fields that programs read; more may stand beside these. */
const mapDocument = z.object({
  schemaVersion: z.literal(1),
  operator: z.string(),
  equation: z.string(),
  intrinsic: z.string(),
  rule: z.enum(["amos", "gather"]),
  strict: z.boolean(),
  count: z.int(),
  mappings: z.array(
    z.object({
      id: z.string().regex(/^[0-9a-f]{12}$/),
      matching: z.record(z.string(), z.array(z.string())),
      operands: z.record(z.string(), z.string()),
      waste: z.number().min(0).lt(1),
    }),
  ),
  refusals: z.array(
    z.object({
      rule: z.string().min(1),
      because: z.string().min(1),
      matching: z.record(z.string(), z.array(z.string())),
    }),
  ),
});

describe("automap map --json", () => {
  it.each([
    ["onto one instruction", `map conv2d --intrinsic ${WMMA} --json`, 0],
    ["by AMOS's rule, strict", `map conv2d --intrinsic ${WMMA} --rule amos --strict --json`, 0],
    ["onto a family", "map conv2d --intrinsic vnni --json", 0],
    ["onto everything", "map scan --json", 0],
    ["where nothing maps", "map matmul --dtype f64 --intrinsic amx --json", 3],
  ])("prints the document %s", async (_, line, code) => {
    const ran = await commandLine(line);
    expect({ code: ran.code, err: ran.err }).toEqual({ code, err: "" });
    const schema = z.fromJSONSchema(JSON.parse(await printed("map --json-schema")));
    expect(() => schema.parse(JSON.parse(ran.out))).not.toThrow();
    const document = mapDocument.parse(JSON.parse(ran.out));
    expect(document.count).toBe(document.mappings.length);
    expect(document.count === 0).toBe(code === 3);
    for (const { because } of document.refusals) expect(because).not.toContain("undefined");
  });

  it("repeats the request in its document", async () => {
    const document = mapDocument.parse(JSON.parse(await printed("map c2d --intrinsic vnni --rule amos --json")));
    expect(document).toMatchObject({ operator: "conv2d", intrinsic: "vnni", rule: "amos", strict: false });
    const [first] = document.mappings;
    expect(first?.operands).toEqual({ c: "out", a: "in", b: "w" });
    // A family of one row is that row.
    const { out } = await commandLine("map matmul --intrinsic gemv --json");
    const [row] = INTRINSICS.filter(({ family }) => family === "gemv");
    expect(mapDocument.parse(JSON.parse(out)).intrinsic).toBe(row?.name);
  });
});
