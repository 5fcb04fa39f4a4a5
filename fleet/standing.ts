/**
 * @file How the queues of a fleet stand: what waits, what workers are at and for how long, and how fast it goes.
 *
 *     await standingsOf(await workersOf(server, fleet), (name) => server.queue(name))
 *     [{ task: "measure", of: "AMD EPYC 9V74", workers: ["node1"], waiting: 7, active: 2, lastMinute: 31, longest: 4 }]
 */

import type { Queue } from "bullmq";
import { remembered } from "../abstraction/collections.ts";
import type { FleetData, Standing, WorkerFacts } from "../report/fleet-data.ts";
import { type KnownWorker, workersOf } from "./adverts.ts";
import type { Fleet } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { compileQueue, measuringQueue } from "./worker.ts";

/** The workers of a fleet and its queues as they are now. @param queueNamed the queues of the server; each name is asked for once in a call */
export async function fleetData(
  server: FleetServer,
  fleet: Fleet,
  queueNamed: (name: string) => Queue,
): Promise<FleetData> {
  const workers = await workersOf(server, fleet);
  const queues = await standingsOf(workers, queueNamed);
  return { server: `${server.address.text} (${server.software})`, workers: workers.map(factsOf), queues };
}

function factsOf({ name, advert }: KnownWorker): WorkerFacts {
  const { environment, measures, compiles } = advert;
  const { target, compiler, id } = environment;
  return { name, measures, target, compiles, compiler: compiler.version, environment: id };
}

/** Most jobs of a queue that are looked at. */
const MOST = 200;
const MINUTE_MS = 60_000;

/** @param queueNamed the queues of an open server; each name is asked for once in a call */
export async function standingsOf(
  workers: readonly KnownWorker[],
  queueNamed: (name: string) => Queue,
  now = Date.now(),
): Promise<readonly Standing[]> {
  const served = new Map<
    string,
    { readonly task: Standing["task"]; readonly of: string; readonly workers: string[] }
  >();
  for (const { name, advert } of workers) {
    const { environment, measures, compiles, compilers } = advert;
    const serve = (queue: string, task: Standing["task"], of: string): void => {
      remembered(served, queue, () => ({ task, of, workers: [] })).workers.push(name);
    };
    if (measures) serve(measuringQueue(environment.id), "measure", environment.target);
    if (compiles > 0) serve(compileQueue(compilers), "compile", environment.compiler.version);
  }
  return Promise.all(
    [...served].map(async ([name, { task, of, workers: names }]) => {
      const queue = queueNamed(name);
      const [counts, ended, begun] = await Promise.all([
        queue.getJobCounts("waiting", "active"),
        queue.getCompleted(0, MOST - 1),
        queue.getActive(0, MOST - 1),
      ]);
      const starts = begun.flatMap(({ processedOn }) => processedOn ?? []);
      return {
        task,
        of,
        workers: names,
        waiting: counts["waiting"] ?? 0,
        active: counts["active"] ?? 0,
        lastMinute: ended.filter(({ finishedOn = 0 }) => now - finishedOn < MINUTE_MS).length,
        longest: starts.length === 0 ? undefined : Math.max(0, now - Math.min(...starts)) / 1000,
      };
    }),
  );
}
