/**
 * @file The search space of lane kernels for a sum of neighbours: every dataflow and every block that fits the registers, with predicted times.
 *
 *     const space = laneSpace(computation, { threads: 1, target });      a space, or why lanes cannot compute it
 *     rankLanes(space, 12)                                                             the most promising, dataflows mixed
 *     lowerLanes(computation, candidate)                                               the loop nest of one
 */

import { canonicalJson, type LaneSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { pick, type Random } from "../abstraction/random.ts";
import { LANE_DECISIONS, type LaneContext } from "../mapper/schedule/lane-decisions.ts";
import { laneScheduleProblem, productsOf, stripsOf, writtenInAll } from "../mapper/schedule/lanes.ts";
import { type LaneRefusal, rollable, type TapSum, tapsOf } from "../mapper/space-time/taps.ts";
import { placeWindow, WINDOW_DESIGNS } from "../mapper/space-time/window.ts";
import { lineRegisters, lineRows } from "../mapper/space-time/window-lines.ts";
import { laneSeconds } from "../perfmodel/lanes.ts";
import type { ModelTarget } from "../perfmodel/target.ts";
import { type VectorRegisters, ZMM } from "../targets/x86.ts";
import type { SearchSpace } from "./space.ts";

export interface LaneSpaceOptions {
  readonly threads: number;
  readonly target: ModelTarget;
  /** Vector registers that hold the lanes; those of AVX-512 when left out: 16 f32, 8 f64. */
  readonly vectors?: VectorRegisters;
}

export interface LaneSpace extends SearchSpace<LaneSchedule> {
  readonly size: number;
  expectedSeconds(schedule: LaneSchedule): number;
}

/**
 * Most multiply-adds of a block. g++ 12 takes 2 ms for each, and borders add up to the same number again: a block of 2304 took 9 s of processor
 * time (conv2d f32, 64 channels; a Xeon, 2026-11-22). The longest that won a search has 248 (bench/results/stencils-xeon.md). Blocks of one
 * output at a time may have more, since long filters would otherwise have no block at all.
 */
const LONGEST_BLOCK = 600;
const LONGEST_OUTPUT = 3000;
/**
 * Most multiply-adds in all blocks of a kernel, since those at borders and beside whole ones are written separately. Each is two or three lines
 * with its comment. For seven windows of 5 to 400 taps the model's best kernels have 220 to 792; longer ones had up to 7,172 lines (2026-11-23).
 */
const LONGEST_IN_ALL = 1024;
/**
 * The same for windows of so many taps whose rows come as lines, since their blocks compile faster: g++ takes 2.9 s for 1296 multiply-adds of a
 * 9x9 filter, as for 324 in other forms. 4 rows x 4 vectors then take 1.6 ms, 2 x 2 take 1.9, and the products alone 1.44 (1024 x 1024, a Zen 4,
 * 2026-11-23).
 */
const MOST_LINE_TAPS = 100;
const LONGEST_LINES = 1300;
const LINES_IN_ALL = 3000;

/** The space, or why lanes cannot compute it. */
export function laneSpace(computation: Computation, options: LaneSpaceOptions): LaneSpace | LaneRefusal {
  const verdict = tapsOf(computation);
  if (!verdict.ok) return verdict.refusal;
  const { sum } = verdict;
  const { count: registers, bytes } = options.vectors ?? ZMM;
  const rolling = rollings(computation);
  const sums = new Map(
    rolling.flatMap((rolled) => {
      const own = tapsOf(computation, rolled);
      return own.ok ? [[rolled.join(), { own: own.sum, factors: factorsOf(own.sum) }] as const] : [];
    }),
  );
  const context: LaneContext = {
    sum,
    rollings: rolling,
    threads: options.threads,
    lanes: [bytes / bytesOf(sum.output.dtype)],
  };
  const choices = LANE_DECISIONS;
  const schedules: LaneSchedule[] = [];
  for (const lanes of choices.lanes.values(context))
    for (const dataflow of choices.dataflow.values(context))
      for (const { own, factors } of sums.values())
        for (const rows of choices.rows.values(context))
          for (const [vectors, lines, planes] of triplesOf(
            choices.vectors.values(context),
            choices.lines.values(context),
            choices.planes.values(context),
          )) {
            const block: LaneSchedule = {
              dataflow,
              lanes,
              rows,
              vectors,
              rolled: own.rolled,
              weights: "memory",
              streaming: false,
              prefetchBytes: 0,
              strip: 0,
              borders: "peeled",
              threads: options.threads,
              ...(lines !== undefined && { lines }),
              ...(planes !== undefined && { planes }),
            };
            if (!isWorthwhile(own, block)) continue;
            const held =
              rows * (planes ?? 1) * vectors + vectors + (lines ? lineRegisters(lineRows(own, block), block) : 0);
            // Overlapping blocks store unaligned, so they cannot use streaming stores.
            const streams = choices.streaming
              .values(context)
              .filter((around) => !around || WINDOW_DESIGNS[dataflow].data === "loaded");
            for (const strip of stripsOf(sum, rows))
              for (const weights of choices.weights.values(context))
                for (const streaming of held + (weights === "registers" ? factors : 1) <= registers ? streams : [])
                  for (const prefetchBytes of choices.prefetchBytes.values(context))
                    schedules.push({ ...block, weights, streaming, prefetchBytes, strip });
          }
  if (schedules.length === 0)
    return { rule: "length", because: `length: no block of ${sum.taps.length} taps fits ${registers} registers` };
  const sumOf = (s: LaneSchedule): TapSum | undefined => sums.get(s.rolled.join())?.own;
  return new ScheduleSpace(
    schedules,
    (s) => {
      const own = sumOf(s);
      if (!own) return Number.POSITIVE_INFINITY;
      const placed = placeWindow(WINDOW_DESIGNS[s.dataflow], s.lanes, own.columns);
      return placed.ok ? laneSeconds(own, s, placed.placement, options.target) : Number.POSITIVE_INFINITY;
    },
    (s) => {
      const own = sumOf(s);
      return own ? writtenInAll(own, s) : 0;
    },
  );
}

/** A form may be so many times slower by prediction than the best, and be tried: whether rows come as lines is predicted badly. */
const OTHER_FORM = 1.25;

/**
 * The most promising schedules: a third are the best of each number of rows and planes; a third are their other forms, with
 * lines or without, and the best of other shapes; the rest are variants of the best in their use of memory. Predictions of
 * one shape often tie exactly.
 */
export function rankLanes(space: LaneSpace, count: number): LaneSchedule[] {
  const ranked = [...space.all()]
    .map((schedule) => ({ schedule, seconds: space.expectedSeconds(schedule) }))
    .sort((a, b) => a.seconds - b.seconds);
  const limit = OTHER_FORM * (ranked[0]?.seconds ?? 0);
  const schedules = ranked.map((r) => r.schedule);
  const third = Math.ceil(count / 3);
  // 1. The best of each height.
  const best = distinct(schedules, heightOf).slice(0, third);
  // 2. Their other forms, then the best of other shapes.
  const near = schedules.slice(0, ranked.filter((r) => r.seconds <= limit).length);
  const forms = distinct(near, (s) => `${shapeOf(s)} ${s.lines !== undefined}`);
  const otherForms = best.flatMap((s) => forms.filter((other) => shapeOf(other) === shapeOf(s)));
  const opposite = schedules.filter((s) => (s.lines === undefined) !== (best[0]?.lines === undefined)).slice(0, 1);
  const others = [...new Set([...opposite, ...otherForms, ...distinct(schedules, shapeOf)])].filter(
    (s) => !best.includes(s),
  );
  best.push(...others.slice(0, third));
  // 3. Predictions are least reliable for prefetching, streaming stores, and which columns come from lines.
  const [first] = best;
  const alike = schedules.filter((s) => first && shapeOf(s) === shapeOf(first) && !best.includes(s));
  best.push(...alike.slice(0, Math.max(0, count - best.length)));
  return best.slice(0, count);
}

/** The part of a schedule that says how many outputs of other rows a block has. */
const heightOf = (s: LaneSchedule): string => [s.dataflow, s.rows, s.planes].join();

/** The part that says how many outputs a block has. */
const shapeOf = (s: LaneSchedule): string => [heightOf(s), s.vectors, s.rolled].join();

/** The first schedule of each kind. */
function distinct(schedules: readonly LaneSchedule[], kindOf: (s: LaneSchedule) => string): LaneSchedule[] {
  const kinds = new Map<string, LaneSchedule>();
  for (const s of schedules) if (!kinds.has(kindOf(s))) kinds.set(kindOf(s), s);
  return [...kinds.values()];
}

function triplesOf<A, B, C>(first: readonly A[], second: readonly B[], third: readonly C[]): (readonly [A, B, C])[] {
  return first.flatMap((a) => second.flatMap((b) => third.map((c) => [a, b, c] as const)));
}

/** Loops to keep: none, or the innermost summed axis. With more, every multiply-add would load a vector. */
export function rollings(computation: Computation): readonly (readonly string[])[] {
  const last = rollable(computation).at(-1);
  return last === undefined ? [[]] : [[], [last]];
}

/** Vectors that hold the weights of a window. */
const factorsOf = (sum: TapSum): number => new Set(sum.taps.map((t) => canonicalJson(t.factor ?? null))).size;

/** Whether a schedule fits and does not merely rename another block. */
function isWorthwhile(sum: TapSum, s: LaneSchedule): boolean {
  if (WINDOW_DESIGNS[s.dataflow].data === "held" && sum.columns === 1) return false;
  const single = s.rows * s.vectors * (s.planes ?? 1) === 1;
  const isLong = s.lines === undefined || sum.taps.length > MOST_LINE_TAPS;
  const [longest, inAll] = isLong ? [LONGEST_BLOCK, LONGEST_IN_ALL] : [LONGEST_LINES, LINES_IN_ALL];
  if (productsOf(sum, s) > (single ? LONGEST_OUTPUT : longest)) return false;
  if (!single && writtenInAll(sum, s) > inAll) return false;
  return laneScheduleProblem(sum, s) === undefined;
}

/** The schedules as a search sees them, with their predicted times. */
export class ScheduleSpace implements LaneSpace {
  readonly size: number;
  private readonly schedules: readonly LaneSchedule[];
  private readonly keys: ReadonlySet<string>;
  private readonly estimate: (s: LaneSchedule) => number;
  private readonly known = new Map<string, number>();
  readonly codeSize: (s: LaneSchedule) => number;

  /** @param written instructions written for a schedule; without it, all are taken to be as long */
  constructor(
    schedules: readonly LaneSchedule[],
    estimate: (s: LaneSchedule) => number,
    written: (s: LaneSchedule) => number = () => 0,
  ) {
    this.codeSize = written;
    this.schedules = schedules;
    this.size = schedules.length;
    this.keys = new Set(schedules.map(canonicalJson));
    this.estimate = estimate;
  }

  key(schedule: LaneSchedule): string {
    return canonicalJson(schedule);
  }

  expectedSeconds(schedule: LaneSchedule): number {
    const key = this.key(schedule);
    const seconds = this.known.get(key) ?? this.estimate(schedule);
    this.known.set(key, seconds);
    return seconds;
  }

  random(random: Random): LaneSchedule {
    return pick(random, this.schedules);
  }

  /** Takes one decision from another schedule of the space; returns the schedule itself when the result does not fit. */
  mutate(schedule: LaneSchedule, random: Random): LaneSchedule {
    const other = this.random(random);
    const field = pick(random, FIELDS);
    const changed = { ...schedule, [field]: other[field] };
    return this.keys.has(this.key(changed)) ? changed : schedule;
  }

  crossover(a: LaneSchedule, b: LaneSchedule, random: Random): LaneSchedule {
    const mixed = { ...a, ...Object.fromEntries(FIELDS.filter(() => random() < 0.5).map((f) => [f, b[f]])) };
    return this.keys.has(this.key(mixed)) ? mixed : random() < 0.5 ? a : b;
  }

  *all(): Generator<LaneSchedule> {
    yield* this.schedules;
  }
}

/** The keys of a schedule that a search changes. */
const FIELDS = Object.values(LANE_DECISIONS).flatMap((d) => ("values" in d ? [d.name as keyof LaneSchedule] : []));
