/** @file Every example runs and prints what its reader is told. */

import { readdirSync } from "node:fs";
import { afterEach, expect, it, vi } from "vitest";
import { KERNEL_LANGUAGES } from "../../abstraction/kernel.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { nativeIntrinsics } from "../../session/kinds/choose.ts";
import { hasFeature, nativeTarget } from "../../targets/index.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/** Two of the examples compile and measure: some seconds, more beside other tests. */
const TUNING = 120_000;
const compiler = await findCompiler();
const missing =
  compiler.status === "environment"
    ? compiler.what
    : nativeIntrinsics().some((i) => i.name.includes("fma.f32"))
      ? undefined
      : "no f32 multiply-add on vectors";
const unless = missing === undefined ? "" : ` (skipped: ${missing})`;

/** What a program prints; a module runs once, so each example has one test. */
async function printedBy(example: string): Promise<string> {
  const lines: string[] = [];
  vi.spyOn(console, "log").mockImplementation((...words: unknown[]) => void lines.push(words.join(" ")));
  await import(`../../examples/${example}.ts`);
  return lines.join("\n");
}

it("each example has a test here", () => {
  expect(
    readdirSync("examples")
      .filter((name) => name.endsWith(".ts"))
      .sort(),
  ).toEqual([
    "database.ts",
    "gallery.ts",
    "lower-and-interpret.ts",
    "mappings.ts",
    "network.ts",
    "own-intrinsic.ts",
    "systolic.ts",
    "tune-and-load.ts",
    "tune-own-intrinsic.ts",
    "vpmaddwd.ts",
  ]);
});

it("mappings: counts, lists and refuses mappings", async () => {
  expect(await printedBy("mappings")).toMatchInlineSnapshot(`
    "98 mappings, 35 under AMOS's rule
    d6a3db021b9c m <- n,p,q   n <- k   k <- c,r,s waste 0
    c3301aba4fa7 m <- k   n <- n,p,q   k <- c,r,s waste 0
    3c663671a75a m <- n,p,q   n <- k   k <- c,r waste 0
    refused: access-matrix
      w depends on k, but wmma.m16n16k16.f32.f16 does not index b by m
      k may feed n

    conv2d                  out[n,k,p,q] += f32(in[n,c,p+r-1,q+s-1]) * f32(w[k,c,r,s])
                            n 1  k 64  p 56  q 56  c 64  r 3  s 3
    wmma.m16n16k16.f32.f16  c[m,n] += f32(a[m,k]) * f32(b[k,n])
                            m 16  n 16  k 16

    matching   m <- n,k   n <- -   k <- c
    row w (b), column k disagree

    counterexample
      out[0,1,0,0] would be wrong: at n=0 p=0 q=0 c=1 r=1 s=1 k=1
      the equation reads w[1,1,1,1] as b;
      the instruction would be given w[0,1,1,1]"
  `);
});

it("own-intrinsic: a new instruction is mapped onto at once", async () => {
  expect(await printedBy("own-intrinsic")).toMatchInlineSnapshot(`
    "matvec               2 waste 0.000
    matmul               2 waste 0.000
    matmul-4bit         30 waste 0.000
    matmul-8bit         14 waste 0.000
    matmul-4bit-s8       6 waste 0.000
    scaled-matmul       46 waste 0.000
    batched-matmul       2 waste 0.000
    grouped-fc           2 waste 0.000
    grouped-matmul       2 waste 0.000
    conv1d              12 waste 0.000
    conv2d              56 waste 0.000
    conv3d             240 waste 0.000
    transposed-conv2d   56 waste 0.000
    grouped-conv2d      56 waste 0.000
    dilated-conv2d      56 waste 0.000
    depthwise-conv2d    24 waste 0.250
    capsule-conv2d      70 waste 0.000
    batched-conv2d      28 waste 0.000
    mean                 2 waste 0.000
    variance             2 waste 0.000
    scan                 2 waste 0.000
    interaction          2 waste 0.188

    mapping 2dbae2cea518   n <- m   k <- k   waste 37.5 %

    matvec     out[m] += a[m,k] * b[k]
               m 20  k 6
    mine.dot4  c[n] += a[k] * b[k,n]
               n 8  k 4

    loops feeding axes
      m 20  --->  n 8  kept    3 tiles  padded 20 -> 24
      k 6   --->  k 4  summed  2 tiles  padded 6 -> 8
      every loop is mapped

    operands
      c  =  out  f32  vec[n]
      a  =  b    f32  vec[4*n + k]
      b  =  a    f32  vec[4*n + k]

    X: software access     Y: matching     Z: intrinsic access
             m k              m k                   n k
    b (a)    0 1           n  1 0          b (a)    0 1
    a (b)    1 1           k  0 1          a (b)    1 1
    out (c)  1 0                           out (c)  1 0

    virtual mapping (one matrix an operand, base 0)
      n  =  m  of 20
      k  =  k  of 6

    physical mapping (the quotients number the tiles)
      n  =  m%8
      k  =  k%4
      elements of a tile: c 8 (stride 1)   a 4 (stride 1)   b 32
      base of c  =  m/8*8
      base of a  =  k/4*4
      base of b  =  k/4*96 + m/8*32

    calls 6 = 3 n * 2 k
    useful multiplies 120 of 192 issued, waste 37.5 %"
  `);
});

it(
  "gallery: a kernel of a course in all five languages, judged and under its roofline",
  async () => {
    const given = process.argv;
    process.argv = [...given.slice(0, 2), "output-stationary"];
    try {
      const lines = (await printedBy("gallery")).split("\n");
      expect(lines.slice(0, 3)).toEqual([
        "output-stationary: 3 x 3 array of cells that keep their sums; both factors pass through, skewed",
        "  out[m,n] += a[m,k] * b[k,n]   m 3, n 3, k 3",
        "  0.50 operations a byte",
      ]);
      const right = expect.stringMatching(/(measured [\d.]+ us|emulated), every element right$/);
      // Its C++ is for AVX-512, without which a processor says so.
      const here = hasFeature(nativeTarget(), "avx512f")
        ? right
        : expect.stringMatching(/not run: this processor lacks/);
      expect(lines.slice(3).filter((_, i) => i % 2 === 0)).toEqual(
        KERNEL_LANGUAGES.map((language) => (language === "c++" ? here : right)),
      );
    } finally {
      process.argv = given;
    }
  },
  TUNING,
);

it("lower-and-interpret: the loop nest gives the equation's numbers", async () => {
  expect(await printedBy("lower-and-interpret")).toMatchInlineSnapshot(`
    "m <- i   n <- -   k <- r waste 0.6875
    workspace c_tiles: f32[12]
    workspace a_tiles: f32[24]
    workspace b_tiles: f32[8]
    for element in 0..12
      c_tiles[element] = 0
    for m_outer in 0..3
      for m_inner in 0..2
        for k_outer in 0..2
          for k_inner in 0..2
            a_tiles[m_outer*8+k_outer*4+(2*m_inner+k_inner)] = select(m_outer*2+m_inner < 5 and k_outer*2+k_inner < 3, x[m_outer*2+m_inner+(k_outer*2+k_inner)-1], 0)
    for k_outer in 0..2
      for k_inner in 0..2
        for n_outer in 0..1
          for n_inner in 0..2
            b_tiles[k_outer*4+n_outer*4+(2*k_inner+n_inner)] = select(k_outer*2+k_inner < 3 and n_outer*2+n_inner < 1, w[k_outer*2+k_inner], 0)
    for m_tile in 0..3
      for n_tile in 0..1
        for k_tile in 0..2
          c_tiles[m_tile*4 + n_tile*4 ..] <- toy.2x2x2(a_tiles[m_tile*8 + k_tile*4 ..], b_tiles[k_tile*4 + n_tile*4 ..])
    for m_outer in 0..3
      for m_inner in 0..2
        for n_outer in 0..1
          for n_inner in 0..2
            y[m_outer*2+m_inner] += c_tiles[m_outer*4+n_outer*4+(2*m_inner+n_inner)] where m_outer*2+m_inner < 5 and n_outer*2+n_inner < 1
    equation  210 321 432 543 54
    loop nest 210 321 432 543 54"
  `);
});

it("systolic: the designs of a convolution, and one that gives the equation's numbers", async () => {
  expect(await printedBy("systolic")).toMatchInlineSnapshot(`
    "* FBS  PEs 5  steps 3  registers 25
      SBM  PEs 7  steps 3  registers 28
      FBM  PEs 7  steps 3  registers 35
    * FSA  PEs 3  steps 5  registers 15
      SFA  PEs 7  steps 5  registers 28
      FFA  PEs 7  steps 5  registers 35
      BSM  PEs 3  steps 7  registers 15
      FSM  PEs 3  steps 7  registers 21
      BFS  PEs 5  steps 7  registers 25
      FFS  PEs 5  steps 7  registers 35
      BFM  PEs 7  steps 7  registers 35
      SFM  PEs 7  steps 7  registers 35
    vectors X: 1 x f32[7]
    vectors W: 1 x f32[7]
    vectors Y: 1 x f32[7]
    for lanes lane in 0..7
      X[0,lane] = x[lane]
    for unrolled t in 0..3
      for lanes lane in 0..7
        W[0,lane] = w[t]
        Y[0,lane] = select(t == 0, 0, Y[0,lane-1]) + X[0,lane] * W[0,lane]
        y[lane-t] = Y[0,lane] where t == 2 and lane >= t and lane < t+5
    equation 321 432 543 654 765
    array    321 432 543 654 765"
  `);
});

it.skipIf(missing !== undefined)(
  `tune-and-load: the tuned kernel is called and right${unless}`,
  async () => {
    const lines = (await printedBy("tune-and-load")).split("\n");
    expect(lines[0]).toMatch(/^6 kernels, the fastest in \d+\.\d\d us$/);
    expect(lines).toContain(" * out[m,n] += a[m,k] * b[k,n]");
    expect(lines.at(-1)).toBe("equal to the equation");
  },
  TUNING,
);

it.skipIf(missing !== undefined)(
  `network: opened, tuned, emitted, verified and called${unless}`,
  async () => {
    const lines = ["1 task, 1 tuned", "layer: right", "equal to plain loops"];
    expect((await printedBy("network")).split("\n")).toEqual(lines);
  },
  TUNING,
);

it.skipIf(missing !== undefined)(
  `tune-own-intrinsic: tuned, recorded, predicted, called and emitted${unless}`,
  async () => {
    expect((await printedBy("tune-own-intrinsic")).split("\n")).toEqual([
      "the fastest kernel holds vpmaddwd as promised",
      expect.stringMatching(/^recorded: mine\.vpmaddwd, declaration [0-9a-f]{12}$/),
      "the model knows what it costs",
      "emitted: matmul.cpp, matmul_portable.cpp, matmul_tuned.cpp, matmul_test.cpp",
      "equal to the equation",
    ]);
  },
  TUNING,
);

it.skipIf(missing !== undefined)(
  `database: asked, exported, imported, verified${unless}`,
  async () => {
    const lines = (await printedBy("database")).split("\n");
    expect(lines[0]).toBe("4 measured, fastest first");
    for (const line of lines.slice(1, 4)) expect(line).toMatch(/^avx\S+ \d+\.\d{3} us$/);
    expect(lines.slice(4)).toEqual(["best is who won the finals", "imported all, then 0", "problems found: 0"]);
  },
  TUNING,
);
