/**
 * @file What is found of an object is found once, and forgotten with it.
 */

/** The function, asked once of each object; its objects never change. */
export function memoised<Key extends object, Value>(find: (of: Key) => Value): (of: Key) => Value {
  const known = new WeakMap<Key, { readonly value: Value }>();
  return (of) => {
    const found = known.get(of) ?? { value: find(of) };
    known.set(of, found);
    return found.value;
  };
}
