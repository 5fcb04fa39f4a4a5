/**
 * @file The networks of this repository by name, and their libraries, built from the fastest recorded kernels, each in its own folder.
 *
 *     for (const name of networksNamed("resnet18,bert-base")) openGraph(graphNamed(name, 16))
 *     const { folder } = await builtNetwork(program, { database: "networks.db", threads: 1, compiler });
 *     const net = await loadNetwork(folder, { trustImported: true });
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { internal, UsageError } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { openDatabase } from "../../db/index.ts";
import type { Graph } from "../../network/graph.ts";
import { MODELS } from "../../network/models/index.ts";
import type { Network } from "../../network/network.ts";
import type { Task } from "../../network/tasks.ts";
import type { Value } from "../../network/value.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { shareCores } from "../../runtime/cores.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { type Choice, choicesOf, networkSubject } from "../../session/network/network.ts";
import { buildNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import type { OnnxArray } from "../peers/onnxruntime.ts";
import { wordOf } from "../support/options.ts";
import { DECODER_NETWORKS } from "./decoder.ts";

/** @param words names separated by commas, of decoders too, or `all` for the built-in ones. @throws UsageError for a name that is none */
export function networksNamed(words: string): readonly string[] {
  const models = Object.keys(MODELS);
  const known = [...models, ...Object.keys(DECODER_NETWORKS)];
  return words === "all" ? models : words.split(",").map((word) => wordOf("networks", word, known));
}

/** The graph of a network that `networksNamed` gave. */
export function graphNamed(name: string, batch = 1): Graph {
  const decoder = DECODER_NETWORKS[name];
  if (decoder && batch !== 1) throw new UsageError(`--batch ${batch}: ${name} computes one sequence`);
  return decoder?.() ?? MODELS[name]?.({ batch }) ?? internal(`no network ${name}`);
}

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
