/**
 * @file The cost of a chain of equations that share their rows: on a CPU by its plain loops; on a GPU by the instructions and waits of its warps,
 * with every value in registers.
 *
 *     cycles = max(instructions of a multiprocessor / 4 a cycle, lines of its accesses, waves * (reads + instructions + shuffles and barriers))
 */

import type { ChainSchedule } from "../abstraction/candidate.ts";
import { sumOf } from "../abstraction/collections.ts";
import { type Computation, writtenBy } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { walk } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { levelOf, type Target } from "../abstraction/machine.ts";
import type { RowChain } from "../abstraction/row-chain.ts";
import { type ChainShape, chainRegisters, movingReads } from "../mapper/schedule/chain-shape.ts";
import { gridLimits } from "../mapper/schedule/grid-context.ts";
import { ISSUED_PER_CYCLE, LINES_PER_CYCLE } from "./grid-step.ts";
import { NOT_OVERLAPPED } from "./lanes.ts";
import { computeCycles, PER_LOOP } from "./loops.ts";
import { overlapped } from "./rates.ts";
import type { ModelTarget } from "./target.ts";
import { AROUND, BARRIER, NEAR_LATENCY, PER_SHUFFLE, READ_LATENCY, SHUFFLE_LATENCY, WARP_CYCLES } from "./threads.ts";
import { LINE_BYTES } from "./tile-copies.ts";
import { transferCycles } from "./vectors.ts";

/** Instructions of a float function, and of a quotient. Counted in what nvcc 13 makes of them, roughly. */
const PER_CALL = 15;
const PER_QUOTIENT = 8;
/** Instructions around a load or a store: its address and the conversions of its elements. */
const PER_MOVE = 4;

/** Cycles in which a multiprocessor begins a block. A guess that prefers blocks of several warps where nothing else does. */
const PER_BLOCK = 8;

/** Seconds of a chain on the cores of a processor: the loops of its equations, and the bytes that come from and go to memory. */
export function rowSeconds(
  chain: RowChain,
  row: Intrinsic,
  { columns, threads }: ChainSchedule,
  target: ModelTarget,
): number {
  const { computation, parts } = chain;
  const sums = parts.filter(({ makes }) => makes === "sum").length;
  const loops = Math.ceil(chain.columns / columns) * parts.length + sums * Math.log2(2 * columns);
  // Partial sums are cleared, and added up in halves.
  const ends = parts.reduce((cycles, { makes, computation: part }) => {
    if (makes !== "sum") return cycles;
    const sum = { ...part, axes: [{ name: "column", extent: 2 * columns, kind: "reduce" as const }] };
    return cycles + computeCycles(sum, row, target);
  }, 0);
  const arithmetic = sumOf(parts, (part) => computeCycles(part.computation, row, target));
  const compute = arithmetic + chain.rows * (loops * PER_LOOP + ends);
  const memory = transferCycles(withoutInner(computation), target);
  return overlapped(compute, memory, NOT_OVERLAPPED) / target.clockHz.value / threads;
}

/** Seconds that a core needs at least to read what a program reads and to store what it stores. */
export function leastProgramSeconds(computation: Computation, target: ModelTarget): number {
  return transferCycles(withoutInner(computation), target) / target.clockHz.value;
}

/** A program with the tensors alone that it reads and stores; a single equation as it is. */
export function withoutInner(computation: Computation): Computation {
  if (!computation.program) return computation;
  const stored = new Set(computation.program.stored);
  const made = writtenBy(computation);
  const outside = Object.entries(computation.tensors).filter(([name]) => !made.has(name) || stored.has(name));
  return { ...computation, tensors: Object.fromEntries(outside) };
}

/** Seconds of a chain on a GPU, without its launch, which no shape changes. */
export function chainSeconds(chain: RowChain, shape: ChainShape, target: Target): number {
  const { lanes, columnWarps, rowWarps, pieces, together } = shape;
  const { lanes: width, blockRegisters } = gridLimits(target);
  const block = levelOf(target, "block");
  const blocks = Math.ceil(chain.rows / ((width / lanes) * rowWarps));
  const warps = columnWarps * rowWarps;
  const registers = width * warps * chainRegisters(chain, shape);
  const resident = Math.max(1, Math.min(block.resident ?? 1, Math.floor(blockRegisters / registers)));
  const perUnit = Math.ceil(blocks / block.units);
  const sums = chain.parts.filter(({ makes }) => makes === "sum").length;
  const each = sumOf(chain.parts, (part) => (part.makes === "row" ? 0 : arithmeticOf(part)));
  const moves = chain.parts.reduce((n, part) => n + movingReads(part).length + (part.makes === "each" ? 1 : 0), 0);
  const perSum = Math.log2(lanes) * PER_SHUFFLE + (columnWarps > 1 ? 2 * columnWarps : 0);
  const instructions = pieces * (together * each + moves * PER_MOVE) + sums * perSum;
  const met = Math.log2(lanes) * SHUFFLE_LATENCY + (columnWarps > 1 ? NEAR_LATENCY + warps * BARRIER : 0);
  const waits = AROUND + READ_LATENCY + instructions * WARP_CYCLES + sums * met;
  const bytes = bytesOf(chain.computation.tensors[chain.computation.program?.stored[0] ?? ""]?.dtype ?? "f32");
  const lines = (width / lanes) * Math.ceil((lanes * together * bytes) / LINE_BYTES);
  const clock = (target.clockHz ?? target.loadedClockHz)?.value ?? 1;
  const cycles = Math.max(
    (perUnit * warps * instructions) / ISSUED_PER_CYCLE,
    (perUnit * warps * pieces * moves * lines) / LINES_PER_CYCLE,
    Math.ceil(perUnit / resident) * waits,
  );
  return (cycles + perUnit * PER_BLOCK) / clock;
}

function arithmeticOf({ computation }: RowChain["parts"][number]): number {
  let count = 0;
  for (const e of walk(computation.equation.value)) {
    if (e.kind === "call") count += e.fn === "square" || e.fn === "min" || e.fn === "max" ? 1 : PER_CALL;
    else if (e.kind === "binary") count += e.op === "/" ? PER_QUOTIENT : 1;
    else if (e.kind === "cast" || e.kind === "select") count += 1;
  }
  return count;
}
