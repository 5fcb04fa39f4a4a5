/** @file Outputs that show texts of records: the terminal, CSV, names of files, JSON. None obeys such a text. */

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { UsageError } from "../../abstraction/error.ts";
import { isVisible, visible } from "../../abstraction/text.ts";
import { csvOf, summarise } from "../../cli/db/records.ts";
import { print, printJson, reportError, say, style } from "../../cli/output.ts";
import {
  beginRun,
  endRun,
  exportLines,
  openDatabase,
  recordCalibration,
  recordTrial,
  showTrial,
  type TrialRecord,
} from "../../db/index.ts";
import { packageFiles, packageName } from "../../package/index.ts";
import { csvCell } from "../../report/csv.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { subjectOf } from "../../session/package/emit.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { commandLine } from "../support/command-line.ts";
import { recordOnGpu } from "../support/cuda-packages.ts";
import { MACHINE, newTrial, trial, workshop } from "../support/database.ts";
import { forgedLines, plant, recordsIn, textsIn } from "../support/forge.ts";
import { compilerHere } from "../support/here.ts";
import { recordPlain } from "../support/packages.ts";
import { operation } from "../support/subjects.ts";

const shop = workshop();
afterAll(() => shop.remove());
afterEach(() => vi.restoreAllMocks());

/** Texts that a terminal, a spreadsheet, a shell or a file system would obey. */
const OBEYED = [
  "\u001b]0;owned\u0007",
  "\u001b[2J\u001b[31mred",
  "\u009b31m",
  "\r\u001b[Kforged line",
  "a\u0008\u0008b",
  "\u202etxt.exe",
  "\u2028line",
  "\u0000",
  "\u007f",
  "\ufdd0",
  "\ud800",
  "=1+1",
  "+1",
  "-1+1",
  "@SUM(A1)",
  "\t=1",
  '=HYPERLINK("http://x","y")',
  "../../planted",
  "/planted",
  "a/../planted",
  "$(touch planted)",
  "`touch planted`",
  "; touch planted",
  "'; touch planted; '",
];

/** What a terminal is sent while `work` runs. */
function sent(work: () => void): string {
  let text = "";
  const keep = (chunk: unknown): boolean => {
    text += String(chunk);
    return true;
  };
  const spies = [vi.spyOn(process.stdout, "write"), vi.spyOn(process.stderr, "write")];
  for (const spy of spies) spy.mockImplementation(keep);
  try {
    work();
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  return text;
}
/** Nothing but lines, tabs, and colours where they are ours. */
const isPlain = (text: string): boolean => isVisible(text.replaceAll(/[\n\t]/g, ""));

const open = z.record(z.string(), z.unknown());

describe("the terminal", () => {
  it.each(OBEYED.map((text) => [visible(text), text]))("shows %s and does not obey it", (_, text) => {
    const shown = sent(() => {
      print(`before ${text} after`);
      say(text);
      printJson(open, { text, [text]: 1 });
      reportError(new UsageError(text, { hint: text, source: text, span: { start: 0, end: 1 } }));
      reportError(new Error(text));
    });
    expect(isPlain(shown)).toBe(true);
    expect(shown).toContain(`before ${visible(text)} after`);
  });

  it("shows our own styles beside texts that contain others", () => {
    const stream = Object.getOwnPropertyDescriptor(process.stdout, "isTTY");
    Object.defineProperty(process.stdout, "isTTY", { value: true, configurable: true });
    vi.stubEnv("NO_COLOR", "");
    try {
      const hostile = "\u001b[31m\ufdd0123456781\ufdd1";
      const shown = sent(() => print(style("bold", hostile)));
      expect(shown).toBe("\u001b[1m\\u001b[31m\\ufdd0123456781\\ufdd1\u001b[22m\n");
    } finally {
      vi.unstubAllEnvs();
      if (stream) Object.defineProperty(process.stdout, "isTTY", stream);
      else Reflect.deleteProperty(process.stdout, "isTTY");
    }
  });

  it("is sent JSON with the original meaning", () => {
    const document = { text: OBEYED.filter((t) => t !== "\ud800") };
    expect(JSON.parse(sent(() => printJson(open, document)))).toMatchObject(document);
  });
});

describe("comma-separated values", () => {
  it.each(OBEYED.map((text) => [visible(text), text]))("hold %s as plain text", (_, text) => {
    const cell = csvCell(text);
    const value = cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell;
    expect(value).not.toMatch(/^[=+\-@\t\r]/);
    expect(value.replace(/^'(?=[=+\-@\t\r])/, "")).toBe(text);
    expect([csvCell(12.5), csvCell(-3), csvCell(null), csvCell("conv2d")]).toEqual(["12.5", "-3", "", "conv2d"]);
  });

  it("have as many cells in each row whatever the texts of a record", () => {
    const db = openDatabase(":memory:");
    const record = showTrial(db, recordTrial(db, newTrial(60)));
    for (const text of OBEYED) {
      const hostile: TrialRecord = {
        ...record,
        intrinsic: text,
        environment: { ...record.environment, target: text },
        workload: { ...record.workload, name: text },
      };
      const [head = "", row = "", ...more] = rowsOf(csvOf([{ ...summarise(record), ...only(summarise(hostile)) }]));
      expect(row.length).toBe(head.length);
      expect(more).toEqual([]);
    }
    db.close();
  });

  /** What a record's own texts are. */
  const only = ({ intrinsic, target, name }: ReturnType<typeof summarise>) => ({ intrinsic, target, name });
  /** Cells of each row, as RFC 4180 reads them. */
  const rowsOf = (text: string): string[][] => {
    const rows: string[][] = [[]];
    for (const [, quoted, plain = "", end] of `${text}\n`.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n)/g)) {
      rows.at(-1)?.push(quoted?.replaceAll('""', '"') ?? plain);
      if (end === "\n") rows.push([]);
    }
    return rows.slice(0, -1);
  };
});

describe("names of files", () => {
  it.each(OBEYED.map((text) => [visible(text), text]))(
    "made of an operator called %s stay in their folder",
    (_, text) => {
      let name: string;
      try {
        name = packageName(text);
      } catch (error) {
        expect(error).toBeInstanceOf(UsageError);
        return;
      }
      expect(name).toMatch(/^[A-Za-z][A-Za-z0-9_]{0,62}$/);
      expect(() => packageName("conv2d", text)).toThrow(UsageError);
    },
  );

  it.each(["C++", "CUDA"])("of a package in %s stay in the package's folder", async (language) => {
    const file = shop.path(`${language}.db`);
    const compiler = await compilerHere();
    const environment = environmentOf({ compiler });
    const plain = (): TrialRecord => {
      const id = recordPlain(file, operation("conv2d c=16 k=16 h=5 w=5", "u8s8"), environment);
      const db = openDatabase(file, { readonly: true });
      const record = showTrial(db, id);
      db.close();
      return record;
    };
    const record = language === "CUDA" ? recordOnGpu(file, environment) : plain();
    const folder = mkdtempSync(join(tmpdir(), "automap sinks "));
    for (const [i, text] of OBEYED.entries()) {
      let files: ReadonlyMap<string, string>;
      try {
        files = packageFiles(subjectOf({ ...record, workload: { ...record.workload, operator: text } }));
      } catch (error) {
        expect(error).toBeInstanceOf(UsageError);
        continue;
      }
      expect([...files.keys()].every((name) => /^[A-Za-z]\w*(\.[a-z]+)+$|^[A-Z]\w+\.\w+$/.test(name))).toBe(true);
      writePackage(join(folder, String(i)), files);
    }
    expect(readdirSync(folder).every((name) => /^\d+$/.test(name))).toBe(true);
    rmSync(folder, { recursive: true, force: true });
  });
});

describe("a command that reads records", () => {
  const FILE = shop.path("hostile.db");
  /** What wall one lets through, in every line that may say anything. */
  const PRINTABLE = "=cmd|' /C calc'!A0 */ $(touch planted) ../../planted <script>alert(1)</script> \\";
  let id = "";
  let run = "";
  beforeAll(() => {
    const environment = {
      ...MACHINE,
      target: PRINTABLE,
      cpu: PRINTABLE,
      compiler: { path: PRINTABLE, version: PRINTABLE, flags: [PRINTABLE] },
      kernel: PRINTABLE,
      driver: PRINTABLE,
      node: PRINTABLE,
      automap: PRINTABLE,
    };
    const db = openDatabase(FILE);
    const begun = { environment, seed: 1, options: { strategy: PRINTABLE }, budget: {}, started: 1 };
    run = beginRun(db, { ...begun, workload: newTrial(60).workload });
    id = recordTrial(db, newTrial(60, { environment, run }));
    recordTrial(
      db,
      newTrial(60, { environment, run, trial: trial({ status: "crashed", log: `${PRINTABLE}\n\u001b[2J` }, 7) }),
    );
    recordCalibration(db, { environment, data: { machine: PRINTABLE }, at: 1 });
    endRun(db, run, { status: "done", ended: 9 });
    db.close();
  });

  it.each([
    "db best --trust any",
    "db best --trust any --json",
    "db query",
    "db query --csv",
    "db query --json",
    "db query --target nothing",
    "db query --op nothing",
    "db stale",
    "db stale --json",
    "db show ID",
    "db show ID --json",
    "db compare ID ID",
    "db verify",
    "db export",
    "db prune --status crashed",
    "explain ID",
    "explain ID --json",
    "replay",
    "replay --json",
    "replay RUN",
    "check --baseline FILE",
    "report -o -",
    "emit ID --to OUT",
  ])("obeys none of it: %s", async (line) => {
    const out = shop.path(`out ${line.replaceAll(/\W/g, "_")}`);
    const words = line
      .replace("ID", id)
      .replace("ID", id)
      .replace("RUN", run)
      .replace("FILE", `'${FILE}'`)
      .replace("OUT", `'${out}'`);
    const ran = await commandLine(`${words} --db '${FILE}'`);
    expect(isPlain(ran.out + ran.err)).toBe(true);
    expect(ran.err).not.toContain("internal");
    if (line.endsWith("--csv"))
      for (const cell of ran.out.split(/[,\n]/)) expect(cell).not.toMatch(/^"?[=+@\t]|^"?-[^\d]/);
    if (line.endsWith("--json")) expect(() => JSON.parse(ran.out)).not.toThrow();
    expect(existsSync("planted") || existsSync(shop.path("planted")) || existsSync("../planted")).toBe(false);
  });

  it("prints why lines of an import were refused without obeying them", async () => {
    const db = openDatabase(FILE, { readonly: true });
    const all = recordsIn(exportLines(db));
    db.close();
    const lines = OBEYED.flatMap((text) =>
      all.flatMap((of) =>
        textsIn(of)
          .filter(({ path }) => of.kind !== "header" && path[0] !== "kind")
          .flatMap((place) => forgedLines([of], (line) => plant(line, place, text))),
      ),
    );
    writeFileSync(shop.path("hostile.jsonl"), [JSON.stringify(all[0]), ...lines].join("\n"));
    const ran = await commandLine(`db import '${shop.path("hostile.jsonl")}' --db '${shop.path("other.db")}'`);
    expect(ran.code).toBe(1);
    expect(ran.err.split("\n").length).toBeGreaterThan(lines.length / 2);
    expect(isPlain(ran.out + ran.err)).toBe(true);
    expect(readFileSync(shop.path("hostile.jsonl"), "utf8")).toContain("\\u001b");
  });
});
