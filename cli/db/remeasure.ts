/**
 * @file A recorded trial measured again: its kernel made from the record, checked and timed as a search would.
 */

import { EnvironmentError } from "../../abstraction/error.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import type { TrialRecord } from "../../db/index.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { measureRecorded } from "../../session/imported.ts";

/**
 * @param onWait told what is waited for
 * @throws EnvironmentError when this machine cannot measure, naming what it lacks
 */
export async function remeasurer(onWait: (text: string) => void): Promise<{
  readonly measure: (trial: TrialRecord) => Promise<Measurement>;
  readonly close: () => Promise<void>;
}> {
  const runners = new Map<number, Runner>();
  const runnerOf = async (threads: number): Promise<Runner> => {
    const known = runners.get(threads);
    if (known) return known;
    const made = await createRunner({ threads, onWait });
    if (made.status === "environment")
      throw new EnvironmentError({ ...made, remedy: `${made.remedy}; without it, leave --remeasure out` });
    runners.set(threads, made.runner);
    return made.runner;
  };
  return {
    measure: async (trial) =>
      measureRecorded(await runnerOf(trial.conditions.threads), trial, { cache: trial.conditions.cache }),
    close: async () => {
      for (const runner of runners.values()) await runner.close();
    },
  };
}
