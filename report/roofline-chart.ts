/**
 * @file The roofline chart: slopes for memory levels, flat lines for instructions, and every trial under them.
 *
 * A slope is labelled along the line, a flat line at its right end; labels that would touch are moved apart or merged.
 */

import { html, type Markup } from "./html.ts";
import { axes, chart, LINE, log, mark, n, short, spread, text, WIDTH, widthOf } from "./plot.ts";
import type { Roofline } from "./report-data.ts";

const LEFT = 52;
const RIGHT = WIDTH - 10;
const TOP = 30;
const BOTTOM = 340;

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
  const marks = [...points].sort((a, b) => Number(a.best) - Number(b.best));
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
  const sorted = slopes.toSorted((a, b) => b.rate - a.rate);
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
  const sorted = lines
    .toSorted((a, b) => b.rate - a.rate)
    .map(({ name, rate }) => ({ name, y: at(rate), from: left(rate) }));
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
