/** @file What is said when a fleet's server cannot be opened. */

import { expect } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import { parseAddress } from "../../fleet/address.ts";
import { openServer } from "../../fleet/server.ts";

export const FLEET = { id: "0".repeat(32) };

/** How long what never answers is waited for. */
export const HASTY_MS = 500;

/**
 * What is said instead of opening a server, without its ports; the password in it would be one with `heim`.
 * @param patience milliseconds: a busy machine answers late
 */
export async function complaintAt(url: string, password?: string, patience = 60_000): Promise<string> {
  const address = parseAddress(url, password === undefined ? {} : { AUTOMAP_FLEET_PASSWORD: password });
  try {
    await (await openServer(address, FLEET, { patience })).close();
  } catch (error) {
    if (!(error instanceof EnvironmentError)) throw error;
    // A driver's error may hold the command with the password.
    expect(error.cause).toBeUndefined();
    expect(error.message).not.toContain("heim");
    return error.message.replaceAll(/:\d{4,5}/g, ":PORT").replace("no connection to the fleet's server ", "");
  }
  return "accepted";
}
