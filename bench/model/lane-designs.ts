/**
 * @file Measures lane designs of twelve computations, drawn from all dataflows, on this machine's cores: a test set for the model of designs.
 *
 *     npm run build
 *     node dist/bench/model/lane-designs.js --out lane-designs.jsonl                      some five minutes on a quiet machine
 *     node dist/bench/model/lane-designs.js --designs 8 --cases "2-D filter 3x3"
 *     node dist/bench/model/accuracy.js lane-designs.jsonl --folds 9                      how well the model ranks them
 *
 * Designs are drawn from the dataflows in turn, with a random number of passes side by side; kernels of over 150,000 characters are skipped. Wrong or
 * failed kernels are reported, and the exit code is then 1. One process measures all designs of a computation in alternating batches; a second one
 * measures them again. Constants of perfmodel/vectors.ts were adjusted on the first four cases.
 */

import { appendFileSync } from "node:fs";
import type { DesignSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { inverseOf } from "../../mapper/space-time/reverse.ts";
import { leavingSteps } from "../../perfmodel/arrays.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import type { Runner } from "../../runtime/measure.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { multiplyAddOf } from "../../session/kinds/design-kinds.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { registersOf } from "../../session/kinds/window-kinds.ts";
import { nativeTarget } from "../../targets/native.ts";
import { caseLines, type RecordedTrial } from "../../test/support/recorded-trials.ts";
import { operation } from "../../test/support/subjects.ts";
import { type ArraySpaceOfDesigns, arraySpaceOf, type RankedArray } from "../../tuner/array-candidates.ts";
import { cpuRunner } from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "all" },
    designs: { type: "string", default: "20" },
    seed: { type: "string", default: "1" },
    seconds: { type: "string", default: "0.03" },
    out: { type: "string" },
  },
});

/** Sizes that fit the second-level or last-level cache, like the layers and images for which lanes are tuned. */
const CASES: Readonly<Record<string, Computation>> = {
  "1-D filter of 5": operation("conv1d-single l=16384 r=5"),
  "2-D filter 3x3": operation("conv2d-single h=256 w=256 r=3 s=3 pad=1"),
  "convolution 16 to 16 channels": operation("conv2d n=1 c=16 k=16 h=30 w=66 r=3 s=3"),
  "2-D filter 3x3 of bf16": operation("conv2d-single h=256 w=256 r=3 s=3", "bf16"),
  "2-D filter 5x5 of f64": operation("conv2d-single h=128 w=128 r=5 s=5", "f64"),
  "depthwise with stride 2": operation("depthwise-conv2d n=1 c=16 h=57 w=57 m=1 r=3 s=3 stride=2"),
  "stencil 2d9pt": operation("2d9pt h=256 w=256"),
  "stencil 3d7pt": operation("3d7pt d=32 h=48 w=64"),
  "matrix product": operation("matmul m=96 n=192 k=64"),
  "1-D convolution with stride 2": operation("conv1d n=1 c=8 k=8 l=1030 r=7 stride=2"),
  "convolution of bytes": operation("conv2d n=1 c=16 k=16 h=30 w=66 r=3 s=3", "u8s8"),
  "dilated convolution of f16": operation("dilated-conv2d n=1 c=8 k=8 h=34 w=68 r=3 s=3", "f16"),
};

/** g++ takes more than a second for every 50,000 characters. */
const LONGEST_SOURCE = 150_000;
/** The most steps in which results leave; each becomes a statement for each border. */
const MOST_LEAVING = 40;

const target = modelTarget(nativeTarget());
const intrinsics = usableIntrinsics(nativeTarget());
const known = Object.keys(CASES);
const chosen = values.cases === "all" ? known : values.cases.split(",").map((name) => wordOf("cases", name, known));

const random = seededRandom(Number(values.seed));
const runner = await cpuRunner({ budgetSeconds: Number(values.seconds), stepSeconds: 60 });
try {
  for (const name of chosen) await measured(name, CASES[name] as Computation, runner); // its name was checked
} finally {
  await runner.close();
}

async function measured(name: string, computation: Computation, runner: Runner): Promise<void> {
  const multiplyAdd = multiplyAddOf(computation, intrinsics);
  if (!multiplyAdd) throw new Error(`${name}: no multiply-add of lanes on this machine`);
  const space = finished(arraySpaceOf(computation, { threads: 1, target, vectors: registersOf(multiplyAdd) }));
  if ("rule" in space) throw new Error(`${name}: ${space.because}`);
  const candidateOf = (schedule: DesignSchedule) =>
    ({ kind: "design", intrinsic: multiplyAdd.name, schedule }) as const;
  const { drawn, kernels, left } = draw(space, random, computation, (schedule) =>
    kernelFor(computation, candidateOf(schedule)),
  );
  const reference = await runner.reference(computation, 1);
  const first = await runner.compareKernels(kernels, reference);
  const second = await runner.compareKernels(kernels, reference);
  const trials = drawn.flatMap(({ schedule, design }, i): RecordedTrial[] => {
    const one = first[i];
    const two = second[i];
    if (one?.status === "ok" && two?.status === "ok")
      return [{ candidate: candidateOf(schedule), median: one.median, interval: one.interval, again: two.median }];
    console.error(`${name}, ${design.dataflow}: ${JSON.stringify(one?.status === "ok" ? two : one).slice(0, 300)}`);
    process.exitCode = 1;
    return [];
  });
  const lines = caseLines({ name, operator: computation.name, target: "native", computation, trials });
  if (values.out === undefined) process.stdout.write(lines);
  else appendFileSync(values.out, lines);
  console.error(
    `${name}: ${trials.length} designs, ${left} left out as too long; ${Math.round(performance.now() / 1000)} s`,
  );
}

/** Draws schedules from the dataflows in turn, at random within each. Counts those skipped because of a long kernel. */
function draw(
  { ranked }: ArraySpaceOfDesigns<DesignSchedule>,
  random: Random,
  sum: Computation,
  generated: (schedule: DesignSchedule) => Kernel,
): {
  readonly drawn: readonly RankedArray<DesignSchedule>[];
  readonly kernels: readonly Kernel[];
  readonly left: number;
} {
  const count = Number(values.designs);
  const flows = [...new Set(ranked.map((r) => r.design.dataflow))];
  const lists = flows.map((flow) => ranked.filter((r) => r.design.dataflow === flow));
  const drawn: RankedArray<DesignSchedule>[] = [];
  const kernels: Kernel[] = [];
  let left = 0;
  while (drawn.length < count && lists.some((list) => list.length > 0))
    for (const list of lists) {
      if (list.length === 0 || drawn.length >= count) continue;
      const one = pick(random, list);
      list.splice(list.indexOf(one), 1);
      const kernel = isShort(one, sum) ? generated(one.schedule) : undefined;
      if (kernel === undefined || kernel.source.length > LONGEST_SOURCE) {
        left++;
        continue;
      }
      drawn.push(one);
      kernels.push(kernel);
    }
  return { drawn, kernels, left };
}

/** Whether a kernel is short enough to print. A sparse transform of three loops writes each mask lane by lane. */
function isShort({ design: { judged, plan } }: RankedArray<DesignSchedule>, sum: Computation): boolean {
  const { allocation, schedule } = judged.spaceTime;
  const dense = Math.abs(inverseOf([...allocation, ...schedule])?.denominator ?? 2) === 1;
  return leavingSteps({ ...judged, sum }) <= MOST_LEAVING && (dense || plan.transform.loops.length === 2);
}
