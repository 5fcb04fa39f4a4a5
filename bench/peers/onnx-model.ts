/**
 * @file A one-operator model in ONNX's protobuf, enough for a convolution or a product with its weights inside.
 *
 *     onnxModel({ op: "Conv", inputs: [{ name: "x", type: "f32", dims: [1, 64, 56, 56] }], constants: [...], ... })
 *
 * Field numbers: onnx/onnx.proto of ONNX 1.15, https://github.com/onnx/onnx/blob/v1.15.0/onnx/onnx.proto.
 */

/** TensorProto.DataType. */
const TYPES = { f32: 1, u8: 2, s8: 3, s32: 6 } as const;
export type OnnxType = keyof typeof TYPES;

export interface OnnxTensor {
  readonly name: string;
  readonly type: OnnxType;
  readonly dims: readonly number[];
}

export interface OnnxConstant extends OnnxTensor {
  /** Row-major, little-endian. */
  readonly bytes: Uint8Array;
}

export interface OnnxNode {
  readonly op: string;
  /** Inputs of the operator in order, including constants by name. */
  readonly arguments: readonly string[];
  readonly inputs: readonly OnnxTensor[];
  readonly constants: readonly OnnxConstant[];
  readonly output: OnnxTensor;
  readonly attributes?: Readonly<Record<string, number | readonly number[]>>;
}

export function onnxModel({ op, arguments: names, inputs, constants, output, attributes = {} }: OnnxNode): Uint8Array {
  const node = message(
    ...names.map((name) => text(1, name)),
    text(2, output.name),
    text(4, op),
    ...Object.entries(attributes).map(([name, value]) =>
      typeof value === "number"
        ? field(5, message(text(1, name), integer(3, value), integer(20, 2)))
        : field(5, message(text(1, name), ...value.map((x) => integer(8, x)), integer(20, 7))),
    ),
  );
  const graph = message(
    field(1, node),
    text(2, "graph"),
    ...constants.map(({ name, type, dims, bytes }) =>
      field(5, message(...dims.map((d) => integer(1, d)), integer(2, TYPES[type]), text(8, name), field(9, bytes))),
    ),
    ...inputs.map((tensor) => field(11, valueInfo(tensor))),
    field(12, valueInfo(output)),
  );
  return message(integer(1, 8), field(7, graph), field(8, message(text(1, ""), integer(2, 17))));
}

function valueInfo({ name, type, dims }: OnnxTensor): Uint8Array {
  const shape = message(...dims.map((d) => field(1, message(integer(1, d)))));
  return message(text(1, name), field(2, message(field(1, message(integer(1, TYPES[type]), field(2, shape))))));
}

// ---- protobuf: a varint key (number * 8 + wire type), then a varint, or a length and bytes

function message(...fields: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(fields);
}

function field(number: number, bytes: Uint8Array): Uint8Array {
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
}

function text(number: number, value: string): Uint8Array {
  return field(number, Buffer.from(value));
}

function integer(number: number, value: number): Uint8Array {
  return Buffer.concat([varint(number * 8), varint(value)]);
}

/** Encodes a number that is not negative. */
function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Uint8Array.of(...bytes, rest);
}
