/**
 * @file References for comparisons with peers: epilogues, weights known ahead of time, and the test data for Winograd.
 *
 *     requantised(reference, { output: "u8", scale: true, relu: true })      the same inputs, and `scale` as the last
 */

import { affineForm } from "../../abstraction/affine.ts";
import { type Computation, targetOf, tensorOf } from "../../abstraction/computation.ts";
import { type DType, epsilonOf, isInteger, roundHalfEven, saturate, wrap } from "../../abstraction/dtype.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { encodeElements } from "../../runtime/bytes.ts";
import type { Reference } from "../../runtime/verify.ts";
import type { OnednnEpilogue } from "./onednn.ts";

/** Makes one more tensor constant: the matrix of a product, like a layer's weights. */
export function withConstant(computation: Computation, name: string): Computation {
  const tensor = { ...tensorOf(computation, name), constant: true };
  return { ...computation, tensors: { ...computation.tensors, [name]: tensor } };
}

/**
 * Winograd's transforms mix neighbours: sums of small integers are no longer exact, and a small element beside a large
 * one has the large one's error. Only the set of values of similar size is left to compare, within the same bound.
 */
export function randomSetOnly(reference: Reference): Reference {
  return { ...reference, sets: reference.sets.filter(({ name }) => name === "random") };
}

/** The reference of `output(relu(sum * scale[channel]))`, from that of the sum. @param seed for the scales */
export function afterEpilogue(reference: Reference, epilogue: OnednnEpilogue, seed: number): Reference {
  const { computation } = reference;
  const sum = targetOf(computation);
  const channel = sum.dims[1] ?? sum.dims[0];
  const stride = channel && affineForm(sum.storage)?.terms.get(channel.name);
  if (!channel || stride === undefined) throw new Error(`internal: ${sum.name} has no plain channels`);
  const output = { ...sum, dtype: epilogue.output };
  const scale = {
    name: "scale",
    dtype: "f32" as const,
    dims: [{ name: "k", extent: channel.extent }],
    storage: { kind: "axis" as const, name: "k" },
    constant: true,
  };
  const tensors = { ...computation.tensors, [sum.name]: output, ...(epilogue.scale ? { scale } : {}) };
  const sets = reference.sets.map((set) => {
    const scales = drawScales(channel.extent, set.expected, epilogue.output, seed);
    const factor = (place: number): number =>
      epilogue.scale ? (scales[Math.floor(place / stride) % channel.extent] ?? 1) : 1;
    const expected = set.expected.map((x, place) => finish(x, factor(place), epilogue));
    return {
      ...set,
      inputs: epilogue.scale ? { ...set.inputs, scale: encodeElements("f32", scales) } : set.inputs,
      expected,
      tolerance: set.tolerance.map((t, place) => {
        const own = t * factor(place);
        const want = Math.abs(expected[place] ?? 0);
        return isInteger(epilogue.output) ? Math.ceil(own) : own + epsilonOf(epilogue.output) * (want + own);
      }),
    };
  });
  return { ...reference, computation: { ...computation, tensors }, sets };
}

/** Computed in f32, as in oneDNN and our kernels. */
function finish(sum: number, scale: number, { output, relu }: OnednnEpilogue): number {
  const scaled = Math.fround(Math.fround(sum) * scale);
  const kept = relu ? Math.max(scaled, 0) : scaled;
  return isInteger(output) ? saturate(output, roundHalfEven(kept)) : wrap(output, kept);
}

/** Scales for which most sums fit the output and some are clamped. */
function drawScales(channels: number, sums: Float64Array, output: DType, seed: number): Float64Array {
  const random = seededRandom(seed);
  const largest = sums.reduce((most, x) => Math.max(most, Math.abs(x)), 1);
  const unit = output === "u8" || output === "s8" ? 255 / largest : 1;
  return Float64Array.from({ length: channels }, () => Math.fround(unit * (0.5 + random())));
}
