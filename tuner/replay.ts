/** @file Proposes again what the store holds: to see an old run, or to measure it again where the store does not know the answer here. */

import { defineStrategy, inRounds } from "./strategy.ts";

export const replay = defineStrategy({
  name: "replay",
  summary: "proposes the candidates of earlier runs again, in their order",
  options: {},
  guided: false,
  *propose(search) {
    // A list of its own: what is measured again is recorded while the rounds go on.
    yield* inRounds([...search.recorded()], search);
  },
});
