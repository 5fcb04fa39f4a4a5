/** @file `--constant` binds an input of a network to numbers, or to the tensor of a file. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { GraphBuilder } from "../network/builder.ts";
import { onnxBytes } from "../network/onnx/write.ts";
import { complaint, printed } from "./support/cli.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-bound-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** x times `factor` where `sr` is 16000; `shape` says how x is shown. */
function model(): string {
  const net = new GraphBuilder("bound");
  const x = net.input("x", [2, 3]);
  const sr = net.input("sr", [], "s64");
  const shape = net.input("shape", ["rank"], "s64");
  const factor = net.input("factor", [1]);
  const is16 = net.node("Equal", [sr, net.constant("rate", [], Float64Array.of(16000), "s64")]);
  const chosen = net.node("Where", [is16, net.node("Mul", [x, factor]), net.node("Neg", [x])]);
  net.output(net.node("Reshape", [chosen, shape]));
  const file = join(folder, "bound.onnx");
  writeFileSync(file, onnxBytes(net.graph));
  return file;
}

const show = `network show ${model()} --db ${join(folder, "none.db")} --constant`;

it("numbers take the place of an input, in its type and shape", async () => {
  const shown = JSON.parse(await printed(`${show} sr=16000 --constant shape=3,-1 --constant factor=2.5e0 --json`)) as {
    parameters: number;
    steps: number;
  };
  // Nothing but the product with the bound factor and the choice is left.
  expect(shown.steps).toBe(1);
});

it("what is no number of the input's type is refused, and other words are files", async () => {
  const others = "--constant shape=3,2 --constant factor=1";
  expect(await complaint(`${show} sr=1.5 ${others}`)).toMatch(/--constant sr=1.5: 1.5 is no number of s64/);
  expect(await complaint(`${show} sr=1,2 ${others}`)).toMatch(/input sr is s64\[\], and the constant is s64\[2\]/);
  expect(await complaint(`${show} sr=16k ${others}`)).toMatch(/16k cannot be read: there is no such file/);
  expect(await complaint(`${show} sr ${others}`)).toMatch(
    /--constant "sr" has no =\n {2}for example --constant sr=16000/,
  );
  expect(await complaint(`${show} rate=1`)).toMatch(/the network has no input "rate"/);
});
