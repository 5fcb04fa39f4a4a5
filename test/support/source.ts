/** @file Code as text and back, for tests: what they look at, and programs of their own. */

import { type Code, type SourceText, spell, trustedCode } from "../../abstraction/source-text.ts";

/** The text a C++ source would have. */
export function textOf(code: Code): string {
  return spell(code, "c++");
}

/** A test's own text as a program. */
export function sourceOf(text: string): SourceText {
  return spell(trustedCode(text), "c++");
}
