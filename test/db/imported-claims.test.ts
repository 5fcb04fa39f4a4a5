/**
 * @file Every lookup of a record meets an imported one that claims a tenth of the time: it does not win, and what shows it says that it was imported.
 *
 * Its siblings: every file of a package (sealed-package.test.ts), every command to paste (command-lines.long.test.ts), what imports may not alter
 * (provenance.test.ts), and a compiled file that was replaced (kept.long.test.ts).
 */

import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Candidate, candidateKey } from "../../abstraction/candidate.ts";
import { emit } from "../../automap.ts";
import {
  beginRun,
  best,
  calibrationOf,
  type Database,
  endRun,
  exportLines,
  importLines,
  mergeDatabase,
  openDatabase,
  pruneTrials,
  queryTrials,
  recordCalibration,
  recordTrial,
  shortId,
  showTrial,
  type TrialRecord,
} from "../../db/index.ts";
import { intrinsicNamed, intrinsicsNamed } from "../../intrinsics/index.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { chooseKernel, recordedKernel, recordedSeconds } from "../../session/network/network.ts";
import { checkConsent } from "../../session/package/imported.ts";
import { load } from "../../session/package/load.ts";
import { recordedMachine, storedCalibration } from "../../session/recorded.ts";
import { compareBest } from "../../session/report/check.ts";
import { gatherReport } from "../../session/report/report.ts";
import { storeIn } from "../../session/tune/store.ts";
import { nearTrials } from "../../session/tune/transfer.ts";
import { nativeTarget } from "../../targets/index.ts";
import { commandLine } from "../support/command-line.ts";
import { recordOnGpu } from "../support/cuda-packages.ts";
import { MACHINE, measured } from "../support/database.ts";
import { plainCandidate } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const root = scratchFolder();
const at = (name: string): string => join(root, name);

/** Microseconds. */
const HERE = 100;
const CLAIMED = 10;
const SHAPE = ["conv2d", "--c", "16", "--k", "16", "--h", "5", "--w", "5", "--dtype", "u8s8", "--layout", "NHWC"];
const conv = operation("conv2d c=16 k=16 h=5 w=5 NHWC", "u8s8");
const plain = plainCandidate(conv, intrinsicsNamed("avx512.vpdpbusd"));
if (!plain) throw new Error("nothing maps the convolution");
const { intrinsic } = plain.mapping;
const own: Candidate = plain.candidate;
const other: Candidate = { ...plain.candidate, schedule: { ...plain.candidate.schedule, block: { q: 2 } } };
const workload = { computation: conv };

const THEIRS = "theirs.db";

/** A database of a search that found a kernel of so many microseconds. */
function searched(file: string, candidate: Candidate, microseconds: number, seed: number): Database {
  const db = openDatabase(at(file), file === THEIRS ? { key: at("their.key") } : {});
  const options = { strategy: "random", threads: 1, cache: "warm", intrinsics: [intrinsic.name], kinds: "mappings" };
  const budget = { trials: 1 };
  const run = beginRun(db, { workload, environment: MACHINE, seed, options, budget, started: 1000 + seed });
  const conditions = { threads: 1, cache: "warm" } as const;
  const about = { workload, environment: MACHINE, run, intrinsic, conditions };
  recordTrial(db, {
    ...about,
    trial: { candidate, prediction: undefined, measurement: measured(microseconds), at: 2000 + seed },
  });
  recordTrial(db, {
    ...about,
    trial: {
      candidate: { ...candidate, schedule: { ...plain?.candidate.schedule, block: { q: 3 } } } as Candidate,
      prediction: undefined,
      measurement: { status: "crashed", log: `of ${file}` },
      at: 3000 + seed,
    },
  });
  recordCalibration(db, { environment: MACHINE, data: { of: file }, at: 4000 + seed });
  endRun(db, run, { status: "done", ended: 5000 + seed });
  return db;
}

interface Known {
  readonly db: Database;
  readonly id: string;
  readonly run: string;
}
/** With a kernel that was measured here besides, and with the claim alone. */
let mixed: Known;
let claimed: Known;
/** Of the trial that was measured here. */
let hereId = "";
beforeAll(() => {
  const theirs = searched(THEIRS, other, CLAIMED, 2);
  const lines = [...exportLines(theirs)];
  const [claim] = best(theirs);
  if (!claim?.run) throw new Error("no claim");
  const here = searched("mixed.db", own, HERE, 1);
  const empty = openDatabase(at("claimed.db"));
  hereId = best(here)[0]?.id ?? "";
  for (const db of [here, empty]) expect(importLines(db, lines)).toMatchObject({ rejected: [], added: { trials: 2 } });
  mixed = { db: here, id: claim.id, run: claim.run };
  claimed = { ...mixed, db: empty };
  theirs.close();
});
afterAll(() => {
  for (const { db } of [mixed, claimed]) db.close();
});

const microseconds = (seconds: number): number => Math.round(seconds * 1e6);
const timesOf = (trials: readonly Pick<TrialRecord, "measurement">[]): number[] =>
  trials.flatMap(({ measurement }) => (measurement.status === "ok" ? [microseconds(measurement.median)] : []));
const trusted = { environment: MACHINE, intrinsics: intrinsicNamed, policy: "exact" } as const;
const onCpu = { threads: 1, onGpu: false };
const sought = {
  computation: conv,
  environment: MACHINE,
  cache: "warm",
  intrinsics: [intrinsic],
  trustImported: false,
  similar: true,
} as const;
const target = modelTarget(nativeTarget());
const store = (db: Database) =>
  storeIn(db, {
    workload,
    environment: MACHINE,
    run: "",
    space: { intrinsics: [intrinsic] } as unknown as Parameters<typeof storeIn>[1]["space"],
    threads: 1,
    cache: "warm",
  });

/** Microseconds of what each lookup finds. */
const LOOKUPS: Readonly<Record<string, (db: Database) => readonly number[]>> = {
  "the best of all": (db) => timesOf(best(db)),
  "the best of a computation": (db) => timesOf(best(db, { computation: conv, trusted })),
  "the best of instructions": (db) => timesOf(best(db, { intrinsic: [intrinsic.name] })),
  "the best mapping": (db) => timesOf(best(db, {}, { kinds: "mappings" })),
  "the fastest trials": (db) => timesOf(queryTrials(db, { status: "ok", provenance: "here" })),
  "the fastest of each computation": (db) => timesOf(queryTrials(db, { top: 1, provenance: "here" })),
  "what a search knows when it begins": (db) =>
    timesOf([own, other].flatMap((one) => store(db).known(candidateKey(one)) ?? [])),
  "one that a search tried": (db) => {
    const tried = [...store(db).recorded()].map(candidateKey);
    return [
      ...(tried.includes(candidateKey(own)) ? [HERE] : []),
      ...(tried.includes(candidateKey(other)) ? [CLAIMED] : []),
    ];
  },
  "what a search with other threads learns": (db) =>
    nearTrials(db, { ...sought, threads: 2 }, target).map(({ trial }) => timesOf([trial])[0] ?? 0),
  "a network's time": (db) =>
    [recordedSeconds(conv, { db, environment: MACHINE }, onCpu) ?? []].flat().map((s) => microseconds(Number(s))),
  "a network's kernel": (db) => {
    const found = recordedKernel(conv, { db, environment: MACHINE }, onCpu);
    return found === undefined ? [] : [JSON.stringify(found).includes(shortId(mixed.id)) ? CLAIMED : HERE];
  },
  "a baseline's successor": (db) => {
    const trials = queryTrials(db, {});
    const { findings } = compareBest(queryTrials(mixed.db, { provenance: "here" }), trials, { maxRegression: 0.05 });
    return findings.flatMap(({ after }) => (after ? timesOf([after]) : []));
  },
  "a step's kernel with other threads": (db) => {
    const task = { computation: conv, multiplyAdds: 1 } as unknown as Parameters<typeof chooseKernel>[0];
    const choice = chooseKernel(task, { records: { db, environment: MACHINE }, threads: 2 });
    const expected = choice.kind === "model" ? microseconds(2 * choice.expected) : 0;
    return [HERE, CLAIMED].filter((one) => one === expected);
  },
  "the best after a prune": (db) => {
    const copy = openDatabase(at(`pruned ${pruned++}.db`));
    mergeDatabase(copy, db.path);
    pruneTrials(copy, {}, { reason: "a test" });
    const times = timesOf(best(copy));
    copy.close();
    return times;
  },
};
let pruned = 0;

describe("an imported record of a tenth of the time", () => {
  it.each(Object.entries(LOOKUPS))("is not %s", (_, found) => {
    expect(found(mixed.db)).toEqual([HERE]);
    expect(found(claimed.db)).toEqual([]);
  });

  it("gives no rates that were not measured here, but to explain what was imported with it", () => {
    expect(calibrationOf(claimed.db, MACHINE)).toBeUndefined();
    expect(storedCalibration(claimed.db, MACHINE)).toBeUndefined();
    expect(calibrationOf(mixed.db, MACHINE)).toMatchObject({ data: { of: "mixed.db" } });
    expect(recordedMachine(mixed.db, showTrial(mixed.db, hereId)).calibratedAt).not.toBe(4002);
  });

  it("is neither loaded nor built without consent, and its package has no seal of this machine", async () => {
    for (const { db, id } of [mixed, claimed]) {
      await expect(load(id, { database: db.path })).rejects.toThrow(/was imported, not measured here/);
      await expect(load(showTrial(db, id))).rejects.toThrow(/was imported, not measured here/);
      expect(() => checkConsent(showTrial(db, id), {})).toThrow(/was imported/);
      const folder = mkdtempSync(at("package-"));
      emit(id, folder, { database: db.path });
      await expect(load(folder)).rejects.toThrow(/was not written here/);
    }
  });
});

interface Shown {
  readonly words: (known: Known) => readonly string[];
  /** What it says of the claim. */
  readonly says?: RegExp;
  /** Whether it shows the claim alone, or both, in a database that has both; else what was measured here comes first. */
  readonly of?: "the claim" | "both";
  /** The file that it writes. */
  readonly file?: string;
}
const IMPORTED = /imported/;
const LAYERS = at("layers.txt");
writeFileSync(LAYERS, "conv2d --c 16 --k 16\n");
const SHOWN: Readonly<Record<string, Shown>> = {
  "db best": { words: () => ["db", "best", "--trust", "any"] },
  "db best, as JSON": { words: () => ["db", "best", "--trust", "any", "--json"] },
  "db best, of layers": { words: () => ["db", "best", "--trust", "any", "--layers", LAYERS] },
  "db query": { words: () => ["db", "query"], of: "both" },
  "db query, as JSON": { words: () => ["db", "query", "--json"], of: "both" },
  "db query, as CSV": { words: () => ["db", "query", "--csv"], of: "both" },
  "db stale": { words: () => ["db", "stale"], of: "both" },
  "db failures": { words: () => ["db", "failures"], of: "the claim" },
  "db failures, as JSON": { words: () => ["db", "failures", "--json"], of: "the claim" },
  "db show": { words: ({ id }) => ["db", "show", id], of: "the claim" },
  "db show, as JSON": { words: ({ id }) => ["db", "show", id, "--json"], of: "the claim" },
  "db compare, of records": { words: ({ id }) => ["db", "compare", id, id], of: "the claim" },
  "db compare, of runs": { words: ({ run }) => ["db", "compare", "--run", run, "--run", run], of: "the claim" },
  "db compare, of instructions": {
    words: () => ["db", "compare", "--intrinsic", intrinsic.name, "--intrinsic", intrinsic.name],
  },
  "explain a record": { words: ({ id }) => ["explain", id], of: "the claim" },
  "explain a record, as JSON": { words: ({ id }) => ["explain", id, "--json"], of: "the claim" },
  "explain an operator": { words: () => ["explain", ...SHAPE, "--candidate", "best"] },
  "explain an operator, as JSON": { words: () => ["explain", ...SHAPE, "--candidate", "best", "--json"] },
  "emit a record": { words: ({ id }) => ["emit", id, "--force", "--to", at("emitted")], of: "the claim" },
  "emit and prove a record": {
    words: ({ id }) => ["emit", id, "--prove", "--force", "--to", at("proved")],
    of: "the claim",
  },
  "emit an operator": { words: () => ["emit", ...SHAPE, "--trust", "any", "--force", "--to", at("operator")] },
  "replay, its list": { words: () => ["replay"], of: "the claim" },
  "replay, its list as JSON": { words: () => ["replay", "--json"], of: "the claim" },
  "replay a run": { words: ({ run }) => ["replay", run], of: "the claim" },
  "replay a run, as JSON": { words: ({ run }) => ["replay", run, "--json"], of: "the claim" },
  "a report": { words: () => ["report", "-o", at("report.html")], file: at("report.html") },
  "a report of a run": {
    words: ({ run }) => ["report", "--run", run, "-o", at("run.html")],
    file: at("run.html"),
    of: "the claim",
  },
  check: { words: ({ db }) => ["check", "--baseline", db.path], says: /imported|missing/ },
};

describe("what shows an imported record says that it is one", () => {
  const shown = async ({ words, file }: Shown, known: Known): Promise<string> => {
    const { out, err } = await commandLine([...words(known), "--db", known.db.path]);
    return `${out}${err}${file === undefined ? "" : readFileSync(file, "utf8")}`;
  };

  const says = (text: string, time: number): boolean =>
    new RegExp(`\\b${time}(?:\\.00)? us`).test(text) ||
    [...text.matchAll(/"microseconds": ([\d.e+-]+)|,ok,([\d.]+),/g)].some(
      ([, a, b]) => Math.round(Number(a ?? b)) === time,
    );

  it.each(Object.entries(SHOWN))("%s", async (_, one) => {
    expect(await shown(one, claimed)).toMatch(one.says ?? IMPORTED);
    const text = await shown(one, mixed);
    if (one.of !== "the claim") expect(says(text, HERE), text).toBe(true);
    if (one.of !== undefined) expect(text).toMatch(one.says ?? IMPORTED);
    else if (says(text, CLAIMED)) expect(text).toMatch(IMPORTED);
  });

  it("the text of a kernel for a GPU", async () => {
    const { id } = recordOnGpu(at("gpu.db"), { ...MACHINE, target: "h100", cpu: "NVIDIA H100", driver: "550.54" });
    const here = openDatabase(at("gpu.db"), { readonly: true });
    const imported = openDatabase(at("imported gpu.db"));
    // As of another machine: no seal of this one goes with the lines.
    expect(importLines(imported, exportLines(here))).toMatchObject({ rejected: [], added: { trials: 1 } });
    const says = async ({ path }: Database): Promise<string> =>
      (await commandLine(["emit", id, "--force", "--to", at("kernel.cu"), "--db", path])).out;
    expect(await says(here)).toMatch(/record \w{12}, measured on/);
    expect(await says(imported)).toMatch(/record \w{12}, imported, measured on/);
    for (const db of [here, imported]) db.close();
  });

  it("a report draws no time of it among those measured here", () => {
    const [subject] = gatherReport(mixed.db, {}, 1).subjects;
    expect(subject?.trials.flatMap(({ seconds }) => (seconds === undefined ? [] : microseconds(seconds)))).toEqual([
      HERE,
    ]);
  });
});
