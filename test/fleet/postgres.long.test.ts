/** @file A fleet's server in PostgreSQL: what is said when it is not there or is another; what it permits; and that it is not believed. */

import { createServer as createHttp } from "node:http";
import { createServer as createTcp } from "node:net";
import { Client } from "pg";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { parseAddress } from "../../fleet/address.ts";
import { LARGEST_BLOB } from "../../fleet/contents.ts";
import { openServer } from "../../fleet/server.ts";
import { complaintAt, FLEET, HASTY_MS } from "../support/fleet-server.ts";
import { freePort, hasPostgres, portOf, postgresHere, type TestServer } from "../support/servers.ts";

const ADDRESS = "check its address, and that the server runs and can be reached from here";
const PASSWORD = "set AUTOMAP_FLEET_PASSWORD, or AUTOMAP_FLEET_PASSWORD_FILE to the name of a file that holds it";

describe("no PostgreSQL", () => {
  it("is said in a sentence with why and what to do", async () => {
    const http = createHttp((_, response) => response.end("hello"));
    const silent = createTcp(() => undefined);
    const closing = createTcp((socket) => socket.once("data", () => socket.destroy()));
    // It takes the connection, and breaks it at the first question.
    const breaking = createTcp((socket) =>
      socket.once("data", () => {
        socket.write(Buffer.from("5200000008000000005a0000000549", "hex"));
        socket.once("data", () => socket.destroy());
      }),
    );
    for (const server of [http, silent, closing, breaking]) onTestFinished(() => void server.close());
    const at = async (server: typeof silent, patience?: number): Promise<string> =>
      complaintAt(`postgresql://me@127.0.0.1:${await portOf(server)}/x`, "geheim", patience);
    expect(await complaintAt(`postgresql://127.0.0.1:${await freePort()}/x`)).toBe(
      `postgresql://127.0.0.1:PORT/x\n  nothing listens there\n  ${ADDRESS}`,
    );
    expect(await complaintAt("postgres://no-such-host.invalid/x")).toMatch(/there is no host of this name/);
    expect(await at(http)).toMatch(/ {2}what answers there does not speak as PostgreSQL does\n/);
    expect(await at(breaking)).toMatch(/ {2}the connection is lost|what answers there does not speak/);
    expect(await at(closing)).toMatch(/ {2}what answers there does not speak as PostgreSQL does\n/);
    expect(await at(silent, HASTY_MS)).toMatch(/ {2}it does not answer, as a server does that is no PostgreSQL/);
  });
});

describe.skipIf(!hasPostgres)("PostgreSQL (postgres and initdb)", async () => {
  const here: Partial<TestServer> = hasPostgres ? await postgresHere({ password: "geheim" }) : {};
  const { url = "", environment = {}, port = 0 } = here;

  /** The connection of somebody who has the password, and no key of a fleet. */
  const stranger = hasPostgres
    ? new Client({ host: "127.0.0.1", port, user: "automap", password: "geheim", database: "postgres" })
    : undefined;
  await stranger?.connect();
  afterAll(() => stranger?.end());
  const did = async (text: string): Promise<unknown> => (await stranger?.query(text))?.rows;

  const opened = async (address = parseAddress(url, environment)): ReturnType<typeof openServer> => {
    const server = await openServer(address, FLEET);
    onTestFinished(() => server.close());
    return server;
  };

  it("refuses a wrong password, none, another user or database, and TLS that it does not speak", async () => {
    expect(await complaintAt(url)).toMatch(new RegExp(` {2}it asks for a password, and none is set\n {2}${PASSWORD}$`));
    expect(await complaintAt(url, "geheimnis")).toBe(
      `postgresql://automap@127.0.0.1:PORT/postgres\n  it refuses the password of this user\n  ${PASSWORD}`,
    );
    expect(await complaintAt(url.replace("automap", "joe"), "geheim")).toMatch(/refuses the password of this user/);
    expect(await complaintAt(url.replace(/postgres$/, "none"), "geheim")).toMatch(
      / {2}it has no such database\n {2}create it \(createdb\), or name another$/,
    );
    for (const mode of ["require", "verify-full"])
      expect(await complaintAt(`${url}?sslmode=${mode}`, "geheim")).toMatch(
        / {2}the address asks for TLS, and the server does not speak it\n {2}leave out sslmode if no TLS is wanted$/,
      );
  });

  it("lets members use the tables that another made, whose users may make none", async () => {
    await did("CREATE ROLE guest LOGIN PASSWORD 'geheim'");
    const guest = url.replace("automap", "guest");
    expect(await complaintAt(guest, "geheim")).toMatch(
      / {2}it does not permit this user to do what a fleet needs\n {2}let the user create a schema in the database$/,
    );
    await opened();
    const schema = `automap_${FLEET.id}`;
    await did(`GRANT USAGE ON SCHEMA ${schema} TO guest`);
    await did(`GRANT ALL ON ALL TABLES IN SCHEMA ${schema} TO guest`);
    const { blobs } = await opened(parseAddress(guest, environment));
    expect(await blobs.put(Buffer.from("kernel"))).toHaveLength(64);
  });

  it("is not believed when it gives other bytes, or too many", async () => {
    const { blobs, board } = await opened();
    const hash = await blobs.put(Buffer.from("kernel"));
    const kept = `automap_${FLEET.id}.kept`;
    await did(`UPDATE ${kept} SET content = 'colonel' WHERE name = '${hash}'`);
    await expect(blobs.get(hash)).rejects.toThrow(`the blob ${hash} is refused: the server holds other content`);
    await did(
      `UPDATE ${kept} SET content = convert_to(repeat('x', ${LARGEST_BLOB + 1}), 'UTF8') WHERE name = '${hash}'`,
    );
    await expect(blobs.get(hash)).rejects.toThrow(/67108865 bytes is refused/);
    await board.post("long", "text", 60);
    await did(`UPDATE ${kept} SET content = convert_to(repeat('x', 2097153), 'UTF8') WHERE name = 'long'`);
    expect(await board.list("long")).toEqual([]);
    await did(`UPDATE ${kept} SET expires = now() WHERE name = '${hash}'`);
    expect(await blobs.get(hash)).toBeUndefined();
    await board.post("other", "text", 60);
    expect(await did(`SELECT name FROM ${kept} WHERE name = '${hash}'`)).toEqual([]);
  });

  it("makes its tables once, however many members come first", async () => {
    const fleet = { id: "2".repeat(32) };
    const servers = await Promise.all(
      Array.from({ length: 4 }, () => openServer(parseAddress(url, environment), fleet)),
    );
    const hashes = await Promise.all(servers.map(({ blobs }) => blobs.put(Buffer.from("kernel"))));
    expect(new Set(hashes).size).toBe(1);
    await Promise.all(servers.map((server) => server.close()));
  });
});
