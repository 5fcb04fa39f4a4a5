/**
 * @file Query times in a database of a million trials, including reading and checking the records. Goals: the best
 * trial of a workload in under 2 ms, a filtered top 100 in under 50 ms.
 *
 *     npm run bench:database        builds the database first: about a minute, and 1.2 GB in the temporary folder
 *     AUTOMAP_BENCH_TRIALS=100000 npm run bench:database
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, bench, describe } from "vitest";
import { canonicalJson } from "../../abstraction/candidate.ts";
import { pick, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { idOfFacts, type Row } from "../../db/facts.ts";
import { best, type Database, type Environment, openDatabase, queryTrials, type TrialFilter } from "../../db/index.ts";
import { environmentRowOf, workloadRowOf } from "../../db/rows.ts";
import { insert } from "../../db/write.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";

const TRIALS = Number(process.env["AUTOMAP_BENCH_TRIALS"] ?? 1_000_000);
/** Trials of a default search. */
const TRIALS_OF_A_WORKLOAD = 160;

const HERE: Environment = {
  target: "native",
  cpu: "a made-up CPU",
  cores: 2,
  isa: ["avx512_vnni", "avx512f"],
  compiler: { path: "/usr/bin/g++", version: "12.2.0", flags: ["-O3"] },
  kernel: "Linux 6.1",
  node: "v20.20.2",
  automap: "0.1.0",
};

/** Trials as searches write them: 160 a workload, one in ten a failure, some of another kernel. */
function fill(db: Database): void {
  const random = seededRandom(1);
  const channels = [16, 32, 64, 128, 256, 512];
  const environments = [HERE, { ...HERE, kernel: "Linux 6.12" }].map(environmentRowOf);
  const names = INTRINSICS.slice(0, 8).map((i) => i.name);
  const dtypes = ["u8s8", "bf16", "f32"].map((types) => parseDataTypes(types));
  const samples = Array.from({ length: 21 }, (_, i) => 1 + (i - 10) / 1000);
  db.sqlite.transaction(() => {
    for (const row of environments) insert(db, "environments", row);
    for (let first = 0; first < TRIALS; first += TRIALS_OF_A_WORKLOAD) {
      const size = randomInteger(random, 7, 224);
      const parameters = { c: pick(random, channels), k: pick(random, channels), h: size, w: size };
      const computation = instantiate(operatorNamed("conv2d"), { parameters, types: pick(random, dtypes) });
      const workload = workloadRowOf({ computation, parameters });
      insert(db, "workloads", workload);
      const environment = random() < 0.9 ? environments[0] : environments[1];
      for (let i = first; i < Math.min(TRIALS, first + TRIALS_OF_A_WORKLOAD); i++) {
        const works = random() > 0.1;
        const intrinsic = pick(random, names);
        const median = Number(workload["points"]) * 1e-11 * (1 + 4 * random());
        const threads = 1 + (i % 2);
        const facts: Row = {
          run: null,
          workload: String(workload["id"]),
          environment: String(environment?.["id"]),
          candidate: canonicalJson({
            kind: "mapping",
            intrinsic,
            matching: { n: ["k"], k: ["c"] },
            operands: { a: "in", b: "w" },
            schedule: { order: ["p", "q", "k"], block: { q: 8, k: 2 }, placement: { in: "padded" }, threads },
          }),
          intrinsic,
          declaration: null,
          status: works ? "ok" : "crashed",
          log: works ? null : "signal 11",
          median: works ? median : null,
          low: works ? median * 0.99 : null,
          high: works ? median * 1.01 : null,
          samples: works ? canonicalJson(samples.map((s) => s * median)) : null,
          instructions: works ? 16 : null,
          predicted: median * 0.9,
          uncorrected: median * 0.8,
          levels: "[]",
          threads,
          cache: "warm",
          affinity: null,
          at: 1_700_000_000_000 + i * 1000,
        };
        insert(db, "trials", { id: idOfFacts("trials", facts), ...facts });
      }
    }
  })();
}

const folder = mkdtempSync(join(tmpdir(), "automap-bench-"));
const path = join(folder, "million.db");
const made = openDatabase(path);
// The database need not survive a power cut.
made.sqlite.pragma("synchronous = OFF");
fill(made);
made.close();
const db = openDatabase(path, { readonly: true });
afterAll(() => {
  db.close();
  rmSync(folder, { recursive: true, force: true });
});

const exactly = { environment: HERE, intrinsics: INTRINSICS, policy: "exact" } as const;
const parameters = { c: 64, k: 64, h: 56, w: 56 };
const known = queryTrials(db, { limit: 1, extents: { c: { min: 64 } } })[0]?.workload.parameters ?? parameters;
const [dtype = "f32"] = queryTrials(db, { limit: 1, extents: { c: { min: 64 } } }).map((t) => t.workload.dtype);
const computation = instantiate(operatorNamed("conv2d"), { parameters: known, types: parseDataTypes(dtype) });

/** Runs the query once first: the bench would report a query that throws as NaN. */
function question(name: string, ask: () => readonly unknown[]): void {
  ask();
  bench(name, () => void ask());
}

describe(`the best of a workload among ${TRIALS} trials (goal 2 ms)`, () => {
  question("of any world", () => {
    const found = best(db, { computation });
    if (found.length === 0) throw new Error("nothing found");
    return found;
  });
  question("of exactly this machine", () => best(db, { computation, trusted: exactly }));
});

describe(`the first 100 of ${TRIALS} trials (goal 50 ms)`, () => {
  const day = 86_400_000;
  const end = 1_700_000_000_000 + TRIALS * 1000;
  const filters: Readonly<Record<string, TrialFilter>> = {
    "of everything": {},
    "of an operator, a data type and a range of channels": {
      operator: "conv2d",
      dtype: "u8s8",
      extents: { c: { min: 64, max: 256 } },
      status: "ok",
    },
    "of large images": { extents: { h: { min: 200 }, c: { min: 256 } } },
    "of two instructions": { intrinsic: INTRINSICS.slice(2, 4).map((i) => i.name), status: "ok" },
    "of an instruction nobody used": { intrinsic: "none", status: "ok" },
    "of the last day": { since: end - day },
    "of the first half": { until: end - (TRIALS / 2) * 1000 },
    "of exactly this machine": { trusted: exactly },
    "of other worlds": { stale: exactly },
    "of failures": { status: "crashed" },
    "newest first": { sort: "at" },
  };
  for (const [name, filter] of Object.entries(filters))
    question(name, () => queryTrials(db, { ...filter, limit: 100 }));
});
