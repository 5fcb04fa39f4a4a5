/** @file Rules of what `automap systolic` draws and ranks; what it prints stands in test/golden/commands/systolic.txt. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { commandLine } from "../support/command-line.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder();

async function printed(line: string): Promise<string> {
  const { code, out, err } = await commandLine(`systolic ${line}`);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return out;
}

describe("automap systolic --show", () => {
  it("draws into an SVG file", async () => {
    for (const [line, rects] of [
      ['"z[c] += x[c+q]*w[q]" --c 16 --q 5 --show SBM', 3 * 20 * 5],
      ["matmul --m 3 --n 3 --k 3 --show FFS", 3 * 9 * 7],
    ] as const) {
      const file = join(scratch, "array.svg");
      await printed(`${line} --svg ${file}`);
      const svg = readFileSync(file, "utf8");
      expect(svg).toMatch(/^<svg [\s\S]*<\/svg>\n$/);
      expect(svg.match(/rx="3"/g)).toHaveLength(rects);
      // Idle cells are as large as the others.
      expect(new Set([...svg.matchAll(/ (width="\S+" height="\S+") rx="3"/g)].map(([, size]) => size)).size).toBe(1);
      // No two cells of a drawing lie over one another.
      const places = [...svg.matchAll(/<rect[^>]* x="(\S+)" y="(\S+)"[^>]* rx="3"/g)].map(([, x, y]) => `${x} ${y}`);
      expect(new Set(places).size).toBe(rects);
      expect(svg).not.toMatch(/<script|href=|NaN|undefined/);
    }
  });
});

describe("cycles", () => {
  const extra = z.object({
    designs: z.array(z.object({ name: z.string(), cycles: z.number(), latencyCycles: z.number() })),
  });
  it.each(["avx512", "warp", "gen9"])("rank the designs of %s, fewest first", async (machine) => {
    const { designs } = extra.parse(JSON.parse(await printed(`conv1d --machine ${machine} --json`)));
    const cycles = designs.map((d) => d.cycles);
    expect(cycles).toEqual(cycles.toSorted((a, b) => a - b));
    expect(designs.every((d) => d.latencyCycles > d.cycles)).toBe(true);
  });
});
