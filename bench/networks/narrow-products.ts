/**
 * @file Products by weights of 4 bits beside ONNX Runtime's MatMulNBits and llama.cpp's, all called from this process in turns. Outputs are compared first.
 *
 *     npm run build && npm install --no-save onnxruntime-node
 *     node dist/bench/networks/narrow-products.js --seconds 20                      Llama's shapes, 1 to 512 rows, one thread
 *     node dist/bench/networks/narrow-products.js --shapes 4096x4096 --groups 32 --rows 1,16 --threads 1,2 --levels 4
 *     ... --ggml node_modules/@node-llama-cpp/linux-x64/bins/linux-x64               llama.cpp's products too, for groups of 32
 *
 * `accuracy_level` 0 sums products of f32 on both sides. With 4, both quantise each row's numbers to s8 by the weights' groups, by the largest of
 * 127, sum integers in a group, and floats over groups: outputs are compared with that sum too; so does llama.cpp, with scales rounded to f16. Ratios above 1 mean that automap is faster.
 */

import { rmSync, writeFileSync } from "node:fs";
import type { Graph } from "../../network/graph.ts";
import { median, summariseRatio } from "../../runtime/statistics.ts";
import { loadKoffi } from "../../session/natives.ts";
import { loadNetwork } from "../../session/network/load-network.ts";
import { openGraph } from "../../session/network/network.ts";
import { tuneNetwork } from "../../session/network/tune-network.ts";
import { onnxBytes } from "../../test/support/onnx-bytes.ts";
import { GGML_GROUP, type GgmlProduct, loadGgml, type NarrowWeights } from "../peers/ggml.ts";
import { loadOnnxRuntime, type OnnxArray, onnxNetwork, onnxTensors } from "../peers/onnxruntime.ts";
import { cpuCompiler, cpuName, page, table, us, writerTo } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";
import { differenceOf } from "../support/same-outputs.ts";
import { inTurns } from "../support/turns.ts";
import { builtNetwork, drawnInputs } from "./built-network.ts";
import { NarrowLayers } from "./narrow-layers.ts";

const { values } = readOptions({
  options: {
    /** Weights, n x k. */
    shapes: { type: "string", default: "4096x4096,14336x4096,4096x14336" },
    groups: { type: "string", default: "32,128" },
    rows: { type: "string", default: "1,16,128,512" },
    threads: { type: "string", default: "1" },
    /** `accuracy_level` of automap's products. */
    levels: { type: "string", default: "0,4" },
    /** Of search for each case; 0 uses the existing records. */
    seconds: { type: "string", default: "20" },
    /** Turns of each side, and the seconds after which no more begin. */
    batches: { type: "string", default: "21" },
    "turn-seconds": { type: "string", default: "10" },
    db: { type: "string", default: "bench.db" },
    onnxruntime: { type: "string" },
    /** The folder of llama.cpp's libraries. */
    ggml: { type: "string" },
    out: { type: "string", default: "narrow-products" },
  },
});
const numbers = (words: string): readonly number[] => words.split(",").map(Number);
/** Differences of sums of thousands of products in another order, relative to the largest output. */
const TOLERANCE = 1e-4;
/** Differences that numbers of 8 bits in place of f32 make. */
const BYTE_TOLERANCE = 0.03;

interface Case {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly group: number;
  readonly level: 0 | 4;
}

const compiler = await cpuCompiler();
const ort = await loadOnnxRuntime(values.onnxruntime);
const ggml = values.ggml === undefined ? undefined : loadGgml(values.ggml, await loadKoffi());
writeFileSync(`${values.out}.jsonl`, "");
const write = writerTo(`${values.out}.jsonl`);
const rows: string[][] = [];
for (const threads of numbers(values.threads))
  for (const shape of values.shapes.split(","))
    for (const group of numbers(values.groups))
      for (const m of numbers(values.rows))
        for (const level of numbers(values.levels)) {
          const [n = 0, k = 0] = shape.split("x").map(Number);
          const row = await compared({ m, n, k, group, level: level === 4 ? 4 : 0 }, threads);
          write(row);
          const times = [row.automap, row.floats, row.bytes].map(us);
          const ratios = [row.overFloats, row.overBytes].map((ratio) => ratio.toFixed(2));
          const { ggml: third } = row;
          const beside = ggml ? [third ? `${us(third.seconds)} ${third.form}` : "", third?.over.toFixed(2) ?? ""] : [];
          rows.push([String(threads), shape, String(group), String(m), String(level), ...times, ...ratios, ...beside]);
          console.error(rows.at(-1)?.join("  "));
          writeFileSync(`${values.out}.md`, pageOf());
        }

function pageOf(): string {
  const about = `${cpuName()}, onnxruntime-node ${ort.version}${ggml ? `, ggml ${ggml.version}` : ""}; one Node process, at most ${values.batches} batches in turns, each after a rest; microseconds a call, median.`;
  const head = [
    "threads",
    "weights, n x k",
    "group",
    "rows",
    "level",
    "automap",
    "ONNX Runtime 0",
    "4",
    "ratio to 0",
    "to 4",
    ...(ggml ? ["llama.cpp", "ratio"] : []),
  ];
  return page("Products by weights of 4 bits beside ONNX Runtime", about, ...table(head, rows));
}

function graphOf({ m, n, k, group, level }: Case): Graph {
  const net = new NarrowLayers("product", 1);
  net.output(net.narrow(net.input("x", [m, k]), "y", { n, k, group, level }));
  return net.graph;
}

async function compared(one: Case, threads: number) {
  const graph = graphOf(one);
  const { program } = openGraph(graph);
  const seconds = Number(values.seconds);
  if (seconds > 0) await tuneNetwork(program, { seconds, threads, database: values.db });
  const { folder } = await builtNetwork(program, { database: values.db, threads, compiler });
  let others: readonly GgmlProduct[] = [];
  try {
    const inputs = drawnInputs(program);
    const options = { inputs, tensors: onnxTensors(program), threads };
    const ours = await loadNetwork(folder, { trustImported: true });
    const floats = await onnxNetwork(ort, onnxBytes(graphOf({ ...one, level: 0 })), options);
    const bytes = await onnxNetwork(ort, onnxBytes(graphOf({ ...one, level: 4 })), options);
    const outputs = ours.run(inputs);
    await floats.run();
    await bytes.run();
    differenceOf(outputs, (one.level === 4 ? bytes : floats).outputs, TOLERANCE);
    differenceOf(bytes.outputs, floats.outputs, BYTE_TOLERANCE);
    const x = Float32Array.from(inputs["x"] ?? [], Number);
    checkBytes(one, graph, x, bytes.outputs["y"] ?? new Float32Array());
    others = one.group === GGML_GROUP ? (ggml?.products(weightsOf(one, graph), x, threads) ?? []) : [];
    for (const other of others) {
      other.run();
      differenceOf({ y: other.output() }, { y: floats.outputs["y"] ?? x }, BYTE_TOLERANCE);
    }
    const sides = [() => ours.run(inputs, outputs), floats.run, bytes.run, ...others.map(({ run }) => run)];
    const [a = [], b = [], c = [], ...rest] = await inTurns(sides, {
      batches: Number(values.batches),
      seconds: Number(values["turn-seconds"]),
    });
    const [third] = rest
      .map((d, i) => ({ form: others[i]?.form, seconds: median(d), over: summariseRatio(d, a, 1).median }))
      .toSorted((d, e) => d.seconds - e.seconds);
    ours.close();
    await floats.close();
    await bytes.close();
    return {
      ...one,
      threads,
      automap: median(a),
      floats: median(b),
      bytes: median(c),
      overFloats: summariseRatio(b, a, 1).median,
      overBytes: summariseRatio(c, a, 1).median,
      ggml: third,
      least: [a, b, c, ...rest].map((samples) => Math.min(...samples)),
    };
  } finally {
    for (const other of others) other.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function weightsOf({ n, k }: Case, { constants }: Graph): NarrowWeights {
  return { n, k, codes: constants.get("y.w")?.values ?? [], scales: constants.get("y.s")?.values ?? [] };
}

/** Checks the first row of a result of level 4 against sums of integers by group. */
function checkBytes(one: Case, graph: Graph, x: OnnxArray, got: OnnxArray): void {
  const { n, k, group } = one;
  const { codes, scales } = weightsOf(one, graph);
  const groups = k / group;
  const row = Array.from({ length: groups }, (_, g) => {
    const numbersIn = Array.from(x.slice(g * group, (g + 1) * group), Number);
    const scale = Math.max(...numbersIn.map(Math.abs)) / 127;
    return { scale, bytes: numbersIn.map((number) => Math.round(number / scale)) };
  });
  const wanted = Array.from({ length: n }, (_, j) => {
    let sum = 0;
    for (const [g, { scale, bytes }] of row.entries()) {
      let whole = 0;
      for (const [i, byte] of bytes.entries()) {
        const code = Number(codes[(j * k + g * group + i) >> 1]);
        whole += byte * ((i % 2 === 0 ? code % 16 : code >> 4) - 8);
      }
      sum += whole * scale * Number(scales[j * groups + g]);
    }
    return sum;
  });
  differenceOf({ y: Float32Array.from(wanted) }, { y: got.slice(0, n) }, TOLERANCE);
}
