/** @file The live page in a real browser: trials as they land, a search that ends and the next, a lost connection, two readers, thousands of trials. */

import { spawnSync } from "node:child_process";
import { connect, createServer, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Database, openDatabase } from "../../db/index.ts";
import { type Served, servePage } from "../../session/watch/serve.ts";
import { Watch } from "../../session/watch/watch.ts";
import { BROWSER, Browser, openPage } from "../support/browser.ts";
import { workloadNamed, workshop } from "../support/database.ts";
import { beginSearch } from "../support/live-search.ts";
import { expectFit, says } from "../support/page-faults.ts";
import { inFull } from "../support/slow.ts";

const shop = workshop();
let browser: Browser;

const MATMUL = workloadNamed("matmul", { m: 512, n: 512, k: 512 });
/** How many marks the three charts have. */
const MARKS =
  "[...document.querySelectorAll('.chart path.mark')].map((path) => path.getAttribute('d').split('M').length - 1).reduce((a, b) => a + b, 0)";
const gone = (): number => spawnSync("true").pid;

/** A database that is watched while some work writes it. */
async function watched(name: string, work: (db: Database, served: Served) => Promise<void>): Promise<void> {
  const db = openDatabase(shop.path(name));
  const watch = new Watch(shop.path(name));
  const served = await servePage(watch, { port: 0 });
  try {
    await work(db, served);
  } finally {
    await served.close();
    watch.close();
    db.close();
  }
}

/** A connection to a page that may be cut, and joined to another. */
async function lineTo(link: string) {
  const sockets = new Set<Socket>();
  let sent = "";
  let target: URL | undefined = new URL(link);
  const between = createServer((socket) => {
    if (!target) {
      socket.destroy();
      return;
    }
    const onward = connect({ host: "127.0.0.1", port: Number(target.port) });
    for (const end of [socket, onward]) sockets.add(end.on("error", () => end.destroy()));
    socket.on("data", (bytes) => {
      sent += String(bytes);
    });
    socket.pipe(onward).pipe(socket);
  });
  await new Promise<void>((resolve) => between.listen(0, "127.0.0.1", resolve));
  const address = between.address();
  const own = new URL(link);
  own.port = String(typeof address === "object" ? address?.port : undefined);
  const cut = (): void => {
    target = undefined;
    for (const socket of sockets) socket.destroy();
  };
  return {
    link: own.href,
    sent: () => sent,
    cut,
    join: (other: string): void => {
      target = new URL(other);
    },
    close: async (): Promise<void> => {
      cut();
      await new Promise((resolve) => between.close(resolve));
    },
  };
}

/** Counts the charts that a page draws anew. */
const COUNTING = `{
  globalThis.chartsDrawn = 0;
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes) chartsDrawn += [...addedNodes].filter((node) => node.nodeName === "svg").length;
  }).observe(document.body, { childList: true, subtree: true });
}`;

describe.skipIf(BROWSER === undefined)("the live page in a browser", () => {
  beforeAll(() => {
    browser = new Browser(BROWSER ?? "");
  });
  afterAll(async () => {
    await browser.close();
    shop.remove();
  });

  it.each([
    ["a wide screen", { width: 1280 }],
    ["a wide one in the dark", { width: 1280, dark: true }],
    ["a narrow one", { width: 400 }],
    ["a narrow one in the dark", { width: 400, dark: true }],
  ])("fits %s", (name, how) =>
    watched(`${name}.db`, async (db, { link }) => {
      const page = await openPage(browser, link, how);
      const first = beginSearch(db);
      first.land(5);
      first.end();
      const search = beginSearch(db, { workload: MATMUL, started: Date.now() + 1 });
      await says(page, "1 search runs now");
      for (const count of [1, 2, 30, 60]) {
        search.land(count);
        await pause(300);
      }
      await says(page, "93 of 160");
      expect(await page.evaluate("document.querySelectorAll('svg.chart').length")).toBe(3);
      await expectFit(page);
    }),
  );

  it("becomes the report when a search ends, and turns to the next one", () =>
    watched("next.db", async (db, { link }) => {
      const page = await openPage(browser, link, { width: 1280 });
      await says(page, "No search runs now");
      const search = beginSearch(db, { process: gone() });
      search.land(30);
      await says(page, "30 of 160");
      search.end();
      await expect.poll(() => page.evaluate("document.title")).toBe("automap report");
      await says(page, "Every trial as numbers: 30");
      const next = beginSearch(db, { process: gone(), workload: MATMUL, started: Date.now() + 1 });
      next.land(2);
      await says(page, "2 of 160");
      expect(page.complaints).toEqual([]);
    }));

  it("shows two readers the same", () =>
    watched("two.db", async (db, { link }) => {
      const search = beginSearch(db);
      search.land(20);
      const early = await openPage(browser, link, { width: 1280 });
      await says(early, "20 of 160");
      search.land(40);
      const late = await openPage(browser, link, { width: 400 });
      await says(late, "60 of 160");
      search.land(20);
      for (const page of [early, late]) await says(page, "80 of 160");
      const marks = await early.evaluate(MARKS);
      // Six of eighty failed; a time is a mark in each of three charts.
      expect(marks).toBe(3 * (80 - 6));
      expect(await late.evaluate(MARKS)).toBe(marks);
    }));

  it("asks again where it was when the connection is lost", () =>
    watched("lost.db", async (db, { link }) => {
      const line = await lineTo(link);
      const search = beginSearch(db);
      search.land(10);
      const page = await openPage(browser, line.link, { width: 1280 });
      await says(page, "10 of 160");
      search.land(1);
      await says(page, "11 of 160");
      line.cut();
      await says(page, "automap watch does not answer; this page keeps asking.");
      search.land(5);
      await page.evaluate("globalThis.isSamePage = true");
      line.join(link);
      await says(page, "16 of 160");
      expect(line.sent()).toMatch(/Last-Event-ID: \w+-\d+/i);
      expect(await page.evaluate("globalThis.isSamePage")).toBe(true);
      expect(await page.evaluate("document.getElementById('told').hidden")).toBe(true);
      expect(await page.evaluate(MARKS)).toBe(3 * 15);
      await line.close();
    }));

  it("stays as it is where another watch has taken the port", () =>
    watched("first.db", async (db, { link }) =>
      watched("second.db", async (_, other) => {
        const line = await lineTo(link);
        beginSearch(db).land(10);
        const page = await openPage(browser, line.link, { width: 1280 });
        await says(page, "10 of 160");
        line.cut();
        line.join(other.link);
        await says(page, "automap watch no longer answers: this page stays as it is.");
        await says(page, "10 of 160");
        await line.close();
      }),
    ));

  it("says that the watch has ended, and stays", () =>
    watched("ended.db", async (db, served) => {
      const search = beginSearch(db);
      search.land(10);
      const page = await openPage(browser, served.link, { width: 1280 });
      await pause(300);
      await served.close();
      await says(page, "automap watch has ended: this page stays as it is.");
      await says(page, "10 of 160");
      await pause(1500);
      expect(page.complaints).toEqual([]);
    }));

  it("runs no planted script", () =>
    watched("planted.db", async (_, { link }) => {
      const page = await openPage(browser, link, { width: 1280 });
      await page.evaluate(
        `{ const planted = document.createElement("script"); planted.textContent = "globalThis.planted = 1"; document.body.append(planted); }`,
      );
      await page.evaluate(
        `document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='globalThis.planted = 1'>")`,
      );
      expect(await page.evaluate("fetch('http://127.0.0.1:9/').then(() => 1, () => 0)")).toBe(0);
      expect(await page.evaluate("typeof globalThis.planted")).toBe("undefined");
      expect(page.complaints.join()).toContain("Content Security Policy");
    }));

  it("takes thousands of trials, drawing what is new", () =>
    watched("many.db", async (db, { link }) => {
      const page = await openPage(browser, link, { width: 1280 });
      const trials = inFull(10_000, 2000);
      const search = beginSearch(db, { trials, seconds: 120 });
      search.land(trials / 2);
      await says(page, `${trials / 2} of ${trials}`);
      await page.evaluate(COUNTING);
      for (let turn = 0; turn < 50; turn++) {
        search.land(trials / 100);
        await pause(100);
      }
      await says(page, `${trials} of ${trials}`);
      expect(await page.evaluate("chartsDrawn")).toBeLessThan(20);
      expect(await page.evaluate("document.querySelectorAll('path').length")).toBeLessThan(400);
      expect(await page.evaluate(MARKS)).toBe(3 * (trials - Math.floor(trials / 13)));
    }));
});
