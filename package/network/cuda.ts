/**
 * @file The package of a network on a GPU. nvcc alone builds it.
 *
 *     cudaNetworkFiles(parts)      resnet18.h, resnet18.cu, resnet18_k0.cu ..., resnet18.weights, resnet18_weights.cpp, resnet18_main.cu,
 *                                  resnet18_torch.py, build.sh, CMakeLists.txt, network.json, README.md
 */

import { internal } from "../../abstraction/error.ts";
import {
  apart,
  code,
  commentText,
  identifier,
  join,
  jsonText,
  lines,
  plainWord,
  type SourceText,
  spell,
  spellingOf,
} from "../../abstraction/source-text.ts";
import { heldAs, type Value } from "../../network/value.ts";
import { NVCC_CODE } from "../../runtime/run/cuda-build.ts";
import { architectureFlag, architectureName } from "../../targets/nvidia-gpu.ts";
import { scriptOf, wordsOf } from "../build.ts";
import { compiledFor, HOST, LANGUAGE, nvccCommand, nvccFound } from "../cuda/build.ts";
import { TORCH_TYPES } from "../cuda/torch.ts";
import { tunedSource } from "../library.ts";
import { assetText } from "../portable.ts";
import { cudaNetworkHeader, cudaNetworkMain, cudaNetworkSource, cudaWeightsSource } from "./cuda-library.ts";
import { describeNetwork, NETWORK_VERSION } from "./node.ts";
import { readmeText } from "./readme.ts";
import type { NetworkBuild, NetworkParts } from "./subject.ts";

/** @param architecture GPU architecture flag used when the script is given no other */
function buildFor({ subject: { name }, kernels }: NetworkParts, architecture: readonly string[]): NetworkBuild {
  const compile = compiledFor(architecture);
  const objects = [
    ...kernels.map((kernel) => compile(`${kernel.name}.cu`, NVCC_CODE.kernel)),
    compile(`${name}.cu`, HOST),
    compile(`${name}_weights.cpp`, HOST),
  ];
  const made = objects.map((o) => o.output);
  return {
    objects,
    library: { flags: [...architecture, "-shared"], sources: made, output: `build/lib${name}.so` },
    main: {
      flags: [...architecture, LANGUAGE, ...HOST],
      sources: [`${name}_main.cu`, ...made],
      output: `build/${name}_main`,
    },
  };
}

/** Build steps for the GPU that the package was made for. */
export const cudaNetworkBuild = (parts: NetworkParts): NetworkBuild =>
  buildFor(parts, [architectureFlag(capabilityIn(parts))]);

function capabilityIn({ subject }: NetworkParts): number {
  if (!subject.gpu) internal(`${subject.name} is no network for a GPU`);
  return subject.gpu.capability;
}

/** The text of every file by name, and the weights. @throws Error when a step has no CUDA kernel */
export function cudaNetworkFiles(parts: NetworkParts): ReadonlyMap<string, SourceText | Uint8Array> {
  const { subject, kernels, weights } = parts;
  const { name, provenance } = subject;
  const sources = kernels.map((kernel) => {
    if (kernel.tuned?.language !== "cuda") internal(`${kernel.name} has no kernel in CUDA`);
    return [`${kernel.name}.cu`, tunedSource(kernel, kernel.tuned)] as const;
  });
  const header = cudaNetworkHeader(parts);
  const words = spellingOf([header], ["cuda"]);
  const facts = { schemaVersion: NETWORK_VERSION, ...describeNetwork(parts), provenance };
  return new Map<string, SourceText | Uint8Array>([
    [`${name}.h`, words.finish(header)],
    [`${name}.cu`, cudaNetworkSource(parts)],
    ...sources,
    [`${name}.weights`, weights],
    [`${name}_weights.cpp`, cudaWeightsSource(parts)],
    [`${name}_main.cu`, cudaNetworkMain(parts)],
    [`${name}_torch.py`, torchModule(parts)],
    ["network.json", spell(code`${jsonText(facts, 2)}\n`, "typescript")],
    ["build.sh", buildScript(parts)],
    ["CMakeLists.txt", cmakeText(parts)],
    ["README.md", readmeText(parts, words)],
  ]);
}

/** A PyTorch module that calls the library. */
function torchModule({ subject: { name, program, provenance } }: NetworkParts): SourceText {
  const row = (label: string, { type, shape }: Value) =>
    code`    ${jsonText([label, TORCH_TYPES[heldAs(type)][1], shape])},`;
  const text = lines([
    code`# ${commentText(`${name} as a module of PyTorch: import ${name}_torch; net = ${name}_torch.Network(); y = net(x)`)}`,
    ...provenance.map((line) => code`# ${commentText(line)}`),
    code`
NAME = ${jsonText(name)}
INPUTS = [`,
    ...program.inputs.map((value) => row(value.name, value)),
    code`]
OUTPUTS = [`,
    ...program.outputs.map((output) => row(output.name, output.value)),
    code`]`,
    apart(assetText("torch_network.py")),
  ]);
  return spell(text, "python");
}

function buildScript(parts: NetworkParts): SourceText {
  const { objects, library, main } = buildFor(parts, []);
  const builds = code`${commentText(`${library.output} and ${main.output}`)}, a source for each core at a time. Another compiler: NVCC=/usr/local/cuda/bin/nvcc`;
  const settings = [
    ...nvccFound(architectureName(capabilityIn(parts))),
    code`: "\${JOBS:=$(nproc 2>/dev/null || echo 1)}"
export NVCC ARCH`,
  ];
  const commands = [
    code`xargs -d '\\n' -P "$JOBS" -I{} sh -c '{}' <<'END'`,
    ...objects.map(nvccCommand),
    code`END`,
    ...[library, main].map(nvccCommand),
  ];
  return spell(scriptOf(builds, settings, commands), "cuda");
}

function cmakeText(parts: NetworkParts): SourceText {
  const { subject, kernels } = parts;
  const name = identifier(subject.name);
  const sources = join(
    kernels.map((kernel) => code`${identifier(kernel.name)}.cu`),
    code` `,
  );
  const text = code`# cmake -B build && cmake --build build
cmake_minimum_required(VERSION 3.18)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${plainWord(architectureName(capabilityIn(parts)))}-real)
endif()
project(${name} LANGUAGES CXX CUDA)
include(GNUInstallDirs)
find_package(CUDAToolkit REQUIRED)

add_library(${name} SHARED ${name}.cu ${name}_weights.cpp ${sources})
target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:\${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:\${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(${name} PRIVATE cuda_std_17)
target_link_libraries(${name} PUBLIC CUDA::cudart)
set_target_properties(${name} PROPERTIES PUBLIC_HEADER ${name}.h LIBRARY_OUTPUT_DIRECTORY \${CMAKE_BINARY_DIR})
# The flags that the kernels were measured with.
set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${wordsOf(NVCC_CODE.kernel, code`;`)}")
# The weights are put into the library by the assembler.
set_source_files_properties(${name}_weights.cpp PROPERTIES COMPILE_OPTIONS "-Wa,-I\${CMAKE_CURRENT_SOURCE_DIR}" OBJECT_DEPENDS "\${CMAKE_CURRENT_SOURCE_DIR}/${name}.weights")
add_executable(${name}_main ${name}_main.cu)
target_compile_features(${name}_main PRIVATE cuda_std_17)
target_link_libraries(${name}_main PRIVATE ${name})
install(TARGETS ${name} LIBRARY DESTINATION \${CMAKE_INSTALL_LIBDIR} PUBLIC_HEADER DESTINATION \${CMAKE_INSTALL_INCLUDEDIR})
`;
  return spell(text, "cuda");
}
