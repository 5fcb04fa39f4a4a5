/** @file Addresses of a fleet's server: what they say, and that no message repeats a password. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { type Address, parseAddress } from "../../fleet/address.ts";
import { explanationOf, messageOf } from "../support/message.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder();
const part = (url: string): Partial<Address> => parseAddress(url, {});

describe("an address", () => {
  it("says where the server is, and how to connect", () => {
    expect(part("redis://queue.lan")).toEqual({
      kind: "redis",
      host: "queue.lan",
      port: 6379,
      user: undefined,
      database: "0",
      tls: "none",
      password: undefined,
      text: "redis://queue.lan:6379",
    });
    expect(part("rediss://me@[::1]:7000/3")).toMatchObject({
      host: "::1",
      port: 7000,
      user: "me",
      database: "3",
      tls: "verified",
      text: "rediss://me@[::1]:7000/3",
    });
    expect(part("postgres://a%40b@db.lan/fleet%20one")).toMatchObject({
      kind: "postgresql",
      port: 5432,
      user: "a@b",
      database: "fleet one",
      tls: "none",
      text: "postgres://a%40b@db.lan:5432/fleet%20one",
    });
    expect(part("postgresql://db.lan/x?sslmode=require").tls).toBe("unverified");
    expect(part("POSTGRESQL://db.lan/x?sslmode=verify-full").tls).toBe("verified");
  });

  it("holds no password, and no message about it does", () => {
    expect(explanationOf(() => part("redis://:geheim@queue.lan"))).toBe(
      "the address of the server holds a password, which every user of this machine could read in the list of processes\n" +
        "  leave it out, and set AUTOMAP_FLEET_PASSWORD, or AUTOMAP_FLEET_PASSWORD_FILE to the name of a file that holds it",
    );
    for (const url of [
      "redis://me:geheim@queue.lan",
      "redis://me:ge#heim@queue.lan",
      "redis://me:12/geheim@queue.lan",
      "redis://geheim#@queue.lan",
      "redis://queue.lan/geheim",
      "redis://queue.lan?password=geheim",
      "redis://%zzgeheim@queue.lan",
      "redis://geheim queue.lan",
      "postgresql://me:geheim@db.lan/x",
      "postgresql://me:1/geheim@db.lan/x",
      "postgresql://db.lan/x?geheim=1",
      "postgresql://db.lan/x?sslmode=geheim",
      "postgresql://db.lan/x?sslmode=__proto__",
      "postgresql://geheim.lan",
      "geheim://queue.lan",
      "me:geheim@queue.lan",
      "toString://geheim",
      "redis://",
      "",
    ]) {
      const said = explanationOf(() => part(url));
      expect(said).not.toBe("accepted");
      expect(said).not.toContain("heim");
    }
  });

  it("takes the password from a variable or a file, and is printed without it", () => {
    const file = join(scratch, "password");
    writeFileSync(file, "ge heim\n");
    const url = "redis://queue.lan";
    const given = parseAddress(url, { AUTOMAP_FLEET_PASSWORD: "geheim" });
    expect(given.password?.reveal()).toBe("geheim");
    expect(inspect(given, { depth: 9, showHidden: true }) + JSON.stringify(given)).not.toContain("heim");
    expect(parseAddress(url, { AUTOMAP_FLEET_PASSWORD_FILE: file }).password?.reveal()).toBe("ge heim");
    expect(parseAddress(url, { AUTOMAP_FLEET_PASSWORD: "" }).password).toBeUndefined();
    expect(messageOf(() => parseAddress(url, { AUTOMAP_FLEET_PASSWORD: "x", AUTOMAP_FLEET_PASSWORD_FILE: file }))).toBe(
      "AUTOMAP_FLEET_PASSWORD and AUTOMAP_FLEET_PASSWORD_FILE are both set",
    );
    expect(messageOf(() => parseAddress(url, { AUTOMAP_FLEET_PASSWORD_FILE: `${file}2` }))).toBe(
      `AUTOMAP_FLEET_PASSWORD_FILE ${file}2 cannot be read: there is no such file or directory`,
    );
  });
});
