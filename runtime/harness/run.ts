/**
 * @file One run of the harness: a child process that checks and times kernels and may die in any way, under a supervisor that cleans up after
 * it.
 *
 *     const reply = await runHarness(program, request, { stepSeconds: 10, outputBytes: 1 << 20 });
 *     reply.verdicts.get(0)      { status: "timed", samples: [...] } or { status: "crashed", log: "..." }
 *
 * The protocol is described at the head of answers.h.
 */

import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { KernelArgument } from "../../abstraction/kernel.ts";
import { trustedCode } from "../../abstraction/source-text.ts";
import { spell } from "../../abstraction/spelling.ts";
import { type DeviceClock, type Measurement, THROTTLES } from "../../abstraction/trial.ts";
import { begin, killGroup, whenOver } from "../child.ts";
import { type Compiled, type CompileOptions, compileSource } from "../compiler.ts";

/** Files of one set of inputs and its answer. */
export interface SetFiles {
  readonly name: string;
  readonly expected: string;
  /** A file, of a bound for each element of f64; or one bound for all elements, which then lie in the output's type. */
  readonly tolerance: string | number;
  readonly checked: string | undefined;
  /** In the order of the arguments, the output left out. */
  readonly inputs: readonly string[];
}

export interface HarnessRequest {
  readonly cpus: readonly number[];
  readonly memoryBytes: number;
  /** Of a file that a kernel writes. */
  readonly fileBytes: number;
  readonly cache: "warm" | "flushed";
  readonly batchSeconds: number;
  readonly budgetSeconds: number;
  readonly batches: readonly [least: number, most: number];
  readonly enough?: readonly [batches: number, seconds: number] | undefined;
  readonly arguments: readonly KernelArgument[];
  readonly sets: readonly SetFiles[];
  /** Shared objects; none to time the baseline. */
  readonly kernels: readonly string[];
  /**
   * Each kernel is checked and timed before the next is looked at, and what is clearly slower than `goal` seconds, or than one before it, is
   * not timed to the end. One that fails ends the process. Without this all are checked, and timed in turns.
   */
  readonly race?: { readonly goal: number | undefined } | undefined;
}

export interface HarnessLimits {
  /** Longest silence: a kernel has this long for one call, and for each batch. */
  readonly stepSeconds: number;
  /** Most a kernel may print. */
  readonly outputBytes: number;
  /** What the harness is told of its environment besides what it always is. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Told each verdict when it comes: of a run that a fault of the machine ends, all there are. */
  readonly onVerdict?: (kernel: number, verdict: Verdict) => unknown;
  /** What the run is rejected with where no inputs tell wrong answers from right ones. */
  readonly unverifiable?: () => Error;
  /** Told of inputs that are left out, as no wrong answer shows by them. */
  readonly onLeftOut?: (set: string) => void;
  /** Ends the run; the promise is rejected. */
  readonly signal?: AbortSignal;
}

type FailedStatus = Exclude<Measurement["status"], "ok" | CompileFailure>;
/** What is found before a kernel runs. */
type CompileFailure = "compile-failed" | "missing-instruction" | "spilled" | "serialised";

export type Verdict =
  | {
      readonly status: "timed";
      readonly samples: readonly number[];
      readonly clock?: DeviceClock;
      /** Of a race: the seconds it was slower than by a margin in every batch, which ended its timing. */
      readonly dropped?: number;
      /** Share of the time of its processors that other programs took meanwhile; of several processors the most. */
      readonly load?: number;
    }
  | { readonly status: FailedStatus; readonly log: string };

export interface HarnessReply {
  /** By number of the kernel. After a fault the kernels that were not timed yet have none. */
  readonly verdicts: ReadonlyMap<number, Verdict>;
  /** Smallest step seen of the clock, seconds. */
  readonly clockTick: number | undefined;
  /** The most that other programs took of a processor while a kernel was timed. */
  readonly load: number | undefined;
  /** Somebody else killed the process. A kernel to which that happens again did it itself. */
  readonly killed: boolean;
}

/** The harness is one text. */
const PARTS = [
  "answers.h",
  "memory.h",
  "faults.h",
  "request.h",
  "threads.h",
  "check.h",
  "timing.h",
  "supervise.h",
  "harness.cpp",
];

const FLAGS = ["-O2", "-std=c++17", "-pthread", "-rdynamic", "-ldl"];
const FAULTS = [
  ...(["illegal-instruction", "crashed", "timed-out"] as const),
  ...(["out-of-memory", "out-of-bounds", "out-of-resources"] as const),
];
const LOG_CHARACTERS = 4000;
/** What every harness is told of the environment: where libraries lie. */
const KEPT_VARIABLES = ["LD_LIBRARY_PATH"];
/** What is said to who measures when the runner is closed. */
export const STOPPED = "measuring was stopped";
/** A busy parent may look at its clock before it reads what has long been answered. */
const SECOND_LOOK_MS = 50;
/** What is asked to end and does not is killed. */
const PATIENCE_MS = 5000;

/** The harness for a compiler; compiled once. */
export function compileHarness(options: Omit<CompileOptions, "flags">): Promise<Compiled> {
  const parts = PARTS.map((part) => readFileSync(fileURLToPath(new URL(`./${part}`, import.meta.url)), "utf8"));
  return compileSource(spell(trustedCode(parts.join("\n")), "c++"), FLAGS, ".out", options);
}

/** Where the harness is. @throws EnvironmentError when it does not compile */
export async function madeHarness(options: Omit<CompileOptions, "flags">): Promise<string> {
  const made = await compileHarness(options);
  if (made.status === "compiled") return made.file;
  const { path, version } = options.compiler;
  throw new EnvironmentError({
    what: `${path} (${version}) cannot compile the measuring program\n${made.log}`,
    why: "kernels are checked and timed by it",
    remedy: "install g++ 9 or newer with its C++ library, or set CXX",
  });
}

/**
 * Runs a request to its end, whatever that is. A harness for another device takes its request as text; one for another processor is behind
 * the emulator that runs it.
 * @throws EnvironmentError when it is the machine that fails and no kernel; Error when it is stopped
 */
export function runHarness(
  program: string | readonly string[],
  request: HarnessRequest | string,
  limits: HarnessLimits,
): Promise<HarnessReply> {
  return new Promise((resolve, reject) => {
    if (limits.signal?.aborted) {
      reject(new Error(STOPPED));
      return;
    }
    const killsBefore = memoryKills();
    const begun = start(program, limits);
    if ("reason" in begun) {
      reject(environment(`the measuring program did not start: ${begun.reason}`));
      return;
    }
    const { child } = begun;
    const heard = new Answers(limits);
    const printed = new Printed();
    let failure: Error | undefined;
    const ending = endingOf(child);
    const stop = (status: FailedStatus, message: string): void => {
      heard.stop(status, message);
      ending.ask();
    };

    // 1. Silence is a hang.
    const silence = onSilence(limits.stepSeconds, (what) => stop("timed-out", what));

    // 2. Answers.
    onLines(child.stdio[3], (lines) => {
      silence.broken();
      for (const line of lines) heard.hear(line);
    });

    // 3. What the kernel prints is kept for the log, up to a limit.
    const onOutput = (text: Buffer): void => {
      printed.add(text);
      if (printed.bytes > limits.outputBytes) stop("output-flood", `it printed more than ${limits.outputBytes} bytes`);
    };
    child.stdout.on("data", onOutput);
    child.stderr.on("data", onOutput);

    // 4. The end.
    const onAbort = (): void => {
      failure = new Error(STOPPED);
      ending.ask();
    };
    limits.signal?.addEventListener("abort", onAbort);
    const over = (settle: () => void): void => {
      silence.end();
      ending.over();
      limits.signal?.removeEventListener("abort", onAbort);
      settle();
    };
    child.on("error", (error) =>
      over(() => reject(environment(`the measuring program did not start: ${error.message}`))),
    );
    whenOver(child, (exitCode, signal) =>
      over(() => {
        const problem = failure ?? heard.conclude(exitCode, signal, memoryKills() - killsBefore);
        if (problem) reject(problem);
        else resolve(heard.reply(printed.text));
      }),
    );

    // 5. The request. A child that dies early closes its end, and its own end says why.
    child.stdin.on("error", () => child.stdin.destroy());
    child.stdin.end(typeof request === "string" ? request : requestText(request));
  });
}

/** Starts the harness as the leader of a group of its own; answers come through its fourth pipe. */
function start(
  program: string | readonly string[],
  limits: HarnessLimits,
): { readonly child: ChildProcessWithoutNullStreams } | { readonly reason: string } {
  const env = environmentOf(limits);
  const [command = "", ...leading] = typeof program === "string" ? [program] : program;
  return begin(() => spawn(command, leading, { detached: true, env, stdio: ["pipe", "pipe", "pipe", "pipe"] }));
}

/** The size of the environment moves the stack, and with it the time of a kernel: it is always the same. */
function environmentOf({ variables }: HarnessLimits): Record<string, string> {
  const kept = KEPT_VARIABLES.flatMap((name) => {
    const value = process.env[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  return { ...Object.fromEntries(kept), ...variables };
}

/** Asks a child to end, whose watcher ends with all that the kernel started; its group is killed when it has not ended in time. */
function endingOf(child: ChildProcess): { readonly ask: () => void; readonly over: () => void } {
  let last: NodeJS.Timeout | undefined;
  const ask = (): void => {
    const { pid } = child;
    if (pid === undefined || last !== undefined) return;
    child.kill("SIGTERM");
    last = setTimeout(() => killGroup(pid), PATIENCE_MS);
  };
  return { ask, over: () => clearTimeout(last) };
}

/** Calls back when nothing was heard for so long. */
function onSilence(seconds: number, call: (what: string) => void): { broken: () => void; end: () => void } {
  const silent = (): void => {
    timer = setTimeout(() => call(`no sign of life for ${seconds} s`), SECOND_LOOK_MS);
  };
  let timer = setTimeout(silent, seconds * 1000);
  const broken = (): void => {
    clearTimeout(timer);
    timer = setTimeout(silent, seconds * 1000);
  };
  return { broken, end: () => clearTimeout(timer) };
}

/** Calls back at everything that comes, with the lines that are whole. */
function onLines(stream: unknown, hear: (lines: readonly string[]) => void): void {
  if (!(stream instanceof Readable)) return;
  let pending = "";
  stream.setEncoding("utf8").on("data", (text: string) => {
    const lines = (pending + text).split("\n");
    pending = lines.pop() ?? "";
    hear(lines);
  });
}

/** The beginning of what was printed, and how much it was. */
class Printed {
  text = "";
  bytes = 0;

  add(part: Buffer): void {
    this.bytes += part.length;
    if (this.text.length < LOG_CHARACTERS)
      this.text += part.toString("utf8").slice(0, LOG_CHARACTERS - this.text.length);
  }
}

/** What the harness says, line by line, and what it means that it ended. */
export class Answers {
  private readonly verdicts = new Map<number, Verdict>();
  private clockTick: number | undefined;
  private load: number | undefined;
  private dropped: number | undefined;
  private here = { kernel: 0, stage: "starting" };
  /** Nothing that comes later counts. */
  private finished = false;
  /** How the process that ran the kernels ended, as its watcher says. */
  private ended: { readonly kind: string; readonly value: number } | undefined;
  private problem: Error | undefined;
  private readonly clocks = new Map<number, DeviceClock>();

  private readonly told: Pick<HarnessLimits, "onVerdict" | "unverifiable" | "onLeftOut">;

  constructor(told: Pick<HarnessLimits, "onVerdict" | "unverifiable" | "onLeftOut"> = {}) {
    this.told = told;
  }

  hear(line: string): void {
    const [word = "", number = "", ...rest] = line.split(" ");
    const kernel = Number(number);
    const text = rest.join(" ");
    if (word === "at") this.here = { kernel, stage: text };
    else if (word === "tick") this.clockTick = kernel;
    else if (word === "load") this.load = kernel;
    else if (word === "dropped") this.dropped = Number(text);
    else if (word === "clock") this.clocks.set(kernel, clockOf(rest));
    else if (word === "samples") this.take(kernel, rest.map(Number));
    else if (word === "wrong" || word === "out-of-bounds") this.fail(kernel, word, text);
    else if (word === "done") this.finished = true;
    else if (word === "ended") this.ended = { kind: number, value: Number(rest[0]) };
    else if (word === "left-out") this.told.onLeftOut?.(text);
    else if (word === "unverifiable") this.problem ??= this.told.unverifiable?.();
    else if (word === "refused") this.problem ??= new Error(`internal: the harness refused a request: ${line}`);
    else if (word === "fault" && rest[0] === "environment") this.problem ??= environment(rest.slice(1).join(" "));
    else if (word === "fault") {
      const status = FAULTS.find((known) => known === rest[0]) ?? "crashed";
      this.fail(kernel, status, `${this.here.stage}: ${rest.slice(1).join(" ")}`);
      this.finished = true;
    }
  }

  /** The run is ended from here. */
  stop(status: FailedStatus, message: string): void {
    this.fail(this.here.kernel, status, `${this.here.stage}: ${message}`);
    this.finished = true;
  }

  /**
   * Gives a kernel that ended the process its verdict.
   * @param exitCode and `signal` of the watcher, which ends well unless it is killed
   * @param memoryKills processes that the system has killed meanwhile for want of memory
   * @returns what is no fault of a kernel
   */
  conclude(exitCode: number | null, signal: string | null, memoryKills: number): Error | undefined {
    if (this.problem || this.finished) return this.problem;
    const { stage, kernel } = this.here;
    if (signal !== null) return environment(`the measuring program was killed by ${signal} (${stage})`);
    if (this.ended === undefined)
      return environment(`the measuring program ended with exit code ${exitCode} (${stage})`);
    const { kind, value } = this.ended;
    if (kind === "exit") this.fail(kernel, "crashed", `${stage}: it ended the process with exit code ${value}`);
    else if (value === constants.signals.SIGKILL && memoryKills > 0)
      return environment(`the system ran out of memory and killed the measuring program (${stage})`);
    else this.fail(kernel, "crashed", `${stage}: killed by ${nameOfSignal(value)}`);
    return undefined;
  }

  reply(printed: string): HarnessReply {
    const verdicts = new Map([...this.verdicts].map(([kernel, verdict]) => [kernel, withOutput(verdict, printed)]));
    const killed = this.ended?.kind === "signal" && this.ended.value === constants.signals.SIGKILL && !this.finished;
    const loads = [...verdicts.values()].flatMap((v) => (v.status === "timed" ? (v.load ?? []) : []));
    const load = loads.length === 0 ? this.load : Math.max(...loads);
    return { verdicts, clockTick: this.clockTick, load, killed };
  }

  private fail(kernel: number, status: FailedStatus, log: string): void {
    if (!this.finished && !this.verdicts.has(kernel)) this.give(kernel, { status, log });
  }

  private take(kernel: number, samples: readonly number[]): void {
    const { dropped, load } = this;
    const clock = this.clocks.get(kernel);
    this.dropped = undefined;
    this.give(kernel, {
      ...{ status: "timed", samples },
      ...(clock && { clock }),
      ...(dropped !== undefined && { dropped }),
      ...(load !== undefined && { load }),
    });
  }

  private give(kernel: number, verdict: Verdict): void {
    this.verdicts.set(kernel, verdict);
    this.told.onVerdict?.(kernel, verdict);
  }
}

/** `1755 5`: megahertz, and a bit for each of {@link THROTTLES}. */
function clockOf([megahertz, bits]: readonly string[]): DeviceClock {
  const throttled = THROTTLES.filter((_, i) => (Number(bits) >> i) % 2 === 1);
  return { hertz: Number(megahertz) * 1e6, throttled };
}

function environment(what: string): EnvironmentError {
  return new EnvironmentError({
    what,
    why: "this is a fault of the machine and says nothing about a kernel, so nothing is recorded of it",
    remedy: "end other programs, look at the limits of this shell (ulimit -a), and run the same command again",
  });
}

function nameOfSignal(number: number): string {
  return Object.entries(constants.signals).find(([, value]) => value === number)?.[0] ?? `signal ${number}`;
}

/** How often the system has killed a process for want of memory since it started; 0 where it does not tell. */
function memoryKills(): number {
  try {
    return Number(/^oom_kill (\d+)$/m.exec(readFileSync("/proc/vmstat", "utf8"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** What was printed is known at the end only. */
function withOutput(verdict: Verdict, printed: string): Verdict {
  return verdict.status === "timed" || printed === ""
    ? verdict
    : { ...verdict, log: `${verdict.log}\nit printed:\n${printed}` };
}

function requestText(request: HarnessRequest): string {
  const { sets, kernels, batches, enough } = request;
  const lines = [
    `parent ${process.pid}`,
    `threads ${request.cpus.length}`,
    `cpus ${request.cpus.join(" ")}`,
    `memory ${request.memoryBytes}`,
    `files ${request.fileBytes}`,
    `cache ${request.cache}`,
    `batch ${request.batchSeconds}`,
    `budget ${request.budgetSeconds}`,
    ...[`batches ${batches.join(" ")}`, ...(enough ? [`enough ${enough.join(" ")}`] : [])],
    ...(request.race ? ["race", ...(request.race.goal === undefined ? [] : [`goal ${request.race.goal}`])] : []),
    ...request.arguments.map(({ dtype, elements, tensor }) => `argument ${dtype} ${elements} ${tensor}`),
    ...sets.flatMap((set) => [
      `set ${set.name}`,
      ...(typeof set.tolerance === "number"
        ? [`stored ${set.expected}`, `within ${set.tolerance}`]
        : [`expected ${set.expected}`, `tolerance ${set.tolerance}`]),
      ...(set.checked === undefined ? [] : [`checked ${set.checked}`]),
      ...set.inputs.map((file) => `input ${file}`),
    ]),
    ...(kernels.length === 0 ? ["baseline"] : kernels.map((file) => `kernel ${file}`)),
    "go",
  ];
  return `${lines.join("\n")}\n`;
}
