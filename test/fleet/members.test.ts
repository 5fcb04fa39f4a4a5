/** @file Members of a fleet: their keys, who made them, and who reads them. */

import {
  chmodSync,
  copyFileSync,
  existsSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { admit, createFleet, expel, readMember } from "../../fleet/members.ts";
import { sign, verified } from "../../fleet/signed.ts";
import { explanationOf, messageOf } from "../support/message.ts";
import { scratchFolder } from "../support/scratch.ts";

const mode = (file: string): string => (statSync(file).mode & 0o777).toString(8);

/** Some fields of the files. */
interface KeyFile {
  privateKey: string;
  readonly fleet: { publicKey: string };
  certificate: { name: string; role: string };
  readonly members: { name: string }[];
}

const scratch = scratchFolder();
let fleets = 0;

/** A fleet with a tuner and a worker. */
function newFleet() {
  const folder = join(scratch, `fleet${fleets++}`);
  const fleet = createFleet(folder);
  return { folder, fleet, tuner: admit(folder, "desk", "tuner"), worker: admit(folder, "node3", "worker") };
}

/** Changes a JSON file, whose permissions stay. */
function edit(file: string, change: (content: KeyFile) => void): void {
  const content: KeyFile = JSON.parse(readFileSync(file, "utf8"));
  change(content);
  writeFileSync(file, JSON.stringify(content));
}

describe("a fleet", () => {
  it("is a root whose members know one another by it, with keys that only their owner reads", () => {
    const { folder, fleet, tuner, worker } = newFleet();
    expect([tuner, worker, join(folder, "root.key")].map(mode)).toEqual(["600", "600", "600"]);
    const desk = readMember(tuner);
    const node = readMember(worker);
    expect(desk.certificate).toMatchObject({ fleet: fleet.id, name: "desk", role: "tuner" });
    expect(desk.fleet).toMatchObject({ id: fleet.id, publicKey: fleet.publicKey });
    const { body, by } = verified(node.fleet, sign(desk, "measure", { kernel: "77d0" }), {
      kind: "measure",
      role: "tuner",
    });
    expect({ body, by: by.name }).toEqual({ body: { kernel: "77d0" }, by: "desk" });
  });

  it("shows no private key where a member is printed", () => {
    const { worker } = newFleet();
    const secret = JSON.parse(readFileSync(worker, "utf8")).privateKey;
    const member = readMember(worker);
    expect(JSON.stringify(member)).not.toContain(secret);
    expect(inspect(member, { depth: 9 })).not.toContain(secret);
  });

  it("is not made twice in one folder, and admits nobody twice", () => {
    const { folder, worker } = newFleet();
    expect(messageOf(() => createFleet(folder))).toMatch(/holds a fleet already/);
    expect(messageOf(() => admit(folder, "node3", "worker"))).toBe(
      '"node3" was admitted before, and records name members by it',
    );
    // Also when the key was moved to its machine.
    writeFileSync(worker, "");
    expect(messageOf(() => admit(folder, "node3", "tuner"))).toMatch(/admitted before/);
  });

  it.each(["", "../root", "Node", "a b", ".key", "x".repeat(64), "a\n", "nöde"])("admits nobody named %j", (name) => {
    const { folder } = newFleet();
    expect(messageOf(() => admit(folder, name, "worker"))).toMatch(/^a member cannot be named/);
    expect(messageOf(() => expel(folder, name))).toMatch(/^a member cannot be named/);
  });

  it("is asked for before somebody is admitted", () => {
    const folder = join(scratch, "none");
    expect(explanationOf(() => admit(folder, "node3", "worker"))).toBe(
      `${folder} holds no fleet\n  automap fleet init ${folder}`,
    );
  });
});

describe("a key file", () => {
  it.each([0o644, 0o640, 0o604, 0o620, 0o602])(
    "is refused with permissions %o, which let others have it",
    (permissions) => {
      const { folder, worker } = newFleet();
      chmodSync(worker, permissions);
      expect(explanationOf(() => readMember(worker))).toBe(
        `${worker} can be read or written by others (mode 0${permissions.toString(8)}), and whoever has it is that member\n  chmod 600 ${worker}`,
      );
      chmodSync(join(folder, "root.key"), permissions);
      expect(messageOf(() => admit(folder, "node4", "worker"))).toMatch(/root.key can be read or written by others/);
    },
  );

  it("is refused behind a link too, when others can read it", () => {
    const { folder, worker } = newFleet();
    const link = join(folder, "link.key");
    symlinkSync(worker, link);
    expect(messageOf(() => readMember(link))).toBe("accepted");
    chmodSync(worker, 0o644);
    expect(messageOf(() => readMember(link))).toMatch(/can be read or written by others/);
  });

  it("that is none is refused, and nothing of it is shown", () => {
    const { folder, worker } = newFleet();
    const refused = /^\S+ does not hold the key of a member$/;
    for (const content of ["", "geheim", '{"privateKey":"geheim"}', "[".repeat(100_000), '"\u0000"']) {
      writeFileSync(worker, content);
      expect(messageOf(() => readMember(worker))).toMatch(refused);
    }
    expect(messageOf(() => readMember(join(folder, "root.key")))).toMatch(refused);
    writeFileSync(worker, " ".repeat(2 ** 21));
    expect(messageOf(() => readMember(worker))).toMatch(/too long for a file of a fleet$/);
    expect(messageOf(() => readMember(folder))).toMatch(/can be read or written by others|cannot be read/);
    expect(explanationOf(() => readMember(join(folder, "none.key")))).toMatch(
      /^there is no key \S+none\.key\n {2}automap fleet admit DIR NAME --role worker$/,
    );
    expect(explanationOf(() => readMember(join(folder, "none.key"), "tuner"))).toMatch(/--role tuner$/);
  });

  it("with another name, role, key or root than the root signed is refused", () => {
    const other = newFleet();
    const stranger = JSON.parse(readFileSync(other.worker, "utf8"));
    const changes: Record<string, (content: KeyFile) => void> = {
      "the certificate of desk is not signed by the fleet's root": ({ certificate }) => {
        certificate.name = "desk";
      },
      "the certificate of node3 is not signed by the fleet's root": ({ certificate }) => {
        certificate.role = "tuner";
      },
      "its private key is not that of its certificate": (content) => {
        content.privateKey = stranger.privateKey;
      },
      "node3 belongs to another fleet": (content) => {
        content.certificate = stranger.certificate;
      },
      "it names a wrong root": ({ fleet }) => {
        fleet.publicKey = stranger.fleet.publicKey;
      },
    };
    for (const [why, change] of Object.entries(changes)) {
      const { worker } = newFleet();
      edit(worker, change);
      expect(messageOf(() => readMember(worker))).toBe(`${worker} is refused: ${why}`);
    }
  });
});

describe("an expelled member", () => {
  it("is refused by those who have the list beside their key, and its name is not given again", () => {
    const { folder, tuner, worker } = newFleet();
    const node = readMember(worker);
    const result = sign(node, "result", 1);
    const before = readMember(tuner).fleet;
    const expected = { kind: "result", role: "worker" } as const;
    expect(verified(before, result, expected).body).toBe(1);
    const list = expel(folder, "node3");
    // Members that work read the list when it comes.
    expect(() => verified(before, result, expected)).toThrow(/node3 was expelled from the fleet$/);
    expect(() => verified(readMember(tuner).fleet, result, expected)).toThrow(/node3 was expelled from the fleet$/);
    expect(messageOf(() => readMember(worker))).toBe(`${worker} is refused: node3 was expelled from the fleet`);
    expect(messageOf(() => admit(folder, "node3", "worker"))).toMatch(/admitted before/);
    expel(folder, "desk");
    expel(folder, "desk");
    expect(JSON.parse(readFileSync(list, "utf8")).members.map(({ name }: { name: string }) => name)).toEqual([
      "node3",
      "desk",
    ]);
  });

  it("cannot be pardoned by editing the list, and the list of another fleet counts for nothing", () => {
    const { folder, tuner } = newFleet();
    const list = expel(folder, "node3");
    edit(list, (content) => content.members.pop());
    expect(messageOf(() => readMember(tuner))).toBe(`${list} is refused: it is not signed by the fleet's root`);
    const other = newFleet();
    copyFileSync(expel(other.folder, "node3"), list);
    expect(messageOf(() => readMember(tuner))).toMatch(/not signed by the fleet's root$/);
    writeFileSync(list, "");
    expect(messageOf(() => readMember(tuner))).toMatch(/does not hold a list of expelled members$/);
  });

  it("stays expelled for those who work, whatever becomes of the list, and others join it when it is whole again", () => {
    const { folder, tuner } = newFleet();
    const { fleet } = readMember(tuner);
    const isExpelled = (name: string): boolean =>
      fleet.expelled.has(JSON.parse(readFileSync(join(folder, "members", `${name}.json`), "utf8")).publicKey);
    const list = expel(folder, "node3");
    expect([isExpelled("node3"), isExpelled("desk")]).toEqual([true, false]);
    rmSync(list);
    expect(isExpelled("node3")).toBe(true);
    const whole = readFileSync(expel(folder, "desk"), "utf8");
    writeFileSync(list, whole.slice(0, 100));
    expect([isExpelled("node3"), isExpelled("desk")]).toEqual([true, false]);
    writeFileSync(list, whole);
    expect([isExpelled("node3"), isExpelled("desk")]).toEqual([true, true]);
  });

  it("was admitted", () => {
    const { folder } = newFleet();
    expect(messageOf(() => expel(folder, "node9"))).toMatch(/^nobody named "node9" was admitted/);
    expect(existsSync(join(folder, "expelled.json"))).toBe(false);
  });
});
