/**
 * @file Servers for a fleet, each on a free port of this machine and with its files in a folder of its own. They end with the tests of the file or
 * the block that starts them. Where a server is not installed there is none, and its tests are skipped with a line that says so.
 *
 *     const server = await redisHere({ password: "secret" });
 *     parseAddress(server.url, server.environment)
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterAll, onTestFinished, TestRunner } from "vitest";

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
  const folder = mkdtempSync(join(tmpdir(), "automap-redis-"));
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
  const start = (): ChildProcess => {
    const child = spawn("redis-server", ["-"], { stdio: ["pipe", "ignore", "ignore"] });
    child.stdin.end(lines.join("\n"));
    return child;
  };
  const running = await runningProcess({ folder, start, isReady: () => isListening(port), end: "SIGKILL" });
  return {
    ...running,
    url: `redis://127.0.0.1:${port}`,
    port,
    environment: password === undefined ? {} : { AUTOMAP_FLEET_PASSWORD: password },
  };
}

/** The folder of PostgreSQL's programs; undefined where it is not installed. Debian has them outside PATH. */
const POSTGRES = ["", ...debianFolders()].find(
  (folder) => isInstalled(`${folder}initdb`) && isInstalled(`${folder}postgres`),
);

export const hasPostgres: boolean = POSTGRES !== undefined;

/** The user that PostgreSQL runs as, since it refuses to as root; undefined where the tests run as somebody else. */
const POSTGRES_USER = process.getuid?.() === 0 ? { uid: numberOf("-u"), gid: numberOf("-g") } : undefined;

function numberOf(what: "-u" | "-g"): number {
  return Number(spawnSync("id", [what, "postgres"], { encoding: "utf8" }).stdout);
}

function debianFolders(): readonly string[] {
  const root = "/usr/lib/postgresql";
  return existsSync(root) ? readdirSync(root).map((version) => `${root}/${version}/bin/`) : [];
}

/** PostgreSQL with a user `automap`, to whom it belongs. It asks for the password only if there is one. */
export async function postgresHere({ password, configuration = [] }: TestServerOptions = {}): Promise<TestServer> {
  const folder = mkdtempSync(join(tmpdir(), "automap-postgres-"));
  const port = await freePort();
  const secret = join(folder, "password");
  const data = join(folder, "data");
  writeFileSync(secret, password ?? "none");
  const user = POSTGRES_USER;
  if (user) for (const path of [folder, secret]) chownSync(path, user.uid, user.gid);
  const access = password === undefined ? "trust" : "scram-sha-256";
  const words = ["-D", data, "-U", "automap", "-A", access, "--pwfile", secret, "-N", "-E", "UTF8", "--locale=C"];
  const { status, stderr } = spawnSync(`${POSTGRES}initdb`, words, { encoding: "utf8", cwd: folder, ...user });
  if (status !== 0) throw new Error(`initdb: ${stderr}`);
  const settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "jit=off", ...configuration];
  const line = ["-D", data, "-p", String(port), ...settings.flatMap((setting) => ["-c", setting])];
  const start = (): ChildProcess => spawn(`${POSTGRES}postgres`, line, { stdio: "ignore", cwd: folder, ...user });
  const isReady = (): boolean =>
    spawnSync(`${POSTGRES}pg_isready`, ["-q", "-h", "127.0.0.1", "-p", String(port)]).status === 0;
  // Killed, it would leave its other processes behind.
  const running = await runningProcess({ folder, start, isReady, end: "SIGQUIT" });
  return {
    ...running,
    url: `postgresql://automap@127.0.0.1:${port}/postgres`,
    port,
    environment: password === undefined ? {} : { AUTOMAP_FLEET_PASSWORD: password },
  };
}

interface Launch {
  readonly folder: string;
  readonly start: () => ChildProcess;
  readonly isReady: () => boolean | Promise<boolean>;
  /** What ends it at once, with all its processes. */
  readonly end: NodeJS.Signals;
}

/** Starts a server and waits until it answers. When it has ended, its folder is removed. */
async function runningProcess({ folder, start, isReady, end }: Launch): Promise<Pick<TestServer, "start" | "stop">> {
  let child: ChildProcess | undefined;
  const kill = (): void => void child?.kill(end);
  const stop = async (): Promise<void> => {
    const ended = child?.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined;
    kill();
    await ended;
  };
  const again = async (): Promise<void> => {
    child = start();
    while (!(await isReady())) {
      if (child.exitCode !== null) throw new Error(`the server ended with code ${child.exitCode}`);
      await setTimeout(50);
    }
  };
  process.once("exit", kill);
  atEnd(async () => {
    await stop();
    process.removeListener("exit", kill);
    rmSync(folder, { recursive: true, force: true });
  });
  await again();
  return { start: again, stop };
}

/** Does some work when the test that asks for it has ended, or all tests of the block or the file that does. */
function atEnd(work: () => Promise<void>): void {
  (TestRunner.getCurrentTest() === undefined ? afterAll : onTestFinished)(work);
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
