/** @file Draws candidates blindly: what every other strategy must beat. */

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
