/**
 * @file Which records a machine may trust. A measurement is valid in the world it was made in; a record of another world is stale here.
 *
 *     exact   every field of the environment agrees, and the instruction is declared as it was
 *     isa     the features agree, and the declaration; compiler, kernel and the rest may differ
 *     any     everything is taken
 *
 *     differencesOf(trial, { environment, intrinsics })     [{ field: "kernel", recorded: "Linux 6.1", here: "Linux 6.12" }]
 */

import { withName } from "../abstraction/collections.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { COLUMNS } from "./columns.ts";
import { declarationHash } from "./identity.ts";
import type { Database } from "./open.ts";
import { type Environment, NO_NODE, type TrialRecord } from "./record.ts";
import { environmentOf, environmentRowOf } from "./rows.ts";

/** A field of an environment: its columns in the database. */
export type EnvironmentField = keyof typeof COLUMNS.environments;
/** Fields of an environment that can be required to agree. */
export const ENVIRONMENT_FIELDS = Object.keys(COLUMNS.environments) as readonly EnvironmentField[]; // its own keys

/** Whose records are trusted: those of this exact environment, of any CPU with the same features, or all. */
export const POLICIES = ["exact", "isa", "any"] as const;
/** How much of a record's world has to agree with this one. */
export type Policy = (typeof POLICIES)[number];

/** Fields that must agree under each policy. The declaration must agree too, except under `any`. */
const MUST_AGREE: Readonly<Record<Policy, readonly EnvironmentField[]>> = {
  exact: ENVIRONMENT_FIELDS,
  isa: ["isa"],
  any: [],
};

/** The world in which records are to be used. */
export interface World {
  /** The machine, its compiler and its system. */
  readonly environment: Environment;
  /** GPUs of this machine, with which records from GPUs are compared. */
  readonly devices?: readonly Environment[] | undefined;
  /** Instructions as declared now, or what finds one by its name. Left out, declarations are not compared. */
  readonly intrinsics?: readonly Intrinsic[] | ((name: string) => Intrinsic | undefined);
}

/** The world in which records are to be used, and how much of it must agree. */
export interface Trust extends World {
  /** How much must agree. */
  readonly policy: Policy;
}

/** A field in which a record's world differs from this one. */
export interface Difference {
  /** Its name. */
  readonly field: EnvironmentField | "declaration";
  /** Undefined for a field that the record lacks. */
  readonly recorded: string | undefined;
  /** Undefined for a field that this world lacks. */
  readonly here: string | undefined;
}

/** All fields in which a record's world differs from this one; empty for a trusted record. */
export function differencesOf(
  trial: Pick<TrialRecord, "environment" | "intrinsic" | "declaration">,
  world: World,
): Difference[] {
  const { intrinsics } = world;
  const found: Difference[] = environmentDifferences(trial.environment, hereOf(trial.environment, world));
  const { declaration, intrinsic } = trial;
  if (intrinsics === undefined || declaration === undefined) return found;
  const hash = declarationHere(intrinsics, intrinsic);
  if (hash !== declaration) found.push({ field: "declaration", recorded: declaration, here: hash });
  return found;
}

/** The hash of an instruction's declaration in this world; undefined where it has none of that name. */
function declarationHere(intrinsics: NonNullable<World["intrinsics"]>, name: string): string | undefined {
  const here = typeof intrinsics === "function" ? intrinsics(name) : withName(intrinsics, name);
  return here && declarationHash(here);
}

/** The environment with which a record is compared: for a GPU's record the GPU here, if there is one. */
function hereOf({ driver, cpu }: Environment, { environment, devices = [] }: World): Environment {
  const device = devices.find((d) => d.cpu === cpu) ?? devices[0];
  return driver === undefined || !device ? environment : device;
}

/** The fields in which two environments differ. What was measured without Node differs from nothing by its Node. */
export function environmentDifferences(there: Environment, here: Environment): Difference[] {
  const recorded = environmentRowOf(there);
  const now = environmentRowOf(here);
  const compared = [there.node, here.node].includes(NO_NODE)
    ? ENVIRONMENT_FIELDS.filter((field) => field !== "node")
    : ENVIRONMENT_FIELDS;
  return compared
    .filter((field) => recorded[field] !== now[field])
    .map((field) => ({
      field,
      recorded: textOf(recorded[field]),
      here: textOf(now[field]),
    }));
}

/** A condition in SQL and the values of its placeholders. */
export interface Condition {
  readonly sql: string;
  readonly values: readonly (string | number | null)[];
}

/** Conditions on a row of `trials` for what the policy trusts, to be combined with "and"; undefined when it trusts everything. */
export function trustedBy(
  db: Database,
  trust: Trust,
): { readonly world?: Condition; readonly declared?: Condition } | undefined {
  const { policy, intrinsics } = trust;
  if (policy === "any") return undefined;
  const fields: readonly string[] = MUST_AGREE[policy];
  const all = db.sqlite
    .prepare("SELECT * FROM environments")
    .all()
    .map((row) => environmentOf(row, db.path));
  const trusted = all.filter((there) =>
    environmentDifferences(there, hereOf(there, trust)).every((d) => !fields.includes(d.field)),
  );
  const changed =
    intrinsics === undefined
      ? []
      : declarationsIn(db).filter(([name, declaration]) => declarationHere(intrinsics, name) !== declaration);
  // Conditions that hold for every row are left out.
  return {
    ...(trusted.length === all.length
      ? {}
      : {
          world: {
            sql: "environment IN (SELECT value FROM json_each(?))",
            values: [JSON.stringify(trusted.map((e) => e.id))],
          },
        }),
    ...(changed.length === 0
      ? {}
      : { declared: { sql: `(declaration IS NULL OR NOT ${DECLARED})`, values: [JSON.stringify(changed)] } }),
  };
}

/** Pairs of instruction and declaration that occur in trials; each takes one index step. */
function declarationsIn(db: Database): [name: string, declaration: string][] {
  const nextName = db.sqlite.prepare("SELECT min(intrinsic) FROM trials WHERE intrinsic > ?").pluck();
  const next = db.sqlite.prepare("SELECT min(declaration) FROM trials WHERE intrinsic = ? AND declaration > ?").pluck();
  const found: [string, string][] = [];
  for (let name = nextName.get(""); typeof name === "string"; name = nextName.get(name))
    for (let hash = next.get(name, ""); typeof hash === "string"; hash = next.get(name, hash)) found.push([name, hash]);
  return found;
}

/** The condition that an instruction's declaration is unchanged; {@link declarationsOf} supplies its value. */
export const DECLARED = "(intrinsic, declaration) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))";

export function declarationsOf(intrinsics: readonly Intrinsic[]): string {
  return JSON.stringify(intrinsics.map((i) => [i.name, declarationHash(i)]));
}

function textOf(value: string | number | null | undefined): string | undefined {
  return value === null || value === undefined ? undefined : String(value);
}
