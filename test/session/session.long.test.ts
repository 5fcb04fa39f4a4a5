/** A small session on this machine: searched, verified, measured, recorded and resumed. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { defineIntrinsic } from "../../abstraction/intrinsic.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { registerIntrinsic } from "../../intrinsics/register.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { hasFeature, nativeTarget } from "../../targets/index.ts";
import type { TuneEvent } from "../../tuner/search.ts";
import { withCalibration } from "../support/fake-runner.ts";
import { compilerHere } from "../support/here.ts";
import { operation, stated } from "../support/subjects.ts";

const matmul = operation("matmul m=32 n=32 k=32");
let folder: string;
/** A database of its own that takes the machine as calibrated: the first session calibrates it, which is enough. */
let calibrated: (name: string) => string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "automap session "));
  const compiler = await compilerHere();
  calibrated = (name) => withCalibration(join(folder, `${name}.db`), compiler);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("a session", () => {
  it.each(["mappings", "lanes"] as const)(
    "ends with a verified kernel, and continues from its database without measuring any of its %s twice",
    async (kinds) => {
      const database = kinds === "mappings" ? join(folder, "new.db") : calibrated(kinds);
      const options = { trials: 3, seconds: 60, seed: 5, database, kinds };
      const first = await tuneComputation({ computation: matmul }, options);
      if (!("best" in first) || !first.best) throw new Error(`no kernel: ${first.status}`);
      expect(first.best.measurement.instructions).toBeGreaterThan(0);
      expect(first.best.kernel.source).toContain('extern "C" void automap_run');

      const events: TuneEvent<Candidate>[] = [];
      const again = await tuneComputation({ computation: matmul }, { ...options, onEvent: (e) => events.push(e) });
      expect(events.find((e) => e.kind === "stop")).toMatchObject({ trials: first.trials.length, measured: 0 });
      if (!("trials" in again)) throw new Error(again.status);
      expect(again.trials.map((t) => t.key)).toEqual(first.trials.map((t) => t.key));

      const db = openDatabase(database, { readonly: true });
      const recorded = queryTrials(db, { operator: "matmul" });
      expect(recorded.filter((t) => t.finals === undefined)).toHaveLength(first.trials.length);
      // Each says on which processor it ran, and how much of that others had.
      for (const { conditions } of recorded)
        expect(conditions).toMatchObject({ affinity: [expect.any(Number)], load: expect.any(Number) });
      db.close();
    },
  );

  it.each(["an instruction of one's own", "one that promises nothing"])("tunes with %s", async (kind) => {
    const declared = defineIntrinsic({
      name: kind.startsWith("an") ? "mine.fma" : "mine.plain",
      family: "mine",
      isa: hasFeature(nativeTarget(), "fma") ? "fma" : "portable",
      language: "c++",
      summary: "Eight f32 multiply-adds with one factor common to all lanes.",
      compute: "c[n] += a[] * b[n]",
      extents: { n: 8 },
      operands: {
        a: { dtype: "f32", storage: "vec[n]", load: "{reg} = *(const float*)({ptr}) - (lanes<float, 8>){};" },
        b: { dtype: "f32", storage: "vec[n]" },
        c: { dtype: "f32", storage: "vec[n]" },
      },
      prelude: "template <class T, int N> using lanes __attribute__((vector_size(N * sizeof(T)))) = T;\n",
      emit: "{c} += {a} * {b};",
      ...(kind.startsWith("an") && hasFeature(nativeTarget(), "fma") ? { mnemonic: "vmulps" } : {}),
      source: "no manual: what the compiler makes of it",
    });
    const own = registerIntrinsic(declared);
    const outcome = await tuneComputation(
      { computation: matmul },
      { intrinsics: [own], trials: 2, seconds: 60, database: calibrated(kind), kinds: "mappings" },
    );
    expect(outcome).toMatchObject({ best: { measurement: { status: "ok" }, kernel: { promises: own.mnemonic } } });
    if (own.mnemonic !== undefined && "best" in outcome)
      expect(outcome.best?.measurement.instructions).toBeGreaterThan(0);
  });

  it("stops at a signal with the best so far", async () => {
    const controller = new AbortController();
    const outcome = await tuneComputation(
      { computation: matmul },
      {
        trials: 500,
        seconds: 60,
        database: calibrated("stopped"),
        signal: controller.signal,
        onEvent: (e) => e.kind === "trial" && controller.abort(),
      },
    );
    expect(outcome.status).toBe("interrupted");
    expect("best" in outcome && outcome.best).toBeTruthy();
  });

  it("ranks by the model alone, the shortest predicted time first", () => {
    const ranked = rankByModel(matmul, { count: 5 });
    if ("refused" in ranked) throw new Error("nothing maps");
    const seconds = ranked.map((r) => r.prediction.seconds);
    expect(seconds).toHaveLength(5);
    expect(seconds).toEqual([...seconds].sort((a, b) => a - b));
  });

  it("searches designs on lanes where an input is read through a window, or on request", () => {
    const windows = stated("out[i] += x[i+r] * w[r] --i 512 --r 5 --name blur");
    const kindsOf = (computation: Computation, kinds?: "all" | "lanes"): string[] => {
      const ranked = rankByModel(computation, { count: 400, ...(kinds ? { kinds } : {}) });
      if ("refused" in ranked) throw new Error("nothing maps");
      return [...new Set(ranked.map((r) => r.candidate.kind))];
    };
    expect(kindsOf(matmul)).toEqual(["mapping"]);
    expect(kindsOf(matmul, "lanes").toSorted()).toEqual(["design", "window"]);
    expect(kindsOf(windows)).toContain("window");
  });

  it("says why nothing maps", async () => {
    const saturated = stated("y[i] sat+= x[i,j] --i 8 --j 8 --dtype s16 --name saturated");
    const outcome = await tuneComputation({ computation: saturated }, { database: calibrated("sums"), seconds: 5 });
    if (!("refused" in outcome)) throw new Error(outcome.status);
    expect(outcome.status).toBe("nothing-maps");
    expect(outcome.refused.find(({ rule }) => rule === "loops")?.because).toContain("saturates once, after all points");
  });
});
