/**
 * @file From a network and the records of its tasks to a verified library on disk.
 *
 *     const opened = openGraph(readOnnx("resnet18.onnx"), { dims: { batch: 1 } });
 *     await tuneNetwork(opened.program, { seconds: 60 });
 *     const { proof } = await emitNetwork(opened, { to: "resnet18", verify: true });
 */

import { defined } from "../../abstraction/collections.ts";
import { checkNames, EnvironmentError, type EnvironmentProblem, UsageError } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { DEFAULT_DATABASE } from "../../db/index.ts";
import { describeNetwork, networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { findNvcc } from "../../runtime/run/cuda-device.ts";
import { cudaJudge } from "../../runtime/run/cuda-judge.ts";
import { isGpu, nativeTarget } from "../../targets/index.ts";
import { writePackage } from "../package/package-folder.ts";
import { sealedPackage } from "../package/sealed-package.ts";
import { chosenFor, type RecordedWorld, recordedWorld } from "./choices.ts";
import { keepNetwork } from "./load-network.ts";
import { networkSubject, type OpenNetwork } from "./network.ts";
import { type NetworkProof, type ProofOptions, proveNetwork } from "./prove-network.ts";

/** Where a network's package is written, with which kernels, and whether it is verified. */
export interface EmitNetworkOptions extends Pick<ProofOptions, "onBuilt" | "onStep"> {
  /** Folder to write. */
  readonly to: string;
  /** Name of the files and C functions; the graph's by default. */
  readonly name?: string | undefined;
  /** Database of tuned kernels, which need not exist; `automap.db` by default. */
  readonly database?: string;
  /** Threads of each kernel; 1 by default. */
  readonly threads?: number;
  /** Whether each step must be computed as its equation says, which excludes kernels of forms that round differently (Winograd); false by default. */
  readonly exact?: boolean;
  /** The GPU that the network was opened for; this CPU when left out. */
  readonly machine?: Target | undefined;
  /** Id, or its first characters, of an environment of the database whose kernels are taken; that of this machine when left out. */
  readonly environment?: string | undefined;
  /** Whether the library is built and the output of every step compared with its equation; false by default. */
  readonly verify?: boolean;
  /** Lines about where the network comes from, such as the command that writes it again. They become part of the package. */
  readonly provenance?: readonly string[];
  /** Whether files may be written into a folder that is not empty; false by default. */
  readonly force?: boolean;
}

const OPTIONS = {
  to: true,
  name: true,
  database: true,
  threads: true,
  exact: true,
  machine: true,
  environment: true,
  verify: true,
  provenance: true,
  force: true,
  onBuilt: true,
  onStep: true,
} as const;

/** A written package of a network. */
export interface EmittedNetwork {
  /** Prefix of its files and C functions. */
  readonly name: string;
  readonly files: readonly string[];
  readonly steps: number;
  /** Kernel calls of one run: steps that share their rows are computed by one call. */
  readonly calls: number;
  /** Different kernels. */
  readonly kernels: number;
  /** Bytes of the values between steps, and of the scratch of a step. */
  readonly arenaBytes: number;
  /** The same without sharing memory. */
  readonly apartBytes: number;
  readonly weightBytes: number;
  /** The outcome of the verification, if it was asked for; an environment problem when nothing here can compile the library. */
  readonly proof?: NetworkProof | EnvironmentProblem;
}

/** @throws UsageError when this machine lacks what kernels of another may need */
function checkRunsHere({ machine }: RecordedWorld): void {
  const { isa } = nativeTarget();
  const lacking = isGpu(machine) ? undefined : machine.isa.find((feature) => !isa.includes(feature));
  if (lacking === undefined) return;
  throw new UsageError(
    `the library is for ${machine.name}, and this machine has no ${lacking}: it cannot be verified here`,
    "leave --verify out; the package has a test that such a machine runs",
  );
}

/**
 * Writes a network's package. Each step gets the kernel of its best record that holds on this machine; without one, the kernel that the model expects
 * to be the fastest; without that, plain loops.
 * @throws UsageError when the folder may not be written, or an input or output has a type that callers cannot represent; EnvironmentError when it
 * cannot be written, or nvcc is missing for the verification on a GPU
 */
export async function emitNetwork(opened: OpenNetwork, options: EmitNetworkOptions): Promise<EmittedNetwork> {
  checkNames(options, OPTIONS, "emitNetwork");
  const { to, name, threads = 1, force = false } = options;
  const { database: db = DEFAULT_DATABASE, exact = false } = options;
  const world = options.environment === undefined ? undefined : recordedWorld(db, options.environment);
  const machine = world?.machine ?? options.machine;
  const gpu = machine && isGpu(machine) ? machine : undefined;
  if (world && options.verify) checkRunsHere(world);
  const { program } = opened;
  const { choices, chains, environment } = await chosenFor(program, { db, world, threads, exact }, gpu);
  const provenance = [
    `made for  ${(machine ?? nativeTarget()).name}, threads ${threads}`,
    ...(environment ? [`records   measured on ${environment.cpu} with ${environment.compiler.version}`] : []),
    ...(options.provenance ?? []),
  ];
  const subject = networkSubject(program, choices, { chains, name, threads, gpu, provenance });
  const files = networkFiles(subject);
  const parts = partsOfNetwork(subject);
  writePackage(to, sealedPackage(files), force);
  const { steps, kernels, memory, weights } = parts;
  const written: EmittedNetwork = {
    name: subject.name,
    files: [...files.keys()],
    steps: steps.length,
    calls: steps.filter(({ kernel }) => kernel !== undefined).length,
    kernels: kernels.length,
    arenaBytes: memory.bytes,
    apartBytes: memory.apart,
    weightBytes: weights.length,
  };
  if (!options.verify) return written;
  const compiler = await findCompiler();
  if (compiler.status === "environment") return { ...written, proof: compiler };
  const nvcc = gpu ? await findNvcc() : undefined;
  if (nvcc && "status" in nvcc) throw new EnvironmentError(nvcc);
  // Without a GPU the library does not run, which the proof then says.
  const judge = nvcc ? await cudaJudge() : undefined;
  const { onBuilt, onStep } = options;
  const proof = await proveNetwork(to, parts, compiler, {
    // Half precision changes outputs more than an error in operator fusion would, so the comparison would show nothing.
    ...(nvcc ? { builder: { command: [nvcc.path] } } : { asRead: opened.plain }),
    ...(judge && !("status" in judge) && { judge }),
    ...defined({ onBuilt, onStep }),
  });
  if (proof.status === "right" && !gpu) await keepNetwork(to, describeNetwork(parts), files, compiler);
  return { ...written, proof };
}
