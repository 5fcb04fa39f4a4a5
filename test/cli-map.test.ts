/** @file `automap map`: the mappings it lists, the refusals, and its JSON document. */

import { describe, expect, it } from "vitest";
import { z } from "zod";
import { INTRINSICS } from "../intrinsics/index.ts";
import { printed, widest } from "./support/cli.ts";
import { commandLine } from "./support/command-line.ts";

const MATMUL = "c[i,j] += f32(a[i,k]) * f32(b[k,j])";
const WMMA = "wmma.m16n16k16.f32.f16";

describe("automap map", () => {
  it("lists the mappings onto one instruction, least padding first, and the command that draws them", async () => {
    expect(await printed(`map matmul --m 20 --n 32 --k 48 --intrinsic ${WMMA}`)).toMatchInlineSnapshot(`
      "matmul                  out[m,n] += f32(a[m,k]) * f32(b[k,n])
                              m 20  n 32  k 48
      wmma.m16n16k16.f32.f16  c[m,n] += f32(a[m,k]) * f32(b[k,n])
                              m 16  n 16  k 16

      2 mappings of 2 candidate matches (rule gather), least waste first

        id            matching                  operands  waste   calls
        2ac07513ba73  m <- m   n <- n   k <- k  a=a b=b   37.5 %  12
        88dd6241e8f5  m <- n   n <- m   k <- k  a=b b=a   37.5 %  12

      8 other matches refused (--why)

      draw the best, or another by its --id:
        automap explain matmul --m 20 --n 32 --k 48 --intrinsic wmma.m16n16k16.f32.f16 --id 2ac07513ba73
      "
    `);
  });

  it("says why the other matchings are refused, in lines that fit", async () => {
    const text = await printed(`map matmul --intrinsic ${WMMA} --why`);
    expect(text).toMatchInlineSnapshot(`
      "matmul                  out[m,n] += f32(a[m,k]) * f32(b[k,n])
                              m 1024  n 1024  k 1024
      wmma.m16n16k16.f32.f16  c[m,n] += f32(a[m,k]) * f32(b[k,n])
                              m 16  n 16  k 16

      2 mappings of 2 candidate matches (rule gather), least waste first

        id            matching                  operands  waste  calls
        a63fd5d5a9b7  m <- m   n <- n   k <- k  a=a b=b   0.0 %  262144
        ca300dde8613  m <- n   n <- m   k <- k  a=b b=a   0.0 %  262144

      refused, most hopeful first
        access-matrix  m <- m,n   n <- -   k <- k  b depends on n, but wmma.m16n16k16.f32.f16 does not
                                                   index b by m (n may feed n)
        access-matrix  m <- -   n <- m,n   k <- k  a depends on m, but wmma.m16n16k16.f32.f16 does not
                                                   index a by n (m may feed m)
        access-matrix  m <- m,n   n <- -   k <- k  a depends on m, but wmma.m16n16k16.f32.f16 does not
                                                   index b by m (m may feed n)
        access-matrix  m <- -   n <- m,n   k <- k  b depends on n, but wmma.m16n16k16.f32.f16 does not
                                                   index a by n (n may feed m)
        axis-kind      m <- m,k   n <- n   k <- -  k is summed, axis m of wmma.m16n16k16.f32.f16 is kept
                                                   (k may feed k)
        axis-kind      m <- m   n <- n,k   k <- -  k is summed, axis n of wmma.m16n16k16.f32.f16 is kept
                                                   (k may feed k)
        axis-kind      m <- -   n <- n   k <- m,k  m is kept, axis k of wmma.m16n16k16.f32.f16 is summed
                                                   (m may feed m)
        axis-kind      m <- m   n <- -   k <- n,k  n is kept, axis k of wmma.m16n16k16.f32.f16 is summed
                                                   (n may feed n)

      draw the best, or another by its --id:
        automap explain matmul --intrinsic wmma.m16n16k16.f32.f16 --id a63fd5d5a9b7
      "
    `);
    expect(widest(await printed(`map conv2d --intrinsic ${WMMA} --rule amos --why`))).toBeLessThanOrEqual(100);
  });

  it("counts 98 mappings of conv2d, 49 with operands in place, and AMOS's 35", async () => {
    const head = async (more: string): Promise<string> => {
      const text = await printed(`map conv2d --intrinsic ${WMMA} ${more}`);
      return text.split("\n").find((l) => l.includes("mapping")) ?? text;
    };
    expect(await head("")).toBe("98 mappings of 98 candidate matches (rule gather), least waste first");
    expect(await head("--binding fixed")).toBe("49 mappings of 49 candidate matches (rule gather), least waste first");
    expect(await head("--rule amos")).toBe("35 mappings of 49 candidate matches (rule amos), least waste first");
    expect(await head("--rule amos --strict")).toMatch(/^20 mappings of 49 candidate matches \(rule amos, strict\)/);
  });

  it("shows twelve and all with --all", async () => {
    const rows = (text: string): number => text.split("\n").filter((l) => /^ {2}[0-9a-f]{12} /.test(l)).length;
    expect(rows(await printed(`map conv2d --intrinsic ${WMMA}`))).toBe(12);
    expect(rows(await printed(`map conv2d --intrinsic ${WMMA} --all`))).toBe(98);
  });

  it("surveys a family, a line an instruction", async () => {
    expect(await printed("map conv2d --dtype u8s8 --intrinsic amx --all")).toMatchInlineSnapshot(`
      "conv2d onto 5 instructions: 2 can compute it

        instruction  mappings  waste  id            best matching
        amx.tdpbsud  49        0.0 %  62f9dfe9a9bf  m <- k   n <- n,p,q   k <- c,r,s
        amx.tdpbusd  49        0.0 %  3248b0e269d0  m <- n,p,q   n <- k   k <- c,r,s

      refused, most hopeful first
        amx.tdpbssd    operand-types  a of amx.tdpbssd is s8, in[n,c,p+r-1,q+s-1] is u8 (give s8 data)
        amx.tdpbuud    operand-types  b of amx.tdpbuud is u8, w[k,c,r,s] is s8 (give u8 data)
        amx.tdpbf16ps  operand-types  c of amx.tdpbf16ps is f32, out is s32 (sum in f32)

      draw one: automap explain conv2d --dtype u8s8 --intrinsic amx.tdpbsud
      "
    `);
  });

  it("surveys every instruction when none is named, in no more than 100 columns", async () => {
    const text = await printed("map conv2d --all --why");
    expect(text).toContain(`conv2d onto ${INTRINSICS.length} instructions: `);
    expect(widest(text)).toBeLessThanOrEqual(100);
  });

  it("takes an equation with extents", async () => {
    const text = await printed(["map", MATMUL, "--i", "64", "--j=64", "--k", "64", "--intrinsic", WMMA]);
    expect(text).toContain("2 mappings of 2 candidate matches");
    expect(text).toContain(`automap explain '${MATMUL}' --i 64 --j=64 --k 64 --intrinsic ${WMMA} --id `);
  });

  it("maps a recurrence onto nothing and says so", async () => {
    const ran = await commandLine(["map", "y[i] = y[i-1] + x[i]", "--i", "64", "--intrinsic", "avx512.fma.f32"]);
    expect(ran).toMatchObject({ code: 3, err: "" });
    expect(ran.out).toContain("nothing maps");
  });

  it.each([
    ["u8s8", "out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[k,c,r,s])", "amx.tdpbusd"],
    ["in=u8,w=s8", "out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[k,c,r,s])", "amx.tdpbusd"],
    ["w=s8,in=u8,out=s32", "out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[k,c,r,s])", "amx.tdpbusd"],
    ["f16", "out[n,k,p,q] += f32(in[n,c,p+r-1,q+s-1]) * f32(w[k,c,r,s])", WMMA],
    ["f16->f16", "out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s]", "wmma.m16n16k16.f16.f16"],
    ["F16", "out[n,k,p,q] += f32(in[n,c,p+r-1,q+s-1]) * f32(w[k,c,r,s])", WMMA],
  ])("reads --dtype %s", async (dtype, equation, intrinsic) => {
    expect(await printed(`map conv2d --dtype ${dtype} --intrinsic ${intrinsic}`)).toContain(equation);
  });

  it("reads --sum, and the types of an equation's tensors by name", async () => {
    expect(await printed("map conv2d --dtype f16 --sum f16 --intrinsic wmma.m16n16k16.f16.f16")).toContain("98 map");
    const line = ["map", MATMUL, "--i", "64", "--j", "64", "--k", "64", "--intrinsic", WMMA, "--dtype"];
    expect(await printed([...line, "a=f16,b=f16"])).toContain("2 mappings");
    expect((await commandLine([...line, "a=f16,b=bf16"])).code).toBe(3);
  });

  it.each(["NHWC", "NCHW4c", "in=NHWC", "in=NHWC,w=RSCK"])("reads --layout %s", async (layout) => {
    const mapped = await printed(`map conv2d --layout ${layout} --intrinsic ${WMMA}`);
    expect(mapped).toContain("98 mappings");
    // Another layout is another computation.
    expect(mapped).not.toBe(await printed(`map conv2d --intrinsic ${WMMA}`));
  });

  it("takes aliases of operators, and 0 where a parameter allows it", async () => {
    expect(await printed(`map c2d --pad 0 --intrinsic ${WMMA}`)).toContain("conv2d  ");
  });

  it("ends with 3 when nothing maps, the reasons on stdout", async () => {
    const one = await commandLine("map matmul --dtype f64 --intrinsic amx.tdpbusd");
    expect({ ...one, out: "" }).toEqual({ code: 3, out: "", err: "" });
    expect(one.out).toMatchInlineSnapshot(`
      "matmul       out[m,n] += a[m,k] * b[k,n]
                   m 1024  n 1024  k 1024
      amx.tdpbusd  c[m,n] += s32(a[m,k]) * s32(b[k,n])
                   m 16  n 16  k 64

      nothing maps

      refused, most hopeful first
        operand-types  c of amx.tdpbusd is s32, out is f64 (sum in s32)
      "
    `);
    const family = await commandLine("map matmul --dtype f64 --intrinsic amx");
    expect(family.code).toBe(3);
    expect(family.out).toMatchInlineSnapshot(`
      "matmul onto 5 instructions: none can compute it

      refused, most hopeful first
        amx.tdpbssd    operand-types  c of amx.tdpbssd is s32, out is f64 (sum in s32)
        amx.tdpbsud    operand-types  c of amx.tdpbsud is s32, out is f64 (sum in s32)
        amx.tdpbusd    operand-types  c of amx.tdpbusd is s32, out is f64 (sum in s32)
        amx.tdpbuud    operand-types  c of amx.tdpbuud is s32, out is f64 (sum in s32)
        amx.tdpbf16ps  operand-types  c of amx.tdpbf16ps is f32, out is f64 (sum in f32)
      "
    `);
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
