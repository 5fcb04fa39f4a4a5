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
import { isDoneBefore } from "../runtime/until.ts";
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
  /** Closes a worker, which ends its job first, for as long as the server may take to answer. @returns whether it was there for that */
  readonly end: (worker: Worker) => Promise<boolean>;
  /** Closes the connections, and all that was made of them; once, however often it is called. */
  readonly close: () => Promise<void>;
}

export interface ServerOptions {
  /** Called when a connection that was open is lost, at most once a minute with the same sentence. */
  readonly onTrouble?: ((sentence: string) => void) | undefined;
  /** Milliseconds within which the server must answer, also when it is left. Packages are loaded before, which takes as long on a machine with other work. */
  readonly patience?: number | undefined;
  /** Milliseconds after which a connection on which an answer is awaited is taken to be lost, and made anew. */
  readonly silence?: number | undefined;
}

const DAY_SECONDS = 24 * 3600;
/** What becomes of jobs that have ended. Their results are in the database of whoever asked. */
const JOB_OPTIONS = {
  removeOnComplete: { age: DAY_SECONDS },
  removeOnFail: { age: DAY_SECONDS },
} as const;
/** Between two attempts of what an error has ended. */
const AGAIN_MS = 1000;
/** A worker that does not renew its lock within this time is taken for dead, and its job is given to another. */
const LOCK_MS = 30_000;
/** Between two looks for such jobs. One that was there at two looks, and is locked no more, is given. */
const STALLED_MS = 10_000;
const WORKER_OPTIONS = {
  ...JOB_OPTIONS,
  lockDuration: LOCK_MS,
  stalledInterval: STALLED_MS,
  runRetryDelay: AGAIN_MS,
} as const;
/** A user is told within five seconds. */
const PATIENCE_MS = 4_000;
/** Routers forget connections and tell nobody; a server that is asked answers sooner, also one that waits for a job in its queue. */
const SILENCE_MS = 30_000;
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
  { onTrouble, patience = PATIENCE_MS, silence = SILENCE_MS }: ServerOptions = {},
): Promise<FleetServer> {
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
    patience,
    silence,
    report,
  });
  const made: Made[] = [];
  /** Whether it was waited for in vain. */
  let isGone = false;
  /** Closes what may not find its server any more, and would look for it for ever. */
  const end = async (one: Made): Promise<boolean> => {
    const isDone = await isDoneBefore(one.close().catch(report), AbortSignal.timeout(isGone ? 0 : patience));
    isGone ||= !isDone;
    one.disconnect().catch(() => undefined);
    return isDone;
  };
  const kept = <T extends Made & { on(event: "error", listener: (error: Error) => void): T }>(one: T): T => {
    made.push(one);
    return one.on("error", report);
  };
  let closing: Promise<void> | undefined;
  // A server that is waited for answers in time when nothing has come.
  const waits = silence / 3;
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
      const all = { ...WORKER_OPTIONS, drainDelay: waits / 1000, ...options, ...shared, connection: consumer };
      return kept(new bullmq.Worker(name, work, all, backend));
    },
    events: (name) => {
      const all = { ...shared, connection: consumer, blockingTimeout: waits };
      return kept(new bullmq.QueueEvents(name, all, backend));
    },
    end,
    close: () => {
      closing ??= Promise.all(made.map(end)).then(close);
      return closing;
    },
  };
}

/** What speaks to a server. */
interface Made {
  readonly close: () => Promise<void>;
  readonly disconnect: () => Promise<void>;
}
