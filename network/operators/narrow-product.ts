/**
 * @file Products by weights of a few bits, as ONNX Runtime defines them:
 * https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits.
 *
 *     out[m,n] += a[m,32*g+2*b+h] * ((f32(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - 8) * s[n,g])
 *
 * With `accuracy_level` 4 numbers are rounded to bytes by groups, as ONNX Runtime does, and integers are summed within a group:
 *
 *     most[m,g] max= abs(a[m,32*g+j]),  t = most / 127,  q[m,g,j] = sat_s8(round(a[m,32*g+j] * (127 / most[m,g])))
 *     out[m,n] += f32(s32(q[m,32*g+2*b+h]) * s32(s8(select(..)) - 8)) * (s[n,g] * t[m,g])
 */

import { product } from "../../abstraction/collections.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import type { Lowering } from "../lowering.ts";
import { bracketed, describeValue, isSameShape, type Reads, type Value } from "../value.ts";
import { elementwise } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

/** Sizes of the weights: rows, groups in a row, summed weights of a group, and bits of each. */
interface Weights {
  readonly n: number;
  readonly groups: number;
  readonly size: number;
  readonly bits: 2 | 4 | 8;
}

function weightsOf(node: Lowering, k: number): Weights {
  const bits = node.int("bits", 4);
  if (bits !== 2 && bits !== 4 && bits !== 8) return node.refuse(`weights of ${bits} bits are not supported`);
  const n = node.int("N") ?? node.refuse("N is missing");
  const size = node.int("block_size") ?? node.refuse("block_size is missing");
  if (size < 16 || !Number.isInteger(Math.log2(size))) node.refuse(`block_size ${size} is no power of two from 16 on`);
  return { n, groups: Math.ceil(k / size), size, bits };
}

/** Loops over the weights of a group and their place in it: bytes, and the numbers in each, of which the first has the lowest bits. */
interface Reading {
  readonly code: string;
  readonly place: string;
  readonly extents: Readonly<Record<string, number>>;
}

function readingOf({ groups, size, bits }: Weights): Reading {
  const each = 8 / bits;
  const extents = { g: groups, b: size / each };
  if (each === 1) return { code: "w[n,g,b]", place: "b", extents };
  const part = (place: number): string => {
    const shifted = place === 0 ? "w[n,g,b]" : `w[n,g,b] / ${2 ** (bits * place)}`;
    return place === each - 1 ? shifted : `${shifted} % ${2 ** bits}`;
  };
  const choice = (place: number): string =>
    place === each - 1 ? part(place) : `select(h == ${place}, ${part(place)}, ${choice(place + 1)})`;
  return { code: choice(0), place: `${each}*b+h`, extents: { ...extents, h: each } };
}

/** Zero points of one byte each, from rows of bytes that hold several. */
function unpacked(node: Lowering, zero: Value, { n, groups, bits }: Weights): Value {
  const bytes = node.required(3, "zero_points");
  const each = 8 / bits;
  const row = Math.ceil(groups / each);
  if (bytes.length !== n * row) node.refuse(`zero_points of ${describeValue(zero)} are not ${n} rows of ${row} bytes`);
  return node.filled("u8", [n, groups], (place) => {
    const group = place % groups;
    const byte = bytes[Math.floor(place / groups) * row + Math.floor(group / each)] ?? 0;
    return Math.floor(byte / 2 ** (bits * (group % each))) % 2 ** bits;
  });
}

function zeroOf(node: Lowering, weights: Weights): Value | undefined {
  const zero = node.optional(3);
  if (zero === undefined) return undefined;
  if (zero.type === "u8") return unpacked(node, zero, weights);
  if (zero.type !== "f32") node.refuse(`zero_points of ${zero.type} are not supported; u8 and f32 are`);
  return node.reshaped(zero, [weights.n, weights.groups]);
}

/** Groups of 32 numbers or of a multiple are summed in one instruction or several. */
const GRAIN = 32;
/** The largest number of a group becomes this one. */
const MOST = 127;

/** Rows of numbers as bytes, each with a scale by group. Groups beyond the end of a row are filled with zeros. */
function quantisedRows(node: Lowering, a: Value, { groups, size }: Weights): { q: Value; t: Value } {
  const [m = 0, k = 0] = a.shape;
  const inside = k < groups * size ? ` where ${size}*g+j < ${k}` : "";
  const element = `a[m,${size}*g+j]`;
  const extents = { g: groups, j: size };
  const most = node.equation(`most[m,g] max= abs(${element})${inside}`, { a }, { shape: [m, groups], extents });
  const t = elementwise(node, `most / ${MOST}`, { most });
  const q = node.equation(
    `q[m,g,j] = sat_s8(round(${element} * select(most[m,g] > 0, ${MOST} / most[m,g], 0)))`,
    { a, most },
    { shape: [m, groups, size], type: "s8" },
  );
  return { q, t };
}

export const NARROW_PRODUCTS: OperatorTable = {
  MatMulNBits(node: Lowering) {
    const a = node.input(0);
    const w = node.input(1);
    const bias = node.optional(5);
    if (node.optional(4)) node.refuse("g_idx is not supported, groups of neighbours are");
    const k = node.int("K") ?? node.refuse("K is missing");
    if (a.type !== "f32" || w.type !== "u8")
      node.refuse(`factors of ${a.type} and ${w.type}; f32 and u8 are supported`);
    if (a.shape.at(-1) !== k) node.refuse(`rows of ${bracketed(a.shape)} are not of K = ${k}`);
    const weights = weightsOf(node, k);
    const { n, groups, size, bits } = weights;
    const shape = [n, groups, (size * bits) / 8];
    if (!isSameShape(w.shape, shape)) node.refuse(`weights of ${describeValue(w)} are not of ${bracketed(shape)}`);
    const outer = a.shape.slice(0, -1);
    const m = product(outer);
    const named = (name: string, reads: Reads, summed: number): Value => {
      const parameters = { m, n, k: summed, group: size };
      const computation = instantiate(operatorNamed(name), { parameters });
      return node.computed(computation, reads, "f32", { operator: { name, parameters } });
    };
    const finished = (sums: Value): Value => {
      const out = node.reshaped(sums, [...outer, n]);
      return bias ? elementwise(node, "out + bias", { out, bias }) : out;
    };
    const s = node.reshaped(node.input(2), [n, groups]);
    const z = zeroOf(node, weights);
    const rows = node.reshaped(a, [m, k]);
    const isConstant = [w, s].every(({ constant }) => constant);
    const { code, place, extents } = readingOf(weights);
    const isByteSum = node.int("accuracy_level", 0) === 4 && bits === 4 && size % GRAIN === 0 && z?.type !== "f32";
    if (isByteSum && isConstant && node.roundsToBytes()) {
      const { q, t } = quantisedRows(node, rows, weights);
      const bytes = { a: node.reshaped(q, [m, groups * size]), w, s, t };
      const sums = z
        ? node.equation(
            `out[m,n] += f32(s32(a[m,${size}*g+${place}]) * s32(s8(${code}) - s8(z[n,g]))) * (s[n,g] * t[m,g])`,
            { ...bytes, z },
            { shape: [m, n], type: "f32", extents },
          )
        : named("matmul-4bit-s8", bytes, groups * size);
      return finished(sums);
    }
    const reads = { a: rows, w, s };
    const lessZero = `f32(${code}) - ${z === undefined ? 2 ** (bits - 1) : z.type === "u8" ? "f32(z[n,g])" : "z[n,g]"}`;
    const isNamed = bits === 4 && z === undefined && k % size === 0 && isConstant;
    const sums = isNamed
      ? named("matmul-4bit", reads, k)
      : node.equation(
          `out[m,n] += a[m,${size}*g+${place}] * ((${lessZero}) * s[n,g])`,
          { ...reads, ...(z && { z }) },
          { shape: [m, n], type: "f32", extents },
        );
    return finished(sums);
  },
};
