/**
 * @file Databases for tests: an invented machine, and trials with distinct numbers.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Sqlite from "better-sqlite3";
import { afterEach, beforeEach } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Measurement, Trial } from "../../abstraction/trial.ts";
import {
  type Conditions,
  type Database,
  DatabaseError,
  type Environment,
  type NewTrial,
  openDatabase,
  type Workload,
} from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { type InstantiateOptions, instantiate, operatorNamed } from "../../operators/index.ts";

export const MACHINE: Environment = {
  target: "native",
  cpu: "Testium 9000",
  cores: 2,
  isa: ["avx512f", "avx512_vnni", "amx_int8"],
  compiler: { path: "/usr/bin/g++", version: "12.2.0", flags: ["-O3", "-march=native"] },
  kernel: "Linux 6.1.0 x64",
  node: "v20.20.2",
  automap: "0.1.0",
};

export const WARM: Conditions = { threads: 1, cache: "warm" };

/** An operator's instance, recorded with all its parameters, those left at their defaults too. */
export function workloadNamed(
  name: string,
  given: Readonly<Record<string, number>> = {},
  types = "f32",
  options: Pick<InstantiateOptions, "layouts" | "epilogue"> = {},
): Workload {
  const operator = operatorNamed(name);
  const defaults = Object.entries(operator.parameters).map(([p, { default: value }]) => [p, value] as const);
  const parameters = { ...Object.fromEntries(defaults), ...given };
  return { computation: instantiate(operator, { ...options, parameters, types: parseDataTypes(types) }), parameters };
}

export const CONV = workloadNamed("conv2d", { c: 64, k: 64, h: 56, w: 56 }, "u8s8");

export const [VNNI] = intrinsicsNamed("avx512.vpdpbusd");

export function candidate(block = 1, intrinsic = VNNI?.name ?? "", threads = 1): Candidate {
  return {
    kind: "mapping",
    intrinsic,
    matching: { n: ["k"], k: ["c"] },
    operands: { a: "in", b: "w", c: "out" },
    schedule: { order: ["p", "q", "k"], block: { q: block }, placement: { in: "padded", w: "tiled" }, threads },
  };
}

/** A measurement whose median is `microseconds`. */
export function measured(microseconds: number): Extract<Measurement, { status: "ok" }> {
  const median = microseconds * 1e-6;
  return {
    status: "ok",
    samples: [median * 1.1, median, median * 0.9],
    median,
    interval: [median * 0.95, median * 1.05],
    instructions: 12,
  };
}

export function trial(measurement: Measurement, at = 1_700_000_000_000, tried = candidate()): Trial {
  return { candidate: tried, prediction: undefined, measurement, at };
}

/** A trial of the convolution that took so long. */
export function newTrial(microseconds: number, given: Partial<NewTrial> = {}): NewTrial {
  const { threads } = given.conditions ?? WARM;
  return {
    workload: CONV,
    environment: MACHINE,
    ...(VNNI === undefined ? {} : { intrinsic: VNNI }),
    trial: trial(measured(microseconds), undefined, candidate(1, VNNI?.name, threads)),
    conditions: WARM,
    ...given,
  };
}

/** Machines that are recorded without a trial on them: a record of which a part is missing. */
export function machinesWithoutTrial({ sqlite }: Database): unknown {
  return sqlite
    .prepare("SELECT count(*) FROM environments WHERE id NOT IN (SELECT environment FROM trials)")
    .pluck()
    .get();
}

/** Changes a file as something else than automap would, which leaves its triggers as they were. */
export function tamper(sqlite: Sqlite.Database, work: string | (() => unknown)): void {
  const triggers = sqlite
    .prepare<[], { name: string; sql: string }>("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
    .all();
  for (const { name } of triggers) sqlite.exec(`DROP TRIGGER ${name}`);
  if (typeof work === "string") sqlite.exec(work);
  else work();
  for (const { sql } of triggers) sqlite.exec(sql);
}

export interface Workshop {
  readonly path: (name: string) => string;
  /** Opens a file of the folder, or a database in memory. */
  readonly open: (name: string, options?: Parameters<typeof openDatabase>[1]) => Database;
  /** Closes what was opened, and removes the folder. */
  readonly remove: () => void;
}

/** A temporary folder with databases in it. */
export function workshop(): Workshop {
  const root = mkdtempSync(join(tmpdir(), "automap-db-"));
  const path = (name: string): string => join(root, name);
  const opened: Database[] = [];
  const open: Workshop["open"] = (name, options) => {
    const db = openDatabase(name === ":memory:" ? name : path(name), options);
    opened.push(db);
    return db;
  };
  const remove = (): void => {
    for (const db of opened) db.close();
    rmSync(root, { recursive: true, force: true });
  };
  return { path, open, remove };
}

/** A workshop of each test's own. */
export function eachWorkshop(): Omit<Workshop, "remove"> {
  let shop: Workshop;
  beforeEach(() => {
    shop = workshop();
  });
  afterEach(() => shop.remove());
  return { path: (name) => shop.path(name), open: (name, options) => shop.open(name, options) };
}

/** What the caller of a database is told: message and hint, with names of files beneath a folder alone. */
export function toldIn(shop: Pick<Workshop, "path">, work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof UsageError) return error.explain().replaceAll(shop.path(""), "");
    if (error instanceof DatabaseError) return `${error.reason}: ${error.message.replaceAll(shop.path(""), "")}`;
    throw error;
  }
  return "nothing";
}
