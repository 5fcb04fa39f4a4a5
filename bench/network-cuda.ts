/**
 * @file Whole networks in f16 on this machine's GPU: tuned, built, proved step by step, then timed beside PyTorch.
 *
 *     npm run build
 *     node dist/bench/network-cuda.js --networks resnet18 --batches 1,16 --seconds 200 --db networks.db --out networks
 *     node dist/bench/network-cuda.js --report networks.jsonl
 *
 * `--seconds 0` skips the search: kernels come from the database or the model. Samples of both sides alternate in one
 * process; above 1 automap is faster. A network's time is that of one CUDA graph among repetitions, a step's that of
 * one launch. bench/peers/torch-network.py has PyTorch's forms and reads our weights. Exit code 4: a step is wrong.
 */

import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { EnvironmentError, reasonOf } from "../abstraction/error.ts";
import { openDatabase } from "../db/index.ts";
import { MODELS } from "../network/models/index.ts";
import { onnxBytes } from "../network/onnx/write.ts";
import type { Program } from "../network/program.ts";
import { type NetworkParts, networkBuildOf, networkFiles, partsOfNetwork } from "../package/network/index.ts";
import { runChild } from "../runtime/child.ts";
import { type Compiler, findCompiler } from "../runtime/compiler.ts";
import { shareCores } from "../runtime/cores.ts";
import { type CudaDevice, findCudaDevice } from "../runtime/run/cuda-device.ts";
import { writePackage } from "../session/package-folder.ts";
import { gpuEnvironment } from "../session/environment.ts";
import { gpuChoicesOf } from "../session/gpu-network.ts";
import { type Choice, inHalfOnGpu, networkSubject, openGraph } from "../session/network.ts";
import { buildNetwork, drawInputs, proveNetwork } from "../session/prove-network.ts";
import { tuneNetwork } from "../session/tune-network.ts";
import { gpuTargetOf } from "../targets/index.ts";
import { type NetworkRow, networkRow, report } from "./network-cuda-report.ts";
import { readOptions, wordOf } from "./options.ts";

const FORMS = "eager;eager, folded;compile default;compile reduce-overhead;compile max-autotune";

const { values } = readOptions({
  options: {
    networks: { type: "string", default: "resnet18" },
    batches: { type: "string", default: "1,16" },
    /** Limit of each search for a network at one batch; 0 for no search. */
    seconds: { type: "string", default: "200" },
    seed: { type: "string", default: "1" },
    db: { type: "string", default: "networks.db" },
    /** Batches at which steps are compared with their equations: `first`, `all` or `none`. */
    prove: { type: "string", default: "first" },
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

const answer = z.union([
  z.object({ kind: z.literal("library"), torch: z.string(), cudnn: z.number(), gpu: z.string() }),
  z.object({ kind: z.literal("ours"), seconds: z.number(), module: z.number(), off: z.number().nullable() }),
  z.object({
    ...{ kind: z.literal("form"), form: z.string(), ours: z.array(z.number()), theirs: z.array(z.number()) },
    ...{ off: z.number().nullable(), prepared: z.number() },
  }),
  z.object({ kind: z.literal("form"), form: z.string(), failed: z.string() }),
]);

if (values.report !== undefined) console.log(report(rowsIn(values.report)));
else await run();

function rowsIn(path: string): NetworkRow[] {
  const lines = readFileSync(path, "utf8").split("\n");
  return lines.filter((text) => text !== "").map((text) => networkRow.parse(JSON.parse(text)));
}

async function run(): Promise<void> {
  const device = await findCudaDevice();
  if ("status" in device) throw new EnvironmentError(device);
  const compiler = await findCompiler();
  if (compiler.status === "environment") throw new EnvironmentError(compiler);
  const when = wordOf("prove", values.prove, ["first", "all", "none"]);
  for (const name of values.networks.split(","))
    for (const [i, batch] of values.batches.split(",").map(Number).entries()) {
      const proves = when === "all" || (when === "first" && i === 0);
      try {
        const row = await measured({ name, batch, proves, device, compiler });
        appendFileSync(`${values.out}.jsonl`, `${JSON.stringify(row)}\n`);
        console.error(report([row]));
      } catch (error) {
        // The remaining networks still run.
        process.exitCode = 1;
        console.error(`${name}@${batch}: ${reasonOf(error)}`);
      }
    }
  writeFileSync(`${values.out}.md`, report(rowsIn(`${values.out}.jsonl`)));
}

/** A network at one batch. */
async function measured({
  name,
  batch,
  proves,
  device,
  compiler,
}: {
  readonly name: string;
  readonly batch: number;
  readonly proves: boolean;
  readonly device: CudaDevice;
  readonly compiler: Compiler;
}): Promise<NetworkRow> {
  const machine = gpuTargetOf(device);
  const environment = gpuEnvironment(device, machine);
  const build = MODELS[wordOf("networks", name, Object.keys(MODELS))];
  if (!build) throw new Error(`internal: no network ${name}`);
  const opened = inHalfOnGpu(openGraph(build({ batch })));
  const { program } = opened;
  const begun = Date.now();
  const spent = (): number => (Date.now() - begun) / 1000;
  if (Number(values.seconds) > 0)
    await tuneNetwork(program, {
      ...{ seconds: Number(values.seconds), seed: Number(values.seed), machine, database: values.db, transfer: true },
      onShare: ({ task, place, of, seconds, secondsLeft }) =>
        console.error(
          `${name}@${batch} ${place}/${of} ${task.steps[0]?.nodes[0]} ${microseconds(seconds)} us, ${secondsLeft.toFixed(0)} s left`,
        ),
    });
  const searched = spent();
  const db = openDatabase(values.db);
  const choices = gpuChoicesOf(program, machine, { db, environment });
  db.close();
  const chosen = spent() - searched;
  const subject = networkSubject(program, choices, { gpu: machine });
  const folder = mkdtempSync(join(tmpdir(), "automap-network-gpu-"));
  try {
    writePackage(folder, networkFiles(subject));
    const parts = partsOfNetwork(subject);
    const builder = { command: [device.nvcc.path] };
    const problem = proves ? undefined : await buildNetwork(folder, parts, builder, shareCores());
    if (problem !== undefined) throw new Error(`${name} does not compile\n${problem}`);
    const proof = proves ? await proveNetwork(folder, parts, compiler, { builder }) : undefined;
    const built = spent() - searched - chosen;
    if (proof?.status === "wrong") process.exitCode = 4;
    console.error(
      `${name}@${batch} searched ${searched.toFixed(1)} s, chosen ${chosen.toFixed(1)} s, built${proves ? " and proved" : ""} ${built.toFixed(1)} s`,
    );
    const steps = await stepsOf(folder, parts, program, choices);
    writeFileSync(join(folder, "model.onnx"), onnxBytes(opened.graph));
    const peers = await besidePyTorch(folder, subject.name);
    return {
      ...{ network: name, batch, device: device.name, driver: device.driver, nvcc: device.nvcc.version },
      ...{ seconds: searched, building: built },
      ...(proof && { proof: "said" in proof ? `${proof.status}: ${proof.said}` : proof.status }),
      ...{ arena: parts.memory.bytes, weights: parts.weights.length, steps, ...peers },
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function microseconds(seconds: number | undefined): string {
  return seconds === undefined ? "no" : (seconds * 1e6).toFixed(2);
}

/** Times each step by itself with the package's own program. */
async function stepsOf(
  folder: string,
  parts: NetworkParts,
  program: Program,
  choices: ReadonlyMap<unknown, Choice>,
): Promise<NetworkRow["steps"]> {
  const work = join(folder, "work");
  mkdirSync(work);
  const inputs = drawInputs(program, 1).bytes.map((bytes, i) => {
    const file = join(work, `input_${i}.bin`);
    writeFileSync(file, bytes);
    return file;
  });
  const outputs = program.outputs.map((_, i) => join(work, `output_${i}.bin`));
  const command = [join(folder, networkBuildOf(parts).main.output), "--steps", "1", ...inputs, ...outputs];
  const ran = await runChild(command, { timeLimitMs: RUN_LIMIT_MS });
  if (ran.status !== "ok") throw new Error(`the network's program: ${ran.status}\n${ran.stderr}`);
  const kinds = [...choices.entries()].flatMap(([task, choice]) =>
    (task as { readonly steps: Program["steps"] }).steps.map((step) => [step.nodes[0] ?? "", choice] as const),
  );
  const byNode = new Map(kinds);
  return ran.stdout
    .trim()
    .split("\n")
    .map((line, i) => {
      const [seconds = "", ...words] = line.split(" ");
      if (parts.steps[i]?.kernel === undefined)
        return { name: words.join(" "), seconds: 0, kernel: "with the last step of its rows" };
      const choice = byNode.get(words[0] ?? "");
      const kernel = choice && "place" in choice ? `${choice.kind}: ${choice.place}` : "threads";
      const record = choice?.kind === "record" ? choice.seconds : undefined;
      return { name: words.join(" "), seconds: Number(seconds), kernel, ...(record !== undefined && { record }) };
    });
}

/** Reads the peer's lines as they come. Anything missing when its time is up is left out. */
async function besidePyTorch(folder: string, name: string): Promise<Pick<NetworkRow, "library" | "ours" | "forms">> {
  const script = fileURLToPath(new URL("./peers/torch-network.py", import.meta.url));
  const request = join(folder, "request.json");
  const asked = {
    model: join(folder, "model.onnx"),
    package: folder,
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
  const told: Pick<NetworkRow, "library" | "ours" | "forms"> = { forms: [] };
  const found = { ...told, forms: [...told.forms] };
  for await (const text of createInterface({ input: python.stdout })) {
    const line = answer.safeParse(JSON.parse(text.startsWith("{") ? text : "{}"));
    if (!line.success) continue;
    if (line.data.kind === "library") Object.assign(found, { library: line.data });
    else if (line.data.kind === "ours") Object.assign(found, { ours: line.data });
    else found.forms.push(line.data);
  }
  clearTimeout(late);
  return found;
}
