/**
 * @file The tools of a machine with an NVIDIA GPU, made of scripts: `nvidia-smi` tells of a device, `nvcc` is a C++ compiler with the headers
 * of the emulation. Everything that automap does with the real ones happens, on the CPU, each CUDA thread a fiber.
 *
 *     const machine = fakeCuda(folder);
 *     await machine.commandLine("tune matmul --target cuda --trials 4")
 */

import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { emulationFolder } from "../../runtime/emulation.ts";
import { commandLine, type Ran } from "./command-line.ts";
import { keptProgram } from "./kept-compiler.ts";

export interface FakeCudaOptions {
  /** What `nvidia-smi` is, as a shell script; undefined for a machine without one. */
  readonly smi?: string | undefined;
  /** Lines of `nvcc` before it compiles; null for a machine without one. */
  readonly nvcc?: string | null;
}

/** An H100: the answer to a query, or the page for people. */
export const H100_SMI = `case "$1" in
--query-gpu=*) echo "NVIDIA H100 80GB HBM3, 580.159.03, 9.0, GPU-fake-${process.pid}, 81559, 1980, 700.00" ;;
*) echo "| NVIDIA-SMI 580.159.03   Driver Version: 580.159.03   CUDA Version: 13.0 |" ;;
esac`;

/** It makes no code for a device alone, so that kernels are compiled as a whole. */
const WHOLE = `case " $* " in *" -fatbin "*) exit 1 ;; esac`;

const nvccScript = (compiler: string): string => `
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; fi
source=$1; output=$3
case " $* " in
*" -shared "*)
  { echo '#include "cuda.h"'; sed 's/^#include .*$//' "$source"; } > "$source.cpp"
  set -- -shared -fPIC ;;
*)
  cp "$source" "$source.cpp"
  set -- -ldl ;;
esac
'${compiler}' -std=c++17 -O1 -w -ffp-contract=off -fwrapv '-I${emulationFolder()}' -DAUTOMAP_EMULATED_CUDA= -x c++ "$source.cpp" -x none -o "$output" "$@"
status=$?
rm -f "$source.cpp"
exit $status`;

/** The code of every instruction that kernels promise. */
const CUOBJDUMP = `for word in HMMA IMMA HGMMA IGMMA FFMA; do echo "        /*0a10*/                   $word.16816.F32 R4, R8, R10, R4 ;"; done`;

export interface FakeMachine {
  /** Does something on this machine. */
  readonly here: <T>(work: () => Promise<T>, variables?: Readonly<Record<string, string>>) => Promise<T>;
  /** Runs a command line on it. */
  readonly commandLine: (line: string) => Promise<Ran>;
}

/** What its nvcc makes is kept for other tests and runs. @param folder for its tools and its cache */
export function fakeCuda(folder: string, { smi = H100_SMI, nvcc = "" }: FakeCudaOptions = {}): FakeMachine {
  const bin = join(folder, "bin");
  mkdirSync(bin, { recursive: true });
  const tool = (name: string, script: string): void =>
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  if (smi !== "") tool("nvidia-smi", smi);
  if (nvcc !== null) tool("nvcc", `${WHOLE}\n${nvcc}\n${nvccScript(keptProgram("g++"))}`);
  tool("cuobjdump", CUOBJDUMP);
  // A toolkit that is really here is not found.
  const others = (process.env["PATH"] ?? "").split(delimiter).filter((at) => !existsSync(join(at, "nvcc")));
  const PATH = [bin, ...others].join(delimiter);
  const world = { PATH, CUDA_HOME: folder, XDG_CACHE_HOME: join(folder, "cache") };
  const here = async <T>(work: () => Promise<T>, variables: Readonly<Record<string, string>> = {}): Promise<T> => {
    const set = { ...world, ...variables };
    const before = Object.keys(set).map((name) => [name, process.env[name]] as const);
    Object.assign(process.env, set);
    try {
      return await work();
    } finally {
      for (const [name, value] of before) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    }
  };
  return { here, commandLine: (line) => here(() => commandLine(line)) };
}
