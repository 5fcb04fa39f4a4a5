/** @file `automap db verify --remeasure --fleet`: workers measure records of their environments again. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { EXIT } from "../../abstraction/exit-codes.ts";
import { type Environment, openDatabase, queryTrials } from "../../db/index.ts";
import { complaint } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { type FakeTimes, shareOf, took, withCalibration } from "../support/fake-runner.ts";
import { fakeMachine, fleetOn } from "../support/fleet.ts";
import { BY_TEXT, searched } from "../support/fleet-search.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";

const compiler = await compilerHere();

describe.skipIf(!hasRedis)("records that workers measure again", async () => {
  const folder = scratchFolder();
  const redis = await redisHere();
  const here = fakeMachine(compiler, BY_TEXT);
  const environmentOn = (cpu: string): Environment => ({ ...here.environment, cpu });

  it("are those of the environments that the fleet has, each by a worker of its own, and not what a search was answered", async () => {
    const fleet = fleetOn(redis, folder);
    let slower = 1;
    const times: FakeTimes = {
      ...BY_TEXT,
      inTurns: (kernels) => kernels.map((kernel) => took(slower * (10 + shareOf(kernel)) * 1e-6, 0.001)),
    };
    const file = withCalibration(join(folder, "two.db"), compiler);
    for (const name of ["one", "two"]) {
      await fleet.worker(name, { ...fakeMachine(compiler, times), environment: environmentOn(name) });
      await searched(file, { openPlace: () => fleet.place({ on: `worker is ${name}` }), trials: 2, finals: false });
    }
    // Nobody of its environment is there any more.
    const gone = await fleet.worker("gone", { ...fakeMachine(compiler, times), environment: environmentOn("gone") });
    await searched(file, { openPlace: () => fleet.place({ on: "worker is gone" }), trials: 2, finals: false });
    await gone.stop();
    const words = (...more: string[]) => [
      "db",
      "verify",
      "--db",
      file,
      "--remeasure",
      "99",
      "--fleet",
      redis.url,
      "--fleet-key",
      key,
      ...more,
    ];
    const key = join(fleet.folder, "tuner.key");
    const again = async (...more: string[]) => JSON.parse((await commandLine(words("--json", ...more))).out);

    const db = openDatabase(file);
    const idsOf = (worker: string) => queryTrials(db, { worker }).map(({ id }) => id);
    const { problems, remeasured } = await again();
    expect(problems).toEqual([]);
    expect(remeasured.map(({ id }: { id: string }) => id).sort()).toEqual([...idsOf("one"), ...idsOf("two")].sort());
    expect(remeasured.every(({ verdict }: { verdict: string }) => verdict === "same")).toBe(true);
    const one = await commandLine(words("--on", "worker is one"));
    expect(one.out.match(/same +by one$/gm)).toHaveLength(idsOf("one").length);
    expect(one.out).not.toMatch(/by two/);
    expect(one.err).toMatch(/automap: \d trials of exactly the workers' machines can be measured again/);
    slower = 0.95;
    expect((await again()).remeasured.map(({ verdict }: { verdict: string }) => verdict)).not.toContain("faster");
    slower = 0.5;
    expect((await commandLine(words("--on", "worker is two"))).out).toMatch(/faster +by two$/m);
    slower = 2;
    const { code, out } = await commandLine(words("--on", "worker is two"));
    expect({ code, out }).toEqual({ code: EXIT.wrong, out: expect.stringMatching(/slower +by two$/m) });
    db.close();
  });

  it("are asked for with a count, and a fleet with its address", async () => {
    expect(await complaint("db verify --fleet redis://nowhere")).toMatch(/^automap: --fleet is for trials that are/);
    const verify = `db verify --db ${withCalibration(join(folder, "empty.db"), compiler)} --remeasure 5`;
    expect(await complaint(`${verify} --fleet redis://nowhere`)).toMatch(/^automap: --fleet needs --fleet-key/);
    expect(await complaint(`${verify} --on "worker is one"`)).toMatch(/^automap: --on is for what a fleet/);
  });
});
