/**
 * @file ONNX tensors as constants: the elements are in a field of the message, or in a file beside the model.
 *
 *     constantOf(tensor, 'constant "w"', { subject: "m.onnx", folder: "." })      { type: "f32", shape: [64, 3, 7, 7], values: Float32Array }
 *
 * An external file must lie in the model's folder: a path that leads out of it, by `..` or by a link, is refused.
 */

import { readSync, realpathSync } from "node:fs";
import { isAbsolute, join, relative, sep } from "node:path";
import { TensorProto_DataType as DataType, TensorProto_DataLocation as Location, type TensorProto } from "onnx-buf";
import { bytesOf } from "../../abstraction/dtype.ts";
import { reasonOf, UsageError } from "../../abstraction/error.ts";
import { isShort, shortValue } from "../../abstraction/short-floats.ts";
import type { Constant } from "../graph.ts";
import { bytesHeld, checkBytes, NUMBERED_TYPES, type NumberArray, numbersFor } from "../numbers.ts";
import { type ElementType, elementsOf, heldAs } from "../value.ts";
import { withFile } from "./file.ts";

/** The model's name in messages, and the folder of its external files. */
export interface Folder {
  readonly subject: string;
  readonly folder: string;
}

/** @throws UsageError for an unsupported type */
export function elementTypeOf(number: number, subject: string): ElementType {
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
export function checkTogether(tensors: Iterable<readonly [tensor: TensorProto, subject: string]>, model: string): void {
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
export function numberOfLong(value: bigint): number | undefined {
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
