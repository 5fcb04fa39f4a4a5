/**
 * @file How many jobs a second a fleet does for one tuner, and what binds: the queue, the signatures or the database. Workers are simulated: each
 * takes jobs over connections of its own, fetches the kernel, waits as long as a recorded trial took, and signs what was recorded of it.
 *
 *     automap tune matmul --trials 40 --db trials.db
 *     redis-server --port 6400 & node dist/bench/fleet/many.js --fleet redis://127.0.0.1:6400 --server $! --db trials.db
 *     node dist/bench/fleet/many.js --fleet postgresql://me@127.0.0.1/x --server 4711 --db trials.db --share 50
 *
 * Of each job: the processor time of the tuner, and of it that of signatures, of the database, and the rest, which is BullMQ and its driver; that of
 * the server; and how many jobs a second one processor could do of each. What other programs do meanwhile changes only the jobs a second.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import pLimit from "p-limit";
import { UsageError } from "../../abstraction/error.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import {
  computationOf,
  type Database,
  openDatabase,
  queryTrials,
  recordTrial,
  type TrialRecord,
} from "../../db/index.ts";
import { readMeasurement } from "../../db/measurement.ts";
import { parseAddress } from "../../fleet/address.ts";
import { ANSWER, answerTo, JOB, type Job, jobId, readAnswer, readJob, sha256Of } from "../../fleet/jobs.ts";
import { admit, createFleet, type Member, readMember } from "../../fleet/members.ts";
import { Asking } from "../../fleet/place.ts";
import { openServer } from "../../fleet/server.ts";
import { sign, verified } from "../../fleet/signed.ts";
import { measuringQueue } from "../../fleet/worker.ts";
import { table } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    fleet: { type: "string", default: "redis://127.0.0.1:6379" },
    /** The process of the server, with its children. */
    server: { type: "string", default: "0" },
    db: { type: "string", default: "automap.db" },
    workers: { type: "string", default: "10,100,1000" },
    /** For each worker. */
    jobs: { type: "string", default: "5" },
    /** Workers of one connection. */
    share: { type: "string", default: "1" },
    /** The key file of workers that this process is to simulate. */
    serve: { type: "string" },
  },
});

/** Bytes of a kernel's text. */
const KERNEL_BYTES = 20_000;
/** Workers of one process. */
const A_PROCESS = 250;
/** Jobs that a tuner asks for at once, for each worker: some wait while others are done. */
const AHEAD = 1.5;
/** Many connect at once. */
const PATIENCE_MS = 60_000;
/** Repetitions of what is timed alone. */
const TIMES = 300;
/** Jiffies a second, in which Linux counts processor time. */
const JIFFIES = 100;

const source = openDatabase(values.db, { readonly: true });
const recorded = queryTrials(source).filter(({ measurement, finals }) => measurement.status === "ok" && !finals);
source.close();
const [first] = recorded;
if (!first) throw new UsageError(`${values.db} has no trials`);
const { id: environment } = first.environment;
const workers = values.workers.split(",").map(Number);
if (values.serve === undefined) await measure();
else await serve(readMember(values.serve), workers[0] ?? 1, Number(values.share));

/** Simulates workers until the process is ended. */
async function serve(member: Member, count: number, share: number): Promise<void> {
  const server = await openServer(parseAddress(values.fleet), member.fleet, { patience: PATIENCE_MS });
  const random = seededRandom(process.pid);
  const seconds = recorded.slice(1).flatMap(({ at }, i) => {
    const took = (at - (recorded[i]?.at ?? at)) / 1000;
    return took > 0 && took < 10 ? [took] : [];
  });
  const work = async ({ data }: { readonly data: unknown }): Promise<unknown> => {
    const job = readJob(verified(member.fleet, data, { kind: JOB, role: "tuner" }).body);
    if (job.task === "race") await server.blobs.get(job.kernel.text);
    await setTimeout(1000 * pick(random, seconds));
    return answer(member, job, random);
  };
  const made = Array.from({ length: Math.ceil(count / share) }, () =>
    server.worker(measuringQueue(environment), work, { concurrency: share }),
  );
  await Promise.all(made.map((worker) => worker.waitUntilReady()));
  process.once("disconnect", () => process.exit());
  process.stdout.write("ready\n");
}

function answer(member: Member, job: Job, random: Random): ReturnType<typeof sign> {
  const { worker: _, ...measurement } = pick(random, recorded).measurement;
  return sign(member, ANSWER, answerTo(job, { status: "measured", measurements: [measurement] }));
}

async function measure(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "automap-many-"));
  try {
    const rows: string[][] = [];
    for (const count of workers) rows.push(await rowOf(join(folder, String(count)), count));
    const head = ["workers", "jobs", "jobs/s", "tuner, ms a job", "signatures", "database", "BullMQ and driver"];
    const lines = table([...head, "server, ms a job", "jobs/s of a tuner's processor", "of the server's"], rows);
    process.stdout.write(`${lines.join("\n")}\n`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function rowOf(folder: string, count: number): Promise<string[]> {
  createFleet(folder);
  const tuner = readMember(admit(folder, "desk", "tuner"));
  const processes = Math.ceil(count / A_PROCESS);
  const keys = Array.from({ length: processes }, (_, i) => admit(folder, `node${i}`, "worker"));
  const children = await Promise.all(keys.map((key) => begun(key, Math.ceil(count / processes))));
  const server = await openServer(parseAddress(values.fleet), tuner.fleet, { patience: PATIENCE_MS });
  const asking = new Asking(server, tuner, { announce: (text) => process.stderr.write(`${text}\n`) });
  const db = openDatabase(join(folder, "fleet.db"));
  const jobs = count * Number(values.jobs);
  const atOnce = pLimit(Math.ceil(AHEAD * count));

  const began = performance.now();
  const before = process.cpuUsage();
  const servedBefore = secondsOf(values.server);
  const one = async (i: number): Promise<void> => {
    const text = await asking.put(`${i} ${"x".repeat(KERNEL_BYTES)}`);
    const { outcome, worker } = await asking.ask(measuringQueue(environment), jobOf(text));
    if (outcome.status === "measured") record(db, i, outcome.measurements[0], worker);
  };
  await Promise.all(Array.from({ length: jobs }, (_, i) => atOnce(() => one(i))));
  const seconds = (performance.now() - began) / 1000;
  const tunerMs = milliseconds(process.cpuUsage(before)) / jobs;
  const serverMs = (1000 * (secondsOf(values.server) - servedBefore)) / jobs;
  for (const child of children) child.kill("SIGKILL");
  await asking.close();
  await server.close();

  const worker = readMember(keys[0] ?? "");
  const random = seededRandom(1);
  const asked = Array.from({ length: TIMES }, (_, i) => jobOf(sha256Of(String(i))));
  const answers = asked.map((job) => answer(worker, job, random));
  const signaturesMs = timed((i) => {
    const job = asked[i] ?? jobOf("");
    jobId(job);
    sign(tuner, JOB, job);
    readAnswer(verified(tuner.fleet, answers[i], { kind: ANSWER, role: "worker" }).body, job);
  });
  const databaseMs = timed((i) => record(db, jobs + i, recorded[0]?.measurement, "node0"));
  db.close();
  const figures = [tunerMs, signaturesMs, databaseMs, tunerMs - signaturesMs - databaseMs, serverMs];
  return [
    ...[count, jobs, Math.round(jobs / seconds)].map(String),
    ...figures.map((figure) => figure.toFixed(2)),
    ...[tunerMs, serverMs].map((figure) => String(Math.round(1000 / figure))),
  ];
}

/** A process that simulates workers, once it does. */
async function begun(key: string, count: number): Promise<ChildProcess> {
  const { fleet, db, share } = values;
  const words = ["--serve", key, "--fleet", fleet, "--db", db, "--share", share, "--workers", String(count)];
  const child = spawn(process.execPath, [process.argv[1] ?? "", ...words], {
    stdio: ["ignore", "pipe", "inherit", "ipc"],
  });
  if (child.stdout) await once(child.stdout, "data");
  return child;
}

function jobOf(text: string): Job {
  const subject = sha256Of("subject");
  const conditions = { threads: 1, cache: "warm", repetition: 0 } as const;
  return { task: "race", environment, subject, kernel: { text }, ...conditions };
}

/** Records what a worker measured, as the trial of a search. */
function record(db: Database, i: number, given: unknown, worker: string): void {
  const {
    workload,
    environment: where,
    candidate,
    prediction,
    conditions,
    at,
  } = recorded[i % recorded.length] as TrialRecord; // there are some
  const computation = computationOf(workload);
  const measurement = readMeasurement(given, { computation, threads: 1, environment: where });
  if (typeof measurement === "string") throw new UsageError(measurement);
  const trial = { candidate, prediction, measurement: { ...measurement, worker }, at: at + i };
  recordTrial(db, { workload: { computation }, environment: where, trial, conditions });
}

/** Milliseconds of processor time. */
function milliseconds({ user, system }: NodeJS.CpuUsage): number {
  return (user + system) / 1000;
}

/** Milliseconds of processor time that some work takes. */
function timed(work: (i: number) => void): number {
  const before = process.cpuUsage();
  for (let i = 0; i < TIMES; i++) work(i);
  return milliseconds(process.cpuUsage(before)) / TIMES;
}

/** Processor time of a process and its children so far, those included that have ended. */
function secondsOf(pid: string): number {
  let jiffies = 0;
  for (const id of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const [parent, ...times] = statOf(id);
    if (id === pid || parent === pid) jiffies += times.map(Number).reduce((sum, time) => sum + time, 0);
  }
  return jiffies / JIFFIES;
}

/** The parent of a process, and its times and those of its children that have ended; nothing once it has ended. */
function statOf(id: string): readonly string[] {
  try {
    const fields = readFileSync(`/proc/${id}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return [fields[1] ?? "", ...fields.slice(11, 15)];
  } catch {
    return [];
  }
}
