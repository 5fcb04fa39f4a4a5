/** @file The table of strategies. */

import { exhaustive } from "./exhaustive.ts";
import { genetic } from "./genetic.ts";
import { random } from "./random.ts";
import { replay } from "./replay.ts";
import type { Strategy } from "./strategy.ts";

/** The first is the default. */
export const STRATEGIES: readonly Strategy[] = [genetic, random, exhaustive, replay];
