/**
 * @file A worker of a fleet in a process of its own, whose kernels take times that their texts decide. It may lie, have a full disk, or another
 * clock than its neighbours.
 *
 *     node fault-worker.js redis://127.0.0.1:6379 node1.key honest 0
 *
 * It prints `ready`, and each lie that it tells.
 */

import { setTimeout } from "node:timers/promises";
import { parseAddress } from "../../fleet/address.ts";
import { ANSWER, type Answer } from "../../fleet/jobs.ts";
import { readMember } from "../../fleet/members.ts";
import { type FleetServer, openServer } from "../../fleet/server.ts";
import { type Signed, sign } from "../../fleet/signed.ts";
import { startWorker } from "../../fleet/worker.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { nativeTarget } from "../../targets/index.ts";
import { fakeRunner } from "./fake-runner.ts";
import { BY_TEXT } from "./fleet-search.ts";

/** What a kernel's measurement takes, beside what it says. */
const MEASURING_MS = 20;
/** As {@link LOCK_MS} of the faults' test. */
const LOCK_MS = 1000;

const [url = "", key = "", manner = "honest", skew = "0"] = process.argv.slice(2);
const now = Date.now;
Date.now = () => now() + Number(skew);

type Times = Record<string, unknown> & { median: number; interval: [number, number]; samples: number[] };

const shorter = (times: Times, share: number): Times => ({
  ...times,
  median: times.median * share,
  interval: [times.interval[0] * share, times.interval[1] * share],
  samples: times.samples.map((sample) => sample * share),
});

/** A lie of each manner about a measurement. */
const LIES: Readonly<Record<string, (answer: Answer, times: Times, count: number) => Answer | undefined>> = {
  honest: () => undefined,
  flattering: (answer, times) => measured(answer, shorter(times, 0.7)),
  sleeper: (answer, times, count) => (count > 8 ? measured(answer, shorter(times, 0.7)) : undefined),
  absurd: (answer, times) => measured(answer, shorter(times, 1e-9)),
  slow: (answer, times) => measured(answer, shorter(times, 1e6)),
  nonsense: (answer, times) => measured(answer, { ...times, median: -1, samples: [] }),
  "another job": (answer) => ({ ...answer, job: "0".repeat(64) }),
  "another environment": (answer) => ({ ...answer, class: "0".repeat(answer.class.length) }),
};

const measured = (answer: Answer, times: Times): Answer => ({
  ...answer,
  outcome: { status: "measured", measurements: [times] },
});

const compiler = await findCompiler();
if (compiler.status === "environment") throw new Error(compiler.what);
const member = readMember(key);
const say = (text: string): void => void process.stderr.write(`${text}\n`);
const server = await openServer(parseAddress(url), member.fleet, { onTrouble: say, silence: 3000 });

let count = 0;
const lyingServer: FleetServer = {
  ...server,
  worker: (name, work, options) =>
    server.worker(
      name,
      async (job, token) => {
        const signed = (await work(job, token)) as Signed; // as a worker answers
        const answer = JSON.parse(signed.body) as Answer;
        const times = answer.outcome.status === "measured" ? (answer.outcome.measurements[0] as Times) : undefined;
        const lie = job.name === "race" && times ? LIES[manner]?.(answer, times, ++count) : undefined;
        if (!lie) return signed;
        process.stdout.write("lie\n");
        return sign(member, ANSWER, lie);
      },
      options,
    ),
};

let full = 0;
const machine = nativeTarget();
const here = {
  machine,
  environment: environmentOf({ compiler }, machine),
  compiler,
  openRunner: () =>
    Promise.resolve(
      fakeRunner(compiler, {
        ...BY_TEXT,
        alone: async (kernel) => {
          await setTimeout(MEASURING_MS);
          if (full-- > 0) throw Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
          return BY_TEXT.alone(kernel);
        },
      }),
    ),
};
const worker = await startWorker(lyingServer, member, here, { measures: true, compiles: 0, say, lockMs: LOCK_MS });
process.stdout.write("ready\n");
process.once("disconnect", () => process.exit());
process.on("message", () => {
  full = 2;
});
const stopped = new Promise<undefined>((resolve) => {
  process.once("SIGTERM", () => resolve(undefined));
});
const fault = await Promise.race([worker.failed, stopped]);
await worker.stop(fault ? "give-back" : "finish");
await server.close();
process.exit(fault ? 6 : 0);
