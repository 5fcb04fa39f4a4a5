/**
 * @file What a page in Markdown shows: its fenced blocks, commands with their output, and whether an output is as shown.
 *
 *     ```console
 *     $ automap operator list
 *     operator           alias  what
 *     ...
 *     ```
 *
 * `...` on a line of its own stands for any lines.
 */

export interface Fence {
  readonly language: string;
  readonly body: string;
  /** The line above it, such as "Write `main.c`:". */
  readonly lead: string;
}

export function fences(text: string): Fence[] {
  return [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)].map(({ 1: language = "", 2: body = "", index }) => ({
    language,
    body,
    lead: text.slice(0, index).trimEnd().split("\n").at(-1) ?? "",
  }));
}

export interface Command {
  readonly command: string;
  /** Empty when the page shows no output. */
  readonly output: readonly string[];
}

/** Commands of a block, with what is shown beneath them. A remark behind `#`, two spaces away, is none of the command. */
export function commandsOf(body: string): Command[] {
  return body
    .split(/^\$ /m)
    .slice(1)
    .map((part) => {
      const [command = "", ...output] = part.trimEnd().split("\n");
      return { command: command.replace(/ {2,}#.*$/, ""), output };
    });
}

/** Whether lines are as shown, with `...` for any number of them. */
export function fits(pattern: readonly string[], lines: readonly string[]): boolean {
  const [first, ...rest] = pattern;
  if (first === undefined) return lines.length === 0;
  if (first === "...") return lines.some((_, i) => fits(rest, lines.slice(i))) || rest.length === 0;
  return first.trimEnd() === lines[0]?.trimEnd() && fits(rest, lines.slice(1));
}
