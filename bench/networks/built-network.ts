/**
 * @file The networks of this repository by name, and their libraries, built from the fastest recorded kernels, each in its own folder.
 *
 *     for (const name of networksNamed("resnet18,light_vgg19.onnx")) openGraph(modelNamed(name).graph)
 *     const { folder } = await builtNetwork(program, { database: "networks.db", threads: 1, compiler });
 *     const net = await loadNetwork(folder, { trustImported: true });
 */

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { product } from "../../abstraction/collections.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { openDatabase } from "../../db/index.ts";
import { type Constant, type Graph, isConstant } from "../../network/graph.ts";
import { MODELS } from "../../network/models/index.ts";
import type { Network } from "../../network/network.ts";
import { bytesOfFile, readOnnx, readTensor } from "../../network/onnx/read.ts";
import type { Task } from "../../network/tasks.ts";
import type { Value } from "../../network/value.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { shareCores } from "../../runtime/cores.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { type Choice, choicesOf, networkSubject } from "../../session/network/network.ts";
import { buildNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { onnxBytes } from "../../test/support/onnx-bytes.ts";
import type { OnnxArray } from "../peers/onnxruntime.ts";
import { wordOf } from "../support/options.ts";
import { DECODER_NETWORKS } from "./decoder.ts";

/** A model of a file, all of whose sizes are known. */
const isFile = (name: string): boolean => name.endsWith(".onnx");

/** @param words names separated by commas, of decoders and files too, or `all` for the built-in ones. @throws UsageError for a name that is none */
export function networksNamed(words: string): readonly string[] {
  const models = Object.keys(MODELS);
  const known = [...models, ...Object.keys(DECODER_NETWORKS)];
  return words === "all"
    ? models
    : words.split(",").map((word) => (isFile(word) ? word : wordOf("networks", word, known)));
}

/** A network that `networksNamed` gave. */
interface Model {
  /** What a table calls it. */
  readonly title: string;
  readonly graph: Graph;
  /** The model that a peer reads: a file as it is, unless weights were drawn. */
  readonly bytes: () => Uint8Array;
  /** The model with the weights of its file and a test's output, where `NAME_output_0.pb` lies beside `NAME.onnx`, as in ONNX's light models. */
  readonly test?: { readonly graph: Graph; readonly output: Constant };
}

/** @throws UsageError for a batch other than 1 of a network whose sizes are known, or a file that is none */
export function modelNamed(name: string, batch = 1): Model {
  const build = DECODER_NETWORKS[name];
  if (batch !== 1 && (build || isFile(name))) throw new UsageError(`--batch ${batch}: the sizes of ${name} are known`);
  if (!isFile(name)) {
    const graph = build?.() ?? MODELS[name]?.({ batch }) ?? internal(`no network ${name}`);
    return { title: name, graph, bytes: () => onnxBytes(graph) };
  }
  const read = readOnnx(name);
  const graph = withDrawnWeights(read);
  const isRead = graph === read;
  const title = `${basename(name, ".onnx")} (file of opset ${graph.opset}${isRead ? "" : ", weights drawn"})`;
  const output = name.replace(/\.onnx$/, "_output_0.pb");
  return {
    title,
    graph,
    bytes: () => (isRead ? bytesOfFile(name) : onnxBytes(graph)),
    ...(existsSync(output) && { test: { graph: read, output: readTensor(output) } }),
  };
}

/**
 * A graph in which weights from a seed take the place of constants that ConstantOfShape fills with one number, as in models that are published without
 * their weights: with equal weights all elements of an output are equal, whichever weight is read. What a last Softmax reads becomes an output too, since
 * probabilities of such weights are almost all 0.
 */
function withDrawnWeights(graph: Graph): Graph {
  const random = seededRandom(1);
  const constants = new Map(graph.constants);
  const nodes = graph.nodes.filter(({ op, inputs: [from = ""], outputs: [to = ""], attributes: { value } }) => {
    const shape = graph.constants.get(from);
    if (op !== "ConstantOfShape" || !shape || !isConstant(value) || value.type !== "f32") return true;
    constants.set(to, drawnWeights([...shape.values], random));
    return false;
  });
  if (nodes.length === graph.nodes.length) return graph;
  const scores = nodes.flatMap(({ op, inputs: [from = ""], outputs: [to = ""] }) =>
    op === "Softmax" && graph.outputs.includes(to) ? [from] : [],
  );
  return { ...graph, nodes, constants, outputs: [...graph.outputs, ...scores] };
}

/** One number for each channel is near 1, which a variance may be; others are as He initialises them, so that activations keep their size. */
function drawnWeights(shape: readonly number[], random: () => number): Constant {
  const length = product(shape);
  const terms = length / (shape[0] ?? 1);
  const [middle, limit] = terms === 1 ? [1, 0.2] : [0, Math.sqrt(6 / terms)];
  return { type: "f32", shape, values: Float32Array.from({ length }, () => middle + (2 * random() - 1) * limit) };
}

/** The graph of a network that `networksNamed` gave. @throws UsageError as `modelNamed` */
export const graphNamed = (name: string, batch = 1): Graph => modelNamed(name, batch).graph;

interface BuiltOptions {
  readonly database: string;
  readonly threads: number;
  readonly exact?: boolean;
  readonly compiler: Compiler;
}

/** The caller deletes the folder. @throws UsageError when the network does not compile */
export async function builtNetwork(
  program: Network,
  { database, threads, exact = false, compiler }: BuiltOptions,
): Promise<{ readonly folder: string; readonly choices: ReadonlyMap<Task, Choice> }> {
  const db = openDatabase(database, { readonly: true });
  const choices = choicesOf(program, { records: { db, environment: environmentOf({ compiler }) }, threads, exact });
  db.close();
  const subject = networkSubject(program, choices, { threads });
  const folder = mkdtempSync(join(tmpdir(), "automap-network-bench-"));
  writePackage(folder, networkFiles(subject));
  const problem = await buildNetwork(folder, partsOfNetwork(subject), compiler, shareCores());
  if (problem === undefined) return { folder, choices };
  rmSync(folder, { recursive: true, force: true });
  throw new UsageError(`${program.name} does not compile\n${problem}`);
}

export function drawnInputs({ inputs }: Network): Record<string, OnnxArray> {
  const random = seededRandom(1);
  return Object.fromEntries(inputs.map((value) => [value.name, drawn(value, random)] as const));
}

/** Images have values between -2 and 2. Integers are ids of words or segments; every network here has at least two. */
function drawn({ type, shape, name }: Value, random: () => number): OnnxArray {
  const length = shape.reduce((product, size) => product * size, 1);
  if (type === "f32") return Float32Array.from({ length }, () => 4 * random() - 2);
  const id = (): number => Math.floor(2 * random());
  if (type === "s32") return Int32Array.from({ length }, id);
  if (type === "s64") return BigInt64Array.from({ length }, () => BigInt(id()));
  if (type === "bool") return Uint8Array.from({ length }, id);
  throw new UsageError(`the input ${name} holds ${type}; inputs are drawn in f32, s32, s64 and bool`);
}
