/**
 * @file Runs the blocks of a GPU: warps side by side, in any order that barriers leave open.
 *
 *     for at block m_tile in 0..2           blocks one after another: they share nothing but global memory
 *       for at warp warp_m in 0..2          warps by turns, each with registers and loop counters of its own
 *         ...
 *         barrier block                     a warp rests here until all warps of its block have come
 *
 * A block is compiled to one flat program that every warp runs. Statements beside the loops at warp are run by every warp; a warp
 * whose number such a loop does not reach passes it by.
 */

import { isTeamMode, type LoopNest, printHead, type Statement } from "../loop-nest.ts";
import { pick, type Random, randomInteger, seededRandom } from "../random.ts";
import { type BlockContext, malformed, type Standing, type Warp, type WarpRun } from "./context.ts";
import { Engines } from "./engines.ts";
import { describeThread, NestFault, type Site } from "./fault.ts";
import { ALL_LANES } from "./happens-before.ts";
import { compileWarpStatement } from "./statement.ts";

type LoopStatement = Extract<Statement, { kind: "loop" }>;

/** In which order a nest for a GPU is run. What it is judged by does not depend on it; values of a wrong nest do. */
export interface NestOrder {
  /** The warp that goes on at each statement: the first that can, the last, or any. Blocks follow one another likewise. */
  readonly warps?: "as written" | "reversed" | { readonly seed: number };
  /** When what an asynchronous copy brings is there: at once, or no sooner than its wait. */
  readonly copies?: "early" | "late";
  /** What has no order is refused, or run as it comes: to see the values that a wrong nest may give. */
  readonly races?: "refused" | "ignored";
}

/** Orders that bring out what a nest leaves open: run all of them. */
export const ADVERSE_ORDERS: readonly NestOrder[] = [
  { warps: "as written", copies: "early" },
  { warps: "as written", copies: "late" },
  { warps: "reversed", copies: "early" },
  { warps: "reversed", copies: "late" },
  { warps: { seed: 1 }, copies: "early" },
  { warps: { seed: 2 }, copies: "late" },
];

/** What the agents of a nest are: all its loops on parts of a block are of one level. */
export function teamOfNest({ prepare, body }: LoopNest): "warp" | "warpgroup" {
  const teamsIn = (s: Statement): ("warp" | "warpgroup")[] => {
    if (s.kind !== "loop") return [];
    return [...(isTeamMode(s.mode) ? [s.mode] : []), ...s.body.flatMap(teamsIn)];
  };
  const teams = new Set([...prepare, ...body].flatMap(teamsIn));
  if (teams.size > 1) throw new NestFault("malformed", ["loops at warp and at warpgroup stand in one nest"]);
  return teams.has("warpgroup") ? "warpgroup" : "warp";
}

/** Warps or warpgroups of the largest block of a nest; 0 when it has no blocks. */
export function warpsOfNest({ prepare, body }: LoopNest): number {
  const blocks = [...prepare, ...body].filter(isAtBlock);
  return Math.max(0, ...blocks.map((s) => warpsOf(chainOf(s, "block").body)));
}

/**
 * Statements at the top of a nest that has blocks. Between two barriers of the whole call stand blocks, or what one thread runs.
 * @param plain compiles what stands outside blocks
 */
export function compilePhases(
  statements: readonly Statement[],
  context: Omit<BlockContext, "warps">,
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

/** Loops at one level, each the only statement of the one around it, and what the innermost runs. */
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

const sizeOf = (axes: readonly LoopStatement[]): number => axes.reduce((product, { extent }) => product * extent, 1);

/** Warps that the loops at warp in a block ask for. */
function warpsOf(body: readonly Statement[]): number {
  const each = body.map((s) => {
    if (s.kind !== "loop") return 1;
    return isTeamMode(s.mode) ? sizeOf(chainOf(s, s.mode).axes) : warpsOf(s.body);
  });
  return Math.max(1, ...each);
}

/** One step of the program of a block. */
type Step =
  | { readonly kind: "run"; readonly run: WarpRun }
  | { readonly kind: "begin"; readonly slot: number; readonly extent: number; readonly behind: number }
  | { readonly kind: "repeat"; readonly slot: number; readonly extent: number; readonly body: number }
  /** Loops at warp: each warp has its own counters; one beyond them passes by. */
  | { readonly kind: "warps"; readonly axes: readonly Digit[]; readonly count: number; readonly behind: number }
  | { readonly kind: "barrier"; readonly site: Site }
  | { readonly kind: "await"; readonly site: Site; readonly isThere: (warp: Warp) => boolean; readonly run: WarpRun };

interface Digit {
  readonly slot: number;
  readonly extent: number;
}

/** A number as digits, the last one fastest, each into its loop counter. */
function setDigits(env: Int32Array, digits: readonly Digit[], number: number): void {
  let rest = number;
  for (const { slot, extent } of digits.toReversed()) {
    env[slot] = rest % extent;
    rest = Math.floor(rest / extent);
  }
}

function compileBlocks(s: LoopStatement, shared: Omit<BlockContext, "warps">, order: NestOrder): () => void {
  const { axes, body } = chainOf(s, "block");
  const context: BlockContext = { ...shared, warps: warpsOf(body) };
  const { scope, judge } = context;
  const digits = axes.map(({ axis, extent }) => ({ slot: scope.slot(axis), extent }));
  const loops = axes.map(({ axis }, d) => ({ name: axis, slot: digits[d]?.slot ?? 0 }));
  const program: Step[] = [];
  const site = { statement: s, team: context.team, loops, warpAxes: [], warps: context.warps };
  const engines = new Engines(context);
  compileSteps(body, site, context, program, engines);
  const random = seededRandom(typeof order.warps === "object" ? order.warps.seed : 0);
  const buffers = [...context.scratch.values()].filter((b) => b.scope === "shared").map((b) => scope.buffer(b.name));
  return () => {
    for (const block of inOrder(sizeOf(axes), order, random)) {
      judge.startBlock(block, context.warps);
      engines.startBlock(context.warps);
      for (const { values } of buffers) values.fill(Number.NaN);
      const warps = Array.from({ length: context.warps }, (_, number) => newWarp(number, context));
      for (const { env } of warps) setDigits(env, digits, block);
      runBlock(program, warps, order, random, context);
      judge.endBlock();
    }
  };
}

function inOrder(count: number, { warps = "as written" }: NestOrder, random: Random): number[] {
  const blocks = Array.from({ length: count }, (_, block) => block);
  if (warps === "as written") return blocks;
  if (warps === "reversed") return blocks.reverse();
  for (let last = count - 1; last > 0; last--) {
    const other = randomInteger(random, 0, last);
    [blocks[last], blocks[other]] = [blocks[other] ?? 0, blocks[last] ?? 0];
  }
  return blocks;
}

/** Appends the steps of statements to the program. */
function compileSteps(
  statements: readonly Statement[],
  around: Standing,
  context: BlockContext,
  program: Step[],
  engines: Engines,
): void {
  const { scope } = context;
  for (const s of statements) {
    const site: Standing = { ...around, statement: s };
    if (s.kind === "loop" && s.range) throw malformed(site, "a loop inside a block runs all of its steps");
    if (s.kind === "barrier" && s.group === "block") program.push({ kind: "barrier", site });
    else if (s.kind === "await") program.push({ kind: "await", site, ...engines.await(s, site, context) });
    else if (s.kind === "send") program.push({ kind: "run", run: engines.send(s, site, context) });
    else if (s.kind !== "loop" || !(["serial", "unrolled"].includes(s.mode) || isTeamMode(s.mode)))
      program.push({ kind: "run", run: compileWarpStatement(s, site, context) });
    else if (isTeamMode(s.mode)) compileWarps(s, site, context, program, engines);
    else {
      const slot = scope.slot(s.axis);
      const inside = { ...site, loops: [...site.loops, { name: s.axis, slot }] };
      const head = program.length;
      program.push({ kind: "repeat", slot, extent: s.extent, body: 0 });
      compileSteps(s.body, inside, context, program, engines);
      program.push({ kind: "repeat", slot, extent: s.extent, body: head + 1 });
      program[head] = { kind: "begin", slot, extent: s.extent, behind: program.length };
    }
  }
}

function compileWarps(
  s: LoopStatement,
  site: Standing,
  context: BlockContext,
  program: Step[],
  engines: Engines,
): void {
  if (site.warpAxes.length > 0) throw malformed(site, `loops at ${s.mode} stand directly inside one another`);
  const { axes, body } = chainOf(s, s.mode);
  const digits = axes.map(({ axis, extent }) => ({ slot: context.scope.slot(axis), extent }));
  const loops = axes.map(({ axis }, d) => ({ name: axis, slot: digits[d]?.slot ?? 0 }));
  const count = sizeOf(axes);
  const head = program.length;
  program.push({ kind: "warps", axes: digits, count, behind: 0 });
  const warpAxes = axes.map(({ axis }) => axis);
  compileSteps(body, { ...site, loops: [...site.loops, ...loops], warpAxes, warps: count }, context, program, engines);
  program[head] = { kind: "warps", axes: digits, count, behind: program.length };
}

function newWarp(number: number, { scope, files, vectors }: BlockContext): Warp {
  return {
    number,
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

/** Warps by turns until all have ended. @throws NestFault when some wait for others that do not come */
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
      continue;
    }
    const [first] = warps;
    if (!first || warps.every((w) => !w.waits && !w.until)) return;
    if (!warps.every((w) => w.waits && w.step === first.step)) throw deadlock(program, warps, context);
    judge.order.barrier(warps.map((w) => w.number));
    for (const warp of warps) {
      warp.waits = false;
      warp.step++;
    }
  }
}

function runStep(program: readonly Step[], warp: Warp): void {
  const step = program[warp.step];
  if (!step) throw new Error(`internal: the program has no step ${warp.step}`);
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
    case "warps":
      if (warp.number < step.count) setDigits(env, step.axes, warp.number);
      warp.step = warp.number < step.count ? warp.step + 1 : step.behind;
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

function deadlock(program: readonly Step[], warps: readonly Warp[], { judge, team }: BlockContext): NestFault {
  const lines = warps.map((warp) => {
    const step = program[warp.step];
    if (step?.kind !== "barrier" && step?.kind !== "await") return `${team} ${warp.number} has ended`;
    const who = describeThread({ event: judge.eventOf(step.site, warp.number, warp.env), lane: ALL_LANES });
    return `waits at ${printHead(step.site.statement)}: ${who}`;
  });
  return new NestFault("deadlock", [
    `the ${team}s of a block do not come to the same barrier: those that wait never go on`,
    ...lines,
    `missing: the same barriers in every ${team}, as beside the loops at ${team}`,
  ]);
}
