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

/** The folder of the headers, beside this file. */
export function emulationFolder(): string {
  return fileURLToPath(new URL("./emulation/", import.meta.url));
}

let known: string | undefined;

/** A hash of the headers. A program compiled with other headers is another program. */
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
 * Compiler flags for signed overflow. In SYCL and OpenCL C it is always undefined, so it ends the program. Elsewhere
 * integers wrap, as in compiled kernels.
 */
export function overflowFlags(language: Language): readonly string[] {
  return language === "sycl" || language === "opencl"
    ? ["-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error"]
    : ["-fwrapv"];
}

/** Compiler flags that find the headers, and distinguish programs by the headers' hash. */
export function emulationFlags(): string[] {
  return [`-I${emulationFolder()}`, `-DAUTOMAP_EMULATION=0x${emulationHash()}`];
}
