/** @file Measures the candidates of a search until its time is up or the user stops it. */

import { setImmediate } from "node:timers/promises";
import type { Candidate } from "../../abstraction/candidate.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import type { Until } from "../../runtime/until.ts";
import type { TunePhase } from "../../tuner/search.ts";
import type { SessionSpace } from "../kinds/session-space.ts";
import type { Bench } from "./workplace.ts";

/** Measures candidates until the time is up or the user stops. The first candidate of a search is always measured. */
export function measuredInTime(
  space: SessionSpace,
  bench: Bench,
  {
    phase,
    ...signals
  }: Pick<Until, "soon" | "time" | "stop"> & {
    readonly phase: (name: TunePhase, done: number, of: number) => void;
  },
) {
  let isAnswered = false;
  return async function* (
    candidates: readonly Candidate[],
    goal?: number,
    meanwhile?: () => void,
  ): AsyncGenerator<Measurement | undefined> {
    const kernels: Kernel[] = [];
    const of = candidates.length;
    let compiled = 0;
    let isCompiling = false;
    const tell = (): void => {
      if (isCompiling) phase("compiling", compiled, of);
    };
    // Kernels are generated one by one. Each compiles while the next is generated, and signals are handled in between.
    for (const candidate of candidates) {
      if (signals.stop.aborted) return;
      phase("writing", kernels.length, of);
      const kernel = space.kernelOf(candidate);
      void bench.begin(kernel, signals.stop).then(() => {
        compiled++;
        tell();
      });
      kernels.push(kernel);
      await setImmediate();
    }
    isCompiling = true;
    tell();
    try {
      const until = { ...signals, goal, needsOne: !isAnswered };
      for await (const answer of await bench.measure(kernels, until, meanwhile)) {
        isCompiling = false;
        isAnswered = true;
        yield answer;
      }
    } finally {
      isCompiling = false;
    }
  };
}

/** All answers of measurements that end together, whose kernels are recorded together; those up to the first that there was no time for. */
export async function all(answers: AsyncIterable<Measurement | undefined>): Promise<readonly Measurement[]> {
  const kept: Measurement[] = [];
  for await (const answer of answers) {
    if (answer === undefined) break;
    kept.push(answer);
  }
  return kept;
}
