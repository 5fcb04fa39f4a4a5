/**
 * @file The feature interaction of a recommendation model (DLRM): the dot products of all pairs of a sample's vectors, appended to its first vector.
 *
 *     out[b,i,j] += acc(e[b,i,k]) * acc(select(j == 0, d[b,k], e[b,j-1,k]))      all vectors are d and then those of e: out[b,i,j] is of the
 *     z[b,128+i*(i+1)/2+j] = out[b,i,j] where j <= i, z[b,k] = d[b,k]            vectors i+1 and j, and each pair is stored once
 *
 * Concatenation, batched product with its own transpose, strict triangle and concatenation as one computation.
 */

import { defineOperator, type Operator } from "./operator.ts";

export const INTERACTION: readonly Operator[] = [
  defineOperator({
    name: "interaction",
    aliases: ["dlrm"],
    summary: "products of all pairs of a sample's vectors, behind its dense vector (DLRM)",
    parameters: {
      b: { default: 32768, min: 1, describe: "samples in the batch" },
      v: { default: 27, min: 2, describe: "vectors of a sample, the dense one included" },
      k: { default: 128, min: 1, describe: "elements of a vector, summed" },
    },
    equation: "out[b,i,j] += acc(e[b,i,k]) * acc(select(j == 0, d[b,k], e[b,j-1,k]))",
    stores: "z[b,i*(i+1)/2+j+K] = first(out[b,i,j]) where j <= i, z[b,k] = d[b,k]",
    axes: { i: "v-1", j: "v-1" },
    tensors: { e: { type: "first" }, d: { type: "first" }, out: { type: "sum" } },
  }),
];
