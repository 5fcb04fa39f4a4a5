/**
 * @file Writes a graph as ONNX for other runtimes. Reading the bytes gives the same graph.
 *
 *     writeFileSync("resnet18.onnx", onnxBytes(resnet18()))
 */

import { create, toBinary } from "@bufbuild/protobuf";
import {
  type AttributeProto,
  AttributeProtoSchema,
  AttributeProto_AttributeType as AttributeType,
  type GraphProto,
  GraphProtoSchema,
  ModelProtoSchema,
  NodeProtoSchema,
  OperatorSetIdProtoSchema,
  TensorProtoSchema,
  TypeProtoSchema,
  ValueInfoProtoSchema,
} from "onnx-buf";
import { unique } from "../../abstraction/collections.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Attribute,
  type Body,
  bodiesOf,
  type Constant,
  type Graph,
  type Input,
  isBody,
  isConstant,
  type Node,
} from "../../network/graph.ts";
import { numberOfType } from "../../network/numbers.ts";
import { domainOf } from "../../network/onnx/domain.ts";

/** The format's version that knows opset 20. */
const IR_VERSION = 9n;

export function onnxBytes(graph: Graph): Uint8Array {
  const model = create(ModelProtoSchema, {
    irVersion: IR_VERSION,
    opsetImport: unique(["", ...operatorsIn(graph).map(domainOf)]).map((domain) =>
      create(OperatorSetIdProtoSchema, { domain, version: domain === "" ? BigInt(graph.opset) : 1n }),
    ),
    graph: {
      name: graph.name,
      ...partsOf(graph),
      input: graph.inputs.map(inputProto),
      output: graph.outputs.map((name) => create(ValueInfoProtoSchema, { name })),
    },
  });
  return toBinary(ModelProtoSchema, model);
}

const operatorsIn = ({ nodes }: Pick<Body, "nodes">): string[] =>
  nodes.flatMap((node) => [node.op, ...bodiesOf(node).flatMap(operatorsIn)]);

const partsOf = ({ nodes, constants }: Pick<Body, "nodes" | "constants">) => ({
  node: nodes.map(nodeProto),
  initializer: [...constants].map(([name, constant]) => tensorProto(name, constant)),
});

function bodyProto(name: string, body: Body): GraphProto {
  const named = (names: readonly string[]) => names.map((each) => create(ValueInfoProtoSchema, { name: each }));
  return create(GraphProtoSchema, {
    name,
    ...partsOf(body),
    input: named(body.inputs),
    output: named(body.outputs),
  });
}

function inputProto({ name, type, shape }: Input) {
  const dim = shape.map((size) => ({
    value:
      typeof size === "number"
        ? ({ case: "dimValue", value: BigInt(size) } as const)
        : ({ case: "dimParam", value: size } as const),
  }));
  const tensorType = { elemType: numberOfType(type), shape: { dim } };
  return create(ValueInfoProtoSchema, {
    name,
    type: create(TypeProtoSchema, { value: { case: "tensorType", value: tensorType } }),
  });
}

function nodeProto({ name, op, inputs, outputs, attributes }: Node) {
  return create(NodeProtoSchema, {
    name,
    opType: op.slice(op.lastIndexOf(".") + 1),
    domain: domainOf(op),
    input: [...inputs],
    output: [...outputs],
    attribute: Object.entries(attributes).map(([attribute, value]) => attributeProto(attribute, value)),
  });
}

function attributeProto(name: string, value: Attribute): AttributeProto {
  if (isBody(value))
    return create(AttributeProtoSchema, { name, type: AttributeType.GRAPH, g: bodyProto(name, value) });
  if (isConstant(value))
    return create(AttributeProtoSchema, { name, type: AttributeType.TENSOR, t: tensorProto(name, value) });
  if (typeof value === "string")
    return create(AttributeProtoSchema, { name, type: AttributeType.STRING, s: new TextEncoder().encode(value) });
  if (typeof value === "number")
    return Number.isInteger(value) && !FLOAT_ATTRIBUTES.has(name)
      ? create(AttributeProtoSchema, { name, type: AttributeType.INT, i: BigInt(value) })
      : create(AttributeProtoSchema, { name, type: AttributeType.FLOAT, f: value });
  const numbers = value.filter((x) => typeof x === "number");
  return create(AttributeProtoSchema, { name, type: AttributeType.INTS, ints: numbers.map(BigInt) });
}

/** Attributes that are floats even where they are whole. */
const FLOAT_ATTRIBUTES: ReadonlySet<string> = new Set(["alpha", "beta", "gamma", "bias", "epsilon"]);

function tensorProto(name: string, { type, shape, values }: Constant) {
  const tensor = { name, dataType: numberOfType(type), dims: shape.map(BigInt) };
  if (type === "s64") return create(TensorProtoSchema, { ...tensor, int64Data: Array.from(values, BigInt) });
  if (type === "f16" || type === "bf16") internal(`constants of ${type} are not written yet`);
  const bytes = new Uint8Array(values.byteLength);
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  return create(TensorProtoSchema, { ...tensor, rawData: bytes });
}
