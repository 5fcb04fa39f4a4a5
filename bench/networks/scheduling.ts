/**
 * @file Compares the division of search time by expected gain with equal shares of the same time. Both start from an empty database; then both
 * libraries run in one process, in alternating batches.
 *
 *     npm run build
 *     node dist/bench/networks/scheduling.js --out scheduling                     three networks, 80 s a way: nine minutes
 *     node dist/bench/networks/scheduling.js --networks mobilenet-v1 --seconds 20 --out small
 *
 * Searches stay in OUT-NETWORK-by-gain.db and OUT-NETWORK-equal.db. A command that was cut short resumes, and skips
 * finished networks. `times` is equal shares / by gain: above 1 means that gain was the better guide.
 */

import { rmSync, writeFileSync } from "node:fs";
import { z } from "zod";
import { median, summariseRatio } from "../../runtime/statistics.ts";
import { loadNetwork } from "../../session/network/load-network.ts";
import { openGraph } from "../../session/network/network.ts";
import { tuneNetwork } from "../../session/network/tune-network.ts";
import { cpuCompiler, cpuName, geomean, ms, page, rowsIn, table, writerTo } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";
import { inTurns } from "../support/turns.ts";
import { builtNetwork, drawnInputs, graphNamed, networksNamed } from "./built-network.ts";

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
const compiler = await cpuCompiler();

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
const write = writerTo(file);
const rows = rowsIn(ROW, file);
const isDone = (network: string): boolean =>
  rows.some((row) => row.network === network && row.seconds === seconds && row.threads === threads);
for (const network of networksNamed(values.networks)) {
  if (isDone(network)) continue;
  const row = await compared(network);
  rows.push(row);
  write(row);
  console.error(cellsOf(row).join("  "));
}
const head = ["network", "seconds of search", "threads", "by gain, ms", "equal shares, ms", "times"];
const about = `${cpuName()}, batch 1; both from an empty database, then ${batches} batches in turns; medians.`;
const mean = `Equal shares' time over that by gain, geomean: ${geomean(rows.map(({ times }) => times)).toFixed(3)}`;
const lines = table([...head, "tasks without time: by gain", "equal"], rows.map(cellsOf));
writeFileSync(`${values.out}.md`, page("Time dealt by gain, beside equal shares", about, ...lines, "", mean));

async function compared(network: string): Promise<Row> {
  const { program } = openGraph(graphNamed(network));
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
    const times = summariseRatio(b, a, 1).median;
    return { network, seconds, threads, byGain: median(a), equal: median(b), unsearched, times };
  } finally {
    for (const { folder } of built) rmSync(folder, { recursive: true, force: true });
  }
}

function cellsOf({ network, seconds: dealt, threads: of, byGain, equal, times, unsearched }: Row) {
  const [mine = 0, others = 0] = unsearched;
  return [network, dealt, of, ms(byGain), ms(equal), times.toFixed(3), mine, others];
}
