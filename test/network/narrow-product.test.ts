/** @file Products by weights of a few bits give what ONNX Runtime's definition gives, and their weights stay narrow. */

import { describe, expect, it } from "vitest";
import { equationText, tensorOf } from "../../abstraction/computation.ts";
import { dtypesOf } from "../../abstraction/typing.ts";
import type { Graph } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import { runNetwork } from "../../network/run.ts";
import { explanationOf } from "../support/message.ts";
import { onnx } from "../support/networks.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";

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

describe("with accuracy_level 4, in bytes", () => {
  const [n, group, k] = [5, 32, 80];
  const groups = 3;
  const graphOf = (zero = false): Graph => {
    const graph = onnx(`
      w = u8[${n},${groups},${group / 2}]{0}
      s = [${n * groups}]{0}
      z = u8[${n * 2}]{0}
      y = MatMulNBits<K=${k},N=${n},bits=4,block_size=${group},accuracy_level=4>(a[2,${k}], w, s${zero ? ", z" : ""})
      return y
    `);
    for (const [name, at] of [
      ["w", (i: number) => (i * 89 + 31) % 256],
      ["s", (i: number) => ((i % 7) + 1) / 64],
      ["z", (i: number) => (i * 57 + 9) % 256],
    ] as const) {
      const values = graph.constants.get(name)?.values ?? [];
      for (let i = 0; i < values.length; i++) values[i] = at(i);
    }
    return graph;
  };
  // The second group of the first row is 0; halves of a step are rounded to even.
  const a = Float32Array.from({ length: 2 * k }, (_, i) => (i >= 32 && i < 64 ? 0 : ((i * 13) % 33) / 8 - 2));

  it.each([false, true])(
    "rows are rounded by groups, and integers summed within them; zero points: %s",
    async (zero) => {
      const graph = graphOf(zero);
      const program = lowerGraph(graph, { inBytes: true });
      const [out = []] = (await runNetwork(program, { a })).values();
      const valueAt = (name: string, i: number): number => Number(graph.constants.get(name)?.values[i]);
      const nibble = (name: string, i: number): number => (valueAt(name, i >> 1) >> (4 * (i % 2))) & 15;
      const wanted = Array.from({ length: 2 * n }, (_, place) => {
        const [row, column] = [Math.floor(place / n), place % n];
        let sum = 0;
        for (let g = 0; g < groups; g++) {
          const numbers = Array.from(a.subarray(row * k + g * group, row * k + Math.min(k, (g + 1) * group)));
          const most = Math.max(...numbers.map(Math.abs));
          const point = zero ? nibble("z", column * 4 + g) : 8;
          let whole = 0;
          for (const [i, x] of numbers.entries()) {
            const scaled = most > 0 ? Math.fround(x * Math.fround(127 / most)) : 0;
            const down = Math.floor(scaled);
            const byte = scaled - down === 0.5 ? 2 * Math.round(scaled / 2) : Math.round(scaled);
            whole += byte * (nibble("w", (column * groups + g) * group + i) - point);
          }
          sum += whole * (most / 127) * valueAt("s", column * groups + g);
        }
        return sum;
      });
      for (const [i, value] of wanted.entries()) expect(out[i]).toBeCloseTo(value, 4);
      expect(program.inBytes).toBe(true);
      expect(program.steps.at(-1)?.operator?.name).toBe(zero ? undefined : "matmul-4bit-s8");
    },
  );

  it("is the product of f32 where a machine does not sum bytes, with zero points of f32 and in other groups", () => {
    const stepsOf = (graph: Graph, inBytes: boolean): number => lowerGraph(graph, { inBytes }).steps.length;
    expect(stepsOf(graphOf(), false)).toBe(1);
    expect(stepsOf(modelOf({ bits: 4, k: 48 }, ",accuracy_level=4"), true)).toBe(1);
    expect(stepsOf(graphOf(), true)).toBe(4);
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
