/**
 * @file The section of one workload in a report: its search, its best kernel, the decisions that mattered, every trial
 * as numbers, and a comparison of its runs.
 */

import { sumOf, unique } from "../abstraction/collections.ts";
import { printClock } from "../abstraction/trial.ts";
import { convergenceChart, runsChart } from "./charts.ts";
import { type Column, dataTable, factsTable, numbers } from "./data-table.ts";
import { haveShares, importanceChart, parallelChart } from "./decision-charts.ts";
import { gridChart } from "./draw-grid.ts";
import { drawLanesSvg, drawTransformSvg } from "./draw-lanes.ts";
import { drawMappingSvg } from "./draw-svg.ts";
import { html, type Markup, trusted } from "./html.ts";
import type { DecisionShare } from "./importance.ts";
import type { Best, Comparison, Drawing, Found, Reason, RunSummary, Subject, TrialPoint } from "./report-data.ts";
import { type Series, swatch } from "./series.ts";
import { counted, instant, percent, printInterval, printTime } from "./text.ts";

/** What a heading says of a workload. */
type Headed = Pick<Subject, "name" | "subject" | "shape" | "types" | "dtype" | "layout" | "epilogue" | "threads">;

export function subjectHeading(
  { name, subject, shape, types, dtype, layout, epilogue, threads }: Headed,
  series: Series,
): Markup {
  const words = [shape, types, layout, epilogue, counted(threads, "thread")].filter((word) => word !== "");
  return html`<h3>${swatch(series, dtype)}${name === undefined ? "" : `${name}: `}${subject} <small>${words.join(", ")}</small></h3>`;
}

export function subjectSection(subject: Subject, index: number, series: Series): Markup {
  const { subject: what, besides, equation, dtype, best, failures, refusals } = subject;
  return html`<article id="w${index}">
${subjectHeading(subject, series)}
${equation === what ? undefined : html`<p><code>${equation}</code></p>`}
${besides === "" ? undefined : html`<p><code>${besides}</code></p>`}
${convergencePart(subject, series.of(dtype))}
${best ? bestPart(best, series.of(dtype)) : html`<p>Every trial failed.</p>`}
${decisionsPart(subject, series.of(dtype))}
${reasonTable("Trials that failed", "status", failures)}
${refusals === undefined ? undefined : reasonTable("Matches that the mapper refuses on this machine's instructions", "rule", refusals)}
${trialTable(subject)}
</article>`;
}

function convergencePart(subject: Subject, series: number): Markup | undefined {
  const { trials, accuracy, failures } = subject;
  const timed = trials.filter((t) => t.seconds !== undefined);
  if (timed.length === 0 || trials.length < 2) return undefined;
  const rates = accuracy.corrected.pairwise;
  return html`<figure><div class="pair">
${convergenceChart(subject, series, "trials")}
${timed.some((t) => t.after !== undefined) ? convergenceChart(subject, series, "seconds") : undefined}</div>
<figcaption>Each trial with its 95 % interval, the best so far as a line${failures.length > 0 ? ", failures as crosses at the top" : ""}.${rates === undefined ? "" : ` The model ordered ${percent(rates)} of the pairs correctly.`}</figcaption>
</figure>`;
}

// ---- The best

function bestPart(best: Best, series: number): Markup {
  const { drawing, predicted, clock, roof } = best;
  const [low, high] = best.interval;
  const facts: readonly (readonly [string, string])[] = [
    ...best.candidate,
    ["predicted", predicted === undefined ? "no" : printTime(predicted)],
    ...(roof === undefined ? [] : [["bound", `${printTime(roof.seconds)}, by ${roof.by}`] as const]),
    ["judged", best.judged],
    ...(clock === undefined ? [] : [["clock", printClock(clock)] as const]),
  ];
  return html`<h4>The best: ${printTime(best.seconds)} <small>${printInterval(low, high)}</small></h4>
<div class="winner-parts">${factsTable(html`Record <code>${best.id.slice(0, 12)}</code>${best.isImported ? ", imported: measured elsewhere, or so whoever wrote it says" : ""}`, facts)}
${drawingPart(drawing, series)}</div>
${levelsPart(best)}`;
}

function drawingPart(drawing: Drawing, series: number): Markup {
  switch (drawing.kind) {
    case "mapping":
      return html`<figure class="drawing">${trusted(drawMappingSvg(drawing.mapping))}
${drawing.grid && gridChart(drawing.mapping, drawing.grid, series)}
<figcaption>Loops of the operator feed axes of the instruction, which index its operands.${drawing.grid && " Below, how blocks, and what issues instructions in them, share the output."}</figcaption></figure>`;
    case "lanes":
      return html`<figure class="drawing">${trusted(drawLanesSvg(drawing.design))}<figcaption>One row of the window on one vector: which element of data x, weights w and sums z each lane has in hand, step by step. An element keeps its colour, so that what moves is a slant and what stays a bar.</figcaption></figure>`;
    case "array":
      return html`<figure class="drawing">${trusted(drawTransformSvg(drawing.array))}<figcaption>The first steps of the array on one vector: which element of each operand every lane has in hand, by the indices that change. An element keeps its colour, so that what moves is a slant and what stays a bar.</figcaption></figure>`;
    case "none":
      return html`<p>There is no drawing: ${drawing.because}.</p>`;
    default:
      return drawing satisfies never;
  }
}

function levelsPart({ levels }: Best): Markup | undefined {
  if (levels.length === 0) return undefined;
  const columns: readonly Column<Best["levels"][number]>[] = [
    { title: "level", head: true, cell: (l) => l.level },
    numbers("trips", (l) => l.trips, cycles),
    numbers("inside", (l) => l.inner, cycles),
    numbers("read", (l) => l.read, cycles),
    numbers("write", (l) => l.write, cycles),
    { title: "bound by", cell: (l) => l.bound },
  ];
  const caption = "Cycles of one trip: a level takes trips times the largest of what lies inside, reading and writing.";
  return html`<details><summary>Where the model sees the time go</summary>${dataTable(caption, columns, levels)}</details>`;
}

// ---- Decisions

function decisionsPart(subject: Subject, series: number): Markup | undefined {
  const { decisions } = subject;
  if (decisions.length === 0) return undefined;
  const trials = subject.trials.filter((t) => t.seconds !== undefined).length;
  const lines = parallelChart(subject, series);
  const charts = haveShares(subject)
    ? html`<figure><div class="pair">
${importanceChart(subject, series)}
${lines}</div>
<figcaption>Bars: how much of the variance of log time between the ${counted(trials, "trial")} that worked a decision accounts for by itself, less what as many values would by chance (epsilon squared); a decision that only some kinds of candidates have is judged over those. A search moves decisions together and does not draw evenly: shares overlap, do not add up, and are no causes.${lines && " Lines: the decisions with the largest shares, a line a trial of the winner's kind, coloured for the fastest quarter and dark for the best."}</figcaption>
</figure>`
    : html`<p>${counted(trials, "trial")} that worked ${trials === 1 ? "does" : "do"} not show which decisions mattered.</p>`;
  return html`<h4>Which decisions mattered</h4>
${charts}
${decisionTable(decisions)}`;
}

function decisionTable(decisions: readonly DecisionShare[]): Markup {
  const rows = decisions.flatMap((d) => d.values.map((v) => ({ ...v, name: d.name, share: d.share })));
  const columns: readonly Column<(typeof rows)[number]>[] = [
    { title: "decision", head: true, cell: (r) => r.name },
    numbers("explains", (r) => r.share, percent),
    { title: "value", cell: (r) => r.value },
    numbers("trials", (r) => r.trials),
    numbers("fastest", (r) => r.best, printTime),
    numbers("median", (r) => r.median, printTime),
  ];
  const caption =
    "Decisions that took more than one value, value by value; without a share where there are fewer than two trials a value.";
  return html`<details><summary>Decisions value by value: ${rows.length}</summary>${dataTable(caption, columns, rows)}</details>`;
}

// ---- Reasons and trials

function reasonTable(caption: string, what: string, rows: readonly Reason[]): Markup | undefined {
  if (rows.length === 0) return undefined;
  const columns: readonly Column<Reason>[] = [
    { title: what, head: true, cell: (r) => r.name },
    numbers("count", (r) => r.count),
    { title: "for example", cell: (r) => r.example },
  ];
  return html`<details><summary>${caption}: ${sumOf(rows, (r) => r.count)}</summary>${dataTable(`${caption}, by ${what}.`, columns, rows, "cards")}</details>`;
}

/** The trials as numbers, for readers who cannot see the charts. */
function trialTable({ trials }: Subject): Markup {
  return html`<details><summary>Every trial as numbers: ${trials.length}</summary>${dataTable("Trials in the order they were made.", trialColumns(trials), trials)}</details>`;
}

/** @param from number of the first trial */
export function trialColumns(trials: readonly TrialPoint[], from = 1): readonly Column<TrialPoint>[] {
  return [
    { title: "trial", number: true, head: true, cell: (_, i) => from + i },
    { title: "record", cell: (t) => html`<code>${t.id.slice(0, 12)}</code>${t.isImported ? " imported" : ""}` },
    {
      title: "run",
      cell: (t) => (t.run === undefined ? "" : html`<code>${t.run.slice(0, 12)}</code>`),
      seldom: (t) => t.run !== trials[0]?.run,
    },
    numbers(
      "after",
      (t) => t.after,
      (seconds) => `${seconds.toFixed(1)} s`,
      (t) => t.after !== undefined,
    ),
    { title: "instruction", cell: (t) => t.intrinsic },
    {
      title: "time",
      number: true,
      value: (t) => t.seconds,
      cell: (t) => (t.seconds === undefined ? t.status : printTime(t.seconds)),
    },
    {
      title: "interval",
      number: true,
      value: (t) => t.interval?.[0],
      cell: (t) => t.interval && printInterval(...t.interval),
    },
    numbers("predicted", (t) => t.predicted, printTime),
    {
      title: "clock",
      number: true,
      value: (t) => t.clock?.hertz,
      cell: ({ clock }) => clock && clockText(clock),
      seldom: (t) => t.clock !== undefined,
    },
  ];
}

const clockText = ({ hertz, throttled }: NonNullable<TrialPoint["clock"]>): string =>
  `${(hertz / 1e6).toFixed(0)} MHz${throttled.length === 0 ? "" : `, ${throttled.join(", ")}`}`;

function cycles(n: number): string {
  return Number.isInteger(n) ? String(n) : n.toFixed(1);
}

// ---- Runs

/** Several runs of one workload. The others are described relative to the first. */
export function comparisonPart(
  comparison: Comparison,
  index: number,
  { series, severalEnvironments }: { readonly series: number; readonly severalEnvironments: boolean },
): Markup {
  const { runs, label } = comparison;
  const columns: readonly Column<RunSummary>[] = [
    {
      title: "run",
      head: true,
      value: (_, i) => i + 1,
      cell: (r, i) => html`${i + 1} <code>${r.id.slice(0, 12)}</code>${r.isImported ? " imported" : ""}`,
    },
    { title: "database", cell: (r) => r.source, seldom: () => isOfTwo(runs) },
    { title: "began", cell: (r) => instant(r.started) },
    { title: "environment", number: true, cell: (r) => r.environment + 1, seldom: () => severalEnvironments },
    { title: "strategy", cell: (r) => `${r.strategy} seed ${r.seed}`.trim() },
    {
      title: "trials",
      number: true,
      cell: (r) => `${r.trials.length}${r.failed === 0 ? "" : `, ${r.failed} failed`}`,
      value: (r) => r.trials.length,
    },
    { title: "record", whole: true, cell: (r) => r.best && html`<code>${r.best.id.slice(0, 12)}</code>` },
    {
      title: "time",
      number: true,
      value: (r) => r.best?.seconds,
      cell: ({ best }) =>
        best ? html`<span>${printTime(best.seconds)}<small>${printInterval(...best.interval)}</small></span>` : "none",
    },
    { title: "found", value: (r) => r.found?.trial, cell: ({ found }) => found && foundText(found) },
    { title: "how sure", cell: ({ noise }) => html`<span class="${noise}">${noise}</span>` },
    {
      title: "same kernels",
      value: (r) => r.shared?.ratio,
      cell: ({ shared }) => shared && `${counted(shared.count, "kernel")}, ${shared.ratio.toFixed(3)} times the time`,
      seldom: (r) => r.shared !== undefined,
    },
  ];
  const differing = differencesOf(runs);
  const timed = runs.flatMap((r) => r.trials.filter((t) => t.seconds !== undefined));
  const verdicts = verdictsOf(comparison);
  return html`<article id="c${index}">
<h3>${label}</h3>
${verdicts.length === 0 ? undefined : html`<p class="verdict ${runs.some(({ beside }) => beside?.isSure === false) ? "noisy" : ""}">${verdicts.join("; ")}.</p>`}
${
  timed.length === 0
    ? undefined
    : html`<figure><div class="pair">
${runsChart(comparison, series, "trials")}
${timed.some((t) => t.after !== undefined) ? runsChart(comparison, series, "seconds") : undefined}</div>
<figcaption>The best so far of each run, numbered as below. Times of searches are of single measurements; the table has the winner of each run's finals.</figcaption></figure>`
}
${dataTable("Runs of this workload. Found: when the search measured the fastest of its kernels. Kernels that were measured in both runs say how far the machine itself was faster or slower.", columns, runs, "cards")}
${
  differing.length === 0
    ? undefined
    : html`<details open=""><summary>What the winners decided differently: ${differing.length}</summary>${dataTable(
        "Decisions of the fastest kernel of each run that are not the same in all.",
        [
          { title: "decision", head: true, cell: (d: Differing) => d.name },
          ...runs.map((_, i): Column<Differing> => ({ title: `run ${i + 1}`, cell: (d) => d.values[i] })),
        ],
        differing,
      )}</details>`
}
</article>`;
}

const foundText = ({ trial, after }: Found): string =>
  `trial ${trial}${after === undefined ? "" : `, after ${after.toFixed(1)} s`}`;

/** Whether the runs are of two databases. */
const isOfTwo = (runs: readonly RunSummary[]): boolean => new Set(runs.map(({ source }) => source)).size > 1;

/** What a comparison found, a sentence for each run but the first. */
export function verdictsOf({ runs }: Comparison): string[] {
  const nameOf = (i: number): string => (isOfTwo(runs) ? (runs[i]?.source ?? "") : `run ${i + 1}`);
  return runs.flatMap(({ beside }, i) => (beside ? [`${nameOf(i)} beside ${nameOf(0)}: ${beside.says}`] : []));
}

interface Differing {
  readonly name: string;
  readonly values: readonly string[];
}

function differencesOf(runs: readonly RunSummary[]): Differing[] {
  const decided = runs.map((r) => new Map(r.best?.decisions));
  const names = unique(decided.flatMap((d) => [...d.keys()]));
  return names
    .map((name) => ({ name, values: decided.map((d) => d.get(name) ?? "") }))
    .filter(({ values }) => new Set(values).size > 1);
}
