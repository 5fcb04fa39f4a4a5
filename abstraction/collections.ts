/** @file Functions on lists and records that the language lacks. */

/** The product of some numbers, 1 for none: the elements of a shape. */
export const product = (numbers: readonly number[]): number => numbers.reduce((all, one) => all * one, 1);

/** The product of extents: the points of a box of loops. */
export const volumeOf = (sides: readonly { readonly extent: number }[]): number => product(sides.map((s) => s.extent));

/** The numbers `0 .. count-1`. */
export const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

/** The sum of numbers, or of a number of each item. */
export function sumOf<T>(items: Iterable<T>, of: (item: T) => number = Number): number {
  let sum = 0;
  for (const item of items) sum += of(item);
  return sum;
}

/** Each item once, in the order of their first places. */
export const unique = <T>(items: Iterable<T>): T[] => [...new Set(items)];

/** An item of a list that may be left out. */
export type Optional<T> = T | false | null | undefined;

/** The items that are not left out: `present([always, isNew && line])`. */
export const present = <T>(items: readonly Optional<T>[]): T[] =>
  items.filter((item): item is T => item !== undefined && item !== null && item !== false);

export const isDefined = <T>(item: T | undefined): item is T => item !== undefined;

/** Every choice of one item from each list, the last list fastest. */
export const combinations = <T>(lists: readonly (readonly T[])[]): T[][] =>
  lists.reduce<T[][]>((all, list) => all.flatMap((before) => list.map((item) => [...before, item])), [[]]);

/** Every index of a box, the last extent fastest. */
export const indicesOf = (extents: readonly number[]): number[][] =>
  combinations(extents.map(upTo));

/** The keys of a record whose values may be undefined. */
type Open<T> = { [K in keyof T]: undefined extends T[K] ? K : never }[keyof T];

/** A record without its undefined values: for optional fields, which must be missing rather than undefined. */
export function defined<T extends object>(
  given: T,
): Omit<T, Open<T> & keyof T> & { [K in Open<T> & keyof T]?: Exclude<T[K], undefined> } {
  const entries = Object.entries(given).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as ReturnType<typeof defined<T>>; // the same keys and values
}

/** A record with the same keys. */
export function mapValues<K extends string, A, B>(
  record: Readonly<Record<K, A>>,
  of: (value: A, key: K) => B,
): Record<K, B> {
  const entries = Object.entries<A>(record).map(([key, value]) => [key, of(value, key as K)] as const); // a key of the record
  return Object.fromEntries(entries) as Record<K, B>; // all of its keys
}

/** Adds to the list of a key. */
export function addTo<K, V>(lists: Map<K, V[]>, key: K, ...values: readonly V[]): void {
  const known = lists.get(key);
  if (known) known.push(...values);
  else lists.set(key, [...values]);
}

/** The items of each key; keys in the order of their first items. */
export function groupsOf<K, V>(items: Iterable<V>, key: (item: V) => K): Map<K, V[]> {
  const groups = new Map<K, V[]>();
  for (const item of items) addTo(groups, key(item), item);
  return groups;
}
