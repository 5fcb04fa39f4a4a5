/**
 * @file Checks, with the headers in `emulation/`, whether a kernel equals its equation, for languages that no device
 * here can run.
 *
 *     await emulatedVerdict(kernel, reference)      { status: "emulated", log: "every element right ... lanes forward and reversed; not timed" }
 *
 * The kernel runs on every set of inputs, and on the first set in each order of its lanes or threads. Runs follow one
 * another and stop at the first failure, which is the verdict. Only one run's tensors are in memory at a time.
 */

import { sumOf } from "../abstraction/collections.ts";
import { inputsOf } from "../abstraction/computation.ts";
import { internal } from "../abstraction/error.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { decodeElements } from "./bytes.ts";
import {
  ADVERSE_ORDERS,
  type EmulatedRun,
  type EmulationOptions,
  runEmulated,
  type ThreadOrder,
} from "./emulated-kernel.ts";
import { emulationHash } from "./emulation.ts";
import type { Reference, ReferenceSet } from "./reference/verify.ts";

/** The name of the emulator in records and messages. It includes a hash of the headers. */
export const emulatorOf = (language: Kernel["language"]): string =>
  `automap's emulation of ${language} (headers ${emulationHash().slice(0, 8)})`;

const FORWARD: ThreadOrder = { threads: "forward", copies: "early" };
/** The limit for one kernel: its compilation and all its runs. */
const TIME_LIMIT_MS = 300_000;

interface VerdictOptions extends Pick<EmulationOptions, "signal"> {
  /** The limit for the compilation and all runs together; 300 s by default. */
  readonly timeLimitMs?: number | undefined;
  /** A clock in milliseconds. */
  readonly now?: () => number;
}

/** Lanes of a vector or a sub-group run in two orders; threads of a GPU, which wait for one another, in more. */
const ordersOf = (language: Kernel["language"]): readonly ThreadOrder[] =>
  language === "cuda" ? ADVERSE_ORDERS : [FORWARD, { threads: "reversed", copies: "early" }];

/** The result of a run for which no time is left. */
const LATE: EmulatedRun = { status: "timed-out", log: "" };

/**
 * Runs a kernel under emulation and compares every element.
 * @returns `emulated` if all elements are right, otherwise the status of the first run that failed
 * @throws EnvironmentError if nothing compiles; Error if aborted
 */
export async function emulatedVerdict(
  kernel: Kernel,
  reference: Reference,
  { timeLimitMs = TIME_LIMIT_MS, now = () => performance.now(), signal }: VerdictOptions = {},
): Promise<Measurement> {
  const ends = now() + timeLimitMs;
  const orders = ordersOf(kernel.language);
  if (reference.sets.some(({ of }) => of)) internal("emulated kernels are compared by their output alone");
  const cases = reference.sets.map((set, i) => ({ set, orders: i === 0 ? orders : [FORWARD] }));
  const all = sumOf(cases, (one) => one.orders.length);
  let done = 0;
  for (const one of cases) {
    const inputs = inputsIn(reference, one.set);
    for (const order of one.orders) {
      const left = ends - now();
      // Only the first run compiles; the others find the program in the cache.
      const [run = internal("a run without a result")] =
        left > 0 ? await runEmulated([{ kernel, order, inputs }], { timeLimitMs: left, signal }) : [LATE];
      if (run.status === "timed-out") {
        const limit = `${timeLimitMs / 1000} s under ${emulatorOf(kernel.language)}`;
        return { status: "timed-out", log: `${done} of ${all} runs ended within ${limit}` };
      }
      const problem = problemOf(run, one.set, kernel.ofForm === true, reference.checked);
      if (problem) return problem;
      done++;
    }
  }
  const where = `${emulatorOf(kernel.language)}, in ${orders.length} orders of threads`;
  return { status: "emulated", log: `every element right on every set of inputs under ${where}; not timed` };
}

function inputsIn({ computation }: Reference, set: ReferenceSet): Inputs {
  return Object.fromEntries(
    inputsOf(computation).map(({ name, dtype }) => [name, decodeElements(dtype, set.inputs[name] ?? new Uint8Array())]),
  );
}

function problemOf(
  run: EmulatedRun,
  set: ReferenceSet,
  isOfForm: boolean,
  checked: Uint8Array | undefined,
): Measurement | undefined {
  const { tolerance } = isOfForm && set.looser ? { tolerance: set.looser } : set;
  switch (run.status) {
    case "ok": {
      const at = set.expected.findIndex(
        (want, i) => checked?.[i] !== 0 && !isRight(run.output[i] ?? Number.NaN, want, tolerance[i] ?? 0),
      );
      if (at < 0) return undefined;
      const log = `${set.name} inputs, element ${at}: got ${run.output[at]}, expected ${set.expected[at]} within ${tolerance[at]}`;
      return { status: "wrong", log };
    }
    case "failed":
      return { status: "crashed", log: run.log };
    default:
      return { status: run.status, log: run.log };
  }
}

/** If the expected result is infinite or NaN, only the same value passes. */
const isRight = (got: number, want: number, tolerance: number): boolean =>
  Object.is(got, want) || got === want || (Number.isFinite(want) && Math.abs(got - want) <= tolerance);
