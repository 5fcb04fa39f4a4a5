/**
 * @file `automap fleet ping|drain`: asks workers of a fleet whether they are there, and one to end.
 *
 *     automap fleet ping --fleet redis://queue.lan --key desk.key
 *     automap fleet drain node3 --fleet redis://queue.lan --key desk.key
 */

import { z } from "zod";
import { namesOf } from "../../abstraction/collections.ts";
import { EnvironmentError, NotFoundError, suggestion } from "../../abstraction/error.ts";
import { type KnownWorker, workersOf } from "../../fleet/adverts.ts";
import type { Member } from "../../fleet/members.ts";
import { give } from "../../fleet/orders.ts";
import type { FleetServer } from "../../fleet/server.ts";
import { FleetRefusal } from "../../fleet/signed.ts";
import { counted } from "../../report/text.ts";
import type { Cli } from "../command.ts";
import { openFleet } from "../fleet-place.ts";
import { flag } from "../options.ts";
import { documentOf, EXIT, type ExitCode, integer, number, print, printJson, say, text } from "../output.ts";
import { printFitted } from "../terminal.ts";

const options = z.object({
  fleet: text.min(1, { error: "--fleet needs the address of the server" }),
  key: text.min(1, { error: "--key needs the file of a tuner's key" }),
  json: flag,
});
type Options = z.infer<typeof options>;

const pingSchema = documentOf({
  workers: z.array(
    z.strictObject({
      name: text,
      milliseconds: number.nullable().describe("until it answered; null when it did not"),
      answered: integer.nullable().describe("jobs that it has answered since it began"),
      problem: text.nullable(),
    }),
  ),
});
const drainSchema = documentOf({ name: text, answered: integer.describe("jobs that it has answered since it began") });

export function addOrders(fleet: Cli): void {
  const command = (name: string): Cli =>
    fleet
      .command(name)
      .requiredOption("--fleet <url>", "the fleet's server: redis://HOST, rediss://HOST or postgresql://HOST/DATABASE")
      .requiredOption("--key <file>", "a tuner's key, as automap fleet admit wrote it");
  command("ping")
    .json(pingSchema)
    .summary("ask workers whether they are there; they answer while they measure")
    .argument("[name]", "of one worker; all of them when left out")
    .examples(
      ["automap fleet ping --fleet redis://queue.lan --key desk.key"],
      "Exit code 1 when a worker that says it is there does not answer within five seconds.",
    )
    .runs(options, ping);
  command("drain")
    .json(drainSchema)
    .summary("let a worker finish the job at hand, take no other, and end")
    .argument("<name>", "of the worker")
    .examples(
      ["automap fleet drain node3 --fleet redis://queue.lan --key desk.key"],
      "The jobs that wait stay for the other workers of its kind. A service manager may start it anew.",
    )
    .runs(options, drain);
}

async function ping({ fleet, key, json }: Options, _command: Cli, name?: string): Promise<ExitCode> {
  const asked = await withWorkers({ fleet, key }, name, (server, member, workers) =>
    Promise.all(
      workers.map(async (worker) => {
        try {
          const { milliseconds, answered } = await give(server, member, worker, "ping");
          return { name: worker.name, milliseconds, answered, problem: null };
        } catch (error) {
          if (!(error instanceof FleetRefusal || error instanceof EnvironmentError)) throw error;
          const [problem = ""] = error.message.split("\n");
          return { name: worker.name, milliseconds: null, answered: null, problem };
        }
      }),
    ),
  );
  if (json) printJson(pingSchema, { workers: asked });
  else {
    const rows = asked.map(({ name: worker, milliseconds, answered, problem }) => [
      worker,
      milliseconds === null ? "" : `${milliseconds.toFixed(0)} ms`,
      problem ?? `${counted(answered ?? 0, "job")} answered`,
    ]);
    printFitted([["worker", "after", "answer"], ...rows], []);
  }
  return asked.every(({ problem }) => problem === null) ? EXIT.ok : EXIT.failed;
}

async function drain({ fleet, key, json }: Options, _command: Cli, name: string): Promise<ExitCode> {
  const [done] = await withWorkers({ fleet, key }, name, (server, member, workers) =>
    Promise.all(workers.map((worker) => give(server, member, worker, "drain"))),
  );
  const answered = done?.answered ?? 0;
  if (json) printJson(drainSchema, { name, answered });
  else print(`${name} finishes the job at hand and ends; it has answered ${counted(answered, "job")}`);
  return EXIT.ok;
}

/** What some work gives for the workers that are there, or the one of that name. */
async function withWorkers<T>(
  { fleet, key }: Pick<Options, "fleet" | "key">,
  name: string | undefined,
  work: (server: FleetServer, member: Member, workers: readonly KnownWorker[]) => Promise<T>,
): Promise<T> {
  const { server, member } = await openFleet(fleet, key, say, "tuner");
  try {
    const workers = await workersOf(server, member.fleet);
    const named = workers.filter((worker) => name === undefined || worker.name === name);
    if (named.length > 0) return await work(server, member, named);
    const names = namesOf(workers);
    throw new NotFoundError(
      name === undefined || names.length === 0 ? "no worker of the fleet is there" : `no worker "${name}" is there`,
      names.length === 0 ? "automap worker starts one" : suggestion(name ?? "", names),
    );
  } finally {
    await server.close();
  }
}
