/**
 * @file The frame of a report: one HTML page that loads nothing, legible in light and dark mode, on a narrow screen,
 * on paper and with a screen reader.
 *
 * Its content security policy allows only the page's own script and styles, by their hashes. Even an escaping mistake
 * could not run anything.
 */

import { createHash } from "node:crypto";
import { type Optional, present, upTo } from "../abstraction/collections.ts";
import { ARRAY_STYLE } from "./draw-array-svg.ts";
import { MAPPING_STYLE } from "./draw-svg.ts";
import { html, type Markup, trusted } from "./html.ts";
import { LIVE_SCRIPT, type Patch } from "./live-script.ts";

export interface Section {
  readonly id: string;
  /** Its name in the list of contents. */
  readonly name: string;
  /** Its heading, where it is longer than its name. */
  readonly title?: string;
  readonly content: Markup;
}

interface Contents {
  readonly title: string;
  /** Paragraphs below the title. */
  readonly about: Markup;
  readonly downloads?: Markup | undefined;
  /** Where a page that follows a database hears of changes; undefined for one that stays as it is. */
  readonly events?: string | undefined;
  /** Those that are absent are left out. */
  readonly sections: readonly Optional<Section>[];
}

/** @returns the text of the page */
export function wholePage({ title, about, downloads, events, sections }: Contents): string {
  const shown = present(sections);
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policyOf(events !== undefined)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${trusted(PAGE_STYLE)}</style>
</head>
<body${events === undefined ? undefined : html` data-events="${events}"`}>
<header>
<h1>${title}</h1>
${events === undefined ? undefined : html`<p id="told" class="verdict" role="status" hidden></p>\n`}${about}
${shown.length < 2 ? undefined : html`<nav aria-label="Contents"><ul>${shown.map(({ id, name }) => html`<li><a href="#${id}">${name}</a></li>`)}</ul></nav>`}
${downloads}
</header>
<main>
${shown.map(({ id, name, title: heading = name, content }) => html`<section id="${id}">\n<h2>${heading}</h2>\n${content}\n</section>\n`)}</main>
<script>${trusted(PAGE_SCRIPT)}</script>
${events === undefined ? undefined : html`<script>${trusted(LIVE_SCRIPT)}</script>\n`}</body>
</html>
`.text;
}

// ---- The style

/*
 * Colours are defined once for light and once for dark mode; paper is always light. Series: after Okabe and Ito,
 * https://jfly.uni-koeln.de/color/, with their contrast raised until they read as lines.
 */
const LIGHT =
  "--paper:#fff;--ink:#1c2733;--soft:#55677a;--faint:#9aa7b3;--line:#dfe5ea;--shade:#f5f7f9;--link:#1d5fa8;--shadow:#0b1a2a52;--good:#1c7c3c;--bad:#b3261e;" +
  "--series-1:#0072b2;--series-2:#d55e00;--series-3:#007a5a;--series-4:#b0508e;--series-5:#8a6d00;--series-6:#3d3d9e;--series-7:#7a3b12;--series-8:#4d6b7a;";
const DARK =
  "--paper:#12181f;--ink:#e3eaf1;--soft:#a3b3c2;--faint:#66788a;--line:#2b3742;--shade:#1a222b;--link:#7db8f5;--shadow:#9cc4ff5c;--good:#6fd08c;--bad:#ff8a80;" +
  "--series-1:#56b4e9;--series-2:#ff9a4d;--series-3:#3fd0a4;--series-4:#e79cc9;--series-5:#f0d452;--series-6:#a7a7ff;--series-7:#d8a27c;--series-8:#9fc3d4;";

const SERIES = upTo(8)
  .map((i) => `.s${i}{--series:var(--series-${i + 1})}`)
  .join("");

const TEXT = `
body{margin:0 auto;max-width:74rem;padding:1.5rem 1.25rem 4rem;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:0;overflow-wrap:anywhere}h2{font-size:1.25rem;margin:2.5rem 0 .5rem;border-bottom:1px solid var(--line)}
h3{font-size:1.05rem;margin:2.5rem 0 .25rem}h3 small{font-weight:400;color:var(--soft)}h4{margin:1.25rem 0 .25rem;font-size:1rem}h4 small{font-weight:400;color:var(--soft)}
p{max-width:46rem;overflow-wrap:anywhere}a{color:var(--link)}
code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.9em;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;padding:0;margin:.5rem 0;list-style:none}
.verdict{padding:.5rem .75rem;background:var(--shade);border-left:4px solid var(--soft)}
.verdict.quiet{border-color:var(--good)}.verdict.noisy{border-color:var(--bad)}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:.75rem 1.5rem;margin:.75rem 0 1.5rem}
.figures>div{padding-left:.75rem;border-left:2px solid var(--line)}.figures dt{color:var(--soft);font-size:.875rem}
.figures dd{margin:0;overflow-wrap:anywhere}.figures strong{display:block;font-size:1.25rem;line-height:1.3}.figures small{display:block;color:var(--soft);font-size:.8125rem;line-height:1.4}
strong.quiet,span.quiet{color:var(--good)}strong.noisy,span.noisy{color:var(--bad)}.next{padding-left:1.25rem;max-width:60rem}.next li{margin:.25rem 0}.next span{margin-right:.75em}.next .command{display:block}
.downloads{font-size:.875rem;color:var(--soft)}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--link)}
small{font-size:.92em}td small,th small{display:block;color:var(--soft);font-weight:400}
`;

const TABLES = `
table{border-collapse:collapse;font-size:.875rem;margin:.75rem 0}
caption{text-align:left;color:var(--soft);padding-bottom:.35rem;max-width:46rem}
th,td{padding:.25rem 1rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);font-weight:400}
thead th{color:var(--soft);vertical-align:bottom}tbody th{font-weight:600}.cards tbody th{min-width:12rem}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.whole,.whole code{white-space:nowrap;overflow-wrap:normal}.facts th{color:var(--soft);font-weight:400;white-space:nowrap}.facts td{overflow-wrap:anywhere}
.carded{overflow-x:auto}
.wide,.drawing{overflow-x:auto;background:linear-gradient(to right,var(--paper) 40%,transparent) 0/2.5rem 100% no-repeat local,linear-gradient(to left,var(--paper) 40%,transparent) 100%/2.5rem 100% no-repeat local,linear-gradient(to right,var(--shadow),transparent) 0/.875rem 100% no-repeat scroll,linear-gradient(to left,var(--shadow),transparent) 100%/.875rem 100% no-repeat scroll}
.wide caption{white-space:normal;max-width:min(46rem,calc(100vw - 2rem))}.pair caption{max-width:min(24rem,calc(100vw - 2rem))}.wide td,.wide th{white-space:nowrap}.wide td.text{white-space:normal;min-width:16rem}
thead button{all:unset;cursor:pointer}.wide thead th{white-space:normal}thead button:hover{color:var(--link)}
thead button:focus-visible,.wide:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--link);outline-offset:2px}
thead button::after{content:"\\2195";opacity:.4;margin-left:.25em}
[aria-sort=ascending] button::after{content:"\\2191";opacity:1}[aria-sort=descending] button::after{content:"\\2193";opacity:1}
`;

const CHARTS = `
figure{margin:1rem 0;min-width:0}figcaption{color:var(--soft);font-size:.875rem;max-width:46rem}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:0 1.5rem;align-items:start}
.chart{display:block;width:100%;max-width:32rem;height:auto}
.chart text{font:11px system-ui,sans-serif;fill:var(--soft)}.chart .title{font-size:12px;fill:var(--ink)}.chart .strong{font-weight:600;fill:var(--ink)}
.chart text.flat,.chart .value{fill:var(--ink)}.chart text.flat,.chart text.slope,.chart .value{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.chart path{fill:none}.grid{stroke:var(--line)}.frame{stroke:var(--faint)}.leader{stroke:var(--faint)}
.equal{stroke:var(--faint);stroke-dasharray:5 4}path.slope{stroke:var(--faint);stroke-width:1.5}path.flat{stroke:var(--ink);stroke-width:1.2}
${SERIES}
.chart .mark,.swatch path{fill:var(--series)}.chart .trial{opacity:.45}.chart .winner{stroke:var(--ink);stroke-width:1.2}
.chart .interval{fill:none;stroke:var(--series);stroke-width:2;opacity:.5}.best{stroke:var(--ink);stroke-width:1.5}
.failed{stroke:var(--bad);stroke-width:1.6}.chart .run{fill:none;stroke:var(--series);stroke-width:2}
.settled{will-change:transform}.chart .bar{fill:var(--series)}.line{stroke:var(--faint);opacity:.4}.chart .line-fast{fill:none;stroke:var(--series);stroke-width:1.3;opacity:.85}
.line-best{stroke:var(--ink);stroke-width:2.2}
.graph{display:block;flex:none}.graph text{font:11px system-ui,sans-serif;fill:var(--soft)}.graph .title{fill:var(--ink)}.graph .box{fill:var(--shade);stroke:var(--line)}.graph .bar{fill:var(--series)}
.arrow{fill:none;stroke:var(--faint);stroke-width:1.2}.head{fill:var(--faint)}.passes{stroke-dasharray:4 3}.columns{display:flex;flex-wrap:wrap;gap:1.5rem 2rem}.drawing svg .paper{fill:none}
.swatch{vertical-align:-.05em;margin-right:.25em}.legend{display:flex;flex-wrap:wrap;gap:.25rem 1rem;margin:.25rem 0;padding:0;list-style:none;font-size:.875rem}
.winner-parts{display:flex;flex-wrap:wrap;gap:0 2rem;align-items:flex-start}.winner-parts>*{max-width:100%;min-width:0}.winner-parts .drawing{flex:1 1 34rem}.drawing>svg{max-width:100%;height:auto}.drawing>svg:not(.chart){min-width:34rem}.outline{stroke:var(--faint)}
`;

/** On a narrow screen a row becomes a card of lines labelled by column, and the headings a list of sort keys. */
const NARROW = `
@media screen and (max-width:48rem){
body{padding:1rem .875rem 3rem}
.cards,.cards thead,.cards tbody,.cards caption{display:block}
.cards thead tr{display:flex;flex-wrap:wrap;gap:.25rem .75rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}.cards thead th{border:0;padding:0}
.cards tbody tr{display:block;padding:.5rem 0;border-bottom:1px solid var(--line)}
.cards tbody th,.cards tbody td{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.05rem 0;text-align:right;white-space:normal;overflow-wrap:anywhere}
.cards tbody th{min-width:0;text-align:left;font-size:1rem}.cards tbody td::before{content:attr(data-label);color:var(--soft);text-align:left;white-space:nowrap}
.cards tbody td:empty,.cards:not(.sortable) thead{display:none}
}
`;

const PAPER = `
@media print{
html{font-size:9.5pt}body{max-width:none;padding:0;font-size:1rem}nav,.downloads{display:none}a{color:inherit;text-decoration:none}
.cards tbody th{min-width:0}details::details-content{content-visibility:visible;display:block;block-size:auto}summary{color:inherit;list-style:none}
h2,h3,h4,h3+p,caption,summary{break-after:avoid}figure,tr,.pair{break-inside:avoid}
table{font-size:7.5pt}th,td{padding-right:.5rem}thead button::after{content:""}
.wide,.drawing{overflow:visible;background:none}.graphs{break-inside:auto}.graph{max-width:100%;break-inside:avoid}.figures{grid-template-columns:repeat(3,1fr)}.figures>div,.next li{break-inside:avoid}.wide td.text{min-width:0}.pair{grid-template-columns:1fr 1fr}.drawing>svg{min-width:0!important}
}
`;

export const PAGE_STYLE = `
:root{color-scheme:light dark;${LIGHT}}
@media screen and (prefers-color-scheme:dark){:root{${DARK}}}
${TEXT}${TABLES}${CHARTS}${NARROW}${PAPER}`;

// ---- The script

/** The script of every page: it sorts tables, and unfolds sections for printing. It writes no markup and reads only cell texts. The page works without it. */
export const PAGE_SCRIPT = `
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = [...body.rows].map((row) => {
        const cell = row.cells[column];
        const text = cell.dataset.v ?? cell.textContent.trim();
        return { row, text, number: text === "" ? NaN : Number(text) };
      });
      const numbers = keyed.every((k) => k.text === "" || !Number.isNaN(k.number));
      keyed.sort((a, b) => {
        if (a.text === "" || b.text === "") return Number(a.text === "") - Number(b.text === "");
        const order = numbers ? a.number - b.number : a.text.localeCompare(b.text, "en", { numeric: true });
        return up ? order : -order;
      });
      body.append(...keyed.map((k) => k.row));
    });
  });
}
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const part of folded) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of folded) part.open = false;
});
`;

// ---- The policy

/** The hash of an inline script or style, as a content security policy writes it. */
const hashOf = (text: string): string => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

/** @param follows whether the page hears of changes */
export const policyOf = (follows: boolean): string =>
  [
    "default-src 'none'",
    `script-src ${(follows ? [PAGE_SCRIPT, LIVE_SCRIPT] : [PAGE_SCRIPT]).map(hashOf).join(" ")}`,
    `style-src ${[PAGE_STYLE, MAPPING_STYLE, ARRAY_STYLE].map(hashOf).join(" ")}`,
    ...(follows ? ["connect-src 'self'"] : []),
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");

/** The parts of a page that differ from what was told last, by id, and are told now. */
export function changedIn(
  parts: readonly (readonly [id: string, markup: Markup])[],
  told: Map<string, string>,
): Patch[] {
  const changed = parts.filter(([id, { text }]) => told.get(id) !== text);
  for (const [id, { text }] of changed) told.set(id, text);
  return changed.map(([id, { text }]) => ["put", id, text]);
}
