/**
 * @file Servers for a fleet, each on a free port of this machine and with its files in a folder of its own. They end with the tests of the file or
 * the block that starts them. Where a server is not installed there is none, and its tests are skipped with a line that says so.
 *
 *     const server = await redisHere({ password: "secret" });
 *     parseAddress(server.url, server.environment)
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type Server } from "node:net";
import { setTimeout } from "node:timers/promises";
import { afterAll } from "vitest";
import { scratchFolder } from "./scratch.ts";

export interface TestServer {
  /** Without the password. */
  readonly url: string;
  readonly port: number;
  /** The variable that holds the password, if there is one. */
  readonly environment: NodeJS.ProcessEnv;
  /** Ends it at once, as a loss of power would. */
  readonly stop: () => Promise<void>;
  /** Starts it again after a stop, on the same port and with the same files. */
  readonly start: () => Promise<void>;
}

export interface TestServerOptions {
  readonly password?: string;
  /** Lines of the server's configuration. */
  readonly configuration?: readonly string[];
}

const isInstalled = (program: string): boolean => spawnSync(program, ["--version"]).status === 0;

export const hasRedis: boolean = isInstalled("redis-server");

/** Redis, which keeps every write on disk before the next second. */
export async function redisHere({ password, configuration = [] }: TestServerOptions = {}): Promise<TestServer> {
  const folder = scratchFolder("automap-redis-");
  const port = await freePort();
  const lines = [
    `port ${port}`,
    "bind 127.0.0.1",
    `dir ${folder}`,
    'save ""',
    "appendonly yes",
    ...(password === undefined ? [] : [`requirepass ${password}`]),
    ...configuration,
  ];
  const running = await runningProcess(port, () => {
    const child = spawn("redis-server", ["-"], { stdio: ["pipe", "ignore", "ignore"] });
    child.stdin.end(lines.join("\n"));
    return child;
  });
  return {
    ...running,
    url: `redis://127.0.0.1:${port}`,
    port,
    environment: password === undefined ? {} : { AUTOMAP_FLEET_PASSWORD: password },
  };
}

/** Starts a server and waits until it takes connections. */
async function runningProcess(port: number, launch: () => ChildProcess): Promise<Pick<TestServer, "start" | "stop">> {
  let child: ChildProcess | undefined;
  const kill = (): void => void child?.kill("SIGKILL");
  const stop = async (): Promise<void> => {
    const ended = child?.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined;
    kill();
    await ended;
  };
  const start = async (): Promise<void> => {
    child = launch();
    while (!(await isListening(port))) {
      if (child.exitCode !== null) throw new Error(`the server ended with code ${child.exitCode}`);
      await setTimeout(20);
    }
  };
  process.once("exit", kill);
  afterAll(async () => {
    await stop();
    process.removeListener("exit", kill);
  });
  await start();
  return { start, stop };
}

async function isListening(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** A port on which nothing listens now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  const port = await portOf(server);
  server.close();
  return port;
}

/** Lets a server listen on a free port. */
export async function portOf(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const bound = server.address();
  if (bound === null || typeof bound === "string") throw new Error("a server without a port");
  return bound.port;
}
