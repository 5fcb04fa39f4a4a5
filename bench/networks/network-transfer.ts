/**
 * @file Networks tuned for two minutes from a database of other networks, beside the same search from an empty one and beside ONNX Runtime. All three
 * run in one process, in alternating batches, once their outputs agree.
 *
 *     npm run build && npm install --no-save onnxruntime-node
 *     node dist/bench/networks/network-transfer.js --from networks.db --networks resnet18,mobilenet-v1 --out two-minutes        nine minutes
 *     node dist/bench/networks/network-transfer.js --from networks.db --networks resnet50 --ways others                         without the empty one
 *
 * The search starts with a copy of the database without all records of the network's own computations, in every form and with any number of threads.
 * So a database of several networks, this one among them, serves as one of the others. The searches stay in OUT-NETWORK-WAY.db. Each has a compile
 * cache of its own, empty but for the machine's calibration, so that it compiles all that it measures, and reads the network anew.
 */

import { existsSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { EnvironmentError, UsageError } from "../../abstraction/error.ts";
import { countTrials, openDatabase, pruneTrials } from "../../db/index.ts";
import { formsOf } from "../../network/forms.ts";
import { MODELS } from "../../network/models/index.ts";
import type { Network } from "../../network/network.ts";
import { onnxBytes } from "../../network/onnx/write.ts";
import { isTuned, tasksOf } from "../../network/tasks.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { summarise, summariseRatio } from "../../runtime/statistics.ts";
import { loadNetwork } from "../../session/load-network.ts";
import { openGraph } from "../../session/network.ts";
import { tuneNetwork } from "../../session/tune-network.ts";
import { loadOnnxRuntime, onnxNetwork, onnxTensors } from "../peers/onnxruntime.ts";
import { beforeOthers } from "../support/first.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { withOwnCache } from "../support/own-cache.ts";
import { differenceOf, toleranceOf } from "../support/same-outputs.ts";
import { builtNetwork, drawnInputs, inTurns } from "./built-network.ts";

const { values } = readOptions({
  options: {
    /** The database of other networks. */
    from: { type: "string", default: "networks.db" },
    networks: { type: "string", default: "resnet18,mobilenet-v1,shufflenet" },
    /** Length of each search. */
    seconds: { type: "string", default: "120" },
    /** What a search starts with. */
    ways: { type: "string", default: "others,empty" },
    threads: { type: "string", default: "1" },
    batches: { type: "string", default: "40" },
    /** Times before all other processes of the machine, which wait. Needs root. */
    first: { type: "boolean", default: false },
    onnxruntime: { type: "string" },
    out: { type: "string", default: "network-transfer" },
  },
});
// Before the searches, which would be lost where the system does not allow it.
if (values.first) await beforeOthers(() => Promise.resolve());
const seconds = Number(values.seconds);
const threads = Number(values.threads);
const batches = Number(values.batches);
const WAYS = { others: "from other networks", empty: "from nothing" } as const;
const ways = values.ways.split(",").map((word) => wordOf("ways", word, Object.keys(WAYS) as (keyof typeof WAYS)[])); // its own keys
const networks = values.networks.split(",").map((word) => wordOf("networks", word, Object.keys(MODELS)));
if (!existsSync(values.from)) throw new UsageError(`--from ${values.from}: there is no such database`);
const found = await findCompiler();
if (found.status === "environment") throw new EnvironmentError(found);
const compiler = found;
const ort = await loadOnnxRuntime(values.onnxruntime);

interface Row {
  readonly network: string;
  /** Its tasks in all forms, and how many of them the database has. */
  readonly tasks: number;
  readonly known: number;
  /** Records that are left. */
  readonly records: number;
  /** Seconds of a call, by way, and of ONNX Runtime. */
  readonly times: readonly number[];
  readonly onnxruntime: number;
  /** ONNX Runtime's time over ours. */
  readonly ratios: readonly number[];
}

const rows: Row[] = [];
writeFileSync(`${values.out}.jsonl`, "");
for (const network of networks) {
  const row = await compared(network);
  rows.push(row);
  console.error(lineOf(row));
  writeFileSync(`${values.out}.jsonl`, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  writeFileSync(`${values.out}.md`, pageOf());
}

async function compared(network: string): Promise<Row> {
  const graph = (MODELS[network] as (typeof MODELS)[string])({ batch: 1 }); // its name was checked
  const { program } = openGraph(graph);
  const start = { others: `${values.out}-${network}-others.db`, empty: `${values.out}-${network}-empty.db` };
  for (const file of Object.values(start))
    for (const end of ["", "-wal", "-shm"]) rmSync(`${file}${end}`, { force: true });
  const left = await withoutRecordsOf(program, start.others);
  const built: Awaited<ReturnType<typeof builtNetwork>>[] = [];
  try {
    for (const way of ways) {
      // Read anew: what a search derives from a computation is kept with it.
      const searched = openGraph(graph).program;
      await withOwnCache(() => tuneNetwork(searched, { seconds, threads, database: start[way] }));
      built.push(await builtNetwork(program, { database: start[way], threads, compiler }));
    }
    const time = (): Promise<Pick<Row, "times" | "onnxruntime" | "ratios">> =>
      timesOf(
        program,
        onnxBytes(graph),
        built.map(({ folder }) => folder),
      );
    return { network, ...left, ...(await (values.first ? beforeOthers(time) : time())) };
  } finally {
    for (const { folder } of built) rmSync(folder, { recursive: true, force: true });
  }
}

/** Times of built networks and of ONNX Runtime. */
async function timesOf(program: Network, model: Uint8Array, folders: readonly string[]) {
  const nets: Awaited<ReturnType<typeof loadNetwork>>[] = [];
  for (const folder of folders) nets.push(await loadNetwork(folder, { trustImported: true }));
  const inputs = drawnInputs(program);
  const peer = await onnxNetwork(ort, model, { inputs, tensors: onnxTensors(program), threads });
  await peer.run();
  for (const net of nets) differenceOf(net.run(inputs), peer.outputs, toleranceOf(program));
  const [theirs = [], ...ours] = await inTurns([peer.run, ...nets.map((net) => () => net.run(inputs))], { batches });
  for (const net of nets) net.close();
  await peer.close();
  return {
    times: ours.map((samples) => summarise(samples, 1).median),
    onnxruntime: summarise(theirs, 1).median,
    ratios: ours.map((samples) => summariseRatio(theirs, samples, 1).median),
  };
}

/** Copies the database without what a network's own tasks have in it. */
async function withoutRecordsOf(program: Network, file: string): Promise<Pick<Row, "tasks" | "known" | "records">> {
  const source = openDatabase(values.from, { readonly: true });
  await source.sqlite.backup(file);
  source.close();
  const db = openDatabase(file);
  try {
    const steps = program.steps.flatMap((step) => formsOf(step).flat());
    const own = tasksOf({ ...program, steps }).filter(isTuned);
    const known = own.filter(({ computation }) => countTrials(db, { computation }) > 0);
    for (const { computation } of known)
      pruneTrials(db, { computation }, { reason: `${program.name} is tuned without its own records`, best: true });
    return { tasks: own.length, known: known.length, records: countTrials(db) };
  } finally {
    db.close();
  }
}

function lineOf({ network, tasks, known, records, times, onnxruntime, ratios }: Row): string {
  const ms = (time: number): string => (time * 1e3).toFixed(2);
  const pairs = times.flatMap((time, i) => [ms(time), (ratios[i] ?? Number.NaN).toFixed(2)]);
  return `| ${[network, `${known} of ${tasks}`, records, ms(onnxruntime), ...pairs].join(" | ")} |`;
}

function pageOf(): string {
  const geomeans = ways.map((_, i) =>
    Math.exp(rows.reduce((sum, { ratios }) => sum + Math.log(ratios[i] ?? Number.NaN), 0) / rows.length).toFixed(2),
  );
  const head = ways.flatMap((way) => [`${WAYS[way]}, ms`, "ratio"]);
  return `# Networks after ${seconds} seconds of search, with the records of other networks and without any

${cpus()[0]?.model.trim()}, batch 1, ${threads} thread${threads === 1 ? "" : "s"}, onnxruntime-node ${ort.version}; one Node process, ${batches} batches in turns, each after a rest${values.first ? ", before all other processes (SCHED_FIFO)" : ""}; medians. Ratios are ONNX Runtime's time over ours.

    node dist/bench/networks/network-transfer.js ${process.argv.slice(2).join(" ")}

Records of a network's own tasks, which are in the database too, are left out before its search. Each search has an empty compile cache, with the calibration of this machine. Outputs are compared with ONNX Runtime's before anything is timed.

| network | own tasks left out | records of others | ONNX Runtime, ms | ${head.join(" | ")} |
|---|---|---|---|${"---|".repeat(head.length)}
${rows.map(lineOf).join("\n")}

Geomean of ${rows.length}: ${ways.map((way, i) => `${geomeans[i] ?? ""} ${WAYS[way]}`).join(", ")}.
`;
}
