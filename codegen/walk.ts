/**
 * @file The walk over a loop nest that all languages share: unrolling, loop bounds known at print time, indentation.
 *
 *     for unrolled q_block in 0..2          ->     body with q_block = 0
 *       ...                                        body with q_block = 1
 *
 * A language supplies the syntax of loops, scalar statements, moves and issues. The names that statements refer to:
 *
 *     for unrolled i in 0..2: c{2*i} <- tdpbusd(a{0}, b{i})          registers a: 0   b: 0, 1   c: 0, 2
 */

import { type Extents, evaluateIndex } from "../abstraction/affine.ts";
import { ascending, hasName, upTo, volumeOf } from "../abstraction/collections.ts";
import { internal } from "../abstraction/error.ts";
import { type Access, accessesIn, axesIn, type Expr, number, testsElements } from "../abstraction/expression.ts";
import type { ArrivalAt, Loop, LoopNest, RegisterAt, Statement, TileAt } from "../abstraction/loop-nest.ts";
import { printHead } from "../abstraction/print-nest.ts";
import { rewriteStatement, substituteAxis } from "../abstraction/rewrite-statement.ts";
import { block, type Code, code, indented } from "../abstraction/source-text.ts";

export type { Loop };

/** The statements of a kind. */
export type Of<K extends Statement["kind"]> = Extract<Statement, { kind: K }>;

/** Statements whose lines a language prints under the name of their kind. */
type Leaf =
  | ("scalar" | "clear" | "fetch" | "drain" | "accumulate" | "copy" | "commit" | "wait" | "settle" | "fence")
  | ("send" | "await" | "arrive" | "barrier");
type Leaves = { readonly [K in Leaf]?: (statement: Of<K>, extents: Extents) => Code[] };

/**
 * The syntax of one language for the statements of a nest. Each method returns lines without indentation. A method is
 * omitted if the language's nests contain no such statement.
 */
export interface LanguagePrinter extends Leaves {
  openLoop(loop: Loop, extents: Extents): Code;
  /** The opening of a conditional's first body. */
  openWhen?(when: Of<"when">, extents: Extents): Code;
  /** Counts a body that has run. */
  count?(axis: string): Code;
  /** The statements of a loop over lanes. */
  lanes?(loop: Loop, extents: Extents): Code[];
  move?(statement: Of<"load" | "store">, extents: Extents): Code[];
  issue?(statement: Of<"register-issue">, extents: Extents): Code[];
  /** A line of the cache fetched for later, where the language has a word for it. */
  ahead?(tile: TileAt, extents: Extents): Code[];
  /** Lines before an outermost unrolled loop. */
  above?(loop: Loop): Code[];
  /** A replacement for a whole loop, if the language has something better. */
  row?(loop: Loop, extents: Extents): readonly Code[] | undefined;
}

/**
 * The lines of a list of statements.
 * @param extents extents of the enclosing loops, from which bounds of indices are derived
 * @param writtenOut whether the statements are a step of an unrolled loop
 */
export function printStatements(
  statements: readonly Statement[],
  language: LanguagePrinter,
  extents: Extents = {},
  writtenOut = false,
): Code[] {
  const bodyOf = (body: readonly Statement[]): Code[] => indented(printStatements(body, language, extents));
  return statements.flatMap((s): readonly Code[] => {
    switch (s.kind) {
      case "loop": {
        if (s.mode === "unrolled") {
          const steps = upTo(s.extent).map((i) => s.body.map((inner) => substituteAxis(inner, s.axis, number(i))));
          const lines = steps.flatMap((step) => printStatements(step, language, extents, true));
          return [...(writtenOut ? [] : (language.above?.(s) ?? [])), ...lines];
        }
        if (s.mode === "lanes") return language.lanes?.(s, extents) ?? strange(s);
        const within = { ...extents, [s.axis]: s.extent };
        const row = s.range === undefined ? language.row?.(s, within) : undefined;
        const ahead = (s.ahead ?? []).flatMap((tile) => language.ahead?.(tile, within) ?? []);
        return row ?? block(language.openLoop(s, within), [...ahead, ...printStatements(s.body, language, within)]);
      }
      case "when": {
        // A condition on issues is resolved at print time if its value is known. Other bodies need their own scope.
        const names = axesIn(s.condition);
        const known =
          names.every((name) => extents[name] === 1) && s.otherwise.length === 0 && !testsElements(s.condition);
        if (known && s.body.every((inner) => inner.kind === "register-issue")) {
          const holds = evaluateIndex(s.condition, Object.fromEntries(names.map((name) => [name, 0]))) !== 0;
          return holds ? printStatements(s.body, language, extents, writtenOut) : [];
        }
        // In the order of the text, in which issues are counted.
        const within = s.counted ? { ...extents, [s.counted.name]: s.counted.extent } : extents;
        const run = printStatements(s.body, language, within);
        const counted = s.counted ? [language.count?.(s.counted.name) ?? strange(s)] : [];
        const lines = [language.openWhen?.(s, extents) ?? strange(s), ...indented([...run, ...counted])];
        return [...lines, ...(s.otherwise.length > 0 ? [code`} else {`, ...bodyOf(s.otherwise)] : []), code`}`];
      }
      case "load":
      case "store":
        return language.move?.(s, extents) ?? strange(s);
      case "register-issue":
        return language.issue?.(s, extents) ?? strange(s);
      case "issue":
        return strange(s);
      case "barrier":
        return s.group === undefined ? strange(s) : leafOf(s, language, extents);
      default:
        return leafOf(s, language, extents);
    }
  });
}

function leafOf(statement: Of<Leaf>, language: LanguagePrinter, extents: Extents): Code[] {
  // The method of a kind takes statements of that kind.
  const print = language[statement.kind] as ((s: Statement, extents: Extents) => Code[]) | undefined;
  return print?.call(language, statement, extents) ?? strange(statement);
}

/**
 * @throws Error for a statement that this language does not have: unscheduled memory tiles, a barrier inside a phase,
 * warps on a CPU
 */
function strange(s: Statement): never {
  internal(`no words of this language for ${printHead(s)}`);
}

/** All steps of loops in one another. */
export const stepsOf = (loops: readonly Loop[]): number => volumeOf(loops);

export const extentsIn = (loops: readonly Loop[]): Extents => Object.fromEntries(loops.map((l) => [l.axis, l.extent]));

/** The phases of a nest: statements between top-level barriers. */
export function phasesOf(body: readonly Statement[]): Statement[][] {
  const phases: Statement[][] = [[]];
  for (const s of body) {
    if (s.kind === "barrier" && s.group === undefined) phases.push([]);
    else phases.at(-1)?.push(s);
  }
  return phases;
}

/** Phases in the order of calls. The phases of a loop with barriers are called repeatedly. */
export function roundsOf(
  body: readonly Statement[],
): { readonly phases: readonly Statement[][]; readonly times: number }[] {
  return phasesOf(body).map((phase) => {
    const [only] = phase;
    const isRound = phase.length === 1 && only?.kind === "loop" && only.body.some((s) => s.kind === "barrier");
    if (!isRound) return { phases: [phase], times: 1 };
    return { phases: phasesOf(only.body).filter((inner) => inner.length > 0), times: only.extent };
  });
}

// ---- names: memory passed to a kernel, and registers that it declares -----------------------------------------------------------

export interface Named {
  /** Tensors, buffers and arrivals. */
  readonly memory: ReadonlySet<string>;
  /** The numbers of the registers used of each file, in order. */
  readonly registers: ReadonlyMap<string, readonly number[]>;
}

export function namedIn(statements: readonly Statement[], { vectors = [] }: LoopNest): Named {
  const memory = new Set<string>();
  const registers = new Map<string, Set<number>>();
  /** @param at the counters of unrolled loops */
  const visit = (s: Statement, at: Extents): void => {
    const register = (r: RegisterAt): RegisterAt => {
      registers.set(r.file, (registers.get(r.file) ?? new Set()).add(evaluateIndex(r.index, at)));
      return r;
    };
    const element = (a: Access): Access => {
      const [index] = a.index;
      if (index && hasName(vectors, a.tensor)) register({ file: a.tensor, index });
      else memory.add(a.tensor);
      return a;
    };
    const value = (e: Expr): Expr => {
      accessesIn(e).forEach(element);
      return e;
    };
    const arrival = (a: ArrivalAt): ArrivalAt => {
      memory.add(a.name);
      return a;
    };
    const inner = stepsIn(s);
    if (s.kind === "when") value(s.condition);
    if (inner) {
      for (let i = 0; i < inner.steps; i++) for (const one of inner.body) visit(one, { ...at, [inner.axis]: i });
      return;
    }
    // The host describes an engine's tensors, so the kernel does not take them as parameters.
    const stored = s.kind === "copy" && s.transfer === "engine";
    const own = s.kind === "send" ? { ...s, copies: [] } : s;
    if (!stored) rewriteStatement(own, { index: value, value, element, register, arrival });
    const copies = s.kind === "send" ? s.copies : stored ? [s] : [];
    for (const { equation, view } of copies) {
      value(stored ? equation.value : equation.target);
      view?.at.forEach(value);
    }
    if (s.kind === "load" || s.kind === "store") memory.add(s.memory.buffer);
    if (s.kind === "drain") memory.delete(s.element);
    if (s.kind === "load" && s.made) memory.delete(s.made.element);
  };
  for (const s of statements) visit(s, {});
  const inOrder = [...registers].map(([file, numbers]) => [file, ascending(numbers)] as const);
  return { memory, registers: new Map(inOrder) };
}

/** The body of a statement, and the steps of the loop if it is unrolled. */
function stepsIn(s: Statement): { body: readonly Statement[]; axis: string; steps: number } | undefined {
  if (s.kind === "loop") return { body: s.body, axis: s.axis, steps: s.mode === "unrolled" ? s.extent : 1 };
  if (s.kind === "when") return { body: [...s.body, ...s.otherwise], axis: "", steps: 1 };
  if (s.kind !== "scalar" || !s.together) return undefined;
  const { together, ...one } = s;
  return { body: [one], axis: together.name, steps: together.extent };
}
