/**
 * @file Compares outputs that a program left in files with their equations, on a GPU: every element within the bounds of a reference kernel on the
 * inputs that the program had.
 *
 *     const judge = await cudaJudge();
 *     await judge([{ computation: conv, output: "step_3.bin", inputs: ["image.bin", "weights.bin"] }])      [{ status: "right" }]
 *
 * A reference is compiled once for equal computations. What no reference on a device computes is `unjudged`, as is an output with elements to which
 * the reference gives no bounds, such as NaN: both are left to the CPU.
 */

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import {
  type Computation,
  computationKey,
  elementCount,
  memoryElements,
  outputOf,
} from "../../abstraction/computation.ts";
import { EnvironmentError, type EnvironmentProblem, internal, UsageError } from "../../abstraction/error.ts";
import { cacheFolder } from "../cache.ts";
import { explainRun, runChild } from "../child.ts";
import { shareCores } from "../cores.ts";
import { cudaReferenceSource } from "../reference/reference-cuda.ts";
import { Builder, emulatedToolchain, nvccToolchain, programText } from "./cuda-build.ts";
import { emulatedDevice, findCudaDevice } from "./cuda-device.ts";

/** An output in a file, with the files of the inputs in the order of the computation's tensors: bytes as they lie in memory. */
export interface Left {
  readonly computation: Computation;
  readonly output: string;
  readonly inputs: readonly string[];
}

export type Judged =
  | { readonly status: "right" }
  | { readonly status: "wrong"; readonly said: string }
  | { readonly status: "unjudged"; readonly because: string };

export type OutputJudge = (outputs: readonly Left[]) => Promise<readonly Judged[]>;

const RUN_LIMIT_MS = 600_000;

/** @param workdir where references are compiled and kept; the cache by default */
export async function cudaJudge({
  emulated = false,
  workdir = cacheFolder("runtime"),
}: {
  readonly emulated?: boolean;
  readonly workdir?: string;
} = {}): Promise<OutputJudge | EnvironmentProblem> {
  const device = emulated ? await emulatedDevice() : await findCudaDevice();
  if ("status" in device) return device;
  await mkdir(workdir, { recursive: true });
  const toolchain = emulated ? emulatedToolchain(device) : nvccToolchain(device);
  const builder = new Builder(toolchain, workdir, availableParallelism(), shareCores());
  return async (outputs) => {
    const program = await builder.fileOf(await programText("cuda-proof.cu"), "program", "the judging program");
    const references = new Map<string, ReturnType<typeof referenceFor>>();
    const asked = await Promise.all(
      outputs.map(async (left) => {
        const key = computationKey(left.computation);
        const reference = references.get(key) ?? referenceFor(builder, left.computation);
        references.set(key, reference);
        return { left, reference: await reference };
      }),
    );
    const known = asked.flatMap(({ left, reference }) => ("file" in reference ? [lineOf(left, reference.file)] : []));
    const answers = await answersOf(program, known, workdir, emulated ? undefined : device.id);
    return asked.map(({ reference }) =>
      "file" in reference ? judgedBy(answers.shift()) : { status: "unjudged", because: reference.because },
    );
  };
}

async function referenceFor(
  builder: Builder,
  computation: Computation,
): Promise<{ readonly file: string } | { readonly because: string }> {
  try {
    const source = cudaReferenceSource(computation);
    return { file: await builder.fileOf(source, "reference", `the reference of ${computation.name}`) };
  } catch (error) {
    if (error instanceof UsageError) return { because: error.message };
    throw error;
  }
}

function lineOf({ computation, output, inputs }: Left, reference: string): string {
  const tensor = outputOf(computation);
  return [reference, tensor.dtype, memoryElements(tensor), elementCount(tensor), output, ...inputs].join("\t");
}

/** One answer for each line. @throws EnvironmentError when the program fails */
async function answersOf(program: string, lines: readonly string[], workdir: string, id?: string): Promise<string[]> {
  if (lines.length === 0) return [];
  const folder = await mkdtemp(join(workdir, "judged-"));
  try {
    const list = join(folder, "outputs");
    await writeFile(list, `${lines.join("\n")}\n`);
    // The device that records name, independent of CUDA's numbering.
    const env = id === undefined ? {} : { CUDA_VISIBLE_DEVICES: id };
    const run = await runChild([program, list], { timeLimitMs: RUN_LIMIT_MS, env });
    const answers = run.stdout.trim().split("\n");
    if (run.status === "ok" && answers.length === lines.length) return answers;
    throw new EnvironmentError({
      what: `the program that compares outputs with their equations: ${explainRun(run)}\n${run.stderr}`.trimEnd(),
      why: "it ran on this machine's GPU",
      remedy: "automap doctor says what this GPU and its driver can do",
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function judgedBy(answer = ""): Judged {
  if (answer === "right") return { status: "right" };
  const [word, count, first, value, least, most] = answer.split(" ");
  if (word === "unjudged")
    return {
      status: "unjudged",
      because: `${count} elements have no bounds on a device: infinities and NaN among them`,
    };
  if (word !== "wrong") internal(`the judging program said ${answer}`);
  return {
    status: "wrong",
    said: `${count} elements differ: the one at ${first} in memory is ${value}, and its equation gives ${least} to ${most}`,
  };
}
