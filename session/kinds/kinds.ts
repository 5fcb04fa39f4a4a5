/**
 * @file The kinds of candidates as a session knows them, in the order in which a search looks for them. What is the same for a schedule of any
 * kind is in mapper/schedule/kinds.ts.
 *
 *     sessionKindOf(candidate).kernelOf(computation, candidate, machine, {}).source
 */

import type { Candidate, Kind } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import { DESIGN_KIND, RECURRENCE_KIND, WARP_DESIGN_KIND } from "./design-kinds.ts";
import { GRID_KIND, THREADS_KIND } from "./gpu-kinds.ts";
import { MAPPING } from "./mapping-kind.ts";
import { CHAIN_KIND, LOOP_KIND } from "./plain-loops.ts";
import { WARP_CHAIN_KIND, WARP_LOOP_KIND } from "./plain-threads.ts";
import type { InStream, SessionKind } from "./session-space.ts";
import { STEP_KIND, WARP_STEP_KIND, WARP_WINDOW_KIND, WINDOW_KIND } from "./window-kinds.ts";
import { WINOGRAD_KIND } from "./winograd-kind.ts";

export const SESSION_KINDS: { readonly [K in Kind]: SessionKind<Extract<Candidate, { kind: K }>> } = {
  mapping: MAPPING,
  winograd: WINOGRAD_KIND,
  grid: GRID_KIND,
  threads: THREADS_KIND,
  window: WINDOW_KIND,
  "warp-window": WARP_WINDOW_KIND,
  steps: STEP_KIND,
  "warp-steps": WARP_STEP_KIND,
  design: DESIGN_KIND,
  "warp-design": WARP_DESIGN_KIND,
  recurrence: RECURRENCE_KIND,
  loops: LOOP_KIND,
  "warp-loops": WARP_LOOP_KIND,
  chain: CHAIN_KIND,
  "warp-chain": WARP_CHAIN_KIND,
};

/** The kinds whose candidates may compute it on a machine. */
export const kindsFor = (computation: Computation, machine: Target): readonly SessionKind[] =>
  Object.values<SessionKind>(SESSION_KINDS).filter(
    ({ ofPrograms = false, isFor }) =>
      ofPrograms === (computation.program !== undefined) && isFor(computation, machine),
  );

/** The kernel that a network takes for a computation without a search. @throws UsageError why there is none */
export function usualKernel(computation: Computation, machine: Target, inStream: InStream = {}): Kernel {
  const kernel = kindsFor(computation, machine)
    .find(({ usual }) => usual)
    ?.usual?.(computation, machine, inStream);
  if (!kernel) throw new UsageError(`${computation.name} has no kernel for ${machine.name}`);
  return kernel;
}

/** What a session does with a candidate. */
export function sessionKindOf({ kind }: Candidate): SessionKind {
  return SESSION_KINDS[kind];
}
