/**
 * @file Distinguishes faults of the machine from faults of a kernel. An environment fault stops a search (exit code 6)
 * and is never recorded as a fact about a kernel.
 *
 *     await onThisMachine("writing a kernel", () => writeFile(file, text))       ENOSPC becomes: no space left on the device
 *     const problem = toolProblem(run, "compiling")                              what a compiler's last words say of the machine
 */

import { EnvironmentError, type EnvironmentProblem, reasonOf } from "../abstraction/error.ts";
import { type ChildRun, explainRun } from "./child.ts";

type Fault = "disk" | "memory" | "limit" | "permission" | "device" | "missing" | "gone";

interface Sort {
  readonly fault: Fault;
  /** The system's error codes for it. */
  readonly codes: readonly string[];
  /** Its wording in the output of programs. */
  readonly words: RegExp;
  readonly remedy: string;
}

/** In order of precedence. */
const SORTS: readonly Sort[] = [
  {
    fault: "disk",
    codes: ["ENOSPC", "EDQUOT", "EFBIG"],
    words:
      /No space left on device|Disk quota exceeded|File size limit exceeded|File too large|terminated with signal 25\b/,
    remedy:
      "free some space (XDG_CACHE_HOME and TMPDIR name other disks; ulimit -f limits files) and run the same command again",
  },
  {
    fault: "memory",
    codes: ["ENOMEM"],
    words:
      /Cannot allocate memory|virtual memory exhausted|out of memory|std::bad_alloc|Killed signal terminated program|terminated (?:with|by) signal 9\b/i,
    remedy: "end other programs, or lift the limit (ulimit -v), and run the same command again",
  },
  {
    fault: "limit",
    codes: ["EAGAIN", "EMFILE", "ENFILE"],
    words: /Too many open files|Resource temporarily unavailable|taskset: failed to set/,
    remedy:
      "end other programs, or lift the limit (ulimit -n for files, ulimit -u for processes), and run the same command again",
  },
  {
    fault: "permission",
    codes: ["EACCES", "EPERM", "EROFS", "ENOTDIR"],
    words: /Permission denied|Operation not permitted|Read-only file system/,
    remedy: "make it writable and executable for you, or name another folder with XDG_CACHE_HOME or TMPDIR",
  },
  {
    fault: "device",
    codes: ["EIO"],
    words: /Input\/output error/,
    remedy: "look at the disk (dmesg)",
  },
  {
    fault: "missing",
    codes: [],
    words: /cannot find ['‘]?(?:ld|as|collect2)\b|cannot execute|error trying to exec|unable to execute command/,
    remedy: "install it again (apt-get install g++ binutils)",
  },
  {
    fault: "gone",
    codes: ["ENOENT"],
    words: /$^/,
    remedy: "something took it away in the meantime: run the same command again",
  },
];

const WHY = "this is a fault of the machine and says nothing about a kernel, so nothing is recorded of it";

/** What is made to measure with, or what of this machine refused it. */
export async function orProblem<T>(make: () => Promise<T>): Promise<T | EnvironmentProblem> {
  try {
    return await onThisMachine("preparing to measure", make);
  } catch (error) {
    if (error instanceof EnvironmentError) return error.problem;
    throw error;
  }
}

/**
 * Does something with files or processes, and reports the system's refusals as faults of the environment. @param doing
 * `writing a kernel`
 */
export async function onThisMachine<T>(doing: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw systemError(error, doing) ?? error;
  }
}

/** The environment fault behind a system call's error; undefined for other errors. */
export function systemError(error: unknown, doing: string): EnvironmentError | undefined {
  if (!(error instanceof Error)) return undefined;
  // An array that does not fit into memory causes a RangeError without a code.
  const code = "code" in error ? String(error.code) : /allocation failed/i.test(error.message) ? "ENOMEM" : "";
  const sort = SORTS.find(({ codes }) => codes.includes(code));
  // For a rename, the destination.
  const place = "dest" in error ? error.dest : "path" in error ? error.path : undefined;
  const what = typeof place === "string" ? `${doing}: ${place}: ${reasonOf(error)}` : `${doing}: ${error.message}`;
  return sort && new EnvironmentError({ what, why: WHY, remedy: sort.remedy }, error);
}

/**
 * The environment fault that a program's exit and output indicate; undefined if they indicate none. @param doing
 * `compiling`
 */
export function toolProblem(run: ChildRun, doing: string): EnvironmentError | undefined {
  if (run.status === "ok") return undefined;
  const said = `${explainRun(run)}\n${run.stderr}\n${run.stdout}`;
  const sort = SORTS.find(({ words }) => words.test(said)) ?? sortOfEnd(run);
  if (!sort) return undefined;
  const line = said.split("\n").find((text) => sort.words.test(text)) ?? explainRun(run);
  return new EnvironmentError({ what: `${doing}: ${line.trim()}`, why: WHY, remedy: sort.remedy });
}

/** Signal 9 usually means that memory ran out, 24 and 25 that a shell limit was exceeded. */
const SIGNALS: Readonly<Record<string, Fault>> = { SIGKILL: "memory", SIGXFSZ: "disk" };

function sortOfEnd(run: ChildRun): Sort | undefined {
  const named = (fault: Fault | undefined): Sort | undefined => SORTS.find((sort) => sort.fault === fault);
  if (run.status === "crashed") return named(SIGNALS[run.signal]);
  if (run.status !== "not started") return undefined;
  const refused = SORTS.find(({ fault, codes }) => fault !== "gone" && codes.some((code) => run.reason.includes(code)));
  return refused ?? named("missing");
}
