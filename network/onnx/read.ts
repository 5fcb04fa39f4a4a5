/**
 * @file Reads ONNX: a library parses the protobuf, then the parts that a network needs are extracted and checked.
 *
 *     readOnnx("resnet18.onnx")      Graph
 *
 * The format: https://github.com/onnx/onnx/blob/v1.20.0/onnx/onnx.proto. A file is hostile input: it is either read, or refused in a sentence.
 *
 * ONNX tensors as constants: the elements are in a field of the message, or in a file beside the model.
 *
 *     constantOf(tensor, 'constant "w"', { subject: "m.onnx", folder: "." })      { type: "f32", shape: [64, 3, 7, 7], values: Float32Array }
 *
 * An external file must lie in the model's folder: a path that leads out of it, by `..` or by a link, is refused.
 */

import { readFileSync, readSync, realpathSync } from "node:fs";
import { dirname, isAbsolute, join, relative, sep } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import {
  type AttributeProto,
  AttributeProto_AttributeType as AttributeType,
  TensorProto_DataType as DataType,
  type GraphProto,
  TensorProto_DataLocation as Location,
  type ModelProto,
  ModelProtoSchema,
  type NodeProto,
  type TensorProto,
  TensorProtoSchema,
  type TensorShapeProto,
  type ValueInfoProto,
} from "onnx-buf";
import { namesOf } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { attempt, messageOf, reasonOf, UsageError } from "../../abstraction/error.ts";
import { isShort, shortValue } from "../../abstraction/short-floats.ts";
import type { Attribute, Body, Constant, Dimension, Graph, Input, Node } from "../graph.ts";
import { bytesHeld, checkBytes, NUMBERED_TYPES, type NumberArray, numbersFor } from "../numbers.ts";
import { type ElementType, elementsOf, heldAs } from "../value.ts";
import { domainOf, OWN_DOMAINS, operatorIn } from "./domain.ts";
import { withFile } from "./file.ts";

// ---- constants ---------------------------------------------------------------------------------------------------------------------------

/** The model's name in messages, and the folder of its external files. */
interface Folder {
  readonly subject: string;
  readonly folder: string;
}

/** @throws UsageError for an unsupported type */
function elementTypeOf(number: number, subject: string): ElementType {
  const found = NUMBERED_TYPES[number];
  if (!found) throw new UsageError(`${subject}: elements of type ${DataType[number] ?? number} are not supported`);
  return found;
}

/** The declared type and shape of a tensor, without looking at its elements. */
function claimOf(tensor: TensorProto, subject: string) {
  const type = elementTypeOf(tensor.dataType, subject);
  const shape = tensor.dims.map(Number);
  const elements = elementsOf(shape, subject);
  checkBytes(type, elements, subject);
  return { type, bytesEach: bytesOf(heldAs(type)), shape, elements };
}

/** Limit in bytes on all constants of a file together; each one is also limited (numbers.ts). */
const MOST_TOGETHER = 2 ** 32;

/**
 * Checks the total size of a file's constants before any is read, because each may refer to a large sparse file beside the model.
 * @throws UsageError when they exceed the limit
 */
function checkTogether(tensors: Iterable<readonly [tensor: TensorProto, subject: string]>, model: string): void {
  let bytes = 0;
  for (const [tensor, subject] of tensors) {
    const { type, elements } = claimOf(tensor, subject);
    bytes += bytesHeld(type, elements);
    if (bytes > MOST_TOGETHER)
      throw new UsageError(
        `${model}: its constants take more than ${MOST_TOGETHER / 2 ** 30} GiB together`,
        "constants are held in memory; keep the largest as inputs of the network",
      );
  }
}

/** @throws UsageError when sizes and elements contradict each other, or an external file cannot be used */
export function constantOf(tensor: TensorProto, subject: string, place: Folder): Constant {
  const { type, bytesEach, shape, elements } = claimOf(tensor, subject);
  if (tensor.segment) throw new UsageError(`${subject}: a tensor in segments is not supported`);
  const isExternal = tensor.dataLocation === Location.EXTERNAL;
  const raw = isExternal ? externalBytes(tensor, elements * bytesEach, subject, place) : tensor.rawData;
  if (isExternal || raw.length > 0) {
    if (raw.length !== elements * bytesEach)
      throw new UsageError(
        `${subject}: ${type}[${shape.join(",")}] takes ${elements * bytesEach} bytes, and it has ${raw.length}`,
      );
    return { type, shape, values: fromRaw(type, raw, elements, subject) };
  }
  return { type, shape, values: fromFields(type, tensor, elements, subject) };
}

/** Elements from raw bytes, least significant byte first. */
function fromRaw(type: ElementType, raw: Uint8Array, elements: number, subject: string): NumberArray {
  const values = numbersFor(type, elements, subject);
  const { buffer } = new Uint8Array(raw);
  if (isShort(type)) for (const [i, bits] of new Uint16Array(buffer).entries()) values[i] = shortValue(type, bits);
  else if (type === "s64") for (const [i, x] of new BigInt64Array(buffer).entries()) values[i] = ofLong(x, subject);
  else new Uint8Array(values.buffer).set(raw);
  if (type === "bool") for (let i = 0; i < elements; i++) values[i] = values[i] === 0 ? 0 : 1;
  return values;
}

/** Elements from the field that ONNX uses for their type. */
function fromFields(type: ElementType, tensor: TensorProto, elements: number, subject: string): NumberArray {
  const { floatData, doubleData, int32Data, int64Data, uint64Data } = tensor;
  const given =
    type === "f32"
      ? floatData
      : type === "f64"
        ? doubleData
        : type === "s64"
          ? int64Data
          : type === "u32"
            ? uint64Data
            : int32Data;
  if (given.length !== elements)
    throw new UsageError(
      `${subject}: ${type}[${tensor.dims.join(",")}] has ${elements} elements, and ${given.length} are given`,
    );
  const values = numbersFor(type, elements, subject);
  for (const [i, x] of given.entries())
    values[i] = typeof x === "bigint" ? ofLong(x, subject) : isShort(type) ? shortValue(type, x) : x;
  return values;
}

function ofLong(value: bigint, subject: string): number {
  const number = numberOfLong(value);
  if (number === undefined) throw new UsageError(`${subject}: ${value} lies beyond 2^53, which is not supported`);
  return number;
}

/** Exporters mark an end by the largest or smallest integer, by its negative, or by one that an index was added to. */
const NEAR_THE_ENDS = 2n ** 63n - 2n ** 32n;

/** An integer of 64 bits as a number. Those at the ends of the range mean "to the end"; others that a double cannot hold are undefined. */
function numberOfLong(value: bigint): number | undefined {
  const number = Number(value);
  if (Number.isSafeInteger(number)) return number;
  if (value >= NEAR_THE_ENDS) return Number.MAX_SAFE_INTEGER;
  return value <= -NEAR_THE_ENDS ? Number.MIN_SAFE_INTEGER : undefined;
}

/** The part of a file beside the model that holds a tensor. https://onnx.ai/onnx/repo-docs/ExternalData.html */
function externalBytes(tensor: TensorProto, bytes: number, subject: string, { folder }: Folder): Uint8Array {
  const entries = new Map(tensor.externalData.map(({ key, value }) => [key, value]));
  const location = entries.get("location") ?? "";
  const numberOf = (key: string, otherwise: number): number => {
    const text = entries.get(key);
    if (text === undefined) return otherwise;
    const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (!Number.isSafeInteger(value))
      throw new UsageError(`${subject}: ${key} "${text.slice(0, 40)}" of its external file is no number of bytes`);
    return value;
  };
  const [offset, length] = [numberOf("offset", 0), numberOf("length", bytes)];
  if (length !== bytes)
    throw new UsageError(`${subject}: it takes ${bytes} bytes, and its external file is said to hold ${length}`);
  const called = `${subject}: its external file ${location.slice(0, 200)}`;
  return withFile(fileWithin(folder, location, subject), called, (handle, size) => {
    if (offset + length > size) throw new UsageError(`${called} has ${size} bytes, and ${offset + length} are needed`);
    const data = new Uint8Array(length);
    let filled = 0;
    while (filled < length) {
      const count = readSync(handle, data, filled, length - filled, offset + filled);
      if (count === 0) throw new UsageError(`${called} ends early`);
      filled += count;
    }
    return data;
  });
}

/** The path of a file within a folder, with links resolved. @throws UsageError when it lies outside the folder */
function fileWithin(folder: string, location: string, subject: string): string {
  const lies = (path: string): boolean =>
    path !== "" && !isAbsolute(path) && path !== ".." && !path.startsWith(`..${sep}`);
  const refuse = (because: string): never => {
    throw new UsageError(
      `${subject}: its external file "${location.slice(0, 200)}" ${because}`,
      "it must lie in the folder of the model",
    );
  };
  if (!lies(location) || location.includes("\0")) return refuse("lies outside the model's folder");
  try {
    const root = realpathSync(folder);
    const file = realpathSync(join(root, location));
    return lies(relative(root, file)) ? file : refuse("lies outside the model's folder");
  } catch (error) {
    if (error instanceof UsageError) throw error;
    return refuse(`cannot be read: ${reasonOf(error)}`);
  }
}

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
    throw new UsageError(`${file} is no tensor of ONNX: ${messageOf(error)}`);
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
    throw new UsageError(`${subject} is no ONNX model: ${messageOf(error)}`);
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
  const outputs = namesOf(graph.output);
  for (const [what, names] of [["input", namesOf(inputs)] as const, ["output", outputs] as const]) {
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
    inputs: namesOf(graph.input),
    outputs: namesOf(graph.output),
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
  const long = [name, ...namesOf(named), ...others].find((text) => text.length > MOST_NAME);
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
