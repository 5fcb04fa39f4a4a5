/**
 * @file The tutorials and README's quick win, walked as a reader does: each block of a page is run in order, in a folder of its own. A block below a
 * line that ends with "`NAME`:" is written as that file. Searches and matrices are cut short. What blocks fenced `console` show must be what is
 * printed; what blocks fenced `sh` tell must succeed.
 */

import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { commandsOf, fences, fits } from "../support/pages.ts";
import { compileProgram } from "../support/program.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder();
const home = `node_modules/.cache/automap-tutorials-${process.pid}`;
const bin = join(scratch, "bin");

beforeAll(() => {
  compileProgram(home, ["cli/main.ts"]);
  for (const folder of ["emulation", "harness"])
    cpSync(`runtime/${folder}`, `${home}/runtime/${folder}`, { recursive: true });
  mkdirSync(bin);
  writeFileSync(join(bin, "automap"), `#!/bin/sh\nexec "${process.execPath}" "${resolve(home)}/cli/main.js" "$@"\n`);
  chmodSync(join(bin, "automap"), 0o755);
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

/** A page with small matrices: those of 512 cubed are of 32, and the sum that a page prints is smaller too. */
const small = (text: string): string => text.replaceAll(/\b512\b/g, "32").replaceAll(/\b1024\b/g, "64");

/** A search as this test makes it: of two kernels, however long the reader's takes. */
function shortened(command: string): string {
  const words = command.replace(/^npx /, "").replace(/^(automap tune-network .*--time) \d+/, "$1 10");
  return /^automap tune(?!-)/.test(words) ? `${words.replace(/ --time \d+/, "")} --trials 2` : words;
}

function walk(name: string, text: string): void {
  const cwd = join(scratch, name);
  mkdirSync(cwd);
  const env = { ...process.env, PATH: `${bin}:${process.env["PATH"] ?? ""}`, COLUMNS: "100" };
  for (const { language, body, lead } of fences(small(text))) {
    const [, file] = /`([\w.-]+\.\w+)`:$/.exec(lead) ?? [];
    if (file !== undefined) writeFileSync(join(cwd, file), body);
    else if (language === "sh" || language === "console") {
      for (const { command, output } of commandsOf(body)) {
        if (command === "npm ci") continue;
        const ran = spawnSync("bash", ["-c", shortened(command)], { cwd, env, encoding: "utf8" });
        const printed = `${ran.stdout}${ran.status === 0 ? "" : ran.stderr}`.trimEnd().split("\n");
        if (output.length > 0 && !fits(output, printed)) expect(printed.join("\n")).toBe(output.join("\n"));
        // A refusal that is shown ends with a code of its own.
        const failure = ran.status === 0 ? "" : ran.stderr;
        if (output.length === 0) expect({ command, failure }).toEqual({ command, failure: "" });
      }
    }
  }
}

describe("a page as a reader walks it", () => {
  const slow = process.env["AUTOMAP_SLOW"] === "1";

  it("README.md, its quick win", () => {
    const text = readFileSync("README.md", "utf8");
    walk("readme", text.slice(text.indexOf("## Try it"), text.indexOf("## Is it for you?")));
  });

  it.for(readdirSync("docs").filter((page) => page.startsWith("tutorial-")))("docs/%s", (page, context) => {
    context.skip(page === "tutorial-network.md" && !slow, "a network takes minutes to compile: AUTOMAP_SLOW=1 runs it");
    walk(page, readFileSync(`docs/${page}`, "utf8"));
  });
});
