/**
 * @file The table of operators.
 *
 *     instantiate(operatorNamed("c2d"), { parameters: { stride: 2 } })
 */

import { namesOf } from "../abstraction/collections.ts";
import { suggestion, UsageError } from "../abstraction/error.ts";
import { CONVOLUTION } from "./convolution.ts";
import { INTERACTION } from "./interaction.ts";
import { LINEAR } from "./linear.ts";
import type { Operator } from "./operator.ts";
import { REDUCTION } from "./reduction.ts";
import { STENCIL } from "./stencil.ts";
import { TENSOR } from "./tensor.ts";

export { type OperandTypes, parseDataTypes, printDataTypes } from "./data-types.ts";
export {
  checkOperator,
  constantValues,
  defineOperator,
  type InstantiateOptions,
  instantiate,
  type Operator,
  type OperatorSpec,
  type Parameter,
} from "./operator.ts";

/** The table of operators: AMOS's fifteen, matrix products, convolutions, stencils, and the interaction of a recommendation model. */
export const OPERATORS: readonly Operator[] = [
  ...LINEAR,
  ...CONVOLUTION,
  ...REDUCTION,
  ...TENSOR,
  ...STENCIL,
  ...INTERACTION,
];

/** The operator of a name or an alias. @throws UsageError with the nearest name */
export function operatorNamed(nameOrAlias: string): Operator {
  const word = nameOrAlias.toLowerCase();
  const found = OPERATORS.find(({ name, aliases }) => name === word || aliases.includes(word));
  if (found) return found;
  const names = namesOf(OPERATORS);
  const known = [...names, ...OPERATORS.flatMap(({ aliases }) => aliases)];
  throw new UsageError(`unknown operator "${nameOrAlias}"`, suggestion(nameOrAlias, known));
}
