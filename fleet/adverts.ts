/**
 * @file The workers of a fleet as a tuner sees them: what each says of itself, and the choice of one environment to measure in.
 *
 *     const workers = await workersOf(server, fleet);
 *     chooseEnvironment(workers, "isa contains amx_int8")     { id: "9c1f...", target: "Intel(R) Xeon(R) ...", ... }
 */

import { entryOf } from "../abstraction/collections.ts";
import { automapCommand, EnvironmentError, UsageError } from "../abstraction/error.ts";
import type { EnvironmentRecord } from "../db/record.ts";
import { ADVERT, type Advert, readAdvert } from "./jobs.ts";
import type { Fleet } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { FleetRefusal, readSigned, verified } from "./signed.ts";

/** The name under which a worker's advert hangs on the board begins with this. */
export const ADVERTS = "worker-";
/** Adverts older than this are not believed: the server may show again what a worker took down. Clocks may differ by minutes. */
const LONGEST_MS = 15 * 60_000;

/** A worker that is there. */
export interface KnownWorker {
  readonly name: string;
  readonly publicKey: string;
  readonly advert: Advert;
}

/** All workers whose adverts are believed, by name. Others are passed over. */
export async function workersOf(
  { board }: Pick<FleetServer, "board">,
  fleet: Fleet,
  now = Date.now(),
): Promise<readonly KnownWorker[]> {
  const found = new Map<string, KnownWorker>();
  for (const { text } of await board.list(ADVERTS)) {
    try {
      const { body, by } = verified(fleet, readSigned(text), { kind: ADVERT, role: "worker" });
      const advert = readAdvert(body);
      if (Math.abs(now - advert.at) > LONGEST_MS) continue;
      const { name, publicKey } = by;
      if ((found.get(name)?.advert.at ?? 0) <= advert.at) found.set(name, { name, publicKey, advert });
    } catch (error) {
      if (!(error instanceof FleetRefusal)) throw error;
    }
  }
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Fields that a condition may ask for. */
const FIELDS: Readonly<Record<string, (worker: KnownWorker) => readonly string[]>> = {
  worker: ({ name }) => [name],
  target: ({ advert }) => [advert.environment.target],
  cpu: ({ advert }) => [advert.environment.cpu],
  isa: ({ advert }) => advert.environment.isa,
  compiler: ({ advert }) => [advert.environment.compiler.version],
  kernel: ({ advert }) => [advert.environment.kernel],
  environment: ({ advert }) => [advert.environment.id],
};

/**
 * What a condition asks for: `isa contains amx_int8`, `target is h100 and worker is node3`.
 * @throws UsageError when it is none
 */
function readCondition(text: string): (worker: KnownWorker) => boolean {
  const tests = text.split(/\s+and\s+/).map((part) => {
    const [, field = "", relation, value = ""] = /^\s*(\w+)\s+(is|contains)\s+(\S.*?)\s*$/.exec(part) ?? [];
    const valuesOf = entryOf(FIELDS, field);
    if (!valuesOf)
      throw new UsageError(
        `--on: "${part.trim()}" is no condition on a worker`,
        `conditions are "FIELD is TEXT" or "FIELD contains TEXT", joined by and; fields are ${Object.keys(FIELDS).join(", ")}`,
      );
    return (worker: KnownWorker): boolean =>
      valuesOf(worker).some(
        (held) => held === value || (relation === "contains" && field !== "isa" && held.includes(value)),
      );
  });
  return (worker) => tests.every((holds) => holds(worker));
}

/** Environments in which workers measure that fit a condition. @throws EnvironmentError when there is none */
export function environmentsOf(workers: readonly KnownWorker[], on: string | undefined): readonly EnvironmentRecord[] {
  const fitting = measuringOf(workers, on).map(({ advert }) => advert.environment);
  return [...new Map(fitting.map((environment) => [environment.id, environment])).values()];
}

/** The measuring workers of one environment. */
interface ChosenEnvironment {
  readonly environment: EnvironmentRecord;
  readonly workers: readonly [KnownWorker, ...KnownWorker[]];
}

/**
 * The one environment whose workers fit a condition.
 * @throws EnvironmentError when no measuring worker fits; UsageError when those that fit have several environments
 */
export function chooseEnvironment(workers: readonly KnownWorker[], on: string | undefined): ChosenEnvironment {
  const fitting = measuringOf(workers, on);
  const [first, ...rest] = fitting;
  const { environment } = first.advert;
  const others = rest.filter(({ advert }) => advert.environment.id !== environment.id);
  if (others.length > 0) {
    const known = [first, ...others].map(({ name, advert }) => `${name}: ${advert.environment.target}`);
    throw new UsageError(
      `workers of ${new Set(fitting.map(({ advert }) => advert.environment.id)).size} environments fit, and a search measures in one`,
      `--on names which, for example --on "worker is ${first.name}"; those that fit: ${known.join("; ")}`,
    );
  }
  return { environment, workers: [first, ...rest] };
}

/** The measuring workers that fit a condition. @throws EnvironmentError when there is none */
function measuringOf(
  workers: readonly KnownWorker[],
  on: string | undefined,
): readonly [KnownWorker, ...KnownWorker[]] {
  const fits = on === undefined ? () => true : readCondition(on);
  const measuring = workers.filter(({ advert }) => advert.measures);
  const [first, ...rest] = measuring.filter(fits);
  if (first) return [first, ...rest];
  const there = measuring.map(({ name, advert }) => `${name} (${advert.environment.target})`).join(", ");
  throw new EnvironmentError({
    what: on === undefined ? "no worker of the fleet measures" : `no measuring worker of the fleet fits "${on}"`,
    why: measuring.length === 0 ? "kernels are measured by workers" : `those that measure: ${there}`,
    remedy: `start one: ${automapCommand("worker", "--fleet", "URL", "--key", "FILE")}`,
  });
}
