/**
 * @file Distributes the loops of a nest among sub-groups, and among the lanes of one.
 *
 *     for parallel p in 0..56                          steps 0..448: p = step / 8, q_outer = step % 8
 *       for q_outer in 0..8: clear c, ..., store c
 *       for q_rest in 0..1: clear c, ..., store c      steps 0..56: p = step
 */

import { namesOf, sortedBy } from "../../abstraction/collections.ts";
import { accessesIn, axesIn } from "../../abstraction/expression.ts";
import type { Loop, LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { stepsOf } from "../walk.ts";

/** Loops whose steps are dealt out together, outermost first, and their body. */
export interface Tasks {
  readonly loops: readonly Loop[];
  readonly body: readonly Statement[];
}

/** The number of packing steps from which no further loop is dealt out. */
const ENOUGH_STEPS = 4096;

/**
 * The steps in which a parallel loop is dealt out.
 * @param nest if given, inner loops are also dealt out, where each of their steps begins and ends its own sums
 */
export function tasksOf(loop: Loop, nest?: LoopNest): Tasks[] {
  // With several passes over partial sums, a thread must get the same blocks in each, so only the outermost loop is
  // dealt out.
  const inner = nest && !nest.body.some((s) => loadsSums(s, nest));
  return inner ? dealtInside(loop, 1) : [{ loops: [loop], body: loop.body }];
}

/**
 * Other statements beside a loop, such as copies of an input, belong to it. So only loops of one kind are dealt out
 * separately.
 */
function dealtInside(loop: Loop, around: number): Tasks[] {
  const steps = around * loop.extent;
  const plain = loop.body.filter((s) => s.kind === "loop").filter((s) => s.mode === "serial" && s.range === undefined);
  const sums = plain.filter((s) => contains(s, (t) => t.kind === "clear"));
  const copies = plain.filter((s) => isScalars(s) && steps < ENOUGH_STEPS && s.body.some((t) => t.kind === "loop"));
  const inner = [sums, copies].find((s) => s.length === loop.body.length && s.length > 0);
  if (loop.inTurn || !inner) return [{ loops: [loop], body: loop.body }];
  return inner.flatMap((s) => dealtInside(s, steps)).map((t) => ({ ...t, loops: [loop, ...t.loops] }));
}

/** The largest number of steps in which a part of a phase is dealt out. */
export function dealtTo(phase: readonly Statement[], tasks: (loop: Loop) => readonly Tasks[]): number {
  const steps = phase.flatMap((s) =>
    s.kind === "loop" && s.mode === "parallel"
      ? tasks(s).map((t) => stepsOf(t.loops))
      : s.kind === "loop" || s.kind === "when"
        ? [dealtTo(s.body, tasks)]
        : [],
  );
  return Math.max(1, ...steps);
}

/** Whether a statement loads partial sums. */
export function loadsSums(s: Statement, { registers }: LoopNest): boolean {
  const sums = new Set(namesOf(registers.filter((r) => r.operand === r.intrinsic.operands[0]?.name)));
  return contains(s, (t) => t.kind === "load" && sums.has(t.register.file));
}

/** Whether a statement, or one inside it, has a property. */
export function contains(s: Statement, is: (s: Statement) => boolean): boolean {
  if (is(s)) return true;
  if (s.kind === "loop") return s.body.some((t) => contains(t, is));
  return s.kind === "when" && [...s.body, ...s.otherwise].some((t) => contains(t, is));
}

/** Whether a loop contains only serial loops and scalar statements. */
export function isScalars(loop: Loop): boolean {
  return (
    loop.mode === "serial" &&
    loop.range === undefined &&
    loop.body.every((s) => s.kind === "scalar" || (s.kind === "loop" && isScalars(s)))
  );
}

/**
 * The loop whose steps the lanes share. Of perfectly nested loops whose steps write different elements, this is the
 * innermost with at least one step for each lane, else the longest. Undefined if there is none, or the loops are not
 * perfectly nested.
 */
export function laneAxis(loop: Loop, lanes: number): string | undefined {
  const chain: Loop[] = [];
  for (let at: Loop | undefined = loop; at; ) {
    chain.push(at);
    const inner: Statement[] = at.body.filter((s) => s.kind === "loop");
    const [next] = inner;
    if (inner.length > 0 && (inner.length > 1 || at.body.length > 1)) return undefined;
    at = next?.kind === "loop" ? next : undefined;
  }
  const written = chain
    .at(-1)
    ?.body.flatMap((s) => (s.kind === "scalar" ? [s.equation.target.index.flatMap(axesIn)] : []));
  const apart = chain.filter((l) => written?.every((axes) => axes.includes(l.axis)));
  const longest = sortedBy(apart, (a) => -a.extent)[0];
  return (apart.findLast((l) => l.extent >= lanes) ?? longest)?.axis;
}

/** The memory that statements read and write. */
export function touchedIn(statements: readonly Statement[]): {
  readonly reads: ReadonlySet<string>;
  readonly writes: ReadonlySet<string>;
} {
  const reads = new Set<string>();
  const writes = new Set<string>();
  const visit = (s: Statement): void => {
    if (s.kind === "loop") s.body.forEach(visit);
    if (s.kind === "when") [...s.body, ...s.otherwise].forEach(visit);
    if (s.kind === "load") reads.add(s.memory.buffer);
    if (s.kind === "store") writes.add(s.memory.buffer);
    if (s.kind !== "scalar") return;
    writes.add(s.equation.target.tensor);
    for (const a of accessesIn(s.equation.value)) reads.add(a.tensor);
  };
  statements.forEach(visit);
  return { reads, writes };
}
