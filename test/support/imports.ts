/** @file What each source file imports, read with TypeScript's own parser. */

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

export interface Import {
  /** Both relative to the repository, `mapper/bind.ts`; a package by its name, `ml-matrix`. */
  readonly from: string;
  readonly to: string;
  readonly line: number;
  /** `import type`: nothing is left of it when the program runs. */
  readonly erased: boolean;
  /** `import()`: loaded when it is reached. */
  readonly deferred: boolean;
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const NOT_SOURCES: readonly string[] = ["node_modules", "dist", "coverage", "test"];

/** Every TypeScript file that is neither a test nor generated, relative to the repository. */
export function sourceFiles(): string[] {
  return readdirSync(root, { withFileTypes: true })
    .flatMap((entry) => {
      if (entry.name.startsWith(".") || NOT_SOURCES.includes(entry.name)) return [];
      if (!entry.isDirectory()) return [entry.name];
      const inside = readdirSync(join(root, entry.name), { recursive: true, encoding: "utf8" });
      return inside.map((name) => `${entry.name}/${name.replaceAll("\\", "/")}`);
    })
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".d.ts"))
    .sort();
}

/** Every file of tests, relative to the repository. */
export function testFiles(): string[] {
  const all = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" });
  return all.filter((name) => name.endsWith(".ts")).map((name) => `test/${name.replaceAll("\\", "/")}`);
}

export function readSource(name: string): string {
  return readFileSync(join(root, name), "utf8");
}

/** Static imports, re-exports and `import()` calls of a text that stands at `from`. */
export function importsOf(from: string, text = readSource(from)): Import[] {
  const file = ts.createSourceFile(from, text, ts.ScriptTarget.ES2023);
  const found: Import[] = [];
  // All other imports are statements of the file itself.
  const isDeep = /\bimport\s*\(/.test(text);
  const add = (specifier: ts.Expression | undefined, erased: boolean, deferred = false): void => {
    if (!specifier || !ts.isStringLiteralLike(specifier)) return;
    const to = specifier.text.startsWith(".")
      ? relative(root, join(root, dirname(from), specifier.text)).replaceAll("\\", "/")
      : specifier.text;
    found.push({
      from,
      to,
      line: file.getLineAndCharacterOfPosition(specifier.getStart(file)).line + 1,
      erased,
      deferred,
    });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, node.importClause?.isTypeOnly ?? false);
    else if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node.isTypeOnly);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal, true);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      add(node.arguments[0], false, true);
    if (node === file || isDeep) ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

/** What is loaded with a file before anything of it runs: files of ours, packages and parts of Node, each once. */
export function loadedWith(imports: readonly Import[], ...files: readonly string[]): string[] {
  const loaded = new Set(files);
  // What is added while it is gone through is gone through too.
  for (const file of loaded)
    for (const { from, to, erased, deferred } of imports) if (from === file && !erased && !deferred) loaded.add(to);
  return [...loaded].sort();
}

/** Statements of a text that are anything but a re-export. */
export function statementsBesideReExports(name: string, text = readSource(name)): string[] {
  const file = ts.createSourceFile(name, text, ts.ScriptTarget.ES2023, true);
  return file.statements
    .filter((s) => !(ts.isExportDeclaration(s) && s.moduleSpecifier !== undefined))
    .map((s) => s.getText().split("\n", 1)[0] ?? "");
}

/** The shortest rings of files that import one another when the program runs, each named once. */
export function cycles(imports: readonly Import[]): string[] {
  const next = new Map<string, Set<string>>();
  for (const { from, to, erased } of imports) {
    if (erased) continue;
    const reached = next.get(from) ?? new Set();
    reached.add(to);
    next.set(from, reached);
  }
  const found = new Map<string, string>();
  for (const start of next.keys()) {
    const before = new Map<string, string>();
    const queue = [start];
    for (let file = queue.shift(); file !== undefined; file = queue.shift()) {
      for (const to of next.get(file) ?? []) {
        if (to === start) {
          const ring = [file];
          for (let at = before.get(file); at !== undefined; at = before.get(at)) ring.unshift(at);
          const members = [...ring].sort().join(" ");
          if (!found.has(members)) found.set(members, [...ring, start].join(" -> "));
          queue.length = 0;
          break;
        }
        if (!before.has(to)) {
          before.set(to, file);
          queue.push(to);
        }
      }
    }
  }
  return [...found.values()].sort();
}
