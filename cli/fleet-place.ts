/** @file `--fleet`: a search measures on the workers of a fleet. The packages that it needs are loaded by searches that have one. */

import { UsageError } from "../abstraction/error.ts";
import type { FleetPlace } from "../fleet/place.ts";
import { counted } from "../report/text.ts";

/** The options of commands that measure in a fleet. */
export const FLEET_OPTIONS = [
  [
    "--fleet <url>",
    "measure on the workers of a fleet, whose server is there: redis://HOST, postgresql://HOST/DATABASE",
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

/** The fleet's workplace; undefined where a search measures at home. */
export async function fleetPlaceOf(
  { fleet, fleetKey, on, threads = 1 }: FleetWords,
  announce: (text: string) => void,
): Promise<FleetPlace | undefined> {
  if (fleet === undefined) {
    const [lone] = Object.entries({ "fleet-key": fleetKey, on }).find(([, value]) => value !== undefined) ?? [];
    if (lone !== undefined)
      throw new UsageError(`--${lone} is for a search in a fleet`, "--fleet names the address of its server");
    return undefined;
  }
  if (fleetKey === undefined)
    throw new UsageError("--fleet needs --fleet-key", "the file of this tuner's key, from automap fleet admit");
  const [{ parseAddress }, { commandToAdmit, readMember }, { openServer }, { openFleetPlace }] = await Promise.all([
    import("../fleet/address.ts"),
    import("../fleet/members.ts"),
    import("../fleet/server.ts"),
    import("../fleet/place.ts"),
  ]);
  const address = parseAddress(fleet);
  const member = readMember(fleetKey, "tuner");
  if (member.certificate.role !== "tuner")
    throw new UsageError(`${fleetKey} is the key of a ${member.certificate.role}`, commandToAdmit("tuner"));
  const server = await openServer(address, member.fleet, { onTrouble: announce });
  try {
    for (const warning of server.warnings) announce(warning);
    const place = await openFleetPlace({ server, member, on, threads, announce });
    const names = place.workers.join(", ");
    announce(`measuring in a fleet: ${counted(place.workers.length, "worker")} of ${address.text} (${names})`);
    return place;
  } catch (error) {
    await server.close();
    throw error;
  }
}
