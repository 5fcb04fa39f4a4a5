/** @file Models as exporters write them are read, fused, and give what their nodes give one by one. */

import { describe, expect, it } from "vitest";
import { seededRandom } from "../../abstraction/random.ts";
import type { Graph } from "../../network/graph.ts";
import type { Network } from "../../network/network.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import { runNetwork } from "../../network/run.ts";
import { openGraph } from "../../session/network/network.ts";
import { exportedKeras, exportedQdq, exportedTransformer } from "../support/exported.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";

/** Ids of tokens and of padding, masks of 0 and 1, images. */
function inputsOf({ inputs }: Network): Record<string, Float64Array> {
  const random = seededRandom(1);
  return Object.fromEntries(
    inputs.map(({ name, type, shape }) => {
      const length = shape.reduce((product, size) => product * size, 1);
      const whole = name === "attention_mask" ? 2 : 30;
      const one = (): number => (type === "s64" ? Math.floor(whole * random()) : Math.fround(4 * random() - 2));
      return [name, Float64Array.from({ length }, one)];
    }),
  );
}

/** A model with what ONNX Runtime 1.20.1 gives for the same inputs: the first elements of each output. */
interface Exported {
  readonly build: () => Graph;
  readonly dims: Readonly<Record<string, number>>;
  readonly first: Readonly<Record<string, readonly number[]>>;
}

/** Rounding, as a share of the largest element. */
const WITHIN = 1e-5;

const MODELS: Readonly<Record<string, Exported>> = {
  "PyTorch's transformer": {
    build: exportedTransformer,
    dims: { batch: 2, sequence: 5 },
    first: {
      add147: [0.33486539, 1.40532315, 1.43322337, 1.5863008, 0.88776982, 0.76349127],
      tokens: [27, 27, 1, 16, 20, 27],
    },
  },
  "tf2onnx's network of images": {
    build: exportedKeras,
    dims: { batch: 2 },
    first: { softmax23: [0.01757639, 0.01710775, 0.83802623, 0.01278068, 0.11450893, 0.03718665] },
  },
  "a network in QDQ format": {
    build: exportedQdq,
    dims: {},
    first: { dequantizelinear29: [-1.5, -0.24, 0.12, 1.89, 1.02] },
  },
};

describe("a model as exporters write it", () => {
  it.each(Object.entries(MODELS))("gives what its nodes give one by one: %s", async (_, { build, dims, first }) => {
    const { plain, program } = openGraph(parseOnnx(onnxBytes(build()), "model.onnx", "."), { dims });
    const inputs = inputsOf(program);
    const expected = await runNetwork(plain, inputs);
    const fused = await runNetwork(program, inputs);
    for (const [name, values] of expected) {
      const got = Array.from(fused.get(name) ?? []);
      const all = Array.from(values);
      const largest = Math.max(...all.map(Math.abs));
      expect(got).toHaveLength(all.length);
      for (const [i, wanted] of all.entries())
        expect(Math.abs((got[i] ?? Number.NaN) - wanted)).toBeLessThanOrEqual(WITHIN * largest);
      for (const [i, wanted] of (first[name] ?? []).entries())
        expect(Math.abs((got[i] ?? Number.NaN) - wanted)).toBeLessThanOrEqual(WITHIN * largest);
    }
  });
});
