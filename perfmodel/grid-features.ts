/**
 * @file The features of a kernel of blocks and warps that trees were taught by (perfmodel/learnt.ts): what the model's parts leave out depends on
 * its decisions, its shape, and how full a multiprocessor is.
 *
 *     gridFeatures(context, schedule, facts)       { "part launch": 0.2, "part tensor": 1, ..., "steps ahead": 3, "pieces most": 2, ... }
 */

import { extentOf } from "../abstraction/affine.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { sumOf, volumeOf } from "../abstraction/collections.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { launchedThreads, registersOf, sharedBytesOf, threadsOf } from "../mapper/schedule/grid.ts";
import type { GridContext } from "../mapper/schedule/grid-context.ts";
import { partsOfSum } from "../mapper/schedule/split.ts";
import { sectorsOver } from "../mapper/schedule/store.ts";
import { fragmentsAlong } from "../mapper/schedule/tile.ts";
import type { Costs, Features } from "./correct.ts";
import { type StepCycles, transferOf } from "./grid-step.ts";

/** What the model has found out of a kernel. */
interface GridFacts {
  readonly costs: Costs;
  readonly cycles: StepCycles;
  /** Steps of a block. */
  readonly steps: number;
  /** Blocks of a multiprocessor, on average; those that it runs at once; how often it begins so many. */
  readonly perUnit: number;
  readonly together: number;
  readonly waves: number;
}

const FRAGMENTS = { rolled: 0, inline: 1, ahead: 2, across: 3 } as const;
const STORES = { direct: 0, staged: 1, quads: 2, bulk: 3 } as const;
const SWIZZLES = { plain: 0, padded: 1, swizzled: 2, spans: 3 } as const;

/** The share of a part in the time if everything overlaps. */
export function shareOf({ terms, bounds }: Costs, part: string): number {
  for (const { name, seconds } of terms) if (name === part) return seconds / bounds[0];
  return 0;
}

export function gridFeatures(
  context: GridContext,
  schedule: GridSchedule,
  { costs, cycles, steps, perUnit, together, waves }: GridFacts,
): Features {
  const { rows, columns, sum, elementBytes, limits } = context;
  const { tile, split } = schedule;
  const { inputs, ahead } = cycles;
  const along = extentOf(sum.axis, tile);
  const tileBytes = (extentOf(rows.axis, tile) + extentOf(columns.axis, tile)) * along * elementBytes;
  const plain = context.inputs.map((input) => transferOf(input, schedule) === "plain");
  const pieces = inputs.map((input) => input.pieces);
  const widths = context.inputs.map(({ width, operand }) => width * bytesOf(operand.dtype));
  const registers = registersOf(context, schedule);
  return {
    "part launch": shareOf(costs, "launch"),
    "part repack": shareOf(costs, "repack"),
    "part split": shareOf(costs, "split"),
    "part multicast": shareOf(costs, "multicast"),
    "part tensor": shareOf(costs, "tensor"),
    "part shared": shareOf(costs, "shared"),
    "part copies": shareOf(costs, "copies"),
    "part threads": shareOf(costs, "threads"),
    "part drain": shareOf(costs, "drain"),
    "part memory": shareOf(costs, "memory"),
    "part latency": shareOf(costs, "latency"),
    overlap: costs.bounds[1] / costs.bounds[0],
    // decisions
    fragments: FRAGMENTS[schedule.fragments],
    store: STORES[schedule.store],
    swizzle: SWIZZLES[schedule.swizzle],
    order: schedule.order,
    engine: Number(schedule.transfer === "engine"),
    "plain inputs": sumOf(plain, Number),
    producer: Number(schedule.producer !== undefined),
    multicast: schedule.multicast?.blocks ?? 1,
    persistent: Number(schedule.persistent !== undefined),
    early: Number(schedule.launch !== undefined),
    taps: Number(schedule.taps !== undefined),
    gather: Number(schedule.gather !== undefined),
    repacked: schedule.repack?.length ?? 0,
    parts: partsOfSum(schedule),
    cluster: Number(split?.through === "cluster"),
    // the tile of a block, and its steps
    warpgroup: Number(context.team === "warpgroup"),
    rows: rows.extent,
    columns: columns.extent,
    "element bytes": elementBytes,
    "tile sum": along,
    "tile sum bytes": along * elementBytes,
    "tile bytes": tileBytes,
    "products of a step": along / sum.extent,
    "fragments of sums": fragmentsAlong(rows, schedule) * fragmentsAlong(columns, schedule),
    steps,
    "steps ahead": ahead,
    "bytes ahead": ahead * together * tileBytes,
    "outer sums": volumeOf(context.outerSums),
    "loops of the sum": sum.dimension?.loops.filter((l) => l.extent > 1).length ?? 0,
    "beyond the sum": (Math.ceil(sum.elements / along) * along) / sum.elements,
    // copies
    "pieces most": Math.max(...pieces),
    "pieces least": Math.min(...pieces),
    "pieces plain": sumOf(pieces.map((count, i) => (plain[i] ? count : 0))),
    "bytes over": Math.max(...inputs.map((i) => i.over)),
    "live least": Math.min(...inputs.map((i) => i.live)),
    "width least": Math.min(...widths),
    "width most": Math.max(...widths),
    "along the sum": sumOf(context.inputs, (i) => Number(i.contiguous === "sum")),
    conditions: sumOf(context.inputs, (i) => i.conditions.length + Number(i.value.kind !== "access")),
    "sectors over": sectorsOver(context),
    // how full a multiprocessor is
    threads: threadsOf(context, schedule),
    together,
    "per unit": perUnit,
    waves,
    "last wave": Math.ceil(perUnit) / perUnit,
    registers,
    "registers taken": (registers * launchedThreads(context, schedule)) / limits.blockRegisters,
    "shared taken": sharedBytesOf(context, schedule) / limits.sharedBytes,
  };
}
