/**
 * @file Memory traffic of the caches of a CPU while a nest runs: the lines that each access of a straight run touches while more and more of the loops
 * around it run, and what each cache fetches again because it did not keep them.
 *
 *     for c in 0..128                              a run of 56 x 56 rows of one channel: 3136 lines, 16 channels in each
 *       for p in 0..56, q_tile in 0..4             the second level does not keep them until the next channel
 *         X[0,lane] = in[0,c,p,14*q_tile+lane]     NHWC: 16 lines, which hold nothing else that this channel reads
 */

import { addressOf } from "../abstraction/affine.ts";
import { sumOf } from "../abstraction/collections.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { type Access, childrenOf, type Expr } from "../abstraction/expression.ts";
import type { Statement } from "../abstraction/loop-nest.ts";
import { AffineFootprint, type Covered, LINE_BYTES, type Term, term } from "./footprint.ts";
import type { MemoryLevel, ModelTarget } from "./target.ts";
import { keptShare } from "./traffic.ts";
import { type Around, formOf, type Stored, type Tensors } from "./vector-census.ts";

/** A cache, and the bytes that it fetches from the memory behind it and gives back. */
interface CacheTraffic {
  readonly cache: MemoryLevel;
  readonly source: MemoryLevel;
  fetched: number;
  returned: number;
}

/** The caches of a machine before anything has moved. */
export function cachesOf({ memory }: ModelTarget): CacheTraffic[] {
  return memory.flatMap((cache, i) => {
    const source = memory[i + 1];
    return source === undefined ? [] : [{ cache, source, fetched: 0, returned: 0 }];
  });
}

/** A loop of which some steps are covered. */
interface Step extends Covered {
  readonly axis: string;
  readonly steps: number;
}

/** Accesses of a tensor that every loop moves alike, and their constants. */
interface Moved {
  readonly access: Access;
  readonly slopes: Slopes;
  readonly isWritten: boolean;
  readonly places: Set<number>;
}

/** What they touch. */
interface Touched {
  readonly footprint: AffineFootprint;
  readonly axes: ReadonlySet<string>;
  readonly isWritten: boolean;
}

/**
 * Adds the traffic of a run to that of the caches. While one trip of a loop fits, the next reuses what both share; otherwise every trip fetches its own.
 * @param times how often the statements run, of all steps of the loops around them
 */
export function addTraffic(
  caches: readonly CacheTraffic[],
  statements: readonly Statement[],
  { loops }: Around,
  times: number,
  tensors: Tensors,
): void {
  const around = loops.map(({ axis, steps }): Step => ({ axis, steps, covered: 1 }));
  const all = touchedBy(statements, around, tensors);
  const share = times / loops.reduce((n, { steps }) => n * steps, 1);
  const shared = caches.length > 2 ? caches.at(-1) : undefined;
  const totals = (): { readonly lines: number; readonly crowded: number } => ({
    lines: sumOf(all, ({ footprint }) => footprint.lines),
    crowded: sumOf(all, ({ footprint }) => footprint.crowded),
  });
  for (const { footprint } of all) footprint.measure();
  let before = totals();
  const lines = caches.map(() => all.map(({ footprint }) => footprint.lines));
  for (const step of around.toReversed()) {
    if (step.steps <= 1) continue;
    step.covered = step.steps;
    for (const { footprint, axes } of all) if (axes.has(step.axis)) footprint.measure();
    for (const [c, one] of caches.entries()) {
      const kept = keptShare(one === shared ? before.lines : before.crowded, one.cache.bytes ?? 1);
      for (const [i, { footprint, axes, isWritten }] of all.entries()) {
        // Sums stay in registers.
        if (isWritten && !axes.has(step.axis)) continue;
        const own = lines[c];
        if (own) own[i] = kept * footprint.lines + (1 - kept) * step.steps * (own[i] ?? 0);
      }
    }
    before = totals();
  }
  for (const [c, one] of caches.entries())
    for (const [i, { isWritten }] of all.entries()) {
      const bytes = share * (lines[c]?.[i] ?? 0);
      if (isWritten) one.returned += bytes;
      else one.fetched += bytes;
    }
}

/** What the statements touch, as the loops around them run. */
function touchedBy(statements: readonly Statement[], around: readonly Step[], tensors: Tensors): Touched[] {
  const found = new Map<string, Moved>();
  const inner: Step[] = [];
  const add = (access: Access, isWritten: boolean): void => {
    const tensor = tensors[access.tensor];
    if (!tensor) return;
    const { constant, slopes } = placeOf(tensor, access);
    let key = `${access.tensor} ${isWritten}`;
    for (const [axis, slope] of slopes) key += ` ${slope}${axis}`;
    const known = found.get(key);
    if (known) known.places.add(constant);
    else found.set(key, { access, slopes, isWritten, places: new Set([constant]) });
  };
  const addReads = (e: Expr): void => {
    if (e.kind === "access") add(e, false);
    else for (const child of childrenOf(e)) addReads(child);
  };
  const visit = (s: Statement): void => {
    if (s.kind === "loop") {
      inner.push({ axis: s.axis, steps: s.extent, covered: s.extent });
      for (const one of s.body) visit(one);
    } else if (s.kind === "scalar") {
      addReads(s.equation.value);
      add(s.equation.target, true);
    }
  };
  for (const s of statements) visit(s);
  const steps = new Map([...around, ...inner].map((step) => [step.axis, step]));
  return [...found.values()].map(({ access, slopes, isWritten, places }) => {
    const terms = [...slopes].flatMap(([axis, slope]): Term[] => {
      const step = steps.get(axis);
      if (!step || slope === 0) return [];
      const size = Math.abs(slope);
      return [{ ...term(Math.max(1, Math.round(size)), step, 1), ...(size < 1 && { divisor: Math.round(1 / size) }) }];
    });
    terms.push(...placesIn([...places].sort((a, b) => a - b)));
    const bytes = bytesOf(tensors[access.tensor]?.dtype ?? "f32");
    const footprint = new AffineFootprint(terms, bytes, LINE_BYTES, { written: isWritten, gathered: true });
    return { footprint, axes: new Set(slopes.keys()), isWritten };
  });
}

/** Places in order as terms: of a grid, those of each dimension; of others, all from the first to the last. */
function placesIn(places: readonly number[]): Term[] {
  const [first = 0, second] = places;
  const last = places.at(-1) ?? first;
  if (second === undefined) return [];
  const apart = second - first;
  const along = places.findIndex((place, i) => place !== first + i * apart);
  if (along === -1) return [term(apart, undefined, places.length)];
  const corners = places.filter((_, i) => i % along === 0);
  const isGrid = places.every((place, i) => place === (corners[Math.floor(i / along)] ?? 0) + (i % along) * apart);
  if (isGrid && places.length % along === 0) return [term(apart, undefined, along), ...placesIn(corners)];
  return [term(apart, undefined, Math.ceil((last - first) / apart) + 1)];
}

/** How far a step of each loop moves a place, in elements. */
type Slopes = ReadonlyMap<string, number>;

interface Place {
  readonly constant: number;
  readonly slopes: Slopes;
}

/** Where an access lies in memory. */
function placeOf({ dims, storage }: Stored, { index }: Access): Place {
  const pitches = formOf(storage);
  if (pitches === "other") return slopesOf(addressOf({ dims, storage }, index));
  return index.reduce<Place>((place, e, d) => moved(place, pitches.terms.get(dims[d]?.name ?? "") ?? 0, slopesOf(e)), {
    constant: pitches.constant,
    slopes: new Map(),
  });
}

/** A place, moved by so many times another. */
function moved(place: Place, times: number, by: Place): Place {
  const slopes = new Map(place.slopes);
  for (const [axis, slope] of by.slopes) slopes.set(axis, (slopes.get(axis) ?? 0) + times * slope);
  return { constant: place.constant + times * by.constant, slopes };
}

/** The slopes of an index, on average where it has quotients: a remainder stays where it is. */
function slopesOf(e: Expr): Place {
  const form = formOf(e);
  if (form !== "other") return { constant: form.constant, slopes: form.terms };
  if (e.kind !== "binary") return { constant: 0, slopes: new Map() };
  const left = slopesOf(e.left);
  const right = slopesOf(e.right);
  const scaled = (by: number): Place => ({
    constant: Math.floor(left.constant * by),
    slopes: new Map([...left.slopes].map(([axis, slope]) => [axis, slope * by])),
  });
  switch (e.op) {
    case "+":
      return moved(left, 1, right);
    case "-":
      return moved(left, -1, right);
    case "*":
      return scaled(right.constant);
    case "/":
      return scaled(1 / Math.max(1, right.constant));
    default:
      return { constant: 0, slopes: new Map() };
  }
}
