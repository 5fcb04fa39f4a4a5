/**
 * @file From a mapping to addresses, in the two steps of the AMOS paper (section 5.1), both printable.
 *
 *     virtual     i1 = 4*n + 2*p + q     r1 = 9*c + 3*r + s          one 4x9 by 9x4 product, base 0, strides 9 and 4
 *     physical    i1 % 2                 r1 % 2                      on 2x2x2:
 *                 base of a = (4*n + 2*p + q)/2*20 + (9*c + 3*r + s)/2*4,   stride 2,   2*2*5 issues, 9 padded to 10
 *
 * The loops of an axis fuse row-major into one index. The instruction uses the fused index modulo its extent. The
 * quotients number the tiles, which are stored one after another: base = (tile row * tiles per row + tile column) *
 * tile elements.
 */

import type { Dimension } from "../../abstraction/affine.ts";
import { product, volumeOf } from "../../abstraction/collections.ts";
import { liesRowMajor } from "../../abstraction/computation.ts";
import { internal } from "../../abstraction/error.ts";
import { axis, type Expr, number, operandsOf, over, plus, times } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { tileElements, tileOffset } from "../../abstraction/memory-tile.ts";

/** One axis of the instruction and the loops fused to feed it. */
export interface FusedAxis {
  readonly axis: string;
  readonly kind: "spatial" | "reduce";
  readonly loops: readonly Dimension[];
  /** The fused index over the loops' own counters, `4*n + 2*p + q`; 0 when nothing feeds the axis. */
  readonly index: Expr;
  /** Number of values of the fused index. */
  readonly fused: number;
  /** Extent of the instruction's axis. */
  readonly extent: number;
  readonly tiles: number;
  /** tiles * extent */
  readonly padded: number;
}

/** The addresses of an operand's tiles. */
export interface OperandAddress {
  readonly operand: Operand;
  /** First element of the tile, in terms of the loops' counters. */
  readonly base: Expr;
  /** Elements from one row of the tile to the next; undefined when the tile is not stored by rows. */
  readonly stride: number | undefined;
  /** Elements of one tile. */
  readonly tile: number;
  /** Elements of all tiles. */
  readonly elements: number;
}

/** A mapping with its addresses: the fused index of each axis, the tiles, the strides of each operand. */
export interface PhysicalMapping {
  /** Axes of the instruction. */
  readonly axes: readonly FusedAxis[];
  /** Loops that feed no axis and run around the instruction. */
  readonly outer: readonly { readonly name: string; readonly extent: number; readonly kind: "spatial" | "reduce" }[];
  /** Operands of the instruction, by name. */
  readonly operands: readonly OperandAddress[];
  /** Issues of the instruction, outer loops included. */
  readonly issues: number;
}

/** Base addresses and strides of the operands, in elements, and how often the instruction is issued. */
export function physicalMapping(mapping: Mapping): PhysicalMapping {
  const axes = fuseAxes(mapping);
  const mapped = new Set(Object.values(mapping.matching).flat());
  const outer = mapping.computation.axes.filter((a) => !mapped.has(a.name));
  const operands = mapping.intrinsic.operands.map((operand): OperandAddress => {
    const own = operandAxes(operand, axes);
    const tile = tileElements(operand);
    return {
      operand,
      base: tileBase(operand, own, (a) => over(a.index, a.extent)),
      stride: rowStride(operand),
      tile,
      elements: own.reduce((product, a) => product * a.tiles, tile),
    };
  });
  const issues = product([...axes.map((a) => a.tiles), ...outer.map((a) => a.extent)]);
  return { axes, outer, operands, issues };
}

/** The fused index of every axis of the instruction, in the instruction's order. */
export function fuseAxes({ computation, intrinsic, matching }: Mapping): FusedAxis[] {
  return intrinsic.computation.axes.map((a): FusedAxis => {
    const loops = (matching[a.name] ?? []).flatMap((name) => computation.axes.filter((l) => l.name === name));
    const fused = volumeOf(loops);
    const tiles = Math.ceil(fused / a.extent);
    return {
      axis: a.name,
      kind: a.kind,
      loops,
      index: fusedIndex(loops),
      fused,
      extent: a.extent,
      tiles,
      padded: tiles * a.extent,
    };
  });
}

/** First element of an operand's tile, with the tile number of each axis given. */
export function tileBase(operand: Operand, own: readonly FusedAxis[], tileNumber: (a: FusedAxis) => Expr): Expr {
  const size = tileElements(operand);
  // (row * columns + column) * size, multiplied out: each axis' tile number times the elements between its tiles.
  let between = size;
  let base: Expr = number(0);
  for (const a of [...own].reverse()) {
    base = plus(times(tileNumber(a), between), base);
    between *= a.tiles;
  }
  return base;
}

/** The axes that index an operand, outermost dimension first. */
export function operandAxes(operand: Operand, axes: readonly FusedAxis[]): FusedAxis[] {
  return operand.dims.map((d) => {
    const found =
      axes.find((a) => a.axis === d.name) ?? internal(`${operand.name} is indexed by ${d.name}, which is no axis`);
    return found;
  });
}

/** `9*c + 3*r + s`: strides first, as the paper writes them. */
function fusedIndex(loops: readonly Dimension[]): Expr {
  let stride = 1;
  let index: Expr = number(0);
  for (const { name, extent } of [...loops].reverse()) {
    const term = stride === 1 ? axis(name) : times(stride, axis(name));
    index = plus(term, index);
    stride *= extent;
  }
  return leftAssociated(index);
}

/** a + (b + c)  ->  a + b + c */
const leftAssociated = (e: Expr): Expr => operandsOf(e, "+").reduce((left, right) => plus(left, right));

/** Elements between rows when the tile is row-major over its dimensions. */
function rowStride({ dims, ...operand }: Operand): number | undefined {
  const isRowMajor = liesRowMajor({ dims, storage: tileOffset({ dims, ...operand }) });
  return isRowMajor ? volumeOf(dims.slice(1)) : undefined;
}
