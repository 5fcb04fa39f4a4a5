/**
 * @file Locks between the processes of a machine. A lock is released when its holder ends, however it ends.
 *
 *     const lock = await tryLock("core/3", "process 4711 measures");      undefined if another process holds it
 *     await untilFree("core/3", { onHolder: say });                       says "process 4711 measures", and returns once it is released
 *     await lock.release();
 *
 * A lock is the name of an abstract socket (unix(7), Linux). Only one process can hold the name. Others connect to it,
 * learn who the holder is, and see the connection close when the lock is free. No file is left behind and no permission
 * is needed, so all users of a machine share the locks; containers with their own network do not.
 */

import { connect, createServer, type Server, type Socket } from "node:net";
import { visible } from "../abstraction/text.ts";
import { heard } from "./until.ts";

export interface Lock {
  readonly name: string;
  /** Whether another process waits for it. */
  readonly isWanted: () => boolean;
  readonly release: () => Promise<void>;
}

/** Locks are not available: there are no abstract sockets, or they are not permitted. */
export class LockError extends Error {
  readonly code: string;

  constructor(code: string) {
    super(`locks between processes cannot be had here (${code})`);
    this.name = "LockError";
    this.code = code;
  }
}

/** The longest description of a holder, in characters. */
const WHO_CHARACTERS = 200;

const pathOf = (name: string): string => `\0automap/${name}`;

/**
 * Tries to take a lock.
 * @param who a description of the holder for those who wait
 * @returns undefined if another process holds it, or this one already does
 * @throws LockError if such locks are not available here
 */
export function tryLock(name: string, who: string): Promise<Lock | undefined> {
  return new Promise((resolve, reject) => {
    const waiting = new Set<Socket>();
    const server = createServer((socket) => {
      waiting.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => waiting.delete(socket));
      socket.write(`${who}\n`);
    });
    server.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(undefined);
      else reject(new LockError(error.code ?? error.message));
    });
    server.listen({ path: pathOf(name), exclusive: true }, () => {
      // The lock must not keep its process alive.
      server.unref();
      resolve({ name, isWanted: () => waiting.size > 0, release: () => closed(server, waiting) });
    });
  });
}

/** Frees the name, then notifies those who wait. */
function closed(server: Server, waiting: ReadonlySet<Socket>): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    setImmediate(() => {
      for (const socket of waiting) socket.destroy();
    });
  });
}

interface WaitOptions {
  /** Called with the holder's description as soon as it is known. */
  readonly onHolder?: (who: string) => void;
  /** Ends the wait; the promise is still fulfilled. */
  readonly signal?: AbortSignal;
}

/**
 * Waits until a lock is released. Another process may take it first, and a process being killed releases it late, so
 * try again.
 */
export function untilFree(name: string, { onHolder, signal }: WaitOptions = {}): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(pathOf(name));
    const stop = (): void => void socket.destroy();
    let said = "";
    let isKnown = false;
    // Any process may hold the name and send anything.
    socket.setEncoding("utf8").on("data", (text: string) => {
      if (isKnown) return;
      said = (said + text).slice(0, WHO_CHARACTERS);
      isKnown = said.includes("\n") || said.length === WHO_CHARACTERS;
      if (isKnown) onHolder?.(visible(said.split("\n", 1)[0] ?? ""));
    });
    // Nobody listens, so the lock is free.
    socket.on("error", stop);
    const release = heard(signal, stop);
    socket.on("close", () => {
      release();
      resolve();
    });
  });
}
