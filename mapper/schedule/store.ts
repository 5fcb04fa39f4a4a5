/**
 * @file Decision `store`: how sums reach the output.
 *
 *     direct     each lane writes the elements it holds
 *     quads      the same with four lanes exchanging what they hold, so that each writes 16 bytes: results of 16 bits, 32 columns a team and more
 *     staged     by way of shared memory, a row of tiles at a time, and from there along the output; the only way for fragments whose
 *                layout the vendor keeps secret
 */

import { z } from "zod";
import { type Computation, extentsOf, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import type { Access } from "../../abstraction/expression.ts";
import { type GridContext, type GridDecision, runAlong } from "./grid-context.ts";

/** Lanes that exchange words, and the bytes each of them writes at once. */
const QUAD = 4;
const WRITTEN_BYTES = 16;

/** Why four lanes cannot exchange what they hold; undefined when they can. */
export function quadsProblem({ mapping, team, columns }: GridContext): string | undefined {
  const output = outputOf(mapping.computation);
  const extents = extentsOf(mapping.computation);
  if (team !== "warpgroup") return "four lanes exchange what a warpgroup holds";
  if (bytesOf(output.dtype) !== 2) return `results of ${bytesOf(output.dtype)} bytes are not exchanged, those of 2 are`;
  const atOnce = WRITTEN_BYTES / bytesOf(output.dtype);
  if (columns.extent % (QUAD * atOnce) !== 0)
    return `${columns.extent} columns are not divided among four lanes by ${atOnce}`;
  if (runAlong(storedAt(mapping.computation), columns.dimension, () => output, atOnce, { extents }) < atOnce)
    return `results of ${atOnce} columns do not lie side by side`;
  return undefined;
}

/** Whether neighbours in the output are neighbours along the rows of the instruction, as pixels in NCHW are. */
export function runsAlongRows({ mapping, rows }: GridContext): boolean {
  const { computation } = mapping;
  const extents = extentsOf(computation);
  return runAlong(storedAt(computation), rows.dimension, () => outputOf(computation), 1, { extents }) > 0;
}

/** The element of the output where a point's result is stored. */
export function storedAt({ equation, epilogue }: Computation): Access {
  return epilogue ? epilogueAt(epilogue, equation.target.index, equation.target).target : equation.target;
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
  // Parts of a sum lie where they meet as lanes hold them.
  tidy: (_, schedule) => (schedule.split ? "direct" : schedule.store),
  traits: (schedule) => [`store ${schedule.store}`],
  problem: (context, schedule) => {
    if (schedule.store === "quads") return quadsProblem(context);
    const secret = context.intrinsic.operands.find((o) => o.storage === undefined);
    return secret && schedule.store === "direct"
      ? `which lane holds which element of ${secret.name} is not known`
      : undefined;
  },
};
