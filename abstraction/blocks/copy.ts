/**
 * @file A copy as the threads of a group run it, piece by piece.
 *
 *     copy m 32, k 16 by 8, async, by block          a_ring[0,m,k] = x[32*m_tile+m,k]
 *         thread 0: k 0..7 of m 0     thread 1: k 8..15 of m 0     thread 2: k 0..7 of m 1 ...
 *
 * A piece is one memory access on either side, so its elements must be contiguous, aligned to the piece's size, and inside or outside their tensor
 * together. An asynchronous copy takes effect at once or when its flight is awaited; both are run.
 */

import { pointsIn } from "../affine.ts";
import { addTo, hasName, sumOf } from "../collections.ts";
import { wrapperOf } from "../dtype.ts";
import {
  type Buffer,
  compileIndex,
  compilePlace,
  compileValue,
  type Environment,
  type Evaluate,
  type Scope,
} from "../evaluate.ts";
import { type Access, accessesIn, axesIn, childrenOf, type Expr } from "../expression.ts";
import type { Copy } from "../loop-nest.ts";
import {
  type BlockContext,
  elementAt,
  lanesOf,
  lanesOfTeam,
  refuse,
  refuseAt,
  type Standing,
  setDigits,
  threadsOfBlock,
  type WarpRun,
} from "./context.ts";

/** An element that a value reads, except at points that a `select` leaves out. */
interface Read {
  readonly access: Access;
  readonly buffer: Buffer;
  /** Its place, {@link OUTSIDE} its tensor, or {@link LEFT_OUT}. */
  readonly place: Evaluate;
  /** The places of one piece's elements. */
  readonly places: Int32Array;
}

const OUTSIDE = -1;
const LEFT_OUT = -2;

export function compileCopy(copy: Copy, site: Standing): WarpRun {
  checkCopy(copy, site);
  const { scope, judge } = site;
  const threads = copy.group === "block" ? threadsOfBlock(site) : lanesOfTeam(site);
  const { pieces, seek } = piecesOf(copy, scope);
  const when = copy.when && compileIndex(copy.when, scope);
  const movePiece = compilePiece(copy, site);
  return (warp) => {
    if (when && when(warp.env) === 0) return;
    judge.begin(site, warp.number, warp.env, copy.transfer === "async" ? "copies" : undefined);
    const first = copy.group === "block" ? lanesOfTeam(site) * warp.inBlock : 0;
    const lanes = lanesOf(site, warp.inBlock);
    for (let lane = 0; lane < lanes; lane++) {
      judge.lane = lane;
      for (let piece = first + lane; piece < pieces; piece += threads) {
        seek(warp.env, piece);
        movePiece(warp);
      }
    }
  };
}

/** Checks what is known of a copy before it runs. @throws NestFault */
function checkCopy({ axes, equation, width, transfer, gathered, group, when }: Copy, site: Standing): void {
  const { scope, inputs, scratch } = site;
  const last = axes.at(-1)?.extent ?? 0;
  if (width < 1 || last % width !== 0) refuse(site, `a row of ${last} elements cannot be dealt in pieces of ${width}`);
  const taken = axes.find((a) => hasName(site.loops, a.name));
  if (taken) refuse(site, `${taken.name} is an axis of the copy and of a loop around it: give it another name`);
  const { target, op, value } = equation;
  if (op !== "=") refuse(site, `a copy assigns with "=", not with "${op}"`);
  if (inputs.has(target.tensor)) refuse(site, `${target.tensor} is an input: nothing may write it`);
  const inWhen = when && axesIn(when).find((name) => hasName(axes, name));
  if (inWhen !== undefined) refuse(site, `the copy's condition names its axis ${inWhen}: threads would disagree`);
  if (group !== "block" && group !== site.team)
    refuse(site, `a copy is dealt to a ${group}, and the block is made of ${site.team}s`);
  if (group === "block") {
    if (site.warps < site.ofBlock)
      refuse(site, `${site.warps} of ${site.ofBlock} warps run a copy that is dealt to the whole block`);
    const named = [target, value, equation.where, when].flatMap((e) => (e ? axesIn(e) : []));
    const own = site.warpAxes.find((name) => named.includes(name));
    if (own !== undefined)
      refuse(site, `a copy dealt to the whole block names ${own}, which differs from warp to warp: deal it to a warp`);
  }
  if (gathered && accessesIn(value).some(({ tensor }) => scratch.get(tensor)?.scope !== "shared"))
    refuse(site, "elements are gathered from shared memory, of which a thread reads one at a time");
  if (transfer !== "async") return;
  if (scratch.get(target.tensor)?.scope !== "shared")
    refuse(site, `an asynchronous copy fills shared memory, and ${target.tensor} is none`);
  const computed = firstComputed(value);
  if (computed) refuse(site, "an asynchronous copy cannot compute: its value is an element, or a fill of 0");
  for (const { access, buffer } of readsOf(value, width, scope)) {
    if (scratch.get(access.tensor)?.scope === "shared")
      refuse(site, `an asynchronous copy reads global memory, and ${access.tensor} is shared`);
    if (buffer.dtype !== scope.buffer(target.tensor).dtype)
      refuse(site, `an asynchronous copy cannot compute: ${access.tensor} and ${target.tensor} differ in type`);
  }
}

/** The first part of a value that is neither an element, a zero, nor a choice between them. */
function firstComputed(e: Expr): Expr | undefined {
  if (e.kind === "access" || (e.kind === "number" && e.value === 0)) return undefined;
  if (e.kind !== "select") return e;
  return firstComputed(e.whenTrue) ?? firstComputed(e.whenFalse);
}

/** The number of pieces of a copy, and a function that sets the loop counters to the first element of a piece. */
function piecesOf(
  { axes, width }: Copy,
  scope: Scope,
): { pieces: number; seek: (env: Environment, piece: number) => void } {
  const digits = axes.map(({ name, extent }) => ({ slot: scope.slot(name), extent }));
  const elements = pointsIn(digits);
  return { pieces: elements / width, seek: (env, piece) => setDigits(env, digits, piece * width) };
}

/** Moves the piece at whose first element the loop counters stand. */
function compilePiece(copy: Copy, site: Standing): WarpRun {
  const { axes, equation, width, transfer } = copy;
  const { target, value, where } = equation;
  const { scope, judge } = site;
  const holds = where && compileIndex(where, scope);
  const place = compilePlace(target, scope);
  const places = new Int32Array(width);
  const reads = readsOf(value, width, scope);
  const slot = scope.slot(axes.at(-1)?.name ?? "");
  const check = compileCheck(copy, places, reads, site);
  const write =
    transfer === "async" ? compileFlight(copy, places, reads, site) : compileWrites(copy, places, slot, site);
  return (warp) => {
    const { env } = warp;
    const start = env[slot] ?? 0;
    let copied = 0;
    for (let j = 0; j < width; j++) {
      env[slot] = start + j;
      if (holds && holds(env) === 0) continue;
      copied++;
      places[j] = place(env);
      for (const read of reads) read.places[j] = read.place(env);
    }
    env[slot] = start;
    if (copied === 0) return;
    const problem =
      copied < width ? `${copied} of the ${width} elements of a piece are copied: all must be, or none` : check();
    if (problem !== undefined) refuseAt(site, warp, problem, judge.lane);
    write(warp);
  };
}

/** Describes what is wrong with the piece that was just located. */
function compileCheck(
  { equation, width, transfer, gathered }: Copy,
  places: Int32Array,
  reads: readonly Read[],
  context: BlockContext,
): () => string | undefined {
  const { target, value } = equation;
  const computes = firstComputed(value) !== undefined;
  return () => {
    if (places.includes(OUTSIDE)) return `the copy leaves ${target.tensor}`;
    const wrong = rowProblem(target.tensor, places, context);
    if (wrong !== undefined) return wrong;
    for (const { access, places: from } of reads) {
      const inside = sumOf(from, (at) => (at >= 0 ? 1 : 0));
      if (transfer === "async" && from.includes(OUTSIDE) && context.scope.identity !== 0)
        return `what lies outside ${access.tensor} is ${context.scope.identity}, and an asynchronous copy fills with 0`;
      // What is computed may be read one by one; a printer reads together what it knows to lie together.
      if (inside === 0 || computes) continue;
      if (inside < width)
        return `${inside} of the ${width} elements of a piece are inside ${access.tensor}: all must be, or none`;
      if (gathered) continue;
      const apart = rowProblem(access.tensor, from, context);
      if (apart !== undefined) return apart;
    }
    return undefined;
  };
}

/** Checks that elements moved together are contiguous and begin at a multiple of their number. */
function rowProblem(buffer: string, places: Int32Array, context: BlockContext): string | undefined {
  const [first = 0] = places;
  const { length } = places;
  for (let j = 1; j < length; j++) {
    const at = places[j] ?? 0;
    if (at !== first + j)
      return `${elementAt(context, buffer, first)} and ${elementAt(context, buffer, at)} are ${j} apart in a piece of ${length} and ${at - first} apart in memory`;
  }
  if (first % length !== 0)
    return `${elementAt(context, buffer, first)} lies at element ${first}: a piece of ${length} begins at a multiple of ${length}`;
  return undefined;
}

/** Writes the piece at once. All its elements are read before any is written. */
function compileWrites({ equation, width }: Copy, places: Int32Array, slot: number, { scope }: BlockContext): WarpRun {
  const { values, watch, dtype } = scope.buffer(equation.target.tensor);
  const evaluate = compileValue(equation.value, scope, dtype);
  const round = wrapperOf(dtype);
  const results = new Float64Array(width);
  return ({ env }) => {
    const start = env[slot] ?? 0;
    for (let j = 0; j < width; j++) {
      env[slot] = start + j;
      results[j] = round(evaluate(env));
    }
    env[slot] = start;
    for (let j = 0; j < width; j++) {
      const at = places[j] ?? 0;
      watch?.write(at);
      values[at] = results[j] ?? Number.NaN;
    }
  };
}

/** Starts an asynchronous copy of the piece. It may read its sources and write its target at any time until the flight is awaited. */
function compileFlight(
  { equation, width }: Copy,
  places: Int32Array,
  reads: readonly Read[],
  { scope, judge, copies }: BlockContext,
): WarpRun {
  const { values, watch } = scope.buffer(equation.target.tensor);
  return (warp) => {
    for (const at of places) watch?.write(at);
    const [to = 0] = places;
    const source = reads.find((read) => (read.places[0] ?? OUTSIDE) >= 0);
    const from = source?.places[0] ?? 0;
    for (let j = 0; j < width && source; j++) source.buffer.watch?.read(from + j);
    const arrive = source
      ? () => void values.set(source.buffer.values.subarray(from, from + width), to)
      : () => void values.fill(0, to, to + width);
    if (copies === "early") arrive();
    else addTo(warp.cargo, judge.order.sentOff(warp.number, "copies").flight, arrive);
  };
}

/** The elements a value reads. */
function readsOf(e: Expr, width: number, scope: Scope, guards: readonly Evaluate[] = []): Read[] {
  if (e.kind === "access") {
    const place = compilePlace(e, scope);
    const at: Evaluate = (env) => (guards.every((holds) => holds(env) !== 0) ? place(env) : LEFT_OUT);
    return [
      {
        access: e,
        buffer: scope.buffer(e.tensor),
        place: guards.length === 0 ? place : at,
        places: new Int32Array(width),
      },
    ];
  }
  // A condition on elements is not known in advance, so both branches count as read.
  if (e.kind !== "select" || accessesIn(e.condition).length > 0)
    return childrenOf(e).flatMap((child) => readsOf(child, width, scope, guards));
  const holds = compileIndex(e.condition, scope);
  const fails: Evaluate = (env) => (holds(env) === 0 ? 1 : 0);
  return [
    ...readsOf(e.whenTrue, width, scope, [...guards, holds]),
    ...readsOf(e.whenFalse, width, scope, [...guards, fails]),
  ];
}
