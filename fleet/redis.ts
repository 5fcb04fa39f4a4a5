/**
 * @file A fleet's server in Redis, Valkey or another that speaks as Redis does. The keys of a fleet:
 *
 *     automap:{ID}:blob:HASH            the content, for a week
 *     automap:{ID}:board:NAME           a text, for as long as it was posted
 *     automap:{ID}:names                the names on the board, in order
 *     automap:{ID}:queue:...            BullMQ's
 */

import { isIP } from "node:net";
import { EnvironmentError } from "../abstraction/error.ts";
import type { Address } from "./address.ts";
import { checkClocks, connectionProblem, driver, within } from "./connection.ts";
import {
  BLOB_SECONDS,
  type Blobs,
  type Board,
  checkBlobSize,
  checkedBlob,
  checkHash,
  hashOf,
  LONGEST_POST,
  MOST_POSTS,
  type Opened,
  type OpeningOptions,
} from "./contents.ts";

/** Oldest Redis that has all that BullMQ asks for (docs.bullmq.io, "Redis compatibility"). */
const OLDEST: readonly [major: number, minor: number] = [6, 2];

/** Answers are kept for ten minutes by the clock of whoever answered last. */
const CLOCKS_MS = 300_000;

/** Forgets the name of a post that has expired, unless it was posted again meanwhile. */
const FORGET = "if redis.call('exists', KEYS[1]) == 0 then return redis.call('zrem', KEYS[2], ARGV[1]) end";

/** Waits before the connection is tried again: a quarter of a second, then twice as long each time, up to twenty seconds. */
const again = (times: number): number => Math.min(20_000, 125 * 2 ** times);

/** Connects to it. @throws EnvironmentError when that fails, or it is none that can keep queues */
export async function openRedis(
  address: Address,
  fleetId: string,
  { patience, silence, report }: OpeningOptions,
): Promise<Opened> {
  const { Redis } = await driver(() => import("ioredis"), "ioredis");
  const { host, port, user, password, database, tls } = address;
  const connection = {
    host,
    port,
    db: Number(database),
    connectTimeout: patience,
    socketTimeout: silence,
    ...(user !== undefined && { username: user }),
    ...(password && { password: password.reveal() }),
    ...(tls !== "none" && { tls: isIP(host) === 0 ? { servername: host } : {} }),
  };
  let isOpen = false;
  const client = new Redis({
    ...connection,
    lazyConnect: true,
    maxRetriesPerRequest: 3,
    retryStrategy: (times) => (isOpen ? again(times) : null),
  });
  // The first of several tells most: what follows is that the connection is closed.
  let first: unknown;
  client.on("error", (error: unknown) => {
    first ??= error;
    if (isOpen) report(error);
  });
  const asked = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (error) {
      throw new EnvironmentError(connectionProblem(address, error, true));
    }
  };
  let info: ReadonlyMap<string, string>;
  try {
    info = await within(address, patience, connected());
  } catch (error) {
    client.disconnect();
    throw error;
  }
  async function connected(): Promise<ReadonlyMap<string, string>> {
    try {
      await client.connect();
      const asked = Date.now();
      const text = await client.info();
      if (first !== undefined) throw first;
      const told = new Map(text.split(/\r?\n/).map((line) => splitAt(line, line.indexOf(":"))));
      const clock = told.get("server_time_usec");
      if (clock !== undefined) checkClocks(address, Number(clock) / 1000, asked, CLOCKS_MS);
      return told;
    } catch (error) {
      throw first ?? error;
    }
  }
  const unfit = unfitness(info);
  if (unfit !== undefined) {
    client.disconnect();
    throw new EnvironmentError({ what: `the server ${address.text} cannot keep a fleet's queues`, ...unfit });
  }
  isOpen = true;
  const prefix = `automap:{${fleetId}}`;
  const blobs: Blobs = {
    put: async (bytes) => {
      const hash = hashOf(bytes);
      await asked(client.set(`${prefix}:blob:${hash}`, Buffer.from(bytes), "EX", BLOB_SECONDS));
      return hash;
    },
    get: async (hash) => {
      const name = `${prefix}:blob:${checkHash(hash)}`;
      checkBlobSize(hash, await asked(client.strlen(name)));
      const bytes = await asked(client.getBuffer(name));
      return bytes === null ? undefined : checkedBlob(hash, bytes);
    },
  };
  const names = `${prefix}:names`;
  const post = (name: string): string => `${prefix}:board:${name}`;
  const board: Board = {
    post: async (name, text, ttlSeconds) => {
      await asked(client.multi().set(post(name), text, "EX", ttlSeconds).zadd(names, 0, name).exec());
    },
    list: async (start) => {
      const found = await asked(client.zrangebylex(names, `[${start}`, `[${start}\u{10ffff}`, "LIMIT", 0, MOST_POSTS));
      const texts = found.length === 0 ? [] : await asked(client.mget(found.map(post)));
      const gone = found.filter((_, i) => texts[i] === null);
      await Promise.all(gone.map((name) => asked(client.eval(FORGET, 2, post(name), names, name))));
      return found.flatMap((name, i) => {
        const text = texts[i];
        return typeof text === "string" && text.length <= LONGEST_POST ? [{ name, text }] : [];
      });
    },
    remove: async (name) => {
      await asked(client.multi().del(post(name)).zrem(names, name).exec());
    },
  };
  return {
    software: softwareOf(info),
    warnings: warningsOf(info),
    blobs,
    board,
    queues: {
      shared: {
        prefix: `${prefix}:queue`,
        // Else BullMQ would print a warning of its own for each connection.
        skipVersionCheck: info.get("maxmemory_policy") !== "noeviction",
      },
      producer: { ...connection, enableOfflineQueue: false, retryStrategy: again },
      consumer: { ...connection, maxRetriesPerRequest: null, retryStrategy: again },
      backend: undefined,
    },
    close: async () => {
      isOpen = false;
      client.disconnect();
    },
  };
}

const splitAt = (line: string, at: number): [string, string] => [line.slice(0, at), line.slice(at + 1)];

function softwareOf(info: ReadonlyMap<string, string>): string {
  const valkey = info.get("valkey_version");
  return valkey === undefined ? `Redis ${info.get("redis_version") ?? "of an unknown version"}` : `Valkey ${valkey}`;
}

/** Why a server cannot keep queues whatever else is done, and what to do. */
function unfitness(info: ReadonlyMap<string, string>): { readonly why: string; readonly remedy: string } | undefined {
  const remedy = "name a server that stands alone, or the first of its replicas";
  if (info.get("cluster_enabled") === "1")
    return { why: "it is a node of a cluster, which spreads keys over servers", remedy };
  if (info.get("role") === "slave") return { why: "it is a replica, which takes no jobs", remedy };
  const [major = 0, minor = 0] = (info.get("redis_version") ?? "").split(".").map(Number);
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return undefined;
  return { why: `it is ${softwareOf(info)}, and queues ask for ${OLDEST.join(".")}`, remedy: "install a later one" };
}

function warningsOf(info: ReadonlyMap<string, string>): readonly string[] {
  const policy = info.get("maxmemory_policy") ?? "noeviction";
  if (policy === "noeviction" || info.get("maxmemory") === "0") return [];
  return [
    `the server removes data when its memory is full (maxmemory-policy ${policy}), and jobs with it: set maxmemory-policy to noeviction`,
  ];
}
