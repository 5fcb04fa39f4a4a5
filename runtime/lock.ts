/**
 * @file Locks between the processes of a machine. A lock is released when its holder ends, in whatever way.
 *
 *     const lock = await tryLock("core/3", "process 4711 measures");      undefined: somebody has it
 *     await untilFree("core/3", { onHolder: say });                       says "process 4711 measures", and returns when it has let go
 *     await lock.release();
 *
 * A lock is the name of an abstract socket (unix(7), Linux). Only one process can hold the name. Others connect to it, learn who the holder is,
 * and see the connection close when the lock is free. No file is left behind and no permission is needed, so all users of a machine share the
 * locks; containers with their own network do not.
 */

import { connect, createServer, type Server, type Socket } from "node:net";
import { visible } from "../abstraction/text.ts";

export interface Lock {
  readonly name: string;
  /** Whether somebody waits for it. */
  readonly isWanted: () => boolean;
  readonly release: () => Promise<void>;
}

/** What keeps a name from being locked at all: no abstract sockets, or none allowed. */
export class LockError extends Error {
  readonly code: string;

  constructor(code: string) {
    super(`locks between processes cannot be had here (${code})`);
    this.name = "LockError";
    this.code = code;
  }
}

/** Most that a holder may say of itself. */
const WHO_CHARACTERS = 200;

const pathOf = (name: string): string => `\0automap/${name}`;

/**
 * Takes a lock that nobody has.
 * @param who is told to those who wait for it
 * @returns undefined when another has it, or this process already
 * @throws LockError when there are no such locks here
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
      // What is locked is waited for; the lock itself keeps no process alive.
      server.unref();
      resolve({ name, isWanted: () => waiting.size > 0, release: () => closed(server, waiting) });
    });
  });
}

/** First the name is free, then those who wait are told. */
function closed(server: Server, waiting: ReadonlySet<Socket>): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    setImmediate(() => {
      for (const socket of waiting) socket.destroy();
    });
  });
}

export interface WaitOptions {
  /** Told who has it, as soon as it says so. */
  readonly onHolder?: (who: string) => void;
  /** Ends the wait; the promise is fulfilled all the same. */
  readonly signal?: AbortSignal;
}

/** Waits until a lock is let go. Another may be faster to take it, and a process that is being killed lets go of it last: ask again. */
export function untilFree(name: string, { onHolder, signal }: WaitOptions = {}): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(pathOf(name));
    const stop = (): void => void socket.destroy();
    let said = "";
    let isKnown = false;
    // Anybody may hold a name, and say anything.
    socket.setEncoding("utf8").on("data", (text: string) => {
      if (isKnown) return;
      said = (said + text).slice(0, WHO_CHARACTERS);
      isKnown = said.includes("\n") || said.length === WHO_CHARACTERS;
      if (isKnown) onHolder?.(visible(said.split("\n", 1)[0] ?? ""));
    });
    // Nobody listens: it is free.
    socket.on("error", stop);
    socket.on("close", () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    });
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop);
  });
}
