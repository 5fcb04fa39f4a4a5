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

import { writeFileSync } from "node:fs";
import { type Computation, elementCount, inputsOf, outputOf, type Tensor } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import type { Runner } from "../../runtime/measure.ts";
import type { ReferenceSet } from "../../runtime/reference/verify.ts";
import { median, summariseRatio } from "../../runtime/statistics.ts";
import { load } from "../../session/package/load.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { layersNamed } from "../../test/support/suite.ts";
import { loadOnnxRuntime, type OnnxArray, onnxArray, onnxOverhead, onnxPeer, onnxType } from "../peers/onnxruntime.ts";
import { cpuName, cpuRunner, geomean, page, table, threadsText, us, writerTo } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";
import { inTurns } from "../support/turns.ts";

const { values } = readOptions({
  options: {
    ops: { type: "string", default: "c2d" },
    types: { type: "string", default: "f32,u8s8" },
    threads: { type: "string", default: "1" },
    seconds: { type: "string", default: "20" },
    db: { type: "string", default: "bench.db" },
    onnxruntime: { type: "string" },
    out: { type: "string", default: "onnxruntime" },
  },
});
const threads = Number(values.threads);
/** u8s8 ends in u8 on both sides (QLinearConv), since ONNX Runtime's sums in s32 (ConvInteger) are far slower. */
const REQUANTISED = "res[n,k,p,q] = sat_u8(round(max(f32(out[n,k,p,q]) * scale[k], 0)))";
const TURNS = { batches: 21 };

const ort = await loadOnnxRuntime(values.onnxruntime);
const idle = await onnxOverhead(ort);
const [overhead = []] = await inTurns([idle.run], TURNS);
await idle.close();
const about = `${cpuName()}, ${threadsText(threads)}; one Node process, ${TURNS.batches} batches in turns, each after a rest, warm caches; microseconds a call, median.
A call of an ONNX Runtime session that copies one number takes ${us(median(overhead))} us; it is part of its times.`;
writeFileSync(`${values.out}.jsonl`, "");
const write = writerTo(`${values.out}.jsonl`);

const sections: string[] = [];
for (const types of values.types.split(",")) {
  const rows: string[][] = [];
  const ratios: number[] = [];
  for (const { id, op, params } of layersNamed(values.ops)) {
    const make = (layouts?: string): Computation =>
      instantiate(operatorNamed(op), {
        parameters: params,
        types: parseDataTypes(types),
        ...(layouts !== undefined && { layouts }),
        ...(types === "u8s8" && { epilogue: REQUANTISED }),
      });
    const { automap, peer, ratio } = await compare(make("NHWC"), make(), params);
    write({ id, types, threads, automap, peer, ratio });
    ratios.push(ratio);
    rows.push([id, us(automap), us(peer), ratio.toFixed(2)]);
    console.error(rows.at(-1)?.join("  "));
  }
  const head = ["layer", "automap, NHWC", "ONNX Runtime, NCHW", "ratio"];
  sections.push(`## ${types}`, "", ...table(head, [...rows, ["geomean", "", "", geomean(ratios).toFixed(2)]]), "");
  writeFileSync(`${values.out}.md`, page("automap beside ONNX Runtime", about, ...sections));
}

async function compare(ours: Computation, theirs: Computation, params: Readonly<Record<string, number>>) {
  const options = { threads, seconds: Number(values.seconds), database: values.db };
  const tuned = await tuneComputation({ computation: ours }, options);
  if (!("best" in tuned) || !tuned.best) throw new Error(`${ours.name}: ${tuned.status}`);
  // It holds the inputs.
  const runner = await cpuRunner({ threads });
  const own = await randomSetOf(ours, runner);
  const other = await randomSetOf(theirs, runner);

  const kernel = await load(tuned.best);
  const output = arrayOf(outputOf(ours));
  // Inputs in the equation's order, then the output.
  const arrays = [...inputsOf(ours).map((t) => arrayOf(t, own.inputs[t.name])), output];
  const peer = await onnxPeer(ort, theirs, params, other, threads);
  const run = (): void => kernel.run(...arrays);
  run();
  await peer.run();
  check("automap", output, own);
  check("ONNX Runtime", peer.outputs[outputOf(theirs).name] ?? [], other);
  const [a = [], b = []] = await inTurns([run, peer.run], TURNS);
  kernel.close();
  await peer.close();
  await runner.close();
  return { automap: median(a), peer: median(b), ratio: summariseRatio(b, a, 1).median };
}

async function randomSetOf(computation: Computation, runner: Runner): Promise<ReferenceSet> {
  const { sets } = await runner.reference(computation, 1);
  const set = sets.find(({ name }) => name === "random");
  if (!set) throw new Error("internal: no random set");
  return set;
}

function check(name: string, got: ArrayLike<number | bigint>, { expected, tolerance }: ReferenceSet): void {
  for (let i = 0; i < expected.length; i++)
    if (!(Math.abs(Number(got[i] ?? Number.NaN) - (expected[i] ?? 0)) <= (tolerance[i] ?? 0)))
      throw new Error(`${name}: element ${i} is ${got[i]}, the equation says ${expected[i]}`);
}

/** The bytes given, or zeros. */
function arrayOf(tensor: Tensor, bytes?: Uint8Array): Exclude<OnnxArray, BigInt64Array> {
  const held = bytes ?? new Uint8Array(elementCount(tensor) * bytesOf(tensor.dtype));
  return onnxArray(onnxType(tensor.dtype), held) as Exclude<OnnxArray, BigInt64Array>; // tensors hold no s64
}
