/**
 * @file The walk over a loop nest that every language shares: unrolling, loop bounds known while printing, indentation.
 *
 *     for unrolled q_block in 0..2          ->     body with q_block = 0
 *       ...                                        body with q_block = 1
 *
 * A language says how a loop, a scalar statement, a move and an issue read; the rest is here.
 */

import type { Extents } from "../abstraction/affine.ts";
import { number } from "../abstraction/expression.ts";
import type { Copy, Loop, Statement } from "../abstraction/loop-nest.ts";
import { substituteAxis } from "../abstraction/rewrite-statement.ts";
import { type Code, code, indented } from "../abstraction/source-text.ts";

export type { Loop };
export type When = Extract<Statement, { kind: "when" }>;
export type Scalar = Extract<Statement, { kind: "scalar" }>;
export type Move = Extract<Statement, { kind: "load" | "store" }>;
export type RegisterIssue = Extract<Statement, { kind: "register-issue" }>;
export type Clear = Extract<Statement, { kind: "clear" }>;
export type Fetch = Extract<Statement, { kind: "fetch" }>;
export type Drain = Extract<Statement, { kind: "drain" }>;
export type Commit = Extract<Statement, { kind: "commit" }>;
export type Send = Extract<Statement, { kind: "send" }>;
export type Await = Extract<Statement, { kind: "await" }>;
export type Fence = Extract<Statement, { kind: "fence" }>;
export type Wait = Extract<Statement, { kind: "wait" }>;
export type Barrier = Extract<Statement, { kind: "barrier" }>;

/** How one language writes the leaves of a nest. Each method returns lines without indentation. */
export interface LanguagePrinter {
  openLoop(loop: Loop, extents: Extents): Code;
  closeLoop(loop: Loop): Code;
  /** What opens the first body of a choice; missing where a language's nests have none. */
  openWhen?(when: When, extents: Extents): Code;
  scalar(statement: Scalar, extents: Extents): Code[];
  /** Statements of tiles; missing where a language's nests have lanes. */
  move?(statement: Move, extents: Extents): Code[];
  issue?(statement: RegisterIssue, extents: Extents): Code[];
  clear?(statement: Clear): Code[];
  /** The statements of a loop whose steps are lanes; missing where a language's nests have none. */
  lanes?(loop: Loop, extents: Extents): Code[];
  /** What the warps of a block run; missing where a language's nests have none. */
  warps?: WarpPrinter;
  /** Lines above a loop that is written out, unless it stands in one. */
  above?(loop: Loop): Code[];
  /** The statements that stand for a whole loop, where the language has better ones than its own loops. */
  row?(loop: Loop, extents: Extents): readonly Code[] | undefined;
}

/** Statements of warps that share memory. */
export interface WarpPrinter {
  fetch(statement: Fetch, extents: Extents): Code[];
  drain(statement: Drain, extents: Extents): Code[];
  copy(statement: Copy, extents: Extents): Code[];
  commit(statement: Commit): Code[];
  wait(statement: Wait): Code[];
  fence(statement: Fence): Code[];
  send(statement: Send, extents: Extents): Code[];
  await(statement: Await, extents: Extents): Code[];
  barrier(statement: Barrier): Code[];
}

/**
 * The lines of a list of statements.
 * @param extents extents of the loops around them: what bounds of an index are worked out from
 * @param writtenOut whether they are a step of a loop that is written out
 */
export function printStatements(
  statements: readonly Statement[],
  language: LanguagePrinter,
  extents: Extents = {},
  writtenOut = false,
): Code[] {
  return statements.flatMap((s): Code[] => {
    switch (s.kind) {
      case "loop": {
        if (s.mode === "unrolled") {
          const steps = Array.from({ length: s.extent }, (_, i) =>
            s.body.map((inner) => substituteAxis(inner, s.axis, number(i))),
          );
          const lines = steps.flatMap((step) => printStatements(step, language, extents, true));
          return [...(writtenOut ? [] : (language.above?.(s) ?? [])), ...lines];
        }
        if (s.mode === "lanes") {
          if (!language.lanes) throw new Error(`internal: lanes of ${s.axis} in a nest of instructions`);
          return language.lanes(s, extents);
        }
        const within = { ...extents, [s.axis]: s.extent };
        const row = s.range === undefined ? language.row?.(s, within) : undefined;
        if (row) return [...row];
        const inside = printStatements(s.body, language, within);
        return [language.openLoop(s, within), ...indented(inside), language.closeLoop(s)];
      }
      case "when": {
        if (!language.openWhen) throw new Error("internal: a choice between statements in a nest of lanes");
        const bodyOf = (body: readonly Statement[]): Code[] => indented(printStatements(body, language, extents));
        const otherwise = s.otherwise.length > 0 ? [code`} else {`, ...bodyOf(s.otherwise)] : [];
        return [language.openWhen(s, extents), ...bodyOf(s.body), ...otherwise, code`}`];
      }
      case "scalar":
        return language.scalar(s, extents);
      case "load":
      case "store":
        return language.move?.(s, extents) ?? strange(s);
      case "register-issue":
        return language.issue?.(s, extents) ?? strange(s);
      case "clear":
        return language.clear?.(s) ?? strange(s);
      case "issue":
        throw new Error(`internal: ${s.intrinsic.name} is issued on memory tiles; only scheduled nests are printed`);
      case "fetch":
        return warpsOf(s, language).fetch(s, extents);
      case "drain":
        return warpsOf(s, language).drain(s, extents);
      case "copy":
        return warpsOf(s, language).copy(s, extents);
      case "commit":
        return warpsOf(s, language).commit(s);
      case "wait":
        return warpsOf(s, language).wait(s);
      case "fence":
        return warpsOf(s, language).fence(s);
      case "send":
        return warpsOf(s, language).send(s, extents);
      case "await":
        return warpsOf(s, language).await(s, extents);
      case "barrier":
        if (s.group === undefined)
          throw new Error("internal: a barrier of the call stands between phases, not inside one");
        return warpsOf(s, language).barrier(s);
      default:
        return s satisfies never;
    }
  });
}

function strange({ kind }: Statement): never {
  throw new Error(`internal: a ${kind} of tiles in a nest of lanes`);
}

function warpsOf({ kind }: Statement, { warps }: LanguagePrinter): WarpPrinter {
  if (!warps) throw new Error(`internal: a ${kind} in a nest without blocks`);
  return warps;
}

/** The steps between barriers at the top of a nest. */
export function phasesOf(body: readonly Statement[]): Statement[][] {
  const phases: Statement[][] = [[]];
  for (const s of body) {
    if (s.kind === "barrier" && s.group === undefined) phases.push([]);
    else phases.at(-1)?.push(s);
  }
  return phases;
}
