/**
 * @file Lanes as the work-items of a sub-group, in SYCL 2020 and OpenCL C: a register is a variable of each item, a
 * shift is a shuffle of the sub-group, and outermost parallel loops are distributed to work-groups of one sub-group
 * each.
 *
 *     Z0 = sycl::fma(x[28 * b + lane], w[q], sycl::shift_group_right(item.get_sub_group(), Z0, 1));          SYCL
 *     Z0 = fma(x[28 * b + lane], w[q], sub_group_shuffle_up(Z0, 1));                                         OpenCL C
 */

import type { Computation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { C_TYPES, type Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { axisName, block, type Code, code, list } from "../../abstraction/source-text.ts";
import { type SourceNotes, workspaceOf } from "../cpp/cpp-frame.ts";
import type { Helpers } from "../cpp/cpp-helpers.ts";
import { dealtIndices, dealtLoops, type FoldName, laneLoops } from "../lane-printer.ts";
import { type Named, namedIn, printStatements, roundsOf, stepsOf } from "../walk.ts";
import { ThreadExpressions, type WarpExpressions } from "../warp-expressions.ts";
import { foldFunctions, WarpLanes } from "../warp-lanes.ts";
import { OPENCL_BARRIER, openClFunction, openClProgram } from "./opencl.ts";
import { type Generics, openClWords } from "./opencl-helpers.ts";
import { checkLocalMemory, LANE, STEP } from "./subgroup.ts";
import { SYCL_BARRIER, syclPhase, syclProgram } from "./sycl.ts";
import { SYCL_WORDS } from "./sycl-helpers.ts";

/** Sub-group sizes that both of Intel's devices have. */
const SIZES = [16, 32] as const;
const DEVICES = ["xe_hpg", "xe_hpc"] as const;

/** The parts of a kernel that the language determines. */
type Source = Pick<Kernel, "source" | "opencl" | "sycl">;

interface Given {
  readonly computation: Computation;
  readonly nest: LoopNest;
  readonly notes: SourceNotes;
  readonly comments: readonly string[];
}

// ---- SYCL -------------------------------------------------------------------------------------------------------------------------------

/** @throws UsageError for more lanes than a sub-group has */
export function syclLanes({ computation, nest, notes, comments }: Given): Source {
  const width = threadsFor(nest, "SYCL");
  const phase = (name: Code, body: readonly Statement[]): Code => {
    const own = { ...nest, prepare: [], body };
    const c = new ThreadExpressions(computation, own, width, undefined, SYCL_WORDS);
    const printer = new SyclLanes(c, SYCL_BARRIER);
    const { groups, named, text } = workOf(printer, nest, body);
    return syclPhase(name, computation, nest, named, { groups, width, indexType: c.indexType }, text);
  };
  const folds = foldsOf(width, code`sycl::permute_group_by_xor(lanes, v, distance)`, [code`sycl::sub_group lanes`]);
  const source = syclProgram(computation, nest, [...comments, ...notes.lines], phase, { folds });
  return { source, sycl: { lanes: width } };
}

// ---- OpenCL C ---------------------------------------------------------------------------------------------------------------------------

/**
 * @throws UsageError for more lanes than a sub-group has, and for repeated phases, which the host program of an OpenCL
 * kernel does not support
 */
export function openClLanes({ computation, nest, notes, comments }: Given): Source {
  const threads = threadsFor(nest, "OpenCL C");
  const rounds = roundsOf(nest.body);
  if (rounds.some(({ times }) => times > 1))
    throw new UsageError(
      `${computation.name}: its phases run again and again, and the host of a kernel in OpenCL C runs each once`,
    );
  const generics: Generics = new Map();
  const made = (name: Code, body: readonly Statement[]): { readonly groups: number; readonly text: Code } => {
    const own = { ...nest, prepare: [], body };
    const c = new ThreadExpressions(computation, own, threads, undefined, openClWords(generics));
    const printer = new SubgroupLanes(c, OPENCL_BARRIER);
    const { groups, named, text } = workOf(printer, nest, body);
    return {
      groups,
      text: openClFunction(name, computation, nest, named, { width: threads, indexType: c.indexType }, text),
    };
  };
  const prepare = made(code`automap_prepare`, nest.prepare);
  const phases = rounds.flatMap((round) => round.phases).map((phase, i) => made(code`automap_phase_${i}`, phase));
  const functions = [prepare.text, ...phases.map((p) => p.text)];
  const folds = foldsOf(threads, code`sub_group_shuffle_xor(v, distance)`);
  const source = openClProgram(computation, [...comments, ...notes.lines], functions, { generics, folds });
  const opencl = { workspaceBytes: workspaceOf(nest).bytes, lanes: threads, steps: phases.map((p) => p.groups) };
  return { source, opencl };
}

// ---- both -------------------------------------------------------------------------------------------------------------------------------

class SubgroupLanes extends WarpLanes {
  protected override readonly thread = code`${LANE}`;
  protected override readonly laneFence: Code;

  constructor(c: WarpExpressions, fence: Code) {
    super(c);
    this.laneFence = fence;
  }

  protected override foldOfLanes(fold: FoldName, dtype: DType, own: Code): Code {
    return code`@${fold}_of_lanes_${C_TYPES[dtype]}(${list([...this.foldedAmong, own])})`;
  }

  /** Further arguments of a fold. */
  protected readonly foldedAmong: readonly Code[] = [];
}

class SyclLanes extends SubgroupLanes {
  protected override readonly foldedAmong = [code`item.get_sub_group()`];
}

/** The types that lanes fold. */
const FOLDED = (["f32", "f64", "s32"] as const).map((dtype) => ({
  suffix: `_${C_TYPES[dtype]}`,
  type: code`${C_TYPES[dtype]}`,
  overflows: dtype === "s32",
}));

/** The fold functions. @param among parameters before the value */
function foldsOf(threads: number, exchange: Code, among: readonly Code[] = []): Helpers {
  const head = (name: Code, type: Code): Code =>
    code`static inline ${type} ${name}(${list([...among, code`${type} v`])})`;
  return foldFunctions(threads, { types: FOLDED, head, exchange });
}

/** The work of each sub-group in a phase: its share of the parallel loops around everything. */
function workOf(
  printer: SubgroupLanes,
  nest: LoopNest,
  body: readonly Statement[],
): { readonly groups: number; readonly named: Named; readonly text: readonly Code[] } {
  const { dealt, inner, extents } = dealtLoops(body);
  const named = namedIn(inner, nest);
  const groups = stepsOf(dealt);
  const axes = [...new Set(laneLoops(body).map((l) => l.axis))];
  const text = printStatements(inner, printer, extents);
  const { indexType } = printer.c;
  return {
    groups,
    named,
    text:
      body.length === 0
        ? []
        : block(code`for (${indexType} ${STEP} = part; ${STEP} < ${groups}; ${STEP} += parts) {`, [
            ...dealtIndices(dealt, code`${STEP}`, indexType).map((d) => d.line),
            ...axes.map((axis) => code`const ${indexType} ${axisName(axis)} = ${LANE};`),
            ...printer.declarations(named),
            ...text,
          ]),
  };
}

/**
 * The smallest sub-group with enough lanes. @throws UsageError if there is none, or if local memory does not suffice
 */
function threadsFor(nest: LoopNest, language: "SYCL" | "OpenCL C"): number {
  checkLocalMemory(nest, DEVICES);
  const loops = laneLoops([...nest.prepare, ...nest.body]).map((l) => l.extent);
  const most = Math.max(...(nest.vectors ?? []).map((v) => v.lanes), ...loops);
  const size = SIZES.find((s) => s >= most);
  if (size !== undefined) return size;
  throw new UsageError(
    `${most} lanes: a sub-group of ${language} has at most ${SIZES.at(-1)} on the devices known here`,
    "give the design fewer lanes, for example --lanes 32",
  );
}
