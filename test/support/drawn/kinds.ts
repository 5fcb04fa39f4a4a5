/** @file The kinds of random lane candidates. */

import { type Random, seededRandom } from "../../../abstraction/random.ts";
import { ARRAY_KERNELS, ARRAYS, REGISTER_FORMS } from "./arrays.ts";
import type { DrawnKind } from "./drawn.ts";
import { RECURRENT } from "./recurrent.ts";
import { PLANE_STEPS, STEPS, WARP_STEP_KERNELS, WARP_STEPS } from "./steps.ts";
import { SUBGROUP_KERNELS, SWEEPS, WARP_KERNELS, WINDOWS } from "./windows.ts";
import { WORDS } from "./words.ts";

export const DRAWN_KINDS: readonly DrawnKind[] = [
  ARRAYS,
  REGISTER_FORMS,
  WINDOWS,
  SWEEPS,
  STEPS,
  WARP_STEPS,
  RECURRENT,
  WARP_KERNELS,
  WARP_STEP_KERNELS,
  SUBGROUP_KERNELS,
  PLANE_STEPS,
  WORDS,
  ARRAY_KERNELS,
];

/** The random numbers of a kind's candidates at a place, independent of earlier draws. */
export const randomAt = (kind: DrawnKind, seed: number, place: number): Random =>
  seededRandom((seed * 1_000_003 + place) * 31 + DRAWN_KINDS.indexOf(kind));
