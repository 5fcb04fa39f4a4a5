/** @file The database: records are read back unchanged, and their facts cannot be changed. */

import { beforeEach, describe, expect, it } from "vitest";
import { computationKey } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { visible } from "../../abstraction/text.ts";
import type { Measurement, Trial } from "../../abstraction/trial.ts";
import {
  beginRun,
  calibrationOf,
  computationOf,
  type Database,
  declarationHash,
  endRun,
  idOf,
  queryTrials,
  recordCalibration,
  recordTrial,
  STATUSES,
  showRun,
  showTrial,
  trialsOf,
} from "../../db/index.ts";
import { OPERATORS } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { summarise } from "../../runtime/statistics.ts";
import {
  CONV,
  eachWorkshop,
  MACHINE,
  measured,
  newTrial,
  toldIn,
  trial,
  VNNI,
  WARM,
  workloadNamed,
} from "../support/database.ts";
import fc from "../support/property.ts";
import { inFull } from "../support/slow.ts";

const shop = eachWorkshop();
let db: Database;
beforeEach(() => {
  db = shop.open("automap.db");
});

const vnni = (): Intrinsic => {
  if (VNNI === undefined) throw new Error("the table lacks avx512.vpdpbusd");
  return VNNI;
};

const told = (work: () => unknown): string => toldIn(shop, work);

// ---- Arbitrary trials

const positive = fc.double({ min: 1e-6, max: 1e6, noNaN: true });
const text = fc.string({ unit: "grapheme", maxLength: 40 }).map(visible);
const name = fc.stringMatching(/^[a-z_]{1,6}$/);
const measurement = fc.oneof(
  fc
    .array(positive, { minLength: 1, maxLength: 20 })
    .map((samples): Measurement => ({ status: "ok", samples, ...summarise(samples, 1), instructions: 3 })),
  fc.record({ status: fc.constantFrom("wrong" as const, "crashed", "timed-out"), log: text }),
);
const anyTrial: fc.Arbitrary<Trial> = fc.record({
  candidate: fc.record({
    kind: fc.constant("mapping"),
    intrinsic: fc.constant("avx512.vpdpbusd"),
    matching: fc.dictionary(name, fc.array(name, { maxLength: 3 }), { noNullPrototype: true }),
    operands: fc.dictionary(name, fc.constantFrom("in[n,c,p+r-1,q]", "w", "f32(a[i])"), { noNullPrototype: true }),
    schedule: fc.record({
      order: fc.array(name, { maxLength: 5 }),
      block: fc.dictionary(name, fc.integer({ min: 1, max: 64 }), { noNullPrototype: true }),
      placement: fc.dictionary(name, fc.constantFrom("in-place", "padded", "tiled"), { noNullPrototype: true }),
      threads: fc.constant(1),
    }),
  }),
  prediction: fc.option(
    fc.record({
      seconds: positive,
      uncorrectedSeconds: positive,
      levels: fc.array(
        fc.record({
          level: fc.constantFrom("registers", "l1", "pack"),
          trips: fc.nat(),
          inner: positive,
          read: positive,
          write: positive,
          bound: fc.constantFrom("inner", "read", "write"),
        }),
        { maxLength: 3 },
      ),
    }),
    { nil: undefined },
  ),
  measurement,
  at: fc.nat(),
});

/** The same data with the keys of every object the other way round. */
function turned(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(turned);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, inner]) => [key, turned(inner)]),
  );
}

describe("ids", () => {
  it("are equal for equal data, whatever the order of its keys", () => {
    fc.assert(fc.property(fc.jsonValue(), (data) => idOf(turned(data)) === idOf(data)));
  });

  it("of trials do not depend on the order of keys or of lists of features", () => {
    const given = newTrial(60, { trial: trial(measured(60), 5) });
    const id = recordTrial(db, given);
    const other = { ...MACHINE, isa: [...MACHINE.isa].reverse() };
    expect(recordTrial(db, { ...given, environment: other, trial: turned(given.trial) as Trial })).toBe(id);
    expect(queryTrials(db)).toHaveLength(1);
  });

  it("differ when any fact differs", () => {
    const given = newTrial(60);
    const ids = [
      given,
      newTrial(61),
      { ...given, trial: { ...given.trial, at: 7 } },
      newTrial(60, { conditions: { ...WARM, threads: 2 } }),
      { ...given, conditions: { ...WARM, cache: "flushed" as const } },
      { ...given, conditions: { ...WARM, affinity: [0] } },
      { ...given, environment: { ...MACHINE, node: "v22.0.0" } },
      { ...given, environment: { ...MACHINE, driver: "550.1" } },
      { ...given, workload: workloadNamed("conv2d", { c: 32, k: 64, h: 56, w: 56 }, "u8s8") },
      { ...given, intrinsic: { ...vnni(), declaration: { ...vnni().declaration, summary: "another" } } },
    ].map((g) => recordTrial(db, g));
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe("a trial", () => {
  it("is read back unchanged, and recording it twice changes nothing", () => {
    const memory = shop.open(":memory:");
    fc.assert(
      fc.property(anyTrial, (given) => {
        const before = queryTrials(memory).map((t) => t.id);
        const workload = workloadNamed("matmul", { m: 8, n: 8, k: 8 });
        const id = recordTrial(memory, newTrial(1, { workload, trial: given }));
        expect(recordTrial(memory, newTrial(1, { workload, trial: given }))).toBe(id);
        expect(queryTrials(memory)).toHaveLength(new Set([...before, id]).size);
        const { candidate: tried, prediction, measurement: result, at } = showTrial(memory, id);
        expect({ candidate: tried, prediction, measurement: result, at }).toEqual(given);
      }),
      { numRuns: inFull(60, 25) },
    );
  });

  it("names its environment field by field", () => {
    const run = beginRun(db, { workload: CONV, environment: MACHINE, seed: 1, options: {}, budget: {}, started: 1 });
    const conditions = { threads: 2, cache: "flushed", affinity: [0, 1] } as const;
    const environment = { ...MACHINE, driver: "550.54" };
    const found = showTrial(db, recordTrial(db, newTrial(60, { run, environment, conditions })));
    expect(found.environment).toMatchObject({ ...environment, isa: [...MACHINE.isa].sort() });
    expect(found).toMatchObject({ run, conditions, declaration: declarationHash(vnni()) });
    expect(found.workload).toMatchObject({
      operator: "conv2d",
      dtype: "u8s8",
      sum: "s32",
      parameters: CONV.parameters,
    });
  });

  it("that could not be read back is refused", () => {
    const bad = { ...measured(60), samples: [Number.NaN] } as Measurement;
    expect(() => recordTrial(db, newTrial(60, { trial: trial(bad) }))).toThrow(
      /a trial that cannot be recorded: its field samples/,
    );
    expect(() => recordTrial(db, newTrial(60, { trial: trial(measured(60), 1.5) }))).toThrow(/its field at: /);
    expect(told(() => recordTrial(db, newTrial(60, { run: "0123".repeat(8) })))).toContain("holds no run 0123");
    expect(queryTrials(db)).toEqual([]);
  });

  it("can have every status", () => {
    for (const status of STATUSES)
      recordTrial(db, newTrial(60, { trial: trial(status === "ok" ? measured(60) : { status, log: "why" }) }));
    expect(
      queryTrials(db)
        .map((t) => t.measurement.status)
        .sort(),
    ).toEqual([...STATUSES].sort());
  });
});

describe("a workload", () => {
  it.each(OPERATORS.map((o) => [o.name, o] as const))("of %s is read back as the same computation", (_, operator) => {
    const computation = instantiate(operator);
    const id = recordTrial(db, newTrial(600, { workload: { computation } }));
    const { workload } = showTrial(db, id);
    expect(computationKey(computationOf(workload))).toBe(computationKey(computation));
  });

  it("with changed parts is refused", () => {
    const { workload } = showTrial(db, recordTrial(db, newTrial(60)));
    expect(told(() => computationOf({ ...workload, extents: { ...workload.extents, c: 63 } }))).toMatch(
      /its parts do not make the computation it names/,
    );
  });
});

describe("facts", () => {
  it("cannot be changed, replaced or deleted by SQL, except in a prune", () => {
    const id = recordTrial(db, newTrial(60));
    recordCalibration(db, { environment: MACHINE, data: { l1: 403e9 }, at: 1 });
    beginRun(db, { workload: CONV, environment: MACHINE, seed: 1, options: {}, budget: {}, started: 1 });
    const { sqlite } = db;
    for (const table of ["environments", "workloads", "runs", "trials", "calibrations"]) {
      expect(() => sqlite.exec(`UPDATE ${table} SET id = 'x'`), table).toThrow(/are facts/);
      expect(() => sqlite.exec(`DELETE FROM ${table}`), table).toThrow(/are facts: only automap db prune deletes them/);
      const columns = sqlite.pragma(`table_info(${table})`) as { name: string }[];
      const other = columns.map((c) => (c.name === "started" || c.name === "at" ? `${c.name} + 1` : c.name));
      expect(
        sqlite.prepare(`INSERT OR REPLACE INTO ${table} SELECT ${other.join(", ")} FROM ${table}`).run().changes,
      ).toBe(0);
    }
    expect(showTrial(db, id).at).toBe(newTrial(60).trial.at);
    sqlite.exec("BEGIN; INSERT INTO pruning VALUES ('test'); DELETE FROM trials; DELETE FROM pruning; COMMIT");
    expect(queryTrials(db)).toEqual([]);
  });

  it("are consistent: no number without success, no failure without a log", () => {
    recordTrial(db, newTrial(60));
    const insert = (column: string, value: string): void => {
      const columns = (db.sqlite.pragma("table_info(trials)") as { name: string }[]).map((c) => c.name);
      const values = columns.map((c) => (c === "id" ? "'new'" : c === column ? value : c));
      db.sqlite.exec(`INSERT INTO trials SELECT ${values.join(", ")} FROM trials`);
    };
    expect(() => insert("median", "NULL")).toThrow(/CHECK/);
    expect(() => insert("samples", "'[1,'")).toThrow(/CHECK/);
    expect(() => insert("log", "'x'")).toThrow(/CHECK/);
    expect(() => insert("status", "'crashed'")).toThrow(/CHECK/);
    expect(() => insert("median", "'fast'")).toThrow(/cannot store TEXT value in REAL column/);
    expect(() => insert("workload", "'none'")).toThrow(/FOREIGN KEY/);
  });
});

describe("a run", () => {
  const begin = {
    workload: CONV,
    environment: MACHINE,
    seed: 7,
    options: { strategy: "genetic" },
    budget: { trials: 9 },
  };

  it("ends once", () => {
    const run = beginRun(db, { ...begin, started: 100 });
    expect(showRun(db, run)).toMatchObject({
      seed: 7,
      options: { strategy: "genetic" },
      status: "running",
    });
    endRun(db, run, { status: "done", ended: 200 });
    endRun(db, run, { status: "done", ended: 300 });
    expect(showRun(db, run.slice(0, 8))).toMatchObject({ status: "done", ended: 200, started: 100 });
    expect(() => endRun(db, run, { status: "failed", ended: 300 })).toThrow(/already done, not failed/);
    expect(() => db.sqlite.exec("UPDATE runs SET status = 'failed'")).toThrow(/a run ends once/);
  });

  it("by another process has an id of its own, even if both start at the same instant", () => {
    expect(beginRun(db, { ...begin, started: 1, process: 10 })).not.toBe(
      beginRun(db, { ...begin, started: 1, process: 11 }),
    );
  });
});

describe("trialsOf", () => {
  const found = (options = {}, environment = MACHINE): number[] =>
    trialsOf(db, CONV, environment, options).map((t) => t.at);

  beforeEach(() => {
    const at = (time: number, given = {}): string =>
      recordTrial(db, newTrial(60, { trial: trial(measured(60), time), ...given }));
    at(3);
    at(1);
    at(2, { trial: trial({ status: "crashed", log: "signal 11" }, 2) });
    at(4, { environment: { ...MACHINE, node: "v22.0.0" } });
    at(5, { workload: workloadNamed("conv2d", { c: 32 }, "u8s8") });
    at(6, { intrinsic: { ...vnni(), declaration: { ...vnni().declaration, emit: "{c} = other({a}, {b});" } } });
  });

  it("gives the trials of a computation in an environment, failures too, earliest first", () => {
    expect(found()).toEqual([1, 2, 3, 6]);
  });

  it("leaves out trials of an instruction whose declaration has changed", () => {
    expect(found({ intrinsics: [vnni()] })).toEqual([1, 2, 3]);
    expect(found({ intrinsics: [] })).toEqual([]);
  });

  it("takes the fields of the environment that must agree", () => {
    const later = { ...MACHINE, node: "v24.0.0", kernel: "Linux 7" };
    expect(found({}, later)).toEqual([]);
    expect(found({ match: ["target", "cpu", "isa", "compiler_version", "flags"] }, later)).toEqual([1, 2, 3, 4, 6]);
  });

  it("finds a computation under another name", () => {
    const { computation } = CONV;
    expect(trialsOf(db, { computation: { ...computation, name: "equation" } }, MACHINE)).toHaveLength(4);
  });
});

describe("showTrial", () => {
  it("finds a trial by the first digits of its id, or says why it cannot", () => {
    const id = recordTrial(db, newTrial(60));
    expect(showTrial(db, id.slice(0, 6)).id).toBe(id);
    expect(told(() => showTrial(db, "best"))).toMatchInlineSnapshot(`
      ""best" is not the id of a trial
        an id is 4 to 32 hexadecimal digits; automap db query --db /automap.db lists them"
    `);
    expect(told(() => showTrial(db, "0000"))).toMatchInlineSnapshot(`
      "/automap.db holds no trial 0000
        automap db query --db /automap.db lists them"
    `);
    const copy = `${id.slice(0, 6)}00`;
    const columns = (db.sqlite.pragma("table_info(trials)") as { name: string }[]).map((c) => c.name);
    db.sqlite.exec(`INSERT INTO trials SELECT '${copy}', ${columns.slice(1).join(", ")} FROM trials`);
    expect(told(() => showTrial(db, id.slice(0, 6)))).toContain("several trials begin with");
  });
});

describe("calibrations", () => {
  it("are found again: the newest one of this environment", () => {
    recordCalibration(db, { environment: MACHINE, data: { l1: 2 }, at: 2 });
    recordCalibration(db, { environment: MACHINE, data: { l1: 1 }, at: 1 });
    expect(calibrationOf(db, MACHINE)).toMatchObject({ at: 2, data: { l1: 2 } });
    expect(calibrationOf(db, { ...MACHINE, cores: 4 })).toBeUndefined();
    expect(calibrationOf(db, { ...MACHINE, cores: 4 }, { match: ["cpu"] })).toMatchObject({ at: 2 });
  });
});
