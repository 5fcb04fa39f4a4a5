/**
 * @file Sources as a program that `node` can run in a process of its own.
 *
 *     compileProgram(folder, ["db/index.ts"]);
 *     writeFileSync(join(folder, "main.js"), `import { openDatabase } from "./db/index.js"; ...`);
 *     spawn(process.execPath, [join(folder, "main.js")]);
 */

import { copyFileSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, extname, join, resolve } from "node:path";
import ts from "typescript";
import { importsOf, readSource } from "./imports.ts";

const ROOT = resolve(import.meta.dirname, "../..");

/** Writes these files as JavaScript, all that they import, and what lies beside them to be read. @param entries from the root of the repository */
export function compileProgram(folder: string, entries: readonly string[]): void {
  const left = [...entries];
  const written = new Set<string>();
  for (let file = left.pop(); file !== undefined; file = left.pop()) {
    if (written.has(file)) continue;
    written.add(file);
    const source = readSource(file);
    mkdirSync(join(folder, dirname(file)), { recursive: true });
    const { outputText } = ts.transpileModule(source, {
      fileName: file,
      compilerOptions: {
        target: ts.ScriptTarget.ES2023,
        module: ts.ModuleKind.ESNext,
        verbatimModuleSyntax: true,
        rewriteRelativeImportExtensions: true,
      },
    });
    writeFileSync(join(folder, file.replace(/\.ts$/, ".js")), outputText);
    left.push(...importsOf(file, source).flatMap(({ to, erased }) => (erased || !to.endsWith(".ts") ? [] : [to])));
  }
  for (const room of new Set([...written].map((file) => dirname(file)))) copyData(room, folder);
  copyFileSync(join(ROOT, "package.json"), join(folder, "package.json"));
  symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
}

function copyData(room: string, folder: string): void {
  for (const entry of readdirSync(join(ROOT, room), { withFileTypes: true }))
    if (entry.isFile() && extname(entry.name) !== ".ts")
      copyFileSync(join(ROOT, room, entry.name), join(folder, room, entry.name));
}
