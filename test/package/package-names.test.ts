/** @file Each operator gives its package a valid name in C. */

import { expect, it } from "vitest";
import { UsageError } from "../../abstraction/error.ts";
import { OPERATORS } from "../../operators/index.ts";
import { packageName, packageNameFrom } from "../../package/index.ts";

it.each(OPERATORS.map(({ name }) => name))("%s can name its kernel", (name) => {
  expect(packageName(name)).toMatch(/^[a-z]\w*$/);
});

it("puts a word before a digit, and leaves other names alone", () => {
  expect(packageName("2d5pt")).toBe("kernel_2d5pt");
  expect(packageName("depthwise-conv2d")).toBe("depthwise_conv2d");
});

it("leaves no name to a header of C, which the package's own would stand in for", () => {
  for (const name of ["math", "string", "Time"]) expect(() => packageName("matmul", name)).toThrow(UsageError);
});

it("makes a valid name of whatever a file is called", () => {
  const made = (text: string): string => packageNameFrom(text);
  expect(made("resnet18")).toBe("resnet18");
  expect(made("hey_rhasspy_v0.1")).toBe("hey_rhasspy_v0_1");
  expect(made("2-yolo v8 (1)")).toBe("network_2_yolo_v8_1");
  expect(made("class")).toBe("network_class");
  expect(made("test")).toBe("network_test");
  expect(made("math")).toBe("network_math");
  expect(made("a__b_")).toBe("a_b");
  const hostile = [
    '"); system("x',
    "../../etc/passwd",
    "\u0000",
    "",
    "___",
    "\u6a21\u578b",
    "a\n#include <x>",
    "x".repeat(4000),
  ];
  for (const text of hostile) expect(packageName("matmul", made(text))).toMatch(/^[A-Za-z]\w{0,62}$/);
});
