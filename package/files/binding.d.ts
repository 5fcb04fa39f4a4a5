/** Calls a built package from Node: checks every array before C sees it, and nothing twice. */

export type NumberArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array;

/** One array of `run`. */
export interface ParameterDescription {
  readonly name: string;
  readonly role: "input" | "constant" | "output";
  readonly dtype: string;
  /** `Uint8Array`, `Float32Array` ...; 16-bit floats are bits in a `Uint16Array`. */
  readonly array: string;
  readonly elements: number;
  /** `n 1, c 64, h 56, w 56` */
  readonly shape: string;
  /** Element offset over the names of the dimensions. */
  readonly storage: string;
}

/** What kernel.json says of a package. */
export interface KernelDescription {
  /** Of its files and C functions. */
  readonly name: string;
  /** What it computes. */
  readonly equation: string;
  /** Inputs in the order the equation reads them, then the output. */
  readonly parameters: readonly ParameterDescription[];
  /** What the tuned kernel needs; absent where there is none. */
  readonly tuned?: { readonly features: readonly string[]; readonly instruction?: string; readonly threads: number };
}

export interface BindOptions {
  /** `best` (default): the tuned kernel where the CPU can run it, else the portable code. */
  readonly implementation?: "best" | "tuned" | "portable";
}

/** A compiled kernel as a function on typed arrays. */
export interface BoundKernel<Arrays extends unknown[] = NumberArray[]> {
  /** Of its files and C functions. */
  readonly name: string;
  /** In the order of `run`: the inputs as the equation reads them, then the output. */
  readonly parameters: readonly ParameterDescription[];
  /** Whether the tuned kernel runs or the portable code. */
  readonly implementation: "tuned" | "portable";
  /** What the tuned kernel needs and this machine lacks. */
  readonly missing: readonly string[];
  /**
   * One call. Constants are packed at the first, and whenever another array is given for one.
   * @throws KernelError when an array is of the wrong type or length, was transferred, or overlaps the output
   */
  run(...arrays: Arrays): void;
  /** After elements of a constant were changed in place: packs again at the next call. */
  repack(): void;
  /** Frees the workspace; the kernel cannot run again. */
  close(): void;
}

/** A caller's mistake: what, why, and what would be right. */
export class KernelError extends TypeError {}

/** @param koffi the module @param file the shared library */
export function bind(koffi: unknown, file: string, description: KernelDescription, options?: BindOptions): BoundKernel;
