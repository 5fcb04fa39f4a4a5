/**
 * @file The charts of a report that show trials: convergence, comparison of runs, prediction against measurement.
 *
 * A data type has the same colour and mark in all of them. Runs differ by dashes, so that colour has one meaning only.
 */

import { html, type Markup } from "./html.ts";
import {
  axes,
  chart,
  cross,
  linear,
  log,
  mark,
  n,
  type Scale,
  seriesClass,
  spread,
  stairs,
  text,
  timeUnit,
  WIDTH,
} from "./plot.ts";
import type { Comparison, ReportData, Subject, TrialPoint } from "./report-data.ts";

const LEFT = 52;
const RIGHT = WIDTH - 10;
const TOP = 30;

/** Position of trials: by number, or by the seconds since their run began. */
export type Pace = "trials" | "seconds";

/** Times of a workload's trials: each with its interval, the best so far as a line, and failures at the top. */
export function convergenceChart({ trials, label }: Subject, series: number, pace: Pace): Markup {
  const placed = placedBy(pace, trials);
  const timed = placed.flatMap(({ trial: { seconds, interval, id }, x }) =>
    seconds === undefined ? [] : [{ id, x, seconds, interval: interval ?? ([seconds, seconds] as const) }],
  );
  const bottom = 210;
  const { y, unit } = timeScale(
    timed.flatMap((t) => t.interval),
    bottom,
  );
  const x = paceScale(
    placed.map((p) => p.x),
    pace,
    RIGHT,
  );
  const failed = placed.filter(({ trial }) => trial.seconds === undefined);
  const lines = groupsOf(placed, pace).map((group) => stepsOf(group, x, y, unit.size));
  return chart(
    `Convergence of ${label} over ${paceTitle(pace)}: ${trials.length} trials, ${failed.length} failed`,
    250,
    html`${axes({ scale: x, title: paceTitle(pace) }, { scale: y, title: `${unit.name} a call` })}
<path class="interval ${seriesClass(series)}" d="${timed.map((t) => `M${n(x.at(t.x))} ${n(y.at(t.interval[0] / unit.size))}V${n(y.at(t.interval[1] / unit.size))}`).join("")}"/>
${lines.map((d) => html`<path class="best" d="${d}"/>`)}
${timed.map((t) => mark(series, x.at(t.x), y.at(t.seconds / unit.size), 2.8))}
${failed.length === 0 ? undefined : html`<path class="failed" d="${failed.map((p) => cross(x.at(p.x), TOP + 4)).join("")}"/>`}`,
  );
}

/** Dash patterns of the first runs; further runs share the last. */
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2", "10 4"] as const;

/** The best time so far in each run of a workload. Each line carries the number of its run. */
export function runsChart({ label, runs }: Comparison, series: number, pace: Pace): Markup {
  const curves = runs.map((run) => placedBy(pace, run.trials));
  const seconds = curves.flatMap((c) => bestSoFar(c).map((p) => p.best));
  const { y, unit } = timeScale(seconds, 210);
  const right = RIGHT - 18;
  const x = paceScale(
    curves.flatMap((c) => c.map((p) => p.x)),
    pace,
    right,
  );
  const ends = curves
    .map((curve, i) => ({ i, last: bestSoFar(curve).at(-1)?.best }))
    .flatMap(({ i, last }) => (last === undefined ? [] : [{ i, y: y.at(last / unit.size) }]))
    .sort((a, b) => a.y - b.y);
  const places = spread(
    ends.map((e) => e.y + 4),
    TOP + 4,
    214,
  );
  return chart(
    `The best so far of ${runs.length} runs of ${label} over ${paceTitle(pace)}`,
    250,
    html`${axes({ scale: x, title: paceTitle(pace) }, { scale: y, title: `${unit.name} a call` })}
${curves.map((curve, i) => html`<path class="run ${seriesClass(series)}" stroke-dasharray="${DASHES[Math.min(i, DASHES.length - 1)]}" d="${stepsOf(curve, x, y, unit.size)}"/>`)}
${curves.flatMap((curve) => gainsOf(curve).map((p) => mark(series, x.at(p.x), y.at(p.best / unit.size), 2.4, "trial")))}
${ends.map(({ i }, at) => text(right + 5, places[at] ?? 0, String(i + 1), { kind: "strong" }))}`,
  );
}

/** Predicted against measured time of every trial. On the diagonal the model is right. */
export function predictionChart({ subjects }: ReportData, seriesOf: (dtype: string) => number): Markup {
  const points = subjects.flatMap((s) =>
    s.trials.flatMap((t) =>
      t.seconds === undefined || t.predicted === undefined
        ? []
        : [{ measured: t.seconds, predicted: t.predicted, series: seriesOf(s.dtype) }],
    ),
  );
  const all = points.flatMap((p) => [p.measured, p.predicted]);
  const unit = timeUnit(Math.sqrt(Math.min(...all) * Math.max(...all)));
  const domain = [Math.min(...all) / 1.15 / unit.size, (Math.max(...all) * 1.15) / unit.size] as const;
  const bottom = 340;
  const x = log(domain, [LEFT, RIGHT]);
  const y = log(domain, [bottom, TOP]);
  return chart(
    `The model against measurement, ${points.length} trials`,
    380,
    html`${axes({ scale: x, title: `measured, ${unit.name}` }, { scale: y, title: `predicted, ${unit.name}` })}
<path class="equal" d="M${LEFT} ${bottom}L${RIGHT} ${TOP}"/>
${points.map((p) => mark(p.series, x.at(p.measured / unit.size), y.at(p.predicted / unit.size), 2.8, "trial"))}`,
  );
}

// ---- Parts

interface Placed {
  readonly trial: TrialPoint;
  readonly x: number;
}

const placedBy = (pace: Pace, trials: readonly TrialPoint[]): Placed[] =>
  trials.flatMap((trial, i) => {
    const x = pace === "trials" ? i + 1 : trial.after;
    return x === undefined ? [] : [{ trial, x }];
  });

const paceTitle = (pace: Pace): string => (pace === "trials" ? "trial" : "seconds since the run began");

function paceScale(values: readonly number[], pace: Pace, right: number): Scale {
  const most = Math.max(1, ...values);
  const first = Math.min(most, ...values);
  // When a search spends most of its time preparing, the axis begins just before its first trial.
  const least = pace === "trials" ? 1 : first > most / 3 ? Math.max(0, first - (most - first) / 10) : 0;
  const scale = linear([least, Math.max(most, pace === "trials" ? least + 1 : most)], [LEFT + 6, right - 2]);
  const whole = pace === "trials" ? scale.ticks.filter(Number.isInteger) : scale.ticks;
  return { ...scale, range: [LEFT, right], ticks: whole };
}

function timeScale(seconds: readonly number[], bottom: number) {
  const low = Math.min(...seconds);
  const high = Math.max(...seconds);
  const unit = timeUnit(low);
  const y = log([(low * 0.96) / unit.size, (high * 1.04) / unit.size], [bottom, TOP + 10]);
  return { unit, y: { ...y, range: [bottom, TOP] as const } };
}

/** When time counts from a run's beginning, each run is a group. */
function groupsOf(placed: readonly Placed[], pace: Pace): readonly (readonly Placed[])[] {
  if (pace === "trials") return [placed];
  const runs = new Set(placed.map((p) => p.trial.run));
  return [...runs].map((run) => placed.filter((p) => p.trial.run === run));
}

function bestSoFar(placed: readonly Placed[]): { readonly x: number; readonly best: number }[] {
  let best = Number.POSITIVE_INFINITY;
  return placed.flatMap(({ trial, x }) => {
    best = Math.min(best, trial.seconds ?? Number.POSITIVE_INFINITY);
    return Number.isFinite(best) ? [{ x, best }] : [];
  });
}

/** Points where the best so far improves, including the first, so that a run of one trial has a point. */
function gainsOf(placed: readonly Placed[]): { readonly x: number; readonly best: number }[] {
  return bestSoFar(placed).filter((p, i, all) => p.best < (all[i - 1]?.best ?? Number.POSITIVE_INFINITY));
}

function stepsOf(placed: readonly Placed[], x: Scale, y: Scale, size: number): string {
  const points = bestSoFar(placed).map((p) => [n(x.at(p.x)), n(y.at(p.best / size))] as const);
  return stairs(points);
}
