/**
 * @file The input to the search for systolic arrays: one pass of a computation, or a system of recurrences.
 *
 *     conv1d, tiles of 16      z[c] += x[c+q]*w[q]      p 16 (a tile of 890), r 5; outside, in sequence: k 512, c 512
 */

import { defined, namesOf, sortedBy } from "../../abstraction/collections.ts";
import { type Computation, equationText } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { type Access, accessesIn, axesIn } from "../../abstraction/expression.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { printRecurrence, type Recurrence, type SpaceTime } from "../../abstraction/recurrence.ts";
import { type Specification, spaceTimeOf } from "../../abstraction/specification.ts";
import { sizesText } from "../../abstraction/text.ts";
import { type ArrayPass, arrayPass, recurrenceOf } from "../../mapper/space-time/derive.ts";
import type { Design } from "../../mapper/space-time/design.ts";
import { computationOf, problemOfFlows, problemOfRecurrence } from "../../mapper/space-time/from-recurrence.ts";
import { type LowerOptions, lowerComputation, lowerDesign } from "../../mapper/space-time/lower.ts";
import { splitPass, splitSpace } from "../../mapper/space-time/polyphase.ts";
import {
  type ArrayProblem,
  type ArraySpace,
  hasWindow,
  operandAccesses,
  printSpace,
} from "../../mapper/space-time/problem.ts";
import { arrange, lowerSpecification } from "../../mapper/space-time/specify.ts";

export interface ArraySubject {
  readonly name: string;
  /** What one pass computes. */
  readonly equation: string;
  /** `p 16 (a tile of 890), r 5; outside, in sequence: k 512, c 512` */
  readonly loops: string;
  readonly problem: ArrayProblem;
  /** Accesses of the operands, in operand order. */
  readonly accesses: readonly Access[];
  /** Dimensions of the array when the user gives none. */
  readonly arrayRows: number;
  readonly recurrence: (design: Design) => Recurrence;
  /** One pass as a computation. Undefined for a recurrence that states its own dependences. */
  readonly pass?: ArrayPass;
  /** The program of a design, for the whole computation where the outer loops can be lowered. Absent when no kernel can be emitted. */
  readonly program?: (design: Design, options: ProgramOptions) => Program;
  /** The space-time design that the specification itself gives. */
  readonly fixed?: SpaceTime;
}

export type ProgramOptions = Pick<LowerOptions, "coalesced" | "checkTime">;

export interface Program {
  readonly computation: Computation;
  readonly nest: LoopNest;
}

export interface ArrayLoops {
  /** Loops of the array, outermost first; chosen when left out. */
  readonly loops?: readonly string[] | undefined;
  /** Outputs of a tile; longer loops are tiled. */
  readonly lanes?: number | undefined;
}

/** The subject with its sums formed in the order in which they are written. */
export function inWrittenOrder(subject: ArraySubject): ArraySubject {
  const operands = subject.problem.operands.map((o) => (o.role === "output" ? { ...o, order: "fixed" as const } : o));
  return { ...subject, problem: { ...subject.problem, operands } };
}

/** @throws UsageError for computations without a uniform recurrence */
export function arrayOfComputation(computation: Computation, { loops, lanes }: ArrayLoops): ArraySubject {
  const pass = arrayPass(computation, defined({ loops, lanes }));
  const { inputs, output } = operandAccesses(pass.computation);
  const sums = pass.problem.operands.every((o) => o.order === "free");
  return {
    name: computation.name,
    equation: equationText(pass.computation),
    loops: printSpace(computation, pass.space),
    problem: pass.problem,
    accesses: [...inputs, output],
    // Windows run on a row of lanes. Other computations use all loops but one for the array, two at most.
    arrayRows: arrayRowsFor(pass.problem.loops.length, hasWindow(computation, pass.space)),
    recurrence: (design) => recurrenceOf(pass, design),
    pass,
    program: (design, how) => {
      if (sums) return { computation, nest: wholeNest(computation, pass.space, design, how) };
      const [outside] = pass.space.outside;
      if (outside)
        throw new UsageError(
          `${computation.name}: values depend on each other in the order written, so no loop can run around the array, and ${outside.name} does`,
          "--lanes as long as the longest loop, and --loops that name all, leave none outside",
        );
      return { computation, nest: lowerDesign(recurrenceOf(pass, design), design.spaceTime, how) };
    },
  };
}

/** Outer loops that index the result are divided among threads and enclose the loops of the sum. */
function wholeNest(computation: Computation, space: ArraySpace, design: Design, how: ProgramOptions): LoopNest {
  const indexing = new Set(axesIn(computation.equation.target));
  const tileOf = (outer: string): string => space.tiled.find((t) => t.outer === outer)?.name ?? outer;
  const isParallel = (name: string): boolean => indexing.has(tileOf(name));
  const outside = sortedBy(space.outside, (a) => -Number(isParallel(a.name)));
  const ordered = { ...space, outside };
  const split = design.split ? splitSpace(ordered, design.split) : ordered;
  const parallel = namesOf(outside).filter(isParallel);
  return lowerComputation(computation, split, design.spaceTime, { ...how, parallel });
}

/** The subject to draw a design with: the design's own loops when one of them was split. */
export function viewOf(
  subject: ArraySubject,
  design: Design,
): Pick<ArraySubject, "problem" | "accesses" | "recurrence"> {
  if (!design.split || !subject.pass) return subject;
  const split = splitPass(subject.pass, design.split);
  const { inputs, output } = operandAccesses(split.computation);
  return { problem: split.problem, accesses: [...inputs, output], recurrence: (d) => recurrenceOf(split, d) };
}

function arrayRowsFor(loops: number, window: boolean): number {
  return loops > 3 || (loops === 3 && !window) ? 2 : 1;
}

/** @throws UsageError for a recurrence with a single loop, and for time steps that cannot be taken */
export function arrayOfSpecification(specification: Specification, loops: readonly string[] | undefined): ArraySubject {
  const { recurrence } = specification;
  if (specification.steps.length > 0) return fixedArray(specification);
  const computation = computationOf(recurrence);
  if (computation) return arrayOfComputation(computation, { loops: loops ?? namesOf(recurrence.loops) });
  const problem = problemOfRecurrence(recurrence);
  if (problem.loops.length < 2)
    throw new UsageError(`${recurrence.name}: an array needs two loops, got ${namesOf(problem.loops).join(", ")}`);
  return {
    name: recurrence.name,
    equation: equationsOf(recurrence),
    loops: sizesText(problem.loops),
    problem,
    accesses: recurrence.definitions.map(({ target, value }, i) =>
      problem.operands[i]?.role === "input"
        ? (accessesIn(value).find((a) => !Object.hasOwn(recurrence.variables, a.tensor)) ?? target)
        : target,
    ),
    arrayRows: arrayRowsFor(problem.loops.length, false),
    recurrence: () => recurrence,
  };
}

/** A recurrence whose author states where each point runs: a single design. */
function fixedArray(specification: Specification): ArraySubject {
  const { recurrence } = specification;
  const { flows, transform } = arrange(specification);
  const { problem, accesses } = problemOfFlows(flows, transform.source);
  const computation = computationOf(recurrence);
  const outside = flows.loops.filter((l) => !transform.source.includes(l.name));
  return {
    name: recurrence.name,
    equation: computation ? equationText(computation) : equationsOf(recurrence),
    loops: sizesText(problem.loops) + (outside.length > 0 ? `; outside, in sequence: ${sizesText(outside)}` : ""),
    problem,
    accesses,
    arrayRows: problem.loops.length - 1,
    recurrence: () => recurrence,
    fixed: spaceTimeOf(transform),
    ...(computation
      ? { program: (_: Design, how: ProgramOptions) => ({ computation, nest: lowerSpecification(specification, how) }) }
      : {}),
  };
}

const equationsOf = (recurrence: Recurrence): string => printRecurrence(recurrence).split("\n").slice(1).join("; ");
