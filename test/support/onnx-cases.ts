/**
 * @file The test cases of ONNX itself: a model, its inputs and the outputs that it must give, as Debian's libonnx-testdata installs them.
 *
 *     nodeCases()      [{ name: "test_relu", folder: "/usr/share/.../node/test_relu" }, ...]; empty where the package is not installed
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { ModelProtoSchema, TensorProtoSchema } from "onnx-buf";
import { UsageError } from "../../abstraction/error.ts";
import { shortValue } from "../../abstraction/short-floats.ts";
import type { Constant, Graph } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import type { Network } from "../../network/network.ts";
import { constantOf, parseOnnx } from "../../network/onnx/read.ts";
import { runNetwork } from "../../network/run.ts";
import type { ElementType } from "../../network/value.ts";

const ROOT = "/usr/share/libonnx-testdata/data";
/** Why there are no cases; undefined where they are installed. */
export const TESTDATA_MISSING = existsSync(ROOT) ? undefined : "libonnx-testdata is not installed";

export interface OnnxCase {
  readonly name: string;
  readonly folder: string;
}

/** Folders of cases. */
export const ONNX_GROUPS = ["node", "pytorch-converted", "pytorch-operator", "simple"] as const;
export type OnnxGroup = (typeof ONNX_GROUPS)[number];

export function onnxCases(group: OnnxGroup = "node"): OnnxCase[] {
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

/** The model of a case, unchanged. */
const modelOf = ({ folder }: OnnxCase): Uint8Array => readFileSync(join(folder, "model.onnx"));

/** The inputs or the outputs of the first data set, by place. */
export function dataOf({ folder }: OnnxCase, kind: "input" | "output"): Constant[] {
  const set = join(folder, "test_data_set_0");
  const count = readdirSync(set).filter((name) => name.startsWith(`${kind}_`)).length;
  return Array.from({ length: count }, (_, i) => tensorIn(join(set, `${kind}_${i}.pb`)));
}

/** NumPy knows no bf16: such data were saved as u16. */
function asDeclared(data: Constant, type: ElementType): Constant {
  if (type !== "bf16" || data.type !== "u16") return data;
  return { ...data, type, values: Float32Array.from(data.values, (bits) => shortValue("bf16", bits)) };
}

const repeated = ({ values }: Constant, sizes: readonly number[]): Constant["values"] =>
  Float32Array.from({ length: sizes.reduce((all, size) => all * size, 1) }, () => values[0] ?? 0);

/** A case as a network. */
export interface ReadCase {
  readonly program: Network;
  readonly inputs: Readonly<Record<string, Constant>>;
  /** Inputs that were made constants, because they say how to compute rather than what with. */
  readonly bound: readonly string[];
}

/** Reasons that name a value which must be known before the run; the second names an input. */
const UNKNOWN = [
  /comes from (\S+), which is known only when the network runs/,
  /^input (\S+) is \S+ it has no elements/,
];

/** The inputs that a value is made of. */
function madeOf(name: string, { inputs, nodes }: Graph): string[] {
  const found = new Set([name]);
  for (const each of found)
    for (const node of nodes) if (node.outputs.includes(each)) for (const input of node.inputs) found.add(input);
  return inputs.map((input) => input.name).filter((input) => found.has(input));
}

/**
 * The network of a case. An input is bound to its elements where the refusal of the network asks for that, and only there.
 * @throws UsageError when it is not supported
 */
export function programOf(onnxCase: OnnxCase): ReadCase {
  const graph = parseOnnx(modelOf(onnxCase), onnxCase.name, onnxCase.folder);
  const data = dataOf(onnxCase, "input");
  const inputs = new Map<string, Constant>();
  for (const [i, { name, type, shape }] of graph.inputs.entries()) {
    const given = data[i] && asDeclared(data[i], type);
    if (!given) continue;
    // The cases of CastLike have one element of the tensor whose type is wanted.
    const sizes = shape.map(Number);
    const isLike = name === "like";
    inputs.set(name, isLike ? { type, shape: sizes, values: repeated(given, sizes) } : given);
  }
  const constants = new Map<string, Constant>();
  for (;;) {
    try {
      const program = lowerGraph(graph, { constants });
      return {
        program,
        inputs: Object.fromEntries([...inputs].filter(([name]) => !constants.has(name))),
        bound: [...constants.keys()],
      };
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      const { message } = error;
      const [, unknown = ""] = UNKNOWN.map((reason) => reason.exec(message)).find((match) => match) ?? [];
      const makers = madeOf(unknown, graph);
      const missing = [...inputs].filter(([name]) => makers.includes(name) && !constants.has(name));
      if (missing.length === 0) throw error;
      for (const [name, constant] of missing) constants.set(name, constant);
    }
  }
}

/** Runs a network of a case by the interpreter. @returns the first difference from the expected outputs, or undefined */
export async function conform(onnxCase: OnnxCase, { program, inputs }: ReadCase): Promise<string | undefined> {
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
      // Nodes of windows hold two pi with six digits, and outputs were made with all; outputs of roialign have four digits.
      /window|roialign/.test(onnxCase.name) ? 1e-3 : RELATIVE,
    );
    if (difference !== undefined) return `${output.name}: ${difference}`;
  }
  return undefined;
}

/** What became of a case. */
export type Outcome = { readonly onnxCase: OnnxCase; readonly ops: readonly string[]; readonly opset: number } & (
  | { readonly status: "right"; readonly bound: readonly string[] }
  | { readonly status: "wrong"; readonly difference: string }
  /** The sentence without the node that it is said of. */
  | { readonly status: "refused"; readonly reason: string }
);

/** Reads a case, runs it and compares. @throws Error when it is neither refused nor computed */
export async function outcomeOf(onnxCase: OnnxCase): Promise<Outcome> {
  const { graph, opsetImport } = fromBinary(ModelProtoSchema, modelOf(onnxCase));
  const ops = [...new Set((graph?.node ?? []).map(({ opType }) => opType))];
  const [set = opsetImport[0]] = opsetImport.filter(({ domain }) => domain === "");
  const subject = { onnxCase, ops, opset: Number(set?.version ?? 0) };
  try {
    const read = programOf(onnxCase);
    const difference = await conform(onnxCase, read);
    if (difference !== undefined) return { ...subject, status: "wrong", difference };
    return { ...subject, status: "right", bound: read.bound };
  } catch (error) {
    if (!(error instanceof UsageError)) throw new Error(`${onnxCase.name} is not refused but fails`, { cause: error });
    const reason = error.message.replace(/^(?:node \d+|test_\w+|input "\w+")(?: \(\w+\))?:? /, "");
    return { ...subject, status: "refused", reason };
  }
}

/** ONNX's own tolerances for its backend tests: relative 1e-3, absolute 1e-7; here tighter, and integers exact. */
const RELATIVE = 1e-5;
const ABSOLUTE = 1e-6;
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
