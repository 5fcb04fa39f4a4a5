/**
 * @file The report in a real browser: tables sort by keyboard, nothing is wider than a narrow screen, no labels touch,
 * no errors.
 */

import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDatabase } from "../../db/index.ts";
import { networkPage } from "../../report/network-page.ts";
import { reportPage } from "../../report/page.ts";
import type { Roofline } from "../../report/report-data.ts";
import { gatherReport } from "../../session/report/report.ts";
import { BROWSER, Browser, openPage, type Page } from "../support/browser.ts";
import { workshop } from "../support/database.ts";
import { NETWORK_REPORT } from "../support/network-report.ts";
import { COVERED, expectFit, OUTSIDE, STRUCK, TOUCHING } from "../support/page-faults.ts";
import { recordSearches } from "../support/searches.ts";

const shop = workshop();
const HTML = shop.path("report.html");
const NETWORK = shop.path("network.html");
const AT_THE_ROOF = shop.path("at-the-roof.html");
let browser: Browser;

const COLUMN = (title: string) =>
  `[...document.querySelectorAll("#summary thead th")].findIndex((th) => th.textContent === "${title}")`;
const VALUES = (title: string) =>
  `[...document.querySelectorAll("#summary tbody tr")].map((row) => Number(row.cells[${COLUMN(title)}].dataset.v))`;

describe.skipIf(BROWSER === undefined)("the report in a browser", () => {
  beforeAll(() => {
    const file = shop.path("searches.db");
    recordSearches(file);
    const db = openDatabase(file, { readonly: true });
    const data = gatherReport(db, {}, 1);
    writeFileSync(HTML, reportPage(data));
    writeFileSync(AT_THE_ROOF, reportPage({ ...data, rooflines: data.rooflines.map(atTheRoof) }));
    db.close();
    writeFileSync(NETWORK, networkPage(NETWORK_REPORT));
    browser = new Browser(BROWSER ?? "");
  });
  afterAll(async () => {
    await browser.close();
    shop.remove();
  });

  it.each([
    ["a wide screen", { width: 1280 }],
    ["a narrow one", { width: 400 }],
    ["a narrow one in the dark", { width: 400, dark: true }],
    ["paper", { width: 720, paper: true }],
  ])("fits %s: no label touches another, nothing is cut off", async (_, how) => {
    const page = await openPage(browser, HTML, how);
    expect(await page.evaluate("document.querySelectorAll('svg.chart').length")).toBeGreaterThan(12);
    await expectFit(page, [TOUCHING, OUTSIDE, STRUCK]);
  });

  it.each([
    ["a wide screen", { width: 1280 }],
    ["a narrow one in the dark", { width: 400, dark: true }],
    ["paper", { width: 720, paper: true }],
  ])("fits the report of a network onto %s", async (_, how) => {
    const page = await openPage(browser, NETWORK, how);
    expect(await page.evaluate("document.querySelectorAll('svg.chart').length")).toBe(3);
    expect(await page.evaluate("document.querySelectorAll('svg.graph').length")).toBeGreaterThan(1);
    await expectFit(page, [TOUCHING, OUTSIDE, STRUCK, COVERED]);
  });

  it("needs no scrolling sideways on a wide screen", async () => {
    const page = await openPage(browser, HTML, { width: 1280 });
    const scrolled =
      "[...document.querySelectorAll('.wide, .carded')].filter((e) => e.scrollWidth > e.clientWidth).length";
    expect(await page.evaluate(scrolled)).toBe(0);
  });

  it.each([1280, 400])(
    "keeps names of ceilings clear of the kernels that reach them, %i pixels wide",
    async (width) => {
      const page = await openPage(browser, AT_THE_ROOF, { width });
      expect(await page.evaluate("document.querySelectorAll('path.winner').length")).toBeGreaterThan(2);
      await expectFit(page, [COVERED, TOUCHING, OUTSIDE]);
    },
  );

  it("is found wrong with labels that touch, and with one that overflows", async () => {
    const page = await openPage(browser, HTML, { width: 1280 });
    await page.evaluate(`{
      const [first, second, third] = document.querySelectorAll("svg.chart text");
      for (const at of ["x", "y", "text-anchor"]) second.setAttribute(at, first.getAttribute(at));
      third.setAttribute("x", "2000");
    }`);
    expect(await page.evaluate(TOUCHING)).not.toEqual([]);
    expect(await page.evaluate(OUTSIDE)).not.toEqual([]);
  });

  it("is legible at 400 pixels: no text is smaller than nine pixels", async () => {
    const page = await openPage(browser, HTML, { width: 400 });
    const least = await page.evaluate(
      "Math.min(...[...document.querySelectorAll('svg.chart text')].map((t) => parseFloat(getComputedStyle(t).fontSize) * Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b)))",
    );
    expect(least).toBeGreaterThan(9);
  });

  it("sorts a table by keyboard, in both directions, and announces it", async () => {
    const page = await openPage(browser, HTML, { width: 1280 });
    const sorted = async (): Promise<unknown> =>
      page.evaluate(
        `[document.querySelectorAll("#summary thead th")[${COLUMN("time")}].getAttribute("aria-sort"), ${VALUES("time")}]`,
      );
    await focusOn(page, "time");
    await page.press("Enter");
    const up = (await page.evaluate(VALUES("time"))) as number[]; // a list of numbers, by the expression
    expect(up.length).toBe(3);
    expect(up).toEqual(up.toSorted((a, b) => a - b));
    expect(await sorted()).toEqual(["ascending", up]);
    await page.press("Enter");
    expect(await sorted()).toEqual(["descending", up.toReversed()]);
    // The head of the next column is one step of the keyboard away.
    await page.press("Tab");
    expect(await page.evaluate("document.activeElement.textContent")).toBe("G op/s");
  });

  it("prints no list of contents and no links to files", async () => {
    const shown =
      "[...document.querySelectorAll('nav, .downloads')].filter((e) => getComputedStyle(e).display !== 'none').length";
    expect(await (await openPage(browser, HTML, { width: 720, paper: true })).evaluate(shown)).toBe(0);
    expect(await (await openPage(browser, HTML, { width: 720 })).evaluate(shown)).toBe(2);
  });

  it("has a shadow where a table scrolls sideways, and none on paper", async () => {
    const background =
      "getComputedStyle(document.querySelector('.wide')).backgroundImage.split('linear-gradient').length - 1";
    expect(await (await openPage(browser, HTML, { width: 400 })).evaluate(background)).toBe(4);
    expect(await (await openPage(browser, HTML, { width: 720, paper: true })).evaluate(background)).toBe(0);
  });

  it("unfolds for printing, and folds again", async () => {
    const page = await openPage(browser, HTML, { width: 720 });
    const folded = "document.querySelectorAll('details:not([open])').length";
    const before = await page.evaluate(folded);
    expect(before).toBeGreaterThan(5);
    await page.evaluate("dispatchEvent(new Event('beforeprint'))");
    expect(await page.evaluate(folded)).toBe(0);
    await page.evaluate("dispatchEvent(new Event('afterprint'))");
    expect(await page.evaluate(folded)).toBe(before);
  });

  it("runs no planted script", async () => {
    const page = await openPage(browser, HTML, { width: 400 });
    await page.evaluate(
      `{ const planted = document.createElement("script"); planted.textContent = "globalThis.planted = 1"; document.body.append(planted); }`,
    );
    expect(await page.evaluate("typeof globalThis.planted")).toBe("undefined");
    expect(page.complaints.join()).toContain("Content Security Policy");
  });
});

/** The best of a workload at 98 % of each ceiling, where its name would stand. */
const atTheRoof = (roofline: Roofline): Roofline => {
  const [first] = roofline.points;
  const farthest = Math.max(...roofline.points.map((p) => p.intensity));
  const best = roofline.peaks.flatMap(({ operationsPerSecond }) =>
    first ? [{ ...first, operationsPerSecond: 0.98 * operationsPerSecond, intensity: farthest, best: true }] : [],
  );
  return { ...roofline, points: [...roofline.points, ...best] };
};

const focusOn = (page: Page, title: string): Promise<unknown> =>
  page.evaluate(`document.querySelectorAll("#summary thead th")[${COLUMN(title)}].querySelector("button").focus()`);
