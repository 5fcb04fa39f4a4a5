/** @file Limits the length of files, functions and classes: a longer one has two subjects. */

import ts from "typescript";
import { beforeAll, describe, expect, it } from "vitest";
import { readSource, sourceFiles, testFiles } from "./support/imports.ts";

/** In lines, comments and blank lines included. */
const MOST = { file: 450, function: 80, class: 250 } as const;
/** Of a file of tests, whose cases are often a table. What one function of it holds is tests, not steps. */
const MOST_TESTS = 600;

type Part = { readonly kind: keyof typeof MOST; readonly name: string; readonly lines: number };

/** A file, its functions and classes with their lengths; a function within another is part of it. */
function partsOf(file: string, text: string): Part[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const linesOf = (node: ts.Node): number => {
    const line = (at: number): number => source.getLineAndCharacterOfPosition(at).line;
    return line(node.end) - line(node.getStart(source)) + 1;
  };
  const parts: Part[] = [{ kind: "file", name: file, lines: text.split("\n").length - 1 }];
  const visit = (node: ts.Node): void => {
    const [kind, name] = ts.isClassLike(node) ? (["class", node.name] as const) : (["function", nameOf(node)] as const);
    if (ts.isClassLike(node) || ts.isFunctionLike(node))
      parts.push({ kind, name: `${file} ${name?.getText(source) ?? "=>"}`, lines: linesOf(node) });
    ts.forEachChild(node, visit);
  };
  visit(source);
  return parts;
}

function nameOf(node: ts.Node): ts.Node | undefined {
  if (ts.isFunctionLike(node) && node.name) return node.name;
  return node.parent && ts.isVariableDeclaration(node.parent) ? node.parent.name : undefined;
}

const tooLong = (parts: readonly Part[]): string[] =>
  parts
    .filter(({ kind, lines }) => lines > MOST[kind])
    .map(({ kind, name, lines }) => `${name}: a ${kind} of ${lines} lines`);

describe("sizes", () => {
  let parts: Part[] = [];
  beforeAll(() => {
    parts = sourceFiles().flatMap((file) => partsOf(file, readSource(file)));
  });

  it("of files, functions and classes keep to the limits", () => {
    expect(tooLong(parts)).toEqual([]);
  });

  it("of files of tests keep to the limit", () => {
    const long = testFiles()
      .map((file) => ({ file, lines: readSource(file).split("\n").length - 1 }))
      .filter(({ lines }) => lines > MOST_TESTS);
    expect(long).toEqual([]);
    expect(testFiles()).toContain("test/sizes.test.ts");
  });

  it("are found too long when they grow", () => {
    const body = "  let x = 0;\n".repeat(80);
    const text = `class Long {\n${"  m() {}\n".repeat(249)}}\nconst f = () => {\n${body}};\nfunction g() {\n${body}}\nfunction short() {}\n`;
    expect(tooLong(partsOf("long.ts", text))).toEqual([
      "long.ts Long: a class of 251 lines",
      "long.ts f: a function of 82 lines",
      "long.ts g: a function of 82 lines",
    ]);
    expect(tooLong(partsOf("file.ts", "\n".repeat(451)))).toEqual(["file.ts: a file of 451 lines"]);
  });
});
