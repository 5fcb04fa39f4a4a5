/**
 * @file A temporary folder of one runner, deleted once nothing writes to it any more.
 *
 *     const folder = new OwnFolder("/tmp/runner-1");
 *     void folder.writing(() => writeFile(join(folder.path, "inputs"), bytes));
 *     await folder.remove();                       waits for the file; later writers get an error that measuring was stopped
 */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
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

  /** A new folder inside, and a function that writes a file into it and says where the file is. */
  async inside(): Promise<{
    readonly path: string;
    readonly write: (name: string, bytes: Uint8Array) => Promise<string>;
  }> {
    const path = await this.writing(() => mkdtemp(join(this.path, "reference-")));
    const write = async (name: string, bytes: Uint8Array): Promise<string> => {
      const file = join(path, name);
      await this.writing(() => writeFile(file, bytes));
      return file;
    };
    return { path, write };
  }

  async remove(): Promise<void> {
    this.isLeft = true;
    await Promise.allSettled(this.writers);
    await onThisMachine("deleting what a search wrote", () => rm(this.path, { recursive: true, force: true }));
  }
}
