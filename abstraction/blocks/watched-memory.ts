/**
 * @file Memory that records who wrote and read each element, and reports accesses that nothing orders.
 *
 *     judge.startBlock(0, 4);                          four warps
 *     judge.begin(site, 0, counters); judge.lane = 3;
 *     ring.write(17);                                  lane 3 of warp 0
 *     judge.begin(other, 1, counters); judge.lane = 0;
 *     ring.read(17);                                   NestFault: no barrier stands between
 *
 * The verdict rests on the order of happening alone (happens-before.ts), never on the order in which the interpreter happens to run
 * warps: in whichever it runs them, one of two accesses comes second and finds that the first has not ended for it.
 */

import type { Dimension } from "../affine.ts";
import { hasName } from "../collections.ts";
import { internal } from "../error.ts";
import type { Environment, Watch } from "../evaluate.ts";
import { type Access, printAccess } from "../expression.ts";
import { type Deed, describeDeed, describeElement, type Event, NestFault, raceOf, type Site } from "./fault.ts";
import { ALL_LANES, HappensBefore, type Queue } from "./happens-before.ts";

/** The current block, warp, lane and statement, and the history of this phase of the call. */
export class Judge {
  /** Agents of a block: the largest number of its warps, and engines. */
  readonly warps: number;
  private readonly engines: number;
  private readonly blocks: number;
  private ownWarps = 0;
  order: HappensBefore;
  warp = 0;
  lane = 0;
  /** Number of the current event; events are numbered across all blocks and calls. */
  now = -1;
  /** Whether the current event is asynchronous. */
  sentOff = false;
  /** First event of the phase. Everything before a barrier of the whole call has ended. */
  phaseStart = 0;
  /** First event of the block. Events of the phase before it belong to other blocks. */
  blockStart = 0;
  /** The first read of shared memory that had not been written. */
  unwritten: NestFault | undefined;
  private block = 0;
  private events: Event[] = [];

  /**
   * @param engines copy engines, which are numbered after the warps
   * @param blocks of a cluster; each adds an agent that begins and ends the block's memory
   */
  constructor(warps: number, engines = 0, blocks = 1) {
    this.warps = warps + engines + blocks;
    this.engines = engines;
    this.blocks = blocks;
    this.order = new HappensBefore(this.warps);
  }

  /** Starts a phase: all earlier accesses have ended. */
  startPhase(): void {
    this.phaseStart += this.events.length;
    this.blockStart = this.phaseStart;
    this.events = [];
  }

  startBlock(block: number, warps: number): void {
    this.block = block;
    this.blockStart = this.phaseStart + this.events.length;
    this.unwritten = undefined;
    this.ownWarps = warps;
    this.order = new HappensBefore(warps + this.engines + this.blocks);
  }

  /** The agent that begins and ends the memory of a block of the running cluster. */
  ownerOf(block: number): number {
    return this.ownWarps + this.engines + block;
  }

  /** A warp begins a statement that reads or writes memory. */
  begin(site: Site, warp: number, counters: Environment, queue?: Queue): Event {
    const event = this.eventOf(site, warp, counters, queue);
    this.sentOff = queue !== undefined;
    this.warp = warp;
    this.lane = ALL_LANES;
    this.now = this.phaseStart + this.events.length;
    this.events.push(event);
    return event;
  }

  /** Ends a block after all warps have run. @throws NestFault when a warp read an element that none wrote */
  endBlock(): void {
    if (this.unwritten) throw this.unwritten;
  }

  /** The number of the event that comes next. */
  get next(): number {
    return this.phaseStart + this.events.length;
  }

  eventOf(site: Site, warp: number, counters: Environment, queue?: Queue): Event {
    const moment = queue ? this.order.sentOff(warp, queue) : this.order.now(warp);
    return { ...moment, site, block: this.block, counters: counters.slice() };
  }

  eventAt(number: number): Event {
    return this.events[number - this.phaseStart] ?? internal(`event ${number} is forgotten`);
  }

  /** Whether the accesses of an event are visible to an instruction that reads memory directly and is issued now. */
  isPublished(event: number): boolean {
    // Every direct reader sees an engine's writes.
    return this.eventAt(event).agent >= this.ownWarps || this.order.isPublished(this.eventAt(event), event, this.warp);
  }

  /** Whether an access of a lane in an event of this phase has ended for the current thread. */
  hasEnded(event: number, lane: number): boolean {
    return event >= this.blockStart && this.order.hasEnded(this.eventAt(event), lane, this.warp, this.lane);
  }
}

/** The newest read of each element by each warp. */
interface Reads {
  readonly event: Int32Array;
  readonly lane: Int8Array;
}

const NEVER = -1;

export interface WatchedBuffer {
  readonly name: string;
  readonly dims: readonly Dimension[];
  /** Elements of memory. */
  readonly elements: number;
  /** Place of each logical element; left out for row-major order. */
  readonly places?: Int32Array | undefined;
  /** Shared memory is undefined when a block begins; all blocks see other memory. */
  readonly shared: boolean;
  /** Whether reads outside are tested and give the identity. */
  readonly outside?: "identity" | undefined;
}

export class WatchedMemory implements Watch {
  private readonly judge: Judge;
  private readonly buffer: WatchedBuffer;
  private readonly writer: Int32Array;
  private readonly writerLane: Int8Array;
  private reads: Reads | undefined;
  /** Asynchronous reads, which end later than synchronous reads of their warp. */
  private readsSentOff: Reads | undefined;
  /** A read by an earlier block that a read of this block has replaced. */
  private readByOthers: Int32Array | undefined;

  constructor(judge: Judge, buffer: WatchedBuffer) {
    this.judge = judge;
    this.buffer = buffer;
    this.writer = new Int32Array(buffer.elements).fill(NEVER);
    this.writerLane = new Int8Array(buffer.elements);
  }

  /** @param byItself whether an instruction reads it that sees only published writes */
  read(at: number, byItself = false): void {
    const { judge } = this;
    const writer = this.writer[at] ?? NEVER;
    const lane = this.writerLane[at] ?? ALL_LANES;
    if (writer < this.since()) {
      // A racing write may come later; its message is the better one.
      if (this.buffer.shared) judge.unwritten ??= this.unwrittenFault(at);
    } else if (!judge.hasEnded(writer, lane)) throw this.race(at, writer, lane, "writes", "reads");
    else if (byItself && !judge.isPublished(writer)) throw this.race(at, writer, lane, "writes", "reads", true);
    if (judge.sentOff) this.readsSentOff ??= this.newReads();
    else this.reads ??= this.newReads();
    this.noteRead(judge.sentOff ? this.readsSentOff : this.reads, at);
  }

  outside(access: Access): void {
    if (this.buffer.outside) return;
    throw new NestFault("malformed", [
      `${printAccess(access)} is read outside ${this.buffer.name}: nothing tests its index`,
    ]);
  }

  write(at: number): void {
    const { judge, writer, writerLane } = this;
    const before = writer[at] ?? NEVER;
    const lane = writerLane[at] ?? ALL_LANES;
    if (before >= this.since() && !judge.hasEnded(before, lane)) throw this.race(at, before, lane, "writes", "writes");
    this.checkReaders(this.reads, at);
    this.checkReaders(this.readsSentOff, at);
    const other = this.readByOthers?.[at] ?? NEVER;
    if (other >= judge.phaseStart) throw this.race(at, other, ALL_LANES, "reads", "writes");
    writer[at] = judge.now;
    writerLane[at] = judge.lane;
  }

  /** The first event whose accesses count; shared memory begins anew with every block. */
  private since(): number {
    return this.buffer.shared ? this.judge.blockStart : this.judge.phaseStart;
  }

  private newReads(): Reads {
    const size = this.buffer.elements * this.judge.warps;
    return { event: new Int32Array(size).fill(NEVER), lane: new Int8Array(size) };
  }

  private checkReaders(reads: Reads | undefined, at: number): void {
    if (!reads) return;
    const { judge } = this;
    const since = this.since();
    for (let k = at * judge.warps; k < (at + 1) * judge.warps; k++) {
      const event = reads.event[k] ?? NEVER;
      const lane = reads.lane[k] ?? ALL_LANES;
      if (event >= since && !judge.hasEnded(event, lane)) throw this.race(at, event, lane, "reads", "writes");
    }
  }

  /** The newest read of a warp represents all earlier ones: whatever may follow it may follow those. */
  private noteRead(reads: Reads | undefined, at: number): void {
    if (!reads) return;
    const { judge } = this;
    const k = at * judge.warps + judge.warp;
    const before = reads.event[k] ?? NEVER;
    const lane = reads.lane[k] ?? ALL_LANES;
    // Unless another lane may still be reading: then it represents both.
    let stands = judge.lane;
    if (before >= this.since()) {
      if (before < judge.blockStart) {
        this.readByOthers ??= new Int32Array(this.buffer.elements).fill(NEVER);
        this.readByOthers[at] = before;
      } else if (lane !== stands && !judge.hasEnded(before, lane)) stands = ALL_LANES;
    }
    reads.event[k] = judge.now;
    reads.lane[k] = stands;
  }

  private race(
    at: number,
    event: number,
    lane: number,
    verb: Deed["verb"],
    now: Deed["verb"],
    unpublished = false,
  ): NestFault {
    const { judge } = this;
    const first: Deed = { event: judge.eventAt(event), lane, verb };
    const second: Deed = { event: judge.eventAt(judge.now), lane: judge.lane, verb: now };
    const { dims } = this.buffer;
    return raceOf(first, second, {
      name: describeElement(this.buffer, at),
      fresh: (this.writer[at] ?? NEVER) < this.since(),
      ring: hasName(dims, "stage"),
      unpublished,
    });
  }

  private unwrittenFault(at: number): NestFault {
    const { judge } = this;
    const deed: Deed = { event: judge.eventAt(judge.now), lane: judge.lane, verb: "reads" };
    return new NestFault("unwritten", [
      `${describeElement(this.buffer, at)} is read, and nothing has written it`,
      ...describeDeed(deed),
    ]);
  }
}
