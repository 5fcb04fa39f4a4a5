/** @file The page of a fleet: its workers and queues as they change, alone and beside searches, also in a browser. */

import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { openDatabase } from "../../db/index.ts";
import { FleetWatch } from "../../fleet/watch.ts";
import { measuringQueue } from "../../fleet/worker.ts";
import { FleetPage } from "../../report/fleet-page.ts";
import { type Changing, servePage } from "../../session/watch/serve.ts";
import { Watch } from "../../session/watch/watch.ts";
import { BROWSER, Browser, openPage } from "../support/browser.ts";
import { complaint } from "../support/cli.ts";
import { took } from "../support/fake-runner.ts";
import { fakeMachine, fleetOn, type TestFleet } from "../support/fleet.ts";
import { compilerHere } from "../support/here.ts";
import { beginSearch } from "../support/live-search.ts";
import { expectFit, says } from "../support/page-faults.ts";
import { wordsOf } from "../support/page-text.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";

const machine = fakeMachine(await compilerHere(), { alone: () => took(1e-3), inTurns: () => [] });

describe.skipIf(!hasRedis)("the page of a fleet", async () => {
  const folder = scratchFolder();
  const redis = await redisHere();

  async function watching(fleet: TestFleet): Promise<FleetWatch> {
    const watch = await FleetWatch.begin(await fleet.open(), fleet.tuner.fleet, 100);
    onTestFinished(() => watch.close());
    return watch;
  }

  /** Where a page is served until the test ends. */
  async function served(page: Changing): Promise<string> {
    const { link, close } = await servePage(page, { port: 0 });
    onTestFinished(close);
    return link;
  }

  it("has its workers and queues as they come, work and go, and says when the server is away", async () => {
    const fleet = fleetOn(redis, folder);
    const watch = await watching(fleet);
    const page = (): string => wordsOf(watch.page("events"));
    expect(page()).toContain("No worker of this fleet is at redis://127.0.0.1");
    expect(watch.look().map(([, id]) => id)).toEqual(["fleet-state", "fleet-workers", "fleet-queues"]);
    expect(watch.look()).toEqual([]);
    const worker = await fleet.worker("node1", machine);
    await worker.stop();
    const compiling = await fleet.worker("node2", machine, { measures: false, compiles: 3 });
    await fleet.worker("node3", machine);
    await expect.poll(page).toMatch(/2 workers are at .* 1 of them to measure/);
    expect(page()).toContain("node2 nothing 3");
    const changed = watch.look();
    expect(JSON.stringify(changed)).toContain("node3");
    const server = await fleet.open();
    const queue = server.queue(measuringQueue(worker.environment));
    await queue.pause();
    await queue.add("race", {}, { jobId: "a" });
    await expect.poll(() => watch.look().map(([, id]) => id)).toEqual(["fleet-queues"]);
    await compiling.stop();
    await expect.poll(page).toMatch(/1 worker is at /);
    await redis.stop();
    await expect
      .poll(page)
      .toMatch(/no connection to the fleet&#39;s server \S+: [a-z ]+; this page shows what was there before\./);
    expect(page()).toContain("node3");
    await redis.start();
    await expect.poll(page).not.toContain("no connection");
  });

  it("names what is stuck", () => {
    const standing = { task: "measure", of: "Xeon", workers: ["node1"], waiting: 1, active: 1, lastMinute: 0 } as const;
    const seen = (longest: number) => {
      const data = { server: "redis://queue.lan (Redis 7.0.15)", workers: [], queues: [{ ...standing, longest }] };
      return wordsOf(new FleetPage().text({ version: "0", data, trouble: undefined }, "events"));
    };
    expect(seen(601)).toContain(
      "Stuck: a job to measure on Xeon has been worked at for 10 minutes: look at its worker.",
    );
    expect(seen(599)).not.toContain("Stuck");
  });

  it("is a section beside searches and beside the report, which change as they do alone", async () => {
    const fleet = fleetOn(redis, folder);
    const beside = await watching(fleet);
    const db = openDatabase(join(folder, "searches.db"));
    const watch = new Watch(join(folder, "searches.db"), { beside });
    onTestFinished(() => {
      watch.close();
      db.close();
    });
    expect(wordsOf(watch.page("events"))).toMatch(/automap report.*No worker of this fleet is at/);
    const search = beginSearch(db);
    search.land(4);
    expect(watch.look()).toBe("reload");
    expect(wordsOf(watch.page("events"))).toMatch(/1 search runs now.*4 of 160.*No worker of this fleet is at/);
    watch.look();
    await fleet.worker("node1", machine);
    await expect.poll(() => JSON.stringify(watch.look())).toContain("1 worker is at");
    search.land(1);
    expect(JSON.stringify(watch.look())).toContain("5 of 160");
  });

  it("is asked for with the address and the key", async () => {
    expect(await complaint("watch --fleet redis://nowhere")).toMatch(/^automap: --fleet and --key belong together/);
    expect(await complaint("watch --key desk.key")).toMatch(/^automap: --fleet and --key belong together/);
  });

  describe.skipIf(BROWSER === undefined)("in a browser", () => {
    let browser: Browser;
    beforeAll(() => {
      browser = new Browser(BROWSER ?? "");
    });
    afterAll(() => browser.close());

    it.each([
      ["a wide screen", { width: 1280 }],
      ["a narrow one", { width: 400 }],
      ["a narrow one in the dark", { width: 400, dark: true }],
    ])("fits %s, alone and beside searches", async (name, how) => {
      const fleet = fleetOn(redis, folder);
      const watch = await watching(fleet);
      const file = join(folder, `${name}.db`);
      const db = openDatabase(file);
      const both = new Watch(file, { beside: watch });
      onTestFinished(() => {
        both.close();
        db.close();
      });
      beginSearch(db).land(30);
      // Each of two servers would take the other's changes.
      const alone = await openPage(browser, await served(await watching(fleet)), how);
      const page = await openPage(browser, await served(both), how);
      await says(page, "30 of 160");
      await fleet.worker("a-worker-with-a-long-name.rack-12.example.org", machine, { compiles: 2 });
      await fleet.worker("node2", machine, { measures: false, compiles: 64 });
      for (const shown of [alone, page]) {
        await says(shown, "2 workers are at redis://127.0.0.1");
        await says(shown, "a-worker-with-a-long-name.rack-12.example.org");
        await expectFit(shown);
      }
      expect(await page.evaluate("document.querySelectorAll('svg.chart').length")).toBe(3);
    });
  });
});
