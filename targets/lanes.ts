/**
 * @file Machines that run a systolic array on lanes: what one vector instruction of each kind costs.
 *
 *     laneMachine("warp").shift      { issueCycles: 4, latencyCycles: 24.2 }
 *
 * Cycles are those of the unit that issues for one array (a core, a quarter of an SM, an EU) when all units beside it are as busy. A
 * figure that no source gives is left out and counts as nothing.
 */

import { suggestion, UsageError } from "../abstraction/error.ts";

export interface VectorCost {
  /** Between two such instructions, one vector each. */
  readonly issueCycles?: number;
  /** Until the result can be used. */
  readonly latencyCycles: number;
}

export interface LaneMachine {
  readonly name: string;
  readonly summary: string;
  /** Lanes of a vector of f32, and whether wider elements leave fewer of them. */
  readonly lanes: number;
  readonly lanesByBytes: boolean;
  readonly multiplyAdd: VectorCost;
  /** A value moved to another lane. */
  readonly shift: VectorCost;
  /** A vector from the nearest cache, whole or one element for all lanes. */
  readonly load: VectorCost;
  readonly store: VectorCost;
  readonly source: string;
}

export const LANE_MACHINES: readonly LaneMachine[] = [
  {
    name: "avx512",
    summary: "a core with two AVX-512 units",
    lanes: 16,
    lanesByBytes: true,
    multiplyAdd: { issueCycles: 0.5, latencyCycles: 4 },
    shift: { issueCycles: 1, latencyCycles: 3 },
    load: { issueCycles: 0.5, latencyCycles: 7 },
    store: { issueCycles: 1, latencyCycles: 0 },
    source:
      "LLVM's scheduling model of Sapphire Rapids: zmm FMA on ports 0 and 5, valignd and vpermps on port 5; Intel's optimisation manual: two 64-byte loads and one 64-byte store a cycle from L1",
  },
  {
    name: "warp",
    summary: "a warp on a quarter of an H200's SM",
    lanes: 32,
    lanesByBytes: false,
    multiplyAdd: { issueCycles: 1, latencyCycles: 4.7 },
    shift: { issueCycles: 4, latencyCycles: 24.2 },
    load: { issueCycles: 4, latencyCycles: 40.2 },
    store: { issueCycles: 4, latencyCycles: 0 },
    source:
      "own micro-benchmarks on an H200: dependent FFMA 4.7 cycles, shfl 24.2, 32 shuffled lanes a clock an SM; L1 hit 40.2 cycles and about 128 bytes a clock an SM (Luo et al., H100)",
  },
  {
    name: "gen9",
    summary: "a thread of a Gen9 EU, SIMD16",
    lanes: 16,
    lanesByBytes: true,
    multiplyAdd: { issueCycles: 2, latencyCycles: 14 },
    // A shifted read is a region of the operand; where it crosses registers it is a move.
    shift: { issueCycles: 2, latencyCycles: 14 },
    load: { latencyCycles: 400 },
    store: { latencyCycles: 0 },
    source:
      "Intel Graphics Compiler, scheduler tables before Xe: float pipe 14 cycles, data port 400, two cycles a SIMD16 instruction; not measured",
  },
];

/** @throws UsageError for a name that is none */
export function laneMachine(name: string): LaneMachine {
  const found = LANE_MACHINES.find((m) => m.name === name);
  if (found) return found;
  const names = LANE_MACHINES.map((m) => m.name);
  throw new UsageError(`no machine "${name}"`, { hint: suggestion(name, names) });
}
