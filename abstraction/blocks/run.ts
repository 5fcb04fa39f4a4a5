/**
 * @file Runs the blocks of a GPU: warps side by side, in any order that barriers leave open.
 *
 *     for at block m_tile in 0..2           blocks one after another: they share nothing but global memory; blocks of a cluster side by side
 *       for at warp warp_m in 0..2          warps by turns, each with registers and loop counters of its own
 *         ...
 *         barrier block                     a warp rests here until all warps of its block have come
 *
 * A block is compiled to one flat program that every warp runs. Statements beside the loops at warp are run by every warp; a warp
 * whose number such a loop does not reach passes it by.
 *
 * One statement as a warp runs it.
 *
 *     c{1} <- mma.m16n8k16.f32.f16(a{0}, b{1})          on this warp's registers
 *     wait 1                                            what its older groups copied is there now
 */

import { pointsIn } from "../affine.ts";
import { present, upTo } from "../collections.ts";
import { internal } from "../error.ts";
import { compileIndex } from "../evaluate.ts";
import { axesIn } from "../expression.ts";
import { compileLanes } from "../interpret-lanes.ts";
import { WARP } from "../intrinsic.ts";
import { isRoleMode, isShared, isTeamMode, type LoopNest, type Statement, type TeamMode } from "../loop-nest.ts";
import { printHead } from "../print-nest.ts";
import { pick, type Random, seededRandom, shuffled } from "../random.ts";
import {
  type BlockContext,
  compileRegister,
  type Digit,
  isAlone,
  refuse,
  type Standing,
  setDigits,
  type Warp,
  type WarpRun,
} from "./context.ts";
import { compileCopy } from "./copy.ts";
import { compileStore, Engines } from "./engines.ts";
import { agentName, describeThread, NestFault, type Site } from "./fault.ts";
import { compileAccumulate, compileDrain, compileFetch, compileTileMove, tileOf } from "./fragments.ts";
import { ALL_LANES, type Queue } from "./happens-before.ts";
import { compileIssue, fenceRegisters, publish, queueOf } from "./issue.ts";
import type { Judge } from "./watched-memory.ts";

type LoopStatement = Extract<Statement, { kind: "loop" }>;

/** The order in which a nest for a GPU is run. The verdict does not depend on it; the values of a wrong nest do. */
export interface NestOrder {
  /** The warp that runs the next statement: the first that can, the last, or a random one. Blocks are ordered likewise. */
  readonly warps?: "as written" | "reversed" | { readonly seed: number };
  /** When asynchronous copies take effect: at once, or no sooner than their wait. */
  readonly copies?: "early" | "late";
  /** Unordered accesses are refused, or ignored to see the values that a wrong nest may give. */
  readonly races?: "refused" | "ignored";
}

/** Orders that expose missing synchronisation; a test runs all of them. */
export const ADVERSE_ORDERS: readonly NestOrder[] = [
  { warps: "as written", copies: "early" },
  { warps: "as written", copies: "late" },
  { warps: "reversed", copies: "early" },
  { warps: "reversed", copies: "late" },
  { warps: { seed: 1 }, copies: "early" },
  { warps: { seed: 2 }, copies: "late" },
];

/** The level of a nest's teams; all its loops over parts of a block are at one level. */
export function teamOfNest({ prepare, body }: LoopNest): TeamMode {
  const teamsIn = (s: Statement): TeamMode[] => {
    if (s.kind !== "loop") return [];
    return present([isTeamMode(s.mode) && s.mode, ...s.body.flatMap(teamsIn)]);
  };
  const teams = new Set([...prepare, ...body].flatMap(teamsIn));
  if (teams.size > 1) throw new NestFault("malformed", ["loops at warp and at warpgroup stand in one nest"]);
  return teams.has("warpgroup") ? "warpgroup" : "warp";
}

/** Warps or warpgroups of the largest block or cluster of a nest; 0 when it has no blocks. */
export function warpsOfNest({ prepare, body }: LoopNest): number {
  const blocks = [...prepare, ...body].filter(isAtBlock);
  return Math.max(0, ...blocks.map((s) => agentsOf(chainOf(s, "block").body)));
}

/**
 * The statements at the top of a nest with blocks. Between two barriers of the whole call there are either blocks, or statements of one thread.
 * @param plain compiles statements outside blocks
 */
export function compilePhases(
  statements: readonly Statement[],
  context: Omit<BlockContext, "teams" | "ofBlock" | "blocks">,
  order: NestOrder,
  plain: (s: Statement) => () => void,
): () => void {
  const { judge } = context;
  let before: Statement | undefined;
  const runs = statements.map((s) => {
    if (s.kind === "barrier") {
      before = undefined;
      return () => judge.startPhase();
    }
    if (before && isAtBlock(before) !== isAtBlock(s))
      throw new NestFault("race", [
        "blocks and what one thread runs stand side by side",
        printHead(before),
        printHead(s),
        "missing: a barrier of the whole call between the two",
      ]);
    before = s;
    return isAtBlock(s) ? compileBlocks(s, context, order) : plain(s);
  });
  return () => {
    judge.startPhase();
    for (const run of runs) run();
  };
}

function isAtBlock(s: Statement): s is LoopStatement {
  return s.kind === "loop" && s.mode === "block";
}

/** Directly nested loops at one level, and the body of the innermost. */
function chainOf(
  s: LoopStatement,
  mode: LoopStatement["mode"],
): { axes: readonly LoopStatement[]; body: readonly Statement[] } {
  const axes = [s];
  for (let body = s.body; ; ) {
    const [only] = body;
    if (body.length !== 1 || only?.kind !== "loop" || only.mode !== mode) return { axes, body };
    axes.push(only);
    body = only.body;
  }
}

/** Warps of a block, or of all blocks of a cluster. */
function agentsOf(body: readonly Statement[]): number {
  const [only] = body;
  const each = (inside: readonly Statement[]): number => teamsOf(inside) + threadsOf(inside);
  return only?.kind === "loop" && only.mode === "cluster" ? only.extent * each(only.body) : each(body);
}

/** Number of warps that the loops at warp in a block require. */
function teamsOf(body: readonly Statement[]): number {
  const each = body.map((s) => {
    if (s.kind !== "loop") return 1;
    return isTeamMode(s.mode) ? pointsIn(chainOf(s, s.mode).axes) : teamsOf(s.body);
  });
  return Math.max(1, ...each);
}

/** Number of single threads with a role of their own in a block. */
function threadsOf(body: readonly Statement[]): number {
  return Math.max(0, ...body.map((s) => (s.kind === "loop" && s.mode === "thread" ? s.extent : 0)));
}

/** One step of the program of a block. */
type Step =
  | { readonly kind: "run"; readonly run: WarpRun }
  | { readonly kind: "begin"; readonly slot: number; readonly extent: number; readonly behind: number }
  | { readonly kind: "repeat"; readonly slot: number; readonly extent: number; readonly body: number }
  /** Loops at warp or thread. Each agent has its own counters; an agent with a number outside them skips the body. */
  | {
      readonly kind: "warps";
      readonly axes: readonly Digit[];
      readonly first: number;
      readonly count: number;
      readonly behind: number;
    }
  | { readonly kind: "when"; readonly holds: (warp: Warp) => boolean; readonly behind: number }
  | { readonly kind: "barrier"; readonly site: Site; readonly of: "block" | "cluster" | "beginnings" }
  | { readonly kind: "await"; readonly site: Site; readonly isThere: (warp: Warp) => boolean; readonly run: WarpRun };

function compileBlocks(
  s: LoopStatement,
  shared: Omit<BlockContext, "teams" | "ofBlock" | "blocks">,
  order: NestOrder,
): () => void {
  const { axes, body: inside } = chainOf(s, "block");
  const [only] = inside;
  const cluster = inside.length === 1 && only?.kind === "loop" && only.mode === "cluster" ? only : undefined;
  const body = cluster?.body ?? inside;
  const teams = teamsOf(body);
  const ofBlock = teams + threadsOf(body);
  const context: BlockContext = { ...shared, teams, ofBlock, blocks: cluster?.extent ?? 1 };
  const { scope, judge } = context;
  const digits = axes.map(({ axis, extent }) => ({ slot: scope.slot(axis), extent }));
  const loops = present([...axes, cluster]).map(({ axis }) => ({ name: axis, slot: scope.slot(axis) }));
  const program: Step[] = [];
  const site = { ...context, statement: s, loops, warpAxes: [], first: 0, warps: ofBlock };
  const engines = new Engines(context);
  compileSteps(body, site, program, engines);
  const random = seededRandom(typeof order.warps === "object" ? order.warps.seed : 0);
  const scratch = [...context.scratch.values()];
  const buffers = scratch.filter(isShared).map((b) => scope.buffer(b.name));
  const reached = scratch.filter((b) => b.scope === "cluster").map((b) => scope.buffer(b.name));
  const agents = ofBlock * context.blocks;
  /** The owner of each block's part of cluster memory writes all of it, so that unsynchronised uses conflict. */
  const own = (): void => {
    for (let block = 0; block < context.blocks; block++) {
      judge.begin(site, judge.ownerOf(block), scope.environment());
      if (context.blocks > 1) engines.own(block);
      for (const { values, watch } of reached) {
        const size = values.length / context.blocks;
        for (let at = block * size; at < (block + 1) * size; at++) watch?.write(at);
      }
    }
  };
  return () => {
    for (const block of inOrder(pointsIn(axes), order, random)) {
      judge.startBlock(block, agents);
      engines.startBlock(ofBlock);
      for (const { values } of buffers) values.fill(Number.NaN);
      const warps = upTo(agents).map((number) => newWarp(number, context));
      for (const { env, block: inCluster } of warps) {
        setDigits(env, digits, block);
        if (cluster) env[scope.slot(cluster.axis)] = inCluster;
      }
      own();
      runBlock(program, warps, order, random, context);
      for (const { number, block: inCluster, inBlock } of warps)
        if (judge.order.isFlying(number, "stores"))
          throw new NestFault("race", [
            `block ${inCluster} ends before the engine has read what ${agentName(site, inBlock)} sent it to store`,
            "missing: a wait for all of its stores (settle 0)",
          ]);
      // A block's memory exists until its last thread has ended.
      for (let i = 0; i < context.blocks; i++)
        judge.order.barrier([judge.ownerOf(i), ...warps.filter((w) => w.block === i).map((w) => w.number)]);
      own();
      judge.endBlock();
    }
  };
}

function inOrder(count: number, { warps = "as written" }: NestOrder, random: Random): number[] {
  const blocks = upTo(count);
  if (typeof warps === "object") return shuffled(random, blocks);
  return warps === "reversed" ? blocks.reverse() : blocks;
}

/** Appends the steps of statements to the program. */
function compileSteps(statements: readonly Statement[], around: Standing, program: Step[], engines: Engines): void {
  const { scope } = around;
  for (const s of statements) {
    const site: Standing = { ...around, statement: s };
    if (s.kind === "loop" && s.range) refuse(site, "a loop inside a block runs all of its steps");
    if (s.kind === "barrier" && (s.group === "block" || s.group === "cluster"))
      program.push({ kind: "barrier", site, of: s.of ?? s.group });
    else if (s.kind === "await") program.push({ kind: "await", site, ...engines.await(s, site) });
    else if (s.kind === "arrive") program.push({ kind: "run", run: engines.arrive(s, site) });
    else if (s.kind === "send") program.push({ kind: "run", run: engines.send(s, site) });
    else if (s.kind === "when" && !isOfIssues(s)) compileWhen(s, site, program, engines);
    else if (s.kind !== "loop" || !(["serial", "unrolled"].includes(s.mode) || isRoleMode(s.mode)))
      program.push({ kind: "run", run: compileWarpStatement(s, site) });
    else if (isRoleMode(s.mode)) compileWarps(s, s.mode, site, program, engines);
    else {
      const slot = scope.slot(s.axis);
      const inside = { ...site, loops: [...site.loops, { name: s.axis, slot }] };
      const head = program.length;
      program.push({ kind: "repeat", slot, extent: s.extent, body: 0 });
      compileSteps(s.body, inside, program, engines);
      program.push({ kind: "repeat", slot, extent: s.extent, body: head + 1 });
      program[head] = { kind: "begin", slot, extent: s.extent, behind: program.length };
    }
  }
}

/** Statements under a condition on which all threads of the block agree: it names what they share. */
function compileWhen(s: Extract<Statement, { kind: "when" }>, site: Standing, program: Step[], engines: Engines): void {
  const own = site.warpAxes.find((name) => axesIn(s.condition).includes(name));
  if (own !== undefined) refuse(site, `threads would disagree: the condition names ${own}, which differs among them`);
  if (s.otherwise.length > 0) refuse(site, "a choice between two bodies does not stand inside a block");
  const holds = compileIndex(s.condition, site.scope);
  const head = program.length;
  const decide = (warp: Warp): boolean => {
    site.judge.begin(site, warp.number, warp.env);
    return holds(warp.env) !== 0;
  };
  program.push({ kind: "when", holds: decide, behind: 0 });
  const counter = s.counted && { name: s.counted.name, slot: site.scope.slot(s.counted.name) };
  compileSteps(s.body, { ...site, loops: present([...site.loops, counter]) }, program, engines);
  if (counter) program.push({ kind: "run", run: ({ env }) => countIn(env, counter.slot) });
  program[head] = { kind: "when", holds: decide, behind: program.length };
}

function countIn(env: Warp["env"], slot: number): void {
  env[slot] = (env[slot] ?? 0) + 1;
}

function compileWarps(
  s: LoopStatement,
  mode: TeamMode | "thread",
  site: Standing,
  program: Step[],
  engines: Engines,
): void {
  if (site.warpAxes.length > 0) refuse(site, `loops at ${mode} stand directly inside one another`);
  const { axes, body } = chainOf(s, mode);
  const digits = axes.map(({ axis, extent }) => ({ slot: site.scope.slot(axis), extent }));
  const loops = axes.map(({ axis }, d) => ({ name: axis, slot: digits[d]?.slot ?? 0 }));
  const count = pointsIn(axes);
  const first = mode === "thread" ? site.teams : 0;
  const head = program.length;
  program.push({ kind: "warps", axes: digits, first, count, behind: 0 });
  const inside = { ...site, loops: [...site.loops, ...loops], warpAxes: axes.map(({ axis }) => axis) };
  compileSteps(body, { ...inside, first, warps: count }, program, engines);
  program[head] = { kind: "warps", axes: digits, first, count, behind: program.length };
}

function newWarp(number: number, { scope, files, vectors, ofBlock }: BlockContext): Warp {
  return {
    number,
    inBlock: number % ofBlock,
    block: Math.floor(number / ofBlock),
    env: scope.environment(),
    files: [...files.values()].map(({ count, rows }) => ({
      tiles: Array.from({ length: count }, () => new Float64Array(rows.length).fill(Number.NaN)),
      filled: new Uint8Array(count),
      touched: new Uint8Array(count),
      flights: new Array<undefined>(count).fill(undefined),
    })),
    vectors: vectors.map(({ values, unknown }) => new Float64Array(values.length).fill(unknown)),
    cargo: new Map(),
    fenced: false,
    until: undefined,
    step: 0,
    waits: false,
  };
}

/** Runs warps by turns until all have ended. @throws NestFault when some wait for others that never come */
function runBlock(
  program: readonly Step[],
  warps: readonly Warp[],
  { warps: way = "as written" }: NestOrder,
  random: Random,
  context: BlockContext,
): void {
  const { judge } = context;
  for (;;) {
    const ready = warps.filter((w) => !w.waits && w.step < program.length && (w.until?.() ?? true));
    const next =
      typeof way === "object" && ready.length > 0 ? pick(random, ready) : ready.at(way === "reversed" ? -1 : 0);
    if (next) {
      runStep(program, next);
      if (next.waits) passBarrier(program, next, warps, judge);
    } else if (warps.every((w) => !w.waits && !w.until)) return;
    else throw deadlock(program, warps, context);
  }
}

/** Releases the warps of a barrier once the last of them has arrived. */
function passBarrier(program: readonly Step[], { step, block }: Warp, warps: readonly Warp[], judge: Judge): void {
  const { order } = judge;
  const barrier = program[step];
  if (barrier?.kind !== "barrier") internal("a warp waits at no barrier");
  const members = barrier.of === "block" ? warps.filter((w) => w.block === block) : warps;
  if (!members.every((w) => w.waits && w.step === step)) return;
  const numbers = members.map((w) => w.number);
  if (barrier.of === "beginnings") {
    const clock = order.newClock();
    for (const owner of new Set(members.map((w) => judge.ownerOf(w.block)))) order.release(owner, clock);
    for (const number of numbers) order.acquire(number, clock);
  } else order.barrier(numbers);
  for (const member of members) {
    member.waits = false;
    member.step++;
  }
}

function runStep(program: readonly Step[], warp: Warp): void {
  const step = program[warp.step];
  if (!step) internal(`the program has no step ${warp.step}`);
  const { env } = warp;
  switch (step.kind) {
    case "run":
      step.run(warp);
      warp.step++;
      return;
    case "begin":
      env[step.slot] = 0;
      warp.step = step.extent > 0 ? warp.step + 1 : step.behind;
      return;
    case "repeat": {
      const i = (env[step.slot] ?? 0) + 1;
      env[step.slot] = i;
      warp.step = i < step.extent ? step.body : warp.step + 1;
      return;
    }
    case "warps": {
      const number = warp.inBlock - step.first;
      const isOne = number >= 0 && number < step.count;
      if (isOne) setDigits(env, step.axes, number);
      warp.step = isOne ? warp.step + 1 : step.behind;
      return;
    }
    case "when":
      warp.step = step.holds(warp) ? warp.step + 1 : step.behind;
      return;
    case "barrier":
      warp.waits = true;
      return;
    case "await":
      if (!step.isThere(warp)) {
        warp.until = () => step.isThere(warp);
        return;
      }
      warp.until = undefined;
      step.run(warp);
      warp.step++;
      return;
    default:
      step satisfies never;
  }
}

function deadlock(program: readonly Step[], warps: readonly Warp[], context: BlockContext): NestFault {
  const { judge, team } = context;
  const lines = warps.map((warp) => {
    const step = program[warp.step];
    if (step?.kind !== "barrier" && step?.kind !== "await") return `${agentName(context, warp.inBlock)} has ended`;
    const who = describeThread({ event: judge.eventOf(step.site, warp.number, warp.env), lane: ALL_LANES });
    return `waits at ${printHead(step.site.statement)}: ${who}`;
  });
  return new NestFault("deadlock", [
    `the ${team}s of a block do not come to the same barrier: those that wait never go on`,
    ...lines,
    `missing: the same barriers in every ${team}, as beside the loops at ${team}`,
  ]);
}

// ---- one statement -----------------------------------------------------------------------------------------------------------------------

/** Statements that a warp runs alone. Barriers of a block and loops are steps of the program (run.ts). */
function compileWarpStatement(s: Statement, site: Standing): WarpRun {
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
    case "accumulate":
      return compileAccumulate(s, site);
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
      return internal(`${s.kind} is a step of the program`);
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
const isOfIssues = ({ body, otherwise }: When): boolean =>
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
