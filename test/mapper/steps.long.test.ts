/**
 * @file Work in steps: cut after a number of steps, it gives the same at once and in slices, as does the enumeration of
 * mappings.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { finished, inSlices, type Steps } from "../../abstraction/steps.ts";
import { openDatabase, runsIn } from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { mappings, validMappings } from "../../mapper/match/enumerate.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { type TuneComputationOptions, tuneComputation } from "../../session/tune/tune.ts";
import { candidateSpace } from "../../tuner/candidates.ts";
import { rankMappings } from "../../tuner/mapping-space.ts";
import { CONV, workloadNamed } from "../support/database.ts";
import { fakeRunner, shareOf, took, withCalibration } from "../support/fake-runner.ts";
import { stated } from "../support/subjects.ts";

/** Counts to so many, or to where it is told to stop; each step takes so long. */
function* count(to: number, milliseconds = 0): Steps<number> {
  for (let done = 1; done <= to; done++) {
    for (const until = performance.now() + milliseconds; performance.now() < until; );
    if (yield { what: "numbers", done, of: to }) return done;
  }
  return to;
}

describe("work in steps", () => {
  it("runs to its end, or for as many steps as it is given", () => {
    expect(finished(count(5))).toBe(5);
    expect([1, 3, 5, 9].map((most) => finished(count(5), most))).toEqual([1, 3, 5, 5]);
  });

  it("is cut between slices, and reports after how many steps", async () => {
    const told: number[] = [];
    const { value, cut } = await inSlices(count(100, 10), {
      isEnough: () => told.length > 1,
      onSlice: ({ done }) => told.push(done),
    });
    expect(cut).toMatchObject({ after: told[1], at: { what: "numbers", done: told[1], of: 100 } });
    expect(finished(count(100), cut?.after)).toBe(value);
  });

  it("is not cut when it ends before", async () => {
    expect(await inSlices(count(3), { isEnough: () => true })).toEqual({ value: 3, cut: undefined });
  });

  it("is abandoned between slices by a signal, and lets other events run", async () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(new Error("enough")), 20);
    const work = inSlices(count(100_000, 1), { isEnough: () => false, signal: controller.signal });
    await expect(work).rejects.toThrow("enough");
  });
});

describe("enumeration", () => {
  const folder = mkdtempSync(join(tmpdir(), "automap-steps-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  afterEach(() => {
    vi.restoreAllMocks();
  });
  let compiler: Compiler;
  beforeAll(async () => {
    const found = await findCompiler();
    if (found.status === "environment") throw new Error(found.what);
    compiler = found;
  });
  const loops = [..."abdefghijklmnop"];
  const product = defineComputation({
    equation: "c[a,b,d,e,f,g,h,i,j,k] += x[a,b,d,e,f,l,m,n,o,p] * y[g,h,i,j,k,l,m,n,o,p]",
    extents: Object.fromEntries(loops.map((name) => [name, 2])),
    tensors: { x: "f32", y: "f32" },
  });
  const search = (name: string, options: TuneComputationOptions) => {
    const time = fakeRunner(compiler, {
      alone: (kernel) => took(1e-6 * (1 + shareOf(kernel))),
      inTurns: (kernels) => kernels.map((kernel) => took(1e-6 * (1 + shareOf(kernel)))),
    });
    const database = withCalibration(join(folder, name), compiler);
    return tuneComputation({ computation: product }, { database, runner: time, trials: 9, within: 3600, ...options });
  };

  it("is cut when the time is up, says so, and is cut at the same step in a replay", async () => {
    const clock = Date.now;
    let late = 0;
    vi.spyOn(Date, "now").mockImplementation(() => clock() + late);
    const notices: string[] = [];
    const outcome = await search("cut.db", {
      onNotice: (text) => notices.push(text),
      onEvent: (event) => {
        if (event.kind !== "phase") return;
        if (event.phase === "enumerating" && event.at) late = 3_600_000;
        if (event.phase === "drawing") late = 0;
      },
    });
    expect(outcome).toMatchObject({ enumerationCut: { done: expect.any(Number), what: expect.any(String) } });
    expect(notices.join("\n")).toMatch(/enumeration was cut short by the time: \d+ of \d+/);
    const db = openDatabase(join(folder, "cut.db"), { readonly: true });
    const [listed] = runsIn(db);
    const replayed = await replayRun(db, listed?.run.id ?? "none");
    db.close();
    expect(replayed.run.options).toMatchObject({ enumerationCut: expect.any(Number) });
    expect(replayed.divergence).toBeUndefined();
    expect(replayed.trials.length).toBe(9);
  });

  it("on one instruction takes as many steps the second time, and gives the same when it is cut at a step", () => {
    const [row] = intrinsicsNamed("amx.tdpbf16ps");
    if (!row) throw new Error("no instruction");
    const narrow = () =>
      stated(
        "c[a,b,d,e,f,g,h] += f32(x[a,b,d,e,l,m,n,o]) * f32(y[f,g,h,l,m,n,o]) --a 2 --b 2 --d 2 --e 2 --f 2 --g 2 --h 2 --l 2 --m 2 --n 2 --o 2 --dtype bf16",
      );
    const texts = (computation: Computation, most?: number) =>
      finished(validMappings(computation, row), most).map((m) => printMatching(m.matching));
    const stepsOf = (computation: Computation): string[] => {
      const steps: string[] = [];
      const work = validMappings(computation, row);
      for (let next = work.next(false); !next.done; next = work.next(false)) steps.push(JSON.stringify(next.value));
      return steps;
    };
    const judged = narrow();
    const steps = stepsOf(judged);
    expect(steps.length).toBeGreaterThan(5);
    expect(stepsOf(judged)).toEqual(steps);
    for (const most of [1, 5, steps.length - 1, undefined]) expect(texts(judged, most)).toEqual(texts(narrow(), most));
    expect(texts(judged, 1).length).toBeLessThan(texts(judged).length);
    // A search that has time ranks all of them.
    const rows = [...intrinsicsNamed("avx512.vdpbf16ps"), row];
    const counts = rows.map((one) => finished(validMappings(judged, one)).length);
    const ranked = (most?: number) =>
      finished(
        rankMappings(
          judged,
          rows,
          (mapping) => [mapping],
          (mapping) => ({ mapping }),
          () => 1,
          Number.POSITIVE_INFINITY,
        ),
        most,
      );
    // One that has not looks at the instruction first that does most.
    expect(new Set(ranked(1).map((one) => "context" in one && one.context.mapping.intrinsic.name))).toEqual(
      new Set([row.name]),
    );
    expect(ranked().length).toBe(counts.reduce((sum, count) => sum + count));
    expect(Math.min(...counts)).toBeGreaterThan(64);
  });

  it("of designs on lanes hears a signal between steps, and gives as many when it is cut at a step again", async () => {
    const designs = (operator = "conv1d-single") =>
      sessionSpace(workloadNamed(operator).computation, {
        intrinsics: intrinsicsNamed("avx512.fma.f32"),
        calibration: undefined,
        threads: 1,
        seed: 1,
        kinds: "lanes",
      });
    const steps: string[] = [];
    const work = designs();
    for (let next = work.next(false); !next.done; next = work.next(false)) steps.push(next.value.what);
    expect(new Set(steps)).toEqual(new Set(["designs", "designs side by side"]));
    const controller = new AbortController();
    const onSlice = () => controller.abort(new Error("enough"));
    await expect(
      inSlices(designs("conv2d-single"), { isEnough: () => false, signal: controller.signal, onSlice }),
    ).rejects.toThrow("enough");
    const sizes = [1, steps.length - 1, undefined].map((most) => {
      const one = finished(designs(), most);
      const again = finished(designs(), most);
      if (isRefusals(one) || isRefusals(again)) throw new Error("no design");
      expect(again.size).toBe(one.size);
      return one.size ?? 0;
    });
    expect(sizes).toEqual(sizes.toSorted((a, b) => a - b));
    expect(new Set(sizes).size).toBeGreaterThan(1);
  });

  it("that is cut while mappings are judged holds the most promising of each instruction", () => {
    const rows = intrinsicsNamed("vnni").filter((row) => mappings(CONV.computation, row).valid.length > 0);
    const ranked = (most?: number): readonly string[] => {
      const space = finished(
        candidateSpace(CONV.computation, rows, () => 1, 1, 1),
        most,
      );
      return "ranked" in space ? space.ranked.map(({ context }) => context.mapping.intrinsic.name) : [];
    };
    expect(ranked().length).toBeGreaterThan(rows.length);
    // One step an instruction, before its mappings are judged.
    expect(ranked(rows.length)).toEqual(rows.map(({ name }) => name));
  });

  it("is ended by a signal", async () => {
    const controller = new AbortController();
    const phases: string[] = [];
    const outcome = await search("stopped.db", {
      signal: controller.signal,
      onEvent: (event) => {
        phases.push(event.kind === "phase" ? event.phase : event.kind);
        if (event.kind === "phase" && event.at) controller.abort();
      },
    });
    expect(outcome).toMatchObject({ status: "interrupted", trials: [] });
    expect(phases).toEqual(["calibrating", "enumerating", "enumerating"]);
  });
});
