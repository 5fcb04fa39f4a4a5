/**
 * @file The systolic arrays of a computation: all designs, those that fit in order of their time, and the kernel of one.
 *
 *     const { fitting, timed } = arraysOf(subject, { bound: 1, machine: laneTarget("avx512") })
 *     arrayKernel(subject, designNamed(subject, "SBM", fitting), "cuda", {}, ["a line for its reader"]).source
 */

import { namesOf, sortedBy } from "../abstraction/collections.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { suggestion, UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import type { SpaceTime } from "../abstraction/recurrence.ts";
import { generateLanes, type LaneLanguage } from "../codegen/lanes.ts";
import { type Design, designOf } from "../mapper/space-time/design.ts";
import { type DesignSet, enumerateDesigns, type ListedDesign } from "../mapper/space-time/enumerate.ts";
import { paretoSet } from "../mapper/space-time/pareto.ts";
import { polyphaseForm } from "../mapper/space-time/polyphase.ts";
import { pointsOfProblem, printReuse } from "../mapper/space-time/problem.ts";
import { type Trace, trace } from "../mapper/space-time/trace.ts";
import { refusalOf, type SpaceTimeRefusal } from "../mapper/space-time/validity.ts";
import { printMatrix } from "../mapper/space-time/vector.ts";
import { type DesignPrediction, predictDesign } from "../perfmodel/design.ts";
import { counted } from "../report/text.ts";
import { type ArraySubject, type ProgramOptions, viewOf } from "./kinds/array-subject.ts";

/** Points traced one by one for a drawing: this many take a second. */
export const MOST_DRAWN = 250_000;

/** Largest transform entry by number of loops. Beyond it there are too many designs to rank within seconds. */
const MOST_BOUND: Readonly<Record<number, number>> = { 2: 8, 3: 2, 4: 1 };

/** Designs and refusals listed by default. */
export const SHOWN = 20;

/** The machine that designs are ranked for, and the predicted time of a design there. */
export interface Timing {
  readonly machine: Target;
  readonly predict: (design: Design) => DesignPrediction;
}

interface ArrayOptions {
  /** Largest entry of a transform. */
  readonly bound: number;
  /** Dimensions of the array; the subject's own when left out. */
  readonly rows?: number | undefined;
  /** Number of coalesced registers available; unlimited when left out. */
  readonly registers?: number | undefined;
  readonly machine: Target;
}

/** All designs of a subject. */
interface Arrays {
  readonly set: DesignSet;
  /** Designs that fit the registers, by cycles a pass and then by latency. */
  readonly fitting: readonly ListedDesign[];
  readonly timed: Timing;
}

/** @throws UsageError for array dimensions that leave no time dimension, and for entries so large that not all designs can be listed */
export function arraysOf(subject: ArraySubject, options: ArrayOptions): Arrays {
  const set = enumerated(subject, options);
  const timed = timingOf(subject, options.machine);
  return {
    set,
    fitting: byTime(
      set.designs.filter((d) => fits(d, options.registers)),
      timed,
    ),
    timed,
  };
}

export function timingOf(subject: ArraySubject, machine: Target): Timing {
  const { problem, pass } = subject;
  const output = pass?.computation.tensors[problem.operands.at(-1)?.name ?? ""];
  const bytes = output ? bytesOf(output.dtype) : 4;
  return { machine, predict: (design) => predictDesign(design, viewOf(subject, design).problem, machine, bytes) };
}

/** Sorts by cycles a pass, then by the design's own length in time; otherwise keeps the order. */
export function byTime<D extends Design>(designs: readonly D[], { predict }: Timing): D[] {
  return designs
    .map((d) => ({ d, prediction: predict(d) }))
    .sort(
      (a, b) => a.prediction.cycles - b.prediction.cycles || a.prediction.latencyCycles - b.prediction.latencyCycles,
    )
    .map(({ d }) => d);
}

/** The polyphase form of a design, where there is one. */
export function polyphaseOf({ pass, problem }: ArraySubject, design: Design): Design | undefined {
  return pass && polyphaseForm({ ...pass, problem }, design)?.design;
}

function enumerated({ problem, arrayRows }: ArraySubject, { rows = arrayRows, bound }: ArrayOptions): DesignSet {
  const loops = problem.loops.length;
  const left = loops - rows;
  if (left < 1 || left > 2)
    throw new UsageError(
      `--array ${rows}: ${loops} loops leave ${left} for time; there must be one or two`,
      left < 1 ? "use --array 1" : "use --array 2, or name fewer loops with --loops",
    );
  const most = MOST_BOUND[loops] ?? 1;
  if (bound > most)
    throw new UsageError(
      `--bound ${bound} is too large for ${loops} loops: at most ${most} can be listed`,
      "a transform with larger entries can be judged by itself: --allocation ... --schedule ...",
    );
  return enumerateDesigns(problem, { bound, arrayRows: rows });
}

export const fits = (design: Design, registers: number | undefined): boolean =>
  registers === undefined || design.registers.coalesced <= registers;

/** One transform, validated: the design, or why it cannot be used. */
export function judgeArray(
  { problem }: ArraySubject,
  spaceTime: SpaceTime,
  registers: number | undefined,
): { readonly design: Design } | { readonly refusal: SpaceTimeRefusal } {
  const refusal = refusalOf(problem, spaceTime);
  if (refusal) return { refusal };
  const design = designOf(problem, spaceTime);
  return fits(design, registers) ? { design } : { refusal: registerRefusal(design, registers ?? 0) };
}

/** @param name `SBM`, `FFM.2`, `SBM.polyphase`. @throws UsageError when no design has that name */
export function designNamed(subject: ArraySubject, name: string, designs: readonly Design[]): Design {
  const [, plain = name, polyphase] = /^(.*?)(\.polyphase)?$/i.exec(name) ?? [];
  const found = designs.find((d) => d.name.toLowerCase() === plain.toLowerCase());
  if (found && polyphase === undefined) return found;
  const form = found && polyphaseOf(subject, found);
  if (form) return form;
  if (found)
    throw new UsageError(
      `${found.name} has no polyphase form`,
      "designs whose transform leaves places without a point, and whose summed loops can be split, have one",
    );
  const names = namesOf(designs);
  throw new UsageError(
    `no design "${name}"`,
    suggestion(
      name,
      names.filter((n) => !n.includes(".")),
    ),
  );
}

interface ChosenOptions {
  readonly all?: boolean | undefined;
  readonly top?: number | undefined;
  readonly pareto?: boolean | undefined;
}

/** The designs that a table lists. Of designs with the same dataflow only the best, unless more are requested. */
export function chosenArrays(designs: readonly ListedDesign[], { all, top, pareto }: ChosenOptions): ListedDesign[] {
  const seen = new Set<string>();
  const listed =
    all || pareto || top !== undefined
      ? designs
      : designs.filter((d) => !seen.has(d.flowClass) && seen.add(d.flowClass));
  const best = pareto ? paretoSet(listed) : [...listed];
  return best.slice(0, top ?? (all || pareto ? best.length : SHOWN));
}

/** Why no design fits: each needs too many registers, or no transform preserves the order of a recurrence. */
export function noneFits(
  subject: ArraySubject,
  { designs, count }: DesignSet,
  registers: number | undefined,
): SpaceTimeRefusal {
  const least = sortedBy(designs, (a) => a.registers.coalesced)[0];
  if (least) return registerRefusal(least, registers ?? 0);
  return {
    rule: "backwards",
    because: `none of ${count.candidates} transforms runs every dependence forwards in time (${printReuse(subject.problem)})`,
    vectors: [],
  };
}

function registerRefusal({ name, registers, flows }: Design, most: number): SpaceTimeRefusal {
  const depths = flows.map((f) => {
    const deepest = sortedBy(
      f.variables.flatMap((v) => v.dependences),
      (a) => -a.steps,
    )[0];
    return deepest
      ? `${f.name} travels (${deepest.distance.join(",")}) in ${counted(deepest.steps, "step")}`
      : `${f.name} takes one a PE`;
  });
  return {
    rule: "registers",
    because: `${name} needs ${registers.coalesced} registers coalesced, the target has ${most}: ${depths.join(", ")}`,
    vectors: flows.flatMap((f) => f.variables.flatMap((v) => v.dependences.map((d) => d.distance))),
  };
}

/** The contents of every PE at every step; undefined when there are more than {@link MOST_DRAWN} points to trace. */
export function tracedArray(subject: ArraySubject, design: Design): Trace | undefined {
  const { problem, accesses } = viewOf(subject, design);
  return pointsOfProblem(problem) > MOST_DRAWN ? undefined : trace(problem, design, accesses);
}

/**
 * The kernel of a design: the whole computation, with the array inside its loops.
 * @param remake the command that regenerates it
 * @throws UsageError for a system that is not a single sum of loaded values
 */
export function arrayKernel(
  subject: ArraySubject,
  design: Design,
  language: LaneLanguage,
  options: ProgramOptions,
  remake: string,
): Kernel {
  const { name, program } = subject;
  if (!program)
    throw new UsageError(
      `${name} is no single sum of what it loads: there is no kernel to emit for it yet`,
      "systems whose values are only passed on or summed can be emitted",
    );
  const { computation, nest } = program(design, options);
  const lines = [
    `${design.name} of ${name}, each pass ${design.pes} PEs, ${design.steps} steps; ${subject.loops}`,
    `allocation ${printMatrix(design.spaceTime.allocation)}, schedule ${printMatrix(design.spaceTime.schedule)}`,
    remake,
  ];
  return generateLanes(language, computation, nest, { lines });
}
