/** @file Messages of a fleet: only what a member of the right role signed as what it is taken for is believed. */

import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { admit, createFleet, type Member, type Role, readMember } from "../../fleet/members.ts";
import { FleetRefusal, LONGEST_BODY, readSigned, type Signed, sign, verified } from "../../fleet/signed.ts";
import { scratchFolder } from "../support/scratch.ts";

/** The members of a new fleet. */
function fleetOf(): Readonly<Record<Role, Member>> {
  const folder = join(scratchFolder(), "fleet");
  createFleet(folder);
  const member = (name: string, role: Role): Member => readMember(admit(folder, name, role));
  return { tuner: member("desk", "tuner"), worker: member("node3", "worker") };
}

const { tuner, worker } = fleetOf();
const other = fleetOf();
const JOB = { kind: "measure", role: "tuner" } as const;

/** Why a message is refused as a job, or `accepted`. */
function refusal(message: unknown, expected: { readonly kind: string; readonly role: Role } = JOB): string {
  try {
    verified(worker.fleet, message, expected);
  } catch (error) {
    if (!(error instanceof FleetRefusal)) throw error;
    return error.message.replace("a message is refused (measure of a tuner is expected): ", "");
  }
  return "accepted";
}

const job = (): Signed => sign(tuner, "measure", { kernel: "77d0" });

describe("a message", () => {
  it("gives its body back, whatever plain data that is", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (body) => {
        const sent: unknown = JSON.parse(JSON.stringify(sign(tuner, "measure", body)));
        expect(verified(worker.fleet, sent, JOB).body).toEqual(JSON.parse(JSON.stringify(body)));
      }),
      { numRuns: 30 },
    );
  });

  it("is refused unsigned, or in another form", () => {
    const none = "it is not signed, or not a message of a fleet";
    const { signature, ...unsigned } = job();
    for (const message of [
      undefined,
      null,
      "measure",
      [],
      {},
      { kernel: "77d0" },
      unsigned,
      { ...unsigned, signature: "" },
      { ...unsigned, signature: `${signature}A` },
      { ...job(), more: 1 },
      { ...job(), body: { kernel: "77d0" } },
      { ...job(), by: { ...job().by, admin: true } },
      { ...job(), by: { ...job().by, role: "root" } },
    ])
      expect(refusal(message)).toBe(none);
    expect(refusal({ ...unsigned, signature: "A".repeat(86) })).toBe("the signature is not that of desk on this text");
  });

  it("is refused once a character of it is changed", () => {
    const message = job();
    expect(refusal(message)).toBe("accepted");
    expect(refusal({ ...message, body: message.body.replace("77d0", "77d1") })).toMatch(/^the signature is not/);
    expect(refusal({ ...message, body: ` ${message.body}` })).toMatch(/^the signature is not/);
    expect(refusal({ ...message, by: { ...message.by, name: "desk2" } })).toBe(
      "the certificate of desk2 is not signed by the fleet's root",
    );
    expect(refusal({ ...message, by: { ...message.by, publicKey: worker.certificate.publicKey } })).toMatch(
      /^the certificate of desk is not signed/,
    );
  });

  it("of another fleet is refused, also under a certificate of this one", () => {
    const foreign = sign(other.tuner, "measure", { kernel: "77d0" });
    expect(refusal(foreign)).toBe("desk belongs to another fleet");
    expect(refusal({ ...foreign, by: { ...foreign.by, fleet: worker.fleet.id } })).toMatch(
      /not signed by the fleet's root/,
    );
    expect(refusal({ ...foreign, by: tuner.certificate })).toMatch(/^the signature is not/);
  });

  it("of a member with both fleets' ids is refused when only the other fleet's root signed it", () => {
    const forged: Member = { ...other.tuner, fleet: worker.fleet };
    expect(refusal(sign(forged, "measure", 1))).toBe("desk belongs to another fleet");
  });

  it("of a worker is no job, and neither is one that borrows a tuner's certificate", () => {
    const message = sign(worker, "measure", { kernel: "77d0" });
    expect(refusal(message)).toBe("node3 is a worker");
    expect(refusal({ ...message, by: { ...message.by, role: "tuner" } })).toMatch(/not signed by the fleet's root/);
    expect(refusal({ ...message, by: tuner.certificate })).toMatch(/^the signature is not that of desk/);
    expect(refusal(job(), { kind: "measure", role: "worker" })).toMatch(/desk is a tuner$/);
  });

  it("is refused under another kind", () => {
    const message = sign(tuner, "compile", { kernel: "77d0" });
    expect(refusal(message)).toBe('it is of kind "compile"');
    expect(refusal({ ...message, kind: "measure" })).toMatch(/^the signature is not/);
    // What is signed is one list, so that no text moves from one part into the next.
    expect(refusal({ ...sign(tuner, 'measure","1', 2), kind: "measure" })).toMatch(/^the signature is not/);
  });

  it("that is too long or too deep is refused before it is parsed", () => {
    const { body: _, ...rest } = job();
    expect(refusal({ ...rest, body: `"${"x".repeat(LONGEST_BODY)}"` })).toBe(
      "it is not signed, or not a message of a fleet",
    );
    expect(() => sign(tuner, "measure", "x".repeat(LONGEST_BODY))).toThrow(/1048578 characters, 1048576 at most/);
    let deep: unknown = 1;
    for (let i = 0; i < 65; i++) deep = [deep];
    expect(() => sign(tuner, "measure", deep)).toThrow(/lists or objects deeper than 64/);
  });
});

describe("a text on the board", () => {
  it("is read unless it is too long, too deep or no JSON", () => {
    expect(refusal(readSigned(JSON.stringify(job())))).toBe("accepted");
    expect(readSigned('{"a":"[[[\\"{","b":[]}')).toEqual({ a: '[[["{', b: [] });
    expect(() => readSigned("[".repeat(2 ** 20))).toThrow(
      /^a text on the server is refused: it holds lists or objects/,
    );
    expect(() => readSigned('{"a":'.repeat(65))).toThrow(/deeper than 64$/);
    expect(() => readSigned(" ".repeat(2 ** 22))).toThrow(/has 4194304 characters, 2097152 at most are read$/);
    expect(() => readSigned('"'.repeat(2 ** 20 + 1))).toThrow(/is not JSON$/);
    expect(() => readSigned("")).toThrow(/is not JSON$/);
  });

  it("cannot change the objects of the program", () => {
    expect(refusal(readSigned('{"__proto__":{"kind":"measure"}}'))).toMatch(/not signed/);
    expect(({} as { kind?: string }).kind).toBeUndefined();
  });
});
