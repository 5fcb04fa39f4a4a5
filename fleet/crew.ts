/**
 * @file The measuring workers of one environment, as one search trusts them: some trials are measured again by another worker, and one that
 * disagrees beyond the intervals is quarantined. So is one whose answers cannot be what was asked for.
 *
 *     node1   10.1 us   10.0 to 10.2        node2   10.0 us   9.9 to 10.1         they agree
 *     node1    4.0 us    3.9 to 4.1         node2   10.0 us   9.9 to 10.1         a third decides; without one, whoever claims more is not believed
 *
 * While all are trusted, jobs go to whoever is free. Once one is not, jobs are addressed to the others by name.
 */

import { randomInt } from "node:crypto";
import { remembered } from "../abstraction/collections.ts";
import { automapCommand, EnvironmentError } from "../abstraction/error.ts";
import type { Measurement } from "../abstraction/trial.ts";
import type { Environment } from "../db/index.ts";
import { type KnownWorker, workersOf } from "./adverts.ts";
import type { Fleet } from "./members.ts";
import type { FleetServer } from "./server.ts";

/** Intervals of two machines may lie apart by this factor: other programs, other boards and other cooling move medians so far. */
const APART = 1.25;

/** A worker whose trials others have confirmed so often is known. */
const KNOWN_AFTER = 5;
/** Of a worker that is not yet known, one trial of so many is measured again, as long as that is not rarer. */
const NEW_ONE_OF = 20;
/** So many answers to other questions than were asked may be old ones that somebody sends again. */
const MOST_STRANGE = 3;

/** Between two looks at who is there. */
const LOOK_MS = 15_000;
/** A search waits so long for a worker when there is none. */
const PATIENCE_MS = 120_000;

export class Crew {
  private readonly server: Pick<FleetServer, "board">;
  private readonly fleet: Fleet;
  private readonly environment: string;
  private readonly announce: (text: string) => void;
  private readonly quarantined = new Set<string>();
  private readonly checkOneOf: number;
  private readonly checks = new Map<string, Checks>();
  private known: readonly KnownWorker[];
  private compiling: readonly KnownWorker[];
  private readonly timer: NodeJS.Timeout;
  private readonly patienceMs: number;
  private readonly onAlone: () => void;
  private aloneFrom: number | undefined;
  private turn = 0;

  constructor(
    server: Pick<FleetServer, "board">,
    fleet: Fleet,
    { environment, workers, announce, checkOneOf, onAlone, patienceMs = PATIENCE_MS }: Crewed,
  ) {
    this.server = server;
    this.fleet = fleet;
    this.environment = environment;
    this.known = this.measuringAmong(workers);
    this.compiling = compilingAmong(workers);
    this.announce = announce;
    this.checkOneOf = checkOneOf;
    this.onAlone = onAlone;
    this.patienceMs = patienceMs;
    this.timer = setInterval(() => void this.look().catch(() => undefined), Math.min(LOOK_MS, patienceMs));
    this.timer.unref();
  }

  close(): void {
    clearInterval(this.timer);
  }

  /** Whether a worker compiles with these compilers. */
  compiles(compilers: string): boolean {
    return this.compiling.some(({ advert }) => advert.compilers === compilers);
  }

  /** Why no worker compiles with the compiler of those who measure. */
  whyUncompiled({ version }: Environment["compiler"]): string {
    const [first] = this.compiling;
    if (!first) return "no worker of the fleet compiles for others";
    const { name, advert } = first;
    const theirs = advert.environment.compiler.version;
    return theirs === version
      ? `worker ${name} compiles with other flags, or for another kind of processor`
      : `they have ${version}, and worker ${name} compiles with ${theirs}`;
  }

  isTrusted(name: string): boolean {
    return !this.quarantined.has(name);
  }

  /** Who gets the next job: whoever is free when undefined. @throws EnvironmentError when no worker is trusted any more */
  next(): KnownWorker | undefined {
    if (this.quarantined.size === 0) return undefined;
    const trusted = this.known.filter(({ name }) => this.isTrusted(name));
    const next = trusted[this.turn++ % Math.max(1, trusted.length)];
    if (next) return next;
    throw new EnvironmentError({
      what: `no worker of the fleet is trusted any more: ${[...this.quarantined].join(", ")}`,
      why: "their measurements disagree with those of others",
      remedy: "look at them, or measure with --on by others",
    });
  }

  /** Whether a worker has said lately that it is there. */
  isThere({ publicKey }: KnownWorker): boolean {
    return this.known.some((worker) => worker.publicKey === publicKey);
  }

  /** A trusted worker besides some, not always the same one; undefined when there is none. */
  async another(besides: readonly string[]): Promise<KnownWorker | undefined> {
    await this.look().catch(() => undefined);
    const others = this.known.filter(({ name }) => this.isTrusted(name) && !besides.includes(name));
    return others[this.turn++ % Math.max(1, others.length)];
  }

  /** How often others have measured again what a worker says. */
  checksOf(name: string): Checks {
    return remembered(this.checks, name, () => new Checks(this.checkOneOf));
  }

  /** Hears that a worker signed an answer to another question than was asked. */
  doubt(name: string, because: string): void {
    if (++this.checksOf(name).strange < MOST_STRANGE) this.announce(because);
    else this.quarantine(name, because);
  }

  /** Looks who is there, and tells when nobody is left who measures. */
  private async look(): Promise<void> {
    const workers = await workersOf(this.server, this.fleet);
    const known = this.measuringAmong(workers);
    const now = performance.now();
    if (known.length > 0) this.aloneFrom = undefined;
    else if (this.aloneFrom === undefined) {
      this.aloneFrom = now;
      this.announce("no worker of this environment is there any more: waiting for one");
    } else if (now - this.aloneFrom > this.patienceMs) this.onAlone();
    this.known = known;
    this.compiling = compilingAmong(workers);
  }

  private measuringAmong(workers: readonly KnownWorker[]): readonly KnownWorker[] {
    return workers.filter(({ advert }) => advert.measures && advert.environment.id === this.environment);
  }

  quarantine(name: string, because: string): void {
    if (!this.isTrusted(name)) return;
    this.quarantined.add(name);
    const listing = automapCommand("db", "query", "--worker", name);
    this.announce(`worker ${name} is quarantined: ${because}; ${listing} lists what it measured`);
  }
}

/** Which trials of one worker others measure again: its first one, and later one at random of so many. */
export class Checks {
  /** Answers of the worker to other questions than were asked. */
  strange = 0;
  private readonly oneOf: number;
  private confirmed = 0;
  private count = 0;
  private next = 1;

  constructor(oneOf: number) {
    this.oneOf = oneOf;
  }

  /** Counts a trial. @returns whether it is to be measured again */
  isDue(): boolean {
    const isDue = ++this.count === this.next;
    const many = this.confirmed < KNOWN_AFTER ? Math.min(NEW_ONE_OF, this.oneOf) : this.oneOf;
    if (this.count % many === 0) this.next = this.count + 1 + randomInt(many);
    return isDue;
  }

  confirm(): void {
    this.confirmed++;
  }
}

interface Crewed {
  /** The id of the environment. */
  readonly environment: string;
  /** All that are there. */
  readonly workers: readonly KnownWorker[];
  readonly announce: (text: string) => void;
  /** Of a worker that is known, one trial of so many is measured again. */
  readonly checkOneOf: number;
  /** Called when nobody has been there who measures for longer than patience lasts. */
  readonly onAlone: () => void;
  readonly patienceMs?: number | undefined;
}

/** Workers that compile for others. */
function compilingAmong(workers: readonly KnownWorker[]): readonly KnownWorker[] {
  return workers.filter(({ advert }) => advert.compiles > 0);
}

/** Whether two measurements of one kernel may both be true. */
export function agree(a: Measurement, b: Measurement): boolean {
  if (a.status !== "ok" || b.status !== "ok") return a.status === b.status;
  return a.interval[0] <= APART * b.interval[1] && b.interval[0] <= APART * a.interval[1];
}

/** Whether the first claims a better result than the second. */
export function claimsMore(a: Measurement, b: Measurement): boolean {
  if (a.status !== "ok") return false;
  return b.status !== "ok" || a.median < b.median;
}
