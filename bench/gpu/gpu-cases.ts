/**
 * @file The computations of the GPU's bench, by name.
 *
 *     gpuCases("gemm-4096,conv-16-64x56-nhwc,resnet18-1-nhwc")      products, convolutions and the layers of ResNet-18, f16
 *     gpuCases("unseen")                                            40 convolutions of networks to which nothing is tuned, NHWC
 *     gpuCases("gemm-4096:e4m3,gemm-8192x28672x8192:bf16")          products of other types, the summed axis innermost in both factors
 *     gpuCases("scaled-4096x7168x2048:e4m3")                        products with scales of groups of 128 and of blocks of 128 x 128
 *     gpuCases("filters,stencils:f64,filter 9:f16")                 windows; the two words are all filters of 2 to 20 and all stencils
 *     gpuCases("steps 2d5pt:f64,design conv1d:f32,fetched 3d13pt:f64")
 *     gpuCases("matmul-4bit m=16 n=4096 k=4096:f16")               an operator with its parameters
 *
 * Steps are stencils in time. A design is a sum whose transforms are measured beside windows, a fetched stencil one whose sweeps fetch rows ahead.
 */

import type { CandidateKinds } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { tapsOf } from "../../mapper/space-time/taps.ts";
import { constantValues, OPERATORS, operatorNamed } from "../../operators/index.ts";
import { STENCILS } from "../../operators/stencil.ts";
import { CASE_TYPES, laneCase } from "../../test/support/lane-cases.ts";
import { operation } from "../../test/support/subjects.ts";
import { type SuiteCase, suiteComputation, suiteType } from "../../test/support/suite.ts";
import { STEP_CASES, stepCase } from "../lanes/step-cases.ts";
import { wordOf } from "../support/options.ts";

export interface GpuCase {
  readonly name: string;
  /** Cases of a group have one mean. */
  readonly group: string;
  readonly computation: Computation;
  /** Tensors of given values. */
  readonly fixed?: ReturnType<typeof constantValues>;
  /** What a search of it looks at, where the command does not say. */
  readonly kinds: CandidateKinds;
  /** Has a counterpart in PyTorch. */
  readonly suite?: SuiteCase;
  /** A product that cuBLAS computes. */
  readonly product?: Product;
  /** Side of a square window that NPP has. */
  readonly filter?: number;
  /** Whose best kernels by the model are measured beside one another. */
  readonly ranked?: "designs" | "steps" | "fetched";
}

export interface CaseSizes {
  /** Of images and planes, and of cubes. */
  readonly side: number;
  readonly cube: number;
  /** Steps of planes and of cubes. */
  readonly steps: number;
  readonly cubeSteps: number;
  /** Small designs, for emulation. */
  readonly small: boolean;
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

/**
 * Convolutions of networks that no suite here has, each chosen before it was measured: 25 layers, and of SDXL and below 15 more (2026-11-30). Batch and
 * sizes are those of the papers: of diffusion two images of guidance, of detectors and classifiers the images of their training or evaluation.
 */
const UNSEEN: Readonly<Record<string, readonly string[]>> = {
  "Stable Diffusion 1.5": [
    "2-320x64",
    "2-1280x16",
    "2-640x32",
    "2-960x64-k320-r1",
    "2-1280x8",
    "2-2560x16-k1280",
    "2-320x64-s2",
  ],
  YOLOv8m: ["1-3x640-k48-s2", "8-48x160-k96-s2", "8-192x40", "1-288x20"],
  "HRNet-W18": ["16-18x56", "16-36x28", "16-72x14"],
  "WRN-28-10": ["64-160x32", "64-640x8", "64-320x16"],
  "DenseNet-121": ["32-128x28-k32", "32-256x56-k128-r1"],
  DeepLabV3: ["1-2048x65-k256-d12", "1-256x129-k21-r1"],
  EDSR: ["16-64x48"],
  "Darknet-53": ["8-512x13-k1024", "8-32x416-k64-s2"],
  "U-Net": ["1-64x512"],
  "SDXL, denoiser (Podell et al. 2023)": ["2-4x128-k320", "2-320x128", "2-640x64", "2-1920x64-k640"],
  "Stable Diffusion, decoder (Rombach et al. 2022)": ["1-512x128", "1-128x512"],
  "ESRGAN (Wang et al. 2018)": ["1-192x128-k64", "1-64x128-k32"],
  "RetinaNet (Lin et al. 2017)": ["8-256x64", "8-256x64-k720"],
  "EfficientNetV2-S (Tan and Le 2021)": ["16-48x96-k192", "16-64x48-k256"],
  "PSPNet (Zhao et al. 2017)": ["1-4096x60-k512"],
  "AlphaGo Zero (Silver et al. 2017)": ["64-256x19"],
  "YOLOv4 (Bochkovskiy et al. 2020)": ["8-2048x19-k512-r1"],
};

/** Sums of several channels or factors, and the same to be emulated. */
const DESIGNS: Readonly<Record<string, readonly [large: string, small: string]>> = {
  conv1d: ["conv1d n=16 c=32 k=64 l=4096 r=9", "conv1d n=1 c=3 k=4 l=90 r=9"],
  conv2d: ["conv2d n=4 c=64 k=64 h=112 w=112 r=3 s=3 pad=1", "conv2d n=1 c=2 k=4 h=6 w=40 r=3 s=3 pad=1"],
  depthwise: ["depthwise-conv2d n=8 c=64 h=256 w=256 m=1", "depthwise-conv2d n=1 c=2 h=8 w=40 m=1"],
  fir: ["conv1d n=1 c=1 k=16 l=1048576 r=32", "conv1d n=1 c=1 k=4 l=120 r=16"],
  matmul: ["matmul m=2048 n=2048 k=2048", "matmul m=5 n=40 k=9"],
  matvec: ["matvec m=8192 k=8192", "matvec m=40 k=20"],
};

/** @throws UsageError for a name that is none */
export function gpuCases(words: string, sizes: CaseSizes): readonly GpuCase[] {
  const expanded = words.split(",").flatMap((word): string[] => {
    const [name = "", dtype = "f32"] = word.split(":");
    const network = /^resnet18-(\d+)-(nhwc|nchw)$/.exec(name);
    if (network) return RESNET18.map((layer) => `conv-${network[1]}-${layer}-${network[2]}`);
    if (name === "unseen") return Object.values(UNSEEN).flatMap((all) => all.map((layer) => `conv-${layer}-nhwc`));
    if (name === "filters") return Array.from({ length: 19 }, (_, i) => `filter ${i + 2}:${dtype}`);
    return name === "stencils" ? STENCILS.map((s) => `${s.name}:${dtype}`) : word === "" ? [] : [word];
  });
  return expanded.map((word) => caseNamed(word, sizes));
}

function caseNamed(word: string, sizes: CaseSizes): GpuCase {
  const [name = "", dtype = "f32"] = word.split(":");
  const layer = layerNamed(word);
  if (layer) return caseOfSuite(layer);
  const [kind, ...rest] = name.split(" ");
  const of = rest.join(" ");
  const lanes = (window: string): Computation =>
    laneCase(window, sizes.side, sizes.cube, wordOf("cases", dtype, CASE_TYPES));
  const common = { name: `${name} ${dtype}`, kinds: "lanes" } as const;
  if (kind === "steps")
    return { ...common, group: "steps", computation: stepsNamed(of, dtype, sizes), ranked: "steps" };
  if (kind === "fetched") return { ...common, group: "fetched", computation: lanes(of), ranked: "fetched" };
  if (kind === "design") {
    const sums = DESIGNS[of];
    const computation = sums ? operation(sums[sizes.small ? 1 : 0], dtype) : lanes(of);
    return { ...common, group: "designs", computation, ranked: "designs" };
  }
  if (OPERATORS.some((o) => o.name === kind))
    return { ...common, group: kind ?? "", computation: operation(name, dtype), kinds: "all" };
  const filter = /^filter (\d+)$/.exec(name)?.[1];
  if (filter === undefined && !STENCILS.some((s) => s.name === name))
    throw new UsageError(
      `no case "${word}": gemm-SIZE[:TYPE], gemm-MxNxK[:TYPE], scaled-MxNxK:TYPE, conv-BATCH-CHANNELSxSIDE[-kFILTERS][-rKERNEL][-sSTRIDE][-dDILATION]-nhwc|nchw, resnet18-BATCH-nhwc|nchw, unseen, filters, stencils, filter SIDE:TYPE, STENCIL:TYPE, steps STENCIL:TYPE, design NAME:TYPE, fetched STENCIL:TYPE, OPERATOR PARAMETER=NUMBER ..:TYPE`,
    );
  return {
    ...common,
    group: filter === undefined ? "stencils" : "filters",
    computation: lanes(name),
    ...(filter !== undefined && { filter: Number(filter) }),
  };
}

/** A configuration of the suite as a case. */
export function caseOfSuite(suite: SuiteCase): GpuCase {
  const computation = suiteComputation(suite);
  const { id, op, layout, dtype } = suite;
  return {
    name: [id, layout, ...(dtype === "f16" ? [] : [dtype])].join(" "),
    group: op,
    computation,
    fixed: constantValues(operatorNamed(op), computation),
    kinds: "all",
    suite,
    ...((op === "gmm" || (op === "smm" && dtype === "e4m3")) &&
      hasLibrary(dtype, layout) && { product: { ...productOf(suite.params, dtype, layout), scaled: op === "smm" } }),
  };
}

/** Rows, columns, and the axis that is summed. */
export interface Product {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly dtype: "f16" | "bf16" | "e4m3";
  /** Whether the summed axis is innermost in the right factor too. */
  readonly transposed: boolean;
  /** Whether groups and blocks of 128 have scales. */
  readonly scaled: boolean;
}

/** cuBLAS takes factors of e4m3 with the summed axis innermost only. */
function hasLibrary(dtype: SuiteCase["dtype"], layout: SuiteCase["layout"]): dtype is Product["dtype"] {
  return dtype === "f16" || dtype === "bf16" || (dtype === "e4m3" && layout === "last");
}

function productOf(
  { m = 1, n = 1, k = 1 }: SuiteCase["params"],
  dtype: Product["dtype"],
  layout: SuiteCase["layout"],
): Omit<Product, "scaled"> {
  return { m, n, k, dtype, transposed: layout === "last" };
}

/**
 * `gemm-4096`; `gemm-1536x1000x4608`: rows, columns, sum; `gemm-4096:e4m3`: another type, the summed axis innermost in both factors; `scaled-4096:e4m3`: with scales of blocks; `conv-16-64x56-k128-r3-s2-nhwc`: batch, channels x side, k filters, r kernel, s stride, d dilation.
 */
function layerNamed(name: string): SuiteCase | undefined {
  const gemm = /^((gemm|scaled)-(\d+)(?:x(\d+)x(\d+))?)(?::(\w+))?$/.exec(name);
  if (gemm) {
    const [, id = name, form, ...rest] = gemm;
    const op = form === "scaled" ? "smm" : "gmm";
    const type = rest.pop();
    const [m = 1, n = m, k = m] = rest.map((size) => (size === undefined ? undefined : Number(size)));
    const params = { m, n, k };
    if (type === undefined) return { id, op, params, layout: "first", dtype: "f16" };
    return { id, op, params, layout: "last", dtype: wordOf("cases", type, suiteType.options) };
  }
  const conv = /^conv-(\d+)-(\d+)x(\d+)(?:-k(\d+))?(?:-r(\d+))?(?:-s(\d+))?(?:-d(\d+))?-(nhwc|nchw)$/.exec(name);
  if (!conv) return undefined;
  const [n = 1, c = 1, h = 1] = conv.slice(1, 4).map(Number);
  const [k = c, r = 3, stride = 1, dilation = 1] = conv
    .slice(4, 8)
    .map((t) => (t === undefined ? undefined : Number(t)));
  const pad = (dilation * (r - 1)) / 2;
  const params = { n, c, k, h, w: h, r, s: r, stride, dilation, pad, groups: 1 };
  return { id: name, op: "c2d", params, layout: conv[8] === "nhwc" ? "last" : "first", dtype: "f16" };
}

function stepsNamed(name: string, type: string, { side, cube, steps, cubeSteps }: CaseSizes): Computation {
  const dtype = wordOf("cases", type, ["f32", "f64"]);
  const is3d = wordOf("cases", name, Object.keys(STEP_CASES)).startsWith("3d");
  const plane: Record<string, number> = is3d ? { i: cube, j: cube, k: cube } : { i: side, j: side };
  return stepCase(name, is3d ? cubeSteps : steps, plane, dtype);
}

/** Elements of the result, of every step of it. */
export function cellsOf(computation: Computation): number {
  return elementCount(outputOf(computation)) * (computation.time?.steps ?? 1);
}

/** A multiply and an add for each tap of a window; undefined for other computations. */
export function windowOperations(computation: Computation): number | undefined {
  const taps = computation.time ? undefined : tapsOf(computation);
  return taps?.ok ? 2 * taps.sum.taps.length * cellsOf(computation) : undefined;
}

/** Of a copy that moves as much as a call must: inputs read and results written once, or a plane each step. */
export function copyBytesOf(computation: Computation): number {
  const output = elementCount(outputOf(computation)) * bytesOf(outputOf(computation).dtype);
  if (computation.time) return output;
  const inputs = inputsOf(computation).reduce((sum, t) => sum + elementCount(t) * bytesOf(t.dtype), 0);
  return COPIED * Math.round((inputs + output) / 2 / COPIED);
}

/** Copies are of multiples of so many bytes. */
const COPIED = 2 ** 16;
