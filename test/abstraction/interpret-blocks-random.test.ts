/**
 * @file The interpreter as a judge of races: nests of random schedules are accepted in every order of threads; each that lacks one barrier, wait or
 * commit, or has a weaker one, and nests altered at random, are accepted only where they give one result in all orders.
 */

import { expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS, type NestOrder } from "../../abstraction/blocks/run.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { affordableSchedule, exampleOf, gridContextsOf, matmulF16 } from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";
import { rowNamed } from "../support/subjects.ts";
import { scrambled, withoutEach } from "../support/warp-nest.ts";

const PRODUCT = matmulF16(32, 16, 64);
const CONTEXTS = gridContextsOf(PRODUCT, ["mma.m16n8k16.f32.f16", "wmma.m16n16k16.f32.f16"].map(rowNamed));
const { inputs, expected } = exampleOf(PRODUCT);

function drawnNest(random: Random): LoopNest {
  for (;;) {
    const context = pick(random, CONTEXTS);
    const schedule = affordableSchedule(context, random, 40_000);
    if (schedule) return lowerGrid(context, schedule);
  }
}

/** What the nest computes, if it is not refused. */
function ran(nest: LoopNest, order: NestOrder): ArrayLike<number> | undefined {
  try {
    return interpretNest(nest, PRODUCT, inputs, 2, order);
  } catch (error) {
    if (error instanceof NestFault) return undefined;
    throw error;
  }
}

it("a right nest is accepted in any order, and one without a barrier, wait or commit refused, or a weaker one, where it does harm", () => {
  const random = seededRandom(Number(process.env["AUTOMAP_TEST_SEED"] ?? 1));
  const counts = { faults: 0, refused: 0, lucky: 0 };
  for (let drawn = 0; drawn < inFull(400, 12); drawn++) {
    const nest = drawnNest(random);
    const said = printNest(nest);
    for (const order of inFull(ADVERSE_ORDERS, [pick(random, ADVERSE_ORDERS)]))
      expect(ran(nest, order), `${JSON.stringify(order)}\n${said}`).toEqual(expected);
    for (const { left, nest: faulty } of [...withoutEach(nest), ...withoutEach(nest, "weaker")]) {
      counts.faults++;
      const order = pick(random, ADVERSE_ORDERS);
      const result = ran(faulty, order);
      if (result) {
        // Nothing follows a loop of one trip that could wait for it, or no stage is used again.
        expect(left, said).not.toMatch(/^wait/);
        for (const other of ADVERSE_ORDERS) expect(ran(faulty, other), `without ${left}\n${said}`).toEqual(expected);
        continue;
      }
      counts.refused++;
      // The values that the same run would have given: often the right ones.
      const values = interpretNest(faulty, PRODUCT, inputs, 1, { ...order, races: "ignored" });
      if (values.every((value, i) => value === expected[i])) counts.lucky++;
    }
  }
  expect(counts.refused).toBeGreaterThan(0.8 * counts.faults);
  expect(counts.lucky).toBeGreaterThan(counts.faults / 4);
});

it("a scrambled nest is accepted only if all orders give one result", () => {
  const random = seededRandom(Number(process.env["AUTOMAP_TEST_SEED"] ?? 2));
  const counts = { right: 0, wrong: 0, refused: 0 };
  while (counts.right < inFull(1000, 12)) {
    const right = drawnNest(random);
    for (let i = 0; i < 6; i++) {
      const nest = scrambled(random() < 0.5 ? right : scrambled(right, random), random);
      const [first, ...others] = ADVERSE_ORDERS.map((order) => ran(nest, order));
      for (const other of others) expect(other, printNest(nest)).toEqual(first);
      counts[!first ? "refused" : Array.from(first).every((value, at) => value === expected[at]) ? "right" : "wrong"]++;
    }
  }
  // Some still compute the product, some something else, most have no order.
  expect(Math.min(counts.wrong, counts.refused)).toBeGreaterThan(0);
});
