/**
 * @file A fleet on this machine: keys in a folder, and workers of this process whose machine may be a fake one.
 *
 *     const fleet = fleetOn(await redisHere(), scratchFolder());
 *     await fleet.worker("node1", fakeMachine(compiler, times));
 *     const place = await fleet.place({ threads: 1 });
 */

import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { parseAddress } from "../../fleet/address.ts";
import { admit, createFleet, type Member, readMember } from "../../fleet/members.ts";
import { type FleetPlace, type FleetPlaceOptions, openFleetPlace } from "../../fleet/place.ts";
import { type FleetServer, openServer, type ServerOptions } from "../../fleet/server.ts";
import { type FleetWorker, startWorker, type WorkerMachine, type WorkerOptions } from "../../fleet/worker.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import type { Runner } from "../../runtime/measure.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { nativeTarget } from "../../targets/index.ts";
import { type FakeTimes, fakeRunner } from "./fake-runner.ts";
import type { TestServer } from "./servers.ts";

export interface TestFleet {
  readonly folder: string;
  readonly tuner: Member;
  readonly member: (name: string) => Member;
  readonly open: () => Promise<FleetServer>;
  /** Starts a worker of this process. */
  readonly worker: (name: string, machine: WorkerMachine, options?: Partial<WorkerOptions>) => Promise<FleetWorker>;
  readonly place: (options?: Partial<FleetPlaceOptions>) => Promise<FleetPlace>;
  /** What workers and places said. */
  readonly said: readonly string[];
}

/** A fleet of one test, with its keys in a new folder in another. It ends with the test. */
export function fleetOn(
  redis: Pick<TestServer, "url" | "environment">,
  scratch: string,
  options: ServerOptions = {},
): TestFleet {
  const folder = mkdtempSync(join(scratch, "fleet-"));
  createFleet(folder);
  const closing: (() => Promise<unknown>)[] = [];
  onTestFinished(async () => {
    for (const close of closing.reverse()) await close();
  });
  const said: string[] = [];
  const say = (text: string): void => void said.push(text);
  const tuner = readMember(admit(folder, "tuner", "tuner"));
  const open = async (): Promise<FleetServer> => {
    const address = parseAddress(redis.url, redis.environment);
    const server = await openServer(address, tuner.fleet, { onTrouble: say, ...options });
    closing.push(server.close);
    return server;
  };
  return {
    folder,
    tuner,
    member: (name) => readMember(admit(folder, name, "worker")),
    open,
    worker: async (name, machine, options) => {
      const member = readMember(admit(folder, name, "worker"));
      const worker = await startWorker(await open(), member, machine, { measures: true, compiles: 0, say, ...options });
      closing.push(() => worker.stop("give-back"));
      return worker;
    },
    place: async (options) =>
      openFleetPlace({ server: await open(), member: tuner, threads: 1, announce: say, lookMs: 200, ...options }),
    said,
  };
}

/** A machine whose kernels take the times that a test gives. */
export function fakeMachine(compiler: Compiler, times: FakeTimes, changed: Partial<Runner> = {}): WorkerMachine {
  const machine = nativeTarget();
  return {
    machine,
    environment: environmentOf({ compiler }, machine),
    compiler,
    openRunner: () => Promise.resolve({ ...fakeRunner(compiler, times), ...changed }),
  };
}
