/**
 * @file Sources as a program that `node` can run in a process of its own.
 *
 *     compileProgram(folder, ["db/index.ts"]);
 *     writeFileSync(join(folder, "main.js"), `import { openDatabase } from "./db/index.js"; ...`);
 *     spawn(process.execPath, [join(folder, "main.js")]);
 */

import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, extname, join, resolve } from "node:path";
import ts from "typescript";
import { readSource } from "./imports.ts";

const ROOT = resolve(import.meta.dirname, "../..");

/** Writes these files as JavaScript, all that they import, and what lies beside them to be read. @param entries from the root of the repository */
export function compileProgram(folder: string, entries: readonly string[]): void {
  const left = [...entries];
  const written = new Set<string>();
  for (let file = left.pop(); file !== undefined; file = left.pop()) {
    if (written.has(file)) continue;
    written.add(file);
    mkdirSync(join(folder, dirname(file)), { recursive: true });
    const text = extname(file) === ".ts" ? erased(file) : readSource(file);
    writeFileSync(join(folder, file.replace(/\.ts$/, ".js")), text);
    for (const { fileName } of ts.preProcessFile(text).importedFiles) {
      const next = join(dirname(file), fileName);
      if (fileName.startsWith(".")) left.push(existsSync(join(ROOT, next)) ? next : next.replace(/\.js$/, ".ts"));
    }
  }
  for (const room of new Set([...written].map((file) => dirname(file)))) copyData(room, folder);
  copyFileSync(join(ROOT, "package.json"), join(folder, "package.json"));
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
}

/** A source without its types, kept for later callers. */
function erased(file: string): string {
  const source = readSource(file);
  const compilerOptions = {
    target: ts.ScriptTarget.ES2023,
    module: ts.ModuleKind.ESNext,
    verbatimModuleSyntax: true,
    rewriteRelativeImportExtensions: true,
  };
  const hash = createHash("sha256")
    .update(JSON.stringify([ts.version, compilerOptions, file, source]))
    .digest("hex");
  const kept = join(process.env["XDG_CACHE_HOME"] ?? tmpdir(), "test programs", `${hash}.js`);
  if (existsSync(kept)) return readFileSync(kept, "utf8");
  const { outputText } = ts.transpileModule(source, { fileName: file, compilerOptions });
  mkdirSync(dirname(kept), { recursive: true });
  // Two processes may write it at once: each writes its own file, and the last one stays.
  writeFileSync(`${kept}.${process.pid}`, outputText);
  renameSync(`${kept}.${process.pid}`, kept);
  return outputText;
}

function copyData(room: string, folder: string): void {
  for (const entry of readdirSync(join(ROOT, room), { withFileTypes: true }))
    if (entry.isFile() && (extname(entry.name) !== ".ts" || entry.name.endsWith(".d.ts")))
      copyFileSync(join(ROOT, room, entry.name), join(folder, room, entry.name));
}

/** A program at work. */
export interface Started {
  readonly child: ChildProcess;
  /** What it said. A last line without its end was not said. */
  readonly lines: () => string[];
  /** Resolves at its first word, or when it ends without one. */
  readonly begun: Promise<unknown>;
  readonly ended: Promise<{ readonly code: number | null; readonly errors: string }>;
}

/** @param words a script, and what it is given */
export function startProgram(...words: readonly string[]): Started {
  const child = spawn(process.execPath, words);
  let said = "";
  let errors = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    errors += text;
  });
  const ended = once(child, "close").then(() => ({ code: child.exitCode, errors }));
  return {
    child,
    lines: () => said.split("\n").slice(0, -1),
    begun: Promise.race([once(child.stdout, "data"), ended]),
    ended,
  };
}
