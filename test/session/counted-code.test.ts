/**
 * @file Instructions counted in compiled code take the place of estimated ones in the model, and reorder its ranking. The code was recorded: what
 * ocloc made for PVC of golden/matmul.tile.cl, with operands as written and comments left out.
 */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { axis, compare, number } from "../../abstraction/expression.ts";
import type { Kernel, PrintedIssues } from "../../abstraction/kernel.ts";
import type { Loop } from "../../abstraction/loop-nest.ts";
import { code, skeleton } from "../../abstraction/source-text.ts";
import { IssueCount } from "../../codegen/subgroup/subgroup.ts";
import { type LanguagePrinter, printStatements } from "../../codegen/walk.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { type CountedCode, countedCycles } from "../../perfmodel/counted-code.ts";
import { type IsaLoop, loopsIn } from "../../runtime/isa-loops.ts";
import { functionIn, type IntelBuild } from "../../runtime/ocloc.ts";
import { countedCode, mainLoop } from "../../session/judge/counted-code.ts";
import { rankCounted } from "../../session/judge/counted-ranking.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { mappingOf } from "../../session/recorded.ts";
import { predictorFor } from "../../session/tune/predict.ts";
import { type Expected, rankOf } from "../../session/tune/rank.ts";
import { predictedGpuNamed } from "../../targets/index.ts";
import { kernelsOf } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

const RECORDED = readFileSync(new URL("../fixtures/matmul.tile.pvc.asm", import.meta.url), "utf8");
const machine = predictedGpuNamed("pvc");
if (!machine) throw new Error("no target pvc");
const row = intrinsicNamed("opencl.dpas.8x16.f32.f16");
const [made] = kernelsOf(operation("matmul m=21 n=19 k=37", "f16"), row ? [row] : [], 1);
if (made?.candidate.kind !== "mapping") throw new Error("nothing was made");
const { computation, candidate, kernel } = made;

it("counts the loops of a text in its order: those of a condition's first body before those of the other", () => {
  const count = new IssueCount();
  const loop = (extent: number): Loop => ({ kind: "loop", axis: `of_${extent}`, extent, mode: "serial", body: [] });
  const language: LanguagePrinter = {
    openLoop: () => code`for (;;) {`,
    openWhen: () => code`if (x) {`,
    row: ({ extent }) =>
      count.inside(extent, () => {
        count.add();
        return [code`issue(${extent});`];
      }),
  };
  const condition = compare("<", axis("x"), number(1));
  const text = printStatements([{ kind: "when", condition, body: [loop(2)], otherwise: [loop(3)] }], language);
  expect(text.map(skeleton)).toEqual(["if (x) {", "  issue(2);", "} else {", "  issue(3);", "}"]);
  expect(count.printed().loops.map(({ trips }) => trips)).toEqual([2, 3]);
});

describe("the loops of recorded code", () => {
  it("are counted without those inside", () => {
    const { code, instructions, registers } = functionIn(RECORDED);
    expect({ instructions, registers }).toEqual({ instructions: 660, registers: 128 });
    expect(drawn(code)).toEqual([
      "110 instructions, 2 sends, 0 products",
      "  166 instructions, 48 sends, 0 products",
      "    74 instructions, 18 sends, 2 products",
      "    40 instructions, 10 sends, 1 products",
      "  150 instructions, 42 sends, 0 products",
      "    77 instructions, 18 sends, 2 products",
      "    43 instructions, 10 sends, 1 products",
    ]);
  });

  it("may end in either kind of jump, and share their beginning or overlap, and are then one", () => {
    const text = (jumps: string): string => `_0:\n        dpas.8x8 (8|M0) r1:d\n_1:\n        mov (8|M0) r1\n${jumps}`;
    expect(drawn(loopsIn(text("(W&f0.1) jmpi _0\n        add (8|M0) r1\n(f1.0) goto.b (8|M0) _9 _1\n")))).toEqual([
      "0 instructions, 0 sends, 0 products",
      "  5 instructions, 0 sends, 1 products",
    ]);
    expect(drawn(loopsIn(text("(f1.0) goto (8|M0) _9 _1\n(W) jmpi _0\n        store.ugm.d32 (8|M0) r1\n")))).toEqual([
      "1 instructions, 1 sends, 0 products",
      "  2 instructions, 0 sends, 1 products",
      "    2 instructions, 0 sends, 0 products",
    ]);
  });
});

describe("a kernel's text beside its code", () => {
  it("says how often a call runs each loop", () => {
    const code = countedCode(kernel, [functionIn(RECORDED)]);
    if ("uncounted" in code) throw new Error(code.uncounted);
    expect(code.loops.map(({ executions, products }) => [executions, products])).toEqual([
      [1, 0],
      [1, 0],
      [3, 2],
      [3, 1], // 3 steps of k; of the 21 columns, 16 in two tiles and the others in one
      [1, 0],
      [3, 2],
      [3, 1],
    ]);
    expect(mainLoop(code)).toMatchObject({ instructions: 74, sends: 18, products: 2 });
    const { registers } = functionIn(RECORDED);
    expect(registers).toBeGreaterThan(0);
    expect(code.registers).toBe(registers);
  });

  it("is not counted where the compiler has changed its loops", () => {
    const merged = RECORDED.replace(/^(\s+dpas.*)$/m, "$1\n$1");
    expect(countedCode(kernel, [functionIn(merged)])).toEqual({
      uncounted: "the compiler changed the loops of automap_phase_1",
    });
    expect(countedCode(kernel, [])).toEqual({ uncounted: "no code of automap_phase_1" });
  });
});

describe("the model with counted instructions", () => {
  const predict = (code?: CountedCode) => {
    const found = predictorFor(undefined, machine).predict(
      mappingOf(computation, candidate),
      candidate.schedule,
      code && { code },
    );
    if (!found) throw new Error("nothing predicted");
    return { seconds: found.seconds, ...found.levels[0] };
  };
  const counted = (text: string): CountedCode => {
    const code = countedCode(kernel, [functionIn(text)]);
    if ("uncounted" in code) throw new Error(code.uncounted);
    return code;
  };

  it("takes them in place of its own", () => {
    expect(predict(counted(RECORDED)).inner).toBeGreaterThan(predict().inner ?? 0);
    const around = { executions: 2, instructions: 300, sends: 24, products: 0, hasOthers: true };
    const inside = { executions: 8, instructions: 117, sends: 26, products: 3, hasOthers: false };
    const known = { issueCycles: 16, latencyCycles: 20, instructionsPerCycle: 1, sendsPerCycle: 0.5, window: 256 };
    const sums = { accumulators: 3, summedSteps: 4, issues: 12 };
    // Of 24 products the thread issues 12, so it runs half of each loop.
    expect(countedCycles({ registers: 128, loops: [around, inside] }, { ...known, ...sums })).toEqual({
      chain: 4 * 20,
      frontEnd: 4 * 117,
      arithmetic: 4 * 117,
      sends: 2 * (24 + 4 * 26),
      around: 300,
      hasOthers: true,
    });
    const slow = { ...known, ...sums, issueCycles: 50 };
    expect(countedCycles({ registers: 128, loops: [around, inside] }, slow).arithmetic).toBe(4 * 3 * 50);
  });

  it("finds code slower that has more instructions or more sends, and none faster for more registers", () => {
    const { seconds } = predict(counted(RECORDED));
    const more = (line: string): string => RECORDED.replace(/^(\s+dpas.*)$/gm, `$1\n${line.repeat(40)}`);
    expect(predict(counted(more("        mov (16|M0) r1.0<1>:f r2.0<1;1,0>:f\n"))).seconds).toBeGreaterThan(seconds);
    const sends = predict(counted(more("        load.ugm.d32.a64 (16|M0) r1:1 [r2:2]\n")));
    const others = predict(counted(more("        mov (16|M0) r1.0<1>:f r2.0<1;1,0>:f\n")));
    expect(sends.read).toBeGreaterThan(others.read ?? 0);
    // Twice the registers leave half the threads, so that the latency of products is less hidden.
    expect(predict(counted(RECORDED.replace("numGRF=128", "numGRF=256"))).seconds).toBeGreaterThanOrEqual(seconds);
  });
});

describe("a ranking by counted instructions", () => {
  const product = operation("matmul m=256 n=256 k=256", "f16");
  const found = rankOf(product, { machine, intrinsics: row ? [row] : [], count: 30 }, 60);
  if ("refused" in found) throw new Error(found.refused[0]?.because);
  const textOf = ({ candidate: one }: Expected): string => kernelFor(product, one, machine).source;
  const [liked, second] = found.map(textOf);

  it("puts a kernel behind others whose code is shorter, and drops what spills", async () => {
    const compile = (k: Kernel): Promise<IntelBuild> =>
      Promise.resolve(
        k.source === second ? { status: "spilled", log: "spilled around 2" } : built(k, k.source === liked ? 400 : 4),
      );
    const { ranking, dropped } = await rankCounted(product, found, machine, { compile, most: 8 });
    expect(ranking).toHaveLength(29);
    const places = ranking.flatMap(({ compiled }, i) => (compiled ? [[i, compiled.kernel.source === liked]] : []));
    expect(places).toEqual([0, 1, 2, 3, 4, 5, 6].map((i) => [i, i === 6]));
    expect(dropped.map(({ why }) => why)).toEqual(["spilled: spilled around 2"]);
    const [first] = ranking;
    if (!first?.compiled) throw new Error("not compiled");
    expect(first.compiled.estimated.seconds).not.toBe(first.prediction.seconds);
  });

  it("keeps what the compiler failed on, behind what was counted", async () => {
    const compile = (k: Kernel): Promise<IntelBuild> =>
      Promise.resolve(k.source === liked ? { status: "compile-failed", log: "no such device" } : built(k, 400));
    const { ranking, dropped } = await rankCounted(product, found, machine, { compile, most: 8 });
    expect([ranking.length, dropped]).toEqual([30, []]);
    expect(ranking.flatMap(({ compiled }, i) => (compiled?.kernel.source === liked ? [i] : []))).toEqual([7]);
  });

  it("learns from what is counted which candidates to compile next", async () => {
    const isPadded = ({ candidate: c }: Expected): boolean => JSON.stringify(c).includes("padded");
    const compiledOf = async (slow: (expected: Expected) => boolean): Promise<Expected[]> => {
      const slowTexts = new Set(found.filter(slow).map(textOf));
      const compile = (k: Kernel): Promise<IntelBuild> => Promise.resolve(built(k, slowTexts.has(k.source) ? 900 : 4));
      const { ranking } = await rankCounted(product, found, machine, { compile, most: 12 });
      return ranking.filter(({ compiled }) => compiled);
    };
    const padded = found.filter(isPadded).length;
    expect([padded > 3, padded < 27]).toEqual([true, true]);
    const whenSlow = await compiledOf(isPadded);
    const otherwise = await compiledOf((e) => !isPadded(e));
    expect(whenSlow.filter(isPadded).length).toBeLessThan(otherwise.filter(isPadded).length);
  });

  it("that was stopped keeps the estimated order", async () => {
    const compile = (): Promise<IntelBuild> => Promise.reject(new Error("compiling was stopped"));
    const { ranking } = await rankCounted(product, found, machine, { compile, signal: AbortSignal.abort() });
    expect(ranking).toEqual(found);
  });
});

/** A loop, and those inside it behind two blanks more. */
const drawn = ({ instructions, sends, products, loops }: IsaLoop): string[] => [
  `${instructions} instructions, ${sends} sends, ${products} products`,
  ...loops.flatMap(drawn).map((line) => `  ${line}`),
];

/** Code of a kernel's text that keeps its loops, with so many instructions for each product. */
function built({ opencl }: Kernel, perProduct: number): IntelBuild {
  const codeOf = ({ issues, loops }: PrintedIssues): IsaLoop => ({
    instructions: 10 + issues * perProduct,
    sends: issues,
    products: issues,
    loops: loops.map(codeOf),
  });
  const all = ({ products, loops }: IsaLoop): number => products + loops.map(all).reduce((a, b) => a + b, 0);
  const functions = (opencl?.issues ?? []).map((issues, phase) => {
    const code = codeOf(issues);
    const name = `automap_phase_${phase}`;
    return { name, dpas: all(code), instructions: 0, registers: 128, spilledBytes: 0, code };
  });
  return { status: "compiled", functions };
}
