/**
 * @file Lane kernels against the compiler's loops and OpenCV. The most promising lane schedules of a case are compiled,
 * checked element by element and timed; the best then runs in turns with the peers in one process, on the same memory.
 *
 *     npm run build
 *     node dist/bench/lanes/stencils.js                                     convolutions and stencils, f32, one thread
 *     node dist/bench/lanes/stencils.js --cases 2d5pt,conv9 --sizes 1024 --candidates 24 --threads 2
 *     node dist/bench/lanes/stencils.js --type f64 --out bench/results/stencils-f64          or f16 and s16, on lanes of 16 bits
 *     node dist/bench/lanes/stencils.js --sizes 8192 --peers none           beside copies alone
 *
 * Ratios are medians over neighbouring batches; above 1 automap is faster. "gcc" is the faster of two forms of the same
 * loops (peers/loops.ts). OpenCV's and Halide's columns need libopencv-imgproc-dev and libhalide14-0-dev. Bandwidth
 * counts each input and output once, beside a copy of as many elements, measured before the first case that has so many.
 *
 * The bound of a case estimates what a kernel that multiplies each tap can reach: the greater of the copy's time and of
 * the products' at the calibrated rate of multiply-adds on whole vectors. It is no proof: a copy may be beaten.
 */

import { writeFileSync } from "node:fs";
import type { WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { tapsOf } from "../../mapper/space-time/taps.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import type { Runner } from "../../runtime/measure.ts";
import type { Reference } from "../../runtime/reference/verify.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { registersOf, windowLanes } from "../../session/kinds/window-kinds.ts";
import { nativeTarget } from "../../targets/native.ts";
import { printWindow } from "../../test/support/lane-cases.ts";
import { windowSpace } from "../../tuner/lane-candidates.ts";
import type { ListedSpace } from "../../tuner/listed-space.ts";
import { HALIDE_SCHEDULES, halideKernel } from "../peers/halide.ts";
import { filter2dKernel, loopsKernel, type Peer } from "../peers/loops.ts";
import {
  calibratedTarget,
  cpuName,
  cpuRunner,
  leastOf,
  geomean as meanOf,
  page,
  ratioOf,
  table,
  threadsText,
  timeOf,
  timeText,
  us,
  writerTo,
} from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { rankWindows } from "./rank-windows.ts";
import { COPIED_COLUMNS, copySeconds, exactReference, kernelOf, secondsOf } from "./stencil-bounds.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "conv2,conv5,conv9,conv31,conv3x3,conv5x5,conv9x9,2d5pt,2d9pt,3d7pt,3d27pt" },
    sizes: { type: "string", default: "1024,8192" },
    type: { type: "string", default: "f32" },
    threads: { type: "string", default: "1" },
    candidates: { type: "string", default: "16" },
    seconds: { type: "string", default: "0.25" },
    peers: { type: "string", default: "gcc,OpenCV,Halide" },
    out: { type: "string", default: "stencils" },
  },
});

const threads = Number(values.threads);
const type = wordOf("type", values.type, ["f32", "f64", "f16", "s16"]);
const found = windowLanes(type, usableIntrinsics(nativeTarget()));
if (!found) throw new UsageError(`--type: no lanes of this machine hold ${type}`);
const multiplyAdd = found;
/** The type of what is copied beside the kernels. */
const copied: "f32" | "f64" = type === "f64" ? "f64" : "f32";

// The calibration decides which schedules are tried.
const target = await calibratedTarget();
const jsonl = `${values.out}.jsonl`;
writeFileSync(jsonl, "");
const write = writerTo(jsonl);

/** `side` is the side of an image. Signals and grids have about as many points in all. */
function subject(name: string, side: number): Computation {
  const make = (operator: string, parameters: Readonly<Record<string, number>>): Computation =>
    instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(`${type}->${type}`) });
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
  readonly schedule: WindowSchedule;
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

/** Goal for kernels that the copy bounds: this share of its rate. */
const GOAL = 0.9;
/** Seconds of copies, by their elements. */
const copies = new Map<number, number>();

const rows: Row[] = [];
const sides = values.sizes.split(",").map(Number);
for (const side of sides)
  if (!(side > 0 && side ** 2 % COPIED_COLUMNS === 0))
    throw new UsageError(`--sizes: ${side} is no multiple of 128`, "a copy of as many elements stands beside");
for (const side of sides)
  for (const name of values.cases.split(",")) {
    const row = await compare(`${name} ${side}`, subject(name, side));
    if (row) rows.push(row);
  }
writeFileSync(`${values.out}.md`, report());
console.error(`written: ${values.out}.md, ${jsonl}`);

async function compare(id: string, computation: Computation): Promise<Row | undefined> {
  const runner = await cpuRunner({
    threads,
    memoryBytes: 2 ** 33,
    // Halide compiles in its first call, on one thread after another.
    stepSeconds: 240,
    budgetSeconds: Number(values.seconds),
  });
  try {
    // 1. The best of the most promising schedules.
    const space = windowSpace(computation, { threads, target, vectors: registersOf(multiplyAdd) });
    if ("because" in space) throw new Error(`${id}: ${space.because}`);
    // Words of 16 bits are compared on all sets of inputs: they wrap.
    const reference = await (type === copied ? exactReference(computation, runner) : runner.reference(computation, 1));
    const [best, ...others] = await tried(id, space, computation, runner, reference);
    if (!best) throw new Error(`${id}: nothing was tried`);

    // 2. A copy of the same bytes.
    const bytes = [outputOf(computation), inputsOf(computation)[0]].reduce(
      (sum, t) => sum + (t ? elementCount(t) * bytesOf(t.dtype) : 0),
      0,
    );
    const elements = (elementCount(outputOf(computation)) * bytesOf(type)) / bytesOf(copied);
    const copy = copies.get(elements) ?? (await copySeconds(elements, { runner, type: copied, threads }));
    copies.set(elements, copy);
    const products = productSeconds(computation);

    // 3. In turns with the peers.
    const peers = await peersOf(computation, runner);
    for (const { name, peer } of peers)
      if (peer.status === "refused" && !peer.reason.startsWith("dimensions"))
        console.error(`${id}: ${name}: ${peer.reason}`);
    const ready = peers.flatMap(({ name, peer }) => (peer.status === "ready" ? [{ name, kernel: peer.kernel }] : []));
    const [ours, ...theirs] = await runner.compareKernels(
      [kernelOf(computation, best), ...ready.map((p) => p.kernel)],
      reference,
      { budgetSeconds: 4 * Number(values.seconds) },
    );
    if (!ours) return undefined;
    const row: Row = {
      id,
      bytes,
      operations: operationsOf(computation),
      schedule: best,
      ours,
      copy,
      products,
      peers: theirs.map((m, i) => ({ name: ready[i]?.name ?? "?", measured: m, ratio: ratioOf(m, ours) })),
    };
    const timed = row.peers.map(({ measured, ...peer }) => ({ ...peer, ...timeOf(measured) }));
    write({ ...row, type, threads, tried: others.length + 1, ours: timeOf(ours), peers: timed });
    const beside = row.peers.map((p) => `${p.name} ${timeText(p.measured)} (${p.ratio?.toFixed(2) ?? "-"})`);
    const bounds = `copy ${us(row.copy)}  products ${us(products)}`;
    console.error([id.padEnd(13), timeText(ours), bounds, ...beside, printWindow(best)].join("  "));
    return row;
  } finally {
    await runner.close();
  }
}

/** The most promising schedules, the fastest first. */
async function tried(
  id: string,
  space: ListedSpace<WindowSchedule>,
  computation: Computation,
  runner: Runner,
  reference: Reference,
): Promise<readonly WindowSchedule[]> {
  const schedules = rankWindows(space, Number(values.candidates));
  const measured = await runner.compareKernels(
    schedules.map((schedule) => kernelOf(computation, schedule)),
    reference,
  );
  const timed = schedules.map((schedule, i) => ({ schedule, seconds: leastOf(measured[i]) }));
  for (const [i, { schedule, seconds }] of timed.entries()) {
    const m = measured[i];
    if (m?.status !== "ok") console.error(`${id}: ${printWindow(schedule)}: ${m?.status} ${m?.log}`);
    else if (process.env["AUTOMAP_DEBUG"])
      console.error(
        `  ${(seconds * 1e3).toFixed(3)} ms at least (expected ${(space.expectedSeconds(schedule) * 1e3).toFixed(3)})  ${printWindow(schedule)}`,
      );
  }
  return timed
    .filter(({ seconds }) => Number.isFinite(seconds))
    .sort((a, b) => a.seconds - b.seconds)
    .map(({ schedule }) => schedule);
}

async function peersOf(
  computation: Computation,
  runner: Runner,
): Promise<readonly { readonly name: string; readonly peer: Peer }[]> {
  const options = { compiler: runner.compiler, workdir: runner.workdir };
  const wanted = values.peers.split(",");
  const peers: { name: string; peer: Peer }[] = [];
  if (wanted.includes("gcc"))
    peers.push(
      { name: "gcc, window innermost", peer: await loopsKernel(computation, "window", options) },
      { name: "gcc, row by row", peer: await loopsKernel(computation, "rows", options) },
    );
  if (wanted.includes("OpenCV") && threads === 1)
    peers.push({ name: "OpenCV", peer: await filter2dKernel(computation, options) });
  if (wanted.includes("Halide"))
    for (const schedule of HALIDE_SCHEDULES)
      peers.push({ name: `Halide, ${schedule}`, peer: await halideKernel(computation, schedule, options) });
  return peers;
}

/** Counts a product and a sum for each tap of each output. */
function operationsOf(computation: Computation): number {
  const verdict = tapsOf(computation);
  return verdict.ok ? 2 * verdict.sum.taps.length * elementCount(outputOf(computation)) : 0;
}

/** Seconds of a multiply-add for each tap of each output, on whole vectors, all threads busy. */
function productSeconds(computation: Computation): number {
  const bytes = bytesOf(outputOf(computation).dtype);
  // Multiply-adds of words are not calibrated.
  const issue = target.timings[multiplyAdd.name]?.issueCycles ?? 0;
  return (
    (((operationsOf(computation) / 2) * bytes) / registersOf(multiplyAdd).bytes) *
    (issue / target.clockHz.value / threads)
  );
}

function boundOf({ copy, products }: Row): number {
  return Math.max(copy, products);
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
  return ratios.length === 0 ? "-" : meanOf(ratios).toFixed(2);
}

/** The kernel's rate over the copy's. */
function ofCopy({ copy, ours }: Row): number {
  return copy / secondsOf(ours);
}

function percent(share: number): string {
  return `${(100 * share).toFixed(0)} %`;
}

function report(): string {
  const names = [...new Set(rows.flatMap((r) => r.peers.map((p) => p.name)))];
  const [loops = [], halide = []] = ["gcc", "Halide"].map((peer) => rows.flatMap((r) => against(peer, r) ?? []));
  const opencv = rows.flatMap((r) => r.peers.filter((p) => p.name === "OpenCV").flatMap((p) => p.ratio ?? []));
  const forms = names
    .filter((name) => name.startsWith("gcc"))
    .map((name) => `${name.slice("gcc, ".length)} alone ${geomean(rows.flatMap((r) => against(name, r) ?? []))}x`);
  const atCopy = (r: Row): boolean => ofCopy(r) >= GOAL;
  const bound = rows.filter(atCopy);
  const free = rows.filter((r) => !atCopy(r));
  const copies = rows.filter((r) => r.copy >= r.products);
  return page(
    "Lane kernels beside the compiler's loops",
    `${cpuName()}, ${type}, ${threadsText(threads)}; one process, batches in turns, the call before has just used the data; microseconds a call, median and half the 95 % interval; in parentheses the ratio peer / automap. gcc is \`g++ -O3 -march=native\`. GB/s counts every input and output once; copy is the fastest copy of as many output elements, measured before the first case that has so many. bound is the greater of the copy's time and that of a multiply-add for each tap of each output, on whole vectors, at the calibrated rate.`,
    ...table(
      ["case", "automap", "bound", "GFLOP/s", "GB/s", "of the copy's", ...names, "schedule"],
      rows.map((r) => {
        const rate = (amount: number): string => (amount / secondsOf(r.ours) / 1e9).toFixed(1);
        const cells = names.map((name) => {
          const p = r.peers.find((x) => x.name === name);
          return p ? `${timeText(p.measured)}${p.ratio === undefined ? "" : ` (${p.ratio.toFixed(2)})`}` : "";
        });
        const bound = `${(boundOf(r) * 1e6).toFixed(0)} (${r.products > r.copy ? "products" : "copy"})`;
        const rates = [rate(r.operations), rate(r.bytes), percent(ofCopy(r))];
        return [r.id, timeText(r.ours), bound, ...rates, ...cells, printWindow(r.schedule)];
      }),
    ),
    "",
    `Against the faster form of the compiler's loops: ${geomean(loops)}x by geomean of ${loops.length} (${forms.join(", ")}); against OpenCV ${geomean(opencv)}x of ${opencv.length}; against Halide by the fastest of its schedules ${geomean(halide)}x of ${halide.length}.`,
    "",
    `At its bound in every case automap would be ${geomean(rows.flatMap((r) => loopsAgainst(r, boundOf(r))))}x as fast as the faster form of the compiler's loops; it is at ${geomean(rows.map((r) => secondsOf(r.ours) / boundOf(r)))}x the bounds' times. Where the copy is the bound (${copies.length} cases), ${copies.filter(atCopy).length} run at 90 % of it or more.`,
    "",
    `${bound.length} of ${rows.length} cases run at 90 % of the copy's rate or more. There automap is ${geomean(bound.flatMap((r) => against("gcc", r) ?? []))}x as fast as the faster form of the compiler's loops, and the copy that was measured would be ${geomean(bound.flatMap((r) => loopsAgainst(r, r.copy)))}x. In the other ${free.length} it is ${geomean(free.flatMap((r) => against("gcc", r) ?? []))}x.`,
  );
}
