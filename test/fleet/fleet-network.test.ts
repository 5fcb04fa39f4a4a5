/** @file `automap tune-network --fleet`: the tasks of a network are searched in a fleet, as one computation is. */

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import { EXIT } from "../../abstraction/exit-codes.ts";
import { openDatabase, queryTrials, recordCalibration, runsIn } from "../../db/index.ts";
import { measuringQueue, type WorkerMachine } from "../../fleet/worker.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { complaint, printed } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { withCalibration } from "../support/fake-runner.ts";
import { fakeMachine, fleetOn } from "../support/fleet.ts";
import { BY_TEXT } from "../support/fleet-search.ts";
import { compilerHere } from "../support/here.ts";
import { onnx } from "../support/networks.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";

const compiler = await compilerHere();
/** Six in the time of a search, which are enough for both tasks. */
const KERNEL_MS = 100_000;
const TWO = "MatMul(MatMul(x[4,8], [8,4]{1}), [4,12]{2})";

describe.skipIf(!hasRedis)("automap tune-network in a fleet", async () => {
  const folder = scratchFolder();
  const redis = await redisHere();
  const model = join(folder, "two.onnx");
  writeFileSync(model, onnxBytes(onnx(TWO)));
  const words = (db: string, key: string): string[] => [
    "tune-network",
    model,
    "--time",
    "600",
    "--db",
    db,
    "--fleet",
    redis.url,
    "--fleet-key",
    key,
  ];

  /** A machine whose kernels are what the time passes by: so many can be measured, however busy the machine of the test is. */
  const clocked = (): WorkerMachine => {
    const { now } = Date;
    let passed = 0;
    const clock = vi.spyOn(Date, "now").mockImplementation(() => now() + passed);
    onTestFinished(() => clock.mockRestore());
    return fakeMachine(compiler, {
      ...BY_TEXT,
      alone: (kernel) => {
        passed += KERNEL_MS;
        return BY_TEXT.alone(kernel);
      },
    });
  };

  it("tunes its tasks on the workers, records who measured, and says how it ends", async () => {
    const fleet = fleetOn(redis, folder);
    const machine = clocked();
    await fleet.worker("node1", machine);
    await fleet.worker("node2", machine);
    const file = withCalibration(join(folder, "two.db"), compiler);
    const { code, out, err } = await commandLine(words(file, join(fleet.folder, "tuner.key")));
    expect({ code, out }).toEqual({
      code: EXIT.ok,
      out: expect.stringMatching(/^text: .*\nwrite it {3}automap network emit /),
    });
    expect(err).toMatch(/measuring in a fleet: 2 workers .*\n.*: 2 tasks, at most 600 s together\n/);
    expect(err.match(/^task \d of 2, 1 times: 10\.\d us/gm)?.length).toBeGreaterThan(1);
    const db = openDatabase(file);
    const measured = ["node1", "node2"].map((worker) => queryTrials(db, { worker }).length);
    expect(measured.reduce((a, b) => a + b)).toBe(queryTrials(db).length);
    const runs = runsIn(db);
    expect(runs.length).toBeGreaterThan(1);
    for (const { run } of runs) expect(run.budget["network"]).toMatchObject({ name: "text", steps: 1 });
    expect(await replayRun(db, runs[0]?.run.id ?? "")).toMatchObject({ divergence: undefined });
    db.close();
  });

  it("is written for the workers' machine where that is another, with their kernels", async () => {
    const fleet = fleetOn(redis, folder);
    const here = clocked();
    const isa = [...here.machine.isa, "made_up"].sort();
    const environment = { ...here.environment, cpu: "Processor elsewhere", isa };
    await fleet.worker("node1", { ...here, machine: { ...here.machine, isa }, environment });
    const file = join(folder, "elsewhere.db");
    const db = openDatabase(file);
    const clockHz = { median: 2e9, spread: 0 };
    const data = { machine: "elsewhere", clockHz, memory: {}, intrinsics: {}, scalar: {} };
    recordCalibration(db, { environment, data, at: 1 });
    const { code, out } = await commandLine([...words(file, join(fleet.folder, "tuner.key"))]);
    expect({ code, out }).toEqual({
      code: EXIT.ok,
      out: expect.stringMatching(
        / not that of this machine \(.*cpu.*isa.*\):\nwrite it {3}automap network emit .*--environment /,
      ),
    });
    const [, id = ""] = /--environment (\w+)/.exec(out) ?? [];
    db.close();

    const recordsOf = async (...more: string[]): Promise<number> => {
      const shown = JSON.parse(await printed(["network", "show", model, "--db", file, "--json", ...more]));
      return shown.tasks.filter(({ kind }: { kind: string }) => kind === "record").length;
    };
    expect([await recordsOf(), await recordsOf("--environment", id)]).toEqual([0, 2]);
    const written = join(folder, "written");
    const emit = ["network", "emit", model, "--to", written, "--db", file, "--environment"];
    expect(await complaint([...emit, id, "--verify"])).toMatch(
      /this machine has no made_up: it cannot be verified here/,
    );
    expect(await complaint([...emit, "ffff"], EXIT.nothingFound)).toContain(`it has searches in ${id}`);
    expect(await complaint([...emit, id, "--target", "cuda"])).toMatch(/--environment and --target exclude each other/);
    await printed([...emit, id]);
    const sources = readdirSync(written).flatMap((name) =>
      name.endsWith(".cpp") ? [readFileSync(join(written, name), "utf8")] : [],
    );
    expect(sources.join("\n")).toMatch(/record {4}[0-9a-f]{12}/);
    expect(sources.join("\n")).toMatch(/records {3}measured on Processor elsewhere/);
  });

  it("ends with the best so far on Ctrl-C, and takes its jobs back", async () => {
    const fleet = fleetOn(redis, folder);
    let left = 2;
    const machine = fakeMachine(compiler, {
      ...BY_TEXT,
      alone: (kernel) => {
        if (--left === 0) setImmediate(() => process.emit("SIGINT"));
        return BY_TEXT.alone(kernel);
      },
    });
    const { environment } = await fleet.worker("node1", machine);
    const file = withCalibration(join(folder, "stopped.db"), compiler);
    const { code, err } = await commandLine(words(file, join(fleet.folder, "tuner.key")));
    expect({ code, err }).toEqual({
      code: EXIT.interrupted,
      err: expect.stringMatching(/ending the search with the best/),
    });
    expect(err).toMatch(/interrupted: 1 of 2 tasks got no time; the same command goes on/);
    const counts = await (await fleet.open()).queue(measuringQueue(environment)).getJobCounts("waiting");
    expect(counts).toEqual({ waiting: 0 });
  });

  it("ends at the first task that no worker can do, with what they say", async () => {
    const fleet = fleetOn(redis, folder);
    const problem = { what: "the disk is full", why: "kernels are written there", remedy: "make room" };
    const openRunner = () => Promise.reject(new EnvironmentError(problem));
    await fleet.worker("node1", { ...fakeMachine(compiler, BY_TEXT), openRunner });
    const file = withCalibration(join(folder, "full.db"), compiler);
    const { code, out, err } = await commandLine(words(file, join(fleet.folder, "tuner.key")));
    expect({ code, out }).toEqual({ code: EXIT.environment, out: "" });
    expect(err.match(/^task \d of 2/gm)).toHaveLength(1);
    expect(err).toMatch(/automap: no worker of the fleet finished a job: worker node1: the disk is full/);
  });

  it("is for the workers, whatever the options say of this machine", async () => {
    const fleet = fleetOn(redis, folder);
    const given = words(join(folder, "none.db"), join(fleet.folder, "tuner.key"));
    expect(await complaint([...given, "--target", "cuda"])).toMatch(
      /^automap: --fleet and --target exclude each other/,
    );
    expect(await complaint(given.slice(0, -2))).toMatch(/^automap: --fleet needs --fleet-key/);
    expect(await complaint([...given.slice(0, 6), "--on", "target is h100"])).toMatch(
      /^automap: --on is for what a fleet measures/,
    );
    await fleet.worker("node1", fakeMachine(compiler, BY_TEXT));
    expect(await complaint([...given, "--threads", "4000"])).toMatch(/4000/);
  });
});
