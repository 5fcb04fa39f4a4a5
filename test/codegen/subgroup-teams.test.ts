/** @file Which phases of a nest the sub-groups of a work-group share, and how its statements are divided. */

import { expect, it } from "vitest";
import { number } from "../../abstraction/expression.ts";
import { type Loop, type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { teamsIn } from "../../codegen/subgroup/subgroup-teams.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";

const [ROW] = intrinsicsNamed("sycl.fma.16.f32.broadcast");
if (!ROW) throw new Error("no such row");
const register = { file: "c", index: number(0) };
const copied = (axis: string): Statement => ({
  kind: "scalar",
  equation: parseEquation(`x_copy[${axis}] = x[${axis}]`),
});
const COPY = loop("i", 32, [copied("i")]);
const CLEAR: Statement = { kind: "clear", register };
const ISSUE: Statement = { kind: "register-issue", intrinsic: ROW, registers: { c: register } };
const STORE: Statement = { kind: "store", register, memory: { buffer: "results", base: number(0), stride: 1 } };
const SUMS = loop("m", 6, [CLEAR, ISSUE, STORE]);

const NEST: LoopNest = {
  scratch: ["x_copy", "results"].map((name) => ({ name, elements: 96, dtype: "f32", scope: "local" }) as const),
  registers: [],
  prepare: [],
  body: [],
};
const teamsOf = (...phase: readonly Statement[]) => teamsIn(phase, NEST, (s: Loop) => [{ loops: [s], body: s.body }]);
const parallel = (...body: readonly Statement[]): Statement => loop("b", 64, body, "parallel");

it("a phase is shared where each task copies first: everybody copies, then the steps of sums are dealt", () => {
  const teams = teamsOf(parallel(COPY, SUMS));
  expect([teams?.count, [...(teams?.results ?? [])]]).toEqual([6, ["results"]]);
  expect(teams?.segmentsOf([COPY, SUMS, CLEAR]).map(({ kind, first }) => [kind, first])).toEqual([
    ["together", 0],
    ["dealt", 0],
    ["run", 6],
  ]);
  expect(teamsOf(COPY, parallel(COPY, SUMS))?.count).toBe(6);
});

it("a phase is not shared without tasks, without a copy, or where a thread does more than copy beside its tasks", () => {
  expect(teamsOf(COPY)).toBeUndefined();
  expect(teamsOf(parallel(SUMS))).toBeUndefined();
  expect(teamsOf(SUMS, parallel(COPY, SUMS))).toBeUndefined();
});

it("a loop around copies is walked by all, unless sums outlive it", () => {
  const edge: Loop = { ...COPY, range: { from: [number(0)], to: [number(8)] } };
  const kindsIn = (around: Statement) =>
    teamsOf(parallel(around, SUMS))
      ?.segmentsOf([around])
      .map(({ kind }) => kind);
  expect(kindsIn(loop("k", 4, [COPY, SUMS]))).toEqual(["around"]);
  expect(kindsIn(edge)).toEqual(["around"]);
  expect(kindsIn(loop("k", 4, [COPY, ISSUE]))).toBeUndefined();
});
