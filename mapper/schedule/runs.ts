/**
 * @file The order in which lanes hold the elements of a step's sum. An instruction deals neighbours to different lanes. A sum may be taken in any order that
 * is the same for both factors, so each lane is given a run of several parts, which it loads at once.
 *
 *     mma.m16n8k16        lane q of a row holds k 2*q, 2*q+1, 2*q+8, 2*q+9 of each part of 16
 *     four parts, k 64    lane q of a row holds k 16*q .. 16*q+15
 *     half bytes          the two in a register lie four apart, as `word & 0x000f000f` takes them
 */

import { evaluateIndex, extentOf, sumOfBits } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { memoised, unique, upTo } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Expr } from "../../abstraction/expression.ts";
import { lanesOf, readsShared, registerElements } from "../../abstraction/intrinsic.ts";
import { VIEW_ALIGNMENT } from "../../abstraction/matrix-view.ts";
import { boxOf } from "./gather.ts";
import type { GridContext, GridInput } from "./grid-context.ts";
import { madeInRegisters, readStages, type StagedRead, stagedReads } from "./narrow.ts";
import { PIECE_BYTES } from "./swizzle.ts";
import { partsOf } from "./tile.ts";

/** Bytes that the lanes of a row of the other factor hold together. A lane of four has two pieces of 16, which lie in different banks in all rows. */
const ROW_BYTES = 128;

/** Bytes, and half bytes, of a register of a lane. */
const REGISTER_BYTES = 4;
const HALF_BYTES = 8;

/** By position along the sum in a part: the lane of its row, and its number among the elements of this lane. */
interface Dealt {
  readonly lane: readonly number[];
  readonly own: readonly number[];
}

/** How both factors are dealt; undefined if not alike. */
const dealt = memoised((context: GridContext): Dealt | undefined => {
  const [first, ...others] = context.inputs.map((input) => dealtOf(context, input));
  return others.every((other) => JSON.stringify(other) === JSON.stringify(first)) ? first : undefined;
});

function dealtOf({ intrinsic, sum }: GridContext, { operand, kept }: GridInput): Dealt {
  const each = registerElements(intrinsic, operand) / lanesOf(intrinsic);
  const held = upTo(sum.extent).map((k) =>
    operand.storage ? evaluateIndex(operand.storage, { [sum.axis]: k, [kept.axis]: 0 }) : k,
  );
  const lanes = held.map((at) => Math.floor(at / each));
  const rank = (values: readonly number[], value: number): number => values.filter((other) => other < value).length;
  return {
    lane: lanes.map((lane) => rank(unique(lanes), lane)),
    own: held.map((at, k) =>
      rank(
        held.filter((_, other) => lanes[other] === lanes[k]),
        at,
      ),
    ),
  };
}

/** Parts of a step whose fragments lanes fetch at once, in runs; one where instructions deal neighbours. */
export function partsAtOnce(context: GridContext, schedule: GridSchedule): number {
  const { inputs, sum, elementBytes } = context;
  const areRows =
    schedule.fragments !== "rolled" && !boxOf(context, schedule) && inputs.every((i) => i.contiguous === "sum");
  if (!areRows || context.intrinsic.asynchronous || !inputs.some((input) => madeInRegisters(context, schedule, input)))
    return 1;
  if (!dealt(context)) return 1;
  const all = partsOf(context, schedule.tile);
  let parts = ROW_BYTES / (sum.extent * elementBytes);
  // Fragments that are fetched across steps take two sets in turn.
  const sets = schedule.fragments === "across" ? 2 : 1;
  while (parts > 1 && all % (sets * parts) !== 0) parts /= 2;
  return Math.max(1, parts);
}

/**
 * The place along the sum, among the parts that are fetched at once, of what the instruction takes as an element.
 * @param inSum its number through these parts
 */
export function placeInParts(context: GridContext, schedule: GridSchedule, inSum: Expr): Expr {
  const { sum } = context;
  const parts = partsAtOnce(context, schedule);
  const order = dealt(context);
  if (parts === 1 || !order) return inSum;
  const { lane, own } = order;
  const { elements, apart } = runOf(context, schedule);
  const places = upTo(sum.extent * parts).map((k) => {
    const number = (elements / parts) * Math.floor(k / sum.extent) + (own[k % sum.extent] ?? 0);
    const inGroup = number % (2 * apart);
    const inRun = number - inGroup + Math.floor(inGroup / 2) + apart * (inGroup % 2);
    return elements * (lane[k % sum.extent] ?? 0) + inRun;
  });
  const place = sumOfBits(places, inSum);
  if (!place) throw new Error("internal: the order of a sum is no sum of bits");
  return place;
}

/** Elements of a row of a part that a lane holds in registers; 0 if it holds no factor. */
const heldInPart = memoised((context: GridContext): number => {
  const input = context.inputs.find(({ operand }) => !readsShared(operand) && operand.storage);
  return input ? Math.max(...dealtOf(context, input).own) + 1 : 0;
});

/**
 * Elements that a lane holds of a row of the parts that are fetched at once, those of them that are neighbours, and how far apart in such a run the
 * two of a register lie: half a word of half bytes.
 */
export function runOf(
  context: GridContext,
  schedule: GridSchedule,
): { readonly held: number; readonly elements: number; readonly apart: number } {
  const parts = partsAtOnce(context, schedule);
  const held = parts * heldInPart(context);
  const elements = parts > 1 ? held : REGISTER_BYTES / context.elementBytes;
  const isPacked = context.inputs.some(({ reads }) => reads.some((r) => bytesOf(r.dtype) === 1 && r.repeat === 2));
  return { held, elements, apart: parts > 1 && isPacked && elements % HALF_BYTES === 0 ? HALF_BYTES / 2 : 1 };
}

/** Bytes between two rows of what fragments are made of: those that lanes of several rows read at once lie in different banks. */
export function readPitch(context: GridContext, schedule: GridSchedule, input: GridInput, read: StagedRead): number {
  const row = read.columns * bytesOf(read.dtype);
  if (!madeInRegisters(context, schedule, input)) return row;
  const atOnce = Math.max(PIECE_BYTES, (row * partsAtOnce(context, schedule)) / partsOf(context, schedule.tile));
  return row % (2 * atOnce) === 0 ? row + atOnce : row;
}

/** Bytes of shared memory of what an input is made of. */
export function stagedReadBytes(context: GridContext, schedule: GridSchedule, input: GridInput): number {
  const rows = extentOf(input.kept.axis, schedule.tile) * readStages(context, schedule);
  return stagedReads(context, schedule, input).reduce((bytes, read) => {
    const ring = rows * readPitch(context, schedule, input, read);
    return bytes + Math.ceil(ring / VIEW_ALIGNMENT) * VIEW_ALIGNMENT;
  }, 0);
}
