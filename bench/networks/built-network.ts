/**
 * @file Networks built as libraries from their fastest recorded kernels, each in its own folder, and called in turns.
 *
 *     const { folder } = await builtNetwork(program, { database: "networks.db", threads: 1, compiler });
 *     const net = await loadNetwork(folder, { trustImported: true });
 *     const [a, b] = await inTurns([() => net.run(inputs), () => other.run(inputs)], { batches: 40 });
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { UsageError } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { openDatabase } from "../../db/index.ts";
import type { Network } from "../../network/network.ts";
import type { Task } from "../../network/tasks.ts";
import type { Value } from "../../network/value.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { shareCores } from "../../runtime/cores.ts";
import { environmentOf } from "../../session/environment.ts";
import { type Choice, choicesOf, inRecordedForms, networkSubject } from "../../session/network.ts";
import { writePackage } from "../../session/package-folder.ts";
import { buildNetwork } from "../../session/prove-network.ts";
import type { OnnxArray } from "../peers/onnxruntime.ts";
import { atRest } from "../support/rest.ts";

/** Length of a batch: it makes as many calls as fit. In the first 20 ms after a rest networks of 3 ms took a tenth longer (two threads, Zen 4, 2026-11-23). */
const BATCH_SECONDS = 0.1;

interface BuiltOptions {
  readonly database: string;
  readonly threads: number;
  readonly exact?: boolean;
  readonly compiler: Compiler;
}

/** The caller deletes the folder. @throws UsageError when the network does not compile */
export async function builtNetwork(
  direct: Network,
  { database, threads, exact = false, compiler }: BuiltOptions,
): Promise<{ readonly folder: string; readonly program: Network; readonly choices: ReadonlyMap<Task, Choice> }> {
  const db = openDatabase(database, { readonly: true });
  const records = { db, environment: environmentOf({ compiler }) };
  const program = inRecordedForms(direct, records, threads, exact);
  const choices = choicesOf(program, records, threads);
  db.close();
  const subject = networkSubject(program, choices, { threads });
  const folder = mkdtempSync(join(tmpdir(), "automap-network-bench-"));
  writePackage(folder, networkFiles(subject));
  const problem = await buildNetwork(folder, partsOfNetwork(subject), compiler, shareCores());
  if (problem === undefined) return { folder, program, choices };
  rmSync(folder, { recursive: true, force: true });
  throw new UsageError(`${direct.name} does not compile\n${problem}`);
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

/** Batches of each side that are timed, however long they take. */
const LEAST_BATCHES = 3;

/**
 * Seconds a call, by side and batch. The sides alternate, and so does the one that begins. Before a batch the other sides' threads come to rest, and
 * one call, which is not timed, wakes those of this side.
 * @param seconds after which no further batches begin; unlimited when left out
 */
export async function inTurns(
  sides: readonly (() => unknown)[],
  { batches, seconds = Number.POSITIVE_INFINITY }: { readonly batches: number; readonly seconds?: number },
): Promise<number[][]> {
  const started = performance.now();
  const timed = async (side: () => unknown, calls: number): Promise<number> => {
    await atRest();
    await side();
    const begun = performance.now();
    for (let call = 0; call < calls; call++) await side();
    return (performance.now() - begun) / 1000 / calls;
  };
  const all = sides.map((run) => ({ run, calls: 1, samples: [] as number[] }));
  for (const side of all) side.calls = Math.max(1, Math.round(BATCH_SECONDS / (await timed(side.run, 1))));
  for (let batch = 0; batch < batches; batch++) {
    if (batch >= LEAST_BATCHES && performance.now() - started > 1000 * seconds) break;
    const first = batch % all.length;
    for (const { run, calls, samples } of [...all.slice(first), ...all.slice(0, first)])
      samples.push(await timed(run, calls));
  }
  return all.map(({ samples }) => samples);
}
