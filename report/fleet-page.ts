/**
 * @file A fleet on a page that changes: its workers, the queues of their jobs, and what is stuck. Alone, or as a section beside searches.
 *
 *     const page = new FleetPage();
 *     page.update(seen)          changes for those who have the page
 *     page.section(seen)         the section for those who come
 */

import { dataTable, numbers } from "./data-table.ts";
import { type FleetData, type Standing, stuckText, type WorkerFacts } from "./fleet-data.ts";
import { html, type Markup } from "./html.ts";
import type { Patch } from "./live-script.ts";
import { changedIn, type Section, wholePage } from "./page-shell.ts";
import { counted } from "./text.ts";

/** A fleet when it was looked at last. */
export interface FleetSeen {
  readonly version: string;
  readonly data: FleetData;
  /** Why nothing newer is known, as a sentence: the server does not answer. */
  readonly trouble: string | undefined;
}

export class FleetPage {
  /** The parts of the page as they were told last, by id. */
  private readonly told = new Map<string, string>();

  /** @returns what changed since the last call */
  update(seen: FleetSeen): Patch[] {
    return changedIn(partsOf(seen), this.told);
  }

  section(seen: FleetSeen): Section {
    const content = html`${partsOf(seen).map(([id, part]) => html`<div id="${id}">${part}</div>\n`)}`;
    return { id: "fleet", name: "Fleet", content };
  }

  /** A page of the fleet alone. @param events where it hears of changes */
  text(seen: FleetSeen, events: string): string {
    const about = html`<p>The fleet at ${seen.data.server}, followed by automap ${seen.version}.</p>`;
    return wholePage({ title: "automap watch", about, events, sections: [this.section(seen)] });
  }
}

/** The parts that are put anew when they change, by id. */
const partsOf = (seen: FleetSeen): readonly [id: string, markup: Markup][] => [
  ["fleet-state", statePart(seen)],
  ["fleet-workers", workersPart(seen.data)],
  ["fleet-queues", queuesPart(seen.data)],
];

function statePart({ data, trouble }: FleetSeen): Markup {
  const { server, workers, queues } = data;
  const measuring = workers.filter(({ measures }) => measures).length;
  const there =
    workers.length === 0
      ? `No worker of this fleet is at ${server}`
      : `${counted(workers.length, "worker is", "workers are")} at ${server}, ${measuring} of them to measure`;
  const stuck = queues.flatMap((queue) => stuckText(queue) ?? []);
  return html`<p class="verdict"><strong>${trouble ?? there}.</strong></p>
${stuck.map((text) => html`<p><strong>Stuck:</strong> ${text}.</p>\n`)}`;
}

function workersPart({ workers }: FleetData): Markup {
  if (workers.length === 0) return html``;
  return dataTable<WorkerFacts>(
    "Workers that said within the last minute that they are there.",
    [
      { title: "worker", head: true, cell: ({ name }) => name },
      { title: "measures on", cell: ({ measures, target }) => (measures ? target : "nothing") },
      numbers("compiles at once", ({ compiles }) => compiles),
      { title: "compiler", cell: ({ compiler }) => compiler },
      { title: "environment", cell: ({ environment }) => html`<code>${environment.slice(0, 12)}</code>` },
    ],
    workers,
    "cards",
    true,
  );
}

function queuesPart({ queues }: FleetData): Markup {
  if (queues.length === 0) return html``;
  return dataTable<Standing>(
    "Jobs of the environments and of the compilers: those that no worker has begun, those that are worked at, and those that ended within the last minute, two hundred at most. Longest: since the job was begun that has been worked at longest.",
    [
      { title: "jobs to", head: true, cell: ({ task, of }) => `${task}, ${of}` },
      numbers("workers", ({ workers }) => workers.length),
      numbers("waiting", ({ waiting }) => waiting),
      numbers("worked at", ({ active }) => active),
      numbers("last minute", ({ lastMinute }) => lastMinute),
      numbers(
        "longest",
        ({ longest }) => longest,
        (seconds) => `${Math.round(seconds)} s`,
      ),
    ],
    queues,
    "cards",
    true,
  );
}
