/**
 * @file Divides the work of a thread among the sub-groups of a work-group, where the thread first copies inputs into its
 * own memory: all sub-groups copy together, then each takes blocks of sums.
 *
 *     for parallel b in 0..32768                   work-groups
 *       x_padded[27 x 128] <- x[b, ..]             together: every work-item copies
 *       for m in 0..6: clear c, ..., store c       dealt: steps 0..5
 *       clear c, ..., store c                      run: step 6, the edge of m
 */

import { namesOf } from "../../abstraction/collections.ts";
import type { Loop, LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { contains, isScalars, loadsSums, type Tasks, touchedIn } from "./subgroup-tasks.ts";

/** Part of a list of statements. */
interface Segment {
  /**
   * `together`: all work-items share it. `around`: a loop that all sub-groups walk, around segments of its own. `dealt`:
   * a loop whose steps are dealt to sub-groups. `run`: statements that one sub-group runs.
   */
  readonly kind: "together" | "around" | "dealt" | "run";
  readonly statements: readonly Statement[];
  /** Steps of sums in the list before it. */
  readonly first: number;
}

/** Most sub-groups of a work-group. */
const MOST_TEAMS = 8;

/** A thread's own memory into which nothing stores sums: copies of inputs. */
function copiesOf(nest: LoopNest, phase: readonly Statement[]): ReadonlySet<string> {
  const own = namesOf(nest.scratch.filter((s) => s.scope === "local"));
  const sums = resultsIn(phase);
  return new Set(own.filter((name) => !sums.has(name)));
}

/** The memory into which a phase stores sums. */
function resultsIn(phase: readonly Statement[]): ReadonlySet<string> {
  const stored = new Set<string>();
  for (const s of phase)
    contains(s, (t) => {
      if (t.kind === "store") stored.add(t.memory.buffer);
      return false;
    });
  return stored;
}

/** The segments of a list, and its steps of sums; undefined if sub-groups cannot share it. */
function segmentsIn(
  statements: readonly Statement[],
  copies: ReadonlySet<string>,
): { readonly segments: readonly Segment[]; readonly steps: number } | undefined {
  const writesCopy = (s: Statement): boolean => [...touchedIn([s]).writes].some((buffer) => copies.has(buffer));
  const sums = (s: Statement): boolean => contains(s, (t) => t.kind === "clear");
  const segments: Segment[] = [];
  let steps = 0;
  for (const s of statements) {
    const isPlain = s.kind === "scalar" || (s.kind === "loop" && isScalars(s));
    const last = segments.at(-1);
    if (isPlain && writesCopy(s)) segments.push({ kind: "together", statements: [s], first: steps });
    else if (writesCopy(s)) {
      const inside = s.kind === "loop" && s.mode === "serial" && segmentsIn(s.body, copies);
      // Sums that live longer than the copy belong to the sub-group that cleared them outside.
      if (!inside || (contains(s, (t) => t.kind === "register-issue") && !sums(s))) return undefined;
      segments.push({ kind: "around", statements: [s], first: steps });
      steps = Math.max(steps, inside.steps);
    } else if (s.kind === "loop" && s.mode === "serial" && s.range === undefined && sums(s)) {
      segments.push({ kind: "dealt", statements: [s], first: steps });
      steps += s.extent;
    } else if (last?.kind === "run") segments[segments.length - 1] = { ...last, statements: [...last.statements, s] };
    else {
      segments.push({ kind: "run", statements: [s], first: steps });
      steps++;
    }
  }
  return { segments, steps };
}

/** How the sub-groups of a work-group share a phase. */
export interface Teams {
  /** Sub-groups of a work-group. */
  readonly count: number;
  /** A thread's own memory into which it stores sums: each sub-group has its own. */
  readonly results: ReadonlySet<string>;
  /** The segments of the body of a task, or of a loop around segments. */
  readonly segmentsOf: (statements: readonly Statement[]) => readonly Segment[];
}

/** Undefined for a phase in which a work-group is one sub-group. */
export function teamsIn(
  phase: readonly Statement[],
  nest: LoopNest,
  tasks: (loop: Loop) => readonly Tasks[],
): Teams | undefined {
  // With several passes over partial sums, a sub-group must get the same blocks in each.
  if (nest.body.some((s) => loadsSums(s, nest))) return undefined;
  const copies = copiesOf(nest, phase);
  const bodies = phase.flatMap((s) => (s.kind === "loop" && s.mode === "parallel" ? tasks(s).map((t) => t.body) : []));
  const others = phase.filter((s) => s.kind !== "loop" || s.mode !== "parallel");
  const isCopy = (s: Statement): boolean =>
    s.kind === "loop" && isScalars(s) && [...touchedIn([s]).writes].every((buffer) => copies.has(buffer));
  const known = bodies.map((body) => segmentsIn(body, copies));
  const isShared = known.every((k) => k?.segments.some(({ kind }) => kind === "together" || kind === "around"));
  if (bodies.length === 0 || !others.every(isCopy) || !isShared) return undefined;
  const count = Math.min(MOST_TEAMS, ...known.map((k) => k?.steps ?? 1));
  const own = namesOf(nest.scratch.filter((s) => s.scope === "local" && !copies.has(s.name)));
  return count < 2
    ? undefined
    : { count, results: new Set(own), segmentsOf: (list) => segmentsIn(list, copies)?.segments ?? [] };
}
