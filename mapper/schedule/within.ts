/**
 * @file Decision `within` (compute_at): an input is packed inside a loop. Each copy holds the data of one loop step, and so stays in a near cache.
 *
 *     in padded within g              for g in 0..32
 *                                       in_padded[4 x 58 x 58] <- in[4*g .. 4*g+3]          53 KB instead of 1.7 MB
 *                                       for n, k, p, q ...
 *
 *     b tiled within n                for n in 0..32768
 *                                       b_tiles[4096] <- e[n, ..]                          8 KB instead of 268 MB
 *                                       for i, j, k ...
 *
 * Rows that neighbouring steps share (the halo) are copied by each of them. Each thread has its own copy.
 *
 *     b tiled within n                for n in 0..128                              weights of half bytes with scales, packed ahead of calls
 *                                       b_made[131072] <- (f32(b_tiles[n, ..]) - 8) * s[n, ..]
 *                                       for m, g, b, h ...                         every block of rows loads f32
 */

import { affineForm } from "../../abstraction/affine.ts";
import type { Schedule } from "../../abstraction/candidate.ts";
import { memoisedBy, memoisedPair, withName } from "../../abstraction/collections.ts";
import { tensorOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { accessesIn, axesIn, type Expr, plus, times } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { tileElements } from "../../abstraction/memory-tile.ts";
import { pick, type Random } from "../../abstraction/random.ts";
import { identifier, named } from "../../abstraction/schema.ts";
import { blocksOf, loop, parseLoop, printLoop } from "./cache-tiles.ts";
import { type Decision, pairsApart } from "./decision.ts";
import { dependsOn, inputOperands, type LoopDimension } from "./dimensions.ts";
import { dimensionsUnder } from "./gaps.ts";
import type { MappedContext } from "./mapped-context.ts";
import { packedForm } from "./packed-form.ts";
import { type PaddedReach, reachPadded, reachWindowed } from "./reach.ts";

type Within = Schedule["within"];

export const within: Decision<Within, MappedContext, Schedule> = {
  label: "copied within",
  summary:
    "Inputs copied inside a loop: at each step, each thread copies the part that this step reads. " +
    "Narrow weights are made there once for all rows, where loads would make them for each block of rows.",
  example: "a p/4",
  schema: named(identifier, loop).optional(),
  goesWith: "order",
  problem: ({ mapping }, schedule) => {
    const dimensions = dimensionsUnder(mapping, schedule);
    const copies = Object.keys(schedule.within ?? {}).map((o) => madeWithin(mapping, schedule, o, dimensions));
    return copies.find((copy) => typeof copy === "string");
  },
  draw: () => undefined,
  refine: ({ mapping }, schedule, random) =>
    random() < COPIED_WITHIN ? movedCopy(mapping, schedule, random) : schedule,
  moves: [
    {
      weight: 0.08,
      apply: ({ mapping }, schedule, random) => movedCopy(mapping, schedule, random),
    },
  ],
  tidy: ({ mapping }, schedule) => legalCopies(mapping, schedule),
  distance: (_, a, b) => pairsApart(a.within ?? {}, b.within ?? {}),
};

/** How often a random schedule has such a copy, if there is an input to copy. */
const COPIED_WITHIN = 0.4;

/** A dimension with a loop around a copy that changes what the copy holds. */
interface Moving {
  readonly dimension: LoopDimension;
  /** Whether the copy holds what one block reads, or one tile of blocks. */
  readonly of: "block" | "tile";
  /** Steps in that block or tile. */
  readonly steps: number;
}

/** One with a loop that shifts what the copy holds. */
export interface Around extends Moving {
  /** The loop of the computation. */
  readonly loop: string;
}

/** A copy of what one step of the enclosing loops reads. */
export interface WithinCopy extends PaddedReach {
  readonly around: readonly Around[];
}

/** The tiles of what one step of the loops around them reads. */
export interface WithinTiles {
  readonly around: readonly Moving[];
}

/** A copy is on the stack of its thread and should stay in its caches. */
const MOST_BYTES = 512 * 1024;

const knownCopies = memoisedBy<readonly LoopDimension[], WithinCopy | string>();

/** The copy of an input that a schedule makes inside a loop, or why it cannot. Cached by the loops around it. */
export function copyWithin(
  mapping: Mapping,
  schedule: Schedule,
  operandName: string,
  dimensions: readonly LoopDimension[],
): WithinCopy | string {
  // The key holds everything that the result depends on: the loops outside the copy, their blocks, and the placement.
  let key = `${operandName} ${schedule.placement[operandName]} ${schedule.within?.[operandName]}`;
  const last = schedule.order.indexOf(schedule.within?.[operandName] ?? "");
  for (const text of schedule.order.slice(0, last + 1))
    key += ` ${text} ${schedule.block[parseLoop(text)?.name ?? ""] ?? 1}`;
  return knownCopies(dimensions, key, () => findCopy(mapping, schedule, operandName, dimensions));
}

/** A copy or tiles made inside a loop; or why they cannot be. */
function madeWithin(
  mapping: Mapping,
  schedule: Schedule,
  operand: string,
  dimensions: readonly LoopDimension[],
): WithinCopy | WithinTiles | string {
  const make = schedule.placement[operand] === "tiled" ? tilesWithin : copyWithin;
  return make(mapping, schedule, operand, dimensions);
}

/** Whether everything an operand is made of is constant, and so prepared ahead of calls. */
const isConstant = memoisedPair(({ computation, binding }: Mapping, operand: string): boolean => {
  const bound = binding[operand];
  return bound !== undefined && accessesIn(bound).every((a) => tensorOf(computation, a.tensor).constant);
});

/** The tiles of an input that a schedule packs inside a loop; or why it cannot. */
export function tilesWithin(
  mapping: Mapping,
  schedule: Schedule,
  operandName: string,
  dimensions: readonly LoopDimension[],
): WithinTiles | string {
  const { intrinsic, binding } = mapping;
  const name = schedule.within?.[operandName] ?? "";
  const operand = withName(intrinsic.operands, operandName);
  const bound = binding[operandName];
  if (!operand || bound === undefined || schedule.placement[operandName] !== "tiled")
    return `${operandName} is no input packed in tiles`;
  const { made } = packedForm(mapping, operandName);
  if (!made && isConstant(mapping, operandName)) return `${operandName} is constant, packed ahead of time`;
  const moved = movedAround(schedule, operandName, bound, dimensions);
  if (typeof moved === "string") return moved;
  let elements = tileElements(operand);
  for (const d of dimensions)
    if (dependsOn(mapping, operandName, d))
      elements *= moved.find((m) => m.dimension === d)?.steps ?? roundedUp(d.steps, schedule.block[d.name] ?? 1);
  return problemOfBytes(elements * tileBytesWithin(mapping, operand), name) ?? { around: moved };
}

/** Bytes of an element of tiles that are packed inside a loop. Those of what a load makes hold what it would make. */
export function tileBytesWithin(mapping: Mapping, { name, dtype }: Operand): number {
  const { made, bytes } = packedForm(mapping, name);
  return made ? bytesOf(dtype) : bytes;
}

const roundedUp = (steps: number, block: number): number => Math.ceil(steps / block) * block;

function problemOfBytes(bytes: number, name: string): string | undefined {
  if (bytes <= MOST_BYTES) return undefined;
  return `the copy within ${name} would take ${bytes} bytes, more than ${MOST_BYTES}`;
}

/** The dimensions whose loops around a copy move what it holds; or why it cannot be made there. */
function movedAround(
  schedule: Schedule,
  operandName: string,
  bound: Expr,
  dimensions: readonly LoopDimension[],
): readonly Moving[] | string {
  const name = schedule.within?.[operandName] ?? "";
  const last = schedule.order.indexOf(name);
  const loops = schedule.order.slice(0, last + 1).flatMap((text) => parseLoop(text) ?? []);
  const innermost = loops.at(-1);
  if (innermost === undefined) return `there is no loop ${name}`;
  const used = new Set(axesIn(bound));
  const moved: Moving[] = [];
  for (const d of dimensions) {
    const own = loops.filter((l) => l.name === d.name);
    const isPlain = own.some((l) => l.tile === undefined);
    if (isPlain && d.kind === "reduce") return `the loop over ${d.name} is summed over: a copy is made outside of it`;
    const block = schedule.block[d.name] ?? 1;
    const steps = isPlain ? block : block * (own[0]?.tile ?? Number.POSITIVE_INFINITY);
    if (own.length > 0 && steps < d.steps && d.loops.some((l) => used.has(l.name)))
      moved.push({ dimension: d, of: isPlain ? "block" : "tile", steps });
    else if (d.name === innermost.name) return `what ${operandName} reads does not change with the loop over ${name}`;
  }
  return moved;
}

function findCopy(
  mapping: Mapping,
  schedule: Schedule,
  operandName: string,
  dimensions: readonly LoopDimension[],
): WithinCopy | string {
  const { computation, intrinsic, binding } = mapping;
  const name = schedule.within?.[operandName] ?? "";
  const placement = schedule.placement[operandName];
  const operand = withName(intrinsic.operands, operandName);
  const bound = binding[operandName];
  if (!operand || bound?.kind !== "access") return `${operandName} is not an element of a tensor`;
  if (placement !== "padded" && placement !== "windowed") return `${operandName} is not copied once a call`;
  if (tensorOf(computation, bound.tensor).constant) return `${bound.tensor} is constant and packed ahead of time`;

  // 1. The loops around it, and which of them move what it holds.
  const moved = movedAround(schedule, operandName, bound, dimensions);
  if (typeof moved === "string") return moved;
  const inside = dimensions.map((d) => {
    const steps = moved.find((m) => m.dimension === d)?.steps;
    return steps === undefined ? d : onlyFirst(d, steps);
  });
  const around: Around[] = [];
  for (const m of moved) {
    const [loop, ...others] = m.dimension.loops.filter((l) => l.extent > 1);
    if (loop === undefined || others.length > 0)
      return `${m.dimension.name} is fused: its steps do not move a window evenly`;
    around.push({ ...m, loop: loop.name });
  }

  // 2. The copy, as if these loops had no other steps.
  const reachCopy = placement === "padded" ? reachPadded : reachWindowed;
  const found = reachCopy({ mapping, operand, access: bound, dimensions: inside });
  if (typeof found === "string") return found;
  if (found.runsPast) return `a copy within ${name} would be read past its end`;
  return problemOfBytes(found.copy.elements * bytesOf(operand.dtype), name) ?? { ...found, around };
}

/** A dimension cut to its first steps. */
function onlyFirst(d: LoopDimension, steps: number): LoopDimension {
  const extent = steps * d.step;
  const loops = d.loops.map((l) => (l.extent > 1 ? { ...l, extent } : l));
  return { ...d, loops, extent, steps, wholeSteps: steps };
}

/** How the loops around a copy shift the indices of its tensor. */
export interface Moved {
  readonly moves: (index: Expr) => boolean;
  /** Shifts `value`, an index counted from the first steps, to the current position of the loops. */
  readonly from: (index: Expr, value: Expr) => Expr;
}

export const STILL: Moved = { moves: () => false, from: (_, value) => value };

/** @param first the first step of a dimension that the copy holds */
export function movedBy(around: readonly Around[], first: (around: Around) => Expr): Moved {
  return {
    moves: (index) => around.some(({ loop }) => axesIn(index).includes(loop)),
    from: (index, value) =>
      around.reduce((sum, a) => {
        const coefficient = (affineForm(index)?.terms.get(a.loop) ?? 0) * a.dimension.step;
        return coefficient === 0 ? sum : plus(sum, times(first(a), coefficient));
      }, value),
  };
}

/** Blocks in a tile that is formed around a copy. Rows that neighbouring blocks share are then copied once. */
const TILE_SIZES: readonly number[] = [2, 4, 8, 16];

/** Inputs that a schedule copies and that are not constant, and those that loads would make, each with the loops inside which its copy can be made. */
export function copiesIn(mapping: Mapping, schedule: Schedule): { operand: string; places: readonly string[] }[] {
  return Object.keys(schedule.placement).flatMap((operand) => {
    const places = placesOf(mapping, schedule, operand);
    return places.length > 0 ? [{ operand, places }] : [];
  });
}

/** Moves the copy of one input inside another loop, or back to once a call. */
export function movedCopy(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  const inputs = copiesIn(mapping, schedule);
  if (inputs.length === 0) return schedule;
  const { operand, places } = pick(random, inputs);
  const { [operand]: before, ...others } = schedule.within ?? {};
  if (before !== undefined && random() < 0.3) return { ...schedule, within: others };
  const place = pick(random, places);
  const within = (loop: string): Schedule["within"] => ({ ...others, [operand]: loop });
  const d = withName(dimensionsUnder(mapping, schedule), place);
  const isTiled = schedule.order.some((text) => text !== place && parseLoop(text)?.name === place);
  const sizes =
    d === undefined || isTiled ? [] : TILE_SIZES.filter((t) => t < blocksOf(d, schedule.block[d.name] ?? 1));
  if (sizes.length === 0 || random() < 0.5) return { ...schedule, within: within(place) };
  const loop = printLoop({ name: place, tile: pick(random, sizes) });
  return {
    ...schedule,
    order: schedule.order.flatMap((text) => (text === place ? [loop, place] : [text])),
    within: within(loop),
  };
}

/** Drops the copies that cannot be made inside their loops. */
function legalCopies(mapping: Mapping, schedule: Schedule): Schedule["within"] {
  const dimensions = dimensionsUnder(mapping, schedule);
  const kept = Object.entries(schedule.within ?? {})
    .filter(([operand]) => typeof madeWithin(mapping, schedule, operand, dimensions) !== "string")
    .sort(([a], [b]) => a.localeCompare(b));
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}

/** Loops inside which the copy of an input can be made. */
function placesOf(mapping: Mapping, schedule: Schedule, operand: string): readonly string[] {
  // Drawing schedules asks this most often of inputs without a copy, or with one made ahead of calls.
  const made = schedule.placement[operand] === "tiled" && packedForm(mapping, operand).made !== undefined;
  if (schedule.placement[operand] === "in-place" || (!made && isConstant(mapping, operand))) return [];
  const dimensions = dimensionsUnder(mapping, schedule);
  const isBatch = (loop: string): boolean => {
    const d = withName(dimensions, parseLoop(loop)?.name);
    return d !== undefined && inputOperands(mapping).every((o) => dependsOn(mapping, o.name, d));
  };
  return schedule.order.filter((loop) => {
    if (schedule.placement[operand] === "tiled" && !made && !isBatch(loop)) return false;
    const trial = { ...schedule, within: { [operand]: loop } };
    return typeof madeWithin(mapping, trial, operand, dimensions) !== "string";
  });
}
