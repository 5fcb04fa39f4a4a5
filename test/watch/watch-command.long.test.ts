/** @file `automap watch` as a process: its link, its end by Ctrl-C, what it refuses, and a search of another process that it shows. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync, writeFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openDatabase } from "../../db/index.ts";
import { complaint } from "../support/cli.ts";
import { workshop } from "../support/database.ts";
import { beginSearch } from "../support/live-search.ts";
import { compileProgram } from "../support/program.ts";

const shop = workshop();
const home = `node_modules/.cache/automap-watch-${process.pid}`;
const children: ChildProcess[] = [];

beforeAll(() => compileProgram(home, ["cli/main.ts"]));
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
});
afterAll(() => {
  rmSync(home, { recursive: true, force: true });
  shop.remove();
});

/** The command once it printed its link. */
async function begun(file: string, ...words: readonly string[]) {
  const child = spawn(process.execPath, [`${home}/cli/main.js`, "watch", "--db", file, ...words]);
  children.push(child);
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  const [link] = (await once(child.stdout.setEncoding("utf8"), "data")) as [string]; // encoded above
  return { child, link: link.trim(), said: () => said };
}

/** The exit code after Ctrl-C, or the signal that ended it. */
const ended = async (child: ChildProcess): Promise<unknown> => {
  child.kill("SIGINT");
  const [code, signal] = (await once(child, "exit")) as unknown[];
  return code ?? signal;
};

describe("automap watch", () => {
  it("waits for a database, shows what another process searches, and ends by Ctrl-C", async () => {
    const file = shop.path("late.db");
    const { child, link, said } = await begun(file);
    expect(said()).toBe(`automap: there is no database at ${file}; waiting for it\n`);
    const db = openDatabase(file);
    beginSearch(db).land(4);
    await expect.poll(async () => (await fetch(link)).text()).toContain("4 of 160");
    const hearing = await fetch(`${link}events`);
    expect(await ended(child)).toBe(130);
    expect(await hearing.text()).toContain("event: end");
    await expect(fetch(link)).rejects.toThrow("fetch failed");
    db.close();
  });

  it("serves at the port that is asked for, and says when that is taken", async () => {
    openDatabase(shop.path("port.db")).close();
    const first = await begun(shop.path("port.db"));
    const port = new URL(first.link).port;
    expect(await complaint(["watch", "--db", shop.path("port.db"), "--port", port], 6)).toContain(
      `automap: port ${port} of 127.0.0.1 cannot be had`,
    );
    expect(await ended(first.child)).toBe(130);
    const second = await begun(shop.path("port.db"), "--port", port);
    expect(new URL(second.link).port).toBe(port);
    expect(second.link).not.toBe(first.link);
  });

  it("ends by Ctrl-C from the moment on that its link is read", async () => {
    const codes = await Promise.all([1, 2, 3, 4].map(async () => ended((await begun(shop.path("soon.db"))).child)));
    expect(codes).toEqual([130, 130, 130, 130]);
  });

  it("refuses in a sentence what it cannot show", async () => {
    writeFileSync(shop.path("notes.txt"), "a text that is long enough to be no database at all, and not a short one");
    expect(await complaint(["watch", "--db", shop.path("notes.txt")])).toMatch(/notes\.txt is not a SQLite database/);
    expect(await complaint(["watch", "--port", "65536"])).toContain("--port must be less than 65536, got 65536");
    expect(await complaint(["watch", "--port", "http"])).toContain('--port must be a whole number, got "http"');
  });
});
