/**
 * @file One point of the search space: a mapping and the schedule it runs under. Plain data that survives JSON.
 *
 *     avx512.vpdpbusd   n <- k   k <- c   order p q_k n ...   block q 12, k 2   in padded, w tiled
 */

import type { Matching } from "./mapping.ts";

/**
 * How an input reaches the instruction.
 *
 * - `in-place`: loaded from the user's tensor where it lies; blocks at its border leave out what is outside
 * - `padded`: the tensor is copied once a call, re-laid so that the instruction's axes lie innermost, with a border of zeros
 * - `windowed`: copied once a call, with the fused loops of the instruction's axes laid out one by one and zeros behind them
 * - `tiled`: every tile is packed in the order the loops ask for it; ahead of time when the tensor is constant, else once a call
 */
export type Placement = "in-place" | "padded" | "windowed" | "tiled";

/** What a mapping leaves open. Dimensions are the outer loops by name, and each fed axis of the instruction by its loops joined, `p_q`. */
export interface Schedule {
  /** Loops around the instruction, outermost first: every dimension once; kept ones before summed ones. */
  readonly order: readonly string[];
  /** Steps of a dimension unrolled around the instruction: the register block. 1 when left out. */
  readonly block: Readonly<Record<string, number>>;
  readonly placement: Readonly<Record<string, Placement>>;
  /** Kept dimensions of fused loops that run over the gaps between the rows of a padded copy; none when left out. */
  readonly spread?: readonly string[] | undefined;
  readonly threads: number;
}

export interface Candidate {
  /** Name of the instruction. */
  readonly intrinsic: string;
  readonly matching: Matching;
  /** Instruction operand to tensor, as text: the binding the matching was found under. */
  readonly operands: Readonly<Record<string, string>>;
  readonly schedule: Schedule;
}

/** The canonical text of a candidate: its identity within a workload. */
export function candidateKey(candidate: Candidate): string {
  return canonicalJson(candidate);
}

/** JSON with the keys of every object in order, so that equal data has equal text. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, v: unknown) =>
    v !== null && typeof v === "object" && !Array.isArray(v)
      ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : v,
  );
}
