/**
 * @file The happens-before order of the warps of a block, by vector clocks.
 *
 *     const order = new HappensBefore(2);
 *     const write = order.now(0);                  lane 5 of warp 0 writes
 *     order.hasEnded(write, 5, 1, 7)               false: lane 7 of warp 1 may run at the same time
 *     order.barrier([0, 1]);
 *     order.hasEnded(write, 5, 1, 7)               true
 *
 * An agent runs statements in order. Its time is divided into epochs, each of which ends when the agent releases a clock. Every agent knows how many
 * epochs of each other agent have ended (vector clocks: Fidge 1988, Mattern 1989; one epoch per access is enough: FastTrack, Flanagan and Freund
 * 2009). The lanes of a warp share its clock. They are ordered among themselves once the warp knows that its own epoch has ended.
 *
 * A flight is asynchronous work that an agent starts: copies, or issues of an instruction, each in a queue of its own. It ends in the epoch in which
 * its agent awaits it. Before that it has not ended for anyone, including the thread that started it.
 *
 * An instruction that reads memory directly sees an agent's write only after the agent has published it, and only if it knows of the publication.
 *
 * A barrier is a clock that its members release into and then acquire from. In a one-sided barrier different agents do the two steps. A single thread
 * is an agent with one lane, and a copy engine is an agent too.
 */

import { internal } from "../error.ts";

/** In place of a lane: every lane of the warp, or an unspecified one. It never counts as the same thread as another access. */
export const ALL_LANES = -1;

/** For every agent, the number of epochs that have ended for whoever acquires the clock. */
export type Clock = Int32Array;

/** Queues of asynchronous work of an agent. Flights of one queue end in order. */
const QUEUES = ["copies", "issues", "stores"] as const;
export type Queue = (typeof QUEUES)[number];

/** Asynchronous work that one agent started together. */
export interface Flight {
  readonly queue: Queue;
  /** Whether it was committed, so that a wait can await it. */
  committed: boolean;
  /** The epoch of its agent in which it was awaited, and the event before which; infinite until then. */
  endedIn: number;
  endedBefore: number;
}

/** The agent and the time of an access. */
export interface Moment {
  readonly agent: number;
  readonly epoch: number;
  /** The flight of an asynchronous access, with which it ends. */
  readonly flight?: Flight;
}

export class HappensBefore {
  readonly agents: number;
  private readonly known: readonly Clock[];
  private readonly epochs: Int32Array;
  private readonly open: Readonly<Record<Queue, Flight[]>>;
  /** Flights that are committed but not awaited, oldest first. */
  private readonly flying: Readonly<Record<Queue, readonly Flight[][]>>;
  /** Events at which an agent published its earlier writes, and their epochs; oldest first. */
  private readonly publications: readonly { readonly event: number; readonly epoch: number }[][];

  constructor(agents: number) {
    this.agents = agents;
    this.known = Array.from({ length: agents }, () => new Int32Array(agents));
    this.epochs = new Int32Array(agents);
    const open = (queue: Queue): Flight[] => Array.from({ length: agents }, () => newFlight(queue));
    const none = (): Flight[][] => Array.from({ length: agents }, () => []);
    this.open = { copies: open("copies"), issues: open("issues"), stores: open("stores") };
    this.flying = { copies: none(), issues: none(), stores: none() };
    this.publications = Array.from({ length: agents }, () => []);
  }

  /** The moment of a synchronous access by an agent. */
  now(agent: number): Moment {
    return { agent, epoch: this.epochs[agent] ?? 0 };
  }

  /** The moment of an asynchronous access by an agent. */
  sentOff(agent: number, queue: Queue): Moment & { readonly flight: Flight } {
    return { ...this.now(agent), flight: this.open[queue][agent] ?? internal(`no agent ${agent}`) };
  }

  /** Makes everything that the agent started since its last commit one flight. */
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

  /** Whether an agent has started work that it has not awaited. */
  isFlying(agent: number, queue: Queue): boolean {
    return (this.flying[queue][agent]?.length ?? 0) > 0;
  }

  /** Publishes the agent's accesses before an event to instructions that read memory directly, for all who know of the event. */
  publish(agent: number, event: number): void {
    this.publications[agent]?.push({ event, epoch: this.epochs[agent] ?? 0 });
  }

  /** Whether an agent knows that the accesses of an event have been published. */
  isPublished(moment: Moment, event: number, agent: number): boolean {
    const end = moment.flight ? moment.flight.endedBefore : event + 1;
    const all = this.publications[moment.agent] ?? [];
    // The first publication after the event is the first to become known.
    let low = 0;
    let high = all.length;
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

  /** Ends the agent's epoch. Whoever acquires the clock then knows of it, and of everything the agent knows. */
  release(agent: number, into: Clock): void {
    const epoch = (this.epochs[agent] ?? 0) + 1;
    this.epochs[agent] = epoch;
    join(into, this.known[agent]);
    into[agent] = Math.max(into[agent] ?? 0, epoch);
  }

  acquire(agent: number, from: Clock): void {
    join(this.known[agent], from);
  }

  /** All members complete their earlier accesses before any continues; a single member synchronises its own lanes. */
  barrier(members: readonly number[]): void {
    const clock = this.newClock();
    for (const agent of members) this.release(agent, clock);
    for (const agent of members) this.acquire(agent, clock);
  }

  /** Whether an access of `lane` at a moment has ended for lane `here` of an agent that continues now. */
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
  if (!clock || !other) internal("a clock of no agent");
  for (let agent = 0; agent < clock.length; agent++) clock[agent] = Math.max(clock[agent] ?? 0, other[agent] ?? 0);
}
