/**
 * @file Lowers a computation to threads that each sum a few elements. Loops are divided among blocks, warps and lanes;
 * sums are in registers.
 *
 *     for at block c_block, p_block, q_block             the kept points that lanes, warps and neighbours do not cover
 *       for at warp p_warp                               warps
 *         for lanes lane in 0..32
 *           sum[0..4,lane] = 0
 *         for c_step                                     the rest of the summed loops
 *           for lanes lane in 0..32
 *             in_held[0,lane] = in[..]                   an element of several products is loaded once; neighbours are loaded together
 *             sum[0,lane] += f32(in_held[0,lane]) * f32(w_held[0,lane])
 *         for lanes lane in 0..32
 *           sum[0,lane] = sum[0,lane] + sum[0,lane^16]   lanes along a summed loop: shuffles
 *         ...                                            warps along one: shared memory; blocks: the workspace
 *         for lanes lane in 0..32
 *           y[..] = f16(sum[0,lane])
 */

import type { Extents } from "../../abstraction/affine.ts";
import type { ThreadSchedule } from "../../abstraction/candidate.ts";
import { present, upTo } from "../../abstraction/collections.ts";
import { type Computation, identityIn, targetOf } from "../../abstraction/computation.ts";
import { storingAt } from "../../abstraction/epilogue.ts";
import {
  type Access,
  access,
  axis,
  binary,
  compare,
  type Expr,
  number,
  plus,
  rewrite,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import {
  assign,
  type LoopNest,
  loop,
  type Scalar,
  type Scratch,
  type Statement,
  type VectorFile,
} from "../../abstraction/loop-nest.ts";
import { halvesOf } from "../schedule/chain-shape.ts";
import { problemIn } from "../schedule/schedules.ts";
import type { ThreadContext } from "../schedule/thread/context.ts";
import { isKept, productOf, runOf, THREAD_KIND } from "../schedule/thread/schedule.ts";
import { besideThreads } from "./thread-beside.ts";
import { loopsAt, pointsOver, ThreadPlaces } from "./thread-places.ts";
import { ThreadReads } from "./thread-reads.ts";

/** The nest of a computation under a schedule of threads. @throws Error if the schedule has a problem */
export function lowerThreads(context: ThreadContext, schedule: ThreadSchedule): LoopNest {
  const problem = problemIn(THREAD_KIND, context, schedule);
  if (problem !== undefined) throw new Error(`internal: the schedule cannot be lowered: ${problem}`);
  return new Threads(context, schedule).nest();
}

class Threads extends ThreadPlaces {
  private readonly computation: Computation;
  private readonly reads: ThreadReads;
  private readonly sum: string;
  /** All combinations of a thread's neighbours along the kept loops, and along the summed loops. */
  private readonly kept: readonly Extents[];
  private readonly summed: readonly Extents[];
  /** The barrier between the kernel that stores partial sums and the one that adds them up. */
  private readonly joined: Statement;

  constructor(context: ThreadContext, schedule: ThreadSchedule) {
    super(context, schedule);
    this.computation = context.mapping.computation;
    this.sum = this.names.fresh("sum");
    this.reads = new ThreadReads(context, this);
    this.kept = this.neighbours("spatial");
    this.summed = this.neighbours("reduce");
    this.joined = { kind: "barrier", ...(schedule.launch && { early: true }) };
  }

  nest(): LoopNest {
    const { dtype } = targetOf(this.computation);
    // 1. The products of a step, which determine the reads.
    const products = this.summed.flatMap((at) => this.kept.map((of, i) => this.product(i, { ...of, ...at })));
    const step = [this.lanes([...this.reads.loads(), ...products])];
    const steps = this.dealt
      .filter((l) => l.steps > 1)
      .reduceRight<readonly Statement[]>((body, l) => [loop(this.word(l, "step"), l.steps, body)], step);

    // 2. Reduction across threads, and the stores to the output.
    const cleared = this.kept.map((_, i) => assign(this.sumAt(i), number(this.identity)));
    const inside = [
      this.lanes(cleared),
      ...steps,
      ...this.acrossLanes(this.flips(), this.kept.length),
      ...this.acrossWarps(),
      ...this.results(),
    ];
    const main = loopsAt(
      "block",
      this.blocks(),
      loopsAt(
        "warp",
        this.dealt.filter((l) => l.warps > 1).map((l) => [this.word(l, "warp"), l.warps] as const),
        inside,
      ),
    );
    const vectors: VectorFile[] = [
      { name: this.sum, dtype, lanes: this.width, count: this.kept.length },
      ...this.reads.vectors(),
    ];
    return {
      scratch: [...this.partials(), ...this.parts()],
      registers: [],
      vectors,
      prepare: [],
      body: [
        ...main,
        ...(this.split === 1 ? [] : [this.joined, ...this.joining()]),
        ...besideThreads(this.computation, this),
      ],
    };
  }

  // ---- sums

  private get identity(): number {
    return identityIn(this.computation);
  }

  private sumAt(register: number, lane: Expr = axis(this.lane)): Access {
    return access(this.sum, [number(register), lane]);
  }

  /** One term of one sum, with its elements in registers. */
  private product(register: number, point: Extents): Scalar {
    const { equation } = this.computation;
    const counters = this.counters(point);
    const read = rewrite(
      equation.value,
      (e) => (e.kind === "access" ? this.reads.inRegister(e, point) : e),
      "value",
      false,
    );
    const value = substitute(read, counters);
    const stated = this.context.conditions.map((part) => substitute(part, counters, "index"));
    return assign(this.sumAt(register), value, [...this.beyond("reduce", counters), ...stated], equation.op);
  }

  // ---- from sums of threads to sums of elements

  /** A butterfly reduction: afterwards each of the lanes that share a sum holds all of it. */
  private acrossLanes(flips: readonly number[], sums: number): readonly Statement[] {
    const added = flips.flatMap((flip) =>
      upTo(sums).map((i) =>
        assign(this.sumAt(i), this.sumAt(i, binary("^", axis(this.lane), flip)), [], this.computation.equation.op),
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

  /** Each warp stores its partial sum in shared memory and adds those of its partners. */
  private acrossWarps(): readonly Statement[] {
    const [partial] = this.partials();
    if (!partial) return [];
    const dealt = this.dealt.filter((l) => l.warps > 1);
    const own = dealt.map((l) => this.warpOf(l));
    const left = this.kept.map((_, i) =>
      assign(access(partial.name, [...own, number(i), axis(this.lane)]), this.sumAt(i)),
    );
    const summed = dealt.filter((l) => !isKept(l));
    const partners = pointsOver(summed, (l) => l.warps);
    const added = this.kept.flatMap((_, i) => [
      assign(this.sumAt(i), number(this.identity)),
      ...partners.map((at) => {
        const warp = dealt.map((l) => (isKept(l) ? this.warpOf(l) : number(at[l.name] ?? 0)));
        return assign(
          this.sumAt(i),
          access(partial.name, [...warp, number(i), axis(this.lane)]),
          [],
          this.computation.equation.op,
        );
      }),
    ]);
    return [this.lanes(left), { kind: "barrier", group: "block" }, this.lanes(added)];
  }

  /** The first of the lanes and warps that share a sum writes it, to the output or as this block's partial sum. */
  private results(): readonly Statement[] {
    const first = this.dealt
      .filter((l) => !isKept(l))
      .flatMap((l) =>
        present([l.lanes > 1 && compare("==", this.laneOf(l), 0), l.warps > 1 && compare("==", this.warpOf(l), 0)]),
      );
    const { result } = this.context;
    const along = this.split === 1 ? this.dealt.find((l) => runOf(result, l) > 1) : undefined;
    const run = along ? runOf(result, along) : 1;
    const together = { name: this.names.fresh("neighbour"), extent: run };
    const written = this.kept.flatMap((point, i): Scalar[] => {
      const place = along ? (point[along.name] ?? 0) : 0;
      if (place % run !== 0) return [];
      const counters = new Map(this.counters(point));
      const where = [...first, ...this.beyond("spatial", counters)];
      if (this.split > 1) return [assign(this.partAt(counters, this.partNumber()), this.sumAt(i), where)];
      if (!along) return [this.output(counters, this.sumAt(i), where)];
      // The distance between the sums of two neighbours along this loop.
      const apart = productOf(this.dealt.slice(this.dealt.indexOf(along) + 1).filter(isKept), (l) => l.each);
      counters.set(along.name, plus(counters.get(along.name) ?? 0, axis(together.name)));
      const sum = access(this.sum, [plus(i, times(apart, axis(together.name))), axis(this.lane)]);
      return [{ ...this.output(counters, sum, where), together }];
    });
    return [this.lanes(written)];
  }

  private output(counters: ReadonlyMap<string, Expr>, sum: Expr, where: readonly Expr[]): Scalar {
    const index = this.computation.equation.target.index.map((e) => substitute(e, counters, "index"));
    const stored = storingAt(this.computation, index, sum);
    return assign(stored.target, stored.value, present([...where, stored.where]));
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

  /** The second kernel: a warp adds up the partial sums of each element. */
  private joining(): readonly Statement[] {
    const kept = this.dealt.filter(isKept);
    const counters = new Map(
      kept.map((l) => [l.name, l.extent === 1 ? number(0) : axis(this.names.fresh(`${l.name}_element`))]),
    );
    const blocks = kept.flatMap((l): [string, number][] =>
      l.extent === 1 ? [] : [[this.names.fresh(`${l.name}_element`), l.extent]],
    );
    const rounds = Math.ceil(this.split / this.width);
    const added = upTo(rounds).map((i) => {
      const part = plus(i * this.width, axis(this.lane));
      const where = this.split % this.width !== 0 ? [compare("<", part, this.split)] : [];
      return assign(this.sumAt(0), this.partAt(counters, part), where, this.computation.equation.op);
    });
    return loopsAt("block", blocks.length > 0 ? blocks : [[this.names.fresh("only_element"), 1]], [
      this.lanes([assign(this.sumAt(0), number(this.identity)), ...added]),
      ...this.acrossLanes(halvesOf(this.width / 2), 1),
      this.lanes([this.output(counters, this.sumAt(0), [compare("==", axis(this.lane), 0)])]),
    ]);
  }
}
