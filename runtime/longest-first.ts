/**
 * @file Runs a limited number of jobs at a time and starts the longest waiting one first, so that the jobs of a round end nearly together.
 *
 *     first come   | 1 2 2 4 4 4 4 |          longest first   | 1 4 4 4 4 |          two at once, of lengths 1 3 2 4: in this order
 *                  | 3 3 3         |                          | 3 3 3 2 2 |
 */

export type InTurn = <T>(length: number, job: () => Promise<T>) => Promise<T>;

/** @param most jobs at once. A job begins as soon as there is room; those of equal length in the order in which they came */
export function longestFirst(most: number): InTurn {
  const waiting: { readonly length: number; readonly begin: () => void }[] = [];
  let running = 0;
  const next = (): void => {
    if (running >= most) return;
    const one = waiting.shift();
    if (!one) return;
    running++;
    one.begin();
  };
  return (length, job) =>
    new Promise((resolve, reject) => {
      const begin = (): void => {
        job()
          .then(resolve, reject)
          .finally(() => {
            running--;
            next();
          });
      };
      const shorter = waiting.findIndex((other) => other.length < length);
      waiting.splice(shorter === -1 ? waiting.length : shorter, 0, { length, begin });
      next();
    });
}
