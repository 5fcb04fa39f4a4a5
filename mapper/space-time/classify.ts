/**
 * @file How operands move through an array: the dataflow of a design, as three letters in the order x, w, z.
 *
 *     SBM   x stays, w is broadcast, z migrates
 *
 *     inputs    Broadcast  s.d = 0      Stay      P.d = 0      Forward  neither
 *     outputs   Aggregate  s.d = 0      Sediment  P.d = 0      Migrate  neither
 *
 * An operand that is one element along a plane has several directions of reuse and may move differently along each:
 * `sm` is an output that sediments along one direction and migrates along another. The design's name has the costliest
 * of these: M, then A, then S.
 */

import type { ArrayOperand } from "./problem.ts";

/** Directions of an operand's reuse that take no time, and that take no space. */
interface FlowRanks {
  readonly reuse: number;
  /** Independent directions with s.d = 0. */
  readonly broadcast: number;
  /** Independent directions with P.d = 0. */
  readonly stay: number;
}

export interface FlowClass {
  /** The whole class: `S`, `B`, `M`, or for several directions `bs`, `sm`. `N` is no reuse at all. */
  readonly code: string;
  /** The letter in the name. */
  readonly letter: string;
}

const LETTERS = {
  input: { broadcast: "B", stay: "S", move: "F" },
  output: { broadcast: "A", stay: "S", move: "M" },
} as const;

export function classify(role: ArrayOperand["role"], { reuse, broadcast, stay }: FlowRanks): FlowClass {
  const letters = LETTERS[role];
  const single = (letter: string): FlowClass => ({ code: letter, letter });
  if (reuse === 0) return single("N");
  if (stay === reuse) return single(letters.stay);
  if (broadcast === reuse) return single(letters.broadcast);
  if (reuse === 1) return single(letters.move);
  const parts: string[] = [];
  if (broadcast > 0) parts.push(letters.broadcast);
  if (stay > 0) parts.push(letters.stay);
  if (broadcast + stay < reuse) parts.push(letters.move);
  const letter = [letters.move, letters.broadcast, letters.stay].find((l) => parts.includes(l)) ?? letters.move;
  return { code: parts.join("").toLowerCase(), letter };
}

const WORDS: Readonly<Record<ArrayOperand["role"], Readonly<Record<string, string>>>> = {
  input: { B: "broadcast", S: "stays", F: "forwards", N: "loaded" },
  output: { A: "aggregates", S: "sediments", M: "migrates", N: "leaves" },
};

/** `stays`, `sediments and migrates` */
export function flowWords(role: ArrayOperand["role"], code: string): string {
  return [...code.toUpperCase()].map((letter) => WORDS[role][letter] ?? letter).join(" and ");
}
