/** @file `automap systolic` as its users meet it. */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { commandLine } from "./support/command-line.ts";
import { scratchFolder } from "./support/scratch.ts";

const CONV = '"z[c] += x[c+q]*w[q]" --c 16 --q 5';

const scratch = scratchFolder();

async function printed(line: string): Promise<string> {
  const { code, out, err } = await commandLine(`systolic ${line}`);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return out;
}

async function refused(line: string): Promise<string> {
  const { code, out, err } = await commandLine(`systolic ${line}`);
  expect({ code, err }).toEqual({ code: 3, err: "" });
  return out.trimEnd();
}

async function complaint(line: string): Promise<string> {
  const { code, out, err } = await commandLine(`systolic ${line}`);
  expect({ code, out }).toEqual({ code: 2, out: "" });
  expect(err).not.toMatch(/^\s+at /m);
  expect(err).not.toContain("internal:");
  return err.trimEnd();
}

const document = z.object({
  schemaVersion: z.literal(1),
  designs: z.array(
    z.object({
      name: z.string(),
      dataflow: z.string(),
      allocation: z.array(z.array(z.number())),
      schedule: z.array(z.number()),
      pes: z.number(),
      steps: z.number(),
      outturn: z.number(),
      utilisation: z.number(),
      registers: z.object({ plain: z.number(), coalesced: z.number() }),
    }),
  ),
  refused: z.number(),
});
const json = async (line: string): Promise<z.infer<typeof document>> =>
  document.parse(JSON.parse(await printed(`${line} --json`)));

describe("automap systolic", () => {
  it("lists the arrays of conv1d: a tile of 16 outputs, a filter of 5, channels outside", async () => {
    expect(await printed("conv1d")).toMatchInlineSnapshot(`
      "conv1d  out[p] += in[p+r] * w[r]
      loops   p 16 (a tile of 890), r 5; outside, in sequence: k 512, c 512
      reuse   in (1,-1)   w (1,0)   out (0,1)

      12 designs in 12 classes of dataflow, of 81 transforms with entries up to 1 (48 of full rank, 40 unimodular)

        name  matrix       dataflow                                 PEs  steps  outturn  utilisation  registers  coalesced  cycles
        FBS   [1 0; 0 1]   in forwards, w broadcast, out sediments  16   5      3.2      100.0 %      80         48         5
        SBM   [1 1; 0 1]   in stays, w broadcast, out migrates      20   5      3.2      80.0 %       80         60         10
        FBM   [1 -1; 0 1]  in forwards, w broadcast, out migrates   20   5      3.2      80.0 %       100        60         20
        BFS   [1 0; 1 1]   in broadcast, w forwards, out sediments  16   20     0.8      25.0 %       80         48         20
        BSM   [0 1; 1 1]   in broadcast, w stays, out migrates      5    20     0.8      80.0 %       25         15         20
        FFS   [1 0; 1 -1]  in forwards, w forwards, out sediments   16   20     0.8      25.0 %       112        64         40
        FSM   [0 1; 1 -1]  in forwards, w stays, out migrates       5    20     0.8      80.0 %       35         20         40
        FSA   [0 1; 1 0]   in forwards, w stays, out aggregates     5    16     1        100.0 %      25         15         64
        BFM   [1 -1; 1 1]  in broadcast, w forwards, out migrates   20   20     0.8      20.0 %       100        60         80
        SFM   [1 1; 1 -1]  in stays, w forwards, out migrates       20   20     0.8      20.0 %       100        60         80
        SFA   [1 1; 1 0]   in stays, w forwards, out aggregates     20   16     1        25.0 %       80         60         160
        FFA   [1 -1; 1 0]  in forwards, w forwards, out aggregates  20   16     1        25.0 %       100        60         192

      33 transforms refused (--why)

      draw one, step by step:
        automap systolic conv1d --show FBS
      "
    `);
  });

  it("prints the JSON document for scripts", async () => {
    const { designs, refused: count } = await json("conv1d");
    expect(designs).toHaveLength(12);
    expect(count).toBe(33);
    expect(designs.find((d) => d.name === "SBM")).toMatchObject({
      dataflow: "SBM",
      allocation: [[1, 1]],
      schedule: [0, 1],
      pes: 20,
      steps: 5,
      outturn: 3.2,
      utilisation: 0.8,
      registers: { plain: 80, coalesced: 60 },
    });
  });

  it.each([
    ["conv1d --bound 2", 56, 129],
    ["conv1d-single", 12, 33],
    [CONV, 12, 33],
    [`${CONV} --keep-order`, 9, 63],
    ["matmul", 253, 7875],
    ["matmul --array 1", 708, 7875],
    ["conv2d", 708, 7875],
    ["conv2d-single", 708, 7875],
    ["conv2d --array 2", 253, 7875],
    ["2d5pt", 708, 7875],
  ])("finds in %s %i designs", async (line, designs, count) => {
    const found = await json(line);
    expect([found.designs.length, found.refused]).toEqual([designs, count]);
    for (const d of found.designs) expect(d.schedule).toHaveLength(d.allocation[0]?.length ?? 0);
  });

  it("honours parameters, lanes and types", async () => {
    const best = async (line: string) => (await json(line)).designs[0];
    expect(await best("conv1d --r 3 --lanes 8")).toMatchObject({ name: "FBS", pes: 8, steps: 3 });
    expect(await best("conv1d --stride 2")).toMatchObject({ name: "FBS", registers: { plain: 96, coalesced: 64 } });
    expect(await printed("conv1d --dtype f16 --show SBM")).toContain("in f16[20]");
    expect(await printed("conv2d --loops q,s")).toContain("q 16 (a tile of 56), s 3; outside, in sequence: k 64, p 56");
  });

  it("lists the best of each dataflow, all designs, some of them, or the Pareto set", async () => {
    const rows = (text: string): number =>
      text.split("\n").filter((l) => /^ {2}[BFSN][BFSN][AMS](\.\d+)? /.test(l)).length;
    expect(rows(await printed("matmul"))).toBe(19);
    expect(rows(await printed("conv1d --bound 2 --all"))).toBe(56);
    expect(rows(await printed("matmul --top 5"))).toBe(5);
    const pareto = await printed("conv1d --pareto");
    expect(rows(pareto)).toBe(2);
    expect(pareto).toContain("FSA");
  });

  it("names the points that meet under each refused transform", async () => {
    expect(await printed("conv1d --why")).toContain(
      "points (0,1) and (1,0) of (p,r) both run on PE 1 at step 1: T = [1 1; 1 1] takes",
    );
  });
});

describe("automap systolic --show", () => {
  it("draws the values that every PE holds at every step", async () => {
    expect(await printed('"z[c] += x[c+q]*w[q]" --c 4 --q 3 --show SBM')).toMatchInlineSnapshot(`
      "equation  z[c] += x[c+q] * w[q]
      loops     c 4, q 3
      reuse     x (1,-1)   w (1,0)   z (0,1)

      SBM   PE c + q   step q

        x  stays      loaded once by each PE
        w  broadcast  read where it is used
        z  migrates   (0,1) takes 1 step, 1 PE on

        PEs 6   steps 3   outturn 1.333 a step   utilisation 66.7 %
        registers 24, coalesced 18   longest shift 1   boundary loads 9

      x stays
              PE  0  1  2  3  4  5
        step   0  0  1  2  3  .  .
               1  .  1  2  3  4  .
               2  .  .  2  3  4  5

      w broadcast
              PE  0  1  2  3  4  5
        step   0  0  0  0  0  .  .
               1  .  1  1  1  1  .
               2  .  .  2  2  2  2

      z migrates
              PE  0  1  2  3  4  5
        step   0  0  1  2  3  .  .
               1  .  0  1  2  3  .
               2  .  .  0  1  2  3

        on avx512, a core with two AVX-512 units: 1 vector of 16 lanes
        level    trips  multiply-adds         shifts          loads         stores   bound
        step         3           0.50           1.00           0.50           0.00   shifts
        pass         1           0.00           0.00           0.50           1.00   stores
        cycles = the largest of its kinds, steps * step + pass; each kind has a unit of its own
        3 cycles a pass with many in flight, 7.5 if nothing overlaps
        33.5 cycles for one alone: z takes 7 from a step to the next
        multiply-adds: measured 2026-11-21 on one core of a Xeon at 3.7 GHz: 240 G f32 operations a second
          from registers; latency from LLVM's Sapphire Rapids model
        shifts: LLVM's scheduling model of Sapphire Rapids: valignd and vpermps on port 5
        loads: two vector loads a cycle: Intel Optimization Reference Manual, Golden Cove; AMD Zen 5
          Optimization Guide
        stores: assumed: one vector store a cycle, what 512-bit stores reach on Golden Cove and Zen 5

        recurrence equation
        loops c 4, q 3
        tensors z f32[4], x f32[6], w f32[3]
        variables X f32, W f32, Z f32
        X[c,q] = x[c+q]
        W[c,q] = w[q]
        Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]
        z[c] = Z[c,q] where q == 2
      "
    `);
  });

  it.each([
    ["FFS", "output-stationary", "a forwards", "b forwards", "out sediments", "PE m, n   step m + n + k"],
    ["FSM", "weight-stationary", "a forwards", "b stays", "out migrates", "PE n, k   step m + n + k"],
  ])("draws %s, the %s array of a matrix product", async (name, _, ...said) => {
    const text = await printed(`matmul --m 3 --n 3 --k 3 --show ${name}`);
    for (const words of said) expect(text).toContain(words);
    expect(text.match(/^step \d$/gm)).toHaveLength(7);
    // Halfway all three diagonals are in the array.
    const grids = text.split(/^step \d$/m)[4];
    expect(
      grids
        ?.split("\n")
        .slice(2, 5)
        .map((l) => l.trimEnd()),
    ).toEqual(
      name === "FFS"
        ? [
            "    . 0,2 0,1       . 2,1 1,2       . 0,1 0,2",
            "  1,2 1,1 1,0     2,0 1,1 0,2     1,0 1,1 1,2",
            "  2,1 2,0   .     1,0 0,1   .     2,0 2,1   .",
          ]
        : [
            "    . 2,1 1,2      . 1,0 2,0      . 2,0 1,0",
            "  2,0 1,1 0,2    0,1 1,1 2,1    2,1 1,1 0,1",
            "  1,0 0,1   .    0,2 1,2   .    1,2 0,2   .",
          ],
    );
  });

  it("draws into an SVG file", async () => {
    for (const [line, rects] of [
      [`${CONV} --show SBM`, 3 * 20 * 5],
      ["matmul --m 3 --n 3 --k 3 --show FFS", 3 * 9 * 7],
    ] as const) {
      const file = join(scratch, "array.svg");
      await printed(`${line} --svg ${file}`);
      const svg = readFileSync(file, "utf8");
      expect(svg).toMatch(/^<svg [\s\S]*<\/svg>\n$/);
      expect(svg.match(/rx="3"/g)).toHaveLength(rects);
      // Idle cells are as large as the others.
      expect(new Set([...svg.matchAll(/ (width="\S+" height="\S+") rx="3"/g)].map(([, size]) => size)).size).toBe(1);
      // No two cells of a drawing lie over one another.
      const places = [...svg.matchAll(/<rect[^>]* x="(\S+)" y="(\S+)"[^>]* rx="3"/g)].map(([, x, y]) => `${x} ${y}`);
      expect(new Set(places).size).toBe(rects);
      expect(svg).not.toMatch(/<script|href=|NaN|undefined/);
    }
  });
});

describe("a transform given by the user", () => {
  it("is judged and drawn", async () => {
    const text = await printed("conv2d --r 5 --s 5 --allocation 1,0,1 --schedule 0,1,5");
    expect(text).toContain("PE q + s   step r + 5*s");
    expect(text).toContain("PEs 20   steps 25   outturn 0.64 a step   utilisation 80.0 %");
    const { designs } = await json(`conv2d --r 5 --s 5 --allocation 1,0,1 --schedule "0,0,1;0,1,0"`);
    expect(designs).toMatchObject([
      { dataflow: "SBM", schedule: [0, 1, 5], registers: { plain: 180, coalesced: 140 } },
    ]);
  });

  it.each([
    ["--allocation 1,1 --schedule 1,1", "points (0,1) and (1,0) of (c,q) both run on PE 1 at step 1"],
    [
      "--allocation 1,1 --schedule 0,-1 --keep-order",
      "the dependence (0,1) of z runs backwards in time: (0,-1).(0,1) = -1",
    ],
    ["--allocation 1,1 --schedule 0,1 --registers 50", "SBM needs 60 registers coalesced, the target has 50"],
  ])("is refused with exit code 3: %s", async (options, sentence) => {
    expect(await refused(`${CONV} ${options}`)).toContain(sentence);
    const { designs, refusals } = JSON.parse(await refused(`${CONV} ${options} --json`));
    expect(designs).toEqual([]);
    expect(refusals[0].because).toContain(sentence);
  });

  it.each([
    ["--allocation 1,1 --schedule 0,1,2", "schedule row (0,1,2) has 3 entries, the array has 2 loops (c, q)"],
    ["--allocation 1,1", "--schedule is missing"],
    ["--allocation 1,x --schedule 0,1", '"x" is not an integer'],
    ["--allocation 0,0 --schedule 0,1", "is zero"],
  ])("is a usage error when it is no transform: %s", async (options, sentence) => {
    expect(await complaint(`${CONV} ${options}`)).toContain(sentence);
  });
});

describe("a file of recurrences", () => {
  const file = join(scratch, "wavefront.ure");
  writeFileSync(
    file,
    "loops i 8, j 6\nP[i,j] = max(select(i == 0, 0, P[i-1,j]), select(j == 0, 0, P[i,j-1])) + x[i,j]\ny[i,j] = P[i,j]\n",
  );

  it("keeps its dependences, so that only wavefronts remain", async () => {
    const { designs } = await json(file);
    expect(designs.map((d) => d.schedule)).toEqual([
      [1, 1],
      [1, 1],
      [1, 1],
    ]);
    expect(await refused(`${file} --allocation 1,0 --schedule 1,-1`)).toContain(
      "the dependence (0,1) of P runs backwards in time: (1,-1).(0,1) = -1",
    );
  });

  it("takes no extents besides its own, and must exist", async () => {
    expect(await complaint(`${file} --i 4`)).toContain("--i has no place there");
    expect(await complaint("no-such.ure")).toContain("cannot read no-such.ure");
  });
});

describe("a specification", () => {
  const text = readFileSync("examples/sbm.ure", "utf8");
  const written = (name: string, change: (text: string) => string): string => {
    const file = join(scratch, name);
    writeFileSync(file, change(text));
    return file;
  };

  it("among the examples is one design: drawn, judged and emitted with its tiles", async () => {
    const shown = await printed("examples/sbm.ure");
    expect(shown).toContain("sbm    out[c] += x[c+q] * w[q]");
    expect(shown).toContain("PE c_in + q   step q");
    expect(shown).toContain("PEs 16   steps 5   outturn 2.4 a step   utilisation 75.0 %");
    const { designs } = await json("examples/sbm.ure");
    expect(designs).toMatchObject([{ dataflow: "SBM", allocation: [[1, 1]], schedule: [0, 1], pes: 16, steps: 5 }]);
    const source = await printed("examples/sbm.ure --emit cpp");
    expect(source).toContain("for parallel c_tile in 0..4");
    expect(source).toContain("automap systolic examples/sbm.ure --emit cpp");
  });

  it("without a transform is listed, as the other example is", async () => {
    expect((await json("examples/gemm.ure")).designs).toHaveLength(253);
    const bare = written("bare.ure", (t) => t.split("merge_ures")[0] ?? "");
    expect((await json(bare)).designs).toHaveLength(12);
  });

  it.each([
    ["[[1,1],[0,1]]", "[[1,1],[2,2]]", "both run on PE"],
    ["[[1,1],[0,1]], [q = t, c_in = k-q]", "[[1,0],[1,0]]", "takes their difference"],
  ])("whose points meet is refused with exit code 3, naming them: %s as %s", async (from, to, sentence) => {
    const file = written("collides.ure", (t) => t.replace(from, to));
    expect(await refused(file)).toContain(sentence);
  });

  it.each([
    ["c_in = k-q", "c_in = k+q", "the reverse transform does not invert: point"],
    ["gpu_blocks", "gpu_block", 'no primitive "gpu_block"'],
    ["x[c+q]", "x[c*q]", "index of x[c*q] is not affine"],
    ["tile(c,", "tile(d,", 'tile: no loop "d"'],
    ["[[1,1],[0,1]]", "[[1,1,0],[0,1,0]]", "3 entries for 2 source loops"],
    ["Z[c,q-1]", "Z[c,2*q]", "is not uniform"],
    ["loops c 40, q 5", "loops c 40", "X[c,q] must name every loop in order: X[c]"],
  ])("that is wrong is a usage error: %s as %s", async (from, to, sentence) => {
    const file = written("wrong.ure", (t) => t.replace(from, to));
    expect(await complaint(file)).toContain(sentence);
  });

  it("marks the position of a mistake, and takes no other transform besides its own", async () => {
    expect(await complaint(written("mark.ure", (t) => t.replace("gpu_blocks", "gpu_block")))).toMatch(
      /gpu_block\(c_tile\)\n\s*\^+/,
    );
    expect(await complaint("examples/sbm.ure --allocation 1,1 --schedule 0,1")).toContain("--allocation has no place");
    expect(await complaint("examples/sbm.ure --show FBS")).toContain('no design "FBS"');
  });
});

describe("a polyphase form", () => {
  it("is listed beside its design: 18 PEs of 5 steps instead of 35", async () => {
    const text = await printed("conv1d --stride 2 --bound 2");
    expect(text).toMatch(/SBM {2,}\[2 1; 0 1\] .* 35 {3}5 .* 45\.7 %/);
    expect(text).toMatch(/SBM\.polyphase {2}\[1 1 0; 0 1 3\] .* 18 {3}5 .* 88\.9 %/);
    expect(text).toContain("polyphase: r = 2*r_outer + r_phase; columns of the matrix p, r_outer, r_phase");
    const shown = await printed("conv1d --stride 2 --bound 2 --show SBM.polyphase");
    expect(shown).toContain("SBM.polyphase   PE p + r_outer   step r_outer + 3*r_phase");
    expect(shown).toContain("PEs 18   steps 5   outturn 3.2 a step   utilisation 88.9 %");
  });

  it("does not exist for a design without idle PEs", async () => {
    expect(await complaint("conv1d --show SBM.polyphase")).toContain("SBM has no polyphase form");
    const isSplit = async (name: string): Promise<boolean> =>
      /"split": \{\s+"loop": "r"/.test(await printed(`conv1d --stride 2 --bound 2 --show ${name} --json`));
    expect([await isSplit("SBM"), await isSplit("SBM.polyphase")]).toEqual([false, true]);
  });
});

describe("cycles", () => {
  const extra = z.object({
    designs: z.array(z.object({ name: z.string(), cycles: z.number(), latencyCycles: z.number() })),
  });
  it.each(["avx512", "warp", "gen9"])("rank the designs of %s, fewest first", async (machine) => {
    const { designs } = extra.parse(JSON.parse(await printed(`conv1d --machine ${machine} --json`)));
    const cycles = designs.map((d) => d.cycles);
    expect(cycles).toEqual(cycles.toSorted((a, b) => a - b));
    expect(designs.every((d) => d.latencyCycles > d.cycles)).toBe(true);
  });

  it("are explained level by level, with the source of the machine's figures", async () => {
    const text = await printed(`${CONV} --show FBS`);
    expect(text).toContain("on avx512, a core with two AVX-512 units: 1 vector of 16 lanes");
    expect(text).toMatch(/step {9}5 .* shifts\n/);
    expect(text).toMatch(/\d cycles for one alone: z takes 4 from a step to the next/);
    expect(text).toContain("shifts: LLVM's scheduling model");
    expect(await complaint("conv1d --machine zx81")).toContain('no machine "zx81"');
  });
});

describe("automap systolic --emit", () => {
  it.each([
    ["cuda", "__shfl_up_sync"],
    ["cm", "_GENX_MAIN_"],
    ["cpp", "_mm512_"],
  ])("prints a kernel in %s with the command that remakes it", async (language, word) => {
    const source = await printed(`${CONV} --show SBM --coalesced --emit ${language}`);
    expect(source).toContain(word);
    expect(source).toContain(`--show SBM --coalesced --emit ${language}`);
    const file = join(scratch, "kernel.txt");
    expect(await printed(`${CONV} --show SBM --coalesced --emit ${language} --to ${file}`)).toBe("");
    expect(readFileSync(file, "utf8").trimEnd()).toBe(source.trimEnd());
  });
});

describe("automap systolic --emit --json", () => {
  it("holds the design and its source", async () => {
    const shape = z.object({ schemaVersion: z.literal(1), language: z.string(), source: z.string() });
    const { language, source } = shape.parse(JSON.parse(await printed(`${CONV} --show SBM --emit cpp --json`)));
    expect(language).toBe("c++");
    expect(source).toContain("_mm512_");
  });
});

describe("wrong arguments", () => {
  it.each([
    ["convv1d", 'did you mean "conv1d"?'],
    ["conv1d --bound 99", "--bound 99 is too large for 2 loops"],
    ["conv1d --bound 0", "--bound must be a positive integer"],
    ["conv1d --lanes x", "--lanes must be a positive integer"],
    ["conv1d --array 2", "2 loops leave 0 for time; there must be one or two\n  use --array 1"],
    [
      "conv2d-single --array 1 --loops p,q,r,s",
      "4 loops leave 3 for time; there must be one or two\n  use --array 2, or name fewer",
    ],
    ["conv1d --array 3", "--array is 1 (a row of PEs) or 2 (a plane)"],
    ["conv1d --show XYZ", 'no design "XYZ"'],
    ["conv1d --loops p,z", 'no loop "z"'],
    ["conv1d --loops p", "an array needs two loops"],
    ["conv1d --dtype u8s8 --emit cpp", "lanes of x86 compute in f32, f64, s32, s16 and f16"],
    ['"y[i,j] = y[i-1,j] + x[i,j]" --i 64 --j 8 --emit cpp', "i_tile does"],
    ["conv1d --emit fortran", "--emit is cm, cuda, cpp, opencl, sycl"],
    ["conv1d --to x.cu", "it needs --emit"],
    ['"z[c] += x[c+q]*w[q]" --c 16', "q need"],
  ])("get a sentence: %s", async (line, sentence) => {
    expect(await complaint(line)).toContain(sentence);
    expect(existsSync("x.cu")).toBe(false);
  });

  it("can be looked up in a help text that fits a terminal", async () => {
    const help = await printed("--help");
    expect(Math.max(...help.split("\n").map((l) => l.length))).toBeLessThanOrEqual(100);
    expect(help).toContain("Usage: automap systolic ");
  });
});
