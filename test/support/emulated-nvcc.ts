/** @file A program that stands for nvcc where there is no GPU: CUDA becomes C++ with the headers of the emulation. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { emulationFolder } from "../../runtime/emulation.ts";
import { keptProgram } from "./kept-compiler.ts";

/** @param folder that the script and its headers are written to @returns the script */
export function emulatedNvcc(folder: string): string {
  const include = join(folder, "emulated");
  mkdirSync(include, { recursive: true });
  for (const name of ["cuda_runtime.h", "cuda_runtime_api.h"])
    writeFileSync(join(include, name), '#include "cuda-runtime.h"\n');
  const flags = ["-O1", "-w", "-ffp-contract=off", "-fwrapv", "-DAUTOMAP_EMULATED_CUDA=", "-DAUTOMAP_EMULATED_GRAPHS"];
  const script = join(folder, "nvcc");
  // What only nvcc knows is left out; sources behind -x are C++, objects are objects.
  const text = `#!/bin/sh
for word; do
  shift
  case $word in
  -gencode=* | -fmad=* | -O? | -Xcompiler) ;;
  *.cu) set -- "$@" -x c++ "$word" -x none ;;
  *) set -- "$@" "$word" ;;
  esac
done
exec '${keptProgram("g++")}' ${flags.join(" ")} '-I${include}' '-I${emulationFolder()}' -include cuda_runtime.h "$@"
`;
  writeFileSync(script, text, { mode: 0o755 });
  return script;
}
