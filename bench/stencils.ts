/**
 * @file Lane kernels against the compiler's loops and OpenCV. The most promising lane schedules of a case are compiled,
 * checked element by element and timed; the best then runs in turns with the peers in one process, on the same memory.
 *
 *     npm run build
 *     node dist/bench/stencils.js                                     convolutions and stencils, f32, one thread
 *     node dist/bench/stencils.js --cases 2d5pt,conv9 --sizes 1024 --candidates 24 --threads 2
 *     node dist/bench/stencils.js --type f64 --out bench/results/stencils-f64
 *
 * Ratios are medians over neighbouring batches; above 1 automap is faster. "gcc" is the faster of two forms of the same
 * loops (peers/loops.ts). OpenCV's and Halide's columns need libopencv-imgproc-dev and libhalide14-0-dev. Bandwidth
 * counts each input and output once, beside a copy of as many elements, measured before the first case that has so many.
 *
 * The bound of a case estimates what a kernel that multiplies each tap can reach: the greater of the copy's time and of
 * the products' at the calibrated rate of multiply-adds on whole vectors. It is no proof: a copy may be beaten.
 */

import { appendFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import type { LaneSchedule } from "../abstraction/candidate.ts";
import { type Computation, defineComputation, elementCount, inputsOf, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { type Random, randomInteger, seededRandom } from "../abstraction/random.ts";
import { code, type SourceText } from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { generateLanes } from "../codegen/lanes.ts";
import { printLaneSchedule } from "../mapper/schedule/lanes.ts";
import { lowerLanes } from "../mapper/space-time/lower-window.ts";
import { tapsOf } from "../mapper/space-time/taps.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { encodeElements } from "../runtime/bytes.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import { interpretCompiled } from "../runtime/reference-program.ts";
import { summariseRatio } from "../runtime/statistics.ts";
import type { Reference } from "../runtime/verify.ts";
import { calibrateMachine } from "../session/calibrate.ts";
import { ZMM } from "../targets/x86.ts";
import { laneSpace, rankLanes } from "../tuner/lane-candidates.ts";
import { readOptions } from "./options.ts";
import { HALIDE_SCHEDULES, halideKernel } from "./peers/halide.ts";
import { filter2dKernel, loopsKernel, type Peer } from "./peers/loops.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "conv2,conv5,conv9,conv31,conv3x3,conv5x5,conv9x9,2d5pt,2d9pt,3d7pt,3d27pt" },
    sizes: { type: "string", default: "1024,8192" },
    type: { type: "string", default: "f32" },
    threads: { type: "string", default: "1" },
    candidates: { type: "string", default: "16" },
    seconds: { type: "string", default: "0.25" },
    out: { type: "string", default: "stencils" },
  },
});

const threads = Number(values.threads);

// The calibration decides which schedules are tried.
const calibrated = await calibrateMachine(":memory:", {}, (text) => console.error(text));
if (calibrated.status === "environment") throw new EnvironmentError(calibrated.problem);
const { target } = calibrated;
const jsonl = `${values.out}.jsonl`;
writeFileSync(jsonl, "");

/** `side` is the side of an image. Signals and grids have about as many points in all. */
function subject(name: string, side: number): Computation {
  const make = (operator: string, parameters: Readonly<Record<string, number>>): Computation =>
    instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(values.type) });
  const line = /^conv(\d+)$/.exec(name);
  const box = /^conv(\d+)x\d+$/.exec(name);
  if (line) {
    const r = Number(line[1]);
    return make("conv1d-single", { l: side * side + r - 1, r });
  }
  if (box) {
    const r = Number(box[1]);
    return make("conv2d-single", { h: side, w: side, r, s: r, pad: Math.floor((r - 1) / 2) });
  }
  if (!name.startsWith("3d")) return make(name, { h: side, w: side });
  // 512 cubed is twice 8192 squared, 128 cubed twice 1024 squared.
  const edge = side >= 4096 ? 512 : 128;
  return make(name, { d: edge, h: edge, w: edge });
}

interface Row {
  readonly id: string;
  readonly bytes: number;
  readonly operations: number;
  readonly schedule: LaneSchedule;
  readonly ours: Measurement;
  readonly copy: number;
  /** Seconds of the products alone. */
  readonly products: number;
  readonly peers: readonly {
    readonly name: string;
    readonly measured: Measurement;
    readonly ratio: number | undefined;
  }[];
}

/** Columns of a copy in rows. All cases have a multiple of so many outputs. */
const COPIED_COLUMNS = 8192;
/** Seconds of copies that were measured, by their elements. */
const copies = new Map<number, number>();

const rows: Row[] = [];
const sides = values.sizes.split(",").map(Number);
for (const side of sides)
  if (!(side > 0 && side ** 2 % COPIED_COLUMNS === 0))
    throw new UsageError(`--sizes: ${side} is no multiple of 128`, {
      hint: "a copy of as many elements stands beside",
    });
for (const side of sides)
  for (const name of values.cases.split(",")) {
    const row = await compare(`${name} ${side}`, subject(name, side));
    if (row) rows.push(row);
  }
writeFileSync(`${values.out}.md`, report());
console.error(`written: ${values.out}.md, ${jsonl}`);

async function compare(id: string, computation: Computation): Promise<Row | undefined> {
  const made = await createRunner({
    threads,
    memoryBytes: 2 ** 33,
    // Halide compiles in its first call, on one thread after another.
    stepSeconds: 240,
    budgetSeconds: Number(values.seconds),
  });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  try {
    // 1. The best of the most promising schedules.
    const space = laneSpace(computation, { threads, target });
    if ("because" in space) throw new Error(`${id}: ${space.because}`);
    const reference = await exactReference(computation, runner);
    const tried = rankLanes(space, Number(values.candidates)).map((schedule) => ({
      schedule,
      kernel: kernelOf(computation, schedule),
    }));
    const measured = await runner.compareKernels(
      tried.map((t) => t.kernel),
      reference,
    );
    for (const [i, m] of measured.entries())
      if (m.status !== "ok")
        console.error(`${id}: ${tried[i] ? printLaneSchedule(tried[i].schedule) : ""}: ${m.status} ${m.log}`);
      else if (process.env["AUTOMAP_DEBUG"])
        console.error(
          `  ${(leastOf(m) * 1e3).toFixed(3)} ms at least (expected ${((tried[i] ? space.expectedSeconds(tried[i].schedule) : 0) * 1e3).toFixed(3)})  ${tried[i] ? printLaneSchedule(tried[i].schedule) : ""}`,
        );
    const best = tried
      .map((t, i) => ({ ...t, seconds: leastOf(measured[i]) }))
      .reduce((a, b) => (b.seconds < a.seconds ? b : a));

    // 2. A copy of the same bytes.
    const bytes = [outputOf(computation), inputsOf(computation)[0]].reduce(
      (sum, t) => sum + (t ? elementCount(t) * bytesOf(t.dtype) : 0),
      0,
    );
    const elements = elementCount(outputOf(computation));
    const copy = copies.get(elements) ?? (await copySeconds(elements, runner));
    copies.set(elements, copy);

    // 3. In turns with the peers.
    const peers = await peersOf(computation, runner);
    for (const { name, peer } of peers)
      if (peer.status === "refused" && !peer.reason.startsWith("dimensions"))
        console.error(`${id}: ${name}: ${peer.reason}`);
    const ready = peers.flatMap(({ name, peer }) => (peer.status === "ready" ? [{ name, kernel: peer.kernel }] : []));
    const [ours, ...others] = await runner.compareKernels([best.kernel, ...ready.map((p) => p.kernel)], reference, {
      budgetSeconds: 4 * Number(values.seconds),
    });
    if (!ours) return undefined;
    const row: Row = {
      id,
      bytes,
      operations: operationsOf(computation),
      schedule: best.schedule,
      ours,
      copy,
      products: productSeconds(computation),
      peers: others.map((m, i) => ({ name: ready[i]?.name ?? "?", measured: m, ratio: ratioOf(m, ours) })),
    };
    appendFileSync(
      jsonl,
      `${JSON.stringify({ id, type: values.type, threads, bytes, operations: row.operations, tried: tried.length, schedule: best.schedule, automap: brief(ours), copyMicroseconds: copy * 1e6, productMicroseconds: row.products * 1e6, peers: row.peers.map((p) => ({ name: p.name, ratio: p.ratio, ...brief(p.measured) })) })}\n`,
    );
    console.error(
      `${id.padEnd(13)} ${text(ours)}  copy ${(copy * 1e6).toFixed(0)}  products ${(row.products * 1e6).toFixed(0)}  ${row.peers.map((p) => `${p.name} ${text(p.measured)} (${p.ratio?.toFixed(2) ?? "-"})`).join("  ")}  ${printLaneSchedule(best.schedule)}`,
    );
    return row;
  } finally {
    await runner.close();
  }
}

async function peersOf(
  computation: Computation,
  runner: Runner,
): Promise<readonly { readonly name: string; readonly peer: Peer }[]> {
  const options = { compiler: runner.compiler, workdir: runner.workdir };
  const peers: { name: string; peer: Peer }[] = [
    { name: "gcc, window innermost", peer: await loopsKernel(computation, "window", options) },
    { name: "gcc, row by row", peer: await loopsKernel(computation, "rows", options) },
    ...(threads === 1 ? [{ name: "OpenCV", peer: await filter2dKernel(computation, options) }] : []),
  ];
  for (const schedule of HALIDE_SCHEDULES)
    peers.push({
      name: `Halide, ${schedule}`,
      peer: await halideKernel(computation, schedule, options),
    });
  return peers;
}

function kernelOf(computation: Computation, schedule: LaneSchedule): Kernel {
  const notes = { lines: [printLaneSchedule(schedule), "made by node dist/bench/stencils.js"] };
  return generateLanes("c++", computation, lowerLanes(computation, schedule), notes, { streaming: schedule.streaming });
}

/**
 * Small integers, whose sums are exact. The full reference sets would take gigabytes; tests use them on small shapes.
 */
async function exactReference(computation: Computation, runner: Runner): Promise<Reference> {
  const random = seededRandom(1);
  const inputs = Object.fromEntries(inputsOf(computation).map((t) => [t.name, smallIntegers(elementCount(t), random)]));
  const expected = await interpretCompiled(computation, inputs, { compiler: runner.compiler, workdir: runner.workdir });
  return {
    computation,
    checked: undefined,
    sets: [
      {
        name: "exact",
        inputs: Object.fromEntries(
          inputsOf(computation).map((t) => [t.name, encodeElements(t.dtype, inputs[t.name] ?? [])]),
        ),
        expected,
        tolerance: new Float64Array(expected.length),
      },
    ],
  };
}

/** Integers from -3 to 3 by a congruential generator, which draws 134 million within a second. */
function smallIntegers(count: number, random: Random): Float64Array {
  const drawn = new Float64Array(count);
  let state = randomInteger(random, 0, 2 ** 31 - 1);
  for (let i = 0; i < count; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    drawn[i] = ((state >>> 16) % 7) - 3;
  }
  return drawn;
}

/** The fastest known copy: memcpy, or our own loads with non-temporal stores, of one row or several at once. */
async function copySeconds(elements: number, runner: Runner): Promise<number> {
  const computation = defineComputation({
    name: "copy",
    equation: "out[i,j] = in[i,j]",
    extents: { i: elements / COPIED_COLUMNS, j: COPIED_COLUMNS },
    tensors: { in: values.type === "f64" ? "f64" : "f32" },
  });
  const reference = await exactReference(computation, runner);
  const plain: Omit<LaneSchedule, "streaming" | "prefetchBytes"> = {
    ...{ dataflow: "FBS-load", lanes: values.type === "f64" ? 8 : 16, rows: 1, vectors: 4, rolled: [] },
    ...{ weights: "memory", borders: "peeled", strip: 0, threads },
  };
  const streamed = [1, 4].flatMap((rows) =>
    [512, 2048, 8192].map((prefetchBytes) => kernelOf(computation, { ...plain, rows, streaming: true, prefetchBytes })),
  );
  const [first] = streamed;
  if (!first) throw new Error("internal: no copy");
  const memcpy = { ...first, source: memcpySource(elements, bytesOf(outputOf(computation).dtype)) };
  const measured = await runner.compareKernels(
    [memcpy, kernelOf(computation, { ...plain, streaming: false, prefetchBytes: 0 }), ...streamed],
    reference,
  );
  return Math.min(...measured.map(secondsOf));
}

function memcpySource(elements: number, bytes: number): SourceText {
  const text = code`#include <string.h>
extern "C" unsigned long automap_workspace_bytes(void) { return 64; }
extern "C" int automap_phases(void) { return 1; }
extern "C" void automap_prepare(void*, const void* const*) {}
extern "C" void automap_run(void*, void* const* tensors, int, int part, int parts) {
  const long from = ${elements}L * part / parts * ${bytes}, to = ${elements}L * (part + 1) / parts * ${bytes};
  memcpy((char*)tensors[0] + from, (const char*)tensors[1] + from, to - from);
}
`;
  return spell(text, "c++");
}

/** Counts a product and a sum for each tap of each output. */
function operationsOf(computation: Computation): number {
  const verdict = tapsOf(computation);
  return verdict.ok ? 2 * verdict.sum.taps.length * elementCount(outputOf(computation)) : 0;
}

/** Seconds of a multiply-add for each tap of each output, on whole vectors, all threads busy. */
function productSeconds(computation: Computation): number {
  const bytes = bytesOf(outputOf(computation).dtype);
  const issue = target.timings[`avx512.fma.${values.type}`]?.issueCycles;
  if (issue === undefined) throw new Error(`internal: multiply-adds of ${values.type} are not calibrated`);
  return (((operationsOf(computation) / 2) * bytes) / ZMM.bytes) * (issue / target.clockHz.value / threads);
}

function boundOf({ copy, products }: Row): number {
  return Math.max(copy, products);
}

function secondsOf(m: Measurement | undefined): number {
  return m?.status === "ok" ? m.median : Number.POSITIVE_INFINITY;
}

/** Candidates are ranked by their least time: on a busy machine a median shows which one was interrupted. */
function leastOf(m: Measurement | undefined): number {
  return m?.status === "ok" ? Math.min(...m.samples) : Number.POSITIVE_INFINITY;
}

function ratioOf(peer: Measurement, ours: Measurement): number | undefined {
  return peer.status === "ok" && ours.status === "ok"
    ? summariseRatio(peer.samples, ours.samples, 1).median
    : undefined;
}

function brief(m: Measurement): Record<string, unknown> {
  return m.status === "ok"
    ? { status: "ok", microseconds: m.median * 1e6, interval: m.interval.map((s) => s * 1e6) }
    : { status: m.status, log: m.log.slice(0, 200) };
}

function text(m: Measurement): string {
  if (m.status !== "ok") return m.status;
  const half = (100 * (m.interval[1] - m.interval[0])) / 2 / m.median;
  return `${(m.median * 1e6).toFixed(1)} ±${half.toFixed(1)}%`;
}

/** The smallest ratio over the forms of a peer. */
function against(peer: string, row: Row): number | undefined {
  const ratios = row.peers.filter((p) => p.name.startsWith(peer)).flatMap((p) => p.ratio ?? []);
  return ratios.length === 0 ? undefined : Math.min(...ratios);
}

/** Time of the faster compiler's loops over some seconds. */
function loopsAgainst({ peers }: Row, seconds: number): number[] {
  const loops = peers.filter((p) => p.name.startsWith("gcc")).map((p) => secondsOf(p.measured));
  return [Math.min(...loops) / seconds].filter(Number.isFinite);
}

function geomean(ratios: readonly number[]): string {
  return ratios.length === 0 ? "-" : Math.exp(ratios.reduce((s, x) => s + Math.log(x), 0) / ratios.length).toFixed(2);
}

function report(): string {
  const names = [...new Set(rows.flatMap((r) => r.peers.map((p) => p.name)))];
  const [loops = [], halide = []] = ["gcc", "Halide"].map((peer) => rows.flatMap((r) => against(peer, r) ?? []));
  const opencv = rows.flatMap((r) => r.peers.filter((p) => p.name === "OpenCV").flatMap((p) => p.ratio ?? []));
  const forms = names
    .filter((name) => name.startsWith("gcc"))
    .map((name) => `${name.slice("gcc, ".length)} alone ${geomean(rows.flatMap((r) => against(name, r) ?? []))}x`);
  const atCopy = (r: Row): boolean => r.copy >= 0.9 * secondsOf(r.ours);
  const [bound, free] = [rows.filter(atCopy), rows.filter((r) => !atCopy(r))];
  const copies = rows.filter((r) => r.copy >= r.products);
  return [
    "# Lane kernels beside the compiler's loops",
    "",
    `${cpus()[0]?.model.trim()}, ${values.type}, ${threads} thread${threads === 1 ? "" : "s"}; one process, batches in turns, the call before has just used the data; microseconds a call, median and half the 95 % interval; in parentheses the ratio peer / automap. gcc is \`g++ -O3 -march=native\`. GB/s counts every input and output once; copy is the fastest copy of as many output elements, measured before the first case that has so many. bound is the greater of the copy's time and that of a multiply-add for each tap of each output, on whole vectors, at the calibrated rate.`,
    "",
    `    node dist/bench/stencils.js ${process.argv.slice(2).join(" ")}`,
    "",
    `| case | automap | bound | GFLOP/s | GB/s | of the copy's | ${names.join(" | ")} | schedule |`,
    `|---|---|---|---|---|---|${names.map(() => "---|").join("")}---|`,
    ...rows.map((r) => {
      const seconds = secondsOf(r.ours);
      const cells = names.map((name) => {
        const p = r.peers.find((x) => x.name === name);
        return p ? `${text(p.measured)}${p.ratio === undefined ? "" : ` (${p.ratio.toFixed(2)})`}` : "";
      });
      const rate = (amount: number): string => (amount / seconds / 1e9).toFixed(1);
      return `| ${r.id} | ${text(r.ours)} | ${(boundOf(r) * 1e6).toFixed(0)} (${r.products > r.copy ? "products" : "copy"}) | ${rate(r.operations)} | ${rate(r.bytes)} | ${((100 * r.copy) / seconds).toFixed(0)} % | ${cells.join(" | ")} | ${printLaneSchedule(r.schedule)} |`;
    }),
    "",
    `Against the faster form of the compiler's loops: ${geomean(loops)}x by geomean of ${loops.length} (${forms.join(", ")}); against OpenCV ${geomean(opencv)}x of ${opencv.length}; against Halide by the fastest of its schedules ${geomean(halide)}x of ${halide.length}.`,
    "",
    `At its bound in every case automap would be ${geomean(rows.flatMap((r) => loopsAgainst(r, boundOf(r))))}x as fast as the faster form of the compiler's loops; it is at ${geomean(rows.map((r) => secondsOf(r.ours) / boundOf(r)))}x the bounds' times. Where the copy is the bound (${copies.length} cases), ${copies.filter(atCopy).length} run at 90 % of it or more.`,
    "",
    `${bound.length} of ${rows.length} cases run at 90 % of the copy's rate or more. There automap is ${geomean(bound.flatMap((r) => against("gcc", r) ?? []))}x as fast as the faster form of the compiler's loops, and the copy that was measured would be ${geomean(bound.flatMap((r) => loopsAgainst(r, r.copy)))}x. In the other ${free.length} it is ${geomean(free.flatMap((r) => against("gcc", r) ?? []))}x.`,
    "",
  ].join("\n");
}
