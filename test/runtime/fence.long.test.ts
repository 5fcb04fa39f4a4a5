/** @file A fence around kernels: what they reach, and that they end inside as they do outside. */

import { mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fenceHere } from "../../runtime/fence.ts";
import type { Runner } from "../../runtime/measure.ts";
import type { Reference } from "../../runtime/reference/verify.ts";
import { runnerHere } from "../support/here.ts";
import { type KernelText, kernelOf, MULTIPLY, product, QUICK } from "../support/measuring.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder("automap-fence-");
const secret = join(folder, "secret.key");
writeFileSync(secret, "a key");
const fence = await fenceHere([secret, join(folder, "not there")]);
if (typeof fence === "string") console.log(`kernels are not fenced in here: ${fence}`);

/** It answers right unless a condition holds. */
const unless = (condition: string): KernelText => ({ run: `${MULTIPLY} if (${condition}) out[0] += 1;` });
const READS = unless(`[] { FILE* f = fopen("${secret}", "r"); return f && fgetc(f) != EOF; }()`);
const WRITES = unless(`[] { return fopen("${mkdtempSync(join(folder, "open-"))}/left", "w") != nullptr; }()`);
const CONNECTS = unless(
  "[] { int s = socket(AF_INET, SOCK_DGRAM, 0); sockaddr_in to{AF_INET, htons(53), {htonl(0x08080808)}, {}}; return connect(s, (sockaddr*)&to, sizeof to) == 0; }()",
);
const SIGNALS = unless(`kill(${process.pid}, 0) == 0`);

describe.skipIf(typeof fence === "string")("in a fence a kernel", () => {
  let inside: { readonly runner: Runner; readonly reference: Reference };
  let outside: typeof inside;
  beforeAll(async () => {
    const made = async (options: Parameters<typeof runnerHere>[0]) => {
      const runner = await runnerHere({ ...QUICK, stepSeconds: 1.5, ...options });
      return { runner, reference: await runner.reference(product, 1) };
    };
    inside = await made(typeof fence === "string" ? {} : { fence });
    outside = await made({});
  });
  afterAll(() => Promise.all([inside, outside].map(({ runner }) => runner.close())));

  const statusOf = async ({ runner, reference }: typeof inside, text: KernelText): Promise<string> => {
    const { source, ...rest } = kernelOf(text);
    const network = "#include <sys/socket.h>\n#include <netinet/in.h>\n#include <arpa/inet.h>\n";
    const kernel = { ...rest, source: `${network}${source}` as typeof source };
    return (await runner.measure(kernel, reference)).status;
  };

  it.each([
    ["reads no file that is hidden", READS],
    ["writes no file", WRITES],
    ["sees no process of the outside", SIGNALS],
  ])("%s", async (_, text) => {
    expect(await statusOf(outside, text)).not.toBe("ok");
    expect(await statusOf(inside, text)).toBe("ok");
  });

  it("has no network", async () => {
    expect(await statusOf(inside, CONNECTS)).toBe("ok");
  });

  it.each([
    ["is timed when it is right", "ok", MULTIPLY],
    ["that crashes ends as crashed", "crashed", "*(volatile int*)8 = 1;"],
    [
      "that hangs, with what it started, ends as timed out",
      "timed-out",
      "if (fork() == 0) setsid(); for (;;) pause();",
    ],
    ["that exits ends as crashed", "crashed", "exit(0);"],
    ["that kills itself ends as crashed", "crashed", "kill(getpid(), SIGKILL);"],
  ])("%s", async (_, ends, run) => {
    expect(await statusOf(inside, { run })).toBe(ends);
  });
});
