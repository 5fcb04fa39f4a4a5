/**
 * @file Lanes as threads that run together, in any language: registers are variables of each thread, memory that lanes
 * both write and read is fenced, and a fold exchanges values between partners.
 */

import { accessesIn } from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { type Code, code, identifier } from "../abstraction/source-text.ts";
import type { Helpers } from "./cpp-helpers.ts";
import { equationsIn, registerName } from "./lane-statement.ts";
import type { Named } from "./named.ts";
import type { LanguagePrinter } from "./walk.ts";
import type { WarpExpressions } from "./warp-expressions.ts";
import { WarpLanes } from "./warp-lanes.ts";

/**
 * Combines a value `v` with the partner's, `other`; `signed` is the form for languages in which signed overflow is
 * undefined.
 */
const FOLDS = [
  { name: "sum", step: code`v += other;`, signed: code`v = (int32_t)((uint32_t)v + (uint32_t)other);` },
  { name: "most", step: code`v = other > v || other != other ? other : v;` },
  { name: "least", step: code`v = other < v || other != other ? other : v;` },
] as const;

/** How a language declares a fold of lanes. */
export interface FoldSyntax {
  /** The types for which it has functions of their own; a template is one for all. */
  readonly types: readonly { readonly suffix: string; readonly type: Code; readonly overflows?: boolean }[];
  readonly head: (name: Code, type: Code) => Code;
  /** The value of the partner at `distance`. */
  readonly exchange: Code;
}

/** The fold functions among so many threads. */
export function foldFunctions(threads: number, { types, head, exchange }: FoldSyntax): Helpers {
  const all = FOLDS.flatMap((fold) =>
    types.map(({ suffix, type, overflows }) => {
      const name = `${fold.name}_of_lanes${suffix}`;
      const text = code`${head(identifier(name), type)} {
  for (int distance = ${threads / 2}; distance > 0; distance /= 2) {
    const ${type} other = ${exchange};
    ${overflows && "signed" in fold ? fold.signed : fold.step}
  }
  return v;
}`;
      return [name, text] as const;
    }),
  );
  return Object.fromEntries(all);
}

export abstract class LaneThreads extends WarpLanes implements LanguagePrinter {
  /** Memory that is both read and written. Lanes synchronise around its writes. */
  private readonly exchanged: ReadonlySet<string>;

  constructor(c: WarpExpressions, nest: LoopNest) {
    super(c, nest);
    const all = equationsIn([...nest.prepare, ...nest.body]);
    const read = new Set(all.flatMap(({ value }) => accessesIn(value)).map((a) => a.tensor));
    const vectors = new Set((nest.vectors ?? []).map((v) => v.name));
    this.exchanged = new Set(
      all.map(({ target }) => target.tensor).filter((name) => read.has(name) && !vectors.has(name)),
    );
  }

  /** A fence after which lanes see each other's writes. */
  protected abstract readonly laneFence: Code;

  /** Whether a register is never read, and so is omitted. */
  protected isUnread(_file: string, _register: number): boolean {
    return false;
  }

  declarations({ registers }: Named): Code[] {
    return (this.nest.vectors ?? []).flatMap(({ name, dtype }) =>
      (registers.get(name) ?? []).flatMap((i) =>
        this.isUnread(name, i) ? [] : [code`${C_TYPES[dtype]} ${registerName(name, i)} = 0;`],
      ),
    );
  }

  protected override synchronised(tensor: string, lines: Code[]): Code[] {
    return this.exchanged.has(tensor) ? [this.laneFence, ...lines, this.laneFence] : lines;
  }
}
