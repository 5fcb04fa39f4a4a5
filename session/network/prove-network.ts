/**
 * @file Builds a network's library and verifies it step by step: each step is compared with its equation on the inputs that the library itself
 * computed for it.
 *
 *     await proveNetwork("resnet18", parts, compiler)      { status: "right", steps: 23 }   or the first step that differs
 *
 * Steps are compared one by one, each within the bound of its own rounding, so that no error hides behind those of earlier steps. Each output
 * must hold its value, also when no step computes it: an input, a constant, or a second name. On a GPU reference kernels compare the steps, and the
 * CPU only those that have none. The run in which values share memory must then give the same outputs, bit for bit. If the network as it was read is
 * available, outputs are compared with it too (as-read.ts).
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import pLimit from "p-limit";
import { defined, mapValues } from "../../abstraction/collections.ts";
import { computationKey, inputsOf, outputOf, type Tensor } from "../../abstraction/computation.ts";
import { bytesOf as bytesOfType, isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { accessesIn, axis, type Expr, extentOfBorder, printExpr, substitute } from "../../abstraction/expression.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { type Network, rootOf, type Step, shownOf } from "../../network/network.ts";
import { elementsOf, heldAs, type Value } from "../../network/value.ts";
import {
  borderBytes,
  borderElements,
  type NetworkParts,
  type NetworkSubject,
  networkBuildOf,
} from "../../package/network/index.ts";
import { decodeElements, encodeElements } from "../../runtime/bytes.ts";
import { explainRun, runChild } from "../../runtime/child.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { type CoreOptions, type Cores, coresOf } from "../../runtime/cores.ts";
import { expectedOn } from "../../runtime/reference/expected.ts";
import { fromMemory, toMemory } from "../../runtime/reference/verify.ts";
import type { Left, OutputJudge } from "../../runtime/run/cuda-judge.ts";
import { compileInFolder, type FolderOptions } from "../package/emit.ts";
import { differenceAsRead, outputsAsRead } from "./as-read.ts";

/** The outcome of a network's verification. */
export type NetworkProof =
  | { readonly status: "right"; readonly steps: number }
  | { readonly status: "wrong"; readonly step: string; readonly said: string }
  | { readonly status: "not built" | "not run"; readonly said: string };

const RUN_LIMIT_MS = 300_000;

export interface ProofOptions extends CoreOptions {
  /** Seed of the inputs; 1 by default. */
  readonly seed?: number;
  /** Builds the package when the compiler of the references cannot: nvcc. */
  readonly builder?: Pick<Compiler, "command">;
  /** Compares steps on a GPU; the CPU compares them all when it is left out. */
  readonly judge?: OutputJudge;
  /** The network as it was read, to check the fused steps against. */
  readonly asRead?: Network;
  /** Called for each object that is compiled. */
  readonly onBuilt?: (done: number, of: number) => void;
  /** Called for each step that is right. */
  readonly onStep?: (name: string, place: number, of: number) => void;
}

/** @param folder of the package, which is built there */
export async function proveNetwork(
  folder: string,
  parts: NetworkParts,
  compiler: Compiler,
  { seed = 1, builder = compiler, judge, asRead, onBuilt, onStep, ...rest }: ProofOptions = {},
): Promise<NetworkProof> {
  const cores = coresOf(rest);
  mkdirSync(join(folder, "build"), { recursive: true });
  // Compilers use it as their working directory.
  const work = mkdtempSync(join(resolve(folder), "build", "proof-"));
  try {
    const { program } = parts.subject;
    const inputs = drawInputs(program, seed);
    const options = { compiler, workdir: work, cores };
    // The nodes as they were read need nothing of the library.
    const [problem, wanted] = await Promise.all([
      buildNetwork(folder, parts, builder, cores, {
        ...(builder === compiler && { headers: { compiler, workdir: work } }),
        ...(onBuilt && { onBuilt }),
      }),
      asRead && outputsAsRead(asRead, namedElements(inputs.values), options),
    ]);
    if (problem !== undefined) return { status: "not built", said: problem };
    for (const [i, bytes] of inputs.bytes.entries()) writeFileSync(join(work, `input_${i}.bin`), bytes);
    const kept = await runOn(folder, parts, work, cores, true);
    if (kept !== undefined) return { status: "not run", said: kept };
    const wrong = await firstWrong(parts.subject, inputs.values, options, defined({ judge, onStep }));
    if (wrong) return wrong;
    const lost = wrongOutput(program, inputs.values, work);
    if (lost) return lost;
    const other = asRead && wanted && wrongAsRead(asRead, wanted, work);
    if (other) return other;
    const outputs = program.outputs.map((_, i) => readFileSync(join(work, `output_${i}.bin`)));
    const again = await runOn(folder, parts, work, cores, false);
    if (again !== undefined) return { status: "not run", said: again };
    const differs = outputs.findIndex((bytes, i) => !bytes.equals(readFileSync(join(work, `output_${i}.bin`))));
    if (differs >= 0)
      return {
        status: "wrong",
        step: program.outputs[differs]?.name ?? "",
        said: "it differs where values share memory",
      };
    return { status: "right", steps: program.steps.length };
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** @returns the compiler's output when it failed */
export async function buildNetwork(
  folder: string,
  parts: NetworkParts,
  compiler: Pick<Compiler, "command">,
  cores: Pick<Cores, "working">,
  options: FolderOptions = {},
): Promise<string | undefined> {
  const { objects, library, main } = networkBuildOf(parts);
  mkdirSync(join(folder, "build"), { recursive: true });
  return (
    (await compileInFolder(folder, objects, compiler, cores, options)) ??
    (await compileInFolder(folder, [library, main], compiler, cores))
  );
}

async function runOn(
  folder: string,
  { subject, ...parts }: NetworkParts,
  work: string,
  cores: Cores,
  keep: boolean,
): Promise<string | undefined> {
  const { main } = networkBuildOf({ subject, ...parts });
  const files = [
    ...subject.program.inputs.map((_, i) => join(work, `input_${i}.bin`)),
    ...subject.program.outputs.map((_, i) => join(work, `output_${i}.bin`)),
  ];
  const command = [join(folder, main.output), ...(keep ? ["--keep", work] : []), ...files];
  const run = await cores.working((cpus) => runChild(command, { timeLimitMs: RUN_LIMIT_MS, cpus }));
  return run.status === "ok" ? undefined : `${explainRun(run)}\n${run.stderr}`.trimEnd();
}

/**
 * Draws inputs in the range of normalised images, -2 to 2. Narrow integers span their range. Indices of tables count from either end of the
 * smallest table that they are read for. Other integers lie between 0 and 127, those of s64 between -128 and 127, since their quotients are rounded
 * towards 0.
 */
export function drawInputs(
  { inputs, steps }: Network,
  seed: number,
): { values: Map<Value, Float64Array>; bytes: Uint8Array[] } {
  const random = seededRandom(seed);
  const values = new Map<Value, Float64Array>();
  const bytes = inputs.map((value) => {
    const dtype = heldAs(value.type);
    const rows = smallestTable(value, steps, new Map());
    const indices = rows === undefined ? [value.type === "s64" ? -128 : 0, 127] : [-rows, rows - 1];
    const [least = 0, most = 0] = isInteger(dtype) && bytesOfType(dtype) < 4 ? rangeOf(dtype) : indices;
    const drawn = Float64Array.from({ length: elementsOf(value.shape, value.name) }, () =>
      value.type === "bool"
        ? Math.round(random())
        : isInteger(dtype) || value.type === "s64"
          ? randomInteger(random, least, most)
          : Math.fround(4 * random() - 2),
    );
    const encoded = borderBytes(value.type, drawn);
    values.set(value, borderElements(value.type, encoded));
    return encoded;
  });
  return { values, bytes };
}

/**
 * Elements of the smallest dimension whose indices are read from a value, or from what is made of it element by element.
 * @param known of values that were looked at before
 */
function smallestTable(
  value: Value,
  steps: readonly Step[],
  known: Map<Value, number | undefined>,
): number | undefined {
  if (known.has(value)) return known.get(value);
  const sizes = steps.flatMap(({ computation, reads, output }) => {
    const { equation } = computation;
    const names = Object.keys(reads).filter((name) => reads[name] && rootOf(reads[name]) === value);
    if (names.length === 0) return [];
    const isOwn = (read: Expr): boolean => read.kind === "access" && names.includes(read.tensor);
    const own = accessesIn(equation.value).flatMap(({ index }) =>
      index.flatMap((e) => (e.kind === "border" && isOwn(e.index) ? [extentOfBorder(e)] : [])),
    );
    const isIndex = output.type === "s32" || output.type === "s64";
    const made = isIndex && equation.op === "=" ? smallestTable(output, steps, known) : undefined;
    return made === undefined ? own : [...own, made];
  });
  const smallest = sizes.length === 0 ? undefined : Math.min(...sizes);
  known.set(value, smallest);
  return smallest;
}

async function firstWrong(
  { program, kernels }: Pick<NetworkSubject, "program" | "kernels">,
  values: Map<Value, Float64Array>,
  options: Parameters<typeof expectedOn>[2],
  { judge, onStep }: Pick<ProofOptions, "judge" | "onStep">,
): Promise<NetworkProof | undefined> {
  // Every step's output is available by now, so the steps can be checked in parallel.
  for (const [i, step] of program.steps.entries())
    values.set(step.output, outputIn(join(options.workdir, `step_${i}.bin`), outputOf(step.computation)));
  const judged = judge && (await judge(leftBy(program, (value) => elementsAt(value, values), options.workdir)));
  const limit = pLimit(availableParallelism());
  const isOfForm = ({ computation }: Step): boolean => kernels.get(computationKey(computation))?.kernel.ofForm === true;
  let right = 0;
  const found = await Promise.all(
    program.steps.map((step, i) =>
      limit(async (): Promise<NetworkProof | undefined> => {
        const known = judged?.[i];
        const wrong =
          known?.status === "wrong"
            ? { status: "wrong" as const, step: nameOf(step), said: known.said }
            : known?.status === "right"
              ? undefined
              : await wrongElement(step, values, options, isOfForm(step));
        if (!wrong) onStep?.(nameOf(step), ++right, program.steps.length);
        return wrong;
      }),
    ),
  );
  return found.find((wrong) => wrong !== undefined);
}

/**
 * Hands a network's outputs to a GPU for verification: the output of each step, and the inputs that it read, from files that the library wrote. An
 * input is the file of the step that made it where both see the same memory. Weights, inputs of the network, and values shown in part or under
 * another shape are written anew from their elements.
 * @param valuesOf the elements of a value, row-major
 * @param folder of the files `step_0.bin` and so on, and for those written here
 */
function leftBy(program: Network, valuesOf: (value: Value) => Float64Array, folder: string): readonly Left[] {
  const madeBy = new Map(program.steps.map((step, i) => [step.output, { step, file: join(folder, `step_${i}.bin`) }]));
  const written = new Map<Value, Map<string, string>>();
  let files = 0;
  const fileOf = (value: Value, tensor: Tensor): string => {
    const made = madeBy.get(value);
    const layout = layoutOf(tensor);
    if (made && layoutOf(outputOf(made.step.computation)) === layout) return made.file;
    const known = written.get(value) ?? new Map<string, string>();
    written.set(value, known);
    const file = known.get(layout) ?? join(folder, `read_${files++}.bin`);
    if (!known.has(layout)) {
      writeFileSync(file, encodeElements(tensor.dtype, toMemory(tensor, valuesOf(value))));
      known.set(layout, file);
    }
    return file;
  };
  const inputsRead = ({ computation, reads }: Step): string[] =>
    inputsOf(computation).map((tensor) => {
      const value = reads[tensor.name] ?? internal(`a step reads ${tensor.name}, which is no value`);
      return fileOf(value, tensor);
    });
  return program.steps.map((step, i) => ({
    computation: step.computation,
    output: join(folder, `step_${i}.bin`),
    inputs: inputsRead(step),
  }));
}

/** A text that is the same for tensors with the same bytes in memory, whatever their dimensions are called. */
function layoutOf({ dtype, dims, storage }: Tensor): string {
  const places = new Map(dims.map(({ name }, d) => [name, axis(`d${d}`)] as const));
  return `${dtype}[${dims.map(({ extent }) => extent).join(",")}] ${printExpr(substitute(storage, places))}`;
}

async function wrongElement(
  step: Step,
  values: ReadonlyMap<Value, Float64Array>,
  options: Parameters<typeof expectedOn>[2],
  isOfForm: boolean,
): Promise<NetworkProof | undefined> {
  const inputs = mapValues(step.reads, (value) => elementsAt(value, values));
  const { expected, tolerance } = await expectedOn(step.computation, inputs, options, isOfForm);
  const got = elementsAt(step.output, values);
  for (let e = 0; e < expected.length; e++) {
    const [wanted = Number.NaN, made = Number.NaN] = [expected[e], got[e]];
    if (Object.is(wanted, made) || Math.abs(made - wanted) <= (tolerance[e] ?? 0)) continue;
    const said = `element ${e} is ${made}, and its equation gives ${wanted} within ${tolerance[e]}`;
    return { status: "wrong", step: nameOf(step), said };
  }
  return undefined;
}

/** The first output whose file does not hold the elements of its value, row-major. */
function wrongOutput(
  { outputs }: Network,
  values: ReadonlyMap<Value, Float64Array>,
  work: string,
): NetworkProof | undefined {
  for (const [i, { name, value }] of outputs.entries()) {
    const expected = elementsAt(value, values);
    const got = borderElements(value.type, readFileSync(join(work, `output_${i}.bin`)));
    // Integers have no -0, which the doubles that hold them between steps may be.
    const isLost = (wanted: number, at: number): boolean =>
      !Object.is(wanted, got[at]) && !(value.type === "s64" && wanted === got[at]);
    const e = expected.findIndex(isLost);
    if (e >= 0)
      return {
        status: "wrong",
        step: `output ${name}`,
        said: `element ${e} is ${got[e]}, and ${value.name} holds ${expected[e]}`,
      };
  }
  return undefined;
}

const namedElements = (values: ReadonlyMap<Value, Float64Array>): Readonly<Record<string, Float64Array>> =>
  Object.fromEntries([...values].map(([value, elements]) => [value.name, elements] as const));

function wrongAsRead(
  plain: Network,
  wanted: ReadonlyMap<string, ArrayLike<number>>,
  work: string,
): NetworkProof | undefined {
  const outputs = plain.outputs.map(({ value }, i) =>
    borderElements(value.type, readFileSync(join(work, `output_${i}.bin`))),
  );
  const found = differenceAsRead(plain, wanted, outputs);
  return found && { status: "wrong", step: `output ${found.output}`, said: found.said };
}

const nameOf = ({ nodes, ops }: Step): string => `${nodes[0]} (${ops.join(" ")})`;

function elementsAt(value: Value, values: ReadonlyMap<Value, Float64Array>): Float64Array {
  if (value.constant) return Float64Array.from(value.constant);
  const elements = values.get(rootOf(value)) ?? internal(`${value.name} was not computed`);
  return shownOf(elements, value);
}

/** The logical elements of a step's output, read from memory in its storage order. */
function outputIn(file: string, tensor: Tensor): Float64Array {
  return fromMemory(tensor, decodeElements(tensor.dtype, readFileSync(file)));
}
