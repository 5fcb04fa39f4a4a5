/**
 * @file Trials that a search needs to come within 5 % of the best known time, with and without records of near layers.
 *
 *     npm run build
 *     node dist/bench/model/transfer.js --out transfer                 30 layers, 20 trials for each of both searches: ten minutes
 *     node dist/bench/model/transfer.js --layers 4 --trials 8 --networks resnet18 --out small
 *
 * Layers are the networks' different tasks, in network order. A search with transfer starts with the records of earlier
 * layers in OUT.db, to which both searches of each layer contribute; one without starts from nothing. A kernel that both
 * propose is measured once, so that noise does not come between them. The best time is that of both searches. A search
 * that misses the goal counts with its trials plus one. The first layer, which has no earlier ones, is left out of sums.
 * A command that was cut short resumes and skips finished layers.
 */

import { writeFileSync } from "node:fs";
import { z } from "zod";
import { computationKey } from "../../abstraction/computation.ts";
import { EnvironmentError, UsageError } from "../../abstraction/error.ts";
import type { Task } from "../../network/tasks.ts";
import { openGraph, tunedTasks } from "../../session/network/network.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { graphNamed, networksNamed } from "../networks/built-network.ts";
import { cpuName, geomean, page, rowsIn, table, us, writerTo } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    networks: { type: "string", default: "resnet18,resnet50,mobilenet-v1" },
    layers: { type: "string", default: "30" },
    /** Trials of each search. */
    trials: { type: "string", default: "20" },
    /** Distance from the best within which a search must come. */
    percent: { type: "string", default: "5" },
    seed: { type: "string", default: "1" },
    out: { type: "string", default: "transfer" },
  },
});
const budget = Number(values.trials);
const near = 1 + Number(values.percent) / 100;
const seed = Number(values.seed);

/** The trials are meant to end each search; this bounds one whose kernels hang. */
const MOST_SECONDS = 600;

const SEARCH = z.object({
  trials: z.number(),
  best: z.number().meta({ description: "seconds of a call" }),
  needed: z.number().optional().meta({ description: "trials to come near the best of both; none where it did not" }),
});
const ROW = z.object({ layer: z.string(), key: z.string(), with: SEARCH, without: SEARCH });
type Row = z.infer<typeof ROW>;

const file = `${values.out}.jsonl`;
const write = writerTo(file);
const known = new Map(rowsIn(ROW, file).map((row) => [row.key, row]));
const rows: Row[] = [];
for (const layer of layersOf(networksNamed(values.networks))) {
  const row = known.get(keyOf(layer)) ?? (await compared(layer));
  rows.push(row);
  console.error(cellsOf(row).join("  "));
}
const judged = rows.slice(1);
const total = (of: "with" | "without"): number => judged.reduce((sum, row) => sum + countOf(row[of]), 0);
const mean = geomean(judged.map((row) => countOf(row.with) / countOf(row.without)));
const reached = (of: "with" | "without"): number => judged.filter((row) => row[of].needed !== undefined).length;
const head = ["needed", "of trials", "best, us"];
writeFileSync(
  `${values.out}.md`,
  page(
    `Trials to come within ${values.percent} % of the best, with the records of near layers and without`,
    `${cpuName()}, one thread, ${budget} trials for each search; a kernel that both propose is measured once.`,
    ...table(
      ["layer", ...["with", "without"].flatMap((way) => [`${way}: ${head[0]}`, ...head.slice(1)])],
      rows.map(cellsOf),
    ),
    "",
    `Behind the first layer: ${total("with")} trials with transfer, ${total("without")} without, ${(total("with") / total("without")).toFixed(2)} times as many; geomean of layers ${mean.toFixed(2)}.`,
    `Near the best came ${reached("with")} of ${judged.length} searches with it, ${reached("without")} without. The goal is a third.`,
  ),
);

/** The different tasks of all requested networks. */
function layersOf(networks: readonly string[]): readonly Task[] {
  const layers = new Map<string, Task>();
  for (const name of networks)
    for (const task of tunedTasks(openGraph(graphNamed(name)).program))
      layers.set(computationKey(task.computation), task);
  const asked = Number(values.layers);
  if (asked < 2) throw new UsageError("--layers must be 2 at least: the first has no others to learn from");
  return [...layers.values()].slice(0, asked);
}

/** A finished row counts for these searches of this layer only. */
function keyOf({ computation }: Task): string {
  return JSON.stringify([computationKey(computation), budget, seed, values.percent]);
}

async function compared(task: Task): Promise<Row> {
  const searches = new Map<boolean, readonly number[]>();
  for (const transfer of [true, false]) searches.set(transfer, await searched(task, transfer));
  const best = Math.min(...[...searches.values()].flat());
  const told = (transfer: boolean): Row["with"] => {
    const trials = searches.get(transfer) ?? [];
    const at = trials.findIndex((time) => time <= near * best);
    return { trials: trials.length, best: Math.min(...trials), ...(at >= 0 && { needed: at + 1 }) };
  };
  const row = {
    layer: task.steps[0]?.nodes[0] ?? "",
    key: keyOf(task),
    with: told(true),
    without: told(false),
  };
  write(row);
  return row;
}

/** Seconds of each trial in order; Infinity for a failed one. */
async function searched({ computation, operator }: Task, transfer: boolean): Promise<readonly number[]> {
  const outcome = await tuneComputation(
    { computation, ...(operator && { parameters: operator.parameters }) },
    {
      trials: budget,
      seconds: MOST_SECONDS,
      earlyStop: false,
      finals: false,
      seed,
      transfer,
      kinds: "mappings",
      database: `${values.out}.db`,
    },
  );
  if (outcome.status === "environment") throw new EnvironmentError(outcome.problem);
  if (outcome.status === "nothing-maps") throw new Error(`nothing maps onto ${computation.name}`);
  return outcome.trials.map(({ measurement }) =>
    measurement.status === "ok" ? measurement.median : Number.POSITIVE_INFINITY,
  );
}

function countOf({ needed, trials }: Row["with"]): number {
  return needed ?? trials + 1;
}

function cellsOf({ layer, with: mine, without }: Row) {
  const of = ({ needed, trials, best }: Row["with"]) => [needed ?? "never", trials, us(best)];
  return [layer, ...of(mine), ...of(without)];
}
