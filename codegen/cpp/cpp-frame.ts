/**
 * @file The frame around the loops of a C++ kernel: its header, the C interface of abstraction/kernel.ts, and one
 * function for each phase.
 *
 *     static void phase_0(void* workspace, void* const* tensors, int part, int parts) {
 *       float* const out = (float*)tensors[0];
 *       ...
 */

import { sizesText } from "../../abstraction/affine.ts";
import { sumOf, upTo } from "../../abstraction/collections.ts";
import {
  type Computation,
  equationsOf,
  memoryElements,
  type Tensor,
  writtenBy,
} from "../../abstraction/computation.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { printEquation, printExpr } from "../../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, printStorage } from "../../abstraction/intrinsic.ts";
import { C_TYPES, type Kernel, type KernelArgument } from "../../abstraction/kernel.ts";
import type { LoopNest, Scratch } from "../../abstraction/loop-nest.ts";
import {
  apart,
  axisName,
  block,
  type Code,
  code,
  comment,
  commentText,
  spell,
  tensorName,
} from "../../abstraction/source-text.ts";
import { type Loop, type Named, namedIn, roundsOf } from "../walk.ts";
import { CPP_HELPERS, calledIn } from "./cpp-helpers.ts";

/** Notes in the head of a source. */
export interface SourceNotes {
  /** One line each: mapping, schedule, the command that regenerates it. */
  readonly lines: readonly string[];
}

/** An instruction and where its operands are, for the head of a source. */
export function intrinsicLine({ name, operands }: Intrinsic): string {
  return `${name}: ${operands.map((o) => `${o.name} ${o.dtype} ${printStorage(o)}`).join(", ")}`;
}

/** The text that an instruction requires. */
export function ownPrelude({ prelude }: Intrinsic): Code[] {
  return prelude === undefined ? [] : [apart(fillTemplate(prelude))];
}

/** The printed parts of a kernel. */
interface CppParts {
  /** Lines of the head, below the equations and tensors. */
  readonly comments: readonly string[];
  /** Includes and functions that this source needs. */
  readonly prelude: readonly Code[];
  readonly prepare: readonly Code[];
  readonly phases: readonly (readonly Code[])[];
  /** Declarations of the registers that a phase uses. */
  readonly registers: (named: Named) => readonly Code[];
  /** The prelude of a phase without registers, in a text of its own; such phases stay with the others when left out. */
  readonly preludeOf?: (phase: readonly Code[]) => readonly Code[];
}

/** The vector load of a buffer's last tile may read this many bytes beyond it. */
const SLACK_BYTES = 64;

/** A declaration, and the name it declares. */
interface Declared {
  readonly name: string;
  readonly line: Code;
}

export function cppSource(
  computation: Computation,
  nest: LoopNest,
  parts: CppParts,
): Pick<Kernel, "source" | "apart" | "scratchBytes"> {
  const { prepare, phases } = parts;
  const workspace = workspaceOf(nest, ["workspace"]);
  const scratch = workspaceOf(nest, ["scratch"]);
  const scratchBytes = scratch.buffers.length > 0 ? scratch.bytes : 0;
  const tensors = Object.values(computation.tensors);
  const written = writtenBy(computation);
  const placedIn = ({ buffers }: Workspace, memory: Code): Declared[] =>
    buffers.map(({ name, dtype, offset }) => {
      const type = C_TYPES[dtype];
      return { name, line: code`${type}* const ${tensorName(name)} = (${type}*)((char*)${memory} + ${offset});` };
    });
  const pointers = (constant: boolean): Declared[] => [
    ...placedIn(workspace, code`workspace`),
    ...(constant ? [] : placedIn(scratch, code`tensors[${tensors.length}]`)),
    ...tensors.map((t, i) => {
      const kept = written.has(t.name) && !constant ? "" : "const ";
      const type = code`${kept}${C_TYPES[t.dtype]}*`;
      return { name: t.name, line: code`${type} const ${tensorName(t.name)} = (${type})tensors[${i}];` };
    }),
  ];
  const locals = nest.scratch
    .filter((s) => s.scope === "local")
    .map(
      (s): Declared => ({
        name: s.name,
        line: code`alignas(64) ${C_TYPES[s.dtype]} ${tensorName(s.name)}[${s.elements}];`,
      }),
    );
  const rounds = roundsOf(nest.body);
  const named = rounds.flatMap((round) => round.phases.map((phase) => namedIn(phase, nest)));
  // Phases without registers copy for others; where none has any, they are the work itself.
  const copies = named.some(({ registers }) => registers.size > 0);
  const run = phases.map((body, i): Phase => {
    const within = [
      ...(named[i] ? [...declared(named[i], [...locals, ...pointers(false)]), ...parts.registers(named[i])] : []),
      ...body,
    ];
    const prelude = copies && named[i]?.registers.size === 0 ? parts.preludeOf?.(body) : undefined;
    if (prelude === undefined) return { here: phaseFunction(i, code`static void`, within) };
    const unit = code`${HEADERS}
${prelude}
${calledIn(body, CPP_HELPERS)}

${phaseFunction(i, ELSEWHERE, within)}`;
    return { here: phaseFunction(i, NOT_INLINED, within), declared: code`${phaseHead(i, ELSEWHERE)};`, unit };
  });
  const text = (phases: readonly Code[]): Code => code`${headOf(computation, parts.comments)}
${HEADERS}
${parts.prelude}
${calledIn([...prepare, ...phases], CPP_HELPERS)}

extern "C" unsigned long automap_workspace_bytes(void) { return ${workspace.bytes}; }
extern "C" unsigned long automap_scratch_bytes(void) { return ${scratchBytes}; }
extern "C" int automap_phases(void) { return ${sumOf(rounds, (round) => round.phases.length * round.times)}; }

${prepare.length > 0 ? [PREPARE_ONCE] : []}
extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  memset(workspace, 0, automap_workspace_bytes());
  ${prepare.length > 0 ? code`const int part = 0, parts = 1;` : code`(void)tensors;`}
  ${declared(namedIn(nest.prepare, nest), [...locals, ...pointers(true)])}
  ${prepare}
}

${phases}
extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  ${calls(rounds)}
}
`;
  const source = spell(text(run.map(({ here }) => here)), "c++");
  const units = run.flatMap(({ unit }) => (unit ? [spell(unit, "c++")] : []));
  if (units.length === 0) return { source, scratchBytes };
  const main = spell(text(run.map(({ here, declared }) => declared ?? here)), "c++");
  return { source, scratchBytes, apart: { of: source, main, units } };
}

const HEADERS = code`#include <stdint.h>
#include <string.h>`;

/** The function of a phase. One that copies may also be declared, and defined in a text of its own. */
interface Phase {
  readonly here: Code;
  readonly declared?: Code;
  readonly unit?: Code;
}

const NOT_INLINED = code`static __attribute__((noinline)) void`;
const ELSEWHERE = code`extern "C" __attribute__((visibility("hidden"))) void`;

/** What runs once is compiled for size, in 0.13 s instead of 0.16 for a kernel of conv2d u8s8 (g++ 12, 2026-11-23). */
const PREPARE_ONCE = code`extern "C" void automap_prepare(void* workspace, const void* const* tensors) __attribute__((cold));`;

/** The function for each phase of a call. */
function calls(rounds: readonly { readonly phases: readonly unknown[]; readonly times: number }[]): Code[] {
  const cases = (from: number, count: number, head: Code): Code[] =>
    block(
      head,
      upTo(count).map((i) => code`case ${i}: return phase_${from + i}(workspace, tensors, part, parts);`),
    );
  const count = sumOf(rounds, (round) => round.phases.length);
  if (rounds.every((round) => round.times === 1)) return cases(0, count, code`switch (phase) {`);
  let phase = 0;
  let made = 0;
  return rounds.flatMap(({ phases, times }) => {
    const from = made;
    const first = phase;
    made += phases.length;
    phase += phases.length * times;
    return cases(from, phases.length, code`if (phase < ${phase}) switch ((phase - ${first}) % ${phases.length}) {`);
  });
}

function declared({ memory }: Named, all: readonly Declared[]): Code[] {
  return all.filter(({ name }) => memory.has(name)).map(({ line }) => line);
}

/** The comment at the head of a source, in every language. */
export function headOf(computation: Computation, comments: readonly string[]): Code {
  return comment([
    ...equationsOf(computation).map(printEquation),
    ...Object.values(computation.tensors).map(describeTensor),
    ...comments,
  ]);
}

/** Memory of a kernel, and where its buffers lie in it. */
export interface Workspace {
  readonly bytes: number;
  readonly buffers: readonly { readonly name: string; readonly dtype: DType; readonly offset: number }[];
}

/**
 * Offsets in the workspace. Each buffer begins at a cache line.
 * @param scopes of the buffers in it. Only C++ has scratch elsewhere
 */
export function workspaceOf(nest: LoopNest, scopes: readonly Scratch["scope"][] = ["workspace", "scratch"]): Workspace {
  let bytes = 0;
  const buffers = nest.scratch
    .filter((s) => scopes.includes(s.scope))
    .map(({ name, dtype, elements }) => {
      const offset = bytes;
      bytes += Math.ceil((elements * bytesOf(dtype) + SLACK_BYTES) / 64) * 64;
      return { name, dtype, offset };
    });
  return { bytes: Math.max(64, bytes), buffers };
}

/** The tensors of the kernel in argument order. */
export function argumentsOf(computation: Computation): KernelArgument[] {
  const written = writtenBy(computation);
  return Object.values(computation.tensors).map((t) => ({
    tensor: t.name,
    dtype: t.dtype,
    elements: memoryElements(t),
    role: written.has(t.name) ? "output" : t.constant ? "constant" : "input",
  }));
}

/** The constants that are read before the first call, to be packed. */
export function packedConstants({ tensors }: Computation, nest: LoopNest): string[] {
  const { memory } = namedIn(nest.prepare, nest);
  return Object.keys(tensors).filter((name) => memory.has(name));
}

function phaseHead(number: number, kind: Code): Code {
  return code`${kind} phase_${number}(void* workspace, void* const* tensors, int part, int parts)`;
}

function phaseFunction(number: number, kind: Code, body: readonly Code[]): Code {
  return code`${phaseHead(number, kind)} {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  ${body}
}
`;
}

/** The head of a loop: serial, or divided among threads in equal ranges. */
export function openLoop({ axis, extent, mode }: Loop): Code {
  const name = axisName(axis);
  if (mode === "parallel")
    return code`for (long ${name} = ${extent}L * part / parts; ${name} < ${extent}L * (part + 1) / parts; ${name}++) {`;
  return code`for (long ${name} = 0; ${name} < ${extent}; ${name}++) {`;
}

/** Describes a tensor under its name in the program. */
function describeTensor({ name, dtype, dims, storage, constant }: Tensor): Code {
  const shape = sizesText(dims);
  const about = `${dtype}[${shape}], element at ${printExpr(storage, "formula")}${constant ? ", packed ahead of time" : ""}`;
  return code`${tensorName(name)}: ${commentText(about)}`;
}
