/**
 * @file Every nest that lacks one barrier, wait or commit of another, and randomly altered nests.
 *
 *     withoutEach(nest)       [{ left: "barrier block", nest: ... }]
 *     scrambled(nest, random)     the same with a statement moved, left out or changed
 */

import type { Group, LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { printHead } from "../../abstraction/print-nest.ts";
import { pick, type Random, randomInteger } from "../../abstraction/random.ts";

/** Every nest that has one barrier, wait or commit less; or, of its waits and barriers of blocks, one weaker. */
export function withoutEach(
  nest: LoopNest,
  instead: "nothing" | "weaker" = "nothing",
): { left: string; nest: LoopNest }[] {
  return shorter(nest.body, instead === "nothing" ? () => [] : weaker).map(({ left, statements }) => ({
    left,
    nest: { ...nest, body: statements },
  }));
}

/** A wait for one group less, a barrier of the warp alone; undefined where there is nothing weaker. */
function weaker(s: Statement): readonly Statement[] | undefined {
  if (s.kind === "wait") return [{ ...s, pending: s.pending + 1 }];
  return s.kind === "barrier" && s.group === "block" ? [{ ...s, group: "warp" }] : undefined;
}

function shorter(
  statements: readonly Statement[],
  instead: (s: Statement) => readonly Statement[] | undefined,
): { left: string; statements: Statement[] }[] {
  return statements.flatMap((s, at) => {
    const around = (...inside: readonly Statement[]): Statement[] => [
      ...statements.slice(0, at),
      ...inside,
      ...statements.slice(at + 1),
    ];
    if (s.kind === "barrier" || s.kind === "wait" || s.kind === "commit") {
      const others = instead(s);
      return others ? [{ left: printHead(s), statements: around(...others) }] : [];
    }
    if (s.kind !== "loop") return [];
    return shorter(s.body, instead).map(({ left, statements: body }) => ({ left, statements: around({ ...s, body }) }));
  });
}

/** The nest with one statement of its warps left out, moved, or changed in how it waits, is dealt or copies. */
export function scrambled(nest: LoopNest, random: Random): LoopNest {
  const lists = (statements: readonly Statement[]): number =>
    statements.reduce((count, s) => count + (s.kind === "loop" ? lists(s.body) : 0), 1);
  // The lists of statements are numbered from outside in; those of the loops at block and warp hold one loop each.
  let chosen = randomInteger(random, 0, lists(nest.body) - 1);
  const change = (statements: readonly Statement[]): Statement[] => {
    if (chosen-- === 0) return changed(statements, random);
    return statements.map((s) => (s.kind === "loop" ? { ...s, body: change(s.body) } : s));
  };
  return { ...nest, body: change(nest.body) };
}

function changed(statements: readonly Statement[], random: Random): Statement[] {
  const list = [...statements];
  const at = randomInteger(random, 0, list.length - 1);
  const s = list[at];
  if (!s) return list;
  const way = pick(random, ["leave out", "move", "move", "alter", "alter"]);
  if (way === "alter") list[at] = altered(s, random);
  else list.splice(at, 1);
  if (way === "move") list.splice(randomInteger(random, 0, list.length), 0, s);
  return list;
}

function altered(s: Statement, random: Random): Statement {
  const group: Group = random() < 0.5 ? "block" : "warp";
  if (s.kind === "barrier") return { ...s, group };
  if (s.kind === "wait") return { ...s, pending: Math.max(0, s.pending + pick(random, [-1, 1])) };
  if (s.kind === "copy") return random() < 0.5 ? { ...s, group } : { ...s, transfer: pick(random, ["plain", "async"]) };
  if (s.kind === "loop" && s.mode === "serial") return { ...s, extent: s.extent + pick(random, [-1, 1]) };
  return s;
}
