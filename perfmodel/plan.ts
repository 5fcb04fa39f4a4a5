/**
 * @file What a schedule of a mapping does, counted without lowering it: the mapping is compiled once, a schedule is read into it.
 *
 *     conv2d u8s8 NHWC 64x56x56, n <- k, k <- c on avx512.vpdpbusd, block q 12, k 2, a padded, b tiled
 *       issues 1806336    loads of a 903168, of b 161280    stores 12544    packed 200704    distinct bytes of a 215296, of b 36864
 *
 * Counts are products over dimensions, because a nest is one: a dimension has `whole` blocks of `block` steps and at most one
 * smaller block of `left` steps. They equal what a walk over the lowered nest counts (test/perfmodel-counts.test.ts).
 */

import { type AffineForm, affineForm, boundsOf } from "../abstraction/affine.ts";
import type { Placement, Schedule } from "../abstraction/candidate.ts";
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
import { type Access, access, accessesIn, axesIn, binary, type Expr, number, walk } from "../abstraction/expression.ts";
import { type Operand, operandOf, tileRowElements } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { type Border, type BorderBlocks, borderBlocks } from "../mapper/borders.ts";
import { gapsOf, type LoopDimension } from "../mapper/dimensions.ts";
import { defineProblem } from "../mapper/problem.ts";
import { type PaddedCopy, type Reach, reachInPlace, reachPadded, reachWindowed } from "../mapper/reach.ts";
import { dependsOn, edgeIssues, edgesFit, placementsOf, REGISTERS } from "../mapper/schedule.ts";
import { dimensionsUnder, spreadable } from "../mapper/spread.ts";
import { calculatedWide } from "../mapper/store.ts";
import { conditionCarriers } from "../mapper/validate.ts";
import {
  AffineFootprint,
  type Covered,
  type Footprint,
  greatestCommonDivisor,
  RunFootprint,
  type Term,
  term,
} from "./footprint.ts";

/** Bytes that move together between levels of memory. */
export const LINE_BYTES = 64;

/** A dimension under the schedule that was read last. */
export interface DimensionState extends Covered {
  readonly name: string;
  readonly kind: LoopDimension["kind"];
  readonly spatial: boolean;
  readonly steps: number;
  /** The last step is not whole. */
  readonly partial: boolean;
  /** Steps that register blocks share out: whole ones only where results are stored. */
  readonly usable: number;
  /** Steps of a block, number of such blocks, steps of the smaller block that is left, blocks in all. */
  block: number;
  whole: number;
  left: number;
  blocks: number;
  /** The share of the thread that finishes last; all of it unless the loop is dealt to threads. */
  ownSteps: number;
  ownWhole: number;
  ownBlocks: number;
  /** The border at which it is the kept dimension; whether it is the summed one of some border. */
  border: BorderBlocks | undefined;
  meets: boolean;
  /** Set while an order is read, so that a name given twice is noticed. */
  read: number;
}

/** What the address of one element costs besides additions, what the innermost loop does not change counted once a run of it. */
export interface IndexArithmetic {
  /** Quotients and remainders that take a fused index apart. */
  readonly digits: number;
  /** Comparisons that keep padding out. */
  readonly guards: number;
}

const PLAIN: IndexArithmetic = { digits: 0, guards: 0 };

/** How an input is packed once a call. */
export interface Packing {
  /** `copy`: runs of elements side by side on both sides; `strided`: plain loops; `indexed`: divisions and guards an element. */
  readonly kind: "copy" | "strided" | "indexed";
  readonly elements: number;
  /** Elements of one run of the innermost loop. */
  readonly run: number;
  readonly arithmetic: IndexArithmetic;
  /** What a row of a tile holds side by side lies apart in the tensor. */
  readonly gathered: boolean;
  readonly bytes: number;
  /** Bytes of the tensors it reads. */
  readonly sourceBytes: number;
  /** Steps of the loop dealt to threads; undefined when the order of the schedule decides. */
  readonly dealt: number | undefined;
}

/** An input where one placement puts it. */
export interface PlacedInput {
  readonly footprint: Footprint;
  /** Of the memory it is loaded from, padding included. */
  readonly bufferBytes: number;
  /** Share of the loads that touch two lines. */
  readonly straddling: number;
  /** Undefined for what is loaded in place or was packed ahead of time. */
  readonly packing: Packing | undefined;
  /** What it crosses: what lies outside is left out. */
  readonly borders: readonly Border[];
}

export interface InputState {
  readonly name: string;
  readonly operand: Operand;
  /** Dimensions its tiles change with. */
  readonly own: ReadonlySet<DimensionState>;
  readonly placements: Readonly<Partial<Record<Placement, PlacedInput>>>;
  /** Padded, its last step reads elements that are not its own: one input only may. */
  readonly runsPast: boolean;
  /** Under the schedule that was read last. */
  placed: PlacedInput;
  /** Its tiles in a full register block. */
  tiles: number;
}

/** What one kept dimension contributes to storing element by element. */
interface ResultDimension {
  readonly state: DimensionState;
  readonly step: number;
  readonly extent: number;
  /** Elements of the output from one value to the next; infinite where that is no constant. */
  readonly coefficient: number;
  readonly digits: number;
  /** Its elements lie side by side in the scratch block: it is the last axis of the tile. */
  readonly last: boolean;
}

export interface Stores {
  readonly tiles: number;
  /** Elements moved from the scratch block to the output. */
  readonly scattered: number;
  /** Digits worked out for each of them. */
  readonly digits: number;
  /** They lie side by side in the scratch block and in the output. */
  readonly sideBySide: boolean;
}

/** What a walk over the lowered nest would count, all threads together. */
export interface Counts {
  readonly issues: number;
  /** Tiles loaded, by operand. */
  readonly loads: Readonly<Record<string, number>>;
  /** Tiles stored, straight or into the scratch block. */
  readonly stores: number;
  /** Elements moved from the scratch block to the output. */
  readonly scattered: number;
  /** Elements written by the packing of a call, by operand. */
  readonly packed: Readonly<Record<string, number>>;
  /** Bytes loaded at least once, by operand. */
  readonly distinctBytes: Readonly<Record<string, number>>;
}

/** A mapping compiled for reading schedules. One schedule at a time: its state is overwritten by the next. */
export class Plan {
  readonly mapping: Mapping;
  readonly inputs: readonly InputState[];
  readonly target: Operand;
  readonly output: Footprint;
  readonly outputOwn: ReadonlySet<DimensionState>;
  /** Whether whole tiles are stored straight into the output, and the share of such stores that touch two lines. */
  readonly straight: boolean;
  readonly straddling: number;
  /** Operations of the epilogue, and whether they have loops of their own before results are stored. */
  readonly operations: number;
  readonly wide: boolean;
  private readonly results: readonly ResultDimension[];
  readonly outputBytes: number;
  /** In the order of the schedule read last, outermost first. */
  readonly ordered: DimensionState[] = [];
  readonly spatial: readonly DimensionState[];
  readonly reduce: readonly DimensionState[];
  accumulators = 1;
  /** The input held in registers; undefined when there is one input only. */
  held: InputState | undefined;
  streaming: InputState;
  /** Share of the steps that are inside of every border. */
  insideShare = 1;
  private readonly byName: ReadonlyMap<string, DimensionState>;
  /** Whether some placement of some input crosses a border. */
  private readonly crosses: boolean;
  private readonly impossible: boolean;
  private readonly registers: number;
  private reads = 0;

  constructor(mapping: Mapping, spread: readonly string[] = []) {
    const { computation, intrinsic } = mapping;
    const dimensions = dimensionsUnder(mapping, { spread });
    const states = dimensions.map(stateOf);
    this.mapping = mapping;
    this.byName = new Map(states.map((s) => [s.name, s]));
    this.spatial = states.filter((s) => s.spatial);
    this.reduce = states.filter((s) => !s.spatial);
    this.target = operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
    this.registers = REGISTERS[this.target.file] ?? Number.POSITIVE_INFINITY;
    this.impossible = losesCondition(mapping);
    this.inputs = placementsOf(mapping, { spread }).map((choice): InputState => {
      const operand = operandOf(intrinsic, choice.operand);
      const own = new Set(states.filter((_, i) => dependsOn(mapping, choice.operand, at(dimensions, i))));
      const placements = Object.fromEntries(
        choice.open.map((p) => [p, placedInput(mapping, operand, p, dimensions, states, own, choice.borders)]),
      );
      const placed = at(Object.values(placements), 0);
      return { name: operand.name, operand, own, placements, runsPast: choice.runsPast, placed, tiles: 1 };
    });
    this.streaming = at(this.inputs, 0);
    this.crosses = this.inputs.some((i) => Object.values(i.placements).some((p) => p.borders.length > 0));
    this.outputBytes = bytesOfTensor(outputOf(computation));

    // The output, reached as mapper/schedule.ts stores whole tiles: steps that are not whole go by the scratch block.
    const whole = dimensions.map((d) =>
      d.kind === "spatial" ? { ...d, steps: d.wholeSteps, extent: d.wholeSteps * d.step } : d,
    );
    const { target } = computation.equation;
    const reach = computation.epilogue
      ? "an epilogue comes first"
      : reachInPlace(computation, intrinsic, this.target, access(target.tensor, target.index), whole);
    const elementBytes = bytesOf(outputOf(computation).dtype);
    const tile = product(this.target.dims.map((o) => o.extent));
    const rowBytes = Math.min(tile, tileRowElements(this.target)) * elementBytes;
    this.straight = typeof reach !== "string";
    this.straddling = typeof reach === "string" ? 0 : straddlingShare(reach, elementBytes, rowBytes);
    this.operations = computation.epilogue ? operationsIn(computation.epilogue.equation.value) : 0;
    this.wide = calculatedWide(computation) !== undefined;
    const flat = outputPlace(computation);
    this.output = outputFootprint(computation, flat, dimensions, states);
    this.results = dimensions.flatMap((d, i): ResultDimension[] =>
      d.kind === "spatial" ? [resultDimension(d, at(states, i), flat, this.target)] : [],
    );
    this.outputOwn = new Set(this.spatial);
  }

  /** Takes a schedule in. @returns false when it cannot be lowered: the same answer as `scheduleProblem` */
  read(schedule: Schedule): boolean {
    if (this.impossible || schedule.order.length !== this.byName.size) return false;
    // 1. Order: every dimension once, kept ones first.
    const turn = ++this.reads;
    let position = 0;
    for (const name of schedule.order) {
      const d = this.byName.get(name);
      if (d === undefined || d.read === turn || d.spatial !== position < this.spatial.length) return false;
      d.read = turn;
      this.ordered[position++] = d;
    }
    // 2. Placements.
    let past = 0;
    for (const input of this.inputs) {
      const placement = schedule.placement[input.name];
      const placed = placement === undefined ? undefined : input.placements[placement];
      if (placed === undefined) return false;
      if (input.runsPast && placement === "padded" && ++past > 1) return false;
      input.placed = placed;
      input.tiles = 1;
    }
    // 3. Blocks, and the registers they take.
    for (const name in schedule.block) if (!this.byName.has(name)) return false;
    this.accumulators = 1;
    for (const d of this.ordered) {
      const block = schedule.block[d.name] ?? 1;
      if (!Number.isSafeInteger(block) || block < 1 || block > d.steps) return false;
      d.block = block;
      d.whole = Math.floor(d.usable / block);
      d.left = d.steps - d.whole * block;
      d.blocks = d.whole + (d.left > 0 ? 1 : 0);
      if (!d.spatial || block === 1) continue;
      this.accumulators *= block;
      for (const input of this.inputs) if (input.own.has(d)) input.tiles *= block;
    }
    let fewest = Number.POSITIVE_INFINITY;
    for (const { tiles } of this.inputs) fewest = Math.min(fewest, tiles);
    if (this.accumulators + fewest + 1 > this.registers || !this.readBorders()) return false;
    // 4. The input with fewer tiles is held, the first of equals.
    const [first, second] = this.inputs;
    if (first === undefined) return false;
    this.held = second === undefined ? undefined : first.tiles <= second.tiles ? first : second;
    this.streaming = second === undefined || this.held === second ? first : second;
    this.deal(schedule.threads);
    return true;
  }

  /** @returns false when blocks at the border take more code than is allowed */
  private readBorders(): boolean {
    if (!this.crosses) return true;
    this.insideShare = 1;
    for (const d of this.ordered) {
      d.border = undefined;
      d.meets = false;
    }
    for (const { placed } of this.inputs) {
      if (placed.borders.length === 0) continue;
      if (!edgesFit(edgeIssues(placed.borders, this.ordered, (d) => d.block, this.accumulators))) return false;
      for (const border of placed.borders) {
        const [kept, summed] = [this.byName.get(border.spatial), this.byName.get(border.reduce)];
        if (kept === undefined || summed === undefined) return false;
        kept.border = borderBlocks(border, kept.block);
        summed.meets = true;
        this.insideShare *= kept.border.insideSteps / (kept.steps * summed.steps);
      }
    }
    return true;
  }

  /** The outermost loop is dealt to threads in equal ranges; the last thread also takes the smaller block that is left. */
  private deal(threads: number): void {
    let dealt = threads <= 1;
    for (const d of this.ordered) {
      const parallel = !dealt && d.spatial && !(d.whole === 1 && d.left === 0);
      if (parallel) dealt = true;
      const edges = d.border === undefined ? 0 : d.border.edges - (d.border.leftIsEdge ? 1 : 0);
      d.ownWhole = parallel ? edges + Math.ceil((d.whole - edges) / threads) : d.whole;
      d.ownSteps = d.ownWhole * d.block + d.left;
      d.ownBlocks = d.ownWhole + (d.left > 0 ? 1 : 0);
    }
  }

  /** Tiles of an input loaded by the thread that finishes last. */
  ownLoads(input: InputState): number {
    let loads = 1;
    for (const d of this.ordered) {
      const own = input.own.has(d);
      if (d.border !== undefined)
        loads *= own ? (d.border.insideSteps * d.ownSteps) / d.steps : (d.border.insideBlocks * d.ownBlocks) / d.blocks;
      else if (!d.meets) loads *= !d.spatial || own ? d.ownSteps : d.ownBlocks;
    }
    return loads;
  }

  /** Output tiles of that thread, and the elements of those that go by way of the scratch block. */
  ownStores(): Stores {
    let tiles = 1;
    let elements = 1;
    let straight = this.straight ? 1 : 0;
    // The innermost loop over the scratch block is the one whose steps lie closest in the output (mapper/store.ts).
    let innermost: ResultDimension | undefined;
    let digits = 0;
    for (const r of this.results) {
      const { state, step } = r;
      const wholeElements = (state.partial ? state.ownWhole * state.block : state.ownSteps) * step;
      tiles *= state.ownSteps;
      elements *= state.partial ? wholeElements + r.extent - state.whole * state.block * step : wholeElements;
      straight *= wholeElements;
      digits += r.digits;
      if ((step > 1 || state.block > 1) && (innermost === undefined || r.coefficient < innermost.coefficient))
        innermost = r;
    }
    const own = innermost?.digits ?? 0;
    const run = innermost === undefined ? 1 : Math.max(innermost.step, innermost.state.block);
    return {
      tiles,
      scattered: elements - straight,
      digits: own + (digits - own) / run,
      sideBySide: innermost?.coefficient === 1 && innermost.last && own === 0,
    };
  }

  /** Elements an input's packing writes, and the steps of the loop that is dealt to threads. */
  packingOf(input: InputState): { readonly packing: Packing; readonly dealt: number } | undefined {
    const { packing } = input.placed;
    if (packing === undefined) return undefined;
    let { dealt } = packing;
    if (dealt === undefined) {
      // Tiles are packed in the order of the loops: the first that moves is dealt.
      for (const d of this.ordered) if (dealt === undefined && input.own.has(d) && d.steps > 1) dealt = d.steps;
      dealt ??= input.operand.dims.find((o) => o.extent > 1)?.extent ?? 1;
    }
    return { packing, dealt };
  }
}

/**
 * One of something for each set of dimensions that schedules spread, made when it is first asked for.
 * @returns undefined for what cannot be spread
 */
export function bySpread<T>(
  mapping: Mapping,
  make: (spread: readonly string[]) => T,
): (schedule: Schedule) => T | undefined {
  const plain = make([]);
  const others = new Map<string, T>();
  return ({ spread }) => {
    if (spread === undefined || spread.length === 0) return plain;
    if (spread.some((name) => !spreadable(mapping).has(name))) return undefined;
    const key = spread.join();
    const made = others.get(key) ?? make(spread);
    others.set(key, made);
    return made;
  };
}

/**
 * Counts what the lowered nest of a schedule does, without lowering it.
 * @returns for a schedule its counts, undefined when it cannot be lowered
 */
export function createCounts(mapping: Mapping): (schedule: Schedule) => Counts | undefined {
  const planOf = bySpread(mapping, (spread) => new Plan(mapping, spread));
  return (schedule) => {
    const plan = planOf(schedule);
    if (plan === undefined) return undefined;
    // All threads together do what one thread would do.
    if (!plan.read({ ...schedule, threads: 1 })) return undefined;
    for (const d of plan.ordered) d.covered = d.steps;
    const each = (value: (input: InputState) => number): Record<string, number> =>
      Object.fromEntries(plan.inputs.map((i) => [i.name, value(i)]));
    const { tiles, scattered } = plan.ownStores();
    return {
      issues: product(plan.ordered.map((d) => (d.meets ? 1 : (d.border?.insideSteps ?? d.steps)))),
      loads: each((i) => plan.ownLoads(i)),
      stores: tiles,
      scattered,
      packed: each((i) => plan.packingOf(i)?.packing.elements ?? 0),
      distinctBytes: each((i) => {
        i.placed.footprint.measure();
        return Math.min(i.placed.footprint.distinct, i.placed.bufferBytes);
      }),
    };
  };
}

function stateOf(d: LoopDimension): DimensionState {
  const { name, steps } = d;
  const spatial = d.kind === "spatial";
  const fixed = {
    name,
    kind: d.kind,
    spatial,
    steps,
    partial: steps !== d.wholeSteps,
    usable: spatial ? d.wholeSteps : steps,
  };
  const blocks = { block: 1, whole: steps, left: 0, blocks: steps };
  return {
    ...fixed,
    ...blocks,
    ownSteps: steps,
    ownWhole: steps,
    ownBlocks: steps,
    covered: steps,
    read: 0,
    border: undefined,
    meets: false,
  };
}

function losesCondition({ computation, intrinsic, binding }: Mapping): boolean {
  if (computation.equation.where === undefined) return false;
  const problem = defineProblem(computation, intrinsic, binding);
  return conditionCarriers(
    problem,
    problem.loops.map((l) => l.name),
  ).some((c) => c.operand === undefined);
}

function placedInput(
  mapping: Mapping,
  operand: Operand,
  placement: Placement,
  dimensions: readonly LoopDimension[],
  states: readonly DimensionState[],
  own: ReadonlySet<DimensionState>,
  crossed: readonly Border[],
): PlacedInput {
  const { computation, intrinsic, binding } = mapping;
  const bound = binding[operand.name];
  if (bound === undefined) throw new Error(`internal: ${operand.name} stands for nothing`);
  const sources = [...new Set(accessesIn(bound).map((a) => a.tensor))].map((name) => tensorOf(computation, name));
  const constant = sources.every((t) => t.constant);
  const sourceBytes = sources.reduce((sum, t) => sum + bytesOfTensor(t), 0);
  const size = bytesOf(operand.dtype);
  const tile = product(operand.dims.map((o) => o.extent));
  const rowBytes = Math.min(tile, tileRowElements(operand)) * size;

  if (placement === "tiled" || bound.kind !== "access") {
    const elements = tile * product([...own].map((d) => d.steps));
    const run = operand.dims.at(-1)?.extent ?? 1;
    const moving = dimensions.filter((d) => dependsOn(mapping, operand.name, d));
    const arithmetic = indexArithmetic(operand, moving, outsideTests(computation, bound));
    const gathered = bound.kind === "access" && liesApart(computation, operand, bound, moving);
    return {
      footprint: new RunFootprint(own, tile * size, LINE_BYTES),
      bufferBytes: elements * size,
      straddling: straddles(tile * size, rowBytes),
      packing: constant
        ? undefined
        : {
            kind: "indexed",
            elements,
            run,
            arithmetic,
            gathered,
            bytes: elements * size,
            sourceBytes,
            dealt: undefined,
          },
      borders: [],
    };
  }
  const reachCopy = placement === "padded" ? reachPadded : placement === "windowed" ? reachWindowed : undefined;
  const padded = reachCopy?.(computation, intrinsic, operand, bound, dimensions);
  const reach =
    padded === undefined
      ? reachInPlace(computation, intrinsic, operand, bound, dimensions)
      : typeof padded === "string"
        ? padded
        : padded.reach;
  if (typeof reach === "string") throw new Error(`internal: ${operand.name} is not reached: ${reach}`);
  return {
    footprint: new AffineFootprint(reachTerms(reach, dimensions, states), size, LINE_BYTES),
    bufferBytes: padded === undefined || typeof padded === "string" ? sourceBytes : padded.copy.elements * size,
    straddling: straddlingShare(reach, size, rowBytes),
    packing:
      padded === undefined || typeof padded === "string" || constant
        ? undefined
        : copyPacking(mapping, bound, padded.copy, size, sourceBytes),
    borders: placement === "in-place" ? crossed : [],
  };
}

/** Tile and steps in one term: step*s + e takes every value below steps*step. */
function reachTerms(reach: Reach, dimensions: readonly LoopDimension[], states: readonly DimensionState[]): Term[] {
  return dimensions.map((d, i) => term((reach.perStep.get(d.name) ?? 0) / d.step, at(states, i), d.step));
}

/** Where an element of the output lies, over the computation's loops; undefined when it is stored in blocks. */
function outputPlace(computation: Computation): AffineForm | undefined {
  const { equation, epilogue } = computation;
  const held = access(equation.target.tensor, equation.target.index);
  const { index } = epilogue ? epilogueAt(epilogue, equation.target.index, held).target : equation.target;
  const { dims, storage } = outputOf(computation);
  const form = affineForm(storage);
  return (
    form &&
    affineForm(
      index.reduce<Expr>(
        (sum, e, i) => binary("+", sum, binary("*", e, number(form.terms.get(dims[i]?.name ?? "") ?? 0))),
        number(0),
      ),
    )
  );
}

/** The output's elements; a fused dimension counts its loops as digits, which need not lie one behind the other. */
function outputFootprint(
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
      LINE_BYTES,
    );
  const terms = spatial.flatMap(({ d, state }) => {
    return d.loops.map((l, position): Term => {
      const divisor = d.weights[position] ?? 1;
      return { coefficient: flat.terms.get(l.name) ?? 0, dimension: state, perStep: d.step, divisor, most: l.extent };
    });
  });
  return new AffineFootprint(terms, size, LINE_BYTES, { written: true });
}

function resultDimension(
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
    digits: digitsIn(d),
    last: d.axis !== undefined && d.axis === target.dims.findLast((o) => o.extent > 1)?.name,
  };
}

/** Quotients and remainders that take a fused dimension apart, and tests of its gaps, as mapper/dimensions.ts writes them. */
function digitsIn(d: LoopDimension): number {
  let digits = gapsOf(d).length;
  // A loop of one step is no digit: compilers see that its quotient is 0 and drop the remainder that would keep it out.
  let outermost = true;
  for (const [position, l] of d.loops.entries()) {
    if (l.extent <= 1) continue;
    digits += ((d.weights[position] ?? 1) > 1 ? 1 : 0) + (outermost ? 0 : 1);
    outermost = false;
  }
  return digits;
}

function operationsIn(e: Expr): number {
  let operations = 0;
  for (const part of walk(e))
    if (part.kind !== "access" && part.kind !== "number" && part.kind !== "axis") operations++;
  return operations;
}

/** The loops of every index that may leave its tensor, once for each side on which it may. */
function outsideTests(computation: Computation, bound: Expr): readonly string[][] {
  const extents = extentsOf(computation);
  return accessesIn(bound).flatMap((a) =>
    a.index.flatMap((e, i) => {
      const [least, most] = boundsOf(e, extents);
      const extent = tensorOf(computation, a.tensor).dims[i]?.extent ?? 0;
      return [...(least < 0 ? [axesIn(e)] : []), ...(most >= extent ? [axesIn(e)] : [])];
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

/** Whether neighbours on the last axis of a tile are no neighbours in the tensor; what is stored in blocks is taken to be near. */
function liesApart(computation: Computation, operand: Operand, bound: Access, own: readonly LoopDimension[]): boolean {
  const axis = operand.dims.findLast((o) => o.extent > 1)?.name;
  const loop = own.find((d) => d.axis !== undefined && d.axis === axis)?.loops.findLast((l) => l.extent > 1)?.name;
  const { dims, storage } = tensorOf(computation, bound.tensor);
  const form = affineForm(storage);
  if (loop === undefined || form === undefined) return false;
  const steps = bound.index.map(
    (e, i) => (affineForm(e)?.terms.get(loop) ?? 0) * (form.terms.get(dims[i]?.name ?? "") ?? 0),
  );
  return Math.abs(steps.reduce((sum, n) => sum + n, 0)) > 1;
}

/** A padded copy is written element by element, its outermost dimension dealt to threads; the border stays as it was zeroed. */
function copyPacking(
  { computation }: Mapping,
  bound: Access,
  copy: PaddedCopy,
  elementBytes: number,
  sourceBytes: number,
): Packing {
  const tensor = tensorOf(computation, bound.tensor);
  const storage = affineForm(tensor.storage);
  const ranges = copy.dims.map((c) => {
    const extent = tensor.dims.find((d) => d.name === c.name)?.extent ?? 0;
    const held = Math.max(0, Math.min(extent, c.low + c.extent) - Math.max(0, c.low));
    return { extent: held, stride: c.stride, sourceStride: storage?.terms.get(c.name) };
  });
  const loops = copy.apart.map((l) => {
    const position = bound.index.findIndex((e) => axesIn(e).includes(l.name));
    const steps = affineForm(bound.index[position] ?? number(0))?.terms.get(l.name) ?? 1;
    const between = storage?.terms.get(tensor.dims[position]?.name ?? "");
    return { extent: l.extent, stride: l.stride, sourceStride: between === undefined ? undefined : between * steps };
  });
  const moving = [...ranges, ...loops].filter((w) => w.extent > 1).sort((a, b) => b.stride - a.stride);
  const elements = product(moving.map((w) => w.extent));
  // Loops laid apart are short: the compiler writes out those whose steps lie one behind the other on both sides, and they make one run.
  let run = 1;
  for (const [i, w] of [...moving].reverse().entries())
    if ((i === 0 || loops.includes(w)) && w.stride === run && w.sourceStride === run) run *= w.extent;
    else break;
  return {
    kind: moving.length === 0 || run > 1 ? "copy" : "strided",
    elements,
    run: Math.max(run, 1),
    arithmetic: PLAIN,
    gathered: false,
    bytes: elements * elementBytes,
    sourceBytes,
    dealt: moving[0]?.extent ?? 1,
  };
}

function bytesOfTensor(tensor: Tensor): number {
  return memoryElements(tensor) * bytesOf(tensor.dtype);
}

function straddlingShare(reach: Reach, elementBytes: number, bytes: number): number {
  let grain = reach.base * elementBytes;
  for (const perStep of reach.perStep.values()) grain = greatestCommonDivisor(grain, perStep * elementBytes);
  return straddles(grain, bytes);
}

/** Share of the places, every `grain` bytes, from which `bytes` reach into the next line. */
function straddles(grain: number, bytes: number): number {
  const step = greatestCommonDivisor(grain, LINE_BYTES);
  let crossing = 0;
  for (let place = 0; place < LINE_BYTES; place += step)
    if (place + Math.min(bytes, LINE_BYTES) > LINE_BYTES) crossing++;
  return crossing / (LINE_BYTES / step);
}

function product(numbers: readonly number[]): number {
  return numbers.reduce((p, n) => p * n, 1);
}

function at<T>(items: readonly T[], index: number): T {
  const item = items[index];
  if (item === undefined) throw new Error(`internal: nothing at ${index} of ${items.length}`);
  return item;
}
