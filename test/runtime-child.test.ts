/** @file Child processes: no caller waits for a process that outlives the child it started. */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { runChild, whenOver } from "../runtime/child.ts";

const left: number[] = [];
afterEach(() => {
  for (const pid of left.splice(0)) process.kill(pid, "SIGKILL");
});

/** Runs a shell script that prints the process id of what it leaves behind. */
async function leaving(script: string): Promise<{ status: string; stdout: string }> {
  const run = await runChild(["sh", "-c", script], { timeLimitMs: 100_000 });
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
    const { status } = await leaving("setsid sh -c 'while :; do echo more; sleep 0.01; done' & echo left $!");
    expect(status).toBe("ok");
  });

  it("reads all of a long output", async () => {
    const run = await runChild(["sh", "-c", "yes 0123456789 | head -n 200000"], { timeLimitMs: 20_000 });
    expect(run.stdout.length).toBe(200_000 * 11);
  });

  it("reports a program that is missing or may not be started", async () => {
    expect(await runChild(["/nowhere/g++"], { timeLimitMs: 1000 })).toMatchObject({ status: "not started" });
    expect(await runChild(["/etc/passwd"], { timeLimitMs: 1000 })).toMatchObject({ status: "not started" });
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
