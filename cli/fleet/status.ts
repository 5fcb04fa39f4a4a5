/**
 * @file `automap fleet status`: the workers of a fleet, and how their queues stand.
 *
 *     automap fleet status --fleet redis://queue.lan --key desk.key
 *     automap fleet status --fleet redis://queue.lan --key desk.key --watch
 */

import { setTimeout } from "node:timers/promises";
import type { Queue } from "bullmq";
import { z } from "zod";
import { remembered } from "../../abstraction/collections.ts";
import { shortId } from "../../db/index.ts";
import { fleetData } from "../../fleet/standing.ts";
import { type FleetData, stuckText } from "../../report/fleet-data.ts";
import type { Cli } from "../command.ts";
import { openFleet } from "../fleet-place.ts";
import { flag } from "../options.ts";
import { documentOf, EXIT, type ExitCode, integer, number, print, printJson, say, text, texts } from "../output.ts";
import { printFitted } from "../terminal.ts";

const options = z.object({
  fleet: text.min(1, { error: "--fleet needs the address of the server" }),
  key: text.min(1, { error: "--key needs the file of a member's key" }),
  json: flag,
  watch: flag,
});

const statusSchema = documentOf({
  server: text.describe("the address, and what answers there"),
  workers: z.array(
    z.strictObject({
      name: text,
      measures: z.boolean(),
      target: text,
      compiles: integer.describe("compilations at once"),
      compiler: text,
      environment: text.describe("id, as records name it"),
    }),
  ),
  queues: z.array(
    z.strictObject({
      task: z.enum(["measure", "compile"]),
      of: text.describe("the machine, or the compiler"),
      workers: texts.describe("those that take its jobs"),
      waiting: integer.describe("jobs that no worker has begun"),
      active: integer.describe("jobs that workers are at"),
      lastMinute: integer.describe("jobs that ended within the last minute, 200 at most"),
      longest: number.nullable().describe("seconds since the job was begun that has been worked at longest"),
    }),
  ),
});

export function addStatus(fleet: Cli): void {
  fleet
    .command("status")
    .json(statusSchema)
    .summary("list the workers that are there, and how many jobs wait, are worked at, and end in a minute")
    .requiredOption("--fleet <url>", "the fleet's server: redis://HOST, rediss://HOST or postgresql://HOST/DATABASE")
    .requiredOption("--key <file>", "the key of a member")
    .option("--watch", "look again every two seconds, and print what has changed, until Ctrl-C")
    .examples(
      [
        "automap fleet status --fleet redis://queue.lan --key desk.key",
        "automap fleet status --fleet redis://queue.lan --key desk.key --watch",
      ],
      "A worker is listed while it renews its signed advert, which it does every twenty seconds; one that was killed is there for",
      "a minute more. The password of the server is read as automap worker reads it.",
    )
    .runs(options, status);
}

/** Milliseconds between two looks. */
const AGAIN_MS = 2000;

async function status({ fleet, key, json, watch }: z.infer<typeof options>): Promise<ExitCode> {
  const { server, member } = await openFleet(fleet, key, say);
  const ended = new AbortController();
  const end = (): void => ended.abort();
  try {
    const queues = new Map<string, Queue>();
    const looked = (): Promise<FleetData> =>
      fleetData(server, member.fleet, (name) => remembered(queues, name, () => server.queue(name)));
    let found = await looked();
    show(found, json);
    if (!watch) return found.workers.length === 0 ? EXIT.nothingFound : EXIT.ok;
    process.once("SIGINT", end);
    while (await isTime(ended.signal)) {
      const before = textOf(found);
      found = await looked();
      if (textOf(found) === before) continue;
      if (!json) print(`\n${new Date().toLocaleTimeString("sv")}`);
      show(found, json);
    }
    return EXIT.interrupted;
  } finally {
    process.off("SIGINT", end);
    await server.close();
  }
}

/** What would be printed again only when it changes: how long jobs have been worked at changes always. */
function textOf({ queues, ...rest }: FleetData): string {
  return JSON.stringify([
    rest,
    queues.map(({ longest, ...standing }) => [standing, stuckText({ ...standing, longest }) !== undefined]),
  ]);
}

/** Waits. False when the user ends it. */
async function isTime(signal: AbortSignal): Promise<boolean> {
  await setTimeout(AGAIN_MS, undefined, { signal }).catch(() => undefined);
  return !signal.aborted;
}

function show({ server, workers, queues }: FleetData, json: boolean): void {
  if (json) {
    const standing = queues.map(({ longest = null, ...rest }) => ({ ...rest, longest }));
    printJson(statusSchema, { server, workers, queues: standing });
    return;
  }
  if (workers.length === 0) {
    say(`no worker of this fleet is at ${server}`);
    return;
  }
  const rows = workers.map(({ name, measures, target, compiles, compiler, environment }) => [
    name,
    measures ? target : "",
    String(compiles),
    compiler,
    shortId(environment),
  ]);
  printFitted([["worker", "measures on", "compiles", "compiler", "environment"], ...rows], ["compiler", "environment"]);
  print("");
  const standing = queues.map(({ task, of, workers: names, waiting, active, lastMinute }) => [
    `${task}, ${of}`,
    String(names.length),
    String(waiting),
    String(active),
    String(lastMinute),
  ]);
  printFitted([["jobs to", "workers", "waiting", "active", "last minute"], ...standing], ["workers"]);
  for (const queue of queues) {
    const stuck = stuckText(queue);
    if (stuck !== undefined) print(`\n${stuck}`);
  }
  print(`\nat ${server}`);
}
