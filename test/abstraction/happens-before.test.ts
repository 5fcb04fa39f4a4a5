/**
 * @file The order of happening among warps: cases by hand, and random ones against a search of the graph of all events.
 */

import { describe, expect, it } from "vitest";
import { NestFault, type Site } from "../../abstraction/blocks/fault.ts";
import { ALL_LANES, HappensBefore } from "../../abstraction/blocks/happens-before.ts";
import { Judge, WatchedMemory } from "../../abstraction/blocks/watched-memory.ts";
import fc from "../support/property.ts";
import { inFull } from "../support/slow.ts";

describe("the order of happening", () => {
  it("is the order of the program within a thread, and none between threads", () => {
    const order = new HappensBefore(2);
    const write = order.now(0);
    expect(order.hasEnded(write, 3, 0, 3)).toBe(true);
    expect(order.hasEnded(write, 3, 0, 4)).toBe(false);
    expect(order.hasEnded(write, 3, 1, 3)).toBe(false);
    expect(order.hasEnded(write, ALL_LANES, 0, ALL_LANES)).toBe(false);
  });

  it("holds for a warp's lanes behind a barrier of the warp, for others behind one of the block", () => {
    const order = new HappensBefore(2);
    const write = order.now(0);
    order.barrier([0]);
    expect([order.hasEnded(write, 3, 0, 4), order.hasEnded(write, 3, 1, 3)]).toEqual([true, false]);
    order.barrier([0, 1]);
    expect(order.hasEnded(write, 3, 1, 3)).toBe(true);
  });

  it("is transitive: a barrier of 0 and 1, then one of 1 and 2", () => {
    const order = new HappensBefore(3);
    const write = order.now(0);
    order.barrier([0, 1]);
    expect(order.hasEnded(write, 0, 2, 0)).toBe(false);
    order.barrier([1, 2]);
    expect(order.hasEnded(write, 0, 2, 0)).toBe(true);
    const later = order.now(0);
    expect(order.hasEnded(later, 0, 2, 0)).toBe(false);
  });

  it("goes one way, from a thread that releases a clock to one that acquires it", () => {
    const order = new HappensBefore(2);
    const written = order.now(0);
    const read = order.now(1);
    const full = order.newClock();
    order.release(0, full);
    order.acquire(1, full);
    expect(order.hasEnded(written, 0, 1, 0)).toBe(true);
    expect(order.hasEnded(read, 0, 0, 0)).toBe(false);
    // Events of the first thread after its release are not covered, and its own lanes have not met.
    expect(order.hasEnded(order.now(0), 0, 1, 0)).toBe(false);
    expect(order.hasEnded(written, 0, 0, 1)).toBe(false);
  });

  it("puts an asynchronous copy behind its issuer's wait, which no barrier replaces", () => {
    const order = new HappensBefore(2);
    const copy = order.sentOff(0, "copies");
    order.commit(0, "copies");
    order.barrier([0, 1]);
    expect([order.hasEnded(copy, 3, 0, 3), order.hasEnded(copy, 3, 1, 0)]).toEqual([false, false]);
    expect(order.awaitFlights(0, "copies", 0, 0)).toEqual([copy.flight]);
    expect([order.hasEnded(copy, 3, 0, 3), order.hasEnded(copy, 3, 0, 4)]).toEqual([true, false]);
    expect(order.hasEnded(copy, 3, 1, 0)).toBe(false);
    order.barrier([0, 1]);
    expect(order.hasEnded(copy, 3, 1, 0)).toBe(true);
  });

  it("counts groups as they are committed: a wait leaves the newest in flight", () => {
    const order = new HappensBefore(1);
    const copies = [0, 1, 2].map(() => {
      const copy = order.sentOff(0, "copies");
      order.commit(0, "copies");
      return copy;
    });
    const uncommitted = order.sentOff(0, "copies");
    order.awaitFlights(0, "copies", 1, 0);
    expect(copies.map((copy) => order.hasEnded(copy, 0, 0, 0))).toEqual([true, true, false]);
    order.awaitFlights(0, "copies", 0, 0);
    expect(order.hasEnded(uncommitted, 0, 0, 0)).toBe(false);
  });
});

/** One thing that happens: a thread touches an element, or a warp orders something. */
type Act =
  | { kind: "read" | "write"; warp: number; lane: number; element: number; sentOff: boolean }
  | { kind: "barrier"; warps: readonly number[] }
  | { kind: "commit"; warp: number }
  | { kind: "wait"; warp: number; pending: number };

const WARPS = 3;
const LANES = 2;
const ELEMENTS = 2;

const acts: fc.Arbitrary<Act[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constantFrom("read" as const, "read" as const, "write" as const),
        warp: fc.nat(WARPS - 1),
        lane: fc.nat(LANES - 1),
        element: fc.nat(ELEMENTS - 1),
        sentOff: fc.boolean(),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({ kind: fc.constant("barrier" as const), warps: fc.constantFrom([0, 1, 2], [0], [1], [2]) }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("commit" as const), warp: fc.nat(WARPS - 1) }) },
    {
      weight: 2,
      arbitrary: fc.record({ kind: fc.constant("wait" as const), warp: fc.nat(WARPS - 1), pending: fc.nat(1) }),
    },
  ),
  { maxLength: 40 },
);

/** The first act that touches an element while an earlier one may still, by a graph of all that happened; -1 when none does. */
function firstRaceByGraph(all: readonly Act[]): number {
  const edges: number[][] = [];
  const node = (...from: number[]): number => {
    edges.push(from);
    return edges.length - 1;
  };
  // Newest node of every thread; nodes point back at what comes before them.
  const last = Array.from({ length: WARPS }, () => Array.from({ length: LANES }, () => node()));
  const lanesOf = (warp: number): number[] => last[warp] ?? [];
  const open = Array.from({ length: WARPS }, (): { end: number; lane: number }[] => []);
  const groups = Array.from({ length: WARPS }, (): { end: number; lane: number }[][] => []);
  const reaches = (from: number, to: number): boolean => {
    const seen = new Set<number>();
    const stack = [from];
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      if (at === to) return true;
      if (!seen.has(at)) stack.push(...(edges[at] ?? []));
      seen.add(at);
    }
    return false;
  };
  const touched: { element: number; writes: boolean; end: number }[] = [];
  for (const [i, act] of all.entries()) {
    if (act.kind === "barrier") {
      const meet = node(...act.warps.flatMap(lanesOf));
      for (const warp of act.warps) lanesOf(warp).fill(meet);
    } else if (act.kind === "commit") {
      groups[act.warp]?.push(open[act.warp] ?? []);
      open[act.warp] = [];
    } else if (act.kind === "wait") {
      const flying = groups[act.warp] ?? [];
      for (const { end, lane } of flying.splice(0, Math.max(0, flying.length - act.pending)).flat())
        lanesOf(act.warp)[lane] = node(lanesOf(act.warp)[lane] ?? 0, end);
    } else {
      const start = node(lanesOf(act.warp)[act.lane] ?? 0);
      lanesOf(act.warp)[act.lane] = start;
      const writes = act.kind === "write";
      if (touched.some((t) => t.element === act.element && (t.writes || writes) && !reaches(start, t.end))) return i;
      const end = act.sentOff ? node(start) : start;
      if (act.sentOff) open[act.warp]?.push({ end, lane: act.lane });
      touched.push({ element: act.element, writes, end });
    }
  }
  return -1;
}

/** The same by the judge. */
function firstRaceByClocks(all: readonly Act[]): number {
  const judge = new Judge(WARPS);
  const dims = [{ name: "element", extent: ELEMENTS }];
  const memory = new WatchedMemory(judge, { name: "buffer", dims, elements: ELEMENTS, shared: false });
  const site: Site = { statement: { kind: "commit" }, team: "warp", teams: 2, ofBlock: 2, loops: [] };
  judge.startPhase();
  judge.startBlock(0, WARPS);
  for (const [i, act] of all.entries()) {
    if (act.kind === "barrier") judge.order.barrier(act.warps);
    else if (act.kind === "commit") judge.order.commit(act.warp, "copies");
    else if (act.kind === "wait") judge.order.awaitFlights(act.warp, "copies", act.pending, judge.next);
    else {
      judge.begin(site, act.warp, new Int32Array(0), act.sentOff ? "copies" : undefined);
      judge.lane = act.lane;
      try {
        memory[act.kind](act.element);
      } catch (error) {
        expect(error).toBeInstanceOf(NestFault);
        return i;
      }
    }
  }
  return -1;
}

describe("watched memory", () => {
  it("remembers every lane of a warp that has read, and not only the newest", () => {
    const touch = (kind: "read" | "write", lane: number): Act => ({ kind, warp: 0, lane, element: 0, sentOff: false });
    const reads = [touch("read", 0), touch("read", 1)];
    for (const writer of [0, 1]) {
      expect(firstRaceByClocks([...reads, touch("write", writer)])).toBe(2);
      expect(firstRaceByClocks([...reads, { kind: "barrier", warps: [0] }, touch("write", writer)])).toBe(-1);
    }
    expect(firstRaceByClocks([touch("read", 1), touch("read", 1), touch("write", 1)])).toBe(-1);
  });

  it("reports the first unordered access and no other, as a graph of all events does", () => {
    let races = 0;
    let free = 0;
    fc.assert(
      fc.property(acts, (all) => {
        const expected = firstRaceByGraph(all);
        expect(firstRaceByClocks(all)).toBe(expected);
        if (expected >= 0) races++;
        else free++;
      }),
      { numRuns: inFull(200_000, 4000) },
    );
    expect(Math.min(races, free)).toBeGreaterThan(inFull(10_000, 200));
  });

  it("orders blocks only by a barrier of the whole call, whatever each does in between", () => {
    const judge = new Judge(1);
    const memory = new WatchedMemory(judge, {
      name: "out",
      dims: [{ name: "i", extent: 1 }],
      elements: 1,
      shared: false,
    });
    const site: Site = { statement: { kind: "commit" }, team: "warp", teams: 2, ofBlock: 2, loops: [] };
    const touch = (block: number, ...verbs: ("read" | "write")[]): void => {
      judge.startBlock(block, 1);
      for (const verb of verbs) {
        judge.begin(site, 0, new Int32Array(0));
        judge.lane = 0;
        memory[verb](0);
      }
    };
    judge.startPhase();
    touch(0, "read");
    touch(1, "read");
    // The newest read is this block's own; the one before it was not.
    expect(() => touch(2, "read", "write")).toThrow("out[0] may be read before it is written");
    judge.startPhase();
    touch(0, "write", "read", "write");
    expect(() => touch(1, "read")).toThrow("out[0] is read before what writes it has ended");
    judge.startPhase();
    touch(1, "write");
    expect(() => touch(0, "write")).toThrow("out[0] is written twice without order");
  });
});
