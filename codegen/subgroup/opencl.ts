/**
 * @file Prints a loop nest as OpenCL C: one self-contained source with the functions of abstraction/kernel.ts.
 *
 *     for (int step = part; step < 448; step += parts) {                    for parallel p in 0..56, q_outer in 0..8
 *       const int p = step / 8, q_outer = step % 8;
 *       c0 = 0;                                                               c{0} <- identity
 *       b0 = block_int8((w_tiled + 128 * r), 32);                             b{0} <- w_tiled[128*r]
 *       c0 = intel_sub_group_f16_f16_matrix_mad_k16(a0, b0, c0);              c{0} <- opencl.dpas(a{0}, b{0})
 *       for (int n = lane; n < 64; n += 8) out[...] = ...                     for n in 0..64
 *
 * subgroup.ts decides which work-group and which lane does what.
 */

import type { Extents } from "../../abstraction/affine.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { C_TYPES, type Kernel, type PrintedIssues } from "../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import {
  type Code,
  code,
  list,
  Name,
  namesIn,
  type SourceText,
  spell,
  tensorName,
} from "../../abstraction/source-text.ts";
import { lanesAreGroups, subgroupOf } from "../../targets/features.ts";
import { CExpressions } from "../c-expressions.ts";
import { argumentsOf, headOf, intrinsicLine, ownPrelude, type SourceNotes, workspaceOf } from "../cpp/cpp-frame.ts";
import { calledIn, type Helpers } from "../cpp/cpp-helpers.ts";
import { divisorOf } from "../short-index.ts";
import { type Loop, type Named, namedIn, type Of, phasesOf } from "../walk.ts";
import { type Generics, openClHelpers, openClWords } from "./opencl-helpers.ts";
import { checkLocalMemory, LANE, SubgroupWriter, withoutDoubles } from "./subgroup.ts";
import { dealtTo } from "./subgroup-tasks.ts";

/** Alignment of a block read, in bytes. OpenCL extension cl_intel_subgroups. */
const BLOCK_READ_BYTES = 4;

/** The kernel of a scheduled nest. */
export function generateOpenCl(
  computation: Computation,
  intrinsic: Intrinsic,
  nest: LoopNest,
  notes: SourceNotes,
): Kernel {
  const lanes = intrinsic.scope === "subgroup" ? subgroupOf(intrinsic) : 1;
  return new OpenClWriter(computation, nest, lanes, lanesAreGroups(intrinsic)).kernel(intrinsic, notes);
}

const WORKSPACE = new Name("local", "workspace");
/** The number one, unknown to the compiler, so that it unrolls loops only as far as the schedule says. */
const ONCE = new Name("local", "once");
const ONE_OF_A_LINE = code`const int ${ONCE} = get_num_groups(1); /* 1; keeps the compiler from unrolling further */`;
export const OPENCL_BARRIER = code`sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);`;
const GROUP_BARRIER = code`barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);`;

/**
 * A kernel whose work-groups are sub-groups of `width`, or that many work-items where there are no sub-groups. A
 * thread's memory in the nest is local to them, or private to a single work-item.
 */
export function openClFunction(
  name: Code,
  computation: Computation,
  nest: LoopNest,
  { memory }: Named,
  {
    width,
    indexType,
    isGroup = false,
  }: { readonly width: number; readonly indexType: "int" | "long"; readonly isGroup?: boolean },
  body: readonly Code[],
): Code {
  const output = outputOf(computation).name;
  const tensors = Object.values(computation.tensors).map(
    (t) => code`global ${t.name === output ? "" : "const "}${C_TYPES[t.dtype]}* restrict ${tensorName(t.name)}`,
  );
  const buffers = workspaceOf(nest).buffers.filter((b) => memory.has(b.name));
  const own = nest.scratch.filter((s) => s.scope === "local" && memory.has(s.name));
  const isGrouped = width > 1 && !isGroup;
  return code`${isGrouped ? code`__attribute__((intel_reqd_sub_group_size(${width})))\n` : ""}__attribute__((reqd_work_group_size(${width}, 1, 1)))
__kernel void ${name}(${list([code`global uint8_t* restrict ${WORKSPACE}`, ...tensors])}) {
  const ${indexType} part = get_group_id(0), parts = get_num_groups(0);
  ${width > 1 ? [code`const ${indexType} ${LANE} = ${isGroup ? code`get_local_id(0)` : code`get_sub_group_local_id()`};`] : []}
  ${buffers.map(({ name, dtype, offset }) => {
    const type = code`global ${C_TYPES[dtype]}*`;
    return code`${type} const ${tensorName(name)} = (${type})(${WORKSPACE} + ${offset});`;
  })}
  ${own.map((s) => code`${width > 1 ? "__local " : ""}${C_TYPES[s.dtype]} ${tensorName(s.name)}[${s.elements}];`)}
  ${body}
}
`;
}

/**
 * The text of a program: its kernels, behind the functions that they call.
 * @param prelude the text that an instruction requires
 */
export function openClProgram(
  computation: Computation,
  comments: readonly string[],
  kernels: readonly Code[],
  {
    generics,
    folds = {},
    prelude = [],
  }: { readonly generics: Generics; readonly folds?: Helpers; readonly prelude?: readonly Code[] },
): SourceText {
  const called = calledIn(kernels, folds);
  const text = code`${headOf(computation, comments)}
#pragma OPENCL FP_CONTRACT OFF
${openClHelpers([...kernels, ...called], [...generics.values()])}
${called}
${prelude}

${kernels}`;
  return spell(text, "opencl");
}

class OpenClWriter extends SubgroupWriter {
  private readonly generics: Generics;
  /** Whether lanes are the work-items of a work-group, rather than of a sub-group. */
  readonly isGroup: boolean;

  constructor(computation: Computation, nest: LoopNest, lanes: number, isGroup: boolean) {
    const generics: Generics = new Map();
    super(lanes, new CExpressions(computation, nest, openClWords(generics)));
    this.generics = generics;
    this.isGroup = isGroup;
  }

  protected override barriersOf(): Code[] {
    return [this.isGroup ? GROUP_BARRIER : OPENCL_BARRIER];
  }

  kernel(intrinsic: Intrinsic, notes: SourceNotes): Kernel {
    const { computation } = this.c;
    if (this.width > 1) checkLocalMemory(this.nest, intrinsic.features);
    const phases = phasesOf(this.nest.body);
    const functions = [this.kernelFunction(code`automap_prepare`, this.nest.prepare)];
    const issues = phases.map((phase, i): PrintedIssues => {
      functions.push(this.kernelFunction(code`automap_phase_${i}`, phase));
      return this.issueCount.printed();
    });
    const source = openClProgram(computation, [intrinsicLine(intrinsic), ...notes.lines], functions, {
      generics: this.generics,
      prelude: ownPrelude(intrinsic),
    });
    return {
      language: "opencl",
      source: withoutDoubles(source, intrinsic),
      features: intrinsic.features,
      promises: intrinsic.mnemonic,
      arguments: argumentsOf(computation),
      opencl: {
        workspaceBytes: workspaceOf(this.nest).bytes,
        lanes: this.width,
        steps: phases.map((phase) => dealtTo(phase, this.tasks)),
        ...(this.width > 1 && { issues }),
      },
    };
  }

  /** A work-group runs the nest of one thread. */
  private kernelFunction(name: Code, body: readonly Statement[]): Code {
    const named = namedIn(body, this.nest);
    const text = this.bodyOf(body);
    return openClFunction(name, this.c.computation, this.nest, named, this, [
      ...(namesIn(text).has(ONCE.id) ? [ONE_OF_A_LINE] : []),
      ...this.registersOf(named),
      ...text,
    ]);
  }

  protected override trips({ extent }: Loop): Code {
    return code`${extent} * ${ONCE}`;
  }

  move({ kind, register, memory }: Of<"load" | "store">, extents: Extents): Code[] {
    const { operand } = this.heldAt(register);
    const bytes = bytesOf(operand.dtype);
    const pointer = code`(${tensorName(memory.buffer)} + ${this.c.index(memory.base, extents)})`;
    const own = this.width > 1 ? "local" : "__private";
    const space = this.c.scratch.get(memory.buffer)?.scope === "local" ? own : "global";
    const isAligned = (elements: number): boolean => (elements * bytes) % BLOCK_READ_BYTES === 0;
    const isBlock = space === "global" && isAligned(divisorOf(memory.base, extents)) && isAligned(memory.stride);
    const words = { space: code`${space}`, by: code`${isBlock ? "block" : space}` };
    return [this.moved(kind, register, pointer, memory.stride, words)];
  }
}
