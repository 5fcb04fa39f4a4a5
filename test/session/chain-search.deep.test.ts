/**
 * @file Steps of a network other than products are searched as products are: verified, measured, recorded and replayed. Those are programs whose
 * equations share their rows, and plain loops.
 */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { kernelOfRecord } from "../../session/kinds/kernel.ts";
import { usualKernel } from "../../session/kinds/kinds.ts";
import { chainsIn, choicesOf, loopRowsFor, openGraph } from "../../session/network/network.ts";
import { tuneNetwork } from "../../session/network/tune-network.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { nativeTarget } from "../../targets/index.ts";
import { CHAIN_GRAPHS, centred, programIn, STORING_GRAPHS } from "../support/chain-graphs.ts";
import { withCalibration } from "../support/fake-runner.ts";
import { compilerHere, runnerHere } from "../support/here.ts";
import { onnx } from "../support/networks.ts";
import { expectProved } from "../support/proved-network.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder("automap chains ");
const database = withCalibration(join(folder, "chains.db"), await compilerHere());

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
    const runner = await runnerHere();
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
    const chainIn = async (seconds: number) =>
      (await tuneNetwork(program, { seconds, database })).find(({ task }) => task.computation.program);
    const first = await chainIn(12);
    // On a busy machine the time may not reach it.
    const chain = first?.searched === true ? first : await chainIn(60);
    expect(chain).toMatchObject({ searched: true, seconds: expect.any(Number) });
    const compiler = await compilerHere();
    const db = openDatabase(database, { readonly: true });
    try {
      const records = { db, environment: environmentOf({ compiler }) };
      const choices = choicesOf(program, { records });
      const chains = chainsIn(program, choices, { threads: 1, records });
      expect(chains.map(({ choice }) => choice.kind)).toEqual(["record"]);
      await expectProved(join(folder, "attention"), { program, plain }, choices, { chains });
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

describe("plain loops of a network", () => {
  it("are searched where it has nothing else, recorded, and then taken from the record", async () => {
    const { program, plain } = openGraph(onnx("MaxPool<kernel_shape=[3,3],strides=[2,2]>(x[1,16,61,61])"));
    const tuned = await tuneNetwork(program, { seconds: 8, database });
    expect(tuned).toMatchObject([{ searched: true, seconds: expect.any(Number) }]);
    const compiler = await compilerHere();
    const db = openDatabase(database, { readonly: true });
    try {
      const choices = choicesOf(program, { records: { db, environment: environmentOf({ compiler }) } });
      expect([...choices.values()]).toMatchObject([{ kind: "record", family: "loops" }]);
      await expectProved(join(folder, "pool"), { program, plain }, choices);
      const [task] = choices.keys();
      if (!task) throw new Error("no task");
      const [trial] = queryTrials(db, { computation: task.computation, limit: 1 });
      if (trial?.run === undefined) throw new Error("no trial");
      expect((await replayRun(db, trial.run)).divergence).toBeUndefined();
    } finally {
      db.close();
    }
  });

  it("still join a chain once they have a record of their own", async () => {
    const graph = onnx("MatMul(Softmax<axis=1>(MatMul(x[64,96], [96,200]{1})), [200,16]{2})");
    const { program } = openGraph(graph);
    const alone = program.steps.find(({ computation }) => computation.equation.op === "max=")?.computation;
    if (!alone) throw new Error("no maximum");
    await tuneComputation({ computation: alone }, { trials: 3, database, intrinsics: loopRowsFor() });
    const compiler = await compilerHere();
    const db = openDatabase(database, { readonly: true });
    try {
      const choices = choicesOf(program, { records: { db, environment: environmentOf({ compiler }) } });
      const own = [...choices].find(([{ computation }]) => computation === alone)?.[1];
      expect(own).toMatchObject({ kind: "record", family: "loops" });
      expect(chainsIn(program, choices, {}).map(({ steps }) => steps.length)).toEqual([4]);
    } finally {
      db.close();
    }
  });
});
