/** @file Random notation for property tests: any tree the parser can produce. */

import { DTYPES } from "../../abstraction/dtype.ts";
import {
  type Access,
  COMBINE_OPS,
  type Equation,
  type Expr,
  FUNCTIONS,
  type FunctionName,
} from "../../abstraction/expression.ts";
import fc from "./property.ts";

/** Plain names, and names that look like words of the notation. */
const NAMES = ["m", "n", "k", "stride", "x_1", "_", "e5", "max", "min", "sat", "f32", "round", "order", "android"];
const name = fc.constantFrom(...NAMES);
const functionName = fc.constantFrom(...(Object.keys(FUNCTIONS) as FunctionName[]));

/** The parser writes `-3` as one literal, so a negation never holds a literal; -0 is kept for floats. */
const literal = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: -9, max: 300 }) },
  { weight: 1, arbitrary: fc.double({ noNaN: true, noDefaultInfinity: true }) },
);

type Trees = { expr: Expr; access: Access };

const { expr, access } = fc.letrec<Trees>((tie) => ({
  expr: fc.oneof<fc.MaybeWeightedArbitrary<Expr>[]>(
    { depthSize: "small", maxDepth: 5 },
    fc.record({ kind: fc.constant("axis" as const), name }),
    fc.record({ kind: fc.constant("number" as const), value: literal }),
    tie("access"),
    fc.record({
      kind: fc.constant("binary" as const),
      op: fc.constantFrom("+" as const, "-" as const, "*" as const, "/" as const, "%" as const),
      left: tie("expr"),
      right: tie("expr"),
    }),
    fc.record({ kind: fc.constant("negate" as const), value: tie("expr").filter((e) => e.kind !== "number") }),
    fc.record({
      kind: fc.constant("cast" as const),
      dtype: fc.constantFrom(...DTYPES),
      saturate: fc.boolean(),
      value: tie("expr"),
    }),
    functionName.chain((fn) =>
      fc.record({
        kind: fc.constant("call" as const),
        fn: fc.constant(fn),
        args: fc.array(tie("expr"), { minLength: FUNCTIONS[fn], maxLength: FUNCTIONS[fn] }),
      }),
    ),
    fc.record({
      kind: fc.constant("compare" as const),
      op: fc.constantFrom("<" as const, "<=" as const, ">" as const, ">=" as const, "==" as const, "!=" as const),
      left: tie("expr"),
      right: tie("expr"),
    }),
    fc.record({
      kind: fc.constant("logic" as const),
      op: fc.constantFrom("and" as const, "or" as const),
      left: tie("expr"),
      right: tie("expr"),
    }),
    fc.record({
      kind: fc.constant("select" as const),
      condition: tie("expr"),
      whenTrue: tie("expr"),
      whenFalse: tie("expr"),
    }),
  ),
  access: fc.record({
    kind: fc.constant("access" as const),
    tensor: fc.oneof(name, fc.constantFrom("select", "where", "s8")),
    index: fc.array(tie("expr"), { maxLength: 3 }),
  }),
}));

export const anyExpr: fc.Arbitrary<Expr> = expr;

export const anyEquation: fc.Arbitrary<Equation> = fc
  .tuple(access, fc.constantFrom(...COMBINE_OPS), expr, fc.option(expr, { nil: undefined }))
  .map(([target, op, value, where]) => (where === undefined ? { target, op, value } : { target, op, value, where }));
