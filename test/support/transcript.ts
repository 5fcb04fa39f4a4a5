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

/** Plays all transcripts of a folder beneath test/golden. @param begin makes what plays the lines of one file */
export function playTranscripts(folder: string, begin: () => Play): void {
  const at = `${import.meta.dirname}/../golden/${folder}`;
  it.each(readdirSync(at))("%s", async (name) => {
    const lines = readFileSync(`${at}/${name}`, "utf8").split("\n");
    const given = lines.filter((line) => !line.startsWith(">"));
    const play = begin();
    const told: string[] = [];
    for (const [i, line] of given.entries()) {
      const made = await play(line, given[i + 1] ?? "");
      told.push(line, ...made.map((text) => `> ${text}`.trimEnd()));
    }
    await expect(told.join("\n")).toMatchFileSnapshot(`${at}/${name}`);
  });
}
