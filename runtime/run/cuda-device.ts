/**
 * @file The NVIDIA GPU of this machine and its tools: what is present, what is missing, and what to do about it.
 *
 *     const device = await findCudaDevice();
 *     if ("status" in device) ...                     no GPU, no nvcc, a driver that is too old
 *     device.name                                     "NVIDIA H100 80GB HBM3"
 */

import { dirname, join } from "node:path";
import type { EnvironmentProblem } from "../../abstraction/error.ts";
import { explainRun, findProgram, runChild } from "../child.ts";
import { findCompiler } from "../compiler.ts";

/** A GPU as its driver describes it. */
export interface Gpu {
  readonly name: string;
  /** A UUID, independent of other devices. */
  readonly id: string;
  readonly driver: string;
  /** The newest CUDA version that the driver supports, `13.0`; undefined if unknown. */
  readonly cuda: string | undefined;
  /** Compute capability; 9.0 is 90. */
  readonly capability: number;
  /** The current limits of clock and power: `1980 MHz, 700 W`; empty if unknown. */
  readonly limits: string;
  readonly memoryMiB: number | undefined;
}

/** A tool and its version. */
interface Tool {
  readonly path: string;
  readonly version: string;
  /** Words of its command after the program, or the variables that it takes options from: `NVCC_APPEND_FLAGS=-O1`. */
  readonly options?: readonly string[];
}

/** The GPU and its tools, which are part of the record of a measurement. */
export interface CudaDevice extends Gpu {
  readonly nvcc: Tool;
  readonly disassembler: string;
}

const PROBE_LIMIT_MS = 20_000;
const QUERY = "name,driver_version,compute_cap,uuid,memory.total,clocks.max.sm,power.limit";

/** The driver's own tool. If it is missing, so is the driver. */
export function findSmi(): string | undefined {
  return findProgram("nvidia-smi");
}

/** The GPUs that `nvidia-smi` lists, beginning with the one that kernels run on; or why there is none. */
export async function findGpus(): Promise<readonly [Gpu, ...Gpu[]] | EnvironmentProblem> {
  const smi = findSmi();
  if (smi === undefined)
    return missing("no NVIDIA GPU: nvidia-smi is not on the PATH", "run it where a GPU is, with its driver installed");
  const ask = (...words: readonly string[]): ReturnType<typeof runChild> =>
    runChild([smi, ...words], { timeLimitMs: PROBE_LIMIT_MS });
  const [listed, told] = await Promise.all([
    ask(`--query-gpu=${QUERY}`, "--format=csv,noheader,nounits"),
    // The supported CUDA version is only in the human-readable page.
    ask(),
  ]);
  const cuda = /CUDA Version:\s*(\d+\.\d+)/.exec(told.stdout)?.[1];
  const lines = listed.status === "ok" ? listed.stdout.split("\n").filter((line) => line.trim() !== "") : [];
  const [first, ...others] = lines.flatMap((line) => gpusIn(line, cuda));
  if (first) return visibleFirst([first, ...others]);
  const said = `${listed.stderr}${listed.stdout}`.trim().slice(0, 500);
  return missing(
    `nvidia-smi tells of no GPU: ${explainRun(listed)}${said === "" ? "" : `: ${said}`}`,
    "look at nvidia-smi: the driver may not be loaded, or the device may have failed",
  );
}

/** CUDA_VISIBLE_DEVICES names devices by number or by a prefix of their UUID. Kernels run on the first. */
function visibleFirst(gpus: readonly [Gpu, ...Gpu[]]): readonly [Gpu, ...Gpu[]] | EnvironmentProblem {
  const given = process.env["CUDA_VISIBLE_DEVICES"];
  if (given === undefined) return gpus;
  const [word = ""] = given.split(",").map((text) => text.trim());
  const named = /^\d+$/.test(word) ? gpus[Number(word)] : gpus.find(({ id }) => word !== "" && id.startsWith(word));
  return named
    ? [named, ...gpus.filter((gpu) => gpu !== named)]
    : missing(
        `CUDA_VISIBLE_DEVICES="${given}" names none of the ${gpus.length} GPUs that nvidia-smi lists`,
        "set it to the number or the UUID of one, or unset it",
      );
}

/** The GPU that a line of nvidia-smi tells of, if it does. */
export function gpusIn(line: string, cuda: string | undefined): Gpu[] {
  const [name, driver, capability = "", id, memory, clock, power] = line.split(",").map((word) => word.trim());
  if (!name || !driver || !id || !/^\d+\.\d$/.test(capability)) return [];
  const figure = (text: string | undefined, unit: string): string[] =>
    text !== undefined && /^\d+(\.\d+)?$/.test(text) ? [`${Number(text)} ${unit}`] : [];
  return [
    {
      name,
      id,
      driver,
      cuda,
      capability: Number(capability.replace(".", "")),
      limits: [...figure(clock, "MHz"), ...figure(power, "W")].join(", "),
      memoryMiB: memory !== undefined && /^\d+$/.test(memory) ? Number(memory) : undefined,
    },
  ];
}

/** nvcc, or what to install. */
export async function findNvcc(): Promise<Tool | EnvironmentProblem> {
  const home = process.env["CUDA_HOME"] ?? process.env["CUDA_PATH"] ?? "/usr/local/cuda";
  const path = findProgram("nvcc") ?? findProgram(join(home, "bin", "nvcc"));
  if (path === undefined)
    return missing(
      "no nvcc on the PATH",
      "install the CUDA toolkit, or put its bin folder on the PATH (or its folder in CUDA_HOME)",
    );
  const asked = await runChild([path, "--version"], { timeLimitMs: PROBE_LIMIT_MS });
  const version = /release [\d.]+, (V[\d.]+)/.exec(asked.stdout)?.[1];
  return version === undefined
    ? missing(`${path} does not answer: ${explainRun(asked)}`, "install the CUDA toolkit anew")
    : { path, version, options: nvccOptions() };
}

/** Variables from which nvcc takes options. Source: NVIDIA CUDA Compiler Driver, Environment Variables. */
const NVCC_VARIABLES = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"];

/** Options that nvcc takes from its variables. */
export function nvccOptions(environment: Readonly<Record<string, string | undefined>> = process.env): string[] {
  return NVCC_VARIABLES.flatMap((name) => {
    const value = environment[name]?.trim() ?? "";
    return value === "" ? [] : [`${name}=${value}`];
  });
}

/** The disassembler for nvcc's code, or what to install. */
export function findCuobjdump(nvcc: Pick<Tool, "path">): string | EnvironmentProblem {
  return (
    findProgram("cuobjdump") ??
    findProgram(join(dirname(nvcc.path), "cuobjdump")) ??
    missing("no cuobjdump beside nvcc", "install the CUDA toolkit's binary utilities (cuda-cuobjdump)")
  );
}

/** A driver supports toolkits of its own major version (CUDA Compatibility, Minor Version Compatibility). */
export function driverProblem({ driver, cuda }: Gpu, { path, version }: Tool): EnvironmentProblem | undefined {
  const [runs, makes] = [cuda, version.slice(1)].map((text) => Number(text?.split(".")[0]));
  if (runs === undefined || makes === undefined || !(runs < makes)) return undefined;
  return missing(
    `the driver ${driver} is too old for ${path} ${version}: it runs CUDA ${cuda}`,
    `update the driver, or put an nvcc of CUDA ${runs} first on the PATH`,
  );
}

/** The device and its tools, or what is missing. */
export async function findCudaDevice(): Promise<CudaDevice | EnvironmentProblem> {
  const gpus = await findGpus();
  if ("status" in gpus) return gpus;
  const nvcc = await findNvcc();
  if ("status" in nvcc) return nvcc;
  const [gpu] = gpus;
  const old = driverProblem(gpu, nvcc);
  if (old) return old;
  const disassembler = findCuobjdump(nvcc);
  return typeof disassembler === "string" ? { ...gpu, nvcc, disassembler } : disassembler;
}

/** A device whose threads are fibers on the CPU. */
export async function emulatedDevice(): Promise<CudaDevice | EnvironmentProblem> {
  const compiler = await findCompiler();
  if (compiler.status === "environment") return compiler;
  const { command, path, version } = compiler;
  return {
    name: "emulated GPU",
    id: String(process.pid),
    driver: "none",
    cuda: undefined,
    capability: 90,
    limits: "",
    memoryMiB: undefined,
    nvcc: { path, version, options: command.slice(1) },
    disassembler: "",
  };
}

function missing(what: string, remedy: string): EnvironmentProblem {
  return {
    status: "environment",
    what,
    remedy,
    why: "CUDA kernels are compiled, checked and timed on this machine's GPU",
  };
}
