/** @file What errors of drivers mean in a user's words. */

import { describe, expect, it } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import { parseAddress } from "../../fleet/address.ts";
import { connectionProblem, driver, within } from "../../fleet/connection.ts";

const REDIS = parseAddress("rediss://queue.lan", {});
const POSTGRES = parseAddress("postgresql://me@db.lan/x", { AUTOMAP_FLEET_PASSWORD: "geheim" });
const why = (address: typeof REDIS, message: string, code?: string): string =>
  connectionProblem(address, Object.assign(new Error(message), { code })).why;

describe("an error of a connection", () => {
  it.each([
    [
      "self-signed certificate",
      "DEPTH_ZERO_SELF_SIGNED_CERT",
      "its certificate is not trusted (self-signed certificate)",
    ],
    ["certificate has expired", "CERT_HAS_EXPIRED", "its certificate is not trusted (certificate has expired)"],
    ["unable to verify the first certificate", "UNABLE_TO_VERIFY_LEAF_SIGNATURE", /^its certificate is not trusted/],
    ["NOPERM this user has no permissions to run the 'info' command", undefined, /^it does not permit this user/],
    ["LOADING Redis is loading the dataset in memory", undefined, "it has just started, and is not ready yet"],
    ["OOM command not allowed when used memory > 'maxmemory'.", undefined, "its memory or its disk is full"],
    ["ERR unknown command 'HELLO'", undefined, "it says: ERR unknown command 'HELLO'"],
  ])("of Redis: %s", (message, code, told) => {
    if (typeof told === "string") expect(why(REDIS, message, code)).toBe(told);
    else expect(why(REDIS, message, code)).toMatch(told);
  });

  it.each([
    ['password authentication failed for user "me"', "28P01", "it refuses the password of this user"],
    ["permission denied for database x", "42501", "it does not permit this user to do what a fleet needs"],
    ["the database system is starting up", "57P03", "it has just started, and is not ready yet"],
    ["could not extend file: No space left on device", "53100", "its memory or its disk is full"],
  ])("of PostgreSQL: %s", (message, code, told) => {
    expect(why(POSTGRES, message, code)).toBe(told);
  });

  it("keeps the command of a driver, which may hold the password, to itself", async () => {
    const leaky = Object.assign(new Error("ERR no such thing"), { command: { name: "auth", args: ["geheim"] } });
    const error = await within(POSTGRES, 1000, Promise.reject(leaky)).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(EnvironmentError);
    expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain("heim");
  });

  it("of a package that is not installed names the command that installs it", async () => {
    const missing = driver(() => import("no-such-package" as string), "bullmq", "ioredis");
    await expect(missing).rejects.toThrow(
      "bullmq and ioredis cannot be loaded\n  automap speaks to a fleet's server through these packages, and installs without them\n  npm install bullmq ioredis",
    );
  });
});
