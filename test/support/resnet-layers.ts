/** @file The twelve convolutions of ResNet-18 by name, with fewer channels and rows, since emulation is slow. */

import type { Computation } from "../../abstraction/computation.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { layersNamed } from "./suite.ts";

/** In turn, so that every kind of layer and every type occurs. */
const TYPES = ["u8s8", "bf16", "f16", "s8"] as const;

/** A sixteenth of the channels and one more, which no tile divides, and at most 28 rows. Taps, strides and borders are the layer's. */
export function reducedLayers(): readonly Computation[] {
  const rows = new Map([
    [224, 28],
    [56, 14],
    [28, 9],
  ]);
  const fewer = (channels = 1): number => (channels < 16 ? channels : channels / 16 + 1);
  return layersNamed("c2d").map(({ id, params }, i) => {
    const h = rows.get(params["h"] ?? 0) ?? 7;
    const sizes = { ...params, c: fewer(params["c"]), k: fewer(params["k"]), h, w: h };
    const types = parseDataTypes(TYPES[i % TYPES.length] ?? "u8s8");
    return { ...instantiate(operatorNamed("conv2d"), { parameters: sizes, types }), name: id };
  });
}
