/** @file When two measurements of a kernel by different workers agree, and which of them claims more. */

import { expect, it } from "vitest";
import type { Measurement } from "../../abstraction/trial.ts";
import { agree, claimsMore } from "../../fleet/crew.ts";
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
