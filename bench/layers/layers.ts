/**
 * @file automap against oneDNN, layer by layer. Each layer is tuned; then the winner and oneDNN's kernels are checked
 * element by element and run in one process, in alternating batches, on the same inputs.
 *
 *     npm run build
 *     node dist/bench/layers/layers.js                                     twelve ResNet-18 layers, three types, one thread
 *     node dist/bench/layers/layers.js --ops dep,grp --types f32 --threads 2 --seconds 20 --out bench/results/layers
 *     node dist/bench/layers/layers.js --ops grp --types f32 --layout nchw          activations channel by channel
 *     node dist/bench/layers/layers.js --types u8s8 --intrinsic vnni --isa avx512_core_vnni
 *     node dist/bench/layers/layers.js --types u8s8 --output u8       scaled per channel, rectified, rounded and clamped to u8
 *     node dist/bench/layers/layers.js --types bf16 --output bf16     rounded to bf16
 *     node dist/bench/layers/layers.js --report 1.jsonl,2.jsonl       the tables of several runs
 *     ONEDNN_ROOT=/opt/onednn node dist/bench/layers/layers.js        a oneDNN of your own, built for OpenMP
 *
 * oneDNN chooses its implementation. In "own layouts" it also chooses the activations' layouts, and reorders are not
 * timed; "NHWC" and "NCHW" use automap's layout. Both sides pack weights ahead of time. Ratios above 1 mean that
 * automap is faster; they are medians of ratios of neighbouring batches.
 */

import { writeFileSync } from "node:fs";
import type { CandidateKinds } from "../../abstraction/candidate.ts";
import { type Computation, targetOf } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { operationsOf } from "../../abstraction/time.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { boundOfForm } from "../../abstraction/winograd.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { candidateText } from "../../report/describe-candidate.ts";
import { nativeIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { type TuneOutcome, tuneComputation } from "../../session/tune/tune.ts";
import { layersNamed } from "../../test/support/suite.ts";
import { ONEDNN_FLAGS, type OnednnOptions, onednnKernel, onednnVersion } from "../peers/onednn.ts";
import { randomSetOnly, withConstant } from "../peers/reference.ts";
import {
  calibratedTarget,
  cpuName,
  cpuRunner,
  linesIn,
  linesOf,
  page,
  ratioOf,
  type Time,
  timeOf,
  timeText,
  writerTo,
} from "../support/frame.ts";
import { readOptions } from "../support/options.ts";
import { LAYER, type LayerRow, layerTables } from "./layers-report.ts";
import { rooflineOf } from "./roofline.ts";

const { values } = readOptions({
  options: {
    ops: { type: "string", default: "c2d" },
    types: { type: "string", default: "f32,bf16,u8s8" },
    threads: { type: "string", default: "1" },
    seconds: { type: "string", default: "20" },
    trials: { type: "string", default: "400" },
    output: { type: "string", default: "sum" },
    layout: { type: "string", default: "nhwc" },
    intrinsic: { type: "string" },
    isa: { type: "string" },
    db: { type: "string", default: "bench.db" },
    out: { type: "string", default: "layers" },
    report: { type: "string" },
  },
});

const configs = layersNamed(values.ops);
const threads = Number(values.threads);
const layout = values.layout.toUpperCase();
if (layout !== "NHWC" && layout !== "NCHW") throw new UsageError(`--layout is nhwc or nchw, got "${values.layout}"`);
if (values.report === undefined) await run();
else process.stdout.write(layerTables(linesOf(LAYER, linesIn(values.report))));

async function run(): Promise<void> {
  writeFileSync(`${values.out}.jsonl`, "");
  const write = writerTo(`${values.out}.jsonl`);
  const rows: LayerRow[] = [];
  for (const types of values.types.split(","))
    for (const { id, of, op, params } of configs) {
      const row = await compare({ id, of }, types, subjectOf(op, params, types));
      if (!row) continue;
      rows.push(row);
      write(row);
    }
  const about = `${cpuName()}; one process, batches in turns, warm caches; microseconds a call, median and half the 95 % interval; in parentheses the ratio oneDNN / automap.`;
  writeFileSync(`${values.out}.md`, page("automap beside oneDNN", about, layerTables(rows)));
}

/** The layer with constant weights on both sides, the requested layout if it has activations, and its epilogue. */
function subjectOf(op: string, params: Readonly<Record<string, number>>, types: string): Computation {
  const isProduct = op === "gmm" || op === "gmv";
  const make = (epilogue?: string): Computation => {
    const computation = instantiate(operatorNamed(op), {
      parameters: params,
      types: parseDataTypes(types),
      ...(!isProduct && { layouts: layout }),
      ...(epilogue !== undefined && { epilogue }),
    });
    return isProduct ? withConstant(computation, op === "gmm" ? "b" : "a") : computation;
  };
  switch (values.output) {
    case "sum":
      return make();
    case "bf16":
      return make("bf16");
    case "u8": {
      if (isProduct) throw new UsageError("--output u8 is for convolutions");
      const sum = targetOf(make());
      const element = sum.dims.map((d) => d.name);
      const axes = element.join(",");
      return make(`res[${axes}] = sat_u8(round(max(f32(${sum.name}[${axes}]) * scale[${element[1]}], 0)))`);
    }
    default:
      throw new UsageError(`--output is sum, bf16 or u8, got "${values.output}"`);
  }
}

async function compare(
  { id, of }: Pick<LayerRow, "id" | "of">,
  types: string,
  computation: Computation,
): Promise<LayerRow | undefined> {
  const here = nativeIntrinsics();
  const intrinsics =
    values.intrinsic === undefined ? here : intrinsicsNamed(values.intrinsic).filter((i) => here.includes(i));
  const search = (kinds: CandidateKinds) =>
    tuneComputation(
      { computation },
      {
        intrinsics,
        threads,
        seconds: Number(values.seconds),
        trials: Number(values.trials),
        database: values.db,
        kinds,
      },
    );
  const tuned = await search("exact");
  if (!("best" in tuned) || !tuned.best) {
    console.error(`${id} ${types}: ${tuned.status}`);
    return undefined;
  }
  const runner = await cpuRunner({ threads, flags: ONEDNN_FLAGS });
  try {
    const form = boundOfForm(computation) && fastestForm(computation, await search("all"));
    const own = form ? [{ name: "automap Winograd", kernel: form, algorithm: "winograd" as const }] : [];
    const theirs = variants(types, computation).flatMap(([name, options]) => {
      const { isa: maxIsa } = values;
      const peer = onednnKernel(computation, { ...options, threads, ...(maxIsa && { maxIsa }) });
      return peer.status === "ready" ? [{ name, kernel: peer.kernel, algorithm: options.algorithm }] : [];
    });
    const peers = [...own, ...theirs];
    const reference = await runner.reference(computation, 1);
    // Winograd cannot match the exact sets, so with it among the kernels all are compared on random data.
    const isExact = peers.every(({ algorithm }) => algorithm !== "winograd");
    const measured = await runner.compareKernels(
      [tuned.best.kernel, ...peers.map(({ kernel }) => kernel)],
      isExact ? reference : randomSetOnly(reference),
      { budgetSeconds: 1 },
    );
    const [ours, ...others] = measured;
    if (!ours) return undefined;
    const row: LayerRow = {
      id,
      of,
      types,
      output: values.output,
      threads,
      layout,
      intrinsic: values.intrinsic,
      isa: values.isa,
      onednn: onednnVersion(),
      operations: operationsOf(computation),
      roofline: rooflineOf(computation, intrinsics, await calibratedTarget(values.db), threads),
      trials: tuned.trials.length,
      candidate: candidateText(tuned.best.candidate),
      automap: timeOf(ours),
      peers: others.map((m, i) => ({ name: peers[i]?.name ?? "?", ratio: ratioOf(m, ours), time: peerTime(m) })),
    };
    const beside = row.peers.map((p) => `${p.name} ${timeText(p.time)} (${p.ratio?.toFixed(2) ?? "-"})`).join("  ");
    console.error(`${id.padEnd(7)} ${types.padEnd(5)} ${timeText(row.automap)}  ${beside}  ${row.candidate}`);
    return row;
  } finally {
    await runner.close();
  }
}

/** The fastest kernel of a search that computes another form of the equation. */
function fastestForm(computation: Computation, outcome: TuneOutcome): Kernel | undefined {
  if (!("trials" in outcome)) return undefined;
  const [fastest] = outcome.trials
    .flatMap(({ candidate, measurement }) =>
      candidate.kind === "winograd" && measurement.status === "ok" ? [{ candidate, seconds: measurement.median }] : [],
    )
    .toSorted((a, b) => a.seconds - b.seconds);
  return fastest && kernelFor(computation, fastest.candidate);
}

function variants(types: string, computation: Computation): (readonly [string, OnednnOptions])[] {
  const product = computation.name === "matmul" || computation.name === "matvec";
  if (product)
    return [
      ["oneDNN matmul", { algorithm: "matmul" }],
      ["oneDNN inner product", { algorithm: "inner-product" }],
    ];
  const direct: (readonly [string, OnednnOptions])[] = [
    ["oneDNN, own layouts", { algorithm: "direct", activations: "preferred" }],
    [`oneDNN, ${layout}`, { algorithm: "direct", activations: "given" }],
  ];
  return types === "f32" && computation.name === "conv2d"
    ? [...direct, ["oneDNN Winograd", { algorithm: "winograd", activations: "preferred" }]]
    : direct;
}

/** A primitive that oneDNN does not have is no failure. */
function peerTime(m: Measurement): Time {
  return m.status !== "ok" && /^onednn: /m.test(m.log) ? { status: "none", log: "" } : timeOf(m);
}
