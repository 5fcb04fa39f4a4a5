/** @file `--fleet`: a search measures on the workers of a fleet. The packages that it needs are loaded by searches that have one. */

import { UsageError } from "../abstraction/error.ts";
import type { EnvironmentRecord } from "../db/record.ts";
import type { Member, Role } from "../fleet/members.ts";
import type { FleetPlace } from "../fleet/place.ts";
import type { FleetServer } from "../fleet/server.ts";
import { counted } from "../report/text.ts";

/** The options of commands that measure in a fleet. */
export const FLEET_OPTIONS = [
  [
    "--fleet <url>",
    "measure on the workers of a fleet, whose server is there: redis://HOST, rediss://HOST, postgresql://HOST/DATABASE",
  ],
  ["--fleet-key <file>", "this tuner's key of the fleet, as automap fleet admit wrote it"],
  ["--on <condition>", 'the workers to measure on, for example "isa contains amx_int8" or "worker is node1"'],
] as const;

/** Those options as they were given. */
export interface FleetWords {
  readonly fleet?: string | undefined;
  readonly fleetKey?: string | undefined;
  readonly on?: string | undefined;
  readonly threads?: number | undefined;
}

/** @throws UsageError for options beside --fleet that name another machine than its workers */
export function checkElsewhere(fleet: string | undefined, others: Readonly<Record<string, unknown>>): void {
  if (fleet === undefined) return;
  const [lone] = Object.entries(others).find(([, value]) => value) ?? [];
  if (lone !== undefined)
    throw new UsageError(`--fleet and --${lone} exclude each other`, "kernels are for the workers that --on names");
}

/** @throws UsageError for options of a fleet without its address */
export function checkFleetWords({ fleet, fleetKey, on }: FleetWords): void {
  if (fleet !== undefined) return;
  const [lone] = Object.entries({ "fleet-key": fleetKey, on }).find(([, value]) => value !== undefined) ?? [];
  if (lone !== undefined)
    throw new UsageError(`--${lone} is for what a fleet measures`, "--fleet names the address of its server");
}

/** The fleet's workplace; undefined where a search measures at home. */
export async function fleetPlaceOf(
  words: FleetWords,
  announce: (text: string) => void,
): Promise<FleetPlace | undefined> {
  const { fleet, on, threads = 1 } = words;
  checkFleetWords(words);
  if (fleet === undefined) return undefined;
  const { server, member } = await openFleet(fleet, keyOf(words), announce, "tuner");
  try {
    const { openFleetPlace } = await import("../fleet/place.ts");
    const place = await openFleetPlace({ server, member, on, threads, announce });
    const names = place.workers.join(", ");
    announce(`measuring in a fleet: ${counted(place.workers.length, "worker")} of ${server.address.text} (${names})`);
    return place;
  } catch (error) {
    await server.close();
    throw error;
  }
}

/** The environments of a fleet's workers that measure. */
export async function fleetEnvironments(
  words: FleetWords,
  announce: (text: string) => void,
): Promise<readonly EnvironmentRecord[]> {
  const { fleet = "", on } = words;
  const { server, member } = await openFleet(fleet, keyOf(words), announce, "tuner");
  try {
    const { environmentsOf, workersOf } = await import("../fleet/adverts.ts");
    return environmentsOf(await workersOf(server, member.fleet), on);
  } finally {
    await server.close();
  }
}

function keyOf({ fleetKey }: FleetWords): string {
  if (fleetKey !== undefined) return fleetKey;
  throw new UsageError("--fleet needs --fleet-key", "the file of this tuner's key, from automap fleet admit");
}

/**
 * The server of a fleet, and who asks.
 * @param role that the member must have
 * @throws UsageError when it has another, EnvironmentError when the server does not answer
 */
export async function openFleet(
  fleet: string,
  key: string,
  announce: (text: string) => void,
  role?: Role,
): Promise<{ readonly server: FleetServer; readonly member: Member }> {
  const [{ parseAddress }, { commandToAdmit, readMember }, { openServer }] = await Promise.all([
    import("../fleet/address.ts"),
    import("../fleet/members.ts"),
    import("../fleet/server.ts"),
  ]);
  const address = parseAddress(fleet);
  const member = readMember(key, "tuner");
  if (role && member.certificate.role !== role)
    throw new UsageError(`${key} is the key of a ${member.certificate.role}`, commandToAdmit(role));
  const server = await openServer(address, member.fleet, { onTrouble: announce });
  for (const warning of server.warnings) announce(warning);
  return { server, member };
}
