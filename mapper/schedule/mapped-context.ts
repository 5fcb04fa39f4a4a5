/** @file The facts about a mapping that decisions about loops use when it is scheduled for a processor's cores. */

import type { Mapping } from "../../abstraction/mapping.ts";

export interface MappedContext {
  readonly mapping: Mapping;
  readonly threads: number;
  /** Size of the nearest cache in bytes. Tile loops are tried for data that does not fit in it; none when left out. */
  readonly nearBytes?: number | undefined;
}
