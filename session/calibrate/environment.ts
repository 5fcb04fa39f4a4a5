/**
 * @file The environment recorded with each trial: a CPU with its compiler, or a GPU with its driver and nvcc.
 *
 *     environmentOf(runner)                            { target: "Intel(R) Xeon(R) ...", compiler: { path: "/usr/bin/g++", ... }, ... }
 *     gpuEnvironment(runner.device, nvidiaTarget("h100"))     { cpu: "NVIDIA H100 80GB HBM3 (1980 MHz, 700 W)", driver: "580.159 (CUDA 13.0)", ... }
 */

import { arch, cpus, release, type as system } from "node:os";
import { levelOf, type Target } from "../../abstraction/machine.ts";
import type { Environment } from "../../db/index.ts";
import { recordedCompiler } from "../../runtime/compiler.ts";
import type { Runner } from "../../runtime/measure.ts";
import { nvccFlags } from "../../runtime/run/cuda-build.ts";
import type { CudaDevice } from "../../runtime/run/cuda-device.ts";
import { nativeTarget } from "../../targets/index.ts";
import { VERSION } from "../version.ts";

/** Software on this machine other than compilers. */
export const softwareHere = (): Pick<Environment, "kernel" | "node" | "automap"> => ({
  kernel: `${system()} ${release()} ${arch()}`,
  node: process.version,
  automap: VERSION,
});

/** The processor's name as the system reports it. Of some Arm CPUs Node reports none and /proc/cpuinfo only numbers. */
function modelOf({ name }: Target): string {
  const told = cpus()[0]?.model.trim() ?? "";
  return told === "" || told === "unknown" ? name : told;
}

/** The environment of a CPU and the tools on this machine. */
export function environmentOf(runner: Pick<Runner, "compiler">, target: Target = nativeTarget()): Environment {
  return {
    target: target.name,
    cpu: modelOf(target),
    cores: cpus().length,
    isa: target.isa,
    compiler: recordedCompiler(runner.compiler),
    ...softwareHere(),
  };
}

/**
 * The environment of a GPU and the tools on this machine. The GPU takes the place of the CPU, and its multiprocessors that of the cores. Its
 * clock and power limits are part of its name, because a kernel takes another time under other limits.
 */
export function gpuEnvironment(device: CudaDevice, target: Target): Environment {
  const { path, version, options = [] } = device.nvcc;
  return {
    target: target.name,
    cpu: device.limits === "" ? device.name : `${device.name} (${device.limits})`,
    cores: levelOf(target, "block").units,
    isa: target.isa,
    compiler: { path, version, flags: [...options, ...nvccFlags("kernel", device)] },
    driver: device.cuda === undefined ? device.driver : `${device.driver} (CUDA ${device.cuda})`,
    ...softwareHere(),
  };
}
