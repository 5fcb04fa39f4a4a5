/**
 * @file Checks with the headers in `emulation/` whether a kernel equals its equation, for languages that no device here runs.
 *
 *     await emulatedVerdict(kernel, reference)      { status: "emulated", log: "every element right ... lanes forward and reversed; not timed" }
 *
 * The kernel runs on every set of inputs, and on the first set in each order in which its lanes or threads may take turns.
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
/** Lanes of a vector or a sub-group go one way or the other; threads of a GPU wait for one another in more ways. */
const ordersOf = (language: Kernel["language"]): readonly ThreadOrder[] =>
  language === "cuda" ? ADVERSE_ORDERS : [FORWARD, { threads: "reversed", copies: "early" }];

/**
 * Runs a kernel under emulation and compares every element.
 * @returns `emulated` where all are right, or how it failed
 * @throws EnvironmentError where nothing compiles
 */
export async function emulatedVerdict(
  kernel: Kernel,
  reference: Reference,
  options: EmulationOptions = {},
): Promise<Measurement> {
  const orders = ordersOf(kernel.language);
  const cases = reference.sets.flatMap((set, i) => (i === 0 ? orders : [FORWARD]).map((order) => ({ set, order })));
  const inputs = new Map(reference.sets.map((set) => [set, inputsIn(reference, set)]));
  const jobs = cases.map(({ set, order }) => ({ kernel, order, inputs: inputs.get(set) ?? {} }));
  const runs = await runEmulated(jobs, options);
  for (const [i, run] of runs.entries()) {
    const set = cases[i]?.set;
    if (!set) throw new Error("internal: a run of no set");
    const problem = problemOf(run, set, reference.checked);
    if (problem) return problem;
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
