/**
 * @file Commands of a page, run as a reader types them: `automap` and `npx automap` are a compiled program, and `import "automap"` finds it.
 *
 *     const place = placeOf(folder, "dist");
 *     writeShownFiles(page, place.cwd);
 *     place.run("npx automap tune matmul --trials 2").status
 */

import { type SpawnSyncReturns, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { onnx } from "./networks.ts";
import { onnxBytes } from "./onnx-bytes.ts";
import { commandsOf, fences } from "./pages.ts";

/** Where a reader works. */
export interface ReadersPlace {
  readonly cwd: string;
  readonly run: (command: string) => SpawnSyncReturns<string>;
}

/** @param program the folder of the compiled program; the reader's own is made. @param variables besides those of this process */
export function placeOf(cwd: string, program: string, variables: Readonly<Record<string, string>> = {}): ReadersPlace {
  const bin = join(cwd, "bin");
  const installed = join(cwd, "node_modules/automap");
  for (const folder of [bin, installed]) mkdirSync(folder, { recursive: true });
  const command = join(bin, "automap");
  writeFileSync(command, `#!/bin/sh\nexec "${process.execPath}" "${resolve(program)}/cli/main.js" "$@"\n`);
  chmodSync(command, 0o755);
  const library = pathToFileURL(resolve(program, "automap.js")).href;
  writeFileSync(join(installed, "index.js"), `export * from "${library}";\n`);
  writeFileSync(join(installed, "package.json"), '{ "name": "automap", "type": "module", "exports": "./index.js" }\n');
  const env = { ...process.env, COLUMNS: "100", ...variables, PATH: `${bin}:${process.env["PATH"] ?? ""}` };
  const run = (line: string): SpawnSyncReturns<string> =>
    spawnSync("bash", ["-c", line.replace(/^npx /, "")], { cwd, env, encoding: "utf8" });
  return { cwd, run };
}

/** The file that a block is, by the line above it: "Write `main.c`:". */
export function fileOf(lead: string): string | undefined {
  return /`([\w.-]+\.\w+)`:$/.exec(lead)?.[1];
}

/** A task of README.md's table. */
export interface ReadersTask {
  /** The reader's words. */
  readonly want: string;
  readonly commands: readonly string[];
  /** As the page says: `15 s`. */
  readonly takes: string;
}

/** The tasks of README.md in the order of its table; where a row says "above", it is a part of the quick win. */
export function readersTasks(readme: string): ReadersTask[] {
  const quickWin = readme.slice(readme.indexOf("## Try it"), readme.indexOf("## Is it for you?"));
  const parts: string[][] = [];
  for (const { command } of fences(quickWin).flatMap(({ body }) => commandsOf(body))) {
    if (command === "npm ci") continue;
    if (/^(npx|node) /.test(command)) parts.push([]);
    parts.at(-1)?.push(command);
  }
  return [...readme.matchAll(/^\| ([^|]+) \| (.+) \| (\d+ (?:s|min)) \| .* \|$/gm)].map(
    ([, want = "", cell = "", takes = ""]) => {
      const own = [...cell.matchAll(/`(automap [^`]+)`/g)].map(([, command = ""]) => command);
      return { want, commands: cell.endsWith("above") ? (parts.shift() ?? []) : own, takes };
    },
  );
}

/** Writes the files that the quick win shows, and the model that a reader of the table has. */
export function writeReadersFiles(readme: string, folder: string): void {
  for (const { body, lead } of fences(readme)) {
    const file = fileOf(lead);
    if (file !== undefined) writeFileSync(join(folder, file), body);
  }
  const model = onnx("h = Relu(Gemm<transB=1>(x[4,32], [16,32]{1}))\nreturn h");
  writeFileSync(join(folder, "model.onnx"), onnxBytes(model));
}
