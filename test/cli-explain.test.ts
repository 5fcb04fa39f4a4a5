/** @file `automap explain`: a mapping drawn, as text and as SVG, and why a match is refused. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { printed } from "./support/cli.ts";
import { commandLine } from "./support/command-line.ts";
import { scratchFolder } from "./support/scratch.ts";

const scratch = scratchFolder("automap explain's ");

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

  it("draws the mapping with a given id or prefix of one", async () => {
    const [line = ""] =
      (await printed("map conv2d --intrinsic amx.tdpbusd")).match(/^ {2}[0-9a-f]{12}.*p,q.*c,r /m) ?? [];
    const id = line.trim().slice(0, 12);
    const text = await printed(`explain conv2d --intrinsic amx.tdpbusd --id ${id}`);
    expect(text).toContain(`mapping ${id}   m <- n,p,q   n <- k   k <- c,r `);
    expect(await printed(`explain conv2d --intrinsic amx.tdpbusd --id ${id.slice(0, 8)}`)).toBe(text);
  });

  it("judges a matching given on the command line", async () => {
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
    expect(err).toBe("cm has 24 instructions; explaining cm.fma.8.f32.broadcast\n");
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

it("explain of a recurrence needs no instruction and points to space-time designs", async () => {
  const words = ["explain", "u[t,i] = 0.5*u[t-1,i] + 0.5*u[t-1,i-1]", "--t", "4", "--i", "64", "--dtype", "f32"];
  const text = await commandLine(words);
  expect(text).toMatchObject({ code: 3, err: "" });
  expect(text.out).toContain("no instruction computes this: u reads itself");
  expect(text.out).toContain("explain --candidate best");
  const json = await commandLine([...words, "--json"]);
  expect(JSON.parse(json.out)).toMatchObject({ verdict: "refused", refusal: { rule: "recurrence", matching: {} } });
  const prefix = ["explain", "y[i] = y[i-1] + x[i]", "--i", "64", "--dtype", "f32"];
  expect(await commandLine(prefix)).toMatchObject({ code: 3, err: "" });
});
