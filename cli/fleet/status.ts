/**
 * @file `automap fleet status`: the workers of a fleet, and what waits for them.
 *
 *     automap fleet status --fleet redis://queue.lan --key desk.key
 */

import { z } from "zod";
import { shortId } from "../../db/index.ts";
import { parseAddress } from "../../fleet/address.ts";
import { type KnownWorker, workersOf } from "../../fleet/adverts.ts";
import { readMember } from "../../fleet/members.ts";
import { type FleetServer, openServer } from "../../fleet/server.ts";
import { compileQueue, measuringQueue } from "../../fleet/worker.ts";
import type { Cli } from "../command.ts";
import { flag } from "../options.ts";
import { documentOf, EXIT, type ExitCode, integer, print, printJson, say, text } from "../output.ts";
import { printFitted } from "../terminal.ts";

const options = z.object({
  fleet: text.min(1, { error: "--fleet needs the address of the server" }),
  key: text.min(1, { error: "--key needs the file of a member's key" }),
  json: flag,
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
      waiting: integer.describe("jobs for this environment that no worker has begun"),
      active: integer.describe("jobs for this environment that workers are at"),
    }),
  ),
});

export function addStatus(fleet: Cli): void {
  fleet
    .command("status")
    .json(statusSchema)
    .summary("list the workers that are there, and how many jobs wait for them")
    .requiredOption("--fleet <url>", "the fleet's server: redis://HOST, rediss://HOST or postgresql://HOST/DATABASE")
    .requiredOption("--key <file>", "the key of a member")
    .examples(
      ["automap fleet status --fleet redis://queue.lan --key desk.key"],
      "A worker is listed while it renews its signed advert, which it does every twenty seconds; one that was killed is there for",
      "a minute more. The password of the server is read as automap worker reads it.",
    )
    .runs(options, status);
}

async function status({ fleet, key, json }: z.infer<typeof options>): Promise<ExitCode> {
  const address = parseAddress(fleet);
  const { fleet: known } = readMember(key);
  const server = await openServer(address, known, { onTrouble: say });
  try {
    for (const warning of server.warnings) say(warning);
    const workers = await Promise.all((await workersOf(server, known)).map((worker) => rowOf(server, worker)));
    const where = `${address.text} (${server.software})`;
    if (json) printJson(statusSchema, { server: where, workers });
    else if (workers.length === 0) say(`no worker of this fleet is at ${where}`);
    else {
      const head = ["worker", "measures on", "compiles", "compiler", "environment", "waiting", "active"];
      const rows = workers.map((row) => [
        row.name,
        row.measures ? row.target : "",
        String(row.compiles),
        row.compiler,
        shortId(row.environment),
        String(row.waiting),
        String(row.active),
      ]);
      printFitted([head, ...rows], ["compiler", "environment"]);
      print(`\nat ${where}`);
    }
    return workers.length === 0 ? EXIT.nothingFound : EXIT.ok;
  } finally {
    await server.close();
  }
}

async function rowOf(server: FleetServer, { name, advert }: KnownWorker) {
  const { environment, measures, compiles, compilers } = advert;
  const queue = server.queue(measures ? measuringQueue(environment.id) : compileQueue(compilers));
  const counts = await queue.getJobCounts("waiting", "active");
  return {
    name,
    measures,
    target: environment.target,
    compiles,
    compiler: environment.compiler.version,
    environment: environment.id,
    waiting: counts["waiting"] ?? 0,
    active: counts["active"] ?? 0,
  };
}
