/**
 * @file What rows of products on lanes say alike in every language: their equations and the types in their names. The left factors are common to all
 * lanes, or each lane has its own.
 *
 *     multiplyAddOf("f32", "f32", true)      c[n] += a[] * b[n]
 *     dotOf("s32", false)                    c[n] += s32(a[n,k]) * s32(b[n,k])
 */

import type { DType } from "../abstraction/dtype.ts";

/** Whether lanes share a factor: with rows of both, the shared form stands first. */
export const BOTH = [true, false] as const;

/** The equation of one product in each lane. @param factors type of the factors, which are converted where the sums have another */
export function multiplyAddOf(sum: DType, factors: DType, shared: boolean): string {
  const converted = (factor: string): string => (factors === sum ? factor : `${sum}(${factor})`);
  return `c[n] += ${converted(shared ? "a[]" : "a[n]")} * ${converted("b[n]")}`;
}

/** The equation of several products in each lane. */
export const dotOf = (sum: DType, shared: boolean, combine = "+="): string =>
  `c[n] ${combine} ${sum}(a[${shared ? "k" : "n,k"}]) * ${sum}(b[${shared ? "k,n" : "n,k"}])`;

/** Both types of factors as names of rows say them: `u8s8`, or `s8` for two of one type. */
export const typesOf = (a: DType, b: DType): string => (a === b ? a : a + b);

/** The end of the name of a row whose lanes share a factor. */
export const suffix = (shared: boolean): string => (shared ? ".broadcast" : "");
