/**
 * @file How much of a test: a short one whenever the tests run, the whole of it by `npm run test:slow`.
 *
 *     const KILLS = inFull(500, 12);
 */

export function inFull<T>(full: T, short: T): T {
  return (process.env["AUTOMAP_SLOW"] ?? "") === "" ? short : full;
}
