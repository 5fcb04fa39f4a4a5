/**
 * @file The reads of a thread: an element that several products need is read once into a register, and contiguous
 * elements are read together.
 *
 *     in_held[0,lane] = in[..]
 *     w_held[neighbour,lane] = w[.., neighbour]   (neighbour in 0..4 at once)
 */

import { affineForm, type Extents } from "../../abstraction/affine.ts";
import { sumOf } from "../../abstraction/collections.ts";
import {
  type Access,
  access,
  axesIn,
  axis,
  type Expr,
  number,
  plus,
  printAccess,
  substitute,
} from "../../abstraction/expression.ts";
import { assign, type Scalar, type VectorFile } from "../../abstraction/loop-nest.ts";
import type { ThreadAccess, ThreadContext } from "../schedule/thread/context.ts";
import { runOf } from "../schedule/thread/schedule.ts";
import type { ThreadPlaces } from "./thread-places.ts";

/** The elements of one access that are held in registers. */
interface Held {
  readonly name: string;
  readonly access: ThreadAccess;
  /** The register of each distinct element; see {@link elementAt}. */
  readonly registers: Map<string, number>;
  readonly loads: Scalar[];
}

export class ThreadReads {
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
    const held = this.held.find((h) => printAccess(h.access.access) === printAccess(e));
    if (!held) throw new Error(`internal: ${printAccess(e)} is read and not known`);
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
    return { ...read, index: read.index.map((i) => substitute(i, new Map(counters), "index")) };
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
