/**
 * @file Pages and pictures of docs/ that commands make: docs/cli.md of the helps, the pictures of the drawing of a mapping. `npm run docs` writes
 * them anew.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { EXIT_MEANINGS } from "../../abstraction/exit-codes.ts";
import { commandLine } from "../support/command-line.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder();

/** What a command prints as its help, however wide the terminal of this test is. */
async function helpOf(path: readonly string[]): Promise<string> {
  const { columns } = process.stdout;
  process.stdout.columns = 100;
  try {
    const { code, out } = await commandLine([...path, "--help"]);
    expect({ path, code }).toEqual({ path, code: 0 });
    return out.trimEnd();
  } finally {
    process.stdout.columns = columns;
  }
}

/** The commands that a help lists, without the one that prints helps. */
function commandsIn(help: string): string[] {
  const listed = /\nCommands:\n((?: {2}.*\n?)*)/.exec(help)?.[1] ?? "";
  return [...listed.matchAll(/^ {2}([a-z][\w-]*)/gm)].flatMap(([, name = ""]) => (name === "help" ? [] : [name]));
}

async function sections(path: readonly string[]): Promise<string[]> {
  const help = await helpOf(path);
  const below: string[] = [];
  for (const name of commandsIn(help)) below.push(...(await sections([...path, name])));
  return [`## ${["automap", ...path].join(" ")}\n\n\`\`\`text\n${help}\n\`\`\`\n`, ...below];
}

const HEAD = `# The command line

Every command has \`--help\`; this page is made of them by \`npm run docs\`. Data goes to stdout; progress, remarks and errors go to stderr. Every
command that prints data has \`--json\`, and \`--json-schema\` prints the schema of that document.

| code | meaning |
|---|---|
${Object.entries(EXIT_MEANINGS)
  .map(([code, means]) => `| ${code} | ${means} |`)
  .join("\n")}

A script can tell a mistake (2) from a question that has no answer yet (3). The tests of packages end with the same codes: 0, 4 and 6.
`;

it("docs/cli.md has every help", async () => {
  const all = await sections([]);
  expect(all.length).toBeGreaterThan(30);
  expect(all.filter((section) => !/\nExamples?:\n {2}\S/.test(section))).toEqual([]);
  await expect([HEAD, ...all].join("\n")).toMatchFileSnapshot("../../docs/cli.md");
});

/** A drawing that follows the reader's choice of light or dark, as it looks in one of them. */
function inScheme(drawing: string, scheme: "light" | "dark"): string {
  const dark = /@media screen and \(prefers-color-scheme:dark\)\{((?:[^{}]*\{[^{}]*\})*)\}/;
  expect(drawing).toMatch(dark);
  return drawing.replace(dark, scheme === "dark" ? "$1" : "");
}

/** The pictures, each by the command that its page says to draw it with. */
const PICTURES = [
  { name: "mapping", page: "README.md", command: "explain conv2d --intrinsic amx.tdpbusd --svg mapping.svg" },
  {
    name: "first-kernel",
    page: "docs/tutorial-first-kernel.md",
    command: "explain matmul --m 512 --n 512 --k 512 --dtype f32 --intrinsic avx512.fma.f32.broadcast --svg matmul.svg",
  },
  {
    name: "design",
    page: "docs/systolic.md",
    command: 'systolic "z[c] += x[c+q]*w[q]" --c 4 --q 3 --show SBM --svg sbm.svg',
  },
];

it.each(PICTURES)("docs/pictures has that of $page, light and dark", async ({ name, page, command }) => {
  expect(readFileSync(page, "utf8")).toContain(`automap ${command}`);
  const file = join(scratch, `${name}.svg`);
  const { code } = await commandLine(command.replace(/[\w-]+\.svg$/, file));
  expect(code).toBe(0);
  const drawing = readFileSync(file, "utf8");
  for (const scheme of ["light", "dark"] as const)
    await expect(inScheme(drawing, scheme)).toMatchFileSnapshot(`../../docs/pictures/${name}-${scheme}.svg`);
});
