/**
 * @file The space of a search together with the lessons of similar records, cached so that later searches of the same computation in this process
 * reuse it.
 *
 *     const kept = new Preparations(8);
 *     await tuneComputation({ computation }, { trials: 4, ... }, kept);
 *     await tuneComputation({ computation }, { trials: 40, ... }, kept);        enumerates nothing, draws no inputs
 */

import { type Computation, computationKey } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Conditions, Database, Environment } from "../../db/index.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import type { Correction } from "../../perfmodel/correct.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { isGpu } from "../../targets/index.ts";
import { nearTrials, priorOf, seededBy, transferredOnGpu, transferredTo } from "../tune/transfer.ts";
import type { Bench } from "../tune/workplace.ts";
import type { SessionSpace } from "./session-space.ts";

/** What records of similar computations teach a search. */
export interface Learnt {
  /** The correction before any trial; none on a GPU. */
  readonly prior?: Correction;
  /** Ids of the records whose schedules are tried first. */
  readonly transferred: readonly string[];
}

/** A space as enumerated. */
export interface Found {
  readonly space: SessionSpace;
  /** The offered instructions that it uses. */
  readonly chosen: readonly Intrinsic[];
  /** Steps of enumeration made before it was found. */
  readonly before: number;
}

/** What a search leaves for the next of the same computation. */
interface Preparation {
  /** Only if enumeration was complete. */
  readonly found: Found | undefined;
  readonly bench: Bench;
}

/** The preparations of the last few computations, for searches with the same options on the same runner. */
export class Preparations {
  private readonly held = new Map<string, Preparation>();
  private readonly most: number;

  /** @param most computations to keep: the inputs and expected results of a large layer take some 50 MB */
  constructor(most: number) {
    this.most = most;
  }

  of(computation: Computation): Preparation | undefined {
    return this.held.get(computationKey(computation));
  }

  keep(computation: Computation, preparation: Preparation): void {
    const key = computationKey(computation);
    this.held.delete(key);
    this.held.set(key, preparation);
    for (const oldest of this.held.keys()) if (this.held.size > this.most) this.held.delete(oldest);
  }
}

interface Taught {
  readonly computation: Computation;
  readonly environment: Environment;
  readonly threads: number;
  readonly cache: Conditions["cache"];
  readonly offered: readonly Intrinsic[];
  readonly machine: Target;
  readonly calibration: Calibration | undefined;
  readonly trustImported: boolean;
  /** Whether similar computations count, and not only records of the same one. */
  readonly similar: boolean;
}

/** The space with its model corrected by similar computations, except on a GPU, and the schedules to try first. */
export function taughtBy(
  db: Database,
  space: SessionSpace,
  { offered, machine, calibration, ...wanted }: Taught,
): { readonly space: SessionSpace; readonly learnt?: Learnt } {
  const sought = { ...wanted, intrinsics: offered };
  if (isGpu(machine)) {
    const transferred = transferredOnGpu(db, sought, space);
    if (transferred.length === 0) return { space };
    const candidates = transferred.map(({ candidate }) => candidate);
    return { space: seededBy(space, candidates), learnt: { transferred: transferred.map(({ id }) => id) } };
  }
  const near = nearTrials(db, sought, modelTarget(machine, calibration));
  const prior = priorOf(near);
  if (prior === undefined) return { space };
  space.startFrom(prior);
  const transferred = transferredTo(space, near, prior);
  const candidates = transferred.map(({ candidate }) => candidate);
  return { space: seededBy(space, candidates), learnt: { prior, transferred: transferred.map(({ id }) => id) } };
}
