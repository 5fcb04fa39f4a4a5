/** @file The products of bench/suites/language-products.json have the extents that the configurations of their models give. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { z } from "zod";
import { layersNamed } from "../support/suite.ts";

const file = new URL("../../bench/suites/language-products.json", import.meta.url);
const { models } = z
  .object({ models: z.record(z.string(), z.object({ source: z.string() }).catchall(z.number())) })
  .parse(JSON.parse(readFileSync(file, "utf8")));

/** A number of a model's config.json. */
type Config = (name: string) => number;
const ofHeads = (c: Config): number => c("num_attention_heads") * c("head_dim");

/** Columns and summed elements of a product. */
const PRODUCTS: Readonly<Record<string, (c: Config) => readonly [n: number, k: number]>> = {
  "queries, keys and values": (c) => [ofHeads(c) + 2 * c("num_key_value_heads") * c("head_dim"), c("hidden_size")],
  "attention output": (c) => [c("hidden_size"), ofHeads(c)],
  "gate and up": (c) => [2 * c("intermediate_size"), c("hidden_size")],
  down: (c) => [c("hidden_size"), c("intermediate_size")],
  vocabulary: (c) => [c("vocab_size"), c("hidden_size")],
  "compressed queries": (c) => [c("q_lora_rank"), c("hidden_size")],
  "compressed keys and values": (c) => [c("kv_lora_rank") + c("qk_rope_head_dim"), c("hidden_size")],
  "queries of heads": (c) => [
    c("num_attention_heads") * (c("qk_nope_head_dim") + c("qk_rope_head_dim")),
    c("q_lora_rank"),
  ],
  "keys and values of heads": (c) => [
    c("num_attention_heads") * (c("qk_nope_head_dim") + c("v_head_dim")),
    c("kv_lora_rank"),
  ],
};

test("forty products have the extents of their models' configurations", () => {
  const layers = layersNamed("lm");
  expect(layers.length).toBe(40);
  for (const { id, of = "", params } of layers) {
    const [, model = "", product = ""] = /^(.*?), (.*)$/.exec(of) ?? [];
    const extents = PRODUCTS[product]?.((name) => Number(models[model]?.[name]));
    expect([params["n"], params["k"]], `${id}: ${of}`).toEqual(extents);
  }
  const rows = layers.map(({ params }) => params["m"] ?? 0);
  expect([Math.min(...rows), Math.max(...rows)]).toEqual([1, 8192]);
});
