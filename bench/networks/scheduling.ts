/**
 * @file Search time dealt among a network's tasks by expected gain, against equal shares of the same time. Both start
 * from an empty database; then both libraries run in one process, in alternating batches.
 *
 *     npm run build
 *     node dist/bench/networks/scheduling.js --out scheduling                     three networks, 80 s a way: nine minutes
 *     node dist/bench/networks/scheduling.js --networks mobilenet-v1 --seconds 20 --out small
 *
 * Searches stay in OUT-NETWORK-by-gain.db and OUT-NETWORK-equal.db. A command that was cut short resumes, and skips
 * finished networks. `times` is equal shares / by gain: above 1 means that gain was the better guide.
 */

import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { z } from "zod";
import { EnvironmentError } from "../../abstraction/error.ts";
import { MODELS } from "../../network/models/index.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { summarise, summariseRatio } from "../../runtime/statistics.ts";
import { loadNetwork } from "../../session/load-network.ts";
import { openGraph } from "../../session/network.ts";
import { tuneNetwork } from "../../session/tune-network.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { builtNetwork, drawnInputs, inTurns } from "./built-network.ts";

const { values } = readOptions({
  options: {
    networks: { type: "string", default: "resnet18,mobilenet-v1,mobilenet-v1-u8s8" },
    /** Length of each search of a network. */
    seconds: { type: "string", default: "80" },
    threads: { type: "string", default: "1" },
    batches: { type: "string", default: "40" },
    out: { type: "string", default: "scheduling" },
  },
});
const seconds = Number(values.seconds);
const threads = Number(values.threads);
const batches = Number(values.batches);
const found = await findCompiler();
if (found.status === "environment") throw new EnvironmentError(found);
const compiler = found;

const ROW = z.object({
  network: z.string(),
  seconds: z.number(),
  threads: z.number(),
  byGain: z.number().meta({ description: "seconds of one call" }),
  equal: z.number(),
  times: z.number(),
  unsearched: z.array(z.number()).meta({ description: "tasks in use that got no time: by gain, with equal shares" }),
});
type Row = z.infer<typeof ROW>;

const file = `${values.out}.jsonl`;
const rows: Row[] = existsSync(file)
  ? readFileSync(file, "utf8")
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => ROW.parse(JSON.parse(line)))
  : [];
const isDone = (network: string): boolean =>
  rows.some((row) => row.network === network && row.seconds === seconds && row.threads === threads);
for (const word of values.networks.split(",")) {
  const network = wordOf("networks", word, Object.keys(MODELS));
  if (isDone(network)) continue;
  const row = await compared(network);
  rows.push(row);
  appendFileSync(file, `${JSON.stringify(row)}\n`);
  console.error(lineOf(row));
}
const geomean = Math.exp(rows.reduce((sum, { times }) => sum + Math.log(times), 0) / rows.length);
writeFileSync(
  `${values.out}.md`,
  `# Time dealt by gain, beside equal shares

${cpus()[0]?.model.trim()}, batch 1; both from an empty database, then ${batches} batches in turns; medians.

    node dist/bench/networks/scheduling.js ${process.argv.slice(2).join(" ")}

| network | seconds of search | threads | by gain, ms | equal shares, ms | times | tasks without time: by gain | equal |
|---|---|---|---|---|---|---|---|
${rows.map(lineOf).join("\n")}

Equal shares' time over that by gain, geomean: ${geomean.toFixed(3)}
`,
);

async function compared(network: string): Promise<Row> {
  const { program } = openGraph((MODELS[network] as () => ReturnType<(typeof MODELS)[string]>)()); // checked above
  const built: Awaited<ReturnType<typeof builtNetwork>>[] = [];
  const unsearched: number[] = [];
  try {
    for (const equal of [false, true]) {
      const database = `${values.out}-${network}-${equal ? "equal" : "by-gain"}.db`;
      const tasks = await tuneNetwork(program, { seconds, threads, database, equal });
      unsearched.push(tasks.filter(({ searched, beaten }) => !searched && !beaten).length);
      built.push(await builtNetwork(program, { database, threads, compiler }));
    }
    const nets: Awaited<ReturnType<typeof loadNetwork>>[] = [];
    for (const { folder } of built) nets.push(await loadNetwork(folder, { trustImported: true }));
    const [gain, same] = nets;
    if (!gain || !same) throw new Error("internal: two networks were built");
    const inputs = drawnInputs(program);
    const [a = [], b = []] = await inTurns([() => gain.run(inputs), () => same.run(inputs)], { batches });
    for (const net of nets) net.close();
    const byGain = summarise(a, 1).median;
    const equal = summarise(b, 1).median;
    return { network, seconds, threads, byGain, equal, unsearched, times: summariseRatio(b, a, 1).median };
  } finally {
    for (const { folder } of built) rmSync(folder, { recursive: true, force: true });
  }
}

function lineOf({ network, seconds: dealt, threads: of, byGain, equal, times, unsearched }: Row): string {
  const [mine = 0, others = 0] = unsearched;
  const ms = (time: number): string => (time * 1e3).toFixed(2);
  return `| ${[network, dealt, of, ms(byGain), ms(equal), times.toFixed(3), mine, others].join(" | ")} |`;
}
