/**
 * @file The automap command as a process: exit codes, closed pipes, full disks, folders that may not be written,
 * Ctrl-C, colours.
 */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDatabase } from "../../db/index.ts";
import type { Ran } from "../support/command-line.ts";
import { compileProgram } from "../support/program.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder("automap cli's ");

describe("the automap command as a process", () => {
  const home = `node_modules/.cache/automap-cli-${process.pid}`;
  afterAll(() => rmSync(home, { recursive: true, force: true }));
  const shell = (script: string, env: Record<string, string> = {}): Ran => {
    const { status, stdout, stderr } = spawnSync("bash", ["-c", `set -o pipefail; ${script}`], {
      encoding: "utf8",
      env: { ...process.env, ...env, AUTOMAP: `${process.execPath} ${home}/cli/main.js` },
    });
    return { code: status ?? -1, out: stdout, err: stderr };
  };

  beforeAll(() => compileProgram(home, ["cli/main.ts"]));

  it("sets the exit codes", () => {
    expect(shell("$AUTOMAP map conv2d --intrinsic amx").code).toBe(0);
    expect(shell("$AUTOMAP map conv2dd").code).toBe(2);
    expect(shell("$AUTOMAP map matmul --dtype f64 --intrinsic amx").code).toBe(3);
  });

  it("ends quietly when its reader goes away", () => {
    const { code, out, err } = shell("$AUTOMAP map conv2d --intrinsic wmma.m16n16k16.f32.f16 --json | head -1");
    expect({ code, out, err }).toEqual({ code: 0, out: "{\n", err: "" });
  });

  it("goes on when nobody reads its progress", () => {
    const { code, out } = shell(
      "$AUTOMAP tune matmul --m 8 --n 8 --k 8 --dtype s16 --intrinsic portable --trials 2 --db :memory: 2> >(head -c 1 >/dev/null)",
    );
    expect({ code, out }).toEqual({ code: 0, out: expect.stringContaining("a call") });
  });

  it("leaves nothing of a batch whose export Ctrl-C ends", async () => {
    const folder = join(scratch, "batch");
    const words = "batch export matmul --m 512 --n 512 --k 512 --kernels 500 --out".split(" ");
    const child = spawn(process.execPath, [`${home}/cli/main.js`, ...words, folder], { stdio: "ignore" });
    const ended = once(child, "exit");
    await expect.poll(() => existsSync(folder), { interval: 10 }).toBe(true);
    child.kill("SIGINT");
    expect(await ended).toEqual([130, null]);
    expect(existsSync(folder)).toBe(false);
  });

  it("says that stdout takes no more, whatever the command prints", () => {
    for (const words of ["map conv2d --intrinsic wmma.m16n16k16.f32.f16 --json", "--help"])
      expect(shell(`$AUTOMAP ${words} > /dev/full`)).toEqual({
        code: 6,
        out: "",
        err: "automap: cannot write to stdout: the disk is full\n  free some space, or name a place on another disk\n",
      });
  });

  it("refuses an unwritable path before doing anything else", (context) => {
    const closed = join(scratch, "closed");
    mkdirSync(closed);
    openDatabase(join(closed, "there.db")).close();
    chmodSync(scratch, 0o755);
    chmodSync(join(closed, "there.db"), 0o444);
    chmodSync(closed, 0o555);
    // Root may write anything, so the process is somebody else's. One runs all lines.
    const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
    const asNobody = (...lines: readonly string[]) => {
      const each = `const { run } = await import(${JSON.stringify(resolve(home, "cli/program.js"))});
const [closed, ...lines] = process.argv.slice(1);
for (const line of lines) {
  console.error("$ " + line);
  console.error("code " + await run(line.split(" ").map((word) => word.replace("DIR", closed))));
}`;
      const options = { ...nobody, encoding: "utf8" } as const;
      const ran = spawnSync(process.execPath, ["--input-type=module", "--eval", each, "--", closed, ...lines], options);
      const quoted = closed.replace("'", "'\\''");
      return { code: ran.status, out: ran.stdout, err: ran.stderr.replaceAll(quoted, "DIR").replaceAll(closed, "DIR") };
    };
    context.skip(asNobody().code !== 0, "nobody may read this folder");
    const lines = [
      "tune conv2d --db DIR/new.db",
      "calibrate --db DIR/new.db",
      "tune conv2d --db DIR/there.db",
      "tune conv2d --to DIR/k.cpp",
      "db import DIR/missing.jsonl --db DIR/new.db",
      "db merge DIR/missing.db --db DIR/new.db",
    ];
    expect(asNobody(...lines)).toMatchInlineSnapshot(`
      {
        "code": 0,
        "err": "$ tune conv2d --db DIR/new.db
      automap: DIR/new.db cannot be made in DIR: permission is denied
        change the permissions of the folder, or name another file
      code 6
      $ calibrate --db DIR/new.db
      automap: DIR/new.db cannot be made in DIR: permission is denied
        change the permissions of the folder, or name another file
      code 6
      $ tune conv2d --db DIR/there.db
      automap: DIR/there.db cannot be written: permission is denied
        change its permissions, or name another file
      code 6
      $ tune conv2d --to DIR/k.cpp
      automap: --to DIR/k.cpp cannot be written: permission is denied
        its result would be lost
        change its permissions or those of its folder, or name another
      code 6
      $ db import DIR/missing.jsonl --db DIR/new.db
      automap: cannot read DIR/missing.jsonl: there is no such file or directory
      code 3
      $ db merge DIR/missing.db --db DIR/new.db
      automap: there is no database at DIR/missing.db
        automap tune makes one: automap tune conv2d --db 'DIR/missing.db'; or name yours
      code 3
      ",
        "out": "",
      }
    `);
    expect(existsSync(join(closed, "new.db"))).toBe(false);
    chmodSync(closed, 0o755);
  });

  it("says how to continue when it is stopped at once", () => {
    const words = `tune matmul --m 8 --n 8 --k 8 --dtype s16 --intrinsic portable --db ${home}/stopped.db`;
    const stop = `trap 'kill -INT $search' USR1`;
    const { code, err } = shell(
      `$AUTOMAP ${words} 2> >(while read -r line; do echo "$line" >&2; case $line in "round 1:"* | "ending the search"*) kill -USR1 $$;; esac; done) & search=$!; ${stop}; wait $search; wait $search; wait $search`,
    );
    expect({ code, err }).toEqual({
      code: 130,
      err: expect.stringMatching(/go on with {3}automap tune matmul .* --db \S+\n$/),
    });
  });

  it("colours its output on a terminal only, and not under NO_COLOR", () => {
    // `script` gives it a terminal, where there is one to give.
    const onTerminal = (env: Record<string, string>): Ran =>
      shell(`script -qec "$AUTOMAP map conv2d --intrinsic amx.tdpbusd" /dev/null`, env);
    if (shell("command -v script").code === 0) {
      expect(onTerminal({ NO_COLOR: "" }).out).toContain("\u001b[1m49 mappings\u001b[22m");
      expect(onTerminal({ NO_COLOR: "1" }).out).not.toContain("\u001b[");
    }
    expect(shell("$AUTOMAP map conv2d --intrinsic amx.tdpbusd", { NO_COLOR: "" }).out).not.toContain("\u001b[");
  });
});
