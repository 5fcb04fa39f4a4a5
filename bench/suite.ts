/** @file The layers of bench/suites: operators with their parameters. */

import { readFileSync } from "node:fs";
import { z } from "zod";
import { suggestion, UsageError } from "../abstraction/error.ts";

const SUITE = z.object({
  configs: z.array(z.object({ id: z.string(), op: z.string(), params: z.record(z.string(), z.number()) })),
});
export type Layer = z.infer<typeof SUITE>["configs"][number];

/** Every layer on which AMOS is evaluated. */
export function suiteLayers(): readonly Layer[] {
  return SUITE.parse(JSON.parse(readFileSync(new URL("./suites/amos-operators.json", import.meta.url), "utf8")))
    .configs;
}

/** @param words ids and operators, separated by commas: `c2d,dep-0`. @throws UsageError for one that is neither */
export function layersNamed(words: string): readonly Layer[] {
  const all = suiteLayers();
  const known = [...new Set(all.flatMap(({ op, id }) => [op, id]))];
  const wanted = words.split(",");
  for (const word of wanted)
    if (!known.includes(word))
      throw new UsageError(`no layer or operator "${word}"`, { hint: suggestion(word, known) });
  return all.filter((c) => wanted.includes(c.op) || wanted.includes(c.id));
}
