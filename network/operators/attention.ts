/**
 * @file Attention over keys and values that earlier calls have left, and rotary positions, as language models are exported.
 *
 *     RotaryEmbedding       y[b,s,h,p,i] = x[b,s,h,p,i] * cos[b,s,i] + select(p == 0, -x[b,s,h,1,i], x[b,s,h,0,i]) * sin[b,s,i]
 *     GroupQueryAttention   scores[b,h,g,i,j] += q[b,i,h,g,d] * k[b,h,j,d],  softmax over j,  y[b,i,h,g,d] += p[b,h,g,i,j] * v[b,h,j,d]
 *
 * ONNX's own: https://onnx.ai/onnx/operators/onnx__Attention.html and onnx__RotaryEmbedding.html. Those of com.microsoft:
 * https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention.
 */

import { product } from "../../abstraction/collections.ts";
import type { Lowering } from "../lowering.ts";
import { bracketed, describeValue, type Value } from "../value.ts";
import { numberText } from "./broadcast.ts";
import { gatheredWhenRun } from "./compare.ts";
import { elementwise, floatsAt } from "./elementwise.ts";
import { joined, moved, sliced } from "./move.ts";
import { softened } from "./reduction.ts";
import type { OperatorTable } from "./table.ts";

/** Rows of heads: [batch, tokens, heads, head], or with the heads before the tokens. */
interface Heads {
  readonly x: Value;
  readonly isHeadsFirst: boolean;
}

/** An input of 3 dimensions holds the heads of a token side by side; one of 4 has them before the tokens. */
function headsIn(node: Lowering, x: Value, heads: number | undefined): Heads {
  const [batch = 1, tokens = 1, all = 1] = x.shape;
  if (x.shape.length === 4) return { x, isHeadsFirst: true };
  if (x.shape.length !== 3 || !heads || all % heads !== 0)
    return node.refuse(`${describeValue(x)} is not of ${heads ?? "a known number of"} heads`);
  return { x: node.reshaped(x, [batch, tokens, heads, all / heads]), isHeadsFirst: false };
}

interface Rotation {
  /** [batch, tokens, half] or [tokens, half]. */
  readonly cosines: Value;
  readonly sines: Value;
  /** Whether pairs are neighbours; otherwise they lie half a head apart. */
  readonly isInterleaved: boolean;
}

/** The first elements of each head turned in pairs, as many as there are sines; the others stay. */
function rotated(node: Lowering, { x, isHeadsFirst }: Heads, { cosines, sines, isInterleaved }: Rotation): Value {
  const [head = 1, half = 1] = [x.shape[3], cosines.shape.at(-1)];
  if (2 * half > head || cosines.shape.join() !== sines.shape.join())
    node.refuse(`cosines of ${bracketed(cosines.shape)} and sines of ${bracketed(sines.shape)} for heads of ${head}`);
  const part = (start: number, count: number): Value =>
    count === head ? x : sliced(node, x, [{ axis: 3, start, step: 1, count }]);
  const first = part(0, 2 * half);
  const outer = first.shape.slice(0, 3);
  const pairs = node.reshaped(first, [...outer, ...(isInterleaved ? [half, 2] : [2, half])]);
  const rows = isHeadsFirst ? "b,h,s" : "b,s,h";
  const at = (place: string): string => `x[${rows},${isInterleaved ? `i,${place}` : `${place},i`}]`;
  const angle = (name: string): string => `${name}[${cosines.shape.length === 3 ? "b,s,i" : "s,i"}]`;
  const text = `${at("p").replace("x", "y")} = ${at("p")} * ${angle("c")} + select(p == 0, -${at("1")}, ${at("0")}) * ${angle("t")}`;
  const turned = node.equation(text, { x: pairs, c: cosines, t: sines }, { shape: pairs.shape });
  const whole = node.reshaped(turned, first.shape);
  return 2 * half === head ? whole : joined(node, [whole, part(2 * half, head - 2 * half)], 3);
}

/** RotaryEmbedding of either domain. @param table the input that holds the cosines, before that of the sines */
function rotaryEmbedding(table: number, positions: number) {
  return (node: Lowering): Value => {
    const x = floatsAt(node, 0);
    const given = node.int("num_heads", 0);
    const [cosines, sines] = [node.input(table), node.input(table + 1)];
    const half = cosines.shape.at(-1) ?? 1;
    const size = node.int("rotary_embedding_dim", 0);
    if (size !== 0 && size !== 2 * half) node.refuse(`rotary_embedding_dim ${size} for ${half} cosines of a position`);
    const heads = headsIn(node, x, given || Math.floor((x.shape[2] ?? 1) / (2 * half)));
    const ids = node.optional(positions);
    const tokens = heads.x.shape[heads.isHeadsFirst ? 2 : 1] ?? 1;
    const from = ids && positionsOf(node, ids, tokens);
    const [c, t] = [cosines, sines].map((all) => (from ? gatheredWhenRun(node, all, from, 0) : all));
    if (!c || !t) return node.refuse("its cosines are missing");
    const isInterleaved = node.flag("interleaved");
    return node.reshaped(rotated(node, heads, { cosines: c, sines: t, isInterleaved }), x.shape);
  };
}

/** One number is the position of the first token; the others follow it. */
function positionsOf(node: Lowering, ids: Value, tokens: number): Value {
  if (ids.shape.length === 2) return ids;
  if (product(ids.shape) !== 1) node.refuse(`positions of ${bracketed(ids.shape)} are not supported`);
  const counted = node.constantFrom(
    ids.type,
    Array.from({ length: tokens }, (_, i) => i),
  );
  return elementwise(node, "first + counted", { first: ids, counted });
}

/** What queries attend to. */
interface Attended {
  readonly queries: Heads;
  /** [batch, shared heads, all tokens, head] */
  readonly keys: Value;
  readonly values: Value;
  readonly scale: number;
  /** The tokens before the first query where each attends only to those before it and itself; otherwise all attend to all. */
  readonly causalFrom: number | undefined;
  /** Added to the scores. */
  readonly bias?: Value;
}

/** Weighted sums of values in the layout of the queries. */
function attended(node: Lowering, { queries, keys, values, scale, causalFrom, bias }: Attended): Value {
  const { x, isHeadsFirst } = queries;
  const [batch = 1, first = 1, second = 1, head = 1] = x.shape;
  const [heads, tokens] = isHeadsFirst ? [first, second] : [second, first];
  const [, shared = 1, total = 1, size = 1] = keys.shape;
  const wide = values.shape[3] ?? 1;
  if (size !== head || heads % shared !== 0 || values.shape[2] !== total)
    node.refuse(`heads of ${describeValue(x)} cannot attend to ${describeValue(keys)} and ${describeValue(values)}`);
  const groups = heads / shared;
  const rows = isHeadsFirst ? "b,h,g,i" : "b,i,h,g";
  const sizes = isHeadsFirst ? [batch, shared, groups, tokens] : [batch, tokens, shared, groups];
  const q = node.reshaped(x, [...sizes, head]);
  const sums = node.equation(`s[b,h,g,i,j] += q[${rows},d] * k[b,h,j,d]`, { q, k: keys });
  const least = "-3.4028234663852886e38";
  const isMasked = causalFrom !== undefined && tokens > 1;
  const scaled = `x * ${numberText(scale)}`;
  const masked = isMasked ? `select(j <= i + ${causalFrom}, ${scaled}, ${least})` : scaled;
  const plain = node.equation(`y[b,h,g,i,j] = ${masked.replace("x", "x[b,h,g,i,j]")}`, { x: sums });
  const all = node.reshaped(plain, [batch, heads, tokens, total]);
  const scores = bias ? elementwise(node, "all + bias", { all, bias }) : all;
  const { raised, sum } = softened(node, scores, [3]);
  const weights = node.reshaped(elementwise(node, "raised / sum", { raised, sum }), [
    batch,
    shared,
    groups,
    tokens,
    total,
  ]);
  const out = node.equation(`o[${rows},d] += p[b,h,g,i,j] * v[b,h,j,d]`, { p: weights, v: values });
  return node.reshaped(out, [...x.shape.slice(0, 3), wide]);
}

const turnedHeads = (node: Lowering, { x, isHeadsFirst }: Heads): Value => {
  const [batch = 1, tokens = 1, heads = 1, head = 1] = x.shape;
  return isHeadsFirst ? x : moved(node, x, [batch, heads, tokens, head], ["i0", "i2", "i1", "i3"]);
};

/** Earlier keys or values before the new ones. */
const presentOf = (node: Lowering, past: Value | undefined, now: Heads): Value => {
  const heads = turnedHeads(node, now);
  return past ? joined(node, [past, heads], 2) : heads;
};

/** A scale of 0 means none is given. */
const scaleOf = (node: Lowering, head: number): number => node.float("scale", 0) || 1 / Math.sqrt(head);

export const ATTENTION: OperatorTable = {
  Attention(node: Lowering) {
    const [q, k, v] = [node.input(0), node.input(1), node.input(2)];
    const many = node.int("q_num_heads");
    const few = node.int("kv_num_heads");
    const queries = headsIn(node, q, many);
    const [bias, pastKey, pastValue] = [3, 4, 5].map((place) => node.optional(place));
    if (bias?.type === "bool") node.refuse("a mask of bool is not supported; one that is added is");
    if (node.float("softcap", 0) !== 0) node.refuse("softcap is not supported");
    const keys = presentOf(node, pastKey, headsIn(node, k, few));
    const values = presentOf(node, pastValue, headsIn(node, v, few));
    if (pastKey && node.flag("is_causal")) node.refuse("is_causal beside earlier keys is not supported; a mask is");
    const y = attended(node, {
      queries,
      keys,
      values,
      scale: scaleOf(node, queries.x.shape[3] ?? 1),
      causalFrom: node.flag("is_causal") ? 0 : undefined,
      ...(bias && { bias }),
    });
    const [batch = 1, tokens = 1, heads = 1, head = 1] = y.shape;
    return [queries.isHeadsFirst ? y : node.reshaped(y, [batch, tokens, heads * head]), keys, values];
  },
  GroupQueryAttention(node: Lowering) {
    const many = node.int("num_heads") ?? node.refuse("num_heads is missing");
    const few = node.int("kv_num_heads") ?? node.refuse("kv_num_heads is missing");
    const query = floatsAt(node, 0);
    const given = node.optional(1);
    const size = (query.shape[2] ?? 1) / (many + (given ? 0 : 2 * few));
    const part = (start: number, count: number): Value =>
      sliced(node, query, [{ axis: 2, start: start * size, step: 1, count: count * size }]);
    const q = given ? query : part(0, many);
    const k = given ?? part(many, few);
    const v = given ? node.input(2) : part(many + few, few);
    const [pastKey, pastValue] = [node.optional(3), node.optional(4)];
    const past = pastKey?.shape[2] ?? 0;
    const tokens = query.shape[1] ?? 1;
    const lengths = Array.from(node.required(5, "seqlens_k"));
    node.optional(6);
    if (lengths.some((length) => length !== past + tokens - 1))
      node.refuse(
        `seqlens_k of ${lengths.join()} are not ${past} + ${tokens} - 1: sequences of other lengths are not supported`,
      );
    for (const [name, none] of [
      ["softcap", 0],
      ["local_window_size", -1],
      ["smooth_softmax", 0],
    ] as const)
      if (node.float(name, none) !== none) node.refuse(`${name} is not supported`);
    const turned = (heads: Heads): Heads => {
      const counted = node.constantFrom(
        "s32",
        Array.from({ length: tokens }, (_, i) => past + i),
      );
      const [cosines, sines] = [7, 8].map((place) => gatheredWhenRun(node, node.input(place), counted, 0));
      if (!cosines || !sines) return node.refuse("its cosines are missing");
      const isInterleaved = node.flag("rotary_interleaved");
      return { ...heads, x: rotated(node, heads, { cosines, sines, isInterleaved }) };
    };
    const isTurned = node.flag("do_rotary");
    const [queries, now] = [headsIn(node, q, many), headsIn(node, k, few)].map((x) => (isTurned ? turned(x) : x));
    if (!queries || !now) return node.refuse("its queries are missing");
    const keys = presentOf(node, pastKey, now);
    const values = presentOf(node, pastValue, headsIn(node, v, few));
    const y = attended(node, { queries, keys, values, scale: scaleOf(node, size), causalFrom: past });
    return [node.reshaped(y, [query.shape[0] ?? 1, tokens, many * size]), keys, values];
  },
  RotaryEmbedding: rotaryEmbedding(1, 3),
  "com.microsoft.RotaryEmbedding": rotaryEmbedding(2, 1),
};
