/** @file Weights that a model holds as integers of 8 bits: the package's file holds them so, and the library computes with the same numbers. */

import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { loadNetwork } from "../../entries/network.ts";
import { GraphBuilder } from "../../network/builder.ts";
import type { Graph } from "../../network/graph.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { runChild } from "../../runtime/child.ts";
import { choicesOf, networkSubject, openGraph } from "../../session/network/network.ts";
import { proveNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { sealedPackage } from "../../session/package/sealed-package.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
const compiler = await compilerHere();

const drawn = (count: number, by: number): number[] => Array.from({ length: count }, (_, i) => ((i + 1) * by) % 251);
const floats = (count: number, by: number): Float32Array => Float32Array.from(drawn(count, by), (x) => (x - 120) / 77);

/** A convolution of u8 with a zero point for each filter, a matrix of s8 with a scale for each column, one turned, one of a single scale. */
function layers(): Graph {
  const net = new GraphBuilder("layers");
  const x = net.input("x", [1, 4, 6, 6]);
  const filters = net.node(
    "DequantizeLinear",
    [
      net.constant("filters", [8, 4, 3, 3], Uint8Array.from(drawn(288, 37)), "u8"),
      net.constant("filters.scale", [8], floats(8, 41)),
      net.constant("filters.zero", [8], Uint8Array.from(drawn(8, 97)), "u8"),
    ],
    { axis: 0 },
  );
  const image = net.node("Reshape", [net.node("Conv", [x, filters]), net.whole("shape", [8, 16])]);
  const columns = net.node(
    "DequantizeLinear",
    [
      net.constant("columns", [16, 40], Int8Array.from(drawn(640, 59)), "s8"),
      net.constant("columns.scale", [40], floats(40, 43)),
      net.constant("columns.zero", [40], Int8Array.from(drawn(40, 13)), "s8"),
    ],
    { axis: 1 },
  );
  const rows = net.node(
    "DequantizeLinear",
    [
      net.constant("rows", [24, 40], Int8Array.from(drawn(960, 17)), "s8"),
      net.constant("rows.scale", [24], floats(24, 29)),
    ],
    { axis: 0 },
  );
  const one = net.node("DequantizeLinear", [
    net.constant("one", [24, 48], Int8Array.from(drawn(1152, 11)), "s8"),
    net.constant("one.scale", [], Float32Array.of(-0.0137)),
  ]);
  const wide = net.node("Gemm", [net.node("MatMul", [image, columns]), rows], { transB: 1 });
  net.output(net.node("MatMul", [wide, one]));
  return net.graph;
}

const x = floats(144, 73);

/** The bits of the output by loadNetwork and by the package's program. @param isWide whether the file holds f32, as for other constants */
async function outputsOf(isWide: boolean, kernels: boolean) {
  const { program } = openGraph(layers());
  const { integers, ...wide } = program;
  const name = `layers_${isWide ? "wide" : "narrow"}`;
  const subject = networkSubject(isWide ? wide : program, kernels ? choicesOf(program) : new Map(), { name });
  const parts = partsOfNetwork(subject);
  const at = join(folder, `${name}_${kernels}`);
  writePackage(at, sealedPackage(networkFiles(subject)));
  expect(await proveNetwork(at, parts, compiler)).toEqual({ status: "right", steps: parts.steps.length });
  const net = await loadNetwork(at);
  const called = Object.values(net.run({ x })).map((array) => Buffer.from(array.buffer).toString("hex"));
  net.close();
  const files = [join(at, "x"), join(at, "y")] as const;
  writeFileSync(files[0], x);
  const run = await runChild([join(at, `build/${name}_main`), ...files], { timeLimitMs: 900_000 });
  expect(run.stderr).toBe("");
  const written = readFileSync(files[1]).toString("hex");
  return { called, written: [written], bytes: statSync(join(at, `${name}.weights`)).size, parts };
}

describe("weights of 8 bits with scales", () => {
  it.each([false, true])(
    "are bytes in the package's file, and the outputs keep every bit; kernels: %s",
    async (kernels) => {
      const wide = await outputsOf(true, kernels);
      const narrow = await outputsOf(false, kernels);
      expect(wide.called).toEqual(wide.written);
      expect(narrow.called).toEqual(wide.called);
      expect(narrow.written).toEqual(wide.called);
      expect(wide.parts.widened.integers).toEqual([]);
      const stored = narrow.parts.widened.integers.map(({ type, elements, channels, run }) => [
        type,
        elements,
        channels,
        run,
      ]);
      expect(stored).toEqual([
        ["u8", 288, 8, 36],
        ["s8", 640, 40, 1],
        ["s8", 960, 24, 40],
        ["s8", 1152, 1, 1152],
      ]);
      expect(wide.bytes).toBe(4 * 3040);
      // Beside the integers 73 scales and zeros, each list begun at a cache line.
      expect(narrow.bytes).toBe(3712);
    },
  );

  it("stay f32 where the numbers are not those of the integers", () => {
    const { program } = openGraph(layers());
    for (const [numbers] of program.integers ?? []) numbers[1] = 0.5;
    const { weights, widened } = partsOfNetwork(networkSubject(program, new Map()));
    expect(widened.integers).toEqual([]);
    expect(weights.length).toBe(4 * 3040);
  });
});
