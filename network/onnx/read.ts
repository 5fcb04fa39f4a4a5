/**
 * @file Reads ONNX: a library parses the protobuf, then the parts that a network needs are extracted and checked.
 *
 *     readOnnx("resnet18.onnx")      Graph
 *
 * The format: https://github.com/onnx/onnx/blob/v1.20.0/onnx/onnx.proto. A file is hostile input: it is either read, or refused in a sentence.
 */

import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import {
  type AttributeProto,
  AttributeProto_AttributeType as AttributeType,
  type GraphProto,
  type ModelProto,
  ModelProtoSchema,
  type NodeProto,
  type TensorProto,
  TensorProtoSchema,
  type TensorShapeProto,
  type ValueInfoProto,
} from "onnx-buf";
import { attempt, UsageError } from "../../abstraction/error.ts";
import type { Attribute, Body, Constant, Dimension, Graph, Input, Node } from "../graph.ts";
import type { ElementType } from "../value.ts";
import { domainOf, OWN_DOMAINS, operatorIn } from "./domain.ts";
import { withFile } from "./file.ts";
import { checkTogether, constantOf, elementTypeOf, type Folder, numberOfLong } from "./tensor.ts";

/** Supported versions of the operator definitions. Operators that meant something else before opset 7 are refused there (operators/early.ts). */
export const OPSETS = { least: 1, most: 23 } as const;
/** A protobuf is smaller than 2 GiB; larger networks keep tensors in external files. */
const MOST_BYTES = 2 ** 31 - 1;

/** A tensor from a file of its own, as in test data. @throws UsageError when it is invalid */
export function readTensor(file: string): Constant {
  const bytes = bytesOfFile(file);
  try {
    return constantOf(fromBinary(TensorProtoSchema, bytes), file, { subject: file, folder: dirname(file) });
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${file} is no tensor of ONNX: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Reads a model file; tensors in external files come from its folder. @throws UsageError when the file is not a supported ONNX model */
export function readOnnx(file: string): Graph {
  return parseOnnx(bytesOfFile(file), file, dirname(file));
}

/** The bytes of a model file. @throws UsageError when it cannot be read or is too large */
export function bytesOfFile(file: string): Uint8Array {
  return withFile(file, file, (handle, size) => {
    if (size > MOST_BYTES)
      throw new UsageError(
        `${file} has ${size} bytes, and a protobuf is shorter than 2 GiB`,
        "save the model with its tensors in external files",
      );
    return readFileSync(handle);
  });
}

/**
 * @param subject its name in messages
 * @param folder where external files lie
 * @throws UsageError when the bytes are not a supported ONNX model
 */
export function parseOnnx(bytes: Uint8Array, subject: string, folder: string): Graph {
  const model = modelOf(bytes, subject);
  const { graph } = model;
  if (!graph || graph.node.length === 0)
    throw new UsageError(`${subject} holds no network`, "an ONNX model has a graph with nodes");
  const opset = opsetOf(model, subject);
  if (model.functions.length > 0)
    throw new UsageError(`${subject} defines functions of its own, which is not supported yet`);
  return graphOf(graph, opset, { subject, folder });
}

function modelOf(bytes: Uint8Array, subject: string): ModelProto {
  try {
    return fromBinary(ModelProtoSchema, bytes);
  } catch (error) {
    // Also reached when messages are nested more deeply than the stack allows.
    throw new UsageError(`${subject} is no ONNX model: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function opsetOf({ opsetImport }: ModelProto, subject: string): number {
  const own = opsetImport.find(({ domain }) => OWN_DOMAINS.includes(domain));
  if (!own) throw new UsageError(`${subject} does not say which version of ONNX's operators it uses`);
  const version = Number(own.version);
  const { least, most } = OPSETS;
  if (version < least || version > most)
    throw new UsageError(
      `${subject} uses opset ${own.version}; ${least} to ${most} are supported`,
      "export it for opset 23 or less: opset_version=23 in PyTorch",
    );
  return version;
}

/** A graph and those inside its nodes. The protobuf library refuses messages nested more than 100 times, so the recursion ends. */
function* graphsIn(graph: GraphProto): Generator<GraphProto> {
  yield graph;
  for (const { attribute } of graph.node) for (const { g } of attribute) if (g) yield* graphsIn(g);
}

function graphOf(graph: GraphProto, opset: number, place: Folder): Graph {
  const all = [...graphsIn(graph)];
  for (const each of all) checkNames(each, place.subject);
  checkTogether(
    all.flatMap((each) => [...tensorsIn(each)]),
    place.subject,
  );
  const constants = constantsOf(graph, place);
  const inputs = graph.input.filter(({ name }) => !constants.has(name)).map((info) => inputOf(info, place.subject));
  const outputs = graph.output.map(({ name }) => name);
  for (const [what, names] of [["input", inputs.map(({ name }) => name)] as const, ["output", outputs] as const]) {
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (twice !== undefined) throw new UsageError(`${place.subject}: the ${what} "${twice}" stands twice`);
  }
  if (outputs.length === 0) throw new UsageError(`${place.subject}: the network has no outputs`);
  return {
    name: graph.name === "" ? "network" : graph.name,
    opset,
    inputs,
    outputs,
    outputTypes: new Map(graph.output.flatMap((info) => typeOf(info))),
    declared: new Map([...graph.valueInfo, ...graph.output].flatMap((info) => declaredOf(info))),
    constants,
    nodes: graph.node.map((node, i) => nodeOf(node, i, place)),
  };
}

function constantsOf({ initializer, sparseInitializer }: GraphProto, place: Folder): ReadonlyMap<string, Constant> {
  const constants = new Map<string, Constant>();
  for (const tensor of initializer) {
    if (constants.has(tensor.name))
      throw new UsageError(`${place.subject}: the constant "${tensor.name}" stands twice`);
    constants.set(tensor.name, constantOf(tensor, subjectOf(tensor), place));
  }
  if (sparseInitializer.length > 0) throw new UsageError(`${place.subject}: sparse constants are not supported`);
  return constants;
}

/** A graph inside a node. The declared shapes of its values are not needed. */
function bodyOf(graph: GraphProto, place: Folder): Body {
  return {
    inputs: graph.input.map(({ name }) => name),
    outputs: graph.output.map(({ name }) => name),
    constants: constantsOf(graph, place),
    nodes: graph.node.map((node, i) => nodeOf(node, i, place)),
  };
}

/** Most characters of a name, because messages, headers and sources repeat names. */
const MOST_NAME = 1000;

/** @throws UsageError for a name that no exporter writes */
function checkNames({ name, node, initializer, input, output }: GraphProto, subject: string): void {
  const named = [...node, ...initializer, ...input, ...output, ...node.flatMap((n) => n.attribute)];
  const others = node.flatMap((n) => [n.opType, n.domain, ...n.input, ...n.output]);
  const long = [name, ...named.map((each) => each.name), ...others].find((text) => text.length > MOST_NAME);
  if (long !== undefined)
    throw new UsageError(
      `${subject}: the name "${long.slice(0, 40)}..." has ${long.length} characters`,
      `names have ${MOST_NAME} at most`,
    );
}

/** All tensors that become constants, with their names in messages. */
function* tensorsIn({ initializer, node }: GraphProto): Generator<readonly [tensor: TensorProto, subject: string]> {
  for (const tensor of initializer) yield [tensor, subjectOf(tensor)];
  for (const [place, { name, attribute }] of node.entries())
    for (const each of attribute)
      if (each.type === AttributeType.TENSOR && each.t) yield [each.t, attributeText(each, calledOf(name, place))];
}

const subjectOf = ({ name }: TensorProto): string => `constant "${name}"`;
const attributeText = ({ name }: AttributeProto, node: string): string => `${node}: attribute ${name}`;
const calledOf = (name: string, place: number): string => (name === "" ? `node ${place}` : name);

function inputOf({ name, type }: ValueInfoProto, subject: string): Input {
  const value = type?.value;
  if (value?.case !== "tensorType")
    throw new UsageError(`${subject}: input "${name}" is ${value?.case ?? "of no type"}; tensors are supported`);
  const { elemType, shape } = value.value;
  if (!shape)
    throw new UsageError(`${subject}: input "${name}" has no shape`, "export the model with the shapes of its inputs");
  return {
    name,
    type: elementTypeOf(elemType, `input "${name}"`),
    shape: sizesIn(name, shape),
  };
}

const sizesIn = (name: string, { dim }: TensorShapeProto): Dimension[] =>
  dim.map(({ value: size }, d) => {
    if (size.case === "dimValue") return Number(size.value);
    const isNamed = size.case === "dimParam" && size.value !== "" && size.value.length <= MOST_NAME;
    return isNamed ? size.value : `${name}.${d}`;
  });

/** The declared shape of a value, by name, if the model has it. Some exporters write 0 or -1 for an unknown size. */
function declaredOf({ name, type }: ValueInfoProto): (readonly [string, readonly Dimension[]])[] {
  const shape = type?.value.case === "tensorType" ? type.value.value.shape : undefined;
  const open = (size: Dimension, d: number): Dimension =>
    typeof size === "number" && size < 1 ? `${name}.${d}` : size;
  return shape ? [[name, sizesIn(name, shape).map(open)]] : [];
}

/** The type of an output by name, if the model says it and it is supported. */
function typeOf({ name, type }: ValueInfoProto): (readonly [string, ElementType])[] {
  const number = type?.value.case === "tensorType" ? type.value.value.elemType : 0;
  const made = attempt(() => elementTypeOf(number, `output "${name}"`));
  return made ? [[name, made]] : [];
}

function nodeOf({ name, opType, domain, input, output, attribute }: NodeProto, place: number, folder: Folder): Node {
  const called = calledOf(name, place);
  const op = operatorIn(opType, domain);
  if (op === undefined)
    throw new UsageError(
      `${called}: the operator ${opType} of ${domain === "" ? "ONNX itself" : domain} is not supported`,
      domainOf(opType) === "" ? "operators of ONNX itself are" : `that of ${domainOf(opType)} is`,
    );
  return {
    name: called,
    op,
    inputs: input,
    outputs: output,
    // Attribute names come from the file and must not be mistaken for properties that every object has.
    attributes: Object.assign(
      Object.create(null),
      Object.fromEntries(attribute.map((a) => [a.name, attributeOf(a, called, folder)])),
    ),
  };
}

function attributeOf(attribute: AttributeProto, node: string, folder: Folder): Attribute {
  const { type } = attribute;
  const subject = attributeText(attribute, node);
  switch (type) {
    case AttributeType.FLOAT:
      return attribute.f;
    case AttributeType.INT:
      return wholeOf(attribute.i, subject);
    case AttributeType.STRING:
      return textOf(attribute.s);
    case AttributeType.FLOATS:
      return attribute.floats;
    case AttributeType.INTS:
      return attribute.ints.map((i) => wholeOf(i, subject));
    case AttributeType.STRINGS:
      return attribute.strings.map(textOf);
    case AttributeType.TENSOR:
      if (!attribute.t) throw new UsageError(`${subject} holds no tensor`);
      return constantOf(attribute.t, subject, folder);
    case AttributeType.GRAPH:
      if (!attribute.g) throw new UsageError(`${subject} holds no graph`);
      return bodyOf(attribute.g, folder);
    default:
      throw new UsageError(`${subject} is of a kind that is not supported: ${AttributeType[type] ?? type}`);
  }
}

function wholeOf(value: bigint, subject: string): number {
  const number = numberOfLong(value);
  if (number === undefined) throw new UsageError(`${subject}: ${value} does not fit a double`);
  return number;
}

const textOf = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
