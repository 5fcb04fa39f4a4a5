/** @file The parts of a chain of equations that share their rows: what each computes, in which pass over the row, and where its results are kept. */

import { withName } from "../../abstraction/collections.ts";
import {
  type Access,
  access,
  accessesOf,
  type Expr,
  number,
  over,
  remainder,
  rewrite,
} from "../../abstraction/expression.ts";
import { madeBy } from "../../abstraction/program.ts";
import { type ChainPart, type RowChain, storingEquation } from "../../abstraction/row-chain.ts";

/** A part, what it makes, and when. */
export interface Timed {
  readonly part: ChainPart;
  /** The chain's name of what it makes. */
  readonly made: string;
  /** The pass over the row in which it is computed, or for one element of a row the pass after which; -1 before all. */
  readonly pass: number;
}

/** Where the elements of a row lie in a lowered program. */
export interface ChainPlaces {
  /** The numbers of the present row and column. */
  readonly row: Expr;
  column(): Expr;
  /** Where later equations of the row read what an equation has made. */
  elementOf(one: Timed): Access;
  /** Called for each element that is read or written in memory. */
  touched(element: Access): void;
}

export class ChainParts {
  readonly chain: RowChain;
  readonly all: readonly Timed[];
  private readonly places: ChainPlaces;
  private readonly byName: ReadonlyMap<string, Timed>;

  constructor(chain: RowChain, places: ChainPlaces) {
    this.chain = chain;
    this.places = places;
    this.all = timed(chain.parts);
    this.byName = new Map(this.all.map((one) => [one.made, one]));
  }

  /** A value at the present row and column. @param held what the equation's own target reads as */
  placed({ part }: Timed, value: Expr, held?: Access): Expr {
    const own = part.computation.equation.target.tensor;
    return rewrite(
      value,
      (e): Expr => {
        if (e.kind === "axis") return this.digit(part, e.name);
        if (e.kind !== "access") return e;
        if (held && e.tensor === own) return held;
        const name = part.names[e.tensor] ?? e.tensor;
        const maker = this.byName.get(name);
        if (maker) return this.places.elementOf(maker);
        const read = { ...e, tensor: name };
        this.places.touched(read);
        return read;
      },
      "value",
    );
  }

  /** The place in memory of what an equation makes. */
  inMemory({ part, made }: Timed): Access {
    const { index } = storingEquation(part.computation).target;
    const element = access(
      made,
      index.map((e) => (e.kind === "axis" ? this.digit(part, e.name) : e)),
    );
    this.places.touched(element);
    return element;
  }

  readersOf({ made }: Timed): Timed[] {
    return this.all.filter(({ part }) => readsOf(part).includes(made));
  }

  isStored({ made }: Timed): boolean {
    return this.chain.computation.program?.stored.includes(made) === true;
  }

  /** The value of a loop of an equation. */
  private digit({ digits, computation }: ChainPart, name: string): Expr {
    const digit = digits[name];
    if (!digit) return number(0);
    const { rows, columns } = this.chain;
    const extent = withName(computation.axes, name)?.extent ?? 1;
    const [counter, all] = digit.of === "row" ? [this.places.row, rows] : [this.places.column(), columns];
    const high = over(counter, digit.stride);
    return digit.stride * extent === all ? high : remainder(high, extent);
  }
}

/** The chain's names of what an equation reads. */
function readsOf({ computation, names }: ChainPart): string[] {
  const { equation } = computation;
  const own = equation.target.tensor;
  return [equation, storingEquation(computation)]
    .flatMap((one) => accessesOf(one).slice(1))
    .flatMap(({ tensor }) => (tensor === own ? [] : [names[tensor] ?? tensor]));
}

/** The pass of each part: one pass later than that of a sum which it reads, at any column. */
function timed(parts: readonly ChainPart[]): Timed[] {
  const found = new Map<string, Timed>();
  for (const part of parts) {
    const made = madeBy(part);
    const read = readsOf(part).flatMap((name) => {
      const maker = found.get(name);
      return maker ? [maker] : [];
    });
    const pass =
      part.makes === "row"
        ? Math.max(-1, ...read.map((one) => one.pass))
        : Math.max(0, ...read.map((one) => (one.part.makes === "each" ? one.pass : one.pass + 1)));
    found.set(made, { part, made, pass });
  }
  return [...found.values()];
}
