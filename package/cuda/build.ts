/**
 * @file How a package in CUDA is built: the same steps for a shell and for CMake.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -O3 -fmad=false -Xcompiler -fPIC -c conv2d_tuned.cu -o build/conv2d_tuned.o
 */

import { equationText } from "../../abstraction/computation.ts";
import {
  type Code,
  code,
  commentText,
  join,
  lines as linesOf,
  list,
  markdownVerbatim,
  NOTHING,
  plainWord,
  type SourceText,
  type Spelling,
  spell,
} from "../../abstraction/source-text.ts";
import { NVCC_CODE } from "../../runtime/run/cuda-build.ts";
import { type Build, type BuildStep, commandOf, libraryFile, scriptOf, wordsOf } from "../build.ts";
import type { Parameter } from "../subject.ts";
import { type CudaSubject, constantsOf } from "./subject.ts";

export const LANGUAGE = "-std=c++17";
export const HOST = ["-O2"];
/** Sources of the library and of its test, each with the nvcc flag that compiles it. */
const LIBRARY = [
  ["", HOST],
  ["_tuned", NVCC_CODE.kernel],
] as const;
const TEST = [
  ["_test", HOST],
  ["_reference", NVCC_CODE.reference],
] as const;

/** The compile step of a source. @param architecture GPU architecture flag used when the script is given no other */
export const compiledFor =
  (architecture: readonly string[]) =>
  (source: string, flags: readonly string[]): BuildStep => ({
    flags: [...architecture, LANGUAGE, ...flags, "-Xcompiler", "-fPIC", "-c"],
    sources: [source],
    output: `build/${source.replace(/\.\w+$/, "")}.o`,
  });

/** The nvcc calls, run in the package's folder. @param architecture GPU architecture flag used when the script is given no other */
export function buildFor(name: string, architecture: readonly string[]): Build {
  const compile = ([part, flags]: (typeof LIBRARY)[number] | (typeof TEST)[number]): BuildStep =>
    compiledFor(architecture)(`${name}${part}.cu`, flags);
  const library = LIBRARY.map(compile);
  const test = TEST.map(compile);
  const made = library.map((o) => o.output);
  return {
    objects: [...library, ...test],
    library: { flags: [...architecture, "-shared"], sources: made, output: libraryFile(name) },
    test: {
      flags: [...architecture],
      sources: [...test.map((o) => o.output), ...made],
      output: `build/${name}_test`,
    },
  };
}

/** nvcc and the architecture of a script, unless they are given. */
export const nvccFound = (architecture: string): Code[] => [
  code`: "\${NVCC:=$(command -v nvcc || echo "\${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}"
: "\${ARCH:=${plainWord(architecture)}}"`,
];

export const nvccCommand = (step: BuildStep): Code =>
  commandOf(code`"$NVCC" "-gencode=arch=compute_$ARCH,code=sm_$ARCH"`, step);

export function buildScript({ subject, architecture }: CudaSubject): SourceText {
  const { objects, library, test } = buildFor(subject.name, []);
  const builds = code`${commentText(`${library.output} and ${test.output}`)}. For another GPU: ARCH=80 sh build.sh; another compiler: NVCC=/usr/local/cuda/bin/nvcc`;
  const commands = [
    // Sources side by side.
    code`building=`,
    ...objects.map((step) => code`${nvccCommand(step)} & building="$building $!"`),
    code`for one in $building; do wait "$one"; done`,
    ...[library, test].map(nvccCommand),
  ];
  return spell(scriptOf(builds, nvccFound(architecture), commands), "cuda");
}

export function cmakeText({ name, architecture }: CudaSubject): SourceText {
  const text = code`# cmake -B build && cmake --build build && ctest --test-dir build        another GPU: -DCMAKE_CUDA_ARCHITECTURES=80
cmake_minimum_required(VERSION 3.18)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${plainWord(architecture)}-real)
endif()
project(${name} LANGUAGES CXX CUDA)
include(GNUInstallDirs)
include(CTest)
find_package(CUDAToolkit REQUIRED)

add_library(${name} SHARED ${join(
    LIBRARY.map(([part]) => code`${name}${part}.cu`),
    code` `,
  )})
target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:\${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:\${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(${name} PRIVATE cuda_std_17)
target_link_libraries(${name} PUBLIC CUDA::cudart)
# The flags that the kernel was measured with.
set_source_files_properties(${name}_tuned.cu PROPERTIES COMPILE_OPTIONS "${wordsOf(NVCC_CODE.kernel, code`;`)}")
set_target_properties(${name} PROPERTIES PUBLIC_HEADER ${name}.h LIBRARY_OUTPUT_DIRECTORY \${CMAKE_BINARY_DIR})

if(BUILD_TESTING)
  add_executable(${name}_test ${join(
    TEST.map(([part]) => code`${name}${part}.cu`),
    code` `,
  )})
  target_compile_features(${name}_test PRIVATE cuda_std_17)
  set_source_files_properties(${name}_reference.cu PROPERTIES COMPILE_OPTIONS "${wordsOf(NVCC_CODE.reference, code`;`)}")
  target_link_libraries(${name}_test PRIVATE ${name})
  add_test(NAME ${name} COMMAND ${name}_test)
endif()

install(TARGETS ${name} EXPORT ${name}
  LIBRARY DESTINATION \${CMAKE_INSTALL_LIBDIR}
  PUBLIC_HEADER DESTINATION \${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ${name} FILE ${name}-targets.cmake DESTINATION \${CMAKE_INSTALL_LIBDIR}/cmake/${name})
file(WRITE \${CMAKE_BINARY_DIR}/${name}-config.cmake "include(CMakeFindDependencyMacro)
find_dependency(CUDAToolkit)
include(\\\${CMAKE_CURRENT_LIST_DIR}/${name}-targets.cmake)
")
install(FILES \${CMAKE_BINARY_DIR}/${name}-config.cmake DESTINATION \${CMAKE_INSTALL_LIBDIR}/cmake/${name})
`;
  return spell(text, "cuda");
}

/** @param words spelling of the package's parameters */
export function readmeText(cuda: CudaSubject, words: Spelling): SourceText {
  const { subject, name, upper, parameters, call, architecture } = cuda;
  const named = (some: readonly Parameter[]): Code => list(some.map((p) => p.name));
  const inputs = parameters.filter((p) => p.role !== "output");
  const text = code`# ${name}

${linesOf(subject.provenance.map((l) => code`    ${markdownVerbatim(l)}`))}

A tensor kernel in CUDA with a C interface, which computes

    ${markdownVerbatim(equationText(subject.computation))}

${name}.h says what each tensor is, how it lies in memory, and which GPUs run the kernel.

## Build and verify

    sh build.sh && build/${name}_test

or

    cmake -B build && cmake --build build && ctest --test-dir build

nvcc makes code for sm_${plainWord(architecture)}; \`ARCH=80 sh build.sh\` or \`-DCMAKE_CUDA_ARCHITECTURES=80\` for another GPU. The test draws inputs on the
GPU, compares every element with a plain kernel of the equation, called, in a CUDA graph and from two threads, and looks at the memory around
the output. Its exit code is 0 when all are right, 4 when one is wrong, 6 when it could not be tried, on a machine without a GPU for example.

## From C and C++

\`\`\`c
#include "${name}.h"

void* workspace = NULL;                                    /* one for each call that may run at the same time */
if (${name}_workspace_bytes() > 0) cudaMalloc(&workspace, ${name}_workspace_bytes());
${
  call.prepares
    ? code`int bad = ${name}_prepare(${named(constantsOf(cuda))}, workspace, ${name}_workspace_bytes(), stream);   /* again when a constant has changed */
if (bad == ${upper}_OK)
  bad = `
    : code`int bad = `
}${name}_run(${named(parameters)}, workspace, ${name}_workspace_bytes(), stream);
if (bad != ${upper}_OK) puts(${name}_message(bad));
\`\`\`

## From PyTorch

\`\`\`python
import torch_ext                                          # builds ${name}_torch.cpp with the library, once

# Inputs in the strides that the kernel reads.
${linesOf(inputs.map((p) => code`${p.name} = torch_ext.laid_out("${p.name}", ${p.name})`))}
out = torch.ops.automap.${name}(${named(inputs)})
\`\`\`

The operator runs on the current stream and allocates through PyTorch, so it can be captured in a CUDA graph; \`torch.compile\` and meta tensors know its
output. It has no derivative, and says so. \`python torch_example.py\` runs it${cuda.operator ? code` beside PyTorch's own operator` : NOTHING}.
`;
  return words.finish(text);
}
