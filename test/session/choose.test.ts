/** @file The instructions that a search is offered. */

import { expect, it } from "vitest";
import { finished } from "../../abstraction/steps.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { chooseSpace, tiersOf, usableIntrinsics } from "../../session/kinds/choose.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { operation, stated } from "../support/subjects.ts";

const ROWS = [...intrinsicsNamed("avx512.fma.f32.broadcast"), ...intrinsicsNamed("avx512.fma.f32.inner")];

const offered = (name: string, layouts?: Readonly<Record<string, string>>): readonly string[] => {
  const computation = instantiate(operatorNamed(name), { types: parseDataTypes("f32"), ...(layouts && { layouts }) });
  return tiersOf(computation, ROWS)
    .flat()
    .map((row) => row.name);
};

it.each([
  ["interaction", undefined],
  ["attention-scores", undefined],
  ["matmul", { b: "NK" }],
] as const)(
  "rows that add up lanes are offered where both factors have the summed axis innermost: %s",
  (name, layouts) => {
    expect(offered(name, layouts)).toEqual(ROWS.map((row) => row.name));
  },
);

it.each([
  ["matmul", undefined],
  // Weights are packed ahead of time.
  ["conv2d", { in: "NHWC", w: "KRSC", out: "NPQK" }],
] as const)("and not where a factor lies as a vector of kept elements, or is packed ahead: %s", (name, layouts) => {
  expect(offered(name, layouts)).toEqual(["avx512.fma.f32.broadcast"]);
});

it("and where a scale is shared by a group of weights", () => {
  expect(offered("matmul-4bit")).toEqual(ROWS.map((row) => row.name));
});

it("rows that add up lanes are offered where one of several summed axes lies innermost", () => {
  const computation = stated("y[i,j] += x[i,r,k] * z[j,r,k] --i 32 --j 32 --r 4 --k 64");
  expect(tiersOf(computation, ROWS).flat()).toEqual(ROWS);
});

it("a row is offered where it is the only one asked for", () => {
  const computation = operation("matmul");
  const inner = ROWS.slice(1);
  expect(tiersOf(computation, inner)).toEqual([inner]);
});

it.each([
  ["y[i,j] = tanh(x[i,j]) * w[j] --i 64 --j 96", ["thread"]],
  ["y[i] += x[i,j] * w[j] --i 64 --j 96", ["thread.fma.f32", "mma"]],
] as const)("a GPU computes what nothing maps in plain loops on its threads: %s", (text, families) => {
  const machine = nvidiaTarget("h200");
  const found = finished(
    chooseSpace(stated(text), usableIntrinsics(machine), { machine, threads: 1, seed: 1, kinds: "all" }),
  );
  if ("refused" in found) throw new Error("refused");
  const names = new Set(found.space.promising?.map(({ intrinsic }) => intrinsic));
  expect([...names].every((name) => families.some((family) => name === family || name.startsWith(`${family}.`)))).toBe(
    true,
  );
  expect(names.size).toBeGreaterThan(0);
});
