/** @file A fleet of processes: binaries by hash, workers that are killed and stopped, a tuner that is stopped. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { admit, createFleet } from "../../fleet/members.ts";
import { compileProgram } from "../support/program.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";

describe.skipIf(!hasRedis)("a fleet of processes", async () => {
  const scratch = scratchFolder("automap-fleet-");
  const redis = await redisHere();
  const home = `node_modules/.cache/automap-fleet-${process.pid}`;
  const keys = join(scratch, "fleet");
  createFleet(keys);
  const running = new Set<ChildProcess>();
  beforeAll(() => compileProgram(home, ["cli/main.ts"]));
  afterAll(() => {
    for (const child of running) child.kill("SIGKILL");
    rmSync(home, { recursive: true, force: true });
  });

  /** A command in a process of its own, with caches of its own. */
  function begin(cache: string, words: readonly string[]) {
    const caches = join(scratch, cache);
    mkdirSync(caches, { recursive: true });
    const env = { ...process.env, XDG_CACHE_HOME: caches };
    const child = spawn(process.execPath, [join(home, "cli/main.js"), ...words], { env });
    running.add(child);
    const told = { out: "", err: "" };
    child.stdout.setEncoding("utf8").on("data", (text: string) => (told.out += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (told.err += text));
    const ended = once(child, "exit").then(([code]: unknown[]) => {
      running.delete(child);
      return { code, ...told };
    });
    const says = (pattern: RegExp): Promise<void> => expect.poll(() => told.err, { interval: 20 }).toMatch(pattern);
    return { child, ended, says, told };
  }

  const at = ["--fleet", redis.url];
  const worker = async (name: string, ...more: readonly string[]): Promise<ReturnType<typeof begin>> => {
    const begun = begin(name, ["worker", ...at, "--key", admit(keys, name, "worker"), ...more]);
    await begun.says(/compiles (?:\d at once|for itself); Ctrl-C ends it/);
    return begun;
  };
  const tuner = ["--fleet-key", admit(keys, "desk", "tuner")];
  /** A search of another product in each database: answers stay on the server for others that ask the same. */
  const tune = (database: string, trials: number) => {
    const m = String(32 + database.length);
    return begin("desk", [
      ...["tune", "matmul", "--m", m, "--n", "48", "--k", "48", "--dtype", "u8s8", "--intrinsic", "portable"],
      ...["--trials", String(trials), "--time", "200", "--db", join(scratch, database), ...at, ...tuner],
    ]);
  };
  const trialsIn = (database: string) => {
    const db = openDatabase(join(scratch, database), { readonly: true });
    const found = queryTrials(db).filter((trial) => trial.finals === undefined);
    db.close();
    return found;
  };
  /** Kernels in a worker's cache, and those of them that it compiled itself: the source of these lies beside. */
  const kept = (name: string, ending: string): number =>
    readdirSync(join(scratch, name, "automap", "fleet")).filter((file) => file.endsWith(ending)).length;

  it("compiles on one worker, measures on another, and stops when it is told to", async () => {
    const compiler = await worker("builder", "--measure", "none", "--compile", "2");
    const measurer = await worker("node1", "--compile", "0", "--pin", "0");
    const { code, out, err } = await tune("apart.db", 6).ended;
    expect({ code, err }).toEqual({ code: 0, err: expect.stringMatching(/1 worker of redis:.* \(node1\)/) });
    expect(out).toMatch(/a call/);
    expect(trialsIn("apart.db").map(({ conditions }) => conditions.worker)).toEqual(Array(6).fill("node1"));
    expect(kept("node1", ".so")).toBeGreaterThanOrEqual(6);
    expect(kept("builder", ".cpp")).toBeGreaterThanOrEqual(6);
    // What another compiled is out of the way of searches at home.
    expect(readdirSync(join(scratch, "node1", "automap"))).not.toContain("runtime");
    const status = await begin("desk", ["fleet", "status", ...at, "--key", join(keys, "desk.key"), "--json"]).ended;
    expect(JSON.parse(status.out)).toMatchObject({
      workers: [
        { name: "builder", measures: false, compiles: 2 },
        { name: "node1", measures: true, compiles: 0 },
      ],
      queues: [
        { task: "compile", workers: ["builder"], waiting: 0 },
        { task: "measure", workers: ["node1"], waiting: 0, active: 0 },
      ],
    });
    measurer.child.kill("SIGTERM");
    const drained = await begin("desk", ["fleet", "drain", "builder", ...at, "--key", join(keys, "desk.key")]).ended;
    expect(drained).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^builder finishes the job at hand and ends/),
    });
    expect(await measurer.ended).toMatchObject({ code: 0, err: expect.stringMatching(/worker node1 ends: \d+ jobs/) });
    expect(await compiler.ended).toMatchObject({ code: 0, err: expect.stringMatching(/desk asks this worker to end/) });
    const gone = await begin("desk", ["fleet", "status", ...at, "--key", join(keys, "desk.key")]).ended;
    expect(gone).toMatchObject({ code: 3, out: "", err: expect.stringMatching(/^no worker of this fleet/) });
  });

  it("tunes the layers of a file over one connection for all of as many threads", async () => {
    const node = await worker("node5");
    const file = join(scratch, "layers.yaml");
    writeFileSync(
      file,
      `defaults: { operator: matmul, intrinsic: portable, dtype: u8s8, trials: 2, time: 100 }
layers:
  - { name: last, parameters: { m: 40, n: 40, k: 40 }, priority: -1, threads: 2 }
  - { name: none, dtype: u8s8, intrinsic: portable.mla.f32.broadcast }
  - { name: first, parameters: { m: 24, n: 24, k: 24 } }
`,
    );
    const database = join(scratch, "layers.db");
    const { code, out, err } = await begin("desk", ["tune", "--layers", file, "--db", database, ...at, ...tuner]).ended;
    expect({ code, err }).toEqual({ code: 3, err: expect.stringContaining("1 of 3 layers failed") });
    // A place is for kernels of as many threads.
    expect(err.match(/^(measuring in a fleet|layer)/gm)).toEqual([
      "measuring in a fleet",
      "layer",
      "layer",
      "layer",
      "measuring in a fleet",
    ]);
    expect(err.match(/^layer \d of 3 {2}\w+/gm)).toEqual(
      ["none", "first", "last"].map((name, i) => `layer ${i + 1} of 3  ${name}`),
    );
    expect(out).toMatch(/^1 +last +[\d.]+ .*\n2 +none +nothing maps.*\n3 +first +[\d.]+ /m);
    expect(new Set(trialsIn("layers.db").map(({ conditions }) => conditions.worker))).toEqual(new Set(["node5"]));
    node.child.kill("SIGTERM");
    await node.ended;
  });

  it("loses no trial with a worker that is killed, and has each once", async () => {
    const first = await worker("node2");
    const search = tune("killed.db", 24);
    await search.says(/trial 1:/);
    first.child.kill("SIGKILL");
    const second = await worker("node3");
    const { code, err } = await search.ended;
    expect({ code, err, worker: second.told.err }).toMatchObject({ code: 0 });
    const by = trialsIn("killed.db").map(({ conditions }) => conditions.worker);
    expect(by).toHaveLength(24);
    expect(new Set(by)).toEqual(new Set(["node2", "node3"]));
    second.child.kill("SIGINT");
    expect((await second.ended).code).toBe(0);
  });

  it("ends a search with the best so far on SIGTERM, and the same command goes on", async () => {
    const node = await worker("node4");
    const search = tune("stopped.db", 40);
    await search.says(/trial 1:/);
    search.child.kill("SIGTERM");
    const { code, err } = await search.ended;
    expect({ code, err }).toEqual({ code: 130, err: expect.stringMatching(/ending the search with the best so far/) });
    const before = trialsIn("stopped.db");
    expect(before.length).toBeGreaterThan(0);
    expect(before.length).toBeLessThan(40);
    expect((await tune("stopped.db", before.length + 2).ended).code).toBe(0);
    expect(trialsIn("stopped.db")).toHaveLength(before.length + 2);
    node.child.kill("SIGTERM");
    await node.ended;
  });

  it("ends a worker at the second signal, also when its server has gone away", async () => {
    const node = await worker("node6");
    await redis.stop();
    await node.says(/^no connection to the fleet's server/m);
    node.child.kill("SIGTERM");
    await node.says(/^finishing the job at hand/m);
    node.child.kill("SIGTERM");
    expect(await node.ended).toMatchObject({ code: 0, err: expect.stringMatching(/^worker node6 ends: 0 jobs/m) });
  });
});
