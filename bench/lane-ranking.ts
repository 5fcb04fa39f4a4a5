/**
 * @file How well the model ranks lane designs of six or more operators, drawn from all dataflows and timed here.
 *
 *     npm run build
 *     node dist/bench/lane-ranking.js                                          some five minutes on a quiet machine
 *     node dist/bench/lane-ranking.js --designs 8 --cases "2-D filter 3x3" --out /tmp/ranking
 *     node dist/bench/lane-ranking.js --again bench/results/lane-ranking.jsonl        today's model on recorded times
 *
 * Designs are drawn from the dataflows in turn, with a random number of passes side by side; kernels of over 150,000
 * characters are skipped. Wrong or failed kernels are reported, and the exit code is then 1. One process measures all
 * designs of a computation in alternating batches; a second process measures them again. The first times' ranking of
 * the second is the best any model can reach. `corrected` is the ridge fit of perfmodel/correct.ts on all other
 * operators. Constants of perfmodel/vectors.ts were adjusted on operators marked fitted only.
 */

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { z } from "zod";
import { canonicalJson, type DesignSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { pick, type Random, seededRandom } from "../abstraction/random.ts";
import { finished } from "../abstraction/steps.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { DESIGN_DECISIONS } from "../mapper/schedule/array-decisions.ts";
import { placeArray } from "../mapper/space-time/lane-array.ts";
import { lowerPlaced } from "../mapper/space-time/lower-array.ts";
import { inverseOf } from "../mapper/space-time/reverse.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { leavingSteps } from "../perfmodel/arrays.ts";
import { apply, type Correction, type Costs, fit as fitCorrection, NO_CORRECTION } from "../perfmodel/correct.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { vectorCosts } from "../perfmodel/vectors.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import { usableIntrinsics } from "../session/choose.ts";
import { multiplyAddOf } from "../session/design-kinds.ts";
import { kernelFor } from "../session/kernel.ts";
import { registersOf } from "../session/window-kinds.ts";
import { nativeTarget } from "../targets/native.ts";
import { leastLaneBytes } from "../targets/x86.ts";
import { type ArraySpaceOfDesigns, arraySpaceOf, type PricedArray } from "../tuner/array-candidates.ts";
import { evaluateTogether, type Judged } from "../tuner/evaluate.ts";
import { recordedSchedule } from "./lane-cases.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "all" },
    designs: { type: "string", default: "20" },
    seed: { type: "string", default: "1" },
    seconds: { type: "string", default: "0.03" },
    again: { type: "string" },
    out: { type: "string", default: "lane-ranking" },
  },
});

interface Case {
  readonly name: string;
  readonly operator: string;
  readonly types: string;
  readonly parameters: Readonly<Record<string, number>>;
  /** Whether the model's constants were adjusted on this case. */
  readonly fitted: boolean;
}

const subject = (
  name: string,
  operator: string,
  types: string,
  parameters: Readonly<Record<string, number>>,
  fitted = false,
): Case => ({ name, operator, types, parameters, fitted });

/** Sizes that fit the second-level or last-level cache, like the layers and images for which lanes are tuned. */
const CASES: readonly Case[] = [
  subject("1-D filter of 5", "conv1d-single", "f32", { l: 16384, r: 5 }, true),
  subject("2-D filter 3x3", "conv2d-single", "f32", { h: 256, w: 256, r: 3, s: 3, pad: 1 }, true),
  subject("convolution 16 to 16 channels", "conv2d", "f32", { n: 1, c: 16, k: 16, h: 30, w: 66, r: 3, s: 3 }, true),
  subject("2-D filter 3x3 of bf16", "conv2d-single", "bf16", { h: 256, w: 256, r: 3, s: 3 }, true),
  subject("2-D filter 5x5 of f64", "conv2d-single", "f64", { h: 128, w: 128, r: 5, s: 5 }),
  subject("depthwise with stride 2", "depthwise-conv2d", "f32", {
    n: 1,
    c: 16,
    h: 57,
    w: 57,
    m: 1,
    r: 3,
    s: 3,
    stride: 2,
  }),
  subject("stencil 2d9pt", "2d9pt", "f32", { h: 256, w: 256 }),
  subject("stencil 3d7pt", "3d7pt", "f32", { d: 32, h: 48, w: 64 }),
  subject("matrix product", "matmul", "f32", { m: 96, n: 192, k: 64 }),
  subject("1-D convolution with stride 2", "conv1d", "f32", { n: 1, c: 8, k: 8, l: 1030, r: 7, stride: 2 }),
  subject("convolution of bytes", "conv2d", "u8s8", { n: 1, c: 16, k: 16, h: 30, w: 66, r: 3, s: 3 }),
  subject("dilated convolution of f16", "dilated-conv2d", "f16", { n: 1, c: 8, k: 8, h: 34, w: 68, r: 3, s: 3 }),
];

/** g++ takes more than a second for every 50,000 characters. */
const LONGEST_SOURCE = 150_000;
/** The most steps in which results leave; each becomes a statement for each border. */
const MOST_LEAVING = 40;

const target = modelTarget(nativeTarget());
const intrinsics = usableIntrinsics(nativeTarget());

const computationOf = ({ operator, types, parameters }: Case): Computation =>
  instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types) });

/** A measured design. */
interface Trial {
  readonly of: Case;
  readonly dataflow: string;
  readonly costs: Costs;
  readonly schedule: DesignSchedule;
  /** Medians in the two processes, and the first's 95 % interval. */
  readonly seconds: number;
  readonly again: number;
  readonly interval: readonly [number, number];
}

const LINE = z.object({
  case: z.string(),
  dataflow: z.string(),
  schedule: recordedSchedule(DESIGN_DECISIONS),
  seconds: z.number(),
  again: z.number(),
  interval: z.tuple([z.number(), z.number()]),
});

const jsonl = values.again ?? `${values.out}.jsonl`;
const chosen = values.cases === "all" ? CASES : values.cases.split(",").map(caseNamed);
const trials = values.again === undefined ? await measured() : recorded(jsonl);
const text = report(trials);
process.stdout.write(text);
writeFileSync(`${values.out}.md`, text);

function caseNamed(name: string): (typeof CASES)[number] {
  const found = CASES.find((known) => known.name === name);
  if (!found) throw new UsageError(`no case "${name}"`, { hint: `cases are ${CASES.map((c) => c.name).join(", ")}` });
  return found;
}

// ---- trials

async function measured(): Promise<Trial[]> {
  writeFileSync(jsonl, "");
  const random = seededRandom(Number(values.seed));
  const made = await createRunner({ budgetSeconds: Number(values.seconds), stepSeconds: 60 });
  if (made.status === "environment") throw new EnvironmentError(made);
  try {
    const all: Trial[] = [];
    for (const of of chosen) all.push(...(await trialsOf(of, made.runner, random)));
    return all;
  } finally {
    await made.runner.close();
  }
}

async function trialsOf(of: Case, runner: Runner, random: Random): Promise<Trial[]> {
  const computation = computationOf(of);
  const multiplyAdd = multiplyAddOf(computation, intrinsics);
  if (!multiplyAdd) throw new Error(`${of.name}: no multiply-add of lanes on this machine`);
  const space = finished(arraySpaceOf(computation, { threads: 1, target, vectors: registersOf(multiplyAdd) }));
  if ("rule" in space) throw new Error(`${of.name}: ${space.because}`);
  const generated = (schedule: DesignSchedule): Kernel =>
    kernelFor(computation, { kind: "design", intrinsic: multiplyAdd.name, schedule });
  const { drawn, kernels, left } = draw(space, Number(values.designs), random, computation, generated);
  const reference = await runner.reference(computation, 1);
  const first = await runner.compareKernels(kernels, reference);
  const second = await runner.compareKernels(kernels, reference);
  const found = drawn.flatMap(({ schedule, design: { dataflow } }, i): Trial[] => {
    const [one, two] = [first[i], second[i]].map((m) => right(m, `${of.name}, ${dataflow}`));
    if (!one || !two) return [];
    const costs = costsOf(computation, schedule);
    return [{ of, dataflow, costs, schedule, seconds: one.median, again: two.median, interval: one.interval }];
  });
  for (const { dataflow, schedule, seconds, again, interval } of found)
    appendFileSync(jsonl, `${JSON.stringify({ case: of.name, dataflow, schedule, seconds, again, interval })}\n`);
  const flows = new Set(found.map((t) => t.dataflow)).size;
  console.error(
    `${of.name}: ${found.length} designs of ${flows} dataflows, ${left} left out as too long; ${Math.round(performance.now() / 1000)} s`,
  );
  return found;
}

/** Draws schedules from the dataflows in turn, at random within each. Counts those skipped because of a long kernel. */
function draw(
  { ranked }: ArraySpaceOfDesigns<DesignSchedule>,
  count: number,
  random: Random,
  sum: Computation,
  generated: (schedule: DesignSchedule) => Kernel,
): {
  readonly drawn: readonly PricedArray<DesignSchedule>[];
  readonly kernels: readonly Kernel[];
  readonly left: number;
} {
  const flows = [...new Set(ranked.map((r) => r.design.dataflow))];
  const lists = flows.map((flow) => ranked.filter((r) => r.design.dataflow === flow));
  const drawn: PricedArray<DesignSchedule>[] = [];
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
function isShort({ design: { judged, plan } }: PricedArray, sum: Computation): boolean {
  const { allocation, schedule } = judged.spaceTime;
  const dense = Math.abs(inverseOf([...allocation, ...schedule])?.denominator ?? 2) === 1;
  return leavingSteps({ ...judged, sum }) <= MOST_LEAVING && (dense || plan.transform.loops.length === 2);
}

/** The measurement if every element was right. Otherwise reports the kernel, and the script fails at the end. */
function right(m: Measurement | undefined, what: string): Extract<Measurement, { status: "ok" }> | undefined {
  if (m?.status === "ok") return m;
  console.error(`${what}: ${m ? `${m.status} ${m.log.slice(0, 300)}` : "was not measured"}`);
  process.exitCode = 1;
  return undefined;
}

function recorded(file: string): Trial[] {
  return readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .flatMap((line): Trial[] => {
      const { case: name, ...trial } = LINE.parse(JSON.parse(line));
      const of = chosen.find((c) => c.name === name);
      return of ? [{ of, ...trial, costs: costsOf(computationOf(of), trial.schedule) }] : [];
    });
}

function costsOf(computation: Computation, schedule: DesignSchedule): Costs {
  const placed = placeArray(computation, schedule);
  const multiplyAdd = multiplyAddOf(computation, intrinsics);
  if (!placed.ok || !multiplyAdd) throw new Error(`${computation.name}: ${canonicalJson(schedule)} does not fit`);
  const vectors = registersOf(multiplyAdd);
  const nest = lowerPlaced(computation, placed.array, schedule.inputs, leastLaneBytes(vectors) === 2);
  return vectorCosts(nest, computation, { ...schedule, target, vectors });
}

// ---- judging

/** The correction from trials of all other operators, whatever the types and sizes of this one. */
function correctionFor({ operator }: Case): Correction {
  return fitCorrection(
    trials.filter((t) => t.of.operator !== operator).map(({ costs, seconds }) => ({ costs, measuredSeconds: seconds })),
  );
}

interface Score {
  readonly pairwise: number | undefined;
  /** Over pairs whose intervals do not overlap. */
  readonly distinct: number | undefined;
  readonly recall: number | undefined;
}

function score(groups: readonly (readonly Trial[])[], predicted: (t: Trial) => number): Score {
  const parts = groups.map((group) => group.map((t): Judged => ({ predicted: predicted(t), measured: t.seconds })));
  const { pairwise, recall } = evaluateTogether(parts);
  let agree = 0;
  let total = 0;
  for (const group of groups)
    for (const a of group)
      for (const b of group) {
        if (a.interval[1] >= b.interval[0]) continue;
        total++;
        if (predicted(a) < predicted(b)) agree++;
      }
  return { pairwise, distinct: total === 0 ? undefined : agree / total, recall };
}

function report(all: readonly Trial[]): string {
  const groups = chosen.map((of) => all.filter((t) => t.of === of)).filter((group) => group.length > 1);
  const corrections = new Map(chosen.map((of) => [of.operator, correctionFor(of)]));
  const ways: readonly (readonly [string, (t: Trial) => number])[] = [
    ["uncorrected", (t) => apply(NO_CORRECTION, t.costs)],
    ["corrected by other operators", (t) => apply(corrections.get(t.of.operator) ?? NO_CORRECTION, t.costs)],
    ["measured again", (t) => t.again],
  ];
  const share = (value: number | undefined): string => (value === undefined ? "-" : (100 * value).toFixed(1));
  const row = (name: string, of: readonly (readonly Trial[])[]): string[] =>
    ways.map(([way, predicted]) => {
      const { pairwise, distinct, recall } = score(of, predicted);
      return `| ${name} | ${way} | ${of.flat().length} | ${share(pairwise)} | ${share(distinct)} | ${share(recall)} |`;
    });
  const fitted = (is: boolean): readonly (readonly Trial[])[] => groups.filter((g) => g[0]?.of.fitted === is);
  const ratios = (group: readonly Trial[]): string => {
    const sorted = group.map((t) => t.seconds / apply(NO_CORRECTION, t.costs)).sort((a, b) => a - b);
    return [0.1, 0.5, 0.9].map((q) => (sorted[Math.floor(q * sorted.length)] ?? 0).toFixed(2)).join(" | ");
  };
  const head = ["| designs | prediction | trials | pairwise % | distinct % | recall % |", "|---|---|---|---|---|---|"];
  return [
    "# How well the model ranks designs on lanes",
    "",
    `${cpus()[0]?.model.trim()}, one thread; ${all.length} designs of ${new Set(all.map((t) => t.of.operator)).size} operators and ${new Set(all.map((t) => t.dataflow)).size} dataflows, every element of each kernel right. Pairs are formed within a computation, none with itself; distinct: pairs whose 95 % intervals do not overlap; recall of the fastest 40 %. "Measured again" ranks by the times of a second process: no prediction can be expected to rank better.`,
    "",
    `    node dist/bench/lane-ranking.js ${process.argv.slice(2).join(" ")}`,
    "",
    ...head,
    ...row("all", groups),
    ...row("operators whose trials the constants were looked at on", fitted(true)),
    ...row("unseen operators", fitted(false)),
    "",
    "| computation | seen | designs | dataflows | measured over predicted: a tenth below | median | a tenth above |",
    "|---|---|---|---|---|---|---|",
    ...groups.map((g) => {
      const seen = g[0]?.of.fitted ? "fitted" : "unseen";
      return `| ${g[0]?.of.name} | ${seen} | ${g.length} | ${new Set(g.map((t) => t.dataflow)).size} | ${ratios(g)} |`;
    }),
    "",
    ...head,
    ...groups.flatMap((g) => row(g[0]?.of.name ?? "", [g])),
    "",
  ].join("\n");
}
