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
 *
 * The reads of a thread: an element that several products need is read once into a register, and contiguous
 * elements are read together.
 *
 *     in_held[0,lane] = in[..]
 *     w_held[neighbour,lane] = w[.., neighbour]   (neighbour in 0..4 at once)
 *
 * Lowers the additional assignments of an epilogue to threads: one more kernel for each, whose lanes lie along its innermost axis.
 *
 *     z[b,i*(i-1)/2+j+8] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]
 *
 *       for at block b_beside in 0..4
 *         for lanes lane in 0..32
 *           z[b_beside,lane] = x[b_beside,0,lane] where lane < 8
 */

import { affineForm, type Extents } from "../../abstraction/affine.ts";
import type { ThreadSchedule } from "../../abstraction/candidate.ts";
import { present, sumOf, upTo } from "../../abstraction/collections.ts";
import { type Axis, type Computation, identityIn, targetOf } from "../../abstraction/computation.ts";
import { partsOf, storingAt } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  axesIn,
  axis,
  binary,
  compare,
  type Expr,
  number,
  plus,
  printAccess,
  rewrite,
  substitute,
  substituteAccess,
  substituteAxes,
  substituteEach,
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
import type { ThreadAccess, ThreadContext } from "../schedule/thread/context.ts";
import { isKept, productOf, runOf, THREAD_KIND } from "../schedule/thread/schedule.ts";
import { loopsAt, pointsOver, ThreadPlaces } from "./thread-places.ts";

/** The nest of a computation under a schedule of threads. @throws Error if the schedule has a problem */
export function lowerThreads(context: ThreadContext, schedule: ThreadSchedule): LoopNest {
  const problem = problemIn(THREAD_KIND, context, schedule);
  if (problem !== undefined) internal(`the schedule cannot be lowered: ${problem}`);
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
    const stated = substituteEach(this.context.conditions, counters);
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
    const index = substituteEach(this.computation.equation.target.index, counters);
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

// ---- reads --------------------------------------------------------------------------------------------------------------------------------

/** The elements of one access that are held in registers. */
interface Held {
  readonly name: string;
  readonly access: ThreadAccess;
  /** The register of each distinct element; see {@link elementAt}. */
  readonly registers: Map<string, number>;
  readonly loads: Scalar[];
}

class ThreadReads {
  private readonly places: ThreadPlaces;
  private readonly held: readonly Held[];

  constructor({ accesses }: ThreadContext, places: ThreadPlaces) {
    this.places = places;
    this.held = accesses.map((a, i) => {
      const before = accesses.slice(0, i).filter((b) => b.tensor === a.tensor).length;
      const name = places.names.fresh(`${a.tensor.name}_held${before === 0 ? "" : before}_`);
      return { name, access: a, registers: new Map(), loads: [] };
    });
  }

  /** The loads that fill the registers requested so far. */
  loads(): readonly Scalar[] {
    return this.held.flatMap((h) => h.loads);
  }

  vectors(): readonly VectorFile[] {
    return this.held.map(({ name, access: { tensor }, registers }) => ({
      name,
      dtype: tensor.dtype,
      lanes: this.places.width,
      count: registers.size,
    }));
  }

  /** The register that holds an element. Elements of an aligned run are contiguous in memory and loaded together. */
  inRegister(e: Access, point: Extents): Access {
    const held =
      this.held.find((h) => printAccess(h.access.access) === printAccess(e)) ??
      internal(`${printAccess(e)} is read and not known`);
    const { registers, access: read, loads, name } = held;
    const known = registers.get(elementAt(read, point));
    if (known !== undefined) return access(name, [number(known), axis(this.places.lane)]);
    const from = registers.size;
    const along = this.places.dealt.find((l) => runOf(read, l) > 1);
    if (along) {
      const run = runOf(read, along);
      const place = point[along.name] ?? 0;
      const neighbour = (i: number): Extents => ({ ...point, [along.name]: place - (place % run) + i });
      for (let i = 0; i < run; i++) registers.set(elementAt(read, neighbour(i)), from + i);
      const together = { name: this.places.names.fresh("neighbour"), extent: run };
      const step = axis(together.name);
      const target = access(name, [plus(from, step), axis(this.places.lane)]);
      loads.push({ ...assign(target, this.accessAt(read, neighbour(0), { [along.name]: step })), together });
    } else {
      registers.set(elementAt(read, point), from);
      loads.push(assign(access(name, [number(from), axis(this.places.lane)]), this.accessAt(read, point)));
    }
    return this.inRegister(e, point);
  }

  /** @param further steps of a loop beyond the point */
  private accessAt(
    { access: read }: ThreadAccess,
    point: Extents,
    further: Readonly<Record<string, Expr>> = {},
  ): Access {
    const counters = [...this.places.counters(point)].map(([n, c]) => [n, plus(c, further[n] ?? 0)] as const);
    return substituteAccess(read, new Map(counters));
  }
}

/** A key for the element that an access reads at a point: equal elements have equal keys. */
function elementAt({ access: { index } }: ThreadAccess, point: Extents): string {
  const moved = index.map((e) => {
    const form = affineForm(e);
    if (form) return sumOf([...form.terms], ([name, factor]) => factor * (point[name] ?? 0));
    return axesIn(e).map((name) => point[name] ?? 0);
  });
  return JSON.stringify(moved);
}

// ---- additional assignments ---------------------------------------------------------------------------------------------------------------

/** Each kernel with the barrier before it; empty if there are no such assignments. */
function besideThreads(computation: Computation, places: ThreadPlaces): readonly Statement[] {
  const { names, width, lane } = places;
  return partsOf(computation).beside.flatMap(({ equation, axes }) => {
    const name = (a: Axis): string => names.fresh(`${a.name}_beside`);
    const innermost = axes.at(-1);
    const outer = axes.slice(0, -1).filter((a) => a.extent > 1);
    const counters = new Map(axes.map((a) => [a.name, outer.includes(a) ? axis(name(a)) : number(0)]));
    const blocks = outer.map((a): [string, number] => [name(a), a.extent]);
    const where: Expr[] = innermost ? [] : [compare("==", axis(lane), 0)];
    if (innermost) {
      const chunks = Math.ceil(innermost.extent / width);
      if (chunks > 1) blocks.push([name(innermost), chunks]);
      const at = plus(times(width, chunks > 1 ? axis(name(innermost)) : 0), axis(lane));
      counters.set(innermost.name, at);
      if (chunks * width > innermost.extent) where.push(compare("<", at, innermost.extent));
    }
    const placed = substituteAxes(equation, counters);
    if (placed.where !== undefined) where.push(placed.where);
    const dealt = blocks.length > 0 ? blocks : [[names.fresh("only_beside"), 1] as const];
    return [
      { kind: "barrier" },
      ...loopsAt("block", dealt, [places.lanes([assign(placed.target, placed.value, where)])]),
    ];
  });
}
