/** Calls the built library of a network from Node: checks every array before C sees it. */

import type { NumberArray } from "./binding.js";

/** Elements of an input or an output; integers of 64 bits are bigints. */
export type NetworkArray = NumberArray | BigInt64Array;

/** An input or an output. */
export interface NetworkTensor {
  /** As the model calls it. */
  readonly name: string;
  readonly dtype: string;
  /** `Float32Array`, ...; 16-bit floats are bits in a `Uint16Array`. */
  readonly array: string;
  readonly shape: readonly number[];
  readonly elements: number;
}

/** What network.json says of a package. */
export interface NetworkDescription {
  /** Of its files and C functions. */
  readonly name: string;
  readonly threads: number;
  /** What the library runs on. One for a GPU is called from C, C++ and PyTorch. */
  readonly target: "cpu" | "cuda";
  /** CPU features that each kernel needs; null for plain loops, and nothing of a GPU. */
  readonly kernels: readonly (readonly string[] | null)[];
  readonly inputs: readonly NetworkTensor[];
  readonly outputs: readonly NetworkTensor[];
}

/** How a network is loaded. */
export interface BindNetworkOptions {
  /** Whether the time of each step is kept; false by default. */
  readonly times?: boolean;
}

/** A network as a function on typed arrays, each row-major. It serves one call at a time. */
export interface BoundNetwork<
  Inputs extends object = Readonly<Record<string, NetworkArray>>,
  Outputs extends object = Readonly<Record<string, NetworkArray>>,
> {
  readonly name: string;
  readonly inputs: readonly NetworkTensor[];
  readonly outputs: readonly NetworkTensor[];
  /**
   * One call.
   * @param outputs arrays to write; new ones when left out
   * @throws KernelError when an array is missing, of the wrong type or length, or an output shares memory with another, and when an integer
   * of 64 bits is beyond 32
   */
  run(inputs: Inputs, outputs?: Outputs): Outputs;
  /** Its steps in order, with the seconds of all calls together; 0 unless `times` was asked for. */
  steps(): readonly { readonly name: string; readonly seconds: number }[];
  /** Frees its memory and its threads. */
  close(): void;
}

/** @throws KernelError when this CPU cannot run it, or there is not enough memory */
export declare function bindNetwork(
  koffi: unknown,
  file: string,
  description: NetworkDescription,
  options?: BindNetworkOptions,
): BoundNetwork;
