/** @file Products by weights of a few bits give what ONNX Runtime's definition gives, and their weights stay narrow. */

import { expect, it } from "vitest";
import { equationText, tensorOf } from "../../abstraction/computation.ts";
import { dtypesOf } from "../../abstraction/typing.ts";
import type { Graph } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import { onnxBytes } from "../../network/onnx/write.ts";
import { runNetwork } from "../../network/run.ts";
import { explanationOf } from "../support/message.ts";
import { onnx } from "../support/networks.ts";

interface Case {
  readonly bits: number;
  readonly k: number;
  readonly zero?: "u8" | "f32";
  readonly bias?: boolean;
}

const [N, SIZE, ROWS] = [5, 16, 3];

/** A model with drawn bytes. @param last further inputs or attributes */
function modelOf({ bits, k, zero, bias }: Case, attributes = ""): Graph {
  const groups = Math.ceil(k / SIZE);
  const bytes = Math.ceil((groups * bits) / 8);
  const graph = onnx(`
    w = u8[${N},${groups},${(SIZE * bits) / 8}]{0}
    s = [${N * groups}]{0}
    z = ${zero === "u8" ? `u8[${N * bytes}]{0}` : `[${N},${groups}]{0}`}
    b = [${N}]{drawn}
    y = MatMulNBits<K=${k},N=${N},bits=${bits},block_size=${SIZE}${attributes}>(a[${ROWS},1,${k}], w, s${zero || bias ? `, ${zero ? "z" : ""}` : ""}${bias ? ", , b" : ""})
    return y
  `);
  const valuesOf = (name: string) => graph.constants.get(name)?.values ?? [];
  const [w, s, z] = [valuesOf("w"), valuesOf("s"), valuesOf("z")];
  for (let i = 0; i < w.length; i++) w[i] = (i * 89 + 31) % 256;
  for (let i = 0; i < s.length; i++) s[i] = ((i % 7) + 1) / 64;
  for (let i = 0; i < z.length; i++) z[i] = zero === "u8" ? (i * 57 + 9) % 256 : (i % 5) + 0.5;
  return graph;
}

/** (code - zero) * scale of a weight. */
function weightOf(graph: Graph, { bits, k: K, zero }: Case, n: number, k: number): number {
  const groups = Math.ceil(K / SIZE);
  const valueAt = (name: string, i: number): number => Number(graph.constants.get(name)?.values[i]);
  const number = (name: string, row: number, i: number): number => {
    const each = 8 / bits;
    return (valueAt(name, row + Math.floor(i / each)) >> (bits * (i % each))) & (2 ** bits - 1);
  };
  const group = Math.floor(k / SIZE);
  const code = number("w", (n * groups + group) * ((SIZE * bits) / 8), k % SIZE);
  const packed = Math.ceil((groups * bits) / 8);
  const point = zero === "u8" ? number("z", n * packed, group) : valueAt("z", n * groups + group);
  return (code - (zero ? point : 2 ** (bits - 1))) * valueAt("s", n * groups + group);
}

it.each<Case>([
  { bits: 4, k: 48 },
  { bits: 4, k: 48, zero: "u8" },
  { bits: 4, k: 40, zero: "f32", bias: true },
  { bits: 8, k: 32 },
  { bits: 8, k: 40, zero: "u8", bias: true },
  { bits: 2, k: 48, zero: "u8" },
])("weights of $bits bits, K $k, zero points $zero, bias $bias", async (one) => {
  const written = modelOf(one);
  const graph = parseOnnx(onnxBytes(written), "m.onnx", ".");
  const a = Float32Array.from({ length: ROWS * one.k }, (_, i) => ((i * 13) % 32) / 8 - 2);
  const program = lowerGraph(graph);
  const [out] = (await runNetwork(program, { a })).values();
  const wanted = Array.from({ length: ROWS * N }, (_, i) => {
    const n = i % N;
    const row = Math.floor(i / N) * one.k;
    let sum = one.bias ? Number(written.constants.get("b")?.values[n]) : 0;
    for (let k = 0; k < one.k; k++) sum += (a[row + k] ?? 0) * weightOf(written, one, n, k);
    return sum;
  });
  expect(out).toHaveLength(wanted.length);
  for (const [i, value] of wanted.entries()) expect(out?.[i]).toBeCloseTo(value, 3);
  const [step] = program.steps;
  expect(step && tensorOf(step.computation, "w")).toMatchObject({ dtype: "u8", constant: true });
});

it("whose zero points are 8 are the operator matmul-4bit", () => {
  const [step] = lowerGraph(modelOf({ bits: 4, k: 48 })).steps;
  expect(step?.operator).toEqual({ name: "matmul-4bit", parameters: { m: ROWS, n: N, k: 48, group: SIZE } });
  expect(step && equationText(step.computation)).toBe(
    "out[m,n] += a[m,16*g+2*b+h] * ((f32(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - 8) * s[n,g])",
  );
  expect(step && dtypesOf(Object.values(step.computation.tensors))).toEqual({
    out: "f32",
    a: "f32",
    w: "u8",
    s: "f32",
  });
});

it("of other domains are refused", () => {
  const bytes = onnxBytes(modelOf({ bits: 4, k: 48 }));
  const text = Buffer.from(bytes).toString("latin1");
  const model = (domain: string): Uint8Array => Buffer.from(text.replaceAll("com.microsoft", domain), "latin1");
  expect(explanationOf(() => parseOnnx(model("com.nobody.at"), "m.onnx", "."))).toMatch(
    /the operator MatMulNBits of com\.nobody\.at is not supported.*that of com\.microsoft is/s,
  );
});

it.each([
  [{ bits: 3, k: 48 }, "", /weights of 3 bits are not supported/],
  [{ bits: 4, k: 48 }, ",weight_prepacked=1", /the attribute weight_prepacked is not supported/],
] as const)("that are not supported are refused: %j %s", (one, attributes, because) => {
  expect(explanationOf(() => lowerGraph(modelOf(one, attributes)))).toMatch(because);
});
