/**
 * @file The length of a test: short by default, in full by `npm run test:slow`.
 *
 *     const KILLS = inFull(500, 12);
 */

export function inFull<T>(full: T, short: T): T {
  return (process.env["AUTOMAP_SLOW"] ?? "") === "" ? short : full;
}
