/**
 * @file Runs a program as a child in its own process group, with a limit of time and of output. At a limit, and when
 * the program or this process ends in any way, the whole group is killed.
 *
 *     const run = await runChild(["g++", "-O1", "a.cpp"], { timeLimitMs: 60_000 });
 *     if (run.status !== "ok") console.error(explainRun(run));
 */

import type { ChildProcess } from "node:child_process";
import { accessSync, constants, existsSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { messageOf } from "../abstraction/error.ts";
import { killGroup, spawnWatched } from "./watchdog.ts";

/** How a child ended, and what it printed. */
export type ChildRun = Output & Ending;

type Ending =
  | { readonly status: "ok" }
  | { readonly status: "failed"; readonly exitCode: number }
  | { readonly status: "crashed"; readonly signal: string }
  | { readonly status: "timed out"; readonly limitMs: number }
  | { readonly status: "flooded"; readonly limitCharacters: number }
  | { readonly status: "stopped" }
  | { readonly status: "not started"; readonly reason: string };

interface Output {
  readonly command: readonly string[];
  readonly stdout: string;
  readonly stderr: string;
}

/** The most that is kept of a stream. The disassembly of the largest kernel has a tenth of it. */
const OUTPUT_LIMIT = 64 * 2 ** 20;

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
    return { reason: messageOf(error) };
  }
}

/** Runs a command to its end. Never throws; a failure is a status. */
export function runChild(
  command: readonly string[],
  options: {
    readonly timeLimitMs: number;
    readonly cwd?: string;
    /** The most characters that it may print on a stream; 64 Mi by default. */
    readonly outputLimit?: number;
    /** Processors it may use. Ignored if `taskset` is not installed. */
    readonly cpus?: readonly number[] | undefined;
    /** Variables in addition to those of this process. */
    readonly env?: Readonly<Record<string, string>>;
    /** Kills it when aborted. */
    readonly signal?: AbortSignal | undefined;
  },
): Promise<ChildRun> {
  const { signal, timeLimitMs, cwd, outputLimit = OUTPUT_LIMIT } = options;
  const env = { ...process.env, ...options.env };
  return new Promise((settle) => {
    const output = { stdout: "", stderr: "" };
    if (signal?.aborted) {
      settle({ command, ...output, status: "stopped" });
      return;
    }
    // Looked for here, because the shell that starts it would only report exit codes.
    const missing = problemOf(command[0] ?? "", cwd ?? ".", env["PATH"]);
    const begun =
      missing === undefined
        ? begin(() => spawnWatched(onProcessors(options.cpus, command), { cwd, env }))
        : { reason: missing };
    if ("reason" in begun) {
      settle({ command, ...output, status: "not started", reason: begun.reason });
      return;
    }
    const { child } = begun;
    let cut: Ending | undefined;
    const stop = (): void => {
      if (child.pid !== undefined) killGroup(child.pid);
    };
    const cutShort = (how: Ending): void => {
      cut ??= how;
      stop();
    };
    signal?.addEventListener("abort", stop);
    const end = (how: Ending): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      settle({ command, ...output, ...how });
    };
    const timer = setTimeout(() => cutShort({ status: "timed out", limitMs: timeLimitMs }), timeLimitMs);
    for (const name of ["stdout", "stderr"] as const)
      child[name].setEncoding("utf8").on("data", (text: string) => {
        const room = outputLimit - output[name].length;
        output[name] += text.slice(0, room);
        if (text.length > room) cutShort({ status: "flooded", limitCharacters: outputLimit });
      });
    child.on("error", (error) => end({ status: "not started", reason: error.message }));
    whenOver(child, (exitCode, killedBy) => {
      if (signal?.aborted) end({ status: "stopped" });
      else if (cut) end(cut);
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

/** Why a program cannot be started, as the system would say; undefined if it can. */
function problemOf(program: string, cwd: string, path: string | undefined): string | undefined {
  const isPath = program.includes("/");
  const name = isPath ? resolve(cwd, program) : program;
  if (findProgram(name, path) !== undefined) return undefined;
  return `spawn ${program} ${isPath && existsSync(name) ? "EACCES" : "ENOENT"}`;
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
    case "flooded":
      return `${program} printed more than ${run.limitCharacters} characters`;
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
