/**
 * @file A package for a CUDA kernel. Its files do not depend on automap.
 *
 *     cudaPackageFiles(subject)      conv2d.h, conv2d.cu, conv2d_tuned.cu, conv2d_test.cu, conv2d_reference.cu, conv2d_torch.cpp, torch_ext.py,
 *                                    torch_example.py, build.sh, CMakeLists.txt, README.md
 */

import { type SourceText, spellingOf } from "../../abstraction/source-text.ts";
import { architectureFlag } from "../../targets/nvidia-gpu.ts";
import type { Build } from "../build.ts";
import { tunedSource } from "../library.ts";
import type { EmitSubject } from "../subject.ts";
import { buildFor, buildScript, cmakeText, readmeText } from "./build.ts";
import { headerText, librarySource } from "./library.ts";
import { referenceSource, selfTestSource } from "./self-test.ts";
import { cudaSubject } from "./subject.ts";
import { torchExample, torchModule, torchSource } from "./torch.ts";

/** Build steps for the GPU that the record was measured on. */
export function cudaBuildOf(subject: EmitSubject): Build {
  return buildFor(subject.name, [architectureFlag(cudaSubject(subject).capability)]);
}

/** The text of every file, by file name. */
export function cudaPackageFiles(subject: EmitSubject): ReadonlyMap<string, SourceText> {
  const cuda = cudaSubject(subject);
  const { name } = subject;
  const header = headerText(cuda);
  // The words by which others know the tensors: in C, in Python and in the operator's schema.
  const words = spellingOf([header], ["cuda", "python"]);
  return new Map<string, SourceText>([
    [`${name}.h`, words.finish(header)],
    [`${name}.cu`, librarySource(cuda)],
    [`${name}_tuned.cu`, tunedSource(subject, cuda.kernel)],
    [`${name}_test.cu`, selfTestSource(cuda)],
    [`${name}_reference.cu`, referenceSource(cuda)],
    [`${name}_torch.cpp`, torchSource(cuda, words)],
    ["torch_ext.py", torchModule(cuda, words)],
    ["torch_example.py", torchExample(cuda)],
    ["build.sh", buildScript(cuda)],
    ["CMakeLists.txt", cmakeText(cuda)],
    ["README.md", readmeText(cuda, words)],
  ]);
}
