/**
 * @file Searches the operators of bench/suites on this machine's GPU, beside PyTorch on the same GPU in the same call.
 *
 *     node dist/bench/cuda-suite.js --batches 1,16 --seconds 5 --shard 1/4 --out part-1.jsonl     writes as it goes
 *     node dist/bench/cuda-suite.js --layout last --batches 1,16 --out last.jsonl                 channels innermost
 *     node dist/bench/cuda-suite.js --dtype bf16 --cases c2d,gmm --layout last --out bf16.jsonl   or tf32, s8
 *     node dist/bench/cuda-suite.js --report part-1.jsonl,part-2.jsonl
 *
 * Inputs and outputs are f16 and sums f32, unless `--dtype` says otherwise. Images are NCHW and filters KCRS, unless
 * `--layout last` selects CHANNELS_LAST. Kernels are compared with the reference on three sets of inputs before they
 * are timed. Configurations found in the output file are skipped, and equal parameters are searched once.
 */

import { spawn } from "node:child_process";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import type { Candidate } from "../abstraction/candidate.ts";
import { operatorNamed } from "../operators/index.ts";
import { constantValues } from "../operators/operator.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";
import { createCudaRunner } from "../runtime/run/cuda.ts";
import { tuneComputation } from "../session/tune.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import type { TrialOf } from "../tuner/trials.ts";
import { inShard, suiteCases, suiteComputation, suiteType } from "./cuda-suite-cases.ts";
import { type Case, type Line, line, report } from "./cuda-suite-report.ts";
import { trialOf } from "./cuda-trials.ts";
import { readOptions, wordOf } from "./options.ts";
import { layersNamed, suiteLayers } from "./suite.ts";

const { values } = readOptions({
  options: {
    /** Operators and ids; default all. */
    cases: { type: "string" },
    /** Takes one in this many of each operator's configurations. */
    every: { type: "string", default: "1" },
    batches: { type: "string", default: "1,16" },
    /** Where channels lie: `first` (NCHW) or `last` (NHWC). */
    layout: { type: "string", default: "first" },
    /** Type of the factors: `f16`, `bf16`, `tf32` or `s8`. */
    dtype: { type: "string", default: "f16" },
    /** File that receives every trial, for bench/gpu-accuracy.ts. */
    trials: { type: "string" },
    shard: { type: "string", default: "1/1" },
    seconds: { type: "string", default: "5" },
    seed: { type: "string", default: "1" },
    target: { type: "string", default: "h100" },
    out: { type: "string" },
    report: { type: "string" },
    python: { type: "string", default: "python3" },
  },
});

/** No limit in practice: the budget is in seconds. */
const MOST_TRIALS = 1_000_000;

const answer = z.union([
  z.object({ id: z.string(), forms: z.record(z.string(), z.number()), failed: z.record(z.string(), z.string()) }),
  z.object({ torch: z.string(), cudnn: z.number() }),
]);

if (values.report === undefined) await run();
else console.log(report(values.report.split(",").flatMap(linesIn)));

function linesIn(path: string): Line[] {
  const texts = readFileSync(path, "utf8").split("\n");
  return texts.flatMap((text): Line[] => {
    if (text === "") return [];
    // The last line may be cut off: the process was stopped while writing it.
    try {
      const known = line.safeParse(JSON.parse(text));
      return known.success ? [known.data] : [];
    } catch {
      return [];
    }
  });
}

/** This shard's configurations, in order. */
function casesOfShard(): readonly Case[] {
  const layout = wordOf("layout", values.layout, ["first", "last"]);
  const layers = values.cases === undefined ? suiteLayers() : layersNamed(values.cases);
  const batches = values.batches.split(",").map(Number);
  const options = { every: Number(values.every), dtype: wordOf("dtype", values.dtype, suiteType.options) };
  return inShard(suiteCases(layers, batches, layout, options), values.shard);
}

async function run(): Promise<void> {
  const made = await createCudaRunner();
  if (made.status === "environment") {
    console.error(`${made.what}\n${made.why}\n${made.remedy}`);
    process.exitCode = 6;
    return;
  }
  const { device } = made.runner;
  await made.runner.close();
  const { out } = values;
  const before = out === undefined || !existsSync(out) ? [] : linesIn(out);
  const write = (written: Line): void => {
    const text = JSON.stringify(written);
    if (out === undefined) console.log(text);
    else appendFileSync(out, `${text}\n`);
  };
  const { name, driver, nvcc } = device;
  write({
    kind: "device",
    name,
    driver,
    nvcc: nvcc.version,
    seconds: Number(values.seconds),
    seed: Number(values.seed),
  });
  const cases = casesOfShard();
  const without = (kind: Line["kind"]): readonly Case[] =>
    cases.filter(({ id }) => !before.some((l) => l.kind === kind && "id" in l && l.id === id));
  await timePeers(without("peer"), write);
  for (const one of without("case")) write(await searched(one));
}

async function searched(one: Case): Promise<Line> {
  const begun = Date.now();
  const spent = (): number => (Date.now() - begun) / 1000;
  const line = { kind: "case", ...one } as const;
  try {
    const computation = suiteComputation(one);
    const found = await tuneComputation(
      { computation, fixed: constantValues(operatorNamed(one.op), computation), name: one.id.replace("@", "/") },
      {
        machine: nvidiaTarget(values.target),
        database: ":memory:",
        trials: MOST_TRIALS,
        seconds: Number(values.seconds),
        seed: Number(values.seed),
        onEvent: (event) => {
          if (event.kind === "trial") keepTrial(one, event.trial, spent());
        },
      },
    );
    if (!("trials" in found)) {
      const because =
        found.status === "environment" ? found.problem.what : (found.refused[0]?.because ?? "nothing maps");
      return { ...line, seconds: spent(), trials: 0, measured: 0, failed: {}, because };
    }
    const { best, failed, trials } = found;
    const measured = trials.filter((t) => t.measurement.status === "ok").length;
    const kinds = [...new Set(trials.map((t) => t.candidate.intrinsic))].length;
    const told = { seconds: spent(), trials: trials.length, measured, failed, instructions: kinds };
    console.error(
      `${one.id} ${best ? (best.measurement.median * 1e6).toFixed(2) : "none"} us, ${trials.length} trials, ${spent().toFixed(1)} s`,
    );
    if (!best) {
      const log = trials.map((t) => t.measurement).find((m) => m.status !== "ok");
      return { ...line, ...told, because: log && "log" in log ? log.log.slice(0, 300) : "no kernel was right" };
    }
    const { median, interval } = best.measurement;
    return {
      ...line,
      ...told,
      best: {
        median,
        interval: [interval[0], interval[1]],
        instruction: best.candidate.intrinsic,
        mapping: placeText(best.candidate),
        schedule: scheduleText(best.candidate),
        expected: best.prediction?.uncorrectedSeconds,
      },
    };
  } catch (error) {
    console.error(`${one.id}: ${error instanceof Error ? error.message : String(error)}`);
    const because = error instanceof Error ? error.message.slice(0, 300) : String(error);
    return { ...line, seconds: spent(), trials: 0, measured: 0, failed: {}, because };
  }
}

function keepTrial(one: Case, { candidate, measurement, prediction }: TrialOf<Candidate>, at: number): void {
  if (values.trials === undefined) return;
  const uncorrected = prediction?.uncorrectedSeconds;
  appendFileSync(values.trials, `${JSON.stringify({ ...trialOf(one, candidate, measurement), at, uncorrected })}\n`);
}

/** Times PyTorch in its own process before the searches, and writes a line for each configuration as it ends. */
async function timePeers(cases: readonly Case[], write: (line: Line) => void): Promise<void> {
  if (cases.length === 0) return;
  const script = fileURLToPath(new URL("./peers/torch-operators.py", import.meta.url));
  const python = spawn(values.python, [script], { stdio: ["pipe", "pipe", "inherit"] });
  python.on("error", (error) => console.error(`PyTorch: ${error.message}`));
  python.stdin.on("error", () => undefined);
  python.stdin.end(JSON.stringify(cases));
  for await (const text of createInterface({ input: python.stdout })) {
    const told = answer.parse(JSON.parse(text));
    write("torch" in told ? { kind: "library", ...told } : { kind: "peer", ...told });
  }
}
