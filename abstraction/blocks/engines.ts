/**
 * @file Asynchronous copy engines (TMA): one for each stage of a ring, whose arrivals barriers count.
 *
 *     send for full[(step+2)%4]             a thread hands boxes to the engine of the stage, with all that it knows to have ended
 *     await full[step%4], use step/4        the awaiting thread then knows that the engine has ended its work for that use
 *     arrive empty[step%4]                  once all warpgroups have arrived, whoever awaits the stage knows that their earlier work has ended
 *
 * Requested data may arrive at once, or only when awaited: both are run. A barrier has only two phases. So no stage may be requested again before all
 * threads that ever await it have awaited its last use, and no thread may await a use other than the last or the next.
 */

import { pointsIn } from "../affine.ts";
import { addTo, product, sumOf, upTo, withName } from "../collections.ts";
import { bytesOf } from "../dtype.ts";
import { internal } from "../error.ts";
import { type Buffer, compileIndex, compilePlace, type Evaluate } from "../evaluate.ts";
import { type Access, type Expr, outermostAccessesIn } from "../expression.ts";
import type { ArrivalAt, Copy, Statement } from "../loop-nest.ts";
import { BEGINNING_BYTES, beginsOutside, type TensorView, viewedCoordinates } from "../tensor-view.ts";
import {
  type BlockContext,
  elementAt,
  isAlone,
  refuse,
  refuseAt,
  type Standing,
  setDigits,
  type Warp,
  type WarpRun,
} from "./context.ts";
import { agentName } from "./fault.ts";
import { ALL_LANES, type Clock } from "./happens-before.ts";
import { WatchedMemory } from "./watched-memory.ts";

interface Stage {
  /** Number of times that it was filled, or that all teams arrived at it. */
  uses: number;
  /** Blocks of the cluster that have sent for the next use. */
  readonly sent: Set<number>;
  /** Number of times each agent awaited it. */
  readonly awaited: number[];
  /** Teams that have arrived for the next use, what they know to have ended, and what the teams of the last use knew. */
  arrived: number;
  pending: Clock;
  done: Clock;
  /** Data that have not arrived yet. */
  readonly cargo: (() => void)[];
}

export class Engines {
  private readonly context: BlockContext;
  private stages: Stage[] = [];
  /** The barriers of the stages as memory of their blocks, which other blocks of a cluster may only use while the block runs. */
  readonly barriers: WatchedMemory;
  /** For each arrival, the numbers within their block of the agents that await it. */
  private readonly awaiting = new Map<string, Set<number>>();

  constructor(context: BlockContext) {
    this.context = context;
    const elements = sumOf(context.arrivals, (a) => a.stages);
    const dims = [{ name: "arrival", extent: elements }];
    this.barriers = new WatchedMemory(context.judge, { name: "arrivals", dims, elements, shared: true });
  }

  startBlock(warps: number): void {
    const { order } = this.context.judge;
    const count = sumOf(this.context.arrivals, (a) => a.stages);
    this.stages = Array.from({ length: count }, () => ({
      uses: 0,
      sent: new Set<number>(),
      awaited: new Array<number>(warps).fill(0),
      cargo: [],
      arrived: 0,
      pending: order.newClock(),
      done: order.newClock(),
    }));
  }

  send(s: Extract<Statement, { kind: "send" }>, site: Standing): WarpRun {
    const { scope, judge } = site;
    const alone = isAlone(site);
    if (!alone && (site.warps < site.ofBlock || site.warpAxes.length === 0))
      refuse(site, `what one thread of a block sends stands in loops over all its ${site.team}s`);
    if (alone && site.warps > 1) refuse(site, `${site.warps} threads on their own send the same`);
    const at = this.numberOf(s.arrival, site, "an engine");
    const when = s.when && compileIndex(s.when, scope);
    const boxes = s.copies.map((copy) => ({ copy, bring: compileBox(copy, site) }));
    const isShared = s.copies.some((copy) => copy.group === "cluster");
    const senders = isShared ? site.blocks : 1;
    return (warp) => {
      if (warp.inBlock !== site.first || (when && when(warp.env) === 0)) return;
      for (const block of isShared ? upTo(site.blocks) : [warp.block]) {
        const number = this.inBlock(at(warp), s.arrival, warp, block);
        const stage = this.stageAt(number);
        const late = [...(this.awaiting.get(s.arrival.name) ?? [])].find((n) => (stage.awaited[n] ?? 0) < stage.uses);
        const missing = alone ? "an arrival that the sender awaits" : "a barrier of the block";
        if (late !== undefined)
          refuseAt(
            site,
            warp,
            `the stage is sent for again, and ${agentName(site, late)} has not awaited its last use: missing: ${missing}`,
          );
        if (stage.sent.has(warp.block))
          refuseAt(site, warp, "the stage is sent for again before the other blocks of the cluster have sent");
        stage.sent.add(warp.block);
        // The engine starts with the requesting thread's knowledge.
        const engine = this.engineOf(number, warp.block);
        const clock = judge.order.newClock();
        judge.order.release(warp.number, clock);
        judge.order.acquire(engine, clock);
        judge.begin(site, engine, warp.env);
        judge.lane = ALL_LANES;
        if (isShared) this.barriers.read(number);
        for (const { copy, bring } of boxes)
          if (block === warp.block || copy.group === "cluster") stage.cargo.push(bring(warp, block - warp.block));
        if (stage.sent.size < senders) continue;
        stage.sent.clear();
        stage.uses++;
        if (site.copies === "early") arrive(stage);
      }
    };
  }

  await(
    s: Extract<Statement, { kind: "await" }>,
    site: Standing,
  ): { readonly isThere: (warp: Warp) => boolean; readonly run: WarpRun } {
    const { scope, judge, blocks } = site;
    const at = this.numberOf(s.arrival, site);
    const byTeams = this.context.arrivals.some((a) => a.name === s.arrival.name && a.by !== undefined);
    const use = compileIndex(s.use, scope);
    const when = s.when && compileIndex(s.when, scope);
    const asks = (warp: Warp): boolean => when?.(warp.env) !== 0;
    const awaiting = this.awaiting.get(s.arrival.name) ?? new Set();
    for (let n = site.first; n < site.first + site.warps; n++) awaiting.add(n);
    this.awaiting.set(s.arrival.name, awaiting);
    return {
      isThere: (warp) => {
        if (!asks(warp)) return true;
        const { uses } = this.stageAt(at(warp));
        const awaited = use(warp.env);
        if (awaited !== uses && awaited !== uses - 1)
          refuseAt(
            site,
            warp,
            `use ${awaited} is awaited and ${uses} have been: a wait knows their parity alone, and passes at once or never`,
          );
        return awaited < uses;
      },
      run: (warp) => {
        if (!asks(warp)) return;
        const number = at(warp);
        const stage = this.stageAt(number);
        arrive(stage);
        stage.awaited[warp.inBlock] = use(warp.env) + 1;
        if (byTeams) return judge.order.acquire(warp.number, stage.done);
        const clock = judge.order.newClock();
        for (const sender of upTo(blocks)) judge.order.release(this.engineOf(number, sender), clock);
        judge.order.acquire(warp.number, clock);
      },
    };
  }

  arrive(s: Extract<Statement, { kind: "arrive" }>, site: Standing): WarpRun {
    const { scope, judge, teams } = site;
    if (site.warps !== teams || site.warpAxes.length === 0 || isAlone(site))
      refuse(site, `a stage is free when all ${site.team}s have arrived: it stands in loops over all of them`);
    const at = this.numberOf(s.arrival, site, s.group ? "teams of the cluster" : "teams");
    const when = s.when && compileIndex(s.when, scope);
    const arriving = s.group ? teams * site.blocks : teams;
    return (warp) => {
      if (when && when(warp.env) === 0) return;
      for (const block of s.group ? upTo(site.blocks) : [warp.block]) {
        const number = this.inBlock(at(warp), s.arrival, warp, block);
        const stage = this.stageAt(number);
        if (s.group) {
          judge.begin(site, warp.number, warp.env);
          this.barriers.read(number);
        }
        judge.order.release(warp.number, stage.pending);
        stage.arrived++;
        if (stage.arrived < arriving) continue;
        stage.uses++;
        stage.arrived = 0;
        stage.done = stage.pending;
        stage.pending = judge.order.newClock();
      }
    };
  }

  /** A block begins or ends its barriers, so that uses by other blocks that are not synchronised with it conflict. */
  own(block: number): void {
    let first = 0;
    for (const { stages } of this.context.arrivals) {
      const each = stages / this.context.blocks;
      for (let i = 0; i < each; i++) this.barriers.write(first + block * each + i);
      first += stages;
    }
  }

  /** The agent that fills a stage for the thread of a block that sends. */
  private engineOf(stage: number, sender: number): number {
    const { ofBlock, blocks } = this.context;
    return ofBlock * blocks + stage * blocks + sender;
  }

  /** The same stage of another block of the cluster. */
  private inBlock(number: number, { name }: ArrivalAt, warp: Warp, block: number): number {
    const stages = withName(this.context.arrivals, name)?.stages ?? 0;
    return number + (block - warp.block) * (stages / this.context.blocks);
  }

  private stageAt(number: number): Stage {
    return this.stages[number] ?? internal(`no arrival ${number}`);
  }

  /** The number of a stage among the stages of all arrivals. @param by what must complete it */
  private numberOf({ name, stage }: ArrivalAt, site: Standing, by?: Completion): (warp: Warp) => number {
    const { arrivals, scope } = this.context;
    const found = arrivals.findIndex((a) => a.name === name);
    const declared = arrivals[found];
    if (!declared) refuse(site, `no arrivals are called ${name}`);
    const own = declared.by ?? "an engine";
    if (by !== undefined && by !== own) refuse(site, `${name} is completed by ${own}, not by ${by}`);
    const first = sumOf(arrivals.slice(0, found), (a) => a.stages);
    const index = compileIndex(stage, scope);
    return ({ env }) => {
      const i = index(env);
      if (i < 0 || i >= declared.stages) refuse(site, `${name} has ${declared.stages} stages, and no ${i}`);
      return first + i;
    };
  }
}

type Completion = "an engine" | NonNullable<BlockContext["arrivals"][number]["by"]>;

function arrive({ cargo }: Stage): void {
  for (const bring of cargo.splice(0)) bring();
}

/** The element that an engine copies, and the condition under which it is needed. */
function sourceOf(value: Expr, site: Standing): { readonly source: Access; readonly asked: Expr | undefined } {
  const [source, ...more] = outermostAccessesIn(value);
  if (!source || more.length > 0) refuse(site, "an engine copies one tensor, filled with zeros outside");
  if (value.kind === "access") return { source, asked: undefined };
  if (value.kind !== "select" || value.whenTrue !== source) refuse(site, "an engine cannot compute");
  return { source, asked: value.condition };
}

/** A place that is not needed, where the engine may bring anything. */
const ANYTHING = -2;

/** The element that an engine brings to a place of a tile according to a view: an element of its tensor, or -1 outside. */
function compileView(
  view: TensorView,
  { shape, places }: Buffer,
  { scope }: BlockContext,
): (warp: Warp) => (row: number, column: number) => number {
  const at = view.at.map((e) => compileIndex(e, scope));
  const offsets = view.rows.kind === "box" ? [] : view.rows.offsets.map((e) => compileIndex(e, scope));
  const below = shape.map((_, i) => product(shape.slice(i + 1)));
  return ({ env }) => {
    const first = at.map((e) => e(env));
    const by = offsets.map((e) => e(env));
    return (row, column) => {
      let flat = 0;
      for (const [i, coordinate] of viewedCoordinates(view, first, by, row, column).entries()) {
        const { own = [], extent = 0 } = view.dims[i] ?? {};
        if (coordinate < 0 || coordinate >= extent) return -1;
        let rest = coordinate;
        for (const { position, extent: count } of own) {
          flat += (rest % count) * (below[position] ?? 0);
          rest = Math.floor(rest / count);
        }
      }
      return places?.[flat] ?? flat;
    };
  };
}

/** Records an engine's reads and writes, `further` blocks on in the cluster. The returned function transfers the values. */
function compileBox({ axes, equation, view }: Copy, site: Standing): (warp: Warp, further: number) => () => void {
  const { scope, scratch, inputs } = site;
  const { target, value } = equation;
  const ring = scratch.get(target.tensor);
  if (ring?.scope !== "shared") refuse(site, `an engine fills shared memory, and ${target.tensor} is none`);
  const { source, asked } = sourceOf(value, site);
  const isTensor = inputs.has(source.tensor) || scratch.get(source.tensor)?.outside !== undefined;
  if (!isTensor) refuse(site, `an engine copies what zeros lie around, and ${source.tensor} has none`);
  const tensor = scope.buffer(source.tensor);
  if (!view) refuse(site, `an engine is told of a view of ${source.tensor}, and there is none`);
  if (scope.identity !== 0) refuse(site, `what lies outside is ${scope.identity}, and an engine fills with 0`);
  const to = scope.buffer(target.tensor);
  const place = compilePlace(target, scope);
  const origin: Evaluate = compilePlace(source, scope);
  const isAsked: Evaluate = asked ? compileIndex(asked, scope) : () => 1;
  const brings = compileView(view, tensor, site);
  const [inner] = view.dims;
  const begins = view.at.map((e) => compileIndex(e, scope));
  const digits = axes.map(({ name, extent }) => ({ slot: scope.slot(name), extent }));
  const size = pointsIn(axes);
  const columns = axes.at(-1)?.extent ?? 1;
  const named = (at: number): string => (at < 0 ? "a zero" : elementAt(site, source.tensor, at));
  return (warp, further) => {
    const elsewhere = further * (to.values.length / site.blocks);
    const places = new Int32Array(size);
    const origins = new Int32Array(size);
    const brought = brings(warp);
    const first = begins.map((begin) => begin(warp.env));
    const begun = (first[0] ?? 0) * bytesOf(ring.dtype);
    if (begun % BEGINNING_BYTES !== 0)
      refuseAt(
        site,
        warp,
        `the engine begins at multiples of ${BEGINNING_BYTES} bytes along ${inner?.name}, not at ${begun}`,
      );
    const outside = beginsOutside(view, first);
    if (outside !== undefined) refuseAt(site, warp, `the engine begins outside its walk along ${outside}`);
    for (let e = 0; e < size; e++) {
      setDigits(warp.env, digits, e);
      places[e] = place(warp.env);
      origins[e] = isAsked(warp.env) === 0 ? ANYTHING : origin(warp.env);
      const got = brought(Math.floor(e / columns), e % columns);
      if (origins[e] !== ANYTHING && got !== origins[e])
        refuseAt(site, warp, `the engine brings ${named(got)} where ${named(origins[e] ?? -1)} is asked for`);
    }
    if (places.includes(-1)) refuseAt(site, warp, `the copy leaves ${target.tensor}`);
    for (let e = 0; e < size; e++) {
      places[e] = (places[e] ?? 0) + elsewhere;
      to.watch?.write(places[e] ?? 0);
      if ((origins[e] ?? -1) >= 0) tensor.watch?.read(origins[e] ?? 0);
    }
    return () => {
      for (let e = 0; e < size; e++) {
        const at = origins[e] ?? ANYTHING;
        to.values[places[e] ?? 0] = at === ANYTHING ? Number.NaN : at < 0 ? 0 : (tensor.values[at] ?? Number.NaN);
      }
    };
  };
}

/**
 * A copy of shared memory to the output by the engine, which reads what has been published, at any time until it is awaited. The first thread of the
 * team asks for it and alone knows when it has ended.
 */
export function compileStore(copy: Copy, site: Standing): WarpRun {
  const { axes, equation, view, group } = copy;
  const { scope, scratch, inputs, judge } = site;
  const { target, value, where } = equation;
  if (group !== site.team) refuse(site, `a ${site.team} stores its tile, not a ${group}`);
  if (value.kind !== "access" || scratch.get(value.tensor)?.scope !== "shared")
    refuse(site, "an engine stores what lies in shared memory, and computes nothing");
  if (inputs.has(target.tensor)) refuse(site, `${target.tensor} is an input: nothing may write it`);
  if (view?.rows.kind !== "box") refuse(site, `an engine is told of a box of ${target.tensor}, and there is none`);
  const from = scope.buffer(value.tensor);
  const to = scope.buffer(target.tensor);
  if (from.dtype !== to.dtype)
    refuse(site, `an engine cannot compute: ${value.tensor} and ${target.tensor} differ in type`);
  const origin = compilePlace(value, scope);
  const place = compilePlace(target, scope);
  const holds = where && compileIndex(where, scope);
  const stores = compileView(view, to, site);
  const digits = axes.map(({ name, extent }) => ({ slot: scope.slot(name), extent }));
  const size = pointsIn(axes);
  const columns = axes.at(-1)?.extent ?? 1;
  return (warp) => {
    judge.begin(site, warp.number, warp.env, "stores");
    judge.lane = 0;
    const stored = stores(warp);
    const moves: (readonly [to: number, from: number])[] = [];
    for (let e = 0; e < size; e++) {
      setDigits(warp.env, digits, e);
      const got = stored(Math.floor(e / columns), e % columns);
      const asked = holds && holds(warp.env) === 0 ? -1 : place(warp.env);
      if (got !== asked)
        refuseAt(
          site,
          warp,
          `the engine stores to ${got < 0 ? "nothing" : elementAt(site, target.tensor, got)} what is for ${asked < 0 ? "nothing" : elementAt(site, target.tensor, asked)}`,
        );
      if (asked < 0) continue;
      const source = origin(warp.env);
      if (source < 0) refuseAt(site, warp, `the copy leaves ${value.tensor}`);
      from.watch?.read(source, true);
      to.watch?.write(asked);
      moves.push([asked, source]);
    }
    const arrive = (): void => {
      for (const [into, source] of moves) to.values[into] = from.values[source] ?? Number.NaN;
    };
    if (site.copies === "early") arrive();
    else addTo(warp.cargo, judge.order.sentOff(warp.number, "stores").flight, arrive);
    judge.order.commit(warp.number, "stores");
  };
}
