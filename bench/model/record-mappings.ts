/**
 * @file Records kernels of mappings on this machine's cores, to judge the model by and to teach trees as on a GPU. Nothing else may run meanwhile.
 *
 *     npm run build
 *     node dist/bench/model/record-mappings.js --db mappings.db                       layers of networks in f32: an hour and a half
 *     node dist/bench/model/record-mappings.js --db mappings.db --dtype bf16          layers of bench/suites; or s8
 *     node dist/bench/model/accuracy.js --db mappings.db --folds 100
 *
 * Of each layer some kernels are drawn at random, without the model, and some are those of a search. A command that was cut short goes on.
 */

import type { Computation } from "../../abstraction/computation.ts";
import { EnvironmentError } from "../../abstraction/error.ts";
import { openGraph, tunedTasks } from "../../session/network/network.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { suiteCases, suiteComputation, suiteLayers, suiteType } from "../../test/support/suite.ts";
import { genetic } from "../../tuner/genetic.ts";
import { random } from "../../tuner/random.ts";
import { graphNamed, networksNamed } from "../networks/built-network.ts";
import { readOptions, wordOf } from "../support/options.ts";

const { values } = readOptions({
  options: {
    db: { type: "string", default: "mappings.db" },
    networks: { type: "string", default: "resnet18,mobilenet-v1" },
    /** Type of the suite's layers; layers of networks when left out. */
    dtype: { type: "string" },
    /** Takes one in this many layers of each operator of the suite. */
    every: { type: "string", default: "4" },
    /** Kernels of each layer, by each way to choose them. */
    trials: { type: "string", default: "24" },
    threads: { type: "string", default: "1" },
  },
});

/** The trials are meant to end each search; this bounds one whose kernels are slow. */
const MOST_SECONDS = 120;

const layers = values.dtype === undefined ? layersOfNetworks() : layersOfSuite(values.dtype);
for (const [at, computation] of layers.entries())
  for (const strategy of [random, genetic]) {
    const outcome = await tuneComputation(
      { computation },
      {
        strategy,
        trials: Number(values.trials),
        seconds: MOST_SECONDS,
        threads: Number(values.threads),
        kinds: "mappings",
        earlyStop: false,
        finals: false,
        seed: 1,
        database: values.db,
      },
    );
    if (outcome.status === "environment") throw new EnvironmentError(outcome.problem);
    console.error(`${at + 1} of ${layers.length} ${computation.name}, ${strategy.name}: ${outcome.status}`);
  }

function layersOfNetworks(): readonly Computation[] {
  const programs = networksNamed(values.networks).map((name) => openGraph(graphNamed(name)).program);
  return programs.flatMap((program) => tunedTasks(program).map(({ computation }) => computation));
}

function layersOfSuite(dtype: string): readonly Computation[] {
  const options = { every: Number(values.every), dtype: wordOf("dtype", dtype, suiteType.options) };
  return suiteCases(suiteLayers(), [1], "last", options).map(suiteComputation);
}
