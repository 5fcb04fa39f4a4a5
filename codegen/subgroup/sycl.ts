/**
 * @file Prints a loop nest as SYCL 2020: one self-contained source with the functions of abstraction/kernel.ts. Each
 * phase is an ND-range whose work-groups are one sub-group each, or several where they share a copy in local memory.
 *
 *     handler.parallel_for(sycl::nd_range<1>(448 * 8, 8), [=](sycl::nd_item<1> item) [[sycl::reqd_sub_group_size(8)]] {
 *       const int part = item.get_group(0), parts = item.get_group_range(0);
 *       const int lane = item.get_sub_group().get_local_linear_id();
 *       for (int step = part; step < 448; step += parts) {                  for parallel p in 0..56, q_outer in 0..8
 *         c0 = 0;                                                             c{0} <- identity
 *         c0 = sycl::fma(a0, b0, c0);                                         c{0} <- sycl.fma(a{0}, b{0})
 *
 * subgroup.ts decides which work-group and which lane does what.
 */

import type { Extents } from "../../abstraction/affine.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { C_TYPES, type Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import {
  apart,
  block,
  type Code,
  code,
  Name,
  type SourceText,
  spell,
  tensorName,
} from "../../abstraction/source-text.ts";
import { localBytesOf, subgroupOf } from "../../targets/features.ts";
import { CExpressions } from "../c-expressions.ts";
import { argumentsOf, headOf, intrinsicLine, ownPrelude, type SourceNotes, workspaceOf } from "../cpp/cpp-frame.ts";
import { calledIn, type Helpers } from "../cpp/cpp-helpers.ts";
import { type Named, namedIn, type Of, roundsOf } from "../walk.ts";
import { checkLocalMemory, LANE, MEMBER, SubgroupWriter, TEAM, withoutDoubles } from "./subgroup.ts";
import { dealtTo } from "./subgroup-tasks.ts";
import type { Teams } from "./subgroup-teams.ts";
import { SYCL_HELPERS, SYCL_WORDS } from "./sycl-helpers.ts";

/** The kernel of a scheduled nest. */
export function generateSycl(
  computation: Computation,
  intrinsic: Intrinsic,
  nest: LoopNest,
  notes: SourceNotes,
): Kernel {
  return new SyclWriter(computation, nest, intrinsic).kernel(intrinsic, notes);
}

export const SYCL_BARRIER = code`sycl::group_barrier(item.get_sub_group());`;
const WORKSPACE = new Name("local", "workspace");

class SyclWriter extends SubgroupWriter {
  protected override readonly groupBarrier = code`sycl::group_barrier(item.get_group());`;

  protected override readonly localBytes: number;

  constructor(computation: Computation, nest: LoopNest, intrinsic: Intrinsic) {
    super(subgroupOf(intrinsic), new CExpressions(computation, nest, SYCL_WORDS));
    this.localBytes = localBytesOf(intrinsic.features) ?? Number.POSITIVE_INFINITY;
  }

  protected override barriersOf(): Code[] {
    return [SYCL_BARRIER];
  }

  kernel(intrinsic: Intrinsic, notes: SourceNotes): Kernel {
    const { computation } = this.c;
    checkLocalMemory(this.nest, intrinsic.features);
    const comments = [intrinsicLine(intrinsic), ...notes.lines];
    const phase = (name: Code, body: readonly Statement[]): Code => this.submission(name, body);
    const source = syclProgram(computation, this.nest, comments, phase, { prelude: ownPrelude(intrinsic) });
    return {
      language: "sycl",
      source: withoutDoubles(source, intrinsic),
      features: intrinsic.features,
      promises: intrinsic.mnemonic,
      arguments: argumentsOf(computation),
      sycl: { lanes: this.width },
    };
  }

  private submission(name: Code, body: readonly Statement[]): Code {
    const named = namedIn(body, this.nest);
    const text = this.bodyOf(body);
    const groups = dealtTo(body, this.tasks);
    const { width, indexType, teams } = this;
    return syclPhase(name, this.c.computation, this.nest, named, { groups, width, indexType, teams }, [
      ...this.registersOf(named),
      ...text,
    ]);
  }

  move({ kind, register, memory }: Of<"load" | "store">, extents: Extents): Code[] {
    const isLocal = this.c.scratch.get(memory.buffer)?.scope === "local";
    const buffer = tensorName(memory.buffer);
    const base = this.c.index(memory.base, extents);
    const pointer =
      isLocal && !this.teams?.results.has(memory.buffer)
        ? code`${buffer}.get_multi_ptr<sycl::access::decorated::no>() + ${base}`
        : code`${buffer} + ${base}`;
    const words = { space: code`${isLocal ? "local" : "global"}`, lane: code`${LANE}` };
    return [this.moved(kind, register, pointer, memory.stride, words)];
  }
}

/**
 * The text of a program: functions that submit the phases, behind the functions that they call, and the functions of
 * abstraction/kernel.ts, which submit the phases one after another.
 * @param phase the function of that name for a phase, as by {@link syclPhase}
 * @param prelude the text that an instruction requires
 */
export function syclProgram(
  computation: Computation,
  nest: LoopNest,
  comments: readonly string[],
  phase: (name: Code, body: readonly Statement[]) => Code,
  { folds = {}, prelude = [] }: { readonly folds?: Helpers; readonly prelude?: readonly Code[] },
): SourceText {
  const prepare = nest.prepare.length > 0 ? [phase(code`prepare`, nest.prepare)] : [];
  const phases: Code[] = [];
  let number = 0;
  const calls = roundsOf(nest.body).flatMap((round) => {
    const own = round.phases.flatMap((body) => {
      const name = code`phase_${number++}`;
      if (body.length === 0) return [];
      phases.push(phase(name, body));
      return [syclCall(name)];
    });
    return round.times === 1 ? own : block(code`for (int round = 0; round < ${round.times}; round++) {`, own);
  });
  const functions = [...prepare, ...phases];
  const text = code`${headOf(computation, comments)}
#include <sycl/sycl.hpp>
#include <stdint.h>
#include <limits>
#if defined(__clang__)
#pragma clang fp contract(off)
#endif
${calledIn(functions, SYCL_HELPERS)}
${calledIn(functions, folds)}
${prelude}

${functions}
${syclInterface(nest, calls, prepare.length > 0)}`;
  return spell(text, "sycl");
}

/** The pointers of a phase to device memory. */
function pointersIn(computation: Computation, nest: LoopNest, memory: ReadonlySet<string>): Code[] {
  const output = outputOf(computation).name;
  return [
    ...workspaceOf(nest)
      .buffers.filter((b) => memory.has(b.name))
      .map(({ name, dtype, offset }) => {
        const type = code`${C_TYPES[dtype]}*`;
        return code`${type} const ${tensorName(name)} = (${type})((unsigned char*)${WORKSPACE} + ${offset});`;
      }),
    ...Object.values(computation.tensors).flatMap((t, i) => {
      if (!memory.has(t.name)) return [];
      const type = code`${t.name === output ? "" : "const "}${C_TYPES[t.dtype]}*`;
      return [code`${type} const ${tensorName(t.name)} = (${type})tensors[${i}];`];
    }),
  ];
}

/** The sums that all sub-groups of a work-group store. */
const ofTeams = (name: string): Name => tensorName(name).with("_of_teams");

/** A thread's memory in the nest is local memory of its work-group; where sub-groups share the work, each has its own sums. */
function localMemoryIn(nest: LoopNest, memory: ReadonlySet<string>, teams?: Teams): Code[] {
  return nest.scratch
    .filter((s) => s.scope === "local" && memory.has(s.name))
    .map(({ name, dtype, elements }) => {
      const [all, count] = teams?.results.has(name)
        ? [ofTeams(name), elements * teams.count]
        : [tensorName(name), elements];
      return code`sycl::local_accessor<${C_TYPES[dtype]}, 1> ${all}(${count}, handler);`;
    });
}

/** How a phase is dealt to work-groups. */
interface Dealt {
  readonly groups: number;
  /** Lanes of a sub-group. */
  readonly width: number;
  readonly indexType: "int" | "long";
  /** The sub-groups of a work-group, if there are several. */
  readonly teams?: Teams | undefined;
}

/** A function that submits an ND-range to an in-order queue. */
export function syclPhase(
  name: Code,
  computation: Computation,
  nest: LoopNest,
  { memory }: Named,
  { groups, width, indexType, teams }: Dealt,
  body: readonly Code[],
): Code {
  const items = width * (teams?.count ?? 1);
  const own = nest.scratch.filter((s) => memory.has(s.name) && teams?.results.has(s.name));
  const within = [
    code`const ${indexType} part = item.get_group(0), parts = item.get_group_range(0);`,
    code`const ${indexType} ${LANE} = item.get_sub_group().get_local_linear_id();`,
    ...(teams
      ? [
          code`const ${indexType} ${MEMBER} = item.get_local_id(0);`,
          code`const ${indexType} ${TEAM} = item.get_sub_group().get_group_linear_id();`,
        ]
      : []),
    ...own.map((s) => {
      const all = code`${ofTeams(s.name)}.get_multi_ptr<sycl::access::decorated::no>()`;
      return code`const auto ${tensorName(s.name)} = ${all} + ${TEAM} * ${s.elements};`;
    }),
    ...body,
  ];
  return code`static sycl::event ${name}(sycl::queue& queue, void* ${WORKSPACE}, const void* const* tensors) {
  (void)${WORKSPACE}, (void)tensors;
  ${pointersIn(computation, nest, memory)}
  return queue.submit([&](sycl::handler& handler) {
    ${localMemoryIn(nest, memory, teams)}
    handler.parallel_for(sycl::nd_range<1>(${groups * items}, ${items}), [=](sycl::nd_item<1> item) [[sycl::reqd_sub_group_size(${width})]] {
      ${within}
    });
  });
}
`;
}

/** The call of a phase, after the previous submission. */
const syclCall = (name: Code): Code => code`last = ${name}(queue, ${WORKSPACE}, tensors);`;

/** SYCL 2020, sections 4.6.5 (is_in_order) and 4.13.2 (errc). */
const ORDERED = code`/* Phases, and calls that share a workspace, must run one after another, as they do in an in-order queue. */
static void require_order(const sycl::queue& queue) {
  if (!queue.is_in_order())
    throw sycl::exception(sycl::make_error_code(sycl::errc::invalid), "automap: make the queue with sycl::property::queue::in_order");
}`;

/** The functions of abstraction/kernel.ts, which submit the phases one after another. */
const syclInterface = (nest: LoopNest, calls: readonly Code[], prepares: boolean): Code => code`${apart(ORDERED)}

extern "C" unsigned long automap_workspace_bytes(void) { return ${workspaceOf(nest).bytes}; }

extern "C" sycl::event automap_prepare(sycl::queue& queue, void* ${WORKSPACE}, const void* const* tensors) {
  (void)tensors;
  require_order(queue);
  sycl::event last = queue.memset(${WORKSPACE}, 0, automap_workspace_bytes());
  ${prepares ? [syclCall(code`prepare`)] : []}
  return last;
}

extern "C" sycl::event automap_launch(sycl::queue& queue, void* ${WORKSPACE}, void* const* tensors) {
  require_order(queue);
  sycl::event last;
  ${calls}
  return last;
}
`;
