/**
 * @file How a package is built: the same steps for a shell, for CMake, and for `load`.
 *
 *     g++ -O3 ... -mavx512vnni -c conv2d_tuned.cpp -o build/conv2d_tuned.o      only this file may use the CPU's extensions
 */

import { equationText } from "../abstraction/computation.ts";
import {
  type Code,
  code,
  commentText,
  identifier,
  join,
  lines as linesOf,
  list,
  markdownVerbatim,
  NOTHING,
  plainWord,
  type SourceText,
  type Spelling,
  spell,
} from "../abstraction/source-text.ts";
import { codeFlags } from "../runtime/compiler.ts";
import { architectureOf } from "../targets/features.ts";
import { architectureFor } from "./library.ts";
import { type EmitSubject, namesOf, type Parameter, parametersOf } from "./subject.ts";

/** One compiler call, run in the package's folder. */
export interface BuildStep {
  readonly flags: readonly string[];
  readonly sources: readonly string[];
  readonly output: string;
}

/** What build steps are generated from. */
export interface BuildSubject {
  readonly name: string;
  readonly threads: number;
  /** Features the tuned kernel needs, spelled as compiler flags; undefined when there is no tuned kernel. */
  readonly features: readonly string[] | undefined;
}

export interface Build {
  /** Compile steps. They may run in any order. */
  readonly objects: readonly BuildStep[];
  readonly library: BuildStep;
  readonly test: BuildStep;
}

export const PLAIN = ["-O2", "-std=c++17", "-ffp-contract=off", "-fwrapv"];

/** Compile flags of the tuned kernel. How it is linked is left to the build. */
export function tunedFlags(features: readonly string[]): string[] {
  return codeFlags({ features }).filter((flag) => flag !== "-fPIC");
}

/** The compile step of a source in C++. */
export const compiled = (source: string, flags: readonly string[]): BuildStep => ({
  flags: [...flags, "-fPIC", "-c"],
  sources: [`${source}.cpp`],
  output: `build/${source}.o`,
});

export function buildOf({ name, features, threads }: BuildSubject): Build {
  const parallel = threads > 1 ? ["-pthread"] : [];
  const objects = [
    ...(features ? [compiled(`${name}_tuned`, tunedFlags(features))] : []),
    compiled(`${name}_portable`, PLAIN),
    compiled(name, [...PLAIN, ...parallel]),
  ];
  const made = objects.map((o) => o.output);
  return {
    objects,
    library: { flags: ["-shared", ...parallel], sources: made, output: libraryFile(name) },
    test: { flags: [...PLAIN, ...parallel], sources: [`${name}_test.cpp`, ...made], output: `build/${name}_test` },
  };
}

/** Where both builds put the shared library. */
export function libraryFile(name: string): string {
  return `build/lib${name}.so`;
}

/** @param between a space for a shell, a semicolon for CMake */
export const wordsOf = (words: readonly string[], between = code` `): Code => join(words.map(plainWord), between);

/** A call of a compiler. */
export const commandOf = (compiler: Code, { flags, sources, output }: BuildStep): Code =>
  code`${compiler} ${wordsOf([...flags, ...sources, "-o", output])}`;

/** The compiler of scripts for C++, and what names it unless it is given. */
export const CXX = code`$CXX`;
export const CXX_FOUND = code`: "\${CXX:=$(command -v g++ || command -v clang++ || echo c++)}"`;

/** A script for a shell. @param builds what it builds, and how to change that */
export const scriptOf = (builds: Code, settings: readonly Code[], commands: readonly Code[]): Code =>
  linesOf([
    code`#!/bin/sh
# Builds ${builds}
set -eu
cd "$(dirname "$0")"`,
    ...settings,
    code`mkdir -p build`,
    ...commands,
    NOTHING,
  ]);

const isForArm = ({ tuned }: EmitSubject): boolean => architectureOf(tuned?.features ?? []) === "arm";

/** CMake settings for building an Arm package on another kind of machine: the compiler, and the emulator that runs the test. */
const CROSS = [
  "-DCMAKE_SYSTEM_NAME=Linux",
  "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
  "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
  "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64",
];

export function buildScript(subject: EmitSubject): SourceText {
  const { objects, library, test } = buildOf({ ...subject, features: subject.tuned?.features });
  const cross = isForArm(subject)
    ? [code`case "$(uname -m)" in aarch64 | arm64) ;; *) : "\${CXX:=aarch64-linux-gnu-g++}" ;; esac`]
    : [];
  const builds = code`${commentText(`${library.output} and ${test.output}`)}. Another compiler: CXX=clang++ sh build.sh`;
  const commands = [...objects, library, test].map((step) => commandOf(CXX, step));
  return spell(scriptOf(builds, [...cross, CXX_FOUND], commands), "c++");
}

export function cmakeText(subject: EmitSubject): SourceText {
  const { tuned, threads } = subject;
  const { name, upper } = namesOf(subject);
  const plain = wordsOf(PLAIN);
  const processors = join(
    architectureFor(tuned?.features ?? [])
      .processors.split("|")
      .map(identifier),
    code`|`,
  );
  const text = code`# cmake -B build && cmake --build build && ctest --test-dir build
${
  isForArm(subject)
    ? code`# On another machine, with QEMU_LD_PREFIX=/usr/aarch64-linux-gnu for the test, add: ${wordsOf(CROSS)}
`
    : NOTHING
}cmake_minimum_required(VERSION 3.16)
project(${name} LANGUAGES CXX)
include(GNUInstallDirs)
include(CTest)

add_library(${name} SHARED ${name}.cpp ${name}_portable.cpp)
target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:\${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:\${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_options(${name} PRIVATE ${plain})
set_target_properties(${name} PROPERTIES PUBLIC_HEADER ${name}.h LIBRARY_OUTPUT_DIRECTORY \${CMAKE_BINARY_DIR})
${
  tuned
    ? code`
# Only this file may use the CPU's extensions: ${name}.cpp asks the CPU before it calls it.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(${processors})$")
  target_sources(${name} PRIVATE ${name}_tuned.cpp)
  set_source_files_properties(${name}_tuned.cpp PROPERTIES COMPILE_OPTIONS "${wordsOf(tunedFlags(tuned.features), code`;`)}")
else()
  target_compile_definitions(${name} PRIVATE ${upper}_NO_TUNED)
endif()
`
    : NOTHING
}${threads > 1 ? code`\nfind_package(Threads REQUIRED)\ntarget_link_libraries(${name} PRIVATE Threads::Threads)\n` : NOTHING}
if(BUILD_TESTING)
  add_executable(${name}_test ${name}_test.cpp)
  target_compile_options(${name}_test PRIVATE ${plain})
  target_link_libraries(${name}_test PRIVATE ${name})
  add_test(NAME ${name} COMMAND ${name}_test)
endif()

install(TARGETS ${name} EXPORT ${name}
  LIBRARY DESTINATION \${CMAKE_INSTALL_LIBDIR}
  PUBLIC_HEADER DESTINATION \${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ${name} FILE ${name}-config.cmake DESTINATION \${CMAKE_INSTALL_LIBDIR}/cmake/${name})
`;
  return spell(text, "c++");
}

/** @param words spelling of the package's parameters (index.ts) */
export function readmeText(subject: EmitSubject, words: Spelling): SourceText {
  const { tuned, provenance, computation } = subject;
  const { name, upper } = namesOf(subject);
  const parameters = parametersOf(computation);
  const constants = parameters.filter((p) => p.role === "constant");
  const named = (roles: readonly Parameter["role"][]): Code =>
    list(parameters.filter((p) => roles.includes(p.role)).map((p) => p.name));
  const about = !tuned
    ? code`Nothing maps here: the package holds the portable code alone.`
    : tuned.features.length === 0
      ? code`The tuned kernel is plain C++ and runs on every CPU.`
      : code`The tuned kernel needs ${list(tuned.features.map(plainWord))}; on a CPU without them the portable code runs: correct, but slow.`;
  const text = code`# ${name}

${linesOf(provenance.map((l) => code`    ${markdownVerbatim(l)}`))}

A tensor kernel as a C library, which computes

    ${markdownVerbatim(equationText(computation))}

${name}.h says what each tensor is and how it lies in memory. ${about}

## Build and verify

    sh build.sh && build/${name}_test

or

    cmake -B build && cmake --build build && ctest --test-dir build

Only a C++ compiler is needed. The test compares every element with the equation by plain loops, on random and extreme data, in
memory that may not be overstepped; its exit code is 0 when all are right, 4 when one is wrong, 6 when it could not be tried.

## From C and C++

\`\`\`c
#include "${name}.h"

${name}_plan* plan;
if (${name}_create(&plan, ${upper}_BEST) != ${upper}_OK) return 1;
${constants.length > 0 ? code`${name}_prepare(plan, ${named(["constant"])});   // again when a constant has changed\n` : NOTHING}${name}_run(plan, ${named(["input", "output"])});         // as often as wanted
${name}_destroy(plan);
\`\`\`

## From Node

\`\`\`sh
npm install          # koffi, which calls C
\`\`\`

\`\`\`js
import { load } from "./index.js";

const kernel = load();
kernel.run(${named(["input", "constant", "output"])});
kernel.close();
\`\`\`

index.d.ts has the types. ${
    constants.length > 0
      ? code`Constants (${named(["constant"])}) are packed at the first call, and when another array is given; after changing the elements of one
in place, call \`kernel.repack()\`.`
      : NOTHING
  }
`;
  return words.finish(text);
}
