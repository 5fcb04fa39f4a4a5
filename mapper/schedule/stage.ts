/**
 * @file Decision `stage` (num_stages): the number of steps of the sum that shared memory holds at once.
 *
 *     stage 3        for step:   wait for stage step % 3;   copy step + 2 into stage (step + 2) % 3;   multiply stage step % 3
 *
 * While one stage is multiplied, all others are being filled. With one stage nothing overlaps.
 */

import { z } from "zod";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { isBand } from "../match/bands.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";

/**
 * The most stages. A hand-written GEMM of 1024 cubed in tiles of 64 x 128 x 64 reached 1.05 of cuBLAS on an H100 with
 * eight.
 */
const MOST = 8;

export const stage: GridDecision<"stage"> = {
  summary: "Stages of the pipeline in shared memory: while one is multiplied, the others are being copied.",
  example: "3",
  schema: z.int().min(1).max(16),
  values: () => Array.from({ length: MOST }, (_, i) => i + 1),
  suits: (context, { tile }, stages) => stageProblem(context, { tile, stage: stages }) === undefined,
  traits: ({ stage: stages }) => [`stages ${stages}`],
  problem: stageProblem,
};

/** Why stages would never be filled; undefined when they are. */
function stageProblem(
  { mapping, sum }: GridContext,
  { tile, stage: stages }: Pick<GridSchedule, "tile" | "stage">,
): string | undefined {
  const isWhole = isBand(mapping.computation.rewriting?.kind) && tile[sum.axis] === sum.elements;
  return isWhole && stages > 1 ? "a band of weights that is staged as a whole needs no second stage" : undefined;
}

/** Steps whose products may still run while another step is awaited. Their stages are not free yet. */
export function stepsInFlight({ intrinsic }: GridContext, { fragments: when }: GridSchedule): number {
  return intrinsic.asynchronous && when === "across" ? 1 : 0;
}
