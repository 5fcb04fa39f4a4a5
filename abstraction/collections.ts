/**
 * @file Functions on lists and records that the language lacks, and caches of values derived from an object, or from an object and a text, for as
 * long as the object lives.
 *
 *     const extentsOfAxes = memoised((axes: Axes) => ...)             worked out when first asked of these axes
 *     const runs = memoisedBy<Computation, number>();
 *     runs(computation, "m n,p,q", () => ...)                         the same of a computation and a text
 *     const placesAlong = memoisedPair((tensor: Tensor, dim: string) => ...)
 */

/** The product of some numbers, 1 for none: the elements of a shape. */
export const product = (numbers: readonly number[]): number => numbers.reduce((all, one) => all * one, 1);

/** The product of extents: the points of a box of loops. */
export const volumeOf = (sides: readonly { readonly extent: number }[]): number => product(sides.map((s) => s.extent));

/** The numbers `0 .. count-1`. */
export const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

/** The item of a name; undefined where there is none. */
export const withName = <T extends { readonly name: string }>(
  items: readonly T[],
  name: string | undefined,
): T | undefined => items.find((item) => item.name === name);

/** Whether some item has a name. */
export const hasName = (items: readonly { readonly name: string }[], name: string | undefined): boolean =>
  withName(items, name) !== undefined;

/** The name of each item. */
export const namesOf = <Name extends string>(items: readonly { readonly name: Name }[]): Name[] =>
  items.map((item) => item.name);

/** Items by their names; of several with one name the last. */
export const byName = <T extends { readonly name: string }>(items: readonly T[]): Map<string, T> =>
  new Map(items.map((item) => [item.name, item]));

/** The sum of numbers, or of a number of each item. */
export function sumOf<T>(items: Iterable<T>, of: (item: T) => number = Number): number {
  let sum = 0;
  for (const item of items) sum += of(item);
  return sum;
}

/** Numbers in ascending order. */
export const ascending = (numbers: Iterable<number>): number[] => [...numbers].sort((a, b) => a - b);

/** Items by a number of each, the least first. */
export const sortedBy = <T>(items: Iterable<T>, of: (item: T) => number): T[] =>
  [...items].sort((a, b) => of(a) - of(b));

/** A record's own value of a key. */
export const entryOf = <T>(record: Readonly<Record<string, T>>, key: string): T | undefined =>
  Object.hasOwn(record, key) ? record[key] : undefined;

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
export const indicesOf = (extents: readonly number[]): number[][] => combinations(extents.map(upTo));

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

// ---- caches -------------------------------------------------------------------------------------------------------------------

/** Caches a function of an object, which must not change. */
export function memoised<Key extends object, Value>(find: (of: Key) => Value): (of: Key) => Value {
  const known = new WeakMap<Key, { readonly value: Value }>();
  return (of) => {
    let found = known.get(of);
    // Setting a key of a WeakMap takes several times as long as reading it.
    if (!found) {
      found = { value: find(of) };
      known.set(of, found);
    }
    return found.value;
  };
}

/** Caches values that an object and a text determine. Mappings of a search differ little, so they share most of these values. */
export function memoisedBy<Key extends object, Value, By = string>(): (of: Key, by: By, find: () => Value) => Value {
  const known = memoised((_: Key) => new Map<By, { readonly value: Value }>());
  return (of, by, find) => {
    const all = known(of);
    let found = all.get(by);
    if (!found) {
      found = { value: find() };
      all.set(by, found);
    }
    return found.value;
  };
}

/** Caches a function of an object and a second argument. */
export function memoisedPair<Key extends object, By, Value>(
  find: (of: Key, by: By) => Value,
): (of: Key, by: By) => Value {
  const known = memoisedBy<Key, Value, By>();
  return (of, by) => known(of, by, () => find(of, by));
}

/** What a map holds for a key, made when first asked for. */
export function remembered<Key, Value>(
  known: { readonly get: (key: Key) => Value | undefined; readonly set: (key: Key, value: Value) => unknown },
  key: Key,
  make: () => Value,
): Value {
  const found = known.get(key);
  if (found !== undefined) return found;
  const made = make();
  known.set(key, made);
  return made;
}
