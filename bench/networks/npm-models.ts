/**
 * @file Models that packages of npm ship, each emitted as a library, built, run and compared with ONNX Runtime on the same inputs.
 *
 *     npm run build
 *     node dist/bench/networks/npm-models.js --cache models                     all of them, one after another
 *     node dist/bench/networks/npm-models.js --cache models --only mlsd         those whose package or file has this word
 *     node dist/bench/networks/npm-models.js --cache models --out bench/results/npm-models
 *
 * Packages are unpacked into the cache, ONNX Runtime too; nothing of them is run but ONNX Runtime. A model with a row in the rows' file is not run again; `--again`
 * does. A model is emitted in a process with limits of time and memory. Its difference is the largest one, relative to the largest magnitude
 * of the same output, which must lie within a bound. Exit code 4: an output differs.
 */

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { UsageError } from "../../abstraction/error.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import type { Graph } from "../../network/graph.ts";
import { readOnnx } from "../../network/onnx/read.ts";
import type { ElementType } from "../../network/value.ts";
import { borderBytes, borderElements } from "../../package/network/index.ts";
import { type ChildRun, explainRun, runChild } from "../../runtime/child.ts";
import {
  loadOnnxRuntime,
  type OnnxArray,
  type OnnxTensor,
  onnxArray,
  onnxNetwork,
  onnxType,
} from "../peers/onnxruntime.ts";
import { cpuName, rowsIn, table, writerTo } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";
import { NPM_MODELS, type NpmModel, ONNX_RUNTIME } from "./npm-model-table.ts";

const { values } = readOptions({
  options: {
    cache: { type: "string", default: join(tmpdir(), "automap-npm-models") },
    only: { type: "string", default: "" },
    again: { type: "boolean", default: false },
    minutes: { type: "string", default: "10" },
    gigabytes: { type: "string", default: "10" },
    seed: { type: "string", default: "1" },
    out: { type: "string", default: "npm-models" },
  },
});

/** Largest relative difference, by the element type in which a model computes. */
const BOUNDS = { f32: 1e-4, f16: 1e-2 } as const;
/** An output counts as this large at least: the logistic of ONNX Runtime is off by 3e-8, however small a probability is. */
const LEAST_MAGNITUDE = 1e-3;
/** Some networks amplify rounding: there the bound is this many times the difference that ONNX Runtime has from itself. */
const OWN_TIMES = 2;
/** What an f32 input is multiplied by, or divided, to see how much rounding matters: one unit in its last place. */
const NUDGE = 1 + 2 ** -23;

const rowSchema = z.strictObject({
  model: z.string(),
  status: z.enum(["right", "wrong", "refused", "failed"]),
  /** Why it is not right. */
  said: z.string(),
  steps: z.number(),
  difference: z.number(),
  bound: z.number(),
  /** Largest difference of ONNX Runtime from its nodes as written: of its optimised form, or of the same form on nudged inputs. */
  own: z.number(),
  emitSeconds: z.number(),
  buildSeconds: z.number(),
  runSeconds: z.number(),
});
type Row = z.infer<typeof rowSchema>;
const tensorSchema = z.object({ name: z.string(), dtype: z.string(), shape: z.array(z.int()), elements: z.int() });
type Described = z.infer<typeof tensorSchema>;
const describedSchema = z.object({
  name: z.string(),
  inputs: z.array(tensorSchema),
  outputs: z.array(tensorSchema),
});

const timeLimitMs = 60_000 * Number(values.minutes);
const cache = resolve(values.cache);
mkdirSync(cache, { recursive: true });
const cli = fileURLToPath(new URL("../../cli/main.js", import.meta.url));
const rowsFile = `${values.out}.jsonl`;
const write = writerTo(rowsFile);
// The last row of a model counts, and one of an earlier form counts as none.
const rows = new Map(rowsIn(rowSchema, rowsFile).map((row) => [row.model, row]));
const nameOf = ({ from, file }: NpmModel): string => `${from} ${file}`;
const wanted = NPM_MODELS.filter((model) => nameOf(model).includes(values.only));
if (wanted.length === 0) throw new UsageError(`no model's package or file has "${values.only}"`);

for (const model of wanted) {
  const name = nameOf(model);
  if (rows.has(name) && !values.again) continue;
  const row = await tried(model);
  rows.set(name, row);
  write(row);
  console.error(cellsOf(model, row).join("  "));
}
const ended = NPM_MODELS.flatMap((model) => {
  const row = rows.get(nameOf(model));
  return row ? [{ model, row }] : [];
});
const runtimeVersion = (await runtime()).version;
writeFileSync(`${values.out}.md`, report());
process.exitCode = ended.some(({ row }) => row.status === "wrong") ? 4 : 0;

async function tried(model: NpmModel): Promise<Row> {
  const row: Row = {
    model: nameOf(model),
    status: "failed",
    said: "",
    steps: 0,
    difference: 0,
    own: 0,
    bound: BOUNDS[model.computes ?? "f32"],
    emitSeconds: 0,
    buildSeconds: 0,
    runSeconds: 0,
  };
  const file = await fileOf(model);
  const folder = join(cache, "emitted");
  rmSync(folder, { recursive: true, force: true });
  const options = optionsOf(model);
  const kilobytes = Number(values.gigabytes) * 2 ** 20;
  const emit = [
    process.execPath,
    cli,
    "network",
    "emit",
    file,
    "--to",
    folder,
    "--json",
    "--db",
    join(cache, "none.db"),
  ];
  const limited = ["sh", "-c", `ulimit -d ${kilobytes}; exec "$@"`, "sh", ...emit, ...options];
  const emitted = await timed(limited);
  row.emitSeconds = emitted.seconds;
  if (emitted.run.status !== "ok") {
    const isRefused = emitted.run.status === "failed" && emitted.run.exitCode === 2;
    return { ...row, status: isRefused ? "refused" : "failed", said: sentenceOf(emitted.run) };
  }
  row.steps = z.object({ steps: z.int() }).parse(JSON.parse(emitted.run.stdout)).steps;
  const built = await timed(["sh", join(folder, "build.sh")]);
  row.buildSeconds = built.seconds;
  if (built.run.status !== "ok") return { ...row, said: sentenceOf(built.run) };
  return await compared(model, file, folder, row);
}

/** The row of a built model after a run on drawn inputs, beside ONNX Runtime. */
async function compared(model: NpmModel, file: string, folder: string, row: Row): Promise<Row> {
  const { name, inputs, outputs } = describedSchema.parse(
    JSON.parse(readFileSync(join(folder, "network.json"), "utf8")),
  );
  const random = seededRandom(Number(values.seed));
  const given = new Map<string, Uint8Array>();
  const nudged = new Map<string, Uint8Array>();
  const tensors: Record<string, OnnxTensor> = {};
  for (const tensor of [...inputs, ...outputs])
    tensors[tensor.name] = { type: onnxType(tensor.dtype as ElementType), shape: tensor.shape };
  for (const input of inputs) {
    const [least, most] = model.draw?.[input.name] ?? [-1, 1];
    const isFloat = /^b?f\d/.test(input.dtype);
    const drawn = Float64Array.from({ length: input.elements }, () =>
      isFloat ? Math.fround(least + (most - least) * random()) : randomInteger(random, least, most),
    );
    given.set(input.name, borderBytes(input.dtype as ElementType, drawn));
    if (input.dtype !== "f32") continue;
    const moved = drawn.map((x, i) => (i % 2 === 0 ? x * NUDGE : x / NUDGE));
    nudged.set(input.name, borderBytes("f32", moved));
  }
  const words = [join(folder, "build", `${name}_main`)];
  for (const [i, input] of inputs.entries()) {
    const path = join(folder, `input_${i}.bin`);
    writeFileSync(path, given.get(input.name) ?? new Uint8Array());
    words.push(path);
  }
  for (const i of outputs.keys()) words.push(join(folder, `output_${i}.bin`));
  const ran = await timed(words);
  if (ran.run.status !== "ok") return { ...row, said: sentenceOf(ran.run) };
  const graph = readOnnx(file);
  for (const [bound, value] of Object.entries(model.constants ?? {})) {
    const { type, shape } = boundInput(graph, bound);
    tensors[bound] = { type: onnxType(type), shape };
    given.set(bound, borderBytes(type, [value]));
  }
  const feedsOf = (drawn: ReadonlyMap<string, Uint8Array>) =>
    Object.fromEntries([...drawn].map(([input, bytes]) => [input, onnxArray(tensors[input]?.type ?? "f32", bytes)]));
  const bytes = readFileSync(file);
  const sides: Float64Array[][] = [];
  const forms = [
    { asWritten: true, drawn: given },
    { asWritten: false, drawn: given },
    { asWritten: true, drawn: new Map([...given, ...nudged]) },
  ];
  for (const { asWritten, drawn } of forms) {
    const peer = await onnxNetwork(await runtime(), bytes, { inputs: feedsOf(drawn), tensors, threads: 1, asWritten });
    await peer.run();
    sides.push(outputs.map((output) => elementsOf(output, peer.outputs[output.name])));
    await peer.close();
  }
  const [asWritten = [], optimised = [], onNudged = []] = sides;
  const got = outputs.map(({ dtype }, i) =>
    borderElements(dtype as ElementType, readFileSync(join(folder, `output_${i}.bin`))),
  );
  const difference = differenceOf(got, asWritten);
  const own = Math.max(differenceOf(optimised, asWritten), differenceOf(onNudged, asWritten));
  const bound = Math.max(row.bound, OWN_TIMES * own);
  return { ...row, runSeconds: ran.seconds, difference, own, bound, status: difference <= bound ? "right" : "wrong" };
}

function elementsOf({ name, dtype }: Described, array: OnnxArray | undefined): Float64Array {
  if (!array) throw new Error(`internal: no output ${name}`);
  return borderElements(dtype as ElementType, new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
}

function boundInput(
  { inputs }: Graph,
  name: string,
): { readonly type: ElementType; readonly shape: readonly number[] } {
  const input = inputs.find((each) => each.name === name);
  if (!input) throw new UsageError(`the model has no input ${name}`);
  return { type: input.type, shape: input.shape.map((size) => (typeof size === "number" ? size : 1)) };
}

/** The largest difference of any output, relative to the largest magnitude of the same output; Infinity where just one is not a number. */
function differenceOf(made: readonly Float64Array[], expected: readonly Float64Array[]): number {
  return Math.max(...expected.map((wanted, i) => differenceOfOne(made[i] ?? new Float64Array(), wanted)));
}

function differenceOfOne(made: Float64Array, expected: Float64Array): number {
  let most = 0;
  let largest = LEAST_MAGNITUDE;
  for (const [i, wanted] of expected.entries()) {
    const element = made[i] ?? Number.NaN;
    if (Number.isFinite(wanted)) largest = Math.max(largest, Math.abs(wanted));
    if (Object.is(element, wanted)) continue;
    if (!Number.isFinite(element) || !Number.isFinite(wanted)) return Number.POSITIVE_INFINITY;
    most = Math.max(most, Math.abs(element - wanted));
  }
  return most / largest;
}

/** The model's file, unpacked from its package. */
async function fileOf({ from, file, chunksIn }: NpmModel): Promise<string> {
  const folder = await unpacked(from);
  if (chunksIn === undefined) return join(folder, file);
  const listed = z
    .record(z.string(), z.object({ chunks: z.array(z.object({ hash: z.string() })) }))
    .parse(JSON.parse(readFileSync(join(folder, chunksIn), "utf8")));
  const joined = join(folder, `${file.replaceAll("/", "_")}.onnx`);
  const chunks = listed[file]?.chunks ?? [];
  const parts = chunks.map(({ hash }) => readFileSync(join(folder, dirname(chunksIn), hash)));
  writeFileSync(joined, Buffer.concat(parts));
  return joined;
}

/** The folder of a package of npm in the cache. */
async function unpacked(from: string): Promise<string> {
  const folder = join(cache, from.replaceAll(/[^\w.@-]/g, "+"));
  const made = join(folder, "package");
  if (existsSync(made)) return made;
  mkdirSync(folder, { recursive: true });
  const packed = await runChild(["npm", "pack", from, "--silent", "--pack-destination", folder], { timeLimitMs });
  const archive = packed.stdout.trim().split("\n").at(-1) ?? "";
  if (packed.status !== "ok" || archive === "") throw new UsageError(`${from} cannot be had: ${sentenceOf(packed)}`);
  const opened = await runChild(["tar", "-xzf", join(folder, archive), "-C", folder], { timeLimitMs });
  if (opened.status !== "ok") throw new UsageError(`${archive} cannot be unpacked: ${sentenceOf(opened)}`);
  rmSync(join(folder, archive));
  return made;
}

async function runtime(): ReturnType<typeof loadOnnxRuntime> {
  const folder = join(cache, "onnxruntime");
  const installed = join(folder, "node_modules", "onnxruntime-node");
  if (!existsSync(installed)) {
    mkdirSync(folder, { recursive: true });
    // Its scripts would download libraries for GPUs.
    const made = await runChild(
      ["npm", "install", "--prefix", folder, "--ignore-scripts", "--no-audit", ONNX_RUNTIME],
      {
        timeLimitMs,
      },
    );
    if (made.status !== "ok") throw new UsageError(`${ONNX_RUNTIME} cannot be installed: ${sentenceOf(made)}`);
  }
  return await loadOnnxRuntime(installed);
}

async function timed(command: readonly string[]): Promise<{ readonly run: ChildRun; readonly seconds: number }> {
  const start = performance.now();
  const run = await runChild(command, { timeLimitMs });
  return { run, seconds: Number(((performance.now() - start) / 1000).toFixed(1)) };
}

/** The first sentence of what a command said, or how it ended. */
function sentenceOf(run: ChildRun): string {
  const [said = ""] = run.stderr.trim().split("\n");
  return said.startsWith("automap: ") ? said.replace("automap: ", "") : `${explainRun(run)}: ${said}`.slice(0, 300);
}

function optionsOf({ dims = {}, constants = {} }: NpmModel): string[] {
  return [
    ...Object.entries(dims).flatMap(([name, size]) => ["--dim", `${name}=${size}`]),
    ...Object.entries(constants).flatMap(([name, value]) => ["--constant", `${name}=${value}`]),
  ];
}

function cellsOf(model: NpmModel, { status, said, steps, difference, bound, own, ...row }: Row) {
  const outcome =
    status === "right" || status === "wrong"
      ? `${difference.toExponential(1)} of ${bound.toExponential(1)} (${own.toExponential(1)})`
      : said;
  const seconds = [row.emitSeconds, row.buildSeconds, row.runSeconds].map((s) => s.toFixed(1));
  return [model.from, model.file, optionsOf(model).join(" "), steps, status, outcome, ...seconds];
}

function report(): string {
  const right = ended.filter(({ row }) => row.status === "right").length;
  const head = [
    "package",
    "file",
    "options",
    "steps",
    "outcome",
    "difference, or why not",
    "emit s",
    "build s",
    "run s",
  ];
  return `${[
    "# Models of npm's packages",
    "",
    `${ended.length} models, ${right} of them as ONNX Runtime ${runtimeVersion} computes them. ${cpuName()}, one thread, no kernel tuned.`,
    "",
    "    node dist/bench/networks/npm-models.js",
    "",
    `A difference is the largest one relative to the largest magnitude of the same output, ${LEAST_MAGNITUDE} at least, from ONNX Runtime without its optimisations; in brackets how far ONNX Runtime is from itself, in its optimised form or on f32 inputs that are changed by one unit in their last place, whichever is more. The bound is ${BOUNDS.f32}, ${BOUNDS.f16} for models of f16, or ${OWN_TIMES} times the number in brackets: some networks amplify rounding, most of all the one whose every layer is quantised by its least and largest element. Inputs are drawn, between -1 and 1 where bench/networks/npm-model-table.ts names no other range. Seconds: of emitting, of compiling, and of the program, which reads files and runs once.`,
    "",
    ...table(
      head,
      ended.map(({ model, row }) => cellsOf(model, row)),
    ),
  ].join("\n")}\n`;
}
