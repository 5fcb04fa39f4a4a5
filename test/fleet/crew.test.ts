/** @file When two measurements of a kernel by different workers agree, which of them claims more, and which are made twice. */

import { expect, it } from "vitest";
import type { Measurement } from "../../abstraction/trial.ts";
import { agree, Checks, claimsMore } from "../../fleet/crew.ts";
import { took } from "../support/fake-runner.ts";

const wrong: Measurement = { status: "wrong", log: "element 3" };

it.each([
  ["equal times", took(10e-6), took(10e-6), true],
  ["times apart by a tenth", took(10e-6), took(11e-6), true],
  ["half the time", took(5e-6), took(10e-6), false],
  ["wrong and wrong", wrong, wrong, true],
  ["right and wrong", took(10e-6), wrong, false],
] as const)("workers agree, whoever measured first: %s", (_, a, b, expected) => {
  expect([agree(a, b), agree(b, a)]).toEqual([expected, expected]);
});

it("the faster claims more, and one that works more than one that fails", () => {
  expect([claimsMore(took(5e-6), took(10e-6)), claimsMore(took(10e-6), took(5e-6))]).toEqual([true, false]);
  expect([claimsMore(took(10e-6), wrong), claimsMore(wrong, took(10e-6))]).toEqual([true, false]);
});

it("measures again the first trial of a worker, and then one of twenty until five are confirmed, and cannot be foreseen", () => {
  const due = (confirmed: number): number[] => {
    const checks = new Checks(100);
    for (let i = 0; i < confirmed; i++) checks.confirm();
    return Array.from({ length: 1000 }, (_, i) => i + 1).filter(() => checks.isDue());
  };
  const often = due(4);
  expect(often[0]).toBe(1);
  expect(often).toHaveLength(50);
  expect(often.slice(1).every((at, i) => at - (often[i] ?? 0) < 40)).toBe(true);
  expect(due(4)).not.toEqual(often);
  expect(due(5)).toHaveLength(10);
});
