/**
 * @file Every file of tests is a quick, a long or a deep one. `npm run check` runs the quick ones of every folder; `npm test` and CI run
 * the long ones too, and a sample of the deep ones.
 */

import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { importsOf, readSource, sourceFiles, testFiles } from "../support/imports.ts";

const read = (name: string): string => readFileSync(name, "utf8");
const { scripts } = JSON.parse(read("package.json")) as { readonly scripts: Readonly<Record<string, string>> };

/** `[quick] test/abstraction/time.test.ts`, as Vitest lists what it would run. */
function listed(deep: string, ...options: readonly string[]): { readonly project: string; readonly file: string }[] {
  // A Vitest that runs within another would take itself for a worker of that one.
  const around = Object.entries(process.env).filter(([name]) => !/^(VITEST|TEST$|AUTOMAP_SLOW$)/.test(name));
  const env = { ...Object.fromEntries(around), AUTOMAP_DEEP: deep };
  const words = ["node_modules/vitest/vitest.mjs", "list", "--filesOnly", ...options];
  const text = execFileSync(process.execPath, words, { env, encoding: "utf8" });
  return [...text.matchAll(/^\[(.*?)\] (test\/\S+)$/gm)].map(([, project = "", file = ""]) => ({ project, file }));
}

const isTest = (name: string): boolean => name.endsWith(".test.ts");
const kindOf = (name: string): string => /\.(long|deep)\.test\.ts$/.exec(name)?.[1] ?? "quick";
const files = testFiles().filter(isTest).sort();
const quick = files.filter((name) => kindOf(name) === "quick");
const deep = files.filter((name) => kindOf(name) === "deep");
const filesOf = (list: ReturnType<typeof listed>): string[] => list.map(({ file }) => file).sort();

describe("the files of tests", () => {
  const all = listed("all");

  it("belong each to one project, as the file's name says", () => {
    expect(filesOf(all)).toEqual(files);
    expect(all.filter(({ project, file }) => project.split(" ", 1)[0] !== kindOf(file))).toEqual([]);
  });

  it("are run by `npm run check` if quick", () => {
    expect(scripts["check"]).toContain("vitest run --project='quick*';");
    expect(filesOf(all.filter(({ project }) => project.startsWith("quick")))).toEqual(quick);
  });

  it("are run by `npm test` unless deep; of those a sixth, another with another seed", () => {
    expect(scripts["test"]).toBe("vitest run");
    const runs = ["1", "2"].map((seed) => filesOf(listed(seed)));
    const drawn = runs.map((run) => run.filter((file) => kindOf(file) === "deep"));
    expect(runs.map((run) => run.filter((file) => kindOf(file) !== "deep"))).toEqual(
      runs.map(() => files.filter((file) => kindOf(file) !== "deep")),
    );
    expect(drawn.map(({ length }) => length)).toEqual(drawn.map(() => Math.ceil(deep.length / 6)));
    expect(drawn[0]).not.toEqual(drawn[1]);
  });

  it("are run if named, deep ones too", () => {
    const file = deep.at(-1) ?? "";
    expect(listed("1", file)).toEqual([{ project: "deep", file }]);
  });

  it("are run by CI as by the command that README.md names", () => {
    expect(read(".ci/run")).toMatch(/^npm test 2>&1/m);
    expect(read("README.md")).toContain("`npm test` runs the tests");
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
      [...readSource(from).matchAll(/(?<![\w-])test\/[\w/-]+(?:\.long|\.deep)?\.test\.ts/g)].map(([file]) => ({
        from,
        file,
      })),
    );
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter(({ file }) => !existsSync(file))).toEqual([]);
  });
});
