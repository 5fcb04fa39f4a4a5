/**
 * @file Whole networks beside the sum of oneDNN's layers, in f32 at batch 1: automap's network with everything in it
 * against oneDNN's convolutions and matrix products alone.
 *
 *     npm run build
 *     node dist/bench/networks/network-onednn.js --networks resnet18 --db networks.db
 *     node dist/bench/networks/network-onednn.js --networks all --db networks.db --out networks-onednn
 *
 * Each of oneDNN's primitives is verified against the equation, then timed alone with warm caches and packed weights, in
 * the layout it prefers; the fastest counts. Biases, activations, residual sums, pooling, norms, reorders and the
 * batched products of attention are left out of its sum. Our network is timed before and after its layers, and nothing
 * is left out of it. Above 1 automap is faster.
 */

import { appendFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { type Computation, tensorOf } from "../../abstraction/computation.ts";
import { EnvironmentError } from "../../abstraction/error.ts";
import { MODELS } from "../../network/models/index.ts";
import { isTuned, type Task, tasksOf } from "../../network/tasks.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { summarise } from "../../runtime/statistics.ts";
import { loadNetwork } from "../../session/load-network.ts";
import { openGraph } from "../../session/network.ts";
import { ONEDNN_FLAGS, type OnednnOptions, onednnKernel } from "../peers/onednn.ts";
import { randomSetOnly, withConstant } from "../peers/reference.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { builtNetwork, drawnInputs, inTurns } from "./built-network.ts";

const { values } = readOptions({
  options: {
    networks: { type: "string", default: "all" },
    threads: { type: "string", default: "1" },
    /** Samples of a network, half of them before oneDNN's layers. */
    batches: { type: "string", default: "40" },
    /** Seconds for the primitives of one layer. */
    budget: { type: "string", default: "0.3" },
    db: { type: "string", default: "networks.db" },
    out: { type: "string", default: "networks-onednn" },
  },
});
const threads = Number(values.threads);
const networks =
  values.networks === "all"
    ? Object.keys(MODELS)
    : values.networks.split(",").map((name) => wordOf("networks", name, Object.keys(MODELS)));
const found = await findCompiler();
if (found.status === "environment") throw new EnvironmentError(found);
const compiler = found;

/** A layer in oneDNN's terms. */
interface Layer {
  readonly operator: string;
  readonly parameters: Readonly<Record<string, number>>;
  readonly times: number;
}

interface TimedLayer extends Layer {
  readonly primitive: string;
  readonly seconds: number;
}

interface Row {
  readonly network: string;
  readonly threads: number;
  /** Seconds. */
  readonly automap: number;
  readonly onednn: number;
  /** Products that oneDNN's sum lacks, by the name of a step. */
  readonly leftOut: readonly string[];
  readonly layers: readonly TimedLayer[];
}

const rows: Row[] = [];
writeFileSync(`${values.out}.jsonl`, "");
for (const name of networks) {
  const row = await compared(name);
  rows.push(row);
  appendFileSync(`${values.out}.jsonl`, `${JSON.stringify(row)}\n`);
  console.error(sectionOf(row));
  writeFileSync(`${values.out}.md`, pageOf());
}

async function compared(network: string): Promise<Row> {
  const graph = MODELS[network]?.();
  if (!graph) throw new Error(`internal: ${network} was checked`);
  const { program } = openGraph(graph);
  const tasks = tasksOf(program).filter(isTuned);
  const layers = layersOf(tasks);
  const { folder } = await builtNetwork(program, { database: values.db, threads, compiler });
  const made = await createRunner({ threads, flags: ONEDNN_FLAGS });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  try {
    const inputs = drawnInputs(program);
    const net = await loadNetwork(folder, { trustImported: true });
    const outputs = net.run(inputs);
    const sample = async (): Promise<readonly number[]> => {
      const run = (): unknown => net.run(inputs, outputs);
      return (await inTurns([run, run], { batches: Number(values.batches) / 4 })).flat();
    };
    const before = await sample();
    const timed: TimedLayer[] = [];
    for (const layer of layers) timed.push(await timedLayer(runner, layer));
    const after = await sample();
    net.close();
    return {
      network,
      threads,
      automap: summarise([...before, ...after], 1).median,
      onednn: timed.reduce((sum, { seconds, times }) => sum + seconds * times, 0),
      leftOut: tasks.filter((task) => layerOf(task) === undefined).flatMap(({ steps }) => steps.map(nameOf)),
      layers: timed,
    };
  } finally {
    await runner.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function nameOf({ output }: Task["steps"][number]): string {
  return output.name;
}

/** Tasks that differ in their epilogues only are one layer. */
function layersOf(tasks: readonly Task[]): readonly Layer[] {
  const byKey = new Map<string, Layer>();
  for (const task of tasks) {
    const layer = layerOf(task);
    if (!layer) continue;
    const key = JSON.stringify([layer.operator, layer.parameters]);
    byKey.set(key, { ...layer, times: layer.times + (byKey.get(key)?.times ?? 0) });
  }
  return [...byKey.values()];
}

/** Undefined for products of more than two dimensions, which have no peer. */
function layerOf({ operator, computation, steps }: Task): Layer | undefined {
  if (operator) return { operator: operator.name, parameters: operator.parameters, times: steps.length };
  const { op, value } = computation.equation;
  const factors = op === "+=" && value.kind === "binary" ? [value.left, value.right] : [];
  const [a, b] = factors.map((e) => (e.kind === "access" ? e : undefined));
  if (!a || !b || a.index.length !== 2 || b.index.length !== 2 || !tensorOf(computation, b.tensor).constant)
    return undefined;
  const extent = (axis: string): number => computation.axes.find(({ name }) => name === axis)?.extent ?? 1;
  return {
    operator: "matmul",
    parameters: { m: extent("m"), n: extent("n"), k: extent("k") },
    times: steps.length,
  };
}

function variantsOf({ operator }: Layer): readonly (readonly [string, OnednnOptions])[] {
  if (operator === "matmul")
    return [
      ["matmul", { algorithm: "matmul" }],
      ["inner product", { algorithm: "inner-product" }],
    ];
  const direct: (readonly [string, OnednnOptions])[] = [
    ["own layouts", { algorithm: "direct", activations: "preferred" }],
    ["NHWC", { algorithm: "direct", activations: "given" }],
  ];
  return operator === "conv2d"
    ? [...direct, ["Winograd", { algorithm: "winograd", activations: "preferred" }]]
    : direct;
}

/** @throws Error when none of oneDNN's primitives computes the layer rightly */
async function timedLayer(runner: Runner, layer: Layer): Promise<TimedLayer> {
  const computation = computationOf(layer);
  const offered = variantsOf(layer).flatMap(([name, options]) => {
    const made = onednnKernel(computation, { ...options, threads });
    return made.status === "ready" ? [{ name, kernel: made.kernel }] : [];
  });
  // Winograd mixes neighbours and cannot match sums of integers exactly.
  const reference = randomSetOnly(await runner.reference(computation, 1));
  const measured = await runner.compareKernels(
    offered.map(({ kernel }) => kernel),
    reference,
    { budgetSeconds: Number(values.budget) },
  );
  const [fastest] = measured
    .flatMap((m, i) => (m.status === "ok" ? [{ primitive: offered[i]?.name ?? "?", seconds: m.median }] : []))
    .sort((x, y) => x.seconds - y.seconds);
  if (!fastest) throw new Error(`${layer.operator} ${JSON.stringify(layer.parameters)}: no primitive of oneDNN worked`);
  return { ...layer, ...fastest };
}

function computationOf({ operator, parameters }: Layer): Computation {
  if (operator === "matmul") return withConstant(instantiate(operatorNamed(operator), { parameters }), "b");
  return instantiate(operatorNamed(operator), { parameters, layouts: "NHWC" });
}

function sectionOf({ network, automap, onednn, leftOut, layers }: Row): string {
  const ms = (seconds: number): string => (seconds * 1e3).toFixed(2);
  const shape = (parameters: Readonly<Record<string, number>>): string =>
    Object.entries(parameters)
      .map(([name, value]) => `${name} ${value}`)
      .join(" ");
  const without = leftOut.length === 0 ? "" : ` ${leftOut.length} products have no peer and are not in its sum.`;
  return `## ${network}

automap ${ms(automap)} ms, the sum of oneDNN's layers ${ms(onednn)} ms: ${(onednn / automap).toFixed(2)}.${without}

| layer | times | primitive | us each |
|---|---|---|---|
${layers.map((layer) => `| ${layer.operator} ${shape(layer.parameters)} | ${layer.times} | ${layer.primitive} | ${(layer.seconds * 1e6).toFixed(1)} |`).join("\n")}
`;
}

function pageOf(): string {
  const geomean = Math.exp(
    rows.reduce((sum, { onednn, automap }) => sum + Math.log(onednn / automap), 0) / rows.length,
  );
  return `# Networks beside the sum of oneDNN's layers

${cpus()[0]?.model.trim()}, f32, batch 1, ${threads} thread${threads === 1 ? "" : "s"}; medians. Our time is that of the whole network; oneDNN's is that of its products, each alone with warm caches.

    node dist/bench/networks/network-onednn.js ${process.argv.slice(2).join(" ")}

${rows.map(sectionOf).join("\n")}
oneDNN's sum over our network, geomean of ${rows.length}: ${geomean.toFixed(2)}
`;
}
