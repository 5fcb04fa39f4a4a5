/**
 * @file Child processes: no caller waits for a process that outlives the child it started, and none outlives a caller
 * that is killed.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { explainRun, runChild, whenOver } from "../../runtime/child.ts";
import { compileProgram } from "../support/program.ts";
import { scratchFolder } from "../support/scratch.ts";

const left: number[] = [];
afterEach(() => {
  for (const pid of left.splice(0)) process.kill(pid, "SIGKILL");
});

/** Waits until none of these processes runs. A zombie has ended; who started it has not asked how. */
async function expectGone(pids: readonly number[]): Promise<void> {
  expect(pids.every((pid) => pid > 0)).toBe(true);
  const running = (): number[] =>
    pids.filter((pid) => {
      const status = existsSync(`/proc/${pid}/stat`) ? readFileSync(`/proc/${pid}/stat`, "utf8") : "";
      return status !== "" && !/^\d+ \(.*\) Z/.test(status);
    });
  await expect.poll(running).toEqual([]);
}

/** Waits until the last process in the background leads a session. */
const IN_SESSION = 'until [ "$(cut -d" " -f6 /proc/$!/stat)" = $! ]; do sleep 0.01; done';

/** Runs a shell script that leaves a session behind and prints its process id. */
async function leaving(script: string): Promise<{ status: string; stdout: string }> {
  const run = await runChild(["sh", "-c", `${script}; ${IN_SESSION}`], { timeLimitMs: 100_000 });
  const pid = Number(/left (\d+)/.exec(run.stdout)?.[1]);
  expect(readFileSync(`/proc/${pid}/status`, "utf8")).not.toMatch(/^State:\s*Z/m);
  left.push(pid);
  return { status: run.status, stdout: run.stdout };
}

describe("runChild", () => {
  it("ends with the child, though a session it left behind holds the pipes", async () => {
    const { status, stdout } = await leaving("setsid sleep 1000 & echo left $!; echo last words");
    expect({ status, stdout }).toEqual({ status: "ok", stdout: expect.stringContaining("last words") });
  });

  it("ends with the child, though a process it left behind keeps printing", async () => {
    // It outlives the pipe that it prints to, which ends with the child.
    const { status } = await leaving(
      `setsid sh -c 'trap "" PIPE; while :; do echo more; sleep 0.01; done' & echo left $!`,
    );
    expect(status).toBe("ok");
  });

  it("reads all of a long output", async () => {
    const run = await runChild(["sh", "-c", "yes 0123456789 | head -n 200000"], { timeLimitMs: 20_000 });
    expect(run.stdout.length).toBe(200_000 * 11);
  });

  it("ends a child that prints more than its limit, and keeps the beginning", async () => {
    for (const stream of [1, 2]) {
      const run = await runChild(["sh", "-c", `yes 0123456789 >&${stream}`], {
        timeLimitMs: 100_000,
        outputLimit: 25_000,
      });
      expect(run.status).toBe("flooded");
      expect(explainRun(run)).toBe("sh printed more than 25000 characters");
      expect([run.stdout.length, run.stderr.length]).toEqual(stream === 1 ? [25_000, 0] : [0, 25_000]);
    }
    const within = await runChild(["printf", "%s", "four"], { timeLimitMs: 100_000, outputLimit: 4 });
    expect(within).toMatchObject({ status: "ok", stdout: "four" });
  });

  it("ends what a child left in its group", async () => {
    const run = await runChild(["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo left $!"], { timeLimitMs: 100_000 });
    await expectGone([Number(/left (\d+)/.exec(run.stdout)?.[1])]);
  });

  it("gives a child no input, its own exit code, signal, folder and variables", async () => {
    const ended = async (script: string): Promise<unknown> => {
      const run = await runChild(["sh", "-c", script], { timeLimitMs: 100_000, cwd: "/", env: { WORD: "given" } });
      return { ...run, command: undefined, stderr: undefined };
    };
    expect(await ended("pwd; echo $WORD; cat")).toEqual({ status: "ok", stdout: "/\ngiven\n" });
    expect(await ended("exit 139")).toEqual({ status: "failed", exitCode: 139, stdout: "" });
    expect(await ended("kill -SEGV $$")).toEqual({ status: "crashed", signal: "SIGSEGV", stdout: "" });
  });

  it("reports a program that is missing or may not be started", async () => {
    expect(await runChild(["/nowhere/g++"], { timeLimitMs: 1000 })).toMatchObject({ status: "not started" });
    expect(await runChild(["/etc/passwd"], { timeLimitMs: 1000 })).toMatchObject({ status: "not started" });
    expect(await runChild(["no-such-program"], { timeLimitMs: 1000, cpus: [0] })).toMatchObject({
      status: "not started",
      reason: "spawn no-such-program ENOENT",
    });
  });
});

describe("a process that is killed while its children run", () => {
  const folder = scratchFolder();
  // A compiler's driver starts the compiler, so a child of a child runs too.
  const STARTER = `
    import { runChild } from "./runtime/child.js";
    const script = "sleep 1000 & echo $$ $! >> " + process.argv[2] + "; wait";
    const all = [1, 2, 3].map(() => runChild(["sh", "-c", script], { timeLimitMs: 1_000_000 }));
    await runChild(["true"], { timeLimitMs: 1_000_000 });
    await Promise.all(all);
  `;
  beforeAll(() => {
    compileProgram(folder, ["runtime/child.ts"]);
    writeFileSync(join(folder, "starter.js"), STARTER);
  });

  async function started(said: string): Promise<{ readonly parent: ChildProcess; readonly pids: readonly number[] }> {
    const parent = spawn(process.execPath, [join(folder, "starter.js"), said], { stdio: "ignore", detached: true });
    const words = (): string[] => (existsSync(said) ? (readFileSync(said, "utf8").match(/\d+/g) ?? []) : []);
    await expect.poll(words).toHaveLength(6);
    return { parent, pids: words().map(Number) };
  }

  it("leaves none of them", async () => {
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      const { parent, pids } = await started(join(folder, signal));
      parent.kill(signal);
      await once(parent, "exit");
      await expectGone(pids);
    }
  });

  it("leaves none of them if its whole group is killed", async () => {
    const { parent, pids } = await started(join(folder, "group"));
    process.kill(-(parent.pid ?? 0), "SIGKILL");
    await expectGone(pids);
  });

  it("ends by itself when they have ended", async () => {
    const parent = spawn(process.execPath, [
      "--input-type=module",
      "-e",
      `const { runChild } = await import(${JSON.stringify(join(folder, "runtime/child.js"))});
       const { status } = await runChild(["true"], { timeLimitMs: 1_000_000 });
       process.exitCode = status === "ok" ? 7 : 1;`,
    ]);
    expect(await once(parent, "exit")).toEqual([7, null]);
  });
});

describe("whenOver", () => {
  it("calls back once, with the child's end and all its output, though this process was busy", async () => {
    const child = spawn("sh", ["-c", "setsid sleep 1000 & echo left $!; echo $!; exit 3"], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    const ends: unknown[] = [];
    const over = new Promise<void>((resolve) =>
      whenOver(child, (code, signal) => {
        ends.push([code, signal, said.split("\n").length]);
        resolve();
      }),
    );
    child.once("exit", () => {
      // Longer than it listens.
      for (const until = performance.now() + 300; performance.now() < until; );
    });
    await over;
    left.push(Number(/left (\d+)/.exec(said)?.[1]));
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(ends).toEqual([[3, null, 3]]);
  });
});
