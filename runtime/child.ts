/**
 * @file Runs a program as a child in its own process group, with a time limit; on the limit the whole group is killed.
 *
 *     const run = await runChild(["g++", "-O1", "a.cpp"], { timeLimitMs: 60_000 });
 *     if (run.status !== "ok") console.error(explainRun(run));
 */

import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

/** How a child ended, with what it printed until then. */
export type ChildRun = Output & Ending;

type Ending =
  | { readonly status: "ok" }
  | { readonly status: "failed"; readonly exitCode: number }
  | { readonly status: "crashed"; readonly signal: string }
  | { readonly status: "timed out"; readonly limitMs: number }
  | { readonly status: "not started"; readonly reason: string };

interface Output {
  readonly command: readonly string[];
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command to its end. Never throws: a failure is a status. */
export function runChild(
  command: readonly string[],
  options: { readonly timeLimitMs: number; readonly cwd?: string },
): Promise<ChildRun> {
  const [program = "", ...args] = command;
  return new Promise((resolve) => {
    const child = spawn(program, args, { cwd: options.cwd, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    const output = { stdout: "", stderr: "" };
    let late = false;
    const end = (how: Ending): void => {
      clearTimeout(timer);
      resolve({ command, ...output, ...how });
    };
    const timer = setTimeout(() => {
      late = true;
      if (child.pid !== undefined) killGroup(child.pid);
    }, options.timeLimitMs);
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output.stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      output.stderr += text;
    });
    child.on("error", (error) => end({ status: "not started", reason: error.message }));
    child.on("close", (exitCode, signal) => {
      if (late) end({ status: "timed out", limitMs: options.timeLimitMs });
      else if (signal !== null) end({ status: "crashed", signal });
      else if (exitCode === 0) end({ status: "ok" });
      else end({ status: "failed", exitCode: exitCode ?? 0 });
    });
  });
}

/** One line: what ended the child, without its output. */
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
    case "not started":
      return `${program} did not start: ${run.reason}`;
    default:
      return run satisfies never;
  }
}

/** The path of a program, as the shell would find it. */
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

/** The group ends with its leader; a child that has just ended is no error. */
export function killGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    return;
  }
}
