/**
 * @file Reductions and scans written as products with a constant, so that matrix instructions can run them (Dakkak et al., ICS'19).
 *
 *     mean    out[c] += acc(in[c,l]) * acc(average[l])        average[l] = 1/(n*h*w)
 *     scan    out[i,j] += acc(in[i,k]) * acc(tri[k,j])        tri[k,j] = 1 where k <= j, else 0
 *
 * In mean and variance, l runs over all pixels of all images. The tensor in memory is NCHW, as its storage formula says, in which capitals are the
 * sizes.
 */

import { defineOperator, type Operator, type OperatorTensor, size } from "./operator.ts";

const IMAGES = {
  n: size("images in the batch", 1),
  c: size("channels", 64),
  h: size("rows", 56),
  w: size("columns", 56),
};

const pixels: OperatorTensor = {
  type: "first",
  dims: "c l",
  storage: "l/(H*W) * (C*H*W) + c*(H*W) + l%(H*W)",
};

const average: OperatorTensor = { type: "second", constant: true, value: (_, [pixelCount = 1]) => 1 / pixelCount };

export const REDUCTION: readonly Operator[] = [
  defineOperator({
    name: "mean",
    aliases: ["men"],
    summary: "mean of each channel, over all pixels of all images",
    parameters: IMAGES,
    equation: "out[c] += acc(in[c,l]) * acc(average[l])",
    axes: { l: "n*h*w" },
    tensors: { in: pixels, average, out: { type: "sum", channels: "c" } },
  }),
  defineOperator({
    name: "variance",
    aliases: ["var"],
    summary: "mean squared distance of each channel from its given mean",
    parameters: IMAGES,
    equation: "out[c] += acc(square(in[c,l] - mean[c])) * acc(average[l])",
    axes: { l: "n*h*w" },
    tensors: { in: pixels, mean: { type: "first" }, average, out: { type: "sum", channels: "c" } },
  }),
  defineOperator({
    name: "scan",
    aliases: ["scn"],
    summary: "running sums along each row",
    parameters: { m: size("rows", 1024), n: size("columns, summed up to each", 1024) },
    equation: "out[i,j] += acc(in[i,k]) * acc(tri[k,j])",
    axes: { i: "m", j: "n", k: "n" },
    tensors: {
      in: { type: "first" },
      tri: { type: "second", constant: true, value: ([k = 0, j = 0]) => (k <= j ? 1 : 0) },
      out: { type: "sum" },
    },
  }),
];
