/**
 * @file Who belongs to a fleet. A fleet is a pair of Ed25519 keys, its root, kept in one folder. The root signs a certificate for each member: a
 * name, a role and a public key. A member's file holds its certificate, its private key and the public key of the root, by which it recognises
 * the others without asking anybody.
 *
 *     createFleet("fleet")                      fleet/root.key, fleet/fleet.json
 *     admit("fleet", "node3", "worker")         fleet/node3.key, fleet/members/node3.json
 *     expel("fleet", "node3")                   fleet/expelled.json
 *     readMember("node3.key")
 *
 * The server through which members speak knows none of these keys.
 */

import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
  verify,
} from "node:crypto";
import {
  closeSync,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { z } from "zod";
import {
  attempt,
  automapCommand,
  EnvironmentError,
  isAbsent,
  quotedWords,
  reasonOf,
  remedyOf,
  UsageError,
  unreadable,
} from "../abstraction/error.ts";

/** What a member may do: a tuner sends jobs, a worker answers them. */
export type Role = "tuner" | "worker";
export const ROLES = ["tuner", "worker"] as const satisfies readonly Role[];

/** What every member knows of its fleet. */
export interface Fleet {
  /** The hash of the root's public key, 32 hexadecimal digits. */
  readonly id: string;
  /** The root's public key, base64url. */
  readonly publicKey: string;
  /** Public keys of members that were expelled, as far as is known here now. */
  readonly expelled: Pick<ReadonlySet<string>, "has">;
}

/** What the root says of a member. It is public. */
export interface Certificate {
  readonly fleet: string;
  /** Unique in the fleet, also after its member was expelled: records name workers by it. */
  readonly name: string;
  readonly role: Role;
  readonly publicKey: string;
  /** By the root. */
  readonly signature: string;
}

/** A member that can sign. */
export interface Member {
  readonly fleet: Fleet;
  readonly certificate: Certificate;
  readonly privateKey: KeyObject;
}

/** Names are parts of file names and of keys on the server. */
const MEMBER_NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
/** Bytes of a key file, far more than one has. */
const LONGEST_FILE = 2 ** 20;

const key = z.string().regex(/^[\w-]{43}$/);
const signature = z.string().regex(/^[\w-]{86}$/);
const fleetId = z.string().regex(/^[0-9a-f]{32}$/);

/** The shape of a certificate; whether the root signed it is asked of {@link certificateProblem}. */
export const certificateSchema = z.strictObject({
  fleet: fleetId,
  name: z.string().regex(MEMBER_NAME),
  role: z.enum(ROLES),
  publicKey: key,
  signature,
}) satisfies z.ZodType<Certificate>;

const fleetSchema = z.strictObject({ id: fleetId, publicKey: key });
const rootSchema = z.strictObject({ fleet: fleetSchema, privateKey: key });
const memberSchema = z.strictObject({ fleet: fleetSchema, certificate: certificateSchema, privateKey: key });
const expelledSchema = z.strictObject({
  fleet: fleetId,
  members: z.array(z.strictObject({ name: z.string().regex(MEMBER_NAME), publicKey: key })),
  signature,
});

/** The files of a fleet's folder besides those of its members. */
const ROOT = "root.key";
const PUBLIC = "fleet.json";
const EXPELLED = "expelled.json";

/**
 * Makes a fleet: its root key, which only the owner may read, and what is public of it.
 * @throws UsageError when the folder holds a fleet already
 */
export function createFleet(folder: string): Fleet {
  if (existsSync(join(folder, ROOT)))
    throw new UsageError(
      `${folder} holds a fleet already: a new root would make all its members strangers`,
      "name another folder",
    );
  const { privateKey, publicKey } = newKeys();
  const fleet = { id: idOf(publicKey), publicKey };
  writeNew(join(folder, ROOT), { fleet, privateKey });
  writeNew(join(folder, PUBLIC), fleet, 0o644);
  return { ...fleet, expelled: new Set() };
}

/**
 * Admits a member, and writes its key file into the fleet's folder, from where it is moved to the member's machine.
 * @returns the path of the key file
 * @throws UsageError for a name that cannot be one or was given before
 */
export function admit(folder: string, name: string, role: Role): string {
  const root = readRoot(folder);
  checkName(name);
  const file = join(folder, `${name}.key`);
  const record = recordOf(folder, name);
  if (existsSync(record) || existsSync(file))
    throw new UsageError(`"${name}" was admitted before, and records name members by it`, "take another name");
  const { privateKey, publicKey } = newKeys();
  const said = { fleet: root.fleet.id, name, role, publicKey };
  const certificate = { ...said, signature: signature64(certificateText(said), root.key) };
  writeNew(file, { fleet: root.fleet, certificate, privateKey });
  writeNew(record, certificate, 0o644);
  return file;
}

/**
 * Expels a member: its name goes into a list that the root signs. Members that have the list beside their key files take nothing from it.
 * @returns the path of the list
 * @throws NotFoundError when nobody of that name was admitted
 */
export function expel(folder: string, name: string): string {
  const root = readRoot(folder);
  checkName(name);
  const file = recordOf(folder, name);
  const certificate = parsed(
    file,
    readText(file, `nobody named "${name}" was admitted to ${folder}`),
    certificateSchema,
    "the certificate of a member",
  );
  const list = join(folder, EXPELLED);
  const before = existsSync(list) ? expelledIn(list, root.fleet).members : [];
  const { publicKey } = certificate;
  const members = [...before.filter((member) => member.publicKey !== publicKey), { name, publicKey }];
  const said = { fleet: root.fleet.id, members };
  const draft = `${list}.${process.pid}.part`;
  writeNew(draft, { ...said, signature: signature64(expelledText(said), root.key) }, 0o644);
  renameSync(draft, list);
  return list;
}

/** The command that makes the key of such a member. */
export const commandToAdmit = (role: Role): string => automapCommand("fleet", "admit", "DIR", "NAME", "--role", role);

/**
 * Reads a member's key file, and the list of the expelled where it lies beside it. The list is read again when it has changed.
 * @param wanted whose key is looked for, as the error says where there is none; a worker by default
 * @throws UsageError when the file is no key, can be read by others, or was not made by the root that it names; NotFoundError when it is not there
 */
export function readMember(file: string, wanted: Role = "worker"): Member {
  const text = readText(file, `there is no key ${file}`, commandToAdmit(wanted), true);
  const { fleet, certificate, privateKey } = parsed(file, text, memberSchema, "the key of a member");
  const known: Fleet = { ...fleet, expelled: new ExpelledList(join(dirname(file), EXPELLED), fleet) };
  const own = keyOf(privateKey, certificate.publicKey);
  const problem = idOf(fleet.publicKey) === fleet.id ? certificateProblem(known, certificate) : "it names a wrong root";
  if (own === undefined || problem !== undefined)
    throw new UsageError(
      `${file} is refused: ${problem ?? "its private key is not that of its certificate"}`,
      "ask for a new key of the fleet",
    );
  return { fleet: known, certificate, privateKey: own };
}

/** The expelled as a file names them, which may come, and change. Whoever was named once stays expelled. */
class ExpelledList {
  private readonly file: string;
  private readonly fleet: Omit<Fleet, "expelled">;
  private readonly keys = new Set<string>();
  /** What tells the file as it was read last from others. */
  private version: string | undefined;

  /** @throws UsageError when the file is there and not signed by the fleet's root */
  constructor(file: string, fleet: Omit<Fleet, "expelled">) {
    this.file = file;
    this.fleet = fleet;
    this.read();
  }

  has(publicKey: string): boolean {
    // It may be half copied. If it stays so, the next start refuses it.
    attempt(() => this.read());
    return this.keys.has(publicKey);
  }

  private read(): void {
    const found = existsSync(this.file) && statSync(this.file, { throwIfNoEntry: false });
    if (!found) return;
    const version = [found.ino, found.size, found.mtimeMs].join();
    if (version === this.version) return;
    this.version = version;
    for (const { publicKey } of expelledIn(this.file, this.fleet).members) this.keys.add(publicKey);
  }
}

/** Why a certificate is not that of a member of the fleet, or undefined. */
export function certificateProblem(fleet: Fleet, certificate: Certificate): string | undefined {
  const { name } = certificate;
  if (certificate.fleet !== fleet.id) return `${name} belongs to another fleet`;
  if (!isSigned(certificateText(certificate), certificate.signature, fleet.publicKey))
    return `the certificate of ${name} is not signed by the fleet's root`;
  return fleet.expelled.has(certificate.publicKey) ? `${name} was expelled from the fleet` : undefined;
}

/** A signature in base64url. */
export function signature64(text: string, by: KeyObject): string {
  return sign(undefined, Buffer.from(text), by).toString("base64url");
}

/** Whether the holder of a public key signed a text. */
export function isSigned(text: string, signed: string, publicKey: string): boolean {
  const by = createPublicKey({ format: "jwk", key: { kty: "OKP", crv: "Ed25519", x: publicKey } });
  return verify(undefined, Buffer.from(text), by, Buffer.from(signed, "base64url"));
}

// What is signed begins with what it is, so that no signature counts for anything else; a list of JSON has one reading.

function certificateText({ fleet, name, role, publicKey }: Omit<Certificate, "signature">): string {
  return JSON.stringify(["automap fleet certificate", fleet, name, role, publicKey]);
}

function expelledText({ fleet, members }: Omit<z.infer<typeof expelledSchema>, "signature">): string {
  return JSON.stringify(["automap fleet expelled", fleet, members.map(({ name, publicKey }) => [name, publicKey])]);
}

const recordOf = (folder: string, name: string): string => join(folder, "members", `${name}.json`);

function checkName(name: string): void {
  if (MEMBER_NAME.test(name)) return;
  throw new UsageError(
    `a member cannot be named ${JSON.stringify(name)}`,
    "a name has small letters, digits, dots, underscores and hyphens, begins with a letter or a digit, and has 63 characters at most",
  );
}

/** A new pair of keys, both as 32 bytes in base64url (RFC 8037). */
function newKeys(): { readonly privateKey: string; readonly publicKey: string } {
  const { x = "", d = "" } = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  return { privateKey: d, publicKey: x };
}

/** A private key, if it is the one of that public key. */
function keyOf(privateKey: string, publicKey: string): KeyObject | undefined {
  const made = createPrivateKey({ format: "jwk", key: { kty: "OKP", crv: "Ed25519", d: privateKey, x: publicKey } });
  return createPublicKey(made).export({ format: "jwk" }).x === publicKey ? made : undefined;
}

function idOf(publicKey: string): string {
  return createHash("sha256")
    .update(JSON.stringify(["automap fleet", publicKey]))
    .digest("hex")
    .slice(0, 32);
}

function readRoot(folder: string): { readonly fleet: z.infer<typeof fleetSchema>; readonly key: KeyObject } {
  const file = join(folder, ROOT);
  const text = readText(file, `${folder} holds no fleet`, automapCommand("fleet", "init", folder), true);
  const { fleet, privateKey } = parsed(file, text, rootSchema, "the root's key of a fleet");
  const root = keyOf(privateKey, fleet.publicKey);
  if (root !== undefined && idOf(fleet.publicKey) === fleet.id) return { fleet, key: root };
  throw new UsageError(`${file} is refused: its keys do not belong together`, "restore it from a copy");
}

/** @throws UsageError when the list is not one that the fleet's root signed: whoever broke it may want somebody back */
function expelledIn(file: string, fleet: Omit<Fleet, "expelled">): z.infer<typeof expelledSchema> {
  const list = parsed(file, readText(file, `no list ${file}`), expelledSchema, "a list of expelled members");
  if (list.fleet === fleet.id && isSigned(expelledText(list), list.signature, fleet.publicKey)) return list;
  throw new UsageError(
    `${file} is refused: it is not signed by the fleet's root`,
    "copy it again from the folder of the fleet",
  );
}

/**
 * The text of a small file.
 * @param absent what is said when it is not there
 * @param secret whether only its owner may be able to read it
 */
function readText(file: string, absent: string, hint?: string, secret = false): string {
  let handle: number;
  try {
    handle = openSync(file, "r");
  } catch (error) {
    throw unreadable(isAbsent(error) ? absent : `${absent}: ${reasonOf(error)}`, error, hint);
  }
  try {
    const { mode, size } = fstatSync(handle);
    if (secret && process.platform !== "win32" && (mode & 0o077) !== 0)
      throw new UsageError(
        `${file} can be read or written by others (mode 0${(mode & 0o777).toString(8)}), and whoever has it is that member`,
        quotedWords("chmod", "600", file),
      );
    if (size > LONGEST_FILE) throw new UsageError(`${file} is too long for a file of a fleet`);
    return readFileSync(handle, "utf8");
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw unreadable(`${file} cannot be read: ${reasonOf(error)}`, error);
  } finally {
    closeSync(handle);
  }
}

/** @param what the file holds, as the error says where it does not */
function parsed<T>(file: string, text: string, schema: z.ZodType<T>, what: string): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    // What is wrong with it is not said: it may hold a key.
    throw new UsageError(`${file} does not hold ${what}`, "name another file, or restore this one from a copy");
  }
}

/** Writes a file that is not there yet, by default one that only its owner reads. @throws EnvironmentError when it cannot be written */
function writeNew(file: string, content: unknown, mode = 0o600): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(file, `${JSON.stringify(content, undefined, 2)}\n`, { flag: "wx", mode, flush: true });
  } catch (error) {
    const what = `${file} cannot be written: ${reasonOf(error)}`;
    throw new EnvironmentError({ what, why: "the fleet keeps its keys there", remedy: remedyOf(error) }, error);
  }
}
