/**
 * @file Random corruptions of ONNX models, as from a broken exporter, an incomplete download or an attacker.
 *
 *     mutatedModel(seededRandom(1), bytes)      { kind: "sizes", bytes: Uint8Array }
 *
 * A mutation changes the bytes or the message they encode. It depends only on the model and the random numbers.
 */

import { fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type AttributeProto,
  TensorProto_DataLocation as Location,
  type ModelProto,
  ModelProtoSchema,
  type NodeProto,
  type TensorProto,
  type ValueInfoProto,
} from "onnx-buf";
import { pick, type Random, randomInteger } from "../../../abstraction/random.ts";

/** Implausible sizes, axes and counts. */
const STRANGE_SIZES: readonly bigint[] = [
  0n,
  -1n,
  -2n,
  1n,
  2n,
  3n,
  7n,
  255n,
  65_536n,
  2n ** 20n + 1n,
  2n ** 24n,
  2n ** 31n - 1n,
  2n ** 31n,
  2n ** 32n,
  2n ** 40n,
  2n ** 53n,
  2n ** 62n,
  2n ** 63n - 1n,
  -(2n ** 31n),
  -(2n ** 63n),
];

const STRANGE_FLOATS = [0, -0, 1e-45, 1e38, -1e38, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0.5];

/** Names with a meaning in JavaScript, a shell, a path, a terminal, C, or HTML. */
const STRANGE_NAMES: readonly string[] = [
  "",
  " ",
  "__proto__",
  "constructor",
  "toString",
  "hasOwnProperty",
  "0",
  "-1",
  "y",
  "in",
  "out",
  "select",
  "../../etc/passwd",
  "/dev/zero",
  "a/b",
  "$(touch pwned)",
  "`id`",
  '"; exit(1); //',
  "*/ int main() { /*",
  "<script>alert(1)</script>",
  "\u0000",
  "\u001b[2J\u001b[31m",
  "\r\n",
  "\u202e",
  "\ud83d\ude00",
  "%s%n",
  "x".repeat(100_000),
];

const OPERATORS: readonly string[] = [
  "Conv",
  "MatMul",
  "Gemm",
  "Relu",
  "Add",
  "Reshape",
  "Transpose",
  "Concat",
  "Slice",
  "Softmax",
  "MaxPool",
  "Gather",
  "Split",
  "Expand",
  "Tile",
  "Pad",
  "ConstantOfShape",
  "Range",
  "If",
  "Loop",
  "LSTM",
  "QLinearConv",
  "Cast",
  "Where",
  "DequantizeLinear",
  "QuantizeLinear",
  "ReduceSum",
  "LayerNormalization",
  "Resize",
  "Einsum",
  "OneHot",
  "TopK",
];

/** Files that no model may read. */
const OUTSIDE: readonly string[] = [
  "/etc/passwd",
  "../../../../../../etc/passwd",
  "/dev/zero",
  "/dev/urandom",
  "/proc/self/mem",
  ".",
  "..",
  "",
  "a/../../x",
  "file:///etc/passwd",
  "\u0000",
  "weights.bin\u0000.txt",
  "nowhere.bin",
  "x".repeat(5000),
];

interface MutationKind {
  readonly name: string;
  readonly change: (random: Random, model: ModelProto) => void;
}

const nodesOf = (model: ModelProto): NodeProto[] => model.graph?.node ?? [];
const attributesOf = (model: ModelProto): AttributeProto[] => nodesOf(model).flatMap((n) => n.attribute);
const infosOf = ({ graph }: ModelProto): ValueInfoProto[] =>
  graph ? [...graph.input, ...graph.output, ...graph.valueInfo] : [];
const tensorsOf = (model: ModelProto): TensorProto[] => [
  ...(model.graph?.initializer ?? []),
  ...attributesOf(model).flatMap((a) => (a.t ? [a.t] : [])),
];

/** Changes one of the items, if there are any. */
function one<T>(random: Random, items: readonly T[], change: (item: T) => void): void {
  if (items.length > 0) change(pick(random, items));
}

/** Replaces one element of a list. */
function replaced<T>(random: Random, list: T[], value: T): void {
  if (list.length === 0) list.push(value);
  else list[randomInteger(random, 0, list.length - 1)] = value;
}

function exchanged<T>(random: Random, list: T[]): void {
  if (list.length < 2) return;
  const i = randomInteger(random, 0, list.length - 1);
  const j = randomInteger(random, 0, list.length - 1);
  const [a, b] = list.slice(i, i + 1).concat(list.slice(j, j + 1));
  if (a === undefined || b === undefined) return;
  list[i] = b;
  list[j] = a;
}

/** Small tensors are settings, large ones are weights. */
const FEW = 64;
const settingsOf = (model: ModelProto): TensorProto[] =>
  tensorsOf(model).filter((t) => t.rawData.length <= 8 * FEW && t.int64Data.length <= FEW);

const KINDS: readonly MutationKind[] = [
  {
    name: "sizes",
    change: (random, model) => {
      const size = pick(random, STRANGE_SIZES);
      const where = randomInteger(random, 0, 3);
      if (where === 0) one(random, tensorsOf(model), (t) => replaced(random, t.dims, size));
      else if (where === 1)
        one(random, infosOf(model), ({ type }) => {
          const shape = type?.value.case === "tensorType" ? type.value.value.shape : undefined;
          one(random, shape?.dim ?? [], (dim) => {
            dim.value = { case: "dimValue", value: size };
          });
        });
      else if (where === 2)
        one(
          random,
          attributesOf(model).filter((a) => a.ints.length > 0 || a.i !== 0n),
          (a) => {
            if (a.ints.length > 0) replaced(random, a.ints, size);
            else a.i = size;
          },
        );
      else
        one(random, settingsOf(model), (t) => {
          if (t.int64Data.length > 0) replaced(random, t.int64Data, size);
          else if (t.rawData.length >= 8) new DataView(t.rawData.buffer, t.rawData.byteOffset).setBigInt64(0, size);
        });
    },
  },
  {
    name: "numbers",
    change: (random, model) => {
      const x = pick(random, STRANGE_FLOATS);
      if (random() < 0.5)
        one(
          random,
          attributesOf(model).filter((a) => a.f !== 0 || a.floats.length > 0),
          (a) => {
            if (a.floats.length > 0) replaced(random, a.floats, x);
            else a.f = x;
          },
        );
      else
        one(random, tensorsOf(model), (t) => {
          if (t.floatData.length > 0) replaced(random, t.floatData, x);
          else if (t.rawData.length >= 4) {
            const place = 4 * randomInteger(random, 0, Math.floor(t.rawData.length / 4) - 1);
            new DataView(t.rawData.buffer, t.rawData.byteOffset).setFloat32(place, x, true);
          }
        });
    },
  },
  {
    name: "names",
    change: (random, model) => {
      const name =
        random() < 0.5
          ? pick(random, STRANGE_NAMES)
          : pick(
              random,
              nodesOf(model).flatMap((n) => [...n.input, ...n.output, n.name, "x"]),
            );
      const changes: readonly (() => void)[] = [
        () => one(random, nodesOf(model), (n) => replaced(random, n.input, name)),
        () => one(random, nodesOf(model), (n) => replaced(random, n.output, name)),
        () =>
          one(random, nodesOf(model), (n) => {
            n.name = name;
          }),
        () =>
          one(random, nodesOf(model), (n) => {
            n.opType = name;
          }),
        () =>
          one(random, nodesOf(model), (n) => {
            n.domain = name;
          }),
        () =>
          one(random, attributesOf(model), (a) => {
            a.name = name;
          }),
        () =>
          one(random, attributesOf(model), (a) => {
            a.s = new TextEncoder().encode(name);
          }),
        () =>
          one(random, tensorsOf(model), (t) => {
            t.name = name;
          }),
        () =>
          one(random, infosOf(model), (info) => {
            info.name = name;
          }),
        () => {
          if (model.graph) model.graph.name = name;
        },
        () =>
          one(random, infosOf(model), ({ type }) => {
            const shape = type?.value.case === "tensorType" ? type.value.value.shape : undefined;
            one(random, shape?.dim ?? [], (dim) => {
              dim.value = { case: "dimParam", value: name };
            });
          }),
      ];
      pick(random, changes)();
    },
  },
  {
    name: "everywhere one name for another",
    change: (random, model) => {
      const name = pick(random, STRANGE_NAMES);
      const known = nodesOf(model).flatMap((n) => [...n.input, ...n.output]);
      one(random, known, (before) => {
        const renamed = (list: string[]): string[] => list.map((each) => (each === before ? name : each));
        for (const node of nodesOf(model)) [node.input, node.output] = [renamed(node.input), renamed(node.output)];
        for (const each of [...infosOf(model), ...tensorsOf(model)]) if (each.name === before) each.name = name;
      });
    },
  },
  {
    name: "fields exchanged",
    change: (random, model) => {
      const nodes = nodesOf(model);
      const changes: readonly (() => void)[] = [
        () => one(random, nodes, (n) => exchanged(random, n.input)),
        () => one(random, tensorsOf(model), (t) => exchanged(random, t.dims)),
        () => one(random, attributesOf(model), (a) => exchanged(random, a.ints)),
        () => exchanged(random, nodes),
        () =>
          one(random, nodes, (a) =>
            one(random, nodes, (b) => {
              [a.attribute, b.attribute] = [b.attribute, a.attribute];
            }),
          ),
        () =>
          one(random, nodes, (a) =>
            one(random, nodes, (b) => {
              [a.opType, b.opType] = [b.opType, a.opType];
            }),
          ),
        () =>
          one(random, tensorsOf(model), (a) =>
            one(random, tensorsOf(model), (b) => {
              [a.name, b.name] = [b.name, a.name];
            }),
          ),
      ];
      pick(random, changes)();
    },
  },
  {
    name: "operators",
    change: (random, model) =>
      one(random, nodesOf(model), (n) => {
        n.opType = pick(random, OPERATORS);
      }),
  },
  {
    name: "types",
    change: (random, model) => {
      const type = randomInteger(random, -1, 24);
      const changes: readonly (() => void)[] = [
        () =>
          one(random, tensorsOf(model), (t) => {
            t.dataType = type;
          }),
        () =>
          one(random, attributesOf(model), (a) => {
            a.type = type;
          }),
        () =>
          one(random, attributesOf(model), (a) => {
            a.i = BigInt(type);
          }),
        () =>
          one(random, infosOf(model), (info) => {
            if (info.type?.value.case === "tensorType") info.type.value.value.elemType = type;
          }),
      ];
      pick(random, changes)();
    },
  },
  {
    name: "rings",
    change: (random, model) =>
      one(random, nodesOf(model), (early) =>
        one(random, nodesOf(model), (late) => one(random, late.output, (name) => replaced(random, early.input, name))),
      ),
  },
  {
    name: "doubles",
    change: (random, { graph }) => {
      if (!graph) return;
      const lists: readonly unknown[][] = [graph.node, graph.initializer, graph.input, graph.output];
      const list = pick(random, lists);
      one(random, list, (item) => list.push(item));
      one(random, graph.node, (n) => n.attribute.push(...n.attribute.slice(0, 1)));
    },
  },
  {
    name: "left out",
    change: (random, { graph }) => {
      if (!graph) return;
      const lists: readonly unknown[][] = [
        graph.node,
        graph.initializer,
        graph.input,
        graph.output,
        ...graph.node.flatMap((n) => [n.input, n.output, n.attribute]),
      ];
      const list = pick(random, lists);
      list.splice(randomInteger(random, 0, Math.max(0, list.length - 1)), randomInteger(random, 1, 3));
    },
  },
  {
    name: "files outside",
    change: (random, model) =>
      one(random, tensorsOf(model), (t) => {
        t.dataLocation = Location.EXTERNAL;
        if (random() < 0.5) t.rawData = new Uint8Array(0);
        const number = (): string =>
          random() < 0.5 ? String(pick(random, STRANGE_SIZES)) : pick(random, STRANGE_NAMES);
        const said = {
          location: pick(random, OUTSIDE),
          ...(random() < 0.3 && { offset: number() }),
          ...(random() < 0.3 && { length: number() }),
        };
        t.externalData = Object.entries(said).map(([key, value]) => ({
          $typeName: "onnx.StringStringEntryProto",
          key,
          value,
        }));
      }),
  },
  {
    name: "versions",
    change: (random, model) => {
      const version = random() < 0.3 ? pick(random, STRANGE_SIZES) : BigInt(randomInteger(random, 1, 26));
      one(random, model.opsetImport, (set) => {
        set.version = version;
      });
    },
  },
];

/** Changes a few bytes, each near the start of the file, near its end, or anywhere. Most weights are in the middle. */
function bytesChanged(random: Random, bytes: Uint8Array): Uint8Array {
  const spoilt = Uint8Array.from(bytes);
  const near = Math.min(bytes.length, 4096);
  for (let changes = randomInteger(random, 1, 6); changes > 0; changes--) {
    const within = pick(random, ["first", "last", "all"]);
    const place = within === "all" ? randomInteger(random, 0, bytes.length - 1) : randomInteger(random, 0, near - 1);
    spoilt[within === "last" ? bytes.length - 1 - place : place] = randomInteger(random, 0, 255);
  }
  return spoilt;
}

/** Drops or repeats a part. */
function bytesMoved(random: Random, bytes: Uint8Array): Uint8Array {
  const a = randomInteger(random, 0, bytes.length);
  const b = randomInteger(random, 0, Math.min(bytes.length, 4096));
  return Uint8Array.from(Buffer.concat([bytes.subarray(0, a), bytes.subarray(b)]));
}

const OF_BYTES = {
  "bytes changed": bytesChanged,
  "cut off": (random: Random, bytes: Uint8Array) => bytes.slice(0, randomInteger(random, 0, bytes.length - 1)),
  "bytes moved": bytesMoved,
} as const;

export const MUTATIONS: readonly string[] = [...Object.keys(OF_BYTES), ...KINDS.map((k) => k.name)];

/** Makes one to three changes of one kind. @param bytes a valid model */
export function mutatedModel(random: Random, bytes: Uint8Array): { readonly kind: string; readonly bytes: Uint8Array } {
  const kind = pick(random, MUTATIONS);
  for (const [name, change] of Object.entries(OF_BYTES))
    if (name === kind) return { kind, bytes: change(random, bytes) };
  const model = fromBinary(ModelProtoSchema, Uint8Array.from(bytes));
  const found = KINDS.find((k) => k.name === kind);
  for (let changes = randomInteger(random, 1, 3); changes > 0; changes--) found?.change(random, model);
  return { kind, bytes: toBinary(ModelProtoSchema, model) };
}
