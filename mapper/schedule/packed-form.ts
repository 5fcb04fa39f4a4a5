/**
 * @file How the elements of an operand lie in packed tiles: as the instruction takes them, or in a narrower type from which each load makes them.
 *
 *     f32(w[k,n]), w of s8                             bytes, which a load widens
 *     (f32(q[n,g,k]) - 8) * s[n,g], q from 0 to 15     half bytes; a load makes (f32(element[]) - 8) * s[n,g] of each
 */

import { evaluateIndex, extentOf, extentsBy } from "../../abstraction/affine.ts";
import { hasName, memoisedPair, sortedBy, upTo, volumeOf } from "../../abstraction/collections.ts";
import { tensorOf } from "../../abstraction/computation.ts";
import { bytesOf, type DType, rangeOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  access,
  accessesIn,
  axesIn,
  axis,
  childrenOf,
  type Expr,
  number,
  substitute,
  walk,
} from "../../abstraction/expression.ts";
import { type Operand, operandOf } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { tileOffset } from "../../abstraction/memory-tile.ts";
import { dropIdleCasts, dtypesOf } from "../../abstraction/typing.ts";
import { type Range, valueRange } from "../../abstraction/value-range.ts";
import { halfBytesOf, laneArithmetic, registersTaken, takenBy, widenedLoad } from "../../targets/registers.ts";
import { dependsOn, dimensionsOf, type LoopDimension } from "./dimensions.ts";

/** How the tiles of an operand lie in memory: the type of their elements, and what an element is made of. */
export interface PackedForm {
  readonly dtype: DType;
  /** Bytes of an element. */
  readonly bytes: number;
  readonly value: Expr;
  /** What a load makes of an element of memory; undefined for one that takes it as it is, or widens it. */
  readonly made?: MadeForm;
}

/** What a load makes of the elements of a tile. */
export interface MadeForm {
  /** Over the computation's loops, with the element of memory as `element[]`. */
  readonly value: Expr;
  /** Parts of the value that differ from lane to lane, by their names in it. They are packed in tiles of their own. */
  readonly parts: Readonly<Record<string, Expr>>;
  /** Instructions that make a vector of what a load reads: those that widen, and arithmetic. */
  readonly operations: number;
}

/** Instructions that widen a vector of integers: two conversions, or a shift and a mask or permutation. */
const WIDENING = 2;

/** The element of memory, in what a load makes of it. */
export const ELEMENT = access("element", []);

/** The form in which an operand is packed, whatever the schedule. */
export const packedForm: (mapping: Mapping, operand: string) => PackedForm = memoisedPair(findForm);

function findForm(mapping: Mapping, name: string): PackedForm {
  const { computation, intrinsic, binding } = mapping;
  const operand = operandOf(intrinsic, name);
  const bound = binding[name] ?? internal(`${name} stands for nothing`);
  const plain: PackedForm = { dtype: operand.dtype, bytes: bytesOf(operand.dtype), value: bound };

  // 1. The integers among what it is made of: those that are most are packed.
  const types = dtypesOf(Object.values(computation.tensors));
  const extents = extentsBy(computation.axes);
  const points = (e: Expr): number => volumeOf(axesIn(e).map((axis) => ({ extent: extentOf(axis, extents) })));
  const [core] = sortedBy(integersIn(bound, operand.dtype), (a) => -points(a));
  const range = core && valueRange(core.value, types);
  if (core === undefined || range === undefined) return plain;
  const isConstant = accessesIn(bound).every((a) => tensorOf(computation, a.tensor).constant);
  const canMake = isConstant && fillsTiles(mapping, name);
  const halves = canMake && isInside(range, [0, 15]) && halfBytesOf(operand) !== undefined;
  const dtype = halves ? "u8" : BYTES.find((type) => isInside(range, rangeOf(type)));
  if (dtype === undefined || (!halves && widenedLoad(operand, dtype) === undefined)) return plain;
  const value = dropIdleCasts({ kind: "cast", dtype, saturate: false, value: core.value }, types);
  const form = { dtype, bytes: halves ? 0.5 : 1, value };

  // 2. What a load makes of them.
  if (core === bound && !halves) return form;
  const made = canMake && laneArithmetic(operand) ? madeOf(mapping, operand, bound, core) : undefined;
  return made ? { ...form, made } : plain;
}

/** Types of one byte, the one preferred where both hold a value first. */
const BYTES = ["s8", "u8"] as const;

const isInside = ([least, most]: Range, [from, to]: Range): boolean => from <= least && most <= to;

/** The casts of integers to a type that sums, differences and products join. */
function integersIn(e: Expr, dtype: DType): Cast[] {
  if (e.kind === "cast") return e.dtype === dtype && !e.saturate ? [e] : [];
  return isLanewise(e) ? [e.left, e.right].flatMap((side) => integersIn(side, dtype)) : [];
}

type Cast = Extract<Expr, { kind: "cast" }>;

/** What a vector computes of two vectors lane by lane. */
const isLanewise = (e: Expr): e is Extract<Expr, { kind: "binary" }> & { readonly op: "+" | "-" | "*" } =>
  e.kind === "binary" && (e.op === "+" || e.op === "-" || e.op === "*");

/** Whether nothing but kept elements pads the tiles of an operand: what a load makes of padding is not 0. */
function fillsTiles(mapping: Mapping, name: string): boolean {
  const { computation, intrinsic } = mapping;
  const dimensions = dimensionsOf(mapping);
  return (
    computation.equation.where === undefined &&
    operandOf(intrinsic, name).dims.every(({ name: axis, extent }) => {
      const d = dimensions.find((one) => one.axis === axis);
      const isSummed = intrinsic.computation.axes.some((a) => a.name === axis && a.kind === "reduce");
      return !isSummed || extent === 1 || (d !== undefined && d.steps === d.wholeSteps);
    })
  );
}

/**
 * The tile of a part that differs from lane to lane, as an operand: that of the elements, or one along the dimension of which each lane takes its
 * element.
 */
export function partOperand(operand: Operand): Operand {
  const places = tileOffset(operand);
  const of = operand.dims.find((o) => {
    const others = new Map(operand.dims.map((other) => [other.name, other === o ? axis(o.name) : number(0)]));
    const taken = takenBy(operand, substitute(places, others, "index"));
    return upTo(o.extent).every((i) => evaluateIndex(taken, { [o.name]: i }) === i);
  });
  return of === undefined ? operand : { ...operand, dims: [of], storage: axis(of.name), broadcast: [] };
}

/**
 * The value of a load, with its parts; undefined if a part would be packed as often as the element itself, or if the registers have no instruction.
 */
function madeOf(mapping: Mapping, operand: Operand, bound: Expr, core: Cast): MadeForm | undefined {
  const dimensions = dimensionsOf(mapping).filter((d) => dependsOn(mapping, operand.name, d));
  const lanes = dimensions.filter((d) => d.step > 1);
  const parts: Record<string, Expr> = {};
  const words = laneArithmetic(operand);
  const tile = partOperand(operand);
  let fits = true;
  const made = (e: Expr): Expr => {
    if (e === core) return { ...core, value: ELEMENT };
    if (isLanewise(e) && contains(e, core)) {
      fits &&= words?.[e.op] !== undefined;
      return { ...e, left: made(e.left), right: made(e.right) };
    }
    const differing = lanes.filter((d) => !isAlike(e, d));
    if (differing.length === 0) return e;
    const part = `part${Object.keys(parts).length}`;
    parts[part] = e;
    const used = new Set(axesIn(e));
    fits &&= dimensions.some((d) => d.loops.every((l) => !used.has(l.name)));
    fits &&= differing.every((d) => hasName(tile.dims, d.axis));
    return access(part, []);
  };
  const value = made(bound);
  const arithmetic = [...walk(value)].filter(isLanewise).length;
  return fits ? { value, parts, operations: (WIDENING + arithmetic) * registersTaken(operand.file) } : undefined;
}

const contains = (e: Expr, part: Expr): boolean => e === part || childrenOf(e).some((child) => contains(child, part));

/** Whether a value is the same in all elements of a tile along a dimension: `s[n,k/32]` in sixteen k. */
function isAlike(e: Expr, d: LoopDimension): boolean {
  if (e.kind === "axis") return !hasName(d.loops, e.name);
  if (e.kind !== "access") return childrenOf(e).every((child) => isAlike(child, d));
  return e.index.every((index) => {
    if (isAlike(index, d)) return true;
    const [loop, ...others] = d.loops;
    if (loop === undefined || others.length > 0 || axesIn(index).length > 1) return false;
    const at = (k: number): number => evaluateIndex(index, { [loop.name]: k });
    return upTo(loop.extent).every((k) => at(k) === at(k - (k % d.step)));
  });
}
