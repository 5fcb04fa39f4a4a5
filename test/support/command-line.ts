/**
 * @file Runs a command line inside the test, without a process, and keeps what it printed.
 *
 *     await commandLine("map conv2d --intrinsic amx")     { code: 0, out: "conv2d onto ...", err: "" }
 */

import { run } from "../../cli/program.ts";

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export async function commandLine(line: string | readonly string[]): Promise<Ran> {
  return captured(() => run(typeof line === "string" ? shellWords(line) : line));
}

/** What some work printed, and the exit code it gives. */
export async function captured(work: () => number | Promise<number>): Promise<Ran> {
  const kept = { out: "", err: "" };
  const restore = [catchWrites(process.stdout, "out"), catchWrites(process.stderr, "err")];
  try {
    const code = await work();
    return { code, ...kept };
  } finally {
    for (const undo of restore) undo();
  }

  function catchWrites(stream: NodeJS.WriteStream, key: "out" | "err"): () => void {
    const { write } = stream;
    stream.write = (chunk: string | Uint8Array): boolean => {
      kept[key] += typeof chunk === "string" ? chunk : new TextDecoder().decode(chunk);
      return true;
    };
    return () => {
      stream.write = write;
    };
  }
}

/** The words a shell would make of a line: quotes group, a backslash escapes. No variables, no pipes. */
export function shellWords(line: string): string[] {
  const words: string[] = [];
  for (const [word] of line.matchAll(/(?:"(?:\\.|[^"])*"|'[^']*'|\\.|[^\s"'\\])+/g)) {
    words.push(
      word.replaceAll(/"((?:\\.|[^"])*)"|'([^']*)'|\\(.)/g, (_, double?: string, single?: string, escaped?: string) =>
        double === undefined ? (single ?? escaped ?? "") : double.replaceAll(/\\(["\\$`])/g, "$1"),
      ),
    );
  }
  return words;
}
