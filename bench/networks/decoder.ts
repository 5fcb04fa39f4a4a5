/**
 * @file Decoders of language models with seeded weights of 4 bits: blocks of attention over a cache of keys and values, and whole models.
 *
 *     decoder({ shape: DECODERS["qwen3-0.6b"], form: "plain", rows: 1, past: 512, blocks: 1 })       one block, one new token
 *     decoder({ shape, form: "runtime", rows: 128, past: 0, blocks: 28, whole: true })               ids to logits, a prompt of 128
 *
 * The block is Llama's (Touvron et al., 2023): RMS norms (Zhang and Sennrich, 2019), rotary positions (Su et al., 2021), attention whose heads
 * share keys and values in groups (Ainslie et al., 2023), and SwiGLU (Shazeer, 2020).
 */

import { remembered } from "../../abstraction/collections.ts";
import type { Graph } from "../../network/graph.ts";
import { NarrowLayers } from "./narrow-layers.ts";

/** The sizes of a published model. */
export interface DecoderShape {
  readonly hidden: number;
  readonly heads: number;
  /** Heads of keys and values. */
  readonly shared: number;
  /** Elements of a head. */
  readonly head: number;
  readonly wide: number;
  readonly blocks: number;
  readonly words: number;
  readonly epsilon: number;
  readonly theta: number;
  /** Whether queries and keys are normed by head. */
  readonly normsHeads: boolean;
}

export const DECODERS = {
  /** https://huggingface.co/Qwen/Qwen3-0.6B/blob/main/config.json */
  "qwen3-0.6b": {
    hidden: 1024,
    heads: 16,
    shared: 8,
    head: 128,
    wide: 3072,
    blocks: 28,
    words: 151_936,
    epsilon: 1e-6,
    theta: 1e6,
    normsHeads: true,
  },
  /** https://huggingface.co/meta-llama/Llama-3.2-1B/blob/main/config.json, without the scaling of long positions. */
  "llama-3.2-1b": {
    hidden: 2048,
    heads: 32,
    shared: 8,
    head: 64,
    wide: 8192,
    blocks: 16,
    words: 128_256,
    epsilon: 1e-5,
    theta: 5e5,
    normsHeads: false,
  },
} as const satisfies Readonly<Record<string, DecoderShape>>;

export interface DecoderOptions {
  readonly shape: DecoderShape;
  /** `plain`: operators of ONNX itself, as PyTorch exports them; `runtime`: those of ONNX Runtime, as its own tools write them. */
  readonly form: "plain" | "runtime";
  /** New tokens. */
  readonly rows: number;
  /** Tokens whose keys and values are given. */
  readonly past: number;
  readonly blocks?: number;
  /** Whether it begins with ids and ends with logits; otherwise rows of numbers go in and out. */
  readonly whole?: boolean;
  /** Weights that share a scale. */
  readonly group?: number;
  readonly level?: 0 | 4;
  /** Positions that have a sine and a cosine. */
  readonly places?: number;
}

/**
 * Inputs x [1, rows, hidden] or ids [1, rows], positions [1, rows], and of each block with a past pastN.key and pastN.value
 * [1, shared, past, head]; outputs y or logits, and presentN.key and presentN.value [1, shared, past + rows, head].
 */
export function decoder(options: DecoderOptions): Graph {
  const { shape, rows, blocks = shape.blocks, whole = false } = options;
  const { hidden, words } = shape;
  const net = new Decoder(options);
  const ids = whole ? net.input("ids", [1, rows], "s64") : undefined;
  let y =
    ids === undefined
      ? net.input("x", [1, rows, hidden])
      : net.node("Gather", [net.drawn("embedding", [words, hidden], Math.sqrt(3)), ids], {}, "embedded");
  for (let i = 0; i < blocks; i++) y = net.block(y, i);
  if (whole) y = net.product(net.rooted(y, "last", hidden), "logits", hidden, words);
  net.output(y);
  return net.graph;
}

/** A score that gives no weight: the least f32. */
const HIDDEN_SCORE = -3.4028234663852886e38;

/** Adds blocks to a graph. */
/** Tokens of a prompt, and tokens whose keys and values a further token finds. */
const PROMPT = 128;
const CACHED = 512;

/**
 * Decoders by name: `qwen3-0.6b-block-decode` is one block, `qwen3-0.6b-decode` a whole model, for one token after 512; `-prefill` computes a
 * prompt of 128; `-runtime` at the end means operators of ONNX Runtime.
 */
export const DECODER_NETWORKS: Readonly<Record<string, () => Graph>> = Object.fromEntries(
  Object.entries(DECODERS).flatMap(([model, shape]) =>
    [true, false].flatMap((whole) =>
      [true, false].flatMap((decodes) =>
        (["plain", "runtime"] as const).map((form) => {
          const name = `${model}${whole ? "" : "-block"}-${decodes ? "decode" : "prefill"}${form === "plain" ? "" : "-runtime"}`;
          const sizes = decodes ? { rows: 1, past: CACHED } : { rows: PROMPT, past: 0 };
          return [name, () => decoder({ shape, form, ...sizes, whole, ...(!whole && { blocks: 1 }) })] as const;
        }),
      ),
    ),
  ),
);

class Decoder extends NarrowLayers {
  private readonly options: Required<Pick<DecoderOptions, "shape" | "form" | "rows" | "past" | "group" | "level">>;
  private readonly positions: string;
  /** By position and half of a head. */
  private readonly cosines: string;
  private readonly sines: string;
  /** The same for the new tokens, over heads and both halves, from the first block that asks on. */
  private readonly picked = new Map<string, string>();

  constructor({ shape, form, rows, past, group = 32, level = 0, places = 1024 }: DecoderOptions) {
    super("decoder", 1);
    this.options = { shape, form, rows, past, group, level };
    this.positions = this.input("positions", [1, rows], "s64");
    const half = shape.head / 2;
    const table = (name: string, of: (angle: number) => number): string => {
      const values = Float32Array.from({ length: places * half }, (_, i) =>
        of(Math.floor(i / half) * shape.theta ** (-(i % half) / half)),
      );
      return this.constant(name, [places, half], values);
    };
    this.cosines = table("cosines", Math.cos);
    this.sines = table("sines", Math.sin);
  }

  /** @param i its number */
  block(x: string, i: number): string {
    const { hidden, wide } = this.options.shape;
    const name = `block${i}`;
    const attended = this.node("Add", [x, this.attention(this.rooted(x, `${name}.first`, hidden), name)]);
    const y = this.rooted(attended, `${name}.second`, hidden);
    const gate = this.product(y, `${name}.gate`, hidden, wide);
    const swish = this.node("Mul", [gate, this.node("Sigmoid", [gate])]);
    const gated = this.node("Mul", [swish, this.product(y, `${name}.up`, hidden, wide)]);
    return this.node("Add", [attended, this.product(gated, `${name}.down`, wide, hidden)]);
  }

  product(x: string, name: string, k: number, n: number): string {
    const { group, level } = this.options;
    return this.narrow(x, name, { n, k, group, level });
  }

  /** Rows over the root of their mean square, times a gain for each element. */
  rooted(x: string, name: string, size: number): string {
    const { form, shape } = this.options;
    const gain = this.drawn(`${name}.gain`, [size], 0.2, 1);
    const epsilon = Math.fround(shape.epsilon);
    if (form === "runtime") return this.node("SimplifiedLayerNormalization", [x, gain], { axis: -1, epsilon });
    const squares = this.node("Pow", [x, this.constant("two", [], Float32Array.of(2))]);
    const mean = this.node("ReduceMean", [squares, this.whole("last.axis", [-1])], { keepdims: 1 });
    const root = this.node("Sqrt", [this.node("Add", [mean, this.constant("epsilon", [], Float32Array.of(epsilon))])]);
    return this.node("Mul", [this.node("Mul", [x, this.node("Reciprocal", [root])]), gain]);
  }

  private attention(x: string, name: string): string {
    const { shape, form } = this.options;
    const { hidden, heads, shared, head, normsHeads } = shape;
    const [query, key, value] = [heads, shared, shared].map((count, i) => {
      const word = ["query", "key", "value"][i] ?? "";
      const rows = this.product(x, `${name}.${word}`, hidden, count * head);
      return i < 2 && normsHeads
        ? this.rooted(this.inHeads(rows, count), `${name}.${word}.norm`, head)
        : this.inHeads(rows, count);
    }) as [string, string, string]; // three of three
    const attended =
      form === "runtime" ? this.byRuntime(query, key, value, name) : this.byOperators(query, key, value, name);
    return this.product(attended, `${name}.out`, heads * head, hidden);
  }

  private inHeads(rows: string, heads: number): string {
    return this.node("Reshape", [
      rows,
      this.whole(`apart${heads}`, [1, this.options.rows, heads, this.options.shape.head]),
    ]);
  }

  private inRows(x: string, heads: number): string {
    return this.node("Reshape", [
      x,
      this.whole(`joined${heads}`, [1, this.options.rows, heads * this.options.shape.head]),
    ]);
  }

  /** Keys and values of earlier tokens. */
  private pastOf(name: string): string[] {
    const { past, shape } = this.options;
    const sizes = [1, shape.shared, past, shape.head];
    return past === 0 ? [] : ["key", "value"].map((word) => this.input(`${name}.past.${word}`, sizes));
  }

  private byRuntime(query: string, key: string, value: string, name: string): string {
    const { heads, shared } = this.options.shape;
    const { rows, past } = this.options;
    const turned = (x: string, count: number): string =>
      this.node("com.microsoft.RotaryEmbedding", [this.inRows(x, count), this.positions, this.cosines, this.sines], {
        num_heads: count,
      });
    const total = past + rows;
    const lengths = [
      this.constant("last", [1], Int32Array.of(total - 1), "s32"),
      this.constant("total", [], Int32Array.of(total), "s32"),
    ];
    const [pastKey = "", pastValue = ""] = this.pastOf(name);
    const inputs = [
      turned(query, heads),
      turned(key, shared),
      this.inRows(value, shared),
      pastKey,
      pastValue,
      ...lengths,
    ];
    const outputs = [`${name}.attended`, `${name}.present.key`, `${name}.present.value`];
    const attributes = { num_heads: heads, kv_num_heads: shared };
    this.nodeOf(`${name}.attention`, "GroupQueryAttention", { inputs, outputs, attributes });
    for (const output of outputs.slice(1)) this.output(output);
    return outputs[0] ?? "";
  }

  private byOperators(query: string, key: string, value: string, name: string): string {
    const { shape, rows, past } = this.options;
    const { heads, shared, head } = shape;
    const turned = (x: string): string => this.node("Transpose", [x], { perm: [0, 2, 1, 3] });
    const [pastKey, pastValue] = this.pastOf(name);
    const present = (before: string | undefined, now: string, word: string): string => {
      const called = `${name}.present.${word}`;
      const all =
        before === undefined
          ? this.node("Identity", [now], {}, called)
          : this.node("Concat", [before, now], { axis: 2 }, called);
      this.output(all);
      return all;
    };
    const total = past + rows;
    // Each head of keys and values beside itself, once for each head of queries that shares it.
    const repeated = (x: string): string => {
      const apart = this.node("Unsqueeze", [x, this.whole("third", [2])]);
      const wide = this.node("Expand", [apart, this.whole("groups", [1, shared, heads / shared, total, head])]);
      return this.node("Reshape", [wide, this.whole("repeated", [1, heads, total, head])]);
    };
    const keys = repeated(present(pastKey, this.rotated(turned(key)), "key"));
    const values = repeated(present(pastValue, turned(value), "value"));
    const columns = this.node("Transpose", [keys], { perm: [0, 1, 3, 2] });
    const products = this.node("MatMul", [this.rotated(turned(query)), columns]);
    const scores = this.node("Mul", [products, this.constant("scale", [], Float32Array.of(1 / Math.sqrt(head)))]);
    const weights = this.node("Softmax", [rows === 1 ? scores : this.node("Add", [scores, this.mask()])], { axis: -1 });
    return this.inRows(turned(this.node("MatMul", [weights, values])), heads);
  }

  /** Tokens attend to earlier ones and to themselves. */
  private mask(): string {
    const { rows, past } = this.options;
    const total = past + rows;
    const values = Float32Array.from({ length: rows * total }, (_, i) =>
      i % total <= past + Math.floor(i / total) ? 0 : HIDDEN_SCORE,
    );
    return this.constant("mask", [1, 1, rows, total], values);
  }

  /** Pairs of elements, half a head apart, turned by the angles of their positions. */
  private rotated(x: string): string {
    const { rows, shape } = this.options;
    const [begin, half, end, last] = [0, shape.head / 2, shape.head, -1].map((i) => this.whole(`at${i}`, [i])) as [
      string,
      string,
      string,
      string,
    ]; // four of four
    const spread = (table: string): string =>
      remembered(this.picked, table, () => {
        const picked = this.node("Gather", [table, this.positions]);
        const both = this.node("Concat", [picked, picked], { axis: -1 });
        return this.node("Reshape", [both, this.whole("over.heads", [1, 1, rows, shape.head])]);
      });
    const second = this.node("Neg", [this.node("Slice", [x, half, end, last])]);
    const swapped = this.node("Concat", [second, this.node("Slice", [x, begin, half, last])], { axis: -1 });
    const along = this.node("Mul", [x, spread(this.cosines)]);
    return this.node("Add", [along, this.node("Mul", [swapped, spread(this.sines)])]);
  }
}
