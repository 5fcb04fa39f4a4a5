/**
 * @file The headers in `emulation/`, which emulate instructions and languages of machines that are not available.
 *
 *     compileSource(program, ["-std=c++17", ...emulationFlags()], ".out", options)
 */

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Language } from "../abstraction/intrinsic.ts";

/** Where the headers lie, beside this file. */
export function emulationFolder(): string {
  return fileURLToPath(new URL("./emulation/", import.meta.url));
}

let known: string | undefined;

/** What the headers say, as a word: a program that was compiled with others is another program. */
export function emulationHash(): string {
  if (known !== undefined) return known;
  const hash = createHash("sha256");
  const headers = readdirSync(emulationFolder(), { recursive: true, encoding: "utf8" });
  for (const name of headers.filter((header) => /\.h(pp)?$/.test(header)).sort())
    hash.update(name).update(readFileSync(join(emulationFolder(), name)));
  known = hash.digest("hex").slice(0, 16);
  return known;
}

/**
 * What a compiler is told of signed integers that overflow. In SYCL and OpenCL C that is undefined whatever a compiler is told: it ends
 * the program. Elsewhere integers wrap, as those who compile kernels are told.
 */
export function overflowFlags(language: Language): readonly string[] {
  return language === "sycl" || language === "opencl"
    ? ["-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error"]
    : ["-fwrapv"];
}

/** What a compiler is told to find the headers, and to tell programs apart that only the headers tell apart. */
export function emulationFlags(): string[] {
  return [`-I${emulationFolder()}`, `-DAUTOMAP_EMULATION=0x${emulationHash()}`];
}
