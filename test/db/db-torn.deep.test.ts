/** @file Torn files, full disks, files that may not be written: commits are kept, and the message says what to do. */

import { type SpawnSyncReturns, spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDatabase, queryTrials, recordTrial } from "../../db/index.ts";
import { MACHINE, machinesWithoutTrial, measured, newTrial, trial, workshop } from "../support/database.ts";
import { compileProgram } from "../support/program.ts";
import { inFull } from "../support/slow.ts";

const TRIALS = inFull(60, 5);
const shop = workshop();

/** Records until something stops it, and reports that as the command line does: node fill.js FILE COUNT. */
const FILL = `
  import { readFileSync, writeSync } from "node:fs";
  import { reportError } from "./cli/output.js";
  import { openDatabase, recordTrial } from "./db/index.js";
  const [path, count] = process.argv.slice(2);
  const given = JSON.parse(readFileSync(new URL("given.json", import.meta.url), "utf8"));
  try {
    const db = openDatabase(path);
    for (let i = 0; i < Number(count); i++)
      writeSync(1, recordTrial(db, { ...given, trial: { ...given.trial, at: i } }) + "\\n");
  } catch (error) {
    process.exitCode = reportError(error);
  }
`;

/** Says the ids a file holds, after asking SQLite whether it is whole: node list.js FILE. */
const LIST = `
  import { openDatabase, queryTrials, verifyDatabase } from "./db/index.js";
  const db = openDatabase(process.argv[2], { readonly: true });
  console.log(JSON.stringify({ ids: queryTrials(db).map((t) => t.id), problems: verifyDatabase(db).problems }));
`;

beforeAll(() => {
  compileProgram(shop.path(""), ["db/index.ts", "cli/output.ts"]);
  writeFileSync(shop.path("fill.js"), FILL);
  writeFileSync(shop.path("list.js"), LIST);
  writeFileSync(shop.path("given.json"), JSON.stringify(newTrial(60)));
});
afterAll(() => shop.remove());

describe("a write-ahead log that is torn", () => {
  /** A file, its log, the ids in the order committed, and how long the log was after each. */
  const made = shop.path("torn.db");
  const commits: { id: string; end: number }[] = [];
  let log: Buffer;
  let file: Buffer;
  let page = 0;
  beforeAll(() => {
    openDatabase(made).close();
    const db = openDatabase(made);
    db.sqlite.pragma("wal_autocheckpoint = 0");
    page = Number(db.sqlite.pragma("page_size", { simple: true }));
    for (let i = 0; i < TRIALS; i++) {
      // On a machine of its own, so that a record is two rows.
      const environment = { ...MACHINE, kernel: `Linux ${i}` };
      const id = recordTrial(db, newTrial(60 + i, { environment, trial: trial(measured(60 + i), i) }));
      commits.push({ id, end: statSync(`${made}-wal`).size });
    }
    [file, log] = [readFileSync(made), readFileSync(`${made}-wal`)];
    db.close();
  });

  /** Where the log can be torn: its header, then frames of 24 bytes and a page. */
  const boundaries = (): number[] => {
    const frames = Math.floor((log.length - 32) / (24 + page));
    return [0, 32, ...Array.from({ length: frames }, (_, i) => 32 + (i + 1) * (24 + page))];
  };

  /** What a file with this log holds, opened as a user would. */
  function heldWith(torn: Buffer): string[] {
    const path = shop.path("copy.db");
    writeFileSync(path, file);
    writeFileSync(`${path}-wal`, torn);
    const db = openDatabase(path);
    expect(db.sqlite.pragma("integrity_check", { simple: true })).toBe("ok");
    expect(db.sqlite.pragma("foreign_key_check")).toEqual([]);
    expect(machinesWithoutTrial(db)).toBe(0);
    const ids = queryTrials(db, { sort: "at" })
      .map((t) => t.id)
      .reverse();
    db.close();
    return ids;
  }
  const committedBy = (offset: number): string[] => commits.filter((c) => c.end <= offset).map((c) => c.id);

  it("at any page boundary, or a byte beside it, keeps earlier commits", () => {
    expect(boundaries().length).toBeGreaterThan(TRIALS);
    for (const at of boundaries())
      for (const cut of [at - 1, at, at + 1].filter((c) => c >= 0 && c <= log.length))
        expect(heldWith(log.subarray(0, cut)), `cut at ${cut}`).toEqual(committedBy(cut));
  });

  it("that is garbled from any page on keeps earlier commits", () => {
    for (const at of boundaries().slice(1, -1)) {
      const garbled = Buffer.from(log);
      for (let i = at; i < Math.min(at + 24 + page, log.length); i += 97) garbled[i] = (garbled[i] ?? 0) ^ 0x5a;
      expect(heldWith(garbled), `garbled at ${at}`).toEqual(committedBy(at));
    }
  });
});

describe("a disk that is full", () => {
  /** A small disk of its own, where the system lets a user make one. */
  const inSmallDisk = (script: string): SpawnSyncReturns<string> =>
    spawnSync(
      "unshare",
      ["-rm", "sh", "-c", `mount -t tmpfs -o size=700k tmpfs "$0" && ${script}`, shop.path("disk")],
      {
        encoding: "utf8",
      },
    );
  mkdirSync(shop.path("disk"));
  const able = inSmallDisk("true").status === 0;

  it.skipIf(!able)("ends with exit code 6 and advice, and loses nothing", () => {
    const words = `"$0/automap.db"`;
    const node = `"${process.execPath}"`;
    const { stdout, stderr } = inSmallDisk(
      `{ ${node} "${shop.path("fill.js")}" ${words} 100000; echo "exit $?"; ${node} "${shop.path("list.js")}" ${words}; }`,
    );
    const lines = stdout.trimEnd().split("\n");
    const report = JSON.parse(lines.pop() ?? "") as { ids: string[]; problems: unknown[] };
    expect(lines.pop()).toBe("exit 6");
    expect(stderr.replaceAll(shop.path(""), "")).toMatchInlineSnapshot(`
      "automap: /disk/automap.db: no space left on the device while recording a trial
        nothing of it was written; free some space and run the same command again
      "
    `);
    expect(lines.length).toBeGreaterThan(10);
    expect(report.problems).toEqual([]);
    expect(lines.filter((id) => !report.ids.includes(id))).toEqual([]);
  });
});

describe("a file that may not be written", () => {
  // Root may write anything, so the process is somebody else's.
  const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
  const asNobody = (script: string, ...words: string[]): SpawnSyncReturns<string> =>
    spawnSync(process.execPath, [shop.path(script), ...words], { ...nobody, encoding: "utf8" });

  it("ends with exit code 6 and advice, and stays unchanged", () => {
    chmodSync(shop.path(""), 0o755);
    mkdirSync(shop.path("theirs"));
    const path = shop.path("theirs/automap.db");
    const db = openDatabase(path);
    recordTrial(db, newTrial(60));
    db.close();
    const before = readFileSync(path);
    chmodSync(path, 0o444);
    chmodSync(shop.path("theirs"), 0o555);
    const { status, stdout, stderr } = asNobody("fill.js", path, "1");
    chmodSync(shop.path("theirs"), 0o755);
    expect({ status, stdout, stderr: stderr.replaceAll(shop.path(""), "") }).toMatchInlineSnapshot(`
      {
        "status": 6,
        "stderr": "automap: /theirs/automap.db cannot be written: permission is denied
        change its permissions, or name another file
      ",
        "stdout": "",
      }
    `);
    expect(readFileSync(path).equals(before)).toBe(true);
  });

  it("names the directory when that cannot be written", () => {
    chmodSync(shop.path(""), 0o755);
    mkdirSync(shop.path("closed"));
    copyFileSync(shop.path("theirs/automap.db"), shop.path("closed/automap.db"));
    chmodSync(shop.path("closed/automap.db"), 0o666);
    chmodSync(shop.path("closed"), 0o555);
    const { status, stderr } = asNobody("fill.js", shop.path("closed/automap.db"), "1");
    chmodSync(shop.path("closed"), 0o755);
    expect({ status, stderr: stderr.replaceAll(shop.path(""), "") }).toMatchInlineSnapshot(`
      {
        "status": 6,
        "stderr": "automap: /closed/automap.db lies in a directory that cannot be written
        even reading needs -wal and -shm files beside it: copy it to a directory of yours
      ",
      }
    `);
  });
});
