/**
 * @file A fleet's server in PostgreSQL. A fleet has a schema of its own, `automap_ID`, with BullMQ's tables and one of ours:
 *
 *     kept      kind (blob or post), name (a hash or a name), content, expires
 *
 * Rows that have expired count for nothing, and are deleted by whoever writes next.
 */

import type { ConnectionOptions } from "bullmq";
import type { ClientConfig } from "pg";
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

/** Oldest version that BullMQ takes (docs.bullmq.io/guide/postgresql). */
const OLDEST = 13;
/** Connections of one queue, worker or listener to events; each has another that listens. A server takes a hundred as it is installed. */
const CONNECTIONS = 2;

/** A lock lasts for half a minute by the clock of its holder, and others see by theirs whether it has ended. */
const CLOCKS_MS = 5000;

const TLS: Readonly<Record<Address["tls"], false | { readonly rejectUnauthorized: boolean }>> = {
  none: false,
  unverified: { rejectUnauthorized: false },
  verified: { rejectUnauthorized: true },
};

/** Connects to it, and makes the fleet's tables where they are not there. @throws EnvironmentError when that fails */
export async function openPostgres(
  address: Address,
  fleetId: string,
  { patience, silence, report }: OpeningOptions,
): Promise<Opened> {
  const { Client, Pool } = await driver(() => import("pg"), "pg");
  const bullmq = await driver(() => import("bullmq"), "bullmq");
  const { host, port, user, password, database, tls } = address;
  const schema = `automap_${fleetId}`;
  /** What breaks it while it is in use is told by what is asked of it; unheard, the event would end the process. */
  class HeardClient extends Client {
    constructor(config?: string | ClientConfig) {
      super(config);
      this.on("error", () => undefined);
    }
  }
  const connection = {
    Client: HeardClient,
    host,
    port,
    database,
    ssl: TLS[tls],
    max: CONNECTIONS,
    connectionTimeoutMillis: patience,
    query_timeout: silence,
    ...(user !== undefined && { user }),
    ...(password && { password: password.reveal() }),
  };
  const pool = new Pool(connection);
  pool.on("error", report);
  const table = `"${schema}".kept`;
  const asked = async (text: string, values: readonly unknown[]): Promise<readonly Record<string, unknown>[]> => {
    try {
      return (await pool.query<Record<string, unknown>>(text, [...values])).rows;
    } catch (error) {
      throw new EnvironmentError(connectionProblem(address, error, true));
    }
  };
  /** What the server is, once it has answered. */
  const answered = async (): Promise<string> => {
    const begun = Date.now();
    const { rows } = await pool.query<{ version: string; number: string; standby: boolean; clock: number }>(
      `SELECT current_setting('server_version') AS version, current_setting('server_version_num') AS number,
              pg_is_in_recovery() AS standby, 1000 * extract(epoch FROM clock_timestamp())::float8 AS clock
       FROM (VALUES (1)) AS one`,
    );
    const { version = "", number = "0", standby = false, clock = begun } = rows[0] ?? {};
    checkClocks(address, clock, begun, CLOCKS_MS);
    const unfit = standby
      ? "it is a standby, which takes no jobs"
      : Number(number) < OLDEST * 10_000
        ? `it is PostgreSQL ${version}, and queues ask for ${OLDEST}`
        : undefined;
    if (unfit !== undefined)
      throw new EnvironmentError({
        what: `the server ${address.text} cannot keep a fleet's queues`,
        why: unfit,
        remedy: "name another",
      });
    return `PostgreSQL ${version}`;
  };
  /** Makes the tables that are not there. A busy server may take longer for them than for an answer. */
  const prepared = async (): Promise<void> => {
    const client = await pool.connect();
    try {
      await bullmq.assertSchemaCompatibility(client, schema, { skipVersionCheck: true });
      await client.query(`SELECT 1 FROM ${table} LIMIT 0`);
    } catch {
      // Whoever is first makes the tables; its user must be permitted to, and those of later members need not.
      await bullmq.runMigrations(client, schema, { skipVersionCheck: true });
      await client.query(tableText(schema, table));
    } finally {
      client.release();
    }
  };
  let software: string;
  try {
    software = await within(address, patience, answered());
    await within(address, silence, prepared());
  } catch (error) {
    void pool.end();
    throw error;
  }
  const put = async (kind: "blob" | "post", name: string, content: Uint8Array, seconds: number): Promise<void> => {
    await asked(`DELETE FROM ${table} WHERE expires < now()`, []);
    await asked(
      `INSERT INTO ${table} (kind, name, content, expires) VALUES ($1, $2, $3, now() + make_interval(secs => $4))
       ON CONFLICT (kind, name) DO UPDATE SET content = excluded.content, expires = excluded.expires`,
      [kind, name, Buffer.from(content), seconds],
    );
  };
  const blobs: Blobs = {
    put: async (bytes) => {
      const hash = hashOf(bytes);
      await put("blob", hash, bytes, BLOB_SECONDS);
      return hash;
    },
    get: async (hash) => {
      const where = `FROM ${table} WHERE kind = 'blob' AND name = $1 AND expires > now()`;
      const [size] = await asked(`SELECT octet_length(content) AS bytes ${where}`, [checkHash(hash)]);
      if (size === undefined) return undefined;
      checkBlobSize(hash, Number(size["bytes"]));
      const [row] = await asked(`SELECT content ${where}`, [hash]);
      return row === undefined ? undefined : checkedBlob(hash, bytesOf(row["content"]));
    },
  };
  const board: Board = {
    post: (name, text, ttlSeconds) => put("post", name, Buffer.from(text), ttlSeconds),
    list: async (start) => {
      const rows = await asked(
        `SELECT name, content FROM ${table}
         WHERE kind = 'post' AND starts_with(name, $1) AND expires > now() AND octet_length(content) <= ${LONGEST_POST}
         ORDER BY name COLLATE "C" LIMIT ${MOST_POSTS}`,
        [start],
      );
      return rows.map(({ name, content }) => ({ name: String(name), text: bytesOf(content).toString("utf8") }));
    },
    remove: async (name) => {
      await asked(`DELETE FROM ${table} WHERE kind = 'post' AND name = $1`, [name]);
    },
  };
  // BullMQ's types take connections of Redis unless its classes are told otherwise, and they behave alike.
  const forQueues = { ...connection, schema } as ConnectionOptions;
  return {
    software,
    warnings: [],
    blobs,
    board,
    queues: {
      shared: { skipVersionCheck: true },
      producer: forQueues,
      consumer: forQueues,
      backend: bullmq.createPostgresBackend as unknown as NonNullable<Opened["queues"]["backend"]>, // typed for its own connections alone
    },
    close: () => pool.end(),
  };
}

/** Makes the table. Of several that do at once, one makes it and the others wait. */
function tableText(schema: string, table: string): string {
  return `BEGIN;
    SELECT pg_advisory_xact_lock(hashtext('${schema}'));
    CREATE TABLE IF NOT EXISTS ${table} (
      kind text NOT NULL,
      name text NOT NULL,
      content bytea NOT NULL,
      expires timestamptz NOT NULL,
      PRIMARY KEY (kind, name)
    );
    CREATE INDEX IF NOT EXISTS kept_expires ON ${table} (expires);
    COMMIT`;
}

/** The bytes of a column of bytes, as the driver gives them. */
const bytesOf = (content: unknown): Buffer => (Buffer.isBuffer(content) ? content : Buffer.alloc(0));
