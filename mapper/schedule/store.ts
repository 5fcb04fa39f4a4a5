/**
 * @file Decision `store`: how sums reach the output.
 *
 *     direct     each lane writes the elements it holds
 *     quads      the same with four lanes exchanging what they hold, so that each writes 16 bytes: results of 16 bits, 32 columns a team and more
 *     staged     by way of shared memory, a row of tiles at a time, and from there along the output; the only way for fragments whose
 *                layout the vendor keeps secret
 */

import { z } from "zod";
import { outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import { type GridContext, type GridDecision, runAlong } from "./grid-context.ts";

/** Lanes that exchange words, and the bytes each of them writes at once. */
const QUAD = 4;
const WRITTEN_BYTES = 16;

/** Why four lanes cannot exchange what they hold; undefined when they can. */
export function quadsProblem({ mapping, team, columns }: GridContext): string | undefined {
  const output = outputOf(mapping.computation);
  if (team !== "warpgroup") return "four lanes exchange what a warpgroup holds";
  if (bytesOf(output.dtype) !== 2) return `results of ${bytesOf(output.dtype)} bytes are not exchanged, those of 2 are`;
  const atOnce = WRITTEN_BYTES / bytesOf(output.dtype);
  if (columns.extent % (QUAD * atOnce) !== 0)
    return `${columns.extent} columns are not divided among four lanes by ${atOnce}`;
  const { equation, epilogue } = mapping.computation;
  const target = epilogue ? epilogueAt(epilogue, equation.target.index, equation.target).target : equation.target;
  if (runAlong(target, columns.dimension, () => output, atOnce) < atOnce)
    return `results of ${atOnce} columns do not lie side by side`;
  return undefined;
}

export const store: GridDecision<"store"> = {
  name: "store",
  summary:
    "How sums reach the output: each lane writes what it holds, four lanes exchange it to write 16 bytes each, or by way of shared memory.",
  example: "staged",
  schema: z.enum(["direct", "staged", "quads"]),
  values: (context) => {
    if (context.target.storage === undefined) return ["staged"];
    return quadsProblem(context) === undefined ? ["quads", "direct", "staged"] : ["direct", "staged"];
  },
  print: (value) => value,
  traits: (schedule) => [`store ${schedule.store}`],
};
