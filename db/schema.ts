/**
 * @file The tables of the database.
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

/** `amdb` in ASCII: marks a file as automap's, also for `file automap.db`. */
export const APPLICATION_ID = 0x616d6462;

/** `amap`: files of automap 0.1, whose schemas were never released. */
export const UNRELEASED_ID = 0x616d6170;

const TABLES = `
  CREATE TABLE environments (
    id       TEXT NOT NULL PRIMARY KEY,
    target   TEXT NOT NULL,               -- name of the target description
    cpu      TEXT NOT NULL,               -- model as the machine reports it
    cores    INTEGER NOT NULL CHECK (cores > 0),
    isa      TEXT NOT NULL CHECK (json_valid(isa)),              -- sorted feature names
    compiler TEXT NOT NULL,               -- path
    compiler_version TEXT NOT NULL,
    flags    TEXT NOT NULL CHECK (json_valid(flags)),            -- in the order given
    kernel   TEXT NOT NULL,               -- of the operating system
    driver   TEXT,                        -- of the accelerator, when there is one
    node     TEXT NOT NULL,
    automap  TEXT NOT NULL
  ) STRICT;

  CREATE TABLE workloads (
    id          TEXT NOT NULL PRIMARY KEY,
    operator    TEXT NOT NULL,            -- 'equation' for a bare equation
    computation TEXT NOT NULL,            -- computationKey: equal for equal computations, whatever they are called
    equation    TEXT NOT NULL,
    extents     TEXT NOT NULL CHECK (json_valid(extents)),       -- of the axes
    parameters  TEXT NOT NULL CHECK (json_valid(parameters)),    -- of the operator, {} for a bare equation
    tensors     TEXT NOT NULL CHECK (json_valid(tensors)),       -- types, shapes, layouts: enough to define it again
    dtype       TEXT NOT NULL,            -- of the inputs: f16, u8s8
    sum         TEXT NOT NULL,            -- type of the output
    points      REAL NOT NULL,            -- multiply-adds
    name        TEXT                      -- the user's own, as --name gave it
  ) STRICT;

  CREATE TABLE runs (
    id          TEXT NOT NULL PRIMARY KEY,
    workload    TEXT NOT NULL REFERENCES workloads (id),
    environment TEXT NOT NULL REFERENCES environments (id),
    seed        INTEGER NOT NULL,
    options     TEXT NOT NULL CHECK (json_valid(options)),
    budget      TEXT NOT NULL CHECK (json_valid(budget)),
    process     INTEGER NOT NULL,
    started     INTEGER NOT NULL,         -- milliseconds since 1970, as every time here
    ended       INTEGER,
    status      TEXT NOT NULL DEFAULT 'running',                 -- 'running' without a living process: it was killed
    seal        TEXT,                     -- made of the facts and of how it ended with a key of this machine; none on what came from elsewhere
    CHECK ((status = 'running') = (ended IS NULL))
  ) STRICT;

  -- In SQLite 3.40 json_valid(NULL) is false, so each check lets NULL pass in words.
  CREATE TABLE trials (
    id          TEXT NOT NULL PRIMARY KEY,
    run         TEXT REFERENCES runs (id),
    workload    TEXT NOT NULL REFERENCES workloads (id),
    environment TEXT NOT NULL REFERENCES environments (id),
    candidate   TEXT NOT NULL CHECK (json_valid(candidate)),
    intrinsic   TEXT NOT NULL,
    declaration TEXT,                     -- hash of the intrinsic's declaration then
    status      TEXT NOT NULL,
    log         TEXT,                     -- of a failure
    median      REAL,                     -- seconds of one call
    low         REAL,                     -- 95 % interval of the median
    high        REAL,
    samples     TEXT CHECK (samples IS NULL OR json_valid(samples)),     -- every raw one, seconds
    instructions INTEGER,                 -- times the promised instruction stands in the disassembly
    predicted   REAL,                     -- seconds
    uncorrected REAL,                     -- before the correction learnt from trials
    levels      TEXT CHECK (levels IS NULL OR json_valid(levels)),       -- the prediction level by level
    threads     INTEGER NOT NULL CHECK (threads > 0),
    cache       TEXT NOT NULL CHECK (cache IN ('warm', 'flushed')),
    affinity    TEXT CHECK (affinity IS NULL OR json_valid(affinity)),   -- the cores it was bound to
    at          INTEGER NOT NULL,
    comparison  TEXT,                     -- the finals it was measured in; NULL: measured alone
    place       INTEGER CHECK (place IS NULL OR place > 0 AND comparison IS NOT NULL),  -- 1 the winner; NULL: it failed
    load        REAL CHECK (load IS NULL OR load BETWEEN 0 AND 1),       -- share of its cores' time that others took
    clock       TEXT CHECK (clock IS NULL OR json_valid(clock)),         -- of a GPU while it was timed, and what held it down
    lost_to     REAL CHECK (lost_to IS NULL OR lost_to > 0 AND median > lost_to),       -- seconds; every sample is longer by a margin
    seal        TEXT,                     -- made of the facts
    -- A failed run is a status with its log, never a number.
    CHECK ((status = 'ok') = (median IS NOT NULL)),
    CHECK ((status = 'ok') = (log IS NULL)),
    CHECK ((median IS NULL) = (samples IS NULL) AND (median IS NULL) = (instructions IS NULL)),
    CHECK ((median IS NULL) = (low IS NULL) AND (median IS NULL) = (high IS NULL)),
    CHECK ((predicted IS NULL) = (uncorrected IS NULL) AND (predicted IS NULL) = (levels IS NULL))
  ) STRICT;

  CREATE TABLE calibrations (
    id          TEXT NOT NULL PRIMARY KEY,
    environment TEXT NOT NULL REFERENCES environments (id),
    data        TEXT NOT NULL CHECK (json_valid(data)),
    at          INTEGER NOT NULL,
    seal        TEXT
  ) STRICT;

  -- Holds a row only inside the transaction of a prune.
  CREATE TABLE pruning (reason TEXT NOT NULL) STRICT;
`;

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

const VIEWS = `
  -- A trial with its world. The shape is what people filter by: the extents of the axes and the operator's parameters over them.
  CREATE VIEW records AS
  SELECT trials.*, operator, name, computation, equation, json_patch(extents, parameters) AS shape, dtype, sum, points,
         target, cpu, cores, isa, compiler, compiler_version, flags, kernel, driver, node, automap
  FROM trials JOIN workloads ON workloads.id = workload JOIN environments ON environments.id = environment;

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

/**
 * Each brings a file from one version, its `user_version`, to the next. They only go forward; one that was released is never edited, because files
 * have run it.
 */
export const MIGRATIONS: readonly string[] = [TABLES + INDEXES + TRIGGERS + VIEWS];
