/**
 * @file automap against ONNX Runtime, both called from this process in alternating batches. Outputs are checked first.
 *
 *     npm run build && npm install --no-save onnxruntime-node
 *     node dist/bench/layers/onnxruntime.js                      twelve ResNet-18 layers, f32 and u8s8, one thread
 *     node dist/bench/layers/onnxruntime.js --ops dep,grp --types f32 --seconds 20 --out bench/results/onnxruntime
 *
 * automap uses NHWC, ONNX Runtime NCHW, the only layout ONNX has. Weights are constants on both sides. Ratios above 1
 * mean that automap is faster.
 */

import { appendFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { type Computation, inputsOf, outputOf } from "../../abstraction/computation.ts";
import { EnvironmentError } from "../../abstraction/error.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { createRunner } from "../../runtime/measure.ts";
import { summarise, summariseRatio } from "../../runtime/statistics.ts";
import type { ReferenceSet } from "../../runtime/verify.ts";
import { load } from "../../session/load.ts";
import { tuneComputation } from "../../session/tune.ts";
import { layersNamed } from "../../test/support/suite.ts";
import { loadOnnxRuntime, onnxOverhead, onnxPeer } from "../peers/onnxruntime.ts";
import { readOptions } from "../support/options.ts";
import { atRest } from "../support/rest.ts";

const { values } = readOptions({
  options: {
    ops: { type: "string", default: "c2d" },
    types: { type: "string", default: "f32,u8s8" },
    threads: { type: "string", default: "1" },
    seconds: { type: "string", default: "20" },
    db: { type: "string", default: "bench.db" },
    out: { type: "string", default: "onnxruntime" },
  },
});
const threads = Number(values.threads);
const ARRAYS = { f32: Float32Array, s32: Int32Array, u8: Uint8Array, s8: Int8Array } as const;
/** u8s8 ends in u8 on both sides (QLinearConv), since ONNX Runtime's sums in s32 (ConvInteger) are far slower. */
const REQUANTISED = "res[n,k,p,q] = sat_u8(round(max(f32(out[n,k,p,q]) * scale[k], 0)))";
const BATCHES = 21;
const BATCH_SECONDS = 0.02;

const ort = await loadOnnxRuntime();
const idle = await onnxOverhead(ort);
const overhead = summarise(await sampled([idle.run]).then(([s]) => s ?? []), 1);
const lines = [
  "# automap beside ONNX Runtime",
  "",
  `${cpus()[0]?.model.trim()}, ${threads} thread${threads === 1 ? "" : "s"}; one Node process, ${BATCHES} batches in turns, each after a rest, warm caches; microseconds a call, median.`,
  `A call of an ONNX Runtime session that copies one number takes ${(overhead.median * 1e6).toFixed(1)} us; it is part of its times.`,
  "",
  `    node dist/bench/layers/onnxruntime.js ${process.argv.slice(2).join(" ")}`,
];
const jsonl = `${values.out}.jsonl`;
writeFileSync(jsonl, "");

for (const types of values.types.split(",")) {
  const ratios: number[] = [];
  lines.push("", `## ${types}`, "", "| layer | automap, NHWC | ONNX Runtime, NCHW | ratio |", "|---|---|---|---|");
  for (const { id, op, params } of layersNamed(values.ops)) {
    const make = (layouts?: string): Computation =>
      instantiate(operatorNamed(op), {
        parameters: params,
        types: parseDataTypes(types),
        ...(layouts === undefined ? {} : { layouts }),
        ...(types === "u8s8" ? { epilogue: REQUANTISED } : {}),
      });
    const row = await compare(make("NHWC"), make(), params);
    ratios.push(row.ratio);
    appendFileSync(jsonl, `${JSON.stringify({ id, types, threads, ...row })}\n`);
    lines.push(
      `| ${id} | ${(row.automap * 1e6).toFixed(1)} | ${(row.peer * 1e6).toFixed(1)} | ${row.ratio.toFixed(2)} |`,
    );
    console.error(lines.at(-1));
  }
  lines.push(`| geomean | | | ${Math.exp(ratios.reduce((s, x) => s + Math.log(x), 0) / ratios.length).toFixed(2)} |`);
  writeFileSync(`${values.out}.md`, `${lines.join("\n")}\n`);
}
await idle.close();

async function compare(ours: Computation, theirs: Computation, params: Readonly<Record<string, number>>) {
  const tuned = await tuneComputation(
    { computation: ours },
    { threads, seconds: Number(values.seconds), database: values.db },
  );
  if (!("best" in tuned) || !tuned.best) throw new Error(`${ours.name}: ${tuned.status}`);
  const made = await createRunner({ threads });
  if (made.status === "environment") throw new EnvironmentError(made);
  const own = await setOf(ours);
  const other = await setOf(theirs);
  await made.runner.close();

  const kernel = await load(tuned.best);
  const output = arrayOf(ours, outputOf(ours).name);
  // Inputs in the equation's order, then the output.
  const arrays = [...inputsOf(ours).map((t) => arrayOf(ours, t.name, own.inputs[t.name])), output];
  const peer = await onnxPeer(ort, theirs, params, other, threads);
  const runs = [async () => kernel.run(...arrays), peer.run] as const;
  for (const run of runs) await run();
  check("automap", output, own);
  check("ONNX Runtime", peer.output, other);
  const [a = [], b = []] = await sampled(runs);
  kernel.close();
  await peer.close();
  return { automap: summarise(a, 1).median, peer: summarise(b, 1).median, ratio: summariseRatio(b, a, 1).median };

  async function setOf(computation: Computation): Promise<ReferenceSet> {
    if (made.status === "environment") throw new EnvironmentError(made);
    const reference = await made.runner.reference(computation, 1);
    const set = reference.sets.find((s) => s.name === "random");
    if (!set) throw new Error("internal: no random set");
    return set;
  }
}

/** Seconds a call by batch, with the runs in turns. Before a batch the threads of the last one come to rest. */
async function sampled(runs: readonly (() => Promise<void>)[]): Promise<number[][]> {
  const calls: number[] = [];
  for (const run of runs) {
    const start = performance.now();
    let count = 0;
    for (; performance.now() - start < 1000 * BATCH_SECONDS; count++) await run();
    calls.push(Math.max(1, count));
  }
  const samples: number[][] = runs.map(() => []);
  for (let batch = 0; batch < BATCHES; batch++)
    for (const [i, run] of runs.entries()) {
      await atRest();
      await run();
      const start = performance.now();
      for (let call = 0; call < (calls[i] ?? 1); call++) await run();
      samples[i]?.push((performance.now() - start) / 1000 / (calls[i] ?? 1));
    }
  return samples;
}

function check(name: string, got: ArrayLike<number>, { expected, tolerance }: ReferenceSet): void {
  for (let i = 0; i < expected.length; i++)
    if (!(Math.abs((got[i] ?? Number.NaN) - (expected[i] ?? 0)) <= (tolerance[i] ?? 0)))
      throw new Error(`${name}: element ${i} is ${got[i]}, the equation says ${expected[i]}`);
}

function arrayOf(computation: Computation, tensor: string, bytes?: Uint8Array) {
  const described = [outputOf(computation), ...inputsOf(computation)].find((t) => t.name === tensor);
  const dtype = described?.dtype;
  if (dtype !== "f32" && dtype !== "s32" && dtype !== "u8" && dtype !== "s8")
    throw new Error(`${tensor}: ${dtype} has no counterpart in ONNX Runtime's CPU kernels`);
  const elements = described?.dims.reduce((n, d) => n * d.extent, 1) ?? 0;
  return bytes === undefined ? new ARRAYS[dtype](elements) : new ARRAYS[dtype](bytes.slice().buffer);
}
