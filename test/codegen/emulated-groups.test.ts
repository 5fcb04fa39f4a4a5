/**
 * @file Kernels of warpgroups on the emulated device: right in every order, and wrong in some without one of the
 * guards.
 */

import { describe, expect, it } from "vitest";
import type { Values } from "../../abstraction/evaluate.ts";
import { printEquation } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { ADVERSE_ORDERS, runEmulated } from "../../runtime/emulated-kernel.ts";
import { GROUP_INPUTS, type GroupMatmulOptions, GUARDS, groupMatmul } from "../support/group-matmul.ts";

const VARIANTS: readonly (readonly [string, GroupMatmulOptions])[] = [
  ["whole", {}],
  ["turned", { turned: true }],
  ["nothing in flight", { stages: 2, inFlight: 0 }],
  ["a stage too few", { stages: 3, inFlight: 1, ahead: 2 }],
  ...GUARDS.map((without) => [`without ${without}`, { without }] as const),
];

describe("an emulated warpgroup", async () => {
  const jobs = VARIANTS.flatMap(([name, options]) => {
    const { computation, nest, intrinsic } = groupMatmul(options);
    const kernel = generateCuda(computation, intrinsic, nest, { lines: [] });
    const orders = options.without === undefined ? ADVERSE_ORDERS : ADVERSE_ORDERS.slice(0, 2);
    return orders.map((order) => ({ name, computation, job: { kernel, inputs: GROUP_INPUTS, order } }));
  });
  const runs = await runEmulated(jobs.map(({ job }) => job));
  const outcomes = new Map<string, Set<string>>();
  const results = new Map<string, Values>();
  for (const [i, { name, computation }] of jobs.entries()) {
    const run = runs[i];
    const equation = printEquation(computation.equation);
    const expected = results.get(equation) ?? interpret(computation, GROUP_INPUTS);
    results.set(equation, expected);
    const outcome =
      run?.status !== "ok"
        ? (run?.log.match(/cuda\.h: .*: (.*)/)?.[1] ?? run?.log ?? "none")
        : run.output.every((v, at) => v === expected[at])
          ? "right"
          : "wrong";
    outcomes.set(name, (outcomes.get(name) ?? new Set()).add(outcome));
  }
  const of = (name: string): string[] => [...(outcomes.get(name) ?? [])].sort();

  it.each(["whole", "turned", "nothing in flight"])("is right in every order: %s", (name) => {
    expect(of(name)).toEqual(["right"]);
  });

  it.each(["fence memory", "commit", "wait", "barrier", "arrival"] as const)("shows what is missing: %s", (guard) => {
    expect(of(`without ${guard}`)).toContain("wrong");
  });

  it("shows that a stage is missing", () => {
    expect(of("a stage too few")).toContain("wrong");
  });

  it("ends the program where a group of issues begins without a fence", () => {
    expect(of("without fence registers")).toEqual(["a group of wgmma begins with a fence of registers"]);
  });
});
