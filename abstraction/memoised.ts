/**
 * @file Caches values derived from an object, or from an object and a text, for as long as the object lives.
 *
 *     const extentsOfAxes = memoised((axes: Axes) => ...)             worked out when first asked of these axes
 *     const runs = memoisedBy<Computation, number>();
 *     runs(computation, "m n,p,q", () => ...)                         the same of a computation and a text
 *     const placesAlong = memoisedPair((tensor: Tensor, dim: string) => ...)
 */

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
