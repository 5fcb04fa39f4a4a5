/**
 * @file Follows a database that other processes write: the searches that run now as a page that changes, and once none runs the report of all.
 *
 *     const watch = new Watch("automap.db");
 *     watch.look()              what changed since the last look: patches of the page, or that it is another page now
 *     watch.page("events")      the page as it is now
 */

import { z } from "zod";
import { groupsOf, sortedBy } from "../../abstraction/collections.ts";
import { MachineFault, NotFoundError, UsageError } from "../../abstraction/error.ts";
import {
  type Database,
  DatabaseError,
  Following,
  fileAt,
  labelOf,
  type News,
  openDatabase,
  type RunRecord,
  type TrialRecord,
  wordsOf,
} from "../../db/index.ts";
import { html } from "../../report/html.ts";
import type { LeftSearch, LiveData, LiveProcess, LiveSearch } from "../../report/live-data.ts";
import { LivePage, leftPart } from "../../report/live-page.ts";
import type { Patch } from "../../report/live-script.ts";
import { reportPage } from "../../report/page.ts";
import type { Section } from "../../report/page-shell.ts";
import type { ReportData, TrialPoint } from "../../report/report-data.ts";
import { gatherReport, pointFrom } from "../report/report.ts";
import { isSearched } from "../report/report-trials.ts";
import { VERSION } from "../version.ts";
import { beginningOf } from "./life.ts";

/** So long after its last search a process may begin the next one: those of a network prepare for seconds. */
const PAUSE_MS = 60_000;
/** Searches that began so long ago are not followed. */
const OLD_MS = 7 * 24 * 60 * 60 * 1000;
/** How long a look waits for other programs, as for one that closes the file. Nothing is served meanwhile. */
const PATIENCE_MS = 50;
/** By so much a process may seem to have begun after its search: the system counts its beginning in seconds. */
const INEXACT_MS = 2000;
/** A search whose process is not seen here goes on for so long after a trial of it landed. */
const SILENT_MS = 30_000;

/** A search that is followed. */
interface Followed {
  readonly words: Pick<LiveSearch, "label" | "name" | "subject" | "shape" | "types" | "dtype" | "layout" | "epilogue">;
  readonly trials: TrialPoint[];
  run: RunRecord;
  finals: number;
  /** The winner of its finals, or before them its fastest trial. */
  best: TrialPoint | undefined;
  /** When a trial of it landed last, milliseconds since 1970. */
  landed: number;
}

/** A section beside the searches, or below the report, which changes by itself. */
export interface Beside {
  /** What changed in it since the last call. */
  readonly look: () => readonly Patch[];
  readonly section: () => Section;
}

interface WatchOptions {
  readonly clock?: () => number;
  readonly beside?: Beside | undefined;
}

export class Watch {
  private readonly path: string;
  private readonly clock: () => number;
  private readonly beside: Beside | undefined;
  private readonly followed = new Map<string, Followed>();
  private db: Database | undefined;
  private following: Following | undefined;
  private file: string | undefined;
  private isBehind = false;
  private fault: string | undefined;
  private live: LivePage | undefined;
  /** The report, until something changes. */
  private report: ReportData | undefined;

  /**
   * A file that is not there yet, or is locked, is waited for.
   * @throws UsageError when it is not automap's, DatabaseError when it cannot be read
   */
  constructor(path: string, { clock = Date.now, beside }: WatchOptions = {}) {
    this.path = path;
    this.clock = clock;
    this.beside = beside;
    this.follow(() => this.open(), isPassing);
    this.turn(this.data());
  }

  /** Why nothing is shown, or nothing new, as a sentence. */
  get trouble(): string | undefined {
    return this.fault;
  }

  /** Looks at the database. @returns what changed on the page, or that another page is there now */
  look(): readonly Patch[] | "reload" {
    const isChanged = this.follow(
      () => this.read(),
      () => true,
    );
    if (isChanged) this.report = undefined;
    const before = this.live;
    const data = this.data();
    this.turn(data);
    if (this.live !== before || (!this.live && isChanged)) return "reload";
    return [...(this.live?.update(data) ?? []), ...(this.beside?.look() ?? [])];
  }

  /** The page as it is now: searches that run, or the report of all that is recorded. @param events where it hears of changes */
  page(events: string): string {
    const data = this.data();
    const { db, live } = this;
    const beside = this.beside?.section();
    if (live || !db) return (live ?? new LivePage()).text(data, events, beside);
    const says = html`\n<p>No search runs now; this page shows the next one when it begins.</p>\n${leftPart(data.left)}`;
    try {
      this.report ??= gatherReport(db, {}, data.now);
      return reportPage(this.report, { events, says, beside });
    } catch (error) {
      return new LivePage().text({ ...data, trouble: sentenceOf(error) }, events, beside);
    }
  }

  close(): void {
    this.db?.close();
    this.db = undefined;
  }

  // ---- The file

  /** Reads, and keeps as trouble what keeps it from that. @param isTold which faults are kept, rather than thrown */
  private follow(work: () => boolean, isTold: (error: unknown) => boolean): boolean {
    try {
      const isNew = work() || this.fault !== undefined;
      this.fault = undefined;
      return isNew;
    } catch (error) {
      const sentence = sentenceOf(error);
      if (!isTold(error)) throw error;
      const isNew = this.fault !== sentence;
      this.fault = sentence;
      return isNew;
    }
  }

  /** Opens the file as it is now. What it held before is forgotten. */
  private open(): true {
    this.close();
    this.followed.clear();
    this.file = fileAt(this.path);
    const db = openDatabase(this.path, { readonly: true, patience: PATIENCE_MS });
    this.db = db;
    this.following = new Following(db);
    this.following.changed();
    const now = this.clock();
    this.take(this.following.searches(now - PAUSE_MS, now - OLD_MS), (trial) => Math.min(trial.at, now));
    return true;
  }

  /** @returns whether anything is new */
  private read(): boolean {
    if (!this.db || !this.following || fileAt(this.path) !== this.file) return this.open();
    if (!this.following.changed() && !this.isBehind) return false;
    // What cannot be read now is read at the next look.
    this.isBehind = true;
    const unended = [...this.followed.values()].filter(isRunning);
    const news = this.following.news(unended.map(({ run }) => run.id));
    const now = this.clock();
    this.take(news, () => now);
    this.isBehind = news.isMore;
    return true;
  }

  /** @param landed when a trial did */
  private take({ runs, trials }: Omit<News, "isMore">, landed: (trial: TrialRecord) => number): void {
    for (const run of runs) {
      const known = this.followed.get(run.id);
      if (known) known.run = run;
      else this.followed.set(run.id, followedOf(run));
    }
    for (const trial of trials) {
      const search = this.followed.get(trial.run ?? "");
      if (!search) continue;
      const point = pointFrom(trial, new Map([[search.run.id, search.run.started]]));
      const { finals } = trial;
      search.landed = landed(trial);
      if (finals) search.finals++;
      if (isSearched(trial)) search.trials.push(point);
      const isFaster = (point.seconds ?? Number.POSITIVE_INFINITY) < (search.best?.seconds ?? Number.POSITIVE_INFINITY);
      if (finals ? finals.place === 1 : isFaster) search.best = point;
    }
  }

  // ---- What runs

  /** Shows the searches that run, or the report if none does. */
  private turn(data: LiveData): void {
    if (data.trouble === undefined && data.processes.length === 0) {
      this.live = undefined;
      return;
    }
    if (this.live) return;
    this.live = new LivePage();
    this.live.update(data);
  }

  private data(): LiveData {
    const now = this.clock();
    const processes = [...groupsOf(this.followed.values(), ({ run }) => run.process)].flatMap(([process, searches]) =>
      processOf(process, searches, now),
    );
    const going = new Set(processes.flatMap(({ searches }) => searches.map(({ id }) => id)));
    const left = sortedBy(
      [...this.followed.values()].filter((search) => isRunning(search) && !going.has(search.run.id)).map(leftOf),
      (a) => -a.started,
    );
    return { source: this.path, version: VERSION, now, trouble: this.fault, processes, left };
  }
}

/** Whether a fault passes by itself: the file comes, or another program lets it go. */
const isPassing = (error: unknown): boolean =>
  error instanceof NotFoundError || (error instanceof DatabaseError && error.reason === "locked");

/** What a fault of the file says first. @throws errors that are not */
function sentenceOf(error: unknown): string {
  if (!(error instanceof UsageError || error instanceof MachineFault)) throw error;
  const [sentence = ""] = error.message.split("\n", 1);
  return sentence;
}

const isRunning = ({ run }: Followed): boolean => run.status === "running";

function followedOf(run: RunRecord): Followed {
  const { workload } = run;
  const { subject, shape, types, layout, epilogue } = wordsOf(workload);
  const { name, dtype } = workload;
  const words = { label: labelOf(workload), name, subject, shape, types, dtype, layout, epilogue };
  return { words, trials: [], run, finals: 0, best: undefined, landed: 0 };
}

/** A process that searches; none if it does not. */
function processOf(process: number, searches: readonly Followed[], now: number): LiveProcess[] {
  const begun = beginningOf(process) ?? Number.POSITIVE_INFINITY;
  const own = searches.filter(({ run }) => run.provenance === "here" && begun <= run.started + INEXACT_MS);
  const isAtWork = own.some((search) => isRunning(search) || (search.run.ended ?? 0) > now - PAUSE_MS);
  const elsewhere = searches.filter((search) => isRunning(search) && search.landed > now - SILENT_MS);
  const shown = isAtWork ? own : elsewhere;
  const [first] = shown;
  if (!first) return [];
  const { cpu, automap } = first.run.environment;
  const life = isAtWork ? "lives" : "elsewhere";
  return [{ process, life, machine: `${cpu}, automap ${automap}`, searches: shown.map(liveOf) }];
}

function liveOf({ words, run, trials, finals, best }: Followed): LiveSearch {
  const { id, started, ended, status, budget, options, workload } = run;
  return {
    ...words,
    id,
    started,
    ended,
    status,
    // Records of earlier versions say what was asked for, and not what preparing left of it.
    budget: { trials: numberIn(budget, "trials"), seconds: numberIn(budget, "left") ?? numberIn(budget, "seconds") },
    network: networkSchema.safeParse(budget["network"]).data,
    threads: numberIn(options, "threads") ?? 1,
    points: workload.points,
    trials,
    finals,
    best,
  };
}

const networkSchema = z.object({ name: z.string(), steps: z.int().positive(), seconds: z.number() });

const leftOf = ({ run, words }: Followed): LeftSearch => ({
  id: run.id,
  label: words.label,
  started: run.started,
  process: run.process,
  isImported: run.provenance === "imported",
});

function numberIn(given: Readonly<Record<string, unknown>>, name: string): number | undefined {
  const value = given[name];
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? value : undefined;
}
