/**
 * @file Errors of a nest, such as a race, with the statements that cause them.
 *
 *     a_ring[stage 0, m 0, k 0] is read before what writes it has ended
 *       copy 32 x 16 by 8, async, by block          a_ring[0,m,k] = x[32*m_tile+m,k]
 *         writes it: block 0, warp 0, lane 0 (m_tile 0, warp_m 0)
 *       a{0} <- a_ring[k_tile%3,16*warp_m+x_m,x_k] over x_m, x_k by ldmatrix
 *         reads it: block 0, warp 1, all lanes (m_tile 0, warp_m 1, k_tile 0)
 *       missing: a wait for the copy, and then a barrier of the block
 */

import type { Dimension } from "../affine.ts";
import type { Environment } from "../evaluate.ts";
import type { Statement, TeamMode } from "../loop-nest.ts";
import { printHead } from "../print-nest.ts";
import { ALL_LANES, type Moment, type Queue } from "./happens-before.ts";

/**
 * `race`: two unordered accesses to one element. `unwritten`: a read of an element that was never written. `deadlock`: a barrier that not all threads
 * reach. `malformed`: a statement that no hardware can run as written.
 */
export type FaultKind = "race" | "unwritten" | "deadlock" | "malformed";

/** A nest that a GPU might run wrongly, even if the interpreter's values were right. */
export class NestFault extends Error {
  readonly kind: FaultKind;

  constructor(kind: FaultKind, lines: readonly string[]) {
    super(lines.join("\n  "));
    this.name = "NestFault";
    this.kind = kind;
  }
}

/** A statement and the loops around it, outermost first. */
export interface Site {
  readonly statement: Statement;
  /** Kind of the nest's agents, and their number per block; agents after those are single threads. */
  readonly team: TeamMode;
  readonly teams: number;
  /** Agents of one block; a cluster has the agents of all its blocks. */
  readonly ofBlock: number;
  readonly loops: readonly { readonly name: string; readonly slot: number }[];
}

/** One execution of a statement by a warp. */
export interface Event extends Moment {
  readonly site: Site;
  readonly block: number;
  /** Loop counters at that moment. */
  readonly counters: Environment;
}

/** An access of a thread to an element. */
export interface Deed {
  readonly event: Event;
  readonly lane: number;
  readonly verb: "reads" | "writes";
}

/** `warp 1`, or `thread 0` for a single thread. */
export const agentName = ({ team, teams }: Pick<Site, "team" | "teams">, inBlock: number): string =>
  inBlock < teams ? `${team} ${inBlock}` : `thread ${inBlock - teams}`;

/** `block 0, warp 1, lane 7 (m_tile 0, k_tile 2)` */
export function describeThread({ event, lane }: Pick<Deed, "event" | "lane">): string {
  const { site, counters } = event;
  const at = site.loops.map(({ name, slot }) => `${name} ${counters[slot]}`).join(", ");
  const who = lane === ALL_LANES ? "all lanes" : `lane ${lane}`;
  const agent =
    site.statement.kind === "send" && lane === ALL_LANES ? "the engine" : agentName(site, event.agent % site.ofBlock);
  if (isOwner(event)) return "a block of the cluster, which begins or ends";
  return `block ${event.block}, ${agent}, ${who}${at === "" ? "" : ` (${at})`}`;
}

/** Whether it is the beginning or end of a block rather than a statement of a thread. */
const isOwner = ({ site }: Event): boolean => site.statement.kind === "loop";

export function describeDeed(deed: Deed): string[] {
  return [printHead(deed.event.site.statement), `  ${deed.verb} it: ${describeThread(deed)}`];
}

/** `a_ring[stage 0, m 3, k 8]`: the logical element at a place in memory. */
export function describeElement(
  { name, dims, places }: { name: string; dims: readonly Dimension[]; places?: Int32Array | undefined },
  at: number,
): string {
  const element = places ? places.indexOf(at) : at;
  if (element < 0) return `${name} at place ${at}, where no element lies`;
  let rest = element;
  const index = dims.toReversed().map(({ name: dim, extent }) => {
    const digit = rest % extent;
    rest = Math.floor(rest / extent);
    return dims.length === 1 ? String(digit) : `${dim} ${digit}`;
  });
  return `${name}[${index.reverse().join(", ")}]`;
}

interface Contested {
  /** The name from {@link describeElement}. */
  readonly name: string;
  /** Whether it has not been written in this phase. */
  readonly fresh: boolean;
  /** It belongs to a ring of stages. */
  readonly ring: boolean;
  /** Whether the write has ended but was not published to instructions that read memory directly. */
  readonly unpublished: boolean;
}

/** The fault for two unordered accesses to one element; `second` is the current one. */
export function raceOf(first: Deed, second: Deed, { name, fresh, ring, unpublished }: Contested): NestFault {
  const twice = first.verb === "writes" && second.verb === "writes";
  const how = unpublished
    ? "is read by an instruction that does not see what was written"
    : second.verb === "reads"
      ? "is read before what writes it has ended"
      : twice
        ? "is written twice without order"
        : fresh
          ? "may be read before it is written"
          : "is overwritten while another thread may still read it";
  const instead =
    ring && first.verb === "reads" && !fresh
      ? ", or a ring of more stages"
      : twice && first.event.site === second.event.site
        ? ", or threads that keep apart"
        : "";
  return new NestFault("race", [
    `${name} ${how}`,
    ...describeDeed(first),
    ...describeDeed(second),
    `missing: ${unpublished ? "a fence of memory by the thread that wrote it, behind the write and ahead of the barrier" : missingBetween(first, second)}${instead}`,
  ]);
}

/** What a flight of each queue is called. */
const FLIGHTS: Readonly<Record<Queue, string>> = { copies: "copy", issues: "issue", stores: "store" };

function missingBetween({ event: first, lane }: Deed, { event: second, lane: here }: Deed): string {
  if (first === second) return "an order of its lanes: nothing orders the lanes of one statement";
  if (first.block !== second.block) return "a barrier of the whole call between the two: blocks run in any order";
  if (isOwner(first)) return "a barrier of the cluster, of beginnings: the block may not have begun";
  if (isOwner(second)) return "a barrier of the cluster: the block may have ended";
  const blockOf = ({ agent, site }: Event): number => Math.floor(agent / site.ofBlock);
  const isSent = ({ site }: Event): boolean => site.statement.kind === "send";
  const byEngine = isSent(first) || isSent(second);
  if (isSent(first) && !isSent(second)) return "a wait for the stage";
  if (!byEngine && blockOf(first) !== blockOf(second)) return "a barrier of the cluster between the two";
  const isDealt = ({ site }: Event): boolean => site.statement.kind === "copy" && site.statement.group === "block";
  const ofTeam = first.agent === second.agent && !isDealt(first) && !isDealt(second);
  const meeting = ofTeam ? `a barrier of the ${first.site.team}` : "a barrier of the block";
  const hasSender = byEngine && first.site.teams < first.site.ofBlock;
  const barrier = hasSender ? `an arrival of every ${first.site.team} that the sender awaits` : meeting;
  const { flight } = first;
  if (flight && flight.endedIn === Number.POSITIVE_INFINITY) {
    const what = FLIGHTS[flight.queue];
    const wait = flight.committed ? `a wait for the ${what}` : `a commit of the ${what} and a wait for it`;
    const sameThread = first.agent === second.agent && lane === here && lane !== ALL_LANES;
    return sameThread ? wait : `${wait}, and then ${barrier}`;
  }
  if (flight) return `${barrier} behind the wait for the ${FLIGHTS[flight.queue]}`;
  return `${barrier} between the two`;
}
