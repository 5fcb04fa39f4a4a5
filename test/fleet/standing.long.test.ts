/** @file How the queues of a fleet stand, and `automap fleet status` of them. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { run } from "../../cli/program.ts";
import { workersOf } from "../../fleet/adverts.ts";
import { standingsOf } from "../../fleet/standing.ts";
import { measuringQueue } from "../../fleet/worker.ts";
import { captured, commandLine } from "../support/command-line.ts";
import { took } from "../support/fake-runner.ts";
import { fakeMachine, fleetOn } from "../support/fleet.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";

const machine = fakeMachine(await compilerHere(), { alone: () => took(1e-3), inTurns: () => [] });

describe.skipIf(!hasRedis)("the queues of a fleet (redis-server)", async () => {
  const folder = scratchFolder();
  const redis = await redisHere();

  it("stand as their jobs do, one for the workers of an environment and one for those with a compiler", async () => {
    const fleet = fleetOn(redis, folder);
    const server = await fleet.open();
    const environment = await environmentOfNext();
    // Taken by nobody: the workers of the test come later.
    const queue = server.queue(measuringQueue(environment));
    await queue.add("race", {}, { jobId: "a" });
    await queue.add("race", {}, { jobId: "b" });
    const workers = await shownWorkers();
    const [measure, compile] = await standingsOf(workers, (name) => server.queue(name));
    expect(measure).toMatchObject({
      task: "measure",
      workers: ["node1", "node2"],
      waiting: 2,
      active: 0,
      lastMinute: 0,
    });
    expect(compile).toMatchObject({ task: "compile", workers: ["node2"], waiting: 0, longest: undefined });

    let end = (): void => undefined;
    const hold = new Promise<void>((resolve) => {
      end = resolve;
    });
    server.worker(measuringQueue(environment), ({ id }) => (id === "a" ? hold : Promise.resolve()), { concurrency: 2 });
    const now = (at = Date.now()) => standingsOf(workers, (name) => server.queue(name), at);
    await expect.poll(async () => (await now())[0]).toMatchObject({ waiting: 0, active: 1, lastMinute: 1 });
    expect((await now(Date.now() + 900_000))[0]?.longest).toBeGreaterThan(890);
    expect((await now(Date.now() + 900_000))[0]?.lastMinute).toBe(0);
    end();

    /** The environment that workers of this machine will have. */
    async function environmentOfNext(): Promise<string> {
      const worker = await fleet.worker("node0", machine);
      await worker.stop();
      return worker.environment;
    }

    /** Workers that said that they are there, and serve nothing any more. */
    async function shownWorkers(): ReturnType<typeof workersOf> {
      const two = fleetOn(redis, folder);
      const one = await two.worker("node1", machine);
      const other = await two.worker("node2", machine, { compiles: 3 });
      const found = await workersOf(await two.open(), two.tuner.fleet);
      await Promise.all([one.stop(), other.stop()]);
      return found;
    }
  });

  it("are told by a command, which may look again until it is ended", async () => {
    const fleet = fleetOn(redis, folder);
    const who = ["--fleet", redis.url, "--key", join(fleet.folder, "tuner.key")];
    const none = await commandLine(["fleet", "status", ...who]);
    expect(none).toMatchObject({
      code: 3,
      out: "",
      err: expect.stringMatching(/^no worker of this fleet is at redis/),
    });
    const worker = await fleet.worker("node1", machine, { compiles: 2 });
    const { code, out } = await commandLine(["fleet", "status", ...who]);
    expect(code).toBe(0);
    expect(out).toMatch(/^worker +measures on +compiles +compiler +environment\nnode1 .*\n\njobs to /);
    expect(out).toMatch(/\nmeasure, .* 1 +0 +0 +0\ncompile, .* 1 +0 +0 +0\n\nat redis:.*\(Redis .*\)\n$/);

    const listeners = process.listenerCount("SIGINT");
    const watching = captured(() => run(["fleet", "status", ...who, "--watch"]));
    await expect.poll(() => process.listenerCount("SIGINT")).toBeGreaterThan(listeners);
    await worker.stop();
    await new Promise((resolve) => setTimeout(resolve, 2500));
    process.emit("SIGINT");
    const watched = await watching;
    expect(watched.code).toBe(130);
    expect(watched.err).toMatch(/^no worker of this fleet is at/m);
    expect(process.listenerCount("SIGINT")).toBe(listeners);
  });
});
