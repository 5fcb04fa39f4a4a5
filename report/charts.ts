/**
 * @file The charts of a report that show trials: convergence, comparison of runs, prediction against measurement, and the roofline.
 *
 * A data type has the same colour and mark in all of them. Runs differ by dashes, so that colour has one meaning only. The roofline has slopes for
 * memory levels, flat lines for instructions, and every trial under them: a slope is labelled along the line, a flat line at its right end; labels
 * that would touch are moved apart or merged.
 */

import { sortedBy } from "../abstraction/collections.ts";
import { html, type Markup } from "./html.ts";
import {
  axes,
  chart,
  cross,
  LINE,
  linear,
  log,
  mark,
  markPath,
  n,
  type Scale,
  seriesClass,
  short,
  spread,
  stairs,
  text,
  timeUnit,
  WIDTH,
  widthOf,
} from "./plot.ts";
import type { Comparison, ReportData, Roofline, Subject, TrialPoint } from "./report-data.ts";

const LEFT = 52;
const RIGHT = WIDTH - 10;
const TOP = 30;
/** Bottom of a chart that is nearly square. */
const BOTTOM = 340;

/** Position of trials: by number, or by the seconds since their run began. */
export type Pace = "trials" | "seconds";

/** Times of a workload's trials: each with its interval, the best so far as a line, and failures at the top. */
export function convergenceChart({ trials, label }: Subject, series: number, pace: Pace): Markup {
  const placed = placedBy(pace, trials);
  const failed = placed.filter(({ trial }) => trial.seconds === undefined);
  const frame = convergenceFrame(extentOf(placed), pace);
  return convergenceIn(frame, {
    label: `Convergence of ${label} over ${paceTitle(pace)}: ${trials.length} trials, ${failed.length} failed`,
    parts: layersOf(placed, frame, series)
      .filter(({ d }) => d !== "")
      .map(layerPath),
  });
}

/** Where trials lie in a chart of their times. */
interface Frame {
  readonly pace: Pace;
  readonly x: Scale;
  readonly y: Scale;
  readonly unit: ReturnType<typeof timeUnit>;
}

export function convergenceFrame({ first, last, low, high }: Extent, pace: Pace): Frame {
  return { pace, x: paceScale(first, last, pace, RIGHT), ...timeScale(low, high, 210) };
}

/** A chart of times with axes. @param parts what it draws, back to front */
export function convergenceIn(
  { pace, x, y, unit }: Frame,
  { label, parts }: { readonly label: string; readonly parts: readonly Markup[] },
): Markup {
  return chart(
    label,
    250,
    html`${axes({ scale: x, title: paceTitle(pace) }, { scale: y, title: `${unit.name} a call` })}
${parts.map((part) => html`${part}\n`)}`,
  );
}

/** Shapes of one look. */
export interface Layer {
  readonly look: string;
  readonly d: string;
}

export const layerPath = ({ look, d }: Layer): Markup => html`<path class="${look}" d="${d}"/>`;

/** Trials within a frame, back to front: their intervals, the best so far, their times, and crosses for those that failed. */
export function layersOf(placed: readonly Placed[], frame: Frame, series: number): Layer[] {
  const { x, y, unit } = frame;
  const timed = timedOf(placed);
  const failed = placed.filter(({ trial }) => trial.seconds === undefined);
  const across = (seconds: number): number => y.at(seconds / unit.size);
  return [
    {
      look: `interval ${seriesClass(series)}`,
      d: timed.map((t) => `M${n(x.at(t.x))} ${n(across(t.interval[0]))}V${n(across(t.interval[1]))}`).join(""),
    },
    bestLayer(placed, frame),
    {
      look: `mark ${seriesClass(series)}`,
      d: timed.map((t) => markPath(series, x.at(t.x), across(t.seconds), 2.8)).join(""),
    },
    { look: "failed", d: failed.map((p) => cross(x.at(p.x), TOP + 4)).join("") },
  ];
}

/** The best so far of each run as a line. */
export const bestLayer = (placed: readonly Placed[], { pace, x, y, unit }: Frame): Layer => ({
  look: "best",
  d: groupsOf(placed, pace)
    .map((group) => stepsOf(group, x, y, unit.size))
    .join(""),
});

/** Dash patterns of the first runs; further runs share the last. */
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2", "10 4"] as const;

/** The best time so far in each run of a workload. Each line carries the number of its run. */
export function runsChart({ label, runs }: Comparison, series: number, pace: Pace): Markup {
  const curves = runs.map((run) => placedBy(pace, run.trials));
  const best = endsOf(curves.flatMap((c) => bestSoFar(c).map((p) => p.best)));
  const { y, unit } = timeScale(best.least, best.most, 210);
  const right = RIGHT - 18;
  const across = endsOf(curves.flatMap((c) => c.map((p) => p.x)));
  const x = paceScale(across.least, across.most, pace, right);
  const ends = sortedBy(
    curves
      .map((curve, i) => ({ i, last: bestSoFar(curve).at(-1)?.best }))
      .flatMap(({ i, last }) => (last === undefined ? [] : [{ i, y: y.at(last / unit.size) }])),
    (a) => a.y,
  );
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
    predictedOf(s.trials).map((point) => ({ ...point, series: seriesOf(s.dtype) })),
  );
  const frame = predictionFrame(endsOf(points.flatMap((p) => [p.measured, p.predicted])));
  return predictionIn(frame, {
    label: `The model against measurement, ${points.length} trials`,
    parts: points.map((p) => layerPath(predictionLayer([p], frame, p.series))),
  });
}

/** A trial with a prediction and a time, in seconds. */
interface Predicted {
  readonly measured: number;
  readonly predicted: number;
}

export const predictedOf = (trials: readonly TrialPoint[]): Predicted[] =>
  trials.flatMap(({ seconds, predicted }) =>
    seconds === undefined || predicted === undefined ? [] : [{ measured: seconds, predicted }],
  );

/** Where trials lie in the chart of the model against measurement. */
type PredictionFrame = Omit<Frame, "pace">;

export function predictionFrame({ least, most }: Ends): PredictionFrame {
  const unit = timeUnit(Math.sqrt(least * most));
  const domain = [least / 1.15 / unit.size, (most * 1.15) / unit.size] as const;
  return { unit, x: log(domain, [LEFT, RIGHT]), y: log(domain, [BOTTOM, TOP]) };
}

export function predictionIn(
  { x, y, unit }: PredictionFrame,
  { label, parts }: { readonly label: string; readonly parts: readonly Markup[] },
): Markup {
  return chart(
    label,
    380,
    html`${axes({ scale: x, title: `measured, ${unit.name}` }, { scale: y, title: `predicted, ${unit.name}` })}
<path class="equal" d="M${LEFT} ${BOTTOM}L${RIGHT} ${TOP}"/>
${parts}`,
  );
}

export const predictionLayer = (
  points: readonly Predicted[],
  { x, y, unit }: PredictionFrame,
  series: number,
): Layer => ({
  look: `mark ${seriesClass(series)} trial`,
  d: points.map((p) => markPath(series, x.at(p.measured / unit.size), y.at(p.predicted / unit.size), 2.8)).join(""),
});

// ---- Parts

export interface Placed {
  readonly trial: TrialPoint;
  readonly x: number;
}

/** @param from number of the first trial */
export const placedBy = (pace: Pace, trials: readonly TrialPoint[], from = 1): Placed[] =>
  trials.flatMap((trial, i) => {
    const x = pace === "trials" ? i + from : trial.after;
    return x === undefined ? [] : [{ trial, x }];
  });

export const paceTitle = (pace: Pace): string => (pace === "trials" ? "trial" : "seconds since the run began");

/** What a chart of times has room for: positions from the first to the last, seconds from low to high. */
export interface Extent {
  readonly first: number;
  readonly last: number;
  readonly low: number;
  readonly high: number;
}

export function extentOf(placed: readonly Placed[]): Extent {
  const { least: first, most: last } = endsOf(placed.map((p) => p.x));
  const { least: low, most: high } = endsOf(timedOf(placed).flatMap((t) => t.interval));
  return { first, last, low, high };
}

interface Ends {
  readonly least: number;
  readonly most: number;
}

/** The least and the most of any number of values. */
export function endsOf(values: readonly number[]): Ends {
  let least = Number.POSITIVE_INFINITY;
  let most = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return { least, most };
}

/** Trials that worked. One without an interval has its time as both ends. */
const timedOf = (placed: readonly Placed[]) =>
  placed.flatMap(({ trial: { seconds, interval }, x }) =>
    seconds === undefined ? [] : [{ x, seconds, interval: interval ?? ([seconds, seconds] as const) }],
  );

function paceScale(from: number, to: number, pace: Pace, right: number): Scale {
  const most = Math.max(1, to);
  const first = Math.min(most, from);
  // When a search spends most of its time preparing, the axis begins just before its first trial.
  const least = pace === "trials" ? 1 : first > most / 3 ? Math.max(0, first - (most - first) / 10) : 0;
  const scale = linear([least, Math.max(most, pace === "trials" ? least + 1 : most)], [LEFT + 6, right - 2]);
  const whole = pace === "trials" ? scale.ticks.filter(Number.isInteger) : scale.ticks;
  return { ...scale, range: [LEFT, right], ticks: whole };
}

function timeScale(low: number, high: number, bottom: number): Pick<Frame, "y" | "unit"> {
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

/** The best so far as a line to the last trial. */
function stepsOf(placed: readonly Placed[], x: Scale, y: Scale, size: number): string {
  const points = gainsOf(placed).map((p) => [n(x.at(p.x)), n(y.at(p.best / size))] as const);
  const last = placed.at(-1);
  return points.length === 0 || !last ? "" : `${stairs(points)}H${n(x.at(last.x))}`;
}

// ---- The roofline

interface Named {
  readonly name: string;
  readonly rate: number;
}

/** The ceilings and the rate of every trial under them; the best of each workload is emphasised. */
export function rooflineChart(roofline: Roofline, seriesOf: (dtype: string) => number): Markup {
  const { peaks, bandwidths, points } = roofline;
  const highest = Math.max(...peaks.map((p) => p.operationsPerSecond), ...points.map((p) => p.operationsPerSecond));
  const fastest = Math.max(...bandwidths.map((b) => b.bytesPerSecond));
  const slowest = Math.min(...bandwidths.map((b) => b.bytesPerSecond));
  const reached = points.map((p) => p.intensity);
  const left = Math.min(highest / fastest / 4, ...reached.map((i) => i / 2));
  const right = Math.max((2 * highest) / slowest, ...reached.map((i) => i * 2));
  const bottom = Math.min(...points.map((p) => p.operationsPerSecond / 2), fastest * left);
  const x = log([left, right], [LEFT, RIGHT]);
  const y = log([bottom, highest * 1.8], [BOTTOM, TOP]);
  const slope = (name: string, rate: number) => {
    const from = Math.max(left, bottom / rate);
    return { name, rate, from, x: x.at(from), y: y.at(rate * from), endX: x.at(highest / rate), endY: y.at(highest) };
  };
  const slopes = bandwidths.map((b) => slope(b.name, b.bytesPerSecond));
  const marks = sortedBy(points, (a) => Number(a.best));
  return chart(
    `Roofline: ${peaks.length} instructions, ${bandwidths.length} levels of memory, ${points.length} trials`,
    380,
    html`${axes(
      { scale: x, title: "operations a byte (each tensor moved once)" },
      { scale: y, title: `operations a second ${roofline.of === "GPU" ? "of the GPU" : "a thread"}`, print: short },
    )}
<path class="slope" d="${slopes.map((s) => `M${n(s.x)} ${n(s.y)}L${n(s.endX)} ${n(s.endY)}`).join("")}"/>
<path class="flat" d="${peaks.map((p) => `M${n(Math.max(LEFT, x.at(p.operationsPerSecond / fastest)))} ${n(y.at(p.operationsPerSecond))}H${RIGHT}`).join("")}"/>
${slopeNames(slopes)}
${flatNames(
  peaks.map((p) => ({ name: p.name, rate: p.operationsPerSecond })),
  y.at,
  {
    winners: points.filter((p) => p.best).map((p) => ({ x: x.at(p.intensity), y: y.at(p.operationsPerSecond) })),
    left: (rate) => Math.max(LEFT, x.at(rate / fastest)),
  },
)}
${marks.map((p) => mark(seriesOf(p.dtype), x.at(p.intensity), y.at(p.operationsPerSecond), p.best ? 5 : 2.4, p.best ? "winner" : "trial"))}`,
  );
}

interface Slope extends Named {
  readonly x: number;
  readonly y: number;
  readonly endX: number;
  readonly endY: number;
}

/** Labels of slopes, just above the lines; lines too close together share one. */
function slopeNames(slopes: readonly Slope[]): Markup[] {
  const sorted = sortedBy(slopes, (a) => -a.rate);
  const shared: { names: string[]; slope: Slope }[] = [];
  for (const slope of sorted) {
    const above = shared.at(-1);
    if (above && apart(above.slope, slope) < LINE + 3) above.names.push(slope.name);
    else shared.push({ names: [slope.name], slope });
  }
  return shared.map(({ names, slope: s }) => {
    const length = Math.hypot(s.endX - s.x, s.endY - s.y);
    const dx = (s.endX - s.x) / length;
    const dy = (s.endY - s.y) / length;
    const at = Math.min(14, Math.max(0, length - widthOf(names.join(", "))));
    const degrees = (Math.atan2(dy, dx) * 180) / Math.PI;
    return text(s.x + at * dx + 4 * dy, s.y + at * dy - 4 * dx, names.join(", "), { kind: "slope", turned: degrees });
  });
}

/** Pixels between two parallel lines. */
function apart(a: Slope, b: Slope): number {
  const dx = a.endX - a.x;
  const dy = a.endY - a.y;
  return Math.abs((b.endX - a.x) * dy - (b.endY - a.y) * dx) / Math.max(1e-9, Math.hypot(dx, dy));
}

/** Radius of a large mark with its outline. */
const MARK = 8;

/** The marks and lines that labels of flat lines avoid. */
interface Around {
  /** Centres of large marks. */
  readonly winners: readonly { readonly x: number; readonly y: number }[];
  /** Left end of the line of a rate. */
  readonly left: (rate: number) => number;
}

/**
 * Labels of flat lines at their right ends, or further left of large marks. A label is above its line, or below it if
 * the next line would cross it, else merged with the line above's. A label away from its line gets a leader.
 */
function flatNames(lines: readonly Named[], at: (rate: number) => number, { winners, left }: Around): Markup[] {
  const shared: { names: string[]; y: number; wanted: number; from: number }[] = [];
  const sorted = sortedBy(lines, (a) => -a.rate).map(({ name, rate }) => ({ name, y: at(rate), from: left(rate) }));
  for (const [i, { name, y, from }] of sorted.entries()) {
    const fromAbove = y - (sorted[i - 1]?.y ?? Number.NEGATIVE_INFINITY);
    const toBelow = (sorted[i + 1]?.y ?? Number.POSITIVE_INFINITY) - y;
    const above = shared.at(-1);
    if (above && (fromAbove < 3 || (fromAbove < LINE && toBelow < LINE))) above.names.push(name);
    else shared.push({ names: [name], y, from, wanted: fromAbove < LINE ? y + LINE - 2 : y - 4 });
  }
  const places = spread(
    shared.map((s) => s.wanted),
    TOP + 8,
    BOTTOM - 4,
  );
  return shared.map(({ names: [first = "", ...more], y, wanted, from }, i) => {
    const place = places[i] ?? y;
    const label = more.length === 0 ? first : `${first} and ${more.length} more`;
    const moved = Math.abs(place - wanted) > 3;
    const beside = winners.filter((w) => w.y > place - LINE - MARK + 3 && w.y < place + MARK);
    const end = clearOf(beside, widthOf(label), from);
    const start = end - widthOf(label);
    return html`${moved ? html`<path class="leader" d="M${n(start - 2)} ${n(place - 4)}L${n(start - 14)} ${n(y)}"/>` : undefined}${text(end, place, label, { anchor: "end", kind: "flat" })}`;
  });
}

/** Tolerance in pixels: label widths are overestimated, so labels that start this far before their lines still fit. */
const SLACK = 20;

/** The rightmost position of a label's right end at which no mark covers it; the right edge if there is none. */
function clearOf(marks: readonly { readonly x: number }[], width: number, from: number): number {
  const most = RIGHT - 4;
  const ends = [most, ...marks.map((m) => m.x - MARK)].filter((end) => end <= most && end - width >= from - SLACK);
  const free = ends.filter((end) => marks.every((m) => m.x + MARK <= end - width || m.x - MARK >= end));
  return free.length === 0 ? most : Math.max(...free);
}
