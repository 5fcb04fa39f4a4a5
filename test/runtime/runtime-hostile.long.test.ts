/**
 * @file Kernels that crash, hang, write where they may not and leave processes behind: each ends as its own status, and
 * nothing stays.
 */

import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { privatePath } from "../../runtime/kept.ts";
import { runnerHere } from "../support/here.ts";
import { type KernelText, kernelOf, Measuring, MULTIPLY, QUICK, right } from "../support/measuring.ts";
import { sourceOf } from "../support/source.ts";

const at = new Measuring();

/** Each ends as its own status and says where. */
const HOSTILE: readonly {
  readonly does: string;
  readonly text: KernelText;
  readonly ends: string;
  readonly says: RegExp;
}[] = [
  {
    does: "loops for ever",
    text: { run: "for (volatile int i = 0;;) i = i + 1;" },
    ends: "timed-out",
    says: /call 1 on random inputs: no sign of life for 1.5 s/,
  },
  {
    does: "writes to null",
    text: { run: "*(volatile int*)8 = 1;" },
    ends: "crashed",
    says: /call 1 on random inputs: wrote address 0x8/,
  },
  {
    does: "divides by zero",
    text: { run: "volatile int zero = 0; out[0] = a[0] / zero;" },
    ends: "crashed",
    says: /signal 8/,
  },
  {
    does: "overflows the stack",
    text: {
      run: "struct R { static int down(volatile int n) { volatile char big[4096]; big[0] = n; return down(n + 1) + big[0]; } }; out[0] = R::down(0);",
    },
    ends: "crashed",
    says: /stack overflowed/,
  },
  {
    does: "issues an instruction that is none",
    text: { run: 'asm volatile("ud2");' },
    ends: "illegal-instruction",
    says: /does not know the instruction/,
  },
  {
    does: "writes one element behind the output",
    text: { run: `${MULTIPLY} ((volatile int32_t*)out)[M] = 7;` },
    ends: "out-of-bounds",
    says: /wrote \d+ bytes behind the end of out/,
  },
  {
    does: "writes one element before the output",
    text: { run: `${MULTIPLY} ((volatile int32_t*)out)[-1] = 7;` },
    ends: "out-of-bounds",
    says: /wrote 4 bytes before the start of out/,
  },
  {
    does: "reads a row before its input",
    text: { run: `${MULTIPLY} out[0] += ((volatile const uint8_t*)a)[-5000] & 0;` },
    ends: "out-of-bounds",
    says: /read \d+ bytes before the start of a/,
  },
  {
    does: "writes to an input",
    text: { run: `${MULTIPLY} ((volatile uint8_t*)a)[3] = 1;` },
    ends: "out-of-bounds",
    says: /wrote to a, byte 3, which is an input/,
  },
  {
    does: "writes behind its workspace",
    text: { workspace: "64", run: `${MULTIPLY} ((volatile char*)workspace)[64] = 1;` },
    ends: "out-of-bounds",
    says: /behind the end of the workspace/,
  },
  {
    does: "allocates 10 GB",
    text: {
      run: "auto* p = (volatile char*)malloc(10ul << 30); for (size_t i = 0; i < (10ul << 30); i += 4096) p[i] = 1; free((void*)p);",
    },
    ends: "out-of-memory",
    says: /an allocation of 10737418240 bytes was refused/,
  },
  {
    does: "allocates without end",
    text: {
      run: 'for (;;) { void* p = malloc(1 << 20); memset(p, 1, 1 << 20); asm volatile("" :: "r"(p) : "memory"); }',
    },
    ends: "out-of-memory",
    says: /an allocation of \d+ bytes was refused/,
  },
  {
    does: "wants 10 GB of workspace",
    text: { workspace: "10ul << 30", run: MULTIPLY },
    ends: "out-of-memory",
    says: /10737418240 bytes for the workspace were refused/,
  },
  {
    does: "floods stdout",
    text: { run: 'for (;;) puts("all work and no play");' },
    ends: "output-flood",
    says: /more than 65536 bytes\nit printed:\nall work/,
  },
  {
    does: "exits as if all were well",
    text: { run: "exit(0);" },
    ends: "crashed",
    says: /it ended the process with exit code 0/,
  },
  {
    does: "aborts with a message",
    text: { run: 'fputs("tile 3 is busy", stderr); abort();' },
    ends: "crashed",
    says: /signal 6[\s\S]*tile 3 is busy/,
  },
  {
    does: "leaves a child behind and crashes",
    text: { run: "if (fork() == 0) { sleep(1000); } *(volatile int*)8 = 1;" },
    ends: "crashed",
    says: /wrote address/,
  },
  {
    does: "leaves a session of its own behind and exits",
    text: { run: "if (fork() == 0) { setsid(); for (;;) pause(); } _exit(7);" },
    ends: "crashed",
    says: /it ended the process with exit code 7/,
  },
  {
    does: "hangs, and so does what it started",
    text: { run: "if (fork() == 0) setsid(); for (;;) pause();" },
    ends: "timed-out",
    says: /call 1 on random inputs: no sign of life for 1.5 s/,
  },
  {
    does: "kills its own process",
    text: { run: "kill(getpid(), SIGKILL);" },
    ends: "crashed",
    says: /call 1 on random inputs: killed by SIGKILL/,
  },
  {
    does: "stops its own process",
    text: { run: "kill(getpid(), SIGSTOP);" },
    ends: "timed-out",
    says: /no sign of life/,
  },
];

/** What a kernel starts outlives its call, and tries to outlive its process. */
const ESCAPES: readonly { readonly does: string; readonly leaves: string }[] = [
  { does: "forks", leaves: "if (fork() == 0) for (;;) pause();" },
  { does: "forks into a session of its own", leaves: "if (fork() == 0) { setsid(); for (;;) pause(); }" },
  {
    does: "becomes a daemon, deaf to signals",
    leaves: `if (fork() == 0) { setsid(); if (fork()) _exit(0);
      for (int s = 1; s < 65; s++) signal(s, SIG_IGN); for (;;) sleep(1000); }`,
  },
  {
    does: "talks on from a session of its own",
    leaves: 'if (fork() == 0) { setsid(); for (;;) { printf("still here\\n"); fflush(stdout); usleep(1000); } }',
  },
  {
    does: "forks a chain, each link in a session of its own",
    leaves: "if (fork() == 0) for (;;) { setsid(); if (fork()) _exit(0); usleep(200); }",
  },
  {
    does: "forks a process that goes on with the harness",
    leaves: "if (fork() == 0) setsid();",
  },
];

describe("a hostile kernel", () => {
  it.each(HOSTILE)("that $does ends as $ends, and a right one is measured after it", async ({ text, ends, says }) => {
    const stepSeconds = ends === "timed-out" ? 1.5 : 60;
    const found = await at.statusOf(text, { stepSeconds, outputBytes: 65536 });
    expect(found).toEqual({ status: ends, log: expect.stringMatching(says) });
    expect(await at.runner.measure(right, at.reference)).toMatchObject({ status: "ok" });
  });

  it.each([
    ["behind an input", "a[M * K]", "read 1 bytes behind the end of a"],
    ["before an input", "b[-1]", "read 1 bytes before the start of b"],
  ])("that reads one byte %s is out of bounds, whatever the input's size", async (_, read, says) => {
    // 480 and 12 bytes: neither fills a cache line.
    const reads = {
      run: `${MULTIPLY} { volatile uint8_t byte = ((volatile const uint8_t*)${read.slice(0, 1)})${read.slice(1)}; (void)byte; }`,
    };
    expect(await at.statusOf(reads)).toMatchObject({ status: "out-of-bounds", log: expect.stringContaining(says) });
  });

  it.each(ESCAPES)("that $does leaves no process behind, and none is waited for", async ({ leaves }) => {
    const found = await at.statusOf({ run: `${MULTIPLY} static bool once; if (!once) { once = true; ${leaves} }` });
    expect(found).toEqual({ status: "ok", log: "" });
  });

  it("dies with all its processes when automap does", async () => {
    const hang = kernelOf({ run: "" });
    const onLoad = "__attribute__((constructor)) static void hang() { fork(); setsid(); for (;;) pause(); }";
    const kernel = await at.runner.compile({ ...hang, source: sourceOf(hang.source + onLoad) });
    if (kernel.status !== "compiled") throw new Error(kernel.log);
    const harness = readdirSync(at.workdir).find((name) => name.endsWith(".out")) ?? "";
    const empty = ["argument s32 0 out", "set random", "expected /dev/null", "tolerance /dev/null"];
    const script = `
      const child = require("node:child_process").spawn(process.argv[1], [], { detached: true, stdio: ["pipe", "pipe", "pipe", "pipe"] });
      child.stdin.end(["parent " + process.pid, ...process.argv.slice(2), "go", ""].join("\\n"));`;
    const request = [...empty, `kernel ${kernel.file}`];
    const parent = spawn(process.execPath, ["-e", script, privatePath(join(at.workdir, harness)), ...request], {
      stdio: "inherit",
    });
    // The watcher, the process that runs the kernel, and what the kernel forked.
    await expect.poll(at.harnesses).toHaveLength(3);
    parent.kill("SIGKILL");
    await expect.poll(at.harnesses).toEqual([]);
  });

  it("is stopped by closing the runner, as are the measurements waiting for it", async () => {
    const runner = await runnerHere({ ...QUICK, workdir: at.workdir, stepSeconds: 60 });
    const hang = kernelOf({ run: "for (;;) pause();" });
    await runner.compile(hang);
    await runner.compile(right);
    const hanging = runner.measure(hang, at.reference);
    hanging.catch(() => undefined);
    await expect.poll(at.harnesses).toHaveLength(2);
    const outcomes = Promise.allSettled([hanging, runner.measure(right, at.reference)]);
    await runner.close();
    for (const outcome of await outcomes)
      expect(outcome).toMatchObject({ reason: { message: "measuring was stopped" } });
    expect(at.harnesses()).toEqual([]);
  });
});
