/** @file A database is followed while others write it: what runs, what landed, what ended, what was killed, and what is wrong with the file. */

import { spawnSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import Sqlite from "better-sqlite3";
import { afterEach, describe, expect, it } from "vitest";
import type { Patch } from "../../report/live-script.ts";
import { Watch } from "../../session/watch/watch.ts";
import { eachWorkshop, MACHINE, tamper, workloadNamed } from "../support/database.ts";
import { beginSearch } from "../support/live-search.ts";
import { wordsOf } from "../support/page-text.ts";

const shop = eachWorkshop();
const watches: Watch[] = [];
afterEach(() => {
  for (const watch of watches.splice(0)) watch.close();
});

function watching(file: string, later = 0): Watch {
  const watch = new Watch(file, { clock: () => Date.now() + later });
  watches.push(watch);
  return watch;
}

const MATMUL = workloadNamed("matmul", { m: 64, n: 64, k: 64 });

const pageOf = (watch: Watch): string => wordsOf(watch.page("events"));
const patchesOf = (watch: Watch): readonly Patch[] => {
  const found = watch.look();
  if (found === "reload") throw new Error("another page");
  return found;
};
const grown = (patches: readonly Patch[]): string[] => patches.flatMap(([what, id]) => (what === "grow" ? [id] : []));

/** Id of a process that ended. */
const gone = (): number => spawnSync("true").pid;

describe("a file", () => {
  it("that is not there is waited for, and followed once it is", () => {
    const file = shop.path("late.db");
    const watch = watching(file);
    expect(pageOf(watch)).toContain(`there is no database at ${file}.`);
    expect(watch.look()).toEqual([]);
    beginSearch(shop.open("late.db")).land(2);
    expect(JSON.stringify(watch.look())).toContain("1 search runs now");
    expect(pageOf(watch)).toContain("2 of 160");
  });

  it("is one file again when the watch ends after the search", () => {
    const db = shop.open("one.db");
    const search = beginSearch(db);
    search.land(1);
    const watch = watching(shop.path("one.db"));
    search.end();
    db.close();
    watch.close();
    expect(["", "-wal", "-shm"].map((end) => existsSync(shop.path(`one.db${end}`)))).toEqual([true, false, false]);
  });

  it("that is not automap's is refused in a sentence", () => {
    writeFileSync(shop.path("notes.txt"), "milk, bread, and a text that is long enough to be no database at all");
    expect(() => new Watch(shop.path("notes.txt"))).toThrow(/notes\.txt is not a SQLite database$/);
    new Sqlite(shop.path("foreign.db")).exec("CREATE TABLE t (a)").close();
    expect(() => new Watch(shop.path("foreign.db"))).toThrow(
      /foreign\.db is a SQLite database, but not one of automap's$/,
    );
  });

  it("that another program locks is waited for, and said to be", () => {
    const db = shop.open("held.db");
    beginSearch(db).land(1);
    db.close();
    const holder = new Sqlite(shop.path("held.db"));
    holder.pragma("locking_mode = EXCLUSIVE");
    holder.exec("BEGIN EXCLUSIVE");
    const watch = watching(shop.path("held.db"));
    expect(pageOf(watch)).toContain("held.db stayed locked by another process");
    holder.close();
    watch.look();
    expect(pageOf(watch)).toContain("1 search runs now");
  });

  it("that is replaced is read anew", () => {
    const db = shop.open("new.db");
    beginSearch(db).land(3);
    const watch = watching(shop.path("new.db"));
    expect(pageOf(watch)).toContain("3 of 160");
    db.close();
    for (const end of ["", "-wal", "-shm"]) rmSync(shop.path(`new.db${end}`), { force: true });
    watch.look();
    expect(pageOf(watch)).toContain("there is no database at");
    beginSearch(shop.open("new.db")).land(1);
    watch.look();
    expect(pageOf(watch)).toContain("1 of 160");
  });

  it("with a damaged row is said to be damaged, and followed again once it is whole", () => {
    const db = shop.open("damaged.db");
    const search = beginSearch(db);
    const watch = watching(shop.path("damaged.db"));
    search.land(1);
    const held = db.sqlite.prepare("SELECT candidate FROM trials").pluck().get();
    tamper(db.sqlite, "UPDATE trials SET candidate = '{}'");
    watch.look();
    expect(pageOf(watch)).toMatch(/trial \w+ is damaged/);
    tamper(db.sqlite, () => db.sqlite.prepare("UPDATE trials SET candidate = ?").run(held));
    watch.look();
    expect(pageOf(watch)).toContain("1 of 160");
  });
});

describe("a search", () => {
  it("is told by what landed, not as a whole", () => {
    const search = beginSearch(shop.open("live.db"));
    const watch = watching(shop.path("live.db"));
    search.land(100);
    expect(JSON.stringify(watch.look())).toContain("<svg");
    const whole = watch.page("events").length;
    search.land(5);
    const patches = patchesOf(watch);
    const drawn = patches.filter(([, id]) => /-(trials|seconds|model)-/.test(id));
    expect(new Set(grown(patches).map((id) => id.replace(/^r\w+-/, "")))).toEqual(
      new Set([
        "trials-interval",
        "trials-mark",
        "trials-failed",
        "seconds-interval",
        "seconds-mark",
        "seconds-failed",
        "model-mark",
      ]),
    );
    expect(JSON.stringify(drawn)).not.toContain("<svg");
    expect(JSON.stringify(drawn).length).toBeLessThan(whole / 10);
  });

  it("is the same page for who comes late as for who was there", () => {
    const search = beginSearch(shop.open("live.db"));
    const early = watching(shop.path("live.db"));
    for (let i = 0; i < 20; i++) {
      search.land(7);
      early.look();
    }
    const late = watching(shop.path("live.db"));
    // Charts that grew may have another room ahead than one that is drawn at once.
    const figures = (page: string): string => wordsOf(page.replaceAll(/<svg[\s\S]*?<\/svg>/g, ""));
    expect(figures(early.page("events"))).toBe(figures(late.page("events")));
    const marks = (page: string): number => page.match(/a2\.8 2\.8|h5/g)?.length ?? 0;
    expect(marks(early.page("events"))).toBe(marks(late.page("events")));
  });

  it("is followed by the report when it ends, and by the next search when that begins", () => {
    const db = shop.open("live.db");
    const search = beginSearch(db);
    search.land(20);
    search.end();
    // Ended by a process that is gone: nothing else is to come of it.
    const next = { process: gone(), workload: MATMUL };
    const watch = watching(shop.path("live.db"), 3_600_000);
    expect(pageOf(watch)).toContain("automap report");
    expect(pageOf(watch)).toContain("No search runs now; this page shows the next one when it begins.");
    expect(watch.look()).toEqual([]);
    const second = beginSearch(db, { ...next, process: process.pid, started: Date.now() + 1 });
    expect(watch.look()).toBe("reload");
    expect(pageOf(watch)).toContain("1 search runs now");
    second.land(3);
    second.end();
    expect(watch.look()).toBe("reload");
    expect(pageOf(watch)).toContain("automap report");
  });

  it("that was killed is not said to run", () => {
    const db = shop.open("killed.db");
    beginSearch(db, { process: gone(), started: Date.now() - 120_000 });
    const watch = watching(shop.path("killed.db"));
    expect(pageOf(watch)).toMatch(
      /Recorded as running, and not going on: conv2d .*: its process \d+ is not on this machine any more, so it was killed/,
    );
    expect(pageOf(watch)).toContain("No search runs now");
  });

  it("whose process is elsewhere runs while trials of it land", () => {
    const db = shop.open("elsewhere.db");
    const search = beginSearch(db, { process: gone() });
    const watch = watching(shop.path("elsewhere.db"));
    expect(pageOf(watch)).toContain("No search runs now");
    search.land(1);
    expect(watch.look()).toBe("reload");
    expect(pageOf(watch)).toMatch(/Trials land, though this user has no process \d+ here/);
  });

  it("of another process that took the number does not count as running", () => {
    const db = shop.open("number.db");
    beginSearch(db, { started: Date.now() - 3_600_000 * 24 * 365 });
    expect(pageOf(watching(shop.path("number.db")))).toContain("No search runs now");
  });

  it("of a machine whose clock is slow is followed all the same", () => {
    const db = shop.open("slow.db");
    const search = beginSearch(db, { process: gone() });
    const watch = watching(shop.path("slow.db"), 600_000);
    search.land(1);
    expect(watch.look()).toBe("reload");
    expect(pageOf(watch)).toContain("1 of 160");
  });

  it("says what time is left of its budget", () => {
    beginSearch(shop.open("time.db"), { seconds: 600 });
    expect(pageOf(watching(shop.path("time.db"), 60_000))).toMatch(
      /time left at most (9 min 0 s|8 min 59 s) of 10 min 0 s for trials/,
    );
    expect(pageOf(watching(shop.path("time.db"), 660_000))).toContain("time left time is up Finals may decide");
  });

  it("is one of the tasks of its process, with its share of the time", () => {
    const db = shop.open("tasks.db");
    const first = beginSearch(db);
    first.land(10);
    first.end();
    beginSearch(db, { workload: MATMUL, started: Date.now() + 1 }).land(2);
    expect(pageOf(watching(shop.path("tasks.db"), 9000))).toMatch(
      /Tasks of process \d+ .* conv2d .* 1 0 s \d\.\d % 10 .* done matmul .* 1 9 s 9\d\.\d % 2 .* searched now/,
    );
  });

  it("for a network is told with the time left for all tasks, and what their steps take", () => {
    const db = shop.open("network.db");
    const network = { name: "resnet18", steps: 3, seconds: 300 };
    const first = beginSearch(db, { budget: { left: 20, network } });
    first.land(10);
    first.end();
    const second = {
      workload: MATMUL,
      started: Date.now() + 1,
      budget: { left: 12, network: { ...network, seconds: 280 } },
    };
    beginSearch(db, second).land(2);
    const page = pageOf(watching(shop.path("network.db"), 10_000));
    expect(page).toContain("Tasks of resnet18");
    expect(page).toMatch(/time left for all tasks at most (4 min 30 s|4 min 29 s) 2 tasks searched so far/);
    // 3 steps of 192.5 us and 3 of 424.8 us; at first all of 501 us.
    expect(page).toContain(
      "steps of these tasks 1.852 ms 1.62 times as fast as with the first kernels, which took 3.006 ms.",
    );
    expect(page).toMatch(/time left at most \d s of 12 s for trials/);
  });

  it("on a machine and for a network with hostile names is shown as text", () => {
    const db = shop.open("hostile.db");
    const cpu = "<img src=x onerror=alert(1)></script>";
    const environment = { ...MACHINE, cpu };
    const network = { name: `${cpu}"onload="alert(1)`, steps: 1, seconds: 9 };
    beginSearch(db, { environment }).land(3);
    const watch = watching(shop.path("hostile.db"));
    beginSearch(db, { environment, workload: MATMUL, started: Date.now() + 1, budget: { network } }).land(3);
    const told = patchesOf(watch).map(([, , text]) => text);
    for (const markup of [watch.page("events"), ...told]) expect(markup).not.toContain("<img");
    for (const markup of [watch.page("events"), told.join("")]) {
      expect(markup).toContain("&lt;img src=x onerror=alert(1)&gt;&lt;/script&gt;");
      expect(markup).toContain("&lt;/script&gt;&quot;onload=&quot;alert(1)");
    }
  });
});
