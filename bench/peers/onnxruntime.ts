/**
 * @file ONNX Runtime as a peer: one operator as a session, called from this process.
 *
 *     npm install --no-save onnxruntime-node
 *
 * It is not a dependency because its package is 290 MB. ONNX has one layout, NCHW. Times include any reordering in the
 * session and the overhead of a call in Node, which `overhead` measures with a session that copies one number.
 */

import { createRequire } from "node:module";
import { resolve } from "node:path";
import { type Computation, extentsOf, inputsOf, outputOf } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Network } from "../../network/network.ts";
import { type ElementType, heldAs } from "../../network/value.ts";
import type { ReferenceSet } from "../../runtime/verify.ts";
import { type OnnxConstant, type OnnxNode, type OnnxType, onnxModel } from "./onnx-model.ts";

/** The part of onnxruntime-node that is used here. */
interface Ort {
  readonly Tensor: new (type: string, data: OnnxArray, dims: readonly number[]) => OnnxValue;
  readonly InferenceSession: {
    create(model: Uint8Array, options: Readonly<Record<string, unknown>>): Promise<OrtSession>;
  };
}
interface OrtSession {
  run(
    feeds: Readonly<Record<string, OnnxValue>>,
    fetches: Readonly<Record<string, OnnxValue>>,
  ): Promise<Readonly<Record<string, OnnxValue>>>;
  release(): Promise<void>;
}
interface OnnxValue {
  readonly data: OnnxArray;
}
export type OnnxArray = Float32Array | Uint16Array | Int32Array | Uint8Array | Int8Array | BigInt64Array;

const ARRAYS = { f32: Float32Array, s32: Int32Array, u8: Uint8Array, s8: Int8Array } as const;
const WORDS = { f32: "float32", s32: "int32", u8: "uint8", s8: "int8" } as const;
/** Types of the inputs and outputs of whole models; those of f16 are bits. */
const BORDER_ARRAYS = { ...ARRAYS, f16: Uint16Array, s64: BigInt64Array, bool: Uint8Array } as const;
const BORDER_WORDS = { ...WORDS, f16: "float16", s64: "int64", bool: "bool" } as const;
export type OnnxBorderType = keyof typeof BORDER_WORDS;

export interface OnnxPeer {
  /** Runs once; the output is in `output`. */
  run(): Promise<void>;
  readonly output: ArrayLike<number>;
  close(): Promise<void>;
}

/** @param folder of the package, if installed elsewhere. @throws UsageError when onnxruntime-node is not installed */
export async function loadOnnxRuntime(folder?: string): Promise<Ort & { readonly version: string }> {
  const name = folder === undefined ? "onnxruntime-node" : resolve(folder);
  const require = createRequire(import.meta.url);
  try {
    const { version } = require(`${name}/package.json`) as { version: string };
    // The package has its own types, which exist only where it is installed.
    return await Promise.resolve({ ...(require(name) as Ort), version });
  } catch {
    throw new UsageError(`${folder ?? name} is not installed`, { hint: "npm install --no-save onnxruntime-node" });
  }
}

/** A whole model with one set of inputs. */
export interface OnnxNetwork {
  run(): Promise<void>;
  /** Outputs of the last run by name. */
  readonly outputs: Readonly<Record<string, OnnxArray>>;
  close(): Promise<void>;
}

/** A tensor of a model. */
export interface OnnxTensor {
  readonly type: OnnxBorderType;
  readonly shape: readonly number[];
}

/** The inputs and outputs of a program by name. */
export function onnxTensors({ inputs, outputs }: Network): Readonly<Record<string, OnnxTensor>> {
  const all = [...inputs.map((value) => ({ name: value.name, value })), ...outputs];
  return Object.fromEntries(
    all.map(({ name, value }) => [name, { type: onnxBorderType(value.type), shape: value.shape }]),
  );
}

/**
 * @param tensors the model's inputs and outputs by name
 * @param asWritten whether nodes are computed one by one, as the model says, without the forms that round otherwise
 */
export async function onnxNetwork(
  ort: Ort,
  model: Uint8Array,
  {
    inputs,
    tensors,
    threads,
    asWritten = false,
  }: {
    readonly inputs: Readonly<Record<string, OnnxArray>>;
    readonly tensors: Readonly<Record<string, OnnxTensor>>;
    readonly threads: number;
    readonly asWritten?: boolean;
  },
): Promise<OnnxNetwork> {
  const options = { ...sessionOptions(threads), ...(asWritten && { graphOptimizationLevel: "disabled" }) };
  const session = await ort.InferenceSession.create(model, options);
  const tensor = (name: string, data: OnnxArray): OnnxValue => {
    const { type = "f32", shape = [] } = tensors[name] ?? {};
    return new ort.Tensor(BORDER_WORDS[type], data, shape);
  };
  const feeds = Object.fromEntries(Object.entries(inputs).map(([name, data]) => [name, tensor(name, data)]));
  const outputs = Object.fromEntries(
    Object.entries(tensors)
      .filter(([name]) => !Object.hasOwn(inputs, name))
      .map(([name, { type, shape }]) => [
        name,
        new BORDER_ARRAYS[type](shape.reduce((product, size) => product * size, 1)),
      ]),
  );
  const fetches = Object.fromEntries(Object.entries(outputs).map(([name, data]) => [name, tensor(name, data)]));
  return {
    run: async () => {
      await session.run(feeds, fetches);
    },
    outputs,
    close: () => session.release(),
  };
}

/**
 * A convolution or product in its operator's default layout, with one input set of its reference.
 * @throws UsageError for a type that ONNX Runtime's CPU kernels lack (bf16), or an operator without a counterpart
 */
export async function onnxPeer(
  ort: Ort,
  computation: Computation,
  parameters: Readonly<Record<string, number>>,
  set: ReferenceSet,
  threads: number,
): Promise<OnnxPeer> {
  const output = outputOf(computation);
  const tensors = inputsOf(computation).map((t) => {
    const type = onnxType(t.dtype);
    const dims = t.dims.map((d) => d.extent);
    return { name: t.name, type, dims, bytes: set.inputs[t.name] ?? new Uint8Array(), constant: t.constant };
  });
  const type = onnxType(output.dtype);
  const dims = output.dims.map((d) => d.extent);
  const names = tensors.map((t) => t.name);
  const requantised = computation.epilogue !== undefined && type === "u8";
  const node: OnnxNode = {
    op: requantised ? "QLinearConv" : operatorOf(computation, type),
    arguments: requantised ? quantisedArguments(names) : names,
    inputs: tensors.filter((t) => !t.constant),
    constants: [...tensors.filter((t) => t.constant), ...(requantised ? UNITS : [])],
    output: { name: output.name, type, dims },
    attributes: computation.name.includes("conv") ? windowOf(computation, parameters) : {},
  };
  const session = await ort.InferenceSession.create(onnxModel(node), sessionOptions(threads));
  const value = (of: OnnxType, bytes: Uint8Array, shape: readonly number[]): OnnxValue =>
    new ort.Tensor(WORDS[of], new ARRAYS[of](bytes.slice().buffer), shape);
  const feeds = Object.fromEntries(
    tensors.filter((t) => !t.constant).map((t) => [t.name, value(t.type, t.bytes, t.dims)]),
  );
  const result = new ARRAYS[type](dims.reduce((n, d) => n * d, 1));
  const fetches = { [output.name]: new ort.Tensor(WORDS[type], result, dims) };
  return {
    run: async () => {
      await session.run(feeds, fetches);
    },
    output: result,
    close: () => session.release(),
  };
}

/** A session that copies one number, to measure the overhead of a call. */
export async function onnxOverhead(ort: Ort): Promise<OnnxPeer> {
  const one = { name: "x", type: "f32", dims: [1] } as const;
  const node: OnnxNode = {
    op: "Identity",
    arguments: ["x"],
    inputs: [one],
    constants: [],
    output: { ...one, name: "y" },
  };
  const session = await ort.InferenceSession.create(onnxModel(node), sessionOptions(1));
  const x = new Float32Array(1);
  const y = new Float32Array(1);
  const feeds = { x: new ort.Tensor("float32", x, [1]) };
  const fetches = { y: new ort.Tensor("float32", y, [1]) };
  return {
    run: async () => {
      await session.run(feeds, fetches);
    },
    output: y,
    close: () => session.release(),
  };
}

/** QLinearConv's input and output scales (1), and its zero points. */
const UNITS: readonly OnnxConstant[] = [
  { name: "one", type: "f32", dims: [], bytes: new Uint8Array(Float32Array.of(1).buffer) },
  { name: "zero_u8", type: "u8", dims: [], bytes: new Uint8Array(1) },
  { name: "zero_s8", type: "s8", dims: [], bytes: new Uint8Array(1) },
];

/** `output(relu(sum * scale[channel]))`: input, weights and scale in the equation's order. */
function quantisedArguments([input = "", weights = "", scale = ""]: readonly string[]): string[] {
  return [input, "one", "zero_u8", weights, scale, "zero_s8", "one", "zero_u8"];
}

const sessionOptions = (threads: number): Readonly<Record<string, unknown>> => ({
  intraOpNumThreads: threads,
  interOpNumThreads: 1,
  executionMode: "sequential",
  graphOptimizationLevel: "all",
  // Errors only: it warns of the nodes of other exporters.
  logSeverityLevel: 3,
});

/** The type of an input or output of a model. @throws UsageError for a type that is not passed to ONNX Runtime here */
export function onnxBorderType(type: ElementType): OnnxBorderType {
  return type === "s64" || type === "bool" || type === "f16" ? type : onnxType(heldAs(type));
}

/** The elements of an input, little-endian, as ONNX Runtime takes them. */
export function onnxArray(type: OnnxBorderType, bytes: Uint8Array): OnnxArray {
  return new BORDER_ARRAYS[type](bytes.slice().buffer);
}

/** @throws UsageError for a type that ONNX Runtime does not support here */
export function onnxType(dtype: DType): OnnxType {
  if (dtype === "f32" || dtype === "s32" || dtype === "u8" || dtype === "s8") return dtype;
  throw new UsageError(`ONNX Runtime's CPU kernels have no ${dtype} convolution`);
}

function operatorOf({ name }: Computation, sum: OnnxType): string {
  if (/conv2d$/.test(name)) return sum === "s32" ? "ConvInteger" : "Conv";
  if (name === "matmul" || name === "matvec") return sum === "s32" ? "MatMulInteger" : "MatMul";
  throw new UsageError(`no ONNX operator is known for ${name}`);
}

function windowOf(
  computation: Computation,
  parameters: Readonly<Record<string, number>>,
): Readonly<Record<string, number | readonly number[]>> {
  const { stride = 1, pad = 0, dilation = 1, groups } = parameters;
  const channels = extentsOf(computation);
  const isDepthwise = computation.name.startsWith("depthwise");
  return {
    strides: [stride, stride],
    pads: [pad, pad, pad, pad],
    dilations: [dilation, dilation],
    group: isDepthwise ? (parameters.c ?? channels.c ?? 1) : (groups ?? 1),
  };
}
