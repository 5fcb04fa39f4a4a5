/**
 * @file What is found of an object, or of an object and a text, is found once, and forgotten with the object.
 *
 *     const extentsOfAxes = memoised((axes: Axes) => ...)             worked out when first asked of these axes
 *     const runs = memoisedBy<Computation, number>();
 *     runs(computation, "m n,p,q", () => ...)                         the same of a computation and a text
 */

/** The function, asked once of each object; its objects never change. */
export function memoised<Key extends object, Value>(find: (of: Key) => Value): (of: Key) => Value {
  const known = new WeakMap<Key, { readonly value: Value }>();
  return (of) => {
    let found = known.get(of);
    // Setting a key of a WeakMap takes several times what reading it does.
    if (!found) {
      found = { value: find(of) };
      known.set(of, found);
    }
    return found.value;
  };
}

/** What is found of an object and a text, which decide it together: mappings of a search differ in little, and share most of what they are asked. */
export function memoisedBy<Key extends object, Value>(): (of: Key, text: string, find: () => Value) => Value {
  const known = memoised((_: Key) => new Map<string, { readonly value: Value }>());
  return (of, text, find) => {
    const all = known(of);
    let found = all.get(text);
    if (!found) {
      found = { value: find() };
      all.set(text, found);
    }
    return found.value;
  };
}
