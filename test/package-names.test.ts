/** @file Each operator gives its package a valid name in C. */

import { expect, it } from "vitest";
import { OPERATORS } from "../operators/index.ts";
import { packageName } from "../package/index.ts";

it.each(OPERATORS.map(({ name }) => name))("%s can name its kernel", (name) => {
  expect(packageName(name)).toMatch(/^[a-z]\w*$/);
});

it("puts a word before a digit, and leaves other names alone", () => {
  expect(packageName("2d5pt")).toBe("kernel_2d5pt");
  expect(packageName("depthwise-conv2d")).toBe("depthwise_conv2d");
});
