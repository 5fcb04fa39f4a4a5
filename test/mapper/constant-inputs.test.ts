/** @file `--constant w`: an input of an operator or an equation that never changes, so that it is packed once ahead of time. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Placement, Schedule } from "../../abstraction/candidate.ts";
import { type Computation, computationKey, defineComputation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { EXIT } from "../../abstraction/exit-codes.ts";
import { readComputation } from "../../cli/subject.ts";
import { best, openDatabase, recordTrial } from "../../db/index.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { describeWorkload, workloadLabel } from "../../operators/describe.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { createTerms } from "../../perfmodel/model.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { REFERENCE_CPU } from "../../targets/x86.ts";
import { complaint } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { measured, newTrial, trial, workshop } from "../support/database.ts";
import { named } from "../support/refusals.ts";
import { operation } from "../support/subjects.ts";

const shop = workshop();
afterAll(() => shop.remove());

const GEMV = "y[i] += f32(w[i,k]) * x[k]";
const WORDS = ["--i", "64", "--k", "64", "--dtype", "w=s8,x=f32"];
const read = (constant: readonly string[]): Computation =>
  readComputation(GEMV, { i: 64, k: 64 }, { dtype: "w=s8,x=f32", constant: [...constant] });

describe("--constant", () => {
  it("marks an input of an equation, whose tiles are then packed ahead of time", () => {
    const packed = (computation: Computation): { readonly prepare: number; readonly body: number } => {
      const [mapping] = mappings(computation, named("avx512.fma.f32.broadcast")).valid;
      if (!mapping) throw new Error("nothing maps");
      const schedule: Schedule = { order: ["i", "k"], block: {}, placement: { a: "in-place", b: "tiled" }, threads: 1 };
      const { prepare, body } = lowerSchedule(mapping, schedule);
      return { prepare: prepare.length, body: body.length };
    };
    const plain = packed(read([]));
    const constant = packed(read(["w"]));
    expect(plain.prepare).toBe(0);
    expect(constant.prepare).toBeGreaterThan(0);
    expect(constant.body).toBeLessThan(plain.body);
  });

  it("marks an input of an operator and a tensor of an epilogue", () => {
    const made = readComputation("matmul", {}, { constant: ["b"], epilogue: "res[m,n] = out[m,n] + bias[m,n]" });
    expect(Object.values(made.tensors).map((t) => t.constant)).toEqual([false, false, true, false]);
    const both = { constant: ["b", "bias"], epilogue: "res[m,n] = out[m,n] + bias[m,n]" };
    expect(readComputation("matmul", {}, both).tensors["bias"]?.constant).toBe(true);
    expect(computationKey(operation("matmul", "f32", { constants: ["b"] }))).toBe(
      computationKey(readComputation("matmul", {}, { constant: ["b"] })),
    );
  });

  it("makes what a tensor description makes in the library", () => {
    const made = defineComputation({
      equation: GEMV,
      extents: { i: 64, k: 64 },
      tensors: { w: { dtype: "s8", constant: true }, x: "f32" },
    });
    expect(computationKey(made)).toBe(computationKey(read(["w"])));
    expect(computationKey(made)).not.toBe(computationKey(read([])));
  });

  it("is said in the label of a workload", () => {
    expect(workloadLabel(describeWorkload({ computation: read(["w"]) }))).toBe(
      "y[i] += f32(w[i,k]) * x[k], i 64 k 64, s8f32->f32, w constant",
    );
    const parameters = { m: 8, n: 8, k: 8 };
    const computation = instantiate(operatorNamed("matmul"), { parameters, constants: ["b"] });
    expect(workloadLabel(describeWorkload({ computation, parameters }))).toBe(
      "matmul m 8 n 8 k 8, f32->f32, b constant",
    );
  });
});

describe("records of a computation with a constant input", () => {
  const file = shop.path("constants.db");
  const workload = (constant: readonly string[]) => ({ computation: read(constant), parameters: {} });
  const took = (microseconds: number, constant: readonly string[]) =>
    newTrial(1, { workload: workload(constant), trial: trial(measured(microseconds)) });

  beforeAll(() => {
    const db = openDatabase(file);
    recordTrial(db, took(100, []));
    recordTrial(db, took(5, ["w"]));
    db.close();
  });

  it("are apart from those without", () => {
    const db = openDatabase(file, { readonly: true });
    const fastest = (constant: readonly string[]) =>
      best(db, { computation: read(constant) }).map((t) => t.measurement);
    expect(fastest([])).toEqual([measured(100)]);
    expect(fastest(["w"])).toEqual([measured(5)]);
    db.close();
  });

  it("are apart in a comparison of databases", async () => {
    const { out } = await commandLine(["check", "--baseline", file, "--db", file, "--json"]);
    const { findings } = JSON.parse(out) as { findings: readonly { workload: string; verdict: string }[] };
    expect(findings.map((f) => [f.verdict, f.workload.endsWith("w constant")]).sort()).toEqual([
      ["same", false],
      ["same", true],
    ]);
  });

  it("are the ones that emit looks for", async () => {
    const to = shop.path("package");
    const words = ["emit", GEMV, ...WORDS, "--constant", "x", "--to", to, "--db", file, "--trust", "any"];
    expect(await complaint(words, EXIT.nothingFound)).toContain("--dtype w=s8,x=f32 --constant x");
  });
});

describe("the price of packing", () => {
  const packing = (equation: string, dtype: DType): number => {
    const computation = defineComputation({ equation, extents: { i: 256, k: 256 }, tensors: { w: dtype, x: "f32" } });
    const [mapping] = mappings(computation, named("avx512.fma.f32.broadcast")).valid;
    if (!mapping) throw new Error("nothing maps");
    const placement: Record<string, Placement> = { a: "in-place", b: "tiled" };
    const costs = createTerms(
      mapping,
      modelTarget(REFERENCE_CPU),
    )({ order: ["i", "k"], block: {}, placement, threads: 1 });
    return costs?.terms.find((t) => t.name === "pack")?.seconds ?? 0;
  };

  it("counts that elements to be converted are gathered one by one, and converted", () => {
    const { strided, operation } = modelTarget(REFERENCE_CPU).scalar;
    const cycles = packing(GEMV, "s16") * modelTarget(REFERENCE_CPU).clockHz.value;
    expect(cycles).toBeCloseTo(256 * 256 * (strided.value + operation.value), 3);
  });

  it("is lower where the elements of a row are side by side in the tensor", () => {
    expect(packing("y[i] += f32(w[k,i]) * x[k]", "s16")).toBeLessThan(packing(GEMV, "s16") / 2);
  });

  it("is lower of bytes, which a load converts later", () => {
    expect(packing(GEMV, "s8")).toBeLessThan(packing(GEMV, "s16"));
  });

  it("is higher than of elements that are moved as they are", () => {
    expect(packing(GEMV, "s16")).toBeGreaterThan(packing("y[i] += w[i,k] * x[k]", "f32"));
  });
});
