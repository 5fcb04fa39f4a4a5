/** @file Decoders of language models, and the operators that they are written in, give what loops over plain numbers give. */

import { describe, expect, it } from "vitest";
import { seededRandom } from "../../abstraction/random.ts";
import { type DecoderOptions, decoder } from "../../bench/networks/decoder.ts";
import type { Graph } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import { runNetwork } from "../../network/run.ts";
import { openGraph } from "../../session/network/network.ts";
import { attendedBy, narrowProduct, rootMeanSquareRow, rowsOf, turnedHead } from "../support/decoder-reference.ts";
import { explanationOf } from "../support/message.ts";
import { made, onnx } from "../support/networks.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";
import { expectProved } from "../support/proved-network.ts";
import { scratchFolder } from "../support/scratch.ts";

const SHAPE = {
  hidden: 32,
  heads: 4,
  shared: 2,
  head: 16,
  wide: 48,
  blocks: 2,
  words: 20,
  epsilon: 1e-5,
  theta: 100,
  normsHeads: true,
} as const;
const GROUP = 16;

function inputsOf(graph: Graph): Record<string, number[]> {
  const random = seededRandom(3);
  return Object.fromEntries(
    graph.inputs.map(({ name, shape }) => {
      const count = shape.reduce<number>((product, size) => product * Number(size), 1);
      const whole = name === "positions" || name === "ids";
      return [name, Array.from({ length: count }, (_, i) => (whole ? 3 + i : 2 * random() - 1))];
    }),
  );
}

/** What the outputs must be, by name. */
function expected(graph: Graph, options: DecoderOptions, inputs: Record<string, number[]>): Record<string, number[]> {
  const { shape, past, whole = false, blocks = shape.blocks } = options;
  const { hidden, head, heads, shared, epsilon, theta } = shape;
  const constant = (name: string): number[] => Array.from(graph.constants.get(name)?.values ?? [], Number);
  const times = (name: string, rows: number[][]): number[][] => narrowProduct(graph, name, rows, GROUP);
  const normed = (name: string, rows: number[][]): number[][] =>
    rows.map((row) => rootMeanSquareRow(row, constant(`${name}.gain`), epsilon));
  const angles = (place: number): number[] =>
    Array.from({ length: head / 2 }, (_, i) => place * theta ** ((-2 * i) / head));
  const outputs: Record<string, number[]> = {};
  const embedding = rowsOf(constant("embedding"), hidden);
  let x = whole ? (inputs["ids"] ?? []).map((id) => embedding[id] ?? []) : rowsOf(inputs["x"] ?? [], hidden);
  for (let i = 0; i < blocks; i++) {
    const name = `block${i}`;
    const y = normed(`${name}.first`, x);
    /** By head and token, turned unless they are values. */
    const headsOf = (word: string, count: number): number[][][] => {
      const rows = times(`${name}.${word}`, y).map((row) => rowsOf(row, head));
      return Array.from({ length: count }, (_, h) =>
        rows.map((row, s) => {
          const one = row[h] ?? [];
          if (word === "value") return one;
          const [own = []] = shape.normsHeads ? normed(`${name}.${word}.norm`, [one]) : [one];
          return turnedHead(own, angles(inputs["positions"]?.[s] ?? 0));
        }),
      );
    };
    const present = (word: string): number[][][] => {
      const before = rowsOf(rowsOf(inputs[`${name}.past.${word}`] ?? [], head).flat(), past * head || 1);
      return headsOf(word, shared).map((now, h) => [...(past ? rowsOf(before[h] ?? [], head) : []), ...now]);
    };
    const [keys, values] = [present("key"), present("value")];
    outputs[`${name}.present.key`] = keys.flat(2);
    outputs[`${name}.present.value`] = values.flat(2);
    const queries = headsOf("query", heads);
    const attended = x.map((_, s) =>
      queries.flatMap((rows, h) => {
        const from = Math.floor(h / (heads / shared));
        return attendedBy(rows[s] ?? [], keys[from] ?? [], values[from] ?? [], past + s + 1);
      }),
    );
    const plus = (a: number[][], b: number[][]): number[][] =>
      a.map((row, r) => row.map((one, c) => one + (b[r]?.[c] ?? 0)));
    const middle = plus(x, times(`${name}.out`, attended));
    const second = normed(`${name}.second`, middle);
    const up = times(`${name}.up`, second);
    const gated = times(`${name}.gate`, second).map((row, r) =>
      row.map((g, c) => (g / (1 + Math.exp(-g))) * (up[r]?.[c] ?? 0)),
    );
    x = plus(middle, times(`${name}.down`, gated));
  }
  const last = whole ? times("logits", normed("last", x)) : x;
  return { ...outputs, [graph.outputs.at(-1) ?? ""]: last.flat() };
}

function expectNear(got: ReadonlyMap<string, ArrayLike<number>>, wanted: Readonly<Record<string, number[]>>): void {
  expect([...got.keys()].sort()).toEqual(Object.keys(wanted).sort());
  for (const [name, values] of Object.entries(wanted)) {
    const largest = Math.max(...values.map(Math.abs));
    const off = Math.max(...values.map((value, i) => Math.abs(value - (got.get(name)?.[i] ?? Number.NaN))));
    expect(off, name).toBeLessThan(1e-4 * largest);
  }
}

const CASES = [
  { form: "plain", rows: 1, past: 5 },
  { form: "plain", rows: 3, past: 4, whole: true },
  { form: "plain", rows: 3, past: 0, shape: { ...SHAPE, normsHeads: false } },
  { form: "runtime", rows: 1, past: 5, whole: true },
  { form: "runtime", rows: 3, past: 4 },
  { form: "runtime", rows: 3, past: 0, shape: { ...SHAPE, shared: 4, normsHeads: false } },
] as const;

describe("a decoder", () => {
  it.each(CASES)("of form $form, $rows new tokens after $past", async (given) => {
    const options = { shape: SHAPE, group: GROUP, places: 16, ...given };
    const graph = parseOnnx(onnxBytes(decoder(options)), "decoder.onnx", ".");
    const inputs = inputsOf(graph);
    const wanted = expected(graph, options, inputs);
    const { plain, program } = openGraph(graph);
    expectNear(await runNetwork(plain, inputs), wanted);
    expectNear(await runNetwork(program, inputs), wanted);
  });

  it("is a library that computes each step", async () => {
    const graph = decoder({ shape: SHAPE, form: "plain", rows: 1, past: 5, group: GROUP, places: 16 });
    await expectProved(scratchFolder(), openGraph(graph));
  });
});

const [HEAD, TOKENS] = [8, 3];
const drawn = (count: number): number[] => {
  const random = seededRandom(count);
  return Array.from({ length: count }, () => 2 * random() - 1);
};
/** Tables of angles as constants, for as many positions as are asked for. */
const tables = (size: number, angle: (place: number, i: number) => number, places = 9): string =>
  (["cos", "sin"] as const)
    .map((name) => {
      const values = Array.from({ length: places * size }, (_, at) =>
        Math[name](angle(Math.floor(at / size), at % size)),
      );
      return `${name} = [${places},${size}]{${values.map((x) => x.toFixed(12)).join()}}`;
    })
    .join("\n");
const angleOf = (place: number, i: number): number => place / (i + 1);
const anglesAt = (place: number, size: number): number[] => Array.from({ length: size }, (_, i) => angleOf(place, i));

describe("rotary positions", () => {
  const x = drawn(2 * TOKENS * HEAD);
  const byToken = rowsOf(x, HEAD).map((head, i) => [head, 2 + Math.floor(i / 2)] as const);

  it.each([0, 1])("turn pairs of heads side by side, interleaved %i", async (interleaved) => {
    const graph = onnx(`${tables(4, angleOf)}
      return com.microsoft.RotaryEmbedding<num_heads=2,interleaved=${interleaved}>(x[1,${TOKENS},${2 * HEAD}], s64{2}, cos, sin)`);
    const wanted = byToken.flatMap(([head, place]) => turnedHead(head, anglesAt(place, 4), interleaved === 1));
    for (const [i, y] of (await made(graph, x)).entries()) expect(y).toBeCloseTo(wanted[i] ?? Number.NaN, 5);
  });

  it("turn a part of heads before tokens, by tables and positions of ONNX itself", async () => {
    const graph = onnx(
      `${tables(2, angleOf)}
      return RotaryEmbedding<rotary_embedding_dim=4>(x[1,${TOKENS},2,${HEAD}], cos, sin, p:s64[1,2])`,
      23,
    );
    // The dimensions of x are those of heads, then tokens.
    const wanted = rowsOf(x, HEAD).flatMap((head, i) => turnedHead(head, anglesAt([4, 7][i % 2] ?? 0, 2)));
    const got = await made(graph, { x, p: [4, 7] });
    for (const [i, y] of got.entries()) expect(y).toBeCloseTo(wanted[i] ?? Number.NaN, 5);
  });
});

describe("attention", () => {
  const [q, k, v] = [drawn(4 * TOKENS * HEAD), drawn(2 * TOKENS * HEAD), drawn(2 * TOKENS * HEAD + 1).slice(1)];
  const heads = (x: readonly number[], count: number): number[][][] =>
    Array.from({ length: count }, (_, h) => rowsOf(x, count * HEAD).map((row) => row.slice(h * HEAD, (h + 1) * HEAD)));

  it("of packed queries, keys and values turns them itself", async () => {
    const packed = rowsOf(q, 4 * HEAD).flatMap((row, s) => [
      ...row,
      ...(rowsOf(k, 2 * HEAD)[s] ?? []),
      ...(rowsOf(v, 2 * HEAD)[s] ?? []),
    ]);
    const graph = onnx(`${tables(4, angleOf)}
      y = GroupQueryAttention<num_heads=4,kv_num_heads=2,do_rotary=1>(x[1,${TOKENS},${8 * HEAD}], , , , , s32{${TOKENS - 1}}, s32{${TOKENS}}, cos, sin)
      return y`);
    const turned = (x: readonly number[], count: number): number[][][] =>
      heads(x, count).map((rows) => rows.map((row, s) => turnedHead(row, anglesAt(s, 4))));
    const [queries, keys, values] = [turned(q, 4), turned(k, 2), heads(v, 2)];
    const wanted = Array.from({ length: TOKENS }, (_, s) =>
      queries.flatMap((rows, h) => attendedBy(rows[s] ?? [], keys[h >> 1] ?? [], values[h >> 1] ?? [], s + 1)),
    ).flat();
    const got = await made(graph, packed);
    expect(got).toHaveLength(wanted.length);
    for (const [i, y] of got.entries()) expect(y).toBeCloseTo(wanted[i] ?? Number.NaN, 5);
  });

  it("of ONNX itself adds a mask, or hides later tokens", async () => {
    const mask = [0, -2, 1];
    const inputs = `q[1,${TOKENS},${4 * HEAD}], k[1,${TOKENS},${2 * HEAD}], v[1,${TOKENS},${2 * HEAD}]`;
    const counts = "q_num_heads=4,kv_num_heads=2";
    const graph = onnx(
      `masked = Attention<${counts}>(${inputs}, [1,${TOKENS}]{${mask}})
      causal = Attention<${counts},is_causal=1>(q, k, v)
      return masked, causal`,
      23,
    );
    const [queries, keys, values] = [heads(q, 4), heads(k, 2), heads(v, 2)];
    const wanted = (isCausal: boolean): number[] =>
      Array.from({ length: TOKENS }, (_, s) =>
        queries.flatMap((rows, h) =>
          attendedBy(
            rows[s] ?? [],
            keys[h >> 1] ?? [],
            values[h >> 1] ?? [],
            isCausal ? s + 1 : TOKENS,
            isCausal ? [] : mask,
          ),
        ),
      ).flat();
    for (const name of ["masked", "causal"]) {
      const got = await made(graph, { q, k, v }, name);
      for (const [i, y] of got.entries()) expect(y).toBeCloseTo(wanted(name === "causal")[i] ?? Number.NaN, 5);
    }
  });

  it.each([
    [
      "GroupQueryAttention<num_heads=4,kv_num_heads=2>(q[1,3,32], k[1,3,16], v[1,3,16], , , s32{1}, s32{2})",
      /sequences of other lengths/,
    ],
    [
      "GroupQueryAttention<num_heads=4,kv_num_heads=3>(q[1,3,32], k[1,3,15], v[1,3,15], , , s32{2}, s32{3})",
      /cannot attend to/,
    ],
    [
      "GroupQueryAttention<num_heads=4,kv_num_heads=2,local_window_size=7>(q[1,3,32], k[1,3,16], v[1,3,16], , , s32{2}, s32{3})",
      /local_window_size/,
    ],
    [
      "GroupQueryAttention<num_heads=4,kv_num_heads=2>(q[1,3,32], k[1,3,16], v[1,3,16], , , n:s32[1], s32{3})",
      /known only when the network runs/,
    ],
    ["com.microsoft.RotaryEmbedding<num_heads=3>(x[1,2,16], s64{0}, [9,4]{0}, [9,4]{0})", /is not of 3 heads/],
  ])("that is not supported is refused: %s", (text, because) => {
    expect(explanationOf(() => lowerGraph(onnx(`return ${text}`)))).toMatch(because);
  });
});

it("a norm of a sum also gives the sum", async () => {
  const text = onnx(`
    y, inverse, sum = SkipSimplifiedLayerNormalization<epsilon=0.5>(x[1,1,4], skip[1,1,4], {1,2,3,4}, {0,0,0,1})
    return y, sum
  `);
  // The second output is a mean, which training needs.
  const graph = { ...text, nodes: text.nodes.map((node) => ({ ...node, outputs: ["y", "", "inverse", "sum"] })) };
  const inputs = { x: [1, 2, 3, 4], skip: [1, 0, -1, -1] };
  expect(await made(graph, inputs, "sum")).toEqual([2, 2, 2, 4]);
  const wanted = rootMeanSquareRow([2, 2, 2, 4], [1, 2, 3, 4], 0.5);
  for (const [i, y] of (await made(graph, inputs, "y")).entries()) expect(y).toBeCloseTo(wanted[i] ?? Number.NaN, 5);
});
