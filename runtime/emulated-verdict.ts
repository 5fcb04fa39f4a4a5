/**
 * @file Checks with the headers in `emulation/` whether a kernel equals its equation, for languages that no device here runs.
 *
 *     await emulatedVerdict(kernel, reference)      { status: "emulated", log: "every element right ... lanes forward and reversed; not timed" }
 *
 * The kernel runs on every set of inputs, and on the first in each order in which its lanes or threads may take turns. One run after the other: the
 * first that is not right is the verdict, and no more than one run's tensors are held at a time.
 */

import { inputsOf } from "../abstraction/computation.ts";
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
import type { Reference, ReferenceSet } from "./verify.ts";

/** What ran kernels, as records and users are told: the headers, which are one version of many. */
export const emulatorOf = (language: Kernel["language"]): string =>
  `automap's emulation of ${language} (headers ${emulationHash().slice(0, 8)})`;

const FORWARD: ThreadOrder = { threads: "forward", copies: "early" };
/** Of one kernel: its compilation and all its runs together. */
const TIME_LIMIT_MS = 300_000;

export interface VerdictOptions extends Pick<EmulationOptions, "signal"> {
  /** For the compilation and all runs together; 300 s when left out. */
  readonly timeLimitMs?: number | undefined;
  /** Milliseconds since some moment. */
  readonly now?: () => number;
}

/** Lanes of a vector or a sub-group go one way or the other; threads of a GPU wait for one another in more ways. */
const ordersOf = (language: Kernel["language"]): readonly ThreadOrder[] =>
  language === "cuda" ? ADVERSE_ORDERS : [FORWARD, { threads: "reversed", copies: "early" }];

/** A run that there is no time for. */
const LATE: EmulatedRun = { status: "timed-out", log: "" };

/**
 * Runs a kernel under emulation and compares every element.
 * @returns `emulated` where all are right, or how the first run that is not ended
 * @throws EnvironmentError where nothing compiles; Error when the signal ended it
 */
export async function emulatedVerdict(
  kernel: Kernel,
  reference: Reference,
  { timeLimitMs = TIME_LIMIT_MS, now = () => performance.now(), signal }: VerdictOptions = {},
): Promise<Measurement> {
  const ends = now() + timeLimitMs;
  const orders = ordersOf(kernel.language);
  const cases = reference.sets.map((set, i) => ({ set, orders: i === 0 ? orders : [FORWARD] }));
  const all = cases.reduce((sum, one) => sum + one.orders.length, 0);
  let done = 0;
  for (const one of cases) {
    const inputs = inputsIn(reference, one.set);
    for (const order of one.orders) {
      const left = ends - now();
      // The program is compiled for the first run, and found by the others.
      const [run] = left > 0 ? await runEmulated([{ kernel, order, inputs }], { timeLimitMs: left, signal }) : [LATE];
      if (!run) throw new Error("internal: a run without a result");
      if (run.status === "timed-out") {
        const limit = `${timeLimitMs / 1000} s under ${emulatorOf(kernel.language)}`;
        return { status: "timed-out", log: `${done} of ${all} runs ended within ${limit}` };
      }
      const problem = problemOf(run, one.set, reference.checked);
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

function problemOf(run: EmulatedRun, set: ReferenceSet, checked: Uint8Array | undefined): Measurement | undefined {
  switch (run.status) {
    case "ok": {
      const at = set.expected.findIndex(
        (want, i) => checked?.[i] !== 0 && !isRight(run.output[i] ?? Number.NaN, want, set.tolerance[i] ?? 0),
      );
      if (at < 0) return undefined;
      const log = `${set.name} inputs, element ${at}: got ${run.output[at]}, expected ${set.expected[at]} within ${set.tolerance[at]}`;
      return { status: "wrong", log };
    }
    case "failed":
      return { status: "crashed", log: run.log };
    default:
      return { status: run.status, log: run.log };
  }
}

/** Where the answer is infinite or NaN nothing else passes. */
const isRight = (got: number, want: number, tolerance: number): boolean =>
  Object.is(got, want) || got === want || (Number.isFinite(want) && Math.abs(got - want) <= tolerance);
