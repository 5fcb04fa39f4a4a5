/**
 * @file Orders of a tuner to one worker: to say that it is there, and to end once it has finished the job at hand.
 *
 *     const orders = takeOrders(server, member, () => worker.answered());     on the worker
 *     await orders.drained;
 *
 *     await give(server, tuner, worker, "ping")                               { worker: "node3", answered: 34, milliseconds: 12 }
 *
 * They go through a queue of the worker's own, beside its jobs, so that a worker answers while it measures. An order names the advert that it
 * answers, by the worker's own clock. An order that somebody sends again counts for nothing once the worker has started anew.
 */

import { randomBytes } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { z } from "zod";
import { EnvironmentError } from "../abstraction/error.ts";
import type { KnownWorker } from "./adverts.ts";
import { sha256Of } from "./jobs.ts";
import type { Member } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { FleetRefusal, sign, verified } from "./signed.ts";

export type Order = "ping" | "drain";

const ORDER = "order";
const DONE = "order-done";

const orderSchema = z.strictObject({
  order: z.enum(["ping", "drain"]),
  /** The public key of the worker. */
  to: z.string().max(64),
  /** When the worker last said that it is there, by its own clock. */
  seen: z.number(),
  nonce: z.string().max(64),
});
const doneSchema = z.strictObject({ nonce: z.string().max(64), answered: z.int().nonnegative() });

/** What a worker answered to an order. */
export interface Done {
  readonly worker: string;
  /** Jobs that it has answered since it began. */
  readonly answered: number;
  /** Until the answer was there. */
  readonly milliseconds: number;
}

/** Orders count for so long after the advert that they name. Adverts come three times a minute. */
const LONGEST_MS = 3 * 60_000;
/** Between two looks for an answer. */
const LOOK_MS = 50;
/** An answer is there within this time, or the worker is taken to be gone. */
const PATIENCE_MS = 5_000;

const queueOf = (publicKey: string): string => `orders-${sha256Of(publicKey).slice(0, 32)}`;

interface OrderedOptions {
  readonly answered: () => number;
  readonly say: (text: string) => void;
  /** When the worker began, in milliseconds since 1970: orders from before count for nothing. */
  readonly began?: number;
}

/** Takes orders until the server is closed. @returns a promise that resolves with the name of the tuner who wants the worker to end */
export function takeOrders(
  server: FleetServer,
  member: Member,
  { answered, say, began = performance.timeOrigin }: OrderedOptions,
): { readonly drained: Promise<string> } {
  const { fleet, certificate } = member;
  let drain: (by: string) => void = () => undefined;
  const drained = new Promise<string>((resolve) => {
    drain = resolve;
  });
  server.worker(queueOf(certificate.publicKey), async (job) => {
    try {
      const { body, by } = verified(fleet, job.data, { kind: ORDER, role: "tuner" });
      const { data } = orderSchema.safeParse(body);
      const refused = data === undefined ? "it is none that is known" : refusal(data, certificate.publicKey, began);
      if (data === undefined || refused !== undefined)
        throw new FleetRefusal(`an order of ${by.name} is refused: ${refused}`);
      if (data.order === "drain") drain(by.name);
      return sign(member, DONE, { nonce: data.nonce, answered: answered() });
    } catch (error) {
      if (error instanceof FleetRefusal) say(`refused: ${error.message}`);
      throw error;
    }
  });
  return { drained };
}

/** Why an order does not count, or undefined. */
function refusal({ to, seen }: z.infer<typeof orderSchema>, publicKey: string, began: number): string | undefined {
  if (to !== publicKey) return "it is for another worker";
  return seen < began || Date.now() - seen > LONGEST_MS ? "it is too old" : undefined;
}

/**
 * Gives an order to a worker, and waits until it says that it has it.
 * @throws EnvironmentError when it does not answer; FleetRefusal when it refuses, or somebody else answers
 */
export async function give(
  server: FleetServer,
  tuner: Member,
  { name, publicKey, advert }: KnownWorker,
  order: Order,
): Promise<Done> {
  const began = performance.now();
  const nonce = randomBytes(16).toString("hex");
  const signed = sign(tuner, ORDER, { order, to: publicKey, seen: advert.at, nonce });
  const queue = server.queue(queueOf(publicKey));
  const given = await queue.add(order, signed, { removeOnComplete: { age: 60 }, removeOnFail: { age: 60 } });
  while (performance.now() - began < PATIENCE_MS) {
    await setTimeout(LOOK_MS);
    const job = await queue.getJob(given.id ?? "");
    if (job?.failedReason) throw new FleetRefusal(`${name} refuses: ${job.failedReason}`);
    if (!job?.returnvalue) continue;
    const milliseconds = performance.now() - began;
    const { body, by } = verified(tuner.fleet, job.returnvalue, { kind: DONE, role: "worker" });
    const { data } = doneSchema.safeParse(body);
    if (data?.nonce !== nonce || by.publicKey !== publicKey)
      throw new FleetRefusal(`an answer of ${by.name} is refused: it is to another order`);
    return { worker: name, answered: data.answered, milliseconds };
  }
  await given.remove().catch(() => undefined);
  throw new EnvironmentError({
    what: `worker ${name} does not answer`,
    why: `an order waited ${PATIENCE_MS / 1000} s for it`,
    remedy: "look whether it runs, and what it says",
  });
}
