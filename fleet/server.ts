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

import type { Address } from "./address.ts";
import { connectionProblem } from "./connection.ts";
import type { FleetServer } from "./contents.ts";
import type { Fleet } from "./members.ts";

export type { Blobs, Board, FleetServer, Post } from "./contents.ts";

export interface ServerOptions {
  /** Called when a connection that was open is lost, at most once a minute with the same sentence. */
  readonly onTrouble?: ((sentence: string) => void) | undefined;
  /** Milliseconds within which the server must answer. */
  readonly patience?: number | undefined;
}

/** With the packages loaded, a user is told within five seconds. */
const PATIENCE_MS = 4_000;
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
  const said = new Map<string, number>();
  const report = (error: unknown): void => {
    const { what, why } = connectionProblem(address, error);
    const sentence = `${what}: ${why}`;
    const last = said.get(sentence);
    if (last !== undefined && Date.now() - last < QUIET_MS) return;
    said.set(sentence, Date.now());
    onTrouble?.(sentence);
  };
  const { openRedis } = await import("./redis.ts");
  return openRedis(address, fleet.id, { patience, report });
}
