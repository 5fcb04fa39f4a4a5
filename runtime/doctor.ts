/**
 * @file What this machine has and lacks for measuring: `automap doctor`.
 *
 *     for (const finding of await examineMachine()) console.log(finding.status, finding.subject, finding.detail);
 */

import { freemem, totalmem } from "node:os";
import { sumOf } from "../abstraction/collections.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import { noiseVerdict } from "../abstraction/noise.ts";
import { wordsAskedFor } from "../targets/features.ts";
import { findCompiler } from "./compiler.ts";
import { findDisassembler } from "./disassembly.ts";
import { type Baseline, createRunner } from "./measure.ts";
import {
  clockSource,
  coresHere,
  frequencyGovernors,
  type Processor,
  readProcessor,
  scalableBits,
} from "./processor.ts";

export interface Finding {
  readonly subject: string;
  /** `doubtful`: measuring works, but its numbers are less reliable. */
  readonly status: "ok" | "doubtful" | "missing";
  readonly detail: string;
  /** Why it matters. */
  readonly why: string;
  /** What to install or change; only if something is not ok. */
  readonly remedy?: string;
}

const LEAST_MEMORY_GIB = 2;

interface ExamineOptions {
  readonly workdir?: string;
  /** By default those of this machine. */
  readonly processor?: Processor;
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

/** Findings, the most important first. Takes about a second the first time. */
export async function examineMachine(options: ExamineOptions = {}): Promise<readonly Finding[]> {
  const environment = options.environment ?? process.env;
  const processor = options.processor ?? readProcessor();
  const compiler = await findCompiler(environment);
  return [
    findProcessor(processor),
    findFeatures(processor),
    findCores(),
    findMemory(),
    compiler.status === "found"
      ? {
          subject: "C++ compiler",
          status: "ok",
          detail: `${compiler.path}: ${compiler.version}`,
          why: "kernels are compiled, checked and timed on this machine",
        }
      : {
          subject: "C++ compiler",
          status: "missing",
          detail: compiler.what,
          why: compiler.why,
          remedy: compiler.remedy,
        },
    findObjdump(environment["PATH"]),
    findClock(),
    findGovernor(),
    ...(compiler.status === "found" ? [await findNoise({ ...options, compiler })] : []),
  ];
}

function findProcessor({ model }: Processor): Finding {
  const why = "trials are recorded with it, and numbers of another processor are never taken for this one's";
  if (process.platform !== "linux")
    return {
      subject: "processor",
      status: "missing",
      detail: process.platform,
      why: "kernels run under Linux only",
      remedy: "use Linux",
    };
  return {
    subject: "processor",
    status: model === "" ? "doubtful" : "ok",
    detail: model === "" ? "no name" : model,
    why,
  };
}

export function findFeatures({ features }: Processor): Finding {
  const asked = wordsAskedFor();
  const found = features.filter((feature) => asked.has(feature));
  const common = {
    subject: "vector instructions",
    why: "a mapping runs only where its instruction exists; plain C++ runs everywhere",
  };
  const bits = scalableBits({ features });
  const lengths = bits === undefined ? "" : ` (scalable vectors of ${bits} bits)`;
  return found.length > 0
    ? { ...common, status: "ok", detail: `${found.join(" ")}${lengths}` }
    : {
        ...common,
        status: "doubtful",
        detail: "none that the tables know",
        remedy: "nothing to do: kernels are written in plain C++, as --intrinsic portable asks for anywhere",
      };
}

function findCores(): Finding {
  const cores = coresHere();
  const slow = cores.filter((core) => !core.isFastest).length;
  return {
    subject: "processors",
    status: "ok",
    detail: `${cores.flatMap((core) => core.cpus).join(", ")} on ${cores.length} cores${slow > 0 ? `, ${slow} of them slower: not measured on` : ""}`,
    why: "threads of a kernel each have a core that no other search measures or compiles on",
  };
}

function findMemory(): Finding {
  const gib = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  const common = {
    subject: "memory",
    detail: `${gib(freemem())} free of ${gib(totalmem())}`,
    why: "tensors are held with their reference",
  };
  return freemem() >= LEAST_MEMORY_GIB * 2 ** 30
    ? { ...common, status: "ok" }
    : { ...common, status: "doubtful", remedy: "end other programs, or tune smaller shapes" };
}

function findObjdump(path: string | undefined): Finding {
  const found = findDisassembler(path);
  const common = { subject: "disassembler", why: "the promised instruction is looked for in what the compiler made" };
  return found === undefined
    ? { ...common, status: "missing", detail: "no objdump", remedy: "install binutils (apt-get install binutils)" }
    : { ...common, status: "ok", detail: found };
}

function findClock(): Finding {
  const source = clockSource();
  const common = { subject: "clock source", why: "a batch lasts at least 50 ticks: a coarse clock makes batches long" };
  if (source === undefined)
    return {
      ...common,
      status: "doubtful",
      detail: "unknown",
      remedy: "nothing to do: ticks are measured in every run",
    };
  return ["tsc", "kvm-clock", "arch_sys_counter"].includes(source)
    ? { ...common, status: "ok", detail: source }
    : {
        ...common,
        status: "doubtful",
        detail: `${source}, slow to read`,
        remedy: "boot with clocksource=tsc where the processor allows it",
      };
}

function findGovernor(): Finding {
  const governors = frequencyGovernors();
  const common = {
    subject: "frequency",
    why: "a clock that moves between two kernels looks like a difference between them",
  };
  if (governors.length === 0) return { ...common, status: "ok", detail: "set by the host" };
  return governors.every((governor) => governor === "performance")
    ? { ...common, status: "ok", detail: "performance" }
    : { ...common, status: "doubtful", detail: governors.join(", "), remedy: "cpupower frequency-set -g performance" };
}

const NOISE = { subject: "noise", why: "differences smaller than the noise need interleaved repeats" } as const;

async function findNoise(options: Parameters<typeof createRunner>[0]): Promise<Finding> {
  const made = await createRunner(options);
  if (made.status === "environment") return { ...NOISE, status: "missing", detail: made.what, remedy: made.remedy };
  try {
    return noiseFinding(await made.runner.baseline());
  } catch (error) {
    if (!(error instanceof EnvironmentError)) throw error;
    return { ...NOISE, status: "missing", detail: error.problem.what, remedy: error.problem.remedy };
  } finally {
    await made.runner.close();
  }
}

/** The verdict on the machine now, by its baseline. */
export function noiseFinding({ samples, median, interval: [low, high], load }: Baseline): Finding {
  const spread = sumOf(samples, (sample) => Math.abs(sample - median)) / samples.length / median;
  const { verdict } = noiseVerdict({
    widths: [Math.max(spread, (high - low) / median)],
    loads: load === undefined ? [] : [load],
  });
  const off = `the baseline takes ${(median * 1000).toFixed(2)} ms, off by ${(100 * spread).toFixed(1)} % on average`;
  const taken = load === undefined ? "" : `, while other programs took ${(100 * load).toFixed(1)} % of the processor`;
  const detail = `${verdict}: ${off}${taken}`;
  return verdict === "noisy"
    ? { ...NOISE, status: "doubtful", detail, remedy: "end other programs while tuning" }
    : { ...NOISE, status: "ok", detail };
}
