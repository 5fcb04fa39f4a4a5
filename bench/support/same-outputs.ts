/**
 * @file Whether a network's outputs are those of a peer, which must hold before their times are compared.
 *
 *     differenceOf(net.run(inputs), peer.outputs, toleranceOf(program))      3.1e-7, of the largest element
 */

import type { Network } from "../../network/network.ts";
import type { NetworkArray } from "../../package/network/index.ts";

/** Relative to the largest output: sums of thousands of products in another order. */
const TOLERANCE = 1e-4;
/** For networks in u8: a value halfway between two integers may be rounded to either. */
const ROUNDED_TOLERANCE = 0.1;
/** For factors with eight bits of precision, through the layers of a network. */
const BRAIN_FLOAT_TOLERANCE = 0.05;

/** The largest difference from a peer in f32 that rounding explains, relative to the largest element. @param dtype of the factors of products */
export function toleranceOf({ steps }: Network, dtype: "f32" | "bf16" = "f32"): number {
  const isRounded = steps.some(({ output }) => output.type === "u8");
  return isRounded ? ROUNDED_TOLERANCE : dtype === "bf16" ? BRAIN_FLOAT_TOLERANCE : TOLERANCE;
}

type Outputs = Readonly<Record<string, NetworkArray>>;

/** The largest difference relative to the largest element of an output. @throws Error when it exceeds the tolerance, or elements are missing */
export function differenceOf(ours: Outputs, theirs: Outputs, tolerance: number): number {
  return Math.max(...Object.entries(ours).map(([name, got]) => differenceIn(name, got, theirs[name], tolerance)));
}

function differenceIn(name: string, ours: NetworkArray, theirs: NetworkArray | undefined, tolerance: number): number {
  if (ours.length !== theirs?.length)
    throw new Error(`the output ${name} has ${ours.length} elements, and ${theirs?.length ?? 0} of the peer`);
  let most = 0;
  let largest = 0;
  for (let i = 0; i < ours.length; i++) {
    const a = Number(ours[i]);
    const b = Number(theirs[i]);
    // Math.max keeps a NaN.
    most = Math.max(most, Math.abs(a - b));
    largest = Math.max(largest, Math.abs(b));
  }
  if (!(most <= tolerance * largest))
    throw new Error(`outputs differ by ${most} in ${name}, where the largest is ${largest}`);
  return most === 0 ? 0 : most / largest;
}
