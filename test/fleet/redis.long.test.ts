/** @file A fleet's server in Redis: blobs, board and queues; and what is said when there is none, or another. */

import { createHash } from "node:crypto";
import { createServer as createHttp } from "node:http";
import { createServer as createTcp, type Server } from "node:net";
import { setTimeout } from "node:timers/promises";
import type { Job, QueueEvents } from "bullmq";
import { afterAll, describe, expect, it } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import { parseAddress } from "../../fleet/address.ts";
import { LARGEST_BLOB } from "../../fleet/contents.ts";
import { type FleetServer, openServer } from "../../fleet/server.ts";
import { freePort, hasRedis, portOf, redisHere, type TestServer } from "../support/servers.ts";

const FLEET = { id: "0".repeat(32) };

/** What is said instead of opening a server. */
async function complaintAt(url: string, password?: string): Promise<string> {
  const address = parseAddress(url, password === undefined ? {} : { AUTOMAP_FLEET_PASSWORD: password });
  try {
    await (await openServer(address, FLEET, { patience: 300 })).close();
  } catch (error) {
    if (!(error instanceof EnvironmentError)) throw error;
    expect(error.cause).toBeUndefined();
    expect(error.message).not.toContain("heim");
    return error.message.replaceAll(/:\d{4,5}/g, ":PORT").replace("no connection to the fleet's server ", "");
  }
  return "accepted";
}

/** Lets a server listen until the tests have ended. */
async function listening(server: Server): Promise<number> {
  afterAll(() => server.close());
  return portOf(server);
}

/** The result of a job. The event of one that ends while events are being subscribed to is missed. */
async function answered(job: Job, events: QueueEvents): Promise<unknown> {
  await expect.poll(() => job.isCompleted()).toBe(true);
  return job.waitUntilFinished(events, 5000);
}

const http = await listening(createHttp((_, response) => response.end("hello")));
const silent = await listening(createTcp(() => undefined));
const ADDRESS = "check its address, and that the server runs and can be reached from here";

describe("no server", () => {
  it("is said within five seconds, also by one that never answers", async () => {
    const began = Date.now();
    await expect(openServer(parseAddress(`redis://127.0.0.1:${silent}`, {}), FLEET)).rejects.toThrow(/does not answer/);
    expect(Date.now() - began).toBeLessThan(5000);
  });

  it("is said in a sentence with why and what to do", async () => {
    const free = await freePort();
    expect(await complaintAt(`redis://127.0.0.1:${free}`)).toBe(
      `redis://127.0.0.1:PORT\n  nothing listens there\n  ${ADDRESS}`,
    );
    expect(await complaintAt("redis://no-such-host.invalid:6379")).toBe(
      `redis://no-such-host.invalid:PORT\n  there is no host of this name\n  ${ADDRESS}`,
    );
    expect(await complaintAt(`redis://127.0.0.1:${http}`, "geheim")).toBe(
      "redis://127.0.0.1:PORT\n  what answers there does not speak as Redis does\n  check the port, and whether the server asks for TLS",
    );
    expect(await complaintAt(`rediss://127.0.0.1:${http}`, "geheim")).toBe(
      "rediss://127.0.0.1:PORT\n  the address asks for TLS, and the server does not speak it\n  write redis:// if no TLS is wanted",
    );
    expect(await complaintAt(`redis://127.0.0.1:${silent}`)).toBe(
      `redis://127.0.0.1:PORT\n  it does not answer, as a server does that is no Redis or is behind a firewall\n  ${ADDRESS}`,
    );
  });
});

describe.skipIf(!hasRedis)("Redis (redis-server)", async () => {
  const locked: TestServer | undefined = hasRedis ? await redisHere({ password: "geheim" }) : undefined;
  const url = locked?.url ?? "";

  const opened = async (fleet = FLEET): Promise<FleetServer> => {
    const server = await openServer(parseAddress(url, locked?.environment), fleet);
    afterAll(() => server.close());
    return server;
  };

  it("refuses a wrong password, none, and TLS that it does not speak", async () => {
    const hint = "set AUTOMAP_FLEET_PASSWORD, or AUTOMAP_FLEET_PASSWORD_FILE to the name of a file that holds it";
    expect(await complaintAt(url)).toBe(`redis://127.0.0.1:PORT\n  it asks for a password, and none is set\n  ${hint}`);
    expect(await complaintAt(url, "geheimnis")).toBe(`redis://127.0.0.1:PORT\n  it refuses the password\n  ${hint}`);
    expect(await complaintAt(url.replace("//", "//me@"), "geheim")).toMatch(/refuses the password of this user/);
    expect(await complaintAt(`${url}/99`, "geheim")).toBe(
      "redis://127.0.0.1:PORT/99\n  it has no such database\n  name another number, or none",
    );
    expect(await complaintAt(url.replace("redis:", "rediss:"), "geheim")).toMatch(/in TLS/);
  });

  it("keeps blobs by their hash, apart from those of other fleets", async () => {
    const { blobs, software, warnings } = await opened();
    expect({ software, warnings }).toEqual({ software: expect.stringMatching(/^(Redis|Valkey) \d/), warnings: [] });
    const bytes = Buffer.from([0, 255, 10, 13, 128]);
    const hash = await blobs.put(bytes);
    expect(hash).toBe(createHash("sha256").update(bytes).digest("hex"));
    expect(await blobs.put(bytes)).toBe(hash);
    expect(await blobs.get(hash)).toEqual(bytes);
    expect(await blobs.get("f".repeat(64))).toBeUndefined();
    expect(await (await opened({ id: "1".repeat(32) })).blobs.get(hash)).toBeUndefined();
    await expect(blobs.get("*")).rejects.toThrow("its name is not a hash");
    await expect(blobs.put(new Uint8Array(LARGEST_BLOB + 1))).rejects.toThrow(/67108865 bytes is refused/);
  });

  it("is not believed when it gives other bytes, or too many", async () => {
    const { blobs } = await opened();
    const hash = await blobs.put(Buffer.from("kernel"));
    const { Redis } = await import("ioredis");
    const raw = new Redis({ port: locked?.port ?? 0, password: "geheim" });
    const key = `automap:{${FLEET.id}}:blob:${hash}`;
    expect(await raw.ttl(key)).toBeGreaterThan(6 * 24 * 3600);
    await raw.set(key, "colonel");
    await expect(blobs.get(hash)).rejects.toThrow(`the blob ${hash} is refused: the server holds other content`);
    await raw.setrange(key, LARGEST_BLOB, "x");
    await expect(blobs.get(hash)).rejects.toThrow(/67108865 bytes is refused/);
    await raw.set(`automap:{${FLEET.id}}:board:long`, "x".repeat(2 ** 21 + 1));
    await raw.zadd(`automap:{${FLEET.id}}:names`, 0, "long");
    expect(await (await opened()).board.list("long")).toEqual([]);
    raw.disconnect();
  });

  it("shows what is posted until it expires or is removed", async () => {
    const { board } = await opened();
    await board.post("worker/b", "1", 60);
    await board.post("worker/a", "2", 60);
    await board.post("worker/b", "3", 60);
    await board.post("worker/c", "4", 1);
    await board.post("other", "5", 60);
    const names = async (): Promise<string[]> => (await board.list("worker/")).map(({ name, text }) => name + text);
    expect(await names()).toEqual(["worker/a2", "worker/b3", "worker/c4"]);
    await board.remove("worker/a");
    await setTimeout(1100);
    expect(await names()).toEqual(["worker/b3"]);
    expect(await (await opened({ id: "1".repeat(32) })).board.list("")).toEqual([]);
  });

  it("takes jobs to workers and their answers back", async () => {
    const server = await opened();
    const queue = server.queue("measure");
    const events = server.events("measure");
    const worker = server.worker("measure", async ({ data }) => data.n + 1, { name: "node3" });
    expect(await answered(await queue.add("measure", { n: 41 }, { jobId: "a1" }), events)).toBe(42);
    expect(worker.opts).toMatchObject({ lockDuration: 30_000, name: "node3" });
    expect((await queue.getJob("a1"))?.opts).toMatchObject({ removeOnComplete: { age: 86_400 } });
  });

  it("is warned of when it removes what does not fit, and refused as a replica", async () => {
    const full = await redisHere({ configuration: ["maxmemory 100mb", "maxmemory-policy allkeys-lru"] });
    const server = await openServer(parseAddress(full.url, {}), FLEET);
    expect(server.warnings).toEqual([
      "the server removes data when its memory is full (maxmemory-policy allkeys-lru), and jobs with it: set maxmemory-policy to noeviction",
    ]);
    await server.close();
    const replica = await redisHere({ configuration: [`replicaof 127.0.0.1 ${await freePort()}`] });
    expect(await complaintAt(replica.url)).toMatch(/cannot keep a fleet's queues\n {2}it is a replica/);
  });

  it("may go and come back: what needs it says so, once, and works again", async () => {
    const frail = await redisHere();
    const troubles: string[] = [];
    const server = await openServer(parseAddress(frail.url, {}), FLEET, { onTrouble: (text) => troubles.push(text) });
    const queue = server.queue("measure");
    const events = server.events("measure");
    server.worker("measure", async ({ data }) => data);
    expect(await answered(await queue.add("measure", 1), events)).toBe(1);
    await frail.stop();
    await expect
      .poll(() => troubles)
      .toContain(`no connection to the fleet's server ${frail.url}: nothing listens there`);
    await expect(queue.add("measure", 2)).rejects.toThrow();
    await frail.start();
    await expect
      .poll(() =>
        queue.add("measure", 3).then(
          ({ id }) => id,
          () => undefined,
        ),
      )
      .toBeDefined();
    await server.board.post("name", "text", 5);
    expect(new Set(troubles).size).toBe(troubles.length);
    await server.close();
  });
});
