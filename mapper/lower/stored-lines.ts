/**
 * @file Software prefetch for stores: the lines that a block's results go to, and the lines of large tensors that its epilogue reads, are fetched
 * during its sums.
 *
 *     for c_outer in 0..16                                       (fetch ahead res[...], e2[...]: one or a few lines in each step)
 *       c{..} <- ...
 *     for q_block, k_block, n_inner: res[..] <- c_results[..] + e2[..]
 *
 * Otherwise the stores and the additions of all lines wait for memory one after another, with nothing to compute meanwhile: the convolution of 64
 * to 256 channels of 56 x 56 with a residual in ResNet-50 took 1331 us and takes 978 (least times, its tensors not in a cache, Zen 4, 2026-11-23).
 */

import { addressOf, evaluateIndex } from "../../abstraction/affine.ts";
import { upTo, volumeOf } from "../../abstraction/collections.ts";
import { type Computation, elementCount, tensorOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  accessesIn,
  axesIn,
  axis,
  type Expr,
  number,
  over,
  plus,
  remainder,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import type { Loop, Statement, TileAt } from "../../abstraction/loop-nest.ts";
import { LINE_BYTES } from "./ahead.ts";

/** Smaller tensors stay in the cache of a core, where its out-of-order window covers the delay: a quarter of 1 MiB (Zen 4, Sapphire Rapids: 2 MiB). */
const FETCHED_BYTES = 1 << 18;

/** Lines that a step fetches at most: more of them wait for one another. */
const MOST_AT_ONCE = 8;

/** Lines that loops touch, numbered with the innermost loop fastest. */
interface Lines {
  readonly tensor: string;
  /** The first element of a line, in terms of the loops' counters. */
  readonly place: Expr;
  readonly loops: readonly { readonly axis: string; readonly lines: number; readonly perLine: number }[];
}

/**
 * Sums whose innermost loop fetches what the stores after them touch. Sums without a loop, or with too few steps for the lines, are left as they
 * are.
 * @param stored plain loops around assignments; what stands under a condition is not fetched
 */
export function fetchingStored(
  sums: readonly Statement[],
  stored: readonly Statement[],
  computation: Computation,
): readonly Statement[] {
  const lines = distinct(stored.flatMap((s) => linesOf(s, [], computation)));
  if (lines.length === 0) return sums;
  const loops = sums.filter(isSum);
  const most = Math.max(...loops.map((l) => l.extent));
  const carrier = loops.find((l) => l.extent === most);
  return sums.map((s) => (s === carrier ? inInnermost(carrier, [], lines) : s));
}

/** Whether a statement is a loop whose steps issue instructions one after another. */
function isSum(s: Statement): s is Loop {
  return s.kind === "loop" && s.mode === "serial" && s.extent > 1 && issues(s);
}

function issues(s: Statement): boolean {
  if (s.kind === "loop") return s.body.some(issues);
  return s.kind === "register-issue" || (s.kind === "when" && [...s.body, ...s.otherwise].some(issues));
}

/** Places the fetches in the innermost of loops that hold one another. */
function inInnermost(loop: Loop, around: readonly Loop[], lines: readonly Lines[]): Loop {
  const path = [...around, loop];
  const inner = loop.body.find(isSum);
  if (inner) return { ...loop, body: loop.body.map((s) => (s === inner ? inInnermost(inner, path, lines) : s)) };
  const step = path.reduce<Expr>((sum, { axis: name, extent }) => plus(times(sum, extent), axis(name)), number(0));
  const steps = volumeOf(path);
  const ahead = lines.flatMap((one) => fetchesOf(one, step, steps));
  return ahead.length === 0 ? loop : { ...loop, ahead: [...(loop.ahead ?? []), ...ahead] };
}

/** What one of some steps fetches: each line once where steps and lines agree, else some again, which costs next to nothing. */
function fetchesOf({ tensor, place, loops }: Lines, step: Expr, steps: number): readonly TileAt[] {
  const count = loops.reduce((product, l) => product * l.lines, 1);
  const each = Math.ceil(count / steps);
  if (each > MOST_AT_ONCE) return [];
  const stepsPerLine = Math.max(1, Math.floor(steps / count));
  return upTo(each).map((n): TileAt => {
    let rest = plus(times(over(step, stepsPerLine), each), n);
    const counters = new Map<string, Expr>();
    for (const { axis: name, lines, perLine } of loops.toReversed()) {
      counters.set(name, times(remainder(rest, lines), perLine));
      rest = over(rest, lines);
    }
    return { buffer: tensor, base: substitute(place, counters, "index") };
  });
}

/** The lines of large tensors that assignments in plain loops touch, where the innermost loop runs along the lines. */
function linesOf(s: Statement, around: readonly Loop[], computation: Computation): readonly Lines[] {
  if (s.kind === "loop") return s.body.flatMap((inner) => linesOf(inner, [...around, s], computation));
  if (s.kind === "store") {
    const { buffer, base } = s.memory;
    return isLarge(buffer, computation) ? whole(buffer, base, around, 1, computation) : [];
  }
  if (s.kind !== "scalar") return [];
  const { target, value } = s.equation;
  return [target, ...accessesIn(value)].flatMap((access): readonly Lines[] => {
    const inner = around.at(-1);
    if (!inner || !isLarge(access.tensor, computation)) return [];
    const place = addressOf(tensorOf(computation, access.tensor), access.index);
    if (accessesIn(place).length > 0) return [];
    const origin = Object.fromEntries(axesIn(place).map((name) => [name, 0]));
    const stride = evaluateIndex(place, { ...origin, [inner.axis]: 1 }) - evaluateIndex(place, origin);
    return stride === 1 ? whole(access.tensor, place, around, LINE_BYTES, computation) : [];
  });
}

/** @param bytes of the lines that the innermost loop runs along; 1 where no loop does */
function whole(
  tensor: string,
  place: Expr,
  around: readonly Loop[],
  bytes: number,
  computation: Computation,
): readonly Lines[] {
  const perLine = Math.max(1, bytes / bytesOf(tensorOf(computation, tensor).dtype));
  const along = around.at(-1);
  const loops = around.map((loop) =>
    loop === along
      ? { axis: loop.axis, lines: Math.ceil(loop.extent / perLine), perLine }
      : { axis: loop.axis, lines: loop.extent, perLine: 1 },
  );
  return [{ tensor, place, loops: loops.filter(({ axis: name }) => axesIn(place).includes(name)) }];
}

function isLarge(tensor: string, computation: Computation): boolean {
  const found = computation.tensors[tensor];
  return found !== undefined && !found.constant && elementCount(found) * bytesOf(found.dtype) >= FETCHED_BYTES;
}

function distinct(all: readonly Lines[]): readonly Lines[] {
  return [...new Map(all.map((one) => [one.tensor, one] as const)).values()];
}
