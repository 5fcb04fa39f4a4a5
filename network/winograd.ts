/**
 * @file The steps of a convolution by Winograd's transforms (abstraction/winograd.ts): windows, products, and the step with the convolution's output.
 * The filters are transformed when a network is read. session/network/form-bound.ts gives the bound on the difference in floats.
 */

import { type Computation, extentsOf, outputOf } from "../abstraction/computation.ts";
import { attempt, internal } from "../abstraction/error.ts";
import {
  type Convolution,
  convolutionOf,
  TRANSFORMS,
  type Transform,
  type TransformName,
  winogradParts,
} from "../abstraction/winograd.ts";
import type { Step } from "./network.ts";
import { elementsOf, type Value } from "./value.ts";

/** The steps of a convolution in this form, the last one with its output; undefined where it has none. */
export function winogradSteps(step: Step, form: TransformName): readonly Step[] | undefined {
  const found = convolutionOf(step.computation);
  const weights = found && step.reads[found.filters.tensor];
  if (!found || !weights?.constant) return undefined;
  // Names of the network's tensors that stand in the equations already are refused there.
  return attempt(() => stepsOf(step, found, weights, TRANSFORMS[form]));
}

const between = ({ output }: Step, suffix: string, shape: readonly number[], of?: Value): Value => ({
  name: `${output.name}.${suffix}`,
  type: "f32",
  shape,
  ...(of && { of }),
});

const shapeOfTarget = ({ tensors, equation }: Computation): readonly number[] =>
  tensors[equation.target.tensor]?.dims.map((d) => d.extent) ?? [];

function stepsOf(step: Step, convolution: Convolution, weights: Value, transform: Transform): readonly Step[] {
  const { computation, reads } = step;
  const { image, filters } = convolution;
  const { windows, products, back } = winogradParts(computation, convolution, transform);
  const of = (name: string, made: Computation, read: Step["reads"]): Step => ({
    nodes: [`${step.nodes[0]}.${made.name}`],
    ops: ["Winograd"],
    computation: made,
    reads: read,
    output: between(step, name, shapeOfTarget(made)),
  });
  const data = reads[image.tensor] ?? internal(`${step.output.name} reads no ${image.tensor}`);
  const first = of("tiles", windows, { [image.tensor]: data });
  const { t = 0, c = 0, k = 0, z = 0 } = extentsOf(products);
  let kept: Float32Array | undefined;
  const transformedWeights: Value = {
    name: `${weights.name}.transformed`,
    type: "f32",
    shape: [z, c, k],
    // Forms are weighed without their filters, which are up to four times as large as those of the convolution.
    get constant() {
      kept ??= transformed(weights.constant ?? [], transform.filter, { channels: c, made: k });
      return kept;
    },
  };
  const second = of("sums", products, {
    tiles: between(step, "tiles", [z, t, c], first.output),
    filters: transformedWeights,
  });
  if (outputOf(back).name !== outputOf(computation).name) internal("a form has another output");
  const sums = between(step, "sums", back.tensors["sums"]?.dims.map((d) => d.extent) ?? [], second.output);
  const beside = Object.entries(reads).filter(([name]) => name !== image.tensor && name !== filters.tensor);
  const { operator: _, ...whole } = step;
  return [
    first,
    second,
    {
      ...whole,
      computation: back,
      reads: { ...Object.fromEntries(beside), sums },
      insteadOf: { step, steps: [first, second] },
    },
  ];
}

/** `G w G^T` of each filter and channel, computed in doubles: [z, channel, filter]. */
function transformed(
  weights: ArrayLike<number>,
  filter: Transform["filter"],
  { channels, made }: { readonly channels: number; readonly made: number },
): Float32Array {
  const size = filter.length;
  const result = new Float32Array(elementsOf([size * size, channels, made], "transformed filters"));
  // Of the rows of a filter, then of its columns.
  const half = new Float64Array(3 * size);
  for (let k = 0; k < made; k++)
    for (let c = 0; c < channels; c++) {
      const at = (k * channels + c) * 9;
      for (const [x, [a = 0, b = 0, d = 0]] of filter.entries())
        for (let s = 0; s < 3; s++)
          half[x * 3 + s] =
            a * (weights[at + s] ?? 0) + b * (weights[at + 3 + s] ?? 0) + d * (weights[at + 6 + s] ?? 0);
      for (let x = 0; x < size; x++)
        for (const [y, [a = 0, b = 0, d = 0]] of filter.entries())
          result[((x * size + y) * channels + c) * made + k] =
            a * (half[x * 3] ?? 0) + b * (half[x * 3 + 1] ?? 0) + d * (half[x * 3 + 2] ?? 0);
    }
  return result;
}
