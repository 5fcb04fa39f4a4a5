/**
 * @file Assigns cores to processes. Searches in several processes share a machine. Only one of them measures or
 * compiles on a core at a time, and a process that finds no free core waits and says so.
 *
 *     const cores = shareCores({ onWait: say });
 *     await cores.measuring(2, (cpus) => runHarness({ cpus, ... }))       two cores of the fastest kind, used by nobody else
 *     await cores.working((cpus) => runChild(["taskset", ...]))           one core that nobody measures on
 *
 * The hardware threads of a core share its units, so a lock covers a core with all its processors. A search keeps using
 * the same cores, unless other programs ran there too.
 */

import { setMaxListeners } from "node:events";
import { setTimeout } from "node:timers/promises";
import pLimit from "p-limit";
import { namesOf, sumOf } from "../abstraction/collections.ts";
import { UsageError } from "../abstraction/error.ts";
import { DISTURBING_LOAD } from "../abstraction/noise.ts";
import { type Lock, LockError, tryLock, untilFree } from "./lock.ts";
import { type Core, coresHere, processorsOf } from "./processor.ts";
import { heard } from "./until.ts";

export interface Cores {
  /** The number of processors of all cores. */
  readonly processors: number;
  /**
   * Runs timed work while nobody else measures or compiles on its cores.
   * @param threads each gets its own processor, and its own core while there are enough
   * @throws Error if waiting was aborted
   */
  measuring<T>(threads: number, work: (cpus: readonly number[]) => Promise<Disturbed & T>): Promise<T>;
  /**
   * Runs other work on cores that nobody measures on. As many jobs of one core each share one as it has processors.
   * @param most the most cores, if that many are free; one by default
   * @throws Error if waiting was aborted
   */
  working<T>(work: (cpus: readonly number[]) => Promise<T>, most?: number): Promise<T>;
  /** Seconds that timed work has waited for other processes so far. */
  waited(): number;
}

/** A report from timed work about its cores. */
interface Disturbed {
  /** The share of their time that other programs took. */
  readonly load?: number | undefined;
}

interface SharingOptions {
  /** By default those of this machine. */
  readonly cores?: readonly Core[];
  /**
   * What the cores are called in messages: "core", or the name of a device, which is shared like a core without
   * processors.
   */
  readonly what?: string;
  /** Called with what is waited for, if it takes long. */
  readonly onWait?: (text: string) => void;
  /** Aborts all waiting. */
  readonly signal?: AbortSignal;
  /** Locks in different realms are independent; for tests. */
  readonly realm?: string;
}

/** Shorter waits are not reported. */
const SILENT_MS = 1000;
/** The least time between two reports of a wait. */
const AGAIN_MS = 20_000;
/** After releasing a core that others wait for, a process leaves it to them for this long. */
const POLITE_MS = 20;
/** Options for work on cores: the cores to use, or who is told about waits. */
export interface CoreOptions extends Pick<SharingOptions, "onWait"> {
  /** By default shared with every process on this machine. */
  readonly cores?: Cores | undefined;
}

/** @param signal aborts all waiting */
export function coresOf({ cores, onWait }: CoreOptions, signal?: AbortSignal): Cores {
  return cores ?? shareCores({ ...(onWait ? { onWait } : {}), ...(signal ? { signal } : {}) });
}

export function shareCores(options: SharingOptions = {}): Cores {
  return new Sharing(options);
}

type Work = "measures" | "compiles";

/** A core that works, and the number of its jobs. */
interface SharedCore {
  readonly held: ReadonlyMap<Core, Lock | undefined>;
  jobs: number;
}

const GATHERING = "gathering";
const OWN = `process ${process.pid}`;

class Sharing implements Cores {
  readonly processors: number;
  /** In order of preference. */
  private order: readonly Core[];
  private readonly options: SharingOptions;
  private readonly realm: string;
  private readonly politeUntil = new Map<Core, number>();
  private readonly shared = new Set<SharedCore>();
  private readonly oneAtATime = pLimit(1);
  private seconds = 0;
  private spokeAt = Number.NEGATIVE_INFINITY;
  private isUnlocked = false;

  constructor(options: SharingOptions) {
    this.options = options;
    this.realm = options.realm ?? "";
    this.order = options.cores ?? coresHere();
    this.processors = sumOf(this.order, (core) => core.cpus.length);
  }

  async measuring<T>(threads: number, work: (cpus: readonly number[]) => Promise<Disturbed & T>): Promise<T> {
    const fastest = this.order.filter((core) => core.isFastest);
    const eligible = threads <= fastest.length ? fastest : this.order;
    const held = await this.take(Math.min(threads, eligible.length), eligible, "measures");
    try {
      const result = await work(processorsOf([...held.keys()], threads));
      // A core that others disturb is chosen last next time.
      const keep = (result.load ?? 0) <= DISTURBING_LOAD;
      const others = this.order.filter((core) => !held.has(core));
      this.order = keep ? [...held.keys(), ...others] : [...others, ...held.keys()];
      return result;
    } finally {
      await this.letGo(held);
    }
  }

  async working<T>(work: (cpus: readonly number[]) => Promise<T>, most = 1): Promise<T> {
    if (most === 1) return this.onSharedCore(work);
    const held = await this.take(1, this.wished(), "compiles");
    try {
      await this.takeFree(most, this.wished(), "compiles", held);
      return await work([...held.keys()].flatMap((core) => core.cpus));
    } finally {
      await this.letGo(held);
    }
  }

  /** The core that was measured on last is left for the next measurement. */
  private wished(): readonly Core[] {
    return this.order.toReversed();
  }

  /** Does a job on a core, which is released after the last one. */
  private async onSharedCore<T>(work: (cpus: readonly number[]) => Promise<T>): Promise<T> {
    // One after another, so that a job sees the core that the one before it took.
    const one = await this.oneAtATime(async () => {
      const found = this.coreToShare() ?? { held: await this.take(1, this.wished(), "compiles"), jobs: 0 };
      this.shared.add(found);
      found.jobs++;
      return found;
    });
    try {
      return await work([...one.held.keys()].flatMap((core) => core.cpus));
    } finally {
      one.jobs--;
      if (one.jobs === 0) {
        this.shared.delete(one);
        await this.letGo(one.held);
      }
    }
  }

  /** A core that this process works on with fewer jobs than it has processors, unless another process waits for it. */
  private coreToShare(): SharedCore | undefined {
    return [...this.shared].find(({ held, jobs }) =>
      [...held].every(([core, lock]) => jobs < core.cpus.length && !lock?.isWanted()),
    );
  }

  waited(): number {
    return this.seconds;
  }

  /**
   * Locks `count` of these cores. Processes that need several cores gather them one process at a time, so that two
   * cannot wait for each other. A process that needs one core holds none while it waits.
   */
  private async take(count: number, eligible: readonly Core[], work: Work): Promise<Map<Core, Lock | undefined>> {
    const held = new Map<Core, Lock | undefined>();
    const begun = performance.now();
    let gathering: Lock | undefined;
    try {
      if (count > 1) gathering = await this.gather(work, begun);
      while (held.size < count) {
        await this.takeFree(count, eligible, work, held);
        const wished = namesOf(eligible.filter((core) => !held.has(core)));
        if (held.size < count) await this.untilOneIsFree(wished, work, begun);
      }
      return held;
    } catch (error) {
      await this.letGo(held);
      throw error;
    } finally {
      await gathering?.release();
    }
  }

  /** Locks the free ones among these cores until `count` are held. */
  private async takeFree(
    count: number,
    eligible: readonly Core[],
    work: Work,
    held: Map<Core, Lock | undefined>,
  ): Promise<void> {
    for (const core of eligible) {
      if (held.size >= count) return;
      if (held.has(core) || (this.politeUntil.get(core) ?? 0) > performance.now()) continue;
      const lock = await this.tryLock(core.name, `${work} on ${core.name}`);
      if (lock || this.isUnlocked) held.set(core, lock);
    }
  }

  private async gather(work: Work, begun: number): Promise<Lock | undefined> {
    for (;;) {
      const lock = await this.tryLock(GATHERING, "gathers several cores");
      if (lock || this.isUnlocked) return lock;
      await this.untilOneIsFree([GATHERING], work, begun);
    }
  }

  /** Without support for locks, work proceeds unlocked. */
  private async tryLock(name: string, doing: string): Promise<Lock | undefined> {
    if (this.isUnlocked) return undefined;
    try {
      return await tryLock(this.realm + name, `${OWN} ${doing}`);
    } catch (error) {
      if (!(error instanceof LockError)) throw error;
      this.isUnlocked = true;
      this.options.onWait?.(`${error.message}: other searches on this machine disturb this one`);
      return undefined;
    }
  }

  private async untilOneIsFree(names: readonly string[], work: Work, begun: number): Promise<void> {
    const { signal } = this.options;
    const since = performance.now();
    const enough = new AbortController();
    // Many waits may listen at once, one listener per core, so Node's leak warning is off.
    setMaxListeners(0, enough.signal, ...(signal ? [signal] : []));
    const release = heard(signal, () => enough.abort());
    // Waiting for this process's own compilers is not reported.
    const holders = new Set<string>();
    const onHolder = (who: string): void => void (who.startsWith(`${OWN} `) || holders.add(who));
    const speak = setInterval(() => this.speakOf([...holders], begun), SILENT_MS / 4);
    try {
      await Promise.race(names.map((name) => untilFree(this.realm + name, { signal: enough.signal, onHolder })));
      // Several waiters are woken together, and a lock being released is briefly neither held nor free.
      await setTimeout(2 + 8 * Math.random());
    } finally {
      if (work === "measures" && holders.size > 0) this.seconds += (performance.now() - since) / 1000;
      clearInterval(speak);
      enough.abort();
      release();
    }
    if (signal?.aborted) throw new Error("waiting for a core was stopped");
  }

  private speakOf(holders: readonly string[], begun: number): void {
    const now = performance.now();
    if (now - begun < SILENT_MS || now - this.spokeAt < AGAIN_MS || holders.length === 0) return;
    this.spokeAt = now;
    this.options.onWait?.(`waiting for a free ${this.options.what ?? "core"}: ${holders.toSorted().join(", ")}`);
  }

  private async letGo(held: ReadonlyMap<Core, Lock | undefined>): Promise<void> {
    for (const [core, lock] of held) {
      if (lock?.isWanted()) this.politeUntil.set(core, performance.now() + POLITE_MS);
      await lock?.release();
    }
  }
}

/** @throws UsageError if there are fewer processors than threads */
export function checkProcessors(threads: number, processors: number): void {
  if (!Number.isSafeInteger(threads) || threads < 1)
    throw new UsageError(`threads must be a positive integer, got ${threads}`);
  if (threads > processors)
    throw new UsageError(
      `threads ${threads}: this process may use ${processors} processors`,
      `ask for at most ${processors}`,
    );
}
