/** @file A fleet's server in Redis: what is said when it is not there, is another, or is not fit; and that it is not believed. */

import { spawnSync } from "node:child_process";
import { createServer as createHttp } from "node:http";
import { createServer as createTcp, type Server } from "node:net";
import { join } from "node:path";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { parseAddress } from "../../fleet/address.ts";
import { LARGEST_BLOB } from "../../fleet/contents.ts";
import { type FleetServer, openServer } from "../../fleet/server.ts";
import { complaintAt, FLEET, HASTY_MS } from "../support/fleet-server.ts";
import { scratchFolder } from "../support/scratch.ts";
import { freePort, hasRedis, portOf, redisHere, type TestServer } from "../support/servers.ts";

const folder = scratchFolder();
const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

/** Lets a server listen until the tests have ended. */
async function listening(server: Server): Promise<number> {
  afterAll(() => server.close());
  return portOf(server);
}

const http = await listening(createHttp((_, response) => response.end("hello")));
const silent = await listening(createTcp(() => undefined));
const ADDRESS = "check its address, and that the server runs and can be reached from here";

describe("no server", () => {
  it("is said of one that never answers too", async () => {
    await expect(openServer(parseAddress(`redis://127.0.0.1:${silent}`, {}), FLEET)).rejects.toThrow(/does not answer/);
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
    expect(await complaintAt(`redis://127.0.0.1:${silent}`, undefined, HASTY_MS)).toBe(
      `redis://127.0.0.1:PORT\n  it does not answer, as a server does that is no Redis or is behind a firewall\n  ${ADDRESS}`,
    );
  });
});

describe.skipIf(!hasRedis)("Redis (redis-server)", async () => {
  const locked: TestServer | undefined = hasRedis ? await redisHere({ password: "geheim" }) : undefined;
  const url = locked?.url ?? "";

  const opened = async (fleet = FLEET): Promise<FleetServer> => {
    const server = await openServer(parseAddress(url, locked?.environment), fleet);
    onTestFinished(() => server.close());
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
    expect(await complaintAt(url.replace("redis:", "rediss:"), "geheim", HASTY_MS)).toMatch(
      /does not answer in TLS.*\n.*, and that it speaks TLS$/,
    );
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

  it.skipIf(!hasOpenssl)("is asked for its certificate with rediss, and says little without (openssl)", async () => {
    const key = join(folder, "key.pem");
    const certificate = join(folder, "certificate.pem");
    const words = `req -x509 -newkey rsa:2048 -nodes -keyout ${key} -out ${certificate} -days 2 -subj /CN=queue.lan`;
    expect(spawnSync("openssl", words.split(" ")).status).toBe(0);
    const port = await freePort();
    await redisHere({
      configuration: [`tls-port ${port}`, `tls-cert-file ${certificate}`, `tls-key-file ${key}`, "tls-auth-clients no"],
    });
    expect(await complaintAt(`rediss://127.0.0.1:${port}`, "geheim")).toMatch(
      / {2}its certificate is not trusted \(.*\)\n {2}name the file of its certificate authority in NODE_EXTRA_CA_CERTS$/,
    );
    expect(await complaintAt(`redis://127.0.0.1:${port}`, "geheim", HASTY_MS)).toMatch(
      /does not (speak as Redis does|answer)/,
    );
  });
});
