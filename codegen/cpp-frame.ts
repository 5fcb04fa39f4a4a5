/**
 * @file What stands around the loops of a C++ kernel: its head, the C interface of abstraction/kernel.ts, one function a phase.
 *
 *     static void phase_0(void* workspace, void* const* tensors, int part, int parts) {
 *       float* const out = (float*)tensors[0];
 *       ...
 */

import { type Computation, memoryElements, outputOf, type Tensor } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { printEquation } from "../abstraction/equation.ts";
import { printExpr } from "../abstraction/expression.ts";
import { C_TYPES, type KernelArgument } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { helpersFor } from "./cpp-helpers.ts";

/** What the head of a source tells its reader. */
export interface SourceNotes {
  /** One line each: mapping, schedule, the command that remakes it. */
  readonly lines: readonly string[];
}

/** The printed parts of a kernel. */
export interface CppParts {
  /** Lines of the head, below the equations and tensors. */
  readonly comments: readonly string[];
  /** Includes and functions of the source's own. */
  readonly prelude: readonly string[];
  readonly prepare: readonly string[];
  readonly phases: readonly (readonly string[])[];
  /** Registers that the text of a phase needs. */
  readonly registers: (body: readonly string[]) => readonly string[];
}

/** Vector loads of the last tile of a buffer may read beyond it. */
const SLACK_BYTES = 64;

export function cppSource(computation: Computation, nest: LoopNest, parts: CppParts): string {
  const { prepare, phases } = parts;
  const workspace = workspaceOf(nest);
  const tensors = Object.values(computation.tensors);
  const output = outputOf(computation).name;
  const pointers = (constant: boolean): string[] => [
    ...workspace.buffers.map(
      ({ name, type, offset }) => `${type}* const ${name} = (${type}*)((char*)workspace + ${offset});`,
    ),
    ...tensors.map((t, i) =>
      t.name === output && !constant
        ? `${C_TYPES[t.dtype]}* const ${t.name} = (${C_TYPES[t.dtype]}*)tensors[${i}];`
        : `const ${C_TYPES[t.dtype]}* const ${t.name} = (const ${C_TYPES[t.dtype]}*)tensors[${i}];`,
    ),
  ];
  const mentioned = (lines: readonly string[], all: readonly string[]): string[] =>
    all.filter((line) => new RegExp(`\\b${/const (\w+) =/.exec(line)?.[1] ?? "?"}\\b`).test(lines.join("\n")));
  const run = phases.map((body, i) =>
    phaseFunction(i, localsFor(nest, body), [...mentioned(body, pointers(false)), ...parts.registers(body), ...body]),
  );
  return [
    ...headOf(computation, parts.comments),
    "#include <stdint.h>",
    "#include <string.h>",
    ...parts.prelude,
    ...helpersFor([...prepare, ...phases.flat()].join("\n")),
    "",
    `extern "C" unsigned long automap_workspace_bytes(void) { return ${workspace.bytes}; }`,
    `extern "C" int automap_phases(void) { return ${phases.length}; }`,
    "",
    'extern "C" void automap_prepare(void* workspace, const void* const* tensors) {',
    "  memset(workspace, 0, automap_workspace_bytes());",
    ...(prepare.length > 0 ? ["  const int part = 0, parts = 1;"] : ["  (void)tensors;"]),
    ...[...mentioned(prepare, pointers(true)), ...prepare].map((l) => `  ${l}`),
    "}",
    "",
    ...run,
    'extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {',
    "  switch (phase) {",
    ...phases.map((_, i) => `    case ${i}: return phase_${i}(workspace, tensors, part, parts);`),
    "  }",
    "}",
    "",
  ].join("\n");
}

/** The comment a source begins with, in every language. */
export function headOf(computation: Computation, comments: readonly string[]): string[] {
  const { epilogue } = computation;
  const lines = [
    ...[computation.equation, ...(epilogue ? [epilogue.equation] : [])].map(printEquation),
    ...Object.values(computation.tensors).map(describeTensor),
    ...comments,
  ];
  return ["/*", ...lines.map((l) => ` * ${l}`), " */"];
}

/** Offsets in the workspace, each buffer on a cache line. */
export function workspaceOf(nest: LoopNest): {
  readonly bytes: number;
  readonly buffers: readonly { readonly name: string; readonly type: string; readonly offset: number }[];
} {
  let bytes = 0;
  const buffers = nest.scratch
    .filter((s) => s.scope === "workspace")
    .map((s) => {
      const offset = bytes;
      bytes += Math.ceil((s.elements * bytesOf(s.dtype) + SLACK_BYTES) / 64) * 64;
      return { name: s.name, type: C_TYPES[s.dtype], offset };
    });
  return { bytes: Math.max(64, bytes), buffers };
}

/** The kernel's tensors in the order it takes them. */
export function argumentsOf(computation: Computation): KernelArgument[] {
  return Object.values(computation.tensors).map((t) => ({
    tensor: t.name,
    dtype: t.dtype,
    elements: memoryElements(t),
    role: t.name === outputOf(computation).name ? "output" : t.constant ? "constant" : "input",
  }));
}

function localsFor(nest: LoopNest, body: readonly string[]): string[] {
  const text = body.join("\n");
  return nest.scratch
    .filter((s) => s.scope === "local" && new RegExp(`\\b${s.name}\\b`).test(text))
    .map((s) => `alignas(64) ${C_TYPES[s.dtype]} ${s.name}[${s.elements}];`);
}

function phaseFunction(number: number, locals: readonly string[], body: readonly string[]): string {
  const lines = [...locals, ...body].map((l) => `  ${l}`);
  return [
    `static void phase_${number}(void* workspace, void* const* tensors, int part, int parts) {`,
    "  (void)workspace, (void)tensors, (void)part, (void)parts;",
    ...lines,
    "}",
    "",
  ].join("\n");
}

function describeTensor(t: Tensor): string {
  return `${t.name}: ${t.dtype}[${t.dims.map((d) => `${d.name} ${d.extent}`).join(", ")}], element at ${printExpr(t.storage, "formula")}${t.constant ? ", packed ahead of time" : ""}`;
}
