/** @file `automap tune --target cuda` from the command line to the record, on a machine whose GPU is emulated; and what such records answer. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { openDatabase, queryTrials } from "../db/index.ts";
import { fakeCuda } from "./support/fake-cuda.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-tune-cuda-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const machine = fakeCuda(folder);
const database = join(folder, "t.db");
const SEARCH = `tune matmul --m 16 --n 16 --k 32 --dtype f16 --target cuda --trials 3 --time 300 --db ${database} --json`;

function trialsIn(): ReturnType<typeof queryTrials> {
  const db = openDatabase(database, { readonly: true });
  try {
    return queryTrials(db, { sort: "at" });
  } finally {
    db.close();
  }
}

describe("automap tune --target cuda", () => {
  it("searches, records and decides as on a CPU", async () => {
    const ran = await machine.commandLine(SEARCH);
    expect(ran.err).toContain("matmul m 16 n 16 k 32, f16->f32 on h100");
    expect(ran.code, ran.err).toBe(0);
    const { best, trials } = JSON.parse(ran.out);
    expect(trials).toBe(3);
    expect(best.schedule.tile).toBeDefined();
    const recorded = trialsIn();
    expect(recorded.filter((t) => t.finals === undefined)).toHaveLength(3);
    expect(recorded.some((t) => t.finals?.place === 1)).toBe(true);
    expect(recorded[0]?.environment).toMatchObject({
      target: "h100",
      cpu: "NVIDIA H100 80GB HBM3",
      driver: "580.159.03",
      compiler: { version: "V13.0.88" },
    });
  });

  it("knows what was measured when it is given again", async () => {
    const before = trialsIn().length;
    const ran = await machine.commandLine(SEARCH);
    expect(ran.err).toContain("3 trials, 0 measured now");
    const added = trialsIn().slice(0, -before);
    expect(added.every((t) => t.finals !== undefined)).toBe(true);
  });
});
