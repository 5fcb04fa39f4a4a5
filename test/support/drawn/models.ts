/**
 * @file Models to corrupt: small forms of the built-in networks, ResNet-18 in full, a network with its weights in a
 * separate file, and ONNX's own cases.
 *
 *     baseModels(folder)      [{ name: "shufflenet", bytes: () => Uint8Array }, ...]
 */

import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { TensorProto_DataLocation as Location, ModelProtoSchema, StringStringEntryProtoSchema } from "onnx-buf";
import { UsageError } from "../../../abstraction/error.ts";
import type { Graph } from "../../../network/graph.ts";
import { bertBase } from "../../../network/models/bert.ts";
import { MODELS } from "../../../network/models/index.ts";
import { miLstm } from "../../../network/models/milstm.ts";
import { mobilenetV1 } from "../../../network/models/mobilenet.ts";
import { resnet18 } from "../../../network/models/resnet.ts";
import { shufflenet } from "../../../network/models/shufflenet.ts";
import { parseOnnx } from "../../../network/onnx/read.ts";
import { onnxBytes } from "../onnx-bytes.ts";

export interface BaseModel {
  readonly name: string;
  readonly bytes: () => Uint8Array;
  /** Share of all corrupted models, in thousandths. */
  readonly share: number;
}

/** Folder of Debian's libonnx-testdata. */
const TESTDATA = "/usr/share/libonnx-testdata/data";

/** @param folder an empty folder for files beside the models */
export function baseModels(folder: string): readonly BaseModel[] {
  const small = { size: 32 };
  const built: readonly (readonly [name: string, share: number, build: () => Graph])[] = [
    ["mi-lstm, 16 units", 200, () => miLstm({ steps: 3, inputs: 16, units: 16 })],
    ["bert, 2 layers of 32", 200, () => bertBase({ tokens: 8, layers: 2, hidden: 32, heads: 4, vocabulary: 50 })],
    ["shufflenet, 32x32", 60, () => shufflenet(small)],
    ["mobilenet-v1, 32x32", 30, () => mobilenetV1(small)],
    ["shufflenet-u8s8", 30, () => built8("shufflenet-u8s8")],
    ["resnet18", 20, () => resnet18()],
  ];
  return [
    ...built.map(([name, share, build]) => ({ name, share, bytes: kept(() => onnxBytes(build())) })),
    { name: "mi-lstm, weights beside it", share: 160, bytes: kept(() => besideIn(folder)) },
    ...casesOfOnnx(),
  ];
}

function built8(name: string): Graph {
  const build = MODELS[name];
  if (!build) throw new Error(`internal: there is no ${name}`);
  return build();
}

/** Makes the value at its first use and keeps it. */
function kept(make: () => Uint8Array): () => Uint8Array {
  let made: Uint8Array | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

/** MI-LSTM with its weights in a file of the folder. */
function besideIn(folder: string): Uint8Array {
  const model = fromBinary(ModelProtoSchema, onnxBytes(miLstm({ steps: 2, inputs: 16, units: 16 })));
  const parts: Uint8Array[] = [];
  let offset = 0;
  for (const tensor of model.graph?.initializer ?? []) {
    if (tensor.rawData.length === 0) continue;
    const said = { location: "weights.bin", offset: String(offset), length: String(tensor.rawData.length) };
    offset += tensor.rawData.length;
    parts.push(tensor.rawData);
    tensor.rawData = new Uint8Array(0);
    tensor.dataLocation = Location.EXTERNAL;
    tensor.externalData = Object.entries(said).map(([key, value]) =>
      create(StringStringEntryProtoSchema, { key, value }),
    );
  }
  writeFileSync(join(folder, "weights.bin"), Buffer.concat(parts));
  return toBinary(ModelProtoSchema, model);
}

/** The cases that automap can read; none if the package is not installed. */
function casesOfOnnx(): readonly BaseModel[] {
  if (!existsSync(TESTDATA)) return [];
  const read = ["node", "pytorch-operator", "pytorch-converted", "simple"].flatMap((group) =>
    readdirSync(join(TESTDATA, group))
      .toSorted()
      .flatMap((name) => {
        const bytes = readFileSync(join(TESTDATA, group, name, "model.onnx"));
        return isRead(bytes) ? [{ name, bytes: () => bytes }] : [];
      }),
  );
  return read.map((base) => ({ ...base, share: 300 / read.length }));
}

function isRead(bytes: Uint8Array): boolean {
  try {
    parseOnnx(bytes, "case", ".");
    return true;
  } catch (error) {
    if (error instanceof UsageError) return false;
    throw error;
  }
}
