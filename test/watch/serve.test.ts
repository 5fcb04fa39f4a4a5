/** @file A page is served to whoever has the link, on this machine alone, and its changes reach every reader once. */

import { request } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { Patch } from "../../report/live-script.ts";
import { type Served, servePage } from "../../session/watch/serve.ts";

let served: Served;
/** What the next looks find. */
let coming: (readonly Patch[] | "reload")[];

beforeEach(async () => {
  coming = [];
  served = await servePage(
    { look: () => coming.shift() ?? [], page: (events) => `<p data-events="${events}">` },
    { port: 0 },
  );
});
afterEach(() => served.close());

interface Answer {
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** One request with its answer, which `fetch` would not send with the name of another host. */
function asked(path: string, headers: Record<string, string> = {}, method = "GET"): Promise<Answer> {
  const { port } = new URL(served.link);
  return new Promise((resolve, reject) => {
    const sent = request({ host: "127.0.0.1", port, path, headers, method }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        body += chunk;
      });
      response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, body }));
    });
    sent.on("error", reject).end();
  });
}

const pathOf = (link: string): string => new URL(link).pathname;

/** Reads events until a text was told, or the server ended. */
async function heard(query: string, until: string, headers: Record<string, string> = {}): Promise<string> {
  const response = await fetch(`${served.link}events${query}`, { headers });
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk as Uint8Array, { stream: true });
    if (text.includes(until)) break;
  }
  return text;
}

/** What the page asks for changes with. */
const queryOfPage = async (): Promise<string> =>
  /data-events="events(\?after=[\w-]+)"/.exec((await asked(pathOf(served.link))).body)?.[1] ?? "";

describe("who is served", () => {
  it("is whoever has the link", async () => {
    const { status, headers } = await asked(pathOf(served.link));
    expect(status).toBe(200);
    expect(headers["content-security-policy"]).toMatch(
      /^default-src 'none'; script-src 'sha256-[^;]*; style-src 'sha256-[^;]*; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$/,
    );
    expect(headers["cache-control"]).toBe("no-store");
    expect(headers["referrer-policy"]).toBe("no-referrer");
    expect(headers["access-control-allow-origin"]).toBeUndefined();
  });

  it("gets a secret that no one guesses, another each time", async () => {
    const other = await servePage({ look: () => [], page: () => "" }, { port: 0 });
    await other.close();
    for (const { link } of [served, other]) expect(link).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/[\w-]{32}\/$/);
    expect(pathOf(other.link)).not.toBe(pathOf(served.link));
  });

  it.each([
    ["no secret", () => "/", 403],
    ["a wrong secret", () => `${pathOf(served.link).slice(0, -2)}/`, 403],
    ["a wrong secret for the changes", () => "/wrong/events", 403],
    ["a file", () => "/etc/passwd", 403],
    ["another path", () => `${pathOf(served.link)}automap.db`, 404],
    ["a path that goes up", () => `${pathOf(served.link)}../../etc/passwd`, 404],
  ])("refuses %s", async (_, path, status) => {
    const answer = await asked(path());
    expect(answer.status).toBe(status);
    expect(answer.body).not.toContain("data-events");
  });

  it.each(["attacker.example", "attacker.example:80", "127.0.0.1.attacker.example", "localhost.attacker.example"])(
    "refuses the link under the name %s, which was pointed to this machine",
    async (host) => {
      expect((await asked(pathOf(served.link), { host })).status).toBe(403);
      expect((await asked(`${pathOf(served.link)}events`, { host })).status).toBe(403);
    },
  );

  it.each(["localhost", "localhost:8080", "[::1]:8080", "127.0.0.1:9"])("takes %s, as a tunnel asks", async (host) => {
    expect((await asked(pathOf(served.link), { host })).status).toBe(200);
  });

  it("reads nothing that is sent", async () => {
    for (const method of ["POST", "PUT", "DELETE", "OPTIONS"])
      expect((await asked(pathOf(served.link), {}, method)).status).toBe(405);
  });

  it("is told when the port is taken", async () => {
    const port = Number(new URL(served.link).port);
    const taken = servePage({ look: () => [], page: () => "" }, { port });
    await expect(taken).rejects.toThrow(`port ${port} of 127.0.0.1 cannot be had`);
    await expect(taken).rejects.toThrow(EnvironmentError);
  });
});

describe("changes", () => {
  it("reach every reader, in order", async () => {
    const query = await queryOfPage();
    const readers = [heard(query, "second"), heard(query, "second")];
    await pause(100);
    coming.push([["put", "state", "first"]], [["grow", "marks", "second"]]);
    const [one = "", two] = await Promise.all(readers);
    expect(one.replaceAll(/id: \w+-/g, "id: ")).toBe(
      'retry: 1000\n\nid: 1\ndata: [["put","state","first"]]\n\nid: 2\ndata: [["grow","marks","second"]]\n\n',
    );
    expect(two).toBe(one);
  });

  it("are told to a reader that comes back, from where it was", async () => {
    const query = await queryOfPage();
    coming.push([["put", "state", "first"]], [["put", "state", "second"]], [["put", "state", "third"]]);
    const all = await heard(query, "third");
    const [, first = ""] = /id: (\w+-1)\n/.exec(all) ?? [];
    const missed = await heard(query, "third", { "Last-Event-ID": first });
    expect(missed).not.toContain("first");
    expect(missed).toContain("second");
  });

  it("are one page anew for a reader of another process, or of long ago", async () => {
    expect(await heard("?after=0badc0de-7", "reload")).toContain("event: reload");
    expect(await heard("", "reload")).toContain("event: reload");
    const query = await queryOfPage();
    coming.push(...Array.from({ length: 3 }, (_, i): Patch[] => [["put", "state", `n${i}`]]), "reload");
    const all = await heard(query, "reload");
    const [, first = ""] = /id: (\w+-1)\n/.exec(all) ?? [];
    const later = await heard(query, "reload", { "Last-Event-ID": first });
    expect(later).not.toContain("n2");
  });

  it("end with a word when the server does", async () => {
    const hearing = heard(await queryOfPage(), "never");
    await pause(100);
    await served.close();
    expect(await hearing).toContain("event: end");
  });
});
