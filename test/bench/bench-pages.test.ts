/** @file What benches leave: pages whose commands exist, and recorded kernels in one format. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { readSource, sourceFiles, testFiles } from "../support/imports.ts";
import { caseLines, recordedCases } from "../support/recorded-trials.ts";

const pages = readdirSync("bench/results").map((name) => `bench/results/${name}`);
const documents = [
  ...readdirSync("docs").flatMap((name) => (name.endsWith(".md") ? [`docs/${name}`] : [])),
  "README.md",
];

it("are pages only: raw lines of results are not kept", () => {
  expect(pages.filter((name) => !name.endsWith(".md"))).toEqual([]);
});

/** What a page names that does not exist. */
function missingIn(page: string): string[] {
  const text = readFileSync(page, "utf8");
  const scripts = [...text.matchAll(/\bdist\/(bench\/[\w/-]+)\.js\b/g)].map(([, name]) => `${name}.ts`);
  const files = [...text.matchAll(/(?<![\w/])bench\/[\w/.-]+?\.(?:ts|md|jsonl\.gz|py|cpp|json)\b/g)].map(
    ([name]) => name,
  );
  const links = [...text.matchAll(/\]\((?!https?:)([^)#\s]+)/g)].map(([, to = ""]) => join(dirname(page), to));
  const named = [...scripts, ...files, ...links].filter((name) => !name.includes("..."));
  return named.filter((name) => !existsSync(name)).map((name) => `${page}: ${name}`);
}

it("name scripts and files that exist", () => {
  expect([...pages, ...documents].flatMap(missingIn)).toEqual([]);
});

it("keeps recorded kernels that some page, test or source names", () => {
  const texts = [...pages, ...documents, ...sourceFiles(), ...testFiles()].map(readSource).join("\n");
  expect(readdirSync("bench/trials").filter((name) => !texts.includes(name.replace(".jsonl.gz", "")))).toEqual([]);
});

it("reads a case that was written in two parts as one, with its kernels in order", () => {
  const tensors = { x: "f32", y: { dtype: "f32", constant: true } } as const;
  const computation = defineComputation({
    name: "product",
    equation: "c[i] += x[i,k] * y[k]; d[i] = max(c[i], 0)",
    extents: { i: 3, k: 4 },
    tensors,
  });
  const candidate = { kind: "loops", intrinsic: "loops", schedule: { threads: 1 } } as const;
  const one = { name: "a", operator: "product", target: "native", computation };
  const parts = [
    { ...one, trials: [{ candidate, median: 2 }] },
    { ...one, name: "b", trials: [] },
    { ...one, trials: [{ candidate, median: 1, interval: [1, 2], again: 3 }] },
  ] as const;
  const read = recordedCases(Buffer.from(parts.map(caseLines).join("")));
  expect(read.map(({ name, trials }) => [name, trials])).toEqual([
    ["a", [...parts[0].trials, ...parts[2].trials]],
    ["b", []],
  ]);
  expect(read[0]?.computation).toEqual(computation);
});
