/**
 * @file Prints expressions in C-family syntax, shared by all languages: indices, conditions, addresses, and values of
 * every type.
 *
 *     p*2+r-1                              p * 2 + r - 1
 *     f32(in[n,c,p-1]) * f32(w[k,c])       (float)((p - 1 >= 0 ? in[...] : 0.0f) * w[...])
 *
 * Bounds that the loops already guarantee are not tested.
 */

import { addressOf, boundsOf, type Extents } from "../abstraction/affine.ts";
import { byName, type Optional } from "../abstraction/collections.ts";
import { type Computation, memoryElements, type Tensor, tensorOf } from "../abstraction/computation.ts";
import { bytesOf, type DType, isByteFloat, isInteger, rangeOf } from "../abstraction/dtype.ts";
import { inside } from "../abstraction/elements.ts";
import { storesElsewhere } from "../abstraction/epilogue.ts";
import { internal } from "../abstraction/error.ts";
import {
  type Access,
  comparesElements,
  type Expr,
  extentOfBorder,
  type FloatFunction,
  identityOf,
  number,
  printExpr,
} from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { dimsOf, type LoopNest, type Scratch, storageOf } from "../abstraction/loop-nest.ts";
import { isShort } from "../abstraction/short-floats.ts";
import { axisName, type Code, code, join, list, type Name, NOTHING, tensorName } from "../abstraction/source-text.ts";
import { type DTypes, typeOf } from "../abstraction/typing.ts";
import { joinedDigits } from "./short-index.ts";

/** The flat address of an element, and the conditions for it to be inside its tensor (empty if the bounds prove it). */
export interface Place {
  readonly at: Expr;
  readonly guards: readonly Expr[];
}

/** The mask of all lanes of a warp. */
export const ALL_LANES = code`0xffffffffu`;

/** What a language writes in words of its own. */
export interface Words {
  /** Whether signed overflow is undefined whatever the compiler flags; sums that may overflow are then unsigned. */
  readonly overflowIsUndefined: boolean;
  readonly infinity: Code;
  /** A function of the library. */
  readonly library: (name: LibraryFunction, dtype: DType) => Code;
  /** A call of a function template: `clamp<int32_t>(x, 0, 255)`. */
  readonly called: (name: Generic, types: readonly GenericType[], values: readonly Code[]) => Code;
  /** The fused multiply-add function. */
  readonly fused: (dtype: DType) => Code;
  /** A shuffle of another lane's register: some lanes below or above, the butterfly partner, or a lane by number. */
  readonly shuffled: (how: Shuffle, name: Name, by: Code, group: number) => Code;
}

export type Shuffle = "up" | "down" | "xor" | "from";

/** The words of C++ and CUDA. */
export const C_WORDS: Words = {
  overflowIsUndefined: false,
  infinity: code`__builtin_inff()`,
  library: (name, dtype) => code`__builtin_${name}${dtype === "f64" ? "" : "f"}`,
  called: (name, types, values) => code`@${name}<${list(types.map((type) => code`${type}`))}>(${list(values)})`,
  fused: (dtype) => code`${dtype === "f64" ? "fma" : "fmaf"}`,
  shuffled: (how, name, by, group) => {
    const within = group < WARP ? code`, ${group}` : NOTHING;
    return code`__shfl_${how === "from" ? "" : (`${how}_` as const)}sync(${ALL_LANES}, ${name}, ${by}${within})`;
  },
};

/** The number of elements from which `int` indices do not suffice. */
const MANY = 2 ** 31;

/** Prints the expressions of one nest. */
export class CExpressions {
  readonly computation: Computation;
  readonly dtypes: DTypes;
  readonly nest: LoopNest;
  readonly words: Words;
  /** The type of indices, which can count every element. */
  readonly indexType: "int" | "long";
  readonly scratch: ReadonlyMap<string, Scratch>;

  /** @param others types of names that are neither tensors nor scratch nor vectors */
  constructor(computation: Computation, nest: LoopNest, words: Words = C_WORDS, others: DTypes = {}) {
    this.computation = computation;
    this.nest = nest;
    this.words = words;
    const sizes = [...Object.values(computation.tensors).map(memoryElements), ...nest.scratch.map((s) => s.elements)];
    this.indexType = sizes.some((n) => n >= MANY) ? "long" : "int";
    this.scratch = byName(nest.scratch);
    this.dtypes = Object.fromEntries([
      ...Object.values(computation.tensors).map((t) => [t.name, t.dtype] as const),
      ...[...nest.scratch, ...(nest.vectors ?? [])].map((s) => [s.name, s.dtype] as const),
      ...Object.entries(others),
    ]);
  }

  /** The name of a loop counter. */
  axis(name: string): Name {
    return axisName(name);
  }

  /** The name of a tensor or a buffer. */
  tensor(name: string): Code {
    return code`${tensorName(name)}`;
  }

  /** An index as C. `/` and `%` round down, as in C only for operands that are not negative. */
  index(e: Expr, extents: Extents): Code {
    switch (e.kind) {
      case "number":
        return code`${e.value}`;
      case "axis":
        return code`${this.axis(e.name)}`;
      case "negate":
        return code`-(${this.index(e.value, extents)})`;
      case "access":
        return code`${this.element(e, "s32", extents)}`;
      case "border":
        return code`@${e.how}_index(${this.index(e.index, extents)}, ${extentOfBorder(e)})`;
      case "binary": {
        const left = this.index(e.left, extents);
        const right = this.index(e.right, extents);
        if (e.op === "^") return code`((${left}) ^ (${right}))`;
        if (e.op === "+" || e.op === "-")
          return code`${left} ${e.op} ${e.right.kind === "binary" ? code`(${right})` : right}`;
        if (e.op === "*" || boundsOf(e.left, extents)[0] >= 0)
          return code`${inParentheses(left, e.left)} ${e.op} ${inParentheses(right, e.right)}`;
        return code`@${e.op === "/" ? "floor_div" : "floor_mod"}(${left}, ${right})`;
      }
      default:
        internal(`"${e.kind}" cannot stand in an index`);
    }
  }

  condition(e: Expr, extents: Extents): Code {
    if (e.kind === "logic")
      return code`(${this.condition(e.left, extents)} ${e.op === "and" ? "&&" : "||"} ${this.condition(e.right, extents)})`;
    if (e.kind === "compare" && comparesElements(e)) {
      const dtype = typeOf(e.left, this.dtypes) ?? typeOf(e.right, this.dtypes) ?? "f64";
      return code`${this.number(e.left, dtype, extents)} ${e.op} ${this.number(e.right, dtype, extents)}`;
    }
    if (e.kind === "compare") return code`${this.index(e.left, extents)} ${e.op} ${this.index(e.right, extents)}`;
    internal(`"${e.kind}" is no condition`);
  }

  placeOf({ tensor, index }: Access, extents: Extents): Place {
    const buffer = this.scratch.get(tensor);
    // A buffer that defines reads outside is indexed like a tensor; any other buffer has a single flat index.
    if (buffer && !buffer.outside) return { at: index[0] ?? number(0), guards: [] };
    const { dims } = this.described(tensor);
    const guards = (storesElsewhere(this.computation, tensor) ? [] : index).flatMap((e, d) =>
      inside(e, dims[d]?.extent ?? 0, extents),
    );
    return { at: this.flatOffset({ tensor, index }, extents), guards };
  }

  /** The dimensions of a tensor or a buffer, and where its elements lie. */
  protected described(name: string): Pick<Tensor, "dims" | "storage"> {
    const buffer = this.scratch.get(name);
    return buffer ? { dims: dimsOf(buffer), storage: storageOf(buffer) } : tensorOf(this.computation, name);
  }

  /** The offset of an element by the storage formula. */
  protected flatOffset({ tensor, index }: Pick<Access, "tensor" | "index">, extents: Extents): Expr {
    return joinedDigits(addressOf(this.described(tensor), index), extents);
  }

  /** The address and its conditions as text. */
  place(access: Access, extents: Extents): { at: Code; guards: Code[] } {
    const { at, guards } = this.placeOf(access, extents);
    return { at: this.index(at, extents), guards: guards.map((g) => this.condition(g, extents)) };
  }

  /** A value of the given type. Floats of 8 and 16 bits are held as their bits. */
  value(e: Expr, dtype: DType, extents: Extents): Code {
    switch (e.kind) {
      case "number":
        return this.literal(e.value, dtype);
      case "axis":
        return code`(int32_t)${this.axis(e.name)}`;
      case "access":
        return this.element(e, dtype, extents);
      case "select":
        return code`(${this.condition(e.condition, extents)} ? ${this.value(e.whenTrue, dtype, extents)} : ${this.value(e.whenFalse, dtype, extents)})`;
      case "cast": {
        // A literal has no type of its own: `sat_s8(200)` is 127.
        const from = typeOf(e.value, this.dtypes) ?? "f64";
        // s32(sat_u8(x)) is clamped but not narrowed, so its loop stays in vectors of 32 bits.
        if (e.dtype === "s32" && e.value.kind === "cast" && e.value.saturate && isInteger(from) && bytesOf(from) < 4) {
          const wide = typeOf(e.value.value, this.dtypes) ?? "f64";
          return this.saturated(this.value(e.value.value, wide, extents), wide, from, "s32");
        }
        return this.convert(this.value(e.value, from, extents), from, e.dtype, e.saturate);
      }
      case "negate":
        return this.computed(code`-${this.unsigned(this.number(e.value, dtype, extents), dtype)}`, dtype);
      case "binary":
        return this.arithmetic(e, dtype, extents);
      case "call": {
        const args = e.args.map((arg) => this.number(arg, dtype, extents));
        const [first = NOTHING, second = NOTHING] = args;
        const own = this.unsigned(first, dtype);
        const type = calculationType(dtype);
        switch (e.fn) {
          case "square":
            return this.computed(code`${own} * ${own}`, dtype);
          case "min":
          case "max": {
            const { helper, given } = boundedBy(e, first, second);
            return this.computed(this.words.called(helper, [type], given), dtype);
          }
          case "abs":
            if (!isInteger(dtype)) return this.computed(code`${this.words.library("fabs", dtype)}(${first})`, dtype);
            return this.computed(code`${first} < 0 ? -${own} : ${own}`, dtype);
          case "round":
            if (isInteger(dtype)) return this.computed(first, dtype);
            return this.computed(code`${this.words.library("rint", dtype)}(${first})`, dtype);
          default:
            return this.computed(code`${this.words.library(e.fn, dtype)}(${list(args)})`, dtype);
        }
      }
      default:
        internal(`"${e.kind}" is no value: ${printExpr(e)}`);
    }
  }

  /** A read of an element. Outside its tensor the result is the identity of the combine. */
  protected element(e: Access, dtype: DType, extents: Extents): Code {
    const { at, guards } = this.place(e, extents);
    const element = this.elementAt(e, at, extents, guards.length > 0);
    return guards.length === 0 ? element : code`(${allOf(guards)} ? ${element} : ${this.outside(e.tensor, dtype)})`;
  }

  /** The element at an address. @param _isTested whether conditions are tested around it */
  protected elementAt(e: Access, at: Code, extents: Extents, _isTested: boolean): Code {
    return code`${this.memory(e, extents)}[${at}]`;
  }

  /** The pointer that an access is relative to. */
  memory({ tensor }: Access, _extents: Extents): Code {
    return this.tensor(tensor);
  }

  /** The value of a read outside a tensor. */
  outside(tensor: string, dtype: DType): Code {
    return this.literal(identityOf(this.computation.equation.op, this.dtypes[tensor] ?? dtype), dtype);
  }

  /** A value in a type in which C can compute: floats of 8 and 16 bits become float. */
  protected number(e: Expr, dtype: DType, extents: Extents): Code {
    const own = typeOf(e, this.dtypes) ?? dtype;
    const text = this.value(e, own, extents);
    return isShort(own) ? this.plain(text, own) : code`(${text})`;
  }

  /** What memory holds of a type, as a number in which C can compute. */
  private plain(text: Code, dtype: DType): Code {
    return isShort(dtype) ? code`@from_${dtype}(${text})` : text;
  }

  private arithmetic({ op, left, right }: Extract<Expr, { kind: "binary" }>, dtype: DType, extents: Extents): Code {
    const a = this.number(left, dtype, extents);
    const b = this.number(right, dtype, extents);
    if (isInteger(dtype) && (op === "/" || op === "%")) {
      if (right.kind === "number" && right.value > 0) return this.computed(code`${a} ${op} ${b}`, dtype);
      return this.words.called(op === "/" ? "quotient" : "remainder", [C_TYPES[dtype]], [a, b]);
    }
    if (op === "%") return this.computed(code`${this.words.library("fmod", dtype)}(${a}, ${b})`, dtype);
    return this.computed(code`${this.unsigned(a, dtype)} ${op} ${this.unsigned(b, dtype)}`, dtype);
  }

  private readonly unsigned = (text: Code, dtype: DType) =>
    this.words.overflowIsUndefined ? unsigned(text, dtype) : text;

  /** Converts a computed number back to its type. */
  protected computed(text: Code, dtype: DType): Code {
    return ROUNDED.has(dtype) ? code`@to_${dtype}(${text})` : code`(${C_TYPES[dtype]})(${text})`;
  }

  private convert(text: Code, from: DType, to: DType, saturate: boolean): Code {
    if (from === to) return text;
    const plain = this.plain(text, from);
    if (ROUNDED.has(to)) {
      // Through float, rounded to odd, because float does not hold every double or 32-bit integer.
      const wide = from === "f64" || (isInteger(from) && bytesOf(from) === 4);
      const rounding = saturate && isByteFloat(to) ? code`@sat_to_${to}` : code`@to_${to}`;
      return wide ? code`${rounding}(@to_odd(${plain}))` : code`${rounding}((float)(${plain}))`;
    }
    if (!isInteger(to)) return code`(${C_TYPES[to]})(${plain})`;
    if (saturate) return this.saturated(text, from, to, to);
    // Floats are converted through a wider integer, whose low bits are the result.
    return isInteger(from) ? code`(${C_TYPES[to]})(${plain})` : code`(${C_TYPES[to]})(int64_t)(${plain})`;
  }

  /** A number clamped to the range of an integer type, as type `held`. */
  private saturated(text: Code, from: DType, to: DType, held: DType): Code {
    const [min, max] = rangeOf(to);
    if (isInteger(from)) {
      const between = from === "u32" || to === "u32" ? "int64_t" : "int32_t";
      return code`(${C_TYPES[held]})${this.words.called("clamp", [between], [text, code`${min}`, code`${max}`])}`;
    }
    const plain = this.plain(text, from);
    // Float cannot represent the ends of the 32-bit range.
    const wide = bytesOf(to) === 4 || from === "f64" ? "f64" : "f32";
    const types = [C_TYPES[held], to === "u32" ? "int64_t" : "int32_t", C_TYPES[wide]] as const;
    return this.words.called("saturate", types, [plain, this.literal(min, wide), this.literal(max, wide)]);
  }

  literal(value: number, dtype: DType): Code {
    if (isShort(dtype) && value === 0) return code`(${C_TYPES[dtype]})0`;
    if (isShort(dtype)) return code`@to_${dtype}(${this.literal(value, "f32")})`;
    if (!Number.isFinite(value)) return value > 0 ? this.words.infinity : code`-${this.words.infinity}`;
    if (isInteger(dtype)) return code`${value}`;
    // From 1e21 on, a number prints with an exponent and is a floating-point literal without `.0`.
    const text = Number.isInteger(value) && Math.abs(value) < 1e21 ? code`${value}.0` : code`${value}`;
    return dtype === "f64" ? text : code`${text}f`;
  }
}

/** The text of an index that may be a factor. */
const inParentheses = (text: Code, part: Expr): Code =>
  part.kind === "binary" || part.kind === "negate" ? code`(${text})` : text;

/** Conditions that must all hold. */
export function allOf(conditions: readonly Optional<Code>[]): Code {
  return join(conditions, code` && `);
}

/**
 * The same bits, computed unsigned where signed arithmetic might overflow. Products of u16 overflow `int`, to which C
 * promotes them.
 */
function unsigned(text: Code, dtype: DType): Code {
  return dtype === "s32" || dtype === "u16" ? code`(uint32_t)${text}` : text;
}

/** Types without arithmetic in C. Results are rounded to them. */
const ROUNDED: ReadonlySet<DType> = new Set(["e4m3", "e5m2", "bf16", "f16", "tf32"]);

type CType = (typeof C_TYPES)[DType];

/** Function templates of cpp-helpers.ts, and the types they are instantiated with. */
export type Generic = "at_least" | "at_most" | "most" | "least" | "clamp" | "saturate" | "quotient" | "remainder";
export type GenericType = CType | "int64_t";

/** Functions of the C library and of OpenCL C. */
type LibraryFunction = "fabs" | "rint" | "fmod" | FloatFunction;

/** The type in which C computes. */
function calculationType(dtype: DType): CType {
  return ROUNDED.has(dtype) ? "float" : C_TYPES[dtype];
}

/** The helper that computes a maximum or a minimum, and its arguments: with a constant bound one comparison suffices, which compiles to one instruction. */
export function boundedBy(
  { fn, args }: Extract<Expr, { kind: "call" }>,
  first: Code,
  second: Code,
): { readonly helper: "at_least" | "at_most" | "most" | "least"; readonly given: readonly Code[] } {
  const bound = fn === "max" ? "at_least" : "at_most";
  if (args[1]?.kind === "number") return { helper: bound, given: [first, second] };
  if (args[0]?.kind === "number") return { helper: bound, given: [second, first] };
  return { helper: fn === "max" ? "most" : "least", given: [first, second] };
}
