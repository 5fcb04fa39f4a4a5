/**
 * @file The contents of a network's package: its steps, one kernel for each distinct computation, and the place of every value in memory.
 *
 *     const parts = partsOfNetwork({ name: "resnet18", program, kernels, provenance });
 *     parts.steps[0]      { kernel: 0, places: [{ kind: "arena", offset: 0 }, { kind: "input", number: 0 }, { kind: "weights", offset: 0 }] }
 */

import { type Computation, computationKey, inputsOf, outputOf, type Tensor } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { axis, printExpr, substitute } from "../../abstraction/expression.ts";
import type { Kernel } from "../../abstraction/kernel.ts";

import { type MemoryPlan, planMemory } from "../../network/memory.ts";
import { type Program, rootOf } from "../../network/program.ts";
import { describeValue, elementsOf, heldAs, type Value } from "../../network/value.ts";
import { encodeElements } from "../../runtime/bytes.ts";
import { liesRowMajor, toMemory } from "../../runtime/verify.ts";
import type { BuildStep } from "../build.ts";
import type { EmitSubject } from "../subject.ts";

export interface NetworkSubject {
  /** Name of the files and functions: a C identifier. */
  readonly name: string;
  readonly program: Program;
  /** Kernels by the key of their computation. A computation without a kernel runs as plain loops. */
  readonly kernels: ReadonlyMap<string, NetworkKernel>;
  /** Threads that share each kernel. */
  readonly threads: number;
  /** Set when all kernels are CUDA kernels: the compute capability they are compiled for, 90 for 9.0. */
  readonly gpu?: { readonly capability: number };
  readonly provenance: readonly string[];
}

export interface NetworkKernel {
  readonly kernel: Kernel;
  /** Where the kernel comes from: the id of its record, or a note that the model alone chose it. */
  readonly provenance: readonly string[];
}

/** Where a step's tensor lies at run time. */
export type Place =
  | { readonly kind: "arena" | "weights"; readonly offset: number }
  | { readonly kind: "input" | "output"; readonly number: number };

export interface PlacedStep {
  /** A readable name: `layer1.0.conv1 (Conv BatchNormalization Relu)`. */
  readonly name: string;
  readonly kernel: number;
  /** Places of its tensors in the kernel's order: the output first. */
  readonly places: readonly Place[];
  /** The same for a run that keeps every value in a place of its own. */
  readonly kept: readonly Place[];
  readonly bytes: number;
}

export interface NetworkParts {
  readonly subject: NetworkSubject;
  readonly steps: readonly PlacedStep[];
  /** One for each distinct computation; the name is the prefix of its functions: `resnet18_k0`. */
  readonly kernels: readonly EmitSubject[];
  readonly weights: Uint8Array;
  readonly memory: MemoryPlan;
  readonly kept: MemoryPlan;
  /** Outputs that no step writes directly: each is a copy of another output, of an input, or of a constant. */
  readonly copies: readonly { readonly to: number; readonly from: Place; readonly bytes: number }[];
}

/** How the library and its program are built: the objects in any order, then these steps. */
export interface NetworkBuild {
  readonly objects: readonly BuildStep[];
  readonly library: BuildStep;
  readonly main: BuildStep;
}

/** Bytes of a cache line. */
const ALIGNMENT = 64;

/** Bytes of a value in the type a caller passes and receives it in. */
export const bytesOfValue = ({ name, type, shape }: Value): number => elementsOf(shape, name) * bytesOf(heldAs(type));

/** @throws UsageError when an input or output has a type that callers cannot represent */
export function partsOfNetwork(subject: NetworkSubject): NetworkParts {
  const { name, program } = subject;
  if (program.steps.length === 0)
    throw new UsageError(`${name} computes nothing when it runs: all its outputs are known`, {
      hint: "read them from the model",
    });
  for (const value of [...program.inputs, ...program.outputs.map((o) => o.value)])
    if (value.type === "s64")
      throw new UsageError(
        `${value.name} is ${describeValue(value)}: inputs and outputs of 64 bits are not supported yet`,
        value.constant ? { hint: "it is known before the run: take it off the model's outputs" } : {},
      );
  const [memory, kept] = [planMemory(program), planMemory(program, false)];
  const weights = new WeightsFile();
  const made = new Map(program.outputs.map(({ value }, i) => [rootOf(value), i] as const).reverse());
  const placeIn = (plan: MemoryPlan, value: Value, tensor?: Tensor): Place => {
    if (value.constant) return { kind: "weights", offset: weights.offsetOf(value, tensor) };
    const root = rootOf(value);
    const input = program.inputs.indexOf(root);
    if (input >= 0) return { kind: "input", number: input };
    const output = made.get(root);
    if (output !== undefined) return { kind: "output", number: output };
    const offset = plan.offsets.get(root);
    if (offset === undefined) throw new Error(`internal: ${value.name} has no place`);
    return { kind: "arena", offset };
  };
  const kernels = new Map<string, EmitSubject>();
  const numbers = new Map<string, number>();
  const steps = program.steps.map(({ nodes, ops, computation, reads, output }): PlacedStep => {
    const key = computationKey(computation);
    if (!kernels.has(key)) {
      numbers.set(key, kernels.size);
      kernels.set(key, kernelSubject(subject, key, computation, kernels.size));
    }
    const values = [
      [output, outputOf(computation)] as const,
      ...inputsOf(computation).map((tensor) => [readAs(reads, tensor.name), tensor] as const),
    ];
    return {
      name: `${nodes[0] ?? ""} (${ops.join(" ")})`,
      kernel: numbers.get(key) ?? 0,
      places: values.map(([value, tensor]) => placeIn(memory, value, tensor)),
      kept: values.map(([value, tensor]) => placeIn(kept, value, tensor)),
      bytes: bytesOfTensor(computation),
    };
  });
  const written = new Set(program.steps.map(({ output }) => output));
  const copies = program.outputs.flatMap(({ value }, to) =>
    written.has(rootOf(value)) && made.get(rootOf(value)) === to
      ? []
      : [{ to, from: placeIn(memory, value), bytes: bytesOfValue(value) }],
  );
  return {
    subject: { ...subject, name },
    steps,
    kernels: [...kernels.values()],
    weights: weights.bytes(),
    memory,
    kept,
    copies,
  };
}

function bytesOfTensor(computation: Computation): number {
  const { dims, dtype } = outputOf(computation);
  return dims.reduce((product, d) => product * d.extent, bytesOf(dtype));
}

function readAs(reads: Readonly<Record<string, Value>>, tensor: string): Value {
  const value = reads[tensor];
  if (!value) throw new Error(`internal: no value for tensor ${tensor}`);
  return value;
}

function kernelSubject(
  { name, kernels, threads, gpu, provenance }: NetworkSubject,
  key: string,
  computation: Computation,
  number: number,
): EmitSubject {
  const chosen = kernels.get(key);
  return {
    name: `${name}_k${number}`,
    computation,
    ...(chosen && { tuned: chosen.kernel }),
    ...(gpu && { gpu }),
    threads,
    provenance: [...(chosen?.provenance ?? ["plain loops: nothing maps"]), ...provenance],
  };
}

/** The storage order of a tensor's elements as text, independent of the names of its dimensions. */
function memoryText({ dims, storage }: Tensor): string {
  const places = new Map(dims.map((d, i) => [d.name, axis(`d${i}`)]));
  return `${printExpr(substitute(storage, places, "index"), "formula")} of ${dims.map((d) => d.extent).join(",")}`;
}

/** The file of weights: constants one after another, each stored once for each order it is read in. */
class WeightsFile {
  private readonly parts: Uint8Array[] = [];
  private readonly offsets = new Map<string, number>();
  private readonly numbers = new Map<unknown, number>();
  private size = 0;

  /** @param tensor gives the storage order of its elements; row-major when left out */
  offsetOf({ constant, type }: Value, tensor?: Tensor): number {
    const number = this.numbers.get(constant) ?? this.numbers.size;
    this.numbers.set(constant, number);
    const isOrdered = tensor !== undefined && !liesRowMajor(tensor);
    const key = `${number} ${isOrdered ? memoryText(tensor) : ""}`;
    const known = this.offsets.get(key);
    if (known !== undefined) return known;
    const elements = isOrdered ? toMemory(tensor, constant ?? [], () => 0) : (constant ?? []);
    const bytes = encodeElements(heldAs(type), elements);
    const offset = this.size;
    this.offsets.set(key, offset);
    this.parts.push(bytes);
    this.size += Math.ceil(bytes.length / ALIGNMENT) * ALIGNMENT;
    return offset;
  }

  bytes(): Uint8Array {
    const all = new Uint8Array(Math.max(this.size, ALIGNMENT));
    let offset = 0;
    for (const part of this.parts) {
      all.set(part, offset);
      offset += Math.ceil(part.length / ALIGNMENT) * ALIGNMENT;
    }
    return all;
  }
}
