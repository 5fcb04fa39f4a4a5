/**
 * @file The measuring workers of one environment, as one search trusts them: some trials are measured again by another worker, and one that
 * disagrees beyond the intervals is quarantined.
 *
 *     node1   10.1 us   10.0 to 10.2        node2   10.0 us   9.9 to 10.1         they agree
 *     node1    4.0 us    3.9 to 4.1         node2   10.0 us   9.9 to 10.1         a third decides; without one, whoever claims more is not believed
 *
 * While all are trusted, jobs go to whoever is free. Once one is not, jobs are addressed to the others by name.
 */

import { EnvironmentError } from "../abstraction/error.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { type KnownWorker, workersOf } from "./adverts.ts";
import type { Fleet } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { measuringQueue, ownQueue } from "./worker.ts";

/** Intervals of two machines may lie apart by this factor: other programs, other boards and other cooling move medians so far. */
const APART = 1.25;

export class Crew {
  private readonly server: Pick<FleetServer, "board">;
  private readonly fleet: Fleet;
  private readonly environment: string;
  private readonly announce: (text: string) => void;
  private readonly quarantined = new Set<string>();
  private known: readonly KnownWorker[];
  private turn = 0;

  constructor(
    server: Pick<FleetServer, "board">,
    fleet: Fleet,
    { environment, known, announce }: Pick<Crewed, "environment" | "known" | "announce">,
  ) {
    this.server = server;
    this.fleet = fleet;
    this.environment = environment;
    this.known = known;
    this.announce = announce;
  }

  isTrusted(name: string): boolean {
    return !this.quarantined.has(name);
  }

  /** Where the next job goes. @throws EnvironmentError when no worker is trusted any more */
  queue(): string {
    if (this.quarantined.size === 0) return measuringQueue(this.environment);
    const trusted = this.known.filter(({ name }) => this.isTrusted(name));
    const next = trusted[this.turn++ % Math.max(1, trusted.length)];
    if (next) return ownQueue(next.publicKey);
    throw new EnvironmentError({
      what: `no worker of the fleet is trusted any more: ${[...this.quarantined].join(", ")}`,
      why: "their measurements disagree with those of others",
      remedy: "look at them, or measure with --on by others",
    });
  }

  /** A trusted worker besides some; undefined when there is none. */
  async another(besides: readonly string[]): Promise<KnownWorker | undefined> {
    const workers = await workersOf(this.server, this.fleet).catch(() => this.known);
    this.known = workers.filter(({ advert }) => advert.measures && advert.environment.id === this.environment);
    return this.known.find(({ name }) => this.isTrusted(name) && !besides.includes(name));
  }

  quarantine(name: string, because: string): void {
    if (!this.isTrusted(name)) return;
    this.quarantined.add(name);
    this.announce(
      `worker ${name} is quarantined: ${because}; automap db query --worker ${name} lists what it measured`,
    );
  }
}

export interface Crewed {
  /** The id of the environment. */
  readonly environment: string;
  /** Those that were there when the search began. */
  readonly known: readonly KnownWorker[];
  readonly announce: (text: string) => void;
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
