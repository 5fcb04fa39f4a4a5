/**
 * @file `automap db best` with a list: the best trial of each layer, in the order of the list.
 *
 *     automap db best --name resnet18/conv1,resnet18/layer1
 *     automap db best --layers layers.txt
 *
 *     # layers.txt: a name that was tuned under, or what follows `automap tune`
 *     resnet18/conv1
 *     conv2d --c 64 --k 64 --h 56 --w 56 --dtype u8s8
 */

import { readFileSync } from "node:fs";
import { z } from "zod";
import { reasonOf, UsageError, unreadable } from "../../abstraction/error.ts";
import { best, type Database, type Filter, namesIn, type TrialRecord, type Trust } from "../../db/index.ts";
import { Cli, parseOptions } from "../command.ts";
import { text } from "../output.ts";
import { addFilters, filterOptions, readFilter } from "./filters.ts";
import { summarySchema } from "./records.ts";

export const layersSchema = z
  .array(
    z.strictObject({
      layer: text.describe("as it was asked for"),
      best: summarySchema.nullable().describe("null where no record may be used"),
    }),
  )
  .optional()
  .describe("of --layers, or of several names");

export interface Layer {
  readonly layer: string;
  readonly best: TrialRecord | undefined;
}

/** The layers that a list names; undefined when there is no list. */
export function layersAsked({
  layers,
  name,
}: {
  readonly layers?: string | undefined;
  readonly name?: string | undefined;
}): readonly string[] | undefined {
  if (layers !== undefined && name !== undefined)
    throw new UsageError("--layers and --name exclude each other", "put the names into the list");
  if (layers !== undefined) return linesIn(layers);
  return name?.includes(",") ? name.split(",").filter((part) => part !== "") : undefined;
}

function linesIn(file: string): string[] {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw unreadable(`cannot read --layers ${file}: ${reasonOf(error)}`, error);
  }
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  const asked = lines.filter((line) => line !== "" && !line.startsWith("#"));
  if (asked.length === 0)
    throw new UsageError(
      `--layers ${file} lists nothing`,
      "a line is a name, or for example conv2d --c 64 --k 64 --dtype u8s8",
    );
  return asked;
}

/** @param filter conditions that apply to all layers */
export function bestOfLayers(db: Database, asked: readonly string[], filter: Filter, trusted: Trust): Layer[] {
  return asked.map((layer) => {
    const own = filterOf(db, layer);
    const { extents, ...common } = filter;
    const sought = { ...common, ...own, extents: { ...extents, ...own.extents }, trusted, limit: 1 };
    const [first] = best(db, sought, { imported: true });
    return { layer, best: first };
  });
}

function filterOf(db: Database, layer: string): Filter {
  if (namesIn(db).includes(layer)) return { name: layer };
  const words = layer.split(/\s+/);
  const [first = ""] = words;
  const command = addFilters(new Cli("best"))
    .exitOverride()
    .configureOutput({ writeErr: () => undefined });
  try {
    command.parse(first.startsWith("-") ? words : ["--op", ...words], { from: "user" });
    return readFilter(db, parseOptions(filterOptions, command.opts()), command);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const hint = error instanceof UsageError ? error.hint : undefined;
    throw new UsageError(`"${layer}" in the list: ${error.message}`, hint === undefined ? {} : { hint });
  }
}
