/**
 * @file Lanes as x86 vector registers. Conditions on lanes are masks with one bit a lane; shifts are `lanes_from`.
 *
 *     Z0 = _mm512_fmadd_ps(_mm512_loadu_ps(x + 16 * b), _mm512_set1_ps(w[q]), lanes_from<15>(Z0, Z0));      AVX-512: x86-vectors.ts
 *     Z0 = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * b), _mm256_set1_ps(w[q]), lanes_from<7>(Z0, Z0));        AVX2
 *
 * Addresses of a block on lanes, counted from one pointer for each tensor.
 *
 *     auto* const in_at1 = in + ((i_block * 3) * 512 + j_block) * 512 + (k_block * 64);
 *     X0 = _mm512_loadu_ps(in_at1 + 262656);
 *
 * g++ 12 otherwise makes a counter of its own for most rows of a block, more than there are registers. Blocks of 3 planes
 * x 4 vectors of a 3-D stencil of 7 points take 1.19 times as long without (512^3, a busy Zen 4, 2026-11-23).
 */

import { type AffineForm, affineForm, type Extents } from "../../abstraction/affine.ts";
import { upTo } from "../../abstraction/collections.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { type DType, isInteger } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  accessesOf,
  axesIn,
  axis,
  type Expr,
  minus,
  number,
  substitute,
  testsElements,
  times,
} from "../../abstraction/expression.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import {
  askedIn,
  type Code,
  code,
  hexadecimal,
  join,
  list,
  type Name,
  NOTHING,
  type SourceText,
  skeleton,
  tensorName,
} from "../../abstraction/source-text.ts";
import { allOf, CExpressions } from "../c-expressions.ts";
import { type LaneAccess, type LaneContext, type Part, registerIn, registerName, tested } from "../lane-printer.ts";
import { type LaneOperation, type LanePlace, outsideIsZero, VectorExpressions } from "../vector-expressions.ts";
import { type Loop, type Named, namedIn, printStatements, roundsOf } from "../walk.ts";
import { maskOf, tableOf } from "./avx512-masks.ts";
import { copyLoops, turnedRows } from "./copy-loops.ts";
import { cppSource, openLoop, type SourceNotes } from "./cpp-frame.ts";
import { calledIn } from "./cpp-helpers.ts";
import { AVX512, type VectorFunction, type X86Vectors } from "./x86-vectors.ts";

export interface X86Options {
  /** Whether stores to the output bypass the caches, where their address allows it. */
  readonly streaming?: boolean;
  /** Whether neighbouring products of narrow integers become dot products; see targets/x86-dots.ts. */
  readonly dots?: boolean;
  /** The vector registers; by default those of AVX-512. */
  readonly vectors?: X86Vectors;
}

export function x86Source(
  c: CExpressions,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
  { streaming = false, vectors = AVX512 }: X86Options,
  writer = new X86Lanes(new LaneExpressions(c.computation, nest, vectors), streaming, vectors),
): SourceText {
  const phases = roundsOf(nest.body).flatMap((round) =>
    round.phases.map((phase) => {
      const lines = printStatements(phase, writer);
      const isStreamed = [...askedIn(lines)].some((word) => word.startsWith("stream_"));
      const streamed = isStreamed ? [code`_mm_sfence();`] : [];
      const dealt = phase.some(isDealt);
      return [...(dealt ? [] : [code`if (part != 0) return;`]), ...lines, ...streamed];
    }),
  );
  const prepare = printStatements(nest.prepare, writer);
  return cppSource(c.computation, nest, {
    comments: [...comments, ...notes.lines],
    prelude: [code`#include <immintrin.h>`, ...calledIn([...prepare, ...phases.flat()], vectors.helpers)],
    prepare: [...writer.declarations(namedIn(nest.prepare, nest)), ...prepare],
    phases,
    registers: (named) => writer.declarations(named),
  }).source;
}

/** Whether threads share a statement: a parallel loop, perhaps inside loops that all threads run. */
function isDealt(s: Statement): boolean {
  return s.kind === "loop" && (s.mode === "parallel" || s.body.some(isDealt));
}

/** Scalar expressions that may read a lane of a register. */
export class LaneExpressions extends CExpressions {
  private readonly vectors: X86Vectors;

  constructor(computation: CExpressions["computation"], nest: LoopNest, vectors: X86Vectors = AVX512) {
    super(computation, nest);
    this.vectors = vectors;
  }

  protected override element(e: Access, dtype: DType, extents: Extents): Code {
    const found = registerIn(this.nest, e);
    if (!found) return super.element(e, dtype, extents);
    const { file, register, lane } = found;
    const { lanes: width, called } = this.vectors.format(file.dtype);
    const parts = Math.ceil(file.lanes / width);
    const part = (i: number): Code => code`${registerName(file.name, register, i, parts)}`;
    const at = this.index(lane, extents);
    const laneOf = (of: Code, n: Code): Code =>
      called === "lanes" ? code`@lane_of(${of}, ${n})` : code`@lane_of_${called}(${of}, ${n})`;
    if (parts === 1) return laneOf(part(0), at);
    if (lane.kind === "number") return laneOf(part(Math.floor(lane.value / width)), code`${lane.value % width}`);
    const last = parts - 1;
    const choices = upTo(last).map((i) => code`(${at}) < ${(i + 1) * width} ? ${part(i)} : `);
    return laneOf(code`${join(choices)}${part(last)}`, code`(${at}) % ${width}`);
  }
}

/** Operations that are one function of their arguments. */
const OPERATIONS = {
  "+": "add",
  "-": "sub",
  "/": "div",
  "a*b+c": "fmadd",
  "c-a*b": "fnmadd",
  "a*b-c": "fmsub",
  abs: "abs",
} as const;

export class X86Lanes extends VectorExpressions {
  private readonly streaming: boolean;
  protected readonly vectors: X86Vectors;
  protected override readonly masksLoads = true;
  protected readonly addresses = new LaneAddresses(this.c, (access) => registerIn(this.nest, access) !== undefined);

  constructor(c: CExpressions, streaming: boolean, vectors: X86Vectors = AVX512) {
    super(c);
    this.streaming = streaming;
    this.vectors = vectors;
  }

  declarations(named: Named): Code[] {
    return this.registersIn(named).map(
      ({ name, file }) => code`${this.vectors.format(file.dtype).register} ${name} = {};`,
    );
  }

  override openLoop(loop: Loop): Code {
    return openLoop(loop);
  }

  /** Whether memory holds the output or its intermediate states. The planes of a stencil in time alternate. */
  private isWhole(tensor: string): boolean {
    if (tensor === outputOf(this.c.computation).name) return true;
    return this.nest.scratch.some((s) => s.name === tensor && s.holds === "result");
  }

  /** Rows that become columns are transposed in registers. */
  row(loop: Loop, extents: Extents): readonly Code[] | undefined {
    const copied = copyLoops(loop, this.c, extents);
    return copied && turnedRows(copied);
  }

  protected override prefetched(access: Access, isDistant: boolean, _: Loop, extents: Extents): Code[] {
    // A prefetch of a line outside the tensor is harmless, so nothing is tested.
    const { base, offset } = this.addresses.parts(access.tensor, this.c.placeOf(access, extents).at, extents);
    return [code`${isDistant ? code`@prefetch_distant` : code`@prefetch_from`}(${base}, ${offset});`];
  }

  protected width(dtype: DType): number {
    return this.vectors.format(dtype).lanes;
  }

  protected call(name: VectorFunction, dtype: DType, ...args: readonly Code[]): Code {
    return this.vectors.call(name, this.vectors.format(dtype), args);
  }

  protected splat(text: Code, dtype: DType): Code {
    return this.call("set1", dtype, text);
  }

  protected numbers(e: Expr, context: LaneContext): Code {
    return this.indices(e, { ...context, dtype: "s32" });
  }

  protected shifted(at: LaneAccess, by: number): Code {
    const { name, next, shift } = this.partAt(at, by);
    if (shift === 0) return code`${name}`;
    return code`@${this.vectors.format(at.file.dtype).called}_from<${shift}>(${name}, ${next})`;
  }

  protected broadcast({ file, register, lane }: LaneAccess, context: LaneContext): Code {
    const format = this.vectors.format(file.dtype);
    if (lane.kind === "number" && file.lanes <= format.lanes)
      return this.vectors.spread(lane.value, format, code`${registerName(file.name, register)}`);
    return this.splat(
      this.c.value({ kind: "access", tensor: file.name, index: [number(register), lane] }, file.dtype, context.extents),
      file.dtype,
    );
  }

  protected permuted(at: LaneAccess, context: LaneContext): Code {
    if (at.file.lanes > this.width(at.file.dtype))
      internal(`lanes of ${at.file.name} are permuted over several registers`);
    return this.call("permutexvar", at.file.dtype, this.indices(at.lane, context), code`${this.partAt(at, 0).name}`);
  }

  /** An index for each lane, of 32 bits or of the lane's. */
  private indices(e: Expr, context: LaneContext): Code {
    const each = this.eachLane(context, (at) => this.c.index(at(e), context.extents));
    return this.vectors.listed(each, this.vectors.format(context.dtype));
  }

  /** A text for each lane. Unused lanes repeat the last used one. */
  protected eachLane({ axis, dtype, extents }: LaneContext, text: (at: (e: Expr) => Expr) => Code): Code[] {
    const lanes = this.width(dtype);
    const used = extents[axis] ?? lanes;
    return upTo(lanes).map((l) => {
      const at = new Map([[axis, number(Math.min(l, used - 1))]]);
      return text((e) => substitute(e, at, "index"));
    });
  }

  /** The element that each lane reads. @param held the value of an element of memory */
  protected eachElement(place: LanePlace, context: LaneContext, held: (from: Code) => Code, outside: Code): Code[] {
    return this.eachLane(context, (at) => {
      const guards = place.varying.map((g) => this.c.condition(at(g), context.extents));
      const value = held(code`${this.c.tensor(place.tensor)}[${this.c.index(at(place.at), context.extents)}]`);
      return guards.length === 0 ? value : code`(${allOf(guards)} ? ${value} : ${outside})`;
    });
  }

  override lanes(loop: Loop, extents: Extents): Code[] {
    return this.addresses.around(loop, extents, () => super.lanes(loop, extents));
  }

  protected load(place: LanePlace, context: LaneContext): Code {
    const { dtype } = context;
    const mask = this.mask(place.varying, context, true);
    const outside = this.c.outside(place.tensor, dtype);
    if (place.stride === 1) {
      const from = this.addresses.at(place.tensor, place.first, context.extents);
      if (mask === undefined) return this.call("loadu", dtype, from);
      if (outsideIsZero(outside)) return this.call("maskz_loadu", dtype, mask, from);
      return this.call("mask_loadu", dtype, this.splat(outside, dtype), mask, from);
    }
    // A 3x3 filter of stride 2 with 256 x 256 outputs takes 27 us; with gathers it takes 72 us (one core of a Xeon,
    // 2026-11-22).
    if (place.stride === 2 && mask === undefined)
      return code`@even_${this.vectors.format(dtype).called}(${this.addresses.at(place.tensor, place.first, context.extents)})`;
    const { base, order } = this.gathered(place, context);
    const size = code`${this.vectors.format(dtype).bytes}`;
    if (mask === undefined) return this.call("i32gather", dtype, order, base, size);
    return this.call("mask_i32gather", dtype, this.splat(outside, dtype), mask, order, base, size);
  }

  /** The element of lane 0 and the distance of each lane; with uneven distances, from the tensor's first element. */
  private gathered({ tensor, at, first, stride }: LanePlace, context: LaneContext): { base: Code; order: Code } {
    if (stride === undefined) return { base: this.c.tensor(tensor), order: this.indices(at, context) };
    const steps = times(axis(context.axis), stride);
    return { base: this.addresses.at(tensor, first, context.extents), order: this.indices(steps, context) };
  }

  protected store(place: LanePlace, where: readonly Expr[], value: Code, context: LaneContext): Code {
    const { dtype } = context;
    const mask = this.mask([...where, ...place.varying], context, true);
    const guard = this.guard(place.uniform, context);
    if (place.stride === 1) {
      const to = this.addresses.at(place.tensor, place.first, context.extents);
      if (mask !== undefined) return code`${guard}${this.call("mask_storeu", dtype, to, mask, value)};`;
      if (this.streaming && this.isWhole(place.tensor))
        return code`${guard}@stream_${this.vectors.format(dtype).called}(${to}, ${value});`;
      return code`${guard}${this.call("storeu", dtype, to, value)};`;
    }
    const { base, order } = this.gathered(place, context);
    const size = code`${this.vectors.format(dtype).bytes}`;
    if (mask === undefined) return code`${guard}${this.call("i32scatter", dtype, base, order, value, size)};`;
    return code`${guard}${this.call("mask_i32scatter", dtype, base, mask, order, value, size)};`;
  }

  protected blend(mask: readonly Expr[], whenTrue: Code, whenFalse: Code, context: LaneContext): Code {
    const text = this.mask(mask, context, false);
    return text === undefined ? whenTrue : this.call("mask_mov", context.dtype, whenFalse, text, whenTrue);
  }

  protected reduced({ equation: { op, value: e }, mask: where, context }: Part): Code {
    const value = this.vector(e, context);
    const name = op === "+=" ? "add" : op === "max=" ? "max" : "min";
    const mask = this.mask(where, context, true);
    return mask === undefined
      ? this.call(`reduce_${name}`, context.dtype, value)
      : this.call(`mask_reduce_${name}`, context.dtype, mask, value);
  }

  protected insert({ file, register, lane }: LaneAccess, scalar: Code, context: LaneContext): Code[] {
    const { lanes } = this.vectors.format(file.dtype);
    const parts = Math.ceil(file.lanes / lanes);
    const write = (part: number, one: Code): Code => {
      const name = registerName(file.name, register, part, parts);
      const written = this.call("mask_mov", file.dtype, code`${name}`, one, this.splat(scalar, file.dtype));
      return code`${name} = ${written};`;
    };
    if (lane.kind === "number") return [write(Math.floor(lane.value / lanes), hexadecimal(2 ** (lane.value % lanes)))];
    const inPart = (part: number): Code =>
      code`@only_lane(${this.c.index(minus(lane, part * lanes), context.extents)})`;
    const writes = upTo(parts).map((part) => write(part, inPart(part)));
    return [join(writes, code` `)];
  }

  protected operation(op: LaneOperation, args: readonly Code[], dtype: DType): Code {
    const call = (name: VectorFunction, ...given: readonly Code[]): Code => this.call(name, dtype, ...given);
    const [a = NOTHING] = args;
    const integer = isInteger(dtype);
    switch (op) {
      case "*":
        return call(integer ? "mullo" : "mul", ...args);
      case "negate":
        return integer
          ? call("sub", this.vectors.zero, a)
          : call("xor", a, this.splat(dtype === "f64" ? code`-0.0` : code`-0.0f`, dtype));
      case "max":
      case "min":
        return code`@${op === "max" ? "most" : "least"}_${this.vectors.format(dtype).called}(${list(args)})`;
      case "square":
        return call(integer ? "mullo" : "mul", a, a);
      case "round":
        return integer ? a : call("roundscale", a, code`_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC`);
      default:
        return call(OPERATIONS[op], ...args);
    }
  }

  protected convert(text: Code, from: DType, to: DType): Code {
    const { toFloat, toInteger } = this.vectors;
    if (from === "s32" && to === "f32" && toFloat) return code`${toFloat}(${text})`;
    if (from === "f32" && to === "s32" && toInteger) return code`${toInteger}(${text})`;
    internal(`lanes do not convert ${from} to ${to}`);
  }

  // ---- masks ------------------------------------------------------------------------------------------------------------------

  /** The mask of lanes that meet all conditions and, if `inUse`, are in use; undefined if it is every lane. */
  protected mask(conditions: readonly Expr[], context: LaneContext, inUse: boolean): Code | undefined {
    const { lanes } = this.vectors.format(context.dtype);
    const { axis, extents } = context;
    const used = extents[axis] ?? lanes;
    const all = 2 ** lanes - 1;
    let known = inUse ? 2 ** used - 1 : all;
    const texts: Code[] = [];
    for (const e of tested(conditions, axis, extents)) {
      if (testsElements(e)) texts.push(this.maskOfElements(e, context));
      else if (axesIn(e).every((name) => name === axis)) known = (known & tableOf(e, axis, lanes)) >>> 0;
      else texts.push(maskOf(this.c, e, context, lanes));
    }
    if (known !== all) texts.push(hexadecimal(known));
    return texts.length === 0 ? undefined : texts.length === 1 ? texts[0] : code`(${join(texts, code` & `)})`;
  }

  /** The mask of a condition on elements held by lanes. */
  private maskOfElements(e: Expr, context: LaneContext): Code {
    const format = this.vectors.format(context.dtype);
    if (e.kind === "logic") {
      const [left, right] = [e.left, e.right].map(
        (part) => this.mask([part], context, false) ?? hexadecimal(2 ** format.lanes - 1),
      );
      return code`(${left ?? NOTHING} ${e.op === "and" ? "&" : "|"} ${right ?? NOTHING})`;
    }
    if (e.kind !== "compare") internal(`"${e.kind}" is no condition`);
    return this.vectors.compared(e.op, format, this.vector(e.left, context), this.vector(e.right, context));
  }
}

/** Fewest accesses for which a pointer is declared. */
const FEWEST_ACCESSES = 8;

interface Base {
  readonly name: Name;
  /** The constant of the address that it points to. */
  readonly constant: number;
}

export class LaneAddresses {
  private readonly c: CExpressions;
  private readonly isRegister: (access: Access) => boolean;
  private bases: ReadonlyMap<string, Base> = new Map();
  private declared = 0;

  constructor(c: CExpressions, isRegister: (access: Access) => boolean) {
    this.c = c;
    this.isRegister = isRegister;
  }

  /** Prints a loop of lanes with its pointers declared before it. */
  around(loop: Loop, extents: Extents, print: () => Code[]): Code[] {
    const lines = this.declare(loop, { ...extents, [loop.axis]: loop.extent });
    try {
      return [...lines, ...print()];
    } finally {
      this.bases = new Map();
    }
  }

  /** A pointer and the address of an element counted from it. */
  parts(tensor: string, at: Expr, extents: Extents): { readonly base: Code; readonly offset: Code } {
    const { base, offset } = this.counted(tensor, at) ?? {};
    if (base === undefined) return { base: this.c.tensor(tensor), offset: this.c.index(at, extents) };
    return { base: code`${base}`, offset: code`${offset ?? 0}` };
  }

  /** The address of an element. */
  at(tensor: string, at: Expr, extents: Extents): Code {
    const { base, offset } = this.parts(tensor, at, extents);
    const text = skeleton(offset);
    if (text === "0") return base;
    return /^-\d+$/.test(text) ? code`${base} - ${Number(text.slice(1))}` : code`${base} + ${offset}`;
  }

  /** The declared pointer that an address is counted from, and how far it is from there; undefined if there is none. */
  private counted(tensor: string, at: Expr): { readonly base: Name; readonly offset: number } | undefined {
    if (this.bases.size === 0) return undefined;
    const form = affineForm(at);
    const base = form && this.bases.get(keyOf(tensor, form));
    return base && form && { base: base.name, offset: form.constant - base.constant };
  }

  private declare(loop: Loop, extents: Extents): Code[] {
    const found = new Map<string, { readonly tensor: string; readonly first: Expr; count: number }>();
    for (const access of movedIn(loop)) {
      if (this.isRegister(access)) continue;
      const first = substitute(this.c.placeOf(access, extents).at, new Map([[loop.axis, number(0)]]), "index");
      const form = affineForm(first);
      if (!form || form.terms.size === 0) continue;
      const key = keyOf(access.tensor, form);
      const known = found.get(key);
      if (known) known.count++;
      else found.set(key, { tensor: access.tensor, first, count: 1 });
    }
    const used = [...found].filter(([, { count }]) => count >= FEWEST_ACCESSES);
    this.bases = new Map(
      used.map(([key, { tensor, first }]) => [
        key,
        { name: tensorName(tensor).with(`_at${++this.declared}`), constant: affineForm(first)?.constant ?? 0 },
      ]),
    );
    return used.map(
      ([key, { tensor, first }]) =>
        code`auto* const ${this.bases.get(key)?.name ?? tensorName(tensor)} = ${this.c.tensor(tensor)} + ${this.c.index(first, extents)};`,
    );
  }
}

/** What statements on lanes load, store and prefetch as vectors. */
function movedIn({ body, axis }: Loop): readonly Access[] {
  return body.flatMap((s) => {
    if (s.kind !== "scalar") return [];
    const vectors = accessesOf(s.equation).filter(({ index }) => index.some((e) => axesIn(e).includes(axis)));
    return s.prefetch ? [...vectors, s.prefetch] : vectors;
  });
}

function keyOf(tensor: string, { terms }: AffineForm): string {
  return `${tensor} ${[...terms]
    .map(([name, factor]) => `${factor}*${name}`)
    .sort()
    .join("+")}`;
}
