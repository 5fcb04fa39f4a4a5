/**
 * @file The two parts of a generated CUDA kernel: the code of the device, and what launches it. nvcc compiles the device's part without its passes
 * for the host, which take longer than those for the device; a C++ compiler the host's part, with a header in place of CUDA's own.
 *
 *     partsOf(kernel.source)?.device      ... extern "C" __global__ void __launch_bounds__(256) phase_0(...) { ... }
 *     partsOf(kernel.source)?.host        static const char phase_0[] = "phase_0"; ... extern "C" int automap_launch(...) { ... }
 *
 * Other texts, such as kernels written by hand, are compiled as a whole.
 */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export interface KernelParts {
  /** The text with names that the host finds in the code: kernels as in C, constants as in C++. */
  readonly device: string;
  readonly host: string;
  /** Whether the device's part needs no more than runtime/harness/light has. */
  readonly isLight: boolean;
}

/** Where the functions of a kernel's interface begin (codegen/cuda/cuda-program.ts). */
const INTERFACE = '\nextern "C" unsigned long automap_workspace_bytes(void)';
const KERNEL = /^static __global__ void __launch_bounds__\([\d, ]+\) (\w+)\(/gm;
const CONSTANT = /^static __constant__ \w+ (\w+)\[\d+\];$/gm;
/** Functions and types at the outermost level of a text. */
const TOP_LEVEL = /^(?:template <.*> )?(?:static|struct) .*\{\n(?:(?!\}).*\n)*\};?$/gm;
const OF_DEVICE = /\b(?:__device__|__global__|__shared__|asm)\b/;

/** Functions of CUDA's headers that the light one leaves out. */
const OF_HEADERS =
  /\b(?:mem(?:cpy|set)|(?:f?abs|fma|f?min|f?max|exp[2m1]*|log[12p0]*|pow|r?sqrt|cbrt|tanh?|erfc?|floor|ceil|r?int|round|trunc|sinh?|cosh?|fmod|remainder|ldexp|copysign|isnan|isinf)f?)\(|^#include <mma/m;

/** The parts of a text as codegen/cuda prints it; undefined for another. */
export function partsOf(source: string): KernelParts | undefined {
  const at = source.indexOf(INTERFACE);
  const above = source.slice(0, at);
  const kernels = namesIn(above, KERNEL);
  const constants = namesIn(above, CONSTANT);
  if (at < 0 || kernels.length !== above.split("__global__").length - 1) return undefined;
  if (constants.length !== above.split("__constant__").length - 1) return undefined;
  const helpers = (above.match(TOP_LEVEL) ?? []).filter((text) => !OF_DEVICE.test(text));
  const declared = [
    ...kernels.map((name) => `[[maybe_unused]] static const char ${name}[] = "${name}";`),
    "namespace constants {",
    ...constants.map((name) => `static const char ${name}[] = "_ZN9constants${name.length}${name}E";`),
    "}",
  ];
  return {
    device: source.replace(/^static (?=__constant__)/gm, "").replace(/^static (?=__global__)/gm, 'extern "C" '),
    isLight: !OF_HEADERS.test(above),
    host: [hostHeader(), ...helpers, ...declared, source.slice(at)].join("\n"),
  };
}

const namesIn = (text: string, pattern: RegExp): string[] => [...text.matchAll(pattern)].map(([, name = ""]) => name);

let header: string | undefined;

function hostHeader(): string {
  header ??= readFileSync(fileURLToPath(new URL("../harness/cuda-host.h", import.meta.url)), "utf8");
  return header;
}
