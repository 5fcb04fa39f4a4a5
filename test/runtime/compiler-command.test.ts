/** @file The whole command of a compiler is part of the environment that records stand under. */

import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Environment, openDatabase, queryTrials, recordTrial } from "../../db/index.ts";
import { type Compiler, findCompiler, kernelFlags } from "../../runtime/compiler.ts";
import { emulatedToolchain, nvccToolchain } from "../../runtime/run/cuda-build.ts";
import { type CudaDevice, nvccOptions } from "../../runtime/run/cuda-device.ts";
import { environmentOf, gpuEnvironment } from "../../session/calibrate/environment.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { newTrial, trial } from "../support/database.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

async function compilerOf(cxx: string): Promise<Compiler> {
  const found = await findCompiler({ ...process.env, CXX: cxx });
  if (found.status === "environment") throw new Error(found.what);
  return found;
}

const DEVICE: CudaDevice = {
  name: "NVIDIA H100 80GB HBM3",
  id: "GPU-1",
  driver: "580.159.03",
  cuda: "13.0",
  capability: 90,
  limits: "1980 MHz, 700 W",
  memoryMiB: undefined,
  nvcc: { path: "/usr/bin/nvcc", version: "V12.8.93" },
  disassembler: "",
};

it("a compiler that Ctrl-C ends while its version is asked for is asked again", async () => {
  const asked = join(folder, "asked");
  const command = join(folder, "interrupted");
  writeFileSync(command, `#!/bin/sh\n[ -e '${asked}' ] && exec g++ "$@"\ntouch '${asked}'\nkill -INT $$\n`, {
    mode: 0o755,
  });
  expect(await compilerOf(command)).toMatchObject({ path: command, version: (await compilerOf("g++")).version });
  rmSync(asked);
});

describe("options in CXX", () => {
  it("are part of the environment, so that no trial counts under other options", async () => {
    const environments = await Promise.all(
      ["g++", "g++ -fno-tree-vectorize", "g++ -fno-tree-vectorize -fno-ivopts"].map(async (cxx) =>
        environmentOf({ compiler: await compilerOf(cxx) }),
      ),
    );
    const db = openDatabase(join(folder, "options.db"));
    const record = (environment: Environment): void => {
      recordTrial(db, newTrial(60, { environment }));
      recordTrial(db, newTrial(60, { environment, trial: trial({ status: "crashed", log: "signal 11" }) }));
    };
    for (const environment of environments) record(environment);
    expect(new Set(queryTrials(db, {}).map((t) => t.environment.id)).size).toBe(3);
    db.close();
  });

  it("leave a compiler without any under the environment that it had", async () => {
    const compiler = await compilerOf("g++");
    const { path, version } = compiler;
    const before = { path, version, flags: kernelFlags({ features: [] }) };
    expect(environmentOf({ compiler }).compiler).toEqual(before);
  });

  it("are given to the compiler of emulated kernels too, and are part of its cache", async () => {
    const { path, version, command } = await compilerOf("g++ -fno-tree-vectorize");
    const plain = emulatedToolchain({ ...DEVICE, nvcc: { path, version } });
    const toolchain = emulatedToolchain({ ...DEVICE, nvcc: { path, version, options: command.slice(1) } });
    expect(toolchain.command("a.cpp", "a.so", "kernel").slice(0, 2)).toEqual([path, "-fno-tree-vectorize"]);
    expect(toolchain.identity).not.toBe(plain.identity);
  });
});

describe("the variables from which nvcc takes options", () => {
  const options = nvccOptions({ NVCC_APPEND_FLAGS: "-O1 ", NVCC_CCBIN: "", NVCC_PREPEND_FLAGS: undefined });
  const target = nvidiaTarget("h100");

  it("are part of the environment and of the cache", () => {
    expect(options).toEqual(["NVCC_APPEND_FLAGS=-O1"]);
    const own: CudaDevice = { ...DEVICE, nvcc: { ...DEVICE.nvcc, options } };
    expect(gpuEnvironment(own, target).compiler.flags).toEqual([
      "NVCC_APPEND_FLAGS=-O1",
      ...gpuEnvironment(DEVICE, target).compiler.flags,
    ]);
    expect(nvccToolchain(own).identity).not.toBe(nvccToolchain(DEVICE).identity);
  });

  it("change nothing where there are none", () => {
    const none: CudaDevice = { ...DEVICE, nvcc: { ...DEVICE.nvcc, options: nvccOptions({}) } };
    expect(gpuEnvironment(none, target)).toEqual(gpuEnvironment(DEVICE, target));
    expect(nvccToolchain(none).identity).toBe(nvccToolchain(DEVICE).identity);
  });
});
