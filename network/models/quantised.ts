/**
 * @file Quantised forms of the image networks: u8 activations and s8 weights, with the ranges of `ranges.ts`.
 *
 *     quantisedModels({ resnet18 })["resnet18-u8s8"]      QuantizeLinear and DequantizeLinear around stored values
 */

import type { Graph } from "../graph.ts";
import { quantise, type Ranges } from "../quantise.ts";
import { RANGES } from "./ranges.ts";

/** Builds a network for a batch, by default 1. */
export type BuildModel = (options?: { readonly batch?: number }) => Graph;

/** Every network that has ranges, named `NAME-u8s8`. */
export function quantisedModels(models: Readonly<Record<string, BuildModel>>): Record<string, BuildModel> {
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
