/** The memory of a network beside ONNX Runtime, estimated before it is built. */

import { expect, it } from "vitest";
import { memoryNeeded, memoryProblem } from "../../bench/networks/network-memory.ts";
import { MODELS } from "../../network/models/index.ts";
import { openGraph } from "../../session/network/network.ts";

const programOf = (batch: number) => openGraph((MODELS["resnet18"] as (typeof MODELS)[string])({ batch })).program; // a network of the table

it("counts weights once for each copy, whatever the batch, and values between steps by the batch", () => {
  const one = memoryNeeded(programOf(1));
  const sixteen = memoryNeeded(programOf(16));
  // 11.7 M weights, and 56 x 56 x 64 values of f32 before and after the largest steps.
  expect(one).toBeGreaterThan(8 * 4 * 11.6e6);
  expect(sixteen - one).toBeGreaterThan(15 * 2 * 4 * 56 * 56 * 64);
  expect(sixteen).toBeLessThan(4 * one);
});

it("names what is missing, where the network does not fit", () => {
  const program = programOf(1);
  expect(memoryProblem(program, 1e12)).toBeUndefined();
  expect(memoryProblem(program, 1e9)).toMatch(/^it needs about 1\.\d+ GB beside ONNX Runtime, and 1\.00 GB are free$/);
});
