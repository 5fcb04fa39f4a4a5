/**
 * @file The contents of a package: the computation, its tuned kernel, and the names of its files and functions.
 *
 *     subjectOf({ name: "conv2d", computation, tuned, threads: 1, provenance: ["record 3f9a1c77d0e2"] })
 *     conv2d_run(plan, in, out)      inputs in the order the equation reads them, the output last
 */

import type { Extents } from "../abstraction/affine.ts";
import { type Computation, inputsOf, memoryElements, outputOf, type Tensor } from "../abstraction/computation.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import { attempt, UsageError } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import { C_TYPES, type Kernel } from "../abstraction/kernel.ts";
import { isReserved } from "../abstraction/keywords.ts";
import { isShort } from "../abstraction/short-floats.ts";
import { type Code, code, identifier, Name, NOTHING } from "../abstraction/source-text.ts";
import { sizesText } from "../abstraction/text.ts";

export interface EmitSubject {
  /** Name of the files and functions: a C identifier. */
  readonly name: string;
  readonly computation: Computation;
  /** Undefined when nothing maps. The package then holds only the portable code. */
  readonly tuned?: Kernel;
  /** Threads the kernel is scheduled for. */
  readonly threads: number;
  /** Lines that tell the kernel's origin, its measured time, and the command that reproduces it. */
  readonly provenance: readonly string[];
  /** Id of the record, if any. */
  readonly record?: string;
  /** Set when the tuned kernel is a CUDA kernel. */
  readonly gpu?: GpuFacts;
}

/** The GPU that a CUDA package is built for. */
export interface GpuFacts {
  /** Compute capability of the GPU it was measured on, 90 for 9.0. */
  readonly capability: number;
  /** The operator the kernel was made from. PyTorch may have the same one. */
  readonly operator?: { readonly name: string; readonly parameters: Extents };
}

/** The JavaScript typed array with the same element layout as the C type. Floats of 8 and 16 bits are kept as bits. */
export const ARRAYS = {
  u8: "Uint8Array",
  s8: "Int8Array",
  u16: "Uint16Array",
  s16: "Int16Array",
  u32: "Uint32Array",
  s32: "Int32Array",
  e4m3: "Uint8Array",
  e5m2: "Uint8Array",
  f16: "Uint16Array",
  bf16: "Uint16Array",
  tf32: "Float32Array",
  f32: "Float32Array",
  f64: "Float64Array",
} as const satisfies Record<DType, string>;

/** A package's name as the prefix of functions and of macros. */
export const namesOf = ({ name }: { readonly name: string }): { readonly name: Code; readonly upper: Code } => ({
  name: identifier(name),
  upper: identifier(name.toUpperCase()),
});

export interface Parameter {
  readonly tensor: Tensor;
  /** The parameter's name in C and TypeScript, the same in every public file (index.ts). */
  readonly name: Name;
  readonly role: "input" | "constant" | "output";
  /** Position among the pointers that the kernel receives: the output is first. */
  readonly place: number;
  readonly elements: number;
  readonly bytes: number;
}

/** Inputs in the order the equation reads them, then the output. */
export function parametersOf(computation: Computation): Parameter[] {
  const describe = (tensor: Tensor, place: number, role: Parameter["role"]): Parameter => ({
    tensor,
    name: nameOf(tensor),
    role,
    place,
    elements: memoryElements(tensor),
    bytes: memoryElements(tensor) * bytesOf(tensor.dtype),
  });
  const inputs = inputsOf(computation).map((t, i) => describe(t, i + 1, t.constant ? "constant" : "input"));
  return [...inputs, describe(outputOf(computation), 0, "output")];
}

/** `in` is a TypeScript keyword. */
function nameOf({ name }: Tensor): Name {
  return new Name("tensor", name === "in" ? "input" : name, name);
}

/** `const float* w` */
export const pointerTo = ({ tensor, name, role }: Parameter): Code =>
  code`${role === "output" ? "" : "const "}${C_TYPES[tensor.dtype]}* ${name}`;

/** The header's description of a parameter. */
export function aboutParameter({ name, role, elements, bytes, tensor }: Parameter): (Code | string)[] {
  const { dtype } = tensor;
  const bits = isShort(dtype) ? code` (the bits of a ${dtype})` : NOTHING;
  return [
    code`${name}   ${role}, ${elements} elements of ${C_TYPES[dtype]}${bits}, ${bytes} bytes`,
    `${" ".repeat(name.wish.length)}   ${describeTensor(tensor)}`,
  ];
}

/** Targets that CMake defines itself. See the manual, add_custom_target and CMP0037. */
const CMAKE_TARGETS = new Set([
  "all",
  "clean",
  "depend",
  "edit_cache",
  "help",
  "install",
  "list_install_components",
  "package",
  "package_source",
  "preinstall",
  "rebuild_cache",
  "test",
]);

/** Headers of C and POSIX, without `.h`: a package's header of such a name would stand in for them. */
const C_HEADERS = new Set([
  "assert",
  "complex",
  "ctype",
  "errno",
  "features",
  "fenv",
  "float",
  "inttypes",
  "iso646",
  "limits",
  "locale",
  "malloc",
  "math",
  "memory",
  "pthread",
  "sched",
  "setjmp",
  "signal",
  "stdalign",
  "stdarg",
  "stdatomic",
  "stdbool",
  "stddef",
  "stdint",
  "stdio",
  "stdlib",
  "stdnoreturn",
  "string",
  "strings",
  "tgmath",
  "threads",
  "time",
  "uchar",
  "unistd",
  "values",
  "wchar",
  "wctype",
]);

/**
 * The name of a package: the one asked for, or the operator's. It becomes `kernel_2d5pt` where C requires a leading letter. @throws UsageError
 * when it is not an identifier
 */
export function packageName(operator: string, asked?: string): string {
  const name = asked ?? operator.replaceAll(/[^A-Za-z0-9_]/g, "_").replace(/^(?=\d)/, "kernel_");
  if (!/^[A-Za-z][A-Za-z0-9_]{0,62}$/.test(name) || isReserved(name, ["c++", "python"]))
    throw new UsageError(
      `"${name}" cannot name a C function`,
      "--name takes letters, digits and _, a letter first, no keyword of C, C++ or Python",
    );
  if (CMAKE_TARGETS.has(name))
    throw new UsageError(`"${name}" is a target that CMake makes itself`, `for example --name ${name}_kernel`);
  if (C_HEADERS.has(name.toLowerCase()))
    throw new UsageError(`"${name}" is the name of a header of C: ${name}.h`, `for example --name ${name}_kernel`);
  return name;
}

/** A package's name made of any text, such as a file's name: `2-yolo v8 (1)` becomes `network_2_yolo_v8_1`. */
export function packageNameFrom(text: string): string {
  const wish = text.replaceAll(/\W+/g, "_").replaceAll(/_{2,}/g, "_").slice(0, 50).replaceAll(/^_|_$/g, "");
  return attempt(() => packageName(wish, wish)) ?? `network_${wish}`.replace(/_$/, "");
}

/** `u8[n 1, c 64, h 56, w 56], element at ((n*56 + h)*56 + w)*64 + c`. */
export function describeTensor({ dtype, dims, storage }: Tensor): string {
  return `${dtype}[${sizesText(dims)}], element at ${printExpr(storage, "formula")}`;
}
