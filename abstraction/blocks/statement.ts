/**
 * @file One statement as a warp runs it.
 *
 *     c{1} <- mma.m16n8k16.f32.f16(a{0}, b{1})          on this warp's registers
 *     wait 1                                            what its older groups copied is there now
 */

import { compileIndex } from "../evaluate.ts";
import { compileLanes } from "../interpret-lanes.ts";
import { WARP } from "../intrinsic.ts";
import type { Statement } from "../loop-nest.ts";
import { compileRegister, isAlone, refuse, type Standing, type Warp, type WarpRun } from "./context.ts";
import { compileCopy } from "./copy.ts";
import { compileStore } from "./engines.ts";
import { compileDrain, compileFetch, compileTileMove, tileOf } from "./fragments.ts";
import type { Queue } from "./happens-before.ts";
import { compileIssue, fenceRegisters, publish, queueOf } from "./issue.ts";

/** Statements that a warp runs alone. Barriers of a block and loops are steps of the program (run.ts). */
export function compileWarpStatement(s: Statement, site: Standing): WarpRun {
  const { judge } = site;
  if (isAlone(site)) refuse(site, `one thread on its own sends and awaits, and makes no ${s.kind}`);
  switch (s.kind) {
    case "loop":
      if (s.mode === "lanes") return compileWarpLanes(s, site);
      return refuse(site, `a loop at ${s.mode} does not stand inside a block`);
    case "copy":
      return s.transfer === "engine" ? compileStore(s, site) : compileCopy(s, site);
    case "settle":
      return (warp) => awaitFlights(warp, "stores", s.pending, site);
    case "commit": {
      const queue = queueOf(s.of);
      return (warp) => {
        judge.order.commit(warp.number, queue);
        if (queue === "issues") warp.fenced = false;
      };
    }
    case "wait": {
      const queue = queueOf(s.of);
      return (warp) => awaitFlights(warp, queue, s.pending, site);
    }
    case "fence":
      return s.on === "registers" ? fenceRegisters : (warp) => publish(warp, site);
    case "barrier":
      if (s.group === undefined)
        refuse(site, "a barrier of the whole call stands at the top of a nest, outside its blocks");
      if (s.group !== site.team) refuse(site, `a barrier of a ${s.group}, and the block is made of ${site.team}s`);
      return ({ number }) => judge.order.barrier([number]);
    case "fetch":
      return compileFetch(s, site);
    case "drain":
      return compileDrain(s, site);
    case "load":
    case "store":
      return compileTileMove(s, site);
    case "clear": {
      const { shape, number } = compileRegister(s.register, site);
      return (warp) => void tileOf(warp, shape, number(warp), site).fill(shape.identity);
    }
    case "register-issue":
      return compileIssue(s, site);
    case "send":
    case "await":
    case "arrive":
      throw new Error(`internal: ${s.kind} is a step of the program`);
    case "when":
      return compileIssuesWhere(s, site);
    case "scalar":
      return refuse(site, "a scalar statement of a warp stands in a loop over its lanes");
    case "issue":
      return refuse(site, `a warp issues ${s.intrinsic.name} on registers, not on tiles in memory`);
    default:
      return s satisfies never;
  }
}

/** A warp awaits all but its newest flights of a queue, which take effect now at the latest. */
function awaitFlights({ number, cargo }: Warp, queue: Queue, pending: number, { judge }: Standing): void {
  for (const flight of judge.order.awaitFlights(number, queue, pending, judge.next)) {
    for (const arrive of cargo.get(flight) ?? []) arrive();
    cargo.delete(flight);
  }
}

type When = Extract<Statement, { kind: "when" }>;

/** Whether a condition stands before issues of a warp alone, so that warps need not agree on it. */
export const isOfIssues = ({ body, otherwise }: When): boolean =>
  otherwise.length === 0 &&
  body.every((inner) => inner.kind === "register-issue" && inner.intrinsic.asynchronous === undefined);

/** Issues of a warp under a condition. The condition names surrounding loops only, so all lanes agree. */
function compileIssuesWhere(s: When, site: Standing): WarpRun {
  const holds = compileIndex(s.condition, site.scope);
  const runs = s.body.map((inner) => compileWarpStatement(inner, { ...site, statement: inner }));
  return (warp) => {
    if (holds(warp.env) !== 0) for (const run of runs) run(warp);
  };
}

/** Statements on the lanes of a warp and its own vectors. Memory accesses are recorded lane by lane. */
function compileWarpLanes(s: Extract<Statement, { kind: "loop" }>, site: Standing): WarpRun {
  const { scope, judge, vectors } = site;
  if (site.team !== "warp") refuse(site, `lanes are those of a warp, and the block is made of ${site.team}s`);
  if (s.extent > WARP) refuse(site, `a warp has ${WARP} lanes, not ${s.extent}`);
  const runs = s.body.map((inner) => ({
    site: { ...site, statement: inner },
    run: compileLanes({ ...s, body: [inner] }, scope, judge),
  }));
  return (warp) => {
    for (const [i, { values }] of vectors.entries()) values.set(warp.vectors[i] ?? []);
    for (const { site: here, run } of runs) {
      judge.begin(here, warp.number, warp.env);
      run(warp.env);
    }
    for (const [i, { values }] of vectors.entries()) warp.vectors[i]?.set(values);
  };
}
