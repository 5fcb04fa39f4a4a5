/**
 * @file Addresses of a block on lanes, counted from one pointer for each tensor.
 *
 *     auto* const in_at1 = in + ((i_block * 3) * 512 + j_block) * 512 + (k_block * 64);
 *     X0 = _mm512_loadu_ps(in_at1 + 262656);
 *
 * g++ 12 otherwise makes a counter of its own for most rows of a block, more than there are registers. Blocks of 3 planes
 * x 4 vectors of a 3-D stencil of 7 points take 1.19 times as long without (512^3, a busy Zen 4, 2026-11-23).
 */

import { type AffineForm, affineForm, type Extents } from "../abstraction/affine.ts";
import { type Access, accessesOf, axesIn, type Expr, number, substitute } from "../abstraction/expression.ts";
import { type Code, code, type Name, skeleton, tensorName } from "../abstraction/source-text.ts";
import type { CExpressions } from "./c-expressions.ts";
import type { Loop } from "./walk.ts";

/** Fewest accesses for which a pointer is declared. */
const FEWEST_ACCESSES = 8;

interface Base {
  readonly name: Name;
  /** The constant of the address that it points to. */
  readonly constant: number;
}

export class LaneAddresses {
  private readonly c: CExpressions;
  private readonly isRegister: (access: Access) => boolean;
  private bases: ReadonlyMap<string, Base> = new Map();
  private declared = 0;

  constructor(c: CExpressions, isRegister: (access: Access) => boolean) {
    this.c = c;
    this.isRegister = isRegister;
  }

  /** Prints a loop of lanes with its pointers declared before it. */
  around(loop: Loop, extents: Extents, print: () => Code[]): Code[] {
    const lines = this.declare(loop, { ...extents, [loop.axis]: loop.extent });
    try {
      return [...lines, ...print()];
    } finally {
      this.bases = new Map();
    }
  }

  /** A pointer and the address of an element counted from it. */
  parts(tensor: string, at: Expr, extents: Extents): { readonly base: Code; readonly offset: Code } {
    const { base, offset } = this.counted(tensor, at) ?? {};
    if (base === undefined) return { base: this.c.tensor(tensor), offset: this.c.index(at, extents) };
    return { base: code`${base}`, offset: code`${offset ?? 0}` };
  }

  /** The address of an element. */
  at(tensor: string, at: Expr, extents: Extents): Code {
    const { base, offset } = this.parts(tensor, at, extents);
    const text = skeleton(offset);
    if (text === "0") return base;
    return /^-\d+$/.test(text) ? code`${base} - ${Number(text.slice(1))}` : code`${base} + ${offset}`;
  }

  /** The declared pointer that an address is counted from, and how far it is from there; undefined if there is none. */
  private counted(tensor: string, at: Expr): { readonly base: Name; readonly offset: number } | undefined {
    if (this.bases.size === 0) return undefined;
    const form = affineForm(at);
    const base = form && this.bases.get(keyOf(tensor, form));
    return base && form && { base: base.name, offset: form.constant - base.constant };
  }

  private declare(loop: Loop, extents: Extents): Code[] {
    const found = new Map<string, { readonly tensor: string; readonly first: Expr; count: number }>();
    for (const access of movedIn(loop)) {
      if (this.isRegister(access)) continue;
      const first = substitute(this.c.placeOf(access, extents).at, new Map([[loop.axis, number(0)]]), "index");
      const form = affineForm(first);
      if (!form || form.terms.size === 0) continue;
      const key = keyOf(access.tensor, form);
      const known = found.get(key);
      if (known) known.count++;
      else found.set(key, { tensor: access.tensor, first, count: 1 });
    }
    const used = [...found].filter(([, { count }]) => count >= FEWEST_ACCESSES);
    this.bases = new Map(
      used.map(([key, { tensor, first }]) => [
        key,
        { name: tensorName(tensor).with(`_at${++this.declared}`), constant: affineForm(first)?.constant ?? 0 },
      ]),
    );
    return used.map(
      ([key, { tensor, first }]) =>
        code`auto* const ${this.bases.get(key)?.name ?? tensorName(tensor)} = ${this.c.tensor(tensor)} + ${this.c.index(first, extents)};`,
    );
  }
}

/** What statements on lanes load, store and prefetch as vectors. */
function movedIn({ body, axis }: Loop): readonly Access[] {
  return body.flatMap((s) => {
    if (s.kind !== "scalar") return [];
    const vectors = accessesOf(s.equation).filter(({ index }) => index.some((e) => axesIn(e).includes(axis)));
    return s.prefetch ? [...vectors, s.prefetch] : vectors;
  });
}

function keyOf(tensor: string, { terms }: AffineForm): string {
  return `${tensor} ${[...terms]
    .map(([name, factor]) => `${factor}*${name}`)
    .sort()
    .join("+")}`;
}
