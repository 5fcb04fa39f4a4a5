/**
 * @file Chains of steps that one kernel computes row by row, because they share their rows: a softmax, a layer norm with the sum before it.
 *
 *     max, exp(x - max), sum, quotient      4 steps, one kernel; max, exp and sum stay in the cache of a core
 *
 * The steps stay what they are, each with its equation and its output, so a proof still checks every one of them. A chain grows from a sum,
 * or on a GPU from an element-wise step: backwards over the element-wise steps that make what it reads, forwards over the steps that read what
 * it makes, as long as their indices allow it (abstraction/row-chain.ts). It ends at the first other step that reads one of its values, because
 * it is computed where its last step stands.
 */

import { storageText } from "../abstraction/affine.ts";
import { addTo, ascending } from "../abstraction/collections.ts";
import { type Computation, elementCount, outputOf, type Tensor } from "../abstraction/computation.ts";
import { internal } from "../abstraction/error.ts";
import { joined } from "../abstraction/program.ts";
import { placedInRows, type Rows, rowsOf } from "../abstraction/row-chain.ts";
import { beginOf, type Network, returnedBy, rootOf, rootsRead, type Step } from "./network.ts";
import { multiplyAddsOf } from "./tasks.ts";
import type { Reads, Value } from "./value.ts";

/** Steps that one kernel computes, and the value behind each of its tensors. */
export interface StepChain {
  /** In the program's order. They are computed where the last of them stands. */
  readonly steps: readonly Step[];
  /** All of them as a program. */
  readonly computation: Computation;
  /** By the program's names, but for the flag that keeps them. */
  readonly values: Reads;
  /** Those that are stored for others. */
  readonly stored: ReadonlySet<Value>;
}

interface ChainOptions {
  /** Threads that share the rows; chains of fewer rows are not made. */
  readonly threads?: number;
  /** Whether a step may be computed in a chain; all may by default. */
  readonly isFree?: (step: Step) => boolean;
  /** Whether steps that sum nothing may be a chain, with rows of one element: worth a launch each on a GPU. */
  readonly withoutSums?: boolean;
}

/** Elements that the rows of a chain's values may have together: 64 KiB of f32, which stay in the caches of a core. */
const MOST_IN_CACHE = 16_384;

/** The chains of a program. No step is part of two. */
export function chainsOf(
  program: Network,
  { threads = 1, isFree = () => true, withoutSums = false }: ChainOptions = {},
): StepChain[] {
  const chains = new Chains(program, threads, isFree);
  return [...chains.all(rowsOf), ...(withoutSums ? chains.all(elementsOf) : [])];
}

/** The elements of a step that sums nothing, as rows. */
function elementsOf(computation: Computation): Rows | undefined {
  const rows = { rows: elementCount(outputOf(computation)), columns: 1 };
  const placed = computation.equation.op === "=" ? placedInRows(computation, rows) : undefined;
  return placed && "makes" in placed ? rows : undefined;
}

/** A step as part of a chain. */
interface Member {
  readonly step: Step;
  readonly place: number;
}

class Chains {
  private readonly steps: readonly Step[];
  private readonly threads: number;
  private readonly isFree: (step: Step) => boolean;
  private readonly makers: ReadonlyMap<Value, number>;
  /** Places of the steps that read a value, in order. */
  private readonly readers = new Map<Value, number[]>();
  private readonly given: ReadonlySet<Value>;
  private readonly taken = new Set<Step>();

  constructor({ steps, outputs }: Network, threads: number, isFree: (step: Step) => boolean) {
    this.steps = steps;
    this.threads = threads;
    this.isFree = isFree;
    this.makers = new Map(steps.map(({ output }, i) => [output, i]));
    for (const [place, step] of steps.entries()) for (const value of rootsRead(step)) addTo(this.readers, value, place);
    this.given = returnedBy({ outputs });
  }

  /** @param rowsIn the rows of a chain that begins around a step */
  all(rowsIn: (computation: Computation) => Rows | undefined): StepChain[] {
    return this.steps.flatMap((step, place) => {
      const rows = rowsIn(step.computation);
      if (!rows || rows.rows < this.threads || !this.mayJoin(step)) return [];
      const members = this.around(place, rows);
      if (members.length < 2) return [];
      for (const one of members) this.taken.add(one.step);
      return [this.chainOf(members)];
    });
  }

  private mayJoin(step: Step): boolean {
    return !this.taken.has(step) && multiplyAddsOf(step.computation) === 0 && this.isFree(step);
  }

  /** The members of the chain around a sum; it begins as early as it can. */
  private around(anchor: number, rows: Rows): Member[] {
    const before = ascending(this.before(anchor, rows));
    for (const begin of before) {
      const members = this.from(begin, new Set(before), rows);
      if (members.some(({ place }) => place === anchor)) return members;
    }
    return [];
  }

  /** A step, a sum as a rule, and the element-wise steps that what it reads is made by. */
  private before(anchor: number, rows: Rows): ReadonlySet<number> {
    const found = new Set([anchor]);
    // A set is walked in the order in which it grows.
    for (const place of found)
      for (const value of Object.values(this.steps[place]?.reads ?? {})) {
        const made = this.makers.get(rootOf(value));
        const maker = made === undefined ? undefined : this.steps[made];
        if (made === undefined || !maker || found.has(made) || !this.mayJoin(maker)) continue;
        const placed = placedInRows(maker.computation, rows);
        if ("makes" in placed && placed.makes === "each") found.add(made);
      }
    return found;
  }

  /** Members from a step on: the wanted ones, and steps that read what members make. */
  private from(begin: number, wanted: ReadonlySet<number>, rows: Rows): Member[] {
    const members: Member[] = [];
    const made = new Set<Value>();
    let held = 0;
    let last = Math.max(...wanted);
    for (let place = begin; place <= last; place++) {
      const step = this.steps[place];
      if (!step) break;
      const own = Object.entries(step.reads).flatMap(([name, value]) => (made.has(rootOf(value)) ? [name] : []));
      if (own.length === 0 && !wanted.has(place)) continue;
      const placed = this.mayJoin(step) ? placedInRows(step.computation, rows, new Set(own)) : undefined;
      const fits = placed && "makes" in placed && (placed.makes !== "each" || held + rows.columns <= MOST_IN_CACHE);
      if (fits) {
        members.push({ step, place });
        made.add(step.output);
        last = Math.max(last, this.readers.get(step.output)?.at(-1) ?? place);
        if (placed.makes === "each") held += rows.columns;
      } else if (own.length > 0) break;
    }
    return members;
  }

  private chainOf(members: readonly Member[]): StepChain {
    const inside = new Set(members.map(({ place }) => place));
    const isReadOutside = (value: Value): boolean =>
      (this.readers.get(value) ?? []).some((place) => !inside.has(place));
    const steps = members.map(({ step }) => step);
    const names = new Names(steps);
    const parts = steps.map((step) => ({ computation: step.computation, names: names.of(step) }));
    const outputs = steps.map(({ output }) => output);
    const stored = outputs.filter((output) => isReadOutside(output) || this.given.has(output));
    if (!stored.some((value) => value === outputs.at(-1))) internal("nothing reads the last value of a chain");
    const computation = joined({ parts, stored: stored.map((value) => names.madeAs(value)) });
    return { steps, computation, values: names.values(), stored: new Set(stored) };
  }
}

/** Names of a chain's tensors: y0, y1 ... for what it makes, x0, x1 ... for what it reads. */
class Names {
  private readonly made: ReadonlyMap<Value, string>;
  private readonly inputs = new Map<string, string>();
  private readonly numbers = new Map<unknown, number>();
  private readonly read = new Map<string, Value>();

  constructor(steps: readonly Step[]) {
    this.made = new Map(steps.map(({ output }, i) => [output, `y${i}`]));
  }

  isMade(value: Value): boolean {
    return this.made.has(rootOf(value));
  }

  madeAs(value: Value): string {
    const name = this.made.get(rootOf(value)) ?? internal(`${value.name} is not made by the chain`);
    return name;
  }

  /** The chain's names for the tensors of a step. */
  of({ computation, reads, output }: Step): Readonly<Record<string, string>> {
    const read = Object.entries(reads).map(([name, value]): [string, string] => {
      const tensor = computation.tensors[name] ?? internal(`no tensor ${name}`);
      return [name, this.isMade(value) ? this.madeAs(value) : this.inputAs(value, tensor)];
    });
    return Object.fromEntries([...read, [outputOf(computation).name, this.madeAs(output)]]);
  }

  /** One name for each value in each order in which it is read. */
  private inputAs(value: Value, tensor: Tensor): string {
    const elements = value.constant ?? rootOf(value);
    const number = this.numbers.get(elements) ?? this.numbers.size;
    this.numbers.set(elements, number);
    const key = `${number} ${beginOf(value)} ${tensor.dtype} ${storageText(tensor)}`;
    const known = this.inputs.get(key);
    if (known !== undefined) return known;
    const name = `x${this.inputs.size}`;
    this.inputs.set(key, name);
    this.read.set(name, value);
    return name;
  }

  /** The value behind each name. */
  values(): Reads {
    return Object.fromEntries([...this.read, ...[...this.made].map(([value, name]) => [name, value] as const)]);
  }
}
