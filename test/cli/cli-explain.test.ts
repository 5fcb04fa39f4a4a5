/** @file `automap explain`: a mapping drawn, as text and as SVG, and why a match is refused. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { printed } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder("automap explain's ");

describe("automap explain", () => {
  it("draws the mapping with a given id or prefix of one", async () => {
    const [line = ""] =
      (await printed("map conv2d --intrinsic amx.tdpbusd")).match(/^ {2}[0-9a-f]{12}.*p,q.*c,r /m) ?? [];
    const id = line.trim().slice(0, 12);
    const text = await printed(`explain conv2d --intrinsic amx.tdpbusd --id ${id}`);
    expect(text).toContain(`mapping ${id}   m <- n,p,q   n <- k   k <- c,r `);
    expect(await printed(`explain conv2d --intrinsic amx.tdpbusd --id ${id.slice(0, 8)}`)).toBe(text);
  });

  it.each([
    "conv2d --intrinsic amx.tdpbusd",
    "variance --intrinsic virtual.conv",
    "3d7pt --intrinsic avx512",
    "transposed-conv2d --h 5 --w 7 --intrinsic mma.m16n8k8.f32.tf32",
  ])("draws %s into an SVG that is well-formed XML", async (line) => {
    const file = join(scratch, "a drawing.svg");
    const { code, err } = await commandLine(["explain", ...line.split(" "), "--svg", file]);
    expect(code).toBe(0);
    expect(err).toContain(`drawn into ${file}\n`);
    expectWellFormed(readFileSync(file, "utf8"));
  });
});

/** Every tag closed in order, no stray `<`, `&` or quote, no script. */
function expectWellFormed(xml: string): void {
  const open: string[] = [];
  const rest = xml.replaceAll(/<(\/?)(\w+)((?:\s+[\w:-]+="[^"<]*")*)\s*(\/?)>/g, (_, close, name, __, empty) => {
    if (close) expect(open.pop()).toBe(name);
    else if (!empty) open.push(name);
    return "";
  });
  expect(open).toEqual([]);
  expect(rest).not.toMatch(/[<>]|&(?!(?:amp|lt|gt|quot);)/);
  expect(xml).not.toContain("<script");
}
