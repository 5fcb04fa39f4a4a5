/**
 * @file A table of a report: a column has a text and a sort key for each row. The page's script makes headings buttons.
 *
 *     dataTable("Fastest first", [{ title: "time", number: true, cell: (t) => printTime(t.seconds) }], trials)
 */

import { html, type Markup, type Part } from "./html.ts";

export interface Column<R> {
  readonly title: string;
  readonly cell: (row: R, index: number) => Part;
  /** Sort key where it differs from the text shown. Rows without a key sort last. */
  readonly value?: (row: R, index: number) => number | string | undefined;
  /** Right-aligned, so that digits line up. */
  readonly number?: true;
  /** Keeps words on one line. */
  readonly whole?: true;
  /** Marks the column that names the row. */
  readonly head?: true;
  /** Leaves the column out when this holds for no row. */
  readonly seldom?: (row: R) => boolean;
}

/** A column of numbers, empty for a row without one. */
export const numbers = <R>(
  title: string,
  value: (row: R) => number | undefined,
  textOf: (number: number) => Part = (number) => number,
  seldom?: Column<R>["seldom"],
): Column<R> => ({
  title,
  number: true,
  value,
  cell: (row) => {
    const number = value(row);
    return number === undefined ? undefined : textOf(number);
  },
  ...(seldom && { seldom }),
});

/** A table of names and values. */
export const factsTable = (caption: Part, rows: readonly (readonly [name: string, value: string])[]): Markup =>
  html`<table class="facts"><caption>${caption}</caption><tbody>
${rows.map(([name, value]) => html`<tr><th scope="row">${name}</th><td>${value}</td></tr>\n`)}</tbody></table>`;

/**
 * @param kind `cards`: on a narrow screen a row becomes a card of lines. Other tables scroll when they are too wide
 * @param still whether its rows keep their order: those of a page that changes
 */
export function dataTable<R>(
  caption: Part,
  columns: readonly Column<R>[],
  rows: readonly R[],
  kind: "cards" | "scrolled" = "scrolled",
  still = false,
): Markup {
  const shown = columns.filter(({ seldom }) => seldom === undefined || rows.some(seldom));
  const cards = kind === "cards";
  // A table laid out as cards needs explicit roles for screen readers.
  const looks = [still || "sortable", cards && "cards"].filter((look) => typeof look === "string").join(" ");
  const role = (name: string): Markup | undefined => (cards ? html` role="${name}"` : undefined);
  return html`<div class="${cards ? "carded" : "wide"}"${cards ? undefined : html` tabindex="0" role="region" aria-label="${plain(caption)}"`}><table class="${looks}"${role("table")}>
<caption>${caption}</caption>
<thead${role("rowgroup")}><tr${role("row")}>${shown.map((c) => html`<th scope="col"${c.number ? html` class="number"` : undefined}${role("columnheader")}>${c.title}</th>`)}</tr></thead>
<tbody${role("rowgroup")}>
${rows.map((row, i) => html`<tr${role("row")}>${shown.map((c) => cellOf(c, row, i, cards))}</tr>\n`)}</tbody></table></div>`;
}

function cellOf<R>(column: Column<R>, row: R, index: number, cards: boolean): Markup {
  const value = column.value?.(row, index);
  const attributes = html`${column.number ? html` class="number"` : column.whole ? html` class="whole"` : undefined}${column.value ? html` data-v="${brief(value)}"` : undefined}${cards ? html` data-label="${column.title}"` : undefined}`;
  const inside = column.cell(row, index);
  return column.head
    ? html`<th scope="row"${attributes}${cards ? html` role="rowheader"` : undefined}>${inside}</th>`
    : html`<td${attributes}${cards ? html` role="cell"` : undefined}>${inside}</td>`;
}

/** Sort keys do not need full precision. */
function brief(value: number | string | undefined): number | string {
  return typeof value === "number" ? Number(value.toPrecision(6)) : (value ?? "");
}

/** The first sentence of a caption, as a label. */
function plain(caption: Part): string {
  return String(caption instanceof Object ? "Table" : (caption ?? "Table")).split(/[.:;]/, 1)[0] ?? "Table";
}
