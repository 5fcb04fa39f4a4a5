/**
 * @file A batched matrix product in SYCL in the three forms of a talk: basic, with a block of sums in registers, and with
 * copies in local memory that the sub-groups of a work-group share. Each is one schedule of the same mapping.
 */

import { describe, expect, it } from "vitest";
import type { MappedCandidate } from "../../abstraction/candidate.ts";
import { candidateInLanguage } from "../../session/kinds/languages.ts";
import { disagreements } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

const GEMM = operation("batched-matmul b=3 m=27 n=27 k=40");
const ORDER = ["b", "m", "n", "k"];

const FORMS: Readonly<Record<string, MappedCandidate["schedule"]>> = {
  basic: { order: ORDER, block: {}, placement: { a: "in-place", b: "padded" }, threads: 1 },
  tiled: { order: ORDER, block: { m: 4, n: 2 }, placement: { a: "in-place", b: "padded" }, threads: 1 },
  "local memory": {
    order: ORDER,
    block: { m: 4, n: 2 },
    placement: { a: "padded", b: "tiled" },
    threads: 1,
    within: { a: "b", b: "b" },
  },
  // Its sums live across the copies, so they stay with one sub-group.
  "local memory by steps of k": {
    order: ["b", "m", "n", "k/8", "k"],
    block: { m: 4, n: 2 },
    placement: { a: "padded", b: "padded" },
    threads: 1,
    within: { a: "k/8" },
  },
};

const made = Object.entries(FORMS).map(([name, schedule]) => {
  const candidate: MappedCandidate = {
    kind: "mapping",
    intrinsic: "sycl.fma.16.f32.broadcast",
    matching: { n: ["n"] },
    schedule,
    operands: { c: "out[b,m,n]", a: "x[b,m,k]", b: "y[b,k,n]" },
  };
  const found = candidateInLanguage(GEMM, candidate, "sycl");
  if ("refused" in found) throw new Error(`${name}: ${found.refused}`);
  return { name, ...found };
});
const textOf = (name: string): string => made.find((m) => m.name === name)?.kernel.source ?? "";

describe("a batched product in SYCL", () => {
  it("equals the equation in every form, with work-items forward and reversed", async () => {
    expect(await disagreements([...made, ...made.slice(1)])).toEqual([]);
  });

  it("has a work-group of several sub-groups only where they share local memory", () => {
    const last = (name: string) => [...textOf(name).matchAll(/nd_range<1>\((\d+), (\d+)\)/g)].at(-1)?.slice(1);
    expect(made.map(({ name }) => [name, last(name)])).toEqual([
      ["basic", ["1296", "16"]],
      ["tiled", ["48", "16"]],
      ["local memory", ["336", "112"]],
      ["local memory by steps of k", ["48", "16"]],
    ]);
  });

  it("copies with every work-item, meets at barriers of the work-group, and deals blocks of sums to sub-groups", () => {
    const said = /local_accessor|get_group\(\)|member|team|c0 = 0/;
    const lines = textOf("local memory")
      .split("\n")
      .filter((line) => said.test(line));
    expect(lines.map((line) => line.trim())).toMatchInlineSnapshot(`
      [
        "sycl::local_accessor<float, 1> x_padded(1080, handler);",
        "sycl::local_accessor<float, 1> b_tiles(1280, handler);",
        "sycl::local_accessor<float, 1> c_results_of_teams(896, handler);",
        "const int member = item.get_local_id(0);",
        "const int team = item.get_sub_group().get_group_linear_id();",
        "const auto c_results = c_results_of_teams.get_multi_ptr<sycl::access::decorated::no>() + team * 128;",
        "sycl::group_barrier(item.get_group());",
        "for (int x_padded_zero = member; x_padded_zero < 1080; x_padded_zero += 112) {",
        "sycl::group_barrier(item.get_group());",
        "sycl::group_barrier(item.get_group());",
        "for (int k_copy = member; k_copy < 40; k_copy += 112) {",
        "sycl::group_barrier(item.get_group());",
        "sycl::group_barrier(item.get_group());",
        "for (int k_step = member; k_step < 40; k_step += 112) {",
        "sycl::group_barrier(item.get_group());",
        "for (int m_outer = team; m_outer < 6; m_outer += 7) {",
        "c0 = 0;",
        "if (team == 6) {",
        "c0 = 0;",
      ]
    `);
  });
});
