/** @file Tries every candidate of a space, in the order that the space lists them. */

import { defineStrategy, inRounds } from "./strategy.ts";

export const exhaustive = defineStrategy({
  name: "exhaustive",
  summary: "tries every candidate once",
  options: {},
  guided: false,
  *propose(search) {
    yield* inRounds(search.space.all(), search);
  },
});
