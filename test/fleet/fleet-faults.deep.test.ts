/**
 * @file Searches in a fleet of processes to which faults happen at random: each makes the trials of a search to which nothing happens.
 *
 *     AUTOMAP_FAULTS=300 npx vitest run test/fleet/fleet-faults.deep.test.ts       300 faults, and a table as in bench/results/fleet-faults.md
 *     AUTOMAP_FAULTS=300 AUTOMAP_SEED=7 npx vitest run ...                         others
 */

import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import type { Queue } from "bullmq";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { environmentRowOf } from "../../db/rows.ts";
import { admit } from "../../fleet/members.ts";
import type { FleetPlace } from "../../fleet/place.ts";
import type { FleetServer } from "../../fleet/server.ts";
import { measuringQueue } from "../../fleet/worker.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { nativeTarget } from "../../targets/index.ts";
import { fakeRunner, withCalibration } from "../support/fake-runner.ts";
import { fleetOn, type TestFleet } from "../support/fleet.ts";
import { BY_TEXT, decisionsOf, type Found, searched } from "../support/fleet-search.ts";
import { compilerHere } from "../support/here.ts";
import { compileProgram } from "../support/program.ts";
import { type Network, type NetworkState, networkTo } from "../support/proxy.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasPostgres, hasRedis, postgresHere, redisHere, type TestServer } from "../support/servers.ts";
import { Supervised } from "../support/supervised.ts";

const FAULTS = Number(process.env["AUTOMAP_FAULTS"] ?? 10);
const SEED = Number(process.env["AUTOMAP_SEED"] ?? 1);
/** Faults of a round. */
const A_ROUND = Math.min(15, FAULTS / 2);
const TRIALS = 4 * A_ROUND;
const WORKERS = ["node1", "node2", "node3"];
/** Longer than a lock lasts. */
const FREEZE_MS = [1500, 4000] as const;
const SILENCE_MS = 3000;
/** A liar is found out before it has told so many lies to a search. */
const MOST_LIES = 50;
/** Lies of test/support/fault-worker.ts. */
const MANNERS = ["flattering", "absurd", "slow", "nonsense", "another job", "another environment", "sleeper"];

const compiler = await compilerHere();
const environment = String(environmentRowOf(environmentOf({ compiler }, nativeTarget()))["id"]);

interface Count {
  times: number;
  /** How often nothing could be seen of it in what was searched. */
  harmless: number;
  /** Milliseconds. */
  longest: number;
}

describe.skipIf(!hasRedis || !hasPostgres)("a search to whose fleet faults happen", async () => {
  const scratch = scratchFolder("automap-faults-");
  const home = `node_modules/.cache/automap-faults-${process.pid}`;
  const servers = [await redisHere(), await postgresHere()];
  const counts = new Map<string, Count>();
  beforeAll(() => compileProgram(home, ["test/support/fault-worker.ts"]));
  afterAll(() => {
    rmSync(home, { recursive: true, force: true });
    if (process.env["AUTOMAP_FAULTS"] === undefined) return;
    const rows = [...counts].sort().map(([fault, { times, harmless, longest }]) => {
      return `| ${fault} | ${times} | ${harmless} | ${(longest / 1000).toFixed(1)} |`;
    });
    process.stdout.write(`| fault | times | without harm | longest wait, s |\n|---|---|---|---|\n${rows.join("\n")}\n`);
  });

  it.each(Array.from({ length: Math.ceil(FAULTS / A_ROUND) }, (_, i) => i))(
    "makes the trials of one to which nothing happens, each once: round %d",
    async (i) => {
      const server = servers[i % servers.length] as TestServer; // there are two
      const random = seededRandom(1000 * SEED + i);
      const network = await networkTo(server.port, random);
      const url = urlAt(server, network);
      const fleet = fleetOn({ ...server, url }, scratch, { silence: SILENCE_MS });
      const program = join(home, "test/support/fault-worker.js");
      const round = new Round({ number: i, server, random, network, fleet, program, eye: await fleet.open() });
      await round.run(counts);
    },
  );
});

interface Happened {
  readonly fault: string;
  readonly at: number;
  /** Milliseconds until the next trial. */
  wait: number;
}

type Decisions = ReturnType<typeof decisionsOf>;

/** The address of a server by way of a network. */
const urlAt = ({ url, port }: TestServer, network: Network): string => url.replace(`:${port}`, `:${network.port}`);

interface Setting {
  /** Of the round. */
  readonly number: number;
  readonly server: TestServer;
  readonly random: Random;
  /** Of the tuner. */
  readonly network: Network;
  readonly fleet: TestFleet;
  readonly program: string;
  /** Sees and disturbs the queues. */
  readonly eye: FleetServer;
}

/** One search with some faults. */
class Round {
  private readonly setting: Setting;
  private readonly seed: number;
  private readonly queue: Queue;
  /** Honest ones. */
  private readonly workers: Supervised[] = [];
  private readonly liars: Supervised[] = [];
  /** Searches of other tuners. */
  private readonly others: Promise<Found>[] = [];
  private serverIsBack: Promise<void> = Promise.resolve();

  constructor(setting: Setting) {
    this.setting = setting;
    this.seed = this.between(1, 1000);
    this.queue = setting.eye.queue(measuringQueue(environment));
  }

  async run(counts: Map<string, Count>): Promise<void> {
    const { random, fleet } = this.setting;
    const unharmed = decisionsOf(await this.search("home"));
    for (const name of WORKERS) this.workers.push(await this.start(name, "honest"));
    await Promise.all(this.workers.map(({ ready }) => ready));
    const manner = MANNERS[this.setting.number % MANNERS.length] ?? "";
    if (this.setting.number % 3 > 0) await (await this.startLiar(manner)).ready;
    let trials = 0;
    const happened = this.liars.map(
      (): Happened => ({ fault: `worker lies (${manner})`, at: performance.now(), wait: 0 }),
    );
    const over: Promise<unknown>[] = [];
    const found = await this.search("fleet", () => {
      const now = performance.now();
      const last = happened.at(-1);
      if (last) last.wait ||= now - last.at;
      if (++trials % (TRIALS / A_ROUND) !== 0 || happened.length >= A_ROUND) return;
      const fault = pick(random, Object.keys(this.faults));
      happened.push({ fault, at: now, wait: 0 });
      // One that needs the server does not happen while that is away.
      over.push(this.faults[fault]?.().catch(() => undefined) ?? Promise.resolve());
    });
    const all = [found, ...(await Promise.all(this.others))];
    await Promise.all(over);
    for (const worker of [...this.workers, ...this.liars]) await worker.stop();

    const harm = this.harm(all.map(decisionsOf), unharmed);
    for (const { fault, wait } of happened) {
      const count = counts.get(fault) ?? { times: 0, harmless: 0, longest: 0 };
      counts.set(fault, count);
      count.times++;
      if (harm.length === 0) count.harmless++;
      count.longest = Math.max(count.longest, wait);
    }
    const lies = this.liars.map((liar) => `${liar.name} lies ${liar.lies} times`);
    const told = [...happened.map(({ fault, wait }) => `${fault}: ${Math.round(wait)} ms`), ...lies, ...fleet.said];
    expect({ harm, told }).toEqual({ harm: [], told });
    if (process.env["AUTOMAP_FAULTS_TELL"]) process.stdout.write(`${told.join("\n")}\n\n`);
  }

  /** What is not as in a search to which nothing happens. */
  private harm(all: readonly Decisions[], unharmed: Decisions): readonly string[] {
    const { said } = this.setting.fleet;
    const processes = [...this.workers, ...this.liars];
    const harm = processes.flatMap(({ deaths }) => deaths);
    for (const { name, lies } of this.liars) if (lies > MOST_LIES * all.length) harm.push(`${name} lies ${lies} times`);
    for (const { name } of this.workers)
      if (said.some((text) => text.startsWith(`worker ${name} is quarantined: of one`))) harm.push(`${name} is honest`);
    // What a liar says after its first trials may be believed of those that are not measured again, until it is found out.
    const sleeps = this.liars.some(({ name }) => name.startsWith("sleeper"));
    if (!sleeps && all.some((one) => JSON.stringify(one) !== JSON.stringify(unharmed))) harm.push("other trials");
    return harm;
  }

  private readonly faults: Readonly<Record<string, () => Promise<unknown>>> = {
    "worker killed": async () => this.some(this.workers).signal("SIGKILL"),
    "worker stands still, and answers late": async () => {
      const worker = this.some(this.workers);
      worker.signal("SIGSTOP");
      await this.pause(...FREEZE_MS);
      worker.signal("SIGCONT");
    },
    "server killed": () => {
      const { server } = this.setting;
      this.serverIsBack = this.serverIsBack.then(async () => {
        await server.stop();
        await this.pause(0, 1500);
        await server.start();
      });
      return this.serverIsBack;
    },
    "network cut": () => this.networkIs("cut"),
    "network slow": () => this.networkIs("slow"),
    "network lossy": () => this.networkIs("lossy"),
    "network forgets connections": () => this.networkIs("silent"),
    "disk of a worker full": async () => this.some(this.workers).fillDisk(),
    "clock of a worker off": async () => {
      const worker = this.some(this.workers);
      worker.skew = this.between(-4000, 4000);
      worker.signal("SIGKILL");
    },
    "clock of the tuner off": async () => {
      const { now } = Date;
      const skew = this.between(-4000, 4000);
      const off = vi.spyOn(Date, "now").mockImplementation(() => now() + skew);
      await this.pause(500, 3000);
      off.mockRestore();
    },
    "answer given to another job": async () => {
      const [old] = await this.queue.getCompleted(0, 0);
      if (!old) return;
      const thief = this.setting.eye.worker(this.queue.name, () => {
        void thief.close();
        return Promise.resolve(old.returnvalue);
      });
    },
    "job given again": async () => {
      const [done] = await this.queue.getCompleted(0, 0);
      if (!done?.id) return;
      await done.remove();
      await this.queue.add(done.name, done.data, { jobId: done.id });
    },
    "second tuner": async () => {
      if (this.others.length < 2) this.others.push(this.search(`second ${this.others.length}`));
    },
  };

  private async startLiar(manner: string): Promise<Supervised> {
    const liar = await this.start(`${manner.replaceAll(" ", "-")}-${this.liars.length}`, manner);
    this.liars.push(liar);
    return liar;
  }

  private async networkIs(state: NetworkState): Promise<void> {
    const network = this.some([this.setting.network, ...this.workers.map((worker) => worker.network)]);
    network.is(state);
    await this.pause(200, 3000);
    network.is("well");
  }

  private async start(name: string, manner: string): Promise<Supervised> {
    const { program, server, random, fleet } = this.setting;
    const network = await networkTo(server.port, random);
    const words = [program, urlAt(server, network), admit(fleet.folder, name, "worker"), manner];
    const worker = new Supervised(name, network, (skew) =>
      spawn(process.execPath, [...words, String(skew)], { stdio: ["ignore", "pipe", "pipe", "ipc"] }),
    );
    return worker;
  }

  /** A search with a database of its own, at home where this is its name, whose trials are recorded each once. */
  private async search(name: string, onTrial?: () => void): Promise<Found> {
    const { folder } = this.setting.fleet;
    const database = withCalibration(join(folder, `${name}.db`), compiler);
    const found = await searched(database, {
      trials: TRIALS,
      seconds: 3600,
      seed: this.seed,
      earlyStop: false,
      ...(name === "home" ? { runner: fakeRunner(compiler, BY_TEXT) } : { openPlace: () => this.place() }),
      onEvent: ({ kind }) => kind === "trial" && onTrial?.(),
    });
    const db = openDatabase(database, { readonly: true });
    const recorded = queryTrials(db).filter(({ finals }) => finals === undefined);
    db.close();
    expect([found.trials.length, recorded.length]).toEqual([TRIALS, TRIALS]);
    expect(new Set(recorded.map(({ id }) => id)).size).toBe(TRIALS);
    return found;
  }

  /** The workplace, asked for again while the server is not there: that is said within seconds. */
  private async place(): Promise<FleetPlace> {
    for (;;) {
      try {
        return await this.setting.fleet.place({ lookMs: 500 });
      } catch (error) {
        if (!/no connection to the fleet's server/.test(String(error))) throw error;
        await this.pause(500, 500);
      }
    }
  }

  private some<T>(items: readonly T[]): T {
    return pick(this.setting.random, items);
  }

  private between(from: number, to: number): number {
    return randomInteger(this.setting.random, from, to);
  }

  private pause(from: number, to: number): Promise<unknown> {
    return setTimeout(this.between(from, to));
  }
}
