/**
 * @file Prints a loop nest as C for Metal: one self-contained source whose kernels take buffer surfaces, for Xe-HPG and
 * later; for Gen9 with other helpers of memory.
 *
 *     for (int step = cm_group_id(0); step < 448; step += cm_group_count(0)) {         for parallel p in 0..56, q_outer in 0..8
 *       const int p = step / 8, q_outer = step % 8;
 *       c0 = 0;                                                                       c{0} <- identity
 *       b0 = load_rows<int, 8, 8>(workspace, (w_tiled + 128 * r) * 1, 32);             b{0} <- w_tiled[128*r]
 *       c0 = cm_dpas<CM_PRECISION_S8, CM_PRECISION_U8, 8, 8>(c0, b0, a0);             c{0} <- dpas(a{0}, b{0})
 *
 * A thread of the nest is a thread group with one thread. It executes innermost scalar loops sixteen lanes at a time.
 * Its own memory is shared local memory; buffers of the workspace are parts of one surface. Emulation:
 * runtime/emulation/cm.h.
 *
 * The storage of kernels of mappings in C for Metal: tensors and buffers in surfaces, a thread's own memory in
 * shared local memory, tiles in registers.
 *
 *     const int w_tiled = 4096; // of workspace                          buffer w_tiled: s8[...] in workspace
 *     const uint c_results = cm_slm_alloc(512);                           buffer c_results: s32[128] of a thread
 *     b0 = load_rows<int, 1, 64>(workspace, w_tiled + 256 * r, 256);      b{0} <- w_tiled[256*r]
 *
 * Helper functions on sixteen lanes for kernels of mappings in C for Metal: elements of buffer surfaces and of
 * shared local memory, bounds, types. They call only functions that `cm/cm.h` documents for Xe-HPG and later
 * (`cm_load`, `cm_store`, ...).
 *
 *     gather<uchar>(b, 19 * k + n_lanes, n_lanes < 19)          an element for each lane where n < 19
 *
 * Values of scalar statements are vectors: one lane for each step of the loop that the lanes share.
 *
 *     f32(c[8*m + n]) * 0.5               (vector<float, 16>(gather_slm<int>(c, 8 * m + n_lanes, n_lanes < 19)) * 0.5f)
 *     n*8 + i < 19 and k < 37             (n * 8 + i_lanes < 19) & vector<ushort, 16>(k < 37)
 *
 * A lane holds small integers as `int` and all floats as `float`, rounded to their type where they are computed.
 */

import type { Extents } from "../../abstraction/affine.ts";
import { present, sumOf, upTo } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { bytesOf, type DType, isByteFloat, isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  axesIn,
  comparesElements,
  type Equation,
  type Expr,
  identityOf,
  printExpr,
} from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel, Launch } from "../../abstraction/kernel.ts";
import type { LoopNest, Scratch, Statement } from "../../abstraction/loop-nest.ts";
import { dwordRows } from "../../abstraction/memory-tile.ts";
import {
  axisName,
  block,
  type Code,
  code,
  join,
  list,
  Name,
  NOTHING,
  namesIn,
  skeleton,
  spell,
  tensorName,
} from "../../abstraction/source-text.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { boundedBy, C_WORDS, CExpressions, type Words } from "../c-expressions.ts";
import { argumentsOf, headOf, intrinsicLine, ownPrelude, type SourceNotes, workspaceOf } from "../cpp/cpp-frame.ts";
import { calledIn, type Helpers, helpersOf, replacedBy } from "../cpp/cpp-helpers.ts";
import { divisorOf } from "../short-index.ts";
import { SubgroupWriter } from "../subgroup/subgroup.ts";
import { dealtTo } from "../subgroup/subgroup-tasks.ts";
import { type Loop, type Named, namedIn, type Of, phasesOf } from "../walk.ts";
import { CM_HELPERS } from "./cm-helpers.ts";

/** A surface holds fewer bytes than this, since lane indices are signed. */
const SURFACE_BYTES = 2 ** 31;
/** The most shared local memory of a thread group. Intel oneAPI GPU Optimization Guide, Xe GPU Architecture. */
const SLM_BYTES = 64 * 1024;
const CACHE_LINE = 64;

/** The mask of the first lane. */
const ONLY = new Name("local", "first_lane");

// ---- values ---------------------------------------------------------------------------------------------------------------------

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

const WORKSPACE = new Name("local", "workspace");

type Held = "int" | "uint" | "float";

/** The type of a value in a lane during computation. */
const heldAs = (dtype: DType): Held => (dtype === "u32" ? "uint" : isInteger(dtype) ? "int" : "float");

/** A value. One that is the same in all lanes is a scalar. */
interface Value {
  readonly text: Code;
  readonly isScalar: boolean;
}

/** The lanes of a statement: the axis along the vector, if any, and the active lanes. */
interface Lanes {
  readonly axis: string | undefined;
  /** Undefined if all lanes are active. */
  readonly active: Code | undefined;
}

const lanesName = (axis: string): Name => axisName(axis).with("_lanes");

const CM_WORDS: Words = {
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

class CmValues extends CExpressions {
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

// ---- memory ---------------------------------------------------------------------------------------------------------------------

/** Bytes of a buffer in shared local memory: whole cache lines, so that the next one is aligned. */
const linesOf = (s: Scratch): number => CACHE_LINE * Math.ceil((s.elements * bytesOf(s.dtype)) / CACHE_LINE);

/** Declares buffers in shared local memory. A second `cm_slm_alloc` ends Intel's emulation, so all are parts of one allocation. */
function sharedLocal(own: readonly Scratch[]): Code[] {
  const [first] = own;
  if (!first) return [];
  const all = sumOf(own, (s) => linesOf(s));
  let from = 0;
  return [
    code`cm_slm_init(${all});`,
    ...own.map((s) => {
      const place = s === first ? code`cm_slm_alloc(${all})` : code`${tensorName(first.name)} + ${from}`;
      from += linesOf(s);
      return code`const uint ${tensorName(s.name)} = ${place};`;
    }),
  ];
}

const times = (factor: number, text: Code): Code => (factor === 1 ? text : code`${factor} * (${text})`);

/** @throws UsageError for more than a surface or shared local memory holds */
export function checkSizes(computation: Computation, nest: LoopNest): void {
  const surfaces = [
    ...argumentsOf(computation).map((a) => ({ name: a.tensor, bytes: a.elements * bytesOf(a.dtype) })),
    { name: "the workspace", bytes: workspaceOf(nest).bytes },
  ];
  for (const { name, bytes } of surfaces)
    if (bytes >= SURFACE_BYTES)
      throw new UsageError(
        `CM: ${name} has ${bytes} bytes, and a buffer surface fewer than 2^31`,
        "choose smaller extents",
      );
  const own = nest.scratch.filter((s) => s.scope === "local");
  const bytes = sumOf(own, (s) => linesOf(s));
  if (bytes > SLM_BYTES)
    throw new UsageError(
      `CM: a thread keeps ${bytes} bytes of its own, and shared local memory has ${SLM_BYTES}`,
      "choose a schedule with smaller blocks",
    );
}

/** Lanes of a vector of elements: the message width that both Xe-HPG and Xe-HPC support. */
const CM_LANES = 16;

const CM_MEMORY: Helpers = {
  gather: code`/* The elements of active lanes; 0 in the others. */
template <typename T> _GENX_ inline vector<T, 16> gather(SurfaceIndex surface, vector<int, 16> at, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at * (int)sizeof(T);
  vector<T, 16> lanes = 0;
  lanes.merge(cm_load<T>(surface, offsets, active), active);
  return lanes;
}
`,
  scatter: code`template <typename T> _GENX_ inline void scatter(SurfaceIndex surface, vector<int, 16> at, vector<T, 16> value, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at * (int)sizeof(T);
  cm_store<T>(surface, offsets, value, active);
}
`,
  gather_slm: code`/* The same in shared local memory, from a byte offset on. */
template <typename T> _GENX_ inline vector<T, 16> gather_slm(uint from, vector<int, 16> at, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at * (int)sizeof(T) + from;
  vector<T, 16> lanes = 0;
  lanes.merge(cm_load_slm<T>(offsets, active), active);
  return lanes;
}
`,
  scatter_slm: code`template <typename T> _GENX_ inline void scatter_slm(uint from, vector<int, 16> at, vector<T, 16> value, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at * (int)sizeof(T) + from;
  cm_store_slm<T>(offsets, value, active);
}
`,
  chosen: code`template <typename T> _GENX_ inline vector<T, 16> chosen(vector<ushort, 16> where, vector<T, 16> yes, vector<T, 16> no) {
  no.merge(yes, where);
  return no;
}
`,
  at_least: code`template <typename T> _GENX_ inline vector<T, 16> at_least(vector<T, 16> x, vector<T, 16> low) { /* keeps NaN */
  x.merge(low, x < low);
  return x;
}
`,
  at_most: code`template <typename T> _GENX_ inline vector<T, 16> at_most(vector<T, 16> x, vector<T, 16> high) { /* keeps NaN */
  x.merge(high, x > high);
  return x;
}
`,
  most: code`template <typename T> _GENX_ inline vector<T, 16> most(vector<T, 16> x, vector<T, 16> y) { /* NaN wins */
  y.merge(x, (x > y) | (x != x));
  return y;
}
`,
  least: code`template <typename T> _GENX_ inline vector<T, 16> least(vector<T, 16> x, vector<T, 16> y) { /* NaN wins */
  y.merge(x, (x < y) | (x != x));
  return y;
}
`,
  saturate: code`_GENX_ inline vector<int, 16> saturate(vector<float, 16> x, float low, float high) { /* NaN becomes 0 */
  x.merge(0.0f, x != x);
  x.merge(low, x < low);
  x.merge(high, x > high);
  return vector<int, 16>(x);
}
`,
  saturate_s32: code`_GENX_ inline vector<int, 16> saturate_s32(vector<float, 16> x) { /* a float can hold 2^31 but not 2^31 - 1 */
  vector<ushort, 16> beyond = x >= 2147483648.0f;
  vector<int, 16> whole = @saturate(x, -2147483648.0f, 2147483520.0f);
  whole.merge(2147483647, beyond);
  return whole;
}
`,
  half_of: code`/* Rounded to f16, to nearest, ties to even. */
_GENX_ inline vector<float, 16> half_of(vector<float, 16> x) {
  vector<half, 16> rounded = x;
  return vector<float, 16>(rounded);
}
`,
  bf16_of: code`/* Rounded to bf16, to nearest, ties to even. */
_GENX_ inline vector<float, 16> bf16_of(vector<float, 16> x) {
  vector<uint, 16> bits = x.format<uint>();
  vector<uint, 16> near = bits + 0x7fffu + ((bits >> 16) & 1u);
  near.merge(bits | 0x400000u, x != x);
  near = near & 0xffff0000u;
  return vector<float, 16>(near.format<float>());
}
`,
  tf32_of: code`/* Rounded to 10 bits of fraction, to nearest, ties to even. */
_GENX_ inline vector<float, 16> tf32_of(vector<float, 16> x) {
  vector<uint, 16> bits = x.format<uint>();
  vector<uint, 16> near = (bits + 0xfffu + ((bits >> 13) & 1u)) & 0xffffe000u;
  near.merge(bits, (bits & 0x7f800000u) == 0x7f800000u);
  return vector<float, 16>(near.format<float>());
}
`,
  float_of: code`/* A float whose last bit is odd where it differs from the integer, so that rounding it again equals rounding the integer. */
_GENX_ inline vector<float, 16> float_of(vector<int, 16> x) {
  vector<int, 16> high = x >> 8;
  high.merge(high | 1, (x & 255) != 0);
  vector<float, 16> whole = x;
  whole.merge(vector<float, 16>(high) * 256.0f, (x >= 16777216) | (x <= -16777216));
  return whole;
}
`,
  from_f16: code`_GENX_ inline vector<float, 16> from_f16(vector<ushort, 16> bits) {
  vector<half, 16> same = bits.format<half>();
  return vector<float, 16>(same);
}
`,
  to_f16: code`_GENX_ inline vector<ushort, 16> to_f16(vector<float, 16> x) {
  vector<half, 16> rounded = x;
  return vector<ushort, 16>(rounded.format<ushort>());
}
`,
  from_bf16: code`_GENX_ inline vector<float, 16> from_bf16(vector<ushort, 16> bits) {
  vector<uint, 16> whole = bits;
  whole = whole << 16;
  return vector<float, 16>(whole.format<float>());
}
`,
  to_bf16: code`_GENX_ inline vector<ushort, 16> to_bf16(vector<float, 16> x) { /* of a number that is already rounded */
  vector<uint, 16> bits = x.format<uint>();
  return vector<ushort, 16>(bits >> 16);
}
`,
  bits_as_float: code`_GENX_ inline float bits_as_float(uint bits) {
  vector<uint, 1> held = bits;
  vector<float, 1> same = held.format<float>();
  return same(0);
}
`,
};

// ---- Gen9 ---------------------------------------------------------------------------------------------------------------------

/*
 * What differs in C for Metal for Gen9, which lacks `cm_load` and `cm_store`: elements of dwords only, gathered and
 * scattered by the messages that Gen9 has.
 *
 *     gather<float>(b, 19 * k + n_lanes, n_lanes < 19)          scattered read of dwords at offsets in elements
 */

/** In place of the helpers of the same names for Xe-HPG and later. */
const GEN9_MEMORY: Helpers = {
  gather: code`/* The element of each lane that is active, 0 for the others. */
template <typename T> _GENX_ inline vector<T, 16> gather(SurfaceIndex surface, vector<int, 16> at, vector<ushort, 16> active) {
  vector<uint, 16> own = at;
  vector<uint, 16> offsets = 0;
  offsets.merge(own, active);
  vector<T, 16> read_lanes;
  read(surface, 0, offsets, read_lanes.template select<16, 1>(0));
  vector<T, 16> lanes = 0;
  lanes.merge(read_lanes, active);
  return lanes;
}
`,
  scatter: code`template <typename T> _GENX_ inline void scatter(SurfaceIndex surface, vector<int, 16> at, vector<T, 16> value, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at;
  SIMD_IF_BEGIN(active) {
    write(surface, 0, offsets, value);
  }
  SIMD_IF_END;
}
`,
  gather_slm: code`/* The same in shared local memory, from a byte on. */
template <typename T> _GENX_ inline vector<T, 16> gather_slm(uint from, vector<int, 16> at, vector<ushort, 16> active) {
  vector<ushort, 16> own = at;
  vector<ushort, 16> offsets = 0;
  offsets.merge(own, active);
  vector<T, 16> read_lanes;
  cm_slm_read(from, offsets, read_lanes);
  vector<T, 16> lanes = 0;
  lanes.merge(read_lanes, active);
  return lanes;
}
`,
  scatter_slm: code`template <typename T> _GENX_ inline void scatter_slm(uint from, vector<int, 16> at, vector<T, 16> value, vector<ushort, 16> active) {
  vector<ushort, 16> offsets = at;
  SIMD_IF_BEGIN(active) {
    cm_slm_write(from, offsets, value);
  }
  SIMD_IF_END;
}
`,
};

const NUMBERS = code`lane_numbers`;
const HELPERS: Helpers = replacedBy({ ...CM_HELPERS, ...CM_MEMORY }, helpersOf("_GENX_ inline"));
const GEN9_HELPERS: Helpers = replacedBy({ ...CM_HELPERS, ...GEN9_MEMORY }, HELPERS);

/** The kernels of a scheduled nest. @throws UsageError for what CM cannot express */
export function generateCm(computation: Computation, intrinsic: Intrinsic, nest: LoopNest, notes: SourceNotes): Kernel {
  return new CmWriter(computation, nest).kernel(intrinsic, notes);
}

class CmWriter extends SubgroupWriter {
  protected override readonly c: CmValues;

  /** @throws UsageError for more than a surface or shared local memory holds */
  constructor(computation: Computation, nest: LoopNest) {
    const c = new CmValues(computation, nest, CM_WORDS);
    super(CM_LANES, c);
    this.c = c;
    checkSizes(computation, nest);
  }

  /**
   * Declares buffers as offsets in the workspace, a thread's own memory as offsets in shared local memory, and
   * registers.
   */
  protected declarations(named: Named, mentioned: ReadonlySet<string>): Code[] {
    const { buffers } = workspaceOf(this.nest);
    const own = this.nest.scratch.filter((s) => s.scope === "local" && named.memory.has(s.name));
    return [
      ...sharedLocal(own),
      ...buffers
        .filter(({ name }) => mentioned.has(tensorName(name).id))
        .map(
          ({ name, dtype, offset }) =>
            code`const int ${tensorName(name)} = ${offset / bytesOf(dtype)}; /* of ${WORKSPACE} */`,
        ),
      ...(mentioned.has(ONLY.id) ? [code`vector<ushort, 16> ${ONLY} = 0;`, code`${ONLY}(0) = 1;`] : []),
      ...this.registersOf(named),
    ];
  }

  move({ kind, register, memory }: Of<"load" | "store">, extents: Extents): Code[] {
    const { operand } = this.heldAt(register);
    const bytes = bytesOf(operand.dtype);
    const index = this.c.index(memory.base, extents);
    const isOwn = this.c.isOwn(memory.buffer);
    const ptr = isOwn
      ? code`${tensorName(memory.buffer)} + ${times(bytes, index)}`
      : code`${this.c.surface(memory.buffer)}, ${times(bytes, code`${this.c.from(memory.buffer)}${index}`)}`;
    const dword = 4;
    const isAligned = [divisorOf(memory.base, extents), memory.stride].every((n) => (n * bytes) % dword === 0);
    if (!isAligned && kind === "store") internal(`sums of ${register.file} lie at no multiple of four bytes`);
    const { rows, dwords, stride } = dwordRows(operand, memory.stride * bytes, isAligned);
    const by = code`${isAligned ? "" : "_of_bytes"}${isOwn ? "_slm" : ""}`;
    const moved = this.moved(kind, register, ptr, memory.stride, {
      by,
      rows: code`${rows}, ${dwords}`,
      stride: code`${stride}`,
    });
    return [moved];
  }

  kernel(intrinsic: Intrinsic, notes: SourceNotes): Kernel {
    const { computation } = this.c;
    const phases = phasesOf(this.nest.body);
    const kernels = present([
      this.nest.prepare.length > 0 && this.kernelFunction(code`automap_prepare`, this.nest.prepare, true),
      ...phases.map((phase, i) => this.kernelFunction(code`automap_phase_${i}`, phase, false)),
    ]);
    const text = kernels.map((k) => k.text);
    const isGen9 = intrinsic.isa === "gen9";
    if (isGen9) checkGen9(computation, this.nest);
    const source = code`${headOf(computation, [intrinsicLine(intrinsic), ...notes.lines])}
#include <cm/cm.h>

static const uint ${NUMBERS}[${CM_LANES}] = {${list(upTo(CM_LANES).map((i) => code`${i}`))}};
${ownPrelude(intrinsic)}
${calledIn(text, isGen9 ? GEN9_HELPERS : HELPERS)}

${text}`;
    return {
      language: "cm",
      source: spell(source, "cm"),
      features: intrinsic.features,
      promises: intrinsic.mnemonic,
      arguments: argumentsOf(computation),
      launches: kernels.map((k) => k.launch),
      workspaceBytes: workspaceOf(this.nest).bytes,
    };
  }

  private kernelFunction(
    name: Code,
    body: readonly Statement[],
    once: boolean,
  ): { readonly text: Code; readonly launch: Launch } {
    const named = namedIn(body, this.nest);
    const text = this.bodyOf(body);
    const tensors = Object.keys(this.c.computation.tensors).filter((t) => named.memory.has(t));
    const workspace = workspaceOf(this.nest).buffers.some((b) => named.memory.has(b.name));
    const groups = once ? 1 : dealtTo(body, this.tasks);
    const surfaces = present([workspace && WORKSPACE, ...tensors.map((t) => tensorName(t))]);
    const parameters = surfaces.map((s) => code`SurfaceIndex ${s} [[type("buffer_t")]]`);
    const kernel = code`/* ${groups} thread groups of one thread${once ? ". Runs once, before the first call" : ""}. */
extern "C" _GENX_MAIN_ void ${name}(${list(parameters)}) {
  const int part = cm_group_id(0), parts = cm_group_count(0);
  ${this.declarations(named, namesIn(text))}
  ${text}
}
`;
    const launch: Launch = {
      function: skeleton(name),
      groups,
      arguments: tensors,
      ...(workspace && { workspace }),
      ...(once && { once }),
    };
    return { text: kernel, launch };
  }

  // ---- loops ------------------------------------------------------------------------------------------------------------------

  protected override sharedLoop({ axis, extent }: Loop, body: () => Code[]): Code[] {
    const name = axisName(axis);
    const numbers = lanesName(axis);
    const active = extent % CM_LANES === 0 ? undefined : code`${numbers.with("_inside")}`;
    return block(code`for (int ${name} = 0; ${name} < ${extent}; ${name} += ${CM_LANES}) {`, [
      code`vector<int, 16> ${numbers}(${NUMBERS});`,
      code`${numbers} += ${name};`,
      active && code`vector<ushort, 16> ${active} = ${numbers} < ${extent};`,
      ...this.c.within({ axis, active }, body),
    ]);
  }

  /** Fences, after which this thread reads what it has written. */
  protected override barriersOf(buffers: readonly string[]): Code[] {
    return present([
      buffers.some((b) => !this.c.isOwn(b)) && code`cm_fence();`,
      buffers.some((b) => this.c.isOwn(b)) && code`cm_slm_fence(CM_GLOBAL_COHERENT_FENCE);`,
    ]);
  }

  protected override bounded(helper: "at_least" | "at_most", bound: Code, other: Code): Code {
    const op = helper === "at_least" ? ">" : "<";
    return code`((${bound}) ${op} ${other} ? (${bound}) : ${other})`;
  }

  // ---- scalars ----------------------------------------------------------------------------------------------------------------

  protected override onOneLane(print: () => Code[]): Code[] {
    return this.c.within({ axis: undefined, active: code`${ONLY}` }, print);
  }

  protected override stored({ target, value, where }: Equation, dtype: DType, extents: Extents): Code[] {
    const place = this.c.placeOf(target, extents);
    const active = this.c.mask(present([where, ...place.guards]), extents) ?? code`vector<ushort, 16>(1)`;
    const at = this.c.laneIndex(place.at, extents);
    const stored = this.c.stored(value, dtype, extents);
    return [this.c.scattered(target.tensor, at, stored, active)];
  }
}

/** @throws UsageError for elements that are no dwords */
function checkGen9(computation: Computation, nest: LoopNest): void {
  const [narrow] = [...argumentsOf(computation), ...nest.scratch].filter((a) => bytesOf(a.dtype) !== 4);
  if (narrow)
    throw new UsageError(
      `CM for Gen9: elements of ${narrow.dtype}, and its scattered messages are of dwords`,
      "f32 or s32, or --language opencl",
    );
}
