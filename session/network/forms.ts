/**
 * @file Chooses the form each step of a network is computed in: the one with the shortest time, from measured products and the other data it
 * moves.
 *
 *     inBestForms(program, { secondsOf: (computation) => best.get(key), target })      convolutions of 3 x 3 by Winograd's where that is faster
 *
 * Products have a record, or the form is not chosen. What a form moves besides, and weights that are not in the caches when their step begins, count
 * at the rates of the memories that hold them.
 */

import { sumOf } from "../../abstraction/collections.ts";
import {
  type Computation,
  computationKey,
  inputsOf,
  memoryElements,
  outputOf,
  type Tensor,
} from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Conditions, Database, Environment } from "../../db/index.ts";
import { type Form, formsOf, inForms } from "../../network/forms.ts";
import type { Network, Step } from "../../network/network.ts";
import { multiplyAddsOf, type Task } from "../../network/tasks.ts";
import { type MemoryLevel, type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import { nativeTarget } from "../../targets/index.ts";
import { storedCalibration } from "../recorded.ts";
import { rankOf } from "../tune/rank.ts";

/** The costs that decide between forms. */
export interface FormCosts {
  /** Seconds of the best kernel, measured by itself; undefined when none is known. */
  readonly secondsOf: (computation: Computation) => number | undefined;
  /** Whether that was with its data in no cache; otherwise with warm caches, the default. */
  readonly isFlushed?: (computation: Computation) => boolean;
  readonly target: ModelTarget;
  /** Threads of each kernel; 1 by default. Data movement is divided among them too. */
  readonly threads?: number;
}

/** The target for comparing forms: memory rates measured in an environment where there are any. */
export const targetOfForms = ({
  db,
  environment,
  machine = nativeTarget(),
}: {
  readonly db: Database;
  readonly environment: Environment;
  readonly machine?: Target | undefined;
}): ModelTarget => modelTarget(machine, storedCalibration(db, environment)?.calibration);

/** The forms of every step that has several, the step's own equation first. */
export type Forms = ReadonlyMap<Step, readonly Form[]>;

/** @param exact whether each step must be computed as its equation says */
export function formsIn(program: Network, exact = false): Forms {
  if (exact) return new Map();
  return new Map(
    program.steps.flatMap((step) => {
      const forms = formsOf(step);
      return forms.length > 1 ? [[step, forms] as const] : [];
    }),
  );
}

/** Two forms of each step: its own and the most promising other. Search time is limited. */
export function likelyForms(
  forms: Forms,
  { target, threads = 1 }: Omit<FormCosts, "secondsOf">,
  weightsLevel: MemoryLevel,
): Forms {
  // Equal layers have equal products.
  const known = new Map<string, number | undefined>();
  const secondsOf = (computation: Computation): number | undefined => {
    const key = computationKey(computation);
    if (!known.has(key)) known.set(key, expectedSeconds(computation, threads));
    return known.get(key);
  };
  return new Map(
    [...forms].map(([step, [own = [step], ...others]]) => {
      const expected = others.flatMap((form) => {
        const seconds = secondsOfForm(form, { secondsOf, target, threads }, weightsLevel);
        return seconds === undefined ? [] : [{ form, seconds }];
      });
      return [
        step,
        [
          own,
          ...expected
            .toSorted((a, b) => a.seconds - b.seconds)
            .slice(0, 1)
            .map((e) => e.form),
        ],
      ];
    }),
  );
}

/** Candidates that the model ranks to compare forms. */
const DRAWS = 30;

/** Seconds the model predicts for the best of several kernels; undefined when nothing maps. */
export function expectedSeconds(computation: Computation, threads = 1): number | undefined {
  const ranked = rankOf(computation, { count: 1, kinds: "mappings", threads }, DRAWS);
  return "refused" in ranked ? undefined : ranked[0]?.prediction.seconds;
}

/** The program with each step in its fastest form, or in its own when no other has known times. */
export function inBestForms(program: Network, forms: Forms, costs: FormCosts): Network {
  const weightsLevel = levelOfWeights(program, costs.target);
  return inForms(program, (step) => {
    const timed = (forms.get(step) ?? []).flatMap((form) => {
      const seconds = secondsOfForm(form, costs, weightsLevel);
      return seconds === undefined ? [] : [{ form, seconds }];
    });
    return timed.toSorted((a, b) => a.seconds - b.seconds)[0]?.form ?? [step];
  });
}

/** Expected seconds of one run of a form within the network; undefined when one of its products has no kernel. */
export function secondsOfForm(
  form: Form,
  { secondsOf, isFlushed = () => false, target, threads = 1 }: FormCosts,
  weightsLevel: MemoryLevel,
): number | undefined {
  let sum = 0;
  for (const { computation } of form) {
    const isProduct = multiplyAddsOf(computation) > 0;
    const measured = isProduct ? secondsOf(computation) : movedSeconds(computation, target) / threads;
    if (measured === undefined) return undefined;
    sum += measured + (isProduct && isFlushed(computation) ? 0 : coldSeconds(computation, target, weightsLevel));
  }
  return sum;
}

const bytesIn = (tensor: Tensor): number => memoryElements(tensor) * bytesOf(tensor.dtype);

/** Seconds that one core takes to read the inputs and write the output, each at the rate of the memory it fits in. */
export function movedSeconds(computation: Computation, target: ModelTarget): number {
  const output = bytesIn(outputOf(computation));
  const cycles = inputsOf(computation).reduce((sum, tensor) => {
    const bytes = bytesIn(tensor);
    return sum + bytes / levelHolding(bytes, target).readBytesPerCycle.value;
  }, output / levelHolding(output, target).writeBytesPerCycle.value);
  return cycles / target.clockHz.value;
}

/**
 * The extra time of reading weights in a network, where other weights have displaced them from the caches, compared with a kernel that is called
 * repeatedly.
 */
function coldSeconds(computation: Computation, target: ModelTarget, from: MemoryLevel): number {
  const bytes = sumOf(inputsOf(computation), (tensor) => (tensor.constant ? bytesIn(tensor) : 0));
  const [far, near] = [from, levelHolding(bytes, target)].map((level) => level.readBytesPerCycle.value) as [
    number,
    number,
  ];
  return (bytes * Math.max(0, 1 / far - 1 / near)) / target.clockHz.value;
}

function levelHolding(bytes: number, { memory }: ModelTarget): MemoryLevel {
  const level =
    memory.find((m) => m.bytes === undefined || m.bytes >= bytes) ??
    memory.at(-1) ??
    internal("a machine without memory");
  return level;
}

/**
 * Data of so many times a core's own caches come from further away in the network too. Steps of 1.7 times those of a Zen 4 took as long in ShuffleNet
 * as with warm caches, and twice as long with flushed ones; those of 3 times took 1.5 to 2.3 times as long in MobileNet (2026-11-23).
 */
const FURTHER_AWAY = 2;

/**
 * The state of the caches in which a task's kernels are measured: flushed where its data come from beyond a core's own caches. Warm where no weights are
 * read, or where several steps read the same ones, which stay where the step before left them.
 */
export function cacheOfTask({ computation, steps }: Task, { memory }: ModelTarget): Conditions["cache"] {
  const own = memory[1]?.bytes ?? Number.POSITIVE_INFINITY;
  const inputs = inputsOf(computation);
  const bytes = sumOf([outputOf(computation), ...inputs], bytesIn);
  const weights = inputs.filter((tensor) => tensor.constant);
  const read = new Set(steps.map(({ reads }) => weights.map(({ name }) => reads[name]?.name).join()));
  const isReadAgain = steps.length > 1 && read.size === 1;
  return bytes > FURTHER_AWAY * own && weights.length > 0 && !isReadAgain ? "flushed" : "warm";
}

/** The memory level that holds the weights of all steps together. */
export function levelOfWeights({ steps }: Network, target: ModelTarget): MemoryLevel {
  const bytes = sumOf(
    steps.flatMap(({ computation }) => inputsOf(computation)),
    (tensor) => (tensor.constant ? bytesIn(tensor) : 0),
  );
  return levelHolding(bytes, target);
}
