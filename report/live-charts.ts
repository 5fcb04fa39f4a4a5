/**
 * @file The charts of a report while their trials are being made. An axis has room ahead, so that a new trial is mostly drawn beside the others, and
 * all are drawn again only when one lies outside.
 *
 *     const chart = growingConvergence("r1-trials", { label: "conv2d", series: 0, pace: "trials", end: 160 });
 *     chart.add(trials)      [["put", "r1-trials", "<svg ...>"]]
 *     chart.add(more)        [["grow", "r1-trials-mark", "M..."], ...]
 */

import {
  bestLayer,
  convergenceFrame,
  convergenceIn,
  type Extent,
  endsOf,
  extentOf,
  type Layer,
  layerPath,
  layersOf,
  type Pace,
  paceTitle,
  placedBy,
  predictedOf,
  predictionFrame,
  predictionIn,
  predictionLayer,
} from "./charts.ts";
import { html, type Markup } from "./html.ts";
import type { Patch } from "./live-script.ts";
import type { TrialPoint } from "./report-data.ts";

/** Trials whose marks share a path when all are drawn. */
const SHARED = 128;

/** What a chart draws of trials, and how large it must be. */
interface Look {
  /** Room for these trials; not finite where there is nothing to draw. @param from number of the first */
  readonly needs: (trials: readonly TrialPoint[], from: number) => Extent;
  /** The same with room for what may come. */
  readonly ahead: (needed: Extent) => Extent;
  /** The whole chart. */
  readonly draw: (room: Extent, parts: readonly Markup[]) => Markup;
  /** Layers to which trials add, back to front. */
  readonly layers: (trials: readonly TrialPoint[], from: number, room: Extent) => readonly Layer[];
  /** The one of them that is drawn of all trials each time. */
  readonly whole?: (trials: readonly TrialPoint[], room: Extent) => Layer;
}

export class GrowingChart {
  readonly id: string;
  private readonly look: Look;
  private readonly trials: TrialPoint[] = [];
  private needed: Extent = NOTHING;
  private room: Extent = NOTHING;

  constructor(id: string, look: Look) {
    this.id = id;
    this.look = look;
  }

  /** Draws further trials. @returns what changes on the page */
  add(fresh: readonly TrialPoint[]): Patch[] {
    const from = this.trials.length + 1;
    this.trials.push(...fresh);
    this.needed = together(this.needed, this.look.needs(fresh, from));
    if (fresh.length === 0 || !isDrawn(this.needed)) return [];
    if (!holds(this.room, this.needed)) {
      this.room = this.look.ahead(this.needed);
      return [["put", this.id, this.markup().text]];
    }
    const whole = this.look.whole?.(this.trials, this.room);
    return this.look.layers(fresh, from, this.room).flatMap((layer): Patch[] => {
      if (layer.look === whole?.look) return [["put", this.placeOf(layer), layerPath(whole).text]];
      return layer.d === "" ? [] : [["grow", this.placeOf(layer), layer.d]];
    });
  }

  /** The chart as it is; empty without a trial to draw. */
  markup(): Markup {
    if (!isDrawn(this.room)) return html``;
    const whole = this.look.whole?.(this.trials, this.room);
    const parts = Array.from({ length: Math.ceil(this.trials.length / SHARED) }, (_, i) =>
      this.look.layers(this.trials.slice(i * SHARED, (i + 1) * SHARED), i * SHARED + 1, this.room),
    );
    const groups = (parts[0] ?? []).map((layer, at) => {
      const drawn = parts.flatMap((part) => part[at] ?? []).filter(({ d }) => d !== "");
      const inside =
        layer.look === whole?.look ? layerPath(whole) : html`<g class="settled">${drawn.map(layerPath)}</g>`;
      return html`<g id="${this.placeOf(layer)}" data-look="${layer.look}">${inside}</g>`;
    });
    return this.look.draw(this.room, groups);
  }

  /** `r1-trials-mark` of `mark s1 trial` */
  private placeOf({ look }: Pick<Layer, "look">): string {
    return `${this.id}-${look.split(" ", 1)[0]}`;
  }
}

const NOTHING: Extent = {
  first: Number.POSITIVE_INFINITY,
  last: Number.NEGATIVE_INFINITY,
  low: Number.POSITIVE_INFINITY,
  high: Number.NEGATIVE_INFINITY,
};

const isDrawn = ({ low, first }: Extent): boolean => Number.isFinite(low) && Number.isFinite(first);

const together = (a: Extent, b: Extent): Extent => ({
  first: Math.min(a.first, b.first),
  last: Math.max(a.last, b.last),
  low: Math.min(a.low, b.low),
  high: Math.max(a.high, b.high),
});

const holds = (room: Extent, needed: Extent): boolean =>
  room.first <= needed.first && room.last >= needed.last && room.low <= needed.low && room.high >= needed.high;

/** Room beyond what is needed: times this much shorter and longer, and this many times as many trials. */
const FASTER = 0.8;
const SLOWER = 1.2;
const MORE = 1.5;

interface Given {
  readonly label: string;
  readonly series: number;
}

/** @param end where the budget of the search ends on the axis; undefined for one without */
export function growingConvergence(
  id: string,
  { label, series, pace, end = 0 }: Given & { readonly pace: Pace; readonly end?: number | undefined },
): GrowingChart {
  return new GrowingChart(id, {
    needs: (trials, from) => extentOf(placedBy(pace, trials, from)),
    ahead: ({ first, last, low, high }) => ({
      first: Math.min(first, pace === "trials" ? 1 : 0),
      last: last <= end ? end : MORE * last,
      low: FASTER * low,
      high: SLOWER * high,
    }),
    draw: (room, parts) =>
      convergenceIn(convergenceFrame(room, pace), {
        label: `Convergence of ${label} over ${paceTitle(pace)}, as trials land`,
        parts,
      }),
    layers: (trials, from, room) => layersOf(placedBy(pace, trials, from), convergenceFrame(room, pace), series),
    whole: (trials, room) => bestLayer(placedBy(pace, trials), convergenceFrame(room, pace)),
  });
}

export function growingPrediction(id: string, { label, series }: Given): GrowingChart {
  const frameOf = ({ low, high }: Extent) => predictionFrame({ least: low, most: high });
  return new GrowingChart(id, {
    needs: (trials) => {
      const { least, most } = endsOf(predictedOf(trials).flatMap((p) => [p.measured, p.predicted]));
      return { first: least, last: most, low: least, high: most };
    },
    ahead: ({ low, high }) => {
      const least = FASTER * low;
      const most = SLOWER * high;
      return { first: least, last: most, low: least, high: most };
    },
    draw: (room, parts) =>
      predictionIn(frameOf(room), { label: `The model against measurement of ${label}, as trials land`, parts }),
    layers: (trials, _, room) => [predictionLayer(predictedOf(trials), frameOf(room), series)],
  });
}
