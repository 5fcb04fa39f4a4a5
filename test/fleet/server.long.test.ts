/** @file What a fleet's server keeps, in Redis and in PostgreSQL alike: blobs, a board and queues. */

import { createHash } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import type { Job, QueueEvents } from "bullmq";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { seededRandom } from "../../abstraction/random.ts";
import { parseAddress } from "../../fleet/address.ts";
import { LARGEST_BLOB } from "../../fleet/contents.ts";
import { type FleetServer, openServer } from "../../fleet/server.ts";
import { networkTo } from "../support/proxy.ts";
import { hasPostgres, hasRedis, postgresHere, redisHere, type TestServer } from "../support/servers.ts";

const FLEET = { id: "0".repeat(32) };
const OTHER = { id: "1".repeat(32) };

/** The result of a job. The event of one that ends while events are being subscribed to is missed. */
async function answered(job: Job, events: QueueEvents): Promise<unknown> {
  await expect.poll(() => job.isCompleted()).toBe(true);
  return job.waitUntilFinished(events);
}

const KINDS = [
  { kind: "redis", needs: "redis-server", isHere: hasRedis, start: redisHere },
  { kind: "postgresql", needs: "postgres and initdb", isHere: hasPostgres, start: postgresHere },
];

for (const { kind, needs, isHere, start } of KINDS)
  describe.skipIf(!isHere)(`a fleet's server in ${kind} (${needs})`, async () => {
    const here: Partial<TestServer> = isHere ? await start({ password: "geheim" }) : {};

    const opened = async (fleet = FLEET): Promise<FleetServer> => {
      const server = await openServer(parseAddress(here.url ?? "", here.environment), fleet);
      onTestFinished(() => server.close());
      return server;
    };

    it("keeps blobs by their hash, apart from those of other fleets", async () => {
      const { blobs, software, warnings, address } = await opened();
      expect({ software, warnings }).toEqual({
        software: expect.stringMatching(/^(Redis|Valkey|PostgreSQL) \d/),
        warnings: [],
      });
      expect(address.kind).toBe(kind);
      const bytes = Buffer.from([0, 255, 10, 13, 128]);
      const hash = await blobs.put(bytes);
      expect(hash).toBe(createHash("sha256").update(bytes).digest("hex"));
      expect(await blobs.put(bytes)).toBe(hash);
      expect(await blobs.get(hash)).toEqual(bytes);
      expect(await blobs.get("f".repeat(64))).toBeUndefined();
      expect(await blobs.get(await blobs.put(Buffer.alloc(0)))).toEqual(Buffer.alloc(0));
      expect(await (await opened(OTHER)).blobs.get(hash)).toBeUndefined();
      await expect(blobs.get("*")).rejects.toThrow("its name is not a hash");
      await expect(blobs.put(new Uint8Array(LARGEST_BLOB + 1))).rejects.toThrow(/67108865 bytes is refused/);
    });

    it("shows what is posted until it expires or is removed", async () => {
      const { board } = await opened();
      await board.post("worker-b", "1", 60);
      await board.post("worker-a", '{"é":"\\u0000"}', 60);
      await board.post("worker-b", "3", 60);
      await board.post("worker-c", "4", 60);
      await board.post("worker%", "5", 60);
      const names = async (): Promise<string[]> => (await board.list("worker-")).map(({ name, text }) => name + text);
      expect(await names()).toEqual(['worker-a{"é":"\\u0000"}', "worker-b3", "worker-c4"]);
      await board.remove("worker-a");
      await board.post("worker-c", "4", 1);
      await expect.poll(names).toEqual(["worker-b3"]);
      await board.post("worker-c", "6", 60);
      expect(await names()).toEqual(["worker-b3", "worker-c6"]);
      expect(await (await opened(OTHER)).board.list("")).toEqual([]);
    });

    it("takes jobs to workers and their answers back", async () => {
      const server = await opened();
      const queue = server.queue("measure");
      const events = server.events("measure");
      const worker = server.worker("measure", async ({ data }) => data.n + 1, { name: "node3" });
      expect(await answered(await queue.add("measure", { n: 41 }, { jobId: "a1" }), events)).toBe(42);
      expect(await queue.getJobCounts("waiting", "active")).toEqual({ waiting: 0, active: 0 });
      const [ended] = await queue.getCompleted(0, 9);
      expect(ended).toMatchObject({ id: "a1", processedOn: expect.any(Number), finishedOn: expect.any(Number) });
      expect(worker.opts).toMatchObject({ lockDuration: 30_000, stalledInterval: 10_000, name: "node3" });
      expect((await queue.getJob("a1"))?.opts).toMatchObject({ removeOnComplete: { age: 86_400 } });
      expect(await (await opened(OTHER)).queue("measure").getJob("a1")).toBeUndefined();
    });

    it("is not used by who has another clock", async () => {
      const { now } = Date;
      const off = kind === "redis" ? 301_000 : 6000;
      for (const [skew, words] of [
        [off, "ahead of"],
        [-off, "behind"],
      ] as const) {
        const clock = vi.spyOn(Date, "now").mockImplementation(() => now() + skew);
        await expect(opened()).rejects.toThrow(`clock of this machine is ${off / 1000} s ${words} that of the fleet's`);
        clock.mockRestore();
      }
    });
  });

// They wait for most of their time: all at once.
for (const { kind, needs, isHere, start } of KINDS)
  describe.skipIf(!isHere).concurrent(`a server that comes and goes in ${kind} (${needs})`, async () => {
    const servers = isHere ? [await start(), await start(), await start()] : [];
    const frail = (): TestServer => servers.pop() as TestServer; // one for each test

    it("may go and come back: what needs it says so, once, and works again", async ({ expect }) => {
      const here = frail();
      const troubles: string[] = [];
      // A password where none is asked for does no harm.
      const address = parseAddress(here.url, { AUTOMAP_FLEET_PASSWORD: "geheim" });
      const server = await openServer(address, FLEET, { onTrouble: (text) => troubles.push(text) });
      const queue = server.queue("measure");
      const events = server.events("measure");
      server.worker("measure", async ({ data }) => data);
      expect(await answered(await queue.add("measure", 1), events)).toBe(1);
      await here.stop();
      await expect.poll(() => troubles.length).toBeGreaterThan(0);
      await expect(queue.add("measure", 2)).rejects.toThrow();
      await here.start();
      const added = (): Promise<Job | undefined> => queue.add("measure", 3).catch(() => undefined);
      await expect.poll(added).toBeDefined();
      await expect.poll(() => queue.getCompletedCount()).toBeGreaterThan(1);
      await server.board.post("name", "text", 5);
      for (const sentence of troubles) expect(sentence).toMatch(/^no connection to the fleet's server \S+: [a-z, ]+$/);
      expect(new Set(troubles).size).toBe(troubles.length);
      await server.close();
    });

    it("hears of jobs, and finds those of workers that died, also when it could not be reached", async ({
      expect,
      onTestFinished,
    }) => {
      const here = frail();
      const network = await networkTo(here.port, seededRandom(1));
      onTestFinished(() => network.close());
      const server = await openServer(parseAddress(here.url.replace(`:${here.port}`, `:${network.port}`)), FLEET);
      onTestFinished(() => server.close());
      const heard: string[] = [];
      const events = server.events("measure");
      events.on("completed", ({ jobId }) => heard.push(jobId));
      const dead = server.worker("measure", () => setTimeout(600_000, undefined, { ref: false }), {
        lockDuration: 500,
        skipLockRenewal: true,
        skipStalledCheck: true,
      });
      await Promise.all([dead.waitUntilReady(), events.waitUntilReady()]);
      await server.queue("measure").add("measure", 1, { jobId: "lost" });
      await expect.poll(() => server.queue("measure").getActiveCount()).toBe(1);
      const living = server.worker("measure", async ({ data }) => data, { stalledInterval: 500 });
      await living.waitUntilReady();
      network.is("cut");
      await setTimeout(1500);
      network.is("well");
      await dead.close(true);
      await expect.poll(() => heard).toEqual(["lost"]);
    });

    it("makes a connection anew that the network has forgotten, and closes what finds no server any more", async ({
      expect,
    }) => {
      const here = frail();
      const network = await networkTo(here.port, seededRandom(1));
      const troubles: string[] = [];
      const address = parseAddress(here.url.replace(String(here.port), String(network.port)));
      const onTrouble = (text: string): void => void troubles.push(text);
      // Its tables are there already: a busy machine may take longer for them than silence is borne here.
      await (await openServer(parseAddress(here.url), FLEET)).close();
      const server = await openServer(address, FLEET, { silence: 3000, patience: 15_000, onTrouble });
      const queue = server.queue("measure");
      server.worker("measure", async ({ data }) => data);
      await queue.add("measure", 1);
      await expect.poll(() => queue.getCompletedCount()).toBe(1);
      // Until it waits for the next.
      await setTimeout(300);
      network.is("silent");
      network.is("well");
      const put = (): Promise<unknown> => server.blobs.put(Buffer.from("kernel")).catch(() => undefined);
      const added = (): Promise<unknown> => queue.add("measure", 2).catch(() => undefined);
      await expect.poll(put).toBeDefined();
      await expect.poll(added).toBeDefined();
      await expect.poll(() => queue.getCompletedCount()).toBeGreaterThan(1);
      await network.close();
      await here.stop();
      await server.close();
    });
  });
