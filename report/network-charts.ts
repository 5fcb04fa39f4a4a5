/** @file The charts of a network's report: the time of each step, and its reduction by tuning. */

import { sortedBy, sumOf } from "../abstraction/collections.ts";
import { html, type Markup } from "./html.ts";
import type { NetworkReportData, NetworkTask, TimeSource } from "./network-data.ts";
import { axes, barChart, chart, linear, mark, n, stairs, timeUnit, WIDTH } from "./plot.ts";
import { counted, percent, printTime } from "./text.ts";

/** Most steps with a bar of their own; the remaining, shorter ones share one. */
const MOST_BARS = 48;
const NAMES = 170;
/** Space after the longest bar for its time and share. */
const FIGURES = 118;

/** A colour for each source of a time. */
export const SOURCES: readonly (readonly [TimeSource, series: number, meaning: string])[] = [
  ["measured", 0, "measured: a record of this machine"],
  ["predicted", 1, "predicted: not tuned, by the model"],
  ["estimated", 2, "estimated: plain loops, by what they move through memory"],
];
export const seriesOfSource = (time: TimeSource): number => SOURCES.find(([source]) => source === time)?.[1] ?? 0;

interface Bar {
  readonly name: string;
  readonly seconds: number;
  readonly time: TimeSource;
}

/** The steps without bars of their own, as one bar for each source of their times. */
function restBySource(rest: readonly Bar[]): Bar[] {
  return SOURCES.flatMap(([time]) => {
    const bars = rest.filter((bar) => bar.time === time);
    const seconds = sumOf(bars, (bar) => bar.seconds);
    return bars.length === 0 ? [] : [{ name: counted(bars.length, "other step"), seconds, time }];
  });
}

/** A bar for each step in execution order. Undefined if no time is known. */
export function stepsChart({ name, steps, tasks }: NetworkReportData): Markup | undefined {
  const timed = steps.flatMap(({ node, task }): Bar[] => {
    const { seconds, time } = tasks[task] ?? {};
    return seconds === undefined || time === undefined ? [] : [{ name: node, seconds, time }];
  });
  if (timed.length === 0) return undefined;
  const least =
    sortedBy(
      timed.map((bar) => bar.seconds),
      (a) => -a,
    )[MOST_BARS - 1] ?? 0;
  const shown = timed.filter((bar) => bar.seconds >= least).slice(0, MOST_BARS);
  const rest = timed.filter((bar) => !shown.includes(bar));
  const bars = rest.length === 0 ? shown : [...shown, ...restBySource(rest)];
  const total = sumOf(timed, (bar) => bar.seconds);
  const longest = Math.max(...bars.map((bar) => bar.seconds));
  return barChart(
    `Time of each step of ${name}: ${counted(timed.length, "step")}, ${printTime(total)} together`,
    NAMES,
    FIGURES,
    bars.map((bar) => ({
      name: bar.name,
      share: bar.seconds / longest,
      series: seriesOfSource(bar.time),
      says: `${printTime(bar.seconds)}, ${percent(bar.seconds / total)}`,
    })),
  );
}

/** The total time of the tuned steps, trial by trial. Undefined with fewer than two trials. */
export function progressChart({ name, progress }: NetworkReportData): Markup | undefined {
  const [first] = progress;
  const last = progress.at(-1);
  if (first === undefined || last === undefined || progress.length < 2) return undefined;
  const unit = timeUnit(last);
  const left = 52;
  const right = WIDTH - 10;
  const top = 30;
  const bottom = 210;
  const x = linear([1, progress.length], [left, right]);
  const y = linear([0, (first * 1.05) / unit.size], [bottom, top]);
  const points = progress.map((seconds, i) => [n(x.at(i + 1)), n(y.at(seconds / unit.size))] as const);
  return chart(
    `Time of the tuned steps of ${name} over ${counted(progress.length, "trial")}: ${printTime(first)} at first, ${printTime(last)} at last`,
    250,
    html`${axes({ scale: { ...x, ticks: x.ticks.filter(Number.isInteger) }, title: "trials that worked, of all tasks" }, { scale: y, title: `${unit.name}, all tuned steps` })}
<path class="best" fill="none" d="${stairs(points)}"/>
${[points[0], points.at(-1)].map((p) => p && mark(0, p[0], p[1], 3.4))}`,
  );
}

/** How many times as long the first kernel of a search took as its best. */
export const gainOf = ({ first, best }: NetworkTask): number | undefined =>
  first === undefined || best === undefined ? undefined : first / best;
