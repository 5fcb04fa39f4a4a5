/**
 * @file The space of lane kernels of one sum of neighbours: every dataflow and every block that fits the registers, with the time each is
 * expected to take.
 *
 *     const space = laneSpace(computation, { lanes: [16], threads: 1, target });      a space, or why lanes cannot compute it
 *     rankLanes(space, 12)                                                             the most promising, dataflows mixed
 *     lowerLanes(computation, candidate)                                               the loop nest of one
 *
 * The estimate counts one block: multiply-adds, loads (two where a vector straddles two cache lines), shuffles, stores; and the bytes
 * that move, over the bandwidth of the level that holds them. What is slowest decides.
 */

import { canonicalJson, LANE_DATAFLOWS, type LaneSchedule } from "../abstraction/candidate.ts";
import { type Computation, elementCount } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { printExpr } from "../abstraction/expression.ts";
import { unitCost } from "../abstraction/machine.ts";
import { pick, type Random } from "../abstraction/random.ts";
import { laneScheduleProblem, outputsOfVector, reachOf, rollable } from "../mapper/lanes/schedule.ts";
import { type LaneRefusal, type TapSum, tapsOf } from "../mapper/lanes/taps.ts";
import { SET_BYTES } from "../perfmodel/footprint.ts";
import type { ModelTarget } from "../perfmodel/target.ts";
import { REFERENCE_CPU, ZMM } from "../targets/x86.ts";
import type { SearchSpace } from "./space.ts";

export interface LaneSpaceOptions {
  /** Lanes of a vector; AVX-512 registers when left out: 16 f32, 8 f64. */
  readonly lanes?: readonly number[];
  readonly threads: number;
  readonly target: ModelTarget;
  /** Vector registers of a thread. */
  readonly registers?: number;
}

export interface LaneSpace extends SearchSpace<LaneSchedule> {
  readonly size: number;
  expectedSeconds(schedule: LaneSchedule): number;
}

const ROWS = [1, 2, 3, 4, 6, 8] as const;
const VECTORS = [1, 2, 3, 4, 6, 8] as const;
const PREFETCH_BYTES = [0, 512, 2048] as const;
/** Longer straight-line blocks take a compiler seconds and no longer fit the cache of decoded instructions. */
const LONGEST_BLOCK = 3000;

/** The space, or why lanes cannot compute it. */
export function laneSpace(computation: Computation, options: LaneSpaceOptions): LaneSpace | LaneRefusal {
  const verdict = tapsOf(computation);
  if (!verdict.ok) return verdict.refusal;
  const { sum } = verdict;
  const bytes = bytesOf(sum.output.dtype);
  const registers = options.registers ?? ZMM.count;
  const sums = new Map(rollings(computation).map((rolled) => [rolled.join(), rolledSum(computation, rolled)]));
  const schedules: LaneSchedule[] = [];
  for (const lanes of options.lanes ?? [ZMM.bytes / bytes])
    for (const dataflow of LANE_DATAFLOWS)
      for (const [names, own] of sums)
        for (const rows of ROWS)
          for (const vectors of VECTORS)
            for (const strip of stripsOf(sum, rows))
              for (const weights of ["registers", "memory"] as const)
                for (const streaming of [true, false])
                  for (const prefetchBytes of PREFETCH_BYTES) {
                    const schedule: LaneSchedule = {
                      ...{ dataflow, lanes, rows, vectors, weights, streaming, prefetchBytes, strip },
                      rolled: names === "" ? [] : names.split(","),
                      borders: "peeled",
                      threads: options.threads,
                    };
                    if (own && isWorthwhile(own, schedule, registers)) schedules.push(schedule);
                  }
  if (schedules.length === 0)
    return { rule: "length", because: `length: no block of ${sum.taps.length} taps fits ${registers} registers` };
  return new Space(schedules, (s) => {
    const own = sums.get(s.rolled.join());
    return own ? expected(own, s, options.target) : Number.POSITIVE_INFINITY;
  });
}

/** The most promising schedules: a third by the estimate alone, then the best of every other block, and how the best treat memory. */
export function rankLanes(space: LaneSpace, count: number): LaneSchedule[] {
  const ranked = [...space.all()]
    .map((schedule) => ({ schedule, seconds: space.expectedSeconds(schedule) }))
    .sort((a, b) => a.seconds - b.seconds);
  const best = ranked.slice(0, Math.ceil(count / 3)).map((r) => r.schedule);
  const blocks = new Set(best.map(blockOf));
  const others = ranked.filter(({ schedule }) => {
    const isNew = !blocks.has(blockOf(schedule));
    blocks.add(blockOf(schedule));
    return isNew;
  });
  best.push(...others.slice(0, Math.ceil(count / 3)).map((r) => r.schedule));
  const [first] = best;
  // What is loaded ahead and stored around the caches is what an estimate knows least about.
  const alike = ranked.filter(
    ({ schedule }) => first && blockOf(schedule) === blockOf(first) && !best.includes(schedule),
  );
  best.push(...alike.slice(0, Math.max(0, count - best.length)).map((r) => r.schedule));
  return best.slice(0, count);
}

const blockOf = (s: LaneSchedule): string => [s.dataflow, s.rows, s.vectors, s.rolled].join();

/** Nothing rolled, or the innermost summed axis: more would load a vector for every multiply-add. */
function rollings(computation: Computation): readonly (readonly string[])[] {
  const last = rollable(computation).at(-1);
  return last === undefined ? [[]] : [[], [last]];
}

function rolledSum(computation: Computation, rolled: readonly string[]): TapSum | undefined {
  const verdict = tapsOf(computation, rolled);
  return verdict.ok ? verdict.sum : undefined;
}

/** Strips that divide the rows of a 3-D grid; a flat image is swept as a whole. */
function stripsOf(sum: TapSum, rows: number): readonly number[] {
  const { rowAxis, rowDimension, shifts } = reachOf(sum);
  const [least, most] = shifts[rowDimension ?? 0] ?? [0, 0];
  const planes = shifts.filter(([min, max], d) => d !== rowDimension && d < shifts.length - 1 && max > min).length;
  const extent = sum.computation.axes.find((a) => a.name === rowAxis)?.extent ?? 1;
  const blocks = Math.floor(
    (Math.min(extent, (sum.input.dims[rowDimension ?? 0]?.extent ?? 1) - most) - Math.max(0, -least)) / rows,
  );
  if (rowAxis === undefined || planes === 0 || blocks < 2) return [0];
  const divisors = Array.from({ length: blocks - 1 }, (_, i) => i + 1).filter((s) => blocks % s === 0 && s * rows >= 8);
  const nearest = (goal: number): number[] =>
    divisors.length === 0
      ? []
      : [divisors.reduce((a, b) => (Math.abs(b * rows - goal) < Math.abs(a * rows - goal) ? b : a))];
  return [...new Set([0, ...nearest(32), ...nearest(96)])];
}

/** Fits, and does not differ from another schedule in name only. */
function isWorthwhile(sum: TapSum, s: LaneSchedule, registers: number): boolean {
  if (laneScheduleProblem(sum, s) !== undefined) return false;
  const { columns } = reachOf(sum);
  if (s.dataflow !== "FBS-load" && columns === 1) return false;
  // Blocks that overlap store unaligned: nothing streams.
  if (s.streaming && s.dataflow !== "FBS-load") return false;
  if (sum.taps.length * s.rows * s.vectors > LONGEST_BLOCK) return false;
  const factors = new Set(sum.taps.map((t) => canonicalJson(t.factor ?? null))).size;
  const held = s.rows * s.vectors + s.vectors + (s.weights === "registers" ? factors : 1);
  return held <= registers;
}

// ---------------------------------------------------------------------------------------------------- the estimate

/** On 512-bit vectors; shuffles are counted with them, since port 5 does both. */
const FMA_PER_CYCLE = 1 / unitCost(REFERENCE_CPU, "fma").issueCycles;

function expected(sum: TapSum, s: LaneSchedule, target: ModelTarget): number {
  const { shifts, columns, rowDimension } = reachOf(sum);
  const step = outputsOfVector(s.dataflow, s.lanes, columns);
  const bytes = bytesOf(sum.output.dtype);
  const repeats = sum.rolled.reduce(
    (n, name) => n * (sum.computation.axes.find((a) => a.name === name)?.extent ?? 1),
    1,
  );

  // 1. One block.
  const outputs = s.rows * s.vectors * step;
  const fmas = repeats * sum.taps.length * s.rows * s.vectors;
  const rowsOf = new Set(
    sum.taps.flatMap((t) => Array.from({ length: s.rows }, (_, i) => rowText(t.shift, i, rowDimension))),
  );
  const places = new Set(
    sum.taps.flatMap((t) =>
      Array.from({ length: s.rows }, (_, i) => `${rowText(t.shift, i, rowDimension)} ${lanesText(t.shift)}`),
    ),
  );
  const aligned = (1 / columns) * (s.lanes * bytes >= ZMM.bytes ? 1 : 0);
  const dataLoads =
    s.dataflow === "FBS-load" ? repeats * places.size * s.vectors * (2 - aligned) : rowsOf.size * s.vectors * 2;
  const weightLoads = s.weights === "registers" ? (repeats > 1 ? fmas / (s.rows * s.vectors) : 0) : fmas / s.vectors;
  const shuffles =
    s.dataflow === "FBS-load" ? 0 : (columns - 1) * s.vectors * (s.dataflow === "SBM" ? s.rows : rowsOf.size);
  const loads = (dataLoads + weightLoads) / target.loadsPerCycle.value;
  const slowest = Math.max(
    (fmas + shuffles) / FMA_PER_CYCLE,
    shuffles,
    loads,
    (s.rows * s.vectors) / target.storesPerCycle.value,
    (4 * fmas) / (s.rows * s.vectors) / FMA_PER_CYCLE,
  );
  // What is not slowest is not free: blocks of a 9x9 filter with fewer loads were faster although multiply-adds bind (Xeon, 2026-11-21).
  const cycles = slowest + 0.3 * Math.min(loads, slowest);
  // Rows of a power-of-two length share the sets of the first-level cache: more of them than it has ways drive each other out.
  const pitch = (sum.input.dims.at(-1)?.extent ?? 1) * bytes;
  const crowded = pitch % SET_BYTES === 0 && rowsOf.size > 12 ? 1.1 : 1;
  const compute = (cycles * crowded * elementCount(sum.output)) / outputs;

  // 2. The bytes, each row and plane once unless the window's planes do not stay in cache.
  const inBytes = elementCount(sum.input) * bytes;
  const outBytes = elementCount(sum.output) * bytes;
  const level =
    target.memory.find((m) => m.bytes !== undefined && m.bytes >= inBytes + outBytes) ?? target.memory.at(-1);
  const planes = shifts.length > 2 ? (shifts[0]?.[1] ?? 0) - (shifts[0]?.[0] ?? 0) + 1 : 1;
  const plane = inBytes / (sum.input.dims[0]?.extent ?? 1);
  const l2 = target.memory[1]?.bytes ?? 2 ** 20;
  const again = planes > 1 && s.strip === 0 && planes * plane > l2 / 2 ? 1 + (planes - 1) * 0.3 : 1;
  const read = level?.readBytesPerCycle.value ?? 1;
  // What goes around the caches runs at the speed of memory, without the lines it replaces: 25 beside 16 GB/s of reads (Xeon, 2026-11-21).
  const memoryRead = target.memory.at(-1)?.readBytesPerCycle.value ?? read;
  const write = s.streaming ? 1.5 * memoryRead : (level?.writeBytesPerCycle.value ?? 1);
  const waiting = s.prefetchBytes === 0 ? 1.05 : 1;
  // Each row of a block is a stream of its own out of main memory, and a stream into it.
  const streams = level?.bytes === undefined ? 1 + 0.08 * Math.max(0, s.rows - 2) : 1;
  const memory = ((inBytes * again) / read + outBytes / write) * waiting * streams;
  return (Math.max(compute, memory) + 0.15 * Math.min(compute, memory)) / target.clockHz.value / s.threads;
}

const lanesText = (shift: TapSum["taps"][number]["shift"]): string => {
  const last = shift.at(-1);
  return last === undefined ? "" : printExpr(last);
};

/** Which row of the input a shift reads for an output row of the block, as a key. */
function rowText(shift: TapSum["taps"][number]["shift"], row: number, rowDimension: number | undefined): string {
  return shift
    .slice(0, -1)
    .map((e, d) => {
      const moved = d === rowDimension ? row : 0;
      return e.kind === "number" ? String(e.value + moved) : `${printExpr(e)}+${moved}`;
    })
    .join();
}

// ---------------------------------------------------------------------------------------------------- the space

class Space implements LaneSpace {
  readonly size: number;
  private readonly schedules: readonly LaneSchedule[];
  private readonly keys: ReadonlySet<string>;
  private readonly estimate: (s: LaneSchedule) => number;
  private readonly known = new Map<string, number>();

  constructor(schedules: readonly LaneSchedule[], estimate: (s: LaneSchedule) => number) {
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

  /** Takes one decision from another schedule of the space; itself where that fits nothing. */
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

const FIELDS = [
  ...(["dataflow", "lanes", "rows", "vectors", "rolled", "weights", "streaming", "prefetchBytes", "strip"] as const),
] as const;
