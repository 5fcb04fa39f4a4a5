/** @file `automap fleet init|admit|expel`. */

import { statSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { readMember } from "../../fleet/members.ts";
import { complaint, printed } from "../support/cli.ts";
import { messageOf } from "../support/message.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder();

describe("automap fleet", () => {
  it("makes a fleet, admits members and expels them, and says what to do with each file", async () => {
    const folder = join(scratch, "my fleet");
    const shown = async (...words: string[]): Promise<string> =>
      (await printed(["fleet", ...words])).replaceAll(folder, "DIR").replace(/\b[0-9a-f]{32}\b/, "ID");
    expect(await shown("init", folder)).toBe(
      "fleet ID in DIR; its members are admitted by\n" +
        "  automap fleet admit 'DIR' NAME --role tuner\n  automap fleet admit 'DIR' NAME --role worker\n",
    );
    expect(await shown("admit", folder, "desk", "--role", "tuner")).toBe(
      "DIR/desk.key is the key of desk, a tuner: move it to that machine, and show it to nobody\n",
    );
    const { file } = JSON.parse(await printed(["fleet", "admit", folder, "node3", "--role", "worker", "--json"]));
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readMember(file).certificate).toMatchObject({ name: "node3", role: "worker" });
    expect(await shown("expel", folder, "node3")).toBe(
      "node3 is expelled where DIR/expelled.json lies beside the key of a member: copy it to their machines\n",
    );
    expect(messageOf(() => readMember(file))).toMatch(/node3 was expelled from the fleet$/);
  });

  it("refuses in a sentence, and prints no key", async () => {
    const folder = join(scratch, "fleet");
    await printed(["fleet", "init", folder]);
    expect(await complaint(["fleet", "init", folder])).toMatch(/holds a fleet already/);
    expect(await complaint(["fleet", "admit", folder, "node3"])).toBe(
      "automap: --role is tuner, which sends jobs, or worker, which answers them",
    );
    expect(await complaint(["fleet", "admit", folder, "node3", "--role", "root"])).toMatch(/--role is tuner/);
    expect(await complaint(["fleet", "admit", folder, "../x", "--role", "worker"])).toMatch(/cannot be named "..\/x"/);
    expect(await complaint(["fleet", "admit", join(folder, "none"), "x", "--role", "worker"], 3)).toMatch(
      /none holds no fleet/,
    );
    expect(await complaint(["fleet", "expel", folder, "x"], 3)).toBe(
      `automap: nobody named "x" was admitted to ${folder}`,
    );
    expect(await complaint(["fleet", "init", "/dev/null/fleet"], 6)).toMatch(
      /^automap: \/dev\/null\/fleet\/root.key cannot be written: .*\n {2}the fleet keeps its keys there\n/,
    );
    const worker = ["worker", "--fleet", "redis://127.0.0.1:1", "--key"];
    expect(await complaint([...worker, join(folder, "root.key")])).toMatch(
      /root\.key does not hold the key of a member/,
    );
    expect(await complaint([...worker, join(folder, "none.key")], 3)).toMatch(
      /^automap: there is no key \S+none\.key\n/,
    );
  });

  it("starts no worker that has nothing to do, or whose processors it may not use", async () => {
    const folder = join(scratch, "workers");
    await printed(["fleet", "init", folder]);
    await printed(["fleet", "admit", folder, "node1", "--role", "worker"]);
    const refused = (...words: string[]): Promise<string> =>
      complaint(["worker", "--fleet", "redis://127.0.0.1:1", "--key", join(folder, "node1.key"), ...words]);
    expect(await refused("--measure", "none", "--compile", "0")).toMatch(/leaves the worker nothing to do/);
    expect(await refused("--measure", "cuda", "--compile", "1")).toMatch(/^automap: --compile is for workers that/);
    expect(await refused("--pin", "9999")).toMatch(
      /^automap: --pin: this process may not use processors 9999: .*\n {2}it may use \d/,
    );
  });
});
