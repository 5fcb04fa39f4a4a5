/** @file Code as text and back, for tests: what they look at, and programs of their own. */

import { fileURLToPath } from "node:url";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type Code, type SourceText, spell, trustedCode } from "../../abstraction/source-text.ts";

/** The text a C++ source would have. */
export function textOf(code: Code): string {
  return spell(code, "c++");
}

/** A test's own text as a program. */
export function sourceOf(text: string): SourceText {
  return spell(trustedCode(text), "c++");
}

/** The same kernel against the emulation header: what this CPU lacks runs too. */
export function emulatedX86(kernel: Kernel, on: Intrinsic): Kernel {
  const header = fileURLToPath(new URL("../../runtime/emulation/x86.h", import.meta.url));
  const source = sourceOf(kernel.source.replace(on.prelude ?? "#include <immintrin.h>", `#include "${header}"`));
  return { ...kernel, source, features: ["avx2", "fma"], promises: undefined };
}
