/** @file How a tuner asks for answers through queues that change while it looks at them. */

import { setImmediate } from "node:timers/promises";
import { expect, it, onTestFinished, vi } from "vitest";
import { ANSWER, answerTo, type Job, jobId } from "../../fleet/jobs.ts";
import { admit, createFleet, readMember } from "../../fleet/members.ts";
import { Asking } from "../../fleet/place.ts";
import type { FleetServer } from "../../fleet/server.ts";
import { sign } from "../../fleet/signed.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
createFleet(folder);
const tuner = readMember(admit(folder, "desk", "tuner"));
const worker = readMember(admit(folder, "node1", "worker"));
const job: Job = { task: "draw", environment: "9c1f".repeat(8), subject: "0".repeat(64), threads: 1 };
const answer = sign(worker, ANSWER, answerTo(job, { status: "drawn" }));

/** A tuner whose queues are made by a test. */
function askingOf(queue: () => object): { readonly asking: Asking; readonly said: string[] } {
  const said: string[] = [];
  const events = { on: () => undefined, close: () => Promise.resolve() };
  const server = { queue, events: () => events } as unknown as FleetServer; // all that it uses
  const asking = new Asking(server, tuner, { announce: (text) => said.push(text), lookMs: 10 });
  onTestFinished(() => asking.close());
  return { asking, said };
}

it("takes the answer of a job that ends while it looks", async () => {
  let isOver = false;
  let removed = 0;
  const found = () => ({
    id: jobId(job),
    returnvalue: isOver ? answer : undefined,
    getState: () => queue.getJobState(),
    remove: () => Promise.resolve(removed++),
  });
  const queue = {
    waitUntilReady: () => Promise.resolve(),
    close: () => Promise.resolve(),
    add: () => Promise.resolve(),
    getJob: () => {
      const now = found();
      isOver = true;
      return Promise.resolve(now);
    },
    getJobState: () => {
      const state = isOver ? "completed" : "active";
      isOver = true;
      return Promise.resolve(state);
    },
  };
  const { asking, said } = askingOf(() => queue);
  expect(await asking.ask("q", job)).toEqual({ worker: "node1", outcome: { status: "drawn" } });
  expect({ said, removed }).toEqual({ said: [], removed: 0 });
});

it("asks again where a worker refuses, and gives up after some times", async () => {
  const refused = sign(
    worker,
    ANSWER,
    answerTo(job, { status: "refused", because: "a kernel in opencl is not built here" }),
  );
  let refusals = 1;
  let added = 0;
  const failed = (): boolean => refusals > 0;
  const queue = {
    waitUntilReady: () => Promise.resolve(),
    close: () => Promise.resolve(),
    add: () => Promise.resolve(added++),
    getJobState: () => Promise.resolve(failed() ? "failed" : "completed"),
    getJob: () =>
      Promise.resolve({
        ...(failed() ? { failedReason: JSON.stringify(refused) } : { returnvalue: answer }),
        remove: () => Promise.resolve(refusals--),
      }),
  };
  const { asking, said } = askingOf(() => queue);
  expect(await asking.ask("q", job)).toMatchObject({ outcome: { status: "drawn" } });
  expect(said).toEqual([
    expect.stringMatching(/^worker node1 refuses a job, .*: a kernel in opencl is not built here$/),
  ]);
  refusals = 99;
  await expect(asking.ask("q", job)).rejects.toThrow(/no worker of the fleet finished a job: worker node1 refuses/);
  expect(said).toHaveLength(6);
});

it("makes a queue anew that did not find its server", async () => {
  const away = (): Promise<never> => Promise.reject(new Error("connect ECONNREFUSED"));
  let closed = 0;
  const lost = { waitUntilReady: away, getJobState: away, close: () => Promise.resolve(closed++) };
  const there = {
    waitUntilReady: () => Promise.resolve(),
    close: () => Promise.resolve(),
    getJobState: () => Promise.resolve("completed"),
    getJob: () => Promise.resolve({ returnvalue: answer }),
  };
  let made = 0;
  const { asking } = askingOf(() => (made++ === 0 ? lost : there));
  expect(await asking.ask("q", job)).toMatchObject({ worker: "node1" });
  expect({ made, closed }).toEqual({ made: 2, closed: 1 });
});

it("looks at few of many questions at once, and at each in turn", async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  onTestFinished(() => void vi.useRealTimers());
  const looked: string[] = [];
  const queue = {
    waitUntilReady: () => Promise.resolve(),
    close: () => Promise.resolve(),
    getJob: () => Promise.resolve(undefined),
    getJobState: (id: string) => {
      looked.push(id);
      return Promise.resolve("active");
    },
  };
  const { asking } = askingOf(() => queue);
  for (let i = 1; i <= 120; i++) asking.ask("q", { ...job, threads: i }).catch(() => undefined);
  while (looked.length < 120) await setImmediate();
  const inTurn = looked.splice(0);
  for (const count of [50, 100, 150]) {
    vi.advanceTimersByTime(10);
    await setImmediate();
    expect(looked).toHaveLength(count);
  }
  expect(looked).toEqual([...inTurn, ...inTurn.slice(0, 30)]);
});
