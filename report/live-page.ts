/**
 * @file The page that shows searches while they run, and its changes. It is drawn by the functions of the report, and is a report once they ended.
 *
 *     const page = new LivePage();
 *     page.update(data);             changes for those who have the page
 *     page.text(data, "events");     the page for those who come
 *
 * The charts of a report while their trials are being made. An axis has room ahead, so that a new trial is mostly drawn beside the others, and
 * all are drawn again only when one lies outside.
 *
 *     const chart = growingConvergence("r1-trials", { label: "conv2d", series: 0, pace: "trials", end: 160 });
 *     chart.add(trials)      [["put", "r1-trials", "<svg ...>"]]
 *     chart.add(more)        [["grow", "r1-trials-mark", "M..."], ...]
 */

import { groupsOf, present, sumOf, upTo } from "../abstraction/collections.ts";
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
import { type Column, dataTable, numbers } from "./data-table.ts";
import { html, type Markup } from "./html.ts";
import type { LeftSearch, LiveData, LiveProcess, LiveSearch } from "./live-data.ts";
import type { Patch } from "./live-script.ts";
import { changedIn, type Section, wholePage } from "./page-shell.ts";
import { subjectHeading, trialColumns } from "./page-workload.ts";
import type { TrialPoint } from "./report-data.ts";
import { seriesOfTypes } from "./series.ts";
import { type Figure, figures } from "./summary.ts";
import { counted, instant, percent, printInterval, printTime, rateText } from "./text.ts";

// ---- charts that grow --------------------------------------------------------------------------------------------------------------------

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

class GrowingChart {
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
    const parts = upTo(Math.ceil(this.trials.length / SHARED)).map((i) =>
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
function growingConvergence(
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

function growingPrediction(id: string, { label, series }: Given): GrowingChart {
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

/** The charts of a search. */
interface Charts {
  /** Trials drawn so far. */
  drawn: number;
  readonly convergence: readonly GrowingChart[];
  readonly model: GrowingChart;
}

export class LivePage {
  private readonly charts = new Map<string, Charts>();
  /** The parts of the page as they were told last, by id. */
  private readonly told = new Map<string, string>();

  /** @returns what changed since the last call */
  update(data: LiveData): Patch[] {
    const shown = shownIn(data);
    const drawn = shown.flatMap((search) => this.draw(search));
    const structure = [...data.processes.map(({ process }) => process), ...shown.map(({ id }) => id)].join();
    const isNew = structure !== this.told.get("now");
    this.told.set("now", structure);
    const changed = changedIn(partsOf(data), this.told);
    if (!isNew) return [...changed, ...drawn];
    return [
      ["put", "state", statePart(data).text],
      ["put", "now", this.nowPart(data).text],
    ];
  }

  /** The whole page. @param events where it hears of changes @param beside what stands on it besides the searches */
  text(data: LiveData, events: string, beside?: Section): string {
    return wholePage({
      title: "automap watch",
      about: html`<p>${data.source}, followed by automap ${data.version}.</p>
<div id="state">${statePart(data)}</div>`,
      events,
      sections: [
        { id: "searches", name: "Searches", content: html`<div id="now">${this.nowPart(data)}</div>` },
        beside,
      ],
    });
  }

  private draw(search: LiveSearch): Patch[] {
    const charts = this.charts.get(search.id) ?? chartsOf(search);
    this.charts.set(search.id, charts);
    const fresh = search.trials.slice(charts.drawn);
    charts.drawn = search.trials.length;
    return [...charts.convergence, charts.model].flatMap((chart) => chart.add(fresh));
  }

  private nowPart(data: LiveData): Markup {
    const parts = new Map(partsOf(data));
    const part = (id: string): Markup => html`<div id="${id}">${parts.get(id)}</div>`;
    return html`${data.processes.map((process) => {
      const shown = shownOf(process);
      const series = seriesOfTypes(process.searches.map(({ dtype }) => dtype));
      return html`<article>
${part(tasksId(process))}
${shown.map((search) => html`${subjectHeading(search, series)}\n${part(figuresId(search))}\n${this.chartsPart(search)}\n${part(latestId(search))}`)}
</article>`;
    })}`;
  }

  private chartsPart(search: LiveSearch): Markup | undefined {
    const charts = this.charts.get(search.id);
    if (!charts) return undefined;
    const place = (chart: GrowingChart): Markup => html`<div id="${chart.id}">${chart.markup()}</div>\n`;
    return html`<figure><div class="pair">
${[...charts.convergence, charts.model].map(place)}</div>
<figcaption>Each trial with its 95 % interval, the best so far as a line, failures as crosses at the top; and each trial that worked with what the model said before: on the dashed line the model was right.</figcaption></figure>`;
  }
}

const prefixOf = ({ id }: LiveSearch): string => `r${id.slice(0, 12)}`;
const figuresId = (search: LiveSearch): string => `${prefixOf(search)}-figures`;
const latestId = (search: LiveSearch): string => `${prefixOf(search)}-latest`;
const tasksId = ({ process }: LiveProcess): string => `p${process}-tasks`;

function chartsOf(search: LiveSearch): Charts {
  const { label, dtype, budget } = search;
  const given = { label, series: seriesOfTypes([dtype]).of(dtype) };
  const id = prefixOf(search);
  return {
    drawn: 0,
    convergence: [
      growingConvergence(`${id}-trials`, { ...given, pace: "trials", end: budget.trials }),
      growingConvergence(`${id}-seconds`, { ...given, pace: "seconds", end: budget.seconds }),
    ],
    model: growingPrediction(`${id}-model`, given),
  };
}

const isRunning = ({ status }: LiveSearch): boolean => status === "running";

/** The searches that run, or the last one of a process between two of them. */
function shownOf({ searches }: LiveProcess): readonly LiveSearch[] {
  const running = searches.filter(isRunning);
  return running.length > 0 ? running : searches.slice(-1);
}

const shownIn = ({ processes }: LiveData): readonly LiveSearch[] => processes.flatMap(shownOf);

/** The parts that are put anew when they change, by id. */
function partsOf(data: LiveData): [id: string, markup: Markup][] {
  return [
    ["state", statePart(data)],
    ...data.processes.flatMap((process): [string, Markup][] => [
      [tasksId(process), tasksPart(process, data.now)],
      ...shownOf(process).flatMap((search): [string, Markup][] => [
        [figuresId(search), figures(figuresOf(search, process, data.now))],
        [latestId(search), latestPart(search)],
      ]),
    ]),
  ];
}

// ---- What runs

function statePart(data: LiveData): Markup {
  const { trouble, processes, left } = data;
  const running = shownIn(data).filter(isRunning).length;
  const state =
    trouble ??
    (running > 0
      ? `${counted(running, "search runs", "searches run")} now`
      : processes.length > 0
        ? "Between two searches: the process that made the last one is still at work"
        : "No search runs now; this page shows the next one when it begins");
  return html`<p class="verdict"><strong>${state}.</strong></p>${leftPart(left)}`;
}

/** Most unended searches that are named. */
const MOST_LEFT = 3;

/** Searches that were killed, which no record says. */
export function leftPart(left: readonly LeftSearch[]): Markup | undefined {
  if (left.length === 0) return undefined;
  const more = left.length - MOST_LEFT;
  const because = ({ isImported, process }: LeftSearch): string =>
    isImported
      ? "it was recorded elsewhere"
      : `its process ${process} is not on this machine any more, so it was killed, or it ran in another container`;
  const named = left
    .slice(0, MOST_LEFT)
    .map((search) => `${search.label}, begun ${instant(search.started)} UTC: ${because(search)}`);
  return html`<p>Recorded as running, and not going on: ${[...named, ...(more > 0 ? [`and ${more} more`] : [])].join("; ")}.</p>`;
}

// ---- The figures of one search

function figuresOf(search: LiveSearch, process: LiveProcess, now: number): Figure[] {
  const { best, trials, budget, points, finals } = search;
  const failed = trials.filter(({ seconds }) => seconds === undefined).length;
  const pairs = pairsOf(trials);
  const place = best ? trials.indexOf(best) + 1 : 0;
  return present<Figure>([
    best?.seconds !== undefined && {
      title: finals > 0 ? "best, by its finals" : search.ended === undefined ? "best so far" : "best",
      value: printTime(best.seconds),
      remark: `${best.interval ? `95 % within ${printInterval(...best.interval)}, ` : ""}${place > 0 ? `trial ${place}, ` : ""}${rateText((2 * points) / best.seconds)} op/s`,
    },
    {
      title: "trials",
      value: budget.trials === undefined ? trials.length : `${trials.length} of ${budget.trials}`,
      remark: `${failed === 0 ? "None failed" : `${failed} failed`}. What earlier searches recorded counts too and is not measured again.`,
    },
    { title: "time left", ...timeLeft(search, now) },
    pairs && {
      title: "ordered by the model",
      value: percent(pairs.share),
      remark: `of the pairs among the last ${pairs.trials} trials that worked`,
    },
    { title: "last trial", ...lastTrial(search, process, now) },
  ]);
}

function timeLeft(
  { budget: { seconds }, started, ended, status, finals }: LiveSearch,
  now: number,
): Pick<Figure, "value" | "remark"> {
  if (ended !== undefined) return { value: "none", remark: `It ended after ${span(ended - started)}: ${status}.` };
  if (finals > 0) return { value: "finals", remark: `${counted(finals, "kernel")} measured again, in turns.` };
  const past = now - started;
  if (seconds === undefined) return { value: "not recorded", remark: `It has run for ${span(past)}.` };
  const left = 1000 * seconds - past;
  if (left <= 0) return { value: "time is up", remark: "Finals may decide among the fastest kernels." };
  return {
    value: `at most ${span(left)}`,
    remark: `of ${span(1000 * seconds)} for trials; finals may follow.`,
  };
}

function lastTrial(
  { trials, started }: LiveSearch,
  { life, process }: LiveProcess,
  now: number,
): Pick<Figure, "value" | "remark"> {
  const last = trials.at(-1);
  const remark = {
    lives: `Process ${process} of this machine is at work.`,
    elsewhere: `Trials land, though this user has no process ${process} here: it runs in a container, on another machine, or for another user.`,
  }[life];
  return last
    ? { value: `${span(now - last.at)} ago`, remark }
    : { value: "none yet", remark: `${remark} It began ${span(now - started)} ago.` };
}

/** `40 s`, `12 min 5 s`, of milliseconds */
function span(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 120 ? `${minutes} min ${seconds % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Trials of which pairs are counted: their number grows with the square. */
const MOST_PAIRED = 200;

/** The share of pairs that the model put in the right order; undefined with too few trials. */
function pairsOf(trials: readonly TrialPoint[]): { readonly share: number; readonly trials: number } | undefined {
  const timed = predictedOf(trials.slice(-MOST_PAIRED));
  if (timed.length < FEWEST_PAIRED) return undefined;
  let right = 0;
  let all = 0;
  for (const [i, a] of timed.entries())
    for (const b of timed.slice(i + 1)) {
      all++;
      if (a.measured < b.measured === a.predicted < b.predicted) right++;
    }
  return { share: right / all, trials: timed.length };
}

const FEWEST_PAIRED = 5;

const LATEST = 6;

function latestPart({ trials }: LiveSearch): Markup {
  if (trials.length === 0) return html``;
  const latest = trials.slice(-LATEST);
  return dataTable(
    "The latest trials.",
    trialColumns(latest, trials.length - latest.length + 1),
    latest,
    "scrolled",
    true,
  );
}

// ---- The searches of one process

interface Task {
  /** The last one. */
  readonly search: LiveSearch;
  readonly searches: readonly LiveSearch[];
  /** Spent on it so far. */
  readonly seconds: number;
  /** Steps of a network that it computes. */
  readonly steps: number;
  /** Seconds of a call: of the first kernel that worked, and of the fastest. */
  readonly first: number | undefined;
  readonly best: number | undefined;
}

function taskOf(searches: readonly LiveSearch[], now: number): Task[] {
  const search = searches.at(-1);
  if (!search) return [];
  const times = searches
    .flatMap(({ trials, best }) => [...trials, ...(best ? [best] : [])])
    .flatMap((t) => t.seconds ?? []);
  return [
    {
      search,
      searches,
      seconds: sumOf(searches, ({ started, ended = now }) => (ended - started) / 1000),
      steps: search.network?.steps ?? 1,
      first: times[0],
      best: times.length === 0 ? undefined : endsOf(times).least,
    },
  ];
}

/** Where a process searches for several kernels, as for a network: what each got of its time. */
function tasksPart({ process, machine, searches }: LiveProcess, now: number): Markup {
  const tasks = [...groupsOf(searches, ({ label }) => label).values()].flatMap((same) => taskOf(same, now));
  const network = searches.at(-1)?.network;
  if (tasks.length < 2 && !network) return html``;
  const total = sumOf(tasks, ({ seconds }) => seconds);
  const columns: readonly Column<Task>[] = [
    { title: "task", head: true, cell: ({ search }) => taskName(search) },
    numbers(
      "steps",
      (t) => t.steps,
      undefined,
      () => network !== undefined,
    ),
    numbers("searches", (t) => t.searches.length),
    numbers(
      "time",
      (t) => t.seconds,
      (seconds) => span(1000 * seconds),
    ),
    numbers("share", (t) => (total === 0 ? undefined : t.seconds / total), percent),
    numbers("trials", (t) => sumOf(t.searches, ({ trials }) => trials.length)),
    numbers("first", (t) => t.first, printTime),
    numbers("fastest", (t) => t.best, printTime),
    { title: "state", cell: ({ search }) => (isRunning(search) ? html`<strong>searched now</strong>` : search.status) },
  ];
  return html`<h3>Tasks of ${network?.name ?? `process ${process}`} <small>${machine}</small></h3>
${network && figures(figuresOfNetwork(searches, tasks, now))}
${dataTable("What each task got of the time that this process spent in searches so far. First: the first kernel that worked.", columns, tasks, "cards", true)}`;
}

function figuresOfNetwork(searches: readonly LiveSearch[], tasks: readonly Task[], now: number): Figure[] {
  const newest = searches.at(-1);
  const left = newest?.network ? 1000 * newest.network.seconds - (now - newest.started) : 0;
  const timed = tasks.filter(({ best }) => best !== undefined);
  const first = sumOf(timed, ({ first: seconds = 0, steps }) => seconds * steps);
  const best = sumOf(timed, ({ best: seconds = 0, steps }) => seconds * steps);
  return present<Figure>([
    {
      title: "time left for all tasks",
      value: left > 0 ? `at most ${span(left)}` : "time is up",
      remark: `${counted(tasks.length, "task")} searched so far.`,
    },
    best > 0 && {
      title: "steps of these tasks",
      value: printTime(best),
      remark: `${(first / best).toFixed(2)} times as fast as with the first kernels, which took ${printTime(first)}.`,
    },
  ]);
}

const taskName = ({ name, subject, shape, types }: LiveSearch): Markup =>
  html`<span>${name ?? subject}<small>${[shape, types].join(", ")}</small></span>`;
