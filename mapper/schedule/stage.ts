/**
 * @file Decision `stage`: how many steps of the sum have room in shared memory at once.
 *
 *     stage 3        for step:   wait for stage step % 3;   copy step + 2 into stage (step + 2) % 3;   multiply stage step % 3
 *
 * All stages but one are on their way while one is multiplied. With one stage nothing overlaps.
 */

import { z } from "zod";
import type { GridDecision } from "./grid-context.ts";

/** A GEMM of 1024 cubed in tiles of 64 x 128 x 64 came to 1.05 of cuBLAS on an H100 with eight, written by hand. */
const MOST = 8;

export const stage: GridDecision<"stage"> = {
  name: "stage",
  summary: "Stages of the ring in shared memory: all but one are being copied while one is multiplied.",
  example: "3",
  schema: z.int().min(1).max(16),
  values: () => Array.from({ length: MOST }, (_, i) => i + 1),
  traits: ({ stage: stages }) => [`stages ${stages}`],
  print: String,
};
