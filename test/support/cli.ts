/** @file Expectations of a command line: it works, or it is refused in a sentence. */

import { expect } from "vitest";
import { EXIT, type ExitCode } from "../../abstraction/exit-codes.ts";
import { commandLine } from "./command-line.ts";

/** A line that worked: its data, with nothing but remarks beside. */
export async function printed(line: string | readonly string[]): Promise<string> {
  const { code, out, err } = await commandLine(line);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return out;
}

/** A refused line: nothing on stdout, a sentence on stderr, no stack. */
export async function complaint(line: string | readonly string[], refusal: ExitCode = EXIT.usage): Promise<string> {
  const { code, out, err } = await commandLine(line);
  expect({ code, out }).toEqual({ code: refusal, out: "" });
  expectNoStack(err);
  return err.trimEnd();
}

export function expectNoStack(text: string): void {
  expect(text).not.toMatch(/^\s+at /m);
  expect(text).not.toContain("internal:");
}

/** The length of the longest line. */
export const widest = (text: string): number => Math.max(...text.split("\n").map((l) => l.length));
