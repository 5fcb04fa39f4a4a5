/** @file What may be wrong with the look of a page, as expressions for a browser: each gives the texts at fault. */

import { expect } from "vitest";
import type { Page } from "./browser.ts";

/** Labels of a chart that touch: their corners as they are drawn, turned ones included, held against each other by separating axes. */
export const TOUCHING = `(() => {
  const cornersOf = (text) => {
    const box = text.getBBox(), m = text.getScreenCTM();
    const inset = 1;
    return [[box.x + inset, box.y + inset], [box.x + box.width - inset, box.y + inset], [box.x + box.width - inset, box.y + box.height - inset], [box.x + inset, box.y + box.height - inset]]
      .map(([x, y]) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f]);
  };
  const apart = (a, b) => [a, b].some((of) => of.some(([x, y], i) => {
    const [nextX, nextY] = of[(i + 1) % 4];
    const [nx, ny] = [y - nextY, nextX - x];
    const along = (points) => points.map(([px, py]) => px * nx + py * ny);
    const [left, right] = [along(a), along(b)];
    return Math.max(...left) <= Math.min(...right) || Math.max(...right) <= Math.min(...left);
  }));
  return [...document.querySelectorAll("svg.chart, svg.graph")].flatMap((chart) => {
    const texts = [...chart.querySelectorAll("text")].map((text) => ({ text: text.textContent, corners: cornersOf(text) }));
    return texts.flatMap((a, i) => texts.slice(i + 1).filter((b) => !apart(a.corners, b.corners)).map((b) => a.text + " | " + b.text + " in " + chart.getAttribute("aria-label")));
  });
})()`;

/** Labels that stand out of their chart. */
export const OUTSIDE = `[...document.querySelectorAll("svg.chart text, svg.graph text")].filter((text) => {
  const [own, chart] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
  return own.left < chart.left - 1 || own.right > chart.right + 1 || own.bottom > chart.bottom + 1;
}).map((text) => text.textContent + " in " + text.ownerSVGElement.getAttribute("aria-label"))`;

/** Names of ceilings that a ceiling strikes through. */
export const STRUCK = `[...document.querySelectorAll("svg.chart")].flatMap((chart) => {
  const lines = [...chart.querySelectorAll("path.flat")].flatMap((path) => [...path.getAttribute("d").matchAll(/M[^ ]+ ([\\d.]+)H/g)].map(([, y]) => Number(y)));
  return [...chart.querySelectorAll("text.flat")].filter((text) => {
    const { y, height } = text.getBBox();
    return lines.some((line) => line > y + 4 && line < y + height - 4);
  }).map((text) => text.textContent);
})`;

/** Names of ceilings that the mark of a workload's best covers. */
export const COVERED = `[...document.querySelectorAll("svg.chart")].flatMap((chart) => {
  const winners = [...chart.querySelectorAll("path.winner")].map((path) => path.getBoundingClientRect());
  return [...chart.querySelectorAll("text.flat")].filter((text) => {
    const own = text.getBoundingClientRect();
    // The upper fifth of a line of text is empty.
    return winners.some((w) => w.left < own.right - 1 && w.right > own.left + 1 && w.top < own.bottom - 2 && w.bottom > own.top + own.height / 5);
  }).map((text) => text.textContent);
})`;

/** Nothing is wider than the window, no label has one of these faults, and the browser complains of nothing. */
export async function expectFit(page: Page, faults: readonly string[] = [TOUCHING, OUTSIDE]): Promise<void> {
  expect(await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")).toBe(0);
  for (const fault of faults) expect(await page.evaluate(fault)).toEqual([]);
  expect(page.complaints).toEqual([]);
}

/** Waits until a page says a text. */
export const says = (page: Page, text: string): Promise<void> =>
  expect.poll(() => page.evaluate("document.body.innerText")).toContain(text);
