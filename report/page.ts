/**
 * @file A report as one HTML page: no script, nothing fetched, readable in light, in dark, on paper and by a screen reader.
 *
 *     writeFileSync("report.html", await reportPage(data))
 *
 * Its content policy forbids scripts and the network, so that even a mistake in escaping could not run anything.
 */

import { convergenceChart, predictionChart, rooflineChart } from "./charts.ts";
import { drawMappingSvg } from "./draw-svg.ts";
import { html, type Markup, trusted } from "./html.ts";
import { PAGE_STYLE } from "./page-style.ts";
import type { Accuracy, Best, Reason, ReportData, Roofline, Subject } from "./report-data.ts";
import { percent, printTime } from "./text.ts";

/** One HTML page of what a database holds, with nothing to load from elsewhere. @returns its text */
export async function reportPage(data: ReportData): Promise<string> {
  const { subjects, rooflines, environments, source, filter, madeAt, version } = data;
  const title = filter === undefined ? "automap report" : `automap report: ${filter}`;
  const details: Markup[] = [];
  for (const [i, subject] of subjects.entries()) details.push(await subjectSection(subject, i));
  const roofs: Markup[] = [];
  for (const roofline of rooflines.filter(isDrawable)) roofs.push(await rooflineFigure(roofline, data));
  const predicted = subjects.some((s) => s.trials.some((t) => t.seconds !== undefined && t.predicted !== undefined));
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${trusted(PAGE_STYLE)}</style>
</head>
<body>
<header>
<h1>${title}</h1>
<p>${source}, made ${instant(madeAt)} UTC by automap ${version}: ${count(subjects.length, "workload")}, ${count(
    subjects.reduce((sum, s) => sum + s.trials.length, 0),
    "trial",
  )}.</p>
${contents(data)}
</header>
<main>
<section id="best">
<h2>The best of each workload</h2>
${bestTable(data)}
</section>
<section id="noise">
<h2>Can the numbers be believed?</h2>
${noisePart(data)}
</section>
${
  roofs.length === 0
    ? undefined
    : html`<section id="roofline">
<h2>Roofline</h2>
${roofs}
</section>`
}
<section id="model">
<h2>The model against measurement</h2>
${predicted ? html`${await predictionFigure(data)}${accuracyTable(data.accuracy)}` : html`<p>No trial has both a prediction and a time.</p>`}
</section>
<section id="workloads">
<h2>Workload by workload</h2>
${details}
</section>
<section id="environment">
<h2>Environment</h2>
${environments.map(
  (
    { name, fields },
    i,
  ) => html`<table class="facts"><caption>${environments.length > 1 ? `${i + 1}. ` : ""}${name}</caption><tbody>
${fields.map(([field, value]) => html`<tr><th scope="row">${field}</th><td>${value}</td></tr>`)}
</tbody></table>`,
)}
</section>
</main>
</body>
</html>
`;
  return page.text;
}

function contents({ subjects, rooflines }: ReportData): Markup {
  const roof = rooflines.some(isDrawable);
  return html`<nav aria-label="Contents"><ul>
<li><a href="#best">Best</a></li><li><a href="#noise">Noise</a></li>${roof ? html`<li><a href="#roofline">Roofline</a></li>` : undefined}<li><a href="#model">Model</a></li>
<li><a href="#workloads">Workloads</a></li><li><a href="#environment">Environment</a></li>
</ul>${subjects.length === 0 ? html`<p>No trial matches.</p>` : undefined}</nav>`;
}

// ---- The best

function bestTable({ subjects, environments }: ReportData): Markup {
  const several = environments.length > 1;
  const named = subjects.some((s) => s.name !== undefined);
  return html`<div class="wide"><table>
<caption>Median of a call with its 95 % interval; operations count a multiply and an add as two${
    subjects.some((s) => s.best?.ofRoof !== undefined)
      ? "; the roof is the least time that the instruction's rate and the reading of what no cache can have kept allow"
      : ""
  }.</caption>
<thead><tr>${named ? html`<th scope="col">name</th>` : undefined}<th scope="col">workload</th><th scope="col">shape</th><th scope="col">types</th><th scope="col">layout</th><th scope="col">epilogue</th><th scope="col">threads</th>${several ? html`<th scope="col">environment</th>` : undefined}<th scope="col" class="number">time</th><th scope="col" class="number">interval</th><th scope="col" class="number">G op/s</th><th scope="col" class="number">of roof</th><th scope="col">instruction</th><th scope="col" class="number">trials</th></tr></thead>
<tbody>
${subjects.map(
  (
    s,
    i,
  ) => html`<tr>${named ? html`<td>${s.name ?? ""}</td>` : undefined}<th scope="row"><a href="#w${i}">${s.subject}</a></th><td>${unbroken(s.shape)}</td><td>${s.types}</td><td>${s.layout}</td><td>${s.epilogue}</td><td class="number">${s.threads}</td>${several ? html`<td class="number">${s.environment + 1}</td>` : undefined}${bestCells(s.best)}<td class="number">${s.trials.length}</td></tr>
`,
)}
</tbody></table></div>`;
}

function bestCells(best: Best | undefined): Markup {
  if (!best) return html`<td colspan="5">every trial failed</td>`;
  const [low, high] = best.interval;
  return html`<td class="number">${printTime(best.seconds)}</td><td class="number">${printTime(low)} to ${printTime(high)}</td><td class="number">${giga(best.operationsPerSecond)}</td><td class="number">${best.ofRoof === undefined ? "" : percent(best.ofRoof)}</td><td>${best.candidate[0]?.[1]}</td>`;
}

// ---- Noise, roofline, model

function noisePart({ noise, rooflines }: ReportData): Markup {
  const { verdict, meaning, facts } = noise;
  const wrong = rooflines.flatMap(({ contradicted }) => contradicted ?? []);
  return html`<p class="verdict ${verdict}"><strong>${verdict}</strong>: ${meaning}.</p>
${wrong.map(contradictedPart)}${
  facts.length === 0
    ? undefined
    : html`<div class="wide"><table><caption>Medians over the trials.</caption><thead><tr><th scope="col">sign of noise</th><th scope="col">how large</th><th scope="col">of what</th></tr></thead><tbody>
${facts.map(([name, value, remark]) => html`<tr><th scope="row" class="whole">${name}</th><td class="whole">${value}</td><td>${remark}</td></tr>`)}
</tbody></table></div>`
}`;
}

/** A calibration that kernels outran: what is said of roofs and predictions beside it is too low. */
function contradictedPart(because: string): Markup {
  return html`<p class="verdict noisy"><strong>roofs not usable</strong>: ${because}.</p>`;
}

function isDrawable({ points, bandwidths }: Roofline): boolean {
  return points.length > 0 && bandwidths.length > 0;
}

async function rooflineFigure(roofline: Roofline, { environments }: ReportData): Promise<Markup> {
  const name = environments[roofline.environment]?.name ?? "";
  return html`${roofline.contradicted === undefined ? undefined : contradictedPart(roofline.contradicted)}<figure>
${await rooflineChart(roofline)}
<figcaption>${name}. Lines are ceilings of one core: slopes the read bandwidth of each level of memory, flat ones the rate of each instruction from registers (${roofline.source}). Products with padding are not counted; data that a cache keeps from call to call lies above the slope of the memory behind it. Large marks are the best of a workload, small ones its other trials.</figcaption>
</figure>
<details><summary>The ceilings as numbers</summary>
<table><caption>Ceilings of one core, ${roofline.source}</caption><thead><tr><th scope="col">ceiling</th><th scope="col" class="number">rate</th></tr></thead><tbody>
${roofline.peaks.map((p) => html`<tr><th scope="row">${p.name}</th><td class="number">${giga(p.operationsPerSecond)} G op/s</td></tr>`)}
${roofline.bandwidths.map((b) => html`<tr><th scope="row">${b.name}, read</th><td class="number">${(b.bytesPerSecond / 1e9).toFixed(1)} GB/s</td></tr>`)}
</tbody></table></details>`;
}

async function predictionFigure(data: ReportData): Promise<Markup> {
  return html`<figure>
${await predictionChart(data)}
<figcaption>Every trial that worked, with what the model said before it was measured. On the dashed line the model is right; above it, it was too pessimistic.</figcaption>
</figure>`;
}

function accuracyTable(rows: readonly Accuracy[]): Markup {
  const share = (value: number | undefined): string => (value === undefined ? "" : percent(value));
  return html`<div class="wide"><table>
<caption>Pairwise accuracy: share of the pairs of trials of one workload that the model puts in the right order, no trial paired with itself. Recall: share of the fastest 40 % that are among the 40 % predicted fastest. Corrected is what the search was told, by a model that had learnt from the trials before.</caption>
<thead><tr><th scope="col">types</th><th scope="col" class="number">trials</th><th scope="col" class="number">pairwise</th><th scope="col" class="number">recall</th><th scope="col" class="number">pairwise, uncorrected</th><th scope="col" class="number">recall, uncorrected</th></tr></thead>
<tbody>
${rows.map((a) => html`<tr><th scope="row">${a.name}</th><td class="number">${a.trials}</td><td class="number">${share(a.corrected.pairwise)}</td><td class="number">${share(a.corrected.recall)}</td><td class="number">${share(a.uncorrected.pairwise)}</td><td class="number">${share(a.uncorrected.recall)}</td></tr>`)}
</tbody></table></div>`;
}

// ---- One workload

async function subjectSection(subject: Subject, index: number): Promise<Markup> {
  const { name, subject: what, shape, types, layout, epilogue, threads, equation } = subject;
  const { trials, best, accuracy, failures, refusals } = subject;
  const words = [shape, types, layout, epilogue, count(threads, "thread")].filter((word) => word !== "");
  const rates = accuracy.corrected.pairwise;
  return html`<article id="w${index}">
<h3>${name === undefined ? "" : `${name}: `}${what} <small>${words.join(", ")}</small></h3>
<p><code>${equation}</code></p>
${
  trials.some((t) => t.seconds !== undefined)
    ? html`<figure>
${await convergenceChart(subject, `w${index}`)}
<figcaption>Each trial with its 95 % interval, the best so far as a line${failures.length > 0 ? ", failures as crosses at the top" : ""}.${rates === undefined ? "" : ` The model ordered ${percent(rates)} of the pairs correctly.`}</figcaption>
</figure>`
    : undefined
}
${best ? bestPart(best) : html`<p>Every trial failed.</p>`}
${reasonTable("Trials that failed", "status", failures)}
${refusals === undefined ? undefined : reasonTable("Matches that the mapper refuses on this CPU's instructions", "rule", refusals)}
${trialTable(subject)}
</article>`;
}

function bestPart(best: Best): Markup {
  const { mapping, levels, predicted } = best;
  return html`<h4>The best: ${printTime(best.seconds)}</h4>
<table class="facts"><caption>Candidate <code>${best.id.slice(0, 12)}</code></caption><tbody>
${best.candidate.map(([name, text]) => html`<tr><th scope="row">${name}</th><td>${text}</td></tr>\n`)}<tr><th scope="row">predicted</th><td>${predicted === undefined ? "no" : printTime(predicted)}</td></tr>
</tbody></table>
${
  typeof mapping === "string"
    ? html`<p>The mapping cannot be drawn: ${mapping}</p>`
    : html`<figure class="mapping">${trusted(drawMappingSvg(mapping))}<figcaption>Loops of the operator feed axes of the instruction, which index its operands.</figcaption></figure>`
}
${
  levels.length === 0
    ? undefined
    : html`<details><summary>Where the model sees the time go</summary><div class="wide"><table>
<caption>Cycles of one trip: a level takes trips times the largest of what lies inside, reading and writing.</caption>
<thead><tr><th scope="col">level</th><th scope="col" class="number">trips</th><th scope="col" class="number">inside</th><th scope="col" class="number">read</th><th scope="col" class="number">write</th><th scope="col">bound by</th></tr></thead>
<tbody>${levels.map((l) => html`<tr><th scope="row">${l.level}</th><td class="number">${cycles(l.trips)}</td><td class="number">${cycles(l.inner)}</td><td class="number">${cycles(l.read)}</td><td class="number">${cycles(l.write)}</td><td>${l.bound}</td></tr>`)}</tbody></table></div></details>`
}`;
}

function reasonTable(caption: string, what: string, rows: readonly Reason[]): Markup | undefined {
  if (rows.length === 0) return undefined;
  return html`<details><summary>${caption}: ${rows.reduce((sum, r) => sum + r.count, 0)}</summary><div class="wide"><table><caption>${caption}, by ${what}.</caption>
<thead><tr><th scope="col">${what}</th><th scope="col" class="number">count</th><th scope="col">for example</th></tr></thead>
<tbody>${rows.map((r) => html`<tr><th scope="row">${r.name}</th><td class="number">${r.count}</td><td>${r.example}</td></tr>`)}</tbody></table></div></details>`;
}

/** The trials as numbers: what the chart shows to those who do not see it. */
function trialTable({ trials }: Subject): Markup {
  return html`<details><summary>Every trial as numbers: ${trials.length}</summary><div class="wide"><table><caption>Trials in the order they were made.</caption>
<thead><tr><th scope="col" class="number">trial</th><th scope="col">record</th><th scope="col">instruction</th><th scope="col" class="number">time</th><th scope="col" class="number">interval</th><th scope="col" class="number">predicted</th></tr></thead>
<tbody>
${trials.map(
  (
    t,
    i,
  ) => html`<tr><th scope="row" class="number">${i + 1}</th><td><code>${t.id.slice(0, 12)}</code></td><td>${t.intrinsic}</td><td class="number">${t.seconds === undefined ? t.status : printTime(t.seconds)}</td><td class="number">${t.interval ? `${printTime(t.interval[0])} to ${printTime(t.interval[1])}` : ""}</td><td class="number">${t.predicted === undefined ? "" : printTime(t.predicted)}</td></tr>
`,
)}
</tbody></table></div></details>`;
}

function giga(perSecond: number): string {
  const g = perSecond / 1e9;
  return g >= 100 ? g.toFixed(0) : g.toPrecision(3);
}

function cycles(n: number): string {
  return Number.isInteger(n) ? String(n) : n.toFixed(1);
}

/** `c 64  h 56`: a name and its number stay on one line. */
function unbroken(shape: string): string {
  return shape
    .split("  ")
    .map((part) => part.replace(" ", "\u00a0"))
    .join(" ");
}

function count(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? "" : "s"}`;
}

function instant(at: number): string {
  return new Date(at).toISOString().slice(0, 16).replace("T", " ");
}
