/** @file Designs on the lanes of a GPU's warps in the search of a GPU: its space, its results, and a search of it. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { isDesign } from "../../abstraction/candidate.ts";
import { finished } from "../../abstraction/steps.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { warpWindowSpace } from "../../tuner/lane-candidates.ts";
import { emulatedRunner } from "../support/emulated-runner.ts";
import { fakeCuda } from "../support/fake-cuda.ts";
import { stated } from "../support/subjects.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-warp-lanes-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const H100 = nvidiaTarget("h100");
const stencil = (name: string, types: string, side: number) =>
  instantiate(operatorNamed(name), { parameters: { h: side, w: side }, types: parseDataTypes(types) });

const { runner } = emulatedRunner();

describe("lanes of warps", () => {
  it("offer every dataflow, in blocks of one to sixteen rows", () => {
    const space = warpWindowSpace(stencil("2d9pt", "f32", 64), H100);
    if ("rule" in space) throw new Error(space.because);
    const all = [...space.all()];
    expect(new Set(all.map((s) => s.dataflow))).toEqual(new Set(["SBM", "FBS-shift", "FBS-load"]));
    expect(new Set(all.map((s) => s.rows))).toEqual(new Set([1, 2, 4, 8, 16]));
    expect(all.every((s) => s.lanes === 32)).toBe(true);
  });

  it("are refused for a machine without figures of them; where no window slides they run designs by transforms", () => {
    expect(warpWindowSpace(stencil("2d5pt", "f32", 64), nvidiaTarget("v100"))).toMatchObject({
      because: expect.stringContaining("no figures of the lanes of v100"),
    });
    const matmul = stated("matmul --dtype f16");
    const options = { machine: H100, intrinsics: usableIntrinsics(H100), threads: 1, seed: 1 } as const;
    const found = finished(sessionSpace(matmul, { ...options, kinds: "lanes" }));
    expect(!isRefusals(found) && found.promising?.every(isDesign)).toBe(true);
  });

  it("are predicted to be bound by memory for a small stencil, by issues for a large window", () => {
    const fastest = (name: string): number => {
      const ranked = rankByModel(stencil(name, "f32", 8192), { machine: H100, kinds: "lanes", count: 1 });
      if ("refused" in ranked) throw new Error("refused");
      return ranked[0]?.prediction.seconds ?? 0;
    };
    // A copy of the image takes 0.17 ms on an H100; on an H200 2d5pt was measured at 0.14 ms and 2d121pt at 0.40 ms (bench/trials/cuda-picked-lanes-h200.jsonl.gz).
    expect(fastest("2d5pt")).toBeGreaterThan(0.1e-3);
    expect(fastest("2d5pt")).toBeLessThan(0.25e-3);
    expect(fastest("2d121pt")).toBeGreaterThan(0.25e-3);
    expect(fastest("2d121pt")).toBeLessThan(0.8e-3);
  });

  it.each(["f32", "f64"])("are right in every element in each of their dataflows, in %s", async (types) => {
    const computation = stencil("2d9pt", types, 40);
    const space = finished(
      sessionSpace(computation, {
        machine: H100,
        intrinsics: usableIntrinsics(H100),
        threads: 1,
        seed: 1,
        kinds: "lanes",
      }),
    );
    if (isRefusals(space)) throw new Error(space[0]?.because);
    const seen = new Set<string>();
    const candidates = [...space.all()].filter((c) => {
      const design = c.kind === "warp-window" ? `${c.schedule.dataflow} ${c.schedule.rolled}` : "";
      const isNew = c.kind === "warp-window" && c.schedule.rows === 4 && !seen.has(design);
      if (isNew) seen.add(design);
      return isNew;
    });
    expect(candidates.length).toBeGreaterThanOrEqual(3);
    const reference = await runner().reference(computation, 1);
    const kernels = candidates.map((c) => space.kernelOf(c));
    expect(kernels[0]?.source).toContain(types === "f32" ? "fmaf(" : "fma(");
    const measured = await runner().measureTogether(kernels, reference, { budgetSeconds: 0, batches: [1, 1] });
    expect(measured.map((m) => m.status)).toEqual(kernels.map(() => "ok"));
  });

  it("are searched by tune for a stencil on a GPU", async () => {
    const ranked = rankByModel(stencil("2d5pt", "f32", 8192), { machine: H100, count: 60 });
    if ("refused" in ranked) throw new Error("refused");
    const [first] = ranked;
    const window = ranked.find(({ candidate }) => candidate.kind === "warp-window");
    // Both read memory once at its rate.
    expect(window?.prediction?.seconds).toBeLessThan(1.1 * (first?.prediction?.seconds ?? 0));
    const ran = await fakeCuda(folder).commandLine(
      `tune 2d5pt --h 40 --w 40 --dtype f32 --target cuda --kinds lanes --trials 3 --time 300 --db ${folder}/t.db --json`,
    );
    expect(ran.code, ran.err).toBe(0);
    expect(JSON.parse(ran.out).best.intrinsic).toBe("cuda.fma.f32");
  });
});
