/**
 * @file Prints expressions with the functions of `harness/arithmetic.h`, for programs that check kernels.
 *
 *     f32(a[i,k]) * f32(b[k,j])      multiply<f32>(f32::wrap(read_a(i, k)), f32::wrap(read_b(k, j)))
 */

import { type DType, isInteger, wrap } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  type CombineOp,
  comparesElements,
  type Expr,
  extentOfBorder,
} from "../../abstraction/expression.ts";
import { axisName, type Code, code, list, Name } from "../../abstraction/source-text.ts";
import { type DTypes, typeOf } from "../../abstraction/typing.ts";

export const readName = (tensor: string): Name => new Name("tensor", `read_${tensor}`, `read of ${tensor}`);

/** An index or a condition as C++. */
export function printIndex(e: Expr, named: (axis: string) => Code | Name = axisName): Code {
  const print = (part: Expr): Code => printIndex(part, named);
  switch (e.kind) {
    case "number":
      return code`Int(${e.value})`;
    case "axis":
      return code`${named(e.name)}`;
    case "negate":
      return code`-(${print(e.value)})`;
    case "access":
      return code`Int(${printRead(e)})`;
    case "border":
      return code`${`${e.how}_index` as const}(${print(e.index)}, ${extentOfBorder(e)})`;
    case "binary": {
      const left = print(e.left);
      const right = print(e.right);
      if (e.op === "/") return code`floor_divide(${left}, ${right})`;
      if (e.op === "%") return code`floor_remainder(${left}, ${right})`;
      return code`(${left} ${e.op} ${right})`;
    }
    case "compare":
      return code`(${print(e.left)} ${e.op} ${print(e.right)})`;
    case "logic":
      return code`(${print(e.left)} ${e.op === "and" ? "&&" : "||"} ${print(e.right)})`;
    default:
      internal(`"${e.kind}" cannot stand in an index`);
  }
}

const BINARY = { "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder_of" } as const;

/**
 * A value as the interpreter computes it, in terms of `arithmetic.h`; an interval, in terms of `intervals.h`.
 * @param uncertain the tensor whose elements are read as intervals
 */
export function printValue(e: Expr, dtypes: DTypes, expected: DType, uncertain?: string): Code {
  const dtype = typeOf(e, dtypes) ?? expected;
  const print = (part: Expr): Code => printValue(part, dtypes, dtype, uncertain);
  const known = (value: Code): Code => (uncertain === undefined ? value : code`exactly(double(${value}))`);
  switch (e.kind) {
    case "number":
      return known(literal(isInteger(dtype) && !Number.isInteger(e.value) ? e.value : wrap(dtype, e.value), dtype));
    case "axis":
      return known(code`${axisName(e.name)}`);
    case "access":
      return e.tensor === uncertain ? printRead(e) : known(printRead(e));
    case "cast":
      return code`${e.saturate ? "clamped_to" : "cast_to"}<${e.dtype}>(${printValue(e.value, dtypes, "f64", uncertain)})`;
    case "negate":
      return code`negate<${dtype}>(${print(e.value)})`;
    case "binary":
      if (e.op === "^") internal(`"^" stands in storage formulas only`);
      return code`${BINARY[e.op]}<${dtype}>(${print(e.left)}, ${print(e.right)})`;
    case "call": {
      const args = list(e.args.map(print));
      switch (e.fn) {
        case "min":
          return code`least(${args})`;
        case "max":
          return code`most(${args})`;
        case "abs":
          return code`absolute<${dtype}>(${args})`;
        case "round":
          return code`round_even(${args})`;
        case "square":
          return code`square<${dtype}>(${args})`;
        default:
          return code`${`${e.fn}_of` as const}<${dtype}>(${args})`;
      }
    }
    case "select":
      return code`(${printCondition(e.condition, dtypes)} ? ${print(e.whenTrue)} : ${print(e.whenFalse)})`;
    case "border":
    case "compare":
    case "logic":
      return internal("a condition is not a value");
    default:
      return e satisfies never;
  }
}

/** The condition of a select, which may compare elements. */
function printCondition(e: Expr, dtypes: DTypes): Code {
  if (e.kind === "logic")
    return code`(${printCondition(e.left, dtypes)} ${e.op === "and" ? "&&" : "||"} ${printCondition(e.right, dtypes)})`;
  if (e.kind !== "compare" || !comparesElements(e)) return printIndex(e);
  const dtype = typeOf(e.left, dtypes) ?? typeOf(e.right, dtypes) ?? "f64";
  return code`(${printValue(e.left, dtypes, dtype)} ${e.op} ${printValue(e.right, dtypes, dtype)})`;
}

function printRead({ tensor, index }: Access): Code {
  return code`${readName(tensor)}(${list(index.map((e) => printIndex(e)))})`;
}

/** Adds a value `v` to the running fold `sum`. */
export function fold(op: CombineOp, dtype: DType): Code {
  switch (op) {
    case "=":
      return code`v`;
    case "+=":
      return isInteger(dtype) ? code`${dtype}::wrap(sum + v)` : code`sum + v`;
    case "sat+=":
      return code`sum + v`;
    case "max=":
      return code`most(sum, v)`;
    case "min=":
      return code`least(sum, v)`;
    default:
      return op satisfies never;
  }
}

/** Combines the fold with the target's previous value, `old`. */
export function join_(op: CombineOp, dtype: DType): Code {
  switch (op) {
    case "=":
      return code`${dtype}::wrap(sum)`;
    case "+=":
      return code`${dtype}::wrap(old + sum)`;
    case "sat+=":
      return code`${dtype}::saturate(old + sum)`;
    case "max=":
      return code`most(old, sum)`;
    case "min=":
      return code`least(old, sum)`;
    default:
      return op satisfies never;
  }
}

/** A number of the given type. */
export function literal(value: number, dtype: DType): Code {
  if (value === Number.POSITIVE_INFINITY) return code`double(infinity)`;
  if (value === Number.NEGATIVE_INFINITY) return code`double(-infinity)`;
  if (Number.isNaN(value)) return code`double(not_a_number)`;
  if (isInteger(dtype) && Number.isInteger(value)) return code`Int(${value === 0 ? 0 : value})`;
  return Object.is(value, -0) ? code`double(-0.0)` : code`double(${value})`;
}
