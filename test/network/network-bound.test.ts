/** @file `--constant` binds an input of a network to numbers, or to the tensor of a file. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { EXIT } from "../../abstraction/exit-codes.ts";
import { complaint, printed } from "../support/cli.ts";
import { onnx } from "../support/networks.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

/** x times `factor` where `sr` is 16000; `shape` says how x is shown. */
function model(): string {
  const graph = onnx(`
    is16 = Equal(sr:s64[], s64[]{16000})
    chosen = Where(is16, Mul(x[2,3], factor[1]), Neg(x))
    Reshape(chosen, shape:s64[rank])
  `);
  const file = join(folder, "bound.onnx");
  writeFileSync(file, onnxBytes(graph));
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
  expect(await complaint(`${show} sr=16k ${others}`, EXIT.nothingFound)).toMatch(
    /16k cannot be read: there is no such file/,
  );
  expect(await complaint(`${show} sr ${others}`)).toMatch(
    /--constant "sr" is not name=value\n {2}for example --constant sr=16000/,
  );
  expect(await complaint(`${show} rate=1`)).toMatch(/the network has no input "rate"/);
});
