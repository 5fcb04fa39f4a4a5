/**
 * @file Runs random kernels of every kind under NVIDIA's compute-sanitizer (memcheck, racecheck, synccheck, initcheck)
 * and writes one line for each kernel and tool.
 *
 *     npm run build
 *     node dist/bench/gpu/cuda-sanitizer.js --kernels 200 --seconds 240 --out sanitizer.jsonl
 *
 * Kernels are drawn in turn from the spaces of small cases: Tensor Cores through registers and through shared memory,
 * boxes of the copy engine, producers, split sums, threads, lanes of warps. The harness verifies and calls each kernel
 * once, several in a process and several processes at once. When a process reports an error, each of its kernels runs
 * again alone. Kernels for which there is no time left are counted in the output.
 */

import { spawn } from "node:child_process";
import { appendFileSync, mkdtempSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import pLimit from "p-limit";
import { type Candidate, canonicalJson } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import type { CudaReference, CudaRunner } from "../../runtime/run/cuda.ts";
import { usableIntrinsics } from "../../session/choose.ts";
import { isRefusals } from "../../session/session-space.ts";
import { sessionSpace } from "../../session/space.ts";
import { localGpu } from "../../session/workplace.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { gpuRunner, inShard } from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";

const { values } = readOptions({
  options: {
    kernels: { type: "string", default: "200" },
    seconds: { type: "string", default: "240" },
    seed: { type: "string", default: "1" },
    /** Part of the drawn kernels that this run takes: `2/8`. */
    shard: { type: "string", default: "1/1" },
    out: { type: "string" },
    tools: { type: "string", default: "memcheck,racecheck,synccheck,initcheck" },
    /** Lists the drawn kernels without compiling them. */
    list: { type: "boolean", default: false },
  },
});

interface Case {
  readonly name: string;
  readonly computation: Computation;
}

const of = (
  name: string,
  types: string,
  parameters: Record<string, number>,
  layouts?: Record<string, string>,
): Case => ({
  name: [name, types, ...Object.entries(parameters).map(([p, v]) => `${p}${v}`), ...Object.values(layouts ?? {})].join(
    " ",
  ),
  computation: instantiate(operatorNamed(name), {
    parameters,
    types: parseDataTypes(types),
    ...(layouts && { layouts }),
  }),
});
const NHWC = { in: "NHWC", w: "KRSC", out: "NPQK" };

/** Small enough for racecheck, large enough for several blocks and for a ring buffer to wrap around. */
const CASES: readonly Case[] = [
  of("matmul", "f16", { m: 320, n: 320, k: 320 }),
  // More tiles than blocks, so each block takes several.
  of("matmul", "f16", { m: 2048, n: 2048, k: 64 }),
  of("conv2d", "f16", { n: 2, c: 32, k: 32, h: 14, w: 14 }, NHWC),
  of("conv2d", "f16", { c: 32, k: 32, h: 14, w: 14 }),
  of("matmul", "bf16", { m: 128, n: 192, k: 256 }),
  of("matmul", "s8", { m: 128, n: 192, k: 256 }),
  of("depthwise-conv2d", "f16", { c: 32, h: 14, w: 14 }),
  of("2d9pt", "f32", { h: 96, w: 96 }),
  of("2d9pt", "f64", { h: 64, w: 64 }),
];
/** Kernels a process: starting one under a tool takes seconds. */
const TOGETHER = 8;
const TOOL_LIMIT_MS = 120_000;
const TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"] as const;
const tools = values.tools.split(",").map((tool) => wordOf("tools", tool, TOOLS));

const begun = Date.now();
const secondsLeft = (): number => Number(values.seconds) - (Date.now() - begun) / 1000;

function write(line: unknown): void {
  console.error(JSON.stringify(line));
  if (values.out !== undefined) appendFileSync(values.out, `${JSON.stringify(line)}\n`);
}

/** Runs the kernels in a process under a tool. Returns the tool's report, and whether all results were right. */
function underTool(tool: string, harness: string, request: string, kernels: number): Promise<Record<string, unknown>> {
  return new Promise((resolve) => {
    const child = spawn("compute-sanitizer", ["--tool", tool, "--error-exitcode", "9", harness], {
      stdio: ["pipe", "pipe", "pipe", "pipe"],
      timeout: TOOL_LIMIT_MS,
    });
    let said = "";
    let answers = "";
    const hear = (text: Buffer): void => {
      said += text.toString("utf8");
    };
    child.stdout?.on("data", hear);
    child.stderr?.on("data", hear);
    const channel = child.stdio[3];
    if (channel instanceof Readable)
      channel.on("data", (text: Buffer) => {
        answers += text.toString("utf8");
      });
    child.on("error", (error) => resolve({ status: "not-run", findings: [error.message] }));
    child.on("close", (code, signal) => {
      const lines = said.split("\n");
      const findings = lines.filter((l) => /Error|Warning|hazard|Invalid|Uninitialized/i.test(l) && !/SUMMARY/.test(l));
      const timed = (answers.match(/^samples /gm)?.length ?? 0) === kernels;
      const status = signal !== null ? "too-long" : code === 0 && timed ? "clean" : code === 9 ? "found" : "failed";
      const wrong = /^(?:wrong|fault|refused).*$/m.exec(answers)?.[0];
      const summary = lines.findLast((l) => l.includes("SUMMARY"))?.replace(/^=+ /, "");
      resolve({ status, summary, ...(wrong ? { wrong } : {}), findings: findings.slice(0, 3) });
    });
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(request);
  });
}

interface Drawn {
  readonly at: Case;
  readonly candidate: Candidate;
  readonly kernel: Kernel;
}

const DRAWS = 16;

/** The kind of a kernel: its instruction's family, how grid tiles are fetched, and whether their sums are split. */
function kindOf(candidate: Candidate): string {
  const family = intrinsicNamed(candidate.intrinsic)?.family ?? "";
  const how =
    candidate.kind === "grid"
      ? [
          candidate.schedule.transfer,
          ...(candidate.schedule.producer ? ["producer"] : []),
          candidate.schedule.split ? "split" : candidate.schedule.persistent === undefined ? "whole" : "persistent",
        ]
      : [];
  return [candidate.kind ?? "mapped", family, ...how].join(" ");
}

/** Draws distinct kernels from the cases in turn. */
function draw(count: number): Drawn[] {
  const machine = nvidiaTarget("h100");
  const random = seededRandom(Number(values.seed));
  const chosen = { machine, intrinsics: usableIntrinsics(machine), threads: 1, seed: Number(values.seed) };
  const spaces = CASES.flatMap((at) => {
    const space = finished(sessionSpace(at.computation, chosen));
    if (!isRefusals(space)) return [{ at, space }];
    write({ kind: "refused", case: at.name, because: space[0]?.because });
    return [];
  });
  const drawn = new Map<string, Drawn>();
  const taken = new Map<string, number>();
  for (let i = 0; drawn.size < count && i < 20 * count; i++) {
    const one = spaces[i % spaces.length];
    if (!one) break;
    // Prefer the kind drawn least so far.
    const several = Array.from({ length: DRAWS }, () => one.space.random(random));
    const timesTaken = (c: Candidate): number => taken.get(`${one.at.name} ${kindOf(c)}`) ?? 0;
    const candidate = several.reduce((a, b) => (timesTaken(b) < timesTaken(a) ? b : a));
    taken.set(`${one.at.name} ${kindOf(candidate)}`, timesTaken(candidate) + 1);
    const key = `${one.at.name} ${canonicalJson(candidate)}`;
    if (!drawn.has(key)) drawn.set(key, { at: one.at, candidate, kernel: one.space.kernelOf(candidate) });
  }
  return [...drawn.values()];
}

/** A compiled kernel. */
interface Built {
  readonly file: string;
  readonly kernel: Kernel;
  readonly line: Readonly<Record<string, unknown>>;
}

async function examine(runner: CudaRunner, drawn: readonly Drawn[]): Promise<void> {
  const compiling = pLimit(availableParallelism());
  const running = pLimit(Math.max(1, availableParallelism() / 2));
  const build = async ({ at, candidate, kernel }: Drawn, number: number): Promise<Built[]> => {
    const line = { kind: "kernel", number, case: at.name, instruction: candidate.intrinsic, made: kindOf(candidate) };
    const compiled = await compiling(() => runner.compile(kernel));
    if (compiled.status === "compiled") return [{ file: compiled.file, kernel, line }];
    write({ ...line, status: compiled.status });
    return [];
  };
  let leftOut = 0;
  const under = async (tool: string, built: readonly Built[], reference: CudaReference): Promise<void> => {
    const [first] = built;
    if (!first) return;
    const found = await running(() => {
      if (secondsLeft() <= 0) return undefined;
      const timing = { budgetSeconds: 0, batches: [1, 1], batchSeconds: 0 } as const;
      const files = built.map(({ file }) => file);
      const request = runner.requestOf(files, first.kernel, { ...reference, bounds: "" }, timing);
      return underTool(tool, runner.harness, request, built.length);
    });
    if (found === undefined) leftOut += built.length;
    else if (found.status === "clean" || built.length === 1)
      for (const { line } of built) write({ ...line, tool, ...found });
    else for (const one of built) await under(tool, [one], reference);
  };
  const parts = CASES.flatMap((at) => {
    const own = drawn.flatMap((one, number) => (one.at === at ? [{ one, number }] : []));
    return Array.from({ length: Math.ceil(own.length / TOGETHER) }, (_, i) => ({
      at,
      own: own.slice(i * TOGETHER, (i + 1) * TOGETHER),
    }));
  });
  const examined = parts.map(async ({ at, own }) => {
    const reference = await runner.reference(at.computation, 1);
    const built = (await Promise.all(own.map(({ one, number }) => build(one, number)))).flat();
    await Promise.all(tools.map((tool) => under(tool, built, reference)));
  });
  await Promise.all(examined);
  write({ kind: "end", kernels: drawn.length, leftOut, seconds: (Date.now() - begun) / 1000 });
}

const drawn = inShard(draw(Number(values.kernels)), values.shard);
if (values.list) for (const { at, candidate } of drawn) console.log(`${at.name}   ${canonicalJson(candidate)}`);
else {
  const gpu = await localGpu();
  if ("status" in gpu) throw new EnvironmentError(gpu);
  const runner = await gpuRunner({ workdir: mkdtempSync(join(tmpdir(), "automap-cuda-sanitizer-")) });
  if (values.out !== undefined) writeFileSync(values.out, "");
  write({ kind: "device", ...runner.device, seed: Number(values.seed) });
  await examine(runner, drawn);
  await runner.close();
}
