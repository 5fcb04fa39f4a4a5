/**
 * @file Costs of multiply-adds and shifts that take several instructions: integers, and 16-bit lanes. The models of windows and of transformed
 * designs share them.
 */

import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";

/** VPMULLD is two operations on port 0, and an addition follows. Source: LLVM's scheduling model of Sapphire Rapids. */
const INTEGER_CYCLES = 1.5;
/** VPMULLW and VPADDW, each on either vector port. Source: LLVM's scheduling model of Sapphire Rapids. */
const WORD_CYCLES = 1;
/** A shift of words by an odd number: VALIGNQ and VPALIGNR, or two of the first. Source: the same. */
export const WORD_SHIFT = { issueCycles: 2, latencyCycles: 4 };
/** A sum of integers waits only for the addition. */
export const ADDITION_LATENCY = 1;

/** Cycles of a multiply-add on lanes of a type; undefined for those of one instruction. */
export function multiplyAddCycles(dtype: DType): number | undefined {
  if (!isInteger(dtype)) return undefined;
  return bytesOf(dtype) === 2 ? WORD_CYCLES : INTEGER_CYCLES;
}

/** Cycles of a shift of whole vectors on lanes of a type; undefined for those of one instruction. */
export function shiftCycles(dtype: DType): number | undefined {
  return bytesOf(dtype) === 2 ? WORD_SHIFT.issueCycles : undefined;
}

/** Cycles of a shuffle of a whole register. */
export const SHUFFLE_CYCLES = 1;
/**
 * Multiply-adds and shuffles of 512 bits share ports. With two multiply-adds a cycle and one shuffle, that of the shuffles is one of
 * the two; Zen 4 takes two cycles of one of three ports for either, two of which multiply and two of which shuffle.
 */
const PORTS = 3;

/** Cycles that operations take on the ports they share. @param issueCycles of a multiply-add */
export const portCycles = (multiplyAdds: number, shuffles: number, issueCycles: number): number =>
  ((multiplyAdds + shuffles) * (issueCycles + SHUFFLE_CYCLES)) / PORTS;
