/**
 * @file Calibrations shared by all databases of a machine: measured once and kept beside the compiled kernels, in a small database for each
 * environment. A database without its own calibration copies the shared one, with the time at which it was measured.
 *
 *     const { calibration, measured } = await calibrationIn(db, environment, { read, measure, announce });
 */

import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { MachineFault, UsageError } from "../../abstraction/error.ts";
import {
  type CalibrationFilter,
  calibrationOf,
  type Database,
  type Environment,
  idOf,
  recordCalibration,
  withDatabase,
} from "../../db/index.ts";
import { cacheFolder, cacheLimits, touch, trimCache } from "../../runtime/cache.ts";
import { type Lock, LockError, tryLock, untilFree } from "../../runtime/lock.ts";

/** A calibration with its record. */
export interface Stored<T> {
  readonly calibration: T;
  /** Time of the measurement, milliseconds since 1970. */
  readonly at: number;
}

/** Parses stored data into figures; undefined when it contains none. */
type Read<T> = (data: unknown) => T | undefined;

interface SharedOptions<T> {
  readonly read: Read<T>;
  readonly measure: () => Promise<T>;
  /** Measures even when there is a calibration. */
  readonly anew?: boolean;
  /** Called when another process is calibrating and this one waits for it. */
  readonly announce: (text: string) => void;
  /** Aborts the wait with an error. */
  readonly signal?: AbortSignal | undefined;
}

/** The newest calibration of exactly this environment in a database, measured here by default. A damaged one is ignored. */
export function storedIn<T>(
  db: Database,
  environment: Environment,
  read: Read<T>,
  filter: CalibrationFilter = {},
): Stored<T> | undefined {
  const stored = calibrationOf(db, environment, filter);
  const calibration = read(stored?.data);
  return stored && calibration ? { calibration, at: stored.at } : undefined;
}

/** The calibration of this environment: from the database, else from those shared by all databases, else measured now and stored in both. */
export async function calibrationIn<T>(
  db: Database,
  environment: Environment,
  options: SharedOptions<T>,
): Promise<{ readonly calibration: T; readonly measured: boolean }> {
  const stored = options.anew ? undefined : storedIn(db, environment, options.read);
  if (stored) return { calibration: stored.calibration, measured: false };
  let measured = false;
  const measure = (): Promise<T> => {
    measured = true;
    return options.measure();
  };
  const { calibration, at } = await sharedCalibration(environment, { ...options, measure });
  if (!db.readonly) recordCalibration(db, { environment, data: calibration, at });
  return { calibration, measured };
}

/** The stored calibration of an environment. If there is none, one process measures and stores it while the others wait. */
export async function sharedCalibration<T>(
  environment: Environment,
  { read, measure, anew = false, announce, signal }: SharedOptions<T>,
): Promise<Stored<T>> {
  const known = (): Stored<T> | undefined => (anew ? undefined : keptCalibration(environment, read));
  const found = known();
  if (found) return found;
  const lock = await held(`calibration/${idOf(environment)}`, announce, signal);
  try {
    const meanwhile = known();
    if (meanwhile) return meanwhile;
    const made = { calibration: await measure(), at: Date.now() };
    await keepCalibration(environment, made);
    return made;
  } finally {
    await lock?.release();
  }
}

const fileOf = (environment: Environment): string => join(cacheFolder("calibrations"), `${idOf(environment)}.db`);

/** The calibration that this user measured here; undefined when none is stored or it cannot be read. */
export function keptCalibration<T>(environment: Environment, read: Read<T>): Stored<T> | undefined {
  const file = fileOf(environment);
  if (!existsSync(file)) return undefined;
  try {
    const stored = withDatabase(file, (db) => storedIn(db, environment, read));
    if (stored) void touch(file);
    return stored;
  } catch (error) {
    if (error instanceof UsageError || error instanceof MachineFault) return undefined;
    throw error;
  }
}

/** Writes a calibration atomically. When it cannot be written, each database measures for itself. */
export async function keepCalibration(environment: Environment, { calibration, at }: Stored<unknown>): Promise<void> {
  const file = fileOf(environment);
  const draft = file.replace(/\.db$/, `.${process.pid}.part`);
  try {
    mkdirSync(dirname(file), { recursive: true });
    rmSync(draft, { force: true });
    withDatabase(draft, (db) => recordCalibration(db, { environment, data: calibration, at }), {});
    renameSync(draft, file);
    await trimCache(dirname(file), cacheLimits());
  } catch (error) {
    if (existsSync(draft)) rmSync(draft);
    const isOfTheMachine = error instanceof MachineFault || (error instanceof Error && "syscall" in error);
    if (!isOfTheMachine) throw error;
  }
}

/** Runs under a lock, where processes can lock files. */
async function held(
  name: string,
  announce: (text: string) => void,
  signal: AbortSignal | undefined,
): Promise<Lock | undefined> {
  for (;;) {
    try {
      const lock = await tryLock(name, `process ${process.pid}, which calibrates this machine`);
      if (lock) return lock;
    } catch (error) {
      if (error instanceof LockError) return undefined;
      throw error;
    }
    await untilFree(name, { onHolder: (who) => announce(`waiting for ${who}`), ...(signal && { signal }) });
    signal?.throwIfAborted();
  }
}
