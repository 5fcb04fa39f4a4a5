/**
 * @file A worker of a fleet in a process of its own, over a network of its own, which is started again whenever it ends.
 *
 *     const worker = new Supervised("node1", network, (skew) => spawn(process.execPath, [program, ..., String(skew)], ...));
 *     await worker.ready;
 *     worker.signal("SIGKILL");
 */

import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { setTimeout } from "node:timers/promises";
import type { Network } from "./proxy.ts";

/** How a process ends that cannot go on, and is started again by whoever supervises it. */
const ENDS = /no connection to the fleet's server|no space left/;

export class Supervised {
  readonly name: string;
  readonly network: Network;
  /** Resolves when it serves for the first time. */
  readonly ready: Promise<void>;
  /** What it said when it ended of itself. */
  readonly deaths: string[] = [];
  /** Lies that it told. */
  lies = 0;
  /** Milliseconds by which its clock is off from its next start on. */
  skew = 0;
  private readonly begin: (skew: number) => ChildProcess;
  private child: ChildProcess;
  private isStopped = false;
  private tellReady: () => void = () => undefined;

  constructor(name: string, network: Network, begin: (skew: number) => ChildProcess) {
    this.name = name;
    this.network = network;
    this.begin = begin;
    this.ready = new Promise((resolve) => {
      this.tellReady = resolve;
    });
    this.child = this.started();
  }

  private started(): ChildProcess {
    const child = this.begin(this.skew);
    let said = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => (said += text));
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      if (text.includes("ready")) this.tellReady();
      this.lies += text.split("lie").length - 1;
    });
    child.once("exit", (code, signal) => {
      if (this.isStopped) return;
      if (signal !== "SIGKILL" && !ENDS.test(said)) this.deaths.push(`${this.name}: ${code ?? signal}: ${said}`);
      void setTimeout(500).then(() => {
        if (!this.isStopped) this.child = this.started();
      });
    });
    return child;
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  fillDisk(): void {
    if (this.child.connected) this.child.send("full");
  }

  /** Ends it as an operator does. */
  async stop(): Promise<void> {
    this.isStopped = true;
    const { child } = this;
    if (child.exitCode === null && child.signalCode === null) {
      const ended = once(child, "exit").then(() => false);
      child.kill("SIGCONT");
      child.kill("SIGTERM");
      const isLate = await Promise.race([ended, setTimeout(600_000, true, { ref: false })]);
      if (isLate) this.deaths.push(`${this.name} does not end`);
      child.kill("SIGKILL");
    }
    await this.network.close();
  }
}
