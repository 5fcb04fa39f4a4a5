/**
 * @file A package: all files needed to build, test and call one kernel. They do not depend on automap.
 *
 *     packageFiles(subject)      conv2d.h, conv2d.cpp, conv2d_tuned.cpp, conv2d_portable.cpp, conv2d_test.cpp, build.sh, CMakeLists.txt,
 *                                README.md, package.json, kernel.json, index.js, index.d.ts, binding.js, binding.d.ts
 *
 * Of a kernel in CUDA the files of cuda/index.ts.
 */

import { UsageError } from "../abstraction/error.ts";
import { type SourceText, type Spelling, spell, spellingOf } from "../abstraction/source-text.ts";
import { buildScript, cmakeText, readmeText } from "./build.ts";
import { cudaPackageFiles } from "./cuda/index.ts";
import type { KernelDescription } from "./files/binding.js";
import { headerText } from "./header.ts";
import { librarySource, tunedSource } from "./library.ts";
import { assetText, portableSource } from "./portable.ts";
import { selfTestSource } from "./self-test.ts";
import type { EmitSubject } from "./subject.ts";
import { descriptionOf as describe, descriptionText, indexText, indexTypes, packageJsonText } from "./wrapper.ts";

export { type Build, type BuildStep, type BuildSubject, buildOf, libraryFile } from "./build.ts";
export { cudaBuildOf } from "./cuda/index.ts";
export {
  type BindOptions,
  type BoundKernel,
  bind,
  type KernelDescription,
  KernelError,
  type NumberArray,
  type ParameterDescription,
} from "./files/binding.js";
export { type EmitSubject, type GpuFacts, packageName, packageNameFrom } from "./subject.ts";
export { PACKAGE_VERSION } from "./wrapper.ts";

/**
 * The public names of a package's tensors: `input` for a tensor `in`, `new_` for one called `new`. One spelling for the C header, TypeScript,
 * kernel.json and the README: names that are not keywords in C, C++ or TypeScript and do not clash with other names in the files.
 */
function publicWords(subject: EmitSubject): Spelling {
  return spellingOf([headerText(subject), indexTypes(subject)], ["c++", "typescript"]);
}

/** What a package is for whoever calls it without its files. */
export function descriptionOf(subject: EmitSubject): KernelDescription {
  return describe(subject, publicWords(subject));
}

/** Text of every file by name. */
export function packageFiles(subject: EmitSubject): ReadonlyMap<string, SourceText> {
  const { name, threads } = subject;
  if (!Number.isSafeInteger(threads) || threads < 1)
    throw new UsageError(`the threads of a package are a positive integer, got ${JSON.stringify(threads)}`);
  if (subject.gpu) return cudaPackageFiles(subject);
  const words = publicWords(subject);
  return new Map<string, SourceText>([
    ...librarySources(subject),
    [`${name}_test.cpp`, selfTestSource(subject)],
    ["build.sh", buildScript(subject)],
    ["CMakeLists.txt", cmakeText(subject)],
    ["README.md", readmeText(subject, words)],
    ["package.json", packageJsonText(subject)],
    ["kernel.json", descriptionText(subject, words)],
    ["index.js", indexText(subject)],
    ["index.d.ts", words.finish(indexTypes(subject))],
    ["binding.js", spell(assetText("binding.js"), "typescript")],
    ["binding.d.ts", spell(assetText("binding.d.ts"), "typescript")],
  ]);
}

/** What the library alone is built from. */
export function librarySources(subject: EmitSubject): ReadonlyMap<string, SourceText> {
  const { name, tuned } = subject;
  return new Map<string, SourceText>([
    [`${name}.h`, publicWords(subject).finish(headerText(subject))],
    [`${name}.cpp`, librarySource(subject)],
    [`${name}_portable.cpp`, portableSource(subject)],
    ...(tuned ? [[`${name}_tuned.cpp`, tunedSource(subject, tuned)] as const] : []),
  ]);
}
