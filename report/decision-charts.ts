/** @file Decisions that correlate with time, as bars and parallel coordinates: an axis a decision, a line a trial. */

import { namesOf, sortedBy, sumOf } from "../abstraction/collections.ts";
import { html, type Markup } from "./html.ts";
import { type DecisionShare, UNDECIDED } from "./importance.ts";
import { barChart, chart, fitted, LINE, log, n, seriesClass, text, timeUnit, WIDTH, widthOf } from "./plot.ts";
import type { Subject, TrialPoint } from "./report-data.ts";
import { percent } from "./text.ts";

/** Most bars; further decisions explain next to nothing. */
const MOST_BARS = 12;
const NAMES = 150;
const FIGURES = 50;

/** One bar per decision, showing the share of variation it explains. */
export function importanceChart({ label, decisions }: Subject, series: number): Markup {
  const shown = sharesOf(decisions).slice(0, MOST_BARS);
  return barChart(
    `Share of the variance of log time by decision, ${label}: ${shown.map((d) => `${d.name} ${percent(d.share)}`).join(", ")}`,
    NAMES,
    FIGURES,
    shown.map(({ name, share }) => ({ name, share, series, says: percent(share) })),
  );
}

function sharesOf(decisions: readonly DecisionShare[]): (DecisionShare & { readonly share: number })[] {
  return decisions.flatMap((d) => (d.share === undefined ? [] : [{ ...d, share: d.share }]));
}

/** Whether any decision accounts for a share that can be charted. */
export const haveShares = ({ decisions }: Subject): boolean => sharesOf(decisions).some(({ share }) => share > 0);

const MOST_AXES = 5;
/** Most values that can be told apart on an axis. */
const MOST_VALUES = 14;
const TOP = 50;
const BOTTOM = 290;
const FIRST = 12;
const TIME = WIDTH - 62;

/**
 * Parallel coordinates: the most important decisions, then the time. Trials of the fastest one's kind are lines; the
 * fastest quarter is coloured and the best is dark.
 */
export function parallelChart({ label, trials, decisions }: Subject, series: number): Markup | undefined {
  const sorted = sortedBy(
    trials.flatMap((t) => (t.seconds === undefined ? [] : [{ ...t, seconds: t.seconds }])),
    (a) => -a.seconds,
  );
  const fastest = sorted.at(-1);
  // Other kinds of candidates have different decisions.
  const timed = sorted.filter((t) => t.kind === fastest?.kind);
  const slowest = timed[0];
  const varies = (name: string): boolean => new Set(timed.map((t) => chosenBy(t, name))).size > 1;
  const axes = sharesOf(decisions)
    .filter((d) => d.share > 0 && d.values.length <= MOST_VALUES && varies(d.name))
    .slice(0, MOST_AXES);
  if (axes.length === 0 || !slowest || !fastest || slowest === fastest) return undefined;
  const unit = timeUnit(fastest.seconds);
  const time = log([fastest.seconds / unit.size, slowest.seconds / unit.size], [BOTTOM, TOP]);
  const rooms = roomsOf(axes);
  const places = axes.map((axis, i) => placesOf(axis, FIRST + sumOf(rooms.slice(0, i)), rooms[i] ?? 0));
  const lines = timed.map((trial, rank) => {
    // Within the band of a value faster trials lie higher, so the width of a band shows the number of its trials.
    const lift = 0.5 - rank / Math.max(1, timed.length - 1);
    const points = places.map((p) => `${n(p.x)} ${n(p.at(trial) + lift * p.band)}`);
    const kind =
      trial === fastest ? "line-best" : rank >= timed.length * 0.75 ? `line-fast ${seriesClass(series)}` : "line";
    return html`<path class="${kind}" d="M${points.join("L")}L${TIME} ${n(time.at(trial.seconds / unit.size))}"/>`;
  });
  return chart(
    `Parallel coordinates of ${label}: ${namesOf(axes).join(", ")} and time, ${timed.length} trials`,
    BOTTOM + 22,
    html`${lines}
${places.map(({ x, room, values, name }, i) => {
  // Names alternate between two lines, so that each has the room of two.
  const before = rooms[i - 1] ?? 0;
  const after = rooms[i + 1] ?? 0;
  const half = Math.min(before + (rooms[i - 2] ?? 0) / 2, room + after / 2) - 4;
  return html`<path class="frame" d="M${n(x)} ${TOP - 6}V${BOTTOM + 6}"/>${text(
    i === 0 ? 0 : x,
    i % 2 === 0 ? 14 : 32,
    fitted(name, i === 0 ? room + after / 2 : 2 * half),
    { anchor: i === 0 ? "start" : "middle", kind: "title" },
  )}${values.map((v) => text(x + 5, v.y + 4, fitted(v.value, room - 10), { kind: "value" }))}`;
})}
<path class="frame" d="M${TIME} ${TOP - 6}V${BOTTOM + 6}"/>${text(WIDTH, axes.length % 2 === 0 ? 14 : 32, `${unit.name} a call`, { anchor: "end", kind: "title" })}
${time.ticks.map((t) => text(TIME + 6, time.at(t) + 4, String(t)))}`,
  );
}

/** The room after each axis: what its values need, or a proportional share when all need too much. */
function roomsOf(axes: readonly DecisionShare[]): number[] {
  const wanted = axes.map((a) => Math.min(MOST_ROOM, 26 + Math.max(...a.values.map((v) => widthOf(v.value)))));
  const all = TIME - FIRST;
  const needed = sumOf(wanted);
  return wanted.map((w) => (needed > all ? (w * all) / needed : w + (all - needed) / wanted.length));
}

const MOST_ROOM = 150;

function placesOf({ name, values }: DecisionShare, x: number, room: number) {
  const step = (BOTTOM - TOP) / Math.max(1, values.length - 1);
  // Larger numbers and faster words are higher.
  const placed = values.map(({ value }, i) => ({
    value,
    y: isNumeric(values) ? BOTTOM - i * step : TOP + i * step,
  }));
  const heights = new Map(placed.map((p) => [p.value, p.y]));
  return {
    x,
    room,
    name,
    values: placed,
    band: Math.min(LINE, 0.5 * step),
    at: (trial: TrialPoint): number => heights.get(chosenBy(trial, name)) ?? BOTTOM,
  };
}

const chosenBy = ({ decisions }: TrialPoint, name: string): string =>
  decisions.find(([own]) => own === name)?.[1] ?? UNDECIDED;

const isNumeric = (values: DecisionShare["values"]): boolean =>
  values.every((v) => v.value === UNDECIDED || !Number.isNaN(Number(v.value)));
