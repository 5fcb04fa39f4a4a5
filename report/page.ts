/**
 * @file The report of a database as one HTML page.
 *
 *     writeFileSync("report.html", reportPage(data))
 */

import { present, sumOf } from "../abstraction/collections.ts";
import { predictedOf, predictionChart, rooflineChart } from "./charts.ts";
import { type Column, dataTable, factsTable, numbers } from "./data-table.ts";
import { downloadLinks } from "./downloads.ts";
import { html, type Markup } from "./html.ts";
import { type Section, wholePage } from "./page-shell.ts";
import { comparisonPart, subjectSection, verdictsOf } from "./page-workload.ts";
import type { Accuracy, ReportData, Roofline, Subject } from "./report-data.ts";
import { legend, type Series, seriesOfTypes, swatch } from "./series.ts";
import { type Figure, figures, nextPart } from "./summary.ts";
import { counted, instant, percent, printInterval, printTime, rateText, threeDigits } from "./text.ts";

/** How a page follows a database. */
interface Follows {
  /** Where it hears of changes. */
  readonly events: string;
  /** What it says of that, below its title. */
  readonly says: Markup;
  /** What stands on it before the report. */
  readonly beside?: Section | undefined;
}

/** A self-contained HTML page of what a database holds. @returns its text */
export function reportPage(data: ReportData, follows?: Follows): string {
  const { subjects, rooflines, environments, comparisons, compared, source, filter, madeAt, version } = data;
  const title = filter === undefined ? "automap report" : `automap report: ${filter}`;
  const series = seriesOfTypes(subjects.map((s) => s.dtype));
  const trials = sumOf(subjects, (s) => s.trials.length);
  const drawable = rooflines.filter(isDrawable);
  return wholePage({
    title,
    about: html`<p>${source}, made ${instant(madeAt)} UTC by automap ${version}: ${counted(subjects.length, "workload")}, ${counted(trials, "trial")}.</p>
${subjects.length === 0 ? html`<p>No trial matches.</p>` : undefined}${follows?.says}`,
    events: follows?.events,
    downloads: subjects.length === 0 ? undefined : downloadLinks(data),
    sections: [
      follows?.beside,
      { id: "summary", name: "Summary", content: summaryPart(data, series) },
      { id: "noise", name: "Noise", title: "Can the numbers be believed?", content: noisePart(data) },
      (comparisons.length > 0 || compared) && {
        id: "runs",
        name: titleOfCompared(compared),
        content: comparedPart(data, series),
      },
      drawable.length > 0 && {
        id: "roofline",
        name: "Roofline",
        content: html`${drawable.map((r) => rooflinePart(r, environments[r.environment]?.name ?? "", series))}`,
      },
      { id: "model", name: "Model", title: "The model against measurement", content: modelPart(data, series) },
      {
        id: "workloads",
        name: "Workloads",
        title: "Workload by workload",
        content: html`${subjects.map((s, i) => subjectSection(s, i, series))}`,
      },
      { id: "environment", name: "Environment", content: environmentPart(environments) },
    ],
  });
}

const environmentPart = (environments: ReportData["environments"]): Markup =>
  html`${environments.map(({ name, fields }, i) => factsTable(`${environments.length > 1 ? `${i + 1}. ` : ""}${name}`, fields))}`;

// ---- The summary

/** With more workloads a table has them. */
const MOST_CARDS = 2;

function summaryPart(data: ReportData, series: Series): Markup {
  const { subjects } = data;
  const linkTo = (s: Subject): Markup => html`<a href="#w${subjects.indexOf(s)}">${s.name ?? s.subject}</a>`;
  const next = subjects.flatMap((s) =>
    s.next.map((step) => (subjects.length === 1 ? step : { ...step, of: linkTo(s) })),
  );
  return html`${
    subjects.length > MOST_CARDS
      ? bestTable(data, series)
      : subjects.map(
          (s) => html`<h3>${swatch(series, s.dtype)}${linkTo(s)} <small>${wordsOf(s, data)}</small></h3>
${figures(figuresOf(s))}`,
        )
  }
${comparedSummary(data)}
${nextPart(next)}`;
}

/** Shape, types, threads and machine of a workload. */
function wordsOf(s: Subject, { environments }: ReportData): string {
  const machine = environments[s.environment]?.name ?? "";
  const words = [
    unbroken(s.shape),
    s.types,
    s.layout,
    s.epilogue,
    counted(s.threads, "thread"),
    `caches ${s.cache}`,
    machine,
  ];
  return words.filter((word) => word !== "").join(", ");
}

function figuresOf({ best, noise, trials }: Subject): Figure[] {
  if (!best) return [{ title: "time", value: "none", remark: `all of ${counted(trials.length, "trial")} failed` }];
  const { seconds, interval, operationsPerSecond, roof, ofRoof, judged, isImported, candidate, id } = best;
  return present<Figure>([
    { title: "time of a call", value: printTime(seconds), remark: `95 % within ${printInterval(...interval)}` },
    {
      title: "rate",
      value: `${rateText(operationsPerSecond)} op/s`,
      remark: "A multiply and an add count as two.",
    },
    roof &&
      ofRoof !== undefined && {
        title: "of its bound",
        value: percent(ofRoof),
        remark:
          ofRoof > 1
            ? `It outran its bound of ${printTime(roof.seconds)}, ${roof.by}: that was measured too low.`
            : `It takes ${printTime(roof.seconds)} at least, by ${roof.by}.`,
        verdict: ofRoof > 1 ? "noisy" : "unknown",
      },
    { title: "how sure", value: noise.verdict, verdict: noise.verdict, remark: noise.meaning },
    { title: "judged", value: isImported ? "imported" : "here", remark: judged },
    {
      title: "kernel",
      value: candidate[0]?.[1],
      remark: html`record <code>${id.slice(0, 12)}</code>, best of ${counted(trials.length, "trial")}`,
    },
  ]);
}

function bestTable({ subjects, environments }: ReportData, series: Series): Markup {
  const roofs = subjects.some((s) => s.best?.roof !== undefined);
  const caption = `Median of a call with its 95 % interval; operations count a multiply and an add as two${
    roofs
      ? "; the bound is the least time that the instruction's rate and the reading of what no cache can have kept allow"
      : ""
  }.`;
  const several = environments.length > 1;
  const columns: readonly Column<Subject>[] = [
    {
      title: "workload",
      head: true,
      value: (s) => `${s.name ?? s.subject} ${s.shape}`,
      cell: (s, i) =>
        html`<a href="#w${i}">${s.name ?? s.subject}</a><small>${s.name === undefined ? "" : `${s.subject} `}${unbroken(s.shape)}</small>`,
    },
    {
      title: "types",
      value: (s) => s.types,
      cell: (s) => html`<span class="whole">${swatch(series, s.dtype)}${s.types}</span>`,
    },
    { title: "layout", cell: (s) => s.layout, seldom: (s) => s.layout !== "" },
    { title: "epilogue", cell: (s) => s.epilogue, seldom: (s) => s.epilogue !== "" },
    { title: "threads", number: true, cell: (s) => s.threads, seldom: (s) => s.threads !== 1 },
    { title: "environment", number: true, cell: (s) => s.environment + 1, seldom: () => several },
    { title: "time", number: true, value: (s) => s.best?.seconds, cell: (s) => bestTime(s) },
    numbers(
      "G op/s",
      (s) => s.best?.operationsPerSecond,
      (rate) => threeDigits(rate / 1e9),
    ),
    numbers(
      "of bound",
      (s) => s.best?.ofRoof,
      percent,
      ({ best }) => best?.roof !== undefined,
    ),
    { title: "how sure", cell: ({ noise }) => html`<span class="${noise.verdict}">${noise.verdict}</span>` },
    {
      title: "instruction",
      value: ({ best }) => best?.candidate[0]?.[1],
      cell: ({ best }) =>
        best &&
        html`<span>${best.candidate[0]?.[1]}<small><code>${best.id.slice(0, 12)}</code>${best.isImported ? " imported" : ""}</small></span>`,
    },
    numbers("trials", (s) => s.trials.length),
  ];
  return dataTable(caption, columns, subjects, "cards");
}

function bestTime({ best }: Subject): Markup {
  if (!best) return html`every trial failed`;
  const [low, high] = best.interval;
  return html`<span>${printTime(best.seconds)}<small>${printInterval(low, high)}</small></span>`;
}

// ---- Comparisons

const titleOfCompared = (compared: ReportData["compared"]): string =>
  compared ? `Compared with ${compared.source}` : "Runs compared";

function comparedPart({ comparisons, compared, environments, source }: ReportData, series: Series): Markup {
  const only = (labels: readonly string[], of: string): Markup | undefined =>
    labels.length === 0
      ? undefined
      : html`<details><summary>Only in ${of}: ${counted(labels.length, "workload")}</summary><ul>${labels.map((label) => html`<li>${label}</li>`)}</ul></details>`;
  return html`${
    compared &&
    html`<p>${comparisons.length === 0 ? "No workload has a time in both databases" : `${counted(comparisons.length, "workload")} ${comparisons.length === 1 ? "has" : "have"} a time in both databases`}. From each database comes the run whose winner is the fastest: run 1 is of ${source}, run 2 of ${compared.source}.</p>
${only(compared.onlyHere, source)}${only(compared.onlyThere, compared.source)}`
  }
${comparisons.map((c, i) => comparisonPart(c, i, { series: series.of(c.dtype), severalEnvironments: environments.length > 1 }))}`;
}

/** Most comparisons named in the summary. */
const MOST_COMPARED = 12;

function comparedSummary({ comparisons, compared }: ReportData): Markup | undefined {
  const told = comparisons.flatMap((c, i) =>
    verdictsOf(c).map((verdict) => html`<li><a href="#c${i}">${c.label}</a>: ${verdict}</li>\n`),
  );
  if (told.length === 0) return undefined;
  const more = told.length - MOST_COMPARED;
  return html`<h3>${titleOfCompared(compared)}</h3>
<ul class="next">${told.slice(0, MOST_COMPARED)}${more > 0 ? html`<li>and ${more} more</li>` : undefined}</ul>`;
}

// ---- Noise, roofline, model

function noisePart({ noise, rooflines }: ReportData): Markup {
  const { verdict, meaning, facts } = noise;
  const wrong = rooflines.flatMap(({ contradicted }) => contradicted ?? []);
  return html`<p class="verdict ${verdict}"><strong>${verdict}</strong>: ${meaning}.</p>
${wrong.map(contradictedPart)}${
  facts.length === 0
    ? undefined
    : dataTable(
        "Medians over the trials.",
        [
          { title: "sign of noise", head: true, whole: true, cell: ([name]) => name },
          { title: "how large", whole: true, cell: ([, value]) => value },
          { title: "of what", cell: ([, , remark]) => remark },
        ],
        facts,
        "cards",
      )
}`;
}

/** Shown when kernels outran a calibration, so that its roofs and predictions are too low. */
function contradictedPart(because: string): Markup {
  return html`<p class="verdict noisy"><strong>roofs not usable</strong>: ${because}.</p>`;
}

export function isDrawable({ points, bandwidths }: Roofline): boolean {
  return points.length > 0 && bandwidths.length > 0;
}

export function rooflinePart(roofline: Roofline, name: string, series: Series): Markup {
  const { contradicted, points, peaks, bandwidths, rates, source, of } = roofline;
  const rows = [
    ...peaks.map((p) => [p.name, `${rateText(p.operationsPerSecond)} op/s`] as const),
    ...bandwidths.map((b) => [`${b.name}, read`, `${rateText(b.bytesPerSecond)}B/s`] as const),
    ...rates,
  ];
  return html`${contradicted === undefined ? undefined : contradictedPart(contradicted)}<div class="pair"><figure>
${rooflineChart(roofline, series.of)}
${legend(seriesOfTypes(points.map((p) => p.dtype)))}
<figcaption>${name}. Lines are ceilings of ${of === "GPU" ? "the whole GPU" : "one core"}: slopes the read bandwidth of each level of memory, flat ones the rate of each instruction from registers. Products with padding are not counted; data that a cache keeps from call to call lies above the slope of the memory behind it. Large marks are the best of a workload, small ones its other trials.</figcaption>
</figure>
${factsTable(`${of === "GPU" ? "The GPU" : "One core"} as ${source}.`, rows)}</div>`;
}

/** With fewer trials nothing is said of the model. */
const FEWEST_JUDGED = 3;

function modelPart(data: ReportData, series: Series): Markup {
  const predicted = data.subjects.filter(({ trials }) => predictedOf(trials).length > 0);
  const count = sumOf(predicted, ({ trials }) => predictedOf(trials).length);
  if (count < FEWEST_JUDGED)
    return html`<p>The model is not judged: ${counted(count, "trial")} ${count === 1 ? "has" : "have"} both a prediction and a time.</p>`;
  return html`<div class="pair"><figure>
${predictionChart(data, series.of)}
${legend(seriesOfTypes(predicted.map((s) => s.dtype)))}
<figcaption>Every trial that worked, with what the model said before it was measured. On the dashed line the model is right; above it, it was too pessimistic.</figcaption>
</figure>${accuracyTable(data.accuracy)}</div>`;
}

function accuracyTable(rows: readonly Accuracy[]): Markup {
  const columns: readonly Column<Accuracy>[] = [
    { title: "types", head: true, cell: (a) => a.name },
    numbers("trials", (a) => a.trials),
    numbers("pairwise", (a) => a.corrected.pairwise, percent),
    numbers("recall", (a) => a.corrected.recall, percent),
    numbers("pairwise before", (a) => a.uncorrected.pairwise, percent),
    numbers("recall before", (a) => a.uncorrected.recall, percent),
  ];
  const caption =
    "Pairwise accuracy: share of the pairs of trials of one workload that the model puts in the right order, no trial paired with itself. Recall: share of the fastest 40 % that are among the 40 % predicted fastest. Before: of the model that had not learnt from the trials.";
  return dataTable(caption, columns, rows);
}

/** `c 64 h 56`: keeps a name and its number on one line. */
function unbroken(shape: string): string {
  return shape
    .split("  ")
    .map((part) => part.replace(" ", "\u00a0"))
    .join(" ");
}
