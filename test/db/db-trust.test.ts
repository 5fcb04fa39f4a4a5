/** @file When a record is trusted: differing environments, changed declarations. */

import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { declarationHash } from "../../db/identity.ts";
import {
  best,
  countTrials,
  type Database,
  type Difference,
  differencesOf,
  ENVIRONMENT_FIELDS,
  type Environment,
  POLICIES,
  type Policy,
  queryTrials,
  recordTrial,
  showTrial,
  type World,
} from "../../db/index.ts";
import { NO_NODE } from "../../db/record.ts";
import { INTRINSICS, intrinsicNamed } from "../../intrinsics/index.ts";
import { eachWorkshop, MACHINE, measured, newTrial, trial, VNNI } from "../support/database.ts";

const shop = eachWorkshop();
let db: Database;
beforeEach(() => {
  db = shop.open("automap.db");
});

const HERE: World = { environment: MACHINE, intrinsics: INTRINSICS };

/** A machine that differs in one field. */
const OTHER: Readonly<Record<(typeof ENVIRONMENT_FIELDS)[number], Environment>> = {
  target: { ...MACHINE, target: "h200" },
  cpu: { ...MACHINE, cpu: "Testium 9001" },
  cores: { ...MACHINE, cores: 4 },
  isa: { ...MACHINE, isa: ["avx2"] },
  compiler: { ...MACHINE, compiler: { ...MACHINE.compiler, path: "/opt/g++" } },
  compiler_version: { ...MACHINE, compiler: { ...MACHINE.compiler, version: "13.1.0" } },
  flags: { ...MACHINE, compiler: { ...MACHINE.compiler, flags: ["-O2"] } },
  kernel: { ...MACHINE, kernel: "Linux 6.12.0 x64" },
  driver: { ...MACHINE, driver: "550.54" },
  node: { ...MACHINE, node: "v22.1.0" },
  automap: { ...MACHINE, automap: "0.2.0" },
};

describe("a record of another environment", () => {
  it("that had no Node does not differ by that, as one of a batch", () => {
    const id = recordTrial(db, newTrial(10, { environment: { ...MACHINE, node: NO_NODE } }));
    expect(differencesOf(showTrial(db, id), HERE)).toEqual([]);
    expect(best(db, { trusted: { ...HERE, policy: "exact" } })).toMatchObject([{ id }]);
  });

  it.each(ENVIRONMENT_FIELDS)("differs in %s, and is not used under the policy exact", (field) => {
    const id = recordTrial(db, newTrial(10, { environment: OTHER[field] }));
    const own = recordTrial(db, newTrial(60));
    expect(differencesOf(showTrial(db, id), HERE).map((d) => d.field)).toEqual([field]);
    expect(differencesOf(showTrial(db, own), HERE)).toEqual([]);
    const used = (policy: Policy): string[] => best(db, { trusted: { ...HERE, policy } }).map((t) => t.id);
    expect(used("exact")).toEqual([own]);
    expect(used("isa")).toEqual(field === "isa" ? [own] : [id, own]);
    expect(used("any")).toEqual([id, own]);
    expect(queryTrials(db, { stale: { ...HERE, policy: "exact" } }).map((t) => t.id)).toEqual([id]);
  });

  it("is described with the recorded value and the one here", () => {
    const { driver: _, ...bare } = OTHER.driver;
    const found = showTrial(
      db,
      recordTrial(db, newTrial(10, { environment: { ...bare, node: "v18.0.0", driver: "1" } })),
    );
    expect(differencesOf(found, HERE)).toEqual<Difference[]>([
      { field: "driver", recorded: "1", here: undefined },
      { field: "node", recorded: "v18.0.0", here: "v20.20.2" },
    ]);
  });

  it("whose instruction has changed its declaration is used only under the policy any", () => {
    if (VNNI === undefined) throw new Error("the table lacks avx512.vpdpbusd");
    const older = { ...VNNI, declaration: { ...VNNI.declaration, summary: "as it was" } };
    const id = recordTrial(db, newTrial(10, { intrinsic: older }));
    const own = recordTrial(db, newTrial(60));
    expect(differencesOf(showTrial(db, id), HERE).map((d) => d.field)).toEqual(["declaration"]);
    const used = (policy: Policy): string[] => best(db, { trusted: { ...HERE, policy } }).map((t) => t.id);
    expect([used("exact"), used("isa"), used("any")]).toEqual([[own], [own], [id]]);
    // By name, as commands do, which build no more declarations than records ask for.
    const named: World = { environment: MACHINE, intrinsics: intrinsicNamed };
    expect(differencesOf(showTrial(db, id), named)).toEqual(differencesOf(showTrial(db, id), HERE));
    expect(best(db, { trusted: { ...named, policy: "isa" } }).map((t) => t.id)).toEqual([own]);
    const gone: World = { environment: MACHINE, intrinsics: [] };
    expect(differencesOf(showTrial(db, own), gone)).toMatchObject([{ field: "declaration", here: undefined }]);
  });

  it.each(POLICIES)("is either trusted or stale under %s, never both", (policy) => {
    for (const [i, environment] of Object.values(OTHER).entries()) recordTrial(db, newTrial(10 + i, { environment }));
    recordTrial(db, newTrial(60));
    const trust = { ...HERE, policy };
    const [trusted, stale] = [countTrials(db, { trusted: trust }), countTrials(db, { stale: trust })];
    expect(trusted + stale).toBe(ENVIRONMENT_FIELDS.length + 1);
    expect(trusted).toBe({ exact: 1, isa: ENVIRONMENT_FIELDS.length, any: ENVIRONMENT_FIELDS.length + 1 }[policy]);
    const limited = { trusted: trust, limit: 3 };
    expect(queryTrials(db, limited).map((t) => t.id)).toEqual(
      queryTrials(db, { trusted: trust })
        .slice(0, 3)
        .map((t) => t.id),
    );
  });
});

describe("a declaration's hash", () => {
  const changed = (changes: object): Intrinsic => {
    if (VNNI === undefined) throw new Error("the table lacks avx512.vpdpbusd");
    return { ...VNNI, declaration: { ...VNNI.declaration, ...changes } };
  };

  it("equals the hash that a file of schema 1 holds", () => {
    copyFileSync(join(import.meta.dirname, "../fixtures/schema-1.sqlite"), shop.path("frozen.db"));
    const reader = shop.open("frozen.db", { readonly: true });
    const differing = queryTrials(reader)
      .filter((t) => t.intrinsic === VNNI?.name)
      .map((t) => differencesOf(t, { environment: t.environment, intrinsics: INTRINSICS }));
    expect(differing).toEqual([[], [], [], []]);
  });

  it("ignores fields it does not know, so that a new one makes no record stale", () => {
    if (VNNI === undefined) throw new Error("the table lacks avx512.vpdpbusd");
    const hash = declarationHash(VNNI);
    expect(declarationHash(changed({ mnemonic: "another", invented: 1 }))).toBe(hash);
    const { a, ...others } = VNNI.declaration.operands;
    expect(declarationHash(changed({ operands: { ...others, a: { ...a, invented: 1 } } }))).toBe(hash);
    for (const field of ["emit", "compute", "summary", "prelude", "setup"])
      expect(declarationHash(changed({ [field]: "another" })), field).not.toBe(hash);
    expect(declarationHash(changed({ operands: { ...others, a: { ...a, load: "another" } } }))).not.toBe(hash);
  });
});

describe("the fastest of many trials", () => {
  it("are the same whether an index gives them or everything is sorted", () => {
    // Few workloads are far ahead, medians tie, failures are among them.
    for (let i = 0; i < 120; i++) {
      const microseconds = 10 + ((i * 7) % 23);
      const given = i % 5 === 0 ? trial({ status: "crashed", log: "" }, i) : trial(measured(microseconds), i % 40);
      recordTrial(db, newTrial(microseconds, { trial: given, environment: i % 3 === 0 ? OTHER.kernel : MACHINE }));
    }
    const filters = [
      {},
      { status: "ok" as const },
      { since: 5, until: 30 },
      { intrinsic: VNNI?.name ?? "" },
      { intrinsic: [VNNI?.name ?? "", "amx.tdpbusd"], since: 3 },
      { trusted: { ...HERE, policy: "exact" as const } },
      { stale: { ...HERE, policy: "exact" as const } },
      { operator: "conv2d", extents: { c: { min: 64 } } },
    ];
    for (const filter of filters) {
      const all = queryTrials(db, filter).map((t) => t.id);
      expect(all.length).toBeGreaterThan(20);
      for (const limit of [1, 7, 20, 500])
        expect(queryTrials(db, { ...filter, limit }).map((t) => t.id)).toEqual(all.slice(0, limit));
    }
  });
});
