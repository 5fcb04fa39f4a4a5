/**
 * @file What the model likes best, of every kind of candidate on several machines, to the last digit: its prediction, and its kernel by a hash.
 * A change of a model, of a space, of its order or of a printer shows here; whether a kernel is right is the subject of other files.
 *
 *     vitest run test/golden-kernels.test.ts --update       after a change that is meant
 */

import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import type { Candidate, CandidateKinds } from "../abstraction/candidate.ts";
import { readComputation, type SubjectOptions } from "../cli/subject.ts";
import { usableIntrinsics } from "../session/choose.ts";
import { sessionKindOf } from "../session/kinds.ts";
import { type Expected, rankOf } from "../session/rank.ts";
import { armTargetNamed, machineFrom, nvidiaTarget, predictedGpuNamed, targetOf } from "../targets/index.ts";
import { parseCpuInfo } from "../targets/native.ts";

const FLAGS = "fma avx avx2 f16c avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16";
const XEON = targetOf(
  machineFrom(parseCpuInfo(`model name : Testium\nflags : ${FLAGS}\nprocessor : 0\n`), [
    { level: 1, bytes: 48 << 10, sharedBy: 1 },
    { level: 2, bytes: 2 << 20, sharedBy: 1 },
    { level: 3, bytes: 32 << 20, sharedBy: 2 },
  ]),
);
const MACHINES = {
  xeon: XEON,
  h100: nvidiaTarget("h100"),
  dg2: predictedGpuNamed("dg2"),
  mali: predictedGpuNamed("mali-g76"),
  v1: armTargetNamed("neoverse-v1"),
};
const DRAWS = 12;

interface Subject {
  readonly of: string;
  readonly sizes: Readonly<Record<string, number>>;
  readonly options: SubjectOptions;
  readonly on: readonly (keyof typeof MACHINES)[];
  readonly kinds?: CandidateKinds;
}

const SUBJECTS: readonly Subject[] = [
  {
    of: "matmul",
    sizes: { m: 37, n: 64, k: 48 },
    options: { dtype: "bf16", epilogue: "bias-relu" },
    on: ["xeon", "h100", "dg2", "v1"],
  },
  { of: "matmul", sizes: { m: 128, n: 96, k: 64 }, options: { dtype: "f16" }, on: ["h100"] },
  {
    of: "matmul",
    sizes: { m: 64, n: 64, k: 32 },
    options: { dtype: "u8s8", epilogue: "requantize" },
    on: ["xeon", "v1", "dg2", "mali"],
    kinds: "mappings",
  },
  { of: "matmul", sizes: { m: 12, n: 20, k: 16 }, options: { dtype: "f32" }, on: ["xeon", "h100"], kinds: "lanes" },
  { of: "matmul", sizes: { m: 12, n: 20, k: 16 }, options: { dtype: "f64" }, on: ["xeon", "h100"] },
  { of: "conv1d", sizes: { n: 1, c: 4, k: 16, l: 30 }, options: { dtype: "f32" }, on: ["xeon", "h100", "mali"] },
  { of: "grouped-fc", sizes: { n: 4, i: 32, o: 32, groups: 2 }, options: { dtype: "s8" }, on: ["xeon"] },
  { of: "2d5pt", sizes: { h: 64, w: 64 }, options: { dtype: "f32" }, on: ["xeon", "h100"] },
  { of: "3d7pt", sizes: { d: 8, h: 16, w: 32 }, options: { dtype: "f32" }, on: ["xeon", "h100"] },
  { of: "scan", sizes: { m: 16, n: 32 }, options: { dtype: "f32" }, on: ["xeon", "h100"] },
  { of: "mttkrp", sizes: { i: 8, j: 16, k: 4, l: 4 }, options: { dtype: "f32" }, on: ["xeon", "h100"] },
  { of: "variance", sizes: { n: 1, c: 4, h: 8, w: 8 }, options: { dtype: "f32" }, on: ["xeon", "h100"] },
  {
    of: "c[i,j] = select(a[i] == b[j], c[i-1,j-1] + 1, max(c[i-1,j], c[i,j-1]))",
    sizes: { i: 40, j: 70 },
    options: { dtype: "s32" },
    on: ["xeon"],
  },
  { of: "s[i,j] = 0.75*s[i,j-1] + x[i,j]", sizes: { i: 20, j: 40 }, options: { dtype: "f32" }, on: ["xeon"] },
  { of: "s[i] = 0.75*s[i-1] + x[i]", sizes: { i: 40 }, options: { dtype: "f32" }, on: ["xeon"] },
  {
    of: "u[t,i,j] = 0.5*u[t-1,i,j] + 0.25*u[t-1,i-1,j] + 0.25*u[t-1,i,j+1]",
    sizes: { t: 4, i: 24, j: 64 },
    options: { dtype: "f32" },
    on: ["xeon", "h100"],
  },
];

/** The best and the worst of each kind, as the model ranks them. */
function outermost(ranked: readonly Expected[]): Expected[] {
  const kinds = [...new Set(ranked.map(({ candidate }) => candidate.kind))];
  const ofKind = kinds.map((kind) => ranked.filter(({ candidate }) => candidate.kind === kind));
  return ofKind.flatMap((all) => [...new Set([...all.slice(0, 1), ...all.slice(-1)])]);
}

function hashOf(text: string): string {
  return createHash("sha256")
    .update(text.replace(/(made by +automap) .*/, "$1"))
    .digest("hex")
    .slice(0, 8);
}

const lineOf = ({ kind, intrinsic }: Candidate, seconds: number, source: string): string =>
  `${kind} ${intrinsic}: ${(seconds * 1e6).toPrecision(7)} us, ${hashOf(source)}`;

function rankedText({ of, sizes, options, on, kinds = "all" }: Subject): string {
  const computation = readComputation(of, sizes, options);
  const told = on.flatMap((name) => {
    const machine = MACHINES[name];
    if (!machine) throw new Error(`no machine ${name}`);
    const intrinsics = usableIntrinsics(machine);
    const ranked = rankOf(computation, { machine, intrinsics, kinds, count: DRAWS }, DRAWS);
    if ("refused" in ranked) return [`  ${name}:`, ...ranked.refused.map(({ because }) => `    ${because}`)];
    const lines = outermost(ranked).map(({ candidate, prediction }) => {
      const kernel = sessionKindOf(candidate).kernelOf(computation, candidate, machine, {});
      return `    ${lineOf(candidate, prediction.seconds, kernel.source)}`;
    });
    return [`  ${name}: ${ranked.length} ranked`, ...lines];
  });
  return [`${of} ${JSON.stringify(sizes)} ${JSON.stringify(options)}`, ...told].join("\n");
}

it("the model's best and worst kernels are those of the golden file", async () => {
  await expect(`${SUBJECTS.map(rankedText).join("\n")}\n`).toMatchFileSnapshot("golden/ranked-kernels.txt");
});
