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
import { type Computation, extentsOf, inputsOf, outputOf, type Tensor } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Constant } from "../../network/graph.ts";
import type { Network } from "../../network/network.ts";
import type { ElementType } from "../../network/value.ts";
import type { ReferenceSet } from "../../runtime/reference/verify.ts";
import { onnxBytes } from "../../test/support/onnx-bytes.ts";

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

/** Types of the inputs and outputs of models; those of f16 are bits. */
const ARRAYS = {
  f32: Float32Array,
  s32: Int32Array,
  u8: Uint8Array,
  s8: Int8Array,
  f16: Uint16Array,
  s64: BigInt64Array,
  bool: Uint8Array,
} as const;
const WORDS = {
  f32: "float32",
  s32: "int32",
  u8: "uint8",
  s8: "int8",
  f16: "float16",
  s64: "int64",
  bool: "bool",
} as const;
export type OnnxType = keyof typeof WORDS;

/** @param folder of the package, if installed elsewhere. @throws UsageError when onnxruntime-node is not installed */
export async function loadOnnxRuntime(folder?: string): Promise<Ort & { readonly version: string }> {
  const name = folder === undefined ? "onnxruntime-node" : resolve(folder);
  const require = createRequire(import.meta.url);
  try {
    const { version } = require(`${name}/package.json`) as { version: string };
    // The package has its own types, which exist only where it is installed.
    return await Promise.resolve({ ...(require(name) as Ort), version });
  } catch {
    throw new UsageError(`${folder ?? name} is not installed`, "npm install --no-save onnxruntime-node");
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
  readonly type: OnnxType;
  readonly shape: readonly number[];
}

/** The inputs and outputs of a program by name. */
export function onnxTensors({ inputs, outputs }: Network): Readonly<Record<string, OnnxTensor>> {
  const all = [...inputs.map((value) => ({ name: value.name, value })), ...outputs];
  return Object.fromEntries(all.map(({ name, value }) => [name, { type: onnxType(value.type), shape: value.shape }]));
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
    return new ort.Tensor(WORDS[type], data, shape);
  };
  const feeds = Object.fromEntries(Object.entries(inputs).map(([name, data]) => [name, tensor(name, data)]));
  const outputs = Object.fromEntries(
    Object.entries(tensors)
      .filter(([name]) => !Object.hasOwn(inputs, name))
      .map(([name, { type, shape }]) => [name, new ARRAYS[type](shape.reduce((product, size) => product * size, 1))]),
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
export function onnxPeer(
  ort: Ort,
  computation: Computation,
  parameters: Readonly<Record<string, number>>,
  set: ReferenceSet,
  threads: number,
): Promise<OnnxNetwork> {
  const output = outputOf(computation);
  const read = inputsOf(computation);
  const given = read.filter((t) => !t.constant);
  const names = read.map((t) => t.name);
  const typed = ({ dtype, dims }: Tensor): OnnxTensor => ({ type: onnxType(dtype), shape: dims.map((d) => d.extent) });
  const arrayOf = ({ name, dtype }: Tensor): OnnxArray =>
    onnxArray(onnxType(dtype), set.inputs[name] ?? new Uint8Array());
  const isRequantised = computation.epilogue !== undefined && output.dtype === "u8";
  const constants = read
    .filter((t) => t.constant)
    .map((t) => [t.name, { ...typed(t), values: arrayOf(t) } as Constant] as const); // none is of 64 bits
  const node = {
    name: computation.name,
    op: isRequantised ? "QLinearConv" : operatorOf(computation, output),
    inputs: isRequantised ? quantisedInputs(names) : names,
    outputs: [output.name],
    attributes: computation.name.includes("conv") ? windowOf(computation, parameters) : {},
  };
  const graph = {
    name: computation.name,
    opset: OPSET,
    inputs: given.map((t) => ({ name: t.name, ...typed(t) })),
    outputs: [output.name],
    constants: new Map([...constants, ...(isRequantised ? UNITS : [])]),
    nodes: [node],
  };
  return onnxNetwork(ort, onnxBytes(graph), {
    inputs: Object.fromEntries(given.map((t) => [t.name, arrayOf(t)])),
    tensors: Object.fromEntries([...given, output].map((t) => [t.name, typed(t)])),
    threads,
  });
}

const OPSET = 17;

/** A session that copies one number, to measure the overhead of a call. */
export function onnxOverhead(ort: Ort): Promise<OnnxNetwork> {
  const one = { type: "f32", shape: [1] } as const;
  const graph = {
    name: "one",
    opset: OPSET,
    inputs: [{ name: "x", ...one }],
    outputs: ["y"],
    constants: new Map(),
    nodes: [{ name: "copy", op: "Identity", inputs: ["x"], outputs: ["y"], attributes: {} }],
  };
  const tensors = { x: one, y: one };
  return onnxNetwork(ort, onnxBytes(graph), { inputs: { x: new Float32Array(1) }, tensors, threads: 1 });
}

/** QLinearConv's input and output scales (1), and its zero points. */
const UNITS: readonly (readonly [name: string, constant: Constant])[] = [
  ["one", { type: "f32", shape: [], values: Float32Array.of(1) }],
  ["zero_u8", { type: "u8", shape: [], values: Uint8Array.of(0) }],
  ["zero_s8", { type: "s8", shape: [], values: Int8Array.of(0) }],
];

/** `output(relu(sum * scale[channel]))`: input, weights and scale in the equation's order. */
function quantisedInputs([input = "", weights = "", scale = ""]: readonly string[]): string[] {
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
export function onnxType(type: ElementType): OnnxType {
  if (type in WORDS) return type as OnnxType; // one of its keys
  throw new UsageError(`ONNX Runtime's CPU kernels have no ${type} here`);
}

/** The elements of an input, little-endian, as ONNX Runtime takes them. */
export function onnxArray(type: OnnxType, bytes: Uint8Array): OnnxArray {
  return new ARRAYS[type](bytes.slice().buffer);
}

function operatorOf({ name }: Computation, { dtype }: Tensor): string {
  if (/conv2d$/.test(name)) return dtype === "s32" ? "ConvInteger" : "Conv";
  if (name === "matmul" || name === "matvec") return dtype === "s32" ? "MatMulInteger" : "MatMul";
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
