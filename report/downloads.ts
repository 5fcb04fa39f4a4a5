/**
 * @file The data of a report as files embedded in the page: a link contains the whole file, so saving it needs no
 * server and no script.
 *
 *     trials.csv      one line a trial, one column a decision
 *     report.json     all that the page shows, in seconds
 */

import { unique } from "../abstraction/collections.ts";
import { csvCell } from "./csv.ts";
import { html, type Markup } from "./html.ts";
import type { ReportData, Subject, TrialPoint } from "./report-data.ts";

export function downloadLinks(data: ReportData): Markup {
  const csv = trialsCsv(data);
  return html`<p class="downloads">Data: ${fileLink("trials.csv", "text/csv", csv)}, one line a trial; ${fileLink("report.json", "application/json", reportJson(data))}, all that this page shows.</p>`;
}

/** The whole file, within the link. */
export function fileLink(name: string, type: string, text: string): Markup {
  const base64 = Buffer.from(text, "utf8").toString("base64");
  return html`<a download="${name}" href="data:${type};charset=utf-8;base64,${base64}">${name}</a>`;
}

type Column = readonly [title: string, of: (trial: TrialPoint, subject: Subject) => string | number | undefined];

const COLUMNS: readonly Column[] = [
  ["record", (t) => t.id],
  ["run", (t) => t.run],
  ["workload", (_, s) => s.label],
  ["name", (_, s) => s.name],
  ["shape", (_, s) => s.shape],
  ["types", (_, s) => s.types],
  ["layout", (_, s) => s.layout],
  ["epilogue", (_, s) => s.epilogue],
  ["threads", (_, s) => s.threads],
  ["environment", (_, s) => s.environment + 1],
  ["provenance", (t) => (t.isImported ? "imported" : "here")],
  ["status", (t) => t.status],
  ["seconds", (t) => t.seconds],
  ["low", (t) => t.interval?.[0]],
  ["high", (t) => t.interval?.[1]],
  ["predicted", (t) => t.predicted],
  ["uncorrected", (t) => t.uncorrected],
  ["at", (t) => new Date(t.at).toISOString()],
  ["afterSeconds", (t) => t.after],
  ["clockHz", (t) => t.clock?.hertz],
  ["throttled", (t) => t.clock?.throttled.join(" ")],
];

/** Every trial. Decisions are the last columns, empty where a candidate lacks one. */
export function trialsCsv({ subjects }: ReportData): string {
  const rows = subjects.flatMap((subject) =>
    subject.trials.map((trial) => ({ subject, trial, decided: new Map(trial.decisions) })),
  );
  const names = unique(rows.flatMap(({ decided }) => [...decided.keys()]));
  return [
    [...COLUMNS.map(([title]) => title), ...names].map(csvCell),
    ...rows.map(({ subject, trial, decided }) => [
      ...COLUMNS.map(([, of]) => csvCell(of(trial, subject))),
      ...names.map((name) => csvCell(decided.get(name))),
    ]),
  ]
    .map((cells) => `${cells.join(",")}\r\n`)
    .join("");
}

/** Trials appear only under their workload; drawings that can be derived from them are left out. */
function reportJson(data: ReportData): string {
  const comparisons = data.comparisons.map((c) => ({ ...c, runs: c.runs.map(({ trials: _, ...run }) => run) }));
  const rooflines = data.rooflines.map(({ points: _, ...roofline }) => roofline);
  const rest = { ...data, comparisons, rooflines };
  return JSON.stringify(rest, (key, value: unknown) => (key === "drawing" ? undefined : value));
}
