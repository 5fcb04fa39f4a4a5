/**
 * @file Products of vectors and matrices.
 *
 *     matmul         out[m,n] += acc(a[m,k]) * acc(b[k,n])
 *     matmul-8bit    out[m,n] += acc(a[m,group*g+j]) * acc(first(w[n,g,j]) * s[n,g])
 *
 * Matrices of a product are not marked constant, because the operator does not know whether one holds weights; `--constant b` says so.
 */

import { extentOf } from "../abstraction/affine.ts";
import { defineOperator, divides, type Operator, size } from "./operator.ts";

/** One row of 4096 numbers, as a language model has for each word that it writes. */
const NARROW = {
  parameters: {
    m: size("rows of the output", 1),
    n: size("columns of the output", 4096),
    k: size("summed", 4096),
    group: size("summed weights that share a scale", 32),
  },
};

const isEven = (p: Readonly<Record<string, number>>): string | undefined =>
  extentOf("group", p) % 2 === 0 ? undefined : "group must be even";

const SCALED = {
  a: { type: "first", dims: "m k" },
  s: { type: "first", constant: true },
  out: { type: "sum", channels: "n" },
} as const;

export const LINEAR: readonly Operator[] = [
  defineOperator({
    name: "matvec",
    aliases: ["gmv", "gemv"],
    summary: "matrix times vector",
    parameters: { m: size("rows"), k: size("columns, summed") },
    equation: "out[m] += acc(a[m,k]) * acc(b[k])",
    tensors: { a: { type: "first" }, b: { type: "second" }, out: { type: "sum", channels: "m" } },
  }),
  defineOperator({
    name: "matmul",
    aliases: ["gmm", "gemm", "mm"],
    summary: "matrix times matrix",
    parameters: { m: size("rows of the output"), n: size("columns of the output"), k: size("summed") },
    equation: "out[m,n] += acc(a[m,k]) * acc(b[k,n])",
    tensors: { a: { type: "first" }, b: { type: "second" }, out: { type: "sum", channels: "n" } },
  }),
  // Weights of language models: half bytes as in MatMulNBits of ONNX Runtime, of which 8 stands for 0.
  defineOperator({
    name: "matmul-4bit",
    aliases: ["w4"],
    summary: "matrix times weights of 4 bits, two a byte, that share a scale in groups",
    ...NARROW,
    equation:
      "out[m,n] += acc(a[m,group*g+2*b+h]) * acc((first(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - 8) * s[n,g])",
    axes: { g: "k/group", b: "group/2", h: "2" },
    integers: "matmul-4bit-s8 takes numbers of s8, with scales of f32",
    tensors: { ...SCALED, w: { type: "u8", constant: true } },
    rules: [divides("group", "k"), isEven],
  }),
  defineOperator({
    name: "matmul-8bit",
    aliases: ["w8"],
    summary: "matrix times weights of 8 bits that share a scale in groups",
    ...NARROW,
    axes: { g: "k/group", j: "group" },
    equation: "out[m,n] += acc(a[m,group*g+j]) * acc(first(w[n,g,j]) * s[n,g])",
    integers: "take f32, f16 or bf16, or write the equation with scales of f32",
    tensors: { ...SCALED, w: { type: "s8", constant: true } },
    rules: [divides("group", "k")],
  }),
  // What MatMulNBits computes with accuracy_level 4: sums of integers within a group, of floats over groups.
  defineOperator({
    name: "matmul-4bit-s8",
    aliases: ["w4a8"],
    summary: "matrix of bytes times weights of 4 bits, two a byte; both share scales in groups",
    ...NARROW,
    equation:
      "out[m,n] += f32(s32(a[m,group*g+2*b+h]) * s32(s8(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - 8)) * (s[n,g] * t[m,g])",
    axes: { g: "k/group", b: "group/2", h: "2" },
    tensors: {
      a: { type: "s8", dims: "m k" },
      w: { type: "u8", constant: true },
      s: { type: "f32", constant: true },
      t: { type: "f32" },
      out: { type: "f32", channels: "n" },
    },
    rules: [divides("group", "k"), isEven],
  }),
  // As in DeepSeek-V3 (2024), section 3.3: activations share a scale in groups of 128, weights in blocks of 128 x 128.
  defineOperator({
    name: "scaled-matmul",
    aliases: ["smm"],
    summary:
      "matrix product of groups with scales: of each row and group of the first factor, of each block of the second",
    parameters: {
      m: size("rows of the output"),
      n: size("columns of the output"),
      k: size("summed"),
      block: size("summed elements, and columns, that share a scale", 128),
    },
    equation: "out[m,block*u+v] += f32(a[m,block*g+j]) * f32(b[block*u+v,block*g+j]) * (s[m,g] * t[u,g])",
    axes: { u: "n/block", v: "block", g: "k/block", j: "block" },
    integers: "take f32, f16, bf16, e4m3 or e5m2: scales and sums are f32",
    tensors: {
      a: { type: "first", dims: "m k" },
      b: { type: "second", dims: "n k" },
      s: { type: "f32" },
      t: { type: "f32" },
      out: { type: "f32", dims: "m n", channels: "n" },
    },
    rules: [divides("block", "n"), divides("block", "k")],
  }),
  // Its matrices are x and y, because b is the batch.
  defineOperator({
    name: "batched-matmul",
    aliases: ["bmm"],
    summary: "as many matrix products as the batch has pairs",
    parameters: {
      b: size("pairs in the batch", 12),
      m: size("rows of an output", 512),
      n: size("columns of an output", 64),
      k: size("summed", 512),
    },
    equation: "out[b,m,n] += acc(x[b,m,k]) * acc(y[b,k,n])",
    tensors: { x: { type: "first" }, y: { type: "second" }, out: { type: "sum", channels: "n" } },
  }),
  defineOperator({
    name: "grouped-fc",
    aliases: ["gfc"],
    summary: "fully connected layer whose inputs and outputs fall into groups",
    parameters: {
      n: size("samples in the batch", 16),
      i: size("inputs, of all groups"),
      o: size("outputs, of all groups"),
      groups: size("groups", 8),
    },
    equation: "out[n,g*(O/groups)+k] += acc(in[n,g*(I/groups)+c]) * acc(w[g*(O/groups)+k,c])",
    axes: { g: "groups", k: "o/groups", c: "i/groups" },
    tensors: {
      in: { type: "first", dims: "n i" },
      w: { type: "second", dims: "o c", constant: true },
      out: { type: "sum", dims: "n o", channels: "o" },
    },
    rules: [divides("groups", "i"), divides("groups", "o")],
  }),
  // A mixture of experts: tokens sorted by expert, each expert's rows padded to whole tiles, and empty tiles at the end.
  defineOperator({
    name: "grouped-matmul",
    aliases: ["moe"],
    summary: "matrix products of uneven groups: each tile of rows has the matrix of its group, a tile of no group is 0",
    parameters: {
      groups: size("groups, with a matrix each", 8),
      t: size("tiles of rows", 16),
      m: size("rows of a tile", 64),
      n: size("columns of the output", 1024),
      k: size("summed", 512),
    },
    equation: "out[t,m,n] += acc(a[t,m,k]) * acc(w[clamp(group[t]),n,k]) where group[t] >= 0",
    tensors: {
      a: { type: "first" },
      w: { type: "second", dims: "groups n k", sized: true, constant: true },
      group: {
        type: "s32",
        value: ([t = 0], [tiles = 1]) => (16 * t >= 15 * tiles && t > 0 ? -1 : Math.floor(Math.sqrt(t))),
      },
      out: { type: "sum", channels: "n" },
    },
  }),
  defineOperator({
    name: "counted-matmul",
    summary:
      "as many matrix products as there are groups, of whose rows the first count[g] are computed, the others are 0",
    parameters: {
      g: size("groups, with a matrix each", 8),
      m: size("most rows of a group", 128),
      n: size("columns of the output", 1024),
      k: size("summed", 512),
    },
    equation: "out[g,m,n] += acc(a[g,m,k]) * acc(w[g,n,k]) where m < count[g]",
    tensors: {
      a: { type: "first" },
      w: { type: "second", constant: true },
      count: { type: "s32" },
      out: { type: "sum", channels: "n" },
    },
  }),
  // BERT-Base: 12 heads of size 64, sequences of 512.
  defineOperator({
    name: "attention-scores",
    summary: "every query against every key, in each head of each sequence",
    parameters: {
      b: size("sequences in the batch", 1),
      h: size("heads", 12),
      i: size("queries in a sequence", 512),
      j: size("keys in a sequence", 512),
      d: size("size of a head, summed", 64),
    },
    equation: "out[b,h,i,j] += acc(q[b,h,i,d]) * acc(k[b,h,j,d])",
    tensors: { q: { type: "first" }, k: { type: "second" }, out: { type: "sum" } },
  }),
];
