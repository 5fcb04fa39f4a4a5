/**
 * @file Rewrites statements wherever they name indices, elements, registers or barriers: an axis that becomes a number, a buffer that gains a
 * dimension.
 *
 *     substituteAxis(copy, "k_tile", number(3))          a_ring[k_tile%4, m, k] = a[m, 64*k_tile + k]   ->   a_ring[3, m, k] = a[m, 192 + k]
 */

import { type Access, type Equation, type Expr, substitute } from "./expression.ts";
import type { ArrivalAt, Copy, RegisterAt, Statement, TileAccess } from "./loop-nest.ts";
import type { TensorView } from "./tensor-view.ts";

/** Rewriting functions for the parts of a statement. */
export interface Rewriting {
  /** Indices, conditions, ranges of loops, register numbers. */
  index(e: Expr): Expr;
  /** The assigned value of an equation. */
  value(e: Expr): Expr;
  /** Accesses that are written, fetched, or read by an instruction. */
  element(a: Access): Access;
  arrival(a: ArrivalAt): ArrivalAt;
  /** A register; when left out, its number is rewritten as an index. */
  register?(r: RegisterAt): RegisterAt;
}

export function rewriteStatement(s: Statement, change: Rewriting): Statement {
  const { index, value, element, arrival } = change;
  const again = (inner: Statement): Statement => rewriteStatement(inner, change);
  const register = change.register ?? ((r: RegisterAt): RegisterAt => ({ ...r, index: index(r.index) }));
  const equation = (e: Equation): Equation => ({
    target: element(e.target),
    op: e.op,
    value: value(e.value),
    ...(e.where && { where: index(e.where) }),
  });
  const viewed = ({ at, rows, ...view }: TensorView): TensorView => ({
    ...view,
    at: at.map(index),
    rows: rows.kind === "box" ? rows : { ...rows, offsets: rows.offsets.map(index) },
  });
  const copied = (copy: Copy): Copy => ({
    ...copy,
    equation: equation(copy.equation),
    ...(copy.when && { when: index(copy.when) }),
    ...(copy.view && { view: viewed(copy.view) }),
  });
  const fetched = (tile: TileAccess): TileAccess => ({
    ...tile,
    access: element(tile.access),
    ...(tile.where && { where: index(tile.where) }),
    ...(tile.made && { made: value(tile.made) }),
  });
  switch (s.kind) {
    case "loop": {
      const range = s.range && { from: s.range.from.map(index), to: s.range.to.map(index) };
      const ahead = s.ahead?.map((t) => ({ ...t, base: index(t.base) }));
      return { ...s, body: s.body.map(again), ...(range && { range }), ...(ahead && { ahead }) };
    }
    case "when":
      return { ...s, condition: index(s.condition), body: s.body.map(again), otherwise: s.otherwise.map(again) };
    case "scalar":
      return { ...s, equation: equation(s.equation), ...(s.prefetch && { prefetch: element(s.prefetch) }) };
    case "load":
    case "store": {
      const made = s.made && { made: { ...s.made, value: value(s.made.value) } };
      return { ...s, register: register(s.register), memory: { ...s.memory, base: index(s.memory.base) }, ...made };
    }
    case "fetch":
      return { ...s, register: register(s.register), tile: fetched(s.tile) };
    case "clear":
      return { ...s, register: register(s.register) };
    case "drain": {
      const part = s.part && { part: { ...s.part, from: index(s.part.from) } };
      return { ...s, register: register(s.register), equation: equation(s.equation), ...part };
    }
    case "accumulate":
      return { ...s, register: register(s.register), scales: s.scales.map(register), into: register(s.into) };
    case "copy":
      return copied(s);
    case "send": {
      const when = s.when && { when: index(s.when) };
      return { ...s, copies: s.copies.map(copied), arrival: arrival(s.arrival), ...when };
    }
    case "await":
      return { ...s, arrival: arrival(s.arrival), use: index(s.use), ...(s.when && { when: index(s.when) }) };
    case "arrive":
      return { ...s, arrival: arrival(s.arrival), ...(s.when && { when: index(s.when) }) };
    case "register-issue": {
      const registers = Object.fromEntries(Object.entries(s.registers).map(([o, r]) => [o, register(r)]));
      const tiles =
        s.tiles && Object.entries(s.tiles).map(([o, t]) => [o, { ...t, access: element(t.access) }] as const);
      return { ...s, registers, ...(tiles && { tiles: Object.fromEntries(tiles) }) };
    }
    case "issue":
    case "barrier":
    case "commit":
    case "wait":
    case "settle":
    case "fence":
      return s;
    default:
      return s satisfies never;
  }
}

/** Replaces an axis of the surrounding loops in a statement. */
export function substituteAxis(s: Statement, name: string, by: Expr): Statement {
  const replacement = new Map([[name, by]]);
  const index = (e: Expr): Expr => substitute(e, replacement, "index");
  return rewriteStatement(s, {
    index,
    value: (e) => substitute(e, replacement),
    element: (a) => ({ ...a, index: a.index.map(index) }),
    arrival: (a) => ({ ...a, stage: index(a.stage) }),
  });
}
