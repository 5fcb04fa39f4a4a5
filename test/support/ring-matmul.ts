/**
 * @file A matrix product on warps, written by hand: an example of a lowered GPU candidate for tests to alter.
 *
 *     const { computation, nest } = ringMatmul({ stages: 3 });
 *     ringMatmul({ stages: 3, without: "barrier" })                the same with one barrier too few
 *
 * Blocks of 32 x 16 results, two warps of 16 x 16, steps of 16 k through a ring of stages in shared memory, copied asynchronously.
 */

import type { Computation } from "../../abstraction/computation.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { indented, readNest } from "./nest-text.ts";
import { stated } from "./subjects.ts";

export interface RingMatmulOptions {
  readonly stages?: number;
  /** Steps of 16 along k. */
  readonly steps?: number;
  /** What is left out: the barrier or the wait at the head of a step, or the commit behind a copy. */
  readonly without?: "barrier" | "wait" | "commit";
  /** Groups that may be in flight at the head of a step; one more than is right reads too early. */
  readonly pending?: number;
  /** Stages that copies run ahead; `stages` overruns the ring. */
  readonly ahead?: number;
  /** Plain copies instead of asynchronous ones. */
  readonly transfer?: "plain" | "async";
}

export function ringMatmul(options: RingMatmulOptions = {}): { computation: Computation; nest: LoopNest } {
  const { stages = 3, steps = 4, without, transfer = "async" } = options;
  const { pending = stages - 2, ahead = stages - 1 } = options;
  const how = transfer === "async" ? "by 8, async, by block" : "by 8, by block";
  /** Copies of 16 k into a stage. */
  const copies = (stage: string, k: string, when = ""): string[] => [
    `copy m_in 32, k_in 16 ${how}${when}   a_ring[${stage},m_in,k_in] = x[32*m_tile+m_in,${k}]`,
    `copy k_in 16, n_in 16 ${how}${when}   b_ring[${stage},k_in,n_in] = y[${k},16*n_tile+n_in]`,
    ...(transfer === "async" && without !== "commit" ? ["commit"] : []),
  ];
  const step = [
    ...(transfer === "async" && without !== "wait" ? [`wait ${pending}`] : []),
    ...(without !== "barrier" ? ["barrier block"] : []),
    ...copies(`(k_tile+${ahead})%${stages}`, `16*(k_tile+${ahead})+k_in`, ` where k_tile+${ahead} < ${steps}`),
    `a{0} <- a_ring[k_tile%${stages},16*warp_m+x_m,x_k] over x_m, x_k by ldmatrix`,
    `b{0} and 1 more <- b_ring[k_tile%${stages},x_k,x_n] over x_k, x_n by ldmatrix.trans`,
    "for unrolled j in 0..2",
    "  c{j} <- mma.m16n8k16.f32.f16(a{0}, b{j})",
  ];
  const body = [
    "for unrolled j in 0..2",
    "  c{j} <- identity",
    ...Array.from({ length: ahead }, (_, s) => copies(String(s % stages), s === 0 ? "k_in" : `${16 * s}+k_in`)).flat(),
    `for k_tile in 0..${steps}`,
    ...indented(step),
    "for unrolled j in 0..2",
    "  for x_m, x_n of c{j}   out[32*m_tile+16*warp_m+x_m,16*n_tile+8*j+x_n] = sum[]",
  ];
  // Rows of 32 bytes: the pieces of 16 bytes swap by row, so that eight rows meet all banks.
  const nest = readNest(`
    shared a_ring: f16[stage ${stages}, m 32, k 16] at 512*stage + 16*m + 8*((k/8) ^ ((m/4)%2)) + k%8
    shared b_ring: f16[stage ${stages}, k 16, n 16] at 256*stage + 16*k + 8*((n/8) ^ ((k/4)%2)) + n%8
    registers c: 2 x mma.m16n8k16.f32.f16.c
    registers a: 1 x mma.m16n8k16.f32.f16.a
    registers b: 2 x mma.m16n8k16.f32.f16.b
    for at block m_tile in 0..2
      for at block n_tile in 0..2
        for at warp warp_m in 0..2
          ${body.join("\n          ")}`);
  const line = `out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i 64 --j 32 --l ${16 * steps} --dtype f16 --name matmul`;
  return { computation: stated(line), nest };
}
