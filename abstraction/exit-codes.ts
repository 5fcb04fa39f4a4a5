/**
 * @file What a program ends with: commands, and the tests of packages. Help and docs/cli.md print this table.
 *
 *     if (trial === undefined) return EXIT.nothingFound;
 */

/** Exit codes by name. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  nothingFound: 3,
  wrong: 4,
  regression: 5,
  environment: 6,
  interrupted: 130,
} as const;
/** Says with what code a program ends. */
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** What each says. */
export const EXIT_MEANINGS: Readonly<Record<ExitCode, string>> = {
  0: "ok",
  1: "it was done, and failed: no kernel works, a replay differs, lines were rejected",
  2: "the command line or a file is wrong, or has a word that automap does not know",
  3: "nothing is there: no mapping or array that computes it, no such record, run, name or file",
  4: "what was verified is wrong: a kernel, an instruction, a record",
  5: "something became slower than in the baseline",
  6: "something is missing on this machine: a compiler, a GPU, room on the disk",
  130: "interrupted",
};
