/**
 * @file Opens the network named on a command line: a model file, or a network built in.
 *
 *     automap network show resnet18
 *     automap network show model.onnx --dim batch=1 --constant sr=16000 --constant shape=shape.pb
 */

import { existsSync, statSync } from "node:fs";
import { parse } from "node:path";
import { z } from "zod";
import { present, product, withName } from "../abstraction/collections.ts";
import { automapCommand, suggestion, UsageError } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Constant, Graph, Input } from "../network/graph.ts";
import type { LowerOptions } from "../network/lower.ts";
import { MODELS } from "../network/models/index.ts";
import { numbersFor } from "../network/numbers.ts";
import { readOnnx, readTensor } from "../network/onnx/read.ts";
import { toElement } from "../network/value.ts";
import type { Widened } from "../network/widen.ts";
import { OPERATORS } from "../operators/index.ts";
import { packageNameFrom } from "../package/subject.ts";
import { counted } from "../report/text.ts";
import type { RecordedWorld } from "../session/network/choices.ts";
import type { OpenNetwork } from "../session/network/network.ts";
import { checkCores, checkThreads } from "../session/tune/threads.ts";
import { isGpu, nativeTarget } from "../targets/index.ts";
import type { Cli } from "./command.ts";
import { collect, optionWords } from "./options.ts";
import { say, text, texts } from "./output.ts";

export const modelOptions = z.object({
  target: text.min(1, "--target must name a machine").default("native"),
  dtype: z.enum(["f32", "f16", "bf16"], { error: "--dtype is f32 or bf16 on a CPU, f16 on a GPU" }).optional(),
  dim: texts.default([]),
  constant: texts.default([]),
});

/** The option that excludes forms whose floats round differently. */
export const EXACT = [
  "--exact",
  "sum the products of each convolution as the network says: none by fewer multiplications (Winograd), which round otherwise",
] as const;

export function addModel(command: Cli): Cli {
  return command
    .argument("<model>", `a file, model.onnx, or a network built here: ${Object.keys(MODELS).join(", ")}`)
    .option("--dim <name=size>", "size of a dimension that the model leaves open; may be given several times", collect)
    .option("--target <machine>", "native (this CPU, the default), cuda (the GPU here), or a GPU by name: h100")
    .option(
      "--dtype <type>",
      "f32 on a CPU, or bf16: factors of products in bf16, all else in f32; f16 on a GPU, with sums in f32",
    )
    .option(
      "--constant <name=value>",
      "binds an input that is always the same: to numbers (sr=16000, shape=1,3,224,224) or to a tensor's file (.pb)",
      collect,
    );
}

/** A network as it was read, with the sizes and constants given for it. */
interface ReadModel {
  /** Of its package: the file's, since exporters call most networks the same. */
  readonly name: string;
  readonly graph: Graph;
  readonly options: LowerOptions;
}

/** @throws UsageError when there is no such network, or the file is none */
function readModel(word: string, { dim, constant }: z.infer<typeof modelOptions>): ReadModel {
  const examples = { "--dim": "batch=1", "--constant": "sr=16000" };
  const pairs = (words: readonly string[], option: keyof typeof examples): (readonly [string, string])[] =>
    words.map((given) => {
      const [, name = "", value = ""] = /^([^=]+)=(.+)$/.exec(given) ?? [];
      if (name === "")
        throw new UsageError(`${option} "${given}" is not name=value`, `for example ${option} ${examples[option]}`);
      return [name, value] as const;
    });
  const dims = Object.fromEntries(pairs(dim, "--dim").map(([name, size]) => [name, sizeOf(name, size)]));
  const bound = pairs(constant, "--constant");
  const constantsFor = ({ inputs }: Graph): ReadonlyMap<string, Constant> =>
    new Map(bound.map(([name, value]) => [name, constantFrom(name, value, inputs)]));
  // A folder of that name is mostly the package that `network emit` wrote.
  const isFile = statSync(word, { throwIfNoEntry: false })?.isDirectory() === false;
  const build = Object.hasOwn(MODELS, word) && !isFile ? MODELS[word] : undefined;
  if (!build && !existsSync(word) && !word.includes("."))
    throw new UsageError(
      `there is no network "${word}"`,
      OPERATORS.some(({ name, aliases }) => name === word || aliases.includes(word))
        ? `it is an operator: ${automapCommand("tune", word)}`
        : `${suggestion(word, Object.keys(MODELS))}; or a file, model.onnx`,
    );
  if (!build) {
    const graph = readOnnx(word);
    const name = packageNameFrom(parse(word).name);
    return { name, graph, options: { dims, constants: constantsFor(graph) } };
  }
  // Built-in networks leave one dimension open. It is 1 unless given.
  const { batch = 1, ...others } = dims;
  const graph = build({ batch });
  const name = packageNameFrom(graph.name);
  return { name, graph, options: { dims: others, constants: constantsFor(graph) } };
}

const NUMBER = String.raw`-?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?`;
const NUMBERS = new RegExp(`^${NUMBER}(?:,${NUMBER})*$`, "i");

/** A bound input: numbers of the input's type, or the tensor of a file. @throws UsageError when the input's type cannot hold a number */
function constantFrom(name: string, text: string, inputs: readonly Input[]): Constant {
  const words = text === "true" || text === "false" ? [String(Number(text === "true"))] : text.split(",");
  if (!NUMBERS.test(words.join(","))) return readTensor(text);
  // An input without a dimension takes one number. An unknown input is refused by whoever lowers the network.
  const { type, shape }: Pick<Input, "type" | "shape"> = withName(inputs, name) ?? {
    type: "f32",
    shape: [words.length],
  };
  const values = numbersFor(type, words.length, `--constant ${name}`);
  for (const [i, word] of words.entries()) {
    const given = Number(word);
    values[i] = given;
    const isExact = Number.isSafeInteger(given) && toElement(type, given) === given;
    if (!Number.isFinite(given) || !(isExact || type.startsWith("f") || type === "bf16"))
      throw new UsageError(`--constant ${name}=${text}: ${word} is no number of ${type}`);
  }
  const known = shape.every((size) => typeof size === "number") ? shape : undefined;
  const elements = known && product(known);
  return { type, shape: elements === words.length && known ? known : [words.length], values };
}

function sizeOf(name: string, text: string): number {
  if (!/^[1-9]\d{0,14}$/.test(text))
    throw new UsageError(`--dim ${name}=${text}: a size is a whole number, 1 at least`);
  return Number(text);
}

/** Command-line words that select the same network on the same machine. */
export function targetWords({ target, dtype, dim, constant }: z.infer<typeof modelOptions>): readonly string[] {
  return [
    ...optionWords({ target: target === "native" ? undefined : target, dtype }),
    ...dim.flatMap((word) => ["--dim", word]),
    ...constant.flatMap((word) => ["--constant", word]),
  ];
}

/** The requested GPU; undefined for a CPU. @throws UsageError for a type that the machine does not compute in */
async function gpuOf(
  { target, dtype }: z.infer<typeof modelOptions>,
  elsewhere: Target | undefined,
): Promise<Target | undefined> {
  if (elsewhere ? !isGpu(elsewhere) : target === "native") {
    if (dtype === "f16")
      throw new UsageError("--dtype f16: networks on a CPU compute in f32 or bf16", "--target cuda computes in f16");
    return undefined;
  }
  if (dtype !== undefined && dtype !== "f16")
    throw new UsageError(`--dtype ${dtype}: networks on a GPU compute in f16, with sums in f32`, "leave --dtype out");
  return elsewhere ?? (await import("../session/network/choices.ts")).gpuForNetworks(target);
}

/** Which of a model's f16 is computed in f32. */
function widenedText({ constants, inputs, outputs }: Widened): string {
  const named = (one: string, names: readonly string[]): string[] =>
    names.length === 0 ? [] : [`${names.length === 1 ? one : `${one}s`} ${names.join(", ")}`];
  const converted = [...named("input", inputs), ...named("output", outputs)];
  const parts = present([
    constants !== 0 && counted(constants, "constant"),
    converted.length !== 0 && `${converted.join(" and ")} converted`,
  ]);
  return `automap: the model has f16, which is computed in f32 here${parts.length === 0 ? "" : `: ${parts.join("; ")}`}`;
}

/** A network prepared for the CPU or for a GPU. */
export interface OpenedFor {
  /** As the command line names it. */
  readonly model: string;
  /** The name of its package unless another is asked for. */
  readonly name: string;
  readonly gpu: Target | undefined;
  readonly opened: OpenNetwork;
}

/** The option that takes kernels of another machine. */
export const ENVIRONMENT = [
  "--environment <id>",
  "take kernels of this environment of the database, as tune-network --fleet made them, and not of this machine",
] as const;

/** A network opened for the machine of the environment that is named, or else for the one that `--target` names. */
export async function openForWorld(
  model: string,
  given: z.infer<typeof modelOptions> & {
    readonly threads: number;
    readonly db: string;
    readonly environment?: string | undefined;
  },
): Promise<OpenedFor & { readonly world: RecordedWorld | undefined }> {
  const { environment, target, db } = given;
  if (environment !== undefined && target !== "native")
    throw new UsageError("--environment and --target exclude each other", "an environment has a machine");
  const world =
    environment === undefined
      ? undefined
      : (await import("../session/network/choices.ts")).recordedWorld(db, environment);
  return { ...(await openFor(model, given, { elsewhere: world?.machine })), world };
}

interface OpenOptions {
  /** Runs before the model is read. */
  readonly check?: () => void;
  /** A machine elsewhere, for which it is prepared in place of the one that `--target` names. */
  readonly elsewhere?: Target | undefined;
}

/**
 * Checks what is cheap to check, reads the model, and only then loads what prepares it.
 * @throws UsageError when there is no such network, it is not supported, or the machine has fewer threads than requested
 */
export async function openFor(
  model: string,
  given: z.infer<typeof modelOptions> & { readonly threads: number },
  { check = () => undefined, elsewhere }: OpenOptions = {},
): Promise<OpenedFor> {
  const gpu = await gpuOf(given, elsewhere);
  if (elsewhere && !gpu) checkCores(elsewhere, given.threads);
  else checkThreads(gpu ?? nativeTarget(), given.threads);
  check();
  const { name, graph, options } = readModel(model, given);
  const { inBrainFloatsOnCpu, inHalfOnGpu, openGraph, sumsBytes } = await import("../session/network/network.ts");
  const plain = openGraph(graph, { ...options, inBytes: sumsBytes(gpu ?? elsewhere) });
  if (plain.widened && !gpu) say(widenedText(plain.widened));
  const opened = gpu ? inHalfOnGpu(plain) : given.dtype === "bf16" ? inBrainFloatsOnCpu(plain) : plain;
  return { model, name, gpu, opened };
}
