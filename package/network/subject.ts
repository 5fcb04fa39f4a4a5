/**
 * @file The contents of a network's package: its steps, one kernel for each distinct computation, and the place of every value in memory.
 *
 *     const parts = partsOfNetwork({ name: "resnet18", program, kernels, provenance });
 *     parts.steps[0]      { kernel: 0, places: [{ kind: "arena", offset: 0 }, { kind: "input", number: 0 }, { kind: "weights", offset: 0 }] }
 */

import { storageText } from "../../abstraction/affine.ts";
import { product, volumeOf } from "../../abstraction/collections.ts";
import {
  type Computation,
  computationKey,
  liesRowMajor,
  outputOf,
  type Tensor,
} from "../../abstraction/computation.ts";
import { bytesOf, wrapperOf } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { KEPT } from "../../abstraction/program.ts";
import type { StepChain } from "../../network/chains.ts";
import { type MemoryPlan, planMemory } from "../../network/memory.ts";
import { beginOf, type Network, rootOf, type Step } from "../../network/network.ts";
import { describeValue, elementsOf, heldAs, type Quantised, type Value } from "../../network/value.ts";
import { encodeElements } from "../../runtime/bytes.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import type { BuildStep } from "../build.ts";
import { portableScratch } from "../portable.ts";
import type { EmitSubject } from "../subject.ts";

export interface NetworkSubject {
  /** Name of the files and functions: a C identifier. */
  readonly name: string;
  readonly program: Network;
  /** Kernels by the key of their computation. A computation without a kernel runs as plain loops. */
  readonly kernels: ReadonlyMap<string, NetworkKernel>;
  /** Steps that one kernel computes together; none when left out. */
  readonly chains?: readonly StepChain[];
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
  | { readonly kind: "arena" | "weights" | "widened"; readonly offset: number }
  | { readonly kind: "input" | "output"; readonly number: number };

interface PlacedStep {
  /** A readable name: `layer1.0.conv1 (Conv BatchNormalization Relu)`. */
  readonly name: string;
  /** Undefined for a step that is computed with a later one, the last of its chain. */
  readonly kernel: number | undefined;
  /** Places of its tensors in the kernel's order, the output first, and of its scratch if it has any. */
  readonly places: readonly Place[];
  /** The same for a run that keeps every value in its own place. Of a step that is computed with a later one, its output's place. */
  readonly kept: readonly Place[];
  /** The first step whose memory for packed weights and for copies with a border it uses: its own number, or that of a step with its kernel and its weights. */
  readonly workspace: number;
  readonly bytes: number;
}

export interface NetworkParts {
  readonly subject: NetworkSubject;
  readonly steps: readonly PlacedStep[];
  /** One for each distinct computation; the name is the prefix of its functions: `resnet18_k0`. */
  readonly kernels: readonly EmitSubject[];
  readonly weights: Uint8Array;
  /** Constants of f32 that the weights hold in fewer bits, and the bytes that they take once they are widened. */
  readonly widened: {
    readonly bytes: number;
    readonly halves: readonly WidenedPart[];
    readonly integers: readonly IntegerPart[];
  };
  readonly memory: MemoryPlan;
  readonly kept: MemoryPlan;
  /** Outputs that no step writes directly: each is a copy of another output, of an input, or of a constant. */
  readonly copies: readonly { readonly to: number; readonly from: Place; readonly bytes: number }[];
}

interface WidenedPart {
  /** Offset in the weights. */
  readonly from: number;
  readonly to: number;
  readonly elements: number;
}

/** Integers of 8 bits: element `i` stands for `(element - zeros[k]) * scales[k]`, where `k = i / run % channels`. */
interface IntegerPart extends WidenedPart {
  readonly type: "u8" | "s8";
  /** Offset in the weights of the scales, which the zeros follow, all in f32. */
  readonly by: number;
  readonly channels: number;
  readonly run: number;
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
    throw new UsageError(
      `${name} computes nothing when it runs: all its outputs are known`,
      "read them from the model",
    );
  for (const value of [...program.inputs, ...program.outputs.map((o) => o.value)])
    if (subject.gpu && value.type === "s64")
      throw new UsageError(
        `${value.name} is ${describeValue(value)}: inputs and outputs of 64 bits are not supported on a GPU`,
        value.constant ? "it is known before the run: take it off the model's outputs" : "use 32 bits",
      );
  const { chains = [] } = subject;
  const chainOf = new Map(chains.flatMap((one) => one.steps.map((step) => [step, one] as const)));
  const scratchOf = (step: Step): number => {
    const chain = chainOf.get(step);
    return chain && chain.steps.at(-1) !== step ? 0 : scratchBytes(subject, (chain ?? step).computation);
  };
  const memory = planMemory(program, true, chains, scratchOf);
  const kept = planMemory(program, false, chains, scratchOf);
  const weights = new WeightsFile(subject.gpu ? {} : program);
  const made = new Map(program.outputs.map(({ value }, i) => [rootOf(value), i] as const).reverse());
  const placeIn = (plan: MemoryPlan, value: Value, tensor?: Tensor): Place => {
    if (value.constant) return weights.placeOf(value, tensor);
    const root = rootOf(value);
    const input = program.inputs.indexOf(root);
    if (input >= 0) return { kind: "input", number: input };
    const output = made.get(root);
    if (output !== undefined) return { kind: "output", number: output };
    const offset = plan.offsets.get(root) ?? internal(`${value.name} has no place`);
    return { kind: "arena", offset: offset + beginOf(value) * bytesOf(heldAs(value.type)) };
  };
  const kernels = new Map<string, EmitSubject>();
  const numbers = new Map<string, number>();
  const numberOf = (key: string, made: (number: number) => EmitSubject): number => {
    const number = numbers.get(key) ?? kernels.size;
    if (number === kernels.size) kernels.set(key, made(number));
    numbers.set(key, number);
    return number;
  };
  const steps = program.steps.map((step): Omit<PlacedStep, "workspace"> => {
    const { nodes, ops, computation, reads, output } = step;
    const about = { name: `${nodes[0] ?? ""} (${ops.join(" ")})`, bytes: bytesOfTensor(computation) };
    const chain = chainOf.get(step);
    if (chain && chain.steps.at(-1) !== step)
      return { ...about, kernel: undefined, places: [], kept: [placeIn(kept, output)] };
    const computed = chain ?? { computation, values: { ...reads, [outputOf(computation).name]: output } };
    const kernel = numberOf(computationKey(computed.computation), (number) =>
      kernelSubject(subject, computed.computation, number),
    );
    const flagged = (plan: MemoryPlan, flag: Value): readonly Place[] => {
      const isPlaced = (value: Value): boolean => plan === kept || !chain || isStored(chain, value);
      const scratch = plan.scratch.get(step);
      const tensors = Object.values(computed.computation.tensors).map((tensor) => {
        const value = tensor.name === KEPT && chain ? undefined : readAs(computed.values, tensor.name);
        // No call without the flag touches a value that stays in its chain.
        return value && isPlaced(value) ? placeIn(plan, value, tensor) : placeIn(plan, flag);
      });
      return scratch === undefined ? tensors : [...tensors, { kind: "arena", offset: scratch }];
    };
    return { ...about, kernel, places: flagged(memory, FLAGS.off), kept: flagged(kept, FLAGS.on) };
  });
  const written = new Set(program.steps.map(({ output }) => output));
  const copies = program.outputs.flatMap(({ value }, to) =>
    written.has(rootOf(value)) && made.get(rootOf(value)) === to
      ? []
      : [{ to, from: placeIn(memory, value), bytes: bytesOfValue(value) }],
  );
  return {
    subject: { ...subject, name },
    steps: withWorkspaces(steps, [...kernels.values()]),
    kernels: [...kernels.values()],
    weights: weights.bytes(),
    widened: weights.widened(),
    memory,
    kept,
    copies,
  };
}

/**
 * The steps with the memory that each uses. What a kernel keeps from one call to the next are the weights that it packs, so steps with the same kernel
 * share a workspace where these are the same, or where it packs none: the matrix that each step of a recurrent network multiplies by stays in a
 * cache, as does the memory that equal layers copy their images to, in a border of zeros that stays.
 */
function withWorkspaces(
  steps: readonly Omit<PlacedStep, "workspace">[],
  kernels: readonly EmitSubject[],
): readonly PlacedStep[] {
  const first = new Map<string, number>();
  return steps.map((step, i) => {
    const { packs, arguments: tensors } = (step.kernel === undefined ? undefined : kernels[step.kernel]?.tuned) ?? {};
    const isPacked = (place: number): boolean => !packs || packs.includes(tensors?.[place]?.tensor ?? "");
    const packedAt = (places: readonly Place[]): unknown =>
      places.map((place, at) =>
        (place.kind === "weights" || place.kind === "widened") && isPacked(at) ? `${place.kind} ${place.offset}` : null,
      );
    const packed = JSON.stringify([step.kernel ?? `none of ${i}`, packedAt(step.places), packedAt(step.kept)]);
    const workspace = first.get(packed) ?? i;
    first.set(packed, workspace);
    return { ...step, workspace };
  });
}

/** Bytes of scratch of the kernel of a computation. */
function scratchBytes({ kernels, gpu }: NetworkSubject, computation: Computation): number {
  const tuned = kernels.get(computationKey(computation));
  return (tuned || gpu ? tuned?.kernel.scratchBytes : portableScratch(computation)) ?? 0;
}

function bytesOfTensor(computation: Computation): number {
  const { dims, dtype } = outputOf(computation);
  return volumeOf(dims) * bytesOf(dtype);
}

function readAs(reads: Readonly<Record<string, Value>>, tensor: string): Value {
  return reads[tensor] ?? internal(`no value for tensor ${tensor}`);
}

/** Whether calls of a chain keep its values: what the tensor {@link KEPT} holds. */
const FLAGS = {
  off: { name: KEPT, type: "s32", shape: [1], constant: Int32Array.of(0) },
  on: { name: KEPT, type: "s32", shape: [1], constant: Int32Array.of(1) },
} as const satisfies Record<string, Value>;

/** Whether a value is read by the chain, or stored for others. */
function isStored({ stored, steps }: StepChain, value: Value): boolean {
  return !steps.some(({ output }) => output === value) || stored.has(value);
}

/** Prefix of a kernel's functions, and the name of its file. */
export const kernelName = (network: string, number: number): string => `${network}_k${number}`;

function kernelSubject(
  { name, kernels, threads, gpu, provenance }: NetworkSubject,
  computation: Computation,
  number: number,
): EmitSubject {
  const chosen = kernels.get(computationKey(computation));
  return {
    name: kernelName(name, number),
    computation,
    ...(chosen && { tuned: chosen.kernel }),
    ...(gpu && { gpu }),
    threads,
    provenance: [...(chosen?.provenance ?? ["plain loops: nothing maps"]), ...provenance],
  };
}

/** Elements below which a constant stays f32. */
const FEW_ELEMENTS = 64;

const narrowed = wrapperOf("f16");

/** The file of weights: constants one after another, each stored once for each order it is read in. */
class WeightsFile {
  private readonly parts: Uint8Array[] = [];
  private readonly places = new Map<string, Place>();
  private readonly numbers = new Map<unknown, number>();
  private readonly halves: WidenedPart[] = [];
  private readonly integers: IntegerPart[] = [];
  private readonly narrows: Pick<Network, "halves" | "integers">;
  private size = 0;
  private widenedSize = 0;

  /** @param narrows whether constants of f32 that are exact in f16 are stored so, and those that are stored as integers */
  constructor(narrows: Pick<Network, "halves" | "integers">) {
    this.narrows = narrows;
  }

  /** @param tensor gives the storage order of its elements; row-major when left out */
  placeOf({ constant, type }: Value, tensor?: Tensor): Place {
    const number = this.numbers.get(constant) ?? this.numbers.size;
    this.numbers.set(constant, number);
    const isOrdered = tensor !== undefined && !liesRowMajor(tensor);
    const key = `${number} ${isOrdered ? storageText(tensor) : ""}`;
    const known = this.places.get(key);
    if (known !== undefined) return known;
    const ordered = (given: ArrayLike<number>): ArrayLike<number> => (isOrdered ? toMemory(tensor, given) : given);
    const elements = ordered(constant ?? []);
    const mayNarrow = type === "f32" && elements.length >= FEW_ELEMENTS;
    const shown = mayNarrow && constant ? this.narrows.integers?.get(constant) : undefined;
    const integers = shown && integersOf(shown, elements, ordered);
    let place: Place;
    if (integers) {
      const { type: stored, bytes, channels, run, factors } = integers;
      const from = this.added(encodeElements(stored, bytes));
      const by = this.added(encodeElements("f32", factors));
      const to = this.widenedPlace(elements.length);
      this.integers.push({ from, to, elements: elements.length, type: stored, by, channels, run });
      place = { kind: "widened", offset: to };
    } else if (mayNarrow && this.narrows.halves && isExactInHalf(elements)) {
      const from = this.added(encodeElements("f16", elements));
      const to = this.widenedPlace(elements.length);
      this.halves.push({ from, to, elements: elements.length });
      place = { kind: "widened", offset: to };
    } else place = { kind: "weights", offset: this.added(encodeElements(heldAs(type), elements)) };
    this.places.set(key, place);
    return place;
  }

  /** @returns the offset in the file */
  private added(bytes: Uint8Array): number {
    const from = this.size;
    this.parts.push(bytes);
    this.size += alignedSize(bytes.length);
    return from;
  }

  private widenedPlace(elements: number): number {
    const to = this.widenedSize;
    this.widenedSize += alignedSize(elements * bytesOf("f32"));
    return to;
  }

  widened(): NetworkParts["widened"] {
    return { bytes: this.widenedSize, halves: this.halves, integers: this.integers };
  }

  bytes(): Uint8Array {
    const all = new Uint8Array(Math.max(this.size, ALIGNMENT));
    let offset = 0;
    for (const part of this.parts) {
      all.set(part, offset);
      offset += alignedSize(part.length);
    }
    return all;
  }
}

const alignedSize = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

function isExactInHalf(elements: ArrayLike<number>): boolean {
  return Array.prototype.every.call(elements, (element: number) => Object.is(narrowed(element), element));
}

interface Integers extends Pick<IntegerPart, "type" | "channels" | "run"> {
  readonly bytes: ArrayLike<number>;
  /** The scales, then the zeros. */
  readonly factors: Float32Array;
}

/**
 * The integers behind numbers in the order in which these are stored; undefined where they take no less memory, or do not give the same numbers.
 * @param ordered brings row-major elements to that order
 */
function integersOf(
  { stored, scale, zero, axis = 0 }: Quantised,
  elements: ArrayLike<number>,
  ordered: (given: ArrayLike<number>) => ArrayLike<number>,
): Integers | undefined {
  const { type, constant, shape } = stored;
  const scales = scale.constant;
  const zeros = zero ? zero.constant : [0];
  if (!constant || !scales || !zeros || (type !== "u8" && type !== "s8")) return undefined;
  const channels = scales.length;
  const factors = Float32Array.from({ length: 2 * channels }, (_, i) =>
    i < channels ? (scales[i] ?? 0) : (zeros[i % zeros.length] ?? 0),
  );
  if (elements.length + factors.byteLength >= elements.length * bytesOf("f32")) return undefined;
  const inner = product(shape.slice(axis + 1));
  const places = ordered(Int32Array.from(constant, (_, i) => Math.floor(i / inner) % channels));
  const change = Array.prototype.findIndex.call(places, (place: number) => place !== 0);
  const run = change > 0 ? change : elements.length;
  const bytes = ordered(constant);
  for (let i = 0; i < elements.length; i++) {
    const k = Math.floor(i / run) % channels;
    const number = Math.fround(((bytes[i] ?? 0) - (factors[channels + k] ?? 0)) * (factors[k] ?? 0));
    if (!Object.is(number, elements[i])) return undefined;
  }
  return { type, bytes, channels, run, factors };
}
