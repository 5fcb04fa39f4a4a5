/** @file The traffic of caches under a nest: lines that stay, and lines that are fetched again, counted by hand. */

import { expect, test } from "vitest";
import type { Tensor } from "../../abstraction/computation.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { LINE_BYTES } from "../../perfmodel/footprint.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { straightRuns, tensorsIn } from "../../perfmodel/vector-census.ts";
import { addTraffic, cachesOf } from "../../perfmodel/vectors.ts";
import { REFERENCE_CPU } from "../../targets/x86.ts";

const LANES = 16;
const target = modelTarget(REFERENCE_CPU);
const lanes = (text: string): Statement =>
  loop("lane", LANES, [{ kind: "scalar", equation: parseEquation(text) }], "lanes");

/** Lines that each cache fetches, and gives back, for each line of a channel: 64 rows of 64 columns, 128 channels in all. */
function linesOf(body: readonly Statement[], layouts: string): string[] {
  const parameters = { n: 1, c: 128, h: 64, w: 64, m: 1, r: 1, s: 1, pad: 0 };
  const { tensors } = instantiate(operatorNamed("depthwise-conv2d"), { parameters, layouts });
  const nest: LoopNest = { scratch: [], registers: [], prepare: [], vectors: [], body };
  const caches = cachesOf(target);
  const known: Readonly<Record<string, Tensor>> = tensors;
  for (const { statements, around, times } of straightRuns(nest))
    addTraffic(caches, statements, around, times, tensorsIn(nest, known));
  const each = (bytes: number): string => (bytes / LINE_BYTES / (64 * 4 * 128)).toFixed(2);
  return caches.map(({ cache, fetched, returned }) => `${cache.name} ${each(fetched)} ${each(returned)}`);
}

const rows = loop("p", 64, [loop("q", 4, [lanes("out[0,c,p,16*q+lane] = in[0,c,p,16*q+lane]")])]);

test("a channel of rows is fetched once, and channels that lie side by side come again where a cache does not keep their lines", () => {
  expect(linesOf([loop("c", 128, [rows])], "NCHW")).toMatchInlineSnapshot(`
    [
      "l1 1.00 1.00",
      "l2 1.00 1.00",
      "l3 1.00 1.00",
    ]
  `);
  expect(linesOf([loop("c", 128, [rows])], "NHWC")).toMatchInlineSnapshot(`
    [
      "l1 16.00 16.00",
      "l2 16.00 16.00",
      "l3 1.00 1.00",
    ]
  `);
});

test("an inner loop over channels finds the lines that the steps before it fetched", () => {
  const inside = loop("c", 128, [lanes("out[0,c,p,16*q+lane] = in[0,c,p,16*q+lane]")]);
  expect(linesOf([loop("p", 64, [loop("q", 4, [inside])])], "NHWC")).toMatchInlineSnapshot(`
    [
      "l1 1.00 1.00",
      "l2 1.00 1.00",
      "l3 1.00 1.00",
    ]
  `);
});

test("sums that stay in registers leave once", () => {
  const inside = loop("c", 128, [lanes("out[0,0,p,16*q+lane] = in[0,c,p,16*q+lane]")]);
  expect(linesOf([loop("p", 64, [loop("q", 4, [inside])])], "NCHW")).toMatchInlineSnapshot(`
    [
      "l1 2.00 0.01",
      "l2 1.00 0.01",
      "l3 1.00 0.01",
    ]
  `);
});

test("reads of neighbours in two rows are a grid: 64 rows of 49 columns, each element in a line of its own", () => {
  const pair = (row: string): string => `in[0,c,${row},16*q+lane] + in[0,c,${row},16*q+lane+1]`;
  const grid = lanes(`out[0,c,p,16*q+lane] = ${pair("p")} + ${pair("p+8")}`);
  const read = ((64 * 49 * 16) / (64 * 64)).toFixed(2);
  const written = ((56 * 48 * 16) / (64 * 64)).toFixed(2);
  expect(linesOf([loop("c", 128, [loop("p", 56, [loop("q", 3, [grid])])])], "NHWC")).toContain(`l2 ${read} ${written}`);
});
