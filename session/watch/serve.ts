/**
 * @file Serves one page and its changes to browsers of this machine, over HTTP on loopback.
 *
 *     const server = await servePage(watch, { port: 0 });
 *     server.link              http://127.0.0.1:43211/kMv8.../
 *     await server.close();
 *
 * The link holds a secret drawn at random: without it nothing is served. A page of another origin can neither guess it nor read an answer, and a name of
 * another host that was pointed to this machine (DNS rebinding) is refused.
 */

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { EnvironmentError, internal, reasonOf } from "../../abstraction/error.ts";
import type { Patch } from "../../report/live-script.ts";
import { policyOf } from "../../report/page-shell.ts";

/** What is served: a page, and what changes on it. */
export interface Changing {
  /** What changed since the last call, or that another page is there now. Called a few times a second. */
  readonly look: () => readonly Patch[] | "reload";
  /** The whole page as it is after the last look. @param events where it hears of changes */
  readonly page: (events: string) => string;
}

export interface Served {
  readonly link: string;
  /** Tells those who have the page, and ends. */
  readonly close: () => Promise<void>;
}

const LOOPBACK = "127.0.0.1";
/** Names under which this machine asks itself. The port may differ: a tunnel forwards another one. */
const OWN_NAMES = ["127.0.0.1", "localhost", "[::1]"];
/** Milliseconds between two looks. */
const LOOK_MS = 250;
/** A silent connection is kept by a comment this often. */
const COMMENT_MS = 15_000;
/** A browser asks again so long after an answer ended. */
const RETRY_MS = 1000;
/** Changes kept for those who lost the connection; who missed more gets the whole page. */
const KEPT = 200;
/** A reader who leaves so many bytes unread is cut off, and gets the whole page when it comes back. */
const MOST_UNREAD = 8 * 2 ** 20;
/** Most connections that hear of changes. */
const MOST_READERS = 64;

/** @throws EnvironmentError when the port is taken */
export async function servePage(changing: Changing, { port }: { readonly port: number }): Promise<Served> {
  const channel = new Channel(changing);
  const secret = randomBytes(24).toString("base64url");
  const server = createServer((request, response) => {
    answer(request, response, secret, channel);
  });
  await listening(server, port);
  const looking = setInterval(() => channel.look(), LOOK_MS);
  const commenting = setInterval(() => channel.comment(), COMMENT_MS);
  const address = server.address();
  if (address === null || typeof address === "string") internal("a server without a port");
  return {
    link: `http://${LOOPBACK}:${address.port}/${secret}/`,
    close: async () => {
      clearInterval(looking);
      clearInterval(commenting);
      channel.end();
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}

function listening(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => {
      const what = `port ${port} of ${LOOPBACK} cannot be had: ${reasonOf(error)}`;
      const remedy = "name another, or leave --port out: the system then gives a free one";
      reject(new EnvironmentError({ what, why: "the page is served there", remedy }, error));
    });
    server.listen({ host: LOOPBACK, port }, resolve);
  });
}

// ---- Requests

function answer(request: IncomingMessage, response: ServerResponse, secret: string, channel: Channel): void {
  const [, given = "", place = ""] = /^\/([^/?]*)(\/[^?]*)?/.exec(request.url ?? "") ?? [];
  const refusal = refusalOf(request, isSame(given, secret));
  if (refusal) refuse(response, ...refusal);
  else if (place === "/") channel.sendPage(response);
  else if (place === "/events") channel.connect(request, response);
  else refuse(response, 404, "there is one page here");
}

/** Status of a refusal, and why. */
type Refusal = readonly [status: number, because: string];

function refusalOf({ headers, method }: IncomingMessage, hasSecret: boolean): Refusal | undefined {
  if (!isOwnName(headers.host)) return [403, "this machine has another name"];
  if (!hasSecret) return [403, "this is not the link that automap watch printed"];
  return method === "GET" ? undefined : [405, "there is a page to read and nothing else"];
}

const isOwnName = (host: string | undefined): boolean =>
  host !== undefined && OWN_NAMES.includes(host.replace(/:\d+$/, ""));

/** Takes as long for every text. */
function isSame(given: string, secret: string): boolean {
  const hashOf = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(hashOf(given), hashOf(secret));
}

/** Nothing is kept by the browser, told to other sites, or shown within another page. */
const HEADERS = {
  "Cache-Control": "no-store",
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
};

function refuse(response: ServerResponse, status: number, because: string): void {
  response.writeHead(status, { ...HEADERS, "Content-Type": "text/plain; charset=utf-8" }).end(`${because}\n`);
}

// ---- Changes

interface Change {
  readonly id: string;
  readonly text: string;
}

/** Tells every reader of the page what changes. */
class Channel {
  private readonly changing: Changing;
  /** Distinguishes changes of this process from those of another. */
  private readonly process = randomBytes(4).toString("hex");
  private readonly readers = new Set<ServerResponse>();
  private readonly kept: Change[] = [];
  private count = 0;

  constructor(changing: Changing) {
    this.changing = changing;
  }

  look(): void {
    const found = this.changing.look();
    if (found !== "reload" && found.length === 0) return;
    const id = `${this.process}-${++this.count}`;
    // Who missed another page needs that alone.
    if (found === "reload") this.kept.length = 0;
    const text = found === "reload" ? RELOAD : eventOf({ data: JSON.stringify(found) });
    this.kept.push({ id, text });
    if (this.kept.length > KEPT) this.kept.shift();
    for (const reader of this.readers) this.write(reader, `id: ${id}\n${text}`);
  }

  comment(): void {
    for (const reader of this.readers) this.write(reader, ":\n\n");
  }

  end(): void {
    for (const reader of this.readers) reader.end(eventOf({ event: "end", data: "" }));
    this.readers.clear();
  }

  sendPage(response: ServerResponse): void {
    const text = this.changing.page(`events?after=${this.process}-${this.count}`);
    response
      .writeHead(200, {
        ...HEADERS,
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": `${policyOf(true)}; frame-ancestors 'none'`,
      })
      .end(text);
  }

  /** Tells a reader what it missed since its last change, or that it needs the whole page, and all that comes. */
  connect(request: IncomingMessage, response: ServerResponse): void {
    if (this.readers.size >= MOST_READERS) {
      refuse(response, 503, "too many read this page");
      return;
    }
    const [, asked] = /[?&]after=([\w-]*)/.exec(request.url ?? "") ?? [];
    const last = request.headers["last-event-id"] ?? asked;
    response.writeHead(200, { ...HEADERS, "Content-Type": "text/event-stream; charset=utf-8" });
    this.readers.add(response);
    response.on("close", () => this.readers.delete(response));
    this.write(response, `retry: ${RETRY_MS}\n\n`);
    for (const { id, text } of this.missed(String(last)) ?? [{ id: "", text: RELOAD }])
      this.write(response, `id: ${id}\n${text}`);
  }

  /** The changes after one; undefined where they are not known any more. */
  private missed(last: string): readonly Change[] | undefined {
    const [process, number] = last.split("-");
    const missed = this.count - Number(number);
    // Not a number is not at least 0.
    return process === this.process && missed >= 0 && missed <= this.kept.length
      ? this.kept.slice(this.kept.length - missed)
      : undefined;
  }

  private write(reader: ServerResponse, text: string): void {
    reader.write(text);
    if (reader.writableLength > MOST_UNREAD) reader.destroy();
  }
}

const eventOf = (fields: Readonly<Record<string, string>>): string =>
  `${Object.entries(fields)
    .map(([name, value]) => `${name}: ${value}\n`)
    .join("")}\n`;

const RELOAD = eventOf({ event: "reload", data: "" });
