/**
 * @file The environment of a search as its records name it: a CPU with its compiler, or a GPU with its driver and nvcc.
 *
 *     environmentOf(runner)                            { target: "Intel(R) Xeon(R) ...", compiler: { path: "/usr/bin/g++", ... }, ... }
 *     gpuEnvironment(runner.device, nvidiaTarget("h100"))     { cpu: "NVIDIA H100 80GB HBM3 (1980 MHz, 700 W)", driver: "580.159 (CUDA 13.0)", ... }
 */

import { arch, cpus, release, type as system } from "node:os";
import { levelOf, type Target } from "../abstraction/machine.ts";
import type { Environment } from "../db/index.ts";
import { kernelFlags } from "../runtime/compiler.ts";
import type { Runner } from "../runtime/measure.ts";
import { kernelFlagsOf } from "../runtime/run/cuda-build.ts";
import type { CudaDevice } from "../runtime/run/cuda-device.ts";
import { nativeTarget } from "../targets/index.ts";
import { VERSION } from "./version.ts";

/** What runs on this machine besides compilers. */
export const softwareHere = (): Pick<Environment, "kernel" | "node" | "automap"> => ({
  kernel: `${system()} ${release()} ${arch()}`,
  node: process.version,
  automap: VERSION,
});

/** As the system calls it; of an Arm CPU Node may know nothing, and /proc/cpuinfo has numbers. */
function modelOf({ name }: Target): string {
  const told = cpus()[0]?.model.trim() ?? "";
  return told === "" || told === "unknown" ? name : told;
}

/** A CPU and the tools here. */
export function environmentOf(runner: Pick<Runner, "compiler">, target: Target = nativeTarget()): Environment {
  const { path, version } = runner.compiler;
  return {
    target: target.name,
    cpu: modelOf(target),
    cores: cpus().length,
    isa: target.isa,
    compiler: { path, version, flags: kernelFlags({ features: [] }) },
    ...softwareHere(),
  };
}

/**
 * A GPU and the tools here: what runs kernels is the GPU, and its cores are its multiprocessors. The clock and the power it is allowed are
 * part of what it is: under another limit a kernel takes another time.
 */
export function gpuEnvironment(device: CudaDevice, target: Target): Environment {
  const { path, version } = device.nvcc;
  return {
    target: target.name,
    cpu: device.limits === "" ? device.name : `${device.name} (${device.limits})`,
    cores: levelOf(target, "block").units,
    isa: target.isa,
    compiler: { path, version, flags: kernelFlagsOf(device) },
    driver: device.cuda === undefined ? device.driver : `${device.driver} (CUDA ${device.cuda})`,
    ...softwareHere(),
  };
}
