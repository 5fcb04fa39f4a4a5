/**
 * @file automap against oneDNN, layer by layer: each layer is tuned, then the winner and oneDNN's kernels run in one process, batches in
 * turns, on the same inputs, each checked element by element first.
 *
 *     npm run build
 *     node dist/bench/layers.js                                             twelve ResNet-18 layers, f32, bf16, u8s8, one thread
 *     node dist/bench/layers.js --ops dep,grp --types f32 --threads 2 --seconds 20 --out bench/results/layers
 *     node dist/bench/layers.js --types u8s8 --intrinsic vnni --isa avx512_core_vnni
 *     node dist/bench/layers.js --types u8s8 --output u8                    scaled per channel, rectified, rounded and clamped to u8
 *     node dist/bench/layers.js --types bf16 --output bf16                  rounded to bf16
 *
 * oneDNN has its own choice of implementation and, in the column "own layouts", of activation layouts too, reordered outside the clock;
 * "NHWC" gives it the layout automap is given. Weights are packed ahead of time on both sides. Ratios above 1 say automap is faster;
 * they are medians of ratios of neighbouring batches.
 */

import { appendFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { type Computation, outputOf, targetOf } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { candidateText, placeText } from "../report/describe-candidate.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import { summariseRatio } from "../runtime/statistics.ts";
import { nativeIntrinsics, operationsOf, tuneComputation } from "../session/tune.ts";
import { ONEDNN_FLAGS, type OnednnEpilogue, type OnednnOptions, onednnKernel } from "./peers/onednn.ts";
import { randomSetOnly, withConstant } from "./peers/reference.ts";
import { layersNamed } from "./suite.ts";

const { values } = parseArgs({
  options: {
    ops: { type: "string", default: "c2d" },
    types: { type: "string", default: "f32,bf16,u8s8" },
    threads: { type: "string", default: "1" },
    seconds: { type: "string", default: "20" },
    trials: { type: "string", default: "400" },
    output: { type: "string", default: "sum" },
    intrinsic: { type: "string" },
    isa: { type: "string" },
    db: { type: "string", default: "bench.db" },
    out: { type: "string", default: "layers" },
  },
});

const configs = layersNamed(values.ops);
const threads = Number(values.threads);
const jsonl = `${values.out}.jsonl`;
writeFileSync(jsonl, "");

interface Row {
  readonly id: string;
  readonly types: string;
  readonly ours: Measurement;
  readonly peers: readonly {
    readonly name: string;
    readonly measured: Measurement;
    readonly ratio: number | undefined;
  }[];
}

const rows: Row[] = [];
for (const types of values.types.split(",")) {
  for (const { id, op, params } of configs) {
    const row = await compare(id, types, subjectOf(op, params, types));
    if (row) rows.push(row);
  }
}
writeFileSync(`${values.out}.md`, report());

interface Subject {
  /** What automap is given. */
  readonly computation: Computation;
  /** The same without the epilogue, and the epilogue in oneDNN's words. */
  readonly sum: Computation;
  readonly epilogue?: OnednnEpilogue;
}

/** Constant weights on both sides; activations in NHWC where there are any. */
function subjectOf(op: string, params: Readonly<Record<string, number>>, types: string): Subject {
  const isProduct = op === "gmm" || op === "gmv";
  const make = (epilogue?: string): Computation => {
    const computation = instantiate(operatorNamed(op), {
      parameters: params,
      types: parseDataTypes(types),
      ...(isProduct ? {} : { layouts: "NHWC" }),
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

async function compare(id: string, types: string, { computation, sum, epilogue }: Subject): Promise<Row | undefined> {
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
  if (made.status === "environment") throw new Error(`${made.what}: ${made.remedy}`);
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
    const peers = others.map((m, i) => ({ name: kernels[i + 1]?.name ?? "?", measured: m, ratio: ratioOf(m, ours) }));
    const { candidate } = tuned.best;
    appendFileSync(
      jsonl,
      `${JSON.stringify({ id, types, threads, computation: computation.name, operations: operationsOf(computation), trials: tuned.trials.length, intrinsic: candidate.intrinsic, matching: placeText(candidate), schedule: candidate.schedule, automap: brief(ours), peers: peers.map((p) => ({ name: p.name, ratio: p.ratio, ...brief(p.measured) })) })}\n`,
    );
    console.error(
      `${id.padEnd(7)} ${types.padEnd(5)} ${text(ours)}  ${peers.map((p) => `${p.name} ${text(p.measured)} (${p.ratio?.toFixed(2) ?? "-"})`).join("  ")}  ${candidateText(candidate)}`,
    );
    return { id, types, ours, peers };
  } finally {
    await runner.close();
  }
}

/** The peer calls its output what the sum is called; the reference calls it what the epilogue assigns. */
function renameOutput(kernel: Kernel, name: string): Kernel {
  return { ...kernel, arguments: kernel.arguments.map((a) => (a.role === "output" ? { ...a, tensor: name } : a)) };
}

/** Winograd cannot be held to the exact sets: with it among the kernels, all are judged on random data. */
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
    ["oneDNN, NHWC", { algorithm: "direct", activations: "given" }],
  ];
  return types === "f32" && computation.name === "conv2d"
    ? [...direct, ["oneDNN Winograd", { algorithm: "winograd", activations: "preferred" }]]
    : direct;
}

function ratioOf(peer: Measurement, ours: Measurement): number | undefined {
  if (peer.status !== "ok" || ours.status !== "ok") return undefined;
  return summariseRatio(peer.samples, ours.samples, 1).median;
}

function brief(m: Measurement): Record<string, unknown> {
  return m.status === "ok"
    ? { status: "ok", microseconds: m.median * 1e6, interval: m.interval.map((s) => s * 1e6) }
    : { status: m.status, log: m.log.slice(0, 200) };
}

function text(m: Measurement): string {
  if (m.status !== "ok") return /^onednn: /m.test(m.log) ? "none" : m.status;
  const half = (100 * (m.interval[1] - m.interval[0])) / 2 / m.median;
  return `${(m.median * 1e6).toFixed(1)} ±${half.toFixed(1)}%`;
}

function report(): string {
  const lines = [
    "# automap beside oneDNN",
    "",
    `${cpus()[0]?.model.trim()}, ${threads} thread${threads === 1 ? "" : "s"}; one process, batches in turns, ${values.output === "sum" ? "" : `outputs in ${values.output}, `}warm caches; microseconds a call, median and half the 95 % interval; in parentheses the ratio oneDNN / automap.`,
    "",
    `    node dist/bench/layers.js ${process.argv.slice(2).join(" ")}`,
  ];
  for (const types of values.types.split(",")) {
    const own = rows.filter((r) => r.types === types);
    if (own.length === 0) continue;
    const names = [...new Set(own.flatMap((r) => r.peers.map((p) => p.name)))];
    lines.push(
      "",
      `## ${types}`,
      "",
      `| layer | automap | ${names.join(" | ")} |`,
      `|---|---|${names.map(() => "---|").join("")}`,
    );
    for (const r of own) {
      const cells = names.map((name) => {
        const p = r.peers.find((x) => x.name === name);
        return p ? `${text(p.measured)}${p.ratio === undefined ? "" : ` (${p.ratio.toFixed(2)})`}` : "";
      });
      lines.push(`| ${r.id} | ${text(r.ours)} | ${cells.join(" | ")} |`);
    }
    const geomeans = names.map((name) => {
      const ratios = own.flatMap((r) => r.peers.filter((p) => p.name === name).flatMap((p) => p.ratio ?? []));
      return ratios.length === 0
        ? ""
        : `${Math.exp(ratios.reduce((s, x) => s + Math.log(x), 0) / ratios.length).toFixed(2)} (${ratios.length} layers)`;
    });
    const best = own.flatMap((r) => {
      const ratios = r.peers.filter((p) => !p.name.includes("Winograd")).flatMap((p) => p.ratio ?? []);
      return ratios.length > 0 ? [Math.min(...ratios)] : [];
    });
    lines.push(`| geomean | | ${geomeans.join(" | ")} |`);
    if (best.length > 0)
      lines.push(
        "",
        `Against the faster of oneDNN's direct variants: ${Math.exp(best.reduce((s, x) => s + Math.log(x), 0) / best.length).toFixed(2)}x by geomean.`,
      );
  }
  return `${lines.join("\n")}\n`;
}
