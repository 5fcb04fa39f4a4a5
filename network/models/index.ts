/**
 * @file The built-in networks, by name, and the quantised forms of the image networks: u8 activations and s8 weights, with the ranges of
 * ranges.json, which bench/networks/calibrate.ts makes.
 *
 *     MODELS["resnet18-u8s8"]      QuantizeLinear and DequantizeLinear around stored values
 */

import { readFileSync } from "node:fs";
import type { Graph } from "../graph.ts";
import { quantise, type Ranges } from "../quantise.ts";
import { bertBase } from "./bert.ts";
import { miLstm } from "./milstm.ts";
import { mobilenetV1 } from "./mobilenet.ts";
import { resnet18, resnet50 } from "./resnet.ts";
import { shufflenet } from "./shufflenet.ts";

/** Of the values of each network, on a few seeded images. */
const RANGES = JSON.parse(readFileSync(new URL("./ranges.json", import.meta.url), "utf8")) as Readonly<
  Record<string, Ranges>
>; // a file of ours

/** Builds a network for a batch, by default 1. */
type BuildModel = (options?: { readonly batch?: number }) => Graph;

/** Every network that has ranges, named `NAME-u8s8`. */
function quantisedModels(models: Readonly<Record<string, BuildModel>>): Record<string, BuildModel> {
  const made =
    (build: BuildModel, ranges: Ranges): BuildModel =>
    (options) =>
      quantise(build(options), ranges);
  return Object.fromEntries(
    Object.entries(RANGES).flatMap(([name, ranges]) => {
      const build = models[name];
      return build ? [[`${name}-u8s8`, made(build, ranges)] as const] : [];
    }),
  );
}

const PLAIN: Readonly<Record<string, BuildModel>> = {
  resnet18,
  resnet50,
  "mobilenet-v1": mobilenetV1,
  shufflenet,
  "bert-base": bertBase,
  "mi-lstm": miLstm,
};

export const MODELS: Readonly<Record<string, BuildModel>> = { ...PLAIN, ...quantisedModels(PLAIN) };
