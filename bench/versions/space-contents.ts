/**
 * @file What the search spaces hold, kind by kind: to see that a change to the code leaves the same candidates and kernels.
 *
 *     npm run build
 *     node dist/bench/versions/space-contents.js --out before.json             in the tree as it was
 *     node dist/bench/versions/space-contents.js --against before.json         in the changed tree
 *
 * For each computation and machine: the number of candidates that the space lists, a hash of their schedules without what
 * holds its default, and a hash of the kernels of those with the least hash, without their comments. For each network, without the kernels of its
 * products: its calls, a hash of the places of their tensors, and one of its kernels to the last letter. Exit code 1: something differs.
 */

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Candidate, canonicalJson } from "../../abstraction/candidate.ts";
import { type Computation, type ComputationSpec, defineComputation } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import type { Graph } from "../../network/graph.ts";
import { bertBase } from "../../network/models/bert.ts";
import { miLstm } from "../../network/models/milstm.ts";
import { shufflenet } from "../../network/models/shufflenet.ts";
import { multiplyAddsOf } from "../../network/tasks.ts";
import { tunedSource } from "../../package/library.ts";
import { partsOfNetwork } from "../../package/network/index.ts";
import { chooseSpace, usableIntrinsics } from "../../session/kinds/choose.ts";
import type { SessionSpace } from "../../session/kinds/session-space.ts";
import { choicesOf, inHalfOnGpu, networkSubject, openGraph } from "../../session/network/network.ts";
import { armTargetNamed, nvidiaTarget, OPENCL_ISA, targetOf } from "../../targets/index.ts";
import { operation } from "../../test/support/subjects.ts";
import { readOptions, wordOf } from "../support/options.ts";

const { values } = readOptions({
  options: {
    out: { type: "string" },
    against: { type: "string" },
    kernels: { type: "string", default: "12" },
    only: { type: "string", default: "" },
    texts: { type: "string" },
  },
});

const levels = [
  { name: "dram", units: 1 },
  { name: "l2", units: 2, bytes: 1 << 20 },
  { name: "l1", units: 1, bytes: 32 << 10 },
  { name: "registers", units: 1 },
];
const source = "made up";
const amx = ["avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"];
const arm = armTargetNamed("neoverse-v1");
if (!arm) throw new Error("internal: no Neoverse V1");
const MACHINES = {
  amx: targetOf({ name: "a CPU with AMX", isa: amx, levels, source }),
  avx2: targetOf({ name: "a CPU with AVX2", isa: ["avx2", "fma"], levels, source }),
  arm,
  opencl: targetOf({ name: "an OpenCL device", isa: [OPENCL_ISA], levels, source }),
  h100: nvidiaTarget("h100"),
};

/** A machine, what is computed on it, and the kinds of candidates; all when left out. */
type Case = readonly [machine: keyof typeof MACHINES, computation: Computation, kinds?: "all" | "mappings" | "lanes"];

const CONV = "conv2d n=1 c=32 k=32 h=14 w=14 r=3 s=3 pad=1";
const FILTER = "conv2d-single h=64 w=96 r=3 s=3 pad=1";
const PRODUCT = "matmul m=64 n=96 k=128";
const CUBE = "3d7pt d=16 h=24 w=64";
const equation = (
  text: string,
  extents: Readonly<Record<string, number>>,
  tensors: ComputationSpec["tensors"],
): Computation => defineComputation({ equation: text, extents, tensors });
const SQUARE = { t: 8, i: 64, j: 96 };
const star = "0.5*u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1])";
const star3d =
  "0.4*u[t-1,i,j,k] + 0.1*(u[t-1,i-1,j,k] + u[t-1,i+1,j,k] + u[t-1,i,j-1,k] + u[t-1,i,j+1,k] + u[t-1,i,j,k-1] + u[t-1,i,j,k+1])";
const steps = equation(`u[t,i,j] = ${star}`, SQUARE, { u: "f32" });
const wideSteps = equation(`u[t,i,j] = ${star}`, SQUARE, { u: "f64" });
const cubeSteps = equation(`u[t,i,j,k] = ${star3d}`, { t: 4, i: 16, j: 24, k: 64 }, { u: "f32" });
const recurrence = equation("y[b,i] = 0.75 * y[b,i-1] + x[b,i]", { b: 64, i: 96 }, { x: "f32", y: "f32" });
const wavefront = equation("d[i,j] = min(d[i-1,j], d[i,j-1]) + x[i,j]", { i: 64, j: 96 }, { x: "f32", d: "f32" });
const product = equation("c[i,j] max= x[i,k] + y[k,j]", { i: 64, j: 96, k: 32 }, { x: "s32", y: "s32", c: "s32" });

const CASES: readonly Case[] = [
  ["amx", operation(CONV, "u8s8")],
  ["amx", operation(PRODUCT, "bf16")],
  ["amx", operation(PRODUCT)],
  ["amx", operation(CONV), "mappings"],
  ["amx", operation(CONV), "lanes"],
  ["amx", operation("depthwise-conv2d c=32 h=14 w=14 m=1 r=3 s=3")],
  ["amx", operation("conv1d-single l=500 r=5")],
  ["amx", operation(FILTER)],
  ["amx", operation(FILTER, "s16"), "lanes"],
  ["amx", operation(FILTER, "f64"), "lanes"],
  ["amx", operation("2d5pt h=64 w=96")],
  ["amx", operation(CUBE)],
  ["amx", steps],
  ["amx", wideSteps],
  ["amx", cubeSteps],
  ["amx", product],
  ["amx", recurrence],
  ["amx", wavefront],
  ["amx", operation("mean n=4 c=32 h=14 w=14")],
  ["amx", operation("mttkrp i=32 j=32 k=16 l=16")],
  ["avx2", operation(CONV)],
  ["avx2", operation(FILTER)],
  ["avx2", steps],
  ["arm", operation(CONV)],
  ["arm", operation(PRODUCT, "s8")],
  ["opencl", operation(PRODUCT)],
  ["h100", operation("matmul m=512 n=512 k=512", "f16")],
  ["h100", operation(CONV, "f16")],
  ["h100", operation(CONV)],
  ["h100", operation("matvec m=512 k=4096")],
  ["h100", operation(FILTER)],
  ["h100", operation(FILTER, "f64"), "lanes"],
  ["h100", operation(CUBE)],
  ["h100", steps],
  ["h100", cubeSteps],
  ["h100", operation(CONV), "lanes"],
];

/** What is compared of one space. */
interface Contents {
  readonly listed: number;
  readonly schedules: string;
  readonly kernels: string;
}

const hash = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 16);

/** Values that say nothing: what a schedule holds where it decides nothing. */
function saysNothing(value: unknown): boolean {
  if (value === undefined || value === false || value === 0 || value === 1) return true;
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

function said(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .map(([name, v]): [string, unknown] => [name, said(v)])
      .filter(([, v]) => !saysNothing(v)),
  );
}

/** Words for what only one value fits in some kinds, so that it makes no difference whether a schedule says it. */
const IMPLIED = ["borders", "weights", "dataflow", "threads"];

function identityOf(candidate: Candidate): string {
  const { schedule, ...rest } = candidate;
  const { kind: _, ...mapping } = rest;
  const kept = Object.fromEntries(Object.entries(schedule).filter(([name]) => !IMPLIED.includes(name)));
  if (candidate.kind === "recurrence") kept["inputs"] = "loaded";
  return hash(canonicalJson(said({ ...mapping, schedule: kept })));
}

/** The text of a kernel without comments, which name the version and may be reworded. */
const withoutComments = (text: string): string =>
  text.replaceAll(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, "").replaceAll(/\s+/g, " ");

const MOST_LISTED = 10_000;

function writeTexts(folder: string, kernels: readonly { readonly identity: string; readonly text: string }[]): void {
  mkdirSync(folder, { recursive: true });
  for (const { identity, text } of kernels) writeFileSync(join(folder, identity), text);
}

function contentsOf(space: SessionSpace, kernels: number, folder: string | undefined): Contents {
  const known = new Map<string, Candidate>();
  let listed = 0;
  for (const candidate of space.all()) {
    if (listed++ === MOST_LISTED) break;
    known.set(`${identityOf(candidate)}${candidate.schedule && JSON.stringify(impliedOf(candidate))}`, candidate);
  }
  const schedules = [...known.keys()].sort();
  const least = schedules.slice(0, kernels).flatMap((key) => known.get(key) ?? []);
  const random = seededRandom(5);
  // Lists of mappings hold the plainest schedule alone: some are drawn besides, which compares how they are drawn.
  const drawn =
    least.length === 0 || least.some((c) => "matching" in c)
      ? Array.from({ length: kernels }, () => space.random(random))
      : [];
  const compared = [...least, ...drawn].map((c) => ({ identity: identityOf(c), text: space.kernelOf(c).source }));
  if (folder !== undefined) writeTexts(folder, compared);
  const texts = compared.map(({ text }) => withoutComments(text));
  return { listed, schedules: hash(schedules.join("\n")), kernels: hash(texts.join("\n")) };
}

/** Those of the implied values that differ within a space. */
function impliedOf({ kind, schedule }: Candidate): unknown {
  const of = schedule as unknown as Readonly<Record<string, unknown>>; // read by name, whatever its kind
  const dataflow = kind === "steps" || kind === "warp-steps" ? "FBS-load" : of.dataflow;
  return { dataflow: dataflow ?? null, weights: of.weights === "registers" ? "registers" : null };
}

const nameOf = ([machine, computation, kinds = "all"]: Case): string => {
  const extents = computation.axes.map(({ name, extent }) => `${name}${extent}`).join(" ");
  const dtypes = [...new Set(Object.values(computation.tensors).map((t) => t.dtype))].join(" ");
  return [machine, computation.name, dtypes, extents, kinds].join(", ");
};

const found: Record<string, Contents> = {};
for (const one of CASES.filter((c) => nameOf(c).includes(values.only))) {
  const [machine, computation, kinds = "all"] = one;
  const target = MACHINES[machine];
  const chosen = finished(
    chooseSpace(computation, usableIntrinsics(target), { machine: target, threads: 2, seed: 1, kinds }),
  );
  if (!("space" in chosen)) throw new Error(`${nameOf(one)}: ${chosen.refused[0]?.because}`);
  const contents = contentsOf(
    chosen.space,
    Number(values.kernels),
    values.texts === undefined ? undefined : join(values.texts, nameOf(one).replaceAll(/[ ,]+/g, "-")),
  );
  found[nameOf(one)] = contents;
  process.stdout.write(
    `${nameOf(one)}: ${contents.listed} listed, schedules ${contents.schedules}, kernels ${contents.kernels}\n`,
  );
}

const NETWORKS: Readonly<Record<string, Graph>> = {
  bert: bertBase({ tokens: 6, layers: 1, hidden: 24, heads: 2, vocabulary: 40 }),
  "mi-lstm": miLstm(),
  shufflenet: shufflenet(),
};

/** What a network without its products is made of, on this CPU or a GPU. */
function contentsOfNetwork(graph: Graph, machine: "cpu" | "h100"): Contents {
  const gpu = machine === "cpu" ? undefined : MACHINES[machine];
  const { program } = gpu ? inHalfOnGpu(openGraph(graph)) : openGraph(graph);
  const others = { ...program, steps: program.steps.filter(({ computation }) => multiplyAddsOf(computation) === 0) };
  const choices = choicesOf(others, { machine: gpu });
  const { steps, kernels } = partsOfNetwork(networkSubject(program, choices, { gpu }));
  return {
    listed: steps.filter(({ kernel }) => kernel !== undefined).length,
    schedules: hash(JSON.stringify(steps)),
    kernels: hash(JSON.stringify(kernels.map((one) => (one.tuned ? tunedSource(one, one.tuned) : one.name)))),
  };
}

for (const [name, graph] of Object.entries(NETWORKS))
  for (const machine of ["cpu", "h100"] as const) {
    const called = `network ${name}, ${machine}`;
    if (!called.includes(values.only)) continue;
    const contents = contentsOfNetwork(graph, machine);
    found[called] = contents;
    process.stdout.write(`${called}: ${contents.listed} calls, ${contents.schedules}, kernels ${contents.kernels}\n`);
  }
if (values.out !== undefined) writeFileSync(values.out, `${JSON.stringify(found, null, 2)}\n`);
if (Object.keys(found).length === 0) wordOf("only", values.only, CASES.map(nameOf));
if (values.against !== undefined) {
  const before = JSON.parse(readFileSync(values.against, "utf8")) as Readonly<Record<string, Contents>>;
  const differing = Object.keys(found).filter((name) => canonicalJson(found[name]) !== canonicalJson(before[name]));
  for (const name of differing)
    process.stdout.write(
      `differs: ${name}\n  before ${canonicalJson(before[name])}\n  now    ${canonicalJson(found[name])}\n`,
    );
  process.stdout.write(`${Object.keys(found).length - differing.length} equal, ${differing.length} differ\n`);
  process.exitCode = differing.length > 0 ? 1 : 0;
}
