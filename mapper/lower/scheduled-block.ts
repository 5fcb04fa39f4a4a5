/**
 * @file Lowers the register block of a schedule: clear the accumulators, run the summed loops, store the results, with the borders and conditions
 * that some blocks have.
 *
 * Lowers the stores of a register block's results: directly to the output, or through a scratch block, element by
 * element.
 *
 *     out[12*q_outer + q_block, ..] <- c{q_block}
 */

import { type Dimension, splitRowMajor } from "../../abstraction/affine.ts";
import { upTo, volumeOf } from "../../abstraction/collections.ts";
import { keptIn, summedIn } from "../../abstraction/computation.ts";
import { not } from "../../abstraction/condition.ts";
import { compare, type Expr, minus, number, plus, remainder, substitute, times } from "../../abstraction/expression.ts";
import type { MemoryTile, RegisterAt, Statement } from "../../abstraction/loop-nest.ts";
import { tileElements, tileRowElements } from "../../abstraction/memory-tile.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { registerClass } from "../../targets/index.ts";
import { when } from "../match/conditions.ts";
import { blockOf, registersOf, registersTakenBy } from "../schedule/block.ts";
import type { NestedLoop } from "../schedule/cache-tiles.ts";
import { dependsOn, type LoopDimension } from "../schedule/dimensions.ts";
import { reachOfTarget } from "../schedule/reach.ts";
import { shareFetched } from "./ahead.ts";
import { type Companions, companionsOf } from "./companions.ts";
import type { Parts, Placed, Tiles } from "./operands.ts";
import { countOf, type Known, ScheduledEdges } from "./scheduled-parts.ts";
import { type ResultBlock, storeElements } from "./store.ts";
import { fetchingStored } from "./stored-lines.ts";

export abstract class ScheduledStores extends ScheduledEdges {
  /**
   * Stores tiles directly if the output has the layout that the instruction stores; otherwise through a scratch block
   * (store.ts).
   */
  protected storeBlock(parts: Parts, blocked: readonly LoopDimension[], counter: Expr): readonly Statement[] {
    const straight = this.storeStraight(parts, blocked, counter);
    if (straight === undefined) return this.storeSpilled(parts, blocked, counter);
    if (this.conditions.stored === undefined) return straight;
    return when(this.conditions.isUniform(this.stretchIn(parts)), straight, this.storeSpilled(parts, blocked, counter));
  }

  /** Direct stores; undefined if the output has another layout, a tile is incomplete, or there is an epilogue. */
  protected storeStraight(
    parts: Parts,
    blocked: readonly LoopDimension[],
    counter: Expr,
  ): readonly Statement[] | undefined {
    const memory = this.straight(parts);
    return memory && this.storeTiles(parts, blocked, counter, memory);
  }

  /** The output memory of a block's tiles, if they can be stored directly. */
  protected straight(parts: Parts): MemoryTile | undefined {
    const { computation } = this;
    const partial = this.dimensions.some((d) => d.kind === "spatial" && parts.get(d.name)?.partial);
    if (computation.epilogue || partial) return undefined;
    const whole = this.dimensions.map((d) =>
      d.kind === "spatial" ? { ...d, steps: d.wholeSteps, extent: d.wholeSteps * d.step } : d,
    );
    const reach = reachOfTarget(this.mapping, whole);
    if (typeof reach === "string") return undefined;
    const { buffer, base, stride } = this.operands.reached(this.target, computation.equation.target.tensor, reach);
    return { buffer, base: base(this.positionIn(parts)), stride };
  }

  protected storeTiles(
    parts: Parts,
    blocked: readonly LoopDimension[],
    counter: Expr,
    memory: MemoryTile,
  ): readonly Statement[] {
    const store: Statement = { kind: "store", register: { file: this.fileName(this.target), index: counter }, memory };
    return this.unrolled(blocked, parts, [store]);
  }

  /** Whether the epilogue has a condition. */
  protected get leavesOut(): boolean {
    return this.computation.epilogue?.equation.where !== undefined;
  }

  /** Spills tiles side by side into a scratch block, then stores them with scalar loops. */
  private storeSpilled(parts: Parts, blocked: readonly LoopDimension[], counter: Expr): readonly Statement[] {
    const size = tileElements(this.target);
    const buffer = this.names.fresh(`${this.target.name}_results`);
    const { accumulators } = registersOf(this.mapping, this.schedule);
    if (!this.operands.scratch.some((s) => s.name === buffer)) {
      this.operands.scratch.push({
        name: buffer,
        dtype: this.target.dtype,
        elements: accumulators * size,
        scope: "local",
      });
    }
    const spilled = { buffer, base: times(counter, size), stride: tileRowElements(this.target) };
    const spill = this.storeTiles(parts, blocked, counter, spilled);
    const spatial = keptIn(this.dimensions);
    const results: ResultBlock = {
      computation: this.computation,
      condition: this.conditions.stored,
      target: this.target,
      buffer,
      tile: counter,
      dimensions: spatial.map((d) => ({
        dimension: d,
        first: times(parts.get(d.name)?.outer ?? 0, blockOf(this.schedule, d)),
        count: countOf(parts, d),
        step: this.blockName(d),
        partial: parts.get(d.name)?.partial ?? false,
      })),
      innerName: (name) => this.names.fresh(`${name}_inner`),
    };
    const stored = storeElements(results);
    if (!this.leavesOut) return [...spill, ...stored];
    const whole = storeElements({ ...results, condition: undefined, isWhole: true });
    return [...spill, ...when(this.conditions.storesAll(this.stretchIn(parts)), whole, stored)];
  }
}

/** A zero register that is stored to the tiles of empty blocks during the steps of a summed loop. */
interface Zeros {
  readonly register: RegisterAt;
  readonly clear: Statement;
  readonly loop: LoopDimension;
  /** Tiles of a block along each unrolled dimension, and in total. */
  readonly counts: readonly Dimension[];
  readonly tiles: number;
}

export abstract class ScheduledBlock extends ScheduledStores {
  /** Computed on first use. */
  private kept: Companions | undefined;
  /** Name of the register file of zeros, if there is one. */
  protected zeros: string | undefined;
  /** Inputs beyond two factors, which each issue loads. */
  protected further: readonly Placed[] = [];

  /**
   * One register block: clear accumulators, run the summed loops, store results. In a pass of several, partial sums are
   * loaded first or kept for the next pass.
   */
  protected block(
    parts: Parts,
    tiles: Tiles,
    summed: readonly NestedLoop[],
    held: Placed | undefined,
    streaming: Placed,
    partial: Placed | undefined,
  ): readonly Statement[] {
    const blocked = this.blocked(parts);
    const counter = this.accumulatorIndex(blocked);
    const accumulator = { file: this.fileName(this.target), index: counter };
    const move = (kind: "load" | "store"): readonly Statement[] => {
      if (!partial) throw new Error("internal: there is no place for partial sums");
      const memory = { buffer: partial.buffer, base: partial.base(this.positionIn(parts)), stride: partial.stride };
      return this.unrolled(blocked, parts, [{ kind, register: accumulator, memory }]);
    };
    const clear = this.unrolled(blocked, parts, [{ kind: "clear", register: accumulator }]);
    const begin = when(tiles.first, clear, tiles.first === true ? [] : move("load"));
    const companions = partial ? [] : this.companions(parts);
    const zeros = companions.length > 0 ? this.zerosWithin(summed, parts, blocked) : undefined;
    const step = (all: Parts): readonly Statement[] => [
      ...(zeros ? companions.flatMap(({ to }) => this.emptiedIn(all, to, zeros)) : []),
      ...this.step(all, blocked, held, streaming, accumulator),
    ];
    const sums = this.apartFromEdges(
      parts,
      (of) => this.nest(summed, of, tiles, step),
      (of) => this.edges(summed, of, tiles, step),
    );
    const fetched = shareFetched(sums, this.operands.regions, this.dimensions, (d) => this.blocksIn(d), parts);
    const kept = tiles.last === true ? [] : move("store");
    const stored = tiles.last === false ? kept : when(tiles.last, this.storeBlock(parts, blocked, counter), kept);
    const all = tiles.last === true ? fetchingStored(fetched, stored, this.computation) : fetched;
    const { conditions } = this;
    const takesPart = conditions.takesPart(this.stretchIn(parts));
    if (this.leavesOut) {
      const worked = conditions.keepsOut ? when(takesPart, all) : all;
      return when(conditions.storesAny(this.stretchIn(parts)), [...begin, ...worked, ...stored]);
    }
    if (companions.length === 0) return [...begin, ...when(takesPart, all), ...stored];
    const idle = (of: Parts, work: readonly Statement[]): readonly Statement[] =>
      when(not(conditions.takesPart(this.stretchIn(of))), work);
    const emptied = (of: Parts): readonly Statement[] => [
      ...clear,
      ...(this.storeStraight(of, blocked, counter) ?? []),
    ];
    const emptiedAfter = companions.flatMap(({ to }) => idle(to, emptied(to)));
    const byItself = companions.reduce<readonly Statement[]>((body, { from }) => idle(from, body), emptied(parts));
    return when(
      takesPart,
      [...(zeros ? [zeros.clear] : []), ...begin, ...all, ...stored, ...(zeros ? [] : emptiedAfter)],
      byItself,
    );
  }

  /**
   * The empty blocks that are stored along with a block (`to`), and the blocks that would store this one if it were
   * empty (`from`). Empty if the block is partial or its tiles cannot be stored directly.
   */
  private companions(parts: Parts): readonly { readonly to: Parts; readonly from: Parts }[] {
    const { conditions } = this;
    const tied = keptIn(this.dimensions).filter((d) => conditions.ties(d));
    const isWhole = (d: LoopDimension): boolean => {
      const part = parts.get(d.name);
      return part?.partial === false && !part.edge && part.count === blockOf(this.schedule, d);
    };
    if (conditions.stored === undefined || !tied.every(isWhole)) return [];
    if ([...this.borders.values()].some((borders) => borders.length > 0)) return [];
    if (this.storeStraight(parts, [], number(0)) === undefined) return [];
    const counts = tied.map((d) => Math.floor(d.wholeSteps / blockOf(this.schedule, d)));
    const moved = (outer: (d: LoopDimension, at: Expr) => Expr): Parts => {
      const others = new Map(parts);
      for (const d of tied)
        others.set(d.name, {
          outer: outer(d, parts.get(d.name)?.outer ?? number(0)),
          count: blockOf(this.schedule, d),
          partial: false,
        });
      return others;
    };
    this.kept ??= companionsOf(counts, (place) => {
      const at = moved((d) => number(place[tied.indexOf(d)] ?? 0));
      return conditions.takesPart(this.stretchIn(at)) !== false;
    });
    const { kept } = this;
    const blocks = (d: LoopDimension): number => counts[tied.indexOf(d)] ?? 1;
    if (kept.kind === "opposite") {
      const opposite = moved((d, at) => minus(blocks(d) - 1, at));
      return [{ to: opposite, from: opposite }];
    }
    const along = tied[kept.dimension];
    const shifted = (by: number): Parts => moved((d, at) => (d === along ? remainder(plus(at, by), blocks(d)) : at));
    return upTo(kept.times).map((t) => {
      const by = (t + 1) * kept.distance;
      return { to: shifted(by), from: shifted((along ? blocks(along) : 1) - by) };
    });
  }

  /** A zero register, if one can be spared and there is a summed loop in which to store it. */
  private zerosWithin(
    summed: readonly NestedLoop[],
    parts: Parts,
    blocked: readonly LoopDimension[],
  ): Zeros | undefined {
    const loops = summed.filter((l) => l.tile !== undefined || this.blocksIn(l.dimension) > 1);
    const [only] = loops;
    const { accumulators } = registersOf(this.mapping, this.schedule);
    const { held, streaming } = registersTakenBy(this.mapping, this.schedule);
    const available = registerClass(this.target.file)?.count ?? 0;
    const needed = accumulators + held + streaming + 1;
    if (only === undefined || loops.length > 1 || only.tile !== undefined || needed > available) return undefined;
    // A loop that ends at a condition may skip any of its steps.
    if (this.conditions.ties(only.dimension)) return undefined;
    const counts = blocked.map((d) => ({ name: this.blockName(d), extent: countOf(parts, d) }));
    this.zeros = this.names.fresh(`${this.target.name}_zeros`);
    const register = { file: this.zeros, index: number(0) };
    const tiles = volumeOf(counts);
    return { register, clear: { kind: "clear", register }, loop: only.dimension, counts, tiles };
  }

  private blocksIn(d: LoopDimension): number {
    return Math.ceil(d.steps / blockOf(this.schedule, d));
  }

  /** Stores the tiles of an empty block that belong to one step of the summed loop. */
  private emptiedIn(at: Parts, of: Parts, zeros: Zeros): readonly Statement[] {
    const memory = this.straight(of);
    const step = at.get(zeros.loop.name)?.outer;
    if (memory === undefined || step === undefined) throw new Error("internal: zeros have no place");
    const steps = this.blocksIn(zeros.loop);
    const each = Math.ceil(zeros.tiles / steps);
    const stores = upTo(each).flatMap((n): readonly Statement[] => {
      const tile = plus(times(step, each), n);
      const within = new Map(splitRowMajor(tile, zeros.counts).map(([{ name }, digit]) => [name, digit]));
      const store = {
        kind: "store",
        register: zeros.register,
        memory: { ...memory, base: substitute(memory.base, within, "index") },
      } as const;
      if (each * steps === zeros.tiles) return [store];
      if (step.kind === "number") return step.value * each + n < zeros.tiles ? [store] : [];
      return [{ kind: "when", condition: compare("<", tile, zeros.tiles), body: [store], otherwise: [] }];
    });
    return when(not(this.conditions.takesPart(this.stretchIn(of))), stores);
  }

  /** One step of the summed loops. It is generated twice for blocks in which a condition cuts an input's tiles. */
  private step(
    parts: Parts,
    blocked: readonly LoopDimension[],
    held: Placed | undefined,
    streaming: Placed,
    accumulator: { file: string; index: Expr },
  ): readonly Statement[] {
    const carrier = [held, streaming].find((p) => p?.edges !== undefined);
    if (carrier?.edges === undefined) return this.core(parts, blocked, held, streaming, accumulator);
    const { edges, ...plain } = carrier;
    const from = (p: Placed): readonly Statement[] =>
      this.step(parts, blocked, carrier === held ? p : held, carrier === streaming ? p : streaming, accumulator);
    return when(this.conditions.isInside(carrier.operand.name, this.stretchIn(parts)), from(plain), from(edges));
  }

  /**
   * One unrolled step of the summed loops: load the held tiles, then load each streaming tile and issue its products.
   */
  private core(
    parts: Parts,
    blocked: readonly LoopDimension[],
    held: Placed | undefined,
    streaming: Placed,
    accumulator: { file: string; index: Expr },
  ): readonly Statement[] {
    const heldDimensions = held ? blocked.filter((d) => dependsOn(this.mapping, held.operand.name, d)) : [];
    const streamed = blocked.filter((d) => dependsOn(this.mapping, streaming.operand.name, d));
    const others = blocked.filter((d) => !streamed.includes(d));
    const heldIndex = this.accumulatorIndex(heldDimensions);
    const issue: Statement = {
      kind: "register-issue",
      intrinsic: this.mapping.intrinsic,
      registers: {
        [this.target.name]: accumulator,
        ...(held ? { [held.operand.name]: { file: this.fileName(held.operand), index: heldIndex } } : {}),
        ...Object.fromEntries(
          [streaming, ...this.further].map(({ operand }) => [
            operand.name,
            { file: this.fileName(operand), index: number(0) },
          ]),
        ),
      },
    };
    const load = (p: Placed, index: Expr): Statement => ({
      kind: "load",
      register: { file: this.fileName(p.operand), index },
      memory: { buffer: p.buffer, base: p.base(this.positionIn(parts)), stride: p.stride },
      ...(p.made && { made: p.made(this.positionIn(parts)) }),
    });
    const issued = [...this.further.map((p) => load(p, number(0))), issue];
    const unrolledSummed = summedIn(this.dimensions).filter((d) => countOf(parts, d) > 1);
    if (![...parts.values()].some((part) => part.edge)) {
      const step = [
        ...(held ? this.unrolled(heldDimensions, parts, [load(held, heldIndex)]) : []),
        ...this.unrolled(streamed, parts, [load(streaming, number(0)), ...this.unrolled(others, parts, issued)]),
      ];
      return this.unrolled(unrolledSummed, parts, step);
    }
    // In an edge block every step is separate, and steps that read outside are omitted.
    const steps = (dimensions: readonly LoopDimension[], known: ReadonlyMap<string, number>): Known[] =>
      dimensions.reduce<Known[]>(
        (all, d) => all.flatMap((one) => upTo(countOf(parts, d)).map((i) => new Map(one).set(this.blockName(d), i))),
        [known],
      );
    const none: Known = new Map();
    const isInside = (known: Known): boolean => !this.isOutside(parts, known);
    const streams = steps(streamed, none).flatMap((known) => {
      const issues = steps(others, known).filter(isInside);
      return issues.length === 0
        ? []
        : [load(streaming, number(0)), ...issues.flatMap((k) => issued.map((s) => at(s, k)))].map((s) => at(s, known));
    });
    if (streams.length === 0) return [];
    const loaded = held
      ? steps(heldDimensions, none)
          .filter((known) =>
            steps(
              blocked.filter((d) => !heldDimensions.includes(d)),
              known,
            ).some(isInside),
          )
          .map((known) => at(load(held, heldIndex), known))
      : [];
    return this.unrolled(unrolledSummed, parts, [...loaded, ...streams]);
  }
}

/** A load or an issue with known loop counters substituted. */
function at(s: Statement, known: Known): Statement {
  return [...known].reduce((all, [name, value]) => substituteAxis(all, name, number(value)), s);
}
