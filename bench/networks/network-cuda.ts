/**
 * @file Whole networks in f16 on this machine's GPU: tuned, built, proved step by step, then timed beside PyTorch.
 *
 *     npm run build
 *     node dist/bench/networks/network-cuda.js --networks resnet18 --batches 1,16 --seconds 200 --db networks.db --out networks
 *     node dist/bench/networks/network-cuda.js --report networks.jsonl
 *
 * `--seconds 0` skips the search: kernels come from the database or the model. Samples of both sides alternate in one
 * process; above 1 automap is faster. A network's time is that of one CUDA graph among repetitions, a step's that of
 * one launch. bench/peers/torch-network.py has PyTorch's forms and reads our weights. Exit code 4: a step is wrong.
 *
 * `--stage search`, `build` and `time` do one part each, with packages in the folder `--work`: several searches or builds may run at once, as a
 * process enumerates and prints kernels on one core only; timing is alone. Without `--forms` nothing but the steps is timed.
 */

import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { EnvironmentError, reasonOf, UsageError } from "../../abstraction/error.ts";
import { openDatabase } from "../../db/index.ts";
import type { Task } from "../../network/tasks.ts";
import { type NetworkParts, networkBuildOf, networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { runChild } from "../../runtime/child.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { shareCores } from "../../runtime/cores.ts";
import { type CudaDevice, findCudaDevice } from "../../runtime/run/cuda-device.ts";
import { cudaJudge, type OutputJudge } from "../../runtime/run/cuda-judge.ts";
import { gpuEnvironment } from "../../session/calibrate/environment.ts";
import {
  type Choice,
  choicesOf,
  inHalfOnGpu,
  networkSubject,
  type OpenNetwork,
  openGraph,
} from "../../session/network/network.ts";
import { buildNetwork, drawInputs, proveNetwork } from "../../session/network/prove-network.ts";
import { tuneNetwork } from "../../session/network/tune-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { gpuTargetOf } from "../../targets/index.ts";
import { onnxBytes } from "../../test/support/onnx-bytes.ts";
import { cpuCompiler, linesIn, linesOf, rowsIn, us, writerTo } from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { graphNamed, networksNamed } from "./built-network.ts";
import { FAILED, FORM, LIBRARY, type NetworkRow, networkRow, OURS, report } from "./network-cuda-report.ts";

const FORMS = "eager;eager, folded;compile default;compile reduce-overhead;compile max-autotune";

const { values } = readOptions({
  options: {
    networks: { type: "string", default: "resnet18" },
    batches: { type: "string", default: "1,16" },
    /** Limit of each search for a network at one batch; 0 for no search. */
    seconds: { type: "string", default: "200" },
    seed: { type: "string", default: "1" },
    /** Part of the names of the nodes to search for; all by default. */
    only: { type: "string", default: "" },
    /** Concurrent searches within a network; by default as many as the processors allow. */
    beside: { type: "string" },
    db: { type: "string", default: "networks.db" },
    /** Whether searches measure kernels of imported records again, before others. */
    "trust-imported": { type: "boolean", default: false },
    /** Batches at which steps are compared with their equations: `first`, `all` or `none`. */
    prove: { type: "string", default: "first" },
    /** `all`, `search`, `build` or `time`. */
    stage: { type: "string", default: "all" },
    /** Folder of the packages between stages; a temporary one without stages. */
    work: { type: "string" },
    /** PyTorch's forms, separated by semicolons. */
    forms: { type: "string", default: FORMS },
    /** Limit of PyTorch for a network at one batch. */
    patience: { type: "string", default: "240" },
    rounds: { type: "string", default: "30" },
    out: { type: "string", default: "networks-gpu" },
    report: { type: "string" },
    python: { type: "string", default: "python3" },
  },
});

const SAMPLE_SECONDS = 0.01;
const RUN_LIMIT_MS = 120_000;
/** Shares that run when the time of a search is up end after so many seconds, with what they have measured. */
const GRACE_SECONDS = 5;

const form = { kind: z.literal("form") };
const answer = z.union([
  LIBRARY.extend({ kind: z.literal("library") }),
  OURS.extend({ kind: z.literal("ours") }),
  FORM.extend(form),
  FAILED.extend(form),
]);

/** What is known of a network before it is timed. */
const facts = z.object({
  package: z.string(),
  arena: z.number(),
  weights: z.number(),
  building: z.number(),
  proof: z.string().optional(),
  program: z.string(),
  inputs: z.array(z.string()),
  outputs: z.array(z.string()),
  steps: z.array(z.object({ kernel: z.string(), record: z.number().optional() })),
});
type Facts = z.infer<typeof facts>;

if (values.report !== undefined) console.log(report(linesOf(networkRow, linesIn(values.report))));
else await run();

/** A network at one batch, and the folder of its package. */
interface Job {
  readonly name: string;
  readonly batch: number;
  readonly proves: boolean;
  readonly folder: string;
  readonly device: CudaDevice;
  readonly compiler: Compiler;
}

async function run(): Promise<void> {
  const device = await findCudaDevice();
  if ("status" in device) throw new EnvironmentError(device);
  const compiler = await cpuCompiler();
  const when = wordOf("prove", values.prove, ["first", "all", "none"]);
  const stage = wordOf("stage", values.stage, ["all", "search", "build", "time"]);
  if (stage !== "all" && values.work === undefined)
    throw new UsageError(`--stage ${stage} needs --work`, "the folder that the next stage reads");
  const names = networksNamed(values.networks);
  const work = values.work ?? mkdtempSync(join(tmpdir(), "automap-networks-gpu-"));
  try {
    for (const name of names)
      for (const [i, batch] of values.batches.split(",").map(Number).entries()) {
        const proves = when === "all" || (when === "first" && i === 0);
        const folder = join(work, `${name}-${batch}`);
        mkdirSync(folder, { recursive: true });
        try {
          await passThrough({ name, batch, proves, folder, device, compiler }, stage);
        } catch (error) {
          // The remaining networks still run.
          process.exitCode = 1;
          console.error(`${name}@${batch}: ${reasonOf(error)}`);
        }
      }
  } finally {
    if (values.work === undefined) rmSync(work, { recursive: true, force: true });
  }
  if (stage === "all" || stage === "time")
    writeFileSync(`${values.out}.md`, report(rowsIn(networkRow, `${values.out}.jsonl`)));
}

async function passThrough(job: Job, stage: "all" | "search" | "build" | "time"): Promise<void> {
  if (stage === "all" || stage === "search") await search(job);
  if (stage === "all" || stage === "build") await build(job);
  if (stage === "search" || stage === "build") return;
  const row = await timed(job);
  writerTo(`${values.out}.jsonl`)(row);
  console.error(report([row]));
}

function openedFor({ name, batch }: Job): OpenNetwork {
  return inHalfOnGpu(openGraph(graphNamed(name, batch)));
}

function searchedFile({ folder }: Job): string {
  return join(folder, "searched");
}

/** Of all searches so far. */
function searchedSeconds(job: Job): number {
  return existsSync(searchedFile(job)) ? Number(readFileSync(searchedFile(job), "utf8")) : 0;
}

async function search(job: Job): Promise<void> {
  if (Number(values.seconds) <= 0) return;
  const { name, batch } = job;
  const { program: whole } = openedFor(job);
  const names = values.only.split(",");
  const steps = whole.steps.filter(({ nodes }) => nodes.some((node) => names.some((name) => node.includes(name))));
  const program = { ...whole, steps };
  const begun = Date.now();
  const seconds = Number(values.seconds);
  await tuneNetwork(program, {
    seconds,
    seed: Number(values.seed),
    machine: gpuTargetOf(job.device),
    database: values.db,
    transfer: true,
    trustImported: values["trust-imported"] === true,
    signal: AbortSignal.timeout(1000 * (seconds + GRACE_SECONDS)),
    ...(values.beside !== undefined && { beside: Number(values.beside) }),
    onShare: ({ task, place, of, seconds, outcome, secondsLeft }) => {
      const trials = "trials" in outcome ? `, ${outcome.trials.length} trials` : "";
      const failed = outcome.status === "failed" ? `, ${outcome.because}` : trials;
      console.error(
        `${name}@${batch} ${place}/${of} ${task.steps[0]?.nodes[0]} ${us(seconds) || "no"} us, ${secondsLeft.toFixed(0)} s left${failed}`,
      );
    },
  });
  writeFileSync(searchedFile(job), String(searchedSeconds(job) + (Date.now() - begun) / 1000));
}

/** Writes and builds the package, with all that its timing needs. */
async function build(job: Job): Promise<void> {
  const { name, batch, proves, folder, device, compiler } = job;
  const machine = gpuTargetOf(device);
  const opened = openedFor(job);
  const { program } = opened;
  // What a build before left would be timed if this one failed.
  rmSync(join(folder, "facts.json"), { force: true });
  const begun = Date.now();
  const spent = (): number => (Date.now() - begun) / 1000;
  const db = openDatabase(values.db);
  const choices = choicesOf(program, { machine, records: { db, environment: gpuEnvironment(device, machine) } });
  db.close();
  const chosen = spent();
  const subject = networkSubject(program, choices, { gpu: machine });
  writePackage(join(folder, "package"), networkFiles(subject), true);
  const at = join(folder, "package");
  const parts = partsOfNetwork(subject);
  const builder = { command: [device.nvcc.path] };
  const problem = proves ? undefined : await buildNetwork(at, parts, builder, shareCores());
  if (problem !== undefined) throw new Error(`${name} does not compile\n${problem}`);
  const proof = proves ? await proveNetwork(at, parts, compiler, { builder, judge: await judgeHere() }) : undefined;
  if (proof?.status === "wrong") process.exitCode = 4;
  const building = spent() - chosen;
  console.error(
    `${name}@${batch} chosen ${chosen.toFixed(1)} s, built${proves ? " and proved" : ""} ${building.toFixed(1)} s`,
  );
  writeFileSync(join(folder, "model.onnx"), onnxBytes(opened.graph));
  const inputs = drawInputs(program, 1).bytes.map((bytes, i) => {
    const file = join(folder, `input_${i}.bin`);
    writeFileSync(file, bytes);
    return file;
  });
  const known: Facts = {
    package: subject.name,
    arena: parts.memory.bytes,
    weights: parts.weights.length,
    building,
    inputs,
    ...(proof && { proof: "said" in proof ? `${proof.status}: ${proof.said}` : proof.status }),
    program: join(at, networkBuildOf(parts).main.output),
    outputs: program.outputs.map((_, i) => join(folder, `output_${i}.bin`)),
    steps: kernelsOf(parts, choices),
  };
  writeFileSync(join(folder, "facts.json"), JSON.stringify(known));
}

async function judgeHere(): Promise<OutputJudge> {
  const judge = await cudaJudge();
  if ("status" in judge) throw new EnvironmentError(judge);
  return judge;
}

/** Where the kernel of each step comes from. */
function kernelsOf({ subject: { program }, steps }: NetworkParts, choices: ReadonlyMap<Task, Choice>): Facts["steps"] {
  const byStep = new Map([...choices].flatMap(([task, choice]) => task.steps.map((step) => [step, choice] as const)));
  return program.steps.map((step, i) => {
    if (steps[i]?.kernel === undefined) return { kernel: "with the last step of its rows" };
    const choice = byStep.get(step);
    const kernel = choice && "place" in choice ? `${choice.kind}: ${choice.place}` : "threads";
    return { kernel, ...(choice?.kind === "record" && { record: choice.seconds }) };
  });
}

async function timed(job: Job): Promise<NetworkRow> {
  const { name, batch, folder, device } = job;
  const known = facts.parse(JSON.parse(readFileSync(join(folder, "facts.json"), "utf8")));
  const steps = await stepsOf(known);
  const peers: Awaited<ReturnType<typeof besidePyTorch>> =
    values.forms === "" ? { forms: [] } : await besidePyTorch(folder, known.package);
  return {
    network: name,
    batch,
    device: device.name,
    driver: device.driver,
    nvcc: device.nvcc.version,
    seconds: searchedSeconds(job),
    building: known.building,
    ...(known.proof !== undefined && { proof: known.proof }),
    arena: known.arena,
    weights: known.weights,
    steps,
    ...peers,
  };
}

/** Times each step by itself with the package's own program. */
async function stepsOf({ program, inputs, outputs, steps }: Facts): Promise<NetworkRow["steps"]> {
  const ran = await runChild([program, "--steps", "1", ...inputs, ...outputs], { timeLimitMs: RUN_LIMIT_MS });
  if (ran.status !== "ok") throw new Error(`the network's program: ${ran.status}\n${ran.stderr}`);
  return ran.stdout
    .trim()
    .split("\n")
    .map((line, i) => {
      const [seconds = "", ...words] = line.split(" ");
      const { kernel = "", record } = steps[i] ?? {};
      return { name: words.join(" "), seconds: Number(seconds), kernel, ...(record !== undefined && { record }) };
    });
}

/** Reads the peer's lines as they come. Anything missing when its time is up is left out. */
async function besidePyTorch(folder: string, name: string): Promise<Pick<NetworkRow, "library" | "ours" | "forms">> {
  const script = fileURLToPath(new URL("../peers/torch-network.py", import.meta.url));
  const request = join(folder, "request.json");
  const asked = {
    model: join(folder, "model.onnx"),
    package: join(folder, "package"),
    name,
    forms: values.forms.split(";").filter((form) => form !== ""),
  };
  writeFileSync(request, JSON.stringify({ ...asked, rounds: Number(values.rounds), seconds: SAMPLE_SECONDS }));
  const python = spawn(values.python, [script, request], { stdio: ["ignore", "pipe", "inherit"], detached: true });
  python.on("error", (error) => console.error(`PyTorch: ${error.message}`));
  const late = setTimeout(() => {
    console.error(`PyTorch took more than ${values.patience} s`);
    // The process group includes its compilers.
    if (python.pid !== undefined && python.exitCode === null) process.kill(-python.pid, "SIGKILL");
  }, 1000 * Number(values.patience));
  const forms: NetworkRow["forms"] = [];
  const found: Pick<NetworkRow, "library" | "ours" | "forms"> = { forms };
  for await (const text of createInterface({ input: python.stdout })) {
    const line = answer.safeParse(JSON.parse(text.startsWith("{") ? text : "{}"));
    if (!line.success) continue;
    if (line.data.kind === "library") Object.assign(found, { library: line.data });
    else if (line.data.kind === "ours") Object.assign(found, { ours: line.data });
    else forms.push(line.data);
  }
  clearTimeout(late);
  return found;
}
