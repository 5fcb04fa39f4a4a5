/** @file What the decisions about loops know of a mapping when it is scheduled for the cores of a processor. */

import type { Mapping } from "../../abstraction/mapping.ts";

export interface MappedContext {
  readonly mapping: Mapping;
  readonly threads: number;
  /** Size of the nearest cache: loops over tiles are tried for what does not fit in there, none when left out. */
  readonly nearBytes?: number | undefined;
}
