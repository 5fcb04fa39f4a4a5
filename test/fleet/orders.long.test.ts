/** @file Orders to workers: obeyed when a tuner of the fleet gives them now, and refused otherwise. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type KnownWorker, workersOf } from "../../fleet/adverts.ts";
import { readMember } from "../../fleet/members.ts";
import { give, type Order, takeOrders } from "../../fleet/orders.ts";
import { complaint, printed } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { took } from "../support/fake-runner.ts";
import { fakeMachine, fleetOn } from "../support/fleet.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";

const machine = fakeMachine(await compilerHere(), { alone: () => took(1e-3), inTurns: () => [] });

describe.skipIf(!hasRedis)("an order (redis-server)", async () => {
  const folder = scratchFolder();
  const redis = await redisHere();

  /** A fleet with one worker that takes orders, and what it said. */
  const newFleet = async (began = Date.now() - 1000) => {
    const fleet = fleetOn(redis, folder);
    await fleet.worker("node3", machine);
    const server = await fleet.open();
    const [worker] = await workersOf(server, fleet.tuner.fleet);
    if (!worker) throw new Error("no worker");
    const said: string[] = [];
    const node = readMember(join(fleet.folder, "node3.key"));
    const { drained } = takeOrders(server, node, { answered: () => 34, say: (text) => said.push(text), began });
    let by: string | undefined;
    void drained.then((name) => {
      by = name;
    });
    return { fleet, server, worker, said, node, drainedBy: () => by };
  };

  it("to say that it is there is answered, and one to end is told", async () => {
    const { fleet, server, worker, said, drainedBy } = await newFleet();
    expect(await give(server, fleet.tuner, worker, "ping")).toMatchObject({ worker: "node3", answered: 34 });
    expect(drainedBy()).toBeUndefined();
    await give(server, fleet.tuner, worker, "drain");
    expect(drainedBy()).toBe("tuner");
    expect(said).toEqual([]);
  });

  it("is refused from a worker, of another fleet, for another worker, from before and unknown", async () => {
    const { fleet, server, worker, said, node, drainedBy } = await newFleet();
    const stranger = fleetOn(redis, folder).tuner;
    const old: KnownWorker = { ...worker, advert: { ...worker.advert, at: Date.now() - 5000 } };
    await expect(give(server, node, worker, "drain")).rejects.toThrow(/node3 is a worker$/);
    await expect(give(server, stranger, worker, "drain")).rejects.toThrow(/tuner belongs to another fleet$/);
    await expect(give(server, fleet.tuner, old, "drain")).rejects.toThrow(/it is too old$/);
    await expect(give(server, fleet.tuner, worker, "reboot" as Order)).rejects.toThrow(/it is none that is known$/);
    expect(drainedBy()).toBeUndefined();
    expect(said).toHaveLength(4);
  });

  it("that was taken down and is sent again does not end a worker that has started anew", async () => {
    const { fleet, server, worker, drainedBy } = await newFleet(Date.now() + 60_000);
    await expect(give(server, fleet.tuner, worker, "drain")).rejects.toThrow(/it is too old$/);
    expect(drainedBy()).toBeUndefined();
  });

  it("is given by commands, which say who does not answer", async () => {
    const { fleet } = await newFleet();
    const who = `--fleet ${redis.url} --key ${join(fleet.folder, "tuner.key")}`;
    expect(await printed(`fleet ping ${who}`)).toMatch(/^worker +after +answer\nnode3 +\d+ ms +34 jobs answered\n$/);
    expect(await printed(`fleet drain node3 ${who}`)).toBe(
      "node3 finishes the job at hand and ends; it has answered 34 jobs\n",
    );
    expect(await complaint(`fleet drain node4 ${who}`, 3)).toBe(
      'automap: no worker "node4" is there\n  did you mean "node3"?',
    );
    const asWorker = who.replace("tuner.key", "node3.key");
    expect(await complaint(`fleet ping ${asWorker}`)).toMatch(/is the key of a worker$/m);
    await fleet.worker("node5", machine);
    const { code, out } = await commandLine(`fleet ping ${who} --json`);
    expect(code).toBe(1);
    expect(JSON.parse(out).workers).toMatchObject([
      { name: "node3", answered: 34, problem: null },
      { name: "node5", milliseconds: null, problem: "worker node5 does not answer" },
    ]);
  });
});
