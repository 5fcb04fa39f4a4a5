/** @file Kernels compiled by a script that stands for nvcc and for the disassembler: what waits for what. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { Kernel } from "../../abstraction/kernel.ts";
import { shareCores } from "../../runtime/cores.ts";
import { Builder, type Toolchain } from "../../runtime/run/cuda-build.ts";
import { scratchFolder } from "../support/scratch.ts";
import { sourceOf } from "../support/source.ts";

const folder = scratchFolder();
const log = join(folder, "log");

/** A source is a script; its library is what it prints. */
const SCRIPTS: Toolchain = {
  identity: folder,
  adapted: (source) => source,
  command: (source, output) => ["/bin/sh", "-c", `sh '${source}' > '${output}'; echo compiled >> '${log}'`],
  disassemble: () => [
    "/bin/sh",
    "-c",
    `echo disassembled >> '${log}'; echo '        /*0a10*/                   HMMA.16816.F32 R4, R8 ;'`,
  ],
};

const kernelOf = (script: string): Kernel => ({
  language: "cuda",
  source: sourceOf(script),
  features: [],
  promises: "HMMA",
  arguments: [],
});

it("is disassembled when no other kernel is being compiled, and can be loaded before", async () => {
  const builder = new Builder(SCRIPTS, folder, 4, shareCores({ realm: folder }));
  const first = builder.kernel(kernelOf("echo first"));
  const second = builder.kernel(kernelOf("sleep 1; echo second"));
  expect(await first.loadable).toMatchObject({ status: "compiled" });
  expect(readFileSync(log, "utf8")).toBe("compiled\n");
  expect(await first.examined).toMatchObject({ status: "compiled", instructions: 1 });
  expect(await second.examined).toMatchObject({ status: "compiled", instructions: 1 });
  const lines = readFileSync(log, "utf8").trim().split("\n");
  expect(lines).toEqual(["compiled", "compiled", "disassembled", "disassembled"]);
});
