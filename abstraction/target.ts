/**
 * @file A machine as levels of memory and units, from the outside in.
 *
 *     dram -> l3 -> l2 -> l1 -> registers
 */

/** One layer of the machine. Unknown figures are left out, never guessed. */
export interface Level {
  readonly name: string;
  /** Units of this level inside one unit of the level above. */
  readonly units: number;
  readonly bytes?: number;
  readonly readBytesPerCycle?: number;
  readonly writeBytesPerCycle?: number;
}

export interface Target {
  readonly name: string;
  /** Features instructions ask for: `avx512_vnni`, `amx_int8`, `sm_90`, `xe_hpg`. */
  readonly isa: readonly string[];
  readonly clockHz?: number;
  /** Outermost first. */
  readonly levels: readonly Level[];
  /** Where the figures come from. */
  readonly source: string;
}
