/** @file When trials came, on the page of a report; how it draws designs on lanes stands in test/golden/reports/lanes.page.txt. */

import { afterAll, expect, it } from "vitest";
import { openDatabase, recordTrial } from "../../db/index.ts";
import { convergenceChart } from "../../report/charts.ts";
import { gatherReport } from "../../session/report/report.ts";
import { newTrial, workshop } from "../support/database.ts";

const shop = workshop();
afterAll(() => shop.remove());

it("time over seconds begins just before the first trial, even if the search prepared for long", () => {
  const db = openDatabase(shop.path("after.db"));
  recordTrial(db, newTrial(10));
  const [subject] = gatherReport(db, {}, 1).subjects;
  db.close();
  const [first] = subject?.trials ?? [];
  if (!subject || !first) throw new Error("no trial");
  const at = (seconds: readonly number[]): string =>
    convergenceChart({ ...subject, trials: seconds.map((after) => ({ ...first, after })) }, 0, "seconds").text;
  const ticks = (text: string): number[] =>
    [...text.matchAll(/y="225" text-anchor="middle">([\d.]+)</g)].map(([, tick]) => Number(tick));
  expect(Math.min(...ticks(at([6, 6.5, 7])))).toBeGreaterThan(5);
  expect(Math.min(...ticks(at([1, 6.5, 7])))).toBe(0);
});
