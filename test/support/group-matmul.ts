/**
 * @file A matrix product by wgmma, written by hand: a ring filled by asynchronous copies, read by the instruction itself, and everything that
 * must stand between the two.
 *
 *     const { computation, nest } = groupMatmul({ stages: 3 });
 *     groupMatmul({ without: "fence memory" })                 the same with one fence too few
 *
 * Two warpgroups of 64 x 32 results, steps of 64 k, products of one step in flight while the next is fetched.
 */

import type { Computation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { indented, readNest } from "./nest-text.ts";
import { rowNamed, stated } from "./subjects.ts";

/** The synchronisation that can be left out. */
export const GUARDS = ["fence memory", "fence registers", "commit", "wait", "barrier", "arrival"] as const;

export interface GroupMatmulOptions {
  readonly stages?: number;
  readonly without?: (typeof GUARDS)[number];
  /** Steps whose products are in flight behind the wait of a step. */
  readonly inFlight?: number;
  /** Stages that copies run ahead. */
  readonly ahead?: number;
  /** `y` lies as [N][K]. */
  readonly turned?: boolean;
  /** The swizzle of b's rows by another row. */
  readonly crooked?: boolean;
}

const value = (i: number): number => ((i * 7919) % 7) - 3;

export const GROUP_INPUTS = {
  x: Float64Array.from({ length: 128 * 256 }, (_, i) => value(i)),
  y: Float64Array.from({ length: 256 * 32 }, (_, i) => value(i + 3)),
};

export function groupMatmul(options: GroupMatmulOptions = {}): {
  readonly computation: Computation;
  readonly nest: LoopNest;
  readonly intrinsic: Intrinsic;
} {
  const { stages = 3, without, inFlight = 1, turned = false, crooked = false } = options;
  const { ahead = stages - 1 - inFlight } = options;
  const unless = (guard: (typeof GUARDS)[number], line: string): string[] => (without === guard ? [] : [line]);
  /** Indices of b, along k and along n. */
  const ofB = (k: string, n: string): string => (turned ? `${n},${k}` : `${k},${n}`);
  const copies = (step: string, when = ""): string[] => [
    `copy r 128, t 64 by 8, async, by block${when}   a_ring[(${step})%${stages},r,t] = x[r,64*(${step})+t]`,
    `copy ${turned ? "s 32, t 64" : "t 64, s 32"} by 8, async, by block${when}   b_ring[(${step})%${stages},${ofB("t", "s")}] = y[${ofB(`64*(${step})+t`, "s")}]`,
    "commit",
  ];
  const step = [
    ...unless("arrival", `wait ${ahead - 1}`),
    ...unless("fence memory", "fence wgmma memory"),
    ...unless("barrier", "barrier block"),
    ...unless("fence registers", "fence wgmma registers"),
    "for unrolled part in 0..4",
    `  c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%${stages},64*g+u,16*part+w] over u, w, b_ring[step%${stages},${ofB("16*part+w", "v")}] over w, v)`,
    ...unless("commit", "commit wgmma"),
    ...unless("wait", `wait wgmma ${inFlight}`),
    ...copies(`step+${ahead}`, ` where step+${ahead} < 4`),
  ];
  const body = [
    "c{0} <- identity",
    ...Array.from({ length: ahead }, (_, s) => copies(String(s))).flat(),
    "for step in 0..4",
    ...indented(step),
    ...unless("wait", "wait wgmma 0"),
    "for u, v of c{0}   out[64*g+u,v] = sum[]",
  ];
  const rowsOfB = turned
    ? `n 32, k 64] at 2048*stage + 64*n + 8*((k/8) ^ (n${crooked ? "/2" : ""}%8)) + k%8`
    : "k 64, n 32] at 2048*stage + 32*k + 8*((n/8) ^ (k/2%4)) + n%8";
  const nest = readNest(`
    shared a_ring: f16[stage ${stages}, m 128, k 64] at 8192*stage + 64*m + 8*((k/8) ^ (m%8)) + k%8
    shared b_ring: f16[stage ${stages}, ${rowsOfB}
    registers c: 1 x wgmma.m64n32k16.f32.f16.c
    for at block block in 0..1
      for at warpgroup g in 0..2
        ${body.join("\n        ")}`);
  const line = `out[i,j] += f32(x[i,l]) * f32(y[${ofB("l", "j")}]) --i 128 --j 32 --l 256 --dtype f16 --name matmul`;
  return { computation: stated(line), nest, intrinsic: rowNamed("wgmma.m64n32k16.f32.f16") };
}
