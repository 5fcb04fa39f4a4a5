/** @file The command line as its users meet it: what each line prints, where, and the exit code. */

import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { openDatabase } from "../db/index.ts";
import { INTRINSICS } from "../intrinsics/index.ts";
import { OPERATORS } from "../operators/index.ts";
import { commandLine, type Ran } from "./support/command-line.ts";

const MATMUL = "c[i,j] += f32(a[i,k]) * f32(b[k,j])";
const WMMA = "wmma.m16n16k16.f32.f16";

const scratch = mkdtempSync(join(tmpdir(), "automap cli's "));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

/** A line that worked: its data, with nothing but remarks beside. */
async function printed(line: string | readonly string[]): Promise<string> {
  const { code, out, err } = await commandLine(line);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return out;
}

/** A refused line: nothing on stdout, a sentence on stderr, no stack. */
async function complaint(line: string | readonly string[]): Promise<string> {
  const { code, out, err } = await commandLine(line);
  expect({ code, out }).toEqual({ code: 2, out: "" });
  expectNoStack(err);
  return err.trimEnd();
}

function expectNoStack(text: string): void {
  expect(text).not.toMatch(/^\s+at /m);
  expect(text).not.toContain("internal:");
}

const widest = (text: string): number => Math.max(...text.split("\n").map((l) => l.length));

describe("automap", () => {
  it("prints its help and counts as a mistake when no command is given", async () => {
    const { code, out, err } = await commandLine([]);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain("Usage: automap [options] [command]");
  });

  it("tells its version", async () => {
    const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
    expect(await printed("--version")).toBe(`${version}\n`);
  });

  const commands = ["", "map", "explain", "intrinsic", "operator", "tune", "doctor", "db", "systolic", "cache"];
  const nested = ["intrinsic list", "intrinsic show", "intrinsic check", "operator list", "operator show"];
  it.each([...commands, ...nested])('helps with "%s" in no more than 100 columns', async (command) => {
    const help = await printed(`${command} --help`);
    expect(help).toContain(`Usage: ${["automap", command].join(" ").trim()} `);
    expect(widest(help)).toBeLessThanOrEqual(100);
  });

  it.each(["tune", "db query", "calibrate"])("helps with %s on a terminal of 60 columns", async (command) => {
    const { columns } = process.stdout;
    process.stdout.columns = 60;
    try {
      const lines = (await printed(`${command} --help`)).split("\n");
      expect(lines.filter((line) => line.length > 60 && !line.startsWith("  automap "))).toEqual([]);
    } finally {
      process.stdout.columns = columns;
    }
  });

  it("gives the same help for `help map` as for `map --help`", async () => {
    expect(await printed("help map")).toBe(await printed("map --help"));
  });

  it("names every option of map, with what it does and an example", async () => {
    const help = await printed("map --help");
    for (const option of ["--dtype", "--sum", "--layout", "--intrinsic", "--rule", "--binding", "--strict", "--json"])
      expect(help).toContain(`  ${option}`);
    expect(help).toContain("--why");
    expect(help).toContain("automap map conv2d --intrinsic wmma.m16n16k16.f32.f16");
  });
});

describe("automap map", () => {
  it("lists the mappings onto one instruction, least waste first, and how to draw them", async () => {
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

  it("says why the others are refused, in sentences that fit", async () => {
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
        amx.tdpbsud  49        0.0 %  62f9dfe9a9bf  m <- k n <- n,p,q k <- c,r,s
        amx.tdpbusd  49        0.0 %  3248b0e269d0  m <- n,p,q n <- k k <- c,r,s

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

  it("puts the most hopeful reason of a survey first", async () => {
    const { code, out } = await commandLine("map matmul --m 4 --dtype f16 --intrinsic all --strict --json");
    expect(code).toBe(0);
    const { refusals } = JSON.parse(out) as { refusals: { rule: string }[] };
    expect(refusals[0]?.rule).toBe("extent");
    expect(refusals.findLastIndex((r) => r.rule === "extent")).toBeLessThan(
      refusals.findIndex((r) => r.rule === "operand-types"),
    );
  });
});

/** As issue 2 words it; more fields may stand beside these. */
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
    const document = mapDocument.parse(JSON.parse(ran.out));
    expect(document.count).toBe(document.mappings.length);
    expect(document.count === 0).toBe(code === 3);
    for (const { because } of document.refusals) expect(because).not.toContain("undefined");
  });

  it("says what was asked", async () => {
    const document = mapDocument.parse(JSON.parse(await printed("map c2d --intrinsic vnni --rule amos --json")));
    expect(document).toMatchObject({ operator: "conv2d", intrinsic: "vnni", rule: "amos", strict: false });
    const [first] = document.mappings;
    expect(first?.operands).toEqual({ c: "out", a: "in", b: "w" });
  });
});

describe("automap explain", () => {
  it("draws the best mapping: matrices, fused indices, addresses, waste", async () => {
    expect(await printed("explain conv2d --h 7 --w 7 --intrinsic amx.tdpbusd")).toMatchInlineSnapshot(`
      "mapping 4a60f53829a3   m <- n,p,q   n <- k   k <- c,r,s   waste 23.4 %

      conv2d       out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[k,c,r,s])
                   n 1  k 64  p 7  q 7  c 64  r 3  s 3
      amx.tdpbusd  c[m,n] += s32(a[m,k]) * s32(b[k,n])
                   m 16  n 16  k 64

      loops feeding axes
        n 1  p 7  q 7   --->  m 16  kept    4 tiles  padded 49 -> 64
        k 64            --->  n 16  kept    4 tiles
        c 64  r 3  s 3  --->  k 64  summed  9 tiles
        every loop is mapped

      operands
        c  =  out  s32  tile[16*m + n]
        a  =  in   u8   tile[64*m + k]
        b  =  w    s8   tile[64*(k/4) + 4*n + k%4]

      X: software access         Y: matching          Z: intrinsic access
               n k p q c r s        n k p q c r s              m n k
      in (a)   1 0 1 1 1 1 1     m  1 0 1 1 0 0 0     in (a)   1 0 1
      w (b)    0 1 0 0 1 1 1     n  0 1 0 0 0 0 0     w (b)    0 1 1
      out (c)  1 1 1 1 0 0 0     k  0 0 0 0 1 1 1     out (c)  1 1 0

      virtual mapping (one matrix an operand, base 0)
        m  =  49*n + 7*p + q  of 49
        n  =  k               of 64
        k  =  9*c + 3*r + s   of 576

      physical mapping (the quotients number the tiles)
        m  =  (49*n + 7*p + q)%16
        n  =  k%16
        k  =  (9*c + 3*r + s)%64
        elements of a tile: c 256 (stride 16)   a 1024 (stride 64)   b 1024
        base of c  =  (49*n + 7*p + q)/16*1024 + k/16*256
        base of a  =  (49*n + 7*p + q)/16*9216 + (9*c + 3*r + s)/64*1024
        base of b  =  (9*c + 3*r + s)/64*4096 + k/16*1024

      calls 144 = 4 m * 4 n * 9 k
      useful multiplies 1806336 of 2359296 issued, waste 23.4 %
      "
    `);
  });

  it("draws the mapping of an id or of its beginning", async () => {
    const [line = ""] =
      (await printed("map conv2d --intrinsic amx.tdpbusd")).match(/^ {2}[0-9a-f]{12}.*p,q.*c,r /m) ?? [];
    const id = line.trim().slice(0, 12);
    const text = await printed(`explain conv2d --intrinsic amx.tdpbusd --id ${id}`);
    expect(text).toContain(`mapping ${id}   m <- n,p,q   n <- k   k <- c,r `);
    expect(await printed(`explain conv2d --intrinsic amx.tdpbusd --id ${id.slice(0, 8)}`)).toBe(text);
  });

  it("judges a match of one's own", async () => {
    const text = await printed(["explain", "conv2d", "--intrinsic", "amx.tdpbusd", "--matching", "m=p,q n=k k=c"]);
    expect(text).toContain("m <- p,q   n <- k   k <- c");
    expect(text).toContain("outer loops: n 1  r 3  s 3");
  });

  it("shows the entry that disagrees and a counterexample for a refused match, with exit code 3", async () => {
    const words = ["explain", "conv2d", "--intrinsic", "amx.tdpbusd", "--matching", "m=n,k n= k=c"];
    const { code, out, err } = await commandLine(words);
    expect({ code, err }).toEqual({ code: 3, err: "" });
    expect(out).toMatchInlineSnapshot(`
      "refused: access-matrix
        w depends on k, but amx.tdpbusd does not index b by m
        k may feed n

      conv2d       out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[k,c,r,s])
                   n 1  k 64  p 56  q 56  c 64  r 3  s 3
      amx.tdpbusd  c[m,n] += s32(a[m,k]) * s32(b[k,n])
                   m 16  n 16  k 64

      matching   m <- n,k   n <- -   k <- c
      row w (b), column k disagree

      X: software access         X' = Z*Y                   Y: matching
               n k p q c r s              n k p q c r s        n k p q c r s
      in (a)   1 0 1 1 1 1 1     in (a)   1 1 0 0 1 0 0     m  1 1 0 0 0 0 0
      w (b)    0 1 0 0 1 1 1     w (b)    0 0 0 0 1 0 0     n  0 0 0 0 0 0 0
      out (c)  1 1 1 1 0 0 0     out (c)  1 1 0 0 0 0 0     k  0 0 0 0 1 0 0

      counterexample
        out[0,1,0,0] would be wrong: at n=0 p=0 q=0 c=0 r=1 s=1 k=1
        the equation reads w[1,0,1,1] as b;
        the instruction would be given w[0,0,1,1]
      "
    `);
    const json = await commandLine([...words, "--json"]);
    expect(json.code).toBe(3);
    expect(JSON.parse(json.out)).toMatchObject({
      schemaVersion: 1,
      verdict: "refused",
      refusal: {
        rule: "access-matrix",
        place: { row: "w (b)", column: "k" },
        matching: { m: ["n", "k"], n: [], k: ["c"] },
      },
    });
  });

  it("prints the loop nest", async () => {
    const text = await printed("explain matmul --m 4 --n 4 --k 6 --intrinsic toy.2x2x2 --nest");
    expect(text.slice(text.indexOf("lowered"))).toMatchInlineSnapshot(`
      "lowered with the trivial schedule
      workspace c_tiles: f32[16]
      workspace a_tiles: f32[24]
      workspace b_tiles: f32[24]
      for element in 0..16
        c_tiles[element] = 0
      for m_outer in 0..2
        for m_inner in 0..2
          for k_outer in 0..3
            for k_inner in 0..2
              a_tiles[m_outer*12+k_outer*4+(2*m_inner+k_inner)] = a[m_outer*2+m_inner,k_outer*2+k_inner]
      for k_outer in 0..3
        for k_inner in 0..2
          for n_outer in 0..2
            for n_inner in 0..2
              b_tiles[k_outer*8+n_outer*4+(2*k_inner+n_inner)] = b[k_outer*2+k_inner,n_outer*2+n_inner]
      for m_tile in 0..2
        for n_tile in 0..2
          for k_tile in 0..3
            c_tiles[m_tile*8 + n_tile*4 ..] <- toy.2x2x2(a_tiles[m_tile*12 + k_tile*4 ..], b_tiles[k_tile*8 + n_tile*4 ..])
      for m_outer in 0..2
        for m_inner in 0..2
          for n_outer in 0..2
            for n_inner in 0..2
              out[m_outer*2+m_inner,n_outer*2+n_inner] += c_tiles[m_outer*8+n_outer*4+(2*m_inner+n_inner)]
      "
    `);
  });

  it("prints the matrices and addresses as JSON", async () => {
    const document = JSON.parse(await printed("explain conv2d --intrinsic amx.tdpbusd --json")) as object;
    expect(document).toMatchObject({
      schemaVersion: 1,
      verdict: "maps",
      mapping: { matching: { m: ["n", "p", "q"], n: ["k"], k: ["c", "r", "s"] } },
      matrices: { y: { rows: ["m", "n", "k"] } },
      outer: [],
      issues: 7056,
    });
  });

  it("picks the first instruction of a family that maps, and says which", async () => {
    const { code, out, err } = await commandLine("explain conv2d --intrinsic cm");
    expect(code).toBe(0);
    expect(err).toBe("cm has 4 instructions; explaining cm.fma.f32.broadcast\n");
    expect(out).toContain("mapping ");
  });

  it.each([
    "conv2d --intrinsic amx.tdpbusd",
    "variance --intrinsic virtual.conv",
    "3d7pt --intrinsic avx512",
    "transposed-conv2d --h 5 --w 7 --intrinsic mma.m16n8k8.f32.tf32",
  ])("draws %s into an SVG that is well-formed XML", async (line) => {
    const file = join(scratch, "a drawing.svg");
    const { code, err } = await commandLine(["explain", ...line.split(" "), "--svg", file]);
    expect(code).toBe(0);
    expect(err).toContain(`drawn into ${file}\n`);
    expectWellFormed(readFileSync(file, "utf8"));
  });
});

/** Every tag closed in order, no stray `<`, `&` or quote, no script. */
function expectWellFormed(xml: string): void {
  const open: string[] = [];
  const rest = xml.replaceAll(/<(\/?)(\w+)((?:\s+[\w:-]+="[^"<]*")*)\s*(\/?)>/g, (_, close, name, __, empty) => {
    if (close) expect(open.pop()).toBe(name);
    else if (!empty) open.push(name);
    return "";
  });
  expect(open).toEqual([]);
  expect(rest).not.toMatch(/[<>]|&(?!(?:amp|lt|gt|quot);)/);
  expect(xml).not.toContain("<script");
}

describe("automap intrinsic and operator", () => {
  it("lists every instruction, or those of a name", async () => {
    const lines = (await printed("intrinsic list")).split("\n");
    for (const { name } of INTRINSICS) expect(lines.some((l) => l.startsWith(`${name} `))).toBe(true);
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

  it("shows every declaration with a manual and no path of ours", async () => {
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

describe("a mistake", () => {
  const mistakes: readonly (readonly [what: string, line: string | readonly string[]])[] = [
    ["an unknown command", "mapp conv2d"],
    ["an unknown subcommand", "intrinsic lst"],
    ["a missing operator", "map"],
    ["an unknown operator", "map conv2dd"],
    ["a name with a space", ["map", "conv 2d"]],
    ["a name with a quote", ["map", "it's"]],
    ["no name at all", ["map", ""]],
    ["an unknown instruction", "map conv2d --intrinsic amx.tdpbus"],
    ["an instruction without its value", "map conv2d --intrinsic"],
    ["an unknown data type", "map conv2d --dtype f17"],
    ["an unknown data type of a tensor", "map conv2d --dtype in=u9,w=s8"],
    ["a data type of no tensor", "map conv2d --dtype x=u8,w=s8"],
    ["an integer sum of floats", "map conv2d --dtype f16 --sum s32"],
    ["an unknown parameter", "map conv2d --channels 4"],
    ["a negative extent", "map conv2d --c -4"],
    ["an extent of nothing", "map conv2d --c 0"],
    ["an extent that is no number", "map conv2d --c many"],
    ["an extent beyond counting", "map conv2d --c 99999999999999999999"],
    ["an extent without its value", "map conv2d --c"],
    ["an extent given twice", "map conv2d --c 4 --c 8"],
    ["a stray word", "map conv2d c 64"],
    ["a kernel that does not fit", "map conv2d --r 9 --h 5"],
    ["an unknown rule", "map conv2d --rule greedy"],
    ["an unknown binding", "map conv2d --binding some"],
    ["a layout with an unknown dimension", "map conv2d --layout NHWX"],
    ["a layout of no tensor", "map conv2d --layout x=NHWC"],
    ["an equation that is cut off", ["map", "c[i,j"]],
    ["a malformed equation", ["map", "c[i,j] += a[i,k * b[k,j]"]],
    ["an unknown function", ["map", "y[i] = sqaure(x[i])", "--i", "4"]],
    ["an index that is not affine", ["map", "c[i] += a[i*k]", "--i", "4", "--k", "4"]],
    ["extents that are missing", ["map", MATMUL, "--i", "64"]],
    ["an extent of no axis", ["map", MATMUL, "--i", "4", "--j", "4", "--k", "4", "--z", "4"]],
    ["a negative extent of an equation", ["map", MATMUL, "--i", "4", "--j", "4", "--k", "-4"]],
    ["explain without an instruction", "explain conv2d"],
    ["an id of no mapping", "explain conv2d --intrinsic amx --id zz"],
    ["a match with an unknown loop", ["explain", "conv2d", "--intrinsic", "amx.tdpbusd", "--matching", "m=z"]],
    ["a match with an unknown axis", ["explain", "conv2d", "--intrinsic", "amx.tdpbusd", "--matching", "z=n"]],
    ["a match that is none", ["explain", "conv2d", "--intrinsic", "amx.tdpbusd", "--matching", "m:n"]],
    ["showing an unknown instruction", "intrinsic show vnnni"],
    ["a seed that is no number", "intrinsic check virtual --seed x"],
    ["showing an unknown operator", "operator show conv9d"],
  ];

  it.each(mistakes)("%s ends with 2 and a sentence", async (_, line) => {
    expect(await complaint(line)).toMatch(/^automap: \S/);
  });

  it("is said with the place marked and the nearest valid name", async () => {
    const all: string[] = [];
    for (const [, line] of mistakes) {
      const words = (typeof line === "string" ? line.split(" ") : line).map((w) =>
        /^[\w=.,-]+$/.test(w) ? w : `"${w}"`,
      );
      all.push(`$ automap ${words.join(" ")}`, await complaint(line), "");
    }
    expect(all.join("\n")).toMatchInlineSnapshot(`
      "$ automap mapp conv2d
      automap: unknown command 'mapp'
        did you mean map?
        see: automap --help

      $ automap intrinsic lst
      automap: unknown command 'lst'
        did you mean list?
        see: automap intrinsic --help

      $ automap map
      automap: missing required argument 'operator or equation'
        see: automap map --help

      $ automap map conv2dd
      automap: unknown operator "conv2dd"
        did you mean "conv2d"?

      $ automap map "conv 2d"
      automap: unknown operator "conv 2d"
        did you mean "conv2d"?

      $ automap map "it's"
      automap: unknown operator "it's"
        known: matvec, matmul, batched-matmul, grouped-fc, attention-scores, conv1d, conv2d, conv3d,
        transposed-conv2d, grouped-conv2d, dilated-conv2d, depthwise-conv2d, capsule-conv2d,
        batched-conv2d, conv1d-single, conv2d-single, ... (56 in all)

      $ automap map ""
      automap: unknown operator ""
        known: matvec, matmul, batched-matmul, grouped-fc, attention-scores, conv1d, conv2d, conv3d,
        transposed-conv2d, grouped-conv2d, dilated-conv2d, depthwise-conv2d, capsule-conv2d,
        batched-conv2d, conv1d-single, conv2d-single, ... (56 in all)

      $ automap map conv2d --intrinsic amx.tdpbus
      automap: no intrinsic, family or feature "amx.tdpbus"
        did you mean "amx.tdpbusd"?

      $ automap map conv2d --intrinsic
      automap: option '--intrinsic <name>' argument missing
        see: automap map --help

      $ automap map conv2d --dtype f17
      automap: unknown data types "f17"
        did you mean "f16"?

      $ automap map conv2d --dtype in=u9,w=s8
      automap: unknown data type "u9" of in
        did you mean "u8"?

      $ automap map conv2d --dtype x=u8,w=s8
      automap: --dtype: conv2d has no tensor "x"
        did you mean "w"?

      $ automap map conv2d --dtype f16 --sum s32
      automap: data types f16: the integer sum s32 cannot hold products of floats
        the default is f32

      $ automap map conv2d --channels 4
      automap: --channels is no option of automap map and no parameter of conv2d
        known: --n, --c, --h, --w, --k, --r, --s, --stride, --pad, --dilation, --groups

      $ automap map conv2d --c -4
      automap: conv2d: c must be positive, got -4

      $ automap map conv2d --c 0
      automap: conv2d: c must be positive, got 0

      $ automap map conv2d --c many
      automap: --c must be an integer, got "many"

      $ automap map conv2d --c 99999999999999999999
      automap: --c is too large: 99999999999999999999

      $ automap map conv2d --c
      automap: --c needs a value, for example --c 64

      $ automap map conv2d --c 4 --c 8
      automap: --c is given twice

      $ automap map conv2d c 64
      automap: unexpected argument "c"
        extents are given as --c 64; an equation goes in quotes

      $ automap map conv2d --r 9 --h 5
      automap: conv2d: kernel r = 9 does not fit h = 5 with pad 1 on both sides

      $ automap map conv2d --rule greedy
      automap: unknown --rule; it is "gather" (every valid set of loops) or "amos" (unions of match points)

      $ automap map conv2d --binding some
      automap: unknown --binding; it is "fixed" (operands in the order of the text) or "any"

      $ automap map conv2d --layout NHWX
      automap: conv2d: layout of in: "NHWX" names a dimension "X" that is not there
        dimensions: N (1), C (1), H (1), W (1); for example NCHW

      $ automap map conv2d --layout x=NHWC
      automap: conv2d: no tensor "x" to lay out
        did you mean "w"?

      $ automap map "c[i,j"
      automap: equation: expected "]", got the end
        c[i,j
             ^

      $ automap map "c[i,j] += a[i,k * b[k,j]"
      automap: equation: expected "]", got the end
        c[i,j] += a[i,k * b[k,j]
                                ^

      $ automap map "y[i] = sqaure(x[i])" --i 4
      automap: equation: unknown function "sqaure"
        y[i] = sqaure(x[i])
               ^^^^^^
        did you mean "square"?

      $ automap map "c[i] += a[i*k]" --i 4 --k 4
      automap: equation: index of a[i*k] is not affine: it multiplies two axes; an index may multiply an axis by a constant only
        c[i] += a[i*k]
                  ^^^

      $ automap map "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 64
      automap: the equation's axes j, k need extents
        for example --j 64 --k 64

      $ automap map "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 4 --j 4 --k 4 --z 4
      automap: --z is no option of automap map and no axis of the equation
        did you mean "--i"?

      $ automap map "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 4 --j 4 --k -4
      automap: equation: extent of k must be a positive integer, got -4

      $ automap explain conv2d
      automap: explain needs --intrinsic
        for example --intrinsic amx.tdpbusd; \`automap intrinsic list\` shows all

      $ automap explain conv2d --intrinsic amx --id zz
      automap: no mapping of conv2d has an id beginning with "zz"
        \`automap map\` lists the ids for the same operator, extents and types

      $ automap explain conv2d --intrinsic amx.tdpbusd --matching m=z
      automap: conv2d has no loop "z"
        did you mean "n"?

      $ automap explain conv2d --intrinsic amx.tdpbusd --matching z=n
      automap: amx.tdpbusd has no axis "z"
        did you mean "m"?

      $ automap explain conv2d --intrinsic amx.tdpbusd --matching "m:n"
      automap: --matching: "m:n" is not axis=loop,loop
        m:n
        ^^^
        for example --matching "m=n,p,q n=k k=c,r,s"

      $ automap intrinsic show vnnni
      automap: no intrinsic, family or feature "vnnni"
        did you mean "vnni"?

      $ automap intrinsic check virtual --seed x
      automap: --seed must be a non-negative integer

      $ automap operator show conv9d
      automap: unknown operator "conv9d"
        did you mean "conv1d"?
      "
    `);
  });
});

describe("the automap command as a process", () => {
  // Compiled without types: `npm run check` has them checked already.
  const home = `node_modules/.cache/automap-cli-${process.pid}`;
  afterAll(() => rmSync(home, { recursive: true, force: true }));
  const shell = (script: string, env: Record<string, string> = {}): Ran => {
    const { status, stdout, stderr } = spawnSync("bash", ["-c", `set -o pipefail; ${script}`], {
      encoding: "utf8",
      env: { ...process.env, ...env, AUTOMAP: `${process.execPath} ${home}/dist/cli/main.js` },
    });
    return { code: status ?? -1, out: stdout, err: stderr };
  };

  it("is built from the sources", () => {
    const built = shell(
      `mkdir -p ${home} && cp package.json ${home}/ && node_modules/.bin/tsc -p tsconfig.build.json --noCheck --declaration false --sourceMap false --outDir ${home}/dist && cd ${home} && for folder in runtime bench package; do ln -s "$OLDPWD/$folder" "$folder"; done && node "$OLDPWD/build-assets.mjs"`,
    );
    expect(built.code, built.out + built.err).toBe(0);
    expect(existsSync(`${home}/dist/cli/main.js`)).toBe(true);
  });

  it("sets the exit codes", () => {
    expect(shell("$AUTOMAP map conv2d --intrinsic amx").code).toBe(0);
    expect(shell("$AUTOMAP map conv2dd").code).toBe(2);
    expect(shell("$AUTOMAP map matmul --dtype f64 --intrinsic amx").code).toBe(3);
  });

  it("ends quietly when its reader goes away", () => {
    const { code, out, err } = shell("$AUTOMAP map conv2d --json | head -1");
    expect({ code, out, err }).toEqual({ code: 0, out: "{\n", err: "" });
  });

  it("says that stdout takes no more, whatever it prints", () => {
    for (const words of ["map conv2d --json", "--help", "operator list"])
      expect(shell(`$AUTOMAP ${words} > /dev/full`)).toEqual({
        ...{ code: 6, out: "" },
        err: "automap: cannot write to stdout: the disk is full\n  free some space, or name a place on another disk\n",
      });
  });

  it("says what may not be written before anything else", (context) => {
    const closed = join(scratch, "closed");
    mkdirSync(closed);
    openDatabase(join(closed, "there.db")).close();
    chmodSync(scratch, 0o755);
    chmodSync(join(closed, "there.db"), 0o444);
    chmodSync(closed, 0o555);
    // Root may write anything, so the process is somebody else's.
    const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
    const asNobody = (words: string): Ran => {
      const line = [`${home}/dist/cli/main.js`, ...words.split(" ").map((word) => word.replace("DIR", closed))];
      const { status, stdout, stderr } = spawnSync(process.execPath, line, { ...nobody, encoding: "utf8" });
      return { code: status ?? -1, out: stdout, err: stderr.replaceAll(closed, "DIR") };
    };
    context.skip(asNobody("--version").code !== 0, "nobody may read this folder");
    const lines: [string, number, string][] = [
      [
        "tune conv2d --db DIR/new.db",
        6,
        "DIR/new.db cannot be made in DIR: permission is denied\n  change the permissions of",
      ],
      ["calibrate --db DIR/new.db", 6, "DIR/new.db cannot be made in DIR: permission is denied"],
      [
        "tune conv2d --db DIR/there.db",
        6,
        "DIR/there.db cannot be written: permission is denied\n  change its permissions",
      ],
      ["tune conv2d --to DIR/k.cpp", 6, "--to DIR/k.cpp cannot be written: permission is denied"],
      ["db import DIR/missing.jsonl --db DIR/new.db", 2, "cannot read DIR/missing.jsonl: there is no such file"],
      ["db merge DIR/missing.db --db DIR/new.db", 2, "there is no database at DIR/missing.db"],
    ];
    for (const [words, code, says] of lines)
      expect({ words, ...asNobody(words) }).toEqual({
        words,
        code,
        out: "",
        err: expect.stringContaining(`automap: ${says}`),
      });
    expect(existsSync(join(closed, "new.db"))).toBe(false);
    chmodSync(closed, 0o755);
  });

  it("says how to go on when it is stopped at once", () => {
    const words = `tune conv2d --c 8 --db ${home}/stopped.db`;
    const stop = `trap 'kill -INT $search; sleep 0.1; kill -INT $search' USR1`;
    const { code, err } = shell(
      `$AUTOMAP ${words} 2> >(while read -r line; do echo "$line" >&2; case $line in "by default"*) kill -USR1 $$;; esac; done) & search=$!; ${stop}; wait $search; wait $search`,
    );
    expect({ code, err }).toEqual({
      code: 130,
      err: expect.stringMatching(/go on with {3}automap tune conv2d --c 8 --db \S+\n$/),
    });
  });

  it("colours a terminal only, and not when NO_COLOR asks", () => {
    // `script` gives it a terminal, where there is one to give.
    const onTerminal = (env: Record<string, string>): Ran =>
      shell(`script -qec "$AUTOMAP map conv2d --intrinsic amx.tdpbusd" /dev/null`, env);
    if (shell("command -v script").code === 0) {
      expect(onTerminal({ NO_COLOR: "" }).out).toContain("\u001b[1m49 mappings\u001b[22m");
      expect(onTerminal({ NO_COLOR: "1" }).out).not.toContain("\u001b[");
    }
    expect(shell("$AUTOMAP map conv2d --intrinsic amx.tdpbusd", { NO_COLOR: "" }).out).not.toContain("\u001b[");
  });
});
