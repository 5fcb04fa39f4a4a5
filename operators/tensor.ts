/**
 * @file Products of a three-way tensor with matrices.
 *
 *     ttm    out[i,j,r] += acc(x[i,j,k]) * acc(u[k,r])
 */

import { defineOperator, type Operator, size } from "./operator.ts";

export const TENSOR: readonly Operator[] = [
  defineOperator({
    name: "mttkrp",
    summary: "matricised tensor times Khatri-Rao product: the bottleneck of a CP decomposition",
    parameters: {
      i: size("first dimension of the tensor", 512),
      j: size("rank of the decomposition", 32),
      k: size("second dimension of the tensor, summed", 128),
      l: size("third dimension of the tensor, summed", 128),
    },
    // b*c has the inputs' type, so that an instruction multiplies x by it.
    equation: "out[i,j] += acc(x[i,k,l]) * acc(b[k,j] * c[l,j])",
    tensors: { x: { type: "first" }, b: { type: "second" }, c: { type: "second" }, out: { type: "sum" } },
  }),
  defineOperator({
    name: "ttm",
    summary: "tensor times matrix along its last dimension, as in a Tucker decomposition",
    parameters: {
      i: size("first dimension", 256),
      j: size("second dimension", 256),
      k: size("third dimension, summed", 256),
      r: size("rank", 32),
    },
    equation: "out[i,j,r] += acc(x[i,j,k]) * acc(u[k,r])",
    tensors: { x: { type: "first" }, u: { type: "second" }, out: { type: "sum" } },
  }),
];
