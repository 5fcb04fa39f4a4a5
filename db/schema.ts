/**
 * @file The tables of the database, made of their columns (columns.ts), with indexes, triggers and views.
 *
 *     environments   the machine and the tools: every number holds for one of these
 *     workloads      the computation that was tuned
 *     runs           a search: seed, options, budget, how it ended
 *     trials         one candidate, what the model said and what the machine said; failures too
 *     calibrations   measured constants of a machine
 *
 * Ids are hashes of a record's canonical JSON (identity.ts), so a record has the same id in every file and merging is a union.
 * The views `records` (a trial with its world), `best`, `searches`, `failures` and `instructions` are for people:
 * `sqlite3 automap.db "select * from best"`.
 */

import { namesOf } from "../abstraction/collections.ts";
import { COLUMNS_OF, isSealedTable, type NamedColumn, TABLE_NAMES, type Table } from "./facts.ts";

/** `amdb` in ASCII: marks a file as automap's, also for `file automap.db`. */
export const APPLICATION_ID = 0x616d6462;

/** `amap`: files of automap 0.1, whose schemas were never released. */
export const UNRELEASED_ID = 0x616d6170;

/** A table of the first schema. In SQLite 3.40 json_valid(NULL) is false, so each check lets NULL pass in words. */
function tableOf(table: Table): string {
  const columns = [
    "id TEXT NOT NULL PRIMARY KEY",
    ...addedTo(table, 1).map(
      (column) => `${declarationOf(column)}${column.about === undefined ? "" : ` /* ${column.about} */`}`,
    ),
    ...(isSealedTable(table)
      ? [
          "seal TEXT /* made of the facts, of a run's end too, with a key of this machine; none on what came from elsewhere */",
        ]
      : []),
  ];
  return `CREATE TABLE ${table} (\n  ${columns.join(",\n  ")}\n) STRICT;\n`;
}

function addedTo(table: Table, version: number): readonly NamedColumn[] {
  return COLUMNS_OF[table].filter(({ since = 1 }) => since === version);
}

/** `load REAL CHECK (load IS NULL OR load BETWEEN 0 AND 1)` */
function declarationOf({ name, type, check, optional, of, needs, refers }: NamedColumn): string {
  const isJson = type === "JSON";
  const conditions = [isJson && `json_valid(${name})`, check, needs && `${needs} IS NOT NULL`]
    .filter(Boolean)
    .join(" AND ");
  const isRequired = !optional && of === undefined;
  return [
    `${name} ${type === undefined || isJson ? "TEXT" : type}`,
    isRequired && "NOT NULL",
    refers && `REFERENCES ${refers} (id)`,
    conditions && `CHECK (${isRequired ? "" : `${name} IS NULL OR `}${conditions})`,
    // A failed run is a status with its log, never a number.
    of && !optional && `CHECK ((status = 'ok') = (${name} IS ${of === "ok" ? "NOT NULL" : "NULL"}))`,
  ]
    .filter(Boolean)
    .join(" ");
}

/** Holds a row only inside the transaction of a prune. */
const PRUNING = "CREATE TABLE pruning (reason TEXT NOT NULL) STRICT;\n";

const INDEXES = `
  CREATE INDEX workloads_by_computation ON workloads (computation);
  CREATE INDEX workloads_by_operator ON workloads (operator, dtype);
  CREATE INDEX runs_by_workload ON runs (workload, environment);
  CREATE INDEX runs_by_environment ON runs (environment);
  CREATE INDEX trials_by_workload ON trials (workload, environment, median);
  CREATE INDEX trials_by_environment ON trials (environment);
  CREATE INDEX trials_by_run ON trials (run);
  CREATE INDEX trials_by_intrinsic ON trials (intrinsic, declaration);
  CREATE INDEX trials_by_time ON trials (at);
  CREATE INDEX trials_by_workload_and_time ON trials (workload, at);
  CREATE INDEX trials_fastest ON trials (workload, median, at, environment) WHERE status = 'ok';
  CREATE INDEX trials_fastest_by_intrinsic ON trials (workload, intrinsic, median, at) WHERE status = 'ok';
  CREATE INDEX trials_failed ON trials (status, at) WHERE status <> 'ok';
  CREATE INDEX trials_that_won ON trials (workload, environment) WHERE place = 1;
  CREATE INDEX calibrations_by_environment ON calibrations (environment, at);
`;

/** Facts are appended, never changed. The first trigger of a table also stops INSERT OR REPLACE, which deletes without a trigger. */
const TRIGGERS = `
  ${["environments", "workloads", "trials", "calibrations"].map(appendOnly).join("\n")}
  CREATE TRIGGER runs_known BEFORE INSERT ON runs WHEN EXISTS (SELECT 1 FROM runs WHERE id = NEW.id)
  BEGIN SELECT RAISE(IGNORE); END;
  CREATE TRIGGER runs_end_once BEFORE UPDATE ON runs
  WHEN OLD.ended IS NOT NULL OR NEW.ended IS NULL
    OR (NEW.id, NEW.workload, NEW.environment, NEW.seed, NEW.options, NEW.budget, NEW.process, NEW.started)
    IS NOT (OLD.id, OLD.workload, OLD.environment, OLD.seed, OLD.options, OLD.budget, OLD.process, OLD.started)
  BEGIN SELECT RAISE(ABORT, 'runs are facts: a run ends once and nothing else of it changes'); END;
  CREATE TRIGGER runs_kept BEFORE DELETE ON runs WHEN NOT EXISTS (SELECT 1 FROM pruning)
  BEGIN SELECT RAISE(ABORT, 'runs are facts: only automap db prune deletes them'); END;
`;

function appendOnly(table: string): string {
  return `
  CREATE TRIGGER ${table}_known BEFORE INSERT ON ${table} WHEN EXISTS (SELECT 1 FROM ${table} WHERE id = NEW.id)
  BEGIN SELECT RAISE(IGNORE); END;
  CREATE TRIGGER ${table}_unchanged BEFORE UPDATE ON ${table}
  BEGIN SELECT RAISE(ABORT, '${table} are facts: they are never changed'); END;
  CREATE TRIGGER ${table}_kept BEFORE DELETE ON ${table} WHEN NOT EXISTS (SELECT 1 FROM pruning)
  BEGIN SELECT RAISE(ABORT, '${table} are facts: only automap db prune deletes them'); END;`;
}

/** A trial with its world. The shape is what people filter by: the extents of the axes and the operator's parameters over them. */
function recordsOf(version: number): string {
  const known = (table: Table): NamedColumn[] => COLUMNS_OF[table].filter(({ since = 1 }) => since <= version);
  const workload = known("workloads").filter(({ type }) => type !== "JSON");
  const names = namesOf([...workload, ...known("environments")]).join(", ");
  return `
  CREATE VIEW records AS
  SELECT trials.*, json_patch(extents, parameters) AS shape, ${names}
  FROM trials JOIN workloads ON workloads.id = workload JOIN environments ON environments.id = environment;
`;
}

const VIEWS = `
  -- For each computation, environment, thread count and cache state one trial that worked: the winner of the newest finals. Finals decide
  -- over all that was measured before them with an instruction the search was offered. Where there are none, or where several searches were
  -- offered different instructions, the smallest median of what is left; of equal ones the earliest. What was measured here counts before
  -- what was imported, and no imported finals decide over it.
  CREATE VIEW best AS
  WITH timed AS (
    SELECT *, seal IS NULL AS imported,
      iif(json_extract(candidate, '$.matching') IS NULL AND json_extract(candidate, '$.kind') <> 'loops', 'lanes', 'mappings') AS kind
    FROM records WHERE status = 'ok'
  ), decided AS (
    SELECT computation, timed.environment, threads, cache, imported, offered.value AS instruction, kinds.value AS kind,
      timed.id AS winner, max(at) AS until
    FROM timed JOIN runs ON runs.id = run, json_each(options, '$.offered') AS offered, json_each('["mappings","lanes"]') AS kinds
    WHERE place = 1 AND coalesce(json_extract(options, '$.kinds'), 'all') IN ('all', kinds.value)
    GROUP BY computation, timed.environment, threads, cache, imported, instruction, kinds.value
  )
  SELECT * FROM (
    SELECT timed.*, row_number() OVER (
      PARTITION BY timed.computation, timed.environment, timed.threads, timed.cache ORDER BY timed.imported, median, at, id
    ) AS rank
    FROM timed LEFT JOIN decided
    ON decided.computation = timed.computation AND decided.environment = timed.environment AND decided.threads = timed.threads
       AND decided.cache = timed.cache AND decided.imported = timed.imported AND decided.kind = timed.kind AND instruction = intrinsic
    WHERE winner IS NULL OR winner = id OR at > until
  ) WHERE rank = 1;

  CREATE VIEW searches AS
  SELECT runs.id, runs.status, datetime(started / 1000, 'unixepoch') AS started, (ended - started) / 1000.0 AS seconds,
         operator, name, json_patch(extents, parameters) AS shape, dtype, sum, target, cpu,
         json_extract(options, '$.strategy') AS strategy, seed, coalesce(json_extract(options, '$.threads'), 1) AS threads,
         count(trials.id) FILTER (WHERE comparison IS NULL) AS trials,
         count(trials.id) FILTER (WHERE comparison IS NULL AND trials.status NOT IN ('ok', 'emulated')) AS failed,
         min(median) AS fastest
  FROM runs JOIN workloads ON workloads.id = runs.workload JOIN environments ON environments.id = runs.environment
       LEFT JOIN trials ON trials.run = runs.id
  GROUP BY runs.id;

  -- The log is that of the latest trial of a group.
  CREATE VIEW failures AS
  SELECT status, operator, intrinsic, target, count(*) AS trials, datetime(max(at) / 1000, 'unixepoch') AS latest, id, log
  FROM records WHERE status NOT IN ('ok', 'emulated')
  GROUP BY status, operator, intrinsic, target;

  CREATE VIEW instructions AS
  SELECT intrinsic, target, cpu, threads, count(DISTINCT computation) AS computations, count(*) AS trials,
         count(*) FILTER (WHERE status = 'ok') AS measured, count(*) FILTER (WHERE status NOT IN ('ok', 'emulated')) AS failed,
         max(2 * points / median) / 1e9 AS gops
  FROM records GROUP BY intrinsic, target, cpu, threads;
`;

/** The columns of a later schema, and the view that shows them. */
function added(version: number): string {
  const columns = TABLE_NAMES.flatMap((table) =>
    addedTo(table, version).map((column) => `ALTER TABLE ${table} ADD COLUMN ${declarationOf(column)};`),
  );
  return [...columns, "DROP VIEW IF EXISTS records;", recordsOf(version)].join("\n");
}

const LATEST = Math.max(...TABLE_NAMES.flatMap((table) => COLUMNS_OF[table].map(({ since = 1 }) => since)));

/**
 * Each brings a file from one version, its `user_version`, to the next. They only go forward; one that was released is never edited, because files
 * have run it.
 */
export const MIGRATIONS: readonly string[] = [
  TABLE_NAMES.map(tableOf).join("") + PRUNING + INDEXES + TRIGGERS + recordsOf(1) + VIEWS,
  ...Array.from({ length: LATEST - 1 }, (_, i) => added(i + 2)),
];
