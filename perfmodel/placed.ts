/**
 * @file The cost of one placement of an operand: the memory its loads touch, and how a call packs it.
 *
 *     a 3x3 convolution of 64x56x56 u8, NHWC: its image padded     packed by copying rows, loaded from a copy of 64 x 58 x 58 bytes
 *
 * plan.ts computes it once for each mapping. Whatever depends on the schedule is read from the states of the dimensions.
 */

import { type AffineForm, addressOf, affineForm, boundsOf, gcd } from "../abstraction/affine.ts";
import type { Placement } from "../abstraction/candidate.ts";
import { namesOf, present, product, sortedBy, sumOf, volumeOf } from "../abstraction/collections.ts";
import {
  type Computation,
  extentsOf,
  memoryElements,
  outputOf,
  type Tensor,
  tensorOf,
} from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { epilogueAt } from "../abstraction/epilogue.ts";
import { internal } from "../abstraction/error.ts";
import { type Access, access, accessesIn, axesIn, childrenOf, type Expr, number } from "../abstraction/expression.ts";
import type { Operand } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { tileOffset, tileRowElements } from "../abstraction/memory-tile.ts";
import { copyParts, elementsOf } from "../mapper/lower/copies.ts";
import { partsPackedIn, scheduledParts } from "../mapper/match/conditions.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import type { Border, BorderBlocks } from "../mapper/schedule/borders.ts";
import { gapsOf, type LoopDimension } from "../mapper/schedule/dimensions.ts";
import { type PackedForm, packedForm } from "../mapper/schedule/packed-form.ts";
import { type PaddedCopy, type Reach, reachInPlace, reachPadded, reachWindowed } from "../mapper/schedule/reach.ts";
import { type Moved, STILL } from "../mapper/schedule/within.ts";
import { writesVectorRows } from "../targets/index.ts";
import {
  AffineFootprint,
  type Covered,
  type Footprint,
  LINE_BYTES,
  RunFootprint,
  type Term,
  term,
} from "./footprint.ts";

/** A dimension under the schedule read last. */
export interface DimensionState extends Covered {
  readonly name: string;
  readonly kind: LoopDimension["kind"];
  readonly spatial: boolean;
  readonly steps: number;
  /** Whether the last step is partial. */
  readonly partial: boolean;
  /** Steps that register blocks cover; only whole ones when results are stored directly. */
  readonly usable: number;
  /** Steps of a block, number of such blocks, steps of the smaller remainder block, number of all blocks. */
  block: number;
  whole: number;
  left: number;
  blocks: number;
  /** Steps of the thread that finishes last; all of them unless the loop is divided among threads. */
  ownSteps: number;
  ownWhole: number;
  ownBlocks: number;
  /** The border in which it is the kept dimension; and whether it is the summed dimension of some border. */
  border: BorderBlocks | undefined;
  meets: boolean;
  /** Blocks of a tile; all blocks when there is no loop over tiles. */
  tile: number;
  /** Set while an order is read, to detect a loop that occurs twice. */
  read: number;
  tileRead: number;
}

/** Cost of one element's address besides additions. What the innermost loop does not change is counted once for each run of it. */
interface IndexArithmetic {
  /** Quotients and remainders that split a fused index. */
  readonly digits: number;
  /** Comparisons that exclude padding. */
  readonly guards: number;
}

/** Largest size in bytes of a row copied under a mask, and its smallest number of elements (codegen/cpp/copy-loops.ts). */
const ROW_BYTES = 64;
const FEWEST_IN_ROW = 8;
const WORD_BYTES = 4;

/** How an input is packed once a call. */
export interface Packing {
  /**
   * `copy`: runs that are contiguous on both sides; `strided`: plain loops; `indexed`: divisions and guards for each element; `made`: vectors of
   * what loads make.
   */
  readonly kind: "copy" | "strided" | "indexed" | "made";
  readonly elements: number;
  /** Elements of one run of the innermost loop. */
  readonly run: number;
  readonly arithmetic: IndexArithmetic;
  /** Whether the elements of a tile's row are scattered in the tensor. */
  readonly gathered: boolean;
  /** Operations that make an element of what is read, as the cast of `f32(w[i,k])`; of `made` vectors the instructions for a tile. */
  readonly operations: number;
  readonly bytes: number;
  /** The part that passes through the caches: a copy made inside a loop is overwritten in place. */
  readonly passingBytes: number;
  /** Bytes of the tensors it reads. */
  readonly sourceBytes: number;
  /** Steps of the loop that is divided among threads; undefined when the order of the schedule decides. */
  readonly dealt: number | undefined;
  /** Whether the tensors' lines are fetched into the caches during the products of the step before. */
  readonly ahead?: boolean;
}

/** An input under one placement. */
export interface PlacedInput {
  readonly footprint: Footprint;
  /** Bytes of the memory it is loaded from, including padding. */
  readonly bufferBytes: number;
  /** Fraction of the loads that touch two lines. */
  readonly straddling: number;
  /** Instructions that make a tile of what a load reads. */
  readonly operations: number;
  /** Undefined for an input that is loaded in place or was packed ahead of time. */
  readonly packing: Packing | undefined;
  /** How its tiles across the edge of a condition are packed in addition, as if all were; undefined when a call packs none. */
  readonly edges: Packing | undefined;
  /** Borders it crosses; work outside them is left out. */
  readonly borders: readonly Border[];
}

/** The contribution of one kept dimension to storing element by element. */
export interface ResultDimension {
  readonly state: DimensionState;
  readonly step: number;
  readonly extent: number;
  /** Distance in the output between two values, in elements; infinite when it varies. */
  readonly coefficient: number;
  readonly digits: number;
  /** Whether its elements are contiguous in the scratch block: it is the last axis of the tile. */
  readonly last: boolean;
}

export function placedInput(
  mapping: Mapping,
  operand: Operand,
  placement: Placement,
  dimensions: readonly LoopDimension[],
  states: readonly DimensionState[],
  own: ReadonlySet<DimensionState>,
  crossed: readonly Border[],
): PlacedInput {
  const { computation, binding } = mapping;
  const bound = binding[operand.name] ?? internal(`${operand.name} stands for nothing`);
  const sources = [...new Set(accessesIn(bound).map((a) => a.tensor))].map((name) => tensorOf(computation, name));
  const constant = sources.every((t) => t.constant);
  const sourceBytes = sumOf(sources, (t) => bytesOfTensor(t));
  const size = bytesOf(operand.dtype);
  const tile = volumeOf(operand.dims);
  const rowBytes = Math.min(tile, tileRowElements(operand)) * size;

  const form = packedForm(mapping, operand.name);
  const tiles = constant ? undefined : tiledPacking(mapping, operand, form, dimensions, own, sourceBytes);
  if (placement === "tiled" || bound.kind !== "access") {
    return {
      footprint: new RunFootprint(own, tile * form.bytes),
      bufferBytes: tile * product([...own].map((d) => d.steps)) * form.bytes,
      straddling: straddles(tile * form.bytes, (rowBytes / size) * form.bytes),
      operations: form.made?.operations ?? 0,
      packing: tiles,
      edges: undefined,
      borders: [],
    };
  }
  const reachCopy = placement === "padded" ? reachPadded : placement === "windowed" ? reachWindowed : undefined;
  const loaded = { mapping, operand, access: bound, dimensions };
  const padded = reachCopy?.(loaded);
  const reach = padded === undefined ? reachInPlace(loaded) : typeof padded === "string" ? padded : padded.reach;
  if (typeof reach === "string") internal(`${operand.name} is not reached: ${reach}`);
  return {
    footprint: new AffineFootprint(reachTerms(reach, dimensions, states), size),
    bufferBytes: padded === undefined || typeof padded === "string" ? sourceBytes : padded.copy.elements * size,
    straddling: straddlingShare(reach, size, rowBytes),
    operations: 0,
    packing:
      padded === undefined || typeof padded === "string" || constant
        ? undefined
        : copyPacking(mapping, bound, padded.copy, size, sourceBytes),
    edges: tiles,
    borders: placement === "in-place" ? crossed : [],
  };
}

/** Packing of every tile of an operand, element by element or one masked row at a time (codegen/cpp/copy-loops.ts). */
function tiledPacking(
  { computation, intrinsic, binding }: Mapping,
  operand: Operand,
  { bytes: size, value: bound }: PackedForm,
  dimensions: readonly LoopDimension[],
  own: ReadonlySet<DimensionState>,
  sourceBytes: number,
): Packing {
  const elements = volumeOf(operand.dims) * product([...own].map((d) => d.steps));
  const run = operand.dims.at(-1)?.extent ?? 1;
  const names = new Set(namesOf([...own]));
  const moving = dimensions.filter((d) => names.has(d.name));
  const outer = operand.dims.at(-2);
  const innermost = operand.dims.at(-1);
  const reads = accessesIn(bound);
  const tests = outsideTests(computation, bound);
  const on = (name: string | undefined): LoopDimension | undefined =>
    moving.find((d) => d.axis !== undefined && d.axis === name);
  const strides = (d: LoopDimension | undefined): readonly (number | undefined)[] =>
    d ? reads.map((read) => strideAlong(computation, read, d)) : [];
  // Only elements moved as they are, not converted or combined, are moved by rows of vectors.
  const isMoved = bound.kind === "access";
  const stride = (d: LoopDimension | undefined): number | undefined => (isMoved ? strides(d)[0] : undefined);
  const along = (name: string | undefined): number | undefined => stride(on(name));
  const isOneLoop = (name: string | undefined): boolean =>
    moving.every((d) => d.axis !== name || d.loops.filter((l) => l.extent > 1).length <= 1);
  const neighbour = operand.dims.findLast((o) => o.extent > 1)?.name;
  const between = along(neighbour);
  const keepsOut =
    partsPackedIn(scheduledParts(defineProblem(computation, intrinsic, binding)), operand.name).length > 0;
  const isRow =
    keepsOut &&
    between === 1 &&
    writesVectorRows(intrinsic.isa) &&
    run >= FEWEST_IN_ROW &&
    run * size <= ROW_BYTES &&
    affineForm(tileOffset(operand))?.terms.get(innermost?.name ?? "") === 1 &&
    isOneLoop(innermost?.name);
  // The same elements of all rows that are turned or mixed must be left out.
  const isTested = (name: string | undefined): boolean =>
    moving.some(
      (d) =>
        d.axis !== undefined &&
        d.axis === name &&
        (d.steps !== d.wholeSteps || d.loops.some((l) => l.extent > 1 && tests.some((test) => test.includes(l.name)))),
    );
  // Words of consecutive elements, one row of the tile or of the steps along a loop, transposed in registers (codegen/cpp/copy-loops.ts).
  const isTurned =
    writesVectorRows(intrinsic.isa) &&
    run * WORD_BYTES === ROW_BYTES &&
    between !== undefined &&
    (size < WORD_BYTES
      ? (outer?.extent ?? 0) * size === ROW_BYTES &&
        along(outer?.name) === 1 &&
        isOneLoop(outer?.name) &&
        !isTested(innermost?.name)
      : size === WORD_BYTES && operand.dims.length === 1 && !keepsOut && stride(moving.at(-1)) === 1) &&
    isOneLoop(innermost?.name);
  // Words of elements from neighbouring rows, each of which lies in memory as sixteen elements.
  const isMixed =
    writesVectorRows(intrinsic.isa) &&
    run * WORD_BYTES === ROW_BYTES &&
    size < WORD_BYTES &&
    between === 1 &&
    (outer?.extent ?? 0) % (WORD_BYTES / size) === 0 &&
    !isTested(outer?.name) &&
    isOneLoop(innermost?.name) &&
    isOneLoop(outer?.name);
  return {
    kind: isRow || isTurned || isMixed ? "copy" : "indexed",
    elements,
    run: isTurned || isMixed ? ROW_BYTES / size : run,
    arithmetic: indexArithmetic(operand, moving, tests),
    gathered: strides(on(neighbour)).some((step) => step !== undefined && Math.abs(step) > 1),
    operations: operationsIn(bound),
    bytes: elements * size,
    passingBytes: elements * size,
    sourceBytes,
    dealt: undefined,
  };
}

/** Tile and steps in one term: step*s + e takes every value below steps*step. */
function reachTerms(reach: Reach, dimensions: readonly LoopDimension[], states: readonly DimensionState[]): Term[] {
  return dimensions.map((d, i) => term((reach.perStep.get(d.name) ?? 0) / d.step, at(states, i), d.step));
}

/** The address of an output element in terms of the computation's loops; undefined when the output is stored in blocks. */
export function outputPlace(computation: Computation): AffineForm | undefined {
  const { equation, epilogue } = computation;
  const held = access(equation.target.tensor, equation.target.index);
  const { index } = epilogue ? epilogueAt(epilogue, equation.target.index, held).target : equation.target;
  return affineForm(addressOf(outputOf(computation), index));
}

/** The output's elements. A fused dimension counts its loops separately, since they need not be contiguous. */
export function outputFootprint(
  computation: Computation,
  flat: AffineForm | undefined,
  dimensions: readonly LoopDimension[],
  states: readonly DimensionState[],
): Footprint {
  const size = bytesOf(outputOf(computation).dtype);
  const spatial = dimensions.flatMap((d, i) => (d.kind === "spatial" ? [{ d, state: at(states, i) }] : []));
  if (!flat)
    return new RunFootprint(
      spatial.map((s) => s.state),
      product(spatial.map((s) => s.d.step)) * size,
    );
  const terms = spatial.flatMap(({ d, state }) => {
    return d.loops.map((l, position): Term => {
      const divisor = d.weights[position] ?? 1;
      return { coefficient: flat.terms.get(l.name) ?? 0, dimension: state, perStep: d.step, divisor, most: l.extent };
    });
  });
  return new AffineFootprint(terms, size, { written: true });
}

export function resultDimension(
  d: LoopDimension,
  state: DimensionState,
  flat: AffineForm | undefined,
  target: Operand,
): ResultDimension {
  const moving = d.loops.findLast((l) => l.extent > 1);
  const coefficient = flat === undefined || moving === undefined ? undefined : flat.terms.get(moving.name);
  return {
    state,
    step: d.step,
    extent: d.extent,
    coefficient: coefficient === undefined ? Number.POSITIVE_INFINITY : Math.abs(coefficient),
    // Loops that lie one behind the other in the output are one index.
    digits: coefficient !== undefined && isOneRun(d, coefficient, flat) ? gapsOf(d).length : digitsIn(d),
    last: d.axis !== undefined && d.axis === target.dims.findLast((o) => o.extent > 1)?.name,
  };
}

/** Whether all steps of a dimension are equally far apart. */
function isOneRun({ loops, weights }: LoopDimension, coefficient: number, flat: AffineForm | undefined): boolean {
  const least = weights[loops.findLastIndex((l) => l.extent > 1)] ?? 1;
  return loops.every((l, i) => l.extent <= 1 || flat?.terms.get(l.name) === (coefficient * (weights[i] ?? 1)) / least);
}

/** Quotients and remainders that split a fused dimension, and tests of its gaps, as mapper/schedule/dimensions.ts writes them. */
function digitsIn(d: LoopDimension): number {
  let digits = gapsOf(d).length;
  // A loop with one step needs none: compilers see that its quotient is 0 and drop the remainder.
  let outermost = true;
  for (const [position, l] of d.loops.entries()) {
    if (l.extent <= 1) continue;
    digits += ((d.weights[position] ?? 1) > 1 ? 1 : 0) + (outermost ? 0 : 1);
    outermost = false;
  }
  return digits;
}

/** Operations that make a value of the elements it reads; what their indices take is counted apart. */
export function operationsIn(e: Expr): number {
  if (e.kind === "access" || e.kind === "number" || e.kind === "axis") return 0;
  return childrenOf(e).reduce((sum, part) => sum + operationsIn(part), 1);
}

/** The loops of every index that may leave its tensor, once for each side on which it may. */
function outsideTests(computation: Computation, bound: Expr): readonly string[][] {
  const extents = extentsOf(computation);
  return accessesIn(bound).flatMap((a) =>
    a.index.flatMap((e, i) => {
      const [least, most] = boundsOf(e, extents);
      const extent = tensorOf(computation, a.tensor).dims[i]?.extent ?? 0;
      return present([least < 0 && axesIn(e), most >= extent && axesIn(e)]);
    }),
  );
}

/** Digits of fused dimensions, guards of steps and axes that are not whole, and the given tests, as lowering writes them. */
function indexArithmetic(
  operand: Operand,
  own: readonly LoopDimension[],
  tests: readonly (readonly string[])[],
): IndexArithmetic {
  const innermost = operand.dims.at(-1);
  const once = 1 / Math.max(1, innermost?.extent ?? 1);
  const moving = own.find((d) => d.axis !== undefined && d.axis === innermost?.name);
  let digits = 0;
  let guards = 0;
  for (const d of own) {
    const share = d === moving ? 1 : once;
    digits += share * digitsIn(d);
    if (d.steps !== d.wholeSteps) guards += share;
  }
  for (const o of operand.dims)
    if (o.extent > 1 && !own.some((d) => d.axis === o.name)) guards += o === innermost ? 1 : once;
  for (const loops of tests) guards += moving?.loops.some((l) => loops.includes(l.name)) ? 1 : once;
  return { digits, guards };
}

/** Distance in the tensor between neighbours on an axis of a tile; undefined when it varies, or the tensor is stored in blocks. */
function strideAlong(computation: Computation, bound: Access, dimension: LoopDimension): number | undefined {
  const loop = dimension.loops.findLast((l) => l.extent > 1)?.name;
  const { dims, storage } = tensorOf(computation, bound.tensor);
  const form = affineForm(storage);
  if (loop === undefined || form === undefined) return undefined;
  const steps = bound.index.map(
    (e, i) => (affineForm(e)?.terms.get(loop) ?? 0) * (form.terms.get(dims[i]?.name ?? "") ?? 0),
  );
  return sumOf(steps);
}

/**
 * A padded copy, written element by element with its outermost dimension divided among threads. The border keeps its initial zeros.
 * @param moved how loops around it shift it: what is outside then depends on their step, and rows are tested
 */
export function copyPacking(
  { computation, intrinsic }: Mapping,
  bound: Access,
  copy: PaddedCopy,
  elementBytes: number,
  sourceBytes: number,
  moved: Moved = STILL,
): Packing {
  const tensor = tensorOf(computation, bound.tensor);
  const storage = affineForm(tensor.storage);
  const extents = extentsOf(computation);
  const testsOf = (position: number): number => {
    const index = bound.index[position] ?? number(0);
    const [least, most] = boundsOf(index, extents);
    return moved.moves(index) ? Number(least < 0) + Number(most >= (tensor.dims[position]?.extent ?? 0)) : 0;
  };
  const ranges = copy.dims.map((c) => {
    const position = tensor.dims.findIndex((d) => d.name === c.name);
    const extent = tensor.dims[position]?.extent ?? 0;
    const held = Math.max(0, Math.min(extent, c.low + c.extent) - Math.max(0, c.low));
    return {
      extent: held,
      stride: c.stride,
      sourceStride: storage?.terms.get(c.name),
      isTested: testsOf(position) > 0,
    };
  });
  const loops = copy.apart.map((l) => {
    const position = bound.index.findIndex((e) => axesIn(e).includes(l.name));
    const steps = affineForm(bound.index[position] ?? number(0))?.terms.get(l.name) ?? 1;
    const between = storage?.terms.get(tensor.dims[position]?.name ?? "");
    return {
      extent: l.extent,
      stride: l.stride,
      sourceStride: between === undefined ? undefined : between * steps,
      isTested: testsOf(position) > 0,
    };
  });
  const moving = sortedBy(
    [...ranges, ...loops].filter((w) => w.extent > 1),
    (a) => -a.stride,
  );
  const elements = sumOf(copyParts(tensor, bound, copy, moved), (part) => elementsOf(part));
  // Loops laid apart are short: the compiler writes out those whose steps lie one behind the other on both sides, and they make one run.
  let run = 1;
  for (const [i, w] of [...moving].reverse().entries())
    if ((i === 0 || (loops.includes(w) && !w.isTested)) && w.stride === run && w.sourceStride === run) run *= w.extent;
    else break;
  const isTurned =
    writesVectorRows(intrinsic.isa) &&
    elementBytes === WORD_BYTES &&
    moving.at(-1)?.stride === 1 &&
    moving.at(-2)?.sourceStride === 1;
  return {
    kind: moving.length === 0 || run > 1 || isTurned ? "copy" : "strided",
    elements,
    run: isTurned ? ROW_BYTES / WORD_BYTES : Math.max(run, 1),
    arithmetic: { digits: 0, guards: sumOf(bound.index.keys(), testsOf) },
    gathered: false,
    operations: 0,
    bytes: elements * elementBytes,
    passingBytes: elements * elementBytes,
    sourceBytes,
    dealt: moving[0]?.extent ?? 1,
  };
}

export function bytesOfTensor(tensor: Tensor): number {
  return memoryElements(tensor) * bytesOf(tensor.dtype);
}

export function straddlingShare(reach: Reach, elementBytes: number, bytes: number): number {
  let grain = reach.base * elementBytes;
  for (const perStep of reach.perStep.values()) grain = gcd(grain, perStep * elementBytes);
  return straddles(grain, bytes);
}

/** Fraction of the addresses, every `grain` bytes, at which `bytes` reach into the next line. */
function straddles(grain: number, bytes: number): number {
  const step = gcd(grain, LINE_BYTES);
  let crossing = 0;
  for (let place = 0; place < LINE_BYTES; place += step)
    if (place + Math.min(bytes, LINE_BYTES) > LINE_BYTES) crossing++;
  return crossing / (LINE_BYTES / step);
}

export function at<T>(items: readonly T[], index: number): T {
  const item = items[index] ?? internal(`nothing at ${index} of ${items.length}`);
  return item;
}
