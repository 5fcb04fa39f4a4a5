/**
 * @file Proposes the recorded candidates again: to inspect an old run, or to measure them again where the store has no valid result for this
 * machine.
 */

import { defineStrategy, inRounds } from "./strategy.ts";

export const replay = defineStrategy({
  name: "replay",
  summary: "proposes the candidates of earlier runs again, in their order",
  options: {},
  guided: false,
  *propose(search) {
    // A copy of the list, because new results are recorded while rounds go on.
    yield* inRounds([...search.recorded()], search);
  },
});
