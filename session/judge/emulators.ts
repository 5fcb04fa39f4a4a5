/**
 * @file Runs kernels for machines that are not available: qemu for an Arm CPU, our own headers for the GPU languages.
 *
 *     const emulator = await emulatorFor(armTargetNamed("neoverse-n1"), "c++", { threads: 1 });
 *     if (emulator.status === "environment") ...                     no compiler, no qemu: what to install
 *     await emulator.judge(kernel, reference)                        { status: "emulated", log: "every element right ..." }
 */

import type { Computation } from "../../abstraction/computation.ts";
import { type EnvironmentProblem, UsageError } from "../../abstraction/error.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Kernel, KernelLanguage } from "../../abstraction/kernel.ts";
import { levelOf, type Target } from "../../abstraction/machine.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import type { Environment } from "../../db/index.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { type Compiler, findCompiler, recordedCompiler } from "../../runtime/compiler.ts";
import { coresOf } from "../../runtime/cores.ts";
import { findArmTools } from "../../runtime/cross.ts";
import { emulatedVerdict, emulatorOf } from "../../runtime/emulated-verdict.ts";
import { createRunner, type MeasureOptions } from "../../runtime/measure.ts";
import { compileForIntel, findOcloc } from "../../runtime/ocloc.ts";
import { type Reference, referenceFor } from "../../runtime/reference/verify.ts";
import { closedBy } from "../../runtime/until.ts";
import { isElsewhere, isGpu, isPredictedOnly, oclocDevice } from "../../targets/index.ts";
import { softwareHere } from "../calibrate/environment.ts";
import { problemOf } from "./offline.ts";

export interface Emulator {
  readonly status: "ready";
  /** The emulator's name in records. */
  readonly name: string;
  /** The environment to store in records. A real processor never has it. */
  readonly environment: Environment;
  readonly reference: (computation: Computation, fixed: Inputs) => Promise<Reference>;
  /** Whether every element is right, or how the kernel failed; never a time. Rejected when the signal ended it, and so is `reference`. */
  readonly judge: (kernel: Kernel, reference: Reference) => Promise<Measurement>;
  readonly close: () => Promise<void>;
}

interface EmulatorOptions {
  readonly threads: number;
  /** Ends what is drawn, compiled and run. */
  readonly signal?: AbortSignal | undefined;
}

/** Under emulation one call shows whether a kernel is right. It takes several hundred times as long as on the processor. */
const ONCE: MeasureOptions = { budgetSeconds: 0, batchSeconds: 1e-9, batches: [1, 1], stepSeconds: 300 };
const INPUT_SEED = 1;

/** Whether kernels for a machine can be emulated here. */
const isEmulated = (machine: Target): boolean => isElsewhere(machine) || isPredictedOnly(machine) || isGpu(machine);

/** @throws UsageError for a machine that has no emulator */
export function checkEmulated(machine: Target): void {
  if (isEmulated(machine)) return;
  throw new UsageError(
    `--emulate: kernels for ${machine.name} run on this machine`,
    "leave --emulate out, and they are measured; or name a machine that is not at hand: --target dg2",
  );
}

/** The emulator for a machine and a language, or what is missing for it. */
export async function emulatorFor(
  machine: Target,
  language: KernelLanguage,
  options: EmulatorOptions,
): Promise<Emulator | EnvironmentProblem> {
  if (isElsewhere(machine)) return underQemu(machine, options);
  const compiler = await findCompiler();
  return compiler.status === "environment" ? compiler : byHeaders(machine, language, compiler, options);
}

async function underQemu(
  machine: Target,
  { threads, signal }: EmulatorOptions,
): Promise<Emulator | EnvironmentProblem> {
  const tools = await findArmTools();
  if (tools.status === "environment") return tools;
  const made = await createRunner({ threads, emulated: tools });
  if (made.status === "environment") return made;
  const { runner } = made;
  const release = closedBy(signal, runner);
  const { compiler, emulatorVersion } = tools;
  return {
    status: "ready",
    name: emulatorVersion ?? machine.name,
    environment: environmentUnder(emulatorVersion, machine, compiler),
    reference: (computation, fixed) => runner.reference(computation, INPUT_SEED, { fixed }),
    judge: (kernel, reference) => runner.measure(kernel, reference, ONCE),
    close: () => {
      release();
      return runner.close();
    },
  };
}

/**
 * An emulator by headers. Kernels in OpenCL C are first compiled by the vendor's compiler where it is installed; one that spills registers is
 * rejected.
 */
function byHeaders(
  machine: Target,
  language: KernelLanguage,
  compiler: Compiler,
  { signal }: EmulatorOptions,
): Emulator {
  const name = emulatorOf(language);
  const device = language === "opencl" ? oclocDevice(machine) : undefined;
  const ocloc = device === undefined ? undefined : findOcloc();
  const drawing = { compiler, workdir: cacheFolder("runtime"), cores: coresOf({}, signal), signal };
  return {
    status: "ready",
    name,
    environment: environmentUnder(name, machine, compiler),
    reference: (computation, fixed) => referenceFor(computation, INPUT_SEED, { ...drawing, fixed }),
    judge: async (kernel, reference) => {
      if (ocloc !== undefined && device !== undefined) {
        const built = await compileForIntel(kernel, device, ocloc, signal);
        if (built.status !== "compiled") return built;
        const log = problemOf(kernel, built);
        if (log !== undefined) return { status: "missing-instruction", log };
      }
      return emulatedVerdict(kernel, reference, { signal });
    },
    close: () => Promise.resolve(),
  };
}

function environmentUnder(emulator: string | undefined, machine: Target, compiler: Compiler): Environment {
  return {
    target: machine.name,
    cpu: emulator === undefined ? `${machine.name}, not timed` : `${machine.name} under ${emulator}`,
    cores: levelOf(machine, isGpu(machine) ? "block" : "core").units,
    isa: machine.isa,
    compiler: recordedCompiler(compiler),
    ...softwareHere(),
  };
}
