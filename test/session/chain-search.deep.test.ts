/** @file A program whose equations share their rows is searched as a single equation is: verified, measured, recorded, and replayed. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { createRunner } from "../../runtime/measure.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { kernelOfRecord } from "../../session/kinds/kernel.ts";
import { usualKernel } from "../../session/kinds/kinds.ts";
import { chainsIn, choicesOf, networkSubject, openGraph } from "../../session/network/network.ts";
import { proveNetwork } from "../../session/network/prove-network.ts";
import { tuneNetwork } from "../../session/network/tune-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { nativeTarget } from "../../targets/index.ts";
import { CHAIN_GRAPHS, centred, programIn, STORING_GRAPHS } from "../support/chain-graphs.ts";
import { withCalibration } from "../support/fake-runner.ts";
import { compilerHere } from "../support/here.ts";
import { onnx } from "../support/networks.ts";

let folder: string;
let database: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "automap chains "));
  database = withCalibration(join(folder, "chains.db"), await compilerHere());
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("a program of rows", () => {
  it.each([...CHAIN_GRAPHS, ...STORING_GRAPHS])(
    "is searched, and every kernel of it is right: %s",
    async (_, graph) => {
      const outcome = await tuneComputation(
        { computation: programIn(graph) },
        { trials: 12, database, earlyStop: false },
      );
      if (!("trials" in outcome)) throw new Error(JSON.stringify(outcome));
      expect(outcome.failed).toEqual({});
      expect(outcome.trials.length).toBeGreaterThan(3);
      for (const { candidate, prediction } of outcome.trials) {
        expect(candidate.kind).toBe("chain");
        expect(prediction?.seconds).toBeGreaterThan(0);
      }
      expect(outcome.best?.measurement.median).toBeGreaterThan(0);
    },
  );

  it("is wrong in each value that it stores", async () => {
    const right = programIn(centred);
    const made = await createRunner();
    if (made.status === "environment") throw new Error(made.what);
    const { runner } = made;
    try {
      const reference = await runner.reference(right, 1);
      // Another factor of what is stored besides, then of the output.
      for (const [from, to, wrong] of [
        ['"value":2', '"value":3', "y1"],
        ['"op":"-"', '"op":"+"', "y2"],
      ] as const) {
        const changed: Computation = JSON.parse(JSON.stringify(right).replaceAll(from, to));
        const measured = await runner.measure(usualKernel(changed, nativeTarget()), reference);
        expect(measured).toMatchObject({
          status: "wrong",
          log: expect.stringContaining(` elements of ${wrong} differ`),
        });
      }
      const kernel = usualKernel(right, nativeTarget());
      expect(await runner.measure(kernel, reference, { budgetSeconds: 0.001 })).toMatchObject({ status: "ok" });
    } finally {
      await runner.close();
    }
  });

  it("takes the place of the fixed rule in a network, whose library is then right", async () => {
    const graph = onnx("MatMul(Softmax<axis=1>(MatMul(x[64,96], [96,200]{1})), [200,16]{2})");
    const { program, plain } = openGraph(graph);
    const tuned = await tuneNetwork(program, { seconds: 12, database });
    const chain = tuned.find(({ task }) => task.computation.program);
    expect(chain).toMatchObject({ searched: true, used: true, seconds: expect.any(Number) });
    const compiler = await compilerHere();
    const db = openDatabase(database, { readonly: true });
    try {
      const records = { db, environment: environmentOf({ compiler }) };
      const choices = choicesOf(program, { records });
      const chains = chainsIn(program, choices, { threads: 1, records });
      expect(chains.map(({ choice }) => choice.kind)).toEqual(["record"]);
      const subject = networkSubject(program, choices, { chains });
      const at = join(folder, "attention");
      writePackage(at, networkFiles(subject));
      const proof = await proveNetwork(at, partsOfNetwork(subject), compiler, { asRead: plain });
      expect(proof).toEqual({ status: "right", steps: program.steps.length });
    } finally {
      db.close();
    }
  });

  it("is read back from its records, whose search repeats", async () => {
    const db = openDatabase(database, { readonly: true });
    try {
      const [trial] = queryTrials(db, { limit: 1 });
      if (trial?.run === undefined) throw new Error("no trial");
      expect(kernelOfRecord(trial).source).toContain("plain loops, row by row");
      expect((await replayRun(db, trial.run)).divergence).toBeUndefined();
    } finally {
      db.close();
    }
  });
});
