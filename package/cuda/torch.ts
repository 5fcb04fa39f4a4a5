/**
 * @file A package as a PyTorch operator: its registration in C++, a module that builds and loads it, and an example that runs it beside
 * PyTorch's own operator.
 *
 *     torch.ops.automap.conv2d(input, w)      checked, on the current stream, known to meta tensors and to torch.compile
 */

import { affineForm, shapeOf } from "../../abstraction/affine.ts";
import { entryOf } from "../../abstraction/collections.ts";
import { equationText } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import {
  apart,
  type Code,
  code,
  comment,
  commentText,
  jsonText,
  lines as linesOf,
  list,
  NOTHING,
  plainWord,
  type SourceText,
  type Spelling,
  spell,
  stringLiteral,
} from "../../abstraction/source-text.ts";
import { NVCC_CODE } from "../../runtime/run/cuda-build.ts";
import { architectureFlag } from "../../targets/nvidia-gpu.ts";
import { assetText } from "../portable.ts";
import type { Parameter } from "../subject.ts";
import { type CudaSubject, codeOf, constantsOf } from "./subject.ts";

/** PyTorch's name for each type, in C++ (`at::`) and in Python (`torch.`). */
export const TORCH_TYPES = {
  u8: ["kByte", "uint8"],
  s8: ["kChar", "int8"],
  u16: ["kUInt16", "uint16"],
  s16: ["kShort", "int16"],
  u32: ["kUInt32", "uint32"],
  s32: ["kInt", "int32"],
  e4m3: ["kFloat8_e4m3fn", "float8_e4m3fn"],
  e5m2: ["kFloat8_e5m2", "float8_e5m2"],
  f16: ["kHalf", "float16"],
  bf16: ["kBFloat16", "bfloat16"],
  tf32: ["kFloat", "float32"],
  f32: ["kFloat", "float32"],
  f64: ["kDouble", "float64"],
} as const satisfies Record<DType, readonly [string, string]>;

interface Strided {
  readonly sizes: readonly number[];
  readonly strides: readonly number[];
}

/**
 * A tensor of the notation as a PyTorch tensor: one stride for each dimension where the storage formula is linear in them, else its memory as
 * one dimension.
 */
function stridedOf({ tensor, elements }: Parameter): Strided {
  const form = affineForm(tensor.storage);
  const flat: Strided = { sizes: [elements], strides: [1] };
  if (form?.constant !== 0) return flat;
  const strides = tensor.dims.map(({ name }) => form.terms.get(name) ?? 0);
  if (strides.some((stride, d) => stride < 0 || (stride === 0 && (tensor.dims[d]?.extent ?? 1) > 1))) return flat;
  return { sizes: shapeOf(tensor), strides };
}

const inputsIn = ({ parameters }: CudaSubject): Parameter[] => parameters.filter((p) => p.role !== "output");

function outputIn({ parameters }: CudaSubject): Parameter {
  return parameters.find((p) => p.role === "output") ?? internal("a package without an output");
}

/** The C++ registration. Its parameter names match the header's, since they become the operator's argument names. */
export function torchSource(cuda: CudaSubject, words: Spelling): SourceText {
  const { subject, name, parameters, call } = cuda;
  const inputs = inputsIn(cuda);
  const output = outputIn(cuda);
  const layout = (p: Parameter): Code => code`layout_${p.place}`;
  const braces = (numbers: readonly number[]): Code => code`{${list(numbers.map((n) => code`${n}`))}}`;
  const declared = (p: Parameter): Code => {
    const { sizes, strides } = stridedOf(p);
    const said = stringLiteral(words.word(p.name));
    return code`static const Layout ${layout(p)} = {${list([said, code`at::${TORCH_TYPES[p.tensor.dtype][0]}`, braces(sizes), braces(strides), code`${p.elements}`])}};`;
  };
  const given = list(inputs.map((p) => code`const at::Tensor& tensor_${p.place}`));
  const pointers = (some: readonly Parameter[]): Code[] =>
    some.map(({ role, place, tensor: { dtype } }) =>
      role === "output"
        ? code`(${C_TYPES[dtype]}*)tensor_${place}.mutable_data_ptr()`
        : code`(const ${C_TYPES[dtype]}*)tensor_${place}.const_data_ptr()`,
    );
  const passed = (some: readonly Parameter[]): Code =>
    list([...pointers(some), code`workspace.mutable_data_ptr()`, code`${name}_workspace_bytes()`, code`stream`]);
  const [first = output] = inputs;
  const schema = `${subject.name}(${inputs.map((p) => `Tensor ${words.word(p.name)}`).join(", ")}) -> Tensor`;
  const text = code`${comment([`torch.ops.automap.${subject.name}: ${equationText(subject.computation)}`, "", "torch_ext.py builds and loads it."])}
#include "${name}.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <string>
#include <vector>

namespace {
${apart(assetText("torch-check.h"))}
static const char* const OPERATOR = ${stringLiteral(`automap::${subject.name}`)};
${linesOf(parameters.map(declared))}

static void check_inputs(${given}) {
${linesOf(inputs.map((p) => code`  check(OPERATOR, tensor_${p.place}, ${layout(p)}, tensor_${first.place}.device());`))}
}

/* The output alone, for tensors that have no memory. */
static at::Tensor on_meta(${given}) {
  check_inputs(${list(inputs.map((p) => code`tensor_${p.place}`))});
  return made(${layout(output)}, tensor_${first.place}.options());
}

static at::Tensor on_gpu(${given}) {
  check_inputs(${list(inputs.map((p) => code`tensor_${p.place}`))});
  const c10::cuda::CUDAGuard guard(tensor_${first.place}.device());
  const at::Tensor tensor_${output.place} = made(${layout(output)}, tensor_${first.place}.options());
  const at::Tensor workspace = at::empty({(int64_t)${name}_workspace_bytes()}, tensor_${first.place}.options().dtype(at::kByte));
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
${
  call.prepares
    ? code`  const int unprepared = ${name}_prepare(${passed(constantsOf(cuda))});
  TORCH_CHECK(unprepared == ${codeOf(cuda, "OK")}, OPERATOR, ": ", ${name}_message(unprepared));
`
    : NOTHING
}  const int bad = ${name}_run(${passed(parameters)});
  TORCH_CHECK(bad == ${codeOf(cuda, "OK")}, OPERATOR, ": ", ${name}_message(bad));
  return tensor_${output.place};
}
} // namespace

TORCH_LIBRARY_FRAGMENT(automap, library) {
  library.def(${stringLiteral(schema)}, {at::Tag::needs_fixed_stride_order, at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(automap, CUDA, library) { library.impl(${stringLiteral(subject.name)}, on_gpu); }
TORCH_LIBRARY_IMPL(automap, Meta, library) { library.impl(${stringLiteral(subject.name)}, on_meta); }
TORCH_LIBRARY_IMPL(automap, Autograd, library) {
  library.impl(${stringLiteral(subject.name)}, torch::autograd::autogradNotImplementedFallback());
}
`;
  return spell(text, "cuda");
}

/** A Python comment. */
const remarks = (texts: readonly string[]): Code => linesOf(texts.map((text) => code`# ${commentText(text)}`));

/** The Python module that builds and loads the operator. */
export function torchModule(cuda: CudaSubject, words: Spelling): SourceText {
  const { subject } = cuda;
  const rows = inputsIn(cuda).map((p) => {
    const { sizes, strides } = stridedOf(p);
    return code`    ${jsonText([words.word(p.name), TORCH_TYPES[p.tensor.dtype][1], sizes, strides])},`;
  });
  const flags = [architectureFlag(cuda.capability), ...NVCC_CODE.kernel];
  const text = linesOf([
    remarks([`torch.ops.automap.${subject.name}: ${equationText(subject.computation)}`, "", ...subject.provenance]),
    code`
NAME = ${jsonText(subject.name)}
SOURCES = ${jsonText(["_torch.cpp", ".cu", "_tuned.cu"].map((part) => subject.name + part))}
# The flags that the kernel was measured with; for another GPU another -gencode.
CUDA_FLAGS = [${list(flags.map((flag) => code`"${plainWord(flag)}"`))}]
# Of each input in the order of a call: its name, its type, its shape and its strides in elements.
INPUTS = [`,
    ...rows,
    code`]`,
    apart(assetText("torch_ext.py")),
  ]);
  return spell(text, "python");
}

/** PyTorch's own operator with the same arguments, as an expression in `x` and `w`; undefined when PyTorch has none. */
function ofTorch({ operator, subject }: CudaSubject): Code | undefined {
  const { epilogue } = partsOf(subject.computation);
  // A cast of the sum is what PyTorch does as well.
  const value = epilogue?.equation.value;
  if (!operator || (value && !(value.kind === "cast" && value.value.kind === "access"))) return undefined;
  const { name, parameters: p } = operator;
  const number = (key: string): number | undefined => entryOf(p, key);
  const convolution = (
    step: readonly string[],
    border: readonly string[],
    weights = code`w`,
    groups = "groups",
  ): Code | undefined => {
    const values = [...step, ...border, "dilation", groups].map(number);
    // // The record of a program may leave some of them out.
    if (!values.every(Number.isSafeInteger)) return undefined;
    const all = values.map((value) => code`${value ?? 1}`);
    const rank = step.length;
    const steps = list(all.slice(0, rank));
    const borders = list(all.slice(rank, 2 * rank));
    const [dilation = NOTHING, count = NOTHING] = all.slice(2 * rank);
    return code`F.conv${rank}d(x, ${weights}, stride=(${steps},), padding=(${borders},), dilation=${dilation}, groups=${count})`;
  };
  switch (name) {
    case "matmul":
    case "matvec":
    case "batched-matmul":
      return code`torch.matmul(x, w)`;
    case "conv1d":
      return convolution(["stride"], ["pad"]);
    case "conv2d":
    case "grouped-conv2d":
    case "dilated-conv2d":
      return convolution(["stride", "stride"], ["pad", "pad"]);
    case "depthwise-conv2d":
      return convolution(["stride", "stride"], ["pad", "pad"], code`w[:, None]`, "c");
    case "conv3d":
      return convolution(["stride_d", "stride", "stride"], ["pad_d", "pad", "pad"]);
    default:
      return undefined;
  }
}

export function torchExample(cuda: CudaSubject): SourceText {
  const own = inputsIn(cuda).length === 2 ? ofTorch(cuda) : undefined;
  const text = linesOf([
    remarks([
      `Runs torch.ops.automap.${cuda.subject.name}${own ? " beside PyTorch's own operator" : ""}. Exit code 0: right, 4: wrong.`,
    ]),
    code`
import faulthandler
import sys

# A crash in C++ tells the line of Python that it was called from.
faulthandler.enable(all_threads=False)

import torch
import torch.nn.functional as F

# PyTorch's own operator, where it has one.
of_torch = ${own ? code`lambda x, w: ${own}` : code`None`}`,
    apart(assetText("torch_example.py")),
  ]);
  return spell(text, "python");
}
