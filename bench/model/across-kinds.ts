/**
 * @file Whether the models of the kinds of candidates agree: the best few candidates of each kind that a search would propose, predicted and measured on
 * this machine's cores.
 *
 *     npm run build
 *     node dist/bench/model/across-kinds.js > bench/results/across-kinds.md       some ten minutes on a quiet machine
 *     node dist/bench/model/across-kinds.js --cases "wide 3x3 NHWC" --candidates 8
 *
 * Candidates are bred as in the first round of a search, for each kind alone. Predictions are of the calibrated machine, and nothing is learnt.
 */

import type { Candidate } from "../../abstraction/candidate.ts";
import { unique } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { calibrateMachine } from "../../session/calibrate/calibrate.ts";
import { chooseSpace, usableIntrinsics } from "../../session/kinds/choose.ts";
import { SESSION_KINDS } from "../../session/kinds/kinds.ts";
import type { SessionSpace } from "../../session/kinds/session-space.ts";
import { operation } from "../../test/support/subjects.ts";
import { genetic } from "../../tuner/genetic.ts";
import { fillOptions } from "../../tuner/strategy.ts";
import { cpuName, cpuRunner, geomean, leastOf, page, table, us } from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "all" },
    candidates: { type: "string", default: "3" },
  },
});

/** Convolutions of networks in both layouts, and what windows and time steps are for. */
const CASES: Readonly<Record<string, Computation>> = {
  "wide 3x3 NHWC": operation("conv2d c=128 k=128 h=112 w=112 r=3 s=3 pad=1 NHWC"),
  "wide 3x3 NCHW": operation("conv2d c=128 k=128 h=112 w=112 r=3 s=3 pad=1"),
  "3x3 of 64 at 56 NHWC": operation("conv2d c=64 k=64 h=56 w=56 r=3 s=3 pad=1 NHWC"),
  "3x3 of 64 at 56 NCHW": operation("conv2d c=64 k=64 h=56 w=56 r=3 s=3 pad=1"),
  "3x3 of 512 at 7 NCHW": operation("conv2d c=512 k=512 h=7 w=7 r=3 s=3 pad=1"),
  "1x1 stride 2 NHWC": operation("conv2d c=64 k=128 h=56 w=56 r=1 s=1 stride=2 NHWC"),
  "1x1 stride 2 NCHW": operation("conv2d c=64 k=128 h=56 w=56 r=1 s=1 stride=2"),
  "7x7 stride 2 NHWC": operation("conv2d c=3 k=64 h=224 w=224 r=7 s=7 stride=2 pad=3 NHWC"),
  "7x7 stride 2 NCHW": operation("conv2d c=3 k=64 h=224 w=224 r=7 s=7 stride=2 pad=3"),
  "depthwise NHWC": operation("depthwise-conv2d c=128 h=56 w=56 m=1 r=3 s=3 pad=1 NHWC"),
  "depthwise NCHW": operation("depthwise-conv2d c=128 h=56 w=56 m=1 r=3 s=3 pad=1"),
  "depthwise stride 2 NCHW": operation("depthwise-conv2d c=128 h=56 w=56 m=1 r=3 s=3 stride=2 pad=1"),
  "matrix product": operation("matmul m=512 n=512 k=512"),
  "filter 9x9": operation("conv2d-single h=1024 w=1024 r=9 s=9"),
  "filter 5x5 of s16": operation("conv2d-single h=512 w=512 r=5 s=5", "s16"),
  "3x3 of u8s8 NHWC": operation("conv2d c=64 k=64 h=56 w=56 r=3 s=3 pad=1 NHWC", "u8s8"),
  "depthwise of u8s8 NHWC": operation("depthwise-conv2d c=128 h=56 w=56 m=1 r=3 s=3 pad=1 NHWC", "u8s8"),
  "stencil 3d7pt": operation("3d7pt d=64 h=64 w=64"),
};

const known = Object.keys(CASES);
const chosen = values.cases === "all" ? known : values.cases.split(",").map((name) => wordOf("cases", name, known));

/** A candidate, its predicted and its measured seconds. */
interface Judged {
  readonly kind: Candidate["kind"];
  readonly predicted: number;
  readonly measured: number;
}

const rows: string[][] = [];
const factors = new Map<string, number[]>();
/** For each case with several kinds, whether the kind with the best prediction is measured fastest. */
const compared: boolean[] = [];
const calibrated = await calibrateMachine(":memory:", {}, (text) => console.error(text));
const calibration = calibrated.status === "calibrated" ? calibrated.calibration : undefined;
const runner = await cpuRunner({ budgetSeconds: 0.1, memoryBytes: 2 ** 32 });
try {
  for (const name of chosen) add(name, await judged(CASES[name] as Computation)); // its name was checked
} finally {
  await runner.close();
}
const of = [...factors].map(([kind, all]) => [kind, all.length, geomean(all).toFixed(2)]);
console.log(
  page(
    "Kinds of candidates on one scale",
    `Judged on ${cpuName()}, one thread: the ${values.candidates} best of each kind that the first round of a search would propose. "predicted" and "measured" are the shortest times of a kind in us, of a kernel its fastest batch; "factor" is measured over predicted time of the candidate with the best prediction, "slowest" the longest measured time. Of ${compared.length} cases with more than one kind, ${compared.filter(Boolean).length} have the kind with the best prediction measured fastest.`,
    ...table(["case", "kind", "predicted", "measured", "factor", "slowest", "best"], rows),
    "",
    ...table(["kind", "cases", "factor, geometric mean"], of),
  ),
);

async function judged(computation: Computation): Promise<readonly Judged[]> {
  const found = finished(chooseSpace(computation, usableIntrinsics(), { calibration, threads: 1, seed: 1 }));
  if ("refused" in found) throw new Error(found.refused[0]?.because);
  const { space } = found;
  const candidates = Object.values(SESSION_KINDS).flatMap(({ kind }) => bestOf(space, kind));
  const kernels = candidates.map((c) => space.kernelOf(c));
  const measured: Measurement[] = [];
  for await (const answer of runner.race(kernels, await runner.reference(computation, 1))) measured.push(answer);
  return candidates.map((candidate, i) => ({
    kind: candidate.kind,
    predicted: space.predict(candidate)?.seconds ?? Number.NaN,
    measured: leastOf(measured[i]),
  }));
}

/** The candidates of a kind that a search of this kind alone would propose first. */
function bestOf(space: SessionSpace, kind: Candidate["kind"]): readonly Candidate[] {
  const count = Number(values.candidates);
  const expected = (c: Candidate): number | undefined => (c.kind === kind ? space.predict(c)?.seconds : undefined);
  const search = {
    space: { ...space, representatives: [] },
    random: seededRandom(1),
    batch: count,
    trials: [],
    tried: () => false,
    expected,
    recorded: () => [],
    meanwhile: () => undefined,
  };
  const options = fillOptions(genetic, { different: 0, explore: 0 }) as never;
  for (const round of genetic.propose<Candidate>(search, options)) return round.filter((c) => c.kind === kind);
  return [];
}

function add(name: string, all: readonly Judged[]): void {
  const kinds = unique(all.map(({ kind }) => kind));
  const [fastest] = all.toSorted((a, b) => a.measured - b.measured);
  const [expected] = all.toSorted((a, b) => a.predicted - b.predicted);
  if (kinds.length > 1) compared.push(fastest?.kind === expected?.kind);
  for (const kind of kinds) {
    const own = all.filter((one) => one.kind === kind);
    const [first] = own.toSorted((a, b) => a.predicted - b.predicted);
    const times = own.map(({ measured }) => measured).filter(Number.isFinite);
    if (!first || times.length < own.length) throw new Error(`a ${kind} of ${name} failed`);
    const factor = first.measured / first.predicted;
    factors.set(kind, [...(factors.get(kind) ?? []), factor]);
    const best = [...(kind === expected?.kind ? ["predicted"] : []), ...(kind === fastest?.kind ? ["measured"] : [])];
    const figures = [us(first.predicted), us(Math.min(...times)), factor.toFixed(2), us(Math.max(...times))];
    rows.push([name, kind, ...figures, best.join(" and ")]);
    console.error(rows.at(-1)?.join("  "));
  }
}
