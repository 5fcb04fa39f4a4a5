/**
 * @file The facts about a mapping that decisions about blocks and warps use: its axes as rows, columns and a sum, and
 * the layout of each input in memory.
 *
 *     conv2d f16 NHWC on mma.m16n8k16:    rows m <- n,p,q (3136)    columns n <- k (64)    sum k <- c (64), outer sums r, s
 *                                         a = in: 8 elements at once along k     b = w: 8 at once along k
 */

import { addressOf, boundsOf, type Dimension, evaluateIndex } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { hasName, memoisedBy, namesOf, upTo, withName } from "../../abstraction/collections.ts";
import { type Computation, summedIn, type Tensor, targetOf, tensorOf } from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { writesAll, writesApart } from "../../abstraction/elements.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  allOf,
  axesIn,
  type Expr,
  number,
  printAccess,
  printExpr,
  testsElements,
} from "../../abstraction/expression.ts";
import { type Intrinsic, lanesOf, type Operand, readsShared } from "../../abstraction/intrinsic.ts";
import { levelOf, memoryOf, mostBytes, type Target } from "../../abstraction/machine.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { bindingText, scaleOf } from "../match/bind.ts";
import { beyondReads, conditionParts, conditionProblem, partsPackedIn, storedCondition } from "../match/conditions.ts";
import { defineProblem } from "../match/problem.ts";
import type { Decision } from "./decision.ts";
import {
  denseRun,
  formsIn,
  type MappedLoops,
  mappedLoops,
  placeAlong,
  placesAlong,
  strideAlong,
} from "./dense-runs.ts";
import { dimensionsOf, inputOperands, type LoopDimension, targetOperand } from "./dimensions.ts";

/** Limits of the machine for one block. */
export interface GridLimits {
  /** Threads of a warp. */
  readonly lanes: number;
  /** Parts of a multiprocessor, each with its share of the registers; warps go to them in turn. */
  readonly quarters: number;
  /** Threads of a block. */
  readonly threads: number;
  /** Bytes of shared memory of a block. */
  readonly sharedBytes: number;
  /** 32-bit registers of a thread, and of all threads of a block. */
  readonly threadRegisters: number;
  readonly blockRegisters: number;
  /** Sizes of an asynchronous copy by one thread, in bytes; empty when the machine has none. */
  readonly asyncBytes: readonly number[];
  /** Whether the machine has a copy engine (TMA) that copies boxes into shared memory. */
  readonly engine: boolean;
  /** Largest number of blocks in a cluster, which can access one another's shared memory; 0 without clusters. */
  readonly clusterBlocks: number;
  /** Whether a kernel may begin while the kernel it depends on still runs. */
  readonly dependentLaunch: boolean;
  readonly multiprocessors: number;
}

/** An axis of the instruction and the fused loops that feed it. */
export interface GridAxis {
  readonly axis: string;
  /** Extent of the instruction's axis. */
  readonly extent: number;
  /** Undefined when no loop feeds it. */
  readonly dimension: LoopDimension | undefined;
  /** Product of its loops' extents; 1 when none feeds it. */
  readonly elements: number;
}

export interface GridInput {
  readonly operand: Operand;
  /** The operand's expression. */
  readonly value: Expr;
  /** Its kept axis. */
  readonly kept: GridAxis;
  /** The axis along which neighbours are contiguous in memory; rows of tiles in shared memory run along it. */
  readonly contiguous: "kept" | "sum";
  /** Number of elements along it that are contiguous, aligned, and either all inside the tensor or all outside. */
  readonly width: number;
  /** The most elements that one asynchronous copy moves; undefined when none can be used. */
  readonly asyncWidth: number | undefined;
  /** Conditions that leave elements out. */
  readonly conditions: readonly Expr[];
  /** What a computed value reads along the sum, in runs that an asynchronous copy may move. */
  readonly reads: readonly NarrowRead[];
}

/** An element that several neighbours along the sum read: a byte of two weights, the scale of a group. */
export interface NarrowRead {
  readonly access: Access;
  readonly dtype: DType;
  /** Neighbours that read the same element. */
  readonly repeat: number;
  /** Elements that lie side by side, at multiples of their number. */
  readonly run: number;
}

/** A decision about one key of the schedule. */
export type GridDecision<K extends keyof GridSchedule> = Decision<GridSchedule[K], GridContext, GridSchedule>;

export interface Picked {
  readonly first: number;
  readonly step: number;
}

/** A copy of an input, and how its dimensions are rearranged. */
export interface RepackedInput {
  readonly operand: string;
  readonly source: Tensor;
  readonly copy: Tensor;
  /** The access to the copy that replaces the equation's access to the source. */
  readonly access: Access;
  /** By dimension of the source: the first position copied, and the distance to the next. */
  readonly picked: Readonly<Record<string, Picked>>;
  /**
   * Dimensions that become innermost in the copy, outermost first, and those that are innermost in the source: they
   * trade places.
   */
  readonly summed: readonly Dimension[];
  readonly along: readonly Dimension[];
  /** The other dimensions. */
  readonly outer: readonly Dimension[];
}

export interface GridContext {
  readonly mapping: Mapping;
  readonly intrinsic: Intrinsic;
  /** The team of threads that issues the instruction, and its size. */
  readonly team: "warp" | "warpgroup";
  readonly teamThreads: number;
  readonly target: Operand;
  readonly rows: GridAxis;
  readonly columns: GridAxis;
  readonly sum: GridAxis;
  /** Kept loops outside the instruction. Each block takes one value of each. */
  readonly outer: readonly LoopDimension[];
  /** Summed loops outside the instruction. */
  readonly outerSums: readonly LoopDimension[];
  readonly inputs: readonly GridInput[];
  /** Bytes of an element, the same for both inputs. */
  readonly elementBytes: number;
  /** The value of elements beyond the end. */
  readonly padding: Expr;
  /** What the sum of each step is multiplied by before it is added; undefined where the instruction adds to sums itself. */
  readonly scale: Expr | undefined;
  /** The condition under which a sum is stored rather than the identity; undefined when all are. */
  readonly stored: Expr | undefined;
  /** The parts of the condition that elements decide: a block whose tile has no such points sums nothing. */
  readonly decided: readonly Expr[];
  readonly limits: GridLimits;
  /** Inputs that a separate kernel copies first, and the context without the copies; undefined when there are none. */
  readonly repacked?: { readonly plain: GridContext; readonly inputs: readonly RepackedInput[] };
}

/** Most bytes that one thread copies at once. */
export const MOST_BYTES = 16;

/** Contiguous runs along an axis, cached for the instructions of all widths. */
const runs = memoisedBy<Computation, number>();

/** Why a kernel in which each thread stores one sum cannot write this output; undefined when it can. */
export function outputProblem(computation: Computation): string | undefined {
  const { name } = targetOf(computation);
  if (!writesApart(computation)) return `several points of the kept loops join one element of ${name}`;
  return writesAll(computation) ? undefined : `no point writes some elements of ${name}`;
}

/** The context of a mapping, or one sentence on why blocks and warps cannot share it. */
export function gridContext(mapping: Mapping, limits: GridLimits): GridContext | string {
  const { computation, intrinsic, binding } = mapping;
  const target = targetOperand(mapping);
  const inputs = inputOperands(mapping);
  const summed = namesOf(summedIn(intrinsic.computation.axes));
  const [rowAxis, columnAxis, ...more] = namesOf(target.dims);
  const [sumAxis] = summed;
  const team = intrinsic.scope;
  if (team !== "warp" && team !== "warpgroup")
    return `${intrinsic.name} is issued by a ${team}, not by a warp or a warpgroup`;
  if (
    rowAxis === undefined ||
    columnAxis === undefined ||
    sumAxis === undefined ||
    more.length > 0 ||
    summed.length > 1
  )
    return `${intrinsic.name} is no matrix product: it has ${target.dims.length} kept and ${summed.length} summed axes`;

  // 1. Axes.
  const dimensions = dimensionsOf(mapping);
  const gridAxis = (name: string): GridAxis => {
    const declared = withName(intrinsic.computation.axes, name) ?? internal(`${intrinsic.name} has no axis ${name}`);
    const dimension = dimensions.find((d) => d.axis === name);
    return { axis: name, extent: declared.extent, dimension, elements: dimension?.extent ?? 1 };
  };
  const rows = gridAxis(rowAxis);
  const columns = gridAxis(columnAxis);
  const sum = gridAxis(sumAxis);
  const problem = defineProblem(computation, intrinsic, binding);
  if (!problem.padding) return "what the instruction computes cannot be kept from a part of a tile";
  const condition = conditionParts(problem, Object.values(mapping.matching).flat());
  const lost = conditionProblem(problem, condition);
  if (lost !== undefined) return lost;
  const unwritten = outputProblem(computation);
  if (unwritten !== undefined) return unwritten;

  const outer = dimensions.filter((d) => d.axis === undefined && d.kind === "spatial");
  const decided = conjunctsOf(computation.equation.where).filter(testsElements);
  // Where loops outside the instruction decide, the sums of a block without points are as they were cleared.
  const ofBlocks = decided.filter((part) => axesIn(part).every((name) => loopsOf(outer).includes(name)));
  const stored = conjunctsOf(storedCondition(condition)).filter((part) => !ofBlocks.includes(part));

  // 2. Inputs.
  const loops = mappedLoops(mapping);
  const alike = `${printMatching(mapping.matching)} ${bindingText(binding)}`;
  const described = inputs.map((operand): GridInput | string => {
    const names = namesOf(operand.dims);
    const kept = [rows, columns].find((a) => names.includes(a.axis));
    if (!kept || names.length !== 2 || !names.includes(sumAxis))
      return `${intrinsic.name} indexes ${operand.name} by ${names.join(", ")}`;
    const value = binding[operand.name] ?? internal(`operand ${operand.name} is not bound`);
    const conditions = beyondReads(problem, partsPackedIn(condition, operand.name));
    const most = MOST_BYTES / bytesOf(operand.dtype);
    const run = (a: GridAxis): number =>
      conditions.length > 0
        ? 0
        : runs(computation, `${operand.name} ${a.axis} ${most} ${alike}`, () =>
            runOfChoice(value, a.dimension, (name) => tensorOf(computation, name), most, loops),
          );
    const alongKept = run(kept);
    const alongSum = run(sum);
    // An input that the instruction loads itself must have rows along its own last dimension.
    const own = operand.storage === undefined ? (names[1] === sumAxis ? "sum" : "kept") : undefined;
    // An input that it reads from shared memory itself may have to have rows along the sum.
    const forced = readsShared(operand) && operand.turned === undefined ? "sum" : own;
    const contiguous = forced ?? (alongKept > alongSum ? "kept" : "sum");
    const width = Math.max(1, contiguous === "kept" ? alongKept : alongSum);
    const bytes = limits.asyncBytes.find((b) => b === width * bytesOf(operand.dtype));
    const asyncWidth = bytes === undefined || !movesWhole(value) ? undefined : width;
    const isComputed = !movesWhole(value) && width > 1 && contiguous === "sum";
    const reads =
      isComputed && sum.dimension ? narrowReads(value, sum.dimension, (name) => tensorOf(computation, name)) : [];
    return { operand, value, kept, contiguous, width, asyncWidth, conditions, reads };
  });
  const refused = described.find((d) => typeof d === "string");
  if (refused !== undefined) return refused;
  const known = described.filter((d) => typeof d !== "string");
  const read = heldInput({ intrinsic, inputs: known });
  if (read?.reads.length === 0)
    return `${intrinsic.name} takes ${read.operand.name} in registers, for which lanes calculate elements: ${printExpr(read.value)} are read as they are`;
  return {
    mapping,
    intrinsic,
    team,
    target,
    rows,
    columns,
    sum,
    limits,
    teamThreads: lanesOf(intrinsic),
    outer,
    outerSums: dimensions.filter((d) => d.axis === undefined && d.kind === "reduce"),
    inputs: known,
    elementBytes: Math.max(...known.map((i) => bytesOf(i.operand.dtype))),
    padding: problem.padding,
    scale: scaleOf(computation, intrinsic),
    stored: allOf(stored),
    decided,
  };
}

/**
 * Contiguous run along a dimension for an expression that chooses between reads. When loops of the dimension decide,
 * neighbours come from different reads.
 */
function runOfChoice(value: Expr, ...[dimension, tensorNamed, most, mapped]: RunArguments): number {
  if (value.kind === "number") return most;
  if (value.kind === "access") return runAlong(value, dimension, tensorNamed, most, mapped);
  if (value.kind !== "select") return dimension ? computedRun(value, dimension, tensorNamed, most) : 0;
  const { condition, whenTrue, whenFalse } = value;
  const chosenWithin = axesIn(condition).some((l) => dimension?.loops.some((loop) => loop.name === l));
  if (chosenWithin || accessesIn(condition).length > 0) return 0;
  return Math.min(...[whenTrue, whenFalse].map((e) => runOfChoice(e, dimension, tensorNamed, most, mapped)));
}

/**
 * Number of neighbours, up to `most`, that a thread computes of one load of each tensor: what they read lies side by side, from a multiple of its
 * number on, some of it read by several of them. 0 if there is none.
 *
 *     (f16(select(k%2 == 0, w[n,k/2] % 16, w[n,k/2] / 16)) - 8) * s[n,k/32]      8: four elements of w, one of s
 */
function computedRun(
  value: Expr,
  dimension: LoopDimension,
  tensorNamed: (name: string) => Tensor,
  most: number,
): number {
  const reads = accessesIn(value).map((read) => placesOf(read, dimension, tensorNamed(read.tensor)));
  for (let width = most; width > 1; width /= 2)
    if (reads.length > 0 && reads.every((places) => liesTogether(places, width))) return width;
  return 0;
}

/** Offset of the element that each neighbour along a dimension reads, with other loops at 0. */
function placesOf({ index }: Access, { loops, weights, extent }: LoopDimension, tensor: Tensor): readonly number[] {
  const axes = index.flatMap(axesIn).map((name) => [name, loops.findIndex((l) => l.name === name)] as const);
  const place = addressOf(tensor, index);
  return upTo(extent).map((fused) => {
    const at = Object.fromEntries(
      axes.map(([name, i]) => [name, Math.floor(fused / (weights[i] ?? extent)) % (loops[i]?.extent ?? 1)]),
    );
    return evaluateIndex(place, at);
  });
}

/** Whether each `width` neighbours read elements that lie side by side from a multiple of their number on, in the same order. */
function liesTogether(places: readonly number[], width: number): boolean {
  const span = (places[width - 1] ?? 0) - (places[0] ?? 0) + 1;
  const offsetOf = (i: number): number => (places[i] ?? 0) - (places[i - (i % width)] ?? 0);
  return (
    places.length % width === 0 &&
    width % span === 0 &&
    places.every((at, i) => offsetOf(i) === offsetOf(i % width) && (i % width !== 0 || at % span === 0))
  );
}

/** What a computed value reads in runs. */
function narrowReads(value: Expr, dimension: LoopDimension, tensorNamed: (name: string) => Tensor): NarrowRead[] {
  const distinct = new Map(accessesIn(value).map((a) => [printAccess(a), a]));
  return [...distinct.values()].flatMap((access): NarrowRead[] => {
    const tensor = tensorNamed(access.tensor);
    const places = placesOf(access, dimension, tensor);
    const next = places.findIndex((at) => at !== places[0]);
    const repeat = next < 0 ? places.length : next;
    const others = axesIn(access).filter((name) => !hasName(dimension.loops, name));
    const strides = others.map((name) => strideAlong(access, tensor, name));
    const isRun = (run: number): boolean =>
      liesTogether(places, run * repeat) && strides.every((stride) => stride !== undefined && stride % run === 0);
    let run = MOST_BYTES / bytesOf(tensor.dtype);
    while (run >= 1 && !isRun(run)) run /= 2;
    return run < 1 ? [] : [{ access, dtype: tensor.dtype, repeat, run }];
  });
}

type RunArguments = Parameters<typeof runAlong> extends [Expr, ...infer Rest] ? Rest : never;

/**
 * Whether a value is an element of memory, a choice between several, or 0 otherwise, so that a copy can move it without
 * computing.
 */
function movesWhole(e: Expr): boolean {
  if (e.kind !== "select") return e.kind === "access";
  const { whenTrue, whenFalse } = e;
  return movesWhole(whenTrue) && (movesWhole(whenFalse) || (whenFalse.kind === "number" && whenFalse.value === 0));
}

/**
 * Number of elements along a dimension, up to `most`, that one thread can move at once: they are contiguous, start at a
 * multiple of their number, and are either all inside the tensor or all outside. 1 when neighbours are contiguous but
 * nothing more is certain.
 * @param mapped extents of all loops, and the other loops, for neighbours that span several fused loops
 * @returns 0 when neighbours are not contiguous
 */
export function runAlong(
  value: Expr,
  dimension: LoopDimension | undefined,
  tensorNamed: (name: string) => Tensor,
  most: number,
  mapped: Partial<MappedLoops> & Pick<MappedLoops, "extents">,
): number {
  if (value.kind !== "access" || !dimension) return 0;
  const loop = dimension.loops.at(-1);
  if (!loop) return 0;
  const tensor = tensorNamed(value.tensor);
  const { extents, fed, past } = mapped;
  const dense = fed && past ? denseRun(value, dimension, tensor, { extents, fed, past }, most) : 1;
  if (dense > 1) return Math.max(dense, runAlong(value, dimension, tensorNamed, most, { extents }));
  const forms = formsIn(value);
  const moved = value.index.filter((e) => axesIn(e).includes(loop.name));
  const place = forms.findIndex((form) => form?.terms.get(loop.name) === 1);
  const form = forms[place];
  const along = tensor.dims[place];
  if (moved.length !== 1 || !form || !along) return 0;
  const steps = placesAlong(tensor, along.name);
  if (steps[1] === undefined || steps[1] - (steps[0] ?? 0) !== 1) return 0;
  // Where the instruction pads, it addresses positions beyond a dimension of one element, as for phases without a tap,
  // but does not read them.
  const reaching = (i: number): boolean => {
    const [min, max] = boundsOf(value.index[i] ?? number(0), extents);
    return min < 0 || max > 0 || [...(forms[i]?.terms.keys() ?? [])].some((l) => fed?.has(l) ?? false);
  };
  const others = tensor.dims.flatMap((d, i) => {
    if (d === along) return [];
    return [d.extent === 1 && reaching(i) ? [placeAlong(tensor, d.name, 1)] : placesAlong(tensor, d.name)];
  });
  // A loop of one point moves nothing, as the multiplier m of a depthwise layer at c+m, unless an instruction pads it.
  const isStill = (name: string): boolean => extents[name] === 1 && fed?.has(name) === false;
  const offsets = [
    form.constant,
    ...[...form.terms].flatMap(([name, c]) => (name === loop.name || isStill(name) ? [] : [c])),
  ];
  for (let width = most; width > 1; width /= 2) {
    const whole = (n: number): boolean => n % width === 0;
    const together =
      whole(loop.extent) &&
      whole(along.extent) &&
      offsets.every(whole) &&
      steps.every((at, i) => at === (steps[i - (i % width)] ?? 0) + (i % width) && (i % width !== 0 || whole(at))) &&
      others.every((places) => places.every(whole));
    if (together) return width;
  }
  return 1;
}

/** The factor that an asynchronous instruction takes in registers; undefined if it reads both from shared memory. */
export const heldInput = ({ intrinsic, inputs }: Pick<GridContext, "intrinsic" | "inputs">): GridInput | undefined =>
  intrinsic.asynchronous && inputs.find(({ operand }) => !readsShared(operand));

const loopsOf = (dimensions: readonly LoopDimension[]): string[] => dimensions.flatMap(({ loops }) => namesOf(loops));

/** The fill value for positions beyond the end of an operand, as an element of its type. */
export const fillOf = ({ padding }: GridContext): Expr => (padding.kind === "number" ? padding : number(0));

/** The limits of a target with blocks and warps. @throws Error when the target has none */
export function gridLimits(target: Target): GridLimits {
  const lanes = levelOf(target, "lane").most ?? 1;
  const registers = memoryOf(target, "registers");
  const form = memoryOf(target, "dram").copies?.find((c) => c.into === "shared" && c.completes === "group");
  return {
    lanes,
    quarters: levelOf(target, "warp").units,
    threads: MOST_THREADS,
    sharedBytes: mostBytes(target, "shared", "block"),
    threadRegisters: mostBytes(target, "registers", "lane") / REGISTER_BYTES,
    blockRegisters: (registers.bytes?.value ?? 0) / REGISTER_BYTES,
    asyncBytes: form?.bytes ?? [],
    engine: memoryOf(target, "dram").copies?.some((c) => c.into === "shared" && c.completes === "barrier") ?? false,
    clusterBlocks: Math.max(0, ...(target.clusters ?? []).map((c) => c.blocks)),
    dependentLaunch: target.fixed["dependentLaunch"] !== undefined,
    multiprocessors: levelOf(target, "block").units,
  };
}

/** Why a block of so many threads cannot have so many registers each. */
export function registersProblem(limits: GridLimits, registers: number, threads: number): string | undefined {
  if (registers > limits.threadRegisters) return `${registers} registers a thread, it has ${limits.threadRegisters}`;
  // The part with the most warps decides: of nine warps, three are in the first, as of twelve.
  const even = limits.lanes * limits.quarters;
  const all = registers * Math.ceil(threads / even) * even;
  return all <= limits.blockRegisters ? undefined : `${all} registers a block, it has ${limits.blockRegisters}`;
}

const REGISTER_BYTES = 4;
/** Largest number of threads of a block to try: with more, a thread has fewer than 128 registers. */
const MOST_THREADS = 512;
