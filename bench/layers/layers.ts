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
 *
 * oneDNN chooses its implementation. In "own layouts" it also chooses the activations' layouts, and reorders are not
 * timed; "NHWC" and "NCHW" use automap's layout. Both sides pack weights ahead of time. Ratios above 1 mean that
 * automap is faster; they are medians of ratios of neighbouring batches.
 */

import { appendFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { type Computation, outputOf, targetOf } from "../../abstraction/computation.ts";
import { EnvironmentError, UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { operationsOf } from "../../abstraction/time.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { candidateText } from "../../report/describe-candidate.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { summariseRatio } from "../../runtime/statistics.ts";
import { calibrateMachine } from "../../session/calibrate.ts";
import { nativeIntrinsics } from "../../session/choose.ts";
import { tuneComputation } from "../../session/tune.ts";
import { layersNamed } from "../../test/support/suite.ts";
import { ONEDNN_FLAGS, type OnednnEpilogue, type OnednnOptions, onednnKernel } from "../peers/onednn.ts";
import { randomSetOnly, withConstant } from "../peers/reference.ts";
import { readOptions } from "../support/options.ts";
import { type LayerRow, type LayerTime, layerTables, timeText } from "./layers-report.ts";
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
  },
});

const configs = layersNamed(values.ops);
const threads = Number(values.threads);
const layout = values.layout.toUpperCase();
if (layout !== "NHWC" && layout !== "NCHW") throw new UsageError(`--layout is nhwc or nchw, got "${values.layout}"`);
const jsonl = `${values.out}.jsonl`;
writeFileSync(jsonl, "");

const rows: LayerRow[] = [];
for (const types of values.types.split(",")) {
  for (const { id, op, params } of configs) {
    const row = await compare(id, types, subjectOf(op, params, types));
    if (row) rows.push(row);
  }
}
writeFileSync(`${values.out}.md`, report());

interface Subject {
  /** The computation automap tunes. */
  readonly computation: Computation;
  /** The computation without its epilogue, and the epilogue in oneDNN's terms. */
  readonly sum: Computation;
  readonly epilogue?: OnednnEpilogue;
}

/** The subject with constant weights on both sides, and the requested layout if it has activations. */
function subjectOf(op: string, params: Readonly<Record<string, number>>, types: string): Subject {
  const isProduct = op === "gmm" || op === "gmv";
  const make = (epilogue?: string): Computation => {
    const computation = instantiate(operatorNamed(op), {
      parameters: params,
      types: parseDataTypes(types),
      ...(isProduct ? {} : { layouts: layout }),
      ...(epilogue === undefined ? {} : { epilogue }),
    });
    return isProduct ? withConstant(computation, op === "gmm" ? "b" : "a") : computation;
  };
  const sum = make();
  switch (values.output) {
    case "sum":
      return { computation: sum, sum };
    case "bf16":
      return { computation: make("bf16"), sum, epilogue: { output: "bf16" } };
    case "u8": {
      if (isProduct) throw new UsageError("--output u8 is for convolutions");
      const element = targetOf(sum).dims.map((d) => d.name);
      const factor = `scale[${element[1]}]`;
      const out = `${targetOf(sum).name}[${element.join(",")}]`;
      return {
        computation: make(`res[${element.join(",")}] = sat_u8(round(max(f32(${out}) * ${factor}, 0)))`),
        sum,
        epilogue: { output: "u8", scale: true, relu: true },
      };
    }
    default:
      throw new UsageError(`--output is sum, bf16 or u8, got "${values.output}"`);
  }
}

async function compare(
  id: string,
  types: string,
  { computation, sum, epilogue }: Subject,
): Promise<LayerRow | undefined> {
  const here = nativeIntrinsics();
  const intrinsics =
    values.intrinsic === undefined ? here : intrinsicsNamed(values.intrinsic).filter((i) => here.includes(i));
  const tuned = await tuneComputation(
    { computation },
    {
      intrinsics,
      threads,
      seconds: Number(values.seconds),
      trials: Number(values.trials),
      database: values.db,
    },
  );
  if (!("best" in tuned) || !tuned.best) {
    console.error(`${id} ${types}: ${tuned.status}`);
    return undefined;
  }
  const made = await createRunner({ threads, flags: ONEDNN_FLAGS });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  try {
    const kernels: { name: string; kernel: Kernel; exact: boolean }[] = [
      { name: "automap", kernel: tuned.best.kernel, exact: true },
    ];
    for (const [name, options] of variants(types, computation)) {
      const peer = onednnKernel(sum, {
        ...options,
        ...(epilogue ? { epilogue } : {}),
        threads,
        ...(values.isa === undefined ? {} : { maxIsa: values.isa }),
      });
      if (peer.status === "ready")
        kernels.push({
          name,
          kernel: renameOutput(peer.kernel, outputOf(computation).name),
          exact: options.algorithm !== "winograd",
        });
    }
    const measured = await measureTogether(runner, computation, kernels);
    const [ours, ...others] = measured;
    if (!ours) return undefined;
    const row: LayerRow = {
      id,
      types,
      output: values.output,
      threads,
      layout,
      ...(values.intrinsic === undefined ? {} : { intrinsic: values.intrinsic }),
      ...(values.isa === undefined ? {} : { isa: values.isa }),
      operations: operationsOf(computation),
      ...(await roofOf(computation, intrinsics)),
      trials: tuned.trials.length,
      candidate: candidateText(tuned.best.candidate),
      automap: timeOf(ours),
      peers: others.map((m, i) => {
        const ratio = ratioOf(m, ours);
        return { name: kernels[i + 1]?.name ?? "?", ...(ratio === undefined ? {} : { ratio }), time: timeOf(m) };
      }),
    };
    appendFileSync(jsonl, `${JSON.stringify(row)}\n`);
    const beside = row.peers.map((p) => `${p.name} ${timeText(p.time)} (${p.ratio?.toFixed(2) ?? "-"})`).join("  ");
    console.error(`${id.padEnd(7)} ${types.padEnd(5)} ${timeText(row.automap)}  ${beside}  ${row.candidate}`);
    return row;
  } finally {
    await runner.close();
  }
}

/** Renames a peer's output, which it calls by the sum's name, to the epilogue's result, as the reference does. */
function renameOutput(kernel: Kernel, name: string): Kernel {
  return { ...kernel, arguments: kernel.arguments.map((a) => (a.role === "output" ? { ...a, tensor: name } : a)) };
}

/** Winograd cannot match the exact sets, so with it among the kernels all are compared on random data. */
function measureTogether(
  runner: Runner,
  computation: Computation,
  kernels: readonly { kernel: Kernel; exact: boolean }[],
): Promise<readonly Measurement[]> {
  return runner.reference(computation, 1).then((reference) =>
    runner.compareKernels(
      kernels.map((k) => k.kernel),
      kernels.every((k) => k.exact) ? reference : randomSetOnly(reference),
      { budgetSeconds: 1 },
    ),
  );
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

function ratioOf(peer: Measurement, ours: Measurement): number | undefined {
  if (peer.status !== "ok" || ours.status !== "ok") return undefined;
  return summariseRatio(peer.samples, ours.samples, 1).median;
}

async function roofOf(computation: Computation, intrinsics: readonly Intrinsic[]): Promise<Pick<LayerRow, "roofline">> {
  const calibrated = await calibrateMachine(values.db);
  if (calibrated.status !== "calibrated") return {};
  const roofline = rooflineOf(computation, intrinsics, calibrated.target, threads);
  return roofline ? { roofline } : {};
}

function timeOf(m: Measurement): LayerTime {
  if (m.status === "ok")
    return { status: "ok", microseconds: m.median * 1e6, interval: [m.interval[0] * 1e6, m.interval[1] * 1e6] };
  return /^onednn: /m.test(m.log) ? { status: "none" } : { status: "failed", as: m.status, log: m.log.slice(0, 200) };
}

function report(): string {
  return [
    "# automap beside oneDNN",
    "",
    `${cpus()[0]?.model.trim()}; one process, batches in turns, warm caches; microseconds a call, median and half the 95 % interval; in parentheses the ratio oneDNN / automap.`,
    "",
    `    node dist/bench/layers/layers.js ${process.argv.slice(2).join(" ")}`,
    "",
    layerTables(rows),
  ].join("\n");
}
