/**
 * @file Lowers a computation to threads that each sum a few elements: blocks, warps and lanes dealt to the loops, sums in registers.
 *
 *     for at block c_block, p_block, q_block             what lanes, warps and neighbours leave of kept loops
 *       for at warp p_warp                               warps
 *         for lanes lane in 0..32
 *           sum[0..4,lane] = 0
 *         for c_step                                     what they leave of summed loops
 *           for lanes lane in 0..32
 *             in_held[0,lane] = in[..]                   what several products read is read once; neighbours at once
 *             sum[0,lane] += f32(in_held[0,lane]) * f32(w_held[0,lane])
 *         for lanes lane in 0..32
 *           sum[0,lane] = sum[0,lane] + sum[0,lane^16]   lanes along a summed loop: shuffles
 *         ...                                            warps along one: through shared memory; blocks: through the workspace
 *         for lanes lane in 0..32
 *           y[..] = f16(sum[0,lane])
 */

import { affineForm, type Extents, pointsOf } from "../../abstraction/affine.ts";
import type { ThreadSchedule } from "../../abstraction/candidate.ts";
import { type Computation, targetOf } from "../../abstraction/computation.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import { type Equation, identityOf } from "../../abstraction/equation.ts";
import {
  type Access,
  access,
  and,
  axesIn,
  axis,
  binary,
  compare,
  type Expr,
  number,
  printAccess,
  rewrite,
  substitute,
} from "../../abstraction/expression.ts";
import {
  type LoopMode,
  type LoopNest,
  loop,
  type Scratch,
  type Statement,
  type VectorFile,
} from "../../abstraction/loop-nest.ts";
import { problemIn } from "../schedule/schedules.ts";
import type { ThreadAccess, ThreadContext } from "../schedule/thread/context.ts";
import { type DealtLoop, dealtLoops, isKept, productOf, runOf, THREAD_KIND } from "../schedule/thread/schedule.ts";
import { plus, times } from "./grid-places.ts";
import { FreshNames } from "./names.ts";

type Scalar = Extract<Statement, { kind: "scalar" }>;

/** The nest of a computation under a schedule of threads. @throws Error when the schedule has a problem */
export function lowerThreads(context: ThreadContext, schedule: ThreadSchedule): LoopNest {
  const problem = problemIn(THREAD_KIND, context, schedule);
  if (problem !== undefined) throw new Error(`internal: the schedule cannot be lowered: ${problem}`);
  return new Threads(context, schedule).nest();
}

/** Elements that one access holds in registers. */
interface Held {
  readonly name: string;
  readonly access: ThreadAccess;
  /** Register of each distinct element; see {@link elementAt}. */
  readonly registers: Map<string, number>;
  readonly loads: Scalar[];
}

class Threads {
  private readonly context: ThreadContext;
  private readonly computation: Computation;
  private readonly names: FreshNames;
  private readonly dealt: readonly DealtLoop[];
  private readonly lane: string;
  private readonly sum: string;
  private readonly held: readonly Held[];
  /** Points of the neighbours that a thread takes of kept and of summed loops. */
  private readonly kept: readonly Extents[];
  private readonly summed: readonly Extents[];
  /** Blocks that share each sum. */
  private readonly split: number;

  constructor(context: ThreadContext, schedule: ThreadSchedule) {
    this.context = context;
    this.computation = context.mapping.computation;
    this.names = new FreshNames(this.computation);
    this.dealt = dealtLoops(context, schedule);
    this.split = productOf(this.dealt, (l) => l.split);
    this.lane = this.names.fresh("lane");
    this.sum = this.names.fresh("sum");
    this.held = context.accesses.map((a, i) => {
      const before = context.accesses.slice(0, i).filter((b) => b.tensor === a.tensor).length;
      const name = this.names.fresh(`${a.tensor.name}_held${before === 0 ? "" : before}_`);
      return { name, access: a, registers: new Map(), loads: [] };
    });
    const points = (kind: "spatial" | "reduce"): Extents[] => {
      const own = this.dealt.filter((l) => l.kind === kind);
      return [
        ...pointsOf(
          own.map((l) => l.name),
          Object.fromEntries(own.map((l) => [l.name, l.each])),
        ),
      ];
    };
    this.kept = points("spatial");
    this.summed = points("reduce");
  }

  nest(): LoopNest {
    const { dtype } = targetOf(this.computation);
    // 1. What a step multiplies, which says what it reads.
    const products = this.summed.flatMap((at) => this.kept.map((of, i) => this.product(i, { ...of, ...at })));
    const step = [this.lanes([...this.held.flatMap((h) => h.loads), ...products])];
    const steps = this.dealt
      .filter((l) => l.steps > 1)
      .reduceRight<readonly Statement[]>((body, l) => [loop(this.word(l, "step"), l.steps, body)], step);

    // 2. From sums of threads to sums of elements, and to the output.
    const cleared = this.kept.map((_, i) => this.assign(this.sumAt(i), number(this.identity)));
    const inside = [
      this.lanes(cleared),
      ...steps,
      ...this.acrossLanes(this.sumLanes(), this.kept.length),
      ...this.acrossWarps(),
      ...this.results(),
    ];
    const main = this.at(
      "block",
      this.blocks(),
      this.at(
        "warp",
        this.dealt.filter((l) => l.warps > 1).map((l) => [this.word(l, "warp"), l.warps] as const),
        inside,
      ),
    );
    const vectors: VectorFile[] = [
      { name: this.sum, dtype, lanes: this.width, count: this.kept.length },
      ...this.held.map(({ name, access: { tensor }, registers }) => ({
        name,
        dtype: tensor.dtype,
        lanes: this.width,
        count: registers.size,
      })),
    ];
    return {
      scratch: [...this.partials(), ...this.parts()],
      registers: [],
      vectors,
      prepare: [],
      body: this.split === 1 ? main : [...main, { kind: "barrier" }, ...this.joining()],
    };
  }

  // ---- where a thread stands

  private get width(): number {
    return this.context.limits.lanes;
  }

  private get identity(): number {
    return identityOf(this.computation.equation.op, targetOf(this.computation).dtype);
  }

  private word({ name }: DealtLoop, what: "block" | "warp" | "step" | "part"): string {
    return this.names.fresh(`${name}_${what}`);
  }

  private blocks(): readonly (readonly [string, number])[] {
    const kept = this.dealt.filter(isKept).map((l) => [this.word(l, "block"), l.blocks] as const);
    const parts = this.dealt.filter((l) => l.split > 1).map((l) => [this.word(l, "part"), l.split] as const);
    const all = [...kept, ...parts].filter(([, extent]) => extent > 1);
    return all.length > 0 ? all : [[this.names.fresh("only_block"), 1]];
  }

  private at(
    mode: LoopMode,
    axes: readonly (readonly [string, number])[],
    body: readonly Statement[],
  ): readonly Statement[] {
    return axes.reduceRight((inner, [name, extent]) => [loop(name, extent, inner, mode)], body);
  }

  private lanes(body: readonly Statement[]): Statement {
    return loop(this.lane, this.width, body, "lanes");
  }

  /** Which of the lanes along a loop this one is. */
  private laneOf(l: DealtLoop): Expr {
    if (l.lanes === 1) return number(0);
    const below = this.laneWeight(l);
    const quotient = below === 1 ? axis(this.lane) : binary("/", axis(this.lane), number(below));
    return below * l.lanes === this.width ? quotient : binary("%", quotient, number(l.lanes));
  }

  private laneWeight(l: DealtLoop): number {
    return productOf(this.dealt.slice(this.dealt.indexOf(l) + 1), (other) => other.lanes);
  }

  private warpOf(l: DealtLoop): Expr {
    return l.warps === 1 ? number(0) : axis(this.word(l, "warp"));
  }

  /** The first of a thread's neighbours along a loop. */
  private firstOf(l: DealtLoop): Expr {
    const own = (extent: number, word: "block" | "step" | "part"): Expr =>
      extent === 1 ? number(0) : axis(this.word(l, word));
    const outer = isKept(l) ? own(l.blocks, "block") : plus(own(l.steps, "step"), times(l.steps, own(l.split, "part")));
    return times(l.each, plus(this.laneOf(l), times(l.lanes, plus(this.warpOf(l), times(l.warps, outer)))));
  }

  /** Every loop at one of a thread's neighbours. */
  private counters(point: Extents): ReadonlyMap<string, Expr> {
    return new Map(this.dealt.map((l) => [l.name, plus(this.firstOf(l), number(point[l.name] ?? 0))]));
  }

  private beyond(kind: "spatial" | "reduce", counters: ReadonlyMap<string, Expr>): Expr[] {
    return this.dealt
      .filter((l) => l.kind === kind && l.beyond)
      .map((l) => compare("<", counters.get(l.name) ?? number(0), number(l.extent)));
  }

  // ---- sums

  private sumAt(register: number, lane: Expr = axis(this.lane)): Access {
    return access(this.sum, [number(register), lane]);
  }

  private assign(target: Access, value: Expr, where: readonly Expr[] = [], op: Equation["op"] = "="): Scalar {
    const condition = where.length === 0 ? {} : { where: where.reduce(and) };
    return { kind: "scalar", equation: { target, op, value, ...condition } };
  }

  /** One term of one sum, of elements in registers. */
  private product(register: number, point: Extents): Scalar {
    const { equation } = this.computation;
    const counters = this.counters(point);
    const read = rewrite(equation.value, (e) => (e.kind === "access" ? this.inRegister(e, point) : e));
    const value = substitute(read, counters);
    const stated = this.context.conditions.map((part) => substitute(part, counters, "index"));
    return this.assign(this.sumAt(register), value, [...this.beyond("reduce", counters), ...stated], equation.op);
  }

  /** The register that an element is read into: neighbours in memory, of which the first begins a run, are read at once. */
  private inRegister(e: Access, point: Extents): Access {
    const held = this.held.find((h) => printAccess(h.access.access) === printAccess(e));
    if (!held) throw new Error(`internal: ${printAccess(e)} is read and not known`);
    const { registers, access: read, loads, name } = held;
    const known = registers.get(elementAt(read, point));
    if (known !== undefined) return access(name, [number(known), axis(this.lane)]);
    const from = registers.size;
    const along = this.dealt.find((l) => runOf(read.widths.get(l.name) ?? 1, l.each) > 1);
    if (along) {
      const run = runOf(read.widths.get(along.name) ?? 1, along.each);
      const place = point[along.name] ?? 0;
      const neighbour = (i: number): Extents => ({ ...point, [along.name]: place - (place % run) + i });
      for (let i = 0; i < run; i++) registers.set(elementAt(read, neighbour(i)), from + i);
      const together = { name: this.names.fresh("neighbour"), extent: run };
      const step = axis(together.name);
      const target = access(name, [plus(number(from), step), axis(this.lane)]);
      loads.push({ ...this.assign(target, this.accessAt(read, neighbour(0), { [along.name]: step })), together });
    } else {
      registers.set(elementAt(read, point), from);
      loads.push(this.assign(access(name, [number(from), axis(this.lane)]), this.accessAt(read, point)));
    }
    return this.inRegister(e, point);
  }

  /** @param further steps of a loop beyond the point */
  private accessAt(
    { access: read }: ThreadAccess,
    point: Extents,
    further: Readonly<Record<string, Expr>> = {},
  ): Access {
    const counters = [...this.counters(point)].map(([n, c]) => [n, plus(c, further[n] ?? number(0))] as const);
    return { ...read, index: read.index.map((i) => substitute(i, new Map(counters), "index")) };
  }

  // ---- from sums of threads to sums of elements

  /** What flips a lane number to that of a partner along a summed loop, the farthest first. */
  private sumLanes(): number[] {
    return this.dealt.flatMap((l) => {
      const flips: number[] = [];
      if (!isKept(l)) for (let n = l.lanes / 2; n >= 1; n /= 2) flips.push(n * this.laneWeight(l));
      return flips;
    });
  }

  /** Every lane of those that share a sum has all of it. */
  private acrossLanes(flips: readonly number[], sums: number): readonly Statement[] {
    const added = flips.flatMap((flip) =>
      Array.from({ length: sums }, (_, i) =>
        this.assign(
          this.sumAt(i),
          this.sumAt(i, binary("^", axis(this.lane), number(flip))),
          [],
          this.computation.equation.op,
        ),
      ),
    );
    return added.length === 0 ? [] : [this.lanes(added)];
  }

  private partials(): Scratch[] {
    if (this.dealt.every((l) => isKept(l) || l.warps === 1)) return [];
    const dims = [
      ...this.dealt.filter((l) => l.warps > 1).map((l) => ({ name: this.word(l, "warp"), extent: l.warps })),
      { name: this.sum, extent: this.kept.length },
      { name: this.lane, extent: this.width },
    ];
    const { dtype } = targetOf(this.computation);
    return [
      { name: this.names.fresh("partial"), dtype, elements: productOf(dims, (d) => d.extent), scope: "shared", dims },
    ];
  }

  /** Each warp leaves its part, and adds those of its partners to its own. */
  private acrossWarps(): readonly Statement[] {
    const [partial] = this.partials();
    if (!partial) return [];
    const dealt = this.dealt.filter((l) => l.warps > 1);
    const own = dealt.map((l) => this.warpOf(l));
    const left = this.kept.map((_, i) =>
      this.assign(access(partial.name, [...own, number(i), axis(this.lane)]), this.sumAt(i)),
    );
    const summed = dealt.filter((l) => !isKept(l));
    const partners = [
      ...pointsOf(
        summed.map((l) => l.name),
        Object.fromEntries(summed.map((l) => [l.name, l.warps])),
      ),
    ];
    const added = this.kept.flatMap((_, i) => [
      this.assign(this.sumAt(i), number(this.identity)),
      ...partners.map((at) => {
        const warp = dealt.map((l) => (isKept(l) ? this.warpOf(l) : number(at[l.name] ?? 0)));
        return this.assign(
          this.sumAt(i),
          access(partial.name, [...warp, number(i), axis(this.lane)]),
          [],
          this.computation.equation.op,
        );
      }),
    ]);
    return [this.lanes(left), { kind: "barrier", group: "block" }, this.lanes(added)];
  }

  /** The first of the lanes and warps that share a sum writes it: to the output, or as one block's part. */
  private results(): readonly Statement[] {
    const first = this.dealt
      .filter((l) => !isKept(l))
      .flatMap((l) => [
        ...(l.lanes > 1 ? [compare("==", this.laneOf(l), number(0))] : []),
        ...(l.warps > 1 ? [compare("==", this.warpOf(l), number(0))] : []),
      ]);
    const { widths } = this.context.result;
    const along = this.split === 1 ? this.dealt.find((l) => runOf(widths.get(l.name) ?? 1, l.each) > 1) : undefined;
    const run = along ? runOf(widths.get(along.name) ?? 1, along.each) : 1;
    const together = { name: this.names.fresh("neighbour"), extent: run };
    const written = this.kept.flatMap((point, i): Scalar[] => {
      const place = along ? (point[along.name] ?? 0) : 0;
      if (place % run !== 0) return [];
      const counters = new Map(this.counters(point));
      const where = [...first, ...this.beyond("spatial", counters)];
      if (this.split > 1) return [this.assign(this.partAt(counters, this.partNumber()), this.sumAt(i), where)];
      if (!along) return [this.output(counters, this.sumAt(i), where)];
      // Sums of neighbours are as far apart as the loops inside theirs go.
      const apart = productOf(this.dealt.slice(this.dealt.indexOf(along) + 1).filter(isKept), (l) => l.each);
      counters.set(along.name, plus(counters.get(along.name) ?? number(0), axis(together.name)));
      const sum = access(this.sum, [plus(number(i), times(apart, axis(together.name))), axis(this.lane)]);
      return [{ ...this.output(counters, sum, where), together }];
    });
    return [this.lanes(written)];
  }

  private output(counters: ReadonlyMap<string, Expr>, sum: Expr, where: readonly Expr[]): Scalar {
    const { equation, epilogue } = this.computation;
    const index = equation.target.index.map((e) => substitute(e, counters, "index"));
    const stored: Equation = epilogue
      ? epilogueAt(epilogue, index, sum)
      : { target: { ...equation.target, index }, op: "=", value: sum };
    return this.assign(stored.target, stored.value, where);
  }

  // ---- blocks that share sums

  private partNumber(): Expr {
    const shared = this.dealt.find((l) => l.split > 1);
    return shared ? axis(this.word(shared, "part")) : number(0);
  }

  private partAt(counters: ReadonlyMap<string, Expr>, part: Expr): Access {
    const kept = this.dealt.filter(isKept).map((l) => counters.get(l.name) ?? number(0));
    return access(this.names.fresh("parts"), [...kept, part]);
  }

  private parts(): Scratch[] {
    if (this.split === 1) return [];
    const dims = [
      ...this.dealt.filter(isKept).map(({ name, extent }) => ({ name: this.names.fresh(`${name}_of_part`), extent })),
      { name: this.names.fresh("part"), extent: this.split },
    ];
    const { dtype } = targetOf(this.computation);
    return [
      { name: this.names.fresh("parts"), dtype, elements: productOf(dims, (d) => d.extent), scope: "workspace", dims },
    ];
  }

  /** A second kernel: a warp adds up the parts of each element. */
  private joining(): readonly Statement[] {
    const kept = this.dealt.filter(isKept);
    const counters = new Map(
      kept.map((l) => [l.name, l.extent === 1 ? number(0) : axis(this.names.fresh(`${l.name}_element`))]),
    );
    const blocks = kept.flatMap((l): [string, number][] =>
      l.extent === 1 ? [] : [[this.names.fresh(`${l.name}_element`), l.extent]],
    );
    const rounds = Math.ceil(this.split / this.width);
    const added = Array.from({ length: rounds }, (_, i) => {
      const part = plus(number(i * this.width), axis(this.lane));
      const where = this.split % this.width !== 0 ? [compare("<", part, number(this.split))] : [];
      return this.assign(this.sumAt(0), this.partAt(counters, part), where, this.computation.equation.op);
    });
    const flips: number[] = [];
    for (let n = this.width / 2; n >= 1; n /= 2) flips.push(n);
    return this.at("block", blocks.length > 0 ? blocks : [[this.names.fresh("only_element"), 1]], [
      this.lanes([this.assign(this.sumAt(0), number(this.identity)), ...added]),
      ...this.acrossLanes(flips, 1),
      this.lanes([this.output(counters, this.sumAt(0), [compare("==", axis(this.lane), number(0))])]),
    ]);
  }
}

/** Which element of those around a thread an access reads at one of its points: the same text for the same element. */
function elementAt({ access: { index } }: ThreadAccess, point: Extents): string {
  const moved = index.map((e) => {
    const form = affineForm(e);
    if (form) return [...form.terms].reduce((sum, [name, factor]) => sum + factor * (point[name] ?? 0), 0);
    return axesIn(e).map((name) => point[name] ?? 0);
  });
  return JSON.stringify(moved);
}
