/**
 * @file Messages of a fleet: a kind, a body of JSON, the certificate of the member that says it, and that member's signature.
 *
 *     sign(tuner, "measure", { kernel: "77d0..." })
 *     verified(fleet, job.data, { kind: "measure", role: "tuner" }).body        { kernel: "77d0..." }
 *
 * The signature covers the fleet, the kind and the body. A message counts for nothing else, but it can be repeated: what it answers (a job, a
 * question, a time) belongs into its body. Sizes are looked at before a signature is, and the signature before the body is parsed.
 */

import { z } from "zod";
import { internal } from "../abstraction/error.ts";
import {
  type Certificate,
  certificateProblem,
  certificateSchema,
  type Fleet,
  isSigned,
  type Member,
  type Role,
  signature64,
} from "./members.ts";

/** A message as it is sent: plain data. */
export interface Signed {
  readonly kind: string;
  /** JSON text. */
  readonly body: string;
  readonly by: Certificate;
  readonly signature: string;
}

/** Why a message, or content by its hash, is not believed: one sentence. */
export class FleetRefusal extends Error {
  constructor(message: string) {
    super(message);
    this.name = "FleetRefusal";
  }
}

/** Characters of a body. Kernels and binaries travel by hash; the largest body is a measurement with its samples and its log. */
export const LONGEST_BODY = 2 ** 20;
/** How deep lists and objects may lie within one another: deeper data would exhaust the stack of whatever walks it. */
const DEEPEST = 64;

const signedSchema = z.strictObject({
  kind: z.string().max(64),
  body: z.string().max(LONGEST_BODY),
  by: certificateSchema,
  signature: z.string().regex(/^[\w-]{86}$/),
}) satisfies z.ZodType<Signed>;

/** Signs plain data as a message of a kind. */
export function sign(member: Member, kind: string, body: unknown): Signed {
  const text = JSON.stringify(body ?? null);
  const problem = textProblem(text, LONGEST_BODY);
  if (problem !== undefined) internal(`a message of kind ${kind} ${problem}`);
  const signature = signature64(messageText(member.fleet, kind, text), member.privateKey);
  return { kind, body: text, by: member.certificate, signature };
}

/**
 * The body of a message and who says it. The body is plain data whose shape is still to be checked.
 * @param signed what came from the server, which may hold anything
 * @throws FleetRefusal unless a member of the fleet with that role signed it as a message of that kind
 */
export function verified(
  fleet: Fleet,
  signed: unknown,
  expected: { readonly kind: string; readonly role: Role },
): { readonly body: unknown; readonly by: Certificate } {
  const refuse = (why: string): never => {
    throw new FleetRefusal(`a message is refused (${expected.kind} of a ${expected.role} is expected): ${why}`);
  };
  const { data } = signedSchema.safeParse(signed);
  if (data === undefined) return refuse("it is not signed, or not a message of a fleet");
  const { kind, body, by, signature } = data;
  if (kind !== expected.kind) return refuse(`it is of kind ${JSON.stringify(kind)}`);
  const stranger = certificateProblem(fleet, by);
  if (stranger !== undefined) return refuse(stranger);
  if (by.role !== expected.role) return refuse(`${by.name} is a ${by.role}`);
  if (!isSigned(messageText(fleet, kind, body), signature, by.publicKey))
    return refuse(`the signature is not that of ${by.name} on this text`);
  return { body: parsedJson(body, LONGEST_BODY, (why) => refuse(`its body ${why}`)), by };
}

/** The JSON of a text from the server. @throws FleetRefusal when it is none, too long or too deep */
export function readSigned(text: string): unknown {
  return parsedJson(text, 2 * LONGEST_BODY, (why) => {
    throw new FleetRefusal(`a text on the server is refused: it ${why}`);
  });
}

function parsedJson(text: string, longest: number, refuse: (why: string) => never): unknown {
  const problem = textProblem(text, longest);
  if (problem !== undefined) return refuse(problem);
  try {
    return JSON.parse(text);
  } catch {
    return refuse("is not JSON");
  }
}

function textProblem(text: string, longest: number): string | undefined {
  if (text.length > longest) return `has ${text.length} characters, ${longest} at most are read`;
  return isDeep(text) ? `holds lists or objects deeper than ${DEEPEST}` : undefined;
}

/** Whether brackets outside strings of a JSON text lie too deep within one another. The text is not parsed for that. */
function isDeep(text: string): boolean {
  let depth = 0;
  let isString = false;
  for (let i = 0; i < text.length; i++) {
    const character = text[i];
    if (isString && character === "\\") i++;
    else if (character === '"') isString = !isString;
    else if (!isString && (character === "[" || character === "{")) depth++;
    else if (!isString && (character === "]" || character === "}")) depth--;
    if (depth > DEEPEST) return true;
  }
  return false;
}

/** What is signed; a list of JSON has one reading. */
function messageText(fleet: Fleet, kind: string, body: string): string {
  return JSON.stringify(["automap fleet message", fleet.id, kind, body]);
}
