/**
 * @file The tutorials and README's ten tasks, walked as a reader does: each block of a page is run in order, in a folder of its own. A block below a
 * line that ends with "`NAME`:" is written as that file. Searches and matrices are cut short. What blocks fenced `console` show must be what is
 * printed; what blocks fenced `sh` tell must succeed.
 */

import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fileOf, placeOf, readersTasks, writeReadersFiles } from "../support/page-walk.ts";
import { commandsOf, fences, fits } from "../support/pages.ts";
import { compileProgram } from "../support/program.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder();
const home = `node_modules/.cache/automap-tutorials-${process.pid}`;

beforeAll(() => {
  compileProgram(home, ["cli/main.ts", "automap.ts"]);
  for (const folder of ["emulation", "harness"])
    cpSync(`runtime/${folder}`, `${home}/runtime/${folder}`, { recursive: true });
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

/** A page with small matrices: those of 512 cubed are of 32, and the sum that a page prints is smaller too. */
const small = (text: string): string => text.replaceAll(/\b512\b/g, "32").replaceAll(/\b1024\b/g, "64");

/** A search as this test makes it: of two kernels, however long the reader's takes. */
function shortened(command: string): string {
  if (/automap tune-network /.test(command)) return command.replace(/--time \d+/, "--time 5");
  const isSearch = /automap tune /.test(command) && !command.includes("--model-only");
  return isSearch ? `${command.replace(/ --time \d+/, "")} --trials 2` : command;
}

function walk(name: string, text: string): void {
  const { cwd, run } = placeOf(join(scratch, name), home);
  for (const { language, body, lead } of fences(small(text))) {
    const file = fileOf(lead);
    if (file !== undefined) writeFileSync(join(cwd, file), body);
    else if (language === "sh" || language === "console") {
      for (const { command, output } of commandsOf(body)) {
        if (command === "npm ci") continue;
        const ran = run(shortened(command));
        const printed = `${ran.stdout}${ran.status === 0 ? "" : ran.stderr}`.trimEnd().split("\n");
        if (output.length > 0 && !fits(output, printed)) expect(printed.join("\n")).toBe(output.join("\n"));
        // A refusal that is shown ends with a code of its own.
        const failure = ran.status === 0 ? "" : ran.stderr;
        if (output.length === 0) expect({ command, failure }).toEqual({ command, failure: "" });
      }
    }
  }
}

describe("the ten tasks of README.md, in a clean home whose path has a space", () => {
  const README = small(readFileSync("README.md", "utf8"));
  const tasks = readersTasks(README);
  const folder = join(scratch, "a reader's folder");
  let place: ReturnType<typeof placeOf>;
  beforeAll(() => {
    mkdirSync(join(folder, "home"), { recursive: true });
    place = placeOf(folder, home, { HOME: join(folder, "home"), XDG_CACHE_HOME: "" });
    writeReadersFiles(README, folder);
  });

  it("are ten, each with commands and a time", () => {
    expect(tasks).toHaveLength(10);
    expect(tasks.filter(({ commands }) => commands.length === 0)).toEqual([]);
  });

  /** What a task leaves, and what its last command prints, by the first words of its wish. */
  const RESULTS: Readonly<
    Record<string, { readonly files?: readonly string[]; readonly says?: RegExp; readonly code?: number }>
  > = {
    "to know what": { says: /compiler +ok/ },
    "one fast kernel": { files: ["automap.db"], says: /a call \(95 % interval/ },
    "to call it from C": { files: ["matmul/matmul.h", "main"] },
    "to call it from Node": { says: /^64$/m },
    "a kernel of my own": { says: /a call \(95 % interval/ },
    "to know why": { says: /nothing maps[\s\S]*operand-types/, code: 3 },
    "to hand results": { files: ["main.jsonl", "main.db"], says: /2 compared[\s\S]*accepted/ },
    "a page that shows": { files: ["report.html"] },
    "a whole ONNX model": { files: ["net/network.json"], says: /right: \d steps/ },
    "a kernel for a machine": { files: ["matmul.cu"], says: /predicted to take/ },
  };

  it.for(tasks)("$want", ({ want, commands }) => {
    const [, { files = [], says = /(?:)/, code = 0 } = {}] =
      Object.entries(RESULTS).find(([begin]) => want.startsWith(begin)) ?? expect.fail(`no result of "${want}"`);
    for (const command of commands) {
      const { status, stdout, stderr } = place.run(shortened(command));
      expect({ command, status, stderr: status === code ? "" : stderr }).toEqual({ command, status: code, stderr: "" });
      if (command === commands.at(-1)) expect(`${stdout}${stderr}`).toMatch(says);
    }
    for (const file of files) expect(existsSync(join(folder, file)), file).toBe(true);
  });
});

describe("a page as a reader walks it", () => {
  const slow = process.env["AUTOMAP_SLOW"] === "1";

  it.for(readdirSync("docs").filter((page) => page.startsWith("tutorial-")))("docs/%s", (page, context) => {
    context.skip(page === "tutorial-network.md" && !slow, "a network takes minutes to compile: AUTOMAP_SLOW=1 runs it");
    walk(page, readFileSync(`docs/${page}`, "utf8"));
  });
});
