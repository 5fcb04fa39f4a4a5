/**
 * @file A folder for one runner, deleted once nothing writes to it any more.
 *
 *     const folder = new OwnFolder("/tmp/runner-1");
 *     void folder.writing(() => writeFile(join(folder.path, "inputs"), bytes));
 *     await folder.remove();                       waits for the file; later writers get an error that measuring was stopped
 */

import { rm } from "node:fs/promises";
import { onThisMachine } from "./environment.ts";
import { STOPPED } from "./harness/run.ts";

export class OwnFolder {
  readonly path: string;
  private readonly writers = new Set<Promise<unknown>>();
  private isLeft = false;

  constructor(path: string) {
    this.path = path;
  }

  /** Runs work that writes into the folder. Once the folder is to be deleted, it is rejected without running. */
  async writing<T>(work: () => Promise<T>): Promise<T> {
    if (this.isLeft) throw new Error(STOPPED);
    const writer = work();
    this.writers.add(writer);
    try {
      return await writer;
    } finally {
      this.writers.delete(writer);
    }
  }

  async remove(): Promise<void> {
    this.isLeft = true;
    await Promise.allSettled(this.writers);
    await onThisMachine("deleting what a search wrote", () => rm(this.path, { recursive: true, force: true }));
  }
}
