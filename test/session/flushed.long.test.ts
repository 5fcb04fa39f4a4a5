/** @file Searches that take a kernel's data out of the caches before each call, and the records that networks take. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Conditions, type Database, openDatabase, queryTrials, type TrialRecord } from "../../db/index.ts";
import { GraphBuilder } from "../../network/builder.ts";
import type { Task } from "../../network/tasks.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { openGraph, recordedKernel, tunedTasks } from "../../session/network/network.ts";
import { cacheOfTask } from "../../session/network/task-memory.ts";
import { type TuneNetworkOptions, tuneNetwork } from "../../session/network/tune-network.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { nativeTarget } from "../../targets/index.ts";
import { runnerHere } from "../support/here.ts";
import { operation } from "../support/subjects.ts";

type Cache = Conditions["cache"];

describe("records", () => {
  const folder = mkdtempSync(join(tmpdir(), "automap-flushed-"));
  const database = join(folder, "flushed.db");
  const matmul = operation("matmul m=32 n=48 k=64");
  let db: Database;
  beforeAll(() => {
    db = openDatabase(database);
  });
  afterAll(() => {
    db.close();
    rmSync(folder, { recursive: true, force: true });
  });

  /** The records that a search of two kernels adds. */
  async function searched(cache: Cache, finals: boolean): Promise<readonly TrialRecord[]> {
    const known = new Set(queryTrials(db).map(({ id }) => id));
    const outcome = await tuneComputation({ computation: matmul }, { database, cache, finals, trials: 2 });
    if (!("best" in outcome)) throw new Error(outcome.status);
    return queryTrials(db).filter(({ id }) => !known.has(id));
  }

  it("say in which state of the caches a kernel was measured, and no search or replay takes one for the other", async () => {
    const cachesOf = (trials: readonly TrialRecord[]): readonly Cache[] => trials.map((t) => t.conditions.cache);
    const warm = await searched("warm", false);
    const flushed = await searched("flushed", false);
    expect([cachesOf(warm), cachesOf(flushed)]).toEqual([
      ["warm", "warm"],
      ["flushed", "flushed"],
    ]);
    expect(await searched("flushed", false)).toEqual([]);
    for (const [trial] of [warm, flushed]) {
      const { divergence, known } = await replayRun(db, trial?.run ?? "");
      expect([divergence, known]).toEqual([undefined, 0]);
    }
  });

  it("of flushed caches are a network's, unless those of warm ones alone were decided in finals", async () => {
    const runner = await runnerHere();
    const environment = environmentOf(runner);
    await runner.close();
    const taken = (): Cache | undefined => {
      const choice = recordedKernel(matmul, { db, environment }, { threads: 1, onGpu: false });
      return choice?.kind === "record" ? choice.cache : undefined;
    };
    expect(taken()).toBe("flushed");
    await searched("warm", true);
    expect(taken()).toBe("warm");
    await searched("flushed", true);
    expect(taken()).toBe("flushed");
  });
});

describe("a task of a network is measured", () => {
  const target = modelTarget(nativeTarget());
  const own = target.memory[1]?.bytes ?? 0;
  /** Products of a row by a square matrix of this many bytes, with the matrix of each. */
  function products(bytes: number, matrices: readonly number[]): ReturnType<typeof openGraph>["program"] {
    const net = new GraphBuilder("products");
    const n = Math.round(Math.sqrt(bytes / 4));
    const made = new Map(matrices.map((w) => [w, net.constant(`w${w}`, [n, n], new Float32Array(n * n).fill(w))]));
    let x = net.input("x", [1, n]);
    for (const w of matrices) x = net.node("MatMul", [x, made.get(w) ?? ""]);
    net.output(x);
    return openGraph(net.graph).program;
  }
  const cachesOf = (tasks: readonly Task[]): readonly Cache[] => tasks.map((task) => cacheOfTask(task, target));

  it("with flushed caches where its weights exceed a core's own", () => {
    expect(cachesOf(tunedTasks(products(2 * own, [1])))).toEqual(["flushed"]);
    expect(cachesOf(tunedTasks(products(2 * own, [1, 2, 1])))).toEqual(["flushed"]);
    expect(cachesOf(tunedTasks(products(own / 2, [1, 2])))).toEqual(["warm"]);
  });

  it("with flushed caches where the filters of a form exceed them, which are four times as large", () => {
    const channels = 16 * Math.floor(Math.sqrt(own / 36) / 16);
    const cacheWith = (size: number): readonly Cache[] => {
      const net = new GraphBuilder("convolution");
      const filters = net.constant("w", [channels, channels, size, size], new Float32Array(channels ** 2 * size ** 2));
      net.output(net.node("Conv", [net.input("x", [1, channels, size, size]), filters]));
      return cachesOf(tunedTasks(openGraph(net.graph).program));
    };
    expect([cacheWith(3), cacheWith(2)]).toEqual([["flushed"], ["warm"]]);
  });

  it("with warm ones where several steps read the same weights, or none", () => {
    expect(cachesOf(tunedTasks(products(2 * own, [1, 1])))).toEqual(["warm"]);
    const net = new GraphBuilder("attention");
    const [a, b] = ["a", "b"].map((name) => net.input(name, [512, 512])) as [string, string];
    net.output(net.node("MatMul", [a, b]));
    expect(cachesOf(tunedTasks(openGraph(net.graph).program))).toEqual(["warm"]);
  });

  it("by searches in that state", async () => {
    const caches: unknown[] = [];
    const search: NonNullable<TuneNetworkOptions["search"]> = ({ computation }, options) => {
      caches.push(options?.cache);
      const none = { status: "exhausted", computation, best: undefined, trials: [], failed: {} } as const;
      return Promise.resolve({ ...none, seconds: 0, waitedSeconds: 0, database: ":memory:" });
    };
    for (const bytes of [2 * own, own / 2])
      await tuneNetwork(products(bytes, [1]), { seconds: 9, database: ":memory:", search });
    expect(caches).toEqual(["flushed", "warm"]);
  });
});
