/**
 * @file Whole networks against ONNX Runtime, both called from this process in alternating batches. Outputs are compared
 * first. Also times our network by step.
 *
 *     npm run build && npm install --no-save onnxruntime-node
 *     node dist/cli/main.js tune-network resnet18 --time 360 --db networks.db
 *     node dist/bench/networks/network.js --networks resnet18 --db networks.db
 *     node dist/bench/networks/network.js --threads 2 --onnxruntime /opt/ort/node_modules/onnxruntime-node --out networks
 *     node dist/bench/networks/network.js --networks model.onnx --db networks.db          a file, all of whose sizes are known
 *     node dist/bench/networks/network.js --networks all --tune 60 --db networks.db      all, each tuned for a minute first
 *     node dist/bench/networks/network.js --networks all --threads 2 --first --db networks.db     times it before all other processes, as root
 *     node dist/bench/networks/network.js --networks all --batch 16 --batches 8 --tune 120 --db networks.db
 *
 * The page begins with a table of all. Weights that a file fills with one number are drawn instead, for both sides; where `NAME_output_0.pb` lies beside
 * `NAME.onnx`, the library is also built with the file's own weights and compared with it, as ONNX's backend tests do.
 * Kernels come from the database, untuned steps from `automap network emit`'s defaults. Weights are seeded. Above 1,
 * automap is faster. A network that fails, or needs more memory than is free, is reported, and the others go on. A step's time is its median
 * in place in the network, in calls that time every step; `record` is its kernel's time alone, as its record says: with warm caches, or where
 * a star follows with its data in no cache.
 */

import { rmSync, writeFileSync } from "node:fs";
import { reasonOf, UsageError } from "../../abstraction/error.ts";
import type { Network } from "../../network/network.ts";
import type { Task } from "../../network/tasks.ts";
import { median, summariseRatio } from "../../runtime/statistics.ts";
import { loadNetwork } from "../../session/network/load-network.ts";
import { type Choice, inBrainFloatsOnCpu, openGraph } from "../../session/network/network.ts";
import { tuneNetwork } from "../../session/network/tune-network.ts";
import { loadOnnxRuntime, type OnnxArray, onnxNetwork, onnxTensors } from "../peers/onnxruntime.ts";
import { beforeOthers } from "../support/first.ts";
import { cpuCompiler, cpuName, geomean, ms, page, table, threadsText, us, writerTo } from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { differenceOf, toleranceOf } from "../support/same-outputs.ts";
import { inTurns } from "../support/turns.ts";
import { builtNetwork, drawnInputs, modelNamed, networksNamed } from "./built-network.ts";
import { memoryProblem } from "./network-memory.ts";

const { values } = readOptions({
  options: {
    networks: { type: "string", default: "resnet18" },
    threads: { type: "string", default: "1" },
    /** Images, or sequences of tokens, of a call; in a file they are known. */
    batch: { type: "string", default: "1" },
    /** Turns of each side. */
    batches: { type: "string", default: "40" },
    /** Of the factors of products: f32 or bf16. ONNX Runtime computes in f32. */
    dtype: { type: "string", default: "f32" },
    db: { type: "string", default: "networks.db" },
    exact: { type: "boolean", default: false },
    /** Times before all other processes of the machine, which wait. Needs root. */
    first: { type: "boolean", default: false },
    /** Seconds of tuning for each network before it is timed; 0 uses the existing records. */
    tune: { type: "string", default: "0" },
    onnxruntime: { type: "string" },
    out: { type: "string", default: "networks" },
  },
});
// Before the searches, which would be lost where the system does not allow it.
if (values.first) await beforeOthers(() => Promise.resolve());
const dtype = wordOf("dtype", values.dtype, ["f32", "bf16"]);
const threads = Number(values.threads);
const batch = Number(values.batch);
const batches = Number(values.batches);
if (!Number.isSafeInteger(batch) || batch < 1) throw new UsageError(`--batch ${values.batch}: a batch is 1 or more`);
/** After so many seconds no further turns begin. Three are always made. */
const TURNS_SECONDS = 120;
/** Calls that time every step: as many of these as take no longer than so many seconds, three at least. */
const PROFILED = { calls: 50, seconds: 10, least: 3 } as const;

const compiler = await cpuCompiler();
const ort = await loadOnnxRuntime(values.onnxruntime);
const networks = networksNamed(values.networks);
const rows: Row[] = [];
const sections: string[] = [];
writeFileSync(`${values.out}.jsonl`, "");
const write = writerTo(`${values.out}.jsonl`);
for (const name of networks) {
  const row = await compared(name).catch((error: unknown) => {
    if (networks.length === 1) throw error;
    process.exitCode = 1;
    return `failed: ${reasonOf(error)}`;
  });
  if (typeof row !== "string") {
    rows.push(row);
    write(row);
  }
  sections.push(typeof row === "string" ? `## ${name}\n\n${row}\n` : sectionOf(row));
  console.error(sections.at(-1));
  writeFileSync(`${values.out}.md`, pageOf());
}

/** The page of what is compared so far: an interrupted run leaves it. */
function pageOf(): string {
  const about = `${cpuName()}, ${new Date().toISOString().slice(0, 10)}, ${compiler.version}, ${dtype}, batch ${batch}, ${threadsText(threads)}, onnxruntime-node ${ort.version}; one Node process, at most ${batches} batches in turns, each after a rest${values.first ? ", before all other processes (SCHED_FIFO)" : ""}; medians.`;
  const ratios = rows.map(({ ratio }) => ratio);
  const [least, most] = [Math.min(...ratios), Math.max(...ratios)].map((ratio) => ratio.toFixed(2));
  const mean = `**ONNX Runtime's time over ours, by geometric mean of ${rows.length} of ${networks.length} networks: ${geomean(ratios).toFixed(2)}, from ${least} to ${most}.**`;
  const all = table(
    ["network", "automap, ms", "ONNX Runtime, ms", "ratio", "outputs differ by", "of the file's test by"],
    rows.map(({ network, automap, onnxruntime, ratio, difference, tested }) => [
      network,
      ms(automap),
      ms(onnxruntime),
      ratio.toFixed(2),
      difference.toExponential(1),
      tested?.toExponential(1),
    ]),
  );
  return page("Networks beside ONNX Runtime", about, mean, "", ...all, "", ...sections);
}

/** The kernel of a step and its time. */
interface StepRow {
  readonly name: string;
  readonly seconds: number;
  readonly multiplyAdds: number;
  /** Seconds of its kernel alone; undefined where none was tuned. */
  readonly record: number | undefined;
  /** Whether that was with its data in no cache. */
  readonly flushed: boolean;
}

type Row = Exclude<Awaited<ReturnType<typeof compared>>, string>;

/** The times of a network, or why it is left out. */
async function compared(network: string) {
  const { title, graph, bytes, test } = modelNamed(network, batch);
  const opened = openGraph(graph);
  const problem = memoryProblem(opened.program);
  if (problem !== undefined) return `left out: ${problem}`;
  const { program } = dtype === "bf16" ? inBrainFloatsOnCpu(opened) : opened;
  const tuning = Number(values.tune);
  const { exact, db: database } = values;
  const tasks = tuning > 0 ? await tuneNetwork(program, { seconds: tuning, threads, database, exact }) : [];
  const without = tasks.filter(({ searched }) => !searched).length;
  const built = await builtNetwork(program, { database, threads, exact, compiler });
  try {
    const timed = () => timesOf(program, built, bytes());
    const times = await (values.first ? beforeOthers(timed) : timed());
    const tested = test && (await testedOf(test));
    return { network: title, threads, batch, ...times, tested, ...(tuning > 0 && { tasks: tasks.length, without }) };
  } finally {
    rmSync(built.folder, { recursive: true, force: true });
  }
}

/** Times of a built network and of ONNX Runtime, whose outputs are compared first. */
async function timesOf(
  program: Network,
  { folder, choices }: Awaited<ReturnType<typeof builtNetwork>>,
  model: Uint8Array,
) {
  const inputs = drawnInputs(program);
  const ours = await loadNetwork(folder, { trustImported: true });
  const peer = await onnxNetwork(ort, model, { inputs, tensors: onnxTensors(program), threads });
  const outputs = ours.run(inputs);
  await peer.run();
  const difference = differenceOf(outputs, peer.outputs, toleranceOf(program, dtype));
  const [a = [], b = []] = await inTurns([() => ours.run(inputs, outputs), peer.run], {
    batches,
    seconds: TURNS_SECONDS,
  });
  ours.close();
  await peer.close();
  return {
    turns: a.length,
    automap: median(a),
    onnxruntime: median(b),
    ratio: summariseRatio(b, a, 1).median,
    difference,
    least: [Math.min(...a), Math.min(...b)],
    steps: await stepsOf(folder, inputs, { program, choices }),
  };
}

/** The largest difference from the output of a file's test, whose inputs are 0, 1/n, 2/n and so on, relative to the largest element. */
async function testedOf({ graph, output }: NonNullable<ReturnType<typeof modelNamed>["test"]>): Promise<number> {
  const { program } = openGraph(graph);
  const { folder } = await builtNetwork(program, { database: values.db, threads, exact: values.exact, compiler });
  const net = await loadNetwork(folder, { trustImported: true });
  try {
    const rising = Object.entries(drawnInputs(program)).map(([name, { length }]) => [
      name,
      Float32Array.from({ length }, (_, i) => i / length),
    ]);
    const expected = Object.fromEntries(program.outputs.map(({ name }) => [name, Float32Array.from(output.values)]));
    return differenceOf(net.run(Object.fromEntries(rising)), expected, toleranceOf(program));
  } finally {
    net.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function stepsOf(
  folder: string,
  inputs: Readonly<Record<string, OnnxArray>>,
  { program, choices }: { readonly program: Network; readonly choices: ReadonlyMap<Task, Choice> },
): Promise<readonly StepRow[]> {
  const net = await loadNetwork(folder, { times: true, trustImported: true });
  net.run(inputs);
  const samples = net.steps().map((): number[] => []);
  const begun = performance.now();
  const isOver = (calls: number): boolean =>
    calls === PROFILED.calls || (calls >= PROFILED.least && performance.now() - begun > 1000 * PROFILED.seconds);
  for (let call = 0; !isOver(call); call++) {
    const before = net.steps();
    net.run(inputs);
    for (const [i, { seconds }] of net.steps().entries()) samples[i]?.push(seconds - (before[i]?.seconds ?? 0));
  }
  const tasks = new Map(
    [...choices].flatMap(([task, choice]) => task.steps.map((step) => [step, { task, choice }] as const)),
  );
  if (net.steps().length !== program.steps.length) throw new Error("internal: times of other steps");
  const rows = net.steps().map(({ name }, i): StepRow => {
    const step = program.steps[i];
    const known = step && tasks.get(step);
    const record = known?.choice.kind === "record" ? known.choice : undefined;
    const seconds = median(samples[i] ?? []);
    const alone = { record: record?.seconds, flushed: record?.cache === "flushed" };
    return { name, seconds, multiplyAdds: known?.task.multiplyAdds ?? 0, ...alone };
  });
  net.close();
  return rows;
}

function sectionOf(row: Row): string {
  const sum = (numbers: readonly number[]): number => numbers.reduce((all, x) => all + x, 0);
  const rate = ({ multiplyAdds, seconds }: StepRow): string =>
    multiplyAdds === 0 ? "" : ((2 * multiplyAdds) / seconds / 1e9).toFixed(0);
  // A step that is computed with a later one takes no time of its own.
  const timed = row.steps.filter(({ seconds }) => seconds > 0);
  const fewer = row.turns < batches ? ` ${row.turns} turns.` : "";
  const left = row.without ? ` ${row.without} of ${row.tasks} tasks got no search time.` : "";
  const all = [row.steps.map(({ seconds }) => seconds), row.steps.map(({ record = 0 }) => record)].map((s) =>
    us(sum(s)),
  );
  return [
    `## ${row.network}`,
    "",
    `automap ${ms(row.automap)} ms, ONNX Runtime ${ms(row.onnxruntime)} ms: ${row.ratio.toFixed(2)}. Least: ${row.least.map(ms).join(" and ")} ms. Outputs differ by ${row.difference.toExponential(1)} of the largest.${fewer}${left}`,
    "",
    "A record with a star was measured with its data in no cache, the others with warm caches.",
    "",
    ...table(
      ["step", "us", "record, us", "GFLOP/s"],
      [
        ...timed.map((s) => [s.name, us(s.seconds), `${us(s.record)}${s.flushed ? "*" : ""}`, rate(s)]),
        ["all", ...all, ""],
      ],
    ),
    "",
  ].join("\n");
}
