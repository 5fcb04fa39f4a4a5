/**
 * @file Memory traffic of each cache of a CPU under a schedule, level by level from the register block outwards.
 *
 *     traffic.read({ read: 0, written: 0, resident })
 *     traffic.layers[0].readCycles        of what the first level fetches from the second, one thread and call
 */

import { REFERENCE_CPU } from "../targets/x86.ts";
import { type Footprint, LINE_BYTES } from "./footprint.ts";
import type { DimensionState } from "./placed.ts";
import type { Plan } from "./plan.ts";
import type { ModelTarget } from "./target.ts";

/** Traffic between a cache and the level behind it under the schedule evaluated last, in cycles and bytes of one thread and call. */
export interface Layer {
  readonly name: string;
  /** Names of its terms: `read l2`. */
  readonly read: string;
  readonly write: string;
  readonly bytes: number;
  readonly readBytesPerCycle: number;
  readonly writeBytesPerCycle: number;
  /** Bytes that each input fetches while the loops inside a position run, and bytes of output that pass through. */
  readonly fetched: Float64Array;
  passed: number;
  /** Pages started for each input and for the output. */
  readonly started: Float64Array;
  startedOut: number;
  /** Trips of the loops outside the outermost position whose data fits. */
  entries: number;
  readCycles: number;
  writeCycles: number;
}

/** The traffic of the schedule that the plan read last. */
export class Traffic {
  readonly layers: readonly Layer[];
  private readonly plan: Plan;
  private readonly warm: boolean;
  /** Caches that do not keep the partial sums from one pass to the next: 0 where the first does. */
  passLevel = 0;
  private crowded = 0;
  private pages = 0;

  /** @param warm whether the previous call has just used the same data */
  constructor(target: ModelTarget, plan: Plan, warm: boolean) {
    this.plan = plan;
    this.warm = warm;
    this.layers = target.memory.flatMap((level, i): Layer[] => {
      const source = target.memory[i + 1];
      if (level.bytes === undefined || !source) return [];
      return [
        {
          name: level.name,
          read: `read ${source.name}`,
          write: `write ${source.name}`,
          bytes: level.bytes,
          readBytesPerCycle: source.readBytesPerCycle.value,
          writeBytesPerCycle: source.writeBytesPerCycle.value,
          fetched: new Float64Array(plan.inputs.length),
          passed: 0,
          started: new Float64Array(plan.inputs.length),
          startedOut: 0,
          entries: 1,
          readCycles: 0,
          writeCycles: 0,
        },
      ];
    });
  }

  /**
   * Works from the register block outwards: the data that the loops inside a position touch, and what each cache must fetch for it. While one
   * trip of a loop fits, its next trip reuses the data both share, so the loop fetches its distinct bytes; otherwise every trip fetches its own.
   * @returns cycles of the traffic of packing
   */
  read(packed: { readonly read: number; readonly written: number; readonly resident: number }): number {
    const { plan, layers } = this;
    const { inputs, ordered, loops } = plan;
    // Partial sums, in the output or in a buffer, count like results.
    const sums = plan.passes > 1 ? plan.sums : plan.results.output;
    // Shared caches hash addresses over their sets. Private ones index sets directly, and prefetch.
    const shared = layers.length > 2 ? layers[layers.length - 1] : undefined;
    // The average block: this many of them cover all steps.
    for (const d of ordered) d.covered = d.ownSteps / d.ownBlocks;
    sums.measure();
    for (const input of inputs) input.placed.footprint.measure();
    let total = this.touched(sums);
    let crowded = this.crowded;
    let open = this.pages;
    let trips = 1;
    for (const d of ordered) trips *= d.ownBlocks;
    this.passLevel = 0;
    for (const layer of layers) {
      for (let i = 0; i < inputs.length; i++) layer.fetched[i] = inputs[i]?.placed.footprint.lines ?? 0;
      for (let i = 0; i < inputs.length; i++) layer.started[i] = inputs[i]?.placed.footprint.pages ?? 0;
      layer.passed = sums.lines;
      layer.startedOut = sums.pages;
      layer.entries = trips;
    }
    for (let position = loops.length - 1; position >= 0; position--) {
      const nested = loops[position];
      if (nested === undefined || nested.trips <= 1) continue;
      const d = nested.dimension;
      const before = total;
      const beforeCrowded = crowded;
      const followed = keptShare(open, STREAMS);
      if (nested.pass) this.passLevel = Math.max(this.passLevel, layers.filter(({ bytes }) => before > bytes).length);
      d.covered = nested.covers;
      total = this.measureAfter(d, sums);
      crowded = this.crowded;
      open = this.pages;
      for (const layer of layers) {
        const kept = keptShare(layer === shared ? before : beforeCrowded, layer.bytes);
        for (let i = 0; i < inputs.length; i++) {
          const footprint = inputs[i]?.placed.footprint;
          if (footprint === undefined) continue;
          const { lines, pages } = footprint;
          const trip = layer.fetched[i] ?? 0;
          const fetched = kept * lines + (1 - kept) * nested.trips * trip;
          layer.fetched[i] = fetched;
          // Where the prefetcher loses its position, it restarts each time that there is something to fetch.
          layer.started[i] = followed * pages + ((1 - followed) * (layer.started[i] ?? 0) * fetched) / trip;
        }
        // Summed loops accumulate in registers: the output moves once a block and pass.
        if (!d.spatial && !nested.pass) continue;
        const trip = layer.passed;
        layer.passed = kept * sums.lines + (1 - kept) * nested.trips * trip;
        layer.startedOut = followed * sums.pages + ((1 - followed) * layer.startedOut * layer.passed) / trip;
      }
      trips /= nested.trips;
      for (const layer of layers) if (total <= layer.bytes) layer.entries = trips;
    }
    if (sums !== plan.results.output) {
      plan.results.output.measure();
      for (const layer of layers) layer.passed += plan.results.output.lines;
    }
    return this.cycles(packed, shared);
  }

  /** Cycles of the fetched and passed data. @returns cycles of the traffic of packing */
  private cycles(
    packed: { readonly read: number; readonly written: number; readonly resident: number },
    shared: Layer | undefined,
  ): number {
    const { layers, plan } = this;
    const { inputs } = plan;
    let packMemory = 0;
    for (const layer of layers) {
      // The previous call left the data that fits.
      const missing = this.warm ? 1 - keptShare(packed.resident, layer.bytes) : 1;
      let fetched = 0;
      // Repeated fetches occur only for blocks with work to do; the first fetch covers everything.
      for (let i = 0; i < inputs.length; i++) {
        const bytes = layer.fetched[i] ?? 0;
        fetched += Math.max(plan.workedShare * bytes, Math.min(bytes, inputs[i]?.placed.footprint.lines ?? 0));
      }
      layer.readCycles = (missing * fetched) / layer.readBytesPerCycle;
      layer.writeCycles = (missing * layer.passed) / layer.writeBytesPerCycle;
      if (layer !== shared) {
        let starts = 0;
        for (const pages of layer.started) starts += pages;
        if (layer !== layers[0]) layer.readCycles += missing * START_CYCLES * Math.min(starts, fetched / LINE_BYTES);
        layer.writeCycles += missing * START_CYCLES * Math.min(layer.startedOut, layer.passed / LINE_BYTES);
      }
      const moved = packed.read / layer.readBytesPerCycle + packed.written / layer.writeBytesPerCycle;
      packMemory = Math.max(packMemory, missing * moved);
    }
    return packMemory;
  }

  /** Updates the footprints after a dimension has grown. @returns lines of all footprints */
  private measureAfter(d: DimensionState, sums: Footprint): number {
    const { inputs, results } = this.plan;
    if (results.own.has(d)) sums.measure();
    for (const { own, placed } of inputs) if (own.has(d)) placed.footprint.measure();
    return this.touched(sums);
  }

  /** @returns lines of all footprints as measured; `crowded` is the part of the first level they take */
  private touched(sums: Footprint): number {
    const { inputs } = this.plan;
    let total = sums.lines;
    // Results wait in registers while data that crowds the sets passes.
    this.crowded = sums.lines;
    this.pages = sums.pages;
    for (const { placed } of inputs) {
      total += placed.footprint.lines;
      this.crowded += placed.footprint.crowded;
      this.pages += placed.footprint.pages;
    }
    return total;
  }
}

const [, , L2] = REFERENCE_CPU.memories;
const STREAMS = L2.streams.value;

/**
 * Cycles lost at the start of a page before the prefetcher is ahead: for data from behind the private caches, and for data written to the second
 * level, whose lines are not prefetched. Data read from there arrives in time. Fitted to 131 schedules of a depthwise convolution of 5 MB that
 * differ in their loop order, confirmed by 70 of a 1x1 convolution in u8s8 (Xeon with AMX, 2026-11-21).
 */
const START_CYCLES = 12;

/**
 * Fraction of the data touched by a trip that the next trip still finds: all of it up to three quarters of the capacity, because lines are not
 * evenly spread over the sets; none from five quarters on, because data that is used cyclically is evicted just before its next use.
 */
export function keptShare(touched: number, capacity: number): number {
  return Math.min(1, Math.max(0, 2.5 - (2 * touched) / capacity));
}
