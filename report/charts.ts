/**
 * @file The charts of a report as SVG, drawn by vega-lite without a browser.
 *
 * Colours are CSS variables that the page defines twice, for light and for dark, so a chart follows the reader's choice and prints
 * on white. vega is loaded when a chart is asked for: it is larger than the rest of automap together.
 */

import type { TopLevelSpec } from "vega-lite";
import { escapeMarkup, type Markup, trusted } from "./html.ts";
import type { ReportData, Roofline, Subject } from "./report-data.ts";

/** Distinguishable with any colour vision; after Okabe and Ito, https://jfly.uni-koeln.de/color/. */
const SERIES = [
  "var(--series-1)",
  "var(--series-2)",
  "var(--series-3)",
  "var(--series-4)",
  "var(--series-5)",
  "var(--series-6)",
];
const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"];
const [FIRST = "currentColor"] = SERIES;
const INK = "var(--ink)";
const FAINT = "var(--faint)";
const BAD = "var(--bad)";
const WIDTH = 640;

const CONFIG = {
  // One label a chart, on the <svg>: a label a mark would be read out a thousand times.
  aria: false,
  background: "transparent",
  font: "system-ui, sans-serif",
  view: { stroke: "var(--line)" },
  axis: {
    labelColor: "var(--soft)",
    titleColor: INK,
    titleFontWeight: "normal",
    gridColor: "var(--line)",
    domainColor: "var(--line)",
    tickColor: "var(--line)",
    labelFontSize: 11,
    titleFontSize: 12,
  },
  legend: { labelColor: INK, titleColor: INK, titleFontWeight: "normal", symbolOpacity: 1, labelLimit: 260 },
  range: { category: SERIES },
} as const;

/**
 * Time over the trials of a subject: each with its interval, the best so far as a line, failures at the top.
 * @param name of letters and digits, another one for each chart of a page
 */
export async function convergenceChart({ trials, label: workload }: Subject, name: string): Promise<Markup> {
  let best = Number.POSITIVE_INFINITY;
  const points = trials.map((t, i) => {
    best = Math.min(best, t.seconds ?? Number.POSITIVE_INFINITY);
    return {
      trial: i + 1,
      time: us(t.seconds),
      low: us(t.interval?.[0]),
      high: us(t.interval?.[1]),
      best: Number.isFinite(best) ? us(best) : undefined,
    };
  });
  const ok = points.filter((p) => p.time !== undefined);
  const fastest = Math.min(...ok.map((p) => p.low ?? Number.POSITIVE_INFINITY)) / 1.05;
  const slowest = Math.max(...ok.map((p) => p.high ?? 0)) * 1.05;
  const failed = points.filter((p) => p.time === undefined).map((p) => ({ ...p, time: slowest }));
  const x = {
    field: "trial",
    type: "quantitative",
    title: "trial",
    scale: { nice: false, zero: false },
    axis: { tickMinStep: 1 },
  } as const;
  const scale = logScale(fastest, slowest);
  const axis = logTicks(fastest, slowest);
  const label = `Convergence of ${workload}: ${trials.length} trials, ${failed.length} failed`;
  return await draw(name, label, {
    width: WIDTH,
    height: 220,
    config: CONFIG,
    layer: [
      {
        data: { values: ok },
        mark: { type: "rule", color: FIRST, opacity: 0.5, strokeWidth: 2 },
        encoding: {
          x,
          y: { field: "low", type: "quantitative", scale, axis, title: "microseconds a call" },
          y2: { field: "high" },
        },
      },
      {
        data: { values: ok },
        mark: { type: "point", color: FIRST, filled: true, size: 24, opacity: 0.9 },
        encoding: { x, y: { field: "time", type: "quantitative", scale } },
      },
      {
        data: { values: points.filter((p) => p.best !== undefined) },
        mark: { type: "line", interpolate: "step-after", color: INK, strokeWidth: 1.5 },
        encoding: { x, y: { field: "best", type: "quantitative", scale } },
      },
      ...(failed.length === 0
        ? []
        : [
            {
              data: { values: failed },
              mark: { type: "point", shape: "cross", color: BAD, filled: true, size: 40, angle: 45 } as const,
              encoding: { x, y: { field: "time", type: "quantitative", scale } as const },
            },
          ]),
    ],
  });
}

/** Every trial: what the model said against what was measured. On the line the model is right. */
export async function predictionChart({ subjects }: ReportData): Promise<Markup> {
  const points = subjects.flatMap((s) =>
    s.trials.flatMap((t) =>
      t.seconds === undefined || t.predicted === undefined
        ? []
        : [{ measured: us(t.seconds), predicted: us(t.predicted), types: s.types }],
    ),
  );
  const all = points.flatMap((p) => [p.measured ?? 1, p.predicted ?? 1]);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const scale = logScale(low / 1.1, high * 1.1);
  const axis = logTicks(low / 1.1, high * 1.1);
  const x = { field: "measured", type: "quantitative", scale, axis, title: "measured, microseconds" } as const;
  const y = { field: "predicted", type: "quantitative", scale, axis, title: "predicted, microseconds" } as const;
  const types = [...new Set(points.map((p) => p.types))];
  return await draw("model", `The model against measurement, ${points.length} trials`, {
    width: 460,
    height: 420,
    config: CONFIG,
    layer: [
      {
        data: { values: [low / 1.1, high * 1.1].map((v) => ({ measured: v, predicted: v })) },
        mark: { type: "line", color: FAINT, strokeDash: [5, 4] },
        encoding: { x, y },
      },
      {
        data: { values: points },
        mark: { type: "point", opacity: 0.75, size: 30, filled: true },
        encoding: { x, y, ...byTypes(types) },
      },
    ],
  });
}

interface Label {
  readonly name: string;
  readonly rate: number;
}

/** Lines that lie within a tenth of one another share a label. */
function sharedLabels(lines: readonly Label[]): readonly Label[] {
  const labels: Label[] = [];
  for (const line of lines) {
    const near = labels.findIndex((l) => Math.abs(Math.log(l.rate / line.rate)) < 0.1);
    const found = labels[near];
    if (found) labels[near] = { ...found, name: `${found.name}, ${line.name}` };
    else labels.push(line);
  }
  return labels;
}

/** The ceilings of one core and what every trial reached under them; the best of a workload stands out. */
export async function rooflineChart(roofline: Roofline): Promise<Markup> {
  const { peaks, bandwidths, points } = roofline;
  const highest = Math.max(...peaks.map((p) => p.operationsPerSecond), ...points.map((p) => p.operationsPerSecond));
  const fastest = Math.max(...bandwidths.map((b) => b.bytesPerSecond));
  const slowest = Math.min(...bandwidths.map((b) => b.bytesPerSecond));
  const reached = points.map((p) => p.intensity);
  const left = Math.min(highest / fastest / 4, ...reached.map((i) => i / 2));
  const right = Math.max((2 * highest) / slowest, ...reached.map((i) => i * 2));
  const bottom = Math.min(...points.map((p) => p.operationsPerSecond / 2), fastest * left);
  const giga = (n: number): number => n / 1e9;
  const slopes = bandwidths.flatMap(({ name, bytesPerSecond: b }) =>
    [Math.max(left, bottom / b), highest / b].map((i) => ({ name, intensity: i, rate: giga(b * i) })),
  );
  const flats = peaks.flatMap(({ name, operationsPerSecond: p }) =>
    [p / fastest, right].map((i) => ({ name, intensity: i, rate: giga(p) })),
  );
  const x = {
    field: "intensity",
    type: "quantitative",
    title: "operations a byte (each tensor moved once)",
    scale: logScale(left, right),
    axis: logTicks(left, right),
  } as const;
  const y = {
    field: "rate",
    type: "quantitative",
    title: "G operations/s a thread",
    scale: logScale(giga(bottom), giga(highest * 1.6)),
    axis: logTicks(giga(bottom), giga(highest * 1.6)),
  } as const;
  const marks = points.map((p) => ({ ...p, rate: giga(p.operationsPerSecond) }));
  const types = [...new Set(points.map((p) => p.types))];
  const label = `Roofline: ${peaks.length} instructions, ${bandwidths.length} levels of memory, ${points.length} trials`;
  return await draw(`roof${roofline.environment}`, label, {
    width: WIDTH,
    height: 400,
    config: CONFIG,
    layer: [
      {
        data: { values: slopes },
        mark: { type: "line", color: FAINT, strokeWidth: 1.5, clip: true },
        encoding: { x, y, detail: { field: "name" } },
      },
      {
        data: { values: flats },
        mark: { type: "line", color: INK, strokeWidth: 1.5, clip: true },
        encoding: { x, y, detail: { field: "name" } },
      },
      {
        data: {
          values: sharedLabels(bandwidths.map((b) => ({ name: b.name, rate: b.bytesPerSecond }))).map(
            ({ name, rate }) => ({
              name,
              intensity: Math.max(left, bottom / rate),
              rate: giga(Math.max(rate * left, bottom)),
            }),
          ),
        },
        mark: { type: "text", align: "left", baseline: "bottom", dx: 6, dy: -14, color: "var(--soft)", fontSize: 11 },
        encoding: { x, y, text: { field: "name" } },
      },
      {
        data: {
          values: sharedLabels(peaks.map((p) => ({ name: p.name, rate: p.operationsPerSecond }))).map(
            ({ name, rate }) => ({
              name,
              intensity: right,
              rate: giga(rate),
            }),
          ),
        },
        mark: { type: "text", align: "right", baseline: "bottom", dx: -4, dy: -3, color: INK, fontSize: 11 },
        encoding: { x, y, text: { field: "name" } },
      },
      {
        data: { values: marks.filter((m) => !m.best) },
        mark: { type: "point", filled: true, size: 16, opacity: 0.35 },
        encoding: { x, y, ...byTypes(types) },
      },
      {
        data: { values: marks.filter((m) => m.best) },
        mark: { type: "point", filled: true, size: 90, opacity: 1, stroke: INK, strokeWidth: 1.2 },
        encoding: { x, y, ...byTypes(types) },
      },
    ],
  });
}

/** From exactly here to exactly there. */
function logScale(low: number, high: number) {
  return { type: "log" as const, domain: [low, high], nice: false };
}

/** Marks at 1, 2 and 5 of each power of ten, or at the powers alone where those are many. */
function logTicks(low: number, high: number) {
  const steps = high / low > 300 ? [1] : [1, 2, 5];
  const from = Math.floor(Math.log10(low));
  const powers = Array.from({ length: Math.ceil(Math.log10(high)) - from + 1 }, (_, i) => 10 ** (from + i));
  const values = powers.flatMap((p) => steps.map((s) => s * p)).filter((v) => v >= low && v <= high);
  return { values, format: "~r" };
}

/** Colour and shape say the same, so that neither is needed. */
function byTypes(types: readonly string[]) {
  const domain = [...types];
  return {
    color: { field: "types", type: "nominal", title: "types", scale: { domain, range: SERIES } },
    shape: { field: "types", type: "nominal", title: "types", scale: { domain, range: SHAPES } },
  } as const;
}

function us(seconds: number): number;
function us(seconds: number | undefined): number | undefined;
function us(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : seconds * 1e6;
}

async function draw(name: string, label: string, spec: TopLevelSpec): Promise<Markup> {
  const [{ parse, View, Warn }, { compile }] = await Promise.all([import("vega"), import("vega-lite")]);
  const view = new View(parse(compile(spec).spec), { renderer: "none", logLevel: Warn });
  try {
    // vega numbers clips by all that it ever drew; a page must be the same each time it is made.
    const clips: string[] = [];
    const svg = (await view.toSVG()).replace(/(id="|url\(#)(clip\d+)/g, (_, lead: string, id: string) => {
      if (!clips.includes(id)) clips.push(id);
      return `${lead}${name}-clip${clips.indexOf(id)}`;
    });
    return trusted(svg.replace("<svg ", `<svg role="img" aria-label="${escapeMarkup(label)}" `));
  } finally {
    view.finalize();
  }
}
