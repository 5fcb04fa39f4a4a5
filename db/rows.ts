/**
 * @file Converts records to rows and back. A file is external input: every row passes parse.ts and is compared on reading with what its parts
 * should produce. Nothing is written that could not be read back.
 */

import { z } from "zod";
import { shapeOf } from "../abstraction/affine.ts";
import { canonicalJson } from "../abstraction/candidate.ts";
import { defined, mapValues, namesOf, remembered, unique } from "../abstraction/collections.ts";
import {
  type Computation,
  computationKey,
  equationText,
  extentsOf,
  pointCount,
  targetOf,
} from "../abstraction/computation.ts";
import { automapCommand, UsageError } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Provenance } from "../abstraction/seal.ts";
import { visible } from "../abstraction/text.ts";
import { databaseWords } from "./default.ts";
import { byTable, COLUMNS_OF, idOfFacts, kindOf, type Row, type SealedTable, type Table } from "./facts.ts";
import { shortId } from "./identity.ts";
import type { Database } from "./open.ts";
import { failure } from "./parse.ts";
import { hash, json, shortened } from "./parse-text.ts";
import { impossibleComputation, impossibleTrial } from "./possible.ts";
import {
  type CalibrationRecord,
  type ComputationRecord,
  computationOf,
  type Environment,
  type EnvironmentRecord,
  inputTypes,
  type RunRecord,
  type TensorRecord,
  type TrialRecord,
  type Workload,
  type WorkloadRecord,
} from "./record.ts";

/** A record that names others by their ids. */
type Referring<R> = Omit<R, "workload" | "environment" | "provenance"> & {
  readonly [K in keyof R & ("workload" | "environment")]: string;
};

/** What a row of each table says by itself. */
export interface Facts {
  readonly environments: EnvironmentRecord;
  readonly workloads: WorkloadRecord;
  readonly runs: Referring<RunRecord>;
  readonly trials: Referring<TrialRecord>;
  readonly calibrations: Referring<CalibrationRecord>;
}

// ---- What a row may hold

type Cells = Readonly<Record<string, unknown>>;

/** The schemas of rows. Rows that are read, lines that are imported and rows about to be written all pass through them. */
const SCHEMAS = byTable((table): z.ZodType<Cells> => {
  if (table === "runs") return cellsOf(table).superRefine(checkEnd);
  if (table !== "trials") return cellsOf(table);
  const ok = cellsOf(table, "ok").extend({ status: z.literal("ok") });
  const failed = cellsOf(table, "failed").extend({ status: failure });
  return z.discriminatedUnion("status", [ok, failed]).superRefine(checkNeeds);
});

function checkEnd({ status, started, ended }: Cells, { addIssue }: z.RefinementCtx): void {
  const refuse = (message: string): void => addIssue({ code: "custom", message, path: ["ended"] });
  if ((status === "running") !== (ended === null)) refuse("disagrees with its status");
  if (ended !== null && Number(ended) < Number(started)) refuse("lies before its start");
}

function checkNeeds(row: Cells, { addIssue }: z.RefinementCtx): void {
  for (const { name, needs } of COLUMNS_OF.trials)
    if (needs !== undefined && (row[name] ?? null) !== null && (row[needs] ?? null) === null)
      addIssue({ code: "custom", message: `is nothing without ${needs}`, path: [name] });
}

function cellsOf(table: Table, of?: "ok" | "failed") {
  const columns = COLUMNS_OF[table].filter((column) => column.of === undefined || column.of === of);
  const cells = columns.map(({ name, type, holds, optional }): [string, z.ZodType] => {
    const cell = type === "JSON" ? json(holds) : holds;
    return [name, optional ? cell.nullable().default(null) : cell];
  });
  return z.object({ id: hash, ...Object.fromEntries(cells) });
}

/** Most characters of a cell; texts of records are shorter. */
const CELL = 2 ** 22;

/**
 * A row of an untrusted file, read with `safeIntegers`. Integers beyond a number's range become text, bytes become null, and long texts are cut, so
 * that each is refused with a suitable reason.
 */
export function rowHeld(held: object): Row {
  const cell = (value: unknown): string | number | null => {
    if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
    if (typeof value === "string") return value.slice(0, CELL);
    return typeof value === "number" ? value : null;
  };
  return mapValues(held as Record<string, unknown>, cell);
}

// ---- From records to rows

/** The row of a record. @throws UsageError naming a field that could not be read back */
export function rowFrom<T extends Table>(table: T, record: Omit<Facts[T], "id">): Row {
  const facts = Object.fromEntries(
    COLUMNS_OF[table].map(({ name, type, at = name }) => {
      const value = valueAt(record, at);
      if (value === undefined || value === null) return [name, null];
      return [name, type === "JSON" ? canonicalJson(value) : (value as string | number)]; // the schema checks it below
    }),
  );
  const row = { id: idOfFacts(table, facts), ...facts };
  const wrong = wrongField(table, row);
  if (wrong !== undefined) throw new UsageError(`a ${kindOf(table)} that cannot be recorded: ${wrong}`);
  return row;
}

/** What stands at a place of a record, `conditions.load`. */
export function valueAt(record: object, place: string): unknown {
  let value: unknown = record;
  for (const key of place.split(".")) value = (value as Readonly<Record<string, unknown>> | undefined)?.[key];
  return value;
}

export function environmentRowOf(environment: Environment): Row {
  const { target, cpu, isa, compiler, kernel, driver } = environment;
  return rowFrom("environments", {
    ...environment,
    target: visible(target),
    cpu: visible(cpu),
    isa: unique(isa).sort(),
    compiler: { ...compiler, version: visible(compiler.version) },
    kernel: visible(kernel),
    ...(driver !== undefined && { driver: visible(driver) }),
  });
}

export function workloadRowOf({ computation, parameters = {}, name }: Workload): Row {
  const impossible = impossibleComputation(computation);
  if (impossible !== undefined) throw new UsageError(`a workload that cannot be recorded: ${impossible}`);
  const { program } = computation;
  return rowFrom("workloads", {
    ...recordOf(computation),
    operator: computation.name,
    computation: computationKey(computation),
    parameters,
    dtype: inputTypes(computation),
    sum: targetOf(computation).dtype,
    points: pointCount(computation),
    name,
    program: program && {
      parts: program.parts.map((part) => ({ ...recordOf(part.computation), names: part.names })),
      stored: program.stored,
    },
  });
}

function recordOf(computation: Computation): ComputationRecord {
  const tensors = Object.values(computation.tensors).map((t): [string, TensorRecord] => [
    t.name,
    {
      dtype: t.dtype,
      dims: namesOf(t.dims),
      shape: shapeOf(t),
      storage: printExpr(t.storage, "formula"),
      constant: t.constant,
    },
  ]);
  return {
    equation: equationText(computation),
    extents: extentsOf(computation),
    tensors: Object.fromEntries(tensors),
  };
}

export function trialRowOf(trial: Omit<Facts["trials"], "id">): Row {
  const { measurement, conditions } = trial;
  const { ran, clock, worker } = measurement;
  return rowFrom("trials", {
    ...trial,
    measurement:
      measurement.status === "ok" ? measurement : { ...measurement, log: shortened(visible(measurement.log)) },
    // Facts in the measurement fill conditions that were not given.
    conditions: {
      ...defined({ affinity: ran?.cpus, load: ran?.load, clock, worker }),
      ...conditions,
    },
  });
}

/** The first field of a row that may not hold what it does, and why. */
export function wrongField(table: Table, row: unknown): string | undefined {
  const [issue] = SCHEMAS[table].safeParse(row).error?.issues ?? [];
  return issue && `its field ${issue.path.join(".")}: ${issue.message}`;
}

/** Why a row is not a record: its fields, or parts that do not reproduce it. Undefined when it is one. */
export function problemOf(table: Table, row: Row): string | undefined {
  try {
    if (table === "environments") environmentOf(row, "");
    else if (table === "workloads") workloadOf(row, "");
    else return wrongField(table, row);
    return undefined;
  } catch (error) {
    if (error instanceof Damaged) return error.because;
    throw error;
  }
}

/** The same for a trial in its world, including results that cannot have been measured. */
export function problemOfTrial(row: Row, world: Pick<Referred, "workload" | "environment">): string | undefined {
  const facts = factsOf("trials", row, "");
  return impossibleTrial(facts, world.workload(facts.workload), world.environment(facts.environment));
}

// ---- From rows to records

/** A row that is not a record. */
class Damaged extends UsageError {
  readonly because: string;

  constructor(path: string, what: string, row: unknown, because: string) {
    const id = z.object({ id: z.string() }).safeParse(row).data?.id ?? "";
    super(`${path}: ${what} ${visible(shortId(id))} is damaged: ${because}`, {
      hint: `something other than this automap wrote it; ${automapCommand("db", "verify", databaseWords(path))} names every such row, and db merge into a new file takes the others`,
    });
    this.because = because;
  }
}

/** What a row says. @throws UsageError when it is not valid */
export function factsOf<T extends Table>(table: T, row: unknown, path: string): Facts[T] {
  const { data } = SCHEMAS[table].safeParse(row);
  if (!data) throw new Damaged(path, kindOf(table), row, wrongField(table, row) ?? "");
  const record = { id: data["id"] };
  for (const { name, at = name } of COLUMNS_OF[table]) {
    const value = data[name] ?? null;
    if (value !== null) put(record, at, value);
  }
  return record as unknown as Facts[T]; // each column says where its value stands
}

/** Puts a value at a place of a record, `conditions.load`; the parts of a pair are numbered. */
function put(record: object, place: string, value: unknown): void {
  const keys = place.split(".");
  let holder = record as Record<string, unknown>;
  keys.forEach((key, i) => {
    const next = keys[i + 1];
    if (next === undefined) holder[key] = value;
    else {
      holder[key] ??= next === "0" ? [] : {};
      holder = holder[key] as Record<string, unknown>; // a part, made above
    }
  });
}

export function environmentOf(row: unknown, path: string): EnvironmentRecord {
  const record = factsOf("environments", row, path);
  if (!isSame(environmentRowOf(record), row))
    throw new Damaged(path, "environment", row, "its parts do not make the environment it claims to be");
  return record;
}

/** Rebuilds a workload from its parts, to check that it computes what it claims. */
export function workloadOf(row: unknown, path: string): WorkloadRecord {
  const record = factsOf("workloads", row, path);
  try {
    if (!isSame(workloadRowOf({ ...record, computation: computationOf(record) }), row))
      throw new Damaged(path, "workload", row, "its parts do not make the workload it claims to be");
    return record;
  } catch (error) {
    if (error instanceof UsageError && !(error instanceof Damaged))
      throw new Damaged(path, "workload", row, error.message);
    throw error;
  }
}

/** Whether a row equals the one rebuilt from its parts, id included. */
function isSame(made: Row, row: unknown): boolean {
  const held = z.record(z.string(), z.unknown()).parse(row);
  return Object.entries(made).every(([name, value]) => (held[name] ?? null) === value);
}

/** The records to which a trial or a run refers. */
export interface Referred {
  workload(id: string): WorkloadRecord;
  environment(id: string): EnvironmentRecord;
  /** Whether a row was sealed here. */
  provenance(table: "trials" | "runs", row: unknown): Provenance;
}

function trialOf(row: unknown, world: Referred, path: string): TrialRecord {
  const facts = factsOf("trials", row, path);
  const workload = world.workload(facts.workload);
  const environment = world.environment(facts.environment);
  const because = impossibleTrial(facts, workload, environment);
  if (because !== undefined) throw new Damaged(path, "trial", row, because);
  return { ...facts, provenance: world.provenance("trials", row), workload, environment };
}

/** What a record's columns say to people, those that say something. */
export function shownOf(trial: TrialRecord): [label: string, text: string][] {
  return COLUMNS_OF.trials.flatMap(({ name, at = name, shown }) => {
    const value = valueAt(trial, at);
    return shown === undefined || value === undefined ? [] : [[shown.label, shown.text(value as never)]];
  });
}

/** What an environment says to people. */
export function environmentRows({ compiler, ...e }: EnvironmentRecord): [label: string, text: string][] {
  const rows: [string, string][] = [
    ["target", e.target],
    ["CPU", `${e.cpu}, ${e.cores} cores`],
    ["instruction sets", e.isa.toSorted().join(" ")],
    ["compiler", `${compiler.path} ${compiler.version}`],
    ["flags", compiler.flags.join(" ")],
    ["kernel", e.kernel],
    ["driver", e.driver ?? ""],
    ["Node", e.node],
    ["automap", e.automap],
  ];
  return rows.filter(([, text]) => text !== "");
}

export function runOf(row: unknown, world: Referred, path: string): RunRecord {
  const facts = factsOf("runs", row, path);
  return {
    ...facts,
    provenance: world.provenance("runs", row),
    workload: world.workload(facts.workload),
    environment: world.environment(facts.environment),
  };
}

// ---- rows that others refer to ---------------------------------------------------------------------------------------------------

export function worldIn(db: Database): Referred {
  const kept = <T>(table: "workloads" | "environments", make: (row: unknown, path: string) => T) => {
    const known = new Map<string, T>();
    return (id: string): T => remembered(known, id, () => make(rowOf(db, table, id), db.path));
  };
  /** A name given to one record of a computation applies to all records of it in this file. */
  const named = (row: unknown, path: string): WorkloadRecord => {
    const workload = workloadOf(row, path);
    if (workload.name !== undefined) return workload;
    const sql = "SELECT * FROM workloads WHERE computation = ? AND name IS NOT NULL ORDER BY id LIMIT 1";
    const same = db.sqlite.prepare(sql).get(workload.computation);
    return same === undefined ? workload : { ...workload, name: workloadOf(same, path).name };
  };
  return {
    workload: kept("workloads", named),
    environment: kept("environments", environmentOf),
    provenance: (table, row) => provenanceOf(db, table, row as Row),
  };
}

function rowOf(db: Database, table: Table, id: string): unknown {
  const row = db.sqlite.prepare(`SELECT * FROM ${table} WHERE id = ?`).get(id);
  if (row === undefined)
    throw new UsageError(
      `${db.path}: a row refers to one of ${table} that is not there`,
      `${automapCommand("db", "verify", databaseWords(db.path))} names every such row`,
    );
  return row;
}

export function trialsOfRows(db: Database, rows: readonly unknown[], world = worldIn(db)): TrialRecord[] {
  return rows.map((row) => trialOf(row, world, db.path));
}

/** The text that is sealed: the content of a row, so that a seal copied from another row does not match; of a run also how it ended. */
function sealedText(table: SealedTable, row: Row): string {
  const facts = `${table} ${idOfFacts(table, row)}`;
  return table === "runs" ? `${facts} ${String(row["status"])} ${String(row["ended"] ?? "")}` : facts;
}

/** A row with the seal of this machine: only for what this program itself measured or did. */
export function sealed(db: Database, table: SealedTable, row: Row): Row {
  return { ...row, seal: db.seals.make(sealedText(table, row)) ?? null };
}

/** Whether a row was sealed with the key of this machine. */
export function provenanceOf(db: Database, table: SealedTable, row: Row): Provenance {
  const { seal } = row;
  return typeof seal === "string" && db.seals.made(sealedText(table, row), seal) ? "here" : "imported";
}
