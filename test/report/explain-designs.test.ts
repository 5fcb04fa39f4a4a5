/**
 * @file Why a design on lanes wins, from records: the cost of each dataflow; a record of a transform reads back
 * unchanged.
 */

import { afterAll, describe, expect, it } from "vitest";
import { candidateKey, type DesignCandidate } from "../../abstraction/candidate.ts";
import { finished } from "../../abstraction/steps.ts";
import { type Conditions, exportLines, importLines, openDatabase, recordTrial, showTrial } from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { explainTrial } from "../../session/report/explain.ts";
import { describeDesigns } from "../../session/report/explain-designs.ts";
import { nativeTarget } from "../../targets/index.ts";
import { arraySpaceOf, bestOfEach } from "../../tuner/array-candidates.ts";
import { MACHINE, measured, newTrial, trial, workloadNamed, workshop } from "../support/database.ts";

const { path, remove } = workshop();
afterAll(remove);

describe("explain of a record of a design on lanes", () => {
  const workload = workloadNamed("conv1d-single", { l: 890, r: 5 });
  const space = finished(arraySpaceOf(workload.computation, { threads: 1, target: modelTarget(nativeTarget()) }));
  if ("rule" in space) throw new Error(space.because);
  const db = openDatabase(path("designs.db"));
  const intrinsic = intrinsicNamed("avx512.fma.f32");
  if (!intrinsic) throw new Error("no multiply-add");
  const named = ["FBS", "SBM", "BSM"] as const;
  const ids = named.map((dataflow, i) => {
    const best = bestOfEach(space).find((b) => b.design.dataflow === dataflow);
    if (!best) throw new Error(`no ${dataflow}`);
    const tried: DesignCandidate = { kind: "design", intrinsic: intrinsic.name, schedule: best.schedule };
    const time = measured(1 + i);
    const id = recordTrial(
      db,
      newTrial(1, { workload, intrinsic, environment: MACHINE, trial: trial(time, undefined, tried) }),
    );
    expect(candidateKey(showTrial(db, id).candidate)).toBe(candidateKey(tried));
    return id;
  });

  it("names the cost of each dataflow, measured where it was measured, and the reason for the choice", () => {
    const explained = explainTrial(db, showTrial(db, ids[0] ?? ""));
    if (explained.status !== "designs") throw new Error(explained.status);
    const { dataflow, designs } = explained;
    expect(dataflow).toBe("FBS");
    expect(explained.predicted).toBeGreaterThan(0);
    expect(designs.map((d) => d.dataflow)).toEqual(
      expect.arrayContaining(["SBM", "BSM", "FSM", "BFS", "FFS", "FBS", "FSA", "SFA"]),
    );
    const [fbs, sbm, bsm, ffs] = ["FBS", "SBM", "BSM", "FFS"].map((name) => designs.find((d) => d.dataflow === name));
    expect([fbs, sbm, bsm, ffs].map((d) => d?.measured)).toEqual([1e-6, 2e-6, 3e-6, undefined]);
    const shifts = (d: typeof fbs): number => d?.parts.find(({ name }) => name === "shifts")?.seconds ?? Number.NaN;
    expect(shifts(sbm)).toBeGreaterThan(shifts(fbs));
    expect(Math.max(fbs?.predicted ?? 1, sbm?.predicted ?? 1)).toBeLessThan(ffs?.predicted ?? 0);
    const text = describeDesigns(explained);
    expect(text).toMatch(/^FBS +\S+ ns +1 us/m);
    expect(text).toMatch(/^FBS is bound by \S+; SBM would take 1\.\d\d times its time, bound by /m);
    expect(text).toMatch(/Alone, the parts of FBS would take [\d.]+ \S+ of \w+.*; those of SBM [\d.]+ \S+ of \w+/);
  });

  it("compares a record only with trials under its conditions and of its provenance", () => {
    const [{ candidate: tried, environment } = showTrial(db, "")] = ids.map((id) => showTrial(db, id));
    if (tried.kind !== "design") throw new Error("no design");
    const add = (microseconds: number, conditions: Conditions, to = db): string =>
      recordTrial(
        to,
        newTrial(1, {
          workload,
          intrinsic,
          environment: MACHINE,
          conditions,
          trial: trial(measured(microseconds), undefined, {
            ...tried,
            schedule: { ...tried.schedule, threads: conditions.threads },
          }),
        }),
      );
    const fbs = (id: string): number | undefined => {
      const explained = explainTrial(db, showTrial(db, id));
      if (explained.status !== "designs") throw new Error(explained.status);
      return explained.designs.find((d) => d.dataflow === "FBS")?.measured;
    };
    const elsewhere = openDatabase(path("elsewhere.db"));
    add(0.25, { threads: 1, cache: "warm" }, elsewhere);
    expect(importLines(db, exportLines(elsewhere))).toMatchObject({ added: { trials: 1 }, rejected: [] });
    elsewhere.close();
    const two = add(0.5, { threads: 2, cache: "warm" });
    const flushed = add(4, { threads: 1, cache: "flushed" });
    expect(environment.id).toBe(showTrial(db, two).environment.id);
    expect([ids[0] ?? "", two, flushed].map(fbs)).toEqual([1e-6, 0.5e-6, 4e-6]);
  });
});
