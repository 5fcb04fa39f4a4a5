/**
 * @file oneDNN as a peer: one of its primitives as a kernel, timed by the same harness in the same process.
 *
 *     const peer = onednnKernel(conv2d, { algorithm: "winograd" });       ready, or refused with a reason
 *     const made = await createRunner({ flags: ONEDNN_FLAGS });
 *     await made.runner.compareKernels([ours, peer.kernel], reference)     A B A B
 *     await describeOnednn(peer.kernel, options)                          "jit:avx512_core ... aBcd16b"
 *
 * Shapes, types, layouts, strides, padding and groups come from the computation. Constant tensors are reordered ahead.
 * The head of onednn.cpp says what is timed, and whose threads run.
 */

import { existsSync, readFileSync } from "node:fs";
import { affineForm } from "../../abstraction/affine.ts";
import {
  type Computation,
  equationText,
  inputsOf,
  memoryElements,
  outputOf,
  type Tensor,
  targetOf,
} from "../../abstraction/computation.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { type Access, accessesIn, type Expr, printExpr } from "../../abstraction/expression.ts";
import type { Kernel, KernelArgument } from "../../abstraction/kernel.ts";
import { spell, trustedCode } from "../../abstraction/source-text.ts";
import { argumentsOf } from "../../codegen/cpp/cpp-frame.ts";
import { explainRun, runChild } from "../../runtime/child.ts";
import { type CompileOptions, codeFlags, compileSource } from "../../runtime/compiler.ts";

/** Where oneDNN is installed: ONEDNN_ROOT has its include and lib, built for OpenMP; else the system's. */
const root = process.env.ONEDNN_ROOT;

/** Flags of these kernels, without effect on ours. Kernels are linked as C, but oneDNN is called from C++. */
export const ONEDNN_FLAGS: readonly string[] = [
  ...(root === undefined ? [] : [`-I${root}/include`, `-L${root}/lib`, `-Wl,-rpath,${root}/lib`]),
  "-Wl,--as-needed",
  "-ldnnl",
  "-lstdc++",
  "-lgcc_s",
];

/** oneDNN's version as its header gives it, such as 3.13.1; undefined where it is not installed. */
export function onednnVersion(): string | undefined {
  const header = `${root ?? "/usr"}/include/oneapi/dnnl/dnnl_version.h`;
  if (!existsSync(header)) return undefined;
  const numbers = readFileSync(header, "utf8").matchAll(/^#define DNNL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)/gm);
  return [...numbers].map(([, number]) => number).join(".");
}

/** oneDNN's names of ISAs, https://oneapi-src.github.io/oneDNN/v2.6/dev_guide_cpu_dispatcher_control.html. */
export const ONEDNN_ISAS = [
  "sse41",
  "avx",
  "avx2",
  "avx2_vnni",
  "avx512_core",
  "avx512_core_vnni",
  "avx512_core_bf16",
  "avx512_core_amx",
] as const;

export interface OnednnOptions {
  /**
   * For a convolution `direct` (default) or `winograd`. For a product `matmul` (default; the second factor is the
   * weights) or `inner-product` (in a matrix times a vector the matrix is the weights).
   */
  readonly algorithm?: "direct" | "winograd" | "matmul" | "inner-product";
  /** Layout of input and output: oneDNN's own choice (default), or as the computation stores them. */
  readonly activations?: "preferred" | "given";
  /** Threads, as many as the harness runs it with; default 1. */
  readonly threads?: number;
  /** Position in oneDNN's list of implementations, best first; default 0. Each has its own layouts. */
  readonly implementation?: number;
  /** Cap on the ISA, equal for all kernels of a process. */
  readonly maxIsa?: string;
}

export type OnednnKernel =
  | { readonly status: "ready"; readonly kernel: Kernel }
  | { readonly status: "refused"; readonly reason: string };

/**
 * The kernel of one of our operators, with an epilogue that oneDNN has: `bf16(sum)`, or `sat_u8(round(max(f32(sum) * scale, 0)))` with a factor for
 * each output channel. If oneDNN itself refuses at run time, the kernel crashes with its message. */
export function onednnKernel(computation: Computation, options: OnednnOptions = {}): OnednnKernel {
  try {
    return { status: "ready", kernel: kernelOf(computation, options) };
  } catch (error) {
    if (error instanceof Refusal) return { status: "refused", reason: error.message };
    throw error;
  }
}

/** oneDNN's own description of its choice: implementation, layouts, algorithm, shape. */
export async function describeOnednn(kernel: Kernel, options: Omit<CompileOptions, "flags">): Promise<string> {
  const flags = codeFlags(kernel, ["-DDESCRIBE", ...ONEDNN_FLAGS]);
  const compiled = await compileSource(kernel.source, flags, ".out", options);
  if (compiled.status !== "compiled") return compiled.log;
  const run = await runChild([compiled.file], { timeLimitMs: 60_000 });
  const line = run.stdout
    .split("\n")
    .map((l) => l.replace("onednn_verbose,v1,primitive,", "onednn_verbose,"))
    .find((l) => /^onednn_verbose,exec,cpu,(convolution|matmul|inner_product)/.test(l));
  if (run.status !== "ok" || line === undefined) return `${explainRun(run)} ${run.stderr}`.trim();
  const [, , , , implementation, , layouts, , algorithm, shape] = line.split(",");
  return [implementation, algorithm, layouts, shape].filter((word) => word !== "").join(" ");
}

// ------------------------------------------------------------------------------------------------- the problem

class Refusal extends Error {}

/** A tensor in oneDNN's terms. */
interface Operand {
  readonly tensor: Tensor;
  readonly dims: readonly number[];
  readonly strides: readonly number[];
}

interface Problem {
  readonly form: "convolution" | "matmul" | "inner_product";
  readonly source: Operand;
  readonly weights: Operand;
  readonly output: Operand;
  readonly step: readonly number[];
  /** oneDNN's dilation is 0 for a dense window. */
  readonly dilation: readonly number[];
  readonly pad: readonly number[];
}

const CONVOLUTIONS = ["conv1d", "conv2d", "conv3d", "grouped-conv2d", "dilated-conv2d", "depthwise-conv2d"];

function kernelOf(computation: Computation, options: OnednnOptions): Kernel {
  const { algorithm } = options;
  const isConvolution = CONVOLUTIONS.includes(computation.name);
  if (algorithm !== undefined && isConvolution !== (algorithm === "direct" || algorithm === "winograd"))
    throw new Refusal(`algorithm: ${algorithm} does not compute ${computation.name}`);
  const { sum: plainSum, epilogue } = partsOf(computation);
  // The sum as the epilogue's result is stored: by its name, in its layout.
  const sum = {
    ...plainSum,
    tensors: { ...plainSum.tensors, [plainSum.equation.target.tensor]: outputOf(computation) },
  };
  const problem = isConvolution
    ? convolution(sum)
    : product(sum, algorithm === "inner-product" ? "inner_product" : "matmul");
  const scale = epilogue && scaleOf(epilogue, problem);
  const all = argumentsOf(computation).map(
    (argument): KernelArgument => (argument.tensor === scale ? { ...argument, role: "constant" } : argument),
  );
  const template = readFileSync(new URL("./onednn.cpp", import.meta.url), "utf8");
  const about = `// ${computation.name}: ${equationText(computation)}\n`;
  return {
    language: "c++",
    source: spell(
      trustedCode(template.replace("// @problem", () => about + problemText(problem, options, all, scale))),
      "c++",
    ),
    features: [],
    // oneDNN generates its code at run time, so the library contains none of it.
    promises: undefined,
    arguments: all,
  };
}

/** The name of the factors of output channels in an epilogue; undefined for one that only converts. */
function scaleOf({ equation: { value } }: Computation, { output }: Problem): string | undefined {
  const [sum, scale] = accessesIn(value);
  const text = printExpr(value);
  if (!scale && sum && text === `bf16(${printExpr(sum)})`) return undefined;
  if (!sum || !scale || text !== `sat_u8(round(max(f32(${printExpr(sum)}) * ${printExpr(scale)}, 0)))`)
    throw new Refusal(`epilogue: oneDNN does not compute ${text}`);
  if (printExpr(scale) !== `${scale.tensor}[${output.tensor.dims[1]?.name}]`)
    throw new Refusal("epilogue: a factor for each row of a matrix product; oneDNN knows one for each column");
  return scale.tensor;
}

/** Reads stride, dilation and padding from the index: `p*2 + r*1 - 3`. */
function convolution(computation: Computation): Problem {
  const [input, weights] = inputsOf(computation);
  const output = targetOf(computation);
  const accesses = accessesIn(computation.equation.value);
  const read = accesses.find((a) => a.tensor === input?.name);
  const filter = accesses.find((a) => a.tensor === weights?.name);
  if (!input || !weights || !read || !filter)
    throw new Error(`internal: ${computation.name} reads less than two tensors`);
  const windows = read.index.slice(2).map((index, d) => windowOf(index, filter, computation.equation.target, d, read));

  // oneDNN splits the channels of the weights into [groups, outputs of a group, inputs of a group].
  const source = plain(input);
  const [k = 1, ...inner] = weights.dims.map((d) => d.extent);
  const [kStride = 1, ...innerStrides] = stridesOf(weights);
  const isDepthwise = weights.dims.length === input.dims.length - 1;
  const [c, kernel] = isDepthwise ? [1, inner] : [inner[0] ?? 1, inner.slice(1)];
  const [cStride, kernelStrides] = isDepthwise
    ? [kStride, innerStrides]
    : [innerStrides[0] ?? 1, innerStrides.slice(1)];
  const groups = (source.dims[1] ?? 1) / c;
  const group = { dims: [groups], strides: [kStride * (k / groups)] };
  return {
    form: "convolution",
    source,
    weights: {
      tensor: weights,
      dims: [...(groups > 1 ? group.dims : []), k / groups, c, ...kernel],
      strides: [...(groups > 1 ? group.strides : []), kStride, cStride, ...kernelStrides],
    },
    output: plain(output),
    step: windows.map((w) => w.step),
    dilation: windows.map((w) => w.dilation - 1),
    pad: windows.map((w) => w.pad),
  };
}

function windowOf(index: Expr, filter: Access, target: Access, d: number, read: Access) {
  const form = affineForm(index);
  const p = target.index[2 + d];
  const r = filter.index[filter.index.length - (read.index.length - 2) + d];
  if (!form || p?.kind !== "axis" || r?.kind !== "axis")
    throw new Refusal(`window: ${printExpr(index, "index")} is no step and dilation of a convolution`);
  return { step: form.terms.get(p.name) ?? 1, dilation: form.terms.get(r.name) ?? 1, pad: -form.constant };
}

function product(computation: Computation, form: "matmul" | "inner_product"): Problem {
  const [a, b] = inputsOf(computation).map(plain);
  const out = plain(targetOf(computation));
  if (!a || !b || (computation.name !== "matmul" && computation.name !== "matvec"))
    throw new Refusal(`operator: ${computation.name} is not among the peers`);
  const none = { step: [], dilation: [], pad: [] };
  if (computation.name === "matmul")
    return { form, source: a, weights: form === "matmul" ? b : transposed(b), output: out, ...none };
  // In a matrix product the vector is the one column, in a fully connected layer the one row.
  return form === "matmul"
    ? { form, source: a, weights: column(b), output: column(out), ...none }
    : { form, source: row(b), weights: a, output: row(out), ...none };
}

const plain = (tensor: Tensor): Operand => ({
  tensor,
  dims: tensor.dims.map((d) => d.extent),
  strides: stridesOf(tensor),
});
const transposed = ({ tensor, dims, strides }: Operand): Operand => ({
  tensor,
  dims: [...dims].reverse(),
  strides: [...strides].reverse(),
});
const column = ({ tensor, dims, strides }: Operand): Operand => ({
  tensor,
  dims: [...dims, 1],
  strides: [...strides, 1],
});
const row = ({ tensor, dims, strides }: Operand): Operand => ({
  tensor,
  dims: [1, ...dims],
  strides: [memoryElements(tensor), ...strides],
});

function stridesOf(tensor: Tensor): number[] {
  const form = affineForm(tensor.storage);
  if (form?.constant !== 0)
    throw new Refusal(
      `layout: ${tensor.name} is stored at ${printExpr(tensor.storage, "formula")}; give oneDNN a plain layout, it blocks by itself`,
    );
  return tensor.dims.map((d) => form.terms.get(d.name) ?? 1);
}

// ------------------------------------------------------------------------------------------------- its text

const TYPES: Readonly<Partial<Record<DType, string>>> = {
  f32: "f32",
  bf16: "bf16",
  f16: "f16",
  u8: "u8",
  s8: "s8",
  s32: "s32",
};

function problemText(
  problem: Problem,
  options: OnednnOptions,
  all: readonly KernelArgument[],
  scale: string | undefined,
): string {
  const { threads = 1, maxIsa, activations = "preferred", implementation = 0 } = options;
  if (maxIsa !== undefined && !ONEDNN_ISAS.some((isa) => isa === maxIsa))
    throw new Refusal(`maxIsa: oneDNN knows ${ONEDNN_ISAS.join(", ")}, got ${maxIsa}`);
  const list = (numbers: readonly number[]): string => `{${numbers.join(", ")}}`;
  const operand = ({ tensor, dims, strides }: Operand, isFree: boolean): string => {
    const at = all.findIndex((a) => a.tensor === tensor.name);
    const { dtype } = all[at] ?? tensor;
    const type = TYPES[dtype];
    if (type === undefined) throw new Refusal(`type: oneDNN has no ${dtype} (${tensor.name})`);
    return `{${at}, type::${type}, ${list(dims)}, ${list(strides)}, ${isFree}}`;
  };
  const isFree = ({ tensor }: Operand): boolean => tensor.constant || activations === "preferred";
  return `static const Problem PROBLEM = {
    Problem::Form::${problem.form},
    algorithm::convolution_${options.algorithm === "winograd" ? "winograd" : "direct"},
    /* step, dilation, pad */ ${list(problem.step)}, ${list(problem.dilation)}, ${list(problem.pad)},
    /* threads */ ${threads},
    /* implementation */ ${implementation},
    /* ISA at most */ ${maxIsa === undefined ? "std::nullopt" : `dnnl::cpu_isa::${maxIsa}`},
    /* source: argument, type, dims, strides, free */
    ${operand(problem.source, isFree(problem.source))},
    /* weights */
    ${operand(problem.weights, problem.weights.tensor.constant === true)},
    /* output */
    ${operand(problem.output, isFree(problem.output))},
    /* scale, relu */ ${scale === undefined ? 0 : all.findIndex((a) => a.tensor === scale)}, ${scale !== undefined},
    /* bytes of the arguments */ ${list(all.map((a) => a.elements * bytesOf(a.dtype)))},
};`;
}
