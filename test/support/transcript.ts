/**
 * @file Transcripts: golden text of what is given, with what is made of it beneath, behind `> `.
 *
 *     $ automap operator show gmm --m 4
 *     > matmul (gmm): matrix times matrix
 *
 * To add a case, write what is given and let `vitest run FILE --update` write the rest.
 */

import { readdirSync, readFileSync } from "node:fs";
import { expect, it } from "vitest";

/** What a given line makes, in lines. @param next the line given after it, empty at the end of a paragraph */
export type Play = (line: string, next: string) => Promise<readonly string[]> | readonly string[];

/** The lines that are given in a transcript. */
export const givenIn = (file: string): string[] =>
  readFileSync(`${import.meta.dirname}/../golden/${file}`, "utf8")
    .split("\n")
    .filter((line) => !line.startsWith(">"));

/**
 * Plays transcripts of a folder beneath test/golden.
 * @param begin makes what plays the lines of one file
 * @param names files of the folder; all when left out
 */
export function playTranscripts(folder: string, begin: () => Play, names?: readonly string[]): void {
  const at = `${import.meta.dirname}/../golden/${folder}`;
  it.each(names ?? readdirSync(at))("%s", async (name) => {
    const given = givenIn(`${folder}/${name}`);
    const play = begin();
    const told: string[] = [];
    for (const [i, line] of given.entries()) {
      const made = await play(line, given[i + 1] ?? "");
      told.push(line, ...made.map((text) => `> ${text}`.trimEnd()));
    }
    await expect(told.join("\n")).toMatchFileSnapshot(`${at}/${name}`);
  });
}
