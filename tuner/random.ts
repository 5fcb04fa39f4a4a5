/** @file Draws candidates at random: the baseline of every other strategy. */

import { defineStrategy, drawUntried } from "./strategy.ts";

export const random = defineStrategy({
  name: "random",
  summary: "draws candidates blindly, each once",
  options: {},
  guided: false,
  *propose(search) {
    for (;;) yield drawUntried(search, search.batch);
  },
});
