/**
 * @file Every file of tests is a quick or a long one; `npm run check` runs the quick ones of every folder, `npm test`
 * and CI run all.
 */

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { importsOf, readSource, sourceFiles, testFiles } from "./support/imports.ts";

const read = (name: string): string => readFileSync(name, "utf8");
const { scripts } = JSON.parse(read("package.json")) as { readonly scripts: Readonly<Record<string, string>> };

/** `[quick] test/time.test.ts`, as Vitest lists what it would run. */
function listed(...options: readonly string[]): { readonly project: string; readonly file: string }[] {
  // A Vitest that runs within another would take itself for a worker of that one.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(VITEST|TEST$)/.test(name)));
  const words = ["node_modules/vitest/vitest.mjs", "list", "--filesOnly", ...options];
  const text = execFileSync(process.execPath, words, { env, encoding: "utf8" });
  return [...text.matchAll(/^\[(.*?)\] (test\/\S+)$/gm)].map(([, project = "", file = ""]) => ({ project, file }));
}

const isTest = (name: string): boolean => name.endsWith(".test.ts");
const isLong = (name: string): boolean => name.endsWith(".long.test.ts");
const files = testFiles().filter(isTest).sort();
const quick = files.filter((name) => !isLong(name));
const filesOf = (list: ReturnType<typeof listed>): string[] => list.map(({ file }) => file).sort();

describe("the files of tests", () => {
  it("belong each to one project, quick or long as the file's name says", () => {
    const all = listed();
    expect(filesOf(all)).toEqual(files);
    expect(all.filter(({ project, file }) => isLong(file) !== project.startsWith("long"))).toEqual([]);
  });

  it("are run by `npm run check` if quick, and all by `npm test`", () => {
    const option = /vitest run (--project='[^']+');/.exec(scripts["check"] ?? "")?.[1]?.replaceAll("'", "") ?? "";
    expect(filesOf(listed(option))).toEqual(quick);
    expect(scripts["test"]).toBe("vitest run");
  });

  it("are all run by CI and by the command that README.md names", () => {
    expect(read(".ci/run")).toMatch(/^npm test 2>&1/m);
    expect(read("README.md")).toContain("`npm test` runs every test.");
  });

  it("reach every folder of sources, even the quick ones alone", () => {
    const folders = (names: readonly string[]): Set<string> =>
      new Set(names.filter((name) => name.includes("/")).map((name) => name.split("/", 1)[0] ?? ""));
    const reached = folders(quick.flatMap((name) => importsOf(name)).map(({ to }) => to));
    expect([...folders(sourceFiles())].filter((folder) => !reached.has(folder))).toEqual([]);
  });

  it("exist wherever a page or a comment names one", () => {
    const pages = readdirSync("docs").flatMap((page) => (page.endsWith(".md") ? [`docs/${page}`] : []));
    const named = [...sourceFiles(), ...files, ...pages, "CONTRIBUTING.md"].flatMap((from) =>
      [...readSource(from).matchAll(/(?<![\w-])test\/[\w-]+(?:\.long)?\.test\.ts/g)].map(([file]) => ({ from, file })),
    );
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter(({ file }) => !existsSync(file))).toEqual([]);
  });
});
