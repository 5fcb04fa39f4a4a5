/**
 * @file How well the model of GPUs ranks trials that its correction has not seen, and what all of them teach it for other computations.
 *
 *     npm run build
 *     node dist/bench/gpu-accuracy.js bench/results/cuda-grid-h100.jsonl bench/results/cuda-resnet18-h100.jsonl
 *     node dist/bench/gpu-accuracy.js ... --prior perfmodel/prior-h100.ts
 *
 * Trials are those that bench/cuda-grid.ts and bench/cuda-suite.ts wrote, on one kind of GPU; the parts of each are what the model sees in it now. Pairs are formed
 * within a case and a file. `alone` is the model without any trial; `prior` as it begins a search, with the prior in the tree; `others` is corrected by trials of other cases: the
 * cases fall into ten parts, and each is judged by what the other nine taught; `half` by the first half of the case's own trials behind that, and judged on the second. Recall is of the fastest 40 %.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { z } from "zod";
import type { GridCandidate } from "../abstraction/candidate.ts";
import { UsageError } from "../abstraction/error.ts";
import { apply, type Correction, fit as fitCorrection, NO_CORRECTION, type Observation } from "../perfmodel/correct.ts";
import { priorOf } from "../perfmodel/grid.ts";
import { choiceOnGpu, costsOnGpu } from "../session/grid-space.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { evaluateTogether, type Judged } from "../tuner/evaluate.ts";
import { caseNamed } from "./cuda-cases.ts";
import { type Configuration, suiteComputation } from "./cuda-suite-cases.ts";
import { readOptions } from "./options.ts";

const { values, positionals: files } = readOptions({
  allowPositionals: true,
  options: { target: { type: "string", default: "h100" }, prior: { type: "string" } },
});
const target = nvidiaTarget(values.target);

const TRIAL = z.object({
  kind: z.literal("trial"),
  case: z.string(),
  /** Of a trial that bench/cuda-suite.ts wrote. */
  suite: z.custom<Configuration>().optional(),
  candidate: z.custom<GridCandidate>((value) => z.object({ kind: z.literal("grid") }).safeParse(value).success),
  median: z.number(),
});

/** Parts of the cases that are judged by the others. */
const FOLDS = 10;

interface Group {
  readonly name: string;
  readonly points: readonly Observation[];
}

const groups = files.flatMap(groupsOf);
if (groups.length === 0) throw new Error("no trials: name files that bench/cuda-grid.ts wrote");
print();
if (values.prior !== undefined)
  writeFileSync(values.prior, priorText(fitCorrection(groups.flatMap(({ points }) => points))));

function groupsOf(file: string): Group[] {
  const byCase = new Map<string, Observation[]>();
  const bytes = readFileSync(file);
  for (const line of (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8").split("\n")) {
    const trial = TRIAL.safeParse(line === "" ? undefined : JSON.parse(line)).data;
    if (!trial) continue;
    const costs = costsIn(trial);
    if (costs) byCase.set(trial.case, [...(byCase.get(trial.case) ?? []), { costs, measuredSeconds: trial.median }]);
  }
  return [...byCase].map(([name, points]) => ({ name, points }));
}

/** Undefined for a schedule that no longer stands. */
function costsIn({ case: name, suite, candidate }: z.infer<typeof TRIAL>): Observation["costs"] | undefined {
  try {
    return costsOnGpu(
      choiceOnGpu(suite ? suiteComputation(suite) : caseNamed(name).computation, candidate, target),
      target,
    );
  } catch (error) {
    if (error instanceof UsageError) return undefined;
    throw error;
  }
}

function print(): void {
  const judged = (correction: Correction, points: readonly Observation[]): Judged[] =>
    points.map(({ costs, measuredSeconds }) => ({ predicted: apply(correction, costs), measured: measuredSeconds }));
  const names = [...new Set(groups.map(({ name }) => name))];
  const foldOf = (name: string): number => names.indexOf(name) % FOLDS;
  const byFold = Array.from({ length: Math.min(FOLDS, names.length) }, (_, fold) =>
    fitCorrection(groups.filter(({ name }) => foldOf(name) !== fold).flatMap(({ points }) => points)),
  );
  const others = groups.map(({ name }) => byFold[foldOf(name)]);
  const schemes = {
    alone: groups.map(({ points }) => judged(NO_CORRECTION, points)),
    prior: groups.map(({ points }) => judged(priorOf(target) ?? NO_CORRECTION, points)),
    others: groups.map(({ points }, g) => judged(others[g] ?? NO_CORRECTION, points)),
    half: groups.map(({ points }, g) => {
      const middle = points.length >> 1;
      return judged(fitCorrection(points.slice(0, middle), others[g]), points.slice(middle));
    }),
  };
  const cell = (share: number | undefined): string => (share === undefined ? "" : share.toFixed(3));
  const row = (name: string, of: (all: readonly Judged[][]) => readonly Judged[][]): string => {
    const cells = Object.values(schemes).flatMap((all) => {
      const { pairwise, recall } = evaluateTogether(of(all));
      return [cell(pairwise), cell(recall)];
    });
    return `| ${name} | ${cells.join(" | ")} |`;
  };
  console.log(
    "| case | trials | alone: pairs | recall | prior: pairs | recall | others: pairs | recall | half: pairs | recall |",
  );
  console.log("|---|---|---|---|---|---|---|---|---|---|");
  for (const [g, { name, points }] of groups.entries())
    console.log(row(`${name} | ${points.length}`, (all) => [all[g] ?? []]));
  const count = groups.reduce((sum, { points }) => sum + points.length, 0);
  console.log(row(`all, pairs within a case | ${count}`, (all) => all));
}

function priorText(prior: Correction): string {
  const rounded = JSON.stringify(prior, (_, value: unknown) =>
    typeof value === "number" ? Number(value.toPrecision(4)) : value,
  );
  return [
    "/**",
    ` * @file What ${prior.observations} trials on an ${values.target.toUpperCase()} taught the model of GPUs, for computations it has not seen. Written by`,
    " *",
    ` *     node dist/bench/gpu-accuracy.js ${files.join(" ")} --prior FILE`,
    " */",
    "",
    'import type { Correction } from "./correct.ts";',
    "",
    `export const PRIOR_${values.target.toUpperCase()}: Correction = ${rounded};`,
    "",
  ].join("\n");
}
