/**
 * @file The address of a fleet's server, as the user writes it. The password is never part of it: every user of a machine can read the words of
 * its commands.
 *
 *     redis://queue.lan:6379              Redis or Valkey; rediss:// with TLS; redis://name@host/3 for a user and a database by number
 *     postgresql://automap@db.lan/fleet   PostgreSQL; ?sslmode=verify-full with TLS
 *
 * AUTOMAP_FLEET_PASSWORD holds the password, or AUTOMAP_FLEET_PASSWORD_FILE names a file that does.
 */

import { readFileSync } from "node:fs";
import { entryOf } from "../abstraction/collections.ts";
import { reasonOf, UsageError, unreadable } from "../abstraction/error.ts";

/** A password that is not printed with what holds it. */
class Password {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  reveal(): string {
    return this.#text;
  }
}

/** Where a server is, and how to connect to it. */
export interface Address {
  readonly kind: "redis" | "postgresql";
  readonly host: string;
  readonly port: number;
  readonly user: string | undefined;
  /** A number for Redis, a name for PostgreSQL. */
  readonly database: string;
  /** How the connection is encrypted: not at all, with a server that need not prove its name, or with one that must. */
  readonly tls: "none" | "unverified" | "verified";
  readonly password: Password | undefined;
  /** For people: without the password, and without what is as usual. */
  readonly text: string;
}

type Parts = Pick<Address, "kind" | "tls"> & { readonly port: number };

const SCHEMES: Readonly<Record<string, Parts>> = {
  redis: { kind: "redis", port: 6379, tls: "none" },
  rediss: { kind: "redis", port: 6379, tls: "verified" },
  postgresql: { kind: "postgresql", port: 5432, tls: "none" },
  postgres: { kind: "postgresql", port: 5432, tls: "none" },
};

/** What the modes of libpq mean here (postgresql.org/docs/current/libpq-ssl.html). Those that may fall back to no encryption are left out. */
const SSL_MODES: Readonly<Record<string, Address["tls"]>> = {
  disable: "none",
  require: "unverified",
  "verify-full": "verified",
};

const EXAMPLES = "redis://host:6379, rediss://host:6379 or postgresql://user@host:5432/database";

/**
 * Reads the address of a server. What is wrong with it is said without repeating it, since a password may stand anywhere in it.
 * @param environment the variables that may hold the password
 * @throws UsageError when it is no address, or holds a password
 */
export function parseAddress(url: string, environment: NodeJS.ProcessEnv = process.env): Address {
  const [, scheme = ""] = /^([a-z][a-z0-9+-]*):\/\//i.exec(url) ?? [];
  const parts = entryOf(SCHEMES, scheme.toLowerCase());
  if (parts === undefined)
    throw new UsageError("this is not the address of a server that keeps queues", `write ${EXAMPLES}`);
  const read = URL.canParse(url) ? new URL(url) : undefined;
  if (read?.password)
    throw new UsageError(
      "the address of the server holds a password, which every user of this machine could read in the list of processes",
      "leave it out, and set AUTOMAP_FLEET_PASSWORD, or AUTOMAP_FLEET_PASSWORD_FILE to the name of a file that holds it",
    );
  const user = decoded(read?.username);
  const path = decoded(read?.pathname.replace(/^\//, ""));
  if (!read?.hostname || user === undefined || path === undefined || read.hash !== "" || path.includes("@"))
    throw new UsageError(`this is not an address of ${scheme}`, `write ${EXAMPLES}`);
  const { kind, port, tls } = parts;
  const address = {
    kind,
    host: read.hostname.replace(/^\[(.*)\]$/, "$1"),
    port: read.port === "" ? port : Number(read.port),
    user: user === "" ? undefined : user,
    password: passwordIn(environment),
  };
  const shown = `${scheme.toLowerCase()}://${read.username === "" ? "" : `${read.username}@`}${read.hostname}:${address.port}`;
  if (kind === "redis") {
    if (read.search !== "")
      throw new UsageError("an address of Redis takes no parameters", "rediss:// connects with TLS");
    if (!/^\d*$/.test(path))
      throw new UsageError("the database of Redis is not a number", "redis://host:6379/3 takes the one with number 3");
    const database = String(Number(path));
    return { ...address, tls, database, text: database === "0" ? shown : `${shown}/${database}` };
  }
  if (path === "") throw new UsageError("the address names no database", "write postgresql://user@host:5432/database");
  return { ...address, tls: sslMode(read.searchParams), database: path, text: `${shown}/${read.pathname.slice(1)}` };
}

function sslMode(parameters: URLSearchParams): Address["tls"] {
  const modes = Object.keys(SSL_MODES).join(", ");
  if ([...parameters.keys()].some((name) => name !== "sslmode"))
    throw new UsageError("the address has a parameter that is not read", `sslmode is read: ${modes}`);
  const mode = parameters.get("sslmode") ?? "disable";
  const tls = entryOf(SSL_MODES, mode);
  if (tls === undefined) throw new UsageError("the address has a sslmode that is not known", `known: ${modes}`);
  return tls;
}

/** A part of a URL without percent codes; undefined when the codes are none. */
function decoded(part = ""): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

/** @throws UsageError when both variables are set, or the file cannot be read */
function passwordIn(environment: NodeJS.ProcessEnv): Password | undefined {
  const text = environment["AUTOMAP_FLEET_PASSWORD"] ?? "";
  const file = environment["AUTOMAP_FLEET_PASSWORD_FILE"] ?? "";
  if (text !== "" && file !== "")
    throw new UsageError("AUTOMAP_FLEET_PASSWORD and AUTOMAP_FLEET_PASSWORD_FILE are both set", "set one of them");
  if (file === "") return text === "" ? undefined : new Password(text);
  try {
    return new Password(readFileSync(file, "utf8").replace(/\r?\n$/, ""));
  } catch (error) {
    throw unreadable(`AUTOMAP_FLEET_PASSWORD_FILE ${file} cannot be read: ${reasonOf(error)}`, error);
  }
}
