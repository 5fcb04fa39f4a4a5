/**
 * @file Models as hostile input: whatever a file says, it is read or refused in a sentence, in little time and memory.
 */

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  TensorProto_DataType as DataType,
  type GraphProtoSchema,
  TensorProto_DataLocation as Location,
  ModelProtoSchema,
} from "onnx-buf";
import { describe, expect, it } from "vitest";
import { type LowerOptions, lowerGraph } from "../../network/lower.ts";
import { bytesOfFile, parseOnnx, readOnnx } from "../../network/onnx/read.ts";
import { explanationOf } from "../support/message.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

type GraphParts = Extract<MessageInitShape<typeof GraphProtoSchema>, { $typeName?: never }>;

/** A model of one node over `x`, changed as a test wants it. */
function modelWith(change: GraphParts & { readonly opset?: number } = {}): Uint8Array {
  const { opset = 17, ...graph } = change;
  return toBinary(
    ModelProtoSchema,
    create(ModelProtoSchema, {
      irVersion: 8n,
      opsetImport: [{ domain: "", version: BigInt(opset) }],
      graph: {
        name: "g",
        node: [{ opType: "Relu", name: "act", input: ["x"], output: ["y"] }],
        input: [inputOf("x", [2, 3])],
        output: [{ name: "y" }],
        ...graph,
      },
    }),
  );
}

function inputOf(name: string, shape: readonly (number | string)[]) {
  const dim = shape.map((size) => ({
    value:
      typeof size === "number"
        ? { case: "dimValue" as const, value: BigInt(size) }
        : { case: "dimParam" as const, value: size },
  }));
  return {
    name,
    type: { value: { case: "tensorType" as const, value: { elemType: DataType.FLOAT, shape: { dim } } } },
  };
}

const read = (bytes: Uint8Array, options: LowerOptions = {}) => lowerGraph(parseOnnx(bytes, "m.onnx", folder), options);
const refused = (bytes: Uint8Array, options?: LowerOptions): string => explanationOf(() => read(bytes, options));
const constantNode = (value: object) => ({
  opType: "Constant",
  name: "c",
  output: ["y"],
  attribute: [{ name: "value", type: 4, t: value }],
});

describe("a file that is not a model", () => {
  it("is refused by its kind", () => {
    expect(explanationOf(() => readOnnx(join(folder, "missing.onnx")))).toMatch(
      /missing.onnx cannot be read: there is no such file/,
    );
    expect(explanationOf(() => readOnnx(folder))).toMatch(/is no file/);
    // Opened to be read, it waits for somebody who writes.
    execFileSync("mkfifo", [join(folder, "pipe.onnx")]);
    expect(explanationOf(() => readOnnx(join(folder, "pipe.onnx")))).toMatch(/pipe.onnx is no file/);
    writeFileSync(join(folder, "text.onnx"), "this is no protobuf at all");
    expect(explanationOf(() => readOnnx(join(folder, "text.onnx")))).toMatch(/is no ONNX model: /);
    expect(refused(new Uint8Array(0))).toBe("m.onnx holds no network\n  an ONNX model has a graph with nodes");
  });

  it("is refused wherever it is cut off", () => {
    const whole = modelWith();
    for (let length = 0; length < whole.length; length++)
      expect(refused(whole.slice(0, length)), `${length} bytes`).not.toBe("accepted");
    expect(refused(whole)).toBe("accepted");
  });

  it("is refused when its messages are nested too deeply", () => {
    // attribute { g { node { attribute { g ... } } } }, as deep as a megabyte allows.
    const reversed: number[] = [];
    const inside = (field: number): void => {
      const length: number[] = [];
      for (let rest = reversed.length; ; rest = Math.floor(rest / 128)) {
        length.push(rest > 127 ? (rest % 128) | 128 : rest);
        if (rest <= 127) break;
      }
      reversed.push(...length.reverse(), field * 8 + 2);
    };
    for (let depth = 0; depth < 20_000; depth++) for (const field of [6, 5, 1]) inside(field);
    inside(7);
    expect(refused(Buffer.from(reversed.reverse()))).toMatch(/^m.onnx /);
  });
});

describe("a model that cannot be computed", () => {
  it("is refused with the node and the reason", () => {
    const node = (opType: string, more: object = {}) =>
      modelWith({ node: [{ opType, name: "act", input: ["x"], output: ["y"], ...more }] });
    const told = [
      refused(node("Relu", { domain: "com.example" })),
      refused(modelWith({ opset: 0 })),
      refused(modelWith({ opset: 24 })),
      refused(node("Concat", { input: ["x", "x"], attribute: [{ name: "axis", type: 2, i: 2n ** 62n }] })),
    ];
    expect(told.map((text) => text.split("\n")[0])).toMatchInlineSnapshot(`
      [
        "act: the operator Relu of com.example is not supported",
        "m.onnx uses opset 0; 1 to 23 are supported",
        "m.onnx uses opset 24; 1 to 23 are supported",
        "act: attribute axis: 4611686018427387904 does not fit a double",
      ]
    `);
  });

  it("is refused when an output's shape differs from the declared one", () => {
    expect(refused(modelWith({ output: [inputOf("y", [2, 3])] }))).toBe("accepted");
    expect(refused(modelWith({ output: [inputOf("y", ["n", -1])] }))).toBe("accepted");
    expect(refused(modelWith({ output: [inputOf("y", ["n", 4])] }))).toBe(
      "act (Relu): its output y is f32[2,3], and the model says [n,4]",
    );
  });

  it("is refused when a constant appears twice", () => {
    const tensor = { name: "w", dataType: DataType.FLOAT, dims: [1n], floatData: [1] };
    expect(refused(modelWith({ initializer: [tensor, tensor] }))).toBe('m.onnx: the constant "w" stands twice');
  });

  it("is refused in few words, however long its names are", () => {
    const long = "x".repeat(100_000);
    const node = { opType: "Relu", name: "a", input: ["x"], output: ["y"] };
    const told = [
      refused(modelWith({ node: [{ ...node, name: long }] })),
      refused(modelWith({ node: [{ ...node, input: [long] }] })),
      refused(modelWith({ input: [inputOf("x", [long])] })),
      refused(modelWith({ node: [{ ...node, attribute: [{ name: long, type: 2, i: 1n }] }] })),
      refused(
        modelWith({
          node: [
            constantNode({
              dataLocation: Location.EXTERNAL,
              dataType: 1,
              dims: [1n],
              externalData: [{ key: "location", value: long }],
            }),
          ],
        }),
      ),
    ];
    for (const text of told) expect(text).not.toBe("accepted");
    expect(Math.max(...told.map((text) => text.length))).toBeLessThan(500);
    expect(told[0]).toMatch(/^m.onnx: the name "x{40}..." has 100000 characters/);
  });

  it("is refused when an output is listed twice", () => {
    const output = [{ name: "y" }, { name: "y" }];
    expect(refused(modelWith({ node: [{ opType: "Relu", name: "a", input: ["x"], output: ["y"] }], output }))).toBe(
      'm.onnx: the output "y" stands twice',
    );
  });
});

describe("a constant", () => {
  it("is refused when its sizes and elements contradict each other, overflow, or take too much memory", () => {
    const tensor = (more: object) =>
      refused(modelWith({ node: [constantNode({ dataType: DataType.FLOAT, dims: [3n], ...more })] }));
    expect([
      tensor({ floatData: [1, 2] }),
      tensor({ rawData: new Uint8Array(11) }),
      tensor({ dims: [2n ** 40n, 2n ** 40n], floatData: [1] }),
      tensor({ dims: [-1n], floatData: [1] }),
      tensor({ dims: [2n ** 31n - 1n], rawData: new Uint8Array(4) }),
      tensor({ dataType: DataType.STRING }),
      tensor({ dataType: 99 }),
      tensor({ dataType: DataType.INT64, int64Data: [1n, 2n ** 60n, 3n] }),
    ]).toMatchInlineSnapshot(`
      [
        "c: attribute value: f32[3] has 3 elements, and 2 are given",
        "c: attribute value: f32[3] takes 12 bytes, and it has 11",
        "c: attribute value: a tensor of [1099511627776,1099511627776] has more than 2147483647 elements
        offsets have 31 bits; make the batch or the dimension smaller",
        "c: attribute value: -1 is no size of a dimension
        sizes are whole numbers",
        "c: attribute value: 2147483647 elements of f32 take more than 2 GiB
        constants are held in memory; keep such a tensor an input of the network",
        "c: attribute value: elements of type STRING are not supported",
        "c: attribute value: elements of type 99 are not supported",
        "c: attribute value: 1152921504606846976 lies beyond 2^53, which is not supported",
      ]
    `);
  });

  it("that a node makes is bounded, as are those of many nodes together", () => {
    const shape = { name: "s", dataType: DataType.INT64, dims: [1n], int64Data: [2n ** 26n] };
    const t = { dataType: DataType.BOOL, dims: [1n], int32Data: [1] };
    const node = Array.from({ length: 100 }, (_, i) => ({
      opType: "ConstantOfShape",
      attribute: [{ name: "value", type: 4, t }],
      name: `c${i}`,
      input: ["s"],
      output: [`y${i}`],
    }));
    const before = process.memoryUsage().rss;
    expect(refused(modelWith({ node, initializer: [shape], output: [{ name: "y0" }] }))).toMatch(
      /c4 .ConstantOfShape.: constants made while the network is read/,
    );
    expect(process.memoryUsage().rss - before).toBeLessThan(2 ** 29);
  });

  it("in a file is bounded together with all others before any is read", () => {
    const data = join(folder, "sparse.bin");
    writeFileSync(data, "");
    truncateSync(data, 2 ** 30);
    const tensor = (name: string) => ({
      name,
      dataType: DataType.FLOAT,
      dims: [2n ** 28n],
      dataLocation: Location.EXTERNAL,
      externalData: [{ key: "location", value: "sparse.bin" }],
    });
    const together = /^m.onnx: its constants take more than 4 GiB together/;
    const before = process.memoryUsage().rss;
    expect(refused(modelWith({ initializer: Array.from({ length: 200 }, (_, i) => tensor(`w${i}`)) }))).toMatch(
      together,
    );
    const node = Array.from({ length: 5 }, (_, i) => ({ ...constantNode(tensor("")), output: [`y${i}`] }));
    expect(refused(modelWith({ node, output: [{ name: "y0" }] }))).toMatch(together);
    expect(process.memoryUsage().rss - before).toBeLessThan(2 ** 28);
  });

  it("is read from a file in the model's folder, and from no other", async () => {
    mkdirSync(join(folder, "in"), { recursive: true });
    writeFileSync(join(folder, "in", "w.bin"), Buffer.from(Float32Array.of(0, 1, 2, 3).buffer));
    writeFileSync(join(folder, "out.bin"), Buffer.alloc(64));
    symlinkSync(join(folder, "out.bin"), join(folder, "in", "link.bin"));
    execFileSync("mkfifo", [join(folder, "in", "pipe.bin")]);
    // A file that no user can open.
    const server = createServer().listen(join(folder, "in", "socket"));
    await once(server, "listening");
    const with_ = (entries: Record<string, string>): string => {
      const tensor = {
        dataType: DataType.FLOAT,
        dims: [3n],
        dataLocation: Location.EXTERNAL,
        externalData: Object.entries(entries).map(([key, value]) => ({ key, value })),
      };
      const bytes = modelWith({ node: [constantNode(tensor)] });
      return explanationOf(() => lowerGraph(parseOnnx(bytes, "m.onnx", join(folder, "in"))));
    };
    expect(with_({ location: "w.bin", offset: "4", length: "12" })).toBe("accepted");
    expect(
      [
        with_({ location: "w.bin", offset: "8" }),
        with_({ location: "w.bin", length: "8" }),
        with_({ location: "w.bin", offset: "-4" }),
        with_({ location: "none.bin" }),
        with_({ location: "../out.bin" }),
        with_({ location: join(folder, "out.bin") }),
        with_({ location: "link.bin" }),
        with_({ location: "." }),
        with_({ location: "pipe.bin" }),
        with_({ location: "socket" }),
        with_({}),
      ].map((text) => text.replaceAll(folder, "FOLDER").replace(/ENXIO.*/, "REASON")),
    ).toMatchInlineSnapshot(`
      [
        "c: attribute value: its external file w.bin has 16 bytes, and 20 are needed",
        "c: attribute value: it takes 12 bytes, and its external file is said to hold 8",
        "c: attribute value: offset "-4" of its external file is no number of bytes",
        "c: attribute value: its external file "none.bin" cannot be read: there is no such file or directory
        it must lie in the folder of the model",
        "c: attribute value: its external file "../out.bin" lies outside the model's folder
        it must lie in the folder of the model",
        "c: attribute value: its external file "FOLDER/out.bin" lies outside the model's folder
        it must lie in the folder of the model",
        "c: attribute value: its external file "link.bin" lies outside the model's folder
        it must lie in the folder of the model",
        "c: attribute value: its external file "." lies outside the model's folder
        it must lie in the folder of the model",
        "c: attribute value: its external file pipe.bin is no file
        name a regular file",
        "c: attribute value: its external file socket cannot be read: REASON",
        "c: attribute value: its external file "" lies outside the model's folder
        it must lie in the folder of the model",
      ]
    `);
    server.close();
  });
});

it("a model of more than 2 GiB is refused before it is read", () => {
  const file = join(folder, "large.onnx");
  writeFileSync(file, "");
  // Sparse: it takes no room on the disk.
  truncateSync(file, 2 ** 31);
  expect(explanationOf(() => bytesOfFile(file))).toMatch(/a protobuf is shorter than 2 GiB/);
});
