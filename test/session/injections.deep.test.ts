/**
 * @file Texts of records beyond the parser: every text of a record, hostile, in every program and page that is made of records.
 *
 * The parser of records is not asked here (db-parse.deep.test.ts is about it): a record is changed in memory. Either what is made of it is
 * refused, or it is the same program as of the honest record once comments and literals are taken away. Then all that was not refused
 * is built and run together, in a folder where a file would appear if any of it were obeyed.
 */

import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDatabase, recordTrial, showTrial, type TrialRecord } from "../../db/index.ts";
import { type EmitSubject, packageFiles } from "../../package/index.ts";
import { junit } from "../../report/junit.ts";
import { reportPage } from "../../report/page.ts";
import { PAGE_SCRIPT } from "../../report/page-shell.ts";
import { type ChildRun, runChild } from "../../runtime/child.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { provePackage, subjectOf } from "../../session/package/emit.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { gatherReport } from "../../session/report/report.ts";
import { proveEmulated, recordOnGpu } from "../support/cuda-packages.ts";
import { measured, trial, workshop } from "../support/database.ts";
import { type Line, type Path, plant, textsIn } from "../support/forge.ts";
import { compilerHere } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { LANES, recordPlain } from "../support/packages.ts";
import { inFull } from "../support/slow.ts";
import { operation } from "../support/subjects.ts";

const shop = workshop();
compileOnce(inFull([], ["-O1"]));
afterAll(() => shop.remove());

/** Each would stand outside the text it is put in, somewhere. `planted` is the word that must not. */
const HOSTILE: readonly string[] = [
  '*/ int planted = system("touch planted"); /*',
  "*\\\n/ int planted; /*",
  "line\nint planted;\n#define planted",
  "a comment goes on \\",
  '"); planted(); ("',
  '\\"); planted(); (\\"',
  "'; touch planted; '",
  '"; touch planted; "',
  "$(touch planted) `touch planted`",
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text that is hostile.
  "`;planted();` ${planted()} ${CMAKE_COMMAND}",
  '")\nfile(TOUCH planted)\nset(x "',
  "]==] ]] ) file(TOUCH planted) [[",
  "one\u2028planted();\u2029two",
  "```\n<script>planted()</script>\n```",
  '" onload="planted()" x="',
  "]]>--><planted/><!--",
  "%s%n %1$n planted",
  "??/\nplanted",
  "__proto__",
];

/** What a page would take for markup. */
const MARKUP = [
  "<script>planted()</script>",
  '" onload="planted()" x="',
  "' onload='planted()' x='",
  "]]>--><planted/><!--",
  "</style></title></script><img src=x onerror=planted()>",
  "&lt;planted&gt;",
] as const;

let honest: readonly { readonly kind: string; readonly record: TrialRecord }[];

beforeAll(async () => {
  const environment = environmentOf({ compiler: await compilerHere() });
  const file = shop.path("honest.db");
  const conv = operation("conv2d n=1 c=16 k=16 h=5 w=5", "f32", { epilogue: "relu" });
  const mapped = recordPlain(file, conv, environment);
  const line = operation("conv1d-single l=20000 r=5");
  const db = openDatabase(file);
  const lanes = recordTrial(db, {
    workload: { computation: line },
    environment,
    trial: trial(measured(900), 1, LANES),
    conditions: { threads: 1, cache: "warm" },
  });
  honest = [
    { kind: "mapped", record: showTrial(db, mapped) },
    { kind: "lanes", record: showTrial(db, lanes) },
    { kind: "CUDA", record: recordOnGpu(shop.path("gpu.db"), environment) },
  ];
  db.close();
});

// ---- what a language makes of a text ----------------------------------------------------------------------------------------------

/** C++ without comments and with empty literals, as its phases of translation read it: lines are joined first. */
function bareCpp(text: string): string {
  const joined = text.replaceAll(/\\[ \t]*\n/g, "");
  return joined.replaceAll(
    /\/\*[\s\S]*?\*\/|\/\/[^\n]*|R"([^\s()\\]{0,16})\([\s\S]*?\)\1"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'/g,
    (found) => (found.startsWith("/") ? " " : '""'),
  );
}

/** TypeScript and JavaScript as their own scanner reads them; a template's fixed parts are a literal too. */
function bareScript(text: string): string {
  const scanner = ts.createScanner(ts.ScriptTarget.Latest, true, ts.LanguageVariant.Standard, text);
  const braces: boolean[] = [];
  const words: string[] = [];
  for (let token = scanner.scan(); token !== ts.SyntaxKind.EndOfFileToken; token = scanner.scan()) {
    if (token === ts.SyntaxKind.TemplateHead) braces.push(true);
    else if (token === ts.SyntaxKind.OpenBraceToken) braces.push(false);
    else if (token === ts.SyntaxKind.CloseBraceToken && braces.at(-1)) {
      token = scanner.reScanTemplateToken(false);
      if (token === ts.SyntaxKind.TemplateTail) braces.pop();
    } else if (token === ts.SyntaxKind.CloseBraceToken) braces.pop();
    const kept = token > ts.SyntaxKind.TemplateTail || token === ts.SyntaxKind.Identifier;
    words.push(kept ? scanner.getTokenText() : ts.SyntaxKind[token]);
  }
  return words.join(" ");
}

/** Python without remarks and with empty literals. */
const barePython = (text: string): string =>
  text.replaceAll(
    /#[^\n]*|"""[\s\S]*?"""|'''[\s\S]*?'''|"(?:[^"\\\n]|\\[\s\S])*"|'(?:[^'\\\n]|\\[\s\S])*'/g,
    (found) => (found.startsWith("#") ? "" : '""'),
  );

/** A POSIX shell's words: what stands in single quotes or behind # is no command. Double quotes are kept, since they are obeyed. */
const bareShell = (text: string): string => text.replaceAll(/'[^']*'|(?<=^|\s)#[^\n]*/g, "");

/** CMake's commands without comments, bracket arguments and quoted ones; a reference in quotes is kept, since it is obeyed. */
function bareCmake(text: string): string {
  return text.replaceAll(/#\[(=*)\[[\s\S]*?\]\1\]|#[^\n]*|\[(=*)\[[\s\S]*?\]\2\]|"(?:[^"\\]|\\[\s\S])*"/g, (found) =>
    found.startsWith('"') ? (found.match(/(?<!\\)\$[A-Z]*\{[^}]*\}?/g) ?? []).join(" ") : " ",
  );
}

/** The shape of a JSON document: its keys, and what kind of value each has. */
function bareJson(text: string): string {
  return JSON.stringify(JSON.parse(text), (_, value: unknown) => (typeof value === "string" ? "" : value));
}

/** Of Markdown, where its code begins and ends, and how many lines there are. */
function bareMarkdown(text: string): string {
  const lines = text.split(/[\n\r\u2028\u2029]/);
  return lines.map((line) => (line.trimStart().startsWith("```") ? line : line === "" ? "" : "text")).join("\n");
}

/** Tags and the names of their attributes. */
function bareMarkup(text: string): string {
  const tags = text.match(/<(?:[^<>"']|"[^"]*"|'[^']*')*>?/g) ?? [];
  return tags.map((tag) => tag.replaceAll(/"[^"]*"|'[^']*'/g, '""')).join("\n");
}

function bareOf(file: string, text: string): string {
  if (/\.(cpp|cu|h)$/.test(file)) return bareCpp(text);
  if (file.endsWith(".py")) return barePython(text);
  if (/\.(js|ts)$/.test(file)) return bareScript(text);
  if (file.endsWith(".sh")) return bareShell(text);
  if (file.endsWith(".json")) return bareJson(text);
  if (file.endsWith(".md")) return bareMarkdown(text);
  if (file === "CMakeLists.txt") return bareCmake(text);
  throw new Error(`no reader of ${file}`);
}

describe("the readers of this test", () => {
  it("keep exactly the text that each language would obey", () => {
    expect(bareCpp('/* a */ f("b // c"); // d\nint x; /\\\n* e */ R"q(")" /*)q";').split(/\s+/)).toEqual([
      "",
      'f("");',
      "int",
      "x;",
      '"";',
    ]);
    expect(bareCpp("// on \\\nint gone;\nint here;")).not.toContain("gone");
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a template is what is read.
    expect(bareScript("const a = `x ${f({ b: 1 })} y`; // c\n'd'")).toContain("f ( { b : ");
    expect(bareShell("a 'b' \"$(c)\" # d")).toBe('a  "$(c)" ');
    expect(barePython('a = [\'b # c\', "d\\"e"] # f\n"""g\nh"""\ni')).toBe('a = ["", ""] \n""\ni');
    // biome-ignore lint/suspicious/noTemplateCurlyInString: CMake refers so.
    expect(bareCmake('a(b "c" # d\n [[e]] "${f}")')).toBe("a(b   \n   ${f})");
    expect(bareMarkup("<a href='x>y' on=\"z\">b</a>")).toBe('<a href="" on="">\n</a>');
    expect(bareMarkup("a < b")).toBe("< b");
  });
});

// ---- programs -----------------------------------------------------------------------------------------------------------------------

interface Place {
  readonly path: Path;
  readonly isName: boolean;
}

/** Every place of a record: texts, numbers and flags, names that somebody chose, and one entry more in every list and every object. */
function placesIn(value: unknown, path: Path = []): Place[] {
  if (value === null || typeof value !== "object") return [{ path, isName: false }];
  const more: Path = [...path, Array.isArray(value) ? value.length : "planted"];
  return [
    ...Object.entries(value).flatMap(([key, inner]) => {
      const below: Path = [...path, Array.isArray(value) ? Number(key) : key];
      return [
        ...(Array.isArray(value) || path.length === 0 ? [] : [{ path: below, isName: true }]),
        ...placesIn(inner, below),
      ];
    }),
    { path: more, isName: false },
  ];
}

/** The record with a text at a place. The parser of records is passed by: types no longer say what it holds. */
function changed(record: TrialRecord, place: Place, text: string): TrialRecord {
  const copy = structuredClone(record);
  plant(copy as unknown as Line, place, text);
  return copy;
}

/** Of the package: what becomes of an operator's name that is used for it, sinks.long.test.ts asks. */
const NAME = "probe";

/** Every file made of a record, and the kernel alone, which is what `load` takes. */
function programsOf(record: TrialRecord): Map<string, string> {
  const subject = subjectOf(record, { name: NAME });
  return new Map<string, string>([...packageFiles(subject), ["loaded.cpp", subject.tuned?.source ?? ""]]);
}

/** An unknown word among these is the last of the known ones, or none: another program, but none that holds the word. */
const WORDS = new Set(["dataflow", "weights", "borders", "operator", "transfer", "fragments", "store", "swizzle"]);

function same({ path }: Place, made: string, expected: string | undefined): boolean {
  return WORDS.has(String(path.at(-1))) ? !/planted|CMAKE_COMMAND/.test(made) : made === expected;
}

describe("a hostile text in a record", () => {
  const taken: { readonly kind: string; readonly place: Place; readonly text: string }[] = [];

  it.each(["mapped", "lanes", "CUDA"])(
    "changes only the comments and literals of programs made of a %s kernel",
    (kind) => {
      const record = honest.find((h) => h.kind === kind)?.record;
      if (!record) throw new Error(`no record of ${kind}`);
      const expected = new Map([...programsOf(record)].map(([file, text]) => [file, bareOf(file, text)]));
      const wrong: string[] = [];
      let refused = 0;
      for (const [i, place] of placesIn(record).entries())
        for (const text of inFull(HOSTILE, [HOSTILE[(7 * i) % HOSTILE.length] ?? ""])) {
          let files: Map<string, string>;
          try {
            files = programsOf(changed(record, place, text));
          } catch {
            refused++;
            continue;
          }
          taken.push({ kind, place, text });
          for (const [file, made] of files)
            if (!same(place, bareOf(file, made), expected.get(file)))
              wrong.push(`${place.path.join(".")} ${JSON.stringify(text)} in ${file}`);
        }
      expect(wrong.slice(0, 20)).toEqual([]);
      expect(Math.min(refused, taken.filter((t) => t.kind === kind).length)).toBeGreaterThan(50);
    },
  );

  /** All that is taken, in one record: some are taken alone and not together, or are gone with the place they stood in. */
  function plantedIn(kind: string): TrialRecord {
    const all = taken.filter((t) => t.kind === kind);
    let record = honest.find((h) => h.kind === kind)?.record;
    if (!record || all.length === 0) throw new Error("the test before says what is taken");
    let planted = 0;
    for (const { place, text } of all) {
      try {
        const next = changed(record, place, text);
        programsOf(next);
        record = next;
        planted++;
      } catch {
        // Refused.
      }
    }
    expect(planted).toBeGreaterThan(40);
    return record;
  }

  /** Runs a command in the folder of a package. */
  type Run = (...command: string[]) => Promise<ChildRun>;

  /** Writes the package of a record with all that is taken, and expects that what is done to it obeys nothing of that. */
  async function expectNotObeyed(
    kind: string,
    work: (folder: string, run: Run, subject: EmitSubject) => Promise<void>,
  ): Promise<void> {
    const outer = mkdtempSync(join(tmpdir(), "automap injections "));
    const folder = join(outer, "package");
    try {
      const subject = subjectOf(plantedIn(kind), { name: NAME });
      writePackage(folder, packageFiles(subject));
      await work(folder, (...command) => runChild(command, { timeLimitMs: 900_000, cwd: folder }), subject);
      const found = readdirSync(outer, { recursive: true, encoding: "utf8" });
      expect(found.filter((file) => file.includes("planted"))).toEqual([]);
      expect(existsSync("planted")).toBe(false);
    } finally {
      rmSync(outer, { recursive: true, force: true });
    }
  }

  it("accepted in a CUDA package is not obeyed when the package is built and run under emulation", () =>
    expectNotObeyed("CUDA", async (folder, run) => {
      const proof = await proveEmulated(folder, NAME);
      expect([proof.status, proof.stdout]).toEqual(["ok", expect.stringContaining("probe: right on")]);
      expect((await run("env", "NVCC=true", "sh", "build.sh")).status).toBe("ok");
      const parse = "import ast, sys\nfor f in sys.argv[1:]: ast.parse(open(f).read())";
      const parsed = await run("python3", "-c", parse, "torch_ext.py", "torch_example.py").catch(() => undefined);
      expect(["ok", undefined, "missing"], parsed?.stderr).toContain(parsed?.status);
    }));

  it.each(["mapped", "lanes"])(
    "accepted in every program of a %s kernel is not obeyed when these are built and run",
    (kind) =>
      expectNotObeyed(kind, async (folder, run, { threads, tuned }) => {
        const built = { name: NAME, threads, features: tuned?.features ?? [] };
        const proof = await provePackage(folder, built, await compilerHere());
        expect(proof.status, proof.said).toBe("right");
        for (const ran of [await run("sh", "build.sh"), await run(process.execPath, "--check", "index.js")])
          expect(ran.status, ran.stderr).toBe("ok");
        const cmake = await run("cmake", "-S", ".", "-B", "made").catch(() => undefined);
        expect(["ok", undefined, "missing"], cmake?.stderr).toContain(cmake?.status);
      }),
  );
});

// ---- pages --------------------------------------------------------------------------------------------------------------------------

describe("a hostile text in a page's data", () => {
  it("changes no tag of the report", async () => {
    const db = openDatabase(shop.path("honest.db"), { readonly: true });
    const data = gatherReport(db, {}, 1);
    db.close();
    const tagsOf = (page: string): string => bareMarkup(page.replace(`<script>${PAGE_SCRIPT}</script>`, ""));
    const expected = tagsOf(reportPage(data));
    expect(expected).toContain("<svg");
    const wrong: string[] = [];
    let made = 0;
    for (const [i, place] of textsIn(data).entries()) {
      if (place.isName || i % inFull(1, 4) !== 0) continue;
      const copy = structuredClone(data) as unknown as Line;
      const text = MARKUP[(i >> 2) % MARKUP.length] ?? "";
      plant(copy, place, text);
      let page: string;
      try {
        page = reportPage(copy as unknown as typeof data);
      } catch {
        // A mapping that contradicts itself is not drawn.
        continue;
      }
      made++;
      const tags = tagsOf(page);
      // A mapping of other axes is another drawing, a layout that is not the usual one has a column, and steps that say the same are one.
      const fine =
        place.path.includes("drawing") || place.path.includes("next") || place.path.at(-1) === "layout"
          ? !/planted|<script|<img/.test(tags)
          : tags === expected;
      if (!fine) wrong.push(`${place.path.join(".")} ${text}`);
    }
    expect(wrong).toEqual([]);
    expect(made).toBeGreaterThan(10);
  });

  it("changes no tag of JUnit", () => {
    const page = (text: string): string =>
      junit(text, [
        { suite: text, name: text, seconds: 1, outcome: { kind: "failed", message: text } },
        { suite: text, name: text, seconds: 1, outcome: { kind: "skipped", message: text } },
      ]);
    for (const text of [...HOSTILE, ...MARKUP]) expect(bareMarkup(page(text))).toBe(bareMarkup(page("honest")));
  });
});
