/**
 * @file One run of the harness: a child in its own process group that checks and times kernels and may die in any way.
 *
 *     const reply = await runHarness(program, request, { stepSeconds: 10, outputBytes: 1 << 20 });
 *     reply.verdicts.get(0)      { status: "timed", samples: [...] } or { status: "crashed", log: "..." }
 *
 * The protocol is described at the head of harness.cpp.
 */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { KernelArgument } from "../../abstraction/kernel.ts";
import { trustedCode } from "../../abstraction/source-text.ts";
import { spell } from "../../abstraction/spelling.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { killGroup } from "../child.ts";
import { type Compiled, type CompileOptions, compileSource } from "../compiler.ts";

/** Files of one set of inputs and its answer. */
export interface SetFiles {
  readonly name: string;
  readonly expected: string;
  readonly tolerance: string;
  readonly checked: string | undefined;
  /** In the order of the arguments, the output left out. */
  readonly inputs: readonly string[];
}

export interface HarnessRequest {
  readonly cpus: readonly number[];
  readonly memoryBytes: number;
  readonly alignment: number;
  readonly cache: "warm" | "flushed";
  readonly batchSeconds: number;
  readonly budgetSeconds: number;
  readonly batches: readonly [least: number, most: number];
  readonly arguments: readonly KernelArgument[];
  readonly sets: readonly SetFiles[];
  /** Shared objects; none to time the baseline. */
  readonly kernels: readonly string[];
}

export interface HarnessLimits {
  /** Longest silence: a kernel has this long for one call, and for each batch. */
  readonly stepSeconds: number;
  /** Most a kernel may print. */
  readonly outputBytes: number;
  /** Ends the run; the promise is rejected. */
  readonly signal?: AbortSignal;
}

type FailedStatus = Exclude<Measurement["status"], "ok" | "compile-failed" | "missing-instruction">;

export type Verdict =
  | { readonly status: "timed"; readonly samples: readonly number[] }
  | { readonly status: FailedStatus; readonly log: string };

export interface HarnessReply {
  /** By number of the kernel. After a fault the kernels that were not timed yet have none. */
  readonly verdicts: ReadonlyMap<number, Verdict>;
  /** Smallest step seen of the clock, seconds. */
  readonly clockTick: number | undefined;
}

const FLAGS = ["-O2", "-std=c++17", "-pthread", "-rdynamic", "-ldl"];
const FAULTS = ["illegal-instruction", "crashed", "out-of-memory", "out-of-bounds"] as const;
const LOG_CHARACTERS = 4000;
const STOPPED = "measuring was stopped";
/** A busy parent may look at its clock before it reads what has long been answered. */
const SECOND_LOOK_MS = 50;

/** The harness for a compiler; compiled once. */
export function compileHarness(options: Omit<CompileOptions, "flags">): Promise<Compiled> {
  const source = readFileSync(fileURLToPath(new URL("./harness.cpp", import.meta.url)), "utf8");
  return compileSource(spell(trustedCode(source), "c++"), FLAGS, ".out", options);
}

/** Runs a request to its end, whatever that is. @throws Error when the harness cannot start or refuses the request */
export function runHarness(program: string, request: HarnessRequest, limits: HarnessLimits): Promise<HarnessReply> {
  return new Promise((resolve, reject) => {
    if (limits.signal?.aborted) {
      reject(new Error(STOPPED));
      return;
    }
    // The size of the environment moves the stack, and with it the time of a kernel: it is always the same.
    const libraries = process.env["LD_LIBRARY_PATH"];
    const env = libraries === undefined ? {} : { LD_LIBRARY_PATH: libraries };
    const child = spawn(program, [], { detached: true, env, stdio: ["pipe", "pipe", "pipe", "pipe"] });
    const verdicts = new Map<number, Verdict>();
    let clockTick: number | undefined;
    let here = { kernel: 0, stage: "starting" };
    let printed = "";
    let printedBytes = 0;
    let finished = false;
    let failure: Error | undefined;

    const kill = (): void => {
      if (child.pid !== undefined) killGroup(child.pid);
    };
    const fail = (kernel: number, status: FailedStatus, log: string): void => {
      if (!finished && !verdicts.has(kernel)) verdicts.set(kernel, { status, log });
    };
    const stop = (status: FailedStatus, message: string): void => {
      fail(here.kernel, status, `${here.stage}: ${message}`);
      finished = true;
      kill();
    };

    // 1. Silence is a hang.
    const silent = (): void => {
      timer = setTimeout(() => stop("timed-out", `no sign of life for ${limits.stepSeconds} s`), SECOND_LOOK_MS);
    };
    const stepMs = limits.stepSeconds * 1000;
    let timer = setTimeout(silent, stepMs);

    // 2. Answers.
    const onAnswer = (line: string): void => {
      clearTimeout(timer);
      timer = setTimeout(silent, stepMs);
      const [word = "", number = "", ...rest] = line.split(" ");
      const kernel = Number(number);
      const text = rest.join(" ");
      if (word === "at") here = { kernel, stage: text };
      else if (word === "tick") clockTick = kernel;
      else if (word === "samples") verdicts.set(kernel, { status: "timed", samples: rest.map(Number) });
      else if (word === "wrong" || word === "out-of-bounds") fail(kernel, word, text);
      else if (word === "done") finished = true;
      else if (word === "refused") failure = new Error(`internal: the harness refused a request: ${line}`);
      else if (word === "fault") {
        const status = FAULTS.find((known) => known === rest[0]) ?? "crashed";
        fail(kernel, status, `${here.stage}: ${rest.slice(1).join(" ")}`);
        finished = true;
      }
    };
    const answers = child.stdio[3];
    let pending = "";
    if (answers instanceof Readable)
      answers.setEncoding("utf8").on("data", (text: string) => {
        const lines = (pending + text).split("\n");
        pending = lines.pop() ?? "";
        lines.forEach(onAnswer);
      });

    // 3. What the kernel prints is kept for the log, up to a limit.
    const onOutput = (text: Buffer): void => {
      printedBytes += text.length;
      if (printed.length < LOG_CHARACTERS) printed += text.toString("utf8").slice(0, LOG_CHARACTERS - printed.length);
      if (printedBytes > limits.outputBytes) stop("output-flood", `it printed more than ${limits.outputBytes} bytes`);
    };
    child.stdout.on("data", onOutput);
    child.stderr.on("data", onOutput);

    // 4. The end. Whatever the kernel started ends with the group.
    const onAbort = (): void => {
      failure = new Error(STOPPED);
      kill();
    };
    limits.signal?.addEventListener("abort", onAbort);
    child.on("error", (error) => {
      failure = new Error(`internal: the harness did not start: ${error.message}`);
      clearTimeout(timer);
      reject(failure);
    });
    child.on("exit", kill);
    child.on("close", (exitCode, signal) => {
      clearTimeout(timer);
      limits.signal?.removeEventListener("abort", onAbort);
      if (signal === "SIGKILL")
        fail(here.kernel, "out-of-memory", `${here.stage}: the system killed it, most likely for want of memory`);
      else if (signal !== null) fail(here.kernel, "crashed", `${here.stage}: killed by ${signal}`);
      else fail(here.kernel, "crashed", `${here.stage}: it ended the process with exit code ${exitCode}`);
      if (failure) reject(failure);
      else
        resolve({
          verdicts: new Map([...verdicts].map(([kernel, verdict]) => [kernel, withOutput(verdict, printed)])),
          clockTick,
        });
    });

    // 5. The request. A child that dies early closes its end, and its own end says why.
    child.stdin.on("error", () => child.stdin.destroy());
    child.stdin.end(requestText(request));
  });
}

/** What was printed is known at the end only. */
function withOutput(verdict: Verdict, printed: string): Verdict {
  return verdict.status === "timed" || printed === ""
    ? verdict
    : { ...verdict, log: `${verdict.log}\nit printed:\n${printed}` };
}

function requestText(request: HarnessRequest): string {
  const { sets, kernels, batches } = request;
  const lines = [
    `parent ${process.pid}`,
    `threads ${request.cpus.length}`,
    `cpus ${request.cpus.join(" ")}`,
    `memory ${request.memoryBytes}`,
    `alignment ${request.alignment}`,
    `cache ${request.cache}`,
    `batch ${request.batchSeconds}`,
    `budget ${request.budgetSeconds}`,
    `batches ${batches.join(" ")}`,
    ...request.arguments.map(({ dtype, elements, tensor }) => `argument ${dtype} ${elements} ${tensor}`),
    ...sets.flatMap((set) => [
      `set ${set.name}`,
      `expected ${set.expected}`,
      `tolerance ${set.tolerance}`,
      ...(set.checked === undefined ? [] : [`checked ${set.checked}`]),
      ...set.inputs.map((file) => `input ${file}`),
    ]),
    ...(kernels.length === 0 ? ["baseline"] : kernels.map((file) => `kernel ${file}`)),
    "go",
  ];
  return `${lines.join("\n")}\n`;
}
