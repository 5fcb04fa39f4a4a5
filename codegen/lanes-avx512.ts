/**
 * @file Lanes as AVX-512 registers: 16 of f32 or s32, 8 of f64; conditions on lanes are masks, shifts are VALIGND.
 *
 *     Z0 = _mm512_fmadd_ps(_mm512_loadu_ps(x + 16 * b), _mm512_set1_ps(w[q]), lanes_from<15>(Z0, Z0));
 */

import { affineForm, type Extents, evaluateIndex } from "../abstraction/affine.ts";
import { outputOf } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";
import type { Equation } from "../abstraction/equation.ts";
import {
  type Access,
  axesIn,
  binary,
  type CompareOp,
  type Expr,
  number,
  substitute,
} from "../abstraction/expression.ts";
import type { LoopNest, Statement } from "../abstraction/loop-nest.ts";
import { vectorHelpersFor } from "./avx512-helpers.ts";
import { CExpressions } from "./c-expressions.ts";
import { cppSource, type SourceNotes } from "./cpp-frame.ts";
import { tested } from "./lane-statement.ts";
import { type LaneAccess, type LaneContext, type LaneOperation, type LanePlace, LaneVectors } from "./lane-vectors.ts";
import { type Loop, phasesOf, printStatements } from "./walk.ts";

interface Format {
  readonly register: string;
  readonly lanes: number;
  /** Suffix of intrinsics: `_mm512_add_ps`. */
  readonly suffix: string;
  /** The same lanes as integers and back, for what exists on integers only. */
  readonly bits: "epi32" | "epi64";
  /** Vector of 32-bit indices, one a lane. */
  readonly indices: "_mm512" | "_mm256";
  readonly bytes: number;
}

const F32: Format = { register: "__m512", lanes: 16, suffix: "ps", bits: "epi32", indices: "_mm512", bytes: 4 };
const F64: Format = { register: "__m512d", lanes: 8, suffix: "pd", bits: "epi64", indices: "_mm256", bytes: 8 };
const S32: Format = { register: "__m512i", lanes: 16, suffix: "epi32", bits: "epi32", indices: "_mm512", bytes: 4 };

function formatOf(dtype: DType): Format {
  if (dtype === "f32") return F32;
  if (dtype === "f64") return F64;
  if (dtype === "s32") return S32;
  // Narrow elements in lanes of 32 bits (rows-avx512.ts); checkType refuses them elsewhere.
  if (dtype === "bf16" || dtype === "f16") return F32;
  if (isInteger(dtype) && bytesOf(dtype) < 4) return S32;
  throw new Error(`internal: no AVX-512 lanes of ${dtype}`);
}

export interface Avx512Options {
  /** Stores to the output go past the caches, where their address allows it. */
  readonly streaming?: boolean;
}

export function avx512Source(
  c: CExpressions,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
  options: Avx512Options,
): string {
  const writer = new Avx512Lanes(new LaneExpressions(c.computation, nest), nest, options.streaming ?? false);
  const phases = phasesOf(nest.body).map((phase) => {
    const lines = printStatements(phase, writer);
    const streamed = lines.some((l) => l.includes("stream_lanes(")) ? ["_mm_sfence();"] : [];
    const dealt = phase.some(isDealt);
    return [...(dealt ? [] : ["if (part != 0) return;"]), ...lines, ...streamed];
  });
  const prepare = printStatements(nest.prepare, writer);
  const text = [...prepare, ...phases.flat()].join("\n");
  return cppSource(c.computation, nest, {
    comments: [...comments, ...notes.lines],
    prelude: ["#include <immintrin.h>", ...vectorHelpersFor(text)],
    prepare: [...writer.declarations(prepare), ...prepare],
    phases,
    registers: (body) => writer.declarations(body),
  });
}

/** Whether threads share a statement: a parallel loop, perhaps inside loops that all of them run. */
function isDealt(s: Statement): boolean {
  return s.kind === "loop" && (s.mode === "parallel" || s.body.some(isDealt));
}

/** Scalar expressions that may read a lane of a register. */
class LaneExpressions extends CExpressions {
  private readonly vectors: LoopNest["vectors"];

  constructor(computation: CExpressions["computation"], nest: LoopNest) {
    super(computation, nest);
    this.vectors = nest.vectors;
  }

  protected override element(e: Access, dtype: DType, extents: Extents): string {
    const file = this.vectors?.find((v) => v.name === e.tensor);
    if (!file) return super.element(e, dtype, extents);
    const [register, lane] = e.index;
    if (register?.kind !== "number" || !lane) throw new Error(`internal: register of ${e.tensor} is not known`);
    const { lanes: width } = formatOf(file.dtype);
    if (file.lanes <= width) return `lane_of(${file.name}${register.value}, ${this.index(lane, extents)})`;
    const part = (i: number): string => `${file.name}${register.value}_${i}`;
    if (lane.kind === "number") return `lane_of(${part(Math.floor(lane.value / width))}, ${lane.value % width})`;
    const at = this.index(lane, extents);
    const last = Math.ceil(file.lanes / width) - 1;
    const choices = Array.from({ length: last }, (_, i) => `(${at}) < ${(i + 1) * width} ? ${part(i)} : `);
    return `lane_of(${choices.join("")}${part(last)}, (${at}) % ${width})`;
  }
}

export class Avx512Lanes extends LaneVectors {
  private readonly streaming: boolean;

  constructor(c: CExpressions, nest: LoopNest, streaming: boolean) {
    super(c, nest);
    this.streaming = streaming;
  }

  declarations(body: readonly string[]): string[] {
    return this.registersIn(body).map(({ name, file }) => `${formatOf(file.dtype).register} ${name} = {};`);
  }

  openLoop({ axis, extent, mode }: Loop): string {
    if (mode === "parallel")
      return `for (long ${axis} = ${extent}L * part / parts; ${axis} < ${extent}L * (part + 1) / parts; ${axis}++) {`;
    return `for (long ${axis} = 0; ${axis} < ${extent}; ${axis}++) {`;
  }

  protected override prefetched({ tensor, index }: Access, extents: Extents): string[] {
    // Of a line that may lie outside nothing is read, and nothing is tested.
    const { at } = this.c.place({ kind: "access", tensor, index }, extents);
    return [`_mm_prefetch((const char*)(${pointer(tensor, at)}), _MM_HINT_T0);`];
  }

  protected width(dtype: DType): number {
    return formatOf(dtype).lanes;
  }

  protected splat(text: string, dtype: DType): string {
    return `_mm512_set1_${formatOf(dtype).suffix}(${text})`;
  }

  protected numbers(e: Expr, context: LaneContext): string {
    return this.indices(e, { ...context, dtype: "s32" });
  }

  protected shifted(at: LaneAccess, by: number): string {
    const { name, next, shift } = this.partAt(at, by);
    return shift === 0 ? name : `lanes_from<${shift}>(${name}, ${next})`;
  }

  protected broadcast({ file, register, lane }: LaneAccess, context: LaneContext): string {
    return this.splat(
      this.c.value({ kind: "access", tensor: file.name, index: [number(register), lane] }, file.dtype, context.extents),
      file.dtype,
    );
  }

  protected permuted(at: LaneAccess, context: LaneContext): string {
    const { bits, suffix } = formatOf(at.file.dtype);
    if (at.file.lanes > this.width(at.file.dtype))
      throw new Error(`internal: lanes of ${at.file.name} are permuted over several registers`);
    const order = this.indices(at.lane, context);
    const wide = bits === "epi64" ? `_mm512_cvtepi32_epi64(${order})` : order;
    return `_mm512_permutexvar_${suffix}(${wide}, ${this.partAt(at, 0).name})`;
  }

  /** An index for each lane, in 32 bits. */
  private indices(e: Expr, { axis, dtype, extents }: LaneContext): string {
    const { lanes, indices } = formatOf(dtype);
    const used = extents[axis] ?? lanes;
    const each = Array.from({ length: lanes }, (_, l) =>
      // Lanes that are not in use do as the last one.
      this.c.index(substitute(e, new Map([[axis, number(Math.min(l, used - 1))]]), "index"), extents),
    );
    return `${indices}_setr_epi32(${each.join(", ")})`;
  }

  protected load(place: LanePlace, context: LaneContext): string {
    const { suffix, bytes } = formatOf(context.dtype);
    const mask = this.mask(place.varying, context, true);
    const outside = this.c.outside(place.tensor, context.dtype);
    if (place.stride === 1) {
      const from = pointer(place.tensor, this.c.index(place.first, context.extents));
      const unmasked = suffix === "epi32" ? "_mm512_loadu_si512" : `_mm512_loadu_${suffix}`;
      if (mask === undefined) return `${unmasked}(${from})`;
      if (outsideIsZero(outside)) return `_mm512_maskz_loadu_${suffix}(${mask}, ${from})`;
      return `_mm512_mask_loadu_${suffix}(${this.splat(outside, context.dtype)}, ${mask}, ${from})`;
    }
    const { base, order } = this.gathered(place, context);
    if (mask === undefined) return `_mm512_i32gather_${suffix}(${order}, ${base}, ${bytes})`;
    return `_mm512_mask_i32gather_${suffix}(${this.splat(outside, context.dtype)}, ${mask}, ${order}, ${base}, ${bytes})`;
  }

  /** The element of lane 0 and every lane's distance from it; or, of what is no line, from the tensor's first. */
  private gathered({ tensor, at, first, stride }: LanePlace, context: LaneContext): { base: string; order: string } {
    if (stride === undefined) return { base: tensor, order: this.indices(at, context) };
    const steps = binary("*", { kind: "axis", name: context.axis }, number(stride));
    return { base: pointer(tensor, this.c.index(first, context.extents)), order: this.indices(steps, context) };
  }

  protected store(place: LanePlace, where: readonly Expr[], value: string, context: LaneContext): string {
    const { suffix, bytes } = formatOf(context.dtype);
    const mask = this.mask([...where, ...place.varying], context, true);
    const test = place.uniform.map((g) => this.c.condition(g, context.extents)).join(" && ");
    const guard = test === "" ? "" : `if (${test}) `;
    if (place.stride === 1) {
      const to = pointer(place.tensor, this.c.index(place.first, context.extents));
      if (mask !== undefined) return `${guard}_mm512_mask_storeu_${suffix}(${to}, ${mask}, ${value});`;
      if (this.streaming && place.tensor === outputOf(this.c.computation).name)
        return `${guard}stream_lanes(${to}, ${value});`;
      return `${guard}_mm512_storeu_${suffix === "epi32" ? "si512" : suffix}(${to}, ${value});`;
    }
    const { base, order } = this.gathered(place, context);
    if (mask === undefined) return `${guard}_mm512_i32scatter_${suffix}(${base}, ${order}, ${value}, ${bytes});`;
    return `${guard}_mm512_mask_i32scatter_${suffix}(${base}, ${mask}, ${order}, ${value}, ${bytes});`;
  }

  protected blend(mask: readonly Expr[], whenTrue: string, whenFalse: string, context: LaneContext): string {
    const { suffix } = formatOf(context.dtype);
    const text = this.mask(mask, context, false);
    return text === undefined ? whenTrue : `_mm512_mask_mov_${suffix}(${whenFalse}, ${text}, ${whenTrue})`;
  }

  protected reduced(op: Equation["op"], value: string, where: readonly Expr[], context: LaneContext): string {
    const { suffix } = formatOf(context.dtype);
    const name = op === "+=" ? "add" : op === "max=" ? "max" : "min";
    const mask = this.mask(where, context, true);
    return mask === undefined
      ? `_mm512_reduce_${name}_${suffix}(${value})`
      : `_mm512_mask_reduce_${name}_${suffix}(${mask}, ${value})`;
  }

  protected insert({ file, register, lane }: LaneAccess, scalar: string, context: LaneContext): string {
    const { suffix, lanes } = formatOf(file.dtype);
    const parts = Math.ceil(file.lanes / lanes);
    const write = (part: number, one: string): string => {
      const name = this.registerName(file.name, register, part, parts);
      return `${name} = _mm512_mask_mov_${suffix}(${name}, ${one}, ${this.splat(scalar, file.dtype)});`;
    };
    if (lane.kind === "number") return write(Math.floor(lane.value / lanes), maskText(1 << (lane.value % lanes)));
    const inPart = (part: number): string =>
      `only_lane(${this.c.index(binary("-", lane, number(part * lanes)), context.extents)})`;
    return Array.from({ length: parts }, (_, part) => write(part, inPart(part))).join(" ");
  }

  protected operation(op: LaneOperation, args: readonly string[], dtype: DType): string {
    const { suffix } = formatOf(dtype);
    const call = (name: string, ...list: (string | undefined)[]): string =>
      `_mm512_${name}_${suffix}(${list.join(", ")})`;
    const [a = "", b = "", c = ""] = args;
    const integer = dtype === "s32";
    switch (op) {
      case "+":
        return call("add", a, b);
      case "-":
        return call("sub", a, b);
      case "*":
        return call(integer ? "mullo" : "mul", a, b);
      case "/":
        return call("div", a, b);
      case "a*b+c":
        return call("fmadd", a, b, c);
      case "c-a*b":
        return call("fnmadd", a, b, c);
      case "a*b-c":
        return call("fmsub", a, b, c);
      case "negate":
        return integer
          ? call("sub", "_mm512_setzero_si512()", a)
          : call("xor", a, this.splat(dtype === "f64" ? "-0.0" : "-0.0f", dtype));
      case "max":
        return `most_lanes(${a}, ${b})`;
      case "min":
        return `least_lanes(${a}, ${b})`;
      case "square":
        return call(integer ? "mullo" : "mul", a, a);
      case "abs":
        return call("abs", a);
      case "round":
        return integer ? a : call("roundscale", a, "_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC");
      default:
        return op satisfies never;
    }
  }

  protected convert(text: string, from: DType, to: DType): string {
    if (from === "s32" && to === "f32") return `_mm512_cvtepi32_ps(${text})`;
    if (from === "f32" && to === "s32") return `_mm512_cvttps_epi32(${text})`;
    throw new Error(`internal: lanes do not convert ${from} to ${to}`);
  }

  // ---- masks ------------------------------------------------------------------------------------------------------------------

  /** Lanes where all conditions hold, and that are in use if that matters; undefined for every lane. */
  protected mask(conditions: readonly Expr[], context: LaneContext, inUse: boolean): string | undefined {
    const { lanes } = formatOf(context.dtype);
    const { axis, extents } = context;
    const used = extents[axis] ?? lanes;
    const all = 2 ** lanes - 1;
    let known = inUse ? 2 ** used - 1 : all;
    const texts: string[] = [];
    for (const e of tested(conditions, axis, extents)) {
      if (axesIn(e).every((name) => name === axis)) known &= tableOf(e, axis, lanes);
      else texts.push(this.maskOf(e, context));
    }
    if (known !== all) texts.push(maskText(known));
    return texts.length === 0 ? undefined : texts.length === 1 ? texts[0] : `(${texts.join(" & ")})`;
  }

  private maskOf(e: Expr, context: LaneContext): string {
    const { axis, extents, dtype } = context;
    if (e.kind === "logic")
      return `(${this.maskOf(e.left, context)} ${e.op === "and" ? "&" : "|"} ${this.maskOf(e.right, context)})`;
    if (e.kind === "compare") {
      if (!axesIn(e).includes(axis)) return `(${this.c.condition(e, extents)} ? ~0u : 0u)`;
      const difference = binary("-", e.left, e.right);
      const factor = affineForm(difference)?.terms.get(axis);
      const rest = substitute(difference, new Map([[axis, number(0)]]), "index");
      // lane + rest op 0, or -lane + rest op 0.
      if (factor === 1) return this.lanesWhere(e.op, binary("-", number(0), rest), context);
      if (factor === -1) return this.lanesWhere(MIRRORED[e.op], rest, context);
    }
    const { lanes } = formatOf(dtype);
    const each = Array.from({ length: lanes }, (_, l) => {
      const one = substitute(e, new Map([[axis, number(l)]]), "index");
      return `(unsigned)(${this.c.condition(one, extents)}) << ${l}`;
    });
    return `(${each.join(" | ")})`;
  }

  /** `lane op bound` */
  private lanesWhere(op: CompareOp, bound: Expr, { extents }: LaneContext): string {
    const below = (e: Expr): string => `lanes_below(${this.c.index(tidy(e), extents)})`;
    const next = binary("+", bound, number(1));
    switch (op) {
      case "<":
        return below(bound);
      case "<=":
        return below(next);
      case ">=":
        return `~${below(bound)}`;
      case ">":
        return `~${below(next)}`;
      case "==":
        return `only_lane(${this.c.index(tidy(bound), extents)})`;
      case "!=":
        return `~only_lane(${this.c.index(tidy(bound), extents)})`;
      default:
        return op satisfies never;
    }
  }
}

/** `-lane op b` as `lane op -b`. */
const MIRRORED: Readonly<Record<CompareOp, CompareOp>> = {
  "<": ">",
  "<=": ">=",
  ">": "<",
  ">=": "<=",
  "==": "==",
  "!=": "!=",
};

/** Bit l: the condition on lane l. */
function tableOf(e: Expr, axis: string, lanes: number): number {
  let bits = 0;
  for (let l = 0; l < lanes; l++) if (evaluateIndex(e, { [axis]: l }) !== 0) bits |= 1 << l;
  return bits;
}

/** `0 - (12*b - 104)` as `104 - 12*b`. */
function tidy(e: Expr): Expr {
  const form = affineForm(e);
  if (!form) return e;
  const terms = [...form.terms].sort(([, a], [, b]) => Number(a < 0) - Number(b < 0));
  const term = ([name, factor]: readonly [string, number]): Expr =>
    binary("*", number(Math.abs(factor)), { kind: "axis", name });
  const sum = (start: Expr, list: typeof terms): Expr =>
    list.reduce((whole, t) => binary(t[1] < 0 ? "-" : "+", whole, term(t)), start);
  // A constant first when all else is subtracted.
  if (terms.every(([, factor]) => factor < 0)) return sum(number(form.constant), terms);
  return binary("+", sum(number(0), terms), number(form.constant));
}

function maskText(bits: number): string {
  return `0x${bits.toString(16)}`;
}

export function pointer(tensor: string, at: string): string {
  return at === "0" ? tensor : `${tensor} + ${at}`;
}

function outsideIsZero(text: string): boolean {
  return /^0(\.0f?)?$/.test(text);
}
