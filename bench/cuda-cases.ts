/**
 * @file The computations of the GPU's bench, by name: products, convolutions, and the layers of ResNet-18.
 *
 *     caseNamed("conv-16-64x56-nhwc").computation
 */

import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";

export interface Case {
  readonly name: string;
  readonly computation: Computation;
  readonly gemm?: number;
  readonly conv?: Layer;
}

/** A convolution for PyTorch: its kernel is square, and its padding keeps the side at stride 1. */
export interface Layer {
  readonly n: number;
  readonly c: number;
  readonly h: number;
  readonly k: number;
  readonly r: number;
  readonly stride: number;
  readonly dilation: number;
  /** Channels lie innermost. */
  readonly last: boolean;
}

/** The layers of ResNet-18, as cases without their batch and layout. Source: AMOS (ISCA 2022), table 5. */
const RESNET18 = [
  "3x224-k64-r7-s2",
  "64x56",
  "64x56-r1",
  "64x56-k128-s2",
  "64x56-k128-r1-s2",
  "128x28",
  "128x28-k256-s2",
  "128x28-k256-r1-s2",
  "256x14",
  "256x14-k512-s2",
  "256x14-k512-r1-s2",
  "512x7",
] as const;

/** `resnet18-16-nhwc` names twelve layers; any other name is one case. */
export function casesNamed(name: string): readonly Case[] {
  const network = /^resnet18-(\d+)-(nhwc|nchw)$/.exec(name);
  return network ? RESNET18.map((l) => caseNamed(`conv-${network[1]}-${l}-${network[2]}`)) : [caseNamed(name)];
}

/** `gemm-4096`; `conv-16-64x56-k128-r3-s2-nhwc`: batch, channels x side, k filters, r kernel, s stride, d dilation. */
export function caseNamed(name: string): Case {
  const types = parseDataTypes("f16");
  const gemm = /^gemm-(\d+)$/.exec(name);
  if (gemm) {
    const n = Number(gemm[1]);
    const computation = instantiate(operatorNamed("matmul"), {
      parameters: { m: n, n, k: n },
      types,
      epilogue: "c[m,n] = f16(out[m,n])",
    });
    return { name, computation, gemm: n };
  }
  const conv = /^conv-(\d+)-(\d+)x(\d+)(?:-k(\d+))?(?:-r(\d+))?(?:-s(\d+))?(?:-d(\d+))?-(nhwc|nchw)$/.exec(name);
  if (!conv)
    throw new UsageError(
      `no case "${name}": gemm-SIZE, conv-BATCH-CHANNELSxSIDE[-kFILTERS][-rKERNEL][-sSTRIDE][-dDILATION]-nhwc|nchw, or resnet18-BATCH-nhwc|nchw`,
    );
  const [n = 1, c = 1, h = 1] = conv.slice(1, 4).map(Number);
  const [k = c, r = 3, stride = 1, dilation = 1] = conv
    .slice(4, 8)
    .map((t) => (t === undefined ? undefined : Number(t)));
  const last = conv[8] === "nhwc";
  const pad = (dilation * (r - 1)) / 2;
  const computation = instantiate(operatorNamed("conv2d"), {
    parameters: { n, c, k, h, w: h, r, s: r, stride, dilation, pad },
    types,
    epilogue: "y[n,k,p,q] = f16(out[n,k,p,q])",
    ...(last && { layouts: { in: "NHWC", w: "KRSC", y: "NPQK" } }),
  });
  return { name, computation, conv: { n, c, h, k, r, stride, dilation, last } };
}
