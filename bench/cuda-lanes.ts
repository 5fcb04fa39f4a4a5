/**
 * @file Filters and stencils on this machine's GPU as `tune` finds them: each is searched for a few seconds from an
 * empty database, beside NPP and a copy of the same bytes in the same run.
 *
 *     npm run build
 *     node dist/bench/cuda-lanes.js --out lanes.jsonl       filters 2 to 20, fifteen stencils, f32 and f64: 49 searches
 *     node dist/bench/cuda-lanes.js --cases "filter 5:f32,filter 5:f16"          pairs of f16 beside f32
 *     node dist/bench/cuda-lanes.js --cases "filter 9:f32,3d7pt:f64" --seconds 6
 *     node dist/bench/cuda-lanes.js --cases "filter 9:f16" --kinds mappings,lanes           bands on Tensor Cores beside windows
 *     node dist/bench/cuda-lanes.js --report lanes.jsonl > lanes.md      a table, beside hand-picked kernels on an H200
 *
 * The search is the ordinary one over lane designs, and times are those of its finals. Every element of every kernel is
 * compared with the reference. Copies are measured first and last; NPP before the searches, in turns with its own copy.
 */

import { execFileSync } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { z } from "zod";
import { CANDIDATE_KINDS, type CandidateKinds } from "../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import { STENCILS } from "../operators/stencil.ts";
import { candidateText, scheduleText } from "../report/describe-candidate.ts";
import { type CudaRunner, createCudaRunner } from "../runtime/run/cuda.ts";
import { tuneComputation } from "../session/tune.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { COPY, copies } from "./device-copies.ts";
import { CASE_TYPES, type CaseType, laneCase, recordedLanes } from "./lane-cases.ts";
import { readOptions } from "./options.ts";

const filters = Array.from({ length: 19 }, (_, i) => `filter ${i + 2}:f32`);
const stencils = (["f32", "f64"] as const).flatMap((dtype) => STENCILS.map((s) => `${s.name}:${dtype}`));
const { values } = readOptions({
  options: {
    cases: { type: "string", default: [...filters, ...stencils].join() },
    side: { type: "string", default: "8192" },
    cube: { type: "string", default: "512" },
    /** Length of a search, preparation included. */
    seconds: { type: "string", default: "6" },
    /** No search begins after this many seconds. */
    within: { type: "string", default: "330" },
    /** What is searched: windows on lanes, mappings onto matrix instructions, or both; several are searched one after another. */
    kinds: { type: "string", default: "lanes" },
    target: { type: "string", default: "h100" },
    out: { type: "string" },
    report: { type: "string" },
    /** Results of kernels picked by hand. */
    picked: { type: "string", default: "bench/results/cuda-ssam-h200.jsonl" },
  },
});

const DEVICE = z.object({
  kind: z.literal("device"),
  name: z.string(),
  driver: z.string(),
  nvcc: z.looseObject({ version: z.string() }),
});
const NPP = z.object({
  kind: z.literal("npp"),
  case: z.string(),
  status: z.number(),
  wrong: z.number(),
  ms: z.number(),
  copyMs: z.number(),
});
const FOUND = z.object({
  kind: z.literal("search"),
  case: z.string(),
  dtype: z.string(),
  took: z.number(),
  bytes: z.number(),
  points: z.number(),
  taps: z.number(),
  trials: z.number(),
  failed: z.record(z.string(), z.number()),
  seconds: z.number().optional(),
  interval: z.array(z.number()).optional(),
  expected: z.number().optional(),
  design: z.string().optional(),
  kinds: z.string().optional(),
});
type Found = z.infer<typeof FOUND>;

const searchedKinds = values.kinds.split(",").flatMap((text) => CANDIDATE_KINDS.find((kind) => kind === text) ?? []);
if (values.report === undefined) await run();
else console.log(report(textOf(values.report)));

async function run(): Promise<void> {
  const made = await createCudaRunner();
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  const workdir = mkdtempSync(join(tmpdir(), "automap-lanes-"));
  write({ kind: "device", ...runner.device });
  const cases = values.cases.split(",").map((text) => {
    const [name = "", type] = text.split(":");
    const dtype = CASE_TYPES.find((known) => known === type) ?? "f32";
    return { name, dtype, computation: laneCase(name, Number(values.side), Number(values.cube), dtype) } as const;
  });
  const sizes = [...new Set(cases.map((c) => elementCount(outputOf(c.computation)) * bytesOf(c.dtype)))];
  for (const bytes of sizes) for (const line of await copies(bytes, runner, workdir)) write(line);
  if (cases.some((c) => c.name.startsWith("filter"))) npp(runner, workdir);
  const begun = Date.now();
  for (const { name, dtype, computation } of cases) {
    if ((Date.now() - begun) / 1000 > Number(values.within)) write({ kind: "left out", case: name, dtype });
    else for (const kinds of searchedKinds) write(await searched(name, dtype, computation, kinds));
  }
  for (const bytes of sizes) for (const line of await copies(bytes, runner, workdir)) write(line);
  await runner.close();
}

async function searched(
  name: string,
  dtype: CaseType,
  computation: Computation,
  kinds: CandidateKinds,
): Promise<Found> {
  const begun = Date.now();
  const machine = nvidiaTarget(values.target);
  const seconds = Number(values.seconds);
  const outcome = await tuneComputation(
    { computation },
    {
      machine,
      database: ":memory:",
      seconds,
      within: seconds,
      trials: 1_000_000,
      earlyStop: false,
      kinds,
    },
  );
  const extents = new Map(computation.axes.map((a) => [a.name, a.extent]));
  const stencil = STENCILS.find((s) => s.name === name);
  const line = {
    kind: "search" as const,
    case: name,
    dtype,
    kinds,
    took: (Date.now() - begun) / 1000,
    bytes: [...inputsOf(computation), outputOf(computation)].reduce(
      (sum, t) => sum + elementCount(t) * bytesOf(dtype),
      0,
    ),
    points: elementCount(outputOf(computation)),
    taps: stencil ? Number(/\d+(?=pt)/.exec(name)?.[0] ?? 19) : (extents.get("r") ?? 1) * (extents.get("s") ?? 1),
  };
  if (!("trials" in outcome)) return { ...line, trials: 0, failed: { [outcome.status]: 1 } };
  const { best, trials, failed } = outcome;
  for (const { candidate, measurement: m, prediction } of trials)
    write({
      kind: "trial",
      case: name,
      dtype,
      kinds,
      schedule: candidate.schedule,
      status: m.status,
      ...(candidate.kind === "grid" && { intrinsic: candidate.intrinsic, rewriting: candidate.rewriting }),
      ...(m.status === "ok" ? { median: m.median, interval: m.interval } : { log: m.log.slice(0, 200) }),
      expected: prediction?.uncorrectedSeconds,
    });
  return {
    ...line,
    trials: trials.length,
    failed,
    ...(best && {
      seconds: best.measurement.median,
      interval: [...best.measurement.interval],
      expected: best.prediction?.uncorrectedSeconds,
      design: `${candidateText(best.candidate)}; ${scheduleText(best.candidate)}`,
    }),
  };
}

function npp(runner: CudaRunner, workdir: string): void {
  const source = fileURLToPath(new URL("./peers/npp.cu", import.meta.url));
  const program = join(workdir, "npp");
  try {
    execFileSync(runner.device.nvcc.path, ["-O3", "-arch=native", "-o", program, source, "-lnppif", "-lnppc"]);
    for (const line of execFileSync(program, [values.side], { encoding: "utf8" }).trim().split("\n"))
      write(JSON.parse(line));
  } catch (error) {
    write({ kind: "no npp", because: String(error).slice(0, 2000) });
  }
}

function write(line: unknown): void {
  const text = JSON.stringify(line);
  console.log(text);
  if (values.out !== undefined) appendFileSync(values.out, `${text}\n`);
}

function textOf(file: string): string {
  const bytes = readFileSync(file);
  return (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8");
}

/** The varying part of a design's text: `FBS-load 1 row; outputs a lane 4; sweep 64 outputs; steps written out 2`. */
function designOf(text: string): string {
  if (text.includes("<-")) return text.replaceAll(/ {2,}/g, " ");
  const [, place = text] = /^\S+\s+(.*?);/.exec(text) ?? [];
  const told = ["loops kept [^n;][^;]*", "outputs a lane \\d+", "sweep \\d+ outputs", "steps written out \\d+"];
  const more = told.flatMap((pattern) => new RegExp(pattern).exec(text)?.[0] ?? []);
  return [place.replace(" on 32 lanes,", "").replace(" x 1 vector", ""), ...more].join("; ");
}

/** The lines of a run as a table. */
function report(text: string): string {
  const lines = text
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
  const all = <T>(schema: z.ZodType<T>): T[] => lines.flatMap((line) => schema.safeParse(line).data ?? []);
  const [device] = all(DEVICE);
  const found = all(FOUND);
  const copyOf = (bytes: number): number =>
    Math.min(
      ...all(COPY)
        .filter((c) => Math.abs(2 * c.bytes - bytes) < 0.01 * bytes)
        .map((c) => c.seconds),
    );
  const peers = new Map(all(NPP).map((n) => [n.case, n]));
  const picked = new Map<string, number>();
  for (const r of recordedLanes(values.picked))
    picked.set(r.name, Math.min(r.seconds, picked.get(r.name) ?? r.seconds));
  const took = found.map((f) => f.took);
  const least = Math.min(...took);
  const most = Math.max(...took);
  const ratios: number[] = [];
  const rows = found.map((f) => {
    const { seconds } = f;
    if (seconds === undefined) return `| ${f.case} ${f.dtype} | none | ${JSON.stringify(f.failed)} |`;
    const peer = f.dtype === "f32" ? peers.get(f.case) : undefined;
    const hand = f.dtype === "f32" ? picked.get(f.case) : undefined;
    if (peer && peer.status === 0) ratios.push(peer.ms / 1000 / seconds);
    const us = (s: number): string => (s * 1e6).toFixed(1);
    return `| ${[
      `${f.case} ${f.dtype}${f.kinds === undefined || f.kinds === "lanes" ? "" : `, ${f.kinds}`}`,
      us(seconds),
      `${((100 * copyOf(f.bytes)) / seconds).toFixed(0)} %`,
      (f.points / seconds / 1e9).toFixed(0),
      ((2 * f.taps * f.points) / seconds / 1e12).toFixed(1),
      f.expected === undefined ? "" : us(f.expected),
      peer
        ? `${us(peer.ms / 1000)} (${(peer.ms / 1000 / seconds).toFixed(2)})${peer.wrong > 0 ? `, ${peer.wrong} wrong` : ""}`
        : "",
      hand ? `${us(hand)} (${(hand / seconds).toFixed(2)})` : "",
      `${f.trials}`,
      designOf(f.design ?? ""),
    ].join(" | ")} |`;
  });
  const geomean = Math.exp(ratios.reduce((sum, r) => sum + Math.log(r), 0) / Math.max(1, ratios.length));
  return [
    "# Filters and stencils on a GPU, searched",
    "",
    `${device?.name}, driver ${device?.driver}, nvcc ${device?.nvcc.version}. Images of ${values.side} x ${values.side}, grids of ${values.cube} cubed. Each case is searched from a cold database, with ${values.seconds} s until the finals as its budget (${least.toFixed(0)} to ${most.toFixed(0)} s in all, compiling and checking included); times are those of the finals, in microseconds, every element compared. "Of the copy" is the time of the faster device copy of as many bytes over the kernel's. In parentheses: the time of NPP, and of the best kernel picked by hand on an H200 (another memory; [cuda-ssam-h200.md](cuda-ssam-h200.md)), over ours. NPP is compared where no border is in reach.`,
    "",
    "    node dist/bench/cuda-lanes.js --out lanes.jsonl && node dist/bench/cuda-lanes.js --report lanes.jsonl",
    "",
    "| case | us | of the copy | Gcells/s | TFLOP/s | expected | NPP | picked on an H200 | kernels | design |",
    "|---|---|---|---|---|---|---|---|---|---|",
    ...rows,
    "",
    ...(ratios.length > 0 ? [`${geomean.toFixed(2)}x NPP by geomean of ${ratios.length} filters.`] : []),
  ].join("\n");
}
