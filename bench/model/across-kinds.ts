/**
 * @file Whether the models of the kinds of candidates agree: the best few candidates of each kind that a search would propose, predicted and measured on
 * this machine's cores.
 *
 *     npm run build
 *     node dist/bench/model/across-kinds.js --db automap.db --out bench/results/across-kinds.md       some ten minutes on a quiet machine
 *     node dist/bench/model/across-kinds.js --cases "wide 3x3 NHWC" --candidates 8
 *     node dist/bench/model/across-kinds.js --dry                                                     predictions only
 *
 * Candidates are bred as in the first round of a search, for each kind alone. Predictions are of the calibrated machine, and nothing is learnt.
 */

import { writeFileSync } from "node:fs";
import type { Candidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import type { Runner } from "../../runtime/measure.ts";
import { calibrateMachine } from "../../session/calibrate/calibrate.ts";
import { chooseSpace, usableIntrinsics } from "../../session/kinds/choose.ts";
import { SESSION_KINDS } from "../../session/kinds/kinds.ts";
import type { SessionSpace } from "../../session/kinds/session-space.ts";
import { genetic } from "../../tuner/genetic.ts";
import { fillOptions } from "../../tuner/strategy.ts";
import { cpuName, cpuRunner, geomean, leastOf, page, table, us } from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "all" },
    candidates: { type: "string", default: "3" },
    seconds: { type: "string", default: "0.1" },
    /** Where the calibration of this machine is kept. */
    db: { type: "string", default: ":memory:" },
    dry: { type: "boolean", default: false },
    out: { type: "string" },
  },
});

interface Case {
  readonly operator: string;
  readonly types?: string;
  readonly layouts?: string;
  readonly parameters: Readonly<Record<string, number>>;
}

const layer = (c: number, k: number, h: number, r: number, stride: number) => ({
  operator: "conv2d",
  parameters: { c, k, h, w: h, r, s: r, stride, pad: r >> 1 },
});
const depthwise = { operator: "depthwise-conv2d", parameters: { c: 128, h: 56, w: 56, m: 1, r: 3, s: 3, pad: 1 } };

/** Convolutions of networks in both layouts, and what windows and time steps are for. */
const CASES: Readonly<Record<string, Case>> = {
  "wide 3x3 NHWC": { ...layer(128, 128, 112, 3, 1), layouts: "NHWC" },
  "wide 3x3 NCHW": layer(128, 128, 112, 3, 1),
  "3x3 of 64 at 56 NHWC": { ...layer(64, 64, 56, 3, 1), layouts: "NHWC" },
  "3x3 of 64 at 56 NCHW": layer(64, 64, 56, 3, 1),
  "3x3 of 512 at 7 NCHW": layer(512, 512, 7, 3, 1),
  "1x1 stride 2 NHWC": { ...layer(64, 128, 56, 1, 2), layouts: "NHWC" },
  "1x1 stride 2 NCHW": layer(64, 128, 56, 1, 2),
  "7x7 stride 2 NHWC": { ...layer(3, 64, 224, 7, 2), layouts: "NHWC" },
  "7x7 stride 2 NCHW": layer(3, 64, 224, 7, 2),
  "depthwise NHWC": { ...depthwise, layouts: "NHWC" },
  "depthwise NCHW": depthwise,
  "depthwise stride 2 NCHW": { ...depthwise, parameters: { ...depthwise.parameters, stride: 2 } },
  "matrix product": { operator: "matmul", parameters: { m: 512, n: 512, k: 512 } },
  "filter 9x9": { operator: "conv2d-single", parameters: { h: 1024, w: 1024, r: 9, s: 9 } },
  "filter 5x5 of s16": { operator: "conv2d-single", types: "s16", parameters: { h: 512, w: 512, r: 5, s: 5 } },
  "3x3 of u8s8 NHWC": { ...layer(64, 64, 56, 3, 1), types: "u8s8", layouts: "NHWC" },
  "depthwise of u8s8 NHWC": { ...depthwise, types: "u8s8", layouts: "NHWC" },
  "stencil 3d7pt": { operator: "3d7pt", parameters: { d: 64, h: 64, w: 64 } },
};

const known = Object.keys(CASES);
const chosen = values.cases === "all" ? known : values.cases.split(",").map((name) => wordOf("cases", name, known));

/** The candidates of a kind, each with its predicted seconds and, unless only predictions are wanted, what came of it. */
interface Judged {
  readonly kind: Candidate["kind"];
  readonly predicted: number;
  readonly measurement: Measurement | undefined;
}

const rows: string[][] = [];
const factors = new Map<string, number[]>();
let agreeing = 0;
let compared = 0;
const calibration = await calibrationHere();
const runner = values.dry
  ? undefined
  : await cpuRunner({ budgetSeconds: Number(values.seconds), memoryBytes: 2 ** 32 });
try {
  for (const name of chosen) add(name, await judged(CASES[name] as Case, runner)); // its name was checked
} finally {
  await runner?.close();
}
const of = [...factors].map(([kind, all]) => [kind, all.length, geomean(all).toFixed(2)]);
const text = page(
  "Kinds of candidates on one scale",
  `Judged on ${cpuName()}, one thread: the ${values.candidates} best of each kind that the first round of a search would propose. "predicted" and "measured" are the shortest times of a kind in us, of a kernel its fastest batch; "factor" is measured over predicted time of the candidate with the best prediction, "slowest" the longest measured time. Of ${compared} cases with more than one kind, ${agreeing} have the kind with the best prediction measured fastest.`,
  ...table(["case", "kind", "predicted", "measured", "factor", "slowest", "best"], rows),
  "",
  ...table(["kind", "cases", "factor, geometric mean"], of),
);
console.log(text);
if (values.out !== undefined) writeFileSync(values.out, text);

async function calibrationHere(): Promise<Calibration | undefined> {
  const calibrated = await calibrateMachine(values.db, {}, (text) => console.error(text));
  return calibrated.status === "calibrated" ? calibrated.calibration : undefined;
}

function computationOf({ operator, types = "f32", layouts, parameters }: Case): Computation {
  return instantiate(operatorNamed(operator), {
    parameters,
    types: parseDataTypes(types),
    ...(layouts !== undefined && { layouts }),
  });
}

async function judged(one: Case, runner: Runner | undefined): Promise<readonly Judged[]> {
  const computation = computationOf(one);
  const found = finished(chooseSpace(computation, usableIntrinsics(), { calibration, threads: 1, seed: 1 }));
  if ("refused" in found) throw new Error(found.refused[0]?.because);
  const { space } = found;
  const kinds = Object.values(SESSION_KINDS).map(({ kind }) => kind);
  const candidates = kinds.flatMap((kind) => bestOf(space, kind));
  const kernels = candidates.map((c) => space.kernelOf(c));
  const measured: Measurement[] = [];
  if (runner) {
    const reference = await runner.reference(computation, 1);
    for await (const answer of runner.race(kernels, reference)) measured.push(answer);
  }
  return candidates.map((candidate, i) => ({
    kind: candidate.kind,
    predicted: space.predict(candidate)?.seconds ?? Number.NaN,
    measurement: measured[i],
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
  const kinds = [...new Set(all.map(({ kind }) => kind))];
  const secondsOf = ({ measurement }: Judged): number => leastOf(measurement);
  const least = Math.min(...all.map(secondsOf));
  const expected = Math.min(...all.map(({ predicted }) => predicted));
  const kindWith = (is: (one: Judged) => boolean): string | undefined => all.find(is)?.kind;
  if (kinds.length > 1) {
    compared++;
    if (kindWith((one) => one.predicted === expected) === kindWith((one) => secondsOf(one) === least)) agreeing++;
  }
  for (const kind of kinds) {
    const own = all.filter((one) => one.kind === kind).toSorted((a, b) => a.predicted - b.predicted);
    const [first] = own;
    const times = own.map(secondsOf).filter(Number.isFinite);
    const failed = own.find(({ measurement }) => measurement && measurement.status !== "ok")?.measurement?.status ?? "";
    const factor = first ? secondsOf(first) / first.predicted : Number.NaN;
    if (Number.isFinite(factor)) factors.set(kind, [...(factors.get(kind) ?? []), factor]);
    const row = [
      name,
      kind,
      us(first?.predicted),
      times.length > 0 ? us(Math.min(...times)) : failed,
      Number.isFinite(factor) ? factor.toFixed(2) : failed,
      times.length > 0 ? us(Math.max(...times)) : "",
      Math.min(...times) === least ? "measured" : "",
    ];
    if (own[0]?.predicted === expected) row[6] = row[6] === "" ? "predicted" : "both";
    rows.push(row);
    console.error(row.join("  "));
  }
}
