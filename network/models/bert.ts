/**
 * @file BERT base: Devlin, Chang, Lee, Toutanova, BERT: Pre-training of Deep Bidirectional Transformers for Language
 * Understanding (NAACL 2019), section 3: 12 layers of Vaswani et al. (2017), hidden size 768, 12 heads.
 *
 *     bertBase({ batch: 1, tokens: 128 })      11.2 G multiply-adds in products, 109 M parameters (110 M in the paper)
 *
 * Ids are s32. There is no mask: every token attends to all tokens.
 */

import type { Graph } from "../graph.ts";
import { SeededLayers } from "./layers.ts";

interface TransformerOptions {
  readonly batch?: number;
  readonly seed?: number;
  /** Tokens of a sentence; default 128, at most 512. */
  readonly tokens?: number;
  readonly layers?: number;
  readonly hidden?: number;
  readonly heads?: number;
  readonly vocabulary?: number;
}

/** Positions that have an embedding, and kinds of sentences (the paper's segments A and B). */
const PLACES = 512;
const KINDS = 2;

/** Inputs ids, kinds [batch, tokens]; outputs all tokens [batch, tokens, hidden], the pooled first [batch, hidden]. */
export function bertBase({
  batch = 1,
  seed = 1,
  tokens = 128,
  layers = 12,
  hidden = 768,
  heads = 12,
  vocabulary = 30522,
}: TransformerOptions = {}): Graph {
  const net = new Transformer("bert_base", seed, { batch, tokens, hidden, heads });
  const rows = (name: string, count: number): string => net.drawn(name, [count, hidden], 0.02 * Math.sqrt(3));
  const picked = (["ids", "kinds"] as const).map((name, i) =>
    net.node("Gather", [
      rows(name === "ids" ? "words" : "sentences", i === 0 ? vocabulary : KINDS),
      net.input(name, [batch, tokens], "s32"),
    ]),
  );
  const first = net.whole("first", [0]);
  const places = net.node("Slice", [rows("places", PLACES), first, net.whole("tokens", [tokens]), first]);
  const all = picked.reduce((sum, x) => net.node("Add", [sum, x]), places);
  let y = net.layerNormed(all, "embedding");
  for (let layer = 0; layer < layers; layer++) y = net.layer(y, `layer${layer}`);
  const flat = net.node("Reshape", [
    net.node("Slice", [y, first, net.whole("one", [1]), net.whole("along", [1])]),
    net.whole("pooled.shape", [batch, hidden]),
  ]);
  net.output(y);
  net.output(net.node("Tanh", [net.linear(flat, "pooler", hidden, hidden)]));
  return net.graph;
}

interface Sizes {
  readonly batch: number;
  readonly tokens: number;
  readonly hidden: number;
  readonly heads: number;
}

/** Adds the layers of an encoder to a graph. */
class Transformer extends SeededLayers {
  private readonly sizes: Sizes;
  private readonly apart: string;
  private readonly joined: string;

  constructor(name: string, seed: number, sizes: Sizes) {
    super(name, seed);
    this.sizes = sizes;
    const { batch, tokens, hidden, heads } = sizes;
    this.apart = this.whole("heads.shape", [batch, tokens, heads, hidden / heads]);
    this.joined = this.whole("joined.shape", [batch, tokens, hidden]);
  }

  layer(x: string, name: string): string {
    const { hidden } = this.sizes;
    const attended = this.layerNormed(this.node("Add", [x, this.attention(x, `${name}.attention`)]), `${name}.first`);
    const wide = this.node("Gelu", [this.linear(attended, `${name}.wide`, hidden, 4 * hidden)]);
    const narrow = this.linear(wide, `${name}.narrow`, 4 * hidden, hidden);
    return this.layerNormed(this.node("Add", [attended, narrow]), `${name}.second`);
  }

  private attention(x: string, name: string): string {
    const { hidden, heads } = this.sizes;
    const turned = (word: string, perm: readonly number[]): string => {
      const all = this.linear(x, `${name}.${word}`, hidden, hidden);
      return this.node("Transpose", [this.node("Reshape", [all, this.apart])], { perm });
    };
    const [query, key, value] = [
      turned("query", [0, 2, 1, 3]),
      turned("key", [0, 2, 3, 1]),
      turned("value", [0, 2, 1, 3]),
    ];
    const scale = this.constant(`${name}.scale`, [], Float32Array.of(1 / Math.sqrt(hidden / heads)));
    const scores = this.node("Mul", [this.node("MatMul", [query, key], {}, `${name}.scores`), scale]);
    const weighted = this.node("MatMul", [this.node("Softmax", [scores], { axis: -1 }), value], {}, `${name}.weighted`);
    const joined = this.node("Reshape", [this.node("Transpose", [weighted], { perm: [0, 2, 1, 3] }), this.joined]);
    return this.linear(joined, `${name}.out`, hidden, hidden);
  }

  /** A matrix product and a bias. */
  linear(x: string, name: string, from: number, to: number): string {
    const weights = this.drawn(`${name}.weight`, [from, to], Math.sqrt(3 / from));
    return this.node("Add", [this.node("MatMul", [x, weights], {}, name), this.drawn(`${name}.bias`, [to], 0.1)]);
  }

  layerNormed(x: string, name: string): string {
    const { hidden } = this.sizes;
    const parameters = [this.drawn(`${name}.gain`, [hidden], 0.2, 1), this.drawn(`${name}.offset`, [hidden], 0.1)];
    return this.node("LayerNormalization", [x, ...parameters], { epsilon: Math.fround(1e-12) }, `${name}.norm`);
  }
}
