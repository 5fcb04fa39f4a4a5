/**
 * @file One run of the harness: a child process that checks and times kernels and may die in any way, under a
 * supervisor that cleans up after it.
 *
 *     const reply = await runHarness(program, request, { stepSeconds: 10, outputBytes: 1 << 20 });
 *     reply.verdicts.get(0)      { status: "timed", samples: [...] } or { status: "crashed", log: "..." }
 *
 * The protocol is described at the head of answers.h.
 */

import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Socket } from "node:net";
import { constants } from "node:os";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { present } from "../../abstraction/collections.ts";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { KernelArgument } from "../../abstraction/kernel.ts";
import { type SourceText, spell, trustedCode } from "../../abstraction/source-text.ts";
import { type DeviceClock, type Measurement, THROTTLES } from "../../abstraction/trial.ts";
import { begin, whenOver } from "../child.ts";
import { type Compiled, type CompileOptions, compileSource } from "../compiler.ts";
import { killGroup } from "../watchdog.ts";

/** The files of one set of inputs and its expected output. */
export interface SetFiles {
  readonly name: string;
  /** The place of the argument that the answers are of; 0 when left out. */
  readonly output?: number;
  readonly expected: string;
  /** A file with an f64 bound for each element; or a single bound, and then `expected` has the output's type. */
  readonly tolerance: string | number;
  /** The same for kernels of another form of the equation; left out where it has none. */
  readonly looser?: string | number;
  readonly checked: string | undefined;
  /** In argument order, without the first. */
  readonly inputs: readonly string[];
}

export interface HarnessRequest {
  /** The number by which the measuring program knows the process that starts it, without which it ends; this one when left out. */
  readonly parent?: number;
  readonly cpus: readonly number[];
  readonly memoryBytes: number;
  /** The largest file that a kernel may write, in bytes. */
  readonly fileBytes: number;
  readonly cache: "warm" | "flushed";
  readonly batchSeconds: number;
  readonly budgetSeconds: number;
  readonly batches: readonly [least: number, most: number];
  readonly enough?: readonly [batches: number, seconds: number] | undefined;
  readonly arguments: readonly KernelArgument[];
  readonly sets: readonly SetFiles[];
  /** Shared objects; empty to time the baseline. */
  readonly kernels: readonly string[];
  /** Those of them that compute another form of the equation; none when left out. */
  readonly ofForms?: ReadonlySet<string>;
  /**
   * Checks and times each kernel before the next. One that is clearly slower than `goal` seconds, or than an earlier
   * one, is not timed to the end; a failure ends the process. Otherwise all are checked, then timed in turns.
   */
  readonly race?: { readonly goal: number | undefined } | undefined;
}

export interface HarnessLimits {
  /** The longest silence: the time limit for a single call, and for each batch. */
  readonly stepSeconds: number;
  /** The most bytes that a kernel may print. */
  readonly outputBytes: number;
  /** Environment variables in addition to the usual ones. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Called with each verdict as it arrives. If a fault of the machine ends the run, these are the only verdicts. */
  readonly onVerdict?: (kernel: number, verdict: Verdict) => unknown;
  /** Called when the process turns to a kernel: to load and check it, or to time it. */
  readonly onTurn?: (kernel: number, stage: string) => void;
  /** The rejection if no inputs can distinguish wrong results from right ones. */
  readonly unverifiable?: () => Error;
  /** Called with each set of inputs that is skipped because it cannot reveal wrong results. */
  readonly onLeftOut?: (set: string) => void;
  /** Aborts the run; the promise is then rejected. */
  readonly signal?: AbortSignal;
}

type Listeners = Pick<HarnessLimits, "onVerdict" | "onTurn" | "unverifiable" | "onLeftOut">;

type FailedStatus = Exclude<Measurement["status"], "ok" | CompileFailure>;
/** Failures before a kernel runs. */
type CompileFailure = "compile-failed" | "missing-instruction" | "spilled" | "serialised";

export type Verdict =
  | {
      readonly status: "timed";
      readonly samples: readonly number[];
      readonly clock?: DeviceClock;
      /** In a race: every batch was slower than this many seconds by a margin, which ended the timing. */
      readonly dropped?: number;
      /** The share of its processors' time that other programs took; the largest share if there are several. */
      readonly load?: number;
    }
  | { readonly status: FailedStatus; readonly log: string };

export interface HarnessReply {
  /** By kernel number. After a fault, kernels that were not timed yet have no verdict. */
  readonly verdicts: ReadonlyMap<number, Verdict>;
  /** The smallest clock step seen, in seconds. */
  readonly clockTick: number | undefined;
  /** The largest share of a processor that other programs took while a kernel was timed. */
  readonly load: number | undefined;
  /** Whether another process killed this one. A kernel to which this happens twice is taken to be the cause. */
  readonly killed: boolean;
}

/** Files that are concatenated to form the harness. */
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

/** What it is compiled with. */
export const HARNESS_FLAGS = ["-O2", "-std=c++17", "-pthread", "-rdynamic", "-ldl"];
const FAULTS = [
  ...(["illegal-instruction", "crashed", "timed-out"] as const),
  ...(["out-of-memory", "out-of-bounds", "out-of-resources"] as const),
];
const LOG_CHARACTERS = 4000;
/** Variables that are passed on: the library path. */
const KEPT_VARIABLES = ["LD_LIBRARY_PATH"];
/** The error message for callers when the runner is closed. */
export const STOPPED = "measuring was stopped";
/** A busy parent may notice the timeout before it reads a pending answer, so it looks a second time. */
const SECOND_LOOK_MS = 50;
/** A process that does not end within this time after a request is killed. */
const PATIENCE_MS = 5000;

/** The harness in one text. */
export function harnessSource(): SourceText {
  const parts = PARTS.map((part) => readFileSync(fileURLToPath(new URL(`./${part}`, import.meta.url)), "utf8"));
  return spell(trustedCode(parts.join("\n")), "c++");
}

/** Compiles the harness, once for each compiler. */
export function compileHarness(options: Omit<CompileOptions, "flags">): Promise<Compiled> {
  return compileSource(harnessSource(), HARNESS_FLAGS, ".out", options);
}

/** The path of the harness. @throws EnvironmentError if it does not compile */
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
 * Runs a request to its end, however it ends. A harness for a device takes its request as text; one for another
 * processor runs under an emulator, given in `program`.
 * @param standing a process that answers this request and stays for others, if it is for a device
 * @throws EnvironmentError if the machine fails rather than a kernel; Error if aborted
 */
export function runHarness(
  program: string | readonly string[],
  request: HarnessRequest | string,
  limits: HarnessLimits,
  standing?: StandingHarness,
): Promise<HarnessReply> {
  return new Promise((resolve, reject) => {
    if (limits.signal?.aborted) {
      reject(new Error(STOPPED));
      return;
    }
    const killsBefore = memoryKills();
    const begun = standing?.idle() ?? start(program, limits);
    if ("reason" in begun) {
      reject(environment(`the measuring program did not start: ${begun.reason}`));
      return;
    }
    const { child } = begun;
    const heard = new Answers(limits);
    const printed = new Printed();
    let failure: Error | undefined;
    const ending = endingOf(child.process);
    const stop = (status: FailedStatus, message: string): void => {
      heard.stop(status, message);
      ending.ask();
    };

    // 1. Silence means that a kernel hangs.
    const silence = onSilence(limits.stepSeconds, (what) => stop("timed-out", what));

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
    child.begin({
      // 2. Answers.
      onLines: (lines) => {
        silence.broken();
        for (const line of lines) heard.hear(line);
        if (!standing || !heard.isDone || failure) return;
        standing.keep(child);
        over(() => resolve(heard.reply(printed.text)));
      },

      // 3. The kernel's output, kept for the log up to a limit.
      onOutput: (text) => {
        printed.add(text);
        if (printed.bytes > limits.outputBytes)
          stop("output-flood", `it printed more than ${limits.outputBytes} bytes`);
      },

      // 4. The end.
      onError: (error) => over(() => reject(environment(`the measuring program did not start: ${error.message}`))),
      onEnd: (exitCode, signal) =>
        over(() => {
          const problem = failure ?? heard.conclude(exitCode, signal, memoryKills() - killsBefore);
          if (problem) reject(problem);
          else resolve(heard.reply(printed.text));
        }),
    });

    // 5. The request.
    const { stdin } = child.process;
    const text = typeof request === "string" ? request : requestText(request);
    if (standing) stdin.write(text);
    else stdin.end(text);
  });
}

/** What is done with what a process says, and with its end. */
interface Hearing {
  readonly onLines: (lines: readonly string[]) => void;
  readonly onOutput: (text: Buffer) => void;
  readonly onError: (error: Error) => void;
  readonly onEnd: (exitCode: number | null, signal: string | null) => void;
}

/** A process of the harness, which one request at a time is heard by. */
class HarnessChild {
  readonly process: ChildProcessWithoutNullStreams;
  isOver = false;
  private hearing: Hearing | undefined;

  constructor(child: ChildProcessWithoutNullStreams) {
    this.process = child;
    onLines(child.stdio[3], (lines) => this.hearing?.onLines(lines));
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (text: Buffer) => this.hearing?.onOutput(text));
    child.on("error", (error) => {
      this.isOver = true;
      this.hearing?.onError(error);
    });
    whenOver(child, (exitCode, signal) => {
      this.isOver = true;
      this.hearing?.onEnd(exitCode, signal);
    });
    // A child that dies early closes its end of the pipe; its exit says why.
    child.stdin.on("error", () => child.stdin.destroy());
  }

  begin(hearing: Hearing): void {
    this.hearing = hearing;
    this.holdLoop("ref");
  }

  /** Ends the hearing. From then on the process does not keep this one alive. */
  rest(): void {
    this.hearing = undefined;
    this.holdLoop("unref");
  }

  private holdLoop(how: "ref" | "unref"): void {
    this.process[how]();
    for (const stream of this.process.stdio) if (stream instanceof Socket) stream[how]();
  }
}

/** A harness that stays from one request to the next, until it fails, is ended, or this process ends. */
export class StandingHarness {
  private child: HarnessChild | undefined;

  /** The process that waits for a request, if there is one; it waits no longer. */
  idle(): { readonly child: HarnessChild } | undefined {
    const { child } = this;
    this.child = undefined;
    return child && !child.isOver ? { child } : undefined;
  }

  keep(child: HarnessChild): void {
    child.rest();
    this.child = child;
  }

  /** Ends the process that waits. */
  end(): void {
    const pid = this.idle()?.child.process.pid;
    if (pid !== undefined) killGroup(pid);
  }
}

/** Starts the harness as the leader of its own process group. It answers through file descriptor 3. */
function start(
  program: string | readonly string[],
  limits: HarnessLimits,
): { readonly child: HarnessChild } | { readonly reason: string } {
  const env = environmentOf(limits);
  const [command = "", ...leading] = typeof program === "string" ? [program] : program;
  const begun = begin(() => spawn(command, leading, { detached: true, env, stdio: ["pipe", "pipe", "pipe", "pipe"] }));
  return "child" in begun ? { child: new HarnessChild(begun.child) } : begun;
}

/** The environment is always the same, since its size shifts the stack and thereby changes a kernel's time. */
function environmentOf({ variables }: HarnessLimits): Record<string, string> {
  const kept = KEPT_VARIABLES.flatMap((name) => {
    const value = process.env[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  return { ...Object.fromEntries(kept), ...variables };
}

/** Asks a child to end; its watcher then ends all that the kernel started. If that takes too long, kills the group. */
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

/** Calls back after a period of silence. */
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

/** Calls back on every read, with the complete lines. */
function onLines(stream: unknown, hear: (lines: readonly string[]) => void): void {
  if (!(stream instanceof Readable)) return;
  let pending = "";
  stream.setEncoding("utf8").on("data", (text: string) => {
    const lines = (pending + text).split("\n");
    pending = lines.pop() ?? "";
    hear(lines);
  });
}

/** The beginning of the output, and its total size. */
class Printed {
  text = "";
  bytes = 0;

  add(part: Buffer): void {
    this.bytes += part.length;
    if (this.text.length < LOG_CHARACTERS)
      this.text += part.toString("utf8").slice(0, LOG_CHARACTERS - this.text.length);
  }
}

/** Collects the harness's answers line by line, and interprets how it ended. */
export class Answers {
  private readonly verdicts = new Map<number, Verdict>();
  private clockTick: number | undefined;
  private load: number | undefined;
  private dropped: number | undefined;
  private here = { kernel: 0, stage: "starting" };
  /** Set once later answers no longer count. */
  private finished = false;
  /** Whether the request was answered to its end. */
  isDone = false;
  /** How the process that ran the kernels ended, according to its watcher. */
  private ended: { readonly kind: string; readonly value: number } | undefined;
  private problem: Error | undefined;
  private readonly clocks = new Map<number, DeviceClock>();

  private readonly told: Listeners;

  constructor(told: Listeners = {}) {
    this.told = told;
  }

  hear(line: string): void {
    const [word = "", number = "", ...rest] = line.split(" ");
    const kernel = Number(number);
    const text = rest.join(" ");
    if (word === "at") this.turnTo(kernel, text);
    else if (word === "tick") this.clockTick = kernel;
    else if (word === "load") this.load = kernel;
    else if (word === "dropped") this.dropped = Number(text);
    else if (word === "clock") this.clocks.set(kernel, clockOf(rest));
    else if (word === "samples") this.take(kernel, rest.map(Number));
    else if (word === "wrong" || word === "out-of-bounds") this.fail(kernel, word, text);
    else if (word === "done") this.end();
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

  private end(): void {
    this.finished = true;
    this.isDone = true;
  }

  private turnTo(kernel: number, stage: string): void {
    this.here = { kernel, stage };
    this.told.onTurn?.(kernel, stage);
  }

  /** Records that this process ends the run. */
  stop(status: FailedStatus, message: string): void {
    this.fail(this.here.kernel, status, `${this.here.stage}: ${message}`);
    this.finished = true;
  }

  /**
   * Gives a kernel that ended the process its verdict.
   * @param exitCode and `signal` of the watcher, which exits normally unless it is killed
   * @param memoryKills the number of processes that the system killed meanwhile because memory ran out
   * @returns an error that no kernel caused
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
      status: "timed",
      samples,
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

/** Parses `1755 5`: megahertz, and a bit for each of {@link THROTTLES}. */
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

/** The number of processes that the system has killed because memory ran out; 0 if unknown. */
function memoryKills(): number {
  try {
    return Number(/^oom_kill (\d+)$/m.exec(readFileSync("/proc/vmstat", "utf8"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** Adds the output to a failure's log, since it is complete only at the end. */
function withOutput(verdict: Verdict, printed: string): Verdict {
  return verdict.status === "timed" || printed === ""
    ? verdict
    : { ...verdict, log: `${verdict.log}\nit printed:\n${printed}` };
}

/** A request as the harness reads it. */
export function requestText(request: HarnessRequest): string {
  const { sets, kernels, batches, enough, ofForms } = request;
  const lines = present([
    `parent ${request.parent ?? process.pid}`,
    `threads ${request.cpus.length}`,
    `cpus ${request.cpus.join(" ")}`,
    `memory ${request.memoryBytes}`,
    `files ${request.fileBytes}`,
    `cache ${request.cache}`,
    `batch ${request.batchSeconds}`,
    `budget ${request.budgetSeconds}`,
    `batches ${batches.join(" ")}`,
    enough && `enough ${enough.join(" ")}`,
    ...(request.race ? present(["race", request.race.goal !== undefined && `goal ${request.race.goal}`]) : []),
    ...request.arguments.map(({ dtype, elements, tensor }) => `argument ${dtype} ${elements} ${tensor}`),
    ...sets.flatMap((set) =>
      present([
        `set ${set.name}`,
        (set.output ?? 0) > 0 && `output ${set.output}`,
        ...(typeof set.tolerance === "number"
          ? [`stored ${set.expected}`, `within ${set.tolerance}`]
          : [`expected ${set.expected}`, `tolerance ${set.tolerance}`]),
        set.looser !== undefined && `${typeof set.looser === "number" ? "loosely" : "looser"} ${set.looser}`,
        set.checked !== undefined && `checked ${set.checked}`,
        ...set.inputs.map((file) => `input ${file}`),
      ]),
    ),
    ...(kernels.length === 0
      ? ["baseline"]
      : kernels.map((file) => `${ofForms?.has(file) ? "form" : "kernel"} ${file}`)),
    "go",
  ]);
  return `${lines.join("\n")}\n`;
}
