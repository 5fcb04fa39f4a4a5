/**
 * @file Decision `block`: the register block, that is, how many steps of each dimension are unrolled around the
 * instruction.
 *
 *     block q 12, k 2         24 accumulators: 12 inputs stream past 2 weights that are held
 *     block q 12, c 4         12 accumulators, four steps of the sum in a body
 */

import { z } from "zod";
import type { Schedule } from "../../abstraction/candidate.ts";
import { product, sortedBy, sumOf, unique, withName } from "../../abstraction/collections.ts";
import { keptIn, summedIn } from "../../abstraction/computation.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { pick, type Random, shuffled } from "../../abstraction/random.ts";
import { identifier, named } from "../../abstraction/schema.ts";
import { registerClass, registersTaken } from "../../targets/index.ts";
import { type Border, borderBlocks, isRange } from "./borders.ts";
import { parseLoop } from "./cache-tiles.ts";
import type { Decision } from "./decision.ts";
import {
  dependsOn,
  dimensionsOf,
  factorOperands,
  inputOperands,
  type LoopDimension,
  summedOf,
  targetOperand,
} from "./dimensions.ts";
import { dimensionsUnder } from "./gaps.ts";
import type { MappedContext } from "./mapped-context.ts";
import { bordersUnder } from "./place.ts";

type Block = Schedule["block"];

/** Largest block of one dimension in a record. The product of all blocks is bounded by {@link BLOCK_ISSUES}. */
const MOST = 1024;

/** Largest block tried: for a kept dimension limited by registers, for a summed one by code size. */
const SPATIAL_BLOCK = 30;
const REDUCE_BLOCK = 8;

/**
 * Largest number of summed steps unrolled, all loops together. Up to 8 made no difference (1694 random trials). In 27
 * of three searches for a 512x7x7 layer in u8s8, 16 to 31 took 1.20, 32 to 63 took 1.08, and more took 1.47 times the
 * predicted time (medians; a Xeon with AMX that was also used for other work, 2026-11-21).
 */
const MOST_UNROLLED = 12;

/**
 * Largest number of issues written in a kernel, counting all copies of the block: those for remainders and those at
 * borders. 28 by 9 of conv2d f32 in place are 952 issues, 1,570 lines and 0.6 s of g++ (a Xeon, 2026-11-23), in which a
 * search measures four other kernels.
 */
const MOST_WRITTEN = 1024;

/**
 * Distance between two candidates that differ in the order or in the unrolling of summed loops: either changes the time
 * little.
 */
export const SUMMED_APART = 0.25;

/**
 * Largest number of issues of a block. Searches try 30 by 30 steps when these need no registers of their own, with 8
 * steps of the sum unrolled.
 */
const BLOCK_ISSUES = 8192;

/** Largest number of issues written for blocks at the border: beyond it, compiling takes seconds. */
const EDGE_ISSUES = 4096;

export const block: Decision<Block, MappedContext, Schedule> = {
  summary:
    "The register block: the steps that are unrolled. Kept dimensions multiply the accumulators, summed dimensions the length of the loop body.",
  example: "q 12, k 2",
  schema: named(identifier, z.int().positive().max(MOST)),
  problem: ({ mapping }, schedule) => sizeProblem(mapping, schedule) ?? roomProblem(mapping, schedule),
  worthTrying: ({ mapping }, schedule) =>
    product(dimensionsOf(mapping).map((d) => (d.kind === "reduce" ? blockOf(schedule, d) : 1))) <= MOST_UNROLLED &&
    issuesWritten(mapping, schedule) <= MOST_WRITTEN,
  draw: ({ mapping }, schedule, random) => drawBlock(mapping, schedule, random),
  moves: [
    {
      weight: 0.33,
      apply: ({ mapping }, schedule, random) => {
        const dimensions = moving(mapping, schedule);
        if (dimensions.length === 0) return schedule;
        const d = pick(random, dimensions);
        return { ...schedule, block: { ...schedule.block, [d.name]: pick(random, sizesOf(d)) } };
      },
    },
  ],
  carry: ({ mapping }, schedule) => {
    const dimensions = dimensionsUnder(mapping, schedule);
    return Object.fromEntries(
      Object.entries(schedule.block).flatMap(([name, size]) => {
        const d = withName(dimensions, name);
        return d ? [[name, Math.max(1, ...sizesOf(d).filter((own) => own <= size))]] : [];
      }),
    );
  },
  // Blocks of 1 are left out.
  tidy: (_, schedule) =>
    Object.fromEntries(
      Object.entries(schedule.block)
        .filter(([, size]) => size > 1)
        .sort(([a], [b]) => a.localeCompare(b)),
    ),
  distance: ({ mapping }, a, b) => {
    const summed = summedOf(mapping);
    const differing = unique([...Object.keys(a.block), ...Object.keys(b.block)]).filter(
      (name) => (a.block[name] ?? 1) !== (b.block[name] ?? 1),
    );
    const kept = differing.filter((name) => !summed.has(name)).length;
    return kept + (differing.length > kept ? SUMMED_APART : 0);
  },
};

const moving = (mapping: Mapping, schedule: Schedule): LoopDimension[] =>
  dimensionsUnder(mapping, schedule).filter((d) => d.steps > 1);

/** Block sizes to try for a dimension: all up to 8, then those that leave a small remainder. */
function sizesOf(d: LoopDimension): number[] {
  const most = Math.min(d.steps, d.kind === "spatial" ? SPATIAL_BLOCK : REDUCE_BLOCK);
  const sizes: number[] = [];
  for (let b = 1; b <= most; b++) {
    const left = d.steps % b;
    if (b <= 8 || left === 0 || b - left <= 2) sizes.push(b);
  }
  return sizes;
}

/**
 * Draws one or two kept dimensions for the register block, innermost or not; the innermost summed one may be unrolled.
 */
function drawBlock(mapping: Mapping, schedule: Schedule, random: Random): Block {
  const ordered = schedule.order.flatMap((name) => withName(moving(mapping, schedule), name) ?? []);
  const spatial = keptIn(ordered);
  const drawn: Record<string, number> = {};
  const blocked = random() < 0.5 ? spatial : shuffled(random, spatial);
  for (const d of blocked.slice(-2)) drawn[d.name] = pick(random, sizesOf(d));
  const innermost = ordered.findLast((d) => d.kind === "reduce");
  if (innermost && random() < 0.5) drawn[innermost.name] = pick(random, sizesOf(innermost));
  return drawn;
}

function sizeProblem(mapping: Mapping, schedule: Schedule): string | undefined {
  const dimensions = dimensionsUnder(mapping, schedule);
  for (const [name, size] of Object.entries(schedule.block)) {
    const dimension = withName(dimensions, name);
    if (!dimension) return `block of ${name}: there is no such dimension`;
    if (!Number.isSafeInteger(size) || size < 1 || size > dimension.steps)
      return `block of ${name} must be 1 to ${dimension.steps}, got ${size}`;
  }
  return undefined;
}

/** Issues written for a block, and an upper bound for those of blocks at the border. */
function issuesIn(mapping: Mapping, schedule: Schedule): { readonly issues: number; readonly edges: number } {
  const dimensions = dimensionsUnder(mapping, schedule);
  const { accumulators } = registersOf(mapping, schedule);
  const blockIn = (d: LoopDimension): number => blockOf(schedule, d);
  return {
    issues: accumulators * product(summedIn(dimensions).map(blockIn)),
    edges: edgeIssues(bordersUnder(mapping, schedule), dimensions, blockIn, accumulators),
  };
}

/** Why a block exceeds the limits of code size or registers. */
function roomProblem(mapping: Mapping, schedule: Schedule): string | undefined {
  const { accumulators } = registersOf(mapping, schedule);
  const { edges, issues } = issuesIn(mapping, schedule);
  if (edges > EDGE_ISSUES) return `blocks at the border would be written as ${edges} issues, more than ${EDGE_ISSUES}`;
  if (issues > BLOCK_ISSUES) return `a block would be written as ${issues} issues, more than ${BLOCK_ISSUES}`;
  const available = registerClass(targetOperand(mapping).file)?.count;
  const taken = registersTakenBy(mapping, schedule);
  const needed = accumulators + taken.held + taken.streaming;
  if (available !== undefined && needed > available)
    return `${needed} registers of ${available}: ${accumulators} accumulators, ${taken.held} held, ${taken.streaming} streaming`;
  return undefined;
}

/**
 * Approximate number of issues written in a kernel: the remainder of a block is a copy of its own, and so is a smaller
 * last tile.
 */
export function issuesWritten(mapping: Mapping, schedule: Schedule): number {
  const dimensions = dimensionsUnder(mapping, schedule);
  const borders = bordersUnder(mapping, schedule);
  let { edges, issues } = issuesIn(mapping, schedule);
  for (const d of dimensions) {
    const block = blockOf(schedule, d);
    const whole = Math.floor(d.wholeSteps / block);
    const left = whole === 0 ? 0 : (d.steps - whole * block) / block;
    const tile = schedule.order.map(parseLoop).find((l) => l?.name === d.name && l.tile !== undefined)?.tile;
    const tiles = tile !== undefined && (left > 0 || whole % tile > 0) ? 2 : 1;
    const border = borders.find((b) => b.spatial === d.name);
    const blocks = border && borderBlocks(border, block);
    // Without a block inside, only edges are written. The remainder of a border is counted with its edges.
    issues *= (blocks && blocks.from === blocks.to ? 0 : tiles) + (blocks?.leftIsEdge ? 0 : left);
    edges *= tiles + (borders.some((b) => b.spatial === d.name || b.reduce === d.name) ? 0 : left);
  }
  return Math.round(issues + edges);
}

export function blockOf(schedule: Schedule, d: LoopDimension): number {
  return schedule.block[d.name] ?? 1;
}

function blockedDimensions(mapping: Mapping, schedule: Schedule): LoopDimension[] {
  return keptIn(dimensionsUnder(mapping, schedule)).filter((d) => blockOf(schedule, d) > 1);
}

/** Tiles of an operand that a block loads or sums. */
export const tilesOf = (mapping: Mapping, schedule: Schedule, operand: string): number =>
  product(
    blockedDimensions(mapping, schedule)
      .filter((d) => dependsOn(mapping, operand, d))
      .map((d) => blockOf(schedule, d)),
  );

/** Registers the block takes: accumulators, and tiles of the input that is held while the other streams. */
export function registersOf(mapping: Mapping, schedule: Schedule): { accumulators: number; held: number } {
  const accumulators = product(blockedDimensions(mapping, schedule).map((d) => blockOf(schedule, d)));
  return { accumulators, held: Math.min(...factorOperands(mapping).map((o) => tilesOf(mapping, schedule, o.name))) };
}

/**
 * Machine registers that the inputs of a block take. The factor with fewer tiles is held (the first if equal); the other
 * streams, as do further inputs.
 */
export function registersTakenBy(mapping: Mapping, schedule: Schedule): { held: number; streaming: number } {
  const [first, second] = sortedBy(
    factorOperands(mapping).map(({ name, file }) => ({
      tiles: tilesOf(mapping, schedule, name),
      each: registersTaken(file),
    })),
    (a) => a.tiles,
  );
  const further = sumOf(inputOperands(mapping).slice(2), ({ file }) => registersTaken(file));
  return { held: (first?.tiles ?? 1) * (first?.each ?? 1), streaming: ((second ?? first)?.each ?? 1) + further };
}

/** Upper bound for the issues written for blocks at the border; see {@link EDGE_ISSUES}. */
export function edgeIssues<D extends { readonly name: string; readonly kind: "spatial" | "reduce" }>(
  borders: readonly Border[],
  dimensions: readonly D[],
  blockOf: (dimension: D) => number,
  accumulators: number,
): number {
  const blockNamed = (name: string): number => {
    const dimension = withName(dimensions, name);
    return dimension ? blockOf(dimension) : 1;
  };
  let issues = accumulators;
  let edges = 0;
  for (const d of dimensions) {
    const border = borders.find((b) => (d.kind === "spatial" ? b.spatial : b.reduce) === d.name);
    if (border === undefined) issues *= d.kind === "reduce" ? blockOf(d) : 1;
    else if (d.kind === "spatial") {
      const blocks = borderBlocks(border, blockOf(d));
      edges += blocks.edges;
      if (!isRange(border, blockNamed)) issues *= blocks.texts;
    }
  }
  return edges === 0 ? 0 : issues;
}

/** Whether a schedule has few enough issues at edges to be written. */
export const edgesFit = (issues: number): boolean => issues <= EDGE_ISSUES;
