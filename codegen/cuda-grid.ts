/**
 * @file Finds which loops of a nest become the blocks of a kernel and which the warps of a block, and whether one
 * thread has a separate role.
 *
 *     for at block m_tile in 0..32                 32 blocks
 *       for at warpgroup m_warpgroup in 0..2         threads 0 to 255
 *         ...
 *       for at thread load in 0..1                   thread 256, in an additional warp
 *         ...
 */

import { isGridMode, isTeamMode, type LoopMode, type Statement } from "../abstraction/loop-nest.ts";
import { type Loop, stepsOf } from "./walk.ts";

/** Splits a statement into loops over blocks, loops over warps inside them, and the body of each warp. */
export function gridOf(statement: Statement): {
  readonly blocks: readonly Loop[];
  /** Blocks in a cluster. */
  readonly cluster: number;
  readonly warps: readonly Loop[];
  /** Threads with a separate role. */
  readonly alone: number;
  readonly inner: readonly Statement[];
} {
  const { loops: blocks, body } = chainOf([statement], isGridMode);
  const cluster = stepsOf(blocks.filter((l) => l.mode === "cluster"));
  const threads = body.filter((s): s is Loop => s.kind === "loop" && s.mode === "thread");
  if (threads.length === 0) {
    const { loops: warps, body: inner } = chainOf(body, isTeamMode);
    return { blocks, cluster, warps, alone: 0, inner };
  }
  const teams = body.find((s): s is Loop => s.kind === "loop" && isTeamMode(s.mode));
  if (!teams || stepsOf(threads) > 1) throw new Error("internal: one thread has a role of its own, beside warps");
  return { blocks, cluster, warps: teamsOf(teams).loops, alone: 1, inner: body };
}

/** Perfectly nested loops of some modes, and the body of the innermost. */
function chainOf(
  body: readonly Statement[],
  isOne: (mode: LoopMode) => boolean,
): { readonly loops: readonly Loop[]; readonly body: readonly Statement[] } {
  const [only] = body;
  if (body.length !== 1 || only?.kind !== "loop" || !isOne(only.mode)) return { loops: [], body };
  const inner = chainOf(only.body, isOne);
  return { ...inner, loops: [only, ...inner.loops] };
}

/** Perfectly nested loops over the warps of a block, and the body of each warp. */
export const teamsOf = (loop: Loop): ReturnType<typeof chainOf> => chainOf([loop], isTeamMode);
