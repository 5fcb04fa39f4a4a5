/**
 * @file What a server keeps for a fleet besides queues of jobs: blobs, which are found by the hash of their content, and a board of short texts
 * that expire. Redis and PostgreSQL keep them alike.
 *
 *     const hash = await server.blobs.put(source);
 *     await server.board.post("worker-node3", text, 60);
 */

import { createHash } from "node:crypto";
import type { BackendFactory, ConnectionOptions, RedisQueueBackend } from "bullmq";
import { FleetRefusal } from "./signed.ts";

/** Content that is found by its hash: kernels, references, binaries. */
export interface Blobs {
  /** Keeps some bytes, for a week from now. @returns their SHA-256 in hexadecimal digits */
  readonly put: (bytes: Uint8Array) => Promise<string>;
  /**
   * The bytes with that hash, or undefined when the server has none.
   * @throws FleetRefusal when the server gives others, or more than a blob may have
   */
  readonly get: (hash: string) => Promise<Buffer | undefined>;
}

/** Short texts by name, which expire. Later posts of a name replace earlier ones. */
export interface Board {
  readonly post: (name: string, text: string, ttlSeconds: number) => Promise<void>;
  /** The texts whose names begin with a prefix, by name; those that are too long to be somebody's are left out. */
  readonly list: (prefix: string) => Promise<readonly Post[]>;
  readonly remove: (name: string) => Promise<void>;
}

export interface Post {
  readonly name: string;
  readonly text: string;
}

/** What one kind of server gives. */
export interface Opened {
  readonly software: string;
  readonly warnings: readonly string[];
  readonly blobs: Blobs;
  readonly board: Board;
  /** How BullMQ is to connect to it. */
  readonly queues: {
    readonly shared: { readonly prefix?: string; readonly skipVersionCheck: boolean };
    /** For calls that fail while the server is away. */
    readonly producer: ConnectionOptions;
    /** For those that wait for it. */
    readonly consumer: ConnectionOptions;
    /** BullMQ's own, Redis, where undefined. */
    readonly backend: BackendFactory<RedisQueueBackend, ConnectionOptions> | undefined;
  };
  readonly close: () => Promise<void>;
}

/** How a kind of server is opened. */
export interface OpeningOptions {
  /** Milliseconds within which it must answer. */
  readonly patience: number;
  /** Milliseconds after which a connection that is asked and does not answer is lost. */
  readonly silence: number;
  /** Is told of errors of connections that were open. */
  readonly report: (error: unknown) => void;
}

/** Bytes of a blob: sources have kilobytes, binaries with their weights some megabytes. */
export const LARGEST_BLOB = 2 ** 26;
export const BLOB_SECONDS = 7 * 24 * 3600;
/** Characters of a text on the board: a signed message has a body of up to 2^20, which is escaped in it. */
export const LONGEST_POST = 2 ** 21;
/** Most posts that are listed. */
export const MOST_POSTS = 1000;
/** The name under which a blob is found. */
export function hashOf(bytes: Uint8Array): string {
  if (bytes.length > LARGEST_BLOB) throw new FleetRefusal(`a blob of ${bytes.length} bytes is refused: ${TOO_LARGE}`);
  return createHash("sha256").update(bytes).digest("hex");
}

const TOO_LARGE = `it may have ${LARGEST_BLOB} at most`;

/** A blob's bytes, once they are what was asked for. */
export function checkedBlob(hash: string, bytes: Buffer): Buffer {
  if (hashOf(bytes) === hash) return bytes;
  throw new FleetRefusal(`the blob ${hash} is refused: the server holds other content under this hash`);
}

/** @throws FleetRefusal when the server would send more bytes than a blob may have */
export function checkBlobSize(hash: string, bytes: number): void {
  if (bytes > LARGEST_BLOB) throw new FleetRefusal(`the blob ${hash} of ${bytes} bytes is refused: ${TOO_LARGE}`);
}

/** A hash as text, which is part of keys and statements. */
export function checkHash(hash: string): string {
  if (/^[0-9a-f]{64}$/.test(hash)) return hash;
  throw new FleetRefusal("a blob is refused: its name is not a hash");
}
