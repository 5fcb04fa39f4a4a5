/**
 * @file A network's report as an HTML page: where time goes, what tuning changed, each task's distance from its roof,
 * and what no instruction computes.
 *
 *     writeFileSync("resnet18.html", networkPage(gatherNetworkReport(opened, choices, world)))
 */

import { present, sortedBy, sumOf } from "../abstraction/collections.ts";
import { type Column, dataTable, numbers } from "./data-table.ts";
import { fileLink } from "./downloads.ts";
import { html, type Markup } from "./html.ts";
import { gainOf, progressChart, SOURCES, stepsChart } from "./network-charts.ts";
import type { NetworkReportData, NetworkTask } from "./network-data.ts";
import { graphPart } from "./network-graph.ts";
import { isDrawable, rooflinePart } from "./page.ts";
import { wholePage } from "./page-shell.ts";
import { seriesOfTypes, swatchOf } from "./series.ts";
import { type Figure, figures, nextPart } from "./summary.ts";
import { counted, instant, percent, printTime, threeDigits } from "./text.ts";

/** A self-contained HTML page of a network. @returns its text */
export function networkPage(data: NetworkReportData): string {
  const { name, source, madeAt, version, machine, nodes, multiplyAdds, parameters, steps, tasks, roofline } = data;
  const title = `automap report: ${name}`;
  return wholePage({
    title,
    about: html`<p>${source}, made ${instant(madeAt)} UTC by automap ${version}, for ${machine}.</p>
<p>${counted(nodes, "node")} in ${counted(steps.length, "step")}, ${tasks.length} of them different; ${threeDigits(multiplyAdds / 1e9)} G multiply-adds, ${threeDigits(parameters / 1e6)} M parameters.</p>`,
    downloads: html`<p class="downloads">Data: ${fileLink("network.json", "application/json", JSON.stringify(data))}, all that this page shows.</p>`,
    sections: [
      { id: "summary", name: "Summary", content: html`${figures(figuresOf(data))}\n${nextPart(data.next)}` },
      { id: "time", name: "Time", title: "Where the time goes", content: timePart(data) },
      { id: "tuning", name: "Tuning", title: "Before and after tuning", content: tuningPart(data) },
      roofline &&
        isDrawable(roofline) && {
          id: "roofline",
          name: "Roofline",
          content: rooflinePart(roofline, machine, seriesOfTypes(roofline.points.map((p) => p.dtype))),
        },
      { id: "mapped", name: "Mapped share", content: mappedPart(data) },
      { id: "fallback", name: "Fallbacks", title: "What no instruction maps", content: fallbackPart(tasks) },
    ],
  });
}

// ---- The summary

/** Most steps named as the slowest. */
const MOST_SLOW = 3;

function figuresOf(data: NetworkReportData): Figure[] {
  const { share, noise, tasks } = data;
  const { known, total, measured } = timesOf(data);
  const tuned = tasks.filter(({ roof }) => roof !== undefined);
  const bound = sumOf(tuned, ({ roof = 0, times }) => roof * times);
  const taken = sumOf(tuned, ({ seconds = 0, times }) => seconds * times);
  const { first, best } = tunedTogether(tasks);
  const [slowest, ...more] = sortedBy(known, (a) => -a.seconds).slice(0, MOST_SLOW);
  const partOf = (step: { readonly node: string; readonly seconds: number }): string =>
    `${step.node} ${percent(step.seconds / total)}`;
  return present<Figure>([
    known.length > 0 && {
      title: "time of all steps",
      value: printTime(total),
      remark: `${percent(measured / total)} of it is measured; each kernel runs alone with warm caches.`,
    },
    bound > 0 && {
      title: "of its bound",
      value: percent(bound / taken),
      remark: `The tuned steps take ${printTime(taken)}, and ${printTime(bound)} at least by the rates of their instructions and memories.`,
    },
    best > 0 && {
      title: "gained by tuning",
      value: `${(first / best).toFixed(2)} times as fast`,
      remark: `${printTime(first)} with the first kernels, ${printTime(best)} with the fastest.`,
    },
    share.counted > 0 && {
      title: "mapped onto instructions",
      value: percent(share.mapped / share.counted),
      remark: `${share.mapped} of ${counted(share.counted, "operator")}`,
    },
    slowest && {
      title: "slowest steps",
      value: partOf(slowest),
      remark: more.map(partOf).join(", "),
    },
    best > 0
      ? { title: "how sure", value: noise.verdict, verdict: noise.verdict, remark: noise.meaning }
      : {
          title: "how sure",
          value: "not measured",
          remark: "No step is tuned: the model and the memory's rate give the times.",
        },
  ]);
}

/** The steps with what is known of their tasks, and sums of their times. */
function timesOf({ steps, tasks }: NetworkReportData) {
  const rows = steps.flatMap(({ node, ops, task }) => {
    const found = tasks[task];
    return found ? [{ ...found, node, ops }] : [];
  });
  const known = rows.flatMap((r) => (r.seconds === undefined ? [] : [{ ...r, seconds: r.seconds }]));
  const total = sumOf(known, (r) => r.seconds);
  const measured = sumOf(known, (r) => (r.time === "measured" ? r.seconds : 0));
  return { rows, known, total, measured };
}

/** Seconds of all tuned steps with the first kernel of each search, and with the fastest. */
function tunedTogether(tasks: readonly NetworkTask[]): { readonly first: number; readonly best: number } {
  const tuned = tasks.filter((t) => t.time === "measured");
  return {
    first: sumOf(tuned, ({ first = 0, times }) => first * times),
    best: sumOf(tuned, ({ best = 0, times }) => best * times),
  };
}

// ---- Time

function timePart(data: NetworkReportData): Markup {
  const { tasks } = data;
  const { rows, known, total, measured } = timesOf(data);
  const unknown = rows.length - known.length;
  const columns: readonly Column<(typeof rows)[number]>[] = [
    { title: "step", head: true, cell: (r) => html`<span>${r.node}<small>${r.ops.join(" ")}</small></span>` },
    {
      title: "multiply-adds",
      number: true,
      value: (r) => r.multiplyAdds,
      cell: (r) => (r.multiplyAdds === 0 ? "" : `${threeDigits(r.multiplyAdds / 1e6)} M`),
    },
    numbers("time", (r) => r.seconds, printTime),
    numbers(
      "share",
      (r) => r.seconds,
      (seconds) => percent(seconds / total),
    ),
    numbers("G op/s", rateOf, (rate) => threeDigits(rate / 1e9)),
    numbers("of bound", ofRoof, percent, ({ roof }) => roof !== undefined),
    { title: "known by", cell: (r) => r.time },
    {
      title: "computed by",
      cell: (r) =>
        html`<span>${r.kernel ?? "plain loops"}${r.record === undefined ? undefined : html`<small><code>${r.record}</code></small>`}</span>`,
    },
  ];
  const bars = stepsChart(data);
  const graph = graphPart(data);
  return html`<p>The steps take ${printTime(total)} together; ${total === 0 ? "0 %" : percent(measured / total)} of it is measured${unknown === 0 ? "" : `, and of ${counted(unknown, "step")} nothing is known`}. Each kernel was measured alone with warm caches: a whole run also moves values between steps.</p>
${
  bars &&
  html`<figure>${bars}
<ul class="legend">${SOURCES.map(([source, series, meaning]) => (tasks.some((t) => t.time === source) ? html`<li>${swatchOf(series, source)}${meaning}</li>` : undefined))}</ul>
<figcaption>Steps in the order they run, each with its time and its share.</figcaption></figure>`
}
${graph}
<details><summary>Every step as numbers: ${rows.length}</summary>${dataTable("Steps in the order they run; operations count a multiply and an add as two.", columns, rows, "cards")}</details>`;
}

const ofRoof = ({ roof, seconds }: NetworkTask): number | undefined =>
  roof === undefined || seconds === undefined ? undefined : roof / seconds;

const rateOf = ({ multiplyAdds, seconds }: NetworkTask): number | undefined =>
  multiplyAdds === 0 || seconds === undefined ? undefined : (2 * multiplyAdds) / seconds;

function tuningPart(data: NetworkReportData): Markup {
  const tuned = data.tasks.filter((t) => t.time === "measured");
  if (tuned.length === 0) return html`<p>No task has a record here: <code>automap tune-network</code> makes them.</p>`;
  const { first, best } = tunedTogether(tuned);
  const saved = (t: NetworkTask): number => ((t.first ?? 0) - (t.best ?? 0)) * t.times;
  const columns: readonly Column<NetworkTask>[] = [
    { title: "task", head: true, cell: (t) => html`<span>${t.ops.join(" ")}<small>${t.label}</small></span>` },
    numbers("times", (t) => t.times),
    numbers("first", (t) => t.first, printTime),
    numbers("fastest", (t) => t.best, printTime),
    numbers("first / fastest", gainOf, (gain) => gain.toFixed(2)),
    numbers("saved", saved, printTime),
    numbers("trials", (t) => t.trials),
    { title: "record", whole: true, cell: (t) => html`<code>${t.record}</code>` },
  ];
  const chart = progressChart(data);
  const steps = counted(
    sumOf(tuned, (t) => t.times),
    "tuned step",
  );
  return html`<p>The ${steps} took ${printTime(first)} with the first kernel of each search that worked, and ${printTime(best)} with the fastest: ${(first / best).toFixed(2)} times as fast. Both are single measurements made during the search. The times above are those of the records in use; those of a search with finals were measured again there.</p>
${chart && html`<figure>${chart}<figcaption>The time of all tuned steps with the best kernel so far of each task. A task counts by its first kernel until its search begins.</figcaption></figure>`}
${dataTable("First: the kernel that a search measured first, proposed by the model or by the record of a near task. Saved: in one run of the network.", columns, tuned, "cards")}`;
}

function mappedPart({ share: { counted, mapped, instructions } }: NetworkReportData): Markup {
  return html`<p>Instructions compute <strong>${mapped} of ${counted} operators</strong>${counted === 0 ? "" : ` (${percent(mapped / counted)})`}.</p>
<p>Counted are the nodes that sum products of two tensors, pool over windows, add two computed values, concatenate, or normalise (softmax, layer normalisation). Biases, batch norms and activations belong to the node before them; global pooling, and nodes that rename, move or convert elements, are not counted. By this rule AMOS's Table 2 has 50 of 70 for ShuffleNet and 54 of 71 for ResNet-50.</p>
${
  instructions.length === 0
    ? undefined
    : dataTable(
        "Mapped operators by instruction.",
        [
          { title: "instruction", head: true, cell: ([name]) => name },
          { title: "operators", number: true, cell: ([, n]) => n },
        ],
        instructions,
      )
}`;
}

function fallbackPart(tasks: readonly NetworkTask[]): Markup {
  const fallen = tasks.filter((t) => t.because !== undefined);
  if (fallen.length === 0) return html`<p>Nothing: every step is computed by an instruction.</p>`;
  const columns: readonly Column<NetworkTask>[] = [
    { title: "nodes", head: true, cell: (t) => html`<span>${t.ops.join(" ")}<small>${namesOf(t)}</small></span>` },
    numbers("times", (t) => t.times),
    numbers(
      "time",
      (t) => t.seconds,
      (seconds) => `${printTime(seconds)}, estimated`,
    ),
    { title: "why no instruction", cell: (t) => t.because },
  ];
  return html`${dataTable("Generated loops compute these steps.", columns, fallen, "cards")}`;
}

const MOST_NAMES = 4;

function namesOf({ nodes }: NetworkTask): string {
  const more = nodes.length - MOST_NAMES;
  return more > 0 ? `${nodes.slice(0, MOST_NAMES).join(", ")} and ${more} more` : nodes.join(", ");
}
