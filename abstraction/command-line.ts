/**
 * @file Commands that are offered for pasting into a shell. Every word of them is quoted, since names of files, sizes and tensors may hold anything.
 *
 *     automapCommand("db", "show", "4f0c2e", ["--db", "my records.db"])     automap db show 4f0c2e --db 'my records.db'
 */

import { shellWord } from "./text.ts";

declare const QUOTED: unique symbol;

/** A text that a shell reads as the words it was made of. */
export type CommandLine = string & { readonly [QUOTED]: true };

/** A word, or several, such as an option with its value; none where it is undefined. */
export type Words = string | readonly string[] | undefined;

/** The command line of automap with these words. */
export function automapCommand(...words: readonly Words[]): CommandLine {
  return quotedWords("automap", ...words);
}

/** Words of a command line without its program. */
export function quotedWords(...words: readonly Words[]): CommandLine {
  return words
    .flatMap((word) => word ?? [])
    .map(shellWord)
    .join(" ") as CommandLine;
}
