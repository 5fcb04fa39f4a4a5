/**
 * @file README.md and docs/ say what is true: each `$ automap` line in them is run, and what they show beneath is what it prints.
 *
 * `...` on a line of its own stands for any lines. A line that shows nothing must only succeed. What a block fenced `sh` tells is not run:
 * its commands, operators and options must exist.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { RULES } from "../../abstraction/mapping.ts";
import { EXIT } from "../../cli/output.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { instantiate, OPERATORS, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { commandLine, shellWords } from "../support/command-line.ts";
import { type Command, commandsOf, fences, fits } from "../support/pages.ts";
import { scratchFolder } from "../support/scratch.ts";

/** Those that are written by hand: docs/api is made by TypeDoc. */
const pagesIn = (folder: string): string[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".md"))
    .map((page) => `${folder}/${page}`);
const PAGES = ["README.md", ...pagesIn("docs")];
const read = (page: string): string => readFileSync(page, "utf8");
const README = read("README.md");

const scratch = scratchFolder();

interface Shown extends Command {
  readonly page: string;
}

/** The blocks fenced with a language. */
const fencedIn = (page: string, language: string): string[] =>
  fences(read(page)).flatMap((fence) => (fence.language === language ? [fence.body] : []));

/** Those that are run one after another, in a folder of their own, by test/repository/tutorials.long.test.ts. */
const isTutorial = (page: string): boolean => page.startsWith("docs/tutorial-");

const commandsIn = (page: string, language: string): Shown[] =>
  fencedIn(page, language).flatMap((body) => commandsOf(body).map((command) => ({ page, ...command })));

const shown = PAGES.filter((page) => !isTutorial(page)).flatMap((page) => commandsIn(page, "console"));
const ours = shown.filter((s) => s.command.startsWith("automap "));

/** Commands that a page tells without being run here: they take long, or need what a reader has made before. */
const told = PAGES.flatMap((page) => [
  ...commandsIn(page, "sh"),
  ...(isTutorial(page) ? commandsIn(page, "console") : []),
]);

const isOurs = (command: string): boolean => /^(npx )?automap /.test(command);

/** Commands, operators and options among the words that the help of the command does not know. */
async function unknownIn(words: readonly string[]): Promise<string[]> {
  const [first = "", second = ""] = words;
  const path = ["batch", "cache", "db", "fleet", "intrinsic", "network", "operator"].includes(first)
    ? [first, second]
    : [first];
  const { out: help } = await commandLine([...path, "--help"]);
  // A command is named with its alias: `query|list`.
  if (!help.replace(/\|\w+/, "").startsWith(`Usage: automap ${path.join(" ")} `)) return [path.at(-1) ?? ""];
  const known = new Set([...help.matchAll(/(?<![\w-])--?[a-z][\w-]*/g)].map(([option]) => option));
  const rest = words.slice(path.length);
  const options = rest.filter((w) => /^--?[a-z]/.test(w));
  const subject = /[<[](?:record, )?operator/.test(help) && rest[0] !== undefined ? rest[0] : undefined;
  const named = subject ?? rest[rest.indexOf("--op") + 1];
  const isName = named !== undefined && OPERATORS.some((o) => o.name === named);
  const unknownSubject =
    subject !== undefined && /^[a-z]/.test(subject) && !isName && !/[[\]]|^[0-9a-f]{8,}$/.test(subject);
  const parameters = isName ? Object.keys(operatorNamed(named).parameters) : [];
  const axes = subject === undefined || isName ? [] : [...subject.matchAll(/\b[a-z]\b/g)].map(([axis]) => axis);
  const ofSubject = [...parameters, ...axes].map((name) => `--${name}`);
  return [
    ...(unknownSubject ? [subject] : []),
    ...options.filter((o) => !ofSubject.includes(o) && !(known.has(o) && !(/^--[a-z]$/.test(o) && isName))),
  ];
}

describe("README.md and docs/", () => {
  it("show commands, many with their output", () => {
    expect(ours.length).toBeGreaterThan(20);
    expect(ours.filter((s) => s.output.length > 0).length).toBeGreaterThan(8);
  });

  it.each(ours.map((s) => [`${s.page}: ${s.command}`, s] as const))("%s", async (_, { command, output }) => {
    const [, ...words] = shellWords(command);
    // Files are drawn beside the tests, not into the repository.
    const { code, out, err } = await commandLine(
      words.map((w, i) => (w.endsWith(".svg") || words[i - 1] === "--to" ? join(scratch, w) : w)),
    );
    const printed = (code === 2 ? err : out).trimEnd().split("\n");
    if (output.length === 0) expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
    else if (!fits(output, printed)) expect(printed.join("\n")).toBe(output.join("\n"));
    expect(Math.max(...output.map((l) => l.length), 0)).toBeLessThanOrEqual(130);
  });

  it("tell readers to run nothing else but scripts that the package has", () => {
    const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
    const others = [...shown, ...told.filter((s) => !isTutorial(s.page))]
      .map((s) => s.command)
      .filter((c) => !isOurs(c));
    const compiler = "cc main.c -Imatmul -Lmatmul/build -lmatmul -Wl,-rpath,matmul/build -o main";
    expect([...new Set(others)]).toEqual(["npm ci", compiler, "./main", "node main.mjs", "sh run.sh"]);
    const mentioned = PAGES.flatMap((page) =>
      [...read(page).matchAll(/`npm run ([\w:]+)`/g)].map(([, name = ""]) => name),
    );
    expect(mentioned.filter((name) => scripts[name] === undefined)).toEqual([]);
    expect(mentioned).toContain("check");
  });

  it.each(told.filter((s) => isOurs(s.command)))("$page could run: $command", async ({ command }) => {
    const words = shellWords(command).slice(command.startsWith("npx ") ? 2 : 1);
    expect(await unknownIn(words)).toEqual([]);
  });

  it("are found wrong if they show arguments that no command takes", async () => {
    expect(await unknownIn(shellWords("tune conv2d --nonsense 3 --c 64 --time 3"))).toEqual(["--nonsense"]);
    expect(await unknownIn(shellWords("db best --nonsense"))).toEqual(["--nonsense"]);
    expect(await unknownIn(shellWords("db worst"))).toEqual(["worst"]);
    expect(await unknownIn(shellWords("tune conv9"))).toEqual(["conv9"]);
  });

  it("import from the package only names that it exports", async () => {
    const api = new Map<string, Promise<object>>([["automap", import("../../automap.ts")]]);
    for (const name of readdirSync("entries").map((file) => file.replace(".ts", "")))
      api.set(`automap/${name}`, import(`../../entries/${name}.ts`));
    const programs = PAGES.flatMap((page) => fencedIn(page, "ts"));
    const imported = programs.flatMap((text) =>
      [...text.matchAll(/import \{([^}]*)\} from "(automap(?:\/\w+)?)"/g)].flatMap(([, names = "", entry = ""]) =>
        names.split(",").flatMap((name) => (/^\s*type /.test(name) ? [] : [{ name: name.trim(), entry }])),
      ),
    );
    expect(imported).toContainEqual({ name: "load", entry: "automap" });
    for (const { name, entry } of imported) expect(await api.get(entry), entry).toHaveProperty(name);
  });

  it("link to files that exist, and to no local path outside the package", () => {
    for (const page of PAGES) {
      for (const [, link, picture] of read(page).matchAll(/\]\((?!https?:)([^)#]+)\)|src(?:set)?="([^"]+)"/g)) {
        const target = link ?? picture ?? "";
        expect(existsSync(join(dirname(page), target)), `${page}: ${target}`).toBe(true);
      }
      expect(read(page)).not.toMatch(/\/work\/|\bfacts\/|shared\//);
    }
  });
});

/** The rows of tables of results: the page of bench/results that a row or one above it links, and its figures, versions of programs left out. */
function figuresOf(page: string): { readonly file: string; readonly figures: readonly string[] }[] {
  let file: string | undefined;
  return [...read(page).matchAll(/<!-- figures -->([\s\S]*?)<!-- \/figures -->/g)].flatMap(([, part = ""]) =>
    part.split("\n").flatMap((line) => {
      const cells = line.split("|").slice(1, -1);
      const last = cells.at(-1) ?? "";
      const [, linked] = /\]\([./]*(bench\/results\/[\w-]+\.md)\)/.exec(last) ?? [];
      file = linked ?? (cells.length > 0 ? file : undefined);
      if (file === undefined) return [];
      const versions = /\d+\.\d+\.\d+|(?:PyTorch|Runtime|g\+\+|CUDA) \d+\.\d+/g;
      const said = cells.slice(0, -1).join("|").replaceAll(versions, "");
      return [{ file, figures: [...said.matchAll(/\d+\.\d+/g)].map(([figure]) => figure) }];
    }),
  );
}

describe("the tables of results", () => {
  it.each(["README.md", "docs/results.md"])("%s: every figure is in the page that its row links", (page) => {
    const rows = figuresOf(page);
    expect(rows.length).toBeGreaterThan(7);
    for (const { file, figures } of rows) {
      // Rows of single layers have so many figures that any would be found among them.
      const text = read(file).replaceAll(/^\| [a-z]\w\w-\d.*$/gm, "");
      expect({ file, missing: figures.filter((figure) => !text.includes(figure)) }).toEqual({ file, missing: [] });
    }
  });

  it("docs/results.md: every figure of a paragraph is in a page that the paragraph links", () => {
    const paragraphs = read("docs/results.md").split(/\n\n/);
    const told = paragraphs.flatMap((text) => {
      const linked = [...text.matchAll(/\]\(\.\.\/(bench\/results\/[\w-]+\.md)\)/g)].map(([, page = ""]) => read(page));
      const figures = [...text.matchAll(/(?<![\d.])\d+\.\d\d?(?![\d.])/g)].map(([figure]) => figure);
      return text.startsWith("|") || linked.length === 0 ? [] : figures.map((figure) => ({ figure, linked }));
    });
    expect(told.length).toBeGreaterThan(10);
    const missing = told.filter(({ figure, linked }) => !linked.some((page) => page.includes(figure)));
    expect(missing.map(({ figure }) => figure)).toEqual([]);
  });

  it("docs/results.md repeats what the tables of layers say against oneDNN", () => {
    const page = read("docs/results.md");
    const said = page.slice(page.indexOf("## Convolutions on CPUs"), page.indexOf("## Operators on an H100"));
    const rows = [...said.matchAll(/^\| (?:Xeon with AMX|the same|EPYC, Zen 5).*\|$/gm)].flatMap(([row]) =>
      [...row.matchAll(/(?<=\| )\d\.\d\d(?= \|)/g)].map(([figure]) => figure),
    );
    const table = said.slice(said.indexOf("| operator | u8s8"), said.indexOf("On a Zen 5, depthwise"));
    const others = [...table.matchAll(/\d\.\d\d/g)].map(([figure]) => figure);
    const pages = ["layers-xeon-amx-16", "layers-xeon-amx", "layers-xeon-amx-32", "layers-zen5"].map((n) =>
      read(`bench/results/${n}.md`),
    );
    const measured = new Set(
      pages.flatMap((text) => [...text.matchAll(/: (\d\.\d\d)x by geomean/g)].map(([, f]) => f)),
    );
    expect(rows.length + others.length).toBeGreaterThan(40);
    expect([...rows, ...others].filter((figure) => !measured.has(figure))).toEqual([]);
  });
});

describe("README.md", () => {
  it("ends within 150 lines", () => {
    expect(README.split("\n").length).toBeLessThanOrEqual(151);
  });

  it("has limits that the command confirms", async () => {
    const limits = README.slice(README.indexOf("## Limits"), README.indexOf("## More"));
    const cases = [...limits.matchAll(/`automap ([^`]*)`[^`]*?\(exit code (\d)\)/g)];
    expect(cases).toHaveLength(4);
    for (const [, line = "", code] of cases) {
      const ran = await commandLine(line);
      expect({ line, code: `${ran.code}` }).toEqual({ line, code });
    }
  });

  it("has a page that shows programs of examples/", () => {
    const joined = (text: string): string => text.replaceAll(/\s+/g, " ").replaceAll(/,? \}/g, " }");
    const examples = ["mappings", "tune-and-load", "network"].map((name) =>
      read(`examples/${name}.ts`).replace(/^\/\*\*.*\*\/\n\n/, ""),
    );
    expect(fencedIn("docs/library.md", "ts").map(joined)).toEqual(examples.map(joined));
  });

  it("has a page with every rule of a refusal, in the order in which they are shown", () => {
    const rows = [...read("docs/mapping.md").matchAll(/^\| `([a-z-]+)` \| /gm)].map(([, rule]) => rule);
    expect(rows).toEqual(RULES);
  });

  it("has a page with the counts that the mapper gives", () => {
    const [wmma] = intrinsicsNamed("wmma.m16n16k16.f32.f16");
    if (!wmma) throw new Error("no such row");
    const rows = [...read("docs/mapping.md").matchAll(/^\| ([a-z0-9-]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$/gm)];
    expect(rows).toHaveLength(15);
    for (const [, name = "", ...counts] of rows) {
      const computation = instantiate(operatorNamed(name), { types: parseDataTypes("f16") });
      const count = (options: Parameters<typeof mappings>[2]): number =>
        mappings(computation, wmma, options).valid.length;
      const ours = [count({ rule: "amos" }), count({ rule: "amos" }), count({ binding: "fixed" }), count({})];
      expect([name, ...counts.map(Number)]).toEqual([name, ...ours]);
    }
  });

  it("has a page that states the notation in equations that parse", async () => {
    const { parseEquation, parseExpr } = await import("../../abstraction/parse.ts");
    const [, block = ""] = fencedIn("docs/notation.md", "");
    const texts = block
      .trimEnd()
      .split("\n")
      .map((line) => line.split(/ {2,}/)[0] ?? "");
    expect(texts.length).toBeLessThanOrEqual(10);
    for (const text of texts) {
      if (text.startsWith("s32(x)")) for (const cast of text.split(/, /)) parseExpr(cast.replace("x", "x[i]"));
      else if (/^(tile|select)/.test(text)) parseExpr(text);
      else parseEquation(text);
    }
  });

  it("has a page that lists the exit codes of the command", () => {
    const listed = [...read("docs/cli.md").matchAll(/^\| (\d+) \|/gm)].map(([, code]) => Number(code));
    expect(listed).toEqual(Object.values(EXIT));
  });

  it("has tests of packages that end with codes of that list", () => {
    for (const file of ["self-test.h", "cuda-test.h"])
      expect(read(`package/files/${file}`)).toContain(
        `enum Outcome { RIGHT = ${EXIT.ok}, WRONG = ${EXIT.wrong}, NOT_TRIED = ${EXIT.environment} };`,
      );
  });

  it("links the index, which links every page of docs/", () => {
    expect(README).toContain("](docs/README.md)");
    const index = read("docs/README.md");
    const pages = PAGES.slice(1).map((page) => page.replace("docs/", ""));
    expect(pages.filter((page) => page !== "README.md" && !index.includes(`](${page})`))).toEqual([]);
  });

  it("names Node as the package does", () => {
    const { engines } = JSON.parse(read("package.json")) as { engines: { node: string } };
    expect(README).toContain(`Node ${engines.node.replace(">=", "")} or newer`);
  });
});
