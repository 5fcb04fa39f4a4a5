/**
 * @file Follows a fleet for a page that changes: looks every two seconds at its workers and their queues.
 *
 *     const watch = await FleetWatch.begin(server, fleet);
 *     watch.look()              what changed on the page
 *     watch.page("events")      the page as it is now
 */

import type { Queue } from "bullmq";
import { remembered } from "../abstraction/collections.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import type { FleetData } from "../report/fleet-data.ts";
import { FleetPage, type FleetSeen } from "../report/fleet-page.ts";
import type { Patch } from "../report/live-script.ts";
import type { Section } from "../report/page-shell.ts";
import { VERSION } from "../session/version.ts";
import type { Beside } from "../session/watch/watch.ts";
import { connectionProblem } from "./connection.ts";
import type { Fleet } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { fleetData } from "./standing.ts";

/** Milliseconds between two looks at the server. */
const AGAIN_MS = 2000;

export class FleetWatch implements Beside {
  private readonly server: FleetServer;
  private readonly fleet: Fleet;
  private readonly queues = new Map<string, Queue>();
  private readonly shown = new FleetPage();
  private readonly timer: NodeJS.Timeout;
  private isLooking = false;
  /** Whether the server was looked at since the last look of a page. */
  private isNew = false;
  private data: FleetData;
  private trouble: string | undefined;

  private constructor(server: FleetServer, fleet: Fleet, againMs: number) {
    this.server = server;
    this.fleet = fleet;
    this.data = { server: server.address.text, workers: [], queues: [] };
    this.timer = setInterval(() => void this.ask(), againMs);
  }

  /** @returns once it has looked for the first time */
  static async begin(server: FleetServer, fleet: Fleet, againMs = AGAIN_MS): Promise<FleetWatch> {
    const watch = new FleetWatch(server, fleet, againMs);
    await watch.ask();
    return watch;
  }

  look(): readonly Patch[] {
    if (!this.isNew) return [];
    this.isNew = false;
    return this.shown.update(this.seen());
  }

  section(): Section {
    return this.shown.section(this.seen());
  }

  page(events: string): string {
    return this.shown.text(this.seen(), events);
  }

  close(): void {
    clearInterval(this.timer);
  }

  private seen(): FleetSeen {
    return { version: VERSION, data: this.data, trouble: this.trouble };
  }

  /** Looks at the server, unless it has not answered the last time yet. */
  private async ask(): Promise<void> {
    if (this.isLooking) return;
    this.isLooking = true;
    try {
      const { server, queues } = this;
      const queueNamed = (name: string): Queue => remembered(queues, name, () => server.queue(name));
      this.data = await fleetData(server, this.fleet, queueNamed);
      this.trouble = undefined;
    } catch (error) {
      const problem =
        error instanceof EnvironmentError ? error.problem : connectionProblem(this.server.address, error, true);
      const { what, why } = problem;
      this.trouble = `${what}: ${why}; this page shows what was there before`;
    } finally {
      this.isLooking = false;
      this.isNew = true;
    }
  }
}
