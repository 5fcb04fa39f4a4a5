/**
 * @file A search space whose schedules are few enough to be listed, with their predicted times.
 *
 *     const space = new ListedSpace(WINDOW.decisions, schedules, (schedule) => laneSeconds(...));
 */

import { canonicalJson } from "../abstraction/candidate.ts";
import { pick, type Random } from "../abstraction/random.ts";
import type { Decisions } from "../mapper/schedule/schedules.ts";
import type { SearchSpace } from "./space.ts";

export class ListedSpace<S extends object> implements SearchSpace<S> {
  readonly size: number;
  private readonly schedules: readonly S[];
  private readonly names: readonly (keyof S)[];
  private readonly keys: ReadonlySet<string>;
  private readonly estimate: (s: S) => number;
  private readonly known = new Map<string, number>();
  readonly codeSize: (s: S) => number;

  /** @param written instructions written for a schedule; without it, all are taken to be as long */
  constructor(
    decisions: Decisions<S, never>,
    schedules: readonly S[],
    estimate: (s: S) => number,
    written: (s: S) => number = () => 0,
  ) {
    this.codeSize = written;
    this.schedules = schedules;
    this.size = schedules.length;
    this.names = Object.keys(decisions) as (keyof S)[]; // one decision for each key
    this.keys = new Set(schedules.map(canonicalJson));
    this.estimate = estimate;
  }

  key(schedule: S): string {
    return canonicalJson(schedule);
  }

  expectedSeconds(schedule: S): number {
    const key = this.key(schedule);
    const seconds = this.known.get(key) ?? this.estimate(schedule);
    this.known.set(key, seconds);
    return seconds;
  }

  random(random: Random): S {
    return pick(random, this.schedules);
  }

  /** Takes one decision from another schedule of the space; returns the schedule itself when the result does not fit. */
  mutate(schedule: S, random: Random): S {
    const other = this.random(random);
    const name = pick(random, this.names);
    const changed = { ...schedule, [name]: other[name] };
    return this.keys.has(this.key(changed)) ? changed : schedule;
  }

  crossover(a: S, b: S, random: Random): S {
    const mixed = {
      ...a,
      ...Object.fromEntries(this.names.filter(() => random() < 0.5).map((name) => [name, b[name]])),
    };
    return this.keys.has(this.key(mixed)) ? mixed : random() < 0.5 ? a : b;
  }

  *all(): Generator<S> {
    yield* this.schedules;
  }
}
