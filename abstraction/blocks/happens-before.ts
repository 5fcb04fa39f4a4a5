/**
 * @file The happens-before order of the warps of a block, by vector clocks.
 *
 *     const order = new HappensBefore(2);
 *     const write = order.now(0);                  lane 5 of warp 0 writes
 *     order.hasEnded(write, 5, 1, 7)               false: lane 7 of warp 1 may run at the same time
 *     order.barrier([0, 1]);
 *     order.hasEnded(write, 5, 1, 7)               true
 *
 * An agent runs statements in order; its time is cut into epochs, which end where it publishes what it did. Every agent knows how many
 * epochs of each other have ended (vector clocks: Fidge 1988, Mattern 1989; one epoch an access is enough: FastTrack, Flanagan and
 * Freund 2009). The lanes of a warp share its clock. Among themselves they are ordered once the warp knows its own epoch to have ended.
 *
 * What an agent sends off and does not wait for is a flight: asynchronous copies, or issues of an instruction, each in a queue of its own.
 * It ends in the epoch in which its agent awaits it; before that it has not ended for anyone, its own thread included.
 *
 * An instruction that reads memory by itself sees what an agent wrote once the agent has published it behind the write, and knows of that.
 *
 * A barrier is a clock that its members release into and then acquire from. One-sided barriers are the same two steps by different
 * agents, a thread on its own is an agent with one lane, and an engine that copies by itself is an agent, too.
 */

/** In place of a lane: every lane of the warp, or some that nobody can name. It is never the same thread as any other access. */
export const ALL_LANES = -1;

/** Epochs of every agent that have ended for whoever acquires it. */
export type Clock = Int32Array;

/** What an agent can send off. Flights of a queue end in their order. */
export const QUEUES = ["copies", "issues"] as const;
export type Queue = (typeof QUEUES)[number];

/** What one agent sent off together. */
export interface Flight {
  readonly queue: Queue;
  /** Whether a wait can await it. */
  committed: boolean;
  /** The epoch of its agent in which it was awaited, and the event before which; infinite until then. */
  endedIn: number;
  endedBefore: number;
}

/** When something was done, and by whom. */
export interface Moment {
  readonly agent: number;
  readonly epoch: number;
  /** It was sent off then, and ends with its flight. */
  readonly flight?: Flight;
}

export class HappensBefore {
  readonly agents: number;
  private readonly known: readonly Clock[];
  private readonly epochs: Int32Array;
  private readonly open: Readonly<Record<Queue, Flight[]>>;
  /** Committed and not awaited, oldest first. */
  private readonly flying: Readonly<Record<Queue, readonly Flight[][]>>;
  /** Events by which an agent published all that it had done before, and their epochs; oldest first. */
  private readonly publications: readonly { readonly event: number; readonly epoch: number }[][];

  constructor(agents: number) {
    this.agents = agents;
    this.known = Array.from({ length: agents }, () => new Int32Array(agents));
    this.epochs = new Int32Array(agents);
    const open = (queue: Queue): Flight[] => Array.from({ length: agents }, () => newFlight(queue));
    const none = (): Flight[][] => Array.from({ length: agents }, () => []);
    this.open = { copies: open("copies"), issues: open("issues") };
    this.flying = { copies: none(), issues: none() };
    this.publications = Array.from({ length: agents }, () => []);
  }

  /** The moment of what an agent does itself. */
  now(agent: number): Moment {
    return { agent, epoch: this.epochs[agent] ?? 0 };
  }

  /** The moment of what an agent sends off. */
  sentOff(agent: number, queue: Queue): Moment & { readonly flight: Flight } {
    const flight = this.open[queue][agent];
    if (!flight) throw new Error(`internal: no agent ${agent}`);
    return { ...this.now(agent), flight };
  }

  /** What the agent sent off since its last commit is one flight. */
  commit(agent: number, queue: Queue): void {
    const { flight } = this.sentOff(agent, queue);
    flight.committed = true;
    this.flying[queue][agent]?.push(flight);
    this.open[queue][agent] = newFlight(queue);
  }

  /**
   * The agent awaits all but its `pending` newest flights.
   * @param event the next one
   * @returns those that end by it, oldest first
   */
  awaitFlights(agent: number, queue: Queue, pending: number, event: number): readonly Flight[] {
    const flying = this.flying[queue][agent] ?? [];
    const ended = flying.splice(0, Math.max(0, flying.length - pending));
    for (const flight of ended) {
      flight.endedIn = this.epochs[agent] ?? 0;
      flight.endedBefore = event;
    }
    return ended;
  }

  /** What the agent has done before an event can be seen by instructions that read by themselves, for whoever knows of the event. */
  publish(agent: number, event: number): void {
    this.publications[agent]?.push({ event, epoch: this.epochs[agent] ?? 0 });
  }

  /** Whether an agent knows that what was done in an event has been published. */
  isPublished(moment: Moment, event: number, agent: number): boolean {
    const end = moment.flight ? moment.flight.endedBefore : event + 1;
    const all = this.publications[moment.agent] ?? [];
    // The first one behind it is the one that is known first.
    let [low, high] = [0, all.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((all[middle]?.event ?? 0) >= end) high = middle;
      else low = middle + 1;
    }
    const found = all[low];
    return found !== undefined && found.epoch < (this.known[agent]?.[moment.agent] ?? 0);
  }

  newClock(): Clock {
    return new Int32Array(this.agents);
  }

  /** The agent's epoch ends, and whoever acquires the clock knows it, with all that the agent knows. */
  release(agent: number, into: Clock): void {
    const epoch = (this.epochs[agent] ?? 0) + 1;
    this.epochs[agent] = epoch;
    join(into, this.known[agent]);
    into[agent] = Math.max(into[agent] ?? 0, epoch);
  }

  acquire(agent: number, from: Clock): void {
    join(this.known[agent], from);
  }

  /** All members have ended what they did before any goes on; of one member alone, its lanes. */
  barrier(members: readonly number[]): void {
    const clock = this.newClock();
    for (const agent of members) this.release(agent, clock);
    for (const agent of members) this.acquire(agent, clock);
  }

  /** Whether what `lane` did at a moment has ended for lane `here` of an agent, which goes on now. */
  hasEnded(moment: Moment, lane: number, agent: number, here: number): boolean {
    const end = moment.flight ? moment.flight.endedIn : moment.epoch;
    if (moment.agent === agent && lane === here && lane !== ALL_LANES) return end !== Number.POSITIVE_INFINITY;
    return end < (this.known[agent]?.[moment.agent] ?? 0);
  }
}

function newFlight(queue: Queue): Flight {
  return {
    queue,
    committed: false,
    endedIn: Number.POSITIVE_INFINITY,
    endedBefore: Number.POSITIVE_INFINITY,
  };
}

function join(clock: Clock | undefined, other: Clock | undefined): void {
  if (!clock || !other) throw new Error("internal: a clock of no agent");
  for (let agent = 0; agent < clock.length; agent++) clock[agent] = Math.max(clock[agent] ?? 0, other[agent] ?? 0);
}
