/**
 * @file Convolutions. Axes as papers name them: image n, output channel k, output pixel p q (o in depth), input channel c,
 * kernel r s (t in depth).
 *
 *     conv2d    out[n,k,p,q] += acc(in[n,c,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[k,c,r,s])
 *
 * A pad of 1 reads one element beyond the border: reading outside a tensor gives 0.
 */

import { defineOperator, divides, fits, type Operator, type OperatorTensor, size } from "./operator.ts";

const padding = (value: number, describe = "zeros on each side") => ({ default: value, min: 0, describe });

/** The parameters that most rows share; a row states only the differences of its layer. */
const LAYER = {
  n: size("images in the batch", 1),
  c: size("input channels", 64),
  h: size("input rows", 56),
  w: size("input columns", 56),
  k: size("output channels", 64),
  r: size("kernel rows", 3),
  s: size("kernel columns", 3),
  stride: size("step between windows", 1),
  pad: padding(1),
  dilation: size("step between the elements of a window", 1),
};
const GROUPS = { groups: size("groups the channels fall into; they do not mix", 1) };

const ROWS = "(h + 2*pad - dilation*(r - 1) - 1) / stride + 1";
const COLUMNS = "(w + 2*pad - dilation*(s - 1) - 1) / stride + 1";
const IN_GROUP = { g: "groups", k: "k/groups", c: "c/groups" };

const image = (dims: string): OperatorTensor => ({ type: "first", dims, sized: true });
const weights = (dims: string): OperatorTensor => ({ type: "second", dims, constant: true });
const sums = (dims: string): OperatorTensor => ({ type: "sum", dims, channels: "k" });
const images = image("n c h w");
const filters = weights("k c r s");
const results = sums("n k p q");

const FITTING = [fits("r", "h"), fits("s", "w")];
const GROUPED = [divides("groups", "c"), divides("groups", "k")];

const CONV2D = {
  parameters: { ...LAYER, ...GROUPS },
  equation: "out[n,k,p,q] += acc(in[n,c,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[k,c,r,s])",
  groupedEquation:
    "out[n,g*(K/groups)+k,p,q] += acc(in[n,g*(C/groups)+c,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[g*(K/groups)+k,c,r,s])",
  axes: { ...IN_GROUP, p: ROWS, q: COLUMNS },
  tensors: { in: images, w: filters, out: results },
  rules: [...GROUPED, ...FITTING],
};

export const CONVOLUTION: readonly Operator[] = [
  // Layer of ByteNet.
  defineOperator({
    name: "conv1d",
    aliases: ["c1d"],
    summary: "1-D convolution over channels",
    parameters: {
      n: size("sequences in the batch", 1),
      c: size("input channels", 512),
      l: size("input length", 892),
      k: size("output channels", 512),
      r: size("kernel length", 3),
      stride: LAYER.stride,
      pad: padding(1),
      dilation: LAYER.dilation,
      ...GROUPS,
    },
    equation: "out[n,k,p] += acc(in[n,c,p*stride+r*dilation-pad]) * acc(w[k,c,r])",
    groupedEquation:
      "out[n,g*(K/groups)+k,p] += acc(in[n,g*(C/groups)+c,p*stride+r*dilation-pad]) * acc(w[g*(K/groups)+k,c,r])",
    axes: { ...IN_GROUP, p: "(l + 2*pad - dilation*(r - 1) - 1) / stride + 1" },
    tensors: {
      in: image("n c l"),
      w: weights("k c r"),
      out: sums("n k p"),
    },
    rules: [...GROUPED, fits("r", "l")],
  }),
  // Layer of ResNet-18 that AMOS calls C1.
  defineOperator({ name: "conv2d", aliases: ["c2d", "conv"], summary: "2-D convolution over channels", ...CONV2D }),
  // Layer of ResNet3D-18.
  defineOperator({
    name: "conv3d",
    aliases: ["c3d"],
    summary: "3-D convolution over channels",
    parameters: {
      ...LAYER,
      d: size("input frames", 16),
      t: size("kernel frames", 3),
      stride_d: size("step between windows, in frames", 1),
      pad_d: padding(1, "zero frames on each side"),
      ...GROUPS,
    },
    equation:
      "out[n,k,o,p,q] += acc(in[n,c,o*stride_d+t*dilation-pad_d,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[k,c,t,r,s])",
    groupedEquation:
      "out[n,g*(K/groups)+k,o,p,q] += acc(in[n,g*(C/groups)+c,o*stride_d+t*dilation-pad_d,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[g*(K/groups)+k,c,t,r,s])",
    axes: { ...IN_GROUP, o: "(d + 2*pad_d - dilation*(t - 1) - 1) / stride_d + 1", p: ROWS, q: COLUMNS },
    tensors: {
      in: image("n c d h w"),
      w: weights("k c t r s"),
      out: sums("n k o p q"),
    },
    rules: [...GROUPED, fits("t", "d", "pad_d"), ...FITTING],
  }),
  // The gradient of a strided convolution in gather form: an output contributes where the stride divides.
  defineOperator({
    name: "transposed-conv2d",
    aliases: ["t2d"],
    summary: "2-D transposed convolution: upsamples by its stride",
    parameters: {
      ...LAYER,
      c: size("input channels", 128),
      h: size("input rows", 28),
      w: size("input columns", 28),
      r: size("kernel rows", 4),
      s: size("kernel columns", 4),
      stride: size("output step between input elements", 2),
      pad: padding(1, "output elements cut off on each side"),
    },
    equation:
      "out[n,k,p,q] += acc(in[n,c,(p+pad-r*dilation)/stride,(q+pad-s*dilation)/stride]) * acc(w[c,k,r,s]) where (p+pad-r*dilation)%stride == 0 and (q+pad-s*dilation)%stride == 0",
    axes: {
      p: "(h - 1)*stride - 2*pad + dilation*(r - 1) + 1",
      q: "(w - 1)*stride - 2*pad + dilation*(s - 1) + 1",
    },
    tensors: { in: images, w: weights("c k r s"), out: results },
    rules: [(p) => cutAway("h", "r", p), (p) => cutAway("w", "s", p)],
  }),
  // Layer of ResNeXt.
  defineOperator({
    name: "grouped-conv2d",
    aliases: ["grp"],
    summary: "2-D convolution whose channels fall into groups",
    ...CONV2D,
    parameters: {
      ...CONV2D.parameters,
      c: size("input channels", 256),
      h: size("input rows", 28),
      w: size("input columns", 28),
      k: size("output channels", 256),
      groups: { ...GROUPS.groups, default: 32 },
    },
  }),
  // Layer like those of DRN: a 3x3 kernel over a 5x5 window.
  defineOperator({
    name: "dilated-conv2d",
    aliases: ["dil"],
    summary: "2-D convolution over windows with holes",
    ...CONV2D,
    parameters: {
      ...CONV2D.parameters,
      c: size("input channels", 512),
      h: size("input rows", 14),
      w: size("input columns", 14),
      k: size("output channels", 512),
      pad: padding(2),
      dilation: { ...LAYER.dilation, default: 2 },
    },
  }),
  // Layer of MobileNet.
  defineOperator({
    name: "depthwise-conv2d",
    aliases: ["dep", "depthwise"],
    summary: "2-D convolution of each channel by itself, m outputs each",
    parameters: {
      n: LAYER.n,
      c: size("input channels", 32),
      h: size("input rows", 112),
      w: size("input columns", 112),
      m: size("outputs of each channel", 1),
      r: LAYER.r,
      s: LAYER.s,
      stride: LAYER.stride,
      pad: LAYER.pad,
      dilation: LAYER.dilation,
    },
    equation: "out[n,c*M+m,p,q] += acc(in[n,c,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[c*M+m,r,s])",
    axes: { p: ROWS, q: COLUMNS },
    tensors: { in: images, w: weights("k r s"), out: results },
    rules: FITTING,
  }),
  defineOperator({
    name: "capsule-conv2d",
    aliases: ["cap"],
    summary: "2-D convolution whose every output channel is a capsule of several values",
    parameters: { ...LAYER, caps: size("values in a capsule", 8) },
    equation: "out[n,k,p,q,u] += acc(in[n,c,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[k,c,r,s,u])",
    axes: { p: ROWS, q: COLUMNS, u: "caps" },
    tensors: {
      in: images,
      w: weights("k c r s u"),
      out: sums("n k p q u"),
    },
    rules: FITTING,
  }),
  // The filters depend on the sample (CondConv), so they are not constant.
  defineOperator({
    name: "batched-conv2d",
    aliases: ["bcv"],
    summary: "2-D convolution with filters of its own for every image",
    parameters: { ...LAYER, n: size("images in the batch", 16) },
    equation: "out[n,k,p,q] += acc(in[n,c,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[n,k,c,r,s])",
    axes: { p: ROWS, q: COLUMNS },
    tensors: { in: images, w: { type: "second", dims: "n k c r s" }, out: results },
    rules: FITTING,
  }),
  defineOperator({
    name: "conv1d-single",
    summary: "1-D convolution of one signal with one filter",
    parameters: {
      l: size("input length", 1 << 20),
      r: size("filter length", 17),
      stride: LAYER.stride,
      pad: padding(0),
      dilation: LAYER.dilation,
    },
    equation: "out[p] += acc(in[p*stride+r*dilation-pad]) * acc(w[r])",
    axes: { p: "(l + 2*pad - dilation*(r - 1) - 1) / stride + 1" },
    tensors: {
      in: image("l"),
      w: { type: "second", constant: true },
      out: { type: "sum", dims: "p" },
    },
    rules: [fits("r", "l")],
  }),
  // The image size that SSAM measures.
  defineOperator({
    name: "conv2d-single",
    summary: "2-D convolution of one image with one filter",
    parameters: {
      h: size("input rows", 8192),
      w: size("input columns", 8192),
      r: size("filter rows", 5),
      s: size("filter columns", 5),
      stride: LAYER.stride,
      pad: padding(0),
      dilation: LAYER.dilation,
    },
    equation: "out[p,q] += acc(in[p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * acc(w[r,s])",
    axes: { p: ROWS, q: COLUMNS },
    tensors: {
      in: image("h w"),
      w: { type: "second", constant: true },
      out: { type: "sum", dims: "p q" },
    },
    rules: FITTING,
  }),
];

/** `transposed-conv2d: pad 2 on both sides cuts away the whole output of 4 along h`. */
function cutAway(input: string, kernel: string, parameters: Readonly<Record<string, number>>): string | undefined {
  const { pad = 0, stride = 1, dilation = 1, [input]: h = 1, [kernel]: r = 1 } = parameters;
  const full = (h - 1) * stride + dilation * (r - 1) + 1;
  return 2 * pad < full ? undefined : `pad ${pad} on both sides cuts away the whole output of ${full} along ${input}`;
}
