/**
 * @file Explains a GPU's own faults and what to do about them. An error that says nothing about a kernel is an
 * environment fault (exit code 6) and is not recorded.
 *
 *     cudaProblem("starting the device: cudaSetDevice: cudaErrorInsufficientDriver, ...").remedy       "update the driver, ..."
 */

import { EnvironmentError, type EnvironmentProblem } from "../../abstraction/error.ts";

interface Fault {
  /** Names as in `cudaGetErrorName` (CUDA Runtime API, Data types, enum cudaError). */
  readonly errors: readonly string[];
  readonly remedy: string;
  /** Whether a new process on the same device may succeed. */
  readonly passes?: true;
}

const FAULTS: readonly Fault[] = [
  {
    errors: ["cudaErrorInsufficientDriver", "cudaErrorSystemDriverMismatch", "cudaErrorCompatNotSupportedOnDevice"],
    remedy:
      "update the driver, or install a CUDA toolkit no newer than the CUDA version that nvidia-smi shows; the best seen so far is kept",
  },
  {
    errors: ["cudaErrorNoDevice", "cudaErrorInvalidDevice"],
    remedy: "look at nvidia-smi and at CUDA_VISIBLE_DEVICES: this process sees no GPU",
  },
  {
    errors: ["cudaErrorECCUncorrectable", "cudaErrorNvlinkUncorrectable", "cudaErrorHardwareStackError"],
    remedy:
      "the GPU's memory has failed: nvidia-smi -q -d ECC,PAGE_RETIREMENT tells how; take another GPU (CUDA_VISIBLE_DEVICES)",
    passes: true,
  },
  {
    errors: ["cudaErrorDevicesUnavailable", "cudaErrorSystemNotReady", "cudaErrorMpsConnectionFailed"],
    remedy:
      "another process has the GPU for itself, or it is not ready: end that process (nvidia-smi) and run the same command again",
    passes: true,
  },
  {
    errors: ["cudaErrorMemoryAllocation"],
    remedy: "end what else uses the GPU's memory (nvidia-smi), or tune a smaller computation",
  },
];

/** Adds the remedy for a device fault to an environment error. */
export function cudaProblem(error: EnvironmentError): EnvironmentError {
  const fault = faultIn(error.problem);
  return fault ? new EnvironmentError({ ...error.problem, remedy: fault.remedy }, error) : error;
}

/** Whether a second try in a new process may succeed. */
export function mayPass(error: unknown): boolean {
  return error instanceof EnvironmentError && faultIn(error.problem)?.passes === true;
}

function faultIn({ what }: EnvironmentProblem): Fault | undefined {
  return FAULTS.find(({ errors }) => errors.some((name) => what.includes(name)));
}
