/**
 * @file Rows of results as AVX-512 registers: a loop over the elements of a scratch block becomes 16 lanes an
 * instruction.
 *
 *     for n_inner in 0..16
 *       res[p,16*k_outer+n_inner] = sat_u8(round(max(f32(c_results[16*m_inner+n_inner]) * scale[16*k_outer+n_inner], 0)))
 *
 *     ->  _mm_storeu_si128((__m128i*)(res + ...), _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(_mm512_max_ps(_mm512_mul_ps(
 *           _mm512_cvtepi32_ps(_mm512_loadu_si512(c_results + ...)), _mm512_loadu_ps(scale + ...)), _mm512_setzero_ps()))));
 *
 * Every element is held in a 32-bit lane: integers of 8 and 16 bits as s32, 16-bit floats as f32. The result equals
 * that of c-expressions.ts bit for bit: nothing is fused, and every operation is rounded to its type.
 *
 * Without AVX-512, rows of narrow results are two loops that a compiler vectorises with full vectors: computed in 32 bits first, then narrowed.
 *
 *     for (long n_inner = 0; n_inner < 16; n_inner++) {
 *       res[...] = (uint8_t)...;
 *     }                                ->  { int32_t res_wide[16];
 *                                            for (...) res_wide[n_inner] = ...;
 *                                            for (...) res[...] = (uint8_t)(res_wide[n_inner]); }
 *
 * In a single loop g++ uses 16-byte vectors throughout and takes 2 to 3 times as long (requantisation of 14 tiles, g++
 * 12, Xeon with AVX-512, 2026-11-21).
 */

import type { Extents } from "../../abstraction/affine.ts";
import { namesOf } from "../../abstraction/collections.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { bitsOf, bytesOf, type DType, isInteger, rangeOf } from "../../abstraction/dtype.ts";
import {
  access,
  accessesIn,
  axesIn,
  axis,
  type Equation,
  type Expr,
  isFloatFunction,
} from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { type Code, code, indented, NOTHING, skeleton, tensorName } from "../../abstraction/source-text.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { allOf, CExpressions } from "../c-expressions.ts";
import type { LaneContext, Part } from "../lane-printer.ts";
import type { LaneOperation, LanePlace } from "../vector-expressions.ts";
import type { Loop } from "../walk.ts";
import { X86Lanes } from "./lanes-x86.ts";

/** Shorter rows are not worth two loops; longer ones would need too many cache lines. */
const ROW = { least: 8, most: 64 } as const;

/** The lines that replace a loop; undefined if it does not store computed values of a narrow type. */
export function wideRow({ axis, extent, body }: Loop, c: CExpressions, extents: Extents): Code[] | undefined {
  const [statement] = body;
  if (extent < ROW.least || extent > ROW.most || body.length !== 1 || statement?.kind !== "scalar") return undefined;
  const { target, op, value, where } = statement.equation;
  const dtype = c.dtypes[target.tensor];
  if (op !== "=" || where !== undefined || dtype === undefined || value.kind !== "cast") return undefined;
  const wide = wideOf(value, dtype, c);
  if (wide === undefined) return undefined;
  const { at, guards } = c.place(target, extents);
  if (guards.length > 0) return undefined;
  const name = tensorName(target.tensor).with("_wide");
  const element = code`${name}[${c.axis(axis)}]`;
  const held = c.value(wide.value, wide.dtype, extents);
  const narrow = isInteger(dtype) ? code`(${C_TYPES[dtype]})(${element})` : code`@to_${dtype}(${element})`;
  const each = code`for (long ${c.axis(axis)} = 0; ${c.axis(axis)} < ${extent}; ${c.axis(axis)}++)`;
  return [
    code`{ ${C_TYPES[wide.dtype]} ${name}[${extent}];`,
    code`  ${each} ${element} = ${held};`,
    code`  ${each} ${c.tensor(target.tensor)}[${at}] = ${narrow};`,
    code`}`,
  ];
}

/** The part that is computed in 32 bits, and its type; undefined for values that need no computation. */
function wideOf(
  value: Extract<Expr, { kind: "cast" }>,
  dtype: DType,
  c: CExpressions,
): { readonly value: Expr; readonly dtype: DType } | undefined {
  if (bytesOf(dtype) >= 4 || value.value.kind === "access") return undefined;
  if (isInteger(dtype)) return { value: { kind: "cast", dtype: "s32", saturate: false, value }, dtype: "s32" };
  return dtype === "bf16" && typeOf(value.value, c.dtypes) === "f32" ? { value: value.value, dtype: "f32" } : undefined;
}

/** Longer rows, beyond four registers, stay a loop. */
const MOST_LANES = 64;

/** With fewer elements a vector does not pay. */
const FEWEST_LANES = 2;

/** Types that 32-bit lanes can hold. */
const HELD: ReadonlySet<DType> = new Set(["u8", "s8", "u16", "s16", "s32", "bf16", "f16", "f32"]);

const NEAREST = code`_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC`;

type Cast = Extract<Expr, { kind: "cast" }>;

export class Avx512Rows extends X86Lanes {
  private readonly local: ReadonlySet<string>;
  /** The buffer for a row of results that are not contiguous in the output. */
  private readonly waiting: string;

  /** @param expressions prints the scalars in rows */
  constructor(
    c: CExpressions,
    expressions = (within: LoopNest): CExpressions => new CExpressions(c.computation, within),
  ) {
    const { nest } = c;
    const { name, dtype } = outputOf(c.computation);
    let row = `${name}_row`;
    while (Object.hasOwn(c.dtypes, row)) row += "_";
    const waiting = { name: row, dtype, elements: MOST_LANES, scope: "local" } as const;
    super(expressions({ ...nest, scratch: [...nest.scratch, waiting] }), false);
    this.local = new Set(namesOf(nest.scratch.filter((s) => s.scope === "local")));
    this.waiting = waiting.name;
  }

  /** The lines that replace a loop; undefined if it does not store a row of results, or if lanes cannot compute it. */
  override row(loop: Loop, extents: Extents): Code[] | undefined {
    const { axis: lane, extent, body } = loop;
    const [statement] = body;
    if (extent < FEWEST_LANES || extent > MOST_LANES || body.length !== 1 || statement?.kind !== "scalar")
      return undefined;
    const { equation } = statement;
    const reads = accessesIn(equation.value);
    if (equation.op !== "=" || !reads.some((a) => this.local.has(a.tensor))) return undefined;
    const dtype = this.dtypeOf(equation.target.tensor);
    if (!HELD.has(dtype) || !this.computes(equation.value, dtype, lane)) return undefined;
    const context: LaneContext = { axis: lane, extents, dtype, before: [] };
    const places = reads.filter((a) => a.index.some((e) => axesIn(e).includes(lane)));
    for (const a of places) {
      const { stride } = this.placeOf(a, context);
      if (stride === undefined || (stride !== 1 && bytesOf(this.dtypeOf(a.tensor)) < 4)) return undefined;
    }
    const { stride, varying } = this.placeOf(equation.target, context);
    if (stride === 1 && varying.length === 0) return this.lanes(loop, extents);
    if (stride === undefined || stride === 0 || equation.where !== undefined || varying.length > 0) return undefined;
    return this.scattered(equation, loop, extents);
  }

  /** Computes a row contiguously, then scatters it. */
  private scattered({ target, value }: Equation, loop: Loop, extents: Extents): Code[] {
    const { axis: lane, extent } = loop;
    const waiting = access(this.waiting, [axis(lane)]);
    const computed: Loop = { ...loop, body: [{ kind: "scalar", equation: { target: waiting, op: "=", value } }] };
    const { at, guards } = this.c.place(target, extents);
    const type = C_TYPES[this.dtypeOf(target.tensor)];
    const row = this.c.tensor(this.waiting);
    const element = this.c.axis(lane);
    const guard = guards.length === 0 ? NOTHING : code`if (${allOf(guards)}) `;
    return [
      code`{ ${type} ${row}[${extent}];`,
      ...indented(this.lanes(computed, extents)),
      code`  for (long ${element} = 0; ${element} < ${extent}; ${element}++) ${guard}${this.c.tensor(target.tensor)}[${at}] = ${row}[${element}];`,
      code`}`,
    ];
  }

  // ---- what lanes compute -------------------------------------------------------------------------------------------------------

  private computes(e: Expr, dtype: DType, lane: string): boolean {
    // A value that is the same on all lanes is computed in scalar C.
    if (!varies(e, lane)) return HELD.has(typeOf(e, this.c.dtypes) ?? dtype);
    const own = typeOf(e, this.c.dtypes) ?? dtype;
    if (!HELD.has(own)) return false;
    const all = (...parts: readonly Expr[]): boolean => parts.every((part) => this.computes(part, own, lane));
    switch (e.kind) {
      case "number":
      case "axis":
      case "access":
        return true;
      case "cast": {
        const from = typeOf(e.value, this.c.dtypes) ?? own;
        // s32 to a 16-bit float goes through double in c-expressions.ts.
        if (from === "s32" && (own === "bf16" || own === "f16")) return false;
        return this.computes(e.value, from, lane);
      }
      case "negate":
        return all(e.value);
      case "binary":
        return e.op !== "%" && !(e.op === "/" && isInteger(own)) && all(e.left, e.right);
      case "call":
        return !isFloatFunction(e.fn) && all(...e.args);
      case "select":
        return all(e.whenTrue, e.whenFalse);
      case "border":
      case "compare":
      case "logic":
        return false;
      default:
        return e satisfies never;
    }
  }

  protected override checkType(): void {
    // `computes` has looked at every type.
  }

  protected override fuses(): boolean {
    return false;
  }

  protected override vector(e: Expr, context: LaneContext): Code {
    if (!varies(e, context.axis)) return super.vector(e, context);
    if (e.kind === "cast") return this.cast(e, context);
    if (e.kind === "call" && (e.fn === "max" || e.fn === "min")) {
      const [first, second] = e.args;
      const [constant, other] = first?.kind === "number" ? [first, second] : [second, first];
      // With a constant, one instruction suffices: it returns its second operand if either is NaN.
      if (constant?.kind === "number" && other && !isInteger(typeOf(other, this.c.dtypes) ?? context.dtype))
        return code`_mm512_${e.fn}_ps(${this.vector(constant, context)}, ${this.vector(other, context)})`;
    }
    return super.vector(e, context);
  }

  protected override splat(text: Code, dtype: DType): Code {
    if (dtype === "f32" && skeleton(text) === "0.0f") return code`_mm512_setzero_ps()`;
    if (dtype === "bf16" || dtype === "f16") return code`_mm512_set1_ps(@from_${dtype}(${text}))`;
    return super.splat(text, dtype);
  }

  protected override operation(op: LaneOperation, args: readonly Code[], dtype: DType): Code {
    if (isInteger(dtype))
      return wrapped(super.operation(op, args, "s32"), op === "max" || op === "min" ? "s32" : dtype);
    const text = super.operation(op, args, "f32");
    return op === "max" || op === "min" ? text : rounded(text, dtype);
  }

  /** A cast of a value that varies across lanes. */
  private cast(e: Cast, context: LaneContext): Code {
    const to = e.dtype;
    const from = typeOf(e.value, this.c.dtypes) ?? to;
    const inner = { ...context, dtype: from };
    if (from === to) return this.vector(e.value, inner);
    if (!isInteger(to)) {
      const text = this.vector(e.value, inner);
      return rounded(isInteger(from) ? code`_mm512_cvtepi32_ps(${text})` : text, to);
    }
    if (isInteger(from)) return narrowed(this.vector(e.value, inner), from, to, e.saturate);
    if (!e.saturate) return wrapped(code`@wrapped_lanes(${this.vector(e.value, inner)})`, to);
    if (to === "s32") return code`@saturated_lanes(${this.vector(e.value, inner)})`;
    const [min, max] = rangeOf(to);
    const { value, convert } = unrounded(e.value);
    const x = this.vector(value, inner);
    const low =
      min === 0
        ? code`_mm512_max_ps(${x}, _mm512_setzero_ps())`
        : code`_mm512_max_ps(@number_lanes(${x}), _mm512_set1_ps(${min}.0f))`;
    return code`${convert}(_mm512_min_ps(${low}, _mm512_set1_ps(${max}.0f)))`;
  }

  // ---- memory -------------------------------------------------------------------------------------------------------------------

  protected override load(place: LanePlace, context: LaneContext): Code {
    const { dtype } = context;
    if (bytesOf(dtype) === 4) return super.load(place, context);
    const from = this.addresses.at(place.tensor, place.first, context.extents);
    const mask = this.mask(place.varying, context, true);
    const bytes = bytesOf(dtype) === 1;
    const loaded = bytes
      ? mask === undefined
        ? code`_mm_loadu_si128((const __m128i*)(${from}))`
        : code`_mm_maskz_loadu_epi8(${mask}, ${from})`
      : mask === undefined
        ? code`_mm256_loadu_si256((const __m256i*)(${from}))`
        : code`_mm256_maskz_loadu_epi16(${mask}, ${from})`;
    if (dtype === "bf16") return code`@bf16_lanes(${loaded})`;
    if (dtype === "f16") return code`_mm512_cvtph_ps(${loaded})`;
    return code`_mm512_cvtep${dtype.startsWith("u") ? "u" : "i"}${bitsOf(dtype)}_epi32(${loaded})`;
  }

  /** For a narrow type, the half or quarter of a register that is stored. */
  protected override stored(part: Part): Code {
    const { equation, context } = part;
    const [e, { dtype }] = [equation.value, context];
    if (bytesOf(dtype) === 4) return super.stored(part);
    const bits = bitsOf(dtype);
    const from = e.kind === "cast" ? (typeOf(e.value, this.c.dtypes) ?? dtype) : dtype;
    const inner = { ...context, dtype: from };
    if (e.kind === "cast" && varies(e, context.axis)) {
      // The narrowing instruction also clamps.
      if (e.saturate && from === "f32" && (dtype === "u8" || dtype === "u16")) {
        // Values beyond 32 bits become 2^31, unsigned.
        const { value, convert } = unrounded(withoutFloor(e.value));
        const x = this.vector(withoutFloor(value), inner);
        return code`_mm512_cvtusepi32_epi${bits}(${convert}(_mm512_max_ps(${x}, _mm512_setzero_ps())))`;
      }
      if (e.saturate && from === "s32") {
        const x = this.vector(e.value, inner);
        return dtype.startsWith("u")
          ? code`_mm512_cvtusepi32_epi${bits}(_mm512_max_epi32(${x}, _mm512_setzero_si512()))`
          : code`_mm512_cvtsepi32_epi${bits}(${x})`;
      }
      if (dtype === "bf16" && from === "f32") return code`@bf16_bits(${this.vector(e.value, inner)})`;
      if (isInteger(dtype) && isInteger(from) && !e.saturate)
        return code`_mm512_cvtepi32_epi${bits}(${this.vector(e.value, inner)})`;
    }
    const x = this.vector(e, context);
    if (dtype === "bf16") return code`@bf16_bits(${x})`;
    if (dtype === "f16") return code`_mm512_cvtps_ph(${x}, ${NEAREST})`;
    return code`_mm512_cvtepi32_epi${bits}(${x})`;
  }

  protected override store(place: LanePlace, where: readonly Expr[], value: Code, context: LaneContext): Code {
    const { dtype } = context;
    if (bytesOf(dtype) === 4) return super.store(place, where, value, context);
    const to = this.addresses.at(place.tensor, place.first, context.extents);
    const mask = this.mask([...where, ...place.varying], context, true);
    const [vector, bits, suffix] =
      bytesOf(dtype) === 1 ? (["_mm", 128, "epi8"] as const) : (["_mm256", 256, "epi16"] as const);
    const line =
      mask === undefined
        ? code`${vector}_storeu_si${bits}((__m${bits}i*)(${to}), ${value});`
        : code`${vector}_mask_storeu_${suffix}(${to}, ${mask}, ${value});`;
    return code`${this.guard(place.uniform, context)}${line}`;
  }
}

/** Whether an expression varies across lanes. */
function varies(e: Expr, lane: string): boolean {
  return axesIn(e).includes(lane);
}

/** Drops the `round` of a value that is converted to an integer, since the conversion rounds. */
function unrounded(e: Expr): { readonly value: Expr; readonly convert: "_mm512_cvtps_epi32" | "_mm512_cvttps_epi32" } {
  const inner = e.kind === "call" && e.fn === "round" ? e.args[0] : undefined;
  return inner ? { value: inner, convert: "_mm512_cvtps_epi32" } : { value: e, convert: "_mm512_cvttps_epi32" };
}

/** Drops `max(x, 0)` under a clamp to non-negative values. */
function withoutFloor(e: Expr): Expr {
  if (e.kind !== "call" || e.fn !== "max") return e;
  const [first, second] = e.args;
  if (first && second?.kind === "number" && second.value <= 0) return withoutFloor(first);
  if (second && first?.kind === "number" && first.value <= 0) return withoutFloor(second);
  return e;
}

/** A 32-bit number wrapped to its integer type. */
function wrapped(text: Code, dtype: DType): Code {
  const shift = 32 - bitsOf(dtype);
  if (shift === 0) return text;
  if (dtype.startsWith("u")) return code`_mm512_and_si512(${text}, _mm512_set1_epi32(${rangeOf(dtype)[1]}))`;
  return code`_mm512_srai_epi32(_mm512_slli_epi32(${text}, ${shift}), ${shift})`;
}

/** An f32 rounded to its float type. */
function rounded(text: Code, dtype: DType): Code {
  if (dtype === "bf16") return code`@bf16_lanes(@bf16_bits(${text}))`;
  if (dtype === "f16") return code`_mm512_cvtph_ps(_mm512_cvtps_ph(${text}, ${NEAREST}))`;
  return text;
}

/** Converts an integer from one type to another. */
function narrowed(text: Code, from: DType, to: DType, saturate: boolean): Code {
  const [[low, high], [min, max]] = [rangeOf(from), rangeOf(to)];
  if (min <= low && high <= max) return text;
  if (!saturate) return wrapped(text, to);
  const above = low < min ? code`_mm512_max_epi32(${text}, _mm512_set1_epi32(${min}))` : text;
  return high > max ? code`_mm512_min_epi32(${above}, _mm512_set1_epi32(${max}))` : above;
}
