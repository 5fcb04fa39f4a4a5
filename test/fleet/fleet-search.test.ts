/** @file A search in a fleet: the same proposals and records as at home, whoever measures and whatever fails. */

import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { ANSWER, answerTo, JOB, type Job, readJob } from "../../fleet/jobs.ts";
import { admit, createFleet, readMember } from "../../fleet/members.ts";
import { sign, verified } from "../../fleet/signed.ts";
import { measuringQueue, startWorker, type WorkerMachine } from "../../fleet/worker.ts";
import type { Runner } from "../../runtime/measure.ts";
import { replayRun } from "../../session/tune/replay.ts";
import type { TuneComputationOptions } from "../../session/tune/tune.ts";
import { genetic } from "../../tuner/genetic.ts";
import { random } from "../../tuner/random.ts";
import type { Strategy } from "../../tuner/strategy.ts";
import { type FakeTimes, fakeRunner, took, withCalibration } from "../support/fake-runner.ts";
import { fakeMachine, fleetOn } from "../support/fleet.ts";
import { BY_TEXT, decisionsOf, type Found, searched } from "../support/fleet-search.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";

const compiler = await compilerHere();

type Ok = Extract<Measurement, { status: "ok" }>;

describe.skipIf(!hasRedis)("a search in a fleet", async () => {
  const folder = scratchFolder();
  const redis = await redisHere();
  let count = 0;
  const database = (): string => withCalibration(join(folder, `${count++}.db`), compiler);
  const machine = fakeMachine(compiler, BY_TEXT);
  const homes = new Map<Strategy, Promise<Found>>();
  const home = async (strategy: Strategy = random): Promise<object> => {
    const search = homes.get(strategy) ?? searched(database(), { runner: fakeRunner(compiler, BY_TEXT), strategy });
    homes.set(strategy, search);
    const found = await search;
    expect(found.trials).toHaveLength(10);
    return decisionsOf(found);
  };
  /** A fleet of its own for each test: its queues and blobs are its own too. */
  const newFleet = () => fleetOn(redis, folder);

  it("makes the trials that it makes at home, bit for bit, and records who measured them", async () => {
    const fleet = newFleet();
    const file = database();
    const worker = await fleet.worker("node1", machine);
    const inFleet = await searched(file, { openPlace: () => fleet.place(), strategy: genetic });
    expect(decisionsOf(inFleet)).toEqual(await home(genetic));
    // Each trial, what was drawn, and the finals.
    expect(worker.answered()).toBe(12);

    const db = openDatabase(file);
    const records = queryTrials(db, { worker: "node1" });
    expect(records).toHaveLength(queryTrials(db).length);
    expect(records.every(({ provenance }) => provenance === "here")).toBe(true);
    expect(await replayRun(db, records[0]?.run ?? "")).toMatchObject({ divergence: undefined });
    db.close();
    const again = await searched(file, { openPlace: () => fleet.place(), strategy: genetic });
    expect(decisionsOf(again)).toMatchObject({ trials: Object(decisionsOf(inFleet)).trials });
    const compiled = "those who measure compile, too: no worker of the fleet compiles for others";
    expect(fleet.said).toEqual([compiled, compiled]);
  });

  it("says which compilers differ where workers compile for others and not for these", async () => {
    const fleet = fleetOn(redis, folder);
    await fleet.worker("node1", machine);
    const version = "g++ 99.1";
    const environment = { ...machine.environment, compiler: { ...machine.environment.compiler, version } };
    const builder = { ...machine, environment, compiler: { ...compiler, version } };
    await fleet.worker("builder", builder, { measures: false, compiles: 1 });
    await searched(database(), { openPlace: () => fleet.place(), trials: 2, finals: false });
    expect(fleet.said.filter((text) => text.includes("compile"))).toEqual([
      `those who measure compile, too: they have ${machine.environment.compiler.version}, and worker builder compiles with g++ 99.1`,
    ]);
  });

  it("decides the same with several workers, and two searches at once share what both ask", async () => {
    const fleet = newFleet();
    const workers = [await fleet.worker("node1", machine), await fleet.worker("node2", machine)];
    const both = await Promise.all(
      [1, 2].map(() => searched(database(), { openPlace: () => fleet.place({ checkOneOf: 1e9 }), strategy: genetic })),
    );
    for (const found of both) expect(decisionsOf(found)).toEqual(await home(genetic));
    expect(workers.map((worker) => worker.answered()).reduce((a, b) => a + b)).toBeLessThan(18);
  });

  it("goes on when a worker dies with jobs: others do them, and each trial is there once", async () => {
    const fleet = newFleet();
    const server = await fleet.open();
    const file = database();
    const environment = (await fleet.worker("node1", machine, { lockMs: 400 })).environment;
    // It takes a job, renews no lock, and never answers.
    let taken = 0;
    const dead = server.worker(
      measuringQueue(environment),
      async () => {
        taken++;
        await setTimeout(600_000, undefined, { ref: false });
      },
      { lockDuration: 400, skipLockRenewal: true, concurrency: 3, skipStalledCheck: true },
    );
    await dead.waitUntilReady();
    const found = await searched(file, { openPlace: () => fleet.place() });
    expect(taken).toBeGreaterThan(0);
    expect(decisionsOf(found)).toEqual(await home());
    await dead.close(true);
    const db = openDatabase(file);
    expect(queryTrials(db).filter((trial) => trial.finals === undefined)).toHaveLength(10);
    db.close();
  });

  it("goes on when the server dies in the middle and is started again", async () => {
    const fleet = newFleet();
    let measured = 0;
    const slow = fakeMachine(compiler, {
      ...BY_TEXT,
      alone: async (kernel) => {
        if (++measured === 5) {
          await redis.stop();
          // Until a connection was tried again.
          await setTimeout(500);
          await redis.start();
        }
        return BY_TEXT.alone(kernel);
      },
    });
    await fleet.worker("node1", slow, { lockMs: 1000 });
    const found = await searched(database(), { openPlace: () => fleet.place() });
    expect(measured).toBeGreaterThanOrEqual(10);
    expect(decisionsOf(found)).toEqual(await home());
    expect(fleet.said.join()).toMatch(/no connection to the fleet's server|closed/);
  });

  it("believes no answer that no worker of the fleet signed for this job, and measures again", async () => {
    const fleet = newFleet();
    const server = await fleet.open();
    const strangers = join(folder, "strangers");
    createFleet(strangers);
    const stranger = readMember(admit(strangers, "node1", "worker"));
    const known = fleet.member("node9");
    const environment = (await fleet.worker("node1", machine)).environment;
    const forged = [
      (job: Job) => sign(stranger, ANSWER, answerTo(job, { status: "measured", measurements: [took(1e-9)] })),
      (job: Job) => sign(fleet.tuner, ANSWER, answerTo(job, { status: "measured", measurements: [took(1e-9)] })),
      (job: Job) =>
        sign(known, ANSWER, { ...answerTo(job, { status: "measured", measurements: [] }), job: "0".repeat(64) }),
      () => ({ status: "ok", median: 1e-9 }),
    ];
    let lies = 0;
    const liar = server.worker(measuringQueue(environment), (sent) => {
      const job = readJob(verified(fleet.tuner.fleet, sent.data, { kind: JOB, role: "tuner" }).body);
      const lie = Promise.resolve(forged[lies++ % forged.length]?.(job));
      if (lies === forged.length) void liar.close();
      return lie;
    });
    await liar.waitUntilReady();
    const place = await fleet.place();
    const found = searched(database(), { openPlace: () => Promise.resolve(place), trials: 8 });
    const { trials } = await found;
    expect(lies).toBeGreaterThan(0);
    expect(trials.every(({ measurement }) => measurement.worker === "node1")).toBe(true);
    expect(fleet.said.join("\n")).toMatch(/belongs to another fleet/);
  });

  /** A machine that tells something else of each kernel than it measured. */
  const telling = (tell: (told: Ok) => Measurement): WorkerMachine =>
    fakeMachine(compiler, {
      ...BY_TEXT,
      alone: async (kernel) => {
        const told = await BY_TEXT.alone(kernel);
        return told.status === "ok" ? tell(told) : told;
      },
    });

  it.each([
    ["flatters by 30 %", ({ median }: Ok) => took(median * 0.7), /of one kernel .*liar says \d\.\d+ us/],
    ["says what cannot be", (told: Ok) => ({ ...told, median: -1 }), /it answers a measurement that cannot be one/],
  ] as const)("quarantines a worker that %s at its first trial, and believes nothing of it", async (_, tell, why) => {
    const fleet = newFleet();
    await fleet.worker("honest1", machine);
    await fleet.worker("liar", telling(tell));
    await fleet.worker("honest2", machine);
    const found = await searched(database(), { openPlace: () => fleet.place() });
    expect(decisionsOf(found)).toEqual(await home());
    expect(found.trials.every(({ measurement }) => measurement.worker !== "liar")).toBe(true);
    const named = fleet.said.filter((text) => text.includes("quarantined"));
    expect(named).toEqual([expect.stringMatching(/^worker liar is quarantined: /)]);
    expect(named[0]).toMatch(why);
  });

  it("measures again what would be the best so far, whoever says it", async () => {
    const fleet = newFleet();
    let told = 0;
    // Honest at first, and then ten times as fast as the best.
    const sleeper = telling((honest) => (++told > 9 ? took(1e-6) : honest));
    await fleet.worker("sleeper", sleeper);
    await fleet.worker("honest1", machine);
    await fleet.worker("honest2", machine);
    const found = await searched(database(), { openPlace: () => fleet.place(), trials: 40, earlyStop: false });
    const { trials } = await searched(database(), {
      runner: fakeRunner(compiler, BY_TEXT),
      trials: 40,
      earlyStop: false,
    });
    expect(told).toBeGreaterThan(9);
    expect(fleet.said.join()).toMatch(/worker sleeper is quarantined/);
    expect(decisionsOf(found)).toMatchObject({ trials: Object(decisionsOf({ ...found, trials })).trials });
  });

  it("goes on without a worker that answers other jobs than it is given", async () => {
    const fleet = newFleet();
    const { environment } = await fleet.worker("node1", machine);
    const stray = fleet.member("node9");
    const server = await fleet.open();
    const answers = server.worker(measuringQueue(environment), async ({ data }) => {
      const job = readJob(verified(fleet.tuner.fleet, data, { kind: JOB, role: "tuner" }).body);
      return sign(stray, ANSWER, { ...answerTo(job, { status: "measured", measurements: [] }), job: "0".repeat(64) });
    });
    await answers.waitUntilReady();
    const found = await searched(database(), { openPlace: () => fleet.place() });
    expect(decisionsOf(found)).toEqual(await home());
    expect(fleet.said.filter((text) => text.includes("it is to another job"))).toHaveLength(3);
    expect(fleet.said.join("\n")).toMatch(/worker node9 is quarantined: .*it is to another job/);
  });

  it("gives a job again whose worker has a full disk", async () => {
    const fleet = newFleet();
    let left = 2;
    const alone: FakeTimes["alone"] = (kernel) => {
      if (left-- > 0) throw Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
      return BY_TEXT.alone(kernel);
    };
    await fleet.worker("node1", fakeMachine(compiler, { ...BY_TEXT, alone }));
    const found = await searched(database(), { openPlace: () => fleet.place() });
    expect(decisionsOf(found)).toEqual(await home());
    expect(fleet.said.filter((text) => text.includes("ENOSPC"))).toHaveLength(4);
  });

  it("does not take a server that is away for a fault of the worker", async () => {
    const fleet = newFleet();
    const server = await fleet.open();
    let left = 3;
    const put = (bytes: Uint8Array): Promise<string> =>
      left-- > 0
        ? Promise.reject(new EnvironmentError({ what: "no connection", why: "it is lost", remedy: "wait" }))
        : server.blobs.put(bytes);
    const options = { measures: true, compiles: 1, say: (text: string) => void said.push(text) };
    const said: string[] = [];
    const away = { ...server, blobs: { ...server.blobs, put } };
    const worker = await startWorker(away, fleet.member("node1"), machine, options);
    const { trials } = await searched(database(), { openPlace: () => fleet.place(), trials: 1, finals: false });
    await worker.stop("give-back");
    expect({ trials: trials.length, left: left < 0, said }).toEqual({ trials: 1, left: true, said: [] });
  });

  it("says that a second worker has the key of one that is there", async () => {
    const fleet = newFleet();
    const server = await fleet.open();
    const said: string[] = [];
    const options = { measures: false, compiles: 1, say: (text: string) => void said.push(text) };
    const member = fleet.member("node1");
    const first = await startWorker(server, member, machine, options);
    expect(said).toEqual([]);
    const second = await startWorker(server, member, machine, options);
    expect(said).toEqual([expect.stringMatching(/^a worker with the key of node1 is there/)]);
    await Promise.all([first.stop(), second.stop()]);
  });

  /** A machine whose every kernel takes for ever, until it is stopped. */
  const hanging = (): { machine: WorkerMachine; race: Runner["race"]; began: () => number } => {
    let began = 0;
    const race: Runner["race"] = async function* (_kernels, _reference, { signal } = {}) {
      began++;
      await setTimeout(600_000, undefined, { ref: false, ...(signal && { signal }) }).catch(() => undefined);
    };
    return { machine: fakeMachine(compiler, BY_TEXT, { race }), race, began: () => began };
  };

  it("goes on when a worker gives back what it is at", async () => {
    const fleet = newFleet();
    const { machine: slow, began } = hanging();
    const first = await fleet.worker("node1", slow);
    const found = searched(database(), { openPlace: () => fleet.place() });
    await expect.poll(began).toBe(1);
    await fleet.worker("node2", machine);
    await first.stop("give-back");
    expect(decisionsOf(await found)).toEqual(await home());
    expect((await found).trials.map(({ measurement }) => measurement.worker)).toEqual(Array(10).fill("node2"));
  });

  it("is left at once by a worker that is at nothing, also when the server is gone", async () => {
    const frail = await redisHere();
    const worker = await fleetOn(frail, folder, { patience: 1500 }).worker("node1", machine);
    await frail.stop();
    await worker.stop("finish");
  });

  it("ends in time without what no worker has answered, and its jobs with it", async () => {
    const fleet = newFleet();
    const { race: never, began } = hanging();
    const { race: fast } = fakeRunner(compiler, BY_TEXT);
    // Its time is up when it has three answers and the fourth kernel has begun.
    const { timeout } = AbortSignal;
    const time = new AbortController();
    vi.spyOn(AbortSignal, "timeout").mockImplementation((ms) =>
      ms > 1_000_000 ? time.signal : timeout.call(AbortSignal, ms),
    );
    onTestFinished(() => void vi.restoreAllMocks());
    let left = 3;
    let heard = 0;
    const onEvent: TuneComputationOptions["onEvent"] = ({ kind }) => {
      if (kind === "trial" && ++heard === 3)
        void expect
          .poll(began)
          .toBe(1)
          .then(() => time.abort());
    };
    const race: Runner["race"] = (...asked) => (left-- > 0 ? fast : never)(...asked);
    const { environment } = await fleet.worker("node1", fakeMachine(compiler, BY_TEXT, { race }));
    const found = await searched(database(), {
      openPlace: () => fleet.place(),
      seconds: 3600,
      within: 3600,
      finals: false,
      onEvent,
    });
    expect(began()).toBe(1);
    expect(found).toMatchObject({ status: "time-spent" });
    expect(found.trials).toHaveLength(3);
    const counts = await (await fleet.open()).queue(measuringQueue(environment)).getJobCounts("waiting");
    expect(counts).toEqual({ waiting: 0 });
  });

  it("is interrupted when it is stopped, also while its kernels compile", async () => {
    const fleet = newFleet();
    await fleet.worker("node1", machine, { compiles: 1 });
    const stop = new AbortController();
    const found = await searched(database(), {
      openPlace: () => fleet.place(),
      signal: stop.signal,
      // Later than the trial is taken, and before the next is compiled.
      onEvent: ({ kind }) => kind === "trial" && setImmediate(() => stop.abort()),
    });
    expect(found).toMatchObject({ status: "interrupted", best: {} });
    expect(found.trials.length).toBeLessThan(10);
  });

  it("ends when no worker is there any more, and keeps what it has", async () => {
    const fleet = newFleet();
    const file = database();
    let left = 3;
    const worker = await fleet.worker(
      "node1",
      fakeMachine(compiler, {
        ...BY_TEXT,
        alone: (kernel) => {
          if (--left === 0) void worker.stop("finish");
          return BY_TEXT.alone(kernel);
        },
      }),
    );
    const search = searched(file, { openPlace: () => fleet.place({ patienceMs: 300 }) });
    await expect(search).rejects.toThrow(/no worker of the fleet is there that measures on/);
    expect(fleet.said.join()).toMatch(/no worker of this environment is there any more: waiting for one/);
    const db = openDatabase(file);
    expect(queryTrials(db).length).toBeGreaterThan(2);
    db.close();
  });

  it("is refused by workers when nobody signed it, and by tuners when no worker fits", async () => {
    const fleet = newFleet();
    await expect(fleet.place()).rejects.toThrow(/no worker of the fleet measures/);
    const { environment } = await fleet.worker("node1", machine);
    await expect(fleet.place({ on: "isa contains none_such" })).rejects.toThrow(
      /no measuring worker of the fleet fits .*\n *those that measure: node1 \(/,
    );
    await expect(fleet.place({ on: "isa equals x" })).rejects.toThrow(/is no condition on a worker/);
    expect((await fleet.place({ on: "worker is node1 and isa contains avx2" })).workers).toEqual(["node1"]);
    const server = await fleet.open();
    const queue = server.queue(measuringQueue(environment));
    const job: Job = { task: "calibrate", environment, effort: "once", repetition: 0 };
    for (const [id, data] of [
      ["unsigned", job],
      ["by-a-worker", sign(fleet.member("node2"), JOB, job)],
      ["of-another-id", sign(fleet.tuner, JOB, job)],
    ] as const)
      await queue.add("calibrate", data, { jobId: id });
    await expect
      .poll(async () => (await queue.getFailed()).map(({ id }) => id).sort())
      .toEqual(["by-a-worker", "of-another-id", "unsigned"]);
    expect(fleet.said.join("\n")).toMatch(/is not signed.*node2 is a worker.*its id is that of another/s);
  });
});
