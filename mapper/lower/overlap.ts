/**
 * @file Overlaps the stores of one block of results with the products of the next. Tiles are multiplied by one unit; the vector unit, idle meanwhile,
 * turns spilled tiles into rows of results.
 *
 *     for q in 0..7                      compute 0; spill 0
 *       compute q                        for q in 0..6
 *       spill q                  ->        compute q+1                 long, few instructions
 *       rows q                             rows q                      short, many: they run beside it
 *                                          spill q+1
 *                                        rows 6
 *
 * Only the order changes: rows read the spilled block and the loop position of that block, and are done before the next
 * spill. The innermost loop around a block is split, and the statements after it are merged in; a loop divided among
 * threads stays whole.
 */

import { accessesIn, axis, type Expr, number, plus } from "../../abstraction/expression.ts";
import { loop, type Statement } from "../../abstraction/loop-nest.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";

/**
 * Overlaps stores in a nest where possible.
 * @param spilled the scratch buffers that blocks of results are spilled to
 * @param alone the name of the one-step loop around everything, if there is one thread; undefined if there are several
 */
export function overlapStores(
  body: readonly Statement[],
  spilled: ReadonlySet<string>,
  alone: string | undefined,
): readonly Statement[] {
  const leaves = body.flatMap(leavesOf);
  const loaded = new Set(leaves.flatMap((leaf) => (leaf.kind === "load" ? [leaf.memory.buffer] : [])));
  // Partial sums must be stored before they are loaded again.
  if (leaves.some((leaf) => leaf.kind === "scalar" && isRow(leaf, spilled) && loaded.has(leaf.equation.target.tensor)))
    return body;
  if (alone === undefined) return overlapAll(body, spilled);
  const inOrder = body.map(
    (s): Statement => (s.kind === "loop" && s.mode === "parallel" ? { ...s, mode: "serial" } : s),
  );
  return [loop(alone, 1, overlapAll(inOrder, spilled), "parallel")];
}

function overlapAll(body: readonly Statement[], spilled: ReadonlySet<string>): readonly Statement[] {
  const { statements, pending } = overlap(body, [], spilled);
  return [...statements, ...pending];
}

/** Statements, and the rows still to be stored after them. */
interface Overlapped {
  readonly statements: readonly Statement[];
  readonly pending: readonly Statement[];
}

function overlap(body: readonly Statement[], before: readonly Statement[], spilled: ReadonlySet<string>): Overlapped {
  const statements: Statement[] = [];
  let pending = before;
  for (const s of body) {
    switch (roleOf(s, spilled)) {
      case "compute":
        statements.push(s);
        break;
      case "spill":
        statements.push(...pending, s);
        pending = [];
        break;
      case "rows":
        pending = [...pending, s];
        break;
      case "blocks": {
        if (s.kind === "when") {
          // Conditional statements are not overlapped.
          statements.push(...pending, s);
          pending = [];
          break;
        }
        const inner = overlapLoop(s, pending, spilled);
        statements.push(...inner.statements);
        pending = inner.pending;
        break;
      }
    }
  }
  return { statements, pending };
}

/** Peels the innermost loop around whole blocks. */
function overlapLoop(s: Statement, before: readonly Statement[], spilled: ReadonlySet<string>): Overlapped {
  if (s.kind !== "loop") throw new Error(`internal: a ${s.kind} holds no blocks`);
  const at = (value: Expr, list: readonly Statement[]): Statement[] =>
    list.map((inner) => substituteAxis(inner, s.axis, value));
  if (s.mode === "serial" && s.extent === 1) return overlap(at(number(0), s.body), before, spilled);
  const innermost = s.body.every((inner) => roleOf(inner, spilled) !== "blocks");
  if (!innermost || s.mode !== "serial")
    return { statements: [...before, { ...s, body: overlapAll(s.body, spilled) }], pending: [] };
  const { pending } = overlap(s.body, [], spilled);
  const first = overlap(at(number(0), s.body), before, spilled);
  const steady = overlap(at(plus(axis(s.axis), 1), s.body), pending, spilled);
  return {
    statements: [...first.statements, loop(s.axis, s.extent - 1, steady.statements)],
    pending: at(number(s.extent - 1), pending),
  };
}

type Role = "compute" | "spill" | "rows" | "blocks";

function roleOf(s: Statement, spilled: ReadonlySet<string>): Role {
  const spills = leavesOf(s).some((leaf) => leaf.kind === "store" && spilled.has(leaf.memory.buffer));
  if (spills) return leavesOf(s).every((leaf) => leaf.kind === "store") ? "spill" : "blocks";
  return leavesOf(s).some((leaf) => isRow(leaf, spilled)) ? "rows" : "compute";
}

function isRow(leaf: Statement, spilled: ReadonlySet<string>): boolean {
  return leaf.kind === "scalar" && accessesIn(leaf.equation.value).some((a) => spilled.has(a.tensor));
}

function leavesOf(s: Statement): Statement[] {
  if (s.kind === "when") return [...s.body, ...s.otherwise].flatMap(leavesOf);
  return s.kind === "loop" ? s.body.flatMap(leavesOf) : [s];
}
