/** @file The folder of a runner, deleted once nothing writes into it. */

import { existsSync, mkdtempSync, readdirSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import { createRunner } from "../../runtime/measure.ts";
import { OwnFolder } from "../../runtime/own-folder.ts";
import { Measuring, QUICK, right } from "../support/measuring.ts";

const at = new Measuring();

describe("the folder of a runner", () => {
  it("that the system won't delete is a fault of the machine", async () => {
    await expect(new OwnFolder("/dev/null/folder").remove()).rejects.toThrow(EnvironmentError);
  });

  it("is deleted after pending writes, and refuses later ones", async () => {
    const folder = new OwnFolder(mkdtempSync(join(tmpdir(), "automap-folder-")));
    const events: string[] = [];
    let open: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const writing = folder.writing(async () => {
      await gate;
      await mkdir(join(folder.path, "0"));
      await writeFile(join(folder.path, "0", "random.input0"), "1");
      events.push("written");
    });
    const removing = folder.remove().then(() => events.push("removed"));
    await expect(folder.writing(() => mkdir(join(folder.path, "late")))).rejects.toThrow("stopped");
    open();
    await Promise.all([writing, removing]);
    expect(events).toEqual(["written", "removed"]);
    expect(existsSync(folder.path)).toBe(false);
  });

  it("is deleted although a write fails, and the writer is told", async () => {
    const folder = new OwnFolder(mkdtempSync(join(tmpdir(), "automap-folder-")));
    const writing = folder.writing(() => Promise.reject(new Error("no room")));
    await Promise.all([expect(writing).rejects.toThrow("no room"), folder.remove()]);
    expect(existsSync(folder.path)).toBe(false);
  });

  it("is not created again by measurements under way when their runner is closed", async () => {
    const made = await createRunner({ ...QUICK, workdir: at.workdir });
    if (made.status === "environment") throw new Error(made.what);
    const others = readdirSync(at.workdir).filter((name) => name.startsWith("runner-")).length - 1;
    expect(await made.runner.measure(right, at.reference)).toMatchObject({ status: "ok" });
    // So many that their files are still being written when the runner is closed.
    const under = Array.from({ length: 300 }, () =>
      made.runner.measure(right, { ...at.reference }).catch((error: unknown) => `${error}`),
    );
    await made.runner.close();
    expect(new Set(await Promise.all(under))).toEqual(new Set(["Error: measuring was stopped"]));
    expect(readdirSync(at.workdir).filter((name) => name.startsWith("runner-"))).toHaveLength(others);
  });
});
