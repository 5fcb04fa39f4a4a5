/**
 * @file Random designs on lanes of 16 bits, as candidates for a CPU: windows and designs by their transforms, in s16 on
 * AVX-512 and AVX2 and in f16 on AVX512-FP16.
 */

import type { DesignCandidate, WindowCandidate, WindowSchedule } from "../../../abstraction/candidate.ts";
import { LANE_DATAFLOWS, LINE_USES } from "../../../abstraction/candidate.ts";
import { type Computation, computationKey, defineComputation } from "../../../abstraction/computation.ts";
import { pick, type Random, randomInteger } from "../../../abstraction/random.ts";
import { finished } from "../../../abstraction/steps.ts";
import { windowProblem } from "../../../mapper/schedule/lanes.ts";
import { arrayDesigns, placeArray } from "../../../mapper/space-time/lane-array.ts";
import { lowerWindow } from "../../../mapper/space-time/lower-window.ts";
import { rollable, tapsOf } from "../../../mapper/space-time/taps.ts";
import { tooLongToWrite } from "../../../mapper/space-time/written-length.ts";
import { lowerArray } from "../arrays.ts";
import { type Drawn, type DrawnKind, smallInputs } from "./drawn.ts";

export type WordType = "s16" | "f16";

/** A design of a computation, or why it has none. */
export type DrawnWords =
  | { readonly computation: Computation; readonly candidate: WindowCandidate | DesignCandidate }
  | { readonly because: string };

const INSTRUCTIONS = {
  s16: { 32: "avx512.vpmullw", 16: "avx2.vpmullw" },
  f16: { 32: "avx512.fma.f16", 16: undefined },
} as const;

/** Lines, images and grids with windows of any place; strides, channels and several filters for transforms. */
const EQUATIONS: readonly ((random: Random) => readonly [string, Readonly<Record<string, number>>])[] = [
  (r) => ["y[i] += x[i+r] * w[r]", { i: randomInteger(r, 20, 200), r: randomInteger(r, 1, 9) }],
  (r) => ["y[i] += x[2*i+r-1] * w[r]", { i: randomInteger(r, 20, 100), r: randomInteger(r, 2, 5) }],
  (r) => [
    `y[i,j] += x[i+r-1,j+s-${randomInteger(r, 0, 2)}] * w[r,s]`,
    { i: randomInteger(r, 3, 9), j: randomInteger(r, 20, 140), r: randomInteger(r, 1, 4), s: randomInteger(r, 1, 6) },
  ],
  (r) => [
    "y[i,j] += x[i+r,j+2*s] * w[r,s] where r == 1 or s == 1",
    { i: randomInteger(r, 3, 7), j: randomInteger(r, 20, 90), r: 3, s: 3 },
  ],
  (r) => [
    "y[h,i,j] += x[h+t-1,i+r-1,j+s-1] * w[t,r,s]",
    { h: 3, i: randomInteger(r, 3, 6), j: randomInteger(r, 20, 70), t: 3, r: 2, s: randomInteger(r, 2, 3) },
  ],
  (r) => ["y[k,i] += x[c,i+r] * w[k,c,r]", { k: 3, c: 2, i: randomInteger(r, 20, 90), r: randomInteger(r, 2, 4) }],
  (r) => ["y[i,j] += x[i,k] * w[k,j]", { i: 3, j: randomInteger(r, 20, 70), k: 5 }],
];

export function drawWords(random: Random, dtype: WordType, lanes: 16 | 32): DrawnWords {
  const [equation, extents] = pick(random, EQUATIONS)(random);
  const computation = defineComputation({ name: "sum", equation, extents, tensors: { x: dtype, w: dtype, y: dtype } });
  const intrinsic = INSTRUCTIONS[dtype][lanes];
  if (intrinsic === undefined) return { because: `no ${lanes} lanes of ${dtype}` };
  if (random() < 0.5) {
    const schedule = window(random, computation, lanes);
    const verdict = tapsOf(computation, schedule.rolled);
    const problem = verdict.ok ? windowProblem(verdict.sum, schedule) : verdict.refusal;
    return problem ?? { computation, candidate: { kind: "window", intrinsic, schedule } };
  }
  const designs = finished(arrayDesigns(computation, lanes, 2));
  if ("rule" in designs) return designs;
  const { plan } = pick(random, designs.fitting);
  const outside = computation.axes.filter(
    (a) => a.kind === "spatial" && a.extent > 1 && (!plan.transform.loops.includes(a.name) || plan.tile[a.name]),
  );
  const beside = Object.fromEntries(
    outside.flatMap((a) => (random() < 0.5 ? [[a.name, randomInteger(random, 1, 3)] as const] : [])),
  );
  const inputs = pick(random, ["passed", "loaded"] as const);
  const schedule = { ...plan, beside, inputs, streaming: false, threads: 1 };
  const placed = placeArray(computation, schedule);
  if (!placed.ok) return placed.refusal;
  const long = tooLongToWrite(lowerArray(computation, schedule, true));
  return long === undefined ? { computation, candidate: { kind: "design", intrinsic, schedule } } : { because: long };
}

function window(random: Random, computation: Computation, lanes: number): WindowSchedule {
  const lined = random() < 0.4;
  return {
    strip: 0,
    threads: 1,
    lanes,
    rows: randomInteger(random, 1, 4),
    vectors: randomInteger(random, 1, 3),
    dataflow: lined ? "FBS-load" : pick(random, LANE_DATAFLOWS),
    rolled: lined ? [] : rollable(computation).filter(() => random() < 0.2),
    weights: pick(random, ["registers", "memory"]),
    prefetchBytes: pick(random, [0, 256]),
    streaming: random() < 0.3,
    ...(lined && { lines: pick(random, LINE_USES) }),
  };
}

/** Whether a candidate is a transform's. */
const isTransform = (c: WindowCandidate | DesignCandidate): c is DesignCandidate => c.kind === "design";

/** Their nests, for the interpreter. */
export const WORDS: DrawnKind = {
  name: "lanes of 16 bits",
  share: 60,
  draw: (random): readonly Drawn[] => {
    const drawn = drawWords(random, pick(random, ["s16", "f16"]), 32);
    if ("because" in drawn) return [{ status: "refused", because: drawn.because }];
    const { computation, candidate } = drawn;
    const nest = () =>
      isTransform(candidate)
        ? lowerArray(computation, candidate.schedule, true)
        : lowerWindow(computation, candidate.schedule);
    const said = `${computationKey(computation)} by ${JSON.stringify(candidate)}`;
    return [
      { status: "nest", said, computation, inputs: smallInputs(computation, randomInteger(random, 1, 1e9)), nest },
    ];
  },
};
