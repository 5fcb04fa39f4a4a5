/**
 * @file The colour and mark of each data type: the same in every chart, table and heading of a page.
 *
 *     const series = seriesOfTypes(["u8s8", "f32"]);      series.of("f32") = 0      series.of("u8s8") = 1
 */

import { unique } from "../abstraction/collections.ts";
import { html, type Markup } from "./html.ts";
import { mark } from "./plot.ts";

export interface Series {
  /** Number of each type's series; see {@link mark}. */
  readonly of: (dtype: string) => number;
  readonly types: readonly string[];
}

/** Frequent types come first, so that a type usually looks the same on all pages. */
const USUAL = ["f32", "u8s8", "f16", "bf16", "s8", "f64", "tf32", "u8"];

export function seriesOfTypes(types: readonly string[]): Series {
  const present = unique(types).sort();
  const known = [...USUAL, ...present.filter((t) => !USUAL.includes(t))];
  return { of: (dtype) => Math.max(0, known.indexOf(dtype)), types: known.filter((t) => present.includes(t)) };
}

/** The mark of a series, beside its name. */
export function swatchOf(series: number, name: string): Markup {
  return html`<svg class="swatch" viewBox="0 0 12 12" width="12" height="12" role="img" aria-label="${name}">${mark(series, 6, 6, 4.2)}</svg>`;
}

export const swatch = (series: Series, dtype: string): Markup => swatchOf(series.of(dtype), dtype);

/** The legend of a chart's marks. */
export function legend(series: Series): Markup {
  return html`<ul class="legend">${series.types.map((t) => html`<li>${swatch(series, t)} ${t}</li>`)}</ul>`;
}
