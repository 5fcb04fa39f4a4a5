/**
 * @file What npm packs holds together: each relative link of a packed page leads to a packed file. `bench/results` is packed for the links to its
 * tables; recorded trials are not, so pages name them without a link.
 */

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const listing = z.tuple([z.object({ files: z.array(z.object({ path: z.string() })) })]);

/** Every file of the tarball. The listing needs no build: `dist` is left out where there is none. */
function packedFiles(): ReadonlySet<string> {
  const words = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const text = execFileSync("npm", words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const [{ files }] = listing.parse(JSON.parse(text));
  return new Set(files.map(({ path }) => path));
}

/** Targets of relative links and pictures, without their anchors. */
function linksIn(text: string): string[] {
  const found = text.matchAll(/\]\((?!\w+:)([^)#\s]+)|(?:src|srcset|href)="(?!\w+:)([^"#]+)/g);
  return [...found].map(([, link, picture]) => link ?? picture ?? "");
}

describe("the packed pages", () => {
  const files = packedFiles();
  const folders = new Set([...files].map(dirname));
  const pages = [...files].filter((file) => file.endsWith(".md"));
  const missingIn = (page: string, text: string): string[] =>
    linksIn(text).filter((link) => {
      const target = join(dirname(page), link).replace(/\/$/, "");
      return !files.has(target) && !folders.has(target);
    });

  it("link only to what is packed with them", () => {
    expect(pages).toEqual(expect.arrayContaining(["README.md", "docs/results.md", "bench/results/trials.md"]));
    const missing = pages.map((page) => [page, missingIn(page, readFileSync(page, "utf8"))] as const);
    expect(missing.filter(([, links]) => links.length > 0)).toEqual([]);
  });

  it("are found wrong where they link to what stays in the repository", () => {
    const text = "[a](../bench/trials/cuda-split-h100.jsonl.gz) [b](results.md#gpus) [c](https://a.b/c) <img src='x'>";
    expect(missingIn("docs/six-arrays.md", text)).toEqual(["../bench/trials/cuda-split-h100.jsonl.gz"]);
    expect(missingIn("README.md", '<img srcset="docs/none.svg">')).toEqual(["docs/none.svg"]);
  });
});
