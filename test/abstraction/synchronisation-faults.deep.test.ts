/**
 * @file Faults of synchronisation, each seeded into a nest that is right, each found by the interpreter without a GPU, with what it is between.
 *
 * A right nest is a product: by hand on warps and on warpgroups, or lowered with boxes of the copy engine, or with its sum split among blocks.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { binary, number } from "../../abstraction/expression.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import {
  changed,
  gridContextOf,
  MATMUL,
  matmulF16,
  mmaSchedule,
  verdict,
  wgmmaSchedule,
  withoutStatements,
} from "../support/grid-kernels.ts";
import { groupMatmul } from "../support/group-matmul.ts";
import { onWarps } from "../support/nest-text.ts";
import { ringMatmul } from "../support/ring-matmul.ts";
import { inFull } from "../support/slow.ts";
import { stated } from "../support/subjects.ts";

interface Subject {
  readonly computation: Computation;
  readonly nest: LoopNest;
}

/** What every order makes of it: `right`, `wrong`, or what the judge says. */
const verdicts = (subject: Subject, orders = ADVERSE_ORDERS): string[] =>
  orders.map((order) => verdict(subject, order));

const without = (subject: Subject, leave: (s: Statement) => boolean): Subject => ({
  ...subject,
  nest: withoutStatements(subject.nest, leave),
});

// ---- nests that are right -------------------------------------------------------------------------------------------------------

function lowered(computation: Computation, name: string, schedule: GridSchedule): Subject {
  return { computation, nest: lowerGrid(gridContextOf(computation, name, MATMUL), schedule) };
}

const LONG = matmulF16(128, 32, 384);
const WGMMA = wgmmaSchedule(128, 32, 64, { warps: { m: 2, n: 1 }, transfer: "engine" });
const engine = lowered(LONG, "wgmma.m64n32k16.f32.f16", { ...WGMMA, fragments: "inline" });
const producer = lowered(LONG, "wgmma.m64n32k16.f32.f16", { ...WGMMA, producer: "warp" });
const split = (through: "cluster" | "memory"): Subject =>
  lowered(
    matmulF16(32, 16, 64),
    "mma.m16n8k16.f32.f16",
    mmaSchedule(32, 16, 16, { warps: { m: 2, n: 1 }, split: { parts: 4, through } }),
  );
const cluster = split("cluster");
const memory = split("memory");

const reversed = stated("y[i] = x[63-i] --i 64");
const COPY = "copy i 64 by 4, async, by block   s[i] = x[i]";
const PLAIN = "copy i 64, by block   s[i] = x[i]";
/** Two warps that run these lines and then read what others have copied. */
const byHand = (...lines: readonly string[]): Subject => ({
  computation: reversed,
  nest: onWarps(
    2,
    [...lines, "for lanes lane in 0..32", "  y[32*w+lane] = s[63-32*w-lane]"].join("\n"),
    "shared s: f32[i 64]",
  ),
});

const rows = stated("y[r,i] = x[r,63-i] --r 4 --i 64");
const ringOf = (stages: number): Subject => ({
  computation: rows,
  nest: onWarps(
    2,
    `
    copy i 64 by 4, async, by block   s[0,i] = x[0,i]
    commit
    for round in 0..4
      wait 0
      barrier block
      for lanes lane in 0..32
        y[round,32*w+lane] = s[round%${stages},63-32*w-lane]
      copy i 64 by 4, async, by block where round+1 < 4   s[(round+1)%${stages},i] = x[round+1,i]
      commit`,
    "shared s: f32[stage 2, i 64]",
  ),
});

const RIGHT: Readonly<Record<string, Subject>> = {
  "copies awaited and met": byHand(COPY, "commit", "wait 0", "barrier block"),
  "a ring by hand": ringOf(2),
  "a ring of warps": ringMatmul(),
  "a ring of warpgroups": groupMatmul(),
  "boxes of the engine": engine,
  "a producer beside warpgroups": producer,
  "a sum through a cluster": cluster,
  "a sum through memory": memory,
};

// ---- and what is wrong with them ------------------------------------------------------------------------------------------------

const isBarrier = (of: "block" | "cluster" | "call", what?: "sums" | "beginnings") => (s: Statement) =>
  s.kind === "barrier" && (s.group ?? "call") === of && (what === undefined || (s.of ?? "sums") === what);

/** The phase that threads wait for, so many uses later. */
const phaseMoved = (by: number): Subject => ({
  ...engine,
  nest: changed(engine.nest, (s) => [s.kind === "await" ? { ...s, use: binary("+", s.use, number(by)) } : s]),
});

/** The arrival or the wait of one ring of the producer's nest, changed. */
const ofRing = (
  kind: "await" | "arrive",
  ring: "full" | "empty",
  change: (s: Extract<Statement, { kind: "await" | "arrive" }>) => readonly Statement[],
): Subject => ({
  ...producer,
  nest: changed(producer.nest, (s) =>
    (s.kind === "await" || s.kind === "arrive") && s.kind === kind && s.arrival.name === ring ? change(s) : [s],
  ),
});
const useMoved = (ring: "full" | "empty", by: number): Subject =>
  ofRing("await", ring, (s) => (s.kind === "await" ? [{ ...s, use: binary("+", s.use, number(by)) }] : [s]));
/** Stages are left so many steps sooner. */
const leftSooner = (by: number): Subject =>
  ofRing("arrive", "empty", ({ arrival: { name, stage } }) => [
    { kind: "arrive", arrival: { name, stage: binary("%", binary("+", stage, number(by)), number(3)) } },
  ]);

const FAULTS: readonly (readonly [fault: string, subject: Subject, says: RegExp])[] = [
  ["no barrier behind a plain copy", byHand(PLAIN), /missing: a barrier of the block/],
  ["a copy that is not awaited", byHand(COPY, "commit", "barrier block"), /missing: a wait for the copy/],
  ["a copy that is not committed", byHand(COPY, "wait 0", "barrier block"), /missing: a commit of the copy/],
  ["a wait behind the barrier", byHand(COPY, "commit", "barrier block", "wait 0"), /behind the wait/],
  ["memory filled twice", byHand(PLAIN, "copy i 64, by block   s[63-i] = x[63-i]", "barrier block"), /written twice/],
  ["a ring one stage short", ringOf(1), /a ring of more stages/],
  ["a ring without its barrier", { ...ringMatmul({ without: "barrier" }) }, /missing: a barrier of the block/],
  ["a ring without its wait", ringMatmul({ without: "wait" }), /missing: a wait for the copy/],
  ["a ring without its commits", ringMatmul({ without: "commit" }), /missing: a commit of the copy/],
  ["a group too many in flight", ringMatmul({ pending: 2 }), /before what writes it has ended/],
  ["copies one stage too far ahead", ringMatmul({ ahead: 3 }), /missing: a wait for the copy, and then a barrier/],
  [
    "no fence behind what the instruction reads by itself",
    groupMatmul({ without: "fence memory" }),
    /missing: a fence of memory/,
  ],
  ["no fence of the registers of sums", groupMatmul({ without: "fence registers" }), /no fence of registers/],
  ["products that are not committed", groupMatmul({ without: "commit" }), /missing: a commit of the issue/],
  ["products that are not awaited", groupMatmul({ without: "wait" }), /missing: a wait for the issue/],
  [
    "a stage released before its products have ended",
    groupMatmul({ ahead: 2 }),
    /overwritten while another thread may still read it/,
  ],
  [
    "warpgroups that do not meet",
    groupMatmul({ without: "barrier" }),
    /missing: a barrier of the block behind the wait/,
  ],
  ["copies of warpgroups that are not awaited", groupMatmul({ without: "arrival" }), /missing: a wait for the copy/],
  [
    "a box that is not awaited",
    without(engine, (s) => s.kind === "await"),
    /send for full.*(?:.|\n)*before|before what writes it has ended/,
  ],
  [
    "a phase off by one, too early",
    phaseMoved(-1),
    /has not awaited its last use|passes at once|before what writes it/,
  ],
  ["a phase off by one, too late", phaseMoved(1), /those that wait never go on/],
  [
    "a stage sent for again before it is released",
    without(engine, isBarrier("block")),
    /missing: a barrier of the block/,
  ],
  [
    "a producer that waits for no stage",
    ofRing("await", "empty", () => []),
    /missing: an arrival of every warpgroup that the sender awaits/,
  ],
  ["a producer one use late", useMoved("empty", 1), /never go on|parity alone/],
  ["a producer one use early", useMoved("empty", -1), /parity alone/],
  ["consumers one use early", useMoved("full", -1), /parity alone/],
  [
    "consumers that wait for no stage",
    ofRing("await", "full", () => []),
    /parity alone|before what writes it has ended/,
  ],
  ["a stage that is never left", ofRing("arrive", "empty", () => []), /those that wait never go on/],
  ["a stage left while its products run", leftSooner(1), /still read it(?:.|\n)*an arrival of every warpgroup/],
  [
    "a ring of the producer one stage short",
    {
      ...producer,
      nest: changed(producer.nest, (s) => {
        if (s.kind !== "send") return [s];
        const { stage } = s.arrival;
        const short = s.copies.map((copy) => {
          const [, ...inner] = copy.equation.target.index;
          const index = [binary("%", stage, number(2)), ...inner];
          return { ...copy, equation: { ...copy.equation, target: { ...copy.equation.target, index } } };
        });
        return [{ ...s, copies: short }];
      }),
    },
    /before it is written|still read it|nothing has written it|written twice/,
  ],
  [
    "a barrier of the block in one of two roles",
    {
      ...producer,
      nest: changed(producer.nest, (s) => (s.kind === "arrive" ? [s, { kind: "barrier", group: "block" }] : [s])),
    },
    /those that wait never go on/,
  ],
  [
    "a cluster that does not meet before it adds",
    without(cluster, isBarrier("cluster", "sums")),
    /missing: a barrier of the/,
  ],
  [
    "a block of the cluster that may not have begun",
    without(cluster, isBarrier("cluster", "beginnings")),
    /may not have begun/,
  ],
  ["parts added before all are there", without(memory, isBarrier("call")), /^parts.*before what writes it has ended/],
];

const ALONE =
  /^(?:no fence of registers|use -?\d+ is awaited|the stage is sent for again|the warpgroups of a block do not come)/;

describe("the interpreter as the judge of synchronisation", () => {
  it.each(Object.entries(RIGHT))("finds nothing in %s", (_, subject) => {
    expect(new Set(verdicts(subject))).toEqual(new Set(["right"]));
  });

  it("is given at least twenty faults, no two alike", () => {
    expect(FAULTS.length).toBeGreaterThanOrEqual(20);
    expect(new Set(FAULTS.map(([fault]) => fault)).size).toBe(FAULTS.length);
  });

  it.each(FAULTS)("finds %s", (_, subject, says) => {
    // Two orders that have nothing in common.
    const said = verdicts(subject, inFull(ADVERSE_ORDERS, ADVERSE_ORDERS.slice(0, 2)));
    const found = said.filter((text) => text !== "right" && text !== "wrong");
    expect(found.length, said.join("\n")).toBeGreaterThan(0);
    expect(found[0]).toMatch(says);
    // A race names both statements and who runs them; what no second statement has a part in, its own.
    const named = found[0]?.match(/^ +(?:reads it|writes it|run by|waits at)\b/gm) ?? [];
    expect(named.length, found[0]).toBeGreaterThanOrEqual(ALONE.test(found[0] ?? "") ? 1 : 2);
  });
});
