/**
 * @file The package of a network: one library that runs it, built by a compiler alone.
 *
 *     networkFiles(subject)      resnet18.h, resnet18.cpp, resnet18_k0.cpp ..., resnet18.weights, resnet18_main.cpp, build.sh, CMakeLists.txt,
 *                                 README.md, network.json, package.json, index.js, index.d.ts and what they import; on a GPU those of cuda.ts
 */

import {
  code,
  commentText,
  identifier,
  join,
  lines,
  NOTHING,
  type SourceText,
  spell,
  spellingOf,
} from "../../abstraction/source-text.ts";
import { CXX, CXX_FOUND, commandOf, compiled, libraryFile, PLAIN, scriptOf, tunedFlags, wordsOf } from "../build.ts";
import type { NetworkDescription } from "../files/network-binding.js";
import { tunedSource } from "../library.ts";
import { portableSource } from "../portable.ts";
import { cudaNetworkBuild, cudaNetworkFiles } from "./cuda.ts";
import { networkHeader, networkMain, networkSource } from "./library.ts";
import { featuresOf, nodeFiles } from "./node.ts";
import { readmeText } from "./readme.ts";
import { kernelName, type NetworkBuild, type NetworkParts, type NetworkSubject, partsOfNetwork } from "./subject.ts";

export {
  type BindNetworkOptions,
  type BoundNetwork,
  bindNetwork,
  type NetworkArray,
  type NetworkDescription,
  type NetworkTensor,
} from "../files/network-binding.js";
export { borderBytes, borderElements } from "./border.ts";
export { describeNetwork, NETWORK_VERSION } from "./node.ts";
export {
  type NetworkBuild,
  type NetworkKernel,
  type NetworkParts,
  type NetworkSubject,
  partsOfNetwork,
} from "./subject.ts";

export function networkBuildOf(parts: NetworkParts): NetworkBuild {
  if (parts.subject.gpu) return cudaNetworkBuild(parts);
  const { name, threads } = parts.subject;
  const { objects, library } = networkLibraryOf({ name, threads, kernels: featuresOf(parts) });
  const parallel = threads > 1 ? ["-pthread"] : [];
  return {
    objects,
    library,
    main: {
      flags: [...PLAIN, ...parallel],
      sources: [`${name}_main.cpp`, ...library.sources],
      output: `build/${name}_main`,
    },
  };
}

/** The same without its program, from what network.json says. Every name is derived from the network's. */
export function networkLibraryOf({
  name,
  threads,
  kernels,
}: Pick<NetworkDescription, "name" | "threads" | "kernels">): Pick<NetworkBuild, "objects" | "library"> {
  const parallel = threads > 1 ? ["-pthread"] : [];
  const objects = [
    ...kernels.map((features, number) => compiled(kernelName(name, number), features ? tunedFlags(features) : PLAIN)),
    compiled(name, [...PLAIN, ...parallel]),
  ];
  return {
    objects,
    library: { flags: ["-shared", ...parallel], sources: objects.map((o) => o.output), output: libraryFile(name) },
  };
}

/** Names of the files that a network's library is compiled from. */
export function networkSourceNames({ name, kernels }: Pick<NetworkDescription, "name" | "kernels">): string[] {
  return [
    `${name}.h`,
    `${name}.cpp`,
    ...kernels.map((_, number) => `${kernelName(name, number)}.cpp`),
    `${name}.weights`,
  ];
}

/** The text of every file by name, and the weights. */
export function networkFiles(given: NetworkSubject): ReadonlyMap<string, SourceText | Uint8Array> {
  const parts = partsOfNetwork(given);
  if (given.gpu) return cudaNetworkFiles(parts);
  const { name } = given;
  const header = networkHeader(parts);
  const words = spellingOf([header], ["c++"]);
  return new Map<string, SourceText | Uint8Array>([
    [`${name}.h`, words.finish(header)],
    [`${name}.cpp`, networkSource(parts)],
    ...parts.kernels.map(
      (kernel) =>
        [`${kernel.name}.cpp`, kernel.tuned ? tunedSource(kernel, kernel.tuned) : portableSource(kernel)] as const,
    ),
    [`${name}.weights`, parts.weights],
    [`${name}_main.cpp`, networkMain(parts)],
    ...nodeFiles(parts, networkBuildOf(parts).library.output),
    ["build.sh", buildScript(parts)],
    ["CMakeLists.txt", cmakeText(parts)],
    ["README.md", readmeText(parts, words)],
  ]);
}

function buildScript(parts: NetworkParts): SourceText {
  const { objects, library, main } = networkBuildOf(parts);
  const builds = code`${commentText(`${library.output} and ${main.output}`)}. Another compiler: CXX=clang++ sh build.sh`;
  const commands = [...objects, library, main].map((step) => commandOf(CXX, step));
  return spell(scriptOf(builds, [CXX_FOUND], commands), "c++");
}

function cmakeText({ subject, kernels }: NetworkParts): SourceText {
  const name = identifier(subject.name);
  const words = (flags: readonly string[]) => wordsOf(flags, code`;`);
  const text = code`# cmake -B build && cmake --build build
cmake_minimum_required(VERSION 3.16)
project(${name} LANGUAGES CXX)
include(GNUInstallDirs)

add_library(${name} SHARED ${name}.cpp ${join(
    kernels.map((kernel) => code`${identifier(kernel.name)}.cpp`),
    code` `,
  )})
target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:\${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:\${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(${name} PROPERTIES PUBLIC_HEADER ${name}.h LIBRARY_OUTPUT_DIRECTORY \${CMAKE_BINARY_DIR})
# The weights are put into the library by the assembler.
set_source_files_properties(${name}.cpp PROPERTIES COMPILE_OPTIONS "${words(PLAIN)};-Wa,-I\${CMAKE_CURRENT_SOURCE_DIR}" OBJECT_DEPENDS "\${CMAKE_CURRENT_SOURCE_DIR}/${name}.weights")
${lines(kernels.map((kernel) => code`set_source_files_properties(${identifier(kernel.name)}.cpp PROPERTIES COMPILE_OPTIONS "${words(kernel.tuned ? tunedFlags(kernel.tuned.features) : PLAIN)}")`))}
${subject.threads > 1 ? code`find_package(Threads REQUIRED)\ntarget_link_libraries(${name} PRIVATE Threads::Threads)\n` : NOTHING}add_executable(${name}_main ${name}_main.cpp)
target_link_libraries(${name}_main PRIVATE ${name})
install(TARGETS ${name} LIBRARY DESTINATION \${CMAKE_INSTALL_LIBDIR} PUBLIC_HEADER DESTINATION \${CMAKE_INSTALL_INCLUDEDIR})
`;
  return spell(text, "c++");
}
