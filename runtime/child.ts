/**
 * @file Runs a program as a child in its own process group with a time limit. At the limit the whole group is killed.
 *
 *     const run = await runChild(["g++", "-O1", "a.cpp"], { timeLimitMs: 60_000 });
 *     if (run.status !== "ok") console.error(explainRun(run));
 */

import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { Readable } from "node:stream";

/** How a child ended, and what it printed. */
export type ChildRun = Output & Ending;

type Ending =
  | { readonly status: "ok" }
  | { readonly status: "failed"; readonly exitCode: number }
  | { readonly status: "crashed"; readonly signal: string }
  | { readonly status: "timed out"; readonly limitMs: number }
  | { readonly status: "stopped" }
  | { readonly status: "not started"; readonly reason: string };

interface Output {
  readonly command: readonly string[];
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * After a child has ended, its pipes are read until they are silent for this long. Processes that it started may hold
 * them open for ever.
 */
const SILENCE_MS = 50;
/** The most such waits, for a process that keeps printing. */
const LONGEST_SILENCES = 20;

/**
 * Calls back once, when a child has ended and its output has been read. It does not wait for processes that the child
 * left behind, unlike Node's event `close`, which comes only after the last process has closed the pipes.
 */
export function whenOver(
  child: ChildProcess,
  over: (exitCode: number | null, signal: NodeJS.Signals | null) => void,
): void {
  const pipes = [child.stdout, child.stderr, ...child.stdio.slice(3)].filter((pipe) => pipe instanceof Readable);
  let heard = false;
  let timer: NodeJS.Timeout | undefined;
  let isOver = false;
  for (const pipe of pipes)
    pipe.on("data", () => {
      heard = true;
    });
  const end = (exitCode: number | null, signal: NodeJS.Signals | null): void => {
    if (isOver) return;
    isOver = true;
    clearTimeout(timer);
    for (const pipe of pipes) pipe.destroy();
    over(exitCode, signal);
  };
  child.on("close", end);
  child.on("exit", (exitCode, signal) => {
    const listen = (left: number): void => {
      heard = false;
      // Timers run before pending reads, so a busy process checks its pipes once more.
      const look = (): void => (heard && left > 0 && !isOver ? listen(left - 1) : end(exitCode, signal));
      timer = setTimeout(() => setImmediate(look), SILENCE_MS);
    };
    if (!isOver) listen(LONGEST_SILENCES);
  });
}

/** Starts a child. Node throws if memory is short, and returns a child without pipes if file descriptors are. */
export function begin<C extends ChildProcess>(start: () => C): { readonly child: C } | { readonly reason: string } {
  try {
    const child = start();
    if (child.pid === undefined && child.stdout === undefined) {
      child.on("error", () => undefined);
      return { reason: "EMFILE: too many open files" };
    }
    return { child };
  } catch (error) {
    return { reason: error instanceof Error ? error.message : String(error) };
  }
}

/** Runs a command to its end. Never throws; a failure is a status. */
export function runChild(
  command: readonly string[],
  options: {
    readonly timeLimitMs: number;
    readonly cwd?: string;
    /** Processors it may use. Ignored if `taskset` is not installed. */
    readonly cpus?: readonly number[] | undefined;
    /** Variables in addition to those of this process. */
    readonly env?: Readonly<Record<string, string>>;
    /** Kills it when aborted. */
    readonly signal?: AbortSignal | undefined;
  },
): Promise<ChildRun> {
  const [program = "", ...args] = onProcessors(options.cpus, command);
  return new Promise((resolve) => {
    const output = { stdout: "", stderr: "" };
    const { signal } = options;
    if (signal?.aborted) {
      resolve({ command, ...output, status: "stopped" });
      return;
    }
    const begun = begin(() =>
      spawn(program, args, {
        ...{ cwd: options.cwd, detached: true, stdio: ["ignore", "pipe", "pipe"] },
        ...(options.env && { env: { ...process.env, ...options.env } }),
      }),
    );
    if ("reason" in begun) {
      resolve({ command, ...output, status: "not started", reason: begun.reason });
      return;
    }
    const { child } = begun;
    let late = false;
    const stop = (): void => {
      if (child.pid !== undefined) killGroup(child.pid);
    };
    signal?.addEventListener("abort", stop);
    const end = (how: Ending): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      resolve({ command, ...output, ...how });
    };
    const timer = setTimeout(() => {
      late = true;
      stop();
    }, options.timeLimitMs);
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output.stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      output.stderr += text;
    });
    child.on("error", (error) => end({ status: "not started", reason: error.message }));
    whenOver(child, (exitCode, killedBy) => {
      if (signal?.aborted) end({ status: "stopped" });
      else if (late) end({ status: "timed out", limitMs: options.timeLimitMs });
      else if (killedBy !== null) end({ status: "crashed", signal: killedBy });
      else if (exitCode === 0) end({ status: "ok" });
      else end({ status: "failed", exitCode: exitCode ?? 0 });
    });
  });
}

/** The command, restricted to some processors. */
function onProcessors(cpus: readonly number[] | undefined, command: readonly string[]): readonly string[] {
  const taskset = cpus && findProgram("taskset");
  return cpus && taskset !== undefined ? [taskset, "-c", cpus.join(","), ...command] : command;
}

/** How the child ended, in one line, without its output. */
export function explainRun(run: ChildRun): string {
  const program = run.command[0] ?? "";
  switch (run.status) {
    case "ok":
      return `${program} ended well`;
    case "failed":
      return `${program} exited with ${run.exitCode}`;
    case "crashed":
      return `${program} was killed by ${run.signal}`;
    case "timed out":
      return `${program} ran longer than ${run.limitMs / 1000} s`;
    case "stopped":
      return `${program} was stopped`;
    case "not started":
      return `${program} did not start: ${run.reason}`;
    default:
      return run satisfies never;
  }
}

/** The path of a program as the shell would find it. */
export function findProgram(name: string, path = process.env["PATH"] ?? ""): string | undefined {
  if (name.includes("/")) return isExecutable(name) ? name : undefined;
  return path
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Kills a process group. A group that has just ended is not an error. */
export function killGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    return;
  }
}
