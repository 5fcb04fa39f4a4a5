/**
 * @file Values of scalar statements as vectors in C for Metal: one lane for each step of the loop that the lanes share.
 *
 *     f32(c[8*m + n]) * 0.5               (vector<float, 16>(gather_slm<int>(c, 8 * m + n_lanes, n_lanes < 19)) * 0.5f)
 *     n*8 + i < 19 and k < 37             (n * 8 + i_lanes < 19) & vector<ushort, 16>(k < 37)
 *
 * A lane holds small integers as `int` and all floats as `float`, rounded to their type where they are computed.
 */

import type { Extents } from "../../abstraction/affine.ts";
import { type DType, isByteFloat, isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  axesIn,
  comparesElements,
  type Expr,
  identityOf,
  printExpr,
} from "../../abstraction/expression.ts";
import { axisName, type Code, code, join, list, Name, NOTHING, tensorName } from "../../abstraction/source-text.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { boundedBy, C_WORDS, CExpressions, type Words } from "../c-expressions.ts";

/** The type of an element in memory. CM language specification, Data Types. */
const CM_TYPES = {
  u8: "uchar",
  s8: "char",
  u16: "ushort",
  s16: "short",
  u32: "uint",
  s32: "int",
  e4m3: "uchar",
  e5m2: "uchar",
  f16: "ushort",
  bf16: "ushort",
  tf32: "float",
  f32: "float",
  f64: "double",
} as const satisfies Record<DType, string>;

export const WORKSPACE = new Name("local", "workspace");

type Held = "int" | "uint" | "float";

/** The type of a value in a lane during computation. */
const heldAs = (dtype: DType): Held => (dtype === "u32" ? "uint" : isInteger(dtype) ? "int" : "float");

/** A value. One that is the same in all lanes is a scalar. */
interface Value {
  readonly text: Code;
  readonly isScalar: boolean;
}

/** The lanes of a statement: the axis along the vector, if any, and the active lanes. */
export interface Lanes {
  readonly axis: string | undefined;
  /** Undefined if all lanes are active. */
  readonly active: Code | undefined;
}

export const lanesName = (axis: string): Name => axisName(axis).with("_lanes");

export const CM_WORDS: Words = {
  ...C_WORDS,
  called: (name) => {
    internal(`${name} is no function of lanes`);
  },
  library: (name) => {
    throw new UsageError(
      `CM: no documented function computes ${name} as exactly as the equation says`,
      "--language opencl has it, or leave it to another kernel",
    );
  },
};

export class CmValues extends CExpressions {
  private lanes: Lanes = { axis: undefined, active: undefined };

  /** Whether a buffer is a thread's own memory. */
  isOwn(buffer: string): boolean {
    return this.scratch.get(buffer)?.scope === "local";
  }

  surface(buffer: string): Code {
    return code`${this.scratch.has(buffer) ? WORKSPACE : tensorName(buffer)}`;
  }

  /** The offset of a buffer in its surface, to prefix an index. */
  from(buffer: string): Code {
    return this.scratch.has(buffer) ? code`${tensorName(buffer)} + ` : NOTHING;
  }

  private gathered(tensor: string, at: Code, active: Code): Code {
    const type = CM_TYPES[this.dtypes[tensor] ?? "f32"];
    return this.isOwn(tensor)
      ? code`@gather_slm<${type}>(${tensorName(tensor)}, ${at}, ${active})`
      : code`@gather<${type}>(${this.surface(tensor)}, ${this.from(tensor)}${at}, ${active})`;
  }

  scattered(tensor: string, at: Code, value: Code, active: Code): Code {
    const type = CM_TYPES[this.dtypes[tensor] ?? "f32"];
    return this.isOwn(tensor)
      ? code`@scatter_slm<${type}>(${tensorName(tensor)}, ${at}, ${value}, ${active});`
      : code`@scatter<${type}>(${this.surface(tensor)}, ${this.from(tensor)}${at}, ${value}, ${active});`;
  }

  override axis(name: string): Name {
    return name === this.lanes.axis ? lanesName(name) : super.axis(name);
  }

  override index(e: Expr, extents: Extents): Code {
    if (e.kind === "border" && this.varies(e))
      throw new UsageError(`CM: ${printExpr(e)} leads lanes back from a border, for which it has no words`);
    return super.index(e, extents);
  }

  /** Prints code for these lanes. */
  within<T>(lanes: Lanes, print: () => T): T {
    const before = this.lanes;
    this.lanes = lanes;
    try {
      return print();
    } finally {
      this.lanes = before;
    }
  }

  /** A value to store: a vector of the type in memory. */
  stored(e: Expr, dtype: DType, extents: Extents): Code {
    const value = this.whole(this.laneValue(e, dtype, extents), dtype);
    if (dtype === "f16" || dtype === "bf16") return code`@to_${dtype}(${value})`;
    const type = CM_TYPES[dtype];
    return type === heldAs(dtype) ? value : code`vector<${type}, 16>(${value})`;
  }

  /** An index as a vector with one entry per lane. */
  laneIndex(e: Expr, extents: Extents): Code {
    const text = this.index(e, extents);
    return this.varies(e) ? text : code`vector<int, 16>(${text})`;
  }

  /** The mask of lanes for which all conditions hold; undefined without conditions. */
  mask(conditions: readonly Expr[], extents: Extents): Code | undefined {
    const terms = [...(this.lanes.active ? [this.lanes.active] : []), ...conditions.map((c) => this.test(c, extents))];
    if (terms.length === 0) return undefined;
    return terms.length === 1 ? terms[0] : code`vector<ushort, 16>(${join(terms, code` & `)})`;
  }

  private varies(e: Expr): boolean {
    const { axis } = this.lanes;
    return axis !== undefined && axesIn(e).includes(axis);
  }

  /** A condition as a vector of ushort. */
  private test(e: Expr, extents: Extents): Code {
    if (e.kind === "logic")
      return code`vector<ushort, 16>(${this.test(e.left, extents)} ${e.op === "and" ? "&" : "|"} ${this.test(e.right, extents)})`;
    if (e.kind !== "compare") internal(`"${e.kind}" is no condition`);
    if (comparesElements(e)) {
      const dtype = typeOf(e.left, this.dtypes) ?? typeOf(e.right, this.dtypes) ?? "f32";
      const side = (part: Expr): Code => this.whole(this.laneValue(part, this.own(part, dtype), extents), dtype);
      return code`(${side(e.left)} ${e.op} ${side(e.right)})`;
    }
    const text = code`${this.index(e.left, extents)} ${e.op} ${this.index(e.right, extents)}`;
    return this.varies(e) ? code`(${text})` : code`vector<ushort, 16>((ushort)(${text}))`;
  }

  private own(e: Expr, dtype: DType): DType {
    return typeOf(e, this.dtypes) ?? dtype;
  }

  private whole({ text, isScalar }: Value, dtype: DType): Code {
    return isScalar ? code`vector<${heldAs(dtype)}, 16>(${text})` : text;
  }

  private laneValue(e: Expr, dtype: DType, extents: Extents): Value {
    if (dtype === "f64" || isByteFloat(dtype))
      throw new UsageError(`CM: ${printExpr(e)} is ${dtype}, which these kernels do not hold`);
    switch (e.kind) {
      case "number":
        return { text: this.constant(e.value, dtype), isScalar: true };
      case "axis":
        return { text: code`${this.axis(e.name)}`, isScalar: !this.varies(e) };
      case "access":
        return lane(this.read(e, dtype, extents));
      case "select": {
        const part = (v: Expr): Code => this.whole(this.laneValue(v, dtype, extents), dtype);
        const values = [this.test(e.condition, extents), part(e.whenTrue), part(e.whenFalse)];
        return lane(code`@chosen<${heldAs(dtype)}>(${list(values)})`);
      }
      case "cast": {
        const from = this.own(e.value, "f32");
        return this.cast(this.laneValue(e.value, from, extents), from, e.dtype, e.saturate);
      }
      case "negate": {
        const { text, isScalar } = this.operand(e.value, dtype, extents);
        return this.rounded({ text: code`(-${text})`, isScalar }, dtype);
      }
      case "binary":
        return this.binary(e, dtype, extents);
      case "call":
        return this.function(e, dtype, extents);
      default:
        internal(`"${e.kind}" is no value: ${printExpr(e)}`);
    }
  }

  private operand(e: Expr, dtype: DType, extents: Extents): Value {
    return this.laneValue(e, this.own(e, dtype), extents);
  }

  private binary(e: Extract<Expr, { kind: "binary" }>, dtype: DType, extents: Extents): Value {
    const a = this.operand(e.left, dtype, extents);
    const b = this.operand(e.right, dtype, extents);
    const isDivision = e.op === "/" || e.op === "%";
    if (isDivision && isInteger(dtype) && !(e.right.kind === "number" && e.right.value > 0))
      throw new UsageError(`CM: ${printExpr(e)} divides integers by what is no positive constant`);
    if (e.op === "%" && !isInteger(dtype)) CM_WORDS.library("fmod", dtype);
    return this.rounded({ text: code`(${a.text} ${e.op} ${b.text})`, isScalar: a.isScalar && b.isScalar }, dtype);
  }

  private function(e: Extract<Expr, { kind: "call" }>, dtype: DType, extents: Extents): Value {
    const args = e.args.map((arg) => this.whole(this.operand(arg, dtype, extents), dtype));
    const [first = code`0`, second = code`0`] = args;
    const type = heldAs(dtype);
    switch (e.fn) {
      case "square":
        return this.rounded(lane(code`(${first} * ${first})`), dtype);
      case "min":
      case "max": {
        const { helper, given } = boundedBy(e, first, second);
        return lane(code`@${helper}<${type}>(${list(given)})`);
      }
      case "abs":
        return this.rounded(lane(code`cm_abs<${type}>(${first})`), dtype);
      case "round":
      case "floor":
      case "ceil": {
        if (isInteger(dtype)) return lane(first);
        const name = e.fn === "round" ? code`cm_rnde` : e.fn === "floor" ? code`cm_rndd` : code`cm_rndu`;
        return lane(code`${name}<float>(${first})`);
      }
      default:
        return lane(CM_WORDS.library(e.fn, dtype));
    }
  }

  /** Rounds a computed value to its type. */
  private rounded({ text, isScalar }: Value, dtype: DType): Value {
    const whole = (): Code => this.whole({ text, isScalar }, dtype);
    switch (dtype) {
      case "f16":
        return lane(code`@half_of(${whole()})`);
      case "bf16":
        return lane(code`@bf16_of(${whole()})`);
      case "tf32":
        return lane(code`@tf32_of(${whole()})`);
      case "u8":
      case "s8":
      case "u16":
      case "s16":
        return lane(code`vector<int, 16>(vector<${CM_TYPES[dtype]}, 16>(${whole()}))`);
      default:
        return { text, isScalar };
    }
  }

  private cast(value: Value, from: DType, to: DType, saturate: boolean): Value {
    if (from === to) return value;
    if (to === "f64" || isByteFloat(to)) throw new UsageError(`CM: kernels of mappings hold no ${to}`);
    const source = heldAs(from);
    const held = heldAs(to);
    const whole = this.whole(value, from);
    if (held === "float") {
      if (source === "float") return this.rounded(value, to);
      const isWide = from === "s32" || from === "u32";
      if (isWide && to !== "f32" && from === "u32")
        throw new UsageError(`CM: no conversion of u32 to ${to} rounds once`);
      const float = isWide && to !== "f32" ? code`@float_of(${whole})` : code`vector<float, 16>(${whole})`;
      return this.rounded(lane(float), to);
    }
    if (!saturate) {
      const integer = source === held ? whole : code`vector<${held}, 16>(${whole})`;
      return this.rounded(lane(integer), to);
    }
    const [low, high] = rangeOf(to);
    if (source === "float") {
      if (to === "s32") return lane(code`@saturate_s32(${whole})`);
      if (to === "u32") throw new UsageError("CM: no conversion of floats to u32 saturates");
      return lane(code`@saturate(${whole}, ${this.constant(low, "f32")}, ${this.constant(high, "f32")})`);
    }
    if (source === "uint" || held === "uint") throw new UsageError(`CM: no conversion of ${from} to ${to} saturates`);
    const bound = (n: number): Code => code`vector<int, 16>(${n})`;
    return lane(code`@at_most<int>(@at_least<int>(${whole}, ${bound(low)}), ${bound(high)})`);
  }

  private read(e: Access, dtype: DType, extents: Extents): Code {
    const own = this.dtypes[e.tensor] ?? dtype;
    const { at, guards } = this.placeOf(e, extents);
    const inside = this.mask(guards, extents) ?? code`vector<ushort, 16>(1)`;
    const memory = this.gathered(e.tensor, this.laneIndex(at, extents), inside);
    const element =
      own === "f16" || own === "bf16"
        ? code`@from_${own}(${memory})`
        : CM_TYPES[own] === heldAs(own)
          ? memory
          : code`vector<${heldAs(own)}, 16>(${memory})`;
    const outside = identityOf(this.computation.equation.op, own);
    if (guards.length === 0 || outside === 0) return element;
    const values = [inside, element, code`vector<${heldAs(own)}, 16>(${this.constant(outside, own)})`];
    return code`@chosen<${heldAs(own)}>(${list(values)})`;
  }

  private constant(value: number, dtype: DType): Code {
    if (!Number.isFinite(value)) {
      const bits = value > 0 ? code`0x7f800000` : code`0xff800000`;
      return code`@bits_as_float(${bits})`;
    }
    const text = this.literal(value, isInteger(dtype) ? dtype : "f32");
    return dtype === "u32" ? code`${text}u` : text;
  }
}

const lane = (text: Code): Value => ({ text, isScalar: false });
