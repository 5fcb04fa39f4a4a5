/** @file Options of `automap network` and `automap tune-network`, and the documents that they print. */

import { z } from "zod";
import { modelOptions } from "./network-model.ts";
import { databaseFile, flag, optionalText, optionalWord, positiveInteger, wholeNumber } from "./options.ts";
import { documentOf, integer, number, text, texts } from "./output.ts";

export const commonOptions = modelOptions.extend({
  threads: positiveInteger.default(1),
  exact: flag,
  db: databaseFile,
  environment: optionalWord,
  json: flag,
});
export const emitOptions = commonOptions.extend({
  to: z.string({ error: "network emit needs --to: the folder to write" }).min(1, "--to must name a folder"),
  name: optionalText,
  verify: flag,
  force: flag,
});

/** What of a network's f16 is computed in f32. */
const widenedSchema = z
  .strictObject({ constants: integer, inputs: texts, outputs: texts })
  .optional()
  .describe("what of the model is f16 and computed in f32: inputs and outputs are converted");

export const operatorsSchema = documentOf({
  opsets: z.strictObject({ least: integer, most: integer }),
  operators: z.array(z.strictObject({ summary: text, names: texts })),
});
export const showSchema = documentOf({
  network: text,
  nodes: integer,
  steps: integer,
  calls: integer.describe("of kernels: steps that share their rows are computed by one call"),
  multiplyAdds: number,
  parameters: number,
  widened: widenedSchema,
  operators: z.strictObject({
    counted: integer.describe("as AMOS's Table 2 counts them; docs/network-internals.md has the rule"),
    mapped: integer.describe("of these computed by an instruction"),
  }),
  tasks: z.array(
    z.strictObject({
      task: text,
      nodes: texts.describe("the first node of each step, or of each call for several steps"),
      ops: texts,
      multiplyAdds: number.describe("of one step; 0 where no products are summed"),
      kind: z.enum(["record", "model", "loops"]).describe("where its kernel comes from"),
      kernel: text.describe("instruction and mapping, or why there is none"),
      record: text.optional(),
      seconds: number.optional(),
    }),
  ),
});
export const emitSchema = documentOf({
  folder: text,
  name: text,
  files: texts,
  steps: integer,
  arenaBytes: integer,
  weightBytes: integer,
  widened: widenedSchema,
  proof: text.optional(),
});

/** A choice, not a measurement: the first trials of the 16 tasks of ResNet-18 that are sums of products take about a minute. */
export const DEFAULT_NETWORK_SECONDS = 300;

export const tuneNetworkOptions = modelOptions.extend({
  time: positiveInteger.default(DEFAULT_NETWORK_SECONDS),
  seed: wholeNumber.optional(),
  threads: positiveInteger.default(1),
  transfer: z.boolean().default(true),
  trustImported: flag,
  exact: flag,
  equalShares: flag,
  db: databaseFile,
  fleet: optionalWord,
  fleetKey: optionalWord,
  on: optionalWord,
  json: flag,
});

export const tuneNetworkSchema = documentOf({
  network: text,
  seconds: number.describe("of all tuned steps, each by its best kernel"),
  tasks: z.array(
    z.strictObject({
      task: text,
      nodes: texts.describe("the first node of each step"),
      times: integer,
      searched: z.boolean().describe("false where the time ended before its turn"),
      seconds: number.optional().describe("of one call of its best kernel"),
      failed: text.optional().describe("the error that ended its search"),
    }),
  ),
});
