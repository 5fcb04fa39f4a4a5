/**
 * @file The outcome of reading a model: a refusal in a sentence, or a network whose fused steps compute what its nodes specify.
 *
 *     await judgedModel(bytes, folder)      { status: "refused", says: "conv1 (Conv): ..." }
 */

import { epsilonOf, isInteger } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { fuse } from "../../network/fuse.ts";
import { inHalf } from "../../network/half.ts";
import { channelsLast } from "../../network/layout.ts";
import { lowerGraph } from "../../network/lower.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import type { Program } from "../../network/program.ts";
import { runNetwork } from "../../network/run.ts";
import { type ElementType, heldAs } from "../../network/value.ts";
import { drawInputs } from "../../session/prove-network.ts";

export type JudgedModel =
  | { readonly status: "refused"; readonly says: string }
  /** @property compared whether it was computed twice, as it is read and fused, with an element that could be compared */
  | { readonly status: "read"; readonly compared: boolean }
  | { readonly status: "wrong"; readonly says: string };

/** Points of a network's equations that are interpreted, twice; a larger network is read only. */
const MOST_POINTS = 1_000_000;
/** Characters of a refusal: a sentence and a hint, with the names that the model gives. */
const MOST_SAID = 2000;

/** @throws whatever is no refusal: a fault of automap */
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

/** As a GPU computes it; numbers beyond f16 are refused there. */
function inHalfIfItFits(plain: Program): void {
  try {
    channelsLast(inHalf(fuse(plain)), true);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
  }
}

const pointsOf = ({ steps, inputs }: Program): number =>
  steps.reduce((sum, { computation }) => sum + computation.axes.reduce((all, a) => all * a.extent, 1), 0) +
  inputs.reduce((sum, { shape }) => sum + shape.reduce((all, size) => all * size, 1), 0);

/** Of the largest number of an output, which roundings in another order may change. */
const TOLERANCE = 1e-3;

/** By how much two computations of an output may differ: a place or a truth by nothing, and an integer that was rounded by one. */
function boundOf(type: ElementType, largest: number): number {
  if (type === "bool" || type === "s64") return 0;
  const dtype = heldAs(type);
  if (!isInteger(dtype)) return Math.max(TOLERANCE, 2 * epsilonOf(dtype)) * largest + 1e-6;
  return type === "u8" || type === "s8" ? 1 : TOLERANCE * largest + 1;
}

/** An output computed twice: how many elements could be compared, and the first that differs. What overflows or has no order is left out. */
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

/** The first output that the fused network computes otherwise, and how many elements were compared. */
async function differenceOf(plain: Program, program: Program): Promise<ReturnType<typeof outputCompared>> {
  const { values } = drawInputs(plain, 1);
  const inputs = Object.fromEntries(plain.inputs.map((input) => [input.name, values.get(input) ?? []]));
  const [expected, got] = [await runNetwork(plain, inputs), await runNetwork(program, inputs)];
  let compared = 0;
  for (const { name, value } of plain.outputs) {
    const found = outputCompared(value.type, Array.from(expected.get(name) ?? []), Array.from(got.get(name) ?? []));
    compared += found.compared;
    if (found.says !== undefined) return { compared, says: `${name}: ${found.says}` };
  }
  return { compared };
}
