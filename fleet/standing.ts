/**
 * @file How the queues of a fleet stand: what waits, what workers are at and for how long, and how fast it goes.
 *
 *     await standingsOf(await workersOf(server, fleet), (name) => server.queue(name))
 *     [{ task: "measure", of: "AMD EPYC 9V74", workers: ["node1"], waiting: 7, active: 2, lastMinute: 31, longest: 4 }]
 */

import type { Queue } from "bullmq";
import { remembered } from "../abstraction/collections.ts";
import type { KnownWorker } from "./adverts.ts";
import { compileQueue, measuringQueue } from "./worker.ts";

/** One queue, which the workers of an environment share, or those with the same compilers. */
export interface Standing {
  readonly task: "measure" | "compile";
  /** The machine, or the compiler. */
  readonly of: string;
  readonly workers: readonly string[];
  /** Jobs that nobody has begun. */
  readonly waiting: number;
  readonly active: number;
  /** Jobs that ended within the last minute, of the latest two hundred. */
  readonly lastMinute: number;
  /** Seconds since the one that has been worked at longest was begun. */
  readonly longest: number | undefined;
}

/** A job that has been worked at for so long is stuck, or its kernels are uncommonly slow: seconds. */
export const STUCK = 600;
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
