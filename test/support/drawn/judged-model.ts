/**
 * @file The outcome of reading a model: a one-sentence refusal, or a network whose fused steps compute its nodes.
 *
 *     await judgedModel(bytes, folder)      { status: "refused", says: "conv1 (Conv): ..." }
 */

import { epsilonOf, isInteger } from "../../../abstraction/dtype.ts";
import { UsageError } from "../../../abstraction/error.ts";
import { fuse } from "../../../network/fuse.ts";
import { inHalf } from "../../../network/half.ts";
import { channelsLast } from "../../../network/layout.ts";
import { lowerGraph } from "../../../network/lower.ts";
import type { Network } from "../../../network/network.ts";
import { parseOnnx } from "../../../network/onnx/read.ts";
import { runNetwork } from "../../../network/run.ts";
import { type ElementType, heldAs } from "../../../network/value.ts";
import { drawInputs } from "../../../session/network/prove-network.ts";

export type JudgedModel =
  | { readonly status: "refused"; readonly says: string }
  /** @property compared whether it was computed as read and as fused, with at least one comparable element */
  | { readonly status: "read"; readonly compared: boolean }
  | { readonly status: "wrong"; readonly says: string };

/** Limit of points that are interpreted, twice. A larger network is only read. */
const MOST_POINTS = 1_000_000;
/** Limit of a refusal's length: a sentence and a hint, with names from the model. */
const MOST_SAID = 2000;

/** @throws what is not a refusal: a fault of automap */
export async function judgedModel(bytes: Uint8Array, folder: string): Promise<JudgedModel> {
  try {
    const graph = parseOnnx(bytes, "model.onnx", folder);
    const isOpen = graph.inputs.some(({ shape }) => shape.includes("batch"));
    const plain = lowerGraph(graph, isOpen ? { dims: { batch: 1 } } : {});
    const program = channelsLast(fuse(plain));
    inHalfIfItFits(plain);
    const points = pointsOf(plain) + pointsOf(program);
    if (!(points <= MOST_POINTS)) return { status: "read", compared: false };
    const { compared, says } = await differenceOf(plain, program);
    return says === undefined ? { status: "read", compared: compared > 0 } : { status: "wrong", says };
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const says = error.explain();
    if (says.trim() === "" || says.length > MOST_SAID || says.includes("internal:"))
      return { status: "wrong", says: `refused by ${says.length} characters: ${says.slice(0, MOST_SAID)}` };
    return { status: "refused", says };
  }
}

/** Converts the network as for a GPU, where numbers beyond f16 are refused. */
function inHalfIfItFits(plain: Network): void {
  try {
    channelsLast(inHalf(fuse(plain)), true);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
  }
}

const pointsOf = ({ steps, inputs }: Network): number =>
  steps.reduce((sum, { computation }) => sum + computation.axes.reduce((all, a) => all * a.extent, 1), 0) +
  inputs.reduce((sum, { shape }) => sum + shape.reduce((all, size) => all * size, 1), 0);

/** Allowed difference, relative to an output's largest number: fusion changes the order of roundings. */
const TOLERANCE = 1e-3;

/** The allowed difference of two computations of an output: 0 for indices and booleans, 1 for a rounded integer. */
function boundOf(type: ElementType, largest: number): number {
  if (type === "bool" || type === "s64") return 0;
  const dtype = heldAs(type);
  if (!isInteger(dtype)) return Math.max(TOLERANCE, 2 * epsilonOf(dtype)) * largest + 1e-6;
  return type === "u8" || type === "s8" ? 1 : TOLERANCE * largest + 1;
}

/** Compares an output computed twice: the elements compared, and the first wrong one. Overflows and NaN are skipped. */
export function outputCompared(
  type: ElementType,
  expected: readonly number[],
  got: readonly number[],
): { readonly compared: number; readonly says?: string } {
  if (expected.length !== got.length) return { compared: 0, says: `${got.length} elements and not ${expected.length}` };
  const finite = expected.filter(Number.isFinite);
  const largest = finite.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  if (largest > 1e30) return { compared: 0 };
  const bound = boundOf(type, largest);
  const e = expected.findIndex((x, i) => Number.isFinite(x) && !(Math.abs(x - (got[i] ?? Number.NaN)) <= bound));
  if (e < 0) return { compared: finite.length };
  return { compared: finite.length, says: `element ${e} is ${got[e]} fused and ${expected[e]} as it is read` };
}

/** The first output that the fused network computes differently, and the number of elements compared. */
async function differenceOf(plain: Network, program: Network): Promise<ReturnType<typeof outputCompared>> {
  const { values } = drawInputs(plain, 1);
  const inputs = Object.fromEntries(plain.inputs.map((input) => [input.name, values.get(input) ?? []]));
  const expected = await runNetwork(plain, inputs);
  const got = await runNetwork(program, inputs);
  let compared = 0;
  for (const { name, value } of plain.outputs) {
    const found = outputCompared(value.type, Array.from(expected.get(name) ?? []), Array.from(got.get(name) ?? []));
    compared += found.compared;
    if (found.says !== undefined) return { compared, says: `${name}: ${found.says}` };
  }
  return { compared };
}
