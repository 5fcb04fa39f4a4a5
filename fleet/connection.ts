/**
 * @file Connections to a fleet's server: the packages that make them, and what their errors mean in a user's words.
 *
 *     connectionProblem(address, error)     why: "it refuses the password", remedy: "set AUTOMAP_FLEET_PASSWORD, ..."
 */

import { setTimeout } from "node:timers/promises";
import { EnvironmentError, type EnvironmentProblem } from "../abstraction/error.ts";
import type { Address } from "./address.ts";

/** Loads a package that is installed only where there is a fleet. @throws EnvironmentError when it is not */
export async function driver<T>(load: () => Promise<T>, ...packages: readonly string[]): Promise<T> {
  try {
    return await load();
  } catch (error) {
    const names = packages.join(" and ");
    throw new EnvironmentError(
      {
        what: `${names} cannot be loaded`,
        why: "automap speaks to a fleet's server through these packages, and installs without them",
        remedy: `npm install ${packages.join(" ")}, with -g where automap was installed with it`,
      },
      error,
    );
  }
}

/** What work gives, unless the server keeps it waiting for so many milliseconds. @throws EnvironmentError in the user's words */
export async function within<T>(address: Address, patience: number, work: Promise<T>): Promise<T> {
  const timer = new AbortController();
  try {
    const late = setTimeout(patience, undefined, { signal: timer.signal }).then(() => {
      throw Object.assign(new Error("no answer"), { code: "ETIMEDOUT" });
    });
    return await Promise.race([work, late]);
  } catch (error) {
    if (error instanceof EnvironmentError) throw error;
    // Not as its cause: drivers put the command with the password into their errors.
    throw new EnvironmentError(connectionProblem(address, error));
  } finally {
    timer.abort();
  }
}

/**
 * Compares the clock of this machine with that of the server.
 * @param there what the server says, in milliseconds since 1970
 * @param asked when it was asked, by the clock here
 * @param most milliseconds by which they may differ
 * @throws EnvironmentError when they differ by more
 */
export function checkClocks(address: Address, there: number, asked: number, most: number): void {
  const ahead = asked - there;
  // The answer was under way for some time.
  const behind = there - Date.now();
  const off = Math.max(ahead, behind);
  if (off <= most) return;
  throw new EnvironmentError({
    what: `the clock of this machine is ${Math.round(off / 1000)} s ${ahead > behind ? "ahead of" : "behind"} that of the fleet's server ${address.text}`,
    why: "how long jobs, answers and locks last is counted by these clocks",
    remedy: "set it, for example with timedatectl set-ntp true, or that of the server",
  });
}

interface Trouble {
  /** Looked for in the code and the message of a driver's error. */
  readonly sign: RegExp;
  readonly why: (address: Address, message: string, isOpen: boolean) => string;
  readonly remedy: (address: Address) => string;
}

const nameOf = ({ kind }: Address): string => (kind === "redis" ? "Redis" : "PostgreSQL");
const CHECK_ADDRESS = "check its address, and that the server runs and can be reached from here";

/** What errors of ioredis, pg, OpenSSL and the network mean; the first that fits counts. */
const TROUBLES: readonly Trouble[] = [
  { sign: /ECONNREFUSED/, why: () => "nothing listens there", remedy: () => CHECK_ADDRESS },
  { sign: /max retries per request/i, why: () => "the connection is lost", remedy: () => CHECK_ADDRESS },
  { sign: /ENOTFOUND|EAI_AGAIN/, why: () => "there is no host of this name", remedy: () => CHECK_ADDRESS },
  {
    sign: /EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL|EACCES/,
    why: () => "there is no way to this host",
    remedy: () => CHECK_ADDRESS,
  },
  {
    sign: /NOAUTH|WRONGPASS|28P01|28000|password must be a string|no password supplied|AUTH failed/,
    why: ({ password, user }) =>
      password === undefined
        ? "it asks for a password, and none is set"
        : `it refuses the password${user === undefined ? "" : " of this user"}`,
    remedy: () => "set AUTOMAP_FLEET_PASSWORD, or AUTOMAP_FLEET_PASSWORD_FILE to the name of a file that holds it",
  },
  {
    sign: /NOPERM|42501/,
    why: () => "it does not permit this user to do what a fleet needs",
    remedy: ({ kind }) =>
      kind === "redis"
        ? "give the user all commands on the keys automap:*"
        : "let the user create a schema in the database",
  },
  {
    sign: /does not support SSL|WRONG_VERSION_NUMBER|EPROTO/,
    why: () => "the address asks for TLS, and the server does not speak it",
    remedy: ({ kind }) =>
      kind === "redis" ? "write redis:// if no TLS is wanted" : "leave out sslmode if no TLS is wanted",
  },
  {
    sign: /CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS/,
    why: (_, message) => `its certificate is not trusted (${message})`,
    remedy: () => "name the file of its certificate authority in NODE_EXTRA_CA_CERTS",
  },
  {
    sign: /DB index|3D000/,
    why: () => "it has no such database",
    remedy: ({ kind }) => (kind === "redis" ? "name another number, or none" : "create it (createdb), or name another"),
  },
  {
    sign: /\bOOM\b|53100|53200/,
    why: () => "its memory or its disk is full",
    remedy: () => "give it more, or let what it holds expire",
  },
  {
    sign: /LOADING|57P03|BUSY /,
    why: () => "it has just started, and is not ready yet",
    remedy: () => "try again in a moment",
  },
  {
    sign: /ETIMEDOUT|no answer|timeout/i,
    why: (address) =>
      `it does not answer${address.tls === "none" ? "" : " in TLS"}, as a server does that is no ${nameOf(address)} or is behind a firewall`,
    remedy: ({ tls }) => (tls === "none" ? CHECK_ADDRESS : `${CHECK_ADDRESS}, and that it speaks TLS`),
  },
  {
    sign: /RESP type|Protocol error|ECONNRESET|EPIPE|57P0|closed|terminat|unexpected message/i,
    why: (address, _, isOpen) =>
      isOpen ? "the connection is lost" : `what answers there does not speak as ${nameOf(address)} does`,
    remedy: () => "check the port, and whether the server asks for TLS",
  },
];

/**
 * A driver's error in the user's words. Where it is not known its own text is shown, in which drivers name no passwords.
 * @param isOpen whether the connection was open before
 */
export function connectionProblem(
  address: Address,
  error: unknown,
  isOpen = false,
): Omit<EnvironmentProblem, "status"> {
  const message = error instanceof Error ? error.message.trim() : String(error);
  const code = error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
  const told = `${code} ${message}`;
  const trouble = TROUBLES.find(({ sign }) => sign.test(told));
  return {
    what: `no connection to the fleet's server ${address.text}`,
    why: trouble?.why(address, message, isOpen) ?? `it says: ${message}`,
    remedy: trouble?.remedy(address) ?? CHECK_ADDRESS,
  };
}
