/**
 * @file A package: everything needed to build, prove and call one kernel, as files that need nothing of automap's.
 *
 *     packageFiles(subject)      conv2d.h, conv2d.cpp, conv2d_tuned.cpp, conv2d_portable.cpp, conv2d_test.cpp, build.sh, CMakeLists.txt,
 *                                README.md, package.json, kernel.json, index.js, index.d.ts, binding.js, binding.d.ts
 */

import { buildScript, cmakeText, readmeText } from "./build.ts";
import { headerText, librarySource, tunedSource } from "./library.ts";
import { assetText, portableSource } from "./portable.ts";
import { selfTestSource } from "./self-test.ts";
import type { EmitSubject } from "./subject.ts";
import { descriptionText, indexText, indexTypes, packageJsonText } from "./wrapper.ts";

export { type Build, type BuildStep, type BuildSubject, buildOf, libraryFile } from "./build.ts";
export {
  type BindOptions,
  type BoundKernel,
  bind,
  type KernelDescription,
  KernelError,
  type ParameterDescription,
} from "./files/binding.js";
export { type EmitSubject, packageName } from "./subject.ts";
export { descriptionOf, PACKAGE_VERSION } from "./wrapper.ts";

/** Text of every file by name. */
export function packageFiles(subject: EmitSubject): ReadonlyMap<string, string> {
  const { name } = subject;
  return new Map([
    ...librarySources(subject),
    [`${name}_test.cpp`, selfTestSource(subject)],
    ["build.sh", buildScript(subject)],
    ["CMakeLists.txt", cmakeText(subject)],
    ["README.md", readmeText(subject)],
    ["package.json", packageJsonText(subject)],
    ["kernel.json", descriptionText(subject)],
    ["index.js", indexText(subject)],
    ["index.d.ts", indexTypes(subject)],
    ["binding.js", assetText("binding.js")],
    ["binding.d.ts", assetText("binding.d.ts")],
  ]);
}

/** What the library alone is built from. */
export function librarySources(subject: EmitSubject): ReadonlyMap<string, string> {
  const { name, tuned } = subject;
  return new Map([
    [`${name}.h`, headerText(subject)],
    [`${name}.cpp`, librarySource(subject)],
    [`${name}_portable.cpp`, portableSource(subject)],
    ...(tuned ? [[`${name}_tuned.cpp`, tunedSource(subject, tuned)] as const] : []),
  ]);
}
