/**
 * @file The parts of charts: scales, axes, and labels that avoid one another, as SVG of plain shapes in page colours.
 *
 *     const x = linear([0, 60], [60, 430]);      x.at(30) = 245      x.ticks = [0, 20, 40, 60]
 *     const y = log([50, 900], [200, 20]);       y.ticks = [50, 100, 200, 500]
 *
 * A chart is as wide as a narrow screen, so its text is legible unscaled; a wide screen shows two charts side by side.
 */

import { upTo } from "../abstraction/collections.ts";
import { cut } from "../abstraction/text.ts";
import { html, type Markup } from "./html.ts";

/** Width of a chart in units of the drawing, which are pixels at its natural size. */
export const WIDTH = 440;
/** Height of a line of small text, and width of a character in the widest usual font. */
export const LINE = 13;
const CHARACTER = 6.9;

/** Two ends. */
type Ends = readonly [from: number, to: number];
/** Most ticks. */
const MOST_TICKS = 6;

export interface Scale {
  readonly range: Ends;
  readonly at: (value: number) => number;
  readonly ticks: readonly number[];
}

/** Smallest width of small text. */
export const widthOf = (text: string): number => CHARACTER * text.length;

/** Text cut to a width, with an ellipsis. */
export function fitted(text: string, width: number): string {
  return cut(text, Math.max(1, Math.floor(width / CHARACTER)));
}

/** Places in a range by the share of the domain below them. */
const scaleOf = (range: Ends, share: (value: number) => number, ticks: readonly number[]): Scale => ({
  range,
  at: (value) => range[0] + share(value) * (range[1] - range[0]),
  ticks,
});

/** @param domain its ends; equal ends are moved apart */
export function linear(domain: Ends, range: Ends): Scale {
  const [low, high] = apart(domain);
  return scaleOf(range, (value) => (value - low) / (high - low), roundSteps(low, high));
}

/** @param domain positive ends */
export function log(domain: Ends, range: Ends): Scale {
  const [low, high] = apart(domain);
  const decades = [[1, 2, 5], [1, 3], [1]].map((steps) => powers(low, high, steps));
  const found = decades.find((t) => t.length <= MOST_TICKS) ?? thinned(decades.at(-1) ?? [], MOST_TICKS);
  // Within a factor of about three, round steps are more informative.
  const ticks = found.length < 3 ? roundSteps(low, high) : found;
  return scaleOf(range, (value) => Math.log(value / low) / Math.log(high / low), ticks);
}

/** Moves equal or nearly equal ends apart. */
function apart([low, high]: Ends): [number, number] {
  if (high - low > 1e-6 * Math.max(Math.abs(low), Math.abs(high))) return [low, high];
  return low === 0 ? [-1, 1] : [low - 0.05 * Math.abs(low), low + 0.05 * Math.abs(low)];
}

function roundSteps(low: number, high: number): number[] {
  const least = (high - low) / MOST_TICKS;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5].map((s) => s * power).find((s) => s >= least) ?? 10 * power;
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  // Rounding to twelve digits hides errors such as that of 0.1 + 0.2.
  return upTo(Math.max(0, count)).map((i) => Number(((first + i) * step).toPrecision(12)));
}

function powers(low: number, high: number, steps: readonly number[]): number[] {
  const from = Math.floor(Math.log10(low));
  const count = Math.ceil(Math.log10(high)) - from + 1;
  const all = upTo(count).map((i) => steps.map((s) => Number((s * 10 ** (from + i)).toPrecision(6))));
  return all.flat().filter((v) => v >= low && v <= high);
}

function thinned(values: readonly number[], most: number): number[] {
  const every = Math.ceil(values.length / most);
  return values.filter((_, i) => i % every === 0);
}

/** `2000000` as `2M`, `0.05`. */
export function short(value: number): string {
  const [unit, size] = (
    [
      ["T", 1e12],
      ["G", 1e9],
      ["M", 1e6],
      ["k", 1e4],
    ] as const
  ).find(([, from]) => Math.abs(value) >= from) ?? ["", 1];
  const shown = unit === "k" ? value / 1e3 : value / size;
  return `${Number(shown.toPrecision(4))}${unit}`;
}

/** A unit of time that suits the values. */
export function timeUnit(seconds: number): { readonly name: string; readonly size: number } {
  if (seconds >= 1) return { name: "s", size: 1 };
  if (seconds >= 1e-3) return { name: "ms", size: 1e-3 };
  return seconds >= 1e-6 ? { name: "us", size: 1e-6 } : { name: "ns", size: 1e-9 };
}

// ---- Axes

export interface Axis {
  readonly scale: Scale;
  readonly title: string;
  readonly print?: (value: number) => string;
}

/** Ticks, grid and titles of both axes. */
export function axes(x: Axis, y: Axis): Markup {
  const [left, right] = x.scale.range;
  const [bottom, top] = y.scale.range;
  const xPrint = x.print ?? short;
  const yPrint = y.print ?? short;
  let free = Number.NEGATIVE_INFINITY;
  const xTicks = x.scale.ticks.filter((value) => {
    const at = x.scale.at(value);
    const half = widthOf(xPrint(value)) / 2;
    if (at - half < free || at + half > WIDTH) return false;
    free = at + half + 6;
    return true;
  });
  return html`<g class="axes">
<path class="grid" d="${x.scale.ticks.map((v) => `M${n(x.scale.at(v))} ${bottom}V${top}`).join("")}${y.scale.ticks.map((v) => `M${left} ${n(y.scale.at(v))}H${right}`).join("")}"/>
<path class="frame" d="M${left} ${top}V${bottom}H${right}"/>
${xTicks.map((v) => text(x.scale.at(v), bottom + 15, xPrint(v), { anchor: "middle" }))}
${y.scale.ticks.map((v) => text(left - 6, y.scale.at(v) + 4, yPrint(v), { anchor: "end" }))}
${text((left + right) / 2, bottom + 32, x.title, { anchor: "middle", kind: "title" })}
${text(0, top - 10, y.title, { kind: "title" })}
</g>`;
}

// ---- Marks

interface TextLook {
  readonly anchor?: "start" | "middle" | "end";
  readonly kind?: string;
  /** Rotation in degrees about its own position. */
  readonly turned?: number;
}

export function text(x: number, y: number, content: string, { anchor, kind, turned }: TextLook = {}): Markup {
  return html`<text x="${n(x)}" y="${n(y)}"${anchor === undefined || anchor === "start" ? "" : html` text-anchor="${anchor}"`}${kind === undefined ? "" : html` class="${kind}"`}${turned === undefined ? "" : html` transform="rotate(${n(turned)} ${n(x)} ${n(y)})"`}>${content}</text>`;
}

/** The path of a value that stays until the next point. */
export const stairs = (points: readonly (readonly [x: string | number, y: string | number])[]): string =>
  points.map(([x, y], i) => (i === 0 ? `M${x} ${y}` : `H${x}V${y}`)).join("");

const SHAPES: readonly ((x: number, y: number, r: number) => string)[] = [
  (x, y, r) => `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0z`,
  (x, y, r) => `M${n(x - 0.9 * r)} ${n(y - 0.9 * r)}h${n(1.8 * r)}v${n(1.8 * r)}h${n(-1.8 * r)}z`,
  (x, y, r) => `M${n(x)} ${n(y - 1.2 * r)}l${n(1.15 * r)} ${n(2 * r)}h${n(-2.3 * r)}z`,
  (x, y, r) =>
    `M${n(x)} ${n(y - 1.3 * r)}l${n(1.3 * r)} ${n(1.3 * r)}l${n(-1.3 * r)} ${n(1.3 * r)}l${n(-1.3 * r)} ${n(-1.3 * r)}z`,
  (x, y, r) => `M${n(x)} ${n(y + 1.2 * r)}l${n(1.15 * r)} ${n(-2 * r)}h${n(-2.3 * r)}z`,
];

/** A mark in the colour and shape of a series; combinations repeat after forty series. */
export function mark(series: number, x: number, y: number, radius: number, kind = ""): Markup {
  return html`<path class="${`mark ${seriesClass(series)} ${kind}`.trim()}" d="${markPath(series, x, y, radius)}"/>`;
}

/** The shape of a mark, as a path that others may follow. */
export function markPath(series: number, x: number, y: number, radius: number): string {
  const shape = SHAPES[series % SHAPES.length] ?? SHAPES[0];
  return shape?.(x, y, radius) ?? "";
}

/** Number of colours; see page-shell.ts. */
const COLOURS = 8;
export const seriesClass = (series: number): string => `s${series % COLOURS}`;

export const cross = (x: number, y: number): string => `M${n(x - 3.5)} ${n(y - 3.5)}l7 7m-7 0l7-7`;

/** One drawing. @param label text read out in its place */
export function chart(label: string, height: number, parts: Markup): Markup {
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${n(height)}" width="${WIDTH}" height="${n(height)}" role="img" aria-label="${label}">
${parts}
</svg>`;
}

export interface Bar {
  readonly name: string;
  /** Its length, as a share of the room. */
  readonly share: number;
  readonly series: number;
  /** The text behind it. */
  readonly says: string;
}

/** Height of a bar with the gap below it. */
const BAR = 18;

/** A bar a line. @param names room for names @param figures room for the texts behind bars */
export function barChart(label: string, names: number, figures: number, bars: readonly Bar[]): Markup {
  return chart(
    label,
    bars.length * BAR + 14,
    html`<path class="frame" d="M${names} 4V${bars.length * BAR + 8}"/>
${bars.map(({ name, share, series, says }, i) => {
  const y = 8 + i * BAR;
  const width = share * (WIDTH - names - figures);
  return html`${text(names - 6, y + 11, fitted(name, names - 6), { anchor: "end" })}<rect class="bar ${seriesClass(series)}" x="${names}" y="${y}" width="${n(width)}" height="${BAR - 4}"/>${text(names + width + 5, y + 11, says)}`;
})}`,
  );
}

/** Rounds to a tenth of a pixel. */
export const n = (value: number): number => (Number.isFinite(value) ? Number(value.toFixed(1)) : 0);

/**
 * Positions of labels one line high, each as near as possible to its wanted position, in order from the top.
 * @param wanted ascending
 */
export function spread(wanted: readonly number[], top: number, bottom: number): number[] {
  const gap = Math.min(LINE, (bottom - top) / Math.max(1, wanted.length - 1));
  const places = [...wanted];
  for (let i = 0; i < places.length; i++)
    places[i] = Math.max(places[i] ?? 0, i === 0 ? top : (places[i - 1] ?? 0) + gap);
  for (let i = places.length - 1; i >= 0; i--)
    places[i] = Math.min(places[i] ?? 0, i === places.length - 1 ? bottom : (places[i + 1] ?? 0) - gap);
  return places;
}
