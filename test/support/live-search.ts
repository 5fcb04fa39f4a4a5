/**
 * @file A search as another process makes it: trials that land one after another in a database.
 *
 *     const search = beginSearch(db, { trials: 160 });
 *     search.land(12);
 *     search.end();
 */

import { beginRun, type Database, type Environment, endRun, recordTrial, type Workload } from "../../db/index.ts";
import { CONV, candidate, MACHINE, measured, VNNI } from "./database.ts";

interface Given {
  readonly workload?: Workload;
  readonly environment?: Environment;
  readonly trials?: number;
  readonly seconds?: number;
  /** Further facts of the budget. */
  readonly budget?: Readonly<Record<string, unknown>>;
  readonly process?: number;
  readonly started?: number;
}

export interface Search {
  readonly run: string;
  /** Records so many further trials; each thirteenth fails. */
  readonly land: (count: number) => void;
  readonly end: () => void;
}

export function beginSearch(
  db: Database,
  {
    workload = CONV,
    environment = MACHINE,
    trials = 160,
    seconds = 40,
    budget = {},
    process,
    started = Date.now(),
  }: Given = {},
): Search {
  const run = beginRun(db, {
    workload,
    environment,
    seed: 1,
    options: { strategy: "genetic", threads: 1 },
    budget: { trials, seconds, ...budget },
    started,
    ...(process !== undefined && { process }),
  });
  // Nothing of a test is to survive a power cut.
  db.sqlite.pragma("synchronous = OFF");
  let made = 0;
  const land = (count: number): void => {
    for (let i = 0; i < count; i++) {
      made++;
      // Falls and scatters, always alike.
      const noise = (made * 7919) % 101;
      const microseconds = 60 + 400 / Math.sqrt(made) + noise;
      const measurement =
        made % 13 === 0 ? ({ status: "crashed", log: "segmentation fault" } as const) : measured(microseconds);
      recordTrial(db, {
        workload,
        environment,
        run,
        ...(VNNI && { intrinsic: VNNI }),
        trial: {
          candidate: candidate(1 + (made % 1000)),
          prediction: {
            seconds: (microseconds + noise / 2) * 1e-6,
            uncorrectedSeconds: microseconds * 1e-6,
            levels: [],
          },
          measurement,
          at: Math.max(Date.now(), started + made),
        },
        conditions: { threads: 1, cache: "warm" },
      });
    }
  };
  // Together they are written faster.
  const together = db.sqlite.transaction(land);
  return { run, land: together, end: () => endRun(db, run, { status: "done", ended: Date.now() }) };
}
