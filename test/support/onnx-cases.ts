/**
 * @file The test cases of ONNX itself: a model, its inputs and the outputs that it must give, as Debian's libonnx-testdata installs them.
 *
 *     nodeCases()      [{ name: "test_relu", folder: "/usr/share/.../node/test_relu" }, ...]; empty where the package is not installed
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { ModelProtoSchema, TensorProtoSchema } from "onnx-buf";
import type { Constant } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { OPSETS, parseOnnx } from "../../network/onnx/read.ts";
import { constantOf, ofHalf } from "../../network/onnx/tensor.ts";
import type { Program } from "../../network/program.ts";
import { runNetwork } from "../../network/run.ts";
import type { ElementType } from "../../network/value.ts";

const ROOT = "/usr/share/libonnx-testdata/data";
export const TESTDATA_MISSING = existsSync(ROOT) ? undefined : "libonnx-testdata is not installed";

export interface OnnxCase {
  readonly name: string;
  readonly folder: string;
}

export function onnxCases(group: "node" | "pytorch-converted" | "pytorch-operator" | "simple" = "node"): OnnxCase[] {
  if (TESTDATA_MISSING !== undefined) return [];
  return readdirSync(join(ROOT, group))
    .sort()
    .map((name) => ({ name, folder: join(ROOT, group, name) }));
}

/** A tensor of a data set. */
export function tensorIn(file: string): Constant & { readonly name: string } {
  const tensor = fromBinary(TensorProtoSchema, readFileSync(file));
  return { name: tensor.name, ...constantOf(tensor, file, { subject: file, folder: "." }) };
}

/**
 * The model of a case. It names the opset in which its operator last changed, which may be before the first that we take: the definition is
 * the same there, once it is not said that the network is not trained: before opset 7 it was.
 */
export function modelOf({ folder }: OnnxCase): Uint8Array {
  const model = fromBinary(ModelProtoSchema, readFileSync(join(folder, "model.onnx")));
  for (const set of model.opsetImport)
    if (set.domain === "" && set.version < OPSETS.least) set.version = BigInt(OPSETS.least);
  for (const node of model.graph?.node ?? [])
    node.attribute = node.attribute.filter(({ name, i }) => name !== "is_test" || i !== 1n);
  return toBinary(ModelProtoSchema, model);
}

/** The inputs or the outputs of the first data set, by place. */
export function dataOf({ folder }: OnnxCase, kind: "input" | "output"): Constant[] {
  const set = join(folder, "test_data_set_0");
  const count = readdirSync(set).filter((name) => name.startsWith(`${kind}_`)).length;
  return Array.from({ length: count }, (_, i) => tensorIn(join(set, `${kind}_${i}.pb`)));
}

/** Inputs that say how to compute rather than what with: shapes, axes, thresholds. They are known before a network of ours runs. */
const SETTINGS: readonly string[] = ["roi", "scales", "sizes"];
const isSetting = (name: string, { type, shape }: Constant): boolean =>
  SETTINGS.includes(name) ||
  type === "s64" ||
  type === "bool" ||
  shape.length === 0 ||
  (shape.length === 1 && shape[0] === 1);

/** NumPy knows no bf16: such data were saved as u16. */
function asDeclared(data: Constant, type: ElementType): Constant {
  if (type !== "bf16" || data.type !== "u16") return data;
  return { ...data, type, values: Float32Array.from(data.values, (bits) => ofHalf("bf16", bits)) };
}

const repeated = ({ values }: Constant, sizes: readonly number[]): Constant["values"] =>
  Float32Array.from({ length: sizes.reduce((all, size) => all * size, 1) }, () => values[0] ?? 0);

/** The network of a case with those inputs bound that are settings. @throws UsageError when it is not supported */
export function programOf(onnxCase: OnnxCase): {
  readonly program: Program;
  readonly inputs: Readonly<Record<string, Constant>>;
} {
  const graph = parseOnnx(modelOf(onnxCase), onnxCase.name, onnxCase.folder);
  const given = dataOf(onnxCase, "input");
  const bound = new Map<string, Constant>();
  const inputs: Record<string, Constant> = {};
  for (const [i, { name, type, shape }] of graph.inputs.entries()) {
    const data = given[i] && asDeclared(given[i], type);
    if (!data) continue;
    // The cases of CastLike have one element of the tensor whose type is wanted.
    const sizes = name === "like" ? shape.map(Number) : data.shape;
    const values = name === "like" ? repeated(data, sizes) : data.values;
    if (isSetting(name, data)) bound.set(name, { type, shape: sizes, values });
    else inputs[name] = data;
  }
  return { program: lowerGraph(graph, { constants: bound }), inputs };
}

/** Runs a case by the interpreter. @returns the first difference, or undefined. @throws UsageError when it is not supported */
export async function conform(onnxCase: OnnxCase): Promise<string | undefined> {
  const { program, inputs } = programOf(onnxCase);
  const outputs = await runNetwork(
    program,
    Object.fromEntries(Object.entries(inputs).map(([name, { values }]) => [name, values])),
  );
  for (const [i, expected] of dataOf(onnxCase, "output").entries()) {
    const output = program.outputs[i];
    if (!output) return `output ${i} is missing`;
    const difference = differenceOf(
      outputs.get(output.name) ?? [],
      asDeclared(expected, output.value.type),
      output.value,
      // Their nodes hold two pi with six digits, and the expected outputs were made with all.
      onnxCase.name.includes("window") ? 1e-3 : RELATIVE,
    );
    if (difference !== undefined) return `${output.name}: ${difference}`;
  }
  return undefined;
}

/** ONNX's own tolerances for its backend tests: relative 1e-3, absolute 1e-7; here tighter, and integers exact. */
const [RELATIVE, ABSOLUTE] = [1e-5, 1e-6];
const COARSE = new Set(["f16", "bf16"]);

export function differenceOf(
  values: ArrayLike<number>,
  expected: Constant,
  { type, shape }: Pick<Constant, "type" | "shape">,
  exact = RELATIVE,
): string | undefined {
  if (type !== expected.type || shape.join() !== expected.shape.join())
    return `${type}[${shape.join(",")}] and not ${expected.type}[${expected.shape.join(",")}]`;
  const relative = COARSE.has(type) ? 1e-2 : exact;
  for (let i = 0; i < expected.values.length; i++) {
    const [got = Number.NaN, wanted = Number.NaN] = [values[i], expected.values[i]];
    if (Object.is(got, wanted) || (Number.isNaN(got) && Number.isNaN(wanted))) continue;
    const isFloat = type.startsWith("f") || type === "bf16";
    if (!(Math.abs(got - wanted) <= (isFloat ? ABSOLUTE + relative * Math.abs(wanted) : 0)))
      return `element ${i} is ${got} and not ${wanted}`;
  }
  return undefined;
}
