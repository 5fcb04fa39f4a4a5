/**
 * @file The server through which the members of a fleet speak: Redis, Valkey or PostgreSQL.
 *
 *     const server = await openServer(parseAddress("redis://queue.lan"), fleet);
 *     const hash = await server.blobs.put(source);
 *     await server.queue("measure").add("measure", sign(tuner, "measure", { kernel: hash }));
 *     await server.close();
 *
 * Nothing that comes from it is believed: messages are signed, and blobs are compared with their hash. Whoever has its password can disturb a
 * fleet but not deceive it. The packages bullmq, ioredis and pg are loaded by whom a server is opened, and by nobody else.
 */

import type { Processor, Queue, QueueEvents, Worker, WorkerOptions } from "bullmq";
import type { Address } from "./address.ts";
import { connectionProblem, driver } from "./connection.ts";
import type { Blobs, Board } from "./contents.ts";
import type { Fleet } from "./members.ts";

export type { Blobs, Board, Post } from "./contents.ts";

/** An open server, with everything in it that belongs to one fleet. */
export interface FleetServer {
  readonly address: Address;
  /** `Redis 7.0.15` */
  readonly software: string;
  /** What may go wrong with how it is set up: sentences. */
  readonly warnings: readonly string[];
  readonly blobs: Blobs;
  readonly board: Board;
  /** A queue to put jobs into. While the server is away, its calls fail at once. Jobs that have ended are removed after a day. */
  readonly queue: (name: string) => Queue;
  /** Takes jobs from a queue, and waits for the server while it is away. */
  readonly worker: (name: string, work: Processor, options?: Partial<WorkerOptions>) => Worker;
  /** The events of a queue, by which one waits for the end of a job. */
  readonly events: (name: string) => QueueEvents;
  /** Closes the connections, and all that was made of them; once, however often it is called. A worker ends its job first. */
  readonly close: () => Promise<void>;
}

export interface ServerOptions {
  /** Called when a connection that was open is lost, at most once a minute with the same sentence. */
  readonly onTrouble?: ((sentence: string) => void) | undefined;
  /** Milliseconds within which the server must answer; some go by while packages are loaded. */
  readonly patience?: number | undefined;
}

const DAY_SECONDS = 24 * 3600;
/** What becomes of jobs that have ended. Their results are in the database of whoever asked. */
const JOB_OPTIONS = {
  removeOnComplete: { age: DAY_SECONDS },
  removeOnFail: { age: DAY_SECONDS },
} as const;
/** A worker that does not renew its lock within this time is taken for dead, and its job is given to another. */
const LOCK_MS = 30_000;
/** A user is told within five seconds. */
const PATIENCE_MS = 4_500;
/** A sentence that was said is not said again within this time. */
const QUIET_MS = 60_000;

/**
 * Connects to a server.
 * @throws EnvironmentError within five seconds when it is not there, refuses the password, is of another kind or lacks what the address promises,
 * or when a package is not installed
 */
export async function openServer(
  address: Address,
  fleet: Pick<Fleet, "id">,
  { onTrouble, patience = PATIENCE_MS }: ServerOptions = {},
): Promise<FleetServer> {
  const began = performance.now();
  const said = new Map<string, number>();
  const report = (error: unknown): void => {
    const { what, why } = connectionProblem(address, error, true);
    const sentence = `${what}: ${why}`;
    const last = said.get(sentence);
    if (last !== undefined && Date.now() - last < QUIET_MS) return;
    said.set(sentence, Date.now());
    onTrouble?.(sentence);
  };
  const bullmq = await driver(() => import("bullmq"), "bullmq", address.kind === "redis" ? "ioredis" : "pg");
  const open =
    address.kind === "redis" ? (await import("./redis.ts")).openRedis : (await import("./postgres.ts")).openPostgres;
  const { software, warnings, blobs, board, queues, close } = await open(address, fleet.id, {
    patience: Math.max(patience / 4, patience - (performance.now() - began)),
    report,
  });
  const made: { readonly close: () => Promise<void> }[] = [];
  const kept = <T extends { on(event: "error", listener: (error: Error) => void): T; close(): Promise<void> }>(
    one: T,
  ): T => {
    made.push(one);
    return one.on("error", report);
  };
  let closing: Promise<void> | undefined;
  const { shared, producer, consumer, backend = bullmq.createRedisBackend } = queues;
  return {
    address,
    software,
    warnings,
    blobs,
    board,
    queue: (name) =>
      kept(new bullmq.Queue(name, { ...shared, connection: producer, defaultJobOptions: JOB_OPTIONS }, backend)),
    worker: (name, work, options) => {
      const all = { ...JOB_OPTIONS, lockDuration: LOCK_MS, ...options, ...shared, connection: consumer };
      return kept(new bullmq.Worker(name, work, all, backend));
    },
    events: (name) => kept(new bullmq.QueueEvents(name, { ...shared, connection: consumer }, backend)),
    close: () => {
      closing ??= Promise.all(made.map((one) => one.close())).then(close);
      return closing;
    },
  };
}
