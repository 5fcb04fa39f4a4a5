import { describe, expect, it } from "vitest";
import {
  best,
  exportLines,
  importLines,
  labelOf,
  openDatabase,
  queryTrials,
  recordTrial,
  verifyDatabase,
  type Workload,
} from "../../db/index.ts";
import { CONV, measured, newTrial, trial } from "../support/database.ts";

describe("a name", () => {
  const named = { ...CONV, name: "resnet18/layer1.0" };
  const inMemory = (...trials: readonly Workload[]) => {
    const db = openDatabase(":memory:");
    for (const [i, workload] of trials.entries())
      recordTrial(db, newTrial(10 + i, { workload, trial: trial(measured(10 + i), i) }));
    return db;
  };

  it("changes no id where there is none, so that older files and exports stay unchanged", () => {
    const db = inMemory(CONV);
    const lines = [...exportLines(db)];
    expect(lines.join("\n")).not.toContain('"name"');
    // As in the file that was released with schema 1.
    expect(queryTrials(db)[0]?.workload.id).toBe("53f6dc93df7479785e12b064158b51ba");
  });

  it("is exported, imported and merged as a record of its own of the same computation", () => {
    const db = inMemory(named, CONV);
    const other = inMemory();
    expect(importLines(other, exportLines(db))).toMatchObject({ added: { workloads: 2, trials: 2 }, rejected: [] });
    expect(verifyDatabase(other).problems).toEqual([]);
    const label = "resnet18/layer1.0: conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32";
    // Both are one computation, which has one best; whatever record it comes from, it is called by the name.
    expect(best(other, {}, { imported: true }).map((t) => labelOf(t.workload))).toEqual([label]);
    expect(new Set(queryTrials(other).map((t) => labelOf(t.workload)))).toEqual(new Set([label]));
  });

  it.each(["", "two words", "-o", "a\u001b[31m", "x".repeat(81), "naïve"])("is refused when it is %j", (name) => {
    const db = openDatabase(":memory:");
    expect(() => recordTrial(db, newTrial(1, { workload: { ...CONV, name } }))).toThrow(
      /a workload that cannot be recorded/,
    );
    const lines = [...exportLines(inMemory(named))].map((line) =>
      line.replace('"resnet18/layer1.0"', JSON.stringify(name)),
    );
    expect(importLines(openDatabase(":memory:"), lines).rejected[0]?.reason).toMatch(/its field name/);
  });
});
