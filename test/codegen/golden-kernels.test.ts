/**
 * @file What the model likes best, of every kind of candidate on several machines, to the last digit: its prediction, and its kernel by a hash.
 * A change of a model, of a space, of its order or of a printer shows here; whether a kernel is right is the subject of other files.
 *
 *     vitest run test/codegen/golden-kernels.test.ts --update       after a change that is meant
 */

import { expect, it } from "vitest";
import type { Candidate, CandidateKinds } from "../../abstraction/candidate.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { sessionKindOf } from "../../session/kinds/kinds.ts";
import { type Expected, rankOf } from "../../session/tune/rank.ts";
import { hashOf, machineNamed } from "../support/machines.ts";
import { stated } from "../support/subjects.ts";

const DRAWS = 12;

const SUBJECTS: readonly (readonly [line: string, on: string, kinds?: CandidateKinds])[] = [
  ["matmul --m 37 --n 64 --k 48 --dtype bf16 --epilogue bias-relu", "xeon h100 dg2 v1"],
  ["matmul --m 128 --n 96 --k 64 --dtype f16", "h100"],
  ["matmul --m 64 --n 64 --k 32 --dtype u8s8 --epilogue requantize", "xeon v1 dg2 mali", "mappings"],
  ["matmul --m 12 --n 20 --k 16", "xeon h100", "lanes"],
  ["matmul --m 12 --n 20 --k 16 --dtype f64", "xeon h100"],
  ["conv1d --n 1 --c 4 --k 16 --l 30", "xeon h100 mali"],
  ["grouped-fc --n 4 --i 32 --o 32 --groups 2 --dtype s8", "xeon"],
  ["2d5pt --h 64 --w 64", "xeon h100"],
  ["3d7pt --d 8 --h 16 --w 32", "xeon h100"],
  ["scan --m 16 --n 32", "xeon h100"],
  ["mttkrp --i 8 --j 16 --k 4 --l 4", "xeon h100"],
  ["variance --n 1 --c 4 --h 8 --w 8", "xeon h100"],
  ["c[i,j] = select(a[i] == b[j], c[i-1,j-1] + 1, max(c[i-1,j], c[i,j-1])) --i 40 --j 70 --dtype s32", "xeon"],
  ["s[i,j] = 0.75*s[i,j-1] + x[i,j] --i 20 --j 40", "xeon"],
  ["s[i] = 0.75*s[i-1] + x[i] --i 40", "xeon"],
  ["u[t,i,j] = 0.5*u[t-1,i,j] + 0.25*u[t-1,i-1,j] + 0.25*u[t-1,i,j+1] --t 4 --i 24 --j 64", "xeon h100"],
];

/** The best and the worst of each kind, as the model ranks them. */
function outermost(ranked: readonly Expected[]): Expected[] {
  const kinds = [...new Set(ranked.map(({ candidate }) => candidate.kind))];
  const ofKind = kinds.map((kind) => ranked.filter(({ candidate }) => candidate.kind === kind));
  return ofKind.flatMap((all) => [...new Set([...all.slice(0, 1), ...all.slice(-1)])]);
}

const lineOf = ({ kind, intrinsic }: Candidate, seconds: number, source: string): string =>
  `${kind} ${intrinsic}: ${(seconds * 1e6).toPrecision(7)} us, ${hashOf(source)}`;

function rankedText(line: string, on: string, kinds: CandidateKinds = "all"): string {
  const computation = stated(line);
  const told = on.split(" ").flatMap((name) => {
    const machine = machineNamed(name);
    const intrinsics = usableIntrinsics(machine);
    const ranked = rankOf(computation, { machine, intrinsics, kinds, count: DRAWS }, DRAWS);
    if ("refused" in ranked) return [`  ${name}:`, ...ranked.refused.map(({ because }) => `    ${because}`)];
    const lines = outermost(ranked).map(({ candidate, prediction }) => {
      const kernel = sessionKindOf(candidate).kernelOf(computation, candidate, machine, {});
      return `    ${lineOf(candidate, prediction.seconds, kernel.source)}`;
    });
    return [`  ${name}: ${ranked.length} ranked`, ...lines];
  });
  return [line, ...told].join("\n");
}

it("the model's best and worst kernels are those of the golden file", async () => {
  await expect(`${SUBJECTS.map((one) => rankedText(...one)).join("\n")}\n`).toMatchFileSnapshot(
    "../golden/ranked-kernels.txt",
  );
});
