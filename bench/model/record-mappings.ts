/**
 * @file Records kernels of mappings on this machine's cores, to judge the model by and to teach trees as on a GPU. Nothing else may run meanwhile.
 *
 *     npm run build
 *     node dist/bench/model/record-mappings.js --db mappings.db                       layers of networks and of the suite of AMOS: hours
 *     taskset -c 0,8 node dist/bench/model/record-mappings.js --db 1.db --shard 1/8   an eighth of them, on the two processors of a core
 *     node dist/bench/model/accuracy.js --db mappings.db --folds 100
 *
 * Of each layer some kernels are drawn at random, without the model, and some are those of a search. A command that was cut short goes on.
 */

import type { Computation } from "../../abstraction/computation.ts";
import { EnvironmentError } from "../../abstraction/error.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { openGraph, tunedTasks } from "../../session/network/network.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { CHANNELS_LAST, suiteCases, suiteLayers } from "../../test/support/suite.ts";
import { genetic } from "../../tuner/genetic.ts";
import { random } from "../../tuner/random.ts";
import { graphNamed, networksNamed } from "../networks/built-network.ts";
import { inShard } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    db: { type: "string", default: "mappings.db" },
    networks: { type: "string", default: "resnet18,mobilenet-v1" },
    types: { type: "string", default: "f32,bf16,u8s8" },
    /** Takes one in this many layers of each operator of the suite; layers of networks are taken in f32. */
    every: { type: "string", default: "4" },
    shard: { type: "string", default: "1/1" },
    /** Kernels of each layer, by each way to choose them. */
    trials: { type: "string", default: "24" },
    threads: { type: "string", default: "1" },
  },
});

/** The trials are meant to end each search; this bounds one whose kernels are slow. */
const MOST_SECONDS = 120;

/** Operators whose sums are products of two tensors. */
const PRODUCTS = ["gmm", "gmv", "c1d", "c2d", "c3d", "t2d", "grp", "dil", "dep", "cap", "bcv"];

const layers = inShard([...layersOfNetworks(), ...layersOfSuite()], values.shard);
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

/** Layers of the suite, images with their channels last, of one type after another. */
function layersOfSuite(): readonly Computation[] {
  const products = suiteLayers().filter(({ op }) => PRODUCTS.includes(op));
  const taken = suiteCases(products, [1], "last", { every: Number(values.every) });
  return values.types.split(",").flatMap((types) =>
    taken.map(({ op, params }) => {
      const layouts = CHANNELS_LAST[op]?.["in"];
      return instantiate(operatorNamed(op), {
        parameters: params,
        types: parseDataTypes(types),
        ...(layouts !== undefined && { layouts }),
      });
    }),
  );
}
