/**
 * @file Measures random kernels on this machine's GPU: the test set for the GPU model, which chose none of them.
 *
 *     node dist/bench/gpu/cuda-random.js --draw 12 --configurations 7 > drawn.jsonl      12 of each; needs no GPU
 *     node dist/bench/gpu/cuda-random.js --measure drawn.jsonl --shard 1/4 --seconds 90 --out trials-1.jsonl
 *     node dist/bench/model/accuracy.js trials-1.jsonl ...                                 how well the model ranks them
 *
 * Mappings are drawn uniformly from the valid ones (per instruction, the widths with the least remainder), then a legal
 * schedule. One candidate in THREADS runs on threads. Kernels are compared with the reference on three sets of inputs
 * before they are timed. One configuration in `--again` is measured again by another process, at other addresses.
 */

import { appendFileSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import pLimit from "p-limit";
import type { GridCandidate, ThreadCandidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type Random, seededRandom, shuffled } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { gridLimits } from "../../mapper/schedule/grid-context.ts";
import type { CudaRunner } from "../../runtime/run/cuda.ts";
import { nativeIntrinsics } from "../../session/kinds/choose.ts";
import { choiceOnGpu, generateOnGpu } from "../../session/kinds/gpu-kinds.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { caseLines, type RecordedTrial } from "../../test/support/recorded-trials.ts";
import { type SuiteCase, suiteCases, suiteLayers } from "../../test/support/suite.ts";
import { gridSpace } from "../../tuner/grid-candidates.ts";
import { threadSpace } from "../../tuner/thread-candidates.ts";
import { gpuRunner, inShard, linesIn } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";
import { caseOfSuite } from "./gpu-cases.ts";

const { values } = readOptions({
  options: {
    /** Candidates drawn for each configuration. */
    draw: { type: "string" },
    /** Configurations for each operator, over batches and layouts. */
    configurations: { type: "string", default: "7" },
    batches: { type: "string", default: "1,16" },
    seed: { type: "string", default: "1" },
    target: { type: "string", default: "h100" },
    measure: { type: "string" },
    shard: { type: "string", default: "1/1" },
    /** No configuration begins after this many seconds. */
    seconds: { type: "string", default: "600" },
    again: { type: "string", default: "3" },
    out: { type: "string" },
  },
});
const machine = nvidiaTarget(values.target);
type Drawn = SuiteCase & { readonly candidates: readonly (GridCandidate | ThreadCandidate)[] };

/** One candidate in this many runs on threads, if threads can compute the operator. */
const THREADS = 4;
/** Configurations in progress at once: one is measured while others compile. */
const TOGETHER = 3;
/** Silence after which a kernel counts as hung. Random kernels may be a thousand times slower than the best. */
const STEP_SECONDS = 10;

if (values.measure !== undefined) await measure(values.measure);
else if (values.draw !== undefined) for (const drawn of draws(Number(values.draw))) console.log(JSON.stringify(drawn));
else throw new UsageError("say --draw N or --measure FILE");

/** Configurations of all operators in round-robin order, so that a run that is cut short has covered all operators. */
function* draws(count: number): Generator<Drawn> {
  const random = seededRandom(Number(values.seed));
  const batches = values.batches.split(",").map(Number);
  const layers = suiteLayers();
  const all = [...suiteCases(layers, batches, "first"), ...suiteCases(layers, batches, "last")];
  const byOperator = [...new Set(layers.map(({ op }) => op))].map((op) =>
    shuffled(
      random,
      all.filter((c) => c.op === op),
    ).slice(0, Number(values.configurations)),
  );
  for (let turn = 0; turn < Number(values.configurations); turn++)
    for (const cases of byOperator) {
      const one = cases[turn];
      if (one) yield { ...one, candidates: candidatesOf(caseOfSuite(one).computation, count, random) };
    }
}

/** Draws candidates at random: random numbers take the place of the model's predictions. */
function candidatesOf(computation: Computation, count: number, random: Random): Drawn["candidates"] {
  const limits = gridLimits(machine);
  const intrinsics = nativeIntrinsics(machine);
  const seed = Math.floor(2 ** 31 * random());
  const alike = (): number => 1 + 1e-9 * random();
  const ofThreads = intrinsics.filter((i) => i.scope === "thread");
  const ofWarps = intrinsics.filter((i) => i.scope !== "thread");
  const grid = finished(gridSpace(computation, ofWarps, limits, alike, seed));
  const threads = finished(threadSpace(computation, ofThreads, limits, alike, seed));
  const drawn = new Map<string, GridCandidate | ThreadCandidate>();
  for (let tries = 0; drawn.size < count && tries < 10 * count; tries++) {
    const wanted = random() < 1 / THREADS ? [threads, grid] : [grid, threads];
    const space = wanted.find((s) => "ranked" in s);
    if (!space || !("ranked" in space)) break;
    const candidate = space.random(random);
    drawn.set(JSON.stringify(candidate), candidate);
  }
  return [...drawn.values()];
}

async function measure(path: string): Promise<void> {
  const runner = await gpuRunner({ stepSeconds: STEP_SECONDS });
  const all = linesIn(path) as Drawn[]; // written by this program
  const wanted = inShard(all, values.shard);
  const atOnce = pLimit(TOGETHER);
  const again = Number(values.again);
  const counts = await Promise.all(wanted.map((one, i) => atOnce(() => measured(runner, one, i % again === 0))));
  const kernels = counts.reduce((sum, n) => sum + n, 0);
  const seconds = performance.now() / 1000;
  console.error(
    `${kernels} kernels in ${seconds.toFixed(1)} s (${(kernels / seconds).toFixed(1)} a second) on ${runner.device.name}`,
  );
  await runner.close();
}

/** @returns the number of kernels tried */
async function measured(runner: CudaRunner, one: Drawn, twice: boolean): Promise<number> {
  if (performance.now() > 1000 * Number(values.seconds)) return 0;
  try {
    const { name, group, computation, fixed } = caseOfSuite(one);
    const reference = await runner.reference(computation, Number(values.seed), fixed && { fixed });
    const kernels: Kernel[] = [];
    for (const candidate of one.candidates) {
      const kernel = generateOnGpu(choiceOnGpu(computation, candidate, machine));
      void runner.compile(kernel).catch(() => undefined);
      kernels.push(kernel);
      await setImmediate();
    }
    const first = await runner.measureTogether(kernels, reference);
    const second = twice ? await runner.measureTogether(kernels, reference) : [];
    const trials = one.candidates.flatMap((candidate, i): RecordedTrial[] => {
      const measurement = first[i];
      const repeated = second[i];
      if (measurement?.status !== "ok") return [];
      const { median, interval } = measurement;
      return [{ candidate, median, interval, ...(repeated?.status === "ok" && { again: repeated.median }) }];
    });
    const lines = caseLines({ name, operator: group, target: values.target, computation, trials });
    if (values.out === undefined) process.stdout.write(lines);
    else appendFileSync(values.out, lines);
    console.error(`${name}: ${trials.length} of ${kernels.length} kernels were right`);
    return kernels.length;
  } catch (error) {
    console.error(`${one.id}: ${error instanceof Error ? error.message : String(error)}`);
    return 0;
  }
}
