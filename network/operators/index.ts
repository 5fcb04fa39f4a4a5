/** @file The table of supported network operators, by ONNX's names. Others are refused with the node's name. */

import { entryOf } from "../../abstraction/collections.ts";
import { ATTENTION } from "./attention.ts";
import { CHOICES } from "./choice.ts";
import { COMPARISONS } from "./compare.ts";
import { CONTROL } from "./control.ts";
import { CONVOLUTIONS } from "./convolution.ts";
import { overIntegers } from "./dequantised.ts";
import { ELEMENTWISE } from "./elementwise.ts";
import { LOSSES } from "./loss.ts";
import { MOVES } from "./move.ts";
import { NARROW_PRODUCTS } from "./narrow-product.ts";
import { PLACES } from "./place.ts";
import { POOLING } from "./pooling.ts";
import { PRODUCTS } from "./product.ts";
import { QUANTISED } from "./quantised.ts";
import { RECURRENT } from "./recurrent.ts";
import { REDUCTIONS_AND_NORMS } from "./reduction.ts";
import { RESIZING } from "./resize.ts";
import { SAMPLES } from "./sample.ts";
import { SCATTERS } from "./scatter.ts";
import { SHAPES } from "./shape.ts";
import type { LowerNode, OperatorTable } from "./table.ts";

const GROUPS: readonly (readonly [summary: string, table: OperatorTable])[] = [
  ["convolutions", CONVOLUTIONS],
  ["products", { ...PRODUCTS, ...NARROW_PRODUCTS }],
  ["attention", ATTENTION],
  ["recurrent layers", RECURRENT],
  ["pooling", POOLING],
  ["element by element", ELEMENTWISE],
  ["comparisons and choices", COMPARISONS],
  ["reductions and normalisation", { ...REDUCTIONS_AND_NORMS, ...PLACES }],
  ["losses", LOSSES],
  ["moves of elements", { ...MOVES, ...CHOICES, ...SCATTERS }],
  ["resizing", { ...RESIZING, ...SAMPLES }],
  ["shapes and constants", SHAPES],
  ["branches and loops", CONTROL],
  ["quantised", QUANTISED],
];

const ALL: ReadonlyMap<string, LowerNode> = new Map(GROUPS.flatMap(([, table]) => Object.entries(overIntegers(table))));

/** What operators select whose outputs have as many elements as the run decides. */
const SELECTED: Readonly<Record<string, string>> = {
  Compress: "elements",
  NonMaxSuppression: "boxes",
  Unique: "different elements",
};

/** Why an operator is refused that can have no row in the table. */
export function refusalOf(name: string): string | undefined {
  const selected = entryOf(SELECTED, name);
  return (
    selected &&
    `the number of ${selected} that it selects is known only when the network runs, and sizes are fixed before`
  );
}

export const networkOperatorNamed = (name: string): LowerNode | undefined => ALL.get(name);

/** Attributes without effect on the result. Any other attribute that an operator does not read is refused. */
export const HARMLESS: ReadonlyMap<string, readonly string[]> = new Map([
  ["BatchNormalization", ["momentum"]],
  // Saturation affects only 8-bit floats, which are not supported.
  ["Cast", ["saturate"]],
  ["CastLike", ["saturate"]],
  ["Dropout", ["ratio", "seed"]],
  ["QuantizeLinear", ["saturate"]],
]);

/** Names of all operators, sorted. */
export const NETWORK_OPERATORS: readonly string[] = [...ALL.keys()].sort();

/** The names grouped by purpose, for lists. */
export const NETWORK_OPERATOR_GROUPS: readonly { readonly summary: string; readonly names: readonly string[] }[] =
  GROUPS.map(([summary, table]) => ({ summary, names: Object.keys(table).sort() }));
